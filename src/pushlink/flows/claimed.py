"""What a claim hands to a flow: the row that is now owned, and every fact that its decision needs.

Facts are read in the transaction of the claim; what may change until the send is read again in the checkpoint's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pushlink.errors import Code
from pushlink.flows.replaying import Prospect
from pushlink.ports import RecordRef
from pushlink.protocol.associations import Vector
from pushlink.protocol.drift import Hit
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.sealing import Unread
from pushlink.protocol.snapshots import ActionSnapshot, ClaimToken, ProfileSnapshot
from pushlink.protocol.states import CreateEvent, UpdateEvent
from pushlink.protocol.waiting import Target
from pushlink.store.active import ActiveAction
from pushlink.store.lifecycle import Move
from pushlink.store.rows import AttemptRow, LinkRow, RequestRow, SlotIdentity, SlotRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """An attempt under a live claim."""

    attempt: AttemptRow
    token: ClaimToken
    incarnation: str
    source: RecordRef

    def move(self, event: CreateEvent | UpdateEvent, code: Code, detail: Mapping[str, object]) -> Move:
        """The owner's move of its attempt."""
        return Move(
            row=self.attempt,
            event=event,
            token=self.token,
            actor=self.incarnation,
            reason_code=code,
            detail=detail,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """A request that was frozen by an earlier claim, with the snapshots that were frozen beside it."""

    row: RequestRow
    profile: ProfileSnapshot
    action: ActionSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedCreate(Owned):
    """A create to send: its frozen request and the snapshots that interpret the answer."""

    slot: SlotIdentity
    request: RequestRow
    profile: ProfileSnapshot
    action: ActionSnapshot
    generation: str  # of the frozen credential reference, now; another one than the frozen is drift
    credential_refused: bool  # the remote does not take this generation
    user_active: bool
    drift: tuple[Hit, ...]
    catalog_revision: int
    prospect: Prospect  # what it may do when nobody knows what became of it
    vector: Vector = ()  # what the record refers to; for an attempt of before vectors, by its fields of now
    targets: tuple[Target, ...] = ()  # of everything that the create carries, as they stand now
    origin: RequestRow | None = None  # the first freeze of a deferred create: the values that it is made of


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedUpdate(Owned):
    """An update to send: the link it is for, the slot whose wanted version it carries, the configuration of now."""

    request: Frozen | None
    link: LinkRow | None
    slot: SlotRow
    current: ActiveAction | None
    generation: str
    credential_refused: bool
    user_active: bool
    drift: tuple[Hit, ...]
    catalog_revision: int
    targets: tuple[Target, ...] = ()  # of everything that the request carries, as they stand now


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedWriteback(Owned):
    """A create whose id is known and whose mirror is due."""

    slot: SlotIdentity
    request: RequestRow
    link: LinkRow | None
    profile: ProfileSnapshot
    action: ActionSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedLookup(Owned):
    """A create whose answer is stored and did not name its record: what to ask next, and what it was answered."""

    slot: SlotIdentity
    request: RequestRow
    profile: ProfileSnapshot
    action: ActionSnapshot
    answer: StoredReply
    unread: Unread | None  # why the answer's body cannot be read, if so
    name: str  # which of the declared look-ups


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedStampLookup(Owned):
    """A create of which nobody knows whether its record is there, or whose: what to ask for its stamp with."""

    slot: SlotIdentity
    request: RequestRow
    profile: ProfileSnapshot
    action: ActionSnapshot
    misses: int  # look-ups that found nothing, in a row


Claimed: TypeAlias = ClaimedCreate | ClaimedUpdate | ClaimedWriteback | ClaimedLookup | ClaimedStampLookup
