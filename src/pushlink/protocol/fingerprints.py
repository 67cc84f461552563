"""Fingerprints: one digest for each surface of a pack that may drift.

A fingerprint is `<surface><version>:` and the SHA-256 of a canonical document (RFC 8785) of all fields of that surface
that say more than their default. The version belongs to the rule of computing it: a later release that computes one
differently compares an old one by its old rule, so that its own change never refuses an existing link.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from pushlink.protocol.contracts import ActionContract, ProfileContract
from pushlink.protocol.snapshots import Digest, canonical
from pushlink.protocol.surfaces import FIELD_ROWS, Surface, surface_of, written_fields

#: The fields of one surface that are written: place in the contract and JSON value.
_Fields: TypeAlias = Iterable[tuple[str, object]]

#: The surfaces that a profile and an action configuration have, in the order of the drift matrix.
FINGERPRINTED: Final = tuple(
    surface
    for surface in Surface
    if any(row is surface and path.startswith(("profile.", "action.")) for path, row in FIELD_ROWS.items())
)

#: The version that new fingerprints get.
VERSION: Final = 1


def mapping_fingerprint(action: ActionContract) -> Digest:
    """What the outbound mappings are: sources, constants, targets, encodings, clear rules, operations."""
    return _compute(Surface.MAPPING, _action(action), VERSION)


def body_fingerprint(action: ActionContract, profile: ProfileContract) -> Digest:
    """How mapped values become a request: methods, encodings, envelopes and headers, the profile's among them."""
    return _compute(Surface.BODY, _both(action, profile), VERSION)


def fingerprints(
    action: ActionContract, profile: ProfileContract, *, like: Mapping[Surface, Digest] | None = None
) -> dict[Surface, Digest]:
    """The fingerprints of all surfaces; `unmapped` is among them only when a field has no row.

    With `like`, each one is computed by the version that its older counterpart has, so that the two can be compared.
    """
    fields = tuple(_both(action, profile))
    surfaces = [*FINGERPRINTED]
    if any(surface_of(path) is Surface.UNMAPPED for path, _, _ in fields):
        surfaces.append(Surface.UNMAPPED)
    older = like or {}
    return {surface: _compute(surface, fields, _version(surface, older.get(surface))) for surface in surfaces}


def profile_hash(profile: ProfileContract) -> Digest:
    """One digest of everything a profile says: a quick test for "nothing changed", never a verdict by itself.

    No row holds one, since a link's profile is compared surface by surface. The golden documents of release 1 pin it.
    """
    return _digest("profile", VERSION, ((place, value) for _, place, value in written_fields("profile", profile)))


def is_same_mapping(frozen: str, action: ActionContract) -> bool:
    """Whether a stored mapping fingerprint still holds, by the rule of its own version; an unknown one does not."""
    return frozen == _compute(Surface.MAPPING, _action(action), _version(Surface.MAPPING, frozen))


def _version(surface: Surface, older: str | None) -> int:
    """The version an older fingerprint has, or the newest when there is none or it is of a later release."""
    number = (older or "").partition(":")[0].removeprefix(surface)
    return int(number) if number.isascii() and number.isdigit() and int(number) in _RULES else VERSION


def _compute(surface: Surface, fields: Iterable[tuple[str, str, object]], version: int) -> Digest:
    chosen = ((place, value) for path, place, value in fields if surface_of(path) is surface)
    return _RULES[version](surface, chosen)


def _version_1(surface: Surface, fields: _Fields) -> Digest:
    return _digest(surface, 1, fields)


#: How each version is computed. A rule that was released is never changed; a new one gets a new number.
_RULES: Final[Mapping[int, Callable[[Surface, _Fields], Digest]]] = {1: _version_1}


def _digest(name: str, version: int, fields: _Fields) -> Digest:
    document = {"fingerprint": name, "version": version, "fields": dict(fields)}
    return Digest(f"{name}{version}:" + hashlib.sha256(canonical(document)).hexdigest())


def _action(action: ActionContract) -> Iterator[tuple[str, str, object]]:
    for path, place, value in written_fields("action", action):
        yield path, f"/action{place}", value


def _both(action: ActionContract, profile: ProfileContract) -> Iterator[tuple[str, str, object]]:
    yield from _action(action)
    for path, place, value in written_fields("profile", profile):
        yield path, f"/profile{place}", value
