"""Look-ups are requests too: rates, requests at once, throttles and circuits are about them as about creates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from flows.stage import MakeStage, Stage, profile_of
from flows.test_answers_looked_up import ASYNC
from flows.test_limits import destinations, limited, saved, two_destinations
from pushlink.flows.claimed import Claimed, ClaimedLookup
from pushlink.testing import verbs
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.messages import creating, reading
from pushlink.testing.scripted import ScriptedTransport


def accepted(make_stage: MakeStage, pack: dict[str, Any], count: int) -> Stage:
    """So many creates of each action, each answered with a 202; their first look-ups are due."""
    for action in pack["flows"][0]["actions"]:
        action["create"]["async"] = ASYNC
    stage = make_stage(pack=pack, remote=ScriptedTransport(RemoteOptions(prefix="/v2")))
    stage.remote.script.always(verbs.answer(202, {"job": "1"}), when=creating)
    stage.remote.script.always(verbs.answer(200, {"state": "running"}), when=reading)
    saved(stage, count)
    for _ in range(100):
        stage.clock_forward(seconds=1)
        stage.run([item for item in stage.claim() if not isinstance(item, ClaimedLookup)])
        if all(row["send_count"] for row in stage.attempts()):
            break
    stage.clock_forward(seconds=100)  # past the leases of look-ups that were claimed above and not made
    return stage


def look_ups(claimed: Sequence[Claimed]) -> int:
    """How many look-ups are among what was claimed."""
    return sum(isinstance(item, ClaimedLookup) for item in claimed)


@pytest.mark.rule("D-33")
def test_a_look_up_takes_a_place_among_the_requests_at_once(make_stage: MakeStage) -> None:
    """Of two places both are taken by look-ups; a third and a create wait until one was answered."""
    stage = accepted(make_stage, limited({"max_concurrency": 2}), 3)
    saved(stage, 4)
    other = stage.worker()
    first = stage.claim()
    assert (len(first), look_ups(first)) == (2, 2)
    assert stage.claim(by=other) == []
    stage.run(first[:1])
    assert len(stage.claim(by=other)) == 1


def test_a_look_up_whose_worker_died_gives_its_place_up(make_stage: MakeStage) -> None:
    """With its lease, like a create."""
    stage = accepted(make_stage, limited({"max_concurrency": 1}), 2)
    assert len(stage.claim()) == 1
    assert stage.claim(by=stage.worker()) == []
    stage.clock_forward(seconds=100)
    assert len(stage.claim(by=stage.worker())) == 1


@pytest.mark.rule("D-33")
def test_look_ups_and_creates_use_up_one_rate(make_stage: MakeStage) -> None:
    """One a second: what a look-up took, a create does not get."""
    stage = accepted(make_stage, limited({"rate": "1/s"}), 2)
    saved(stage, 3)
    assert (look_ups(stage.claim()), stage.claim()) == (1, [])
    stage.clock_forward(seconds=1)
    assert (look_ups(stage.claim()), stage.claim()) == (1, [])
    stage.clock_forward(seconds=1)
    assert (len(claimed := stage.claim()), look_ups(claimed)) == (1, 0)


@pytest.mark.rule("D-33")
@pytest.mark.parametrize(("scope", "held"), [("destination", {"dest-1"}), ("credential", {"dest-1", "dest-2"})])
def test_a_throttled_look_up_holds_back_whom_its_scope_names(make_stage: MakeStage, scope: str, held: set[str]) -> None:
    """Creates and look-ups alike, for as long as it asked for."""
    pack = two_destinations(lambda d: profile_of(d).update(rate_limit={"scope": scope}))
    stage = accepted(make_stage, pack, 2)
    [one, *_] = [item for item in stage.claim() if item.attempt.destination_slot_id == "dest-1"]
    stage.remote.script.next(verbs.answer(429, headers=[("Retry-After", "600")]), when=reading)
    stage.run([one])
    stage.clock_forward(seconds=100)
    saved(stage, 3)
    claimed = stage.claim(by=stage.worker())
    assert destinations(claimed) == {"dest-1", "dest-2"} - held
    assert look_ups(claimed) == 2 * len({"dest-2"} - held)


@pytest.mark.rule("D-33")
def test_look_ups_of_a_full_destination_hide_nobody_elses(make_stage: MakeStage) -> None:
    """Six are due at a destination that takes one at once, and stand first; the other's are made all the same."""
    pack = two_destinations()
    pack["profiles"]["main"]["limits"] = {"max_concurrency": 1}
    stage = accepted(make_stage, pack, 6)
    claimed = [item.attempt.destination_slot_id for item in stage.claim(3)]
    assert sorted(claimed) == ["dest-1", "dest-2", "dest-2"]


def test_a_worker_whose_look_ups_are_held_back_knows_when_to_ask_again(make_stage: MakeStage) -> None:
    """It sleeps until the remote wants to be asked, and does not spin."""
    stage = accepted(make_stage, limited({}), 2)
    claimed = stage.claim()
    stage.remote.script.next(verbs.answer(429, headers=[("Retry-After", "600")]), when=reading)
    stage.run(claimed[:1])
    stage.clock_forward(seconds=100)
    assert stage.claim() == []
    with stage.engine.begin() as conn:
        [due_s] = stage.claims.due_in_s(conn, [None], now=stage.clock.now(conn))
    assert due_s is not None
    assert 490 <= due_s <= 500


@pytest.mark.rule("D-33")
def test_look_ups_that_fail_open_the_circuit_and_one_that_is_answered_closes_it(make_stage: MakeStage) -> None:
    """Nothing of the destination is asked meanwhile."""
    stage = accepted(make_stage, limited({}, circuit={"failures": 3, "window": "1m", "pause": "30s"}), 4)
    stage.remote.script.next(*[verbs.answer(503)] * 3, when=reading)
    stage.run(stage.claim(3))
    saved(stage, 5)
    assert stage.claim() == []
    stage.clock_forward(seconds=31)
    probe = stage.claim()
    assert len(probe) == 1
    assert stage.claim(by=stage.worker()) == []
    stage.run(probe)
    assert stage.rows("remote_circuit") == []


def test_a_look_up_that_a_person_asked_for_waits_for_the_remote_too(make_stage: MakeStage) -> None:
    """An inline dispatch makes no look-up at a destination that is left alone."""
    stage = accepted(make_stage, limited({"max_concurrency": 1}), 2)
    claimed = stage.claim()
    before = stage.sends
    stage.runtime.push("Person", 2 if claimed[0].source.record_id == "1" else 1)
    assert stage.sends == before
