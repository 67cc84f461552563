"""How much a remote is asked: whom a throttle holds back, rates and requests at once, and circuits.

Two workers are two `ClaimSteps` over one database; what one learns, the other knows by its next claim.
"""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from flows.stage import MakeStage, Paused, Stage, action_of, pack_with, profile_of
from pushlink.flows.claimed import Claimed
from pushlink.operations.explain import explain
from pushlink.operations.remotes import HeldBy, held_back
from pushlink.protocol.states import AttemptStatus, Operation
from pushlink.testing import verbs

MANY = 12


def two_destinations(change: Callable[[dict[str, Any]], object] = lambda _: None, **second: Any) -> dict[str, Any]:
    """The pack with another action of the same records: a second profile (the first one changed) and destination."""
    document = pack_with(change)
    action_of(document).pop("mirror")
    document["profiles"]["second"] = {**copy.deepcopy(profile_of(document)), **second}
    place = {"destination_slot_id": "dest-2", "target_object": "contacts", "profile": "second"}
    document["destinations"].append(place)
    other = copy.deepcopy(action_of(document))
    other |= {"action": "push_contact", "action_slot_id": "act-2", "destination": "dest-2"}
    other["create"]["path"] = "/contacts"
    document["flows"][0]["actions"].append(other)
    return document


def saved(stage: Stage, count: int = MANY, *, tenant: str = "") -> None:
    """So many people, each in a transaction of its own."""
    for number in range(1, count + 1):
        stage.save_all(number, name=f"Person {number}", email=f"p{number}@example.com", tenant=tenant)


