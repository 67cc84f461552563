"""Creates in doubt that are looked for by their stamp: found, several, absent with proof, or left to a person."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flows.stage import MakeStage, Stage, action_of, pack_with, profile_of
from flows.test_replays import certify
from pushlink.errors import Code
from pushlink.protocol.reinterpretation import is_same
from pushlink.testing import verbs
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.messages import Asked, creating, reading
from pushlink.testing.scripted import ScriptedTransport

ADA = {"name": "Ada", "email": "ada@example.com"}
LOOKUP: dict[str, Any] = {
    "path": "/people",
    "query": {"ref": "{stamp}"},
    "items": "/records",
    "match": "/ref",
    "id": [{"from": "$response.body#/id"}],
    "every": "10s",
    "timeout": "10m",
}
PROOF: dict[str, Any] = {"consistency": "index", "lag": "30s", "absence_is_proof": True}


def staged(
    make_stage: MakeStage, *, trusted: bool = True, lag_s: float = 0.0, more: Any = None, **lookup: Any
) -> Stage:
    """A pack whose creates carry a stamp, and a remote that lists by it, late if it is told so."""

    def change(document: dict[str, Any]) -> None:
        profile_of(document)["remote_processing"] = "1m"
        action_of(document)["create"] |= {
            "stamp": {"format": "token", "prefix": "pl-"},
            "body": {"merge": {"/ref": "{stamp}"}},
            "lookup": LOOKUP | lookup,
        }
        if more is not None:
            more(document)

    clock: list[Stage] = []
    options = RemoteOptions(
        prefix="/v2",
        unique_fields=("email",),
        search_lag_seconds=lag_s,
        clock=lambda: clock[0].fixed.now(None).timestamp() if clock else 0.0,
    )
    stage = make_stage(pack=pack_with(change), remote=ScriptedTransport(options))
    clock.append(stage)
    if trusted:
        certify(stage)
    return stage


def lose(stage: Stage, *, stored: bool = True) -> dict[str, Any]:
    """A create whose answer is lost; whether the remote has it is the test's to say."""
    verb = verbs.store_then_close() if stored else verbs.close_after_read()
    stage.remote.script.next(verb, when=creating)
    stage.save(1, **ADA)
    stage.run(stage.claim())
    return stage.attempts()[-1]


def looks(stage: Stage) -> int:
    return len([asked for asked in stage.remote.sent if asked.method == "GET"])


def posts(stage: Stage) -> int:
    return len([asked for asked in stage.remote.sent if asked.method == "POST"])


@pytest.mark.rule("D-08", "PO-04", "AT-12", "D-27")
def test_the_one_record_with_our_stamp_is_ours(make_stage: MakeStage) -> None:
    """Parked, looked for after a while, found: the link, the version that was reserved, the mirror; one POST."""
    stage = staged(make_stage)
    parked = lose(stage)
    assert (parked["status"], parked["in_doubt"]) == ("ambiguous_remote_effect", True)
    assert stage.drain() == 0
    stage.clock_forward(seconds=10)
    stage.drain()
    link, attempt = stage.link(), stage.attempt()
    assert (link["status"], link["remote_id"], link["mirror_status"]) == ("finalized", "1", "written")
    assert (attempt["status"], attempt["in_doubt"], attempt["send_count"]) == ("finalized", False, 1)
    assert stage.slot()["acknowledged_version"] == 1
    assert (posts(stage), looks(stage), len(stage.remote.api.created)) == (1, 1, 1)
    assert [event["event"] for event in stage.events() if event["event"] == "stamp_found"] == ["stamp_found"]
    stage.save(1, name="Ada II")
    stage.drain()
    assert [asked.method for asked in stage.remote.sent] == ["POST", "GET", "PATCH"]


@pytest.mark.rule("D-14")
def test_the_verdict_on_a_look_up_is_reached_again_from_what_is_stored(make_stage: MakeStage) -> None:
    """The stamp stands beside the verdict, so the stored answer alone says the same again."""
    from flows.test_answers_looked_up import again

    stage = staged(make_stage)
    lose(stage)
    stage.clock_forward(seconds=10)
    stage.drain()
    for row in stage.rows("push_response", "id"):
        kept = json.loads(row["verdict"])
        assert is_same(again(stage, row, kept), kept)


