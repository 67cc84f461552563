"""Creates whose answer names no record: looked up under claims of their own, never sent again."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from flows.stage import MakeStage, Stage, action_of, pack_with, profile_of, step_of
from pushlink.errors import Code
from pushlink.protocol.reinterpretation import is_same, reinterpret
from pushlink.protocol.states import Operation
from pushlink.testing import verbs
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.messages import creating, reading
from pushlink.testing.scripted import ScriptedTransport

ADA = {"name": "Ada", "email": "ada@example.com"}
ID = [{"from": "$response.body#/id"}]
ASYNC = {
    "path": "/people/{job}",
    "job": [{"from": "$response.body#/job"}],
    "failed": [{"pointer": "/state", "equals": "failed"}],
    "id": ID,
    "every": "10s",
    "timeout": "60s",
}
FOLLOWUP = {
    "path": "/people",
    "key": "/email",
    "query": {"email": "{key}"},
    "only": "/records",
    "id": [{"from": "$response.body#/records/0/id"}],
    "every": "5s",
    "timeout": "30s",
}


def staged(make_stage: MakeStage, **create: Any) -> Stage:
    def change(document: dict[str, Any]) -> None:
        action_of(document)["create"] |= create

    return make_stage(pack=pack_with(change), remote=ScriptedTransport(RemoteOptions(prefix="/v2")))


def accepted(stage: Stage, record: int = 1) -> dict[str, Any]:
    """A create that was answered 202 with the record's own number as its job; not looked up yet."""
    stage.remote.script.next(verbs.store_then_answer(202, {"job": str(record)}), when=creating)
    stage.save(record, **ADA)
    stage.run(stage.claim())
    row = stage.attempt()
    stage.clock_forward(seconds=1)  # a lease that ends now has not ended before now
    return row


@pytest.mark.rule("C-098", "C-023", "AT-12")
def test_an_accepted_create_is_finished_by_the_look_up_that_shows_its_record(make_stage: MakeStage) -> None:
    """202, not yet, not yet, there: one POST, a finalized link, a written mirror."""
    stage = staged(make_stage, **{"async": ASYNC})
    first = accepted(stage)
    assert (first["status"], first["in_doubt"], stage.links()) == ("post_sent", True, [])
    stage.remote.script.next(*[verbs.answer(200, {"state": "running"})] * 2, when=reading)
    assert stage.drain() == 1
    assert stage.attempt()["status"] == "post_sent"
    stage.clock_forward(seconds=9)
    assert stage.drain() == 0
    stage.clock_forward(seconds=2)
    assert stage.drain() == 1
    stage.clock_forward(seconds=11)
    stage.drain()
    link, attempt = stage.link(), stage.attempt()
    assert (link["status"], link["remote_id"], link["mirror_status"]) == ("finalized", "1", "written")
    assert (attempt["status"], attempt["in_doubt"], attempt["send_count"]) == ("finalized", False, 1)
    assert stage.slot()["acknowledged_version"] == 1
    assert len(stage.remote.api.created) == 1
    assert [asked.method for asked in stage.remote.sent] == ["POST", "GET", "GET", "GET"]
    for row in stage.rows("push_response", "id"):
        kept = json.loads(row["verdict"])
        assert is_same(again(stage, row, kept), kept)


def again(stage: Stage, row: dict[str, Any], kept: dict[str, Any]) -> Any:
    from flows.test_answers_declared import stored

    _, action, profile, reply = stored(stage, row)
    return reinterpret(Operation.CREATE, action.contract, profile.contract, reply, kept)