def limited(limits: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The pack with these limits, and without a mirror."""
    document = pack_with(lambda d: profile_of(d).update(limits=limits, **more))
    action_of(document).pop("mirror")
    return document


def destinations(claimed: Sequence[Claimed]) -> set[str]:
    """Where claimed rows go to."""
    return {item.attempt.destination_slot_id for item in claimed}


# ------------------------------------------------------------------------------------------------ throttles


@pytest.mark.rule("D-33")
@pytest.mark.parametrize(
    ("scope", "second", "held"),
    [
        ("destination", {}, {"dest-1"}),
        ("credential", {"destination_scope": "other"}, {"dest-1", "dest-2"}),
        ("credential", {"credential_ref": "env:OTHER"}, {"dest-1"}),
        ("remote_account", {"credential_ref": "env:OTHER"}, {"dest-1", "dest-2"}),
        ("remote_account", {"destination_scope": "other"}, {"dest-1"}),
        ("endpoint", {"destination_scope": "other", "credential_ref": "env:OTHER"}, {"dest-1", "dest-2"}),
        ("endpoint", {"base_url": "https://other.example.com/v2"}, {"dest-1"}),
        ("record", {}, set()),
    ],
)
def test_a_throttle_holds_back_whom_its_scope_names(
    make_stage: MakeStage, scope: str, second: dict[str, Any], held: set[str]
) -> None:
    """One 429 at the first destination: the other worker's next claim leaves alone exactly what shares the limit."""
    pack = two_destinations(lambda d: profile_of(d).update(rate_limit={"scope": scope}), **second)
    stage = make_stage(pack=pack)
    stage.save_all(1, name="Ann", email="a@example.com")
    stage.remote.script.always(verbs.answer(429, headers=[("Retry-After", "600")]))
    first = [item for item in stage.claim() if item.attempt.destination_slot_id == "dest-1"]
    stage.run(first)
    stage.clock_forward(seconds=100)  # past every lease, within the wait
    stage.save_all(2, name="Bob", email="b@example.com")
    assert destinations(stage.claim(by=stage.worker())) == {"dest-1", "dest-2"} - held


def test_a_throttle_of_one_record_lets_that_record_alone_wait(make_stage: MakeStage) -> None:
    """It is sent again when its time has come; the destination is never left alone."""
    stage = make_stage(pack=limited({}, rate_limit={"scope": "record"}))
    saved(stage, 2)
    stage.remote.script.next(verbs.answer(429, headers=[("Retry-After", "600")]))
    stage.run(stage.claim(1))
    assert len(stage.claim(by=stage.worker())) == 1
    stage.clock_forward(seconds=599)
    assert [item.attempt.send_count for item in stage.claim()] == [0]
    stage.clock_forward(seconds=200)
    assert [item.attempt.send_count for item in stage.claim()].count(1) == 1


@pytest.mark.rule("D-33", "C-061")
def test_one_worker_s_429_stops_the_other_before_its_next_claim(make_stage: MakeStage) -> None:
    """Sends after the first 429 are bounded by what was claimed already; no retry is counted, nothing is given up."""
    stage = make_stage(pack=limited({}))
    saved(stage)
    stage.remote.script.always(verbs.answer(429, headers=[("Retry-After", "600")]))
    other = stage.worker()
    mine, theirs = stage.claim(2), stage.claim(3, by=other)
    stage.run(mine)
    assert stage.claim(by=other) == []
    stage.run(theirs)
    assert stage.sends == 5
    assert stage.claim() == []
    assert {row["retry_count"] for row in stage.attempts()} == {0}
    stage.clock_forward(seconds=599)
    assert stage.claim(by=other) == []


# ------------------------------------------------------------------------------------------------ requests at once


@pytest.mark.rule("D-33")
def test_no_more_requests_are_under_way_than_the_profile_allows(make_stage: MakeStage) -> None:
    """Counted over two workers; an outcome makes room for one more, and so does a lease that was recovered."""
    stage = make_stage(pack=limited({"max_concurrency": 3}))
    saved(stage)
    other = stage.worker()
    first, second = stage.claim(2), stage.claim(by=other)
    assert (len(first), len(second)) == (2, 1)
    assert stage.claim(by=other) == stage.claim() == []
    stage.run(first[:1])
    assert len(stage.claim(by=other)) == 1
    stage.clock_forward(seconds=100)
    assert len(stage.claim(by=other)) == 3


@pytest.mark.rule("D-33")
@pytest.mark.parametrize(
    ("scope", "each"), [("record", 2), ("destination", 2), ("credential", 1), ("remote_account", 1), ("endpoint", 1)]
)
def test_a_limit_is_counted_over_its_scope(make_stage: MakeStage, scope: str, each: int) -> None:
    """Two destinations with two requests each, or with two together."""
    change = {"limits": {"max_concurrency": 2}, "rate_limit": {"scope": scope}}
    stage = make_stage(pack=two_destinations(lambda d: profile_of(d).update(change)))
    saved(stage)
    claimed = stage.claim()
    assert sorted(item.attempt.destination_slot_id for item in claimed) == ["dest-1"] * each + ["dest-2"] * each


def test_a_full_destination_starves_no_other_and_goes_on_with_its_mirrors(make_stage: MakeStage) -> None:
    """The other destination is claimed whole."""
    pack = two_destinations()
    pack["profiles"]["main"]["limits"] = {"max_concurrency": 1}
    stage = make_stage(pack=pack)
    saved(stage)
    claimed = stage.claim()
    assert sorted(item.attempt.destination_slot_id for item in claimed) == ["dest-1"] + ["dest-2"] * MANY


# ------------------------------------------------------------------------------------------------ rates


@pytest.mark.rule("D-33")
def test_claims_of_all_workers_keep_to_the_rate(make_stage: MakeStage) -> None:
    """2 a second with a burst of 4: four at once, then one each half second, whoever claims."""
    stage = make_stage(pack=limited({"rate": "2/s", "burst": 4}))
    saved(stage)
    other = stage.worker()
    assert [len(stage.claim(3)), len(stage.claim(by=other)), len(stage.claim())] == [3, 1, 0]
    stage.clock_forward(milliseconds=499)
    assert stage.claim(by=other) == []
    stage.clock_forward(milliseconds=1)
    assert [len(stage.claim()), len(stage.claim(by=other))] == [1, 0]
    stage.clock_forward(seconds=1)
    assert [len(stage.claim(1)), len(stage.claim(1, by=other)), len(stage.claim())] == [1, 1, 0]


def test_a_worker_that_is_out_of_rate_knows_when_to_ask_again(make_stage: MakeStage) -> None:
    """It sleeps until the next request may go, and does not spin."""
    stage = make_stage(pack=limited({"rate": "6/m"}))
    saved(stage, 2)
    assert len(stage.claim()) == 1
    with stage.engine.begin() as conn:
        [due_s] = stage.claims.due_in_s(conn, [None], now=stage.clock.now(conn))
    assert due_s == 10.0


# ------------------------------------------------------------------------------------------------ circuits

CIRCUIT = {"circuit": {"failures": 3, "window": "1m", "pause": "30s"}}


def now_of(stage: Stage) -> dt.datetime:
    """The moment at which the clock stands."""
    with stage.engine.connect() as conn:
        return stage.fixed.now(conn)


def failed(stage: Stage, count: int = 3) -> None:
    """So many creates whose connection is refused."""
    stage.remote.script.always(verbs.refuse_connection())
    stage.run(stage.claim(count))
    stage.remote.script.calm()


def circuit(stage: Stage) -> dict[str, Any]:
    """The one circuit."""
    [row] = stage.rows("remote_circuit")
    return row


@pytest.mark.rule("D-33")
def test_a_remote_that_fails_is_left_alone_by_every_worker(make_stage: MakeStage) -> None:
    """Three failures open the circuit: nothing is claimed for its pause, and what waits loses nothing of its budget."""
    stage = make_stage(pack=limited({}, **CIRCUIT))
    saved(stage)
    failed(stage, 2)
    assert len(stage.claim(1, by=stage.worker())) == 1  # two are not enough; this claim stays under way
    failed(stage, 1)
    assert circuit(stage)["open_until"] - now_of(stage) == dt.timedelta(seconds=30)
    stage.clock_forward(seconds=29)
    assert stage.claim() == stage.claim(by=stage.worker()) == []
    waiting = stage.attempts(send_count=0, status=AttemptStatus.PENDING)
    assert len(waiting) == MANY - 4
    assert {(row["retry_count"], row["claim_count"]) for row in waiting} == {(0, 0)}


@pytest.mark.rule("D-33")
def test_an_open_circuit_starves_no_other_destination(make_stage: MakeStage) -> None:
    """The second destination's rows are claimed while the first is left alone."""
    stage = make_stage(pack=two_destinations(lambda d: profile_of(d).update(CIRCUIT)))
    saved(stage)
    stage.remote.script.always(verbs.refuse_connection())
    stage.run([item for item in stage.claim(6) if item.attempt.destination_slot_id == "dest-1"])
    stage.clock_forward(seconds=1)
    assert destinations(stage.claim()) == {"dest-2"}


def test_one_request_of_all_workers_tries_a_remote_that_failed(make_stage: MakeStage) -> None:
    """Half open: one probe; when it is answered the circuit is forgotten and everything goes."""
    stage = make_stage(pack=limited({}, **CIRCUIT))
    saved(stage)
    failed(stage)
    stage.clock_forward(seconds=31)
    probe = stage.claim()
    assert len(probe) == 1
    assert stage.claim(by=stage.worker()) == []
    stage.run(probe)
    assert stage.rows("remote_circuit") == []
    assert len(stage.claim(by=stage.worker())) == MANY - 1


def test_a_probe_that_fails_doubles_the_pause(make_stage: MakeStage) -> None:
    """And the pause after it is twice the first."""
    stage = make_stage(pack=limited({}, **CIRCUIT))
    saved(stage)
    failed(stage)
    stage.clock_forward(seconds=31)
    failed(stage, 5)
    assert stage.sends == 4
    assert (circuit(stage)["opened"], circuit(stage)["open_until"] - now_of(stage)) == (
        2,
        dt.timedelta(seconds=60),
    )
    stage.clock_forward(seconds=59)
    assert stage.claim() == []


def test_a_probe_whose_worker_died_is_followed_by_another(make_stage: MakeStage) -> None:
    """Its claim counts as under way until it has been recovered, and no longer."""
    stage = make_stage(pack=limited({}, **CIRCUIT))
    saved(stage)
    failed(stage)
    stage.clock_forward(seconds=31)
    Paused(stage, *stage.claim()).to_send()
    assert stage.claim(by=stage.worker()) == []
    stage.clock_forward(seconds=100)
    assert len(stage.claim(by=stage.worker())) == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(verbs.answer(429), id="throttle"),
        pytest.param(verbs.answer(422), id="refusal"),
        pytest.param(verbs.answer(401), id="unauthenticated"),
    ],
)
def test_a_remote_that_refuses_is_not_broken(make_stage: MakeStage, answer: verbs.Verb) -> None:
    """It answers: no circuit counts that."""
    stage = make_stage(pack=limited({}, **CIRCUIT))
    saved(stage)
    stage.remote.script.always(answer)
    stage.run(stage.claim(5))
    assert stage.rows("remote_circuit") == []