@pytest.mark.rule("C-054", "D-08")
def test_a_search_that_lags_behind_says_nothing_until_it_has_settled(make_stage: MakeStage) -> None:
    """The remote shows a new record 30 s later: at 10 and 20 s it is not there, and that proves nothing."""
    stage = staged(make_stage, lag_s=30.0, **PROOF)
    lose(stage)
    for expected in (1, 2):
        stage.clock_forward(seconds=10)
        stage.drain()
        attempt = stage.attempt()
        assert (attempt["status"], looks(stage), stage.links()) == ("ambiguous_remote_effect", expected, [])
    stage.clock_forward(seconds=11)
    stage.drain()
    assert (stage.attempt()["status"], stage.link()["remote_id"], posts(stage)) == ("finalized", "1", 1)


@pytest.mark.rule("C-054")
def test_nothing_is_looked_for_before_a_create(make_stage: MakeStage) -> None:
    """A search never decides that a create may be sent."""
    stage = staged(make_stage, **PROOF)
    stage.save(1, **ADA)
    stage.drain()
    assert [asked.method for asked in stage.remote.sent] == ["POST"]


@pytest.mark.rule("D-08", "D-09")
def test_absence_is_proved_after_the_settle_time_and_the_lag_and_not_before(make_stage: MakeStage) -> None:
    """Deadline, longest pause, processing and lag: only then an empty list ends the attempt, and nothing is sent."""
    stage = staged(make_stage, **PROOF)
    lose(stage, stored=False)
    settles_s = 30 + 600 + 60 + 30  # total deadline, the deployment's longest pause, processing, lag
    passed = 0
    while passed < settles_s - 10:
        stage.clock_forward(seconds=10)
        passed += 10
        stage.drain()
        assert stage.attempt()["status"] == "ambiguous_remote_effect", passed
    stage.clock_forward(seconds=10)
    stage.drain()
    attempt = stage.attempt()
    assert (attempt["status"], attempt["reason_code"], attempt["in_doubt"]) == (
        "terminal_failed",
        Code.CONFIRMED_ABSENT,
        False,
    )
    assert (posts(stage), len(stage.remote.api.created)) == (1, 0)
    stage.save(1, name="Ada II")
    stage.drain()
    assert posts(stage) == 1  # only an operator supersedes


@pytest.mark.rule("D-08")
def test_absence_that_proves_nothing_ends_in_a_persons_hands(make_stage: MakeStage) -> None:
    """Without absence_is_proof it is asked as long as the pack says, then no more, and the code says so."""
    stage = staged(make_stage, timeout="40s")
    lose(stage, stored=False)
    for _ in range(200):
        stage.clock_forward(seconds=10)
        stage.drain()
    attempt = stage.attempt()
    assert (attempt["status"], attempt["reason_code"]) == ("ambiguous_remote_effect", Code.LOOKUP_IN_VAIN)
    assert (looks(stage), posts(stage), attempt["lease_until"]) == (4, 1, None)


@pytest.mark.rule("D-08")
def test_a_stored_success_is_stronger_than_an_empty_list(make_stage: MakeStage) -> None:
    """The remote said 201 and named no id: what a look-up does not find is not absent."""
    stage = staged(make_stage, **PROOF)
    stage.remote.script.next(verbs.answer(201, {"name": "Ada"}), when=creating)
    stage.save(1, **ADA)
    for _ in range(100):
        stage.drain()
        stage.clock_forward(seconds=10)
    attempt = stage.attempt()
    assert (attempt["status"], attempt["reason_code"]) == ("ambiguous_remote_effect", Code.LOOKUP_IN_VAIN)


