"""The drift matrix: what a difference between a snapshot and now means for a link and for a create attempt.

Each row is data, in the order of the contract. `classify` compares two sets of facts and returns every row that is hit;
it decides nothing else and writes nothing. *Refuse* is computed at use and healed by undoing the change; *suspend* is
written on the link; *hold* is for a create that never sent, one in doubt becomes ambiguous instead. An attempt that
knows its remote id goes on to write back where the row says so. A surface without a row refuses and holds (DR-28).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pushlink.protocol.contracts import Waivers
from pushlink.protocol.paths import same_route
from pushlink.protocol.snapshots import Digest, Names
from pushlink.protocol.surfaces import Surface


class LinkVerdict(StrEnum):
    """What drift means for a finalized link, from the mildest to the strictest."""

    NONE = "none"  # the row says nothing about links
    USABLE = "usable"  # after every other gate has passed
    REFRESH_NAMES = "refresh_names"  # usable, and the names for people are written anew
    MIRROR_BLOCKED = "mirror_blocked"  # usable, but the mirror is not written
    REFUSE = "refuse"  # no update; nothing is written
    SUSPEND = "suspend"  # the link becomes suspended_drift


class AttemptVerdict(StrEnum):
    """What drift means for a create attempt that blocks its key, from the mildest to the strictest."""

    NONE = "none"  # the row says nothing about attempts
    EVIDENCE = "evidence"  # kept, and nothing changes
    FROZEN = "frozen"  # the attempt uses what it froze
    NARROWED = "narrowed"  # frozen, and never wider; support that was withdrawn stops a replay too
    SKIP_MIRROR = "skip_mirror"  # finalized without its mirror
    RECOVER = "recover"  # the recovery table decides
    HOLD = "hold"  # not claimable; ambiguous instead when in doubt
    HOLD_LOCATOR = "hold_locator"  # keeps its id and waits for an operator
    END = "end"  # terminal; ambiguous when any I/O was started


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the matrix. `waiver` names the profile's declaration that makes the link usable all the same."""

    rule: str
    surface: Surface
    words: str
    link: LinkVerdict
    create: AttemptVerdict
    writes_back: bool = False  # an attempt that knows its remote id goes on
    blocks_new_create: bool = False  # another create of this slot waits for a validation or a rebind
    waiver: str | None = None
    waives_create: bool = False  # the declaration frees an unsent attempt as well


_L = LinkVerdict
_A = AttemptVerdict
_S = Surface


def _row(rule: str, surface: Surface, words: str, link: LinkVerdict, create: AttemptVerdict, **more: object) -> Row:
    return Row(rule=rule, surface=surface, words=words, link=link, create=create, **more)  # type: ignore[arg-type]