def test_as_many_answers_as_failures_keep_a_circuit_closed(make_stage: MakeStage) -> None:
    """Three failures after four answers are less than half; so are those of another window."""
    stage = make_stage(pack=limited({}, **CIRCUIT))
    saved(stage)
    failed(stage, 1)
    stage.run(stage.claim(4))
    failed(stage, 2)
    assert circuit(stage)["open_until"] is None
    stage.clock_forward(seconds=61)
    failed(stage, 2)
    assert (circuit(stage)["failures"], circuit(stage)["open_until"]) == (2, None)


def test_a_circuit_of_no_failures_never_opens(make_stage: MakeStage) -> None:
    """`failures: 0` counts nothing."""
    stage = make_stage(pack=limited({}, circuit={"failures": 0}))
    saved(stage)
    failed(stage, MANY)
    assert stage.rows("remote_circuit") == []


def test_an_inline_dispatch_keeps_to_the_limits_too(make_stage: MakeStage) -> None:
    """A host that dispatches itself does not pass a destination that is left alone."""
    stage = make_stage(pack=limited({}, **CIRCUIT))
    saved(stage)
    failed(stage)
    sends = stage.sends
    [standing] = stage.runtime.push("Person", MANY)
    assert (stage.sends, standing.attempt.status, standing.attempt.operation) == (
        sends,
        AttemptStatus.PENDING,
        Operation.CREATE,
    )


