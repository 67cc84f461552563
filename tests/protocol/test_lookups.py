"""Look-ups: where they ask, what they take for the record, and that nothing they show is proof of the contrary."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.examples import action, answer, failure, profile
from pushlink.errors import Code
from pushlink.protocol.contracts import ActionContract, LookUp
from pushlink.protocol.evidence import StoredReply, WireError, WireTrace
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.lookup_verdicts import code_before, interpret_lookup
from pushlink.protocol.lookups import LookUpRequest, Shown, may_be_looked_up, read_lookup, render_lookup
from pushlink.protocol.outcome import History, create_event, interpret
from pushlink.protocol.replies import Disposition, Effect
from pushlink.protocol.states import AttemptStatus, CreateEvent, Operation

ID = [{"from": "$response.body#/id"}]
JOB = {"path": "/jobs/{job}", "job": [{"from": "$response.body#/job"}], "id": ID}


def waiting(name: str, **more: Any) -> tuple[ActionContract, LookUp]:
    made = action(create={name: {**JOB, **more}})
    contract = made.create.asynchronous if name == "async" else made.create.followup
    assert contract is not None
    return made, contract


@pytest.mark.rule("C-098", "C-023")
def test_an_accepted_create_waits_only_where_a_look_up_is_declared_and_can_be_made() -> None:
    """202 with a job is asked again; without a contract, or without the job's name, it parks."""
    told = answer(202, json.dumps({"job": "j-1"}))
    made, _ = waiting("async")
    verdict = interpret(Operation.CREATE, made, profile(), told, History())
    assert (verdict.effect, verdict.disposition) == (Effect.ACCEPTED_PENDING, Disposition.LOOK_UP)
    assert create_event(verdict, has_mirror=True) is CreateEvent.ANSWER_STORED
    for other, reply in ((action(), told), (made, answer(202, "{}"))):
        parked = interpret(Operation.CREATE, other, profile(), reply, History())
        assert (parked.disposition, create_event(parked, has_mirror=True)) == (Disposition.PARK, CreateEvent.UNKNOWN)


@pytest.mark.parametrize(
    ("reply", "disposition"),
    [
        (answer(201, "{}"), Disposition.LOOK_UP),
        (answer(201, '{"id": 7}'), Disposition.FINALIZE),
        (answer(422, "{}"), Disposition.TERMINAL),
        (answer(503, "{}"), Disposition.RECONCILE),
    ],
)
def test_only_a_success_that_names_no_record_is_followed_up(reply: StoredReply, disposition: Disposition) -> None:
    made, _ = waiting("followup")
    assert interpret(Operation.CREATE, made, profile(), reply, History()).disposition is disposition


def test_only_a_create_whose_answer_is_stored_is_looked_up() -> None:
    """And it waits for the reason that its answer gave."""
    found = {(o, s) for o in Operation for s in AttemptStatus if may_be_looked_up(o, s)}
    assert found == {(Operation.CREATE, AttemptStatus.POST_SENT)}
    assert (code_before("async"), code_before("followup")) == (Code.ACCEPTED_PENDING, Code.APPLIED_UNIDENTIFIED)


def test_a_status_may_be_declared_as_accepted_only() -> None:
    """A 200 that says thanks is no success, even where 200 is one by default."""
    made, _ = waiting("async", accepted=[200, 202])
    verdict = interpret(Operation.CREATE, made, profile(), answer(200, '{"job": "j", "id": 7}'), History())
    assert (verdict.effect, verdict.remote_id) == (Effect.ACCEPTED_PENDING, None)


@pytest.mark.rule("D-06")
@pytest.mark.parametrize("name", ["async", "followup"])
def test_a_create_in_doubt_is_not_looked_up_by_a_later_answer(name: str) -> None:
    """What a later send is told says nothing about the earlier one."""
    made, _ = waiting(name)
    reply = answer(202 if name == "async" else 201, '{"job": "j-1"}')
    verdict = interpret(Operation.CREATE, made, profile(), reply, History(in_doubt=True))
    assert verdict.disposition is Disposition.PARK


