"""What a claim hands to a flow: the row that is now owned, and every fact that its decision needs.

Facts are read in the transaction of the claim; what may change until the send is read again in the checkpoint's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from pushlink.ports import RecordRef
from pushlink.protocol.drift import Hit
from pushlink.protocol.snapshots import ActionSnapshot, ClaimToken, Names, ProfileSnapshot
from pushlink.store.active import ActiveAction
from pushlink.store.rows import AttemptRow, LinkRow, RequestRow, SlotRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """An attempt under a live claim."""

    attempt: AttemptRow
    token: ClaimToken
    incarnation: str
    source: RecordRef
    source_exists: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedCreate(Owned):
    """A create to send: its frozen request and the snapshots that interpret the answer."""

    request: RequestRow
    profile: ProfileSnapshot
    action: ActionSnapshot
    names: Names
    user_active: bool
    drift: tuple[Hit, ...]
    catalog_revision: int
    replayable: bool = False  # a live replay contract covers one more send


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedUpdate(Owned):
    """An update to send: the link it is for, the slot whose wanted version it carries, the configuration of now."""

    request: RequestRow | None
    link: LinkRow | None
    slot: SlotRow
    current: ActiveAction | None
    generation: str
    user_id: str
    user_active: bool
    drift: tuple[Hit, ...]
    catalog_revision: int
    link_profile: ProfileSnapshot | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedWriteback(Owned):
    """A create whose id is known and whose mirror is due."""

    request: RequestRow
    link: LinkRow | None
    profile: ProfileSnapshot
    action: ActionSnapshot
    names: Names = field(repr=False)


Claimed: TypeAlias = ClaimedCreate | ClaimedUpdate | ClaimedWriteback