@pytest.mark.rule("C-098", "D-08", "PO-08")
@pytest.mark.parametrize("ending", ["failed", "timeout", "two"])
def test_a_look_up_that_shows_no_record_ends_in_doubt_and_never_in_a_second_create(
    make_stage: MakeStage, ending: str
) -> None:
    """The job failed, its time is over, or several records fit: parked for a person."""
    contract = {"followup": FOLLOWUP} if ending == "two" else {"async": ASYNC}
    stage = staged(make_stage, **contract)
    shows = {"failed": {"state": "failed"}, "timeout": {"state": "running"}, "two": {"records": [{"id": 1}, {"id": 2}]}}
    stage.remote.script.always(verbs.answer(200, shows[ending]), when=reading)
    if ending == "two":
        stage.remote.script.next(verbs.store_then_answer(201, {}), when=creating)
        stage.save(1, **ADA)
    else:
        accepted(stage)
    for _ in range(10):
        stage.drain()
        stage.clock_forward(seconds=11)
    attempt = stage.attempt()
    assert (attempt["status"], attempt["in_doubt"]) == ("ambiguous_remote_effect", True)
    code = Code.APPLIED_UNIDENTIFIED if ending == "two" else Code.ACCEPTED_PENDING
    assert attempt["reason_code"] == code
    assert (
        json.loads(attempt["detail"])["shown"] == {"failed": "failed", "timeout": "not_yet", "two": "several"}[ending]
    )
    assert (stage.links(), len(stage.remote.api.created)) == ([], 1)
    reads = [asked for asked in stage.remote.sent if asked.method == "GET"]
    assert len(reads) == {"failed": 1, "timeout": 6, "two": 1}[ending]
    stage.save(1, name="Ada II")
    stage.drain()
    assert len([asked for asked in stage.remote.sent if asked.method == "POST"]) == 1


@pytest.mark.rule("C-098")
def test_a_success_without_an_id_is_looked_up_by_a_key_of_its_own_body(make_stage: MakeStage) -> None:
    """A form that says thanks; the record appears in the search a little later."""
    stage = staged(make_stage, followup=FOLLOWUP)
    stage.remote.script.next(verbs.store_then_answer(200, {"message": "thanks"}), when=creating)
    stage.remote.script.next(verbs.answer(200, {"records": []}), when=reading)
    stage.save(1, **ADA)
    stage.drain()
    stage.clock_forward(seconds=1)
    stage.drain()
    assert (stage.attempt()["status"], stage.sends) == ("post_sent", 2)
    stage.clock_forward(seconds=6)
    stage.drain()
    assert (stage.attempt()["status"], stage.link()["remote_id"]) == ("finalized", "1")
    assert stage.remote.sent[-1].path == "/people?email=ada%40example.com"


@pytest.mark.rule("AT-09", "D-12")
def test_a_worker_that_dies_while_it_looks_up_costs_a_lease_and_no_answer(make_stage: MakeStage) -> None:
    """The next claim asks again; a late look-up of the dead one is evidence only."""
    stage = staged(make_stage, **{"async": ASYNC})
    accepted(stage)
    slow = stage.paused()
    assert step_of(slow.effect) != "checkpoint"
    stage.clock_forward(minutes=10)
    other = stage.worker()
    stage.run(stage.claim(by=other))
    assert stage.attempt()["status"] == "finalized"
    slow.finish()
    assert (stage.attempt()["status"], len(stage.links())) == ("finalized", 1)
    assert [bool(row["late"]) for row in stage.rows("push_response", "id")] == [False, False, True]


@pytest.mark.rule("D-16")
def test_a_look_up_that_kills_its_workers_is_given_up(make_stage: MakeStage) -> None:
    """After so many claims without a stored answer, recovery parks the row."""
    stage = staged(make_stage, **{"async": ASYNC})
    accepted(stage)
    for _ in range(stage.world.terms.claims_max + 1):
        stage.claim()
        stage.clock_forward(minutes=10)
    stage.claim()
    attempt = stage.attempt()
    assert (attempt["status"], attempt["reason_code"]) == ("ambiguous_remote_effect", Code.LEASE_EXPIRED)
    assert len(stage.remote.sent) == 1


