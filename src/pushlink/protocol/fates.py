"""Fates: what drift comes to for a link, a create and an update, given where each of them stands.

The matrix (`drift.py`) gives verdicts on surfaces; this module turns the strictest one and a row's own state into one
word, in the order in which a claim would judge it. It is what a plan shows before a catalogue changes, so it holds only
while everything else stays as it is: the credential, the source, the permissions and the remote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from pushlink.protocol.drift import Hit, LinkVerdict, holds_create, stops_update, strictest, suspends_link
from pushlink.protocol.states import USABLE_LINKS, AttemptStatus, Hold, LinkStatus


class LinkFate(StrEnum):
    """What a live link is good for."""

    USABLE = "usable"
    NAMES_REFRESHED = "names_refreshed"  # usable, under other names
    MIRROR_BLOCKED = "mirror_blocked"  # usable, but its mirror is not written
    REFUSED = "refused"  # no update is sent until the change is undone or somebody revalidates the link
    SUSPENDS = "suspends"  # its next update writes `suspended_drift`
    STANDS_SUSPENDED = "stands_suspended"  # suspended already, whatever drifts


class AttemptFate(StrEnum):
    """What becomes of an attempt that is not over."""

    GOES_ON = "goes_on"  # it sends what it froze, or renders what is wanted
    HELD = "held"  # not claimable, and nothing is lost
    DOUBTFUL = "doubtful"  # it may have been applied and may not be sent again: it becomes ambiguous
    ENDED = "ended"  # an update whose link is suspended: superseded, unsent
    STALE = "stale"  # an update whose values were frozen under another mapping: superseded, unsent
    WRITES_BACK = "writes_back"  # its remote id is known; what is left is the mirror
    IN_FLIGHT = "in_flight"  # a worker has it; it is judged again before its checkpoint, and not any more after it
    PARKED = "parked"  # it waits for a person already


_A = AttemptStatus

_LINKS: Final[Mapping[LinkVerdict, LinkFate]] = {
    LinkVerdict.NONE: LinkFate.USABLE,
    LinkVerdict.USABLE: LinkFate.USABLE,
    LinkVerdict.REFRESH_NAMES: LinkFate.NAMES_REFRESHED,
    LinkVerdict.MIRROR_BLOCKED: LinkFate.MIRROR_BLOCKED,
    LinkVerdict.REFUSE: LinkFate.REFUSED,
    LinkVerdict.SUSPEND: LinkFate.SUSPENDS,
}

#: Where drift changes nothing any more. A pending attempt is not here: it is judged.
_STANDING: Final[Mapping[AttemptStatus, AttemptFate]] = {
    _A.PROCESSING: AttemptFate.IN_FLIGHT,
    _A.POST_SENT: AttemptFate.IN_FLIGHT,
    _A.AMBIGUOUS_REMOTE_EFFECT: AttemptFate.PARKED,
    _A.TERMINAL_FAILED: AttemptFate.PARKED,
    _A.WRITEBACK_COMMIT_PENDING: AttemptFate.WRITES_BACK,
    _A.WRITEBACK_PENDING: AttemptFate.WRITES_BACK,
}


def link_fate(status: LinkStatus, hits: Sequence[Hit]) -> LinkFate:
    """What a live link is good for under this drift."""
    return _LINKS[strictest(hits).link] if status in USABLE_LINKS else LinkFate.STANDS_SUSPENDED


def create_fate(status: AttemptStatus, *, in_doubt: bool, hold: str | None, hits: Sequence[Hit]) -> AttemptFate:
    """What becomes of a create that blocks its key."""
    standing = _STANDING.get(status)
    if standing is not None:
        return AttemptFate.PARKED if hold is not None else standing
    if _waits_for_other(hold):
        return AttemptFate.HELD
    if holds_create(hits):
        return AttemptFate.DOUBTFUL if in_doubt else AttemptFate.HELD
    return AttemptFate.GOES_ON


def update_fate(
    status: AttemptStatus, link: LinkStatus, *, hold: str | None, is_stale: bool, hits: Sequence[Hit]
) -> AttemptFate:
    """What becomes of an open update; `hits` are its link's. `is_stale`: its values belong to another mapping."""
    standing = _STANDING.get(status)
    if standing is not None:
        return standing
    if _waits_for_other(hold):
        return AttemptFate.HELD
    if link not in USABLE_LINKS or suspends_link(hits):
        return AttemptFate.ENDED
    if stops_update(hits):
        return AttemptFate.HELD
    return AttemptFate.STALE if is_stale else AttemptFate.GOES_ON


def _waits_for_other(hold: str | None) -> bool:
    """Whether a row is held for another reason than drift; only a hold for drift is judged anew by the catalogue."""
    return hold is not None and hold != Hold.DRIFT
