"""`reconcile --lookup` and `--replay`: what an operator may order within the contract that was frozen with a create."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flows.stage import PACK, MakeStage, Stage
from flows.test_replays import certify, creates, creating, sent_creates
from flows.test_replays import staged as by_contract
from flows.test_stamp_lookups import looks, lose
from flows.test_stamp_lookups import staged as by_stamp
from operations.agreement import groups_of, require_agreement
from operations.operators import decide, refused
from pushlink.errors import Code
from pushlink.operations.actions import OperatorTerms
from pushlink.operations.actions_bulk import act_many, read_decisions
from pushlink.operations.explain import explain
from pushlink.protocol.verbs import Verb
from pushlink.store.access import writing
from pushlink.store.tables import push_response
from pushlink.testing import verbs

ADA = {"name": "Ada", "email": "ada@example.com"}


def exhausted(make_stage: MakeStage, **options: Any) -> Stage:
    """A create that may be repeated for an hour, whose tries are used up."""
    stage = by_contract(make_stage, "key", retry={"attempts": 1}, **options)
    stage.remote.script.next(verbs.store_then_close(), when=creating)
    stage.save(1, **ADA)
    stage.drain()
    assert stage.attempt()["status"] == "ambiguous_remote_effect"
    return stage


def offered(stage: Stage) -> dict[str, str | None]:
    """What `explain` says that may be decided, with its command."""
    with stage.engine.begin() as conn:
        [state] = explain(conn, "Person", "1", now=stage.clock.now(conn), world=stage.world).actions
    return {verb.name: verb.command for verb in state.verbs}


def contract(stage: Stage) -> Any:
    with stage.engine.begin() as conn:
        [state] = explain(conn, "Person", "1", now=stage.clock.now(conn), world=stage.world).actions
    return state.evidence.get("contract")


@pytest.mark.rule("D-08", "D-07", "SY-03")
@pytest.mark.parametrize("lane", ["configured", "deferred_association"])
def test_an_ordered_replay_sends_the_same_bytes_once_more_in_any_lane(make_stage: MakeStage, lane: str) -> None:
    """The tries were used up, or the lane repeats nothing by itself: the operator's order is one more send."""
    stage = exhausted(make_stage)
    stage.sql("UPDATE pushlink_push_attempt SET dispatch_lane = :lane", lane=lane)
    done = decide(stage, Verb.REPLAY, stage.attempt())
    assert (done.before, done.after) == ("create/ambiguous_remote_effect", "pending")
    stage.drain()
    first, second = sent_creates(stage)
    assert (first.headers, first.body, first.path) == (second.headers, second.body, second.path)
    assert (stage.attempt()["status"], creates(stage)) == ("finalized", 1)
    [action] = stage.rows("operator_action", verb="reconcile replay")
    assert (action["actor"], action["target_id"]) == ("olga", stage.attempt()["id"])
    assert json.loads(action["evidence"])["replay_until"]


@pytest.mark.rule("D-07", "D-08", "C-095")
def test_what_a_contract_allows_is_offered_by_explain_and_stuck_alike(make_stage: MakeStage) -> None:
    """A replay while it lasts; without a certificate the create waits for one."""
    stage = exhausted(make_stage)
    [(_, kind, *_)] = require_agreement(stage)
    assert kind == "doubtful"
    assert "reconcile replay" in {verb.name for verb in groups_of(stage)[0].rows[0].verbs}
    certify(stage, passed=False)
    assert {row[1] for row in require_agreement(stage)} == {"doubtful", "uncertified"}
    uncertified = next(group for group in groups_of(stage) if group.kind == "uncertified")
    assert uncertified.rows[0].first.command.startswith("pushlink pack certify FILE")
    certify(stage)
    stage.clock_forward(hours=2)
    assert {row[1] for row in require_agreement(stage)} == {"doubtful"}