@pytest.mark.rule("D-27")
def test_several_records_with_our_stamp_are_nobodys(make_stage: MakeStage) -> None:
    """Somebody copied it, or it was made twice: parked with a code of its own, and not asked about again."""
    stage = staged(make_stage)
    parked = lose(stage)
    [request] = stage.rows("push_request", attempt_id=parked["id"])
    stamp = json.loads(request["body"])["ref"]
    twice = [{"id": 1, "ref": stamp}, {"id": 2, "ref": stamp.upper()}, {"id": 3, "ref": "pl-another"}]
    stage.remote.script.always(verbs.answer(200, {"records": twice}), when=reading)
    for _ in range(3):
        stage.clock_forward(seconds=10)
        stage.drain()
    attempt = stage.attempt()
    assert (attempt["status"], attempt["reason_code"]) == ("ambiguous_remote_effect", Code.LOOKUP_SHOWS_SEVERAL)
    assert (looks(stage), stage.links()) == (1, [])


@pytest.mark.rule("D-27")
def test_a_remote_that_ignores_the_question_gives_away_no_record(make_stage: MakeStage) -> None:
    """A dropped filter lists the records of others: none of them has our stamp, so none is taken."""
    stage = staged(make_stage, timeout="20s")
    lose(stage, stored=False)
    others = [{"id": 7, "ref": "pl-another", "email": "ada@example.com"}, {"id": 8}]
    stage.remote.script.always(verbs.answer(200, {"records": others}), when=reading)
    for _ in range(4):
        stage.clock_forward(seconds=10)
        stage.drain()
    assert (stage.attempt()["reason_code"], stage.links()) == (Code.LOOKUP_IN_VAIN, [])


@pytest.mark.parametrize(
    "answer",
    [
        verbs.answer(500, {}),
        verbs.answer(200, {"error": "no list"}),
        verbs.truncate(),
        verbs.close_after_read(),
        verbs.answer(429, {}, headers=[("Retry-After", "30")]),
    ],
    ids=["failure", "another shape", "cut", "lost", "throttled"],
)
def test_an_answer_that_cannot_be_read_is_no_absence(make_stage: MakeStage, answer: verbs.Verb) -> None:
    """Such answers count for nothing, however often and however late; the next good one finds the record."""
    stage = staged(make_stage, **PROOF)
    lose(stage)
    stage.remote.script.always(answer, when=reading)
    for _ in range(90):
        stage.clock_forward(seconds=10)
        stage.drain()
    assert stage.attempt()["status"] == "ambiguous_remote_effect"
    assert stage.links() == []


@pytest.mark.rule("D-08")
def test_so_many_misses_in_a_row_as_the_pack_wants(make_stage: MakeStage) -> None:
    """An answer between them that says nothing begins the count anew."""
    stage = staged(make_stage, **(PROOF | {"misses_min": 3, "every": "4m", "timeout": "3h"}))
    lose(stage, stored=False)
    stage.remote.script.next(*[verbs.answer(200, {"records": []})] * 2, verbs.answer(500, {}), when=reading)
    seen = []
    for _ in range(6):
        stage.clock_forward(minutes=4)
        stage.drain()
        seen.append(stage.attempt()["status"] == "terminal_failed")
    assert seen == [False, False, False, False, False, True]


@pytest.mark.rule("C-091")
def test_a_look_up_that_nobody_proved_is_not_made(make_stage: MakeStage) -> None:
    """Without a certificate it stays parked, as without a contract."""
    stage = staged(make_stage, trusted=False)
    lose(stage)
    for _ in range(5):
        stage.clock_forward(minutes=1)
        stage.drain()
    assert (stage.attempt()["status"], looks(stage)) == ("ambiguous_remote_effect", 0)


def test_a_certificate_that_ends_stops_the_look_ups(make_stage: MakeStage) -> None:
    """What is due is asked about only while the contract counts."""
    stage = staged(make_stage)
    lose(stage)
    certify(stage, passed=False)
    stage.clock_forward(seconds=10)
    assert stage.drain() == 0
    assert (stage.attempt()["lease_until"], looks(stage)) == (None, 0)


