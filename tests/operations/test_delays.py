"""What is due and is not taken says why: its turn, its destination's limits, and until when where that is known."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from flows.stage import MakeStage, Stage, action_of, pack_with, profile_of
from pushlink.operations.explain import ActionState, explain
from pushlink.protocol.snapshots import write_time
from pushlink.testing import verbs


def without_mirror(**profile: Any) -> dict[str, Any]:
    """The pack with this in its profile, and no mirror."""
    document = pack_with(lambda d: profile_of(d).update(profile))
    action_of(document).pop("mirror")
    return document


def ordered() -> dict[str, Any]:
    """The pack whose people of one owner go one after the other."""
    document = without_mirror()
    action_of(document)["ordering"] = {"serialize_per": "field", "field": "owner"}
    return document


def saved(stage: Stage, count: int, *, owner: str | None = None) -> None:
    """So many people, a moment apart."""
    for number in range(1, count + 1):
        stage.save(number, name=f"Person {number}", email=f"p{number}@example.com", owner=owner)
        stage.clock_forward(milliseconds=1)


def state_of(stage: Stage, number: int) -> ActionState:
    """The one action of a person."""
    with stage.engine.connect() as conn:
        found = explain(conn, "Person", str(number), now=stage.fixed.now(conn), world=stage.world)
    [action] = found.actions
    return action


def delays(stage: Stage, number: int) -> list[dict[str, Any]]:
    """What keeps it, for programs."""
    found: Any = state_of(stage, number).evidence.get("delayed_by", [])
    return list(found)


def later(stage: Stage, **delta: float) -> str:
    """A moment after the one at which the clock stands."""
    with stage.engine.connect() as conn:
        return write_time(stage.fixed.now(conn) + dt.timedelta(**delta))


def test_what_is_due_and_free_waits_for_a_worker_alone(make_stage: MakeStage) -> None:
    """No delay where nothing keeps it, and none for what is under way, held or of a strange lane."""
    stage = make_stage(pack=ordered())
    saved(stage, 1)
    assert delays(stage, 1) == []
    assert "a worker" in state_of(stage, 1).waits_for
    stage.save(2, name="Bob", email="b@example.com", owner=None)
    assert "ordering" in [delay["by"] for delay in delays(stage, 2)]
    stage.sql("UPDATE pushlink_push_attempt SET dispatch_lane = 'tomorrow'")
    assert delays(stage, 2) == []


@pytest.mark.rule("D-39")
def test_an_ordering_names_how_many_go_first_and_whose_turn_it_is(make_stage: MakeStage) -> None:
    """The one under way before all others, else the oldest save; another owner's and a held one keep nobody."""
    stage = make_stage(pack=ordered())
    saved(stage, 3, owner="a")
    stage.save(4, name="Dora", email="d@example.com", owner="b")
    [first, second, third, _] = stage.attempts()
    shown = {"by": "ordering", "operation": "create", "source_object": "Person"}
    ahead = {"attempt_id": first["id"], "record_id": "1"}
    assert delays(stage, 1) == delays(stage, 4) == []
    assert delays(stage, 2) == [{**shown, **ahead, "status": "pending", "in_front": 1}]
    assert delays(stage, 3) == [{**shown, **ahead, "status": "pending", "in_front": 2}]
    stage.claim(1)
    assert delays(stage, 3) == [{**shown, **ahead, "status": "processing", "in_front": 2}]
    assert state_of(stage, 3).waits_for == (
        "its turn: 2 before it in its ordering, first the create of Person 1 (processing)"
    )
    stage.sql("UPDATE pushlink_push_attempt SET hold_code = 'poison' WHERE id = :id", id=second["id"])
    assert [delay["in_front"] for delay in delays(stage, 3)] == [1]
    assert third["status"] == "pending"


@pytest.mark.rule("D-39")
def test_a_full_destination_says_how_many_are_under_way(make_stage: MakeStage) -> None:
    """Of how many at most; when one is answered, nothing keeps the next."""
    stage = make_stage(pack=without_mirror(limits={"max_concurrency": 2}))
    saved(stage, 3)
    claimed = stage.claim()
    assert len(claimed) == 2
    assert delays(stage, 3) == [
        {"by": "max_concurrency", "under_way": 2, "at_most": 2, "counted_over": "destination dest-1"}
    ]
    assert state_of(stage, 3).waits_for == "an answer: 2 of at most 2 requests are under way"
    stage.run(claimed[:1])
    assert delays(stage, 3) == []


@pytest.mark.rule("D-39")
def test_a_rate_says_when_the_next_request_goes(make_stage: MakeStage) -> None:
    """And at that moment it keeps nobody."""
    stage = make_stage(pack=without_mirror(limits={"rate": "6/m"}))
    saved(stage, 2)
    stage.run(stage.claim())
    until = later(stage, seconds=10)
    assert delays(stage, 2) == [{"by": "rate", "rate": "6/m", "until": until, "counted_over": "destination dest-1"}]
    assert until in state_of(stage, 2).waits_for
    stage.clock_forward(seconds=10)
    assert delays(stage, 2) == []


@pytest.mark.rule("D-39", "D-33")
def test_a_throttle_says_until_when_and_the_throttled_one_names_its_own_time_too(make_stage: MakeStage) -> None:
    """The neighbour waits for the remote; the attempt that was throttled also for its own next try."""
    stage = make_stage(pack=without_mirror())
    saved(stage, 2)
    stage.remote.script.next(verbs.answer(429, headers=[("Retry-After", "60")]))
    stage.run(stage.claim(1))
    until = later(stage, minutes=1)
    assert [delays(stage, number) for number in (1, 2)] == [
        [{"by": "throttle", "until": until, "reason": "throttled"}]
    ] * 2
    assert state_of(stage, 2).waits_for == f"the remote, which asked to be left alone until {until}"
    assert state_of(stage, 1).waits_for.startswith("a worker, from ")
    assert until in state_of(stage, 1).waits_for


@pytest.mark.rule("D-39", "D-33")
def test_an_open_circuit_says_until_when_and_then_that_one_request_tries(make_stage: MakeStage) -> None:
    """Nothing of what waits has to be sent by hand."""
    stage = make_stage(pack=without_mirror(circuit={"failures": 2, "window": "1m", "pause": "30s"}))
    saved(stage, 3)
    stage.remote.script.always(verbs.refuse_connection())
    stage.run(stage.claim(2))
    until = later(stage, seconds=30)
    assert [(delay["by"], delay["until"]) for delay in delays(stage, 3)] == [("circuit_open", until)]
    stage.clock_forward(seconds=31)
    assert [delay["by"] for delay in delays(stage, 3)] == ["circuit_trying"]
    assert "one request at a time" in state_of(stage, 3).waits_for
