"""Inline dispatch: what is due of one record runs on the caller's thread, by the same rules as in a worker."""

from __future__ import annotations

import asyncio

import pytest

from flows.stage import MakeStage, Stage, pack_with, profile_of
from pushlink.errors import CallerError, Code
from pushlink.flows.inline import Standing
from pushlink.testing import verbs
from pushlink.testing.messages import creating, updating

ADA = {"name": "Ada", "email": "ada@example.com"}


def standings(stage: Stage, record_id: int = 1) -> list[tuple[str, str]]:
    pushed = stage.runtime.push("Person", record_id)
    return [(str(one.standing), one.attempt.status.value) for one in pushed]


@pytest.mark.rule("PO-01")
def test_a_push_dispatches_the_create_on_this_thread(stage: Stage) -> None:
    """Reserved, pushed, linked: nobody else was needed."""
    stage.save(1, **ADA)
    assert standings(stage) == [("dispatched", "finalized")]
    assert stage.link()["remote_id"] == "1"
    assert stage.person() == {**stage.person(), "remote_id": "1"}
    assert standings(stage) == []
    assert stage.sends == 1


def test_nothing_else_is_touched(stage: Stage) -> None:
    """Only the named record's attempts are taken."""
    stage.save(1, **ADA)
    stage.save(2, **ADA)
    assert standings(stage, 2) == [("dispatched", "finalized")]
    assert [row["status"] for row in stage.attempts()] == ["pending", "finalized"]


@pytest.mark.rule("PA-10", "PA-11")
def test_the_update_that_follows_is_pushed_in_the_same_call(stage: Stage) -> None:
    """A save while the create was under way: one POST, one PATCH, in their order."""
    stage.save(1, **ADA)
    stage.save(1, name="Ada L.")
    assert standings(stage) == [("dispatched", "finalized"), ("dispatched", "finalized")]
    assert [request.method for request in stage.remote.sent] == ["POST", "PATCH"]


def test_a_record_that_was_never_saved_has_nothing_to_push(stage: Stage) -> None:
    """No slot, no attempt, no request."""
    stage.put(1, **ADA)
    assert standings(stage) == []


@pytest.mark.rule("DL-04", "DL-06", "RR-03")
def test_a_dead_claim_before_io_is_recovered_and_sent(stage: Stage) -> None:
    """Its worker died before the checkpoint: nothing was sent, so it is sent now."""
    stage.save(1, **ADA)
    stage.claim()
    assert standings(stage) == [("in_work", "processing")]
    stage.clock_forward()
    assert standings(stage) == [("dispatched", "finalized")]
    assert stage.sends == 1


@pytest.mark.rule("RR-04", "PO-05")
def test_a_dead_claim_with_a_checkpoint_is_parked_and_not_sent(stage: Stage) -> None:
    """Its worker died in the middle of a send: nobody knows, so nothing is sent."""
    stage.save(1, **ADA)
    stage.paused().to_send().flow.close()
    stage.clock_forward()
    assert standings(stage) == [("parked", "ambiguous_remote_effect")]
    assert stage.sends == 0


@pytest.mark.rule("D-05")
def test_what_is_not_due_waits(stage: Stage) -> None:
    """A throttled attempt is dispatched once in a call, and not again before its time."""
    stage.remote.script.always(verbs.answer(429, {}, headers=[("Retry-After", "600")]), when=creating)
    stage.save(1, **ADA)
    assert standings(stage) == [("dispatched", "pending")]
    assert standings(stage) == [("not_due", "pending")]
    assert stage.sends == 1


@pytest.mark.rule("D-11")
def test_what_is_held_is_looked_at_again_only_after_the_catalogue_changed(stage: Stage) -> None:
    """Drift holds it; undoing the drift heals it, and the same call sends it."""
    stage.save(1, **ADA)
    stage.apply(pack_with(lambda document: profile_of(document).update(credential_ref="env:OTHER_TOKEN")))
    assert standings(stage) == [("dispatched", "pending")]
    version = stage.attempt()["row_version"]
    assert standings(stage) == [("held", "pending")]
    assert stage.attempt()["row_version"] == version
    stage.apply(pack_with())
    assert standings(stage) == [("dispatched", "finalized")]


@pytest.mark.rule("D-16")
def test_poison_is_held_inline_too(stage: Stage) -> None:
    """A row that was claimed too often without an outcome is set aside before any I/O."""
    stage.save(1, **ADA)
    stage.sql("UPDATE pushlink_push_attempt SET claim_count = 99")
    assert standings(stage) == [("held", "pending")]
    assert stage.sends == 0


@pytest.mark.rule("DL-05", "DL-09", "DL-14")
@pytest.mark.parametrize("lane", ["deferred_association", "of_tomorrow"])
def test_other_lanes_are_neither_recovered_nor_sent(stage: Stage, lane: str) -> None:
    """A deferred attempt is a worker's business, and one of an unknown lane nobody's."""
    stage.save(1, **ADA)
    stage.claim()
    stage.sql(f"UPDATE pushlink_push_attempt SET dispatch_lane = '{lane}'")
    stage.clock_forward()
    before = stage.census()
    assert standings(stage) == [("other_lane", "processing")]
    assert stage.census() == before


@pytest.mark.rule("D-36")
def test_recovery_mode_sends_nothing(stage: Stage) -> None:
    """A deployment that nobody confirmed refuses the push."""
    stage.save(1, **ADA)
    stage.sql("UPDATE pushlink_deployment SET mode = 'recovery'")
    with pytest.raises(CallerError) as caught:
        stage.runtime.push("Person", 1)
    assert caught.value.code is Code.RECOVERY_MODE
    assert stage.sends == 0


def test_the_general_worker_may_be_off(stage: Stage) -> None:
    """Then inline dispatch is who sends configured work."""
    stage.sql("UPDATE pushlink_deployment SET general_worker = 'off'")
    stage.save(1, **ADA)
    assert stage.claim() == []
    assert standings(stage) == [("dispatched", "finalized")]


def test_a_running_event_loop_is_not_blocked(stage: Stage) -> None:
    """Called in a coroutine it says where to call it instead."""
    stage.save(1, **ADA)

    async def call() -> None:
        stage.runtime.push("Person", 1)

    with pytest.raises(CallerError, match="event loop"):
        asyncio.run(call())
    assert stage.attempt()["status"] == "pending"


@pytest.mark.rule("D-20")
def test_a_doubtful_update_is_parked(stage: Stage) -> None:
    """It is reported and not sent again."""
    stage.linked(1, **ADA)
    stage.remote.script.next(verbs.store_then_close(), when=updating)
    stage.save(1, name="Ada L.")
    assert standings(stage) == [("dispatched", "ambiguous_remote_effect")]
    assert standings(stage) == [(Standing.PARKED.value, "ambiguous_remote_effect")]


def test_two_tenants_are_two(make_stage: MakeStage) -> None:
    """A push in one tenant leaves the other one's record alone."""
    from flows.stage import PACK

    stage = make_stage()
    stage.apply(PACK, tenant="north")
    stage.save(1, **ADA)
    stage.save(1, tenant="north")
    [one] = stage.runtime.push("Person", 1, tenant="north")
    assert one.attempt.tenant == "north"
    assert sorted(row["status"] for row in stage.attempts()) == ["finalized", "pending"]