@pytest.mark.rule("AT-08")
def test_without_a_declared_look_up_a_stored_answer_that_names_nothing_parks_at_once(make_stage: MakeStage) -> None:
    """202 and a success without an id, as before."""
    stage = staged(make_stage)
    for record, verb in ((1, verbs.store_then_answer(202, {"id": "x"})), (2, verbs.store_then_answer(200, {}))):
        stage.remote.script.next(verb, when=creating)
        stage.save(record, **ADA)
    stage.drain()
    assert {row["status"] for row in stage.attempts()} == {"ambiguous_remote_effect"}


def test_a_search_by_post_changes_nothing_and_finishes_the_create(make_stage: MakeStage) -> None:
    """Asked with a body that holds a key of the create's own, under the profile's headers; one create, one search."""
    search = {**FOLLOWUP, "method": "POST", "path": "/people/search", "query": {}, "body": {"mail": "{key}"}}

    def change(document: dict[str, Any]) -> None:
        action_of(document)["create"]["followup"] = search
        profile_of(document)["variables"] = {"realm": "eu"}
        profile_of(document)["headers"] = {"X-Realm": "{realm}"}

    stage = make_stage(pack=pack_with(change), remote=ScriptedTransport(RemoteOptions(prefix="/v2")))
    stage.remote.script.next(verbs.store_then_answer(201, {}), when=creating)
    stage.remote.script.next(verbs.answer(200, {"records": [{"id": 1}]}), when=lambda asked: "search" in asked.path)
    stage.save(1, **ADA)
    stage.drain()
    stage.clock_forward(seconds=1)
    stage.drain()
    assert (stage.attempt()["status"], stage.link()["remote_id"]) == ("finalized", "1")
    create, asked = stage.remote.sent
    assert (asked.method, asked.path, json.loads(asked.body)) == ("POST", "/people/search", {"mail": ADA["email"]})
    assert dict(create.headers)["X-Realm"] == dict(asked.headers)["X-Realm"] == "eu"
    assert len(stage.remote.api.created) == 1


@pytest.mark.rule("D-33")
def test_a_throttled_look_up_makes_everybody_wait(make_stage: MakeStage) -> None:
    """A 429 to a read is news of the destination too: it is shared, and the create stays what it was."""
    stage = staged(make_stage, **{"async": {**ASYNC, "timeout": "20m"}})
    accepted(stage)
    stage.remote.script.next(verbs.answer(429, {}, headers=[("Retry-After", "600")]), when=reading)
    stage.drain()
    [throttle] = stage.rows("remote_throttle")
    assert throttle["not_before"] == stage.fixed.now() + dt.timedelta(seconds=600)
    attempt = stage.attempt()
    assert (attempt["status"], attempt["reason_code"]) == ("post_sent", Code.ACCEPTED_PENDING)
    stage.save(2, **ADA)
    assert (stage.drain(), stage.sends) == (0, 2)
    stage.clock_forward(seconds=601)
    stage.drain()
    assert stage.attempt(link_key=attempt["link_key"])["status"] == "finalized"


def test_a_rule_about_look_ups_ends_the_asking(make_stage: MakeStage) -> None:
    """A refusal that will not change: parked at once with the pack's own words, not when the time is over."""
    refused = {"when": [{"status": [403]}], "on": ["lookup"], "effect": "not_applied", "disposition": "terminal"}

    def change(document: dict[str, Any]) -> None:
        action_of(document)["create"]["async"] = ASYNC
        action_of(document)["errors"] = [{**refused, "because": "the key may not read"}]

    stage = make_stage(pack=pack_with(change), remote=ScriptedTransport(RemoteOptions(prefix="/v2")))
    accepted(stage)
    stage.remote.script.next(verbs.answer(403, {}), when=reading)
    stage.drain()
    attempt = stage.attempt()
    assert (attempt["status"], attempt["reason_code"]) == ("ambiguous_remote_effect", Code.ACCEPTED_PENDING)
    assert json.loads(attempt["detail"])["because"] == "the key may not read"
    assert stage.sends == 2