def test_the_route_is_filled_from_the_answer_and_from_the_create_s_own_body() -> None:
    """Percent-encoded and guarded as every route; without its value there is none."""
    _, by_job = waiting("async")
    told = answer(202, '{"job": "a b/c"}')
    assert isinstance(render_lookup(by_job, profile(), answer=told, body=b"{}"), RenderFailure)
    assert asked(by_job, answer(202, '{"job": "a b"}'), b"{}").path == "/jobs/a%20b"
    _, by_key = waiting("followup", path="/things", job=[], key="/contact/email", query={"email": "{key}"}, only="/r")
    body = b'{"contact": {"email": "a+b@example.com"}}'
    assert asked(by_key, answer(201), body) == LookUpRequest(
        method="GET", path="/things?email=a%2Bb%40example.com", headers=(), body=b""
    )
    for missing in (b"{}", b"", b'{"contact": {"email": null}}', b"email=a"):
        assert isinstance(render_lookup(by_key, profile(), answer=answer(201), body=missing), RenderFailure)


def asked(lookup: LookUp, told: StoredReply, body: bytes, **of_profile: Any) -> LookUpRequest:
    request = render_lookup(lookup, profile(**of_profile), answer=told, body=body)
    assert isinstance(request, LookUpRequest), request
    return request


def test_a_search_may_take_a_body() -> None:
    """Literals and whole placeholders as JSON, with the profile's headers; without its value nothing is asked."""
    search = {"filter": {"mail": "{key}", "in": "{realm}", "like": "{key}%"}, "limit": 2}
    _, lookup = waiting("followup", method="POST", path="/search", job=[], key="/email", body=search, only="/r")
    told = {"variables": {"realm": "eu"}, "headers": {"X-Realm": "{realm}"}}
    request = asked(lookup, answer(201), b'{"email": "a\\"b"}', **told)
    assert (request.method, request.path) == ("POST", "/search")
    assert request.headers == (("X-Realm", "eu"), ("Content-Type", "application/json"))
    assert json.loads(request.body) == {"filter": {"mail": 'a"b', "in": "eu", "like": "{key}%"}, "limit": 2}
    assert isinstance(render_lookup(lookup, profile(**told), answer=answer(201), body=b"{}"), RenderFailure)
    assert isinstance(render_lookup(lookup, profile(), answer=answer(201), body=b'{"email": "a"}'), RenderFailure)


RUNNING = '{"state": "running"}'
DONE = {"done": [{"pointer": "/state", "equals": "done"}], "failed": [{"pointer": "/state", "equals": "failed"}]}


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        (answer(200, '{"state": "done", "id": 7}'), Shown.RECORD),
        (answer(200, '{"state": "done"}'), Shown.NO_ID),
        (answer(200, '{"state": "done", "id": [7]}'), Shown.NO_ID),
        (answer(200, RUNNING), Shown.NOT_YET),
        (answer(200, '{"state": "failed", "id": 7}'), Shown.FAILED),
        (answer(200, '{"state": "done", "id": 7', body_complete=False), Shown.NOT_YET),
        (answer(404, "{}"), Shown.NOT_YET),
        (answer(429, "{}"), Shown.NOT_YET),
        (answer(500, '{"state": "done", "id": 7}'), Shown.NOT_YET),
        (answer(200, '{"state": "done", "id": 7}', trace=WireTrace()), Shown.NOT_YET),
        (failure(WireError.CONNECT), Shown.NOT_YET),
    ],
)
def test_a_look_up_shows_the_record_or_that_nobody_knows(reply: StoredReply, shown: Shown) -> None:
    """Nothing that it answers proves that no record was made."""
    made, contract = waiting("async", **DONE)
    assert read_lookup(made, contract, reply).shown is shown
    verdict = interpret_lookup(made, profile(), "async", reply, send_ordinal=1)
    assert verdict.effect is (Effect.APPLIED if shown is Shown.RECORD else Effect.ACCEPTED_PENDING)
    assert (verdict.remote_id == "7") is (shown is Shown.RECORD)
    assert (verdict.disposition is Disposition.LOOK_UP) is (shown is Shown.NOT_YET)
    assert verdict.evidence.get("error_text") == (reply.error_text or None)


