"""Answers that a pack declares, from the wire to the rows that they leave."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from flows.stage import MakeStage, Stage, action_of, pack_with, profile_of, without_mirror
from pushlink.errors import Code
from pushlink.flows.outcomes import Refused
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.reinterpretation import is_same, reinterpret
from pushlink.protocol.snapshots import ActionSnapshot, ProfileSnapshot
from pushlink.protocol.states import Operation
from pushlink.store.responses import read_answers
from pushlink.testing import verbs
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.messages import creating, updating
from pushlink.testing.scripted import ScriptedTransport

ADA = {"name": "Ada", "email": "ada@example.com"}
FAULTS = {"status": [200, 201], "assert": [{"pointer": "/Fault", "absent": True}]}


def remote(**options: Any) -> ScriptedTransport:
    return ScriptedTransport(RemoteOptions(prefix="/v2", **options))


def pack(
    *,
    create: dict[str, Any] | None = None,
    update: dict[str, Any] | None = None,
    profile: dict[str, Any] | None = None,
    **action: Any,
) -> dict[str, Any]:
    """The stage's pack with more contracts."""

    def change(document: dict[str, Any]) -> None:
        made = action_of(document)
        made["create"] |= create or {}
        made["update"] |= update or {}
        made |= action
        profile_of(document).update(profile or {})

    return pack_with(change)


def rule(**more: Any) -> dict[str, Any]:
    return {"when": [{"status": [400]}], "effect": "not_applied", "disposition": "terminal", "because": "p. 4"} | more