#: The whole matrix, in the order of the contract.
MATRIX: Final[tuple[Row, ...]] = (
    _row("DR-01", _S.FLOW_VERSION, "another flow version is active", _L.USABLE, _A.FROZEN),
    _row("DR-02", _S.FLOW_ACTION_NAME, "the flow or its action has another name", _L.REFRESH_NAMES, _A.FROZEN),
    _row(
        "DR-03",
        _S.ACTION_SLOT,
        "the action slot is gone or another one",
        _L.SUSPEND,
        _A.HOLD,
        writes_back=True,
        blocks_new_create=True,
    ),
    _row(
        "DR-04", _S.NAMESPACE, "the namespace or pack has another name, and nothing else", _L.REFRESH_NAMES, _A.FROZEN
    ),
    _row("DR-04", _S.NAMESPACE_AND_MORE, "the namespace and more than names differ", _L.REFUSE, _A.FROZEN),
    _row("DR-05", _S.OWNER_MISSING, "the connector owner cannot be told", _L.REFUSE, _A.HOLD, writes_back=True),
    _row("DR-05", _S.OWNER_CHANGED, "the connector owner is another one", _L.SUSPEND, _A.HOLD, writes_back=True),
    _row("DR-06", _S.PACK_INSTALL, "another install of the pack is active", _L.REFUSE, _A.HOLD, writes_back=True),
    _row("DR-07", _S.PROFILE_NAME, "the profile has another name", _L.REFRESH_NAMES, _A.FROZEN),
    _row("DR-08", _S.PROFILE_INACTIVE, "the profile is gone or inactive", _L.REFUSE, _A.HOLD, writes_back=True),
    _row(
        "DR-08",
        _S.PROFILE_RECREATED,
        "the profile was made again with another destination slot",
        _L.SUSPEND,
        _A.HOLD,
        writes_back=True,
        blocks_new_create=True,
    ),
    _row(
        "DR-09",
        _S.CREDENTIAL_REF,
        "the credential reference is another one",
        _L.REFUSE,
        _A.HOLD,
        writes_back=True,
        waiver="credential_ref",
    ),
    _row(
        "DR-10",
        _S.ENDPOINT,
        "the endpoint class or binding is another one",
        _L.REFUSE,
        _A.HOLD,
        writes_back=True,
        waiver="endpoint",
    ),
    _row(
        "DR-11",
        _S.CREDENTIAL_GENERATION,
        "the credential has another generation",
        _L.REFUSE,
        _A.HOLD,
        writes_back=True,
        waiver="credential_generation",
        waives_create=True,
    ),
    _row("DR-12", _S.RETRY_POLICY, "retries, limits or waivers are others", _L.USABLE, _A.FROZEN),
    _row("DR-13", _S.MAPPING, "the outbound mappings are others", _L.REFUSE, _A.FROZEN),
    _row("DR-13", _S.BODY, "method, headers, encoding or envelope are others", _L.REFUSE, _A.FROZEN),
    _row("DR-14", _S.PERMISSION, "a field or the row may not be read any more", _L.REFUSE, _A.FROZEN),
    _row("DR-14", _S.USER_DEACTIVATED, "the originating user was deactivated", _L.NONE, _A.HOLD),
    _row("DR-15", _S.CREATE_PATH, "the create path is another one", _L.USABLE, _A.FROZEN, blocks_new_create=True),
    _row(
        "DR-16",
        _S.UPDATE_PATH,
        "the update path is another one",
        _L.REFUSE,
        _A.FROZEN,
        waiver="update_path_same_route",
    ),
    _row("DR-17", _S.RESPONSE, "success and id rules are others", _L.USABLE, _A.FROZEN),
    _row("DR-18", _S.MIRROR, "the mirror fields are others", _L.MIRROR_BLOCKED, _A.FROZEN),
    _row("DR-19", _S.TARGET_OBJECT_NAME, "the target object has another name", _L.REFUSE, _A.FROZEN),
    _row(
        "DR-19", _S.DESTINATION, "the destination scope or the canonical id form is another one", _L.REFUSE, _A.FROZEN
    ),
    _row(
        "DR-20",
        _S.DESTINATION_SLOT,
        "the destination slot is gone or another one",
        _L.SUSPEND,
        _A.HOLD,
        blocks_new_create=True,
    ),
    _row("DR-21", _S.IDEMPOTENCY, "the remote's idempotency support is another one", _L.USABLE, _A.NARROWED),
    _row("DR-22", _S.SOURCE_GONE_UNSENT, "the source was deleted before the first send", _L.NONE, _A.END),
    _row("DR-23", _S.SOURCE_GONE_KNOWN, "the source was deleted before the mirror", _L.REFUSE, _A.SKIP_MIRROR),
    _row("DR-24", _S.REMOTE_GONE, "the remote record is gone", _L.SUSPEND, _A.EVIDENCE),
    _row("DR-25", _S.REMOTE_CHANGED, "the remote record was changed out of band", _L.SUSPEND, _A.FROZEN),
    _row("DR-26", _S.LOCATOR_CONFLICT, "another link owns the remote record", _L.NONE, _A.HOLD_LOCATOR),
    _row("DR-27", _S.ORPHANED, "the attempt lost its worker", _L.NONE, _A.RECOVER),
    _row("DR-28", _S.UNMAPPED, "a field of the pack has no row", _L.REFUSE, _A.HOLD, blocks_new_create=True),
)

