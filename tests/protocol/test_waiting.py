"""How it stands with the records that a request refers to, and which of them decides."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from pushlink.protocol.associations import Reference
from pushlink.protocol.snapshots import LinkKey
from pushlink.protocol.states import AttemptStatus, LinkStatus
from pushlink.protocol.waiting import Standing, TargetFacts, judge_target, look_pause, worst

MEANT = Reference(
    name="company",
    mode="create_inline",
    source_object="Company",
    record_id="5",
    action_slot_id="action-2",
    link_key=LinkKey("lk1_5"),
)
LINKED = {"link_status": LinkStatus.FINALIZED, "link_id": "l-1", "remote_id": "r-1"}
PENDING, SENT = AttemptStatus.PENDING, AttemptStatus.POST_SENT


@pytest.mark.rule("D-30", "D-31")
@pytest.mark.parametrize(
    ("facts", "standing", "because"),
    [
        (LINKED, Standing.READY, "finalized"),
        ({**LINKED, "link_id": None}, Standing.BLOCKED, "link_suspended"),
        ({**LINKED, "remote_id": None}, Standing.BLOCKED, "link_suspended"),
        ({**LINKED, "link_status": LinkStatus.SUSPENDED_DRIFT}, Standing.BLOCKED, "link_suspended"),
        ({**LINKED, "link_status": LinkStatus.RETIRED}, Standing.MOVED, "link_retired"),
        ({"create_status": PENDING}, Standing.WAITING, "create_pending"),
        ({"create_status": SENT, "is_rebound": True}, Standing.WAITING, "create_post_sent"),
        ({"create_status": PENDING, "create_hold": "association_waiting"}, Standing.WAITING, None),
        ({"create_status": PENDING, "create_hold": "credential"}, Standing.WAITING, "create_held_credential"),
        ({"create_status": PENDING, "create_hold": "drift"}, Standing.BLOCKED, "create_held_drift"),
        ({"create_status": AttemptStatus.TERMINAL_FAILED}, Standing.BLOCKED, "create_terminal_failed"),
        (
            {"create_status": AttemptStatus.AMBIGUOUS_REMOTE_EFFECT, "create_hold": "credential"},
            Standing.BLOCKED,
            "create_ambiguous_remote_effect",
        ),
        ({"create_status": AttemptStatus.FINALIZED}, Standing.WAITING, "not_saved"),
        ({"create_status": AttemptStatus.FINALIZED, "is_rebound": True}, Standing.MOVED, "rebound"),
        ({"is_rebound": True}, Standing.MOVED, "rebound"),
        ({"create_hold": "drift"}, Standing.WAITING, "not_saved"),
        ({}, Standing.WAITING, "not_saved"),
    ],
)
def test_a_reference_is_ready_waits_is_blocked_or_has_moved(
    facts: dict[str, Any], standing: Standing, because: str | None
) -> None:
    """A ready one knows the link and the remote record; every other says why it is not."""
    target = judge_target(MEANT, TargetFacts(**facts))
    assert (target.standing, target.because) == (standing, because or f"create_held_{facts['create_hold']}")
    is_ready = standing is Standing.READY
    assert (target.reference.link_id, target.reference.remote_id) == (("l-1", "r-1") if is_ready else (None, None))
    assert target.evidence() == {
        "association": "company",
        "record": "Company 5",
        "link_key": "lk1_5",
        "because": target.because,
    }


@pytest.mark.rule("D-30")
@pytest.mark.parametrize(
    ("minutes", "standing"), [(0, Standing.WAITING), (59.99, Standing.WAITING), (60, Standing.BLOCKED)]
)
def test_a_record_that_nobody_saves_becomes_somebody_s_business_after_an_hour(
    minutes: float, standing: Standing
) -> None:
    """Waiting ends."""
    target = judge_target(MEANT, TargetFacts(), waited=dt.timedelta(minutes=minutes))
    assert (target.standing, target.because) == (standing, "not_saved")


def test_the_first_of_the_worst_decides() -> None:
    """In the order of the standings; when all are ready, nobody does."""
    ready = judge_target(MEANT, TargetFacts(**LINKED))
    waiting = judge_target(MEANT, TargetFacts())
    blocked = judge_target(MEANT, TargetFacts(create_status=AttemptStatus.TERMINAL_FAILED))
    blocked_too = judge_target(MEANT, TargetFacts(create_status=PENDING, create_hold="drift"))
    moved = judge_target(MEANT, TargetFacts(is_rebound=True))
    assert worst([]) is None
    assert worst([ready, ready]) is None
    assert worst([ready, waiting]) is waiting
    assert worst([waiting, blocked, blocked_too]) is blocked
    assert worst([moved, blocked]) is moved


@pytest.mark.parametrize(("age", "pause"), [(0, 5), (4.9, 5), (6, 6), (90, 90), (3_600, 3_600), (90_000, 3_600)])
def test_a_held_row_is_looked_at_again_after_its_own_age(age: float, pause: float) -> None:
    """Five seconds at least, an hour at most."""
    assert look_pause(dt.timedelta(seconds=age)) == dt.timedelta(seconds=pause)
