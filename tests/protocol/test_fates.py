"""What drift comes to for a row, given where the row stands."""

from __future__ import annotations

import pytest

from pushlink.protocol.drift import MATRIX, AttemptVerdict, Hit, LinkVerdict
from pushlink.protocol.fates import AttemptFate, LinkFate, create_fate, link_fate, update_fate
from pushlink.protocol.states import AttemptStatus, Hold, LinkStatus

A, F = AttemptStatus, AttemptFate
OTHER = Hold.CREDENTIAL

#: Those statuses in which a row waits for its turn, and those in which drift changes nothing any more.
STANDING = {
    A.PROCESSING: F.IN_FLIGHT,
    A.POST_SENT: F.IN_FLIGHT,
    A.AMBIGUOUS_REMOTE_EFFECT: F.PARKED,
    A.TERMINAL_FAILED: F.PARKED,
    A.WRITEBACK_COMMIT_PENDING: F.WRITES_BACK,
    A.WRITEBACK_PENDING: F.WRITES_BACK,
}


def hits(link: LinkVerdict = LinkVerdict.NONE, create: AttemptVerdict = AttemptVerdict.NONE) -> tuple[Hit, ...]:
    return (Hit(row=MATRIX[0], link=link, create=create),)


HOLDS = hits(create=AttemptVerdict.HOLD)
REFUSES, SUSPENDS = hits(LinkVerdict.REFUSE), hits(LinkVerdict.SUSPEND)


@pytest.mark.parametrize(
    ("verdict", "fate"),
    [
        (LinkVerdict.NONE, LinkFate.USABLE),
        (LinkVerdict.USABLE, LinkFate.USABLE),
        (LinkVerdict.REFRESH_NAMES, LinkFate.NAMES_REFRESHED),
        (LinkVerdict.MIRROR_BLOCKED, LinkFate.MIRROR_BLOCKED),
        (LinkVerdict.REFUSE, LinkFate.REFUSED),
        (LinkVerdict.SUSPEND, LinkFate.SUSPENDS),
    ],
)
def test_a_link_is_good_for_what_the_strictest_verdict_leaves(verdict: LinkVerdict, fate: LinkFate) -> None:
    """One that is suspended stays so, whatever drifts."""
    assert link_fate(LinkStatus.FINALIZED, (*hits(), *hits(verdict))) is fate
    assert link_fate(LinkStatus.SUSPENDED_DRIFT, hits(verdict)) is LinkFate.STANDS_SUSPENDED
    assert link_fate(LinkStatus.FINALIZED, ()) is LinkFate.USABLE


@pytest.mark.parametrize(("status", "fate"), list(STANDING.items()))
def test_what_is_on_its_way_or_over_stands_as_it_is(status: AttemptStatus, fate: AttemptFate) -> None:
    """A create that is held in such a place waits for a person; no drift moves either."""
    for found in ((), HOLDS, SUSPENDS):
        assert create_fate(status, in_doubt=True, hold=None, hits=found) is fate
        assert create_fate(status, in_doubt=False, hold=OTHER, hits=found) is F.PARKED
        assert update_fate(status, LinkStatus.FINALIZED, hold=OTHER, is_stale=True, hits=found) is fate


@pytest.mark.parametrize(
    ("hold", "in_doubt", "found", "fate"),
    [
        (None, False, (), F.GOES_ON),
        (None, True, (), F.GOES_ON),
        (None, False, REFUSES, F.GOES_ON),
        (None, False, HOLDS, F.HELD),
        (None, True, HOLDS, F.DOUBTFUL),
        (Hold.DRIFT, False, (), F.GOES_ON),
        (Hold.DRIFT, True, HOLDS, F.DOUBTFUL),
        (OTHER, False, (), F.HELD),
        (OTHER, True, HOLDS, F.HELD),
    ],
)
def test_a_create_that_waits_for_its_turn_goes_on_is_held_or_in_doubt(
    hold: str | None, in_doubt: bool, found: tuple[Hit, ...], fate: AttemptFate
) -> None:
    """A hold for drift is judged anew; one for another reason stands."""
    assert create_fate(A.PENDING, in_doubt=in_doubt, hold=hold, hits=found) is fate


@pytest.mark.parametrize(
    ("link", "hold", "is_stale", "found", "fate"),
    [
        (LinkStatus.FINALIZED, None, False, (), F.GOES_ON),
        (LinkStatus.FINALIZED, None, False, HOLDS, F.GOES_ON),
        (LinkStatus.FINALIZED, None, True, (), F.STALE),
        (LinkStatus.FINALIZED, None, True, REFUSES, F.HELD),
        (LinkStatus.FINALIZED, None, False, REFUSES, F.HELD),
        (LinkStatus.FINALIZED, None, False, SUSPENDS, F.ENDED),
        (LinkStatus.SUSPENDED_DRIFT, None, False, (), F.ENDED),
        (LinkStatus.FINALIZED, Hold.DRIFT, False, (), F.GOES_ON),
        (LinkStatus.FINALIZED, OTHER, False, SUSPENDS, F.HELD),
        (LinkStatus.FINALIZED, OTHER, False, (), F.HELD),
    ],
)
def test_an_update_that_waits_for_its_turn_goes_on_or_ends_with_its_link(
    link: LinkStatus, hold: str | None, is_stale: bool, found: tuple[Hit, ...], fate: AttemptFate
) -> None:
    """Its values may belong to a mapping that does not hold any more; then they are not sent."""
    assert update_fate(A.PENDING, link, hold=hold, is_stale=is_stale, hits=found) is fate