ROW_OF: Final[Mapping[Surface, Row]] = {row.surface: row for row in MATRIX}

#: Differences of names alone; a new namespace beside anything else is more than a rename (DR-04).
_NAMES_ONLY: Final = frozenset(
    {_S.FLOW_VERSION, _S.FLOW_ACTION_NAME, _S.NAMESPACE, _S.PROFILE_NAME, _S.USER_DEACTIVATED, _S.ORPHANED}
)

#: The rule that a revalidation never accepts: mappings are moved by manifests alone (RV-01).
MAPPING_RULE: Final = "DR-13"

#: Differences with which the catalogue of now has no usable action for a row: nothing is there to accept.
UNRESOLVED: Final = frozenset(
    {
        _S.ACTION_SLOT,
        _S.OWNER_MISSING,
        _S.OWNER_CHANGED,
        _S.PROFILE_INACTIVE,
        _S.PROFILE_RECREATED,
        _S.DESTINATION_SLOT,
    }
)

_STOPS_LINK: Final = frozenset({LinkVerdict.REFUSE, LinkVerdict.SUSPEND})


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftFacts:
    """One side of a comparison: what a snapshot holds, or what is active now.

    `None` for a key or slot means that it cannot be resolved from trusted pack metadata. `seen` holds the surfaces that
    no comparison finds but somebody observed: a deleted source, a denied field, an answer of the remote.
    """

    owner_key: str | None
    action_slot_id: str | None
    destination_slot_id: str | None
    install_id: str
    names: Names
    profile_active: bool
    credential_generation: str
    fingerprints: Mapping[Surface, Digest]
    address: tuple[str, str]  # base_url and update route
    seen: frozenset[Surface] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One row that is hit, with the verdicts that hold after waivers, and what differs as evidence."""

    row: Row
    link: LinkVerdict
    create: AttemptVerdict
    frozen: str | None = None
    current: str | None = None

    @property
    def surface(self) -> Surface:
        """The surface that drifted."""
        return self.row.surface

    @property
    def rule(self) -> str:
        """The rule of the matrix."""
        return self.row.rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Strictest:
    """The verdicts over all hits, each with the hit that brought it; `None` when nothing drifted."""

    link: LinkVerdict
    create: AttemptVerdict
    link_hit: Hit | None
    create_hit: Hit | None


def classify(frozen: DriftFacts, current: DriftFacts, waivers: Waivers | None = None) -> tuple[Hit, ...]:
    """Every row that differs between a snapshot and now, in the order of the matrix."""
    found = {surface: (old, new) for surface, old, new in _differences(frozen, current)}
    if Surface.NAMESPACE in found and not found.keys() <= _NAMES_ONLY:
        found[Surface.NAMESPACE_AND_MORE] = found.pop(Surface.NAMESPACE)
    allowed = waivers or Waivers()
    return tuple(
        _hit(row, found[row.surface], is_waived=_is_waived(row, frozen, current, allowed))
        for row in MATRIX
        if row.surface in found
    )


def strictest(hits: Iterable[Hit]) -> Strictest:
    """The strictest verdict for the link and for the create attempt; the first of equals names its reason."""
    link: Hit | None = None
    create: Hit | None = None
    for hit in hits:
        if link is None or _LINK_ORDER[hit.link] > _LINK_ORDER[link.link]:
            link = hit
        if create is None or _ATTEMPT_ORDER[hit.create] > _ATTEMPT_ORDER[create.create]:
            create = hit
    return Strictest(
        link=link.link if link else LinkVerdict.NONE,
        create=create.create if create else AttemptVerdict.NONE,
        link_hit=link,
        create_hit=create,
    )


def stops_update(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """The hits that keep an update of a finalized link from being sent."""
    return tuple(hit for hit in hits if hit.link in _STOPS_LINK)


def suspends_link(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """The hits that a first touch writes on the link as `suspended_drift`."""
    return tuple(hit for hit in hits if hit.link is LinkVerdict.SUSPEND)


def holds_create(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """The hits that keep a create from being sent; in doubt it becomes ambiguous instead of held."""
    return tuple(hit for hit in hits if hit.create is AttemptVerdict.HOLD)


def blocks_new_create(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """The hits against what this key had before that stop another create until somebody validated them (DR-15)."""
    return tuple(hit for hit in hits if hit.row.blocks_new_create)


_LINK_ORDER: Final[Mapping[LinkVerdict, int]] = {verdict: rank for rank, verdict in enumerate(LinkVerdict)}
_ATTEMPT_ORDER: Final[Mapping[AttemptVerdict, int]] = {verdict: rank for rank, verdict in enumerate(AttemptVerdict)}


def _differences(frozen: DriftFacts, current: DriftFacts) -> Iterator[tuple[Surface, str | None, str | None]]:
    """Every surface that differs, with its two values (keys, names and digests only)."""
    old, new = frozen.names, current.names
    compared: tuple[tuple[Surface, str | None, str | None], ...] = (
        (_S.FLOW_VERSION, old.flow_version, new.flow_version),
        (_S.FLOW_ACTION_NAME, f"{old.flow}/{old.action}", f"{new.flow}/{new.action}"),
        (_S.ACTION_SLOT, frozen.action_slot_id, current.action_slot_id),
        (_S.NAMESPACE, old.namespace, new.namespace),
        (_owner_surface(current), frozen.owner_key, current.owner_key),
        (_S.PACK_INSTALL, frozen.install_id, current.install_id),
        (_S.PROFILE_NAME, old.profile, new.profile),
        (_S.CREDENTIAL_GENERATION, frozen.credential_generation, current.credential_generation),
        (_S.TARGET_OBJECT_NAME, old.target_object, new.target_object),
        (_slot_surface(frozen, current), frozen.destination_slot_id, current.destination_slot_id),
        (_S.PROFILE_INACTIVE, "active", "active" if current.profile_active else "inactive"),
    )
    for surface, before, after in compared:
        # What cannot be resolved now is never equal, not even to a snapshot that could not resolve it either.
        if before != after or after is None:
            yield surface, before, after
    for surface in frozen.fingerprints.keys() | current.fingerprints.keys():
        before, after = frozen.fingerprints.get(surface), current.fingerprints.get(surface)
        if before != after and surface is not _S.PROFILE_INACTIVE:
            yield surface if surface in ROW_OF else _S.UNMAPPED, before, after
    for surface in current.seen:
        yield surface if surface in ROW_OF else _S.UNMAPPED, None, "seen"


def _owner_surface(current: DriftFacts) -> Surface:
    return _S.OWNER_MISSING if current.owner_key is None else _S.OWNER_CHANGED


def _slot_surface(frozen: DriftFacts, current: DriftFacts) -> Surface:
    """Another destination slot under the names of before is a profile that was made again; else another destination."""
    is_recreated = current.destination_slot_id is not None and (
        (frozen.names.profile, frozen.names.target_object) == (current.names.profile, current.names.target_object)
    )
    return _S.PROFILE_RECREATED if is_recreated else _S.DESTINATION_SLOT


#: What a profile may waive because it still reaches the same remote tenant.
_SAME_TENANT: Final = frozenset({_S.CREDENTIAL_REF, _S.ENDPOINT, _S.CREDENTIAL_GENERATION})


def _is_waived(row: Row, frozen: DriftFacts, current: DriftFacts, waivers: Waivers) -> bool:
    declared = row.waiver is not None and bool(getattr(waivers, row.waiver))
    if row.surface is Surface.UPDATE_PATH:
        return declared and same_route(frozen.address, current.address)
    if row.surface in _SAME_TENANT:
        # Another declared scope is another remote tenant, whatever the waiver promised (D-26).
        scope = Surface.DESTINATION
        return declared and frozen.fingerprints.get(scope) == current.fingerprints.get(scope)
    return declared


def _hit(row: Row, values: tuple[str | None, str | None], *, is_waived: bool) -> Hit:
    return Hit(
        row=row,
        link=LinkVerdict.USABLE if is_waived else row.link,
        create=AttemptVerdict.FROZEN if is_waived and row.waives_create else row.create,
        frozen=values[0],
        current=values[1],
    )