def detail(row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(row["detail"] or row.get("evidence") or "{}")
    return found


# ------------------------------------------------------------------------------------------------ bodies that decide


@pytest.mark.rule("PO-07", "PO-08")
def test_a_success_with_a_fault_in_it_is_what_the_pack_says_and_else_parks(make_stage: MakeStage) -> None:
    """A known fault ends the attempt, its key stays occupied; an unknown one parks; neither makes a link."""
    known = rule(when=[{"status": [200]}, {"pointer": "/Fault/code", "equals": "6240"}], disposition="conflict")
    stage = make_stage(pack=pack(create={"success": FAULTS}, errors=[known]))
    for record, code in ((1, "6240"), (2, "9")):
        stage.remote.script.next(verbs.answer(200, {"Fault": {"code": code}}))
        stage.save(record, **ADA)
        stage.drain()
    refused, unknown = stage.attempts()
    assert (refused["status"], refused["reason_code"]) == ("terminal_failed", Code.REMOTE_CONFLICT)
    assert detail(refused)["because"] == "p. 4"
    assert (unknown["status"], unknown["in_doubt"]) == ("ambiguous_remote_effect", True)
    assert stage.links() == []
    assert isinstance(stage.save(1, name="Ada II"), Refused) or stage.slot(1)["wanted_version"] == 2
    stage.drain()
    assert stage.sends == 2


@pytest.mark.rule("C-026", "D-27", "PO-07")
def test_a_duplicate_is_a_candidate_and_no_link(make_stage: MakeStage) -> None:
    """The id that a sentence names is kept for a person; nothing is adopted and nothing is sent again."""
    named = [{"from": "$response.body#/message", "regex": "^.*Existing ID: ([0-9]+)$"}]
    contract = {"conflict": [{"when": [{"status": [409]}], "existing_id": named, "variant": "archived"}]}
    stage = make_stage(pack=pack(create=contract), remote=remote(unique_fields=("email",)))
    stage.linked(1, **ADA)
    stage.save(2, **ADA)
    stage.drain()
    stage.clock_forward()
    stage.drain()
    [attempt] = stage.attempts(status="terminal_failed")
    assert detail(attempt)["candidates"] == ["1"]
    assert detail(attempt)["variant"] == "archived"
    assert stage.rows("push_response", attempt_id=attempt["id"])[0]["candidate_id"] == "1"
    assert [link["source_record_id"] for link in stage.links()] == ["1"]
    assert stage.sends == 2


@pytest.mark.rule("D-27", "C-023")
def test_a_create_that_matched_an_existing_record_waits_with_its_id(make_stage: MakeStage) -> None:
    """An upsert that made nothing adopts nothing."""
    contract = {"success": {"status": [200, 201]}}
    stage = make_stage(pack=pack(create=contract), remote=remote(created_status=200))

    def change(document: dict[str, Any]) -> None:
        action_of(document)["create"] |= contract
        action_of(document)["create"]["response"] |= {"created": [{"status": [201]}]}

    stage.apply(pack_with(change) | {"version": "1.0.1"})
    stage.save(1, **ADA)
    stage.drain()
    attempt = stage.attempt()
    assert (attempt["status"], attempt["reason_code"]) == ("ambiguous_remote_effect", Code.REMOTE_CONFLICT)
    assert detail(attempt)["candidates"] == ["1"]
    assert stage.links() == []


@pytest.mark.rule("D-23", "DR-24", "UP-07")
@pytest.mark.parametrize(
    ("verb", "code"),
    [
        (verbs.answer(200, {"id": 1, "deleted": True}), Code.REMOTE_GONE),
        (verbs.answer(400, {"code": "ENTITY_IS_DELETED"}), Code.REMOTE_GONE),
        (verbs.answer(404, {}), Code.REMOTE_GONE),
        (verbs.answer(200, {"id": 1, "merged_into": 77}), Code.REMOTE_CHANGED),
    ],
    ids=["flag", "code", "404", "merged"],
)
def test_a_record_that_is_gone_or_merged_suspends_its_link_with_evidence(
    make_stage: MakeStage, verb: verbs.Verb, code: Code
) -> None:
    """Never a replacement, never a silent move to the successor; what was named is on the link."""
    declared = {
        "deleted": [
            {"status": [200], "pointer": "/deleted", "equals": True},
            {"status": [400], "pointer": "/code", "equals": "ENTITY_IS_DELETED"},
        ],
        "merged": {"successor": [{"from": "$response.body#/merged_into"}]},
    }
    stage = make_stage(pack=pack(update=declared))
    stage.linked(1, **ADA)
    stage.remote.script.next(verb, when=updating)
    stage.save(1, name="Ada II")
    stage.drain()
    link = stage.link()
    assert (link["status"], link["remote_id"], link["reason_code"]) == ("suspended_drift", "1", code)
    evidence = json.loads(link["evidence"])
    assert evidence.get("successor") == ("77" if code is Code.REMOTE_CHANGED else None)
    stage.save(1, name="Ada III")
    stage.drain()
    assert (stage.sends, len(stage.remote.api.created)) == (2, 1)


# ------------------------------------------------------------------------------------------------------- versions


@pytest.mark.rule("D-21")
def test_the_link_keeps_the_version_that_the_last_answer_showed(make_stage: MakeStage) -> None:
    """From the create's answer, from each update's, and none after an update that showed none."""

    def change(document: dict[str, Any]) -> None:
        action_of(document)["create"]["response"] |= {"version": [{"from": "$response.header.ETag"}]}

    stage = make_stage(pack=pack_with(change), remote=remote(etags="strong"))
    first = stage.linked(1, **ADA)
    assert first["remote_version"] == '"v1"'
    stage.save(1, name="Ada II")
    stage.drain()
    second = stage.link()
    assert (second["remote_version"], second["row_version"]) == ('"v2"', first["row_version"])
    stage.remote.script.next(verbs.store_then_answer(200, {"id": 1}), when=updating)
    stage.save(1, name="Ada III")
    stage.drain()
    assert stage.link()["remote_version"] is None
    stage.save(1, name="Ada IV")
    stage.drain()
    assert stage.link()["remote_version"] == '"v4"'


# ------------------------------------------------------------------------------------------------------ throttles


LEFT = {
    "detect": [{"status": [403], "header": "X-Left", "equals": "0"}],
    "wait": [{"header": "X-Reset", "unit": "epoch_s"}],
}


@pytest.mark.rule("D-33", "D-05", "PO-07")
def test_a_declared_throttle_waits_as_long_as_it_says_and_burns_no_retry(make_stage: MakeStage) -> None:
    """A 403 that is a throttle in truth: back to pending until the moment that a header names."""
    stage = make_stage(pack=pack(profile={"rate_limit": LEFT, "retry": {"attempts": 1}}))
    until = stage.fixed.now() + dt.timedelta(seconds=300)
    headers = [("X-Left", "0"), ("X-Reset", str(int(until.timestamp()) + 1))]
    stage.remote.script.next(*[verbs.answer(403, {}, headers=headers)] * 3, when=creating)
    stage.save(1, **ADA)
    stage.drain()
    attempt = stage.attempt()
    assert (attempt["status"], attempt["reason_code"], attempt["retry_count"]) == ("pending", Code.THROTTLED, 0)
    assert attempt["not_before"] >= until
    [throttle] = stage.rows("remote_throttle")
    assert (throttle["destination_slot_id"], throttle["hits"]) == ("dest-1", 1)
    for _ in range(3):
        stage.clock_forward()
        stage.drain()
    assert stage.attempt()["status"] == "finalized"
    assert (stage.sends, len(stage.remote.api.created)) == (4, 1)


@pytest.mark.rule("D-33", "C-061")
def test_one_throttled_answer_makes_everybody_wait_and_they_come_back_apart(make_stage: MakeStage) -> None:
    """One request hears 429; the others of its destination are not sent until its time is over, then a few at first."""
    stage = make_stage(pack=without_mirror())
    stage.remote.script.next(verbs.answer(429, {}, headers=[("Retry-After", "600")]), when=creating)
    stage.save(1, **ADA)
    stage.drain()
    heard = stage.attempt()
    now = stage.fixed.now()
    assert now + dt.timedelta(seconds=600) <= heard["not_before"] <= now + dt.timedelta(seconds=660)
    for record in range(2, 12):
        stage.save(record, name=f"P{record}", email=f"p{record}@example.com")
    assert (stage.drain(), stage.sends) == (0, 1)
    with stage.engine.begin() as conn:
        [due_s] = stage.claims.due_in_s(conn, [None], now=now)
    assert due_s is not None
    assert 599 < due_s <= 600
    stage.clock_forward(seconds=599)
    assert stage.drain() == 0
    stage.clock_forward(seconds=1.2)
    assert [len(stage.claim()), len(stage.claim())] == [1, 1]
    stage.clock_forward(seconds=1)
    assert len(stage.claim()) == 5
    stage.clock_forward(seconds=10)
    assert len(stage.claim()) >= 3


@pytest.mark.rule("C-061")
def test_those_that_heard_the_same_wait_do_not_come_back_in_one_instant(make_stage: MakeStage) -> None:
    """Only later than asked, and not all at once."""
    stage = make_stage(pack=without_mirror())
    for record in range(1, 21):
        stage.save(record, name=f"P{record}", email=f"p{record}@example.com")
    stage.remote.script.always(verbs.answer(429, {}, headers=[("Retry-After", "600")]), when=creating)
    stage.run(stage.claim())
    waits = [(row["not_before"] - stage.fixed.now()).total_seconds() for row in stage.attempts()]
    assert min(waits) >= 600
    assert max(waits) <= 660
    assert len(set(waits)) > 10
    assert {row["status"] for row in stage.attempts()} == {"pending"}


@pytest.mark.rule("D-33")
def test_a_throttle_is_of_one_tenant_s_destination_and_stops_no_write_back(make_stage: MakeStage) -> None:
    """Another tenant's rows are sent; a mirror that waits for the write-back claim is written."""
    stage = make_stage(pack=pack())
    stage.apply(pack(), tenant="b")
    stage.linked(5, **ADA)
    stage.sql("UPDATE pushlink_push_attempt SET status = 'writeback_pending'")
    stage.remote.script.next(verbs.answer(429, {}, headers=[("Retry-After", "600")]), when=creating)
    stage.save(1, name="A", email="a@example.com")
    [found] = [claimed for claimed in stage.claim() if claimed.attempt.status == "processing"]
    stage.run([found])
    stage.sql("UPDATE pushlink_push_attempt SET not_before = created_at WHERE status = 'writeback_pending'")
    stage.sql(
        "UPDATE pushlink_push_attempt SET claim_token = NULL, lease_until = NULL WHERE status = 'writeback_pending'"
    )
    stage.save(2, name="B", email="b@example.com")
    stage.save(2, tenant="b")
    claimed = stage.claim()
    assert {(c.attempt.tenant, str(c.attempt.status)) for c in claimed} == {
        ("", "writeback_pending"),
        ("b", "processing"),
    }


# -------------------------------------------------------------------------------------- reached again, explained


@pytest.mark.rule("D-14")
def test_every_stored_answer_has_the_same_verdict_again_without_the_wire(make_stage: MakeStage) -> None:
    """After a run with all kinds of answers: frozen contracts and stored rows give every verdict once more."""
    errors = [
        rule(when=[{"status": [503]}, {"pointer": "/code", "equals": "busy"}], disposition="retry_at", wait="30s")
    ]
    stage = make_stage(pack=pack(profile={"rate_limit": LEFT}, create={"success": FAULTS}, errors=errors))
    story = [
        verbs.answer(503, {"code": "busy"}),
        verbs.answer(503, {"code": "other"}),
        verbs.answer(403, {}, headers=[("X-Left", "0"), ("X-Reset", "1772370000")]),
        verbs.answer(200, {"Fault": {"code": "1"}}),
        verbs.answer(401, {}),
        verbs.answer(409, {"id": 9}),
        verbs.answer(429, {}, headers=[("Retry-After", "7"), ("Date", "Sun, 01 Mar 2026 12:00:00 GMT")]),
        verbs.store_then_close(),
        verbs.refuse_connection(),
        verbs.short_body(),
        verbs.store_then_answer(204),
        verbs.answer(202, {"id": "x"}),
    ]
    for record, verb in enumerate(story, start=1):
        stage.remote.script.next(verb)
        stage.save(record, name=f"P{record}", email=f"p{record}@example.com")
        stage.drain()
        stage.clock_forward(days=2)
    stage.drain()
    stage.linked(50, **ADA)
    for verb in (verbs.answer(404, {}), verbs.answer(500, {})):
        stage.remote.script.next(verb, when=updating)
        stage.save(50, name=f"Ada {verb.name}")
        stage.drain()
    seen = set()
    for row in stage.rows("push_response", "id"):
        operation, action, profile, reply = stored(stage, row)
        kept = json.loads(row["verdict"])
        again = reinterpret(operation, action.contract, profile.contract, reply, kept)
        assert is_same(again, kept), (kept, again)
        assert next(iter(again.candidates), None) == row["candidate_id"]
        seen.add((kept["effect"], kept["disposition"], kept["row"]))
    assert len(seen) >= 10


def stored(stage: Stage, row: dict[str, Any]) -> tuple[Operation, ActionSnapshot, ProfileSnapshot, StoredReply]:
    """What an answer is read with: everything from the database."""
    [attempt] = stage.rows("push_attempt", id=row["attempt_id"])
    request = stage.rows("push_request", "freeze", attempt_id=row["attempt_id"])[-1]
    [profile] = stage.rows("frozen_document", digest=request["profile_digest"])
    [action] = stage.rows("frozen_document", digest=request["action_digest"])
    with stage.engine.begin() as conn:
        [*replies] = read_answers(conn, stage.world.vault, row["attempt_id"])
    [reply] = [each.reply for each in replies if each.id == row["id"]]
    return (
        Operation(attempt["operation"]),
        ActionSnapshot.read(action["document"]),
        ProfileSnapshot.read(profile["document"]),
        reply,
    )


@pytest.mark.rule("D-14")
def test_what_the_transport_says_stands_in_the_attempt_s_evidence(make_stage: MakeStage) -> None:
    """A refused connection is told with the transport's own safe words."""
    stage = make_stage(pack=pack())
    stage.remote.script.next(verbs.refuse_connection())
    stage.save(1, **ADA)
    stage.drain()
    assert detail(stage.attempt())["error_text"] == "refuse_connection"