@pytest.mark.rule("D-08", "C-095")
def test_looking_is_what_is_offered_first_where_the_pack_declares_it(make_stage: MakeStage) -> None:
    """It only reads."""
    stage = by_stamp(make_stage, timeout="20s")
    lose(stage, stored=False)
    require_agreement(stage)
    [group] = groups_of(stage)
    assert group.rows[0].first.name == "reconcile lookup"


@pytest.mark.rule("D-07")
def test_an_ordered_replay_that_is_lost_again_is_parked_again(make_stage: MakeStage) -> None:
    """One order, one send."""
    stage = exhausted(make_stage)
    stage.remote.script.always(verbs.close_after_read(), when=creating)
    decide(stage, Verb.REPLAY, stage.attempt())
    for _ in range(3):
        stage.drain()
        stage.clock_forward(minutes=2)
    assert (stage.attempt()["status"], len(sent_creates(stage))) == ("ambiguous_remote_effect", 2)


@pytest.mark.rule("D-07")
def test_an_ordered_replay_that_comes_too_late_is_not_sent(make_stage: MakeStage) -> None:
    """It was in time when it was ordered; nobody took it until the lifetime was over."""
    stage = exhausted(make_stage)
    decide(stage, Verb.REPLAY, stage.attempt())
    stage.clock_forward(hours=1)
    stage.drain()
    attempt = stage.attempt()
    assert (attempt["status"], attempt["reason_code"]) == ("ambiguous_remote_effect", Code.REPLAY_EXPIRED)
    assert len(sent_creates(stage)) == 1


@pytest.mark.rule("D-07", "D-08")
@pytest.mark.parametrize("why", ["expired", "uncertified", "withdrawn", "named"])
def test_a_replay_that_the_contract_does_not_carry_is_refused_with_the_reason(make_stage: MakeStage, why: str) -> None:
    """Nothing is written, and the message says what is missing; `explain` does not offer it."""
    stage = exhausted(make_stage)
    if why == "expired":
        stage.clock_forward(hours=1)
    elif why == "uncertified":
        certify(stage, passed=False)
    elif why == "withdrawn":
        stage.apply({**PACK, "version": "1.1.0"})
    else:
        [answer] = stage.rows("push_response")
        late = {**answer, "id": answer["id"] + 1, "late": True, "candidate_id": "77"}
        with stage.engine.begin() as conn:
            conn.execute(push_response.insert().values(**late))
    says = {
        "expired": "lifetime was over",
        "uncertified": "pushlink pack certify",
        "withdrawn": "declares no such contract any more",
        "named": "adopt it, or dispose of it first",
    }[why]
    assert "reconcile replay" not in offered(stage)
    assert says in refused(stage, Verb.REPLAY, stage.attempt()).message


@pytest.mark.rule("D-08", "SY-03")
def test_an_ordered_look_up_finds_the_record_at_once(make_stage: MakeStage) -> None:
    """The look-ups were over; the order asks once more, and the record is there."""
    stage = by_stamp(make_stage, timeout="20s")
    lose(stage, stored=False)
    for _ in range(5):
        stage.clock_forward(seconds=10)
        stage.drain()
    assert stage.attempt()["reason_code"] == Code.LOOKUP_IN_VAIN
    asked = looks(stage)
    [request] = stage.rows("push_request")
    found = [{"id": 5, "ref": json.loads(request["body"])["ref"]}]
    stage.remote.script.next(verbs.answer(200, {"records": found}), when=lambda asked: asked.method == "GET")
    command = offered(stage)["reconcile lookup"]
    assert command is not None
    assert "--lookup" in command
    done = decide(stage, Verb.LOOKUP, stage.attempt())
    assert (done.after, len(done.notes)) == ("ambiguous_remote_effect", 1)
    stage.drain()
    assert (stage.attempt()["status"], stage.link()["remote_id"], looks(stage)) == ("finalized", "5", asked + 1)


def test_an_ordered_look_up_in_vain_ends_with_the_same_code(make_stage: MakeStage) -> None:
    """Once more, and then it waits for a person again."""
    stage = by_stamp(make_stage, timeout="20s")
    lose(stage, stored=False)
    stage.clock_forward(minutes=5)
    stage.drain()
    asked = looks(stage)
    decide(stage, Verb.LOOKUP, stage.attempt())
    stage.drain()
    attempt = stage.attempt()
    assert (attempt["reason_code"], attempt["lease_until"], looks(stage)) == (Code.LOOKUP_IN_VAIN, None, asked + 1)