@pytest.mark.rule("D-33")
def test_an_inline_dispatch_and_workers_use_up_the_same_rate_and_the_same_room(make_stage: MakeStage) -> None:
    """Two at once: a worker's two leave no room for an inline one. 1 a second: one send, whoever makes it."""
    stage = make_stage(pack=limited({"max_concurrency": 2}))
    saved(stage, 3)
    claimed = stage.claim()
    stage.runtime.push("Person", 3)
    assert (len(claimed), stage.sends) == (2, 0)
    stage.run(claimed[:1])
    stage.runtime.push("Person", 3)
    assert stage.sends == 2
    stage.run(claimed[1:])
    stage.apply(limited({"rate": "1/s"}))
    saved(stage, 5)
    stage.runtime.push("Person", 4)
    assert stage.sends == 4
    stage.runtime.push("Person", 5)
    assert (stage.sends, stage.claim()) == (4, [])
    stage.clock_forward(seconds=1)
    assert len(stage.claim()) == 1
    stage.runtime.push("Person", 5)
    assert stage.sends == 4


# ------------------------------------------------------------------------------------------------ what people see


@pytest.mark.rule("D-33")
def test_people_see_which_remote_is_left_alone_and_what_waits_for_it(make_stage: MakeStage) -> None:
    """A list for `stuck` and `doctor`, a note for `explain`; when the remote answers again both are empty."""
    stage = make_stage(pack=limited({}, **CIRCUIT))
    saved(stage)
    failed(stage)
    with stage.engine.connect() as conn:
        [held] = held_back(conn, tenant="", now=now_of(stage))
        said = explain(conn, "Person", str(MANY), now=now_of(stage)).notes
        assert held_back(conn, tenant="another", now=now_of(stage)) == ()
    assert (held.destination_slot_id, held.held_by, held.waiting) == ("dest-1", HeldBy.CIRCUIT_OPEN, MANY)
    assert held.until == now_of(stage) + dt.timedelta(seconds=30)
    assert [f"dest-1: {held.sentence}"] == list(said)
    stage.clock_forward(seconds=31)
    with stage.engine.connect() as conn:
        assert [one.held_by for one in held_back(conn, tenant=None, now=now_of(stage))] == [HeldBy.CIRCUIT_TRYING]
    stage.drain()
    with stage.engine.connect() as conn:
        assert held_back(conn, tenant=None, now=now_of(stage)) == ()


def test_people_see_a_throttle_with_its_end(make_stage: MakeStage) -> None:
    """The row of the table of answers is the reason."""
    stage = make_stage(pack=limited({}))
    saved(stage, 2)
    stage.remote.script.next(verbs.answer(429, headers=[("Retry-After", "60")]))
    stage.run(stage.claim(1))
    with stage.engine.connect() as conn:
        [held] = held_back(conn, tenant="", now=now_of(stage))
    assert (held.held_by, held.reason, held.until - now_of(stage)) == (
        HeldBy.THROTTLE,
        "throttled",
        dt.timedelta(minutes=1),
    )