@pytest.mark.rule("D-27")
@pytest.mark.parametrize(
    ("found", "shown"), [([], Shown.NOT_YET), ([7], Shown.RECORD), ([7, 8], Shown.SEVERAL), (None, Shown.NOT_YET)]
)
def test_of_several_records_with_one_key_nobody_picks(found: list[int] | None, shown: Shown) -> None:
    """Exactly one is the record."""
    by_key = {"key": "/email", "query": {"email": "{key}"}, "only": "/r", "id": [{"from": "$response.body#/r/0/id"}]}
    made, contract = waiting("followup", path="/things", job=[], **by_key)
    told = {"r": None if found is None else [{"id": each} for each in found]}
    assert read_lookup(made, contract, answer(200, json.dumps(told))).shown is shown


RULES = [
    {
        "when": [{"status": [503]}, {"pointer": "/state", "equals": "busy"}],
        "on": ["lookup"],
        "effect": "not_applied",
        "disposition": "retry_at",
        "wait": "40s",
        "because": "p. 3",
    },
    {
        "when": [{"status": [403]}],
        "on": ["create", "lookup"],
        "effect": "not_applied",
        "disposition": "terminal",
        "because": "p. 4",
    },
    {"when": [{"status": [404]}], "effect": "not_applied", "disposition": "terminal", "because": "p. 5"},
]


@pytest.mark.parametrize(
    ("reply", "row", "disposition", "wait_ms"),
    [
        (answer(503, '{"state": "busy"}'), "action errors 1", Disposition.LOOK_UP, 40_000),
        (
            answer(503, '{"state": "busy"}', headers=(("retry-after", "60"),)),
            "action errors 1",
            Disposition.LOOK_UP,
            60_000,
        ),
        (answer(403, "{}"), "action errors 2", Disposition.PARK, None),
        (answer(404, "{}"), "look-up shows not_yet", Disposition.LOOK_UP, None),
        (answer(200, '{"state": "done", "id": 7}'), "look-up shows record", Disposition.FINALIZE, None),
    ],
)
def test_a_rule_about_look_ups_says_when_to_ask_again_and_when_to_stop(
    reply: StoredReply, row: str, disposition: Disposition, wait_ms: int | None
) -> None:
    """A rule without `on` is about creates and updates; none makes a create anything but what it was."""
    made = action(create={"async": {**JOB, **DONE}}, errors=RULES)
    verdict = interpret_lookup(made, profile(), "async", reply, send_ordinal=1)
    assert (verdict.row, verdict.disposition, verdict.retry_after_ms) == (row, disposition, wait_ms)
    assert verdict.effect in (Effect.ACCEPTED_PENDING, Effect.APPLIED)
    assert verdict.evidence.get("because") == {"action errors 1": "p. 3", "action errors 2": "p. 4"}.get(row)


@pytest.mark.parametrize(
    ("reply", "row", "wait_ms"),
    [
        (answer(429, headers=(("retry-after", "9"),)), "throttled", 9_000),
        (answer(403, headers=(("x-left", "0"), ("x-reset", "12"))), "declared throttle 1", 12_000),
    ],
)
def test_a_throttled_look_up_is_asked_again_when_the_remote_says(reply: StoredReply, row: str, wait_ms: int) -> None:
    """By the profile's own places, as for every other throttle."""
    made, _ = waiting("async")
    limits = {
        "detect": [{"status": [403], "header": "X-Left", "equals": "0"}],
        "wait": [{"header": "X-Reset", "unit": "seconds"}],
    }
    verdict = interpret_lookup(made, profile(rate_limit=limits), "async", reply, send_ordinal=1)
    assert (verdict.row, verdict.code, verdict.retry_after_ms) == (row, Code.THROTTLED, wait_ms)
    assert (verdict.effect, verdict.disposition) == (Effect.ACCEPTED_PENDING, Disposition.LOOK_UP)


def test_what_says_that_a_job_failed_is_no_throttle() -> None:
    """Even with a status that is one elsewhere."""
    made, _ = waiting("async", failed=[{"status": [429]}])
    verdict = interpret_lookup(made, profile(), "async", answer(429, "{}"), send_ordinal=1)
    assert (verdict.row, verdict.disposition) == ("look-up shows failed", Disposition.PARK)