@pytest.mark.rule("LK-07", "D-15")
def test_a_record_that_another_link_owns_is_held_for_a_person(make_stage: MakeStage) -> None:
    """The found id is kept, the established owner stays."""
    stage = staged(make_stage)
    stage.linked(2)
    parked = lose(stage)
    [request] = stage.rows("push_request", attempt_id=parked["id"])
    stamp = json.loads(request["body"])["ref"]
    stage.remote.script.always(verbs.answer(200, {"records": [{"id": 1, "ref": stamp}]}), when=reading)
    stage.clock_forward(seconds=10)
    stage.drain()
    attempt = stage.attempt(id=parked["id"])
    assert (attempt["status"], attempt["hold_code"], attempt["remote_id"]) == (
        "writeback_pending",
        "locator_conflict",
        "1",
    )
    assert [link["source_record_id"] for link in stage.links()] == ["2"]


@pytest.mark.rule("AT-10", "D-14")
@pytest.mark.parametrize("dies_after", range(2))
def test_a_death_in_a_look_up_costs_nothing(make_stage: MakeStage, dies_after: int) -> None:
    """Before the question or before the result: another worker asks again, and one record is there."""
    stage = staged(make_stage)
    lose(stage)
    stage.clock_forward(seconds=10)
    flow = stage.paused()
    for _ in range(dies_after):
        flow.step()
    flow.flow.close()
    stage.clock_forward(minutes=3)
    stage.drain()
    assert (stage.attempt()["status"], posts(stage), len(stage.remote.api.created)) == ("finalized", 1, 1)


@pytest.mark.rule("AT-09")
def test_an_operator_who_was_quicker_wins(make_stage: MakeStage) -> None:
    """The id was adopted while the look-up was on its way: its answer is late evidence."""
    from pushlink.operations.actions import Decision, OperatorTerms, act
    from pushlink.protocol.verbs import Verb

    stage = staged(make_stage)
    lose(stage)
    stage.clock_forward(seconds=10)
    flow = stage.paused()
    flow.step()
    row = stage.attempt()
    with stage.engine.begin() as conn:
        decision = Decision(
            verb=Verb.ADOPT, target_id=row["id"], row_version=row["row_version"], actor="op", reason="r", argument="1"
        )
        act(conn, stage.world, decision, terms=OperatorTerms(), now=stage.clock.now(conn))
    flow.finish()
    stage.drain()
    assert (stage.attempt(operation="create")["status"], stage.link()["remote_id"]) == ("finalized", "1")
    kept = stage.rows("push_response", "id", attempt_id=row["id"])
    assert [each["late"] for each in kept] == [False, True]


@pytest.mark.rule("D-27", "C-029")
@pytest.mark.parametrize("ours", [True, False])
def test_a_conflict_is_ours_only_with_our_stamp(make_stage: MakeStage, ours: bool) -> None:
    """The remote has such a record already: with our stamp it is taken over, without it a person decides."""

    def adopts(document: dict[str, Any]) -> None:
        action_of(document)["create"]["conflict"] = [
            {
                "when": [{"status": [409]}],
                "existing_id": [{"from": "$response.body#/existing_id"}],
                "policy": "adopt_if_stamp",
            }
        ]

    stage = staged(make_stage, more=adopts)
    stage.save(1, **ADA)
    [request] = stage.rows("push_request")
    document = json.loads(request["body"]) | ({} if ours else {"ref": "of somebody else"})
    stage.remote.api.handle(
        Asked(
            number=1, method="POST", target="/v2/people", headers=(), body=json.dumps(document).encode(), prefix="/v2"
        )
    )
    stage.run(stage.claim())
    assert stage.attempt()["status"] == "post_sent"
    stage.clock_forward(seconds=1)
    stage.drain()
    attempt = stage.attempt()
    if ours:
        assert (attempt["status"], stage.link()["remote_id"]) == ("finalized", "1")
    else:
        assert (attempt["status"], attempt["reason_code"], stage.links()) == (
            "terminal_failed",
            Code.REMOTE_CONFLICT,
            [],
        )
    assert posts(stage) == 1
