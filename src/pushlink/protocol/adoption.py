"""Adoption: what the fields of an older integration prove about one record, and what in our own rows speaks against it.

An older integration left a remote id and a mark of its origin in fields of the host's records. Such a record is adopted
only when exactly one pair of fields has an id, it is the pair of now, its mark is one that was named for this action
and destination, and nothing of ours disagrees. Everything else is refused with one reason. Nothing here guesses: marks
are compared whole, ids by the profile's own rule, and nobody but a migration asks (MG-08).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, TypeAlias

from pushlink.protocol.contracts import ActionContract, ProfileContract
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.remoteids import Extracted, read_remote_id
from pushlink.protocol.render import update_path
from pushlink.protocol.snapshots import Digest, SourceValue, SourceValues, digest
from pushlink.protocol.states import AttemptStatus, LinkStatus

#: Stands in for a link's version where only the form of a route is checked.
_ANY_VERSION: Final = "0"


class Because(StrEnum):
    """Why a record is not adopted."""

    # What stands in the record's fields.
    RECORD_UNUSABLE = "record_unusable"
    SEVERAL_IDS = "several_ids"
    PROVENANCE_WITHOUT_ID = "provenance_without_id"
    OUTSIDE_PAIR = "outside_pair"
    ID_WITHOUT_PROVENANCE = "id_without_provenance"
    ACTION_UNMAPPED = "action_unmapped"
    DESTINATION_CHANGED = "destination_changed"
    ID_UNUSABLE = "id_unusable"
    # What other records say.
    CLAIMED_TWICE = "claimed_twice"
    # What stands in our own rows.
    ALREADY_LINKED = "already_linked"
    LINK_DIFFERS = "link_differs"
    LINK_RETIRED = "link_retired"
    CREATE_BLOCKS = "create_blocks"
    OWNED_ELSEWHERE = "owned_elsewhere"
    CONFLICT_OPEN = "conflict_open"
    # What the remote says, where it was asked.
    REMOTE_MISSING = "remote_missing"
    REMOTE_MISMATCH = "remote_mismatch"
    REMOTE_UNKNOWN = "remote_unknown"
    # What has changed since the plan.
    RECORD_GONE = "record_gone"
    RECORD_CHANGED = "record_changed"
    ROWS_CHANGED = "rows_changed"
    ROLLED_BACK = "rolled_back"
    RECEIPTS_BROKEN = "receipts_broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two fields of one generation of an older integration: the remote id, and the mark of who wrote it."""

    remote_id: str
    provenance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Legacy:
    """What to read of each record, and what its marks mean. All of it is said by whoever plans; nothing is inferred."""

    current: Pair
    older: tuple[Pair, ...] = ()
    markers: tuple[str, ...]  # marks of this very action at this very destination
    elsewhere: tuple[str, ...] = ()  # marks of this action at another destination
    destination_field: str = ""  # a field that says where the record was pushed to; empty without one
    destination_value: str = ""  # what stands there for the destination of now

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """All pairs, the one of now first."""
        return (self.current, *self.older)

    @property
    def fields(self) -> tuple[str, ...]:
        """Every field that is read, once each."""
        names = [name for pair in self.pairs for name in (pair.remote_id, pair.provenance)]
        return tuple(dict.fromkeys([*names, *([self.destination_field] if self.destination_field else [])]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One reason, and what was seen, in words for the person who mends it."""

    because: Because
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A record whose fields prove one remote id."""

    remote_id: str
    canonical: str


#: `None`: no older integration left anything in the record.
Read: TypeAlias = Claim | Refusal | None


def read_legacy(
    values: Mapping[str, SourceValue], legacy: Legacy, action: ActionContract, profile: ProfileContract
) -> Read:
    """What a record's fields prove, judged from the most ambiguous finding to the least."""
    shown = {name: _text(value) for name, value in values.items()}
    with_id = [pair for pair in legacy.pairs if shown[pair.remote_id]]
    if len(with_id) > 1:
        found = ", ".join(f"{pair.remote_id}={shown[pair.remote_id]!r}" for pair in with_id)
        return Refusal(because=Because.SEVERAL_IDS, detail=found)
    for pair in legacy.pairs:
        if shown[pair.provenance] and not shown[pair.remote_id]:
            detail = f"{pair.provenance}={shown[pair.provenance]!r}, and {pair.remote_id} is empty"
            return Refusal(because=Because.PROVENANCE_WITHOUT_ID, detail=detail)
    if not with_id:
        return None
    [pair] = with_id
    if pair != legacy.current:
        detail = f"{pair.remote_id}={shown[pair.remote_id]!r}, and {legacy.current.remote_id} is empty"
        return Refusal(because=Because.OUTSIDE_PAIR, detail=detail)
    return _mark_problem(shown, legacy) or _id_of(values[pair.remote_id], shown[pair.remote_id] or "", action, profile)


def _mark_problem(shown: Mapping[str, str | None], legacy: Legacy) -> Refusal | None:
    pair = legacy.current
    mark = shown[pair.provenance]
    if not mark:
        return Refusal(because=Because.ID_WITHOUT_PROVENANCE, detail=f"{pair.provenance} is empty")
    if mark in legacy.elsewhere:
        return Refusal(because=Because.DESTINATION_CHANGED, detail=f"{pair.provenance}={mark!r}")
    if mark not in legacy.markers:
        return Refusal(because=Because.ACTION_UNMAPPED, detail=f"{pair.provenance}={mark!r} is the mark of no slot")
    where = legacy.destination_field
    if where and (shown[where] or "") != legacy.destination_value:
        return Refusal(because=Because.DESTINATION_CHANGED, detail=f"{where}={shown[where]!r}")
    return None


def _id_of(value: SourceValue, text: str, action: ActionContract, profile: ProfileContract) -> Claim | Refusal:
    if not isinstance(value, str | int) or isinstance(value, bool):
        return Refusal(because=Because.ID_UNUSABLE, detail=f"a {type(value).__name__} is no remote id")
    found = read_remote_id(action, text)
    if not isinstance(found, Extracted):
        return Refusal(because=Because.ID_UNUSABLE, detail=f"{text!r}: {found.reason.value}")
    if action.update is not None:
        route = update_path(action.update, profile, text, remote_version=_ANY_VERSION)
        if isinstance(route, RenderFailure):
            return Refusal(because=Because.ID_UNUSABLE, detail=f"{text!r}: {route.message}")
    return Claim(remote_id=text, canonical=found.canonical)


def _text(value: SourceValue) -> str | None:
    return None if value is None else str(value)


def record_digest(values: Mapping[str, SourceValue]) -> Digest:
    """The digest of the fields that a record was judged by."""
    return SourceValues(values=values).document().digest


# ------------------------------------------------------------------------------------------------ our own rows


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLink:
    """The link that holds a record's slot."""

    status: LinkStatus
    remote_id: str
    canonical: str
    is_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OurRows:
    """What stands under one link key, and under the remote record that is claimed for it."""

    versions: tuple[int, int, int, int] | None  # ordinal, wanted, acknowledged, refused; `None` without a push slot
    link: HeldLink | None
    create: tuple[str, AttemptStatus] | None  # the create that occupies the key
    given_up: frozenset[str]  # canonical ids that a person took from this key
    owner: str | None  # the record whose live link has the remote record
    claimant: str | None  # an attempt that was given this remote record and is not over


def rows_digest(rows: OurRows) -> Digest:
    """The digest of the rows that an adoption was planned over; only free keys are planned, so versions say it all.

    A push slot in which nothing was ever wanted says as much as none.
    """
    return _versions_digest(rows.versions or (0, 0, 0, 0))


@lru_cache(maxsize=1_024)
def _versions_digest(versions: tuple[int, int, int, int]) -> Digest:
    return digest({"kind": "adopted_rows", "format": 1, "versions": list(versions)})


def judge_rows(claim: Claim, rows: OurRows) -> Refusal | None:
    """What of our own keeps a claim from becoming a link; the same question when planning and when applying."""
    link = rows.link
    if link is not None and not link.is_live:
        return Refusal(because=Because.LINK_RETIRED, detail=f"its link to {link.remote_id!r} is retired")
    if link is not None and link.canonical == claim.canonical:
        return Refusal(because=Because.ALREADY_LINKED, detail=f"its link to {link.remote_id!r} is {link.status.value}")
    if link is not None:
        return Refusal(because=Because.LINK_DIFFERS, detail=f"its link is to {link.remote_id!r}")
    if rows.create is not None:
        attempt_id, status = rows.create
        return Refusal(because=Because.CREATE_BLOCKS, detail=f"create {attempt_id} is {status.value}")
    if claim.canonical in rows.given_up:
        return Refusal(because=Because.LINK_RETIRED, detail="a link of this record to it was retired")
    if rows.owner is not None:
        return Refusal(because=Because.OWNED_ELSEWHERE, detail=f"the link of {rows.owner} has it")
    if rows.claimant is not None:
        return Refusal(because=Because.CONFLICT_OPEN, detail=f"{rows.claimant} was given it and is not over")
    return None