@pytest.mark.rule("C-054")
def test_an_ordered_look_up_before_the_settle_time_proves_no_absence(make_stage: MakeStage) -> None:
    """Five seconds after the send the index shows nothing yet: inconclusive, whoever asked."""
    stage = by_stamp(make_stage, lag_s=30.0, consistency="index", lag="30s", absence_is_proof=True)
    lose(stage)
    stage.clock_forward(seconds=5)
    decide(stage, Verb.LOOKUP, stage.attempt())
    stage.drain()
    assert (stage.attempt()["status"], looks(stage)) == ("ambiguous_remote_effect", 1)
    stage.clock_forward(seconds=30)
    stage.drain()
    assert stage.attempt()["status"] == "finalized"


@pytest.mark.parametrize("verb", [Verb.REPLAY, Verb.LOOKUP])
def test_a_kind_that_was_not_declared_is_refused_beside_one_that_was(make_stage: MakeStage, verb: Verb) -> None:
    """A key is no look-up, and a look-up is no key."""
    if verb is Verb.LOOKUP:
        stage = exhausted(make_stage)
    else:
        stage = by_stamp(make_stage)
        lose(stage)
    assert verb.value not in offered(stage)
    assert "contract" in refused(stage, verb, stage.attempt()).message


def test_explain_says_what_the_contract_is_good_for(make_stage: MakeStage) -> None:
    """Classes, whether they count, until when, and why not."""
    stage = exhausted(make_stage)
    shown = contract(stage)
    assert (shown["classes"], shown["certified"]) == (["R1 key"], True)
    assert "not_replayed" not in shown
    stage.clock_forward(hours=1)
    assert contract(stage)["not_replayed"] == "the contract's lifetime is over"


@pytest.mark.rule("SY-03")
def test_both_are_decided_from_a_file_with_a_dry_run(make_stage: MakeStage) -> None:
    """A dry run says what each would do and changes nothing; the run does it."""
    stage = exhausted(make_stage)
    row = stage.attempt()
    text = (
        "attempt_id,row_version,verb,argument,reason\n"
        f"{row['id']},{row['row_version']},replay,,the remote is back\n"
        f"{row['id']},{row['row_version']},lookup,,the remote is back\n"
    )
    rows = read_decisions(text, actor="olga")
    before = stage.census()

    def run(*, dry_run: bool) -> Any:
        return act_many(lambda: writing(stage.engine), stage.world, rows, terms=OperatorTerms(), dry_run=dry_run)

    would = run(dry_run=True)
    assert stage.census() == before
    assert [result.outcome for result in would.rows] == ["done", "refused"]
    assert "The same bytes are sent once more" in (would.rows[0].message or "")
    done = run(dry_run=False)
    assert (done.done, done.refused, stage.attempt()["status"]) == (1, 1, "pending")
    stage.drain()
    assert creates(stage) == 1


def test_a_decision_about_an_older_row_is_refused(make_stage: MakeStage) -> None:
    stage = exhausted(make_stage)
    row = stage.attempt()
    refused(stage, Verb.REPLAY, row | {"row_version": row["row_version"] - 1}, code=Code.STALE_VERSION)


@pytest.mark.rule("D-39")
def test_without_a_general_worker_the_request_path_makes_the_look_up(make_stage: MakeStage) -> None:
    """`pushlink push` of the record is its recovery owner, look-ups included."""
    stage = by_stamp(make_stage)
    lose(stage)
    stage.sql("UPDATE pushlink_deployment SET general_worker = 'off'")
    stage.clock_forward(seconds=10)
    assert stage.drain() == 0
    stage.runtime.push("Person", 1)
    assert (stage.attempt()["status"], stage.link()["remote_id"]) == ("finalized", "1")
