"""A create from its save to its end, whatever the remote says: at most one request that may have had an effect."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
import sqlalchemy as sa

from flows.stage import TOKEN, USER, MakeStage, Stage, action_of, pack_with, profile_of, without_mirror
from pushlink.adapters.policy import CallableAuthority, HostAnswer
from pushlink.errors import Code
from pushlink.flows.outcomes import Refused, Reserved
from pushlink.ports import WireReply, WireRequest
from pushlink.protocol.identity import create_idempotency_key
from pushlink.protocol.states import CreateEvent
from pushlink.store import attempts, lifecycle
from pushlink.testing import verbs
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.messages import creating
from pushlink.testing.scripted import ScriptedTransport

ADA = {"name": "Ada", "email": "ada@example.com"}


def remote(**options: Any) -> ScriptedTransport:
    return ScriptedTransport(RemoteOptions(prefix="/v2", **options))


# --------------------------------------------------------------------------------------- the way that is meant


@pytest.mark.rule("PO-01", "AT-12", "AT-13", "LK-01", "LK-02", "D-02")
def test_a_saved_record_becomes_exactly_one_remote_record(stage: Stage) -> None:
    """One POST, a finalized link with the remote's id, a written mirror, and an attempt that is finished."""
    outcome = stage.save(1, **ADA)
    assert isinstance(outcome, Reserved)
    assert (outcome.ordinal, outcome.version) == (1, 1)
    assert stage.sends == 0
    stage.drain()
    assert [record.document for record in stage.remote.api.records] == [{"id": 1, **ADA}]
    link, attempt = stage.link(), stage.attempt()
    assert (link["status"], link["remote_id"], link["mirror_status"]) == ("finalized", "1", "written")
    assert link["link_key"] == attempt["link_key"] == outcome.about.link_key
    assert (attempt["status"], attempt["remote_id"], attempt["claim_token"]) == ("finalized", "1", None)
    assert stage.person() == {**stage.person(), "remote_id": "1", "remote_source": "people"}
    stage.clock_forward()
    stage.drain()
    assert stage.sends == 1


@pytest.mark.rule("D-02", "AT-12")
def test_without_a_mirror_the_result_commit_finishes_the_attempt(make_stage: MakeStage) -> None:
    """There is nothing to write back: the answer's own transaction ends in `finalized`."""
    stage = make_stage(pack=without_mirror())
    stage.save(1, **ADA)
    flow = stage.paused().to_send()
    flow.step()
    flow.step()
    assert flow.effect is None
    assert stage.attempt()["status"] == "finalized"
    assert stage.link()["mirror_status"] == "none"


@pytest.mark.rule("AT-04", "AT-10", "D-13")
def test_reservation_and_checkpoint_are_committed_before_the_first_byte(stage: Stage) -> None:
    """When the request is about to leave, another connection sees the row, its key, its request and the checkpoint."""
    stage.save(1, **ADA)
    assert stage.attempt()["status"] == "pending"
    flow = stage.paused()
    assert stage.attempt()["remote_io_started_at"] is None
    flow.to_send()
    row = stage.attempt()
    assert (row["status"], row["send_count"]) == ("processing", 1)
    assert row["remote_io_started_at"] == row["first_io_at"] == stage.fixed.now()
    [request] = stage.rows("push_request")
    assert request["idempotency_key"]
    assert stage.sends == 0


class Watching(ScriptedTransport):
    """Notes how many of the engine's connections are in use while a request is on the wire."""

    def __init__(self, engine: sa.Engine) -> None:
        super().__init__(RemoteOptions(prefix="/v2"))
        self.engine = engine
        self.in_use: list[int] = []

    def send_now(self, request: WireRequest) -> WireReply:
        self.in_use.append(self.engine.pool.checkedout())  # type: ignore[attr-defined]
        return super().send_now(request)


@pytest.mark.rule("C-076")
def test_no_transaction_is_open_while_a_request_is_on_the_wire(make_stage: MakeStage, engine: sa.Engine) -> None:
    """A slow remote holds neither a connection nor a lock: nothing is checked out of the pool during a send."""
    watching = Watching(engine)
    stage = make_stage(remote=watching)
    stage.linked(1)
    stage.save(1, name="Changed")
    stage.drain()
    assert watching.in_use == [0, 0]


@pytest.mark.rule("AT-05", "AT-06", "D-37", "D-34")
def test_an_attempt_stores_all_that_its_send_and_its_answer_need(stage: Stage) -> None:
    """Key, request, authority, snapshots and write-back are rows before anything is sent; the answer is one after."""
    stage.save(1, **ADA)
    row, [request] = stage.attempt(), stage.rows("push_request")
    assert (row["operation"], row["dispatch_lane"], row["ordinal"], row["version"]) == ("create", "configured", 1, 1)
    assert request["idempotency_key"] == create_idempotency_key(stage.world.secret, row["link_key"], 1)
    assert (request["method"], request["path"]) == ("POST", "/people")
    assert json.loads(request["body"]) == ADA
    authority = json.loads(request["authority"])["content"]
    assert (authority["user_id"], authority["source_object"], authority["source_record_id"]) == (USER, "Person", "1")
    assert authority["allowed_fields"] == ["email", "name"]
    assert authority["mapping_fingerprint"] == request["mapping_fingerprint"]
    assert authority["decided_at"].startswith("2025-01-15T12:00:00")
    documents = {document["digest"]: document["kind"] for document in stage.rows("frozen_document")}
    assert documents[request["profile_digest"]] == "profile"
    assert documents[request["action_digest"]] == "action"
    writeback = json.loads(request["writeback"])["content"]
    assert (writeback["remote_id_field"], writeback["provenance_field"]) == ("remote_id", "remote_source")
    assert (writeback["expected_remote_id"], writeback["expected_provenance"]) == (None, None)
    assert request["association_vector"] == "[]"
    stage.drain()
    [response] = stage.rows("push_response")
    assert (response["status"], response["send_ordinal"], response["late"]) == (201, 1, False)
    assert response["body_digest"]
    assert response["body_complete"]


@pytest.mark.rule("LK-04", "D-26")
def test_a_link_keeps_the_snapshots_it_was_made_with_and_none_of_them_is_its_key(stage: Stage) -> None:
    """Installs, names, profile, action, fingerprints, scope, remote id and mirror tuple stand on the link."""
    stage.save(1, **ADA)
    [request], install = stage.rows("push_request"), stage.rows("pack_install")[0]["id"]
    stage.drain()
    link = stage.link()
    assert link["created_install_id"] == link["validated_install_id"] == install
    assert link["created_profile_digest"] == link["profile_digest"] == request["profile_digest"]
    assert link["created_action_digest"] == link["action_digest"] == request["action_digest"]
    assert link["mapping_fingerprint"] == request["mapping_fingerprint"]
    assert link["body_fingerprint"] == request["body_fingerprint"]
    assert link["destination_scope"] == "tenant-42"
    assert (link["mirror_remote_id_field"], link["mirror_provenance_field"]) == ("remote_id", "remote_source")
    assert json.loads(link["names"])["action"] == "push_person"
    assert link["locator_key"]


@pytest.mark.rule("D-26", "LK-03")
def test_the_destination_scope_is_part_of_the_locator(make_stage: MakeStage) -> None:
    """The same remote id in two remote tenants is two records."""
    stage = make_stage(pack=without_mirror(), remote=remote(ids=lambda _: "same"))
    stage.linked(1)
    stage.apply(pack_with(lambda d: (action_of(d).pop("mirror"), profile_of(d).update(destination_scope="tenant-43"))))
    stage.save(2, name="Bea", email="b@example.com")
    stage.drain()
    first, second = stage.links()
    assert first["remote_id"] == second["remote_id"] == "same"
    assert first["locator_key"] != second["locator_key"]


@pytest.mark.rule("D-40", "ID-01")
def test_two_tenants_with_the_same_record_id_never_share_a_link(make_stage: MakeStage) -> None:
    """The tenant is part of the owner that enters the key; every row carries it."""
    stage = make_stage(pack=None)
    for tenant in ("north", "south"):
        stage.apply(without_mirror(), tenant=tenant)
    outcomes = [stage.save(1, tenant=tenant, **ADA) for tenant in ("north", "south")]
    stage.drain()
    assert len({outcome.about.link_key for outcome in outcomes}) == 2
    assert [row["tenant"] for row in stage.rows("remote_link", "tenant")] == ["north", "south"]
    assert {row["tenant"] for row in stage.attempts()} == {"north", "south"}
    assert stage.remote.api.creates == 2


@pytest.mark.rule("C-059", "D-34")
def test_no_row_holds_a_secret(make_stage: MakeStage) -> None:
    """The token is on the wire and nowhere in the database, not even where an answer's headers echo it."""
    echo = [("Authorization", f"Bearer {TOKEN}"), ("Set-Cookie", f"sid={TOKEN}")]
    stage = make_stage()
    stage.remote.script.next(verbs.store_then_answer(201, {"id": 7}, headers=echo))
    stage.save(1, **ADA)
    stage.drain()
    assert ("Authorization", f"Bearer {TOKEN}") in stage.remote.log[0].asked.headers
    assert stage.link()["remote_id"] == "7"
    assert TOKEN not in stage.dump()


# --------------------------------------------------------------------------------------- what an answer means

UNKNOWN = {
    "answer after the deadline": verbs.store_then_delay(60),
    "closed without an answer": verbs.store_then_close(),
    "never answered": verbs.store_then_hang(),
    "closed while it was read": verbs.close_after_read(),
    "closed before it was read": verbs.close_before_read(),
    "broken while written": verbs.break_while_writing(),
    "500 after the record was stored": verbs.store_then_answer(500, {"error": "oops"}),
    "503 of a gateway": verbs.store_then_answer(503, {}, headers=[("Retry-After", "30")]),
    "504 of a gateway": verbs.store_then_answer(504, {}),
    "half a body": verbs.truncate(),
    "not HTTP": verbs.answer_raw(b"\x00\x01", stores=True),
    "a page of another kind": verbs.store_then_answer(201, body=b"<html>created</html>"),
    "204 without an id": verbs.store_then_answer(204),
    "201 without an id": verbs.store_then_answer(201, {"ok": True}),
    "id null": verbs.store_then_answer(201, {"id": None}),
    "id true": verbs.store_then_answer(201, {"id": True}),
    "id 1e3": verbs.store_then_answer(201, body=b'{"id": 1e3}'),
    "id 1.0": verbs.store_then_answer(201, body=b'{"id": 1.0}'),
    "id an object": verbs.store_then_answer(201, {"id": {"value": 1}}),
    "302 to somewhere": verbs.store_then_answer(302, headers=[("Location", "https://evil.example.net/people/9")]),
    "408": verbs.store_then_answer(408, {}),
    "a status nobody knows": verbs.store_then_answer(499, {}),
}


@pytest.mark.rule(
    "PO-04", "PO-05", "PO-07", "C-001", "C-006", "C-007", "C-097", "D-04", "D-25", "D-28", "RR-02", "GT-10"
)
def test_what_may_have_happened_is_parked_and_never_sent_again(stage: Stage) -> None:
    """One POST, `ambiguous_remote_effect` with a reason and evidence; later saves are refused and send nothing."""
    for number, (what, verb) in enumerate(UNKNOWN.items(), 1):
        stage.remote.script.next(verb, when=lambda asked, what=what: asked.json()["name"] == what)
        stage.save(number, name=what)
    stage.drain()
    for number, what in enumerate(UNKNOWN, 1):
        row = stage.attempt(link_key=stage.slot(number)["link_key"])
        assert (row["status"], row["in_doubt"]) == ("ambiguous_remote_effect", True), what
        assert row["reason_code"], what
        assert json.loads(row["detail"])["send_ordinal"] == 1, what
        for name in (what, "Ada Lovelace"):
            outcome = stage.save(number, name=name)
            assert isinstance(outcome, Refused), what
            assert outcome.code is Code.CREATE_AMBIGUOUS, what
            assert outcome.next_verbs, what
        assert stage.slot(number)["wanted_version"] == 2, what  # nothing is skipped without a row
    stage.clock_forward(days=30)
    stage.drain()
    assert stage.sends == len(stage.rows("push_response")) == len(UNKNOWN)
    assert stage.links() == []


@pytest.mark.rule("PO-07", "D-05", "C-003", "RR-03", "AT-06")
@pytest.mark.parametrize("verb", [verbs.not_started(), verbs.refuse_connection()], ids=lambda verb: verb.name)
def test_what_provably_never_left_is_sent_again_by_the_same_attempt(stage: Stage, verb: verbs.Verb) -> None:
    """No byte left: back to `pending` with a later due time, no checkpoint and no doubt, then one create."""
    stage.remote.script.next(verb)
    stage.save(1, **ADA)
    stage.drain()
    row = stage.attempt()
    assert (row["status"], row["remote_io_started_at"], row["in_doubt"]) == ("pending", None, False)
    assert row["first_io_at"] is not None
    assert row["not_before"] > stage.fixed.now()
    assert (row["reason_code"], row["retry_count"]) == ("not_sent", 1)
    stage.clock_forward()
    stage.drain()
    assert stage.remote.api.creates == 1
    assert stage.attempt()["status"] == "finalized"
    assert stage.attempt()["send_count"] == 2


@pytest.mark.rule("D-05", "AT-06", "RR-01")
def test_a_throttle_waits_as_long_as_it_was_asked_to_and_burns_no_retry(make_stage: MakeStage) -> None:
    """429 is proved not applied: however often it is said, the budget of retries stays whole."""
    stage = make_stage(pack=pack_with(lambda d: profile_of(d).update(retry={"attempts": 1})))
    for _ in range(3):
        stage.remote.script.next(verbs.answer(429, {}, headers=[("Retry-After", "600")]))
    stage.save(1, **ADA)
    for _ in range(3):
        stage.drain()
        row = stage.attempt()
        assert (row["status"], row["retry_count"], row["claim_count"]) == ("pending", 0, 0)
        assert row["not_before"] >= stage.fixed.now() + dt.timedelta(seconds=600)
        stage.fixed.set(row["not_before"])
    stage.drain()
    assert stage.attempt()["status"] == "finalized"
    assert len({(request.path, request.body, request.headers) for request in stage.remote.sent}) == 1


REJECTED = {
    "400": (verbs.answer(400, {"error": "email"}), Code.REMOTE_REJECTED),
    "404": (verbs.answer(404, {}), Code.REMOTE_REJECTED),
    "413": (verbs.answer(413, {}), Code.REMOTE_REJECTED),
    "422": (verbs.answer(422, {}), Code.REMOTE_REJECTED),
    "307": (verbs.answer(307, headers=[("Location", "https://elsewhere.example.com/people")]), Code.REMOTE_REJECTED),
    "409 of unknown meaning": (verbs.answer(409, body=b"busy?"), Code.REMOTE_CONFLICT),
}


@pytest.mark.rule("PO-07", "AT-02", "GT-11", "D-04", "D-09", "C-028", "C-058", "D-28")
def test_a_definite_refusal_ends_the_attempt_and_keeps_its_slot(stage: Stage) -> None:
    """`terminal_failed` with reason and evidence; saves are refused until somebody supersedes it; others go on."""
    for number, (what, (verb, _)) in enumerate(REJECTED.items(), 1):
        stage.remote.script.next(verb, when=lambda asked, what=what: asked.json()["name"] == what)
        stage.save(number, name=what)
    stage.save(100, name="Bea")
    stage.drain()
    for number, (what, (_, code)) in enumerate(REJECTED.items(), 1):
        row = stage.attempt(link_key=stage.slot(number)["link_key"])
        assert (row["status"], row["reason_code"], row["in_doubt"]) == ("terminal_failed", code, False), what
        assert row["create_key"] == row["link_key"], what
        outcome = stage.save(number, name="Ada L.")
        assert isinstance(outcome, Refused), what
        assert (outcome.code, outcome.wanted_version) == (Code.CREATE_TERMINAL, 2), what
        assert "supersede" in outcome.next_verbs, what
    stage.clock_forward(days=30)
    stage.drain()
    assert stage.sends == len(REJECTED) + 1
    assert stage.link(100)["status"] == "finalized"


@pytest.mark.rule("C-026", "D-27")
def test_a_duplicate_answer_names_a_candidate_and_adopts_nothing(make_stage: MakeStage) -> None:
    """409 with an id in a sentence: terminal, the id is evidence, there is no link and no other request."""
    candidates = [{"from": "$response.body#/message", "regex": r"^.* Existing ID: (\d+)$"}]
    document = pack_with(lambda d: action_of(d)["create"]["response"].update(candidates=candidates))
    stage = make_stage(pack=document)
    stage.remote.script.next(verbs.answer(409, {"message": "Contact already exists. Existing ID: 6001"}))
    stage.save(1, **ADA)
    stage.drain()
    row = stage.attempt()
    assert (row["status"], row["remote_id"]) == ("terminal_failed", None)
    assert json.loads(row["detail"])["candidates"] == ["6001"]
    assert stage.rows("push_response")[0]["candidate_id"] == "6001"
    assert stage.links() == []
    assert stage.sends == 1


@pytest.mark.rule("C-021")
@pytest.mark.parametrize("status", [200, 201, 203])
def test_each_usual_success_with_an_id_finalizes(stage: Stage, status: int) -> None:
    """200, 201 and 203 mean created unless a profile narrows them."""
    stage.remote.script.next(verbs.store_then_answer(status, {"id": "a-1"}))
    stage.save(1, **ADA)
    stage.drain()
    assert stage.link()["remote_id"] == "a-1"


@pytest.mark.rule("C-021", "C-023")
@pytest.mark.parametrize(("status", "code"), [(202, Code.ACCEPTED_PENDING), (206, Code.APPLIED_UNIDENTIFIED)])
def test_a_success_that_was_not_declared_parks_with_its_id_as_evidence(stage: Stage, status: int, code: Code) -> None:
    """202 may be done later or never; another 2xx is nobody's promise. What it names is a candidate only."""
    stage.remote.script.next(verbs.store_then_answer(status, {"id": "x"}))
    stage.save(1, **ADA)
    stage.drain()
    row = stage.attempt()
    assert (row["status"], row["reason_code"], row["remote_id"]) == ("ambiguous_remote_effect", code, None)
    assert stage.links() == []


@pytest.mark.rule("C-023")
def test_a_profile_may_say_that_202_means_created(make_stage: MakeStage) -> None:
    """What is declared as a success is one."""
    stage = make_stage(pack=pack_with(lambda d: action_of(d)["create"].update(success={"status": [202]})))
    stage.remote.script.next(verbs.store_then_answer(202, {"id": "x"}))
    stage.save(1, **ADA)
    stage.drain()
    assert stage.link()["remote_id"] == "x"


@pytest.mark.rule("C-018", "D-25")
def test_an_id_that_stands_only_in_a_header_is_found_and_decoded_once(make_stage: MakeStage) -> None:
    """201, no body, `Location: /v1/things/abc%2F1`: the id is `abc/1`, and the update's path encodes it again."""

    def change(document: dict[str, Any]) -> None:
        profile_of(document)["path_characters"] = "/"
        action_of(document)["create"]["response"] = {
            "id": [{"from": "$response.header.Location", "regex": "^.*/([^/]+)$", "decode": "percent"}]
        }

    stage = make_stage(pack=pack_with(change))
    stage.remote.script.next(verbs.store_then_answer(201, headers=[("Location", "/v1/things/abc%2F1")]))
    stage.remote.script.next(verbs.answer(200, {}))
    stage.save(1, **ADA)
    stage.drain()
    assert stage.link()["remote_id"] == "abc/1"
    stage.save(1, name="Ada L.")
    stage.drain()
    assert stage.remote.sent[1].path == "/people/abc%2F1"


@pytest.mark.rule("C-034", "D-25")
def test_a_long_number_is_kept_digit_by_digit(make_stage: MakeStage) -> None:
    """An id beyond 2^53 is stored, mirrored and sent with all of its digits."""
    stage = make_stage(remote=remote(ids="big_integer"))
    stage.linked(1)
    assert stage.link()["remote_id"] == "653247040368672768"
    assert stage.person() == {**stage.person(), "remote_id": "653247040368672768"}
    stage.save(1, name="Changed")
    stage.drain()
    assert stage.remote.sent[1].path == "/people/653247040368672768"
    assert stage.remote.log[1].status == 200


@pytest.mark.rule("C-056", "D-41")
def test_a_date_is_frozen_as_its_mapping_says(make_stage: MakeStage) -> None:
    """A calendar date becomes midnight UTC in milliseconds, in bytes, at the save; a 400 for it is terminal."""
    born = {"source": "born", "target": "/born", "encode": {"epoch": "ms"}}
    stage = make_stage(pack=pack_with(lambda d: action_of(d)["mappings"].append(born)))
    stage.remote.script.next(verbs.answer(400, {"field": "born"}))
    stage.save(1, **ADA, born=dt.date(2024, 3, 10))
    midnight = int(dt.datetime(2024, 3, 10, tzinfo=dt.UTC).timestamp()) * 1000
    assert json.loads(stage.rows("push_request")[0]["body"])["born"] == midnight
    stage.drain()
    assert stage.attempt()["status"] == "terminal_failed"
    assert stage.sends == 1


# --------------------------------------------------------------------------------------- retries and their end


@pytest.mark.rule("RR-06", "AT-03", "AT-02")
def test_exhaustion_is_durable_and_only_a_supersede_opens_the_slot(make_stage: MakeStage) -> None:
    """Retries end in `terminal_failed`; saves are refused; after an explicit supersede the ordinal is 2."""
    stage = make_stage(pack=pack_with(lambda d: profile_of(d).update(retry={"attempts": 2})))
    stage.remote.script.next(verbs.refuse_connection(), verbs.refuse_connection())
    stage.save(1, **ADA)
    for _ in range(4):
        stage.drain()
        stage.clock_forward()
    row = stage.attempt()
    assert (row["status"], row["reason_code"]) == ("terminal_failed", "retries_exhausted")
    assert stage.sends == 2
    assert isinstance(stage.save(1, name="Ada L."), Refused)
    with stage.engine.begin() as conn:
        [read] = attempts.read_attempts(conn, [row["id"]])
        move = lifecycle.Move(row=read, event=CreateEvent.SUPERSEDE, actor="operator:kim")
        lifecycle.move_attempts(conn, [move], now=stage.fixed.now())
    outcome = stage.save(1, name="Ada Lovelace")
    assert isinstance(outcome, Reserved)
    assert outcome.ordinal == 2
    stage.drain()
    assert stage.remote.api.creates == 1
    keys = {request["idempotency_key"] for request in stage.rows("push_request")}
    assert len(keys) == 2


@pytest.mark.rule("D-06", "D-07")
def test_an_attempt_in_doubt_without_a_contract_is_parked_before_any_byte(stage: Stage) -> None:
    """A pending attempt one of whose sends may have landed is never sent on a guess."""
    stage.save(1, **ADA)
    stage.sql("UPDATE pushlink_push_attempt SET in_doubt = true")
    stage.drain()
    row = stage.attempt()
    assert (row["status"], row["reason_code"]) == ("ambiguous_remote_effect", "replay_not_allowed")
    assert stage.sends == 0


@pytest.mark.rule("C-086", "GT-08", "RR-07", "DR-22")
def test_a_source_that_is_gone_before_the_first_post_is_never_created(stage: Stage) -> None:
    """Deleted between reserve and claim: no request, terminal with `source_gone`, visible, and the slot stays taken."""
    stage.save(1, **ADA)
    stage.drop(1)
    stage.drain()
    row = stage.attempt()
    assert (row["status"], row["reason_code"]) == ("terminal_failed", "source_gone")
    assert stage.sends == 0
    assert isinstance(stage.save(1, **ADA), Refused)


@pytest.mark.rule("RR-07", "D-21", "DR-22")
def test_a_source_that_goes_between_claim_and_checkpoint_is_never_created(stage: Stage) -> None:
    """The checkpoint's own transaction looks again, and ends the attempt instead of starting it."""
    stage.save(1, **ADA)
    flow = stage.paused()
    stage.drop(1)
    flow.finish()
    row = stage.attempt()
    assert (row["status"], row["reason_code"], row["first_io_at"]) == ("terminal_failed", "source_gone", None)
    assert stage.sends == 0


@pytest.mark.rule("D-21")
@pytest.mark.parametrize("what", ["catalogue", "credential"])
def test_the_checkpoint_looks_again_at_what_validation_read(stage: Stage, what: str) -> None:
    """A pack applied, or a credential changed, between claim and checkpoint: nothing is sent on the old decision."""
    stage.save(1, **ADA)
    flow = stage.paused()
    if what == "catalogue":
        stage.apply(pack_with(lambda d: d.update(version="1.0.1")))
    else:
        stage.credentials.current = "generation-2"
    flow.finish()
    assert stage.sends == 0
    assert (stage.attempt()["status"], stage.attempt()["reason_code"]) == ("pending", "given_back")


@pytest.mark.rule("D-38")
def test_a_reservation_that_waited_too_long_is_held_and_not_sent(make_stage: MakeStage) -> None:
    """Past `expires_after` the attempt stays pending under the hold `expired`."""
    stage = make_stage(pack=pack_with(lambda d: profile_of(d).update(expires_after="1h")))
    stage.save(1, **ADA)
    stage.clock_forward(hours=2)
    stage.drain()
    row = stage.attempt()
    assert (row["status"], row["hold_code"]) == ("pending", "expired")
    assert stage.sends == 0


@pytest.mark.rule("D-38")
def test_a_reservation_of_a_user_who_left_is_held_and_not_sent(make_stage: MakeStage) -> None:
    """Deactivation only narrows: what waits under that user's authority is held."""
    left: set[str] = set()
    authority = CallableAuthority(
        lambda _, requests: [HostAnswer(active=True, readable=True, fields=None) for _ in requests],
        lambda _, users: [user not in left for user in users],
        version="1",
    )
    stage = make_stage(authority=authority)
    stage.save(1, **ADA)
    left.add(USER)
    stage.drain()
    row = stage.attempt()
    assert (row["status"], row["hold_code"]) == ("pending", "user_inactive")
    assert stage.sends == 0


# --------------------------------------------------------------------------------------- crashes


@pytest.mark.rule("RR-03", "AT-10")
def test_a_crash_before_the_checkpoint_is_provably_unsent(stage: Stage) -> None:
    """The claim ends with its lease, the row is pending again, and one create follows."""
    stage.save(1, **ADA)
    stage.paused()
    stage.drain()
    assert stage.attempt()["status"] == "processing"
    stage.clock_forward()
    stage.drain()
    assert stage.attempt()["status"] == "finalized"
    assert stage.remote.api.creates == 1


@pytest.mark.rule("RR-04", "C-080", "C-003")
@pytest.mark.parametrize("is_sent", [False, True], ids=["before the byte", "before the answer is stored"])
def test_a_crash_after_the_checkpoint_is_parked(stage: Stage, is_sent: bool) -> None:
    """Nobody can say whether the byte left: ambiguous with who, when and what, and no second POST."""
    stage.save(1, **ADA)
    flow = stage.paused().to_send()
    if is_sent:
        flow.step()
    stage.clock_forward()
    stage.drain()
    row = stage.attempt()
    assert (row["status"], row["in_doubt"], row["reason_code"]) == ("ambiguous_remote_effect", True, "lease_expired")
    detail = json.loads(row["detail"])
    assert detail["claimed_by"] == flow.claimed.incarnation
    assert detail["checkpoint_at"]
    assert isinstance(stage.save(1, name="Ada L."), Refused)
    stage.drain()
    assert stage.sends == int(is_sent)


@pytest.mark.rule("RR-05", "D-02", "PO-02", "C-012")
def test_a_crash_before_the_mirror_resumes_with_the_mirror_alone(stage: Stage) -> None:
    """Link and id are durable: recovery promotes the row, the mirror is written, and there is one POST."""
    stage.save(1, **ADA)
    flow = stage.paused().to_send()
    flow.step()
    flow.step()
    assert stage.attempt()["status"] == "writeback_commit_pending"
    assert stage.link()["status"] == "finalized"
    stage.clock_forward()
    stage.drain()
    assert stage.attempt()["status"] == "finalized"
    assert stage.person() == {**stage.person(), "remote_id": "1"}
    assert stage.sends == 1


@pytest.mark.rule("C-012")
def test_a_host_that_rolls_back_afterwards_undoes_nothing(stage: Stage) -> None:
    """Response and link belong to pushlink's own transaction; the host's later failure does not reach them."""
    stage.save(1, **ADA)
    stage.drain()
    with stage.engine.connect() as conn, conn.begin() as transaction:
        stage.put_in(conn, 1, name="gone again")
        stage.runtime.save(conn, "Person", 1, user=USER)
        transaction.rollback()
    assert stage.link()["remote_id"] == "1"
    assert len(stage.rows("push_response")) == 1
    assert len(stage.attempts()) == 1


@pytest.mark.rule("AT-11")
def test_every_transition_is_kept_with_who_when_and_why(stage: Stage) -> None:
    """Reserve, result, mirror: actor, time, reason, row version, in order, in a log that only grows."""
    stage.remote.script.next(verbs.refuse_connection())
    stage.save(1, **ADA)
    stage.drain()
    stage.clock_forward()
    stage.drain()
    told = [(e["subject"], e["event"], e["from_status"], e["to_status"]) for e in stage.events()]
    assert told == [
        ("create", "reserve", None, "pending"),
        ("create", "not_applied", "processing", "pending"),
        ("link", "finalize", None, "finalized"),
        ("create", "link_finalized", "processing", "writeback_commit_pending"),
        ("create", "mirror_settled", "writeback_commit_pending", "finalized"),
    ]
    events = stage.events()
    assert events[0]["actor"] == f"user:{USER}"
    assert {event["actor"] for event in events[1:]} == {stage.attempt()["claimed_by"]}
    assert events[1]["reason"] == "not_sent"
    assert all(event["at"] for event in events)
    versions = [event["row_version"] for event in events if event["subject"] == "create"]
    assert versions == sorted(versions)


@pytest.mark.rule("D-05", "PO-07")
def test_a_certificate_that_is_not_trusted_costs_no_retry_and_heals_by_itself(make_stage: MakeStage) -> None:
    """Nothing was sent: pending with a code of its own, the destination is left alone, and a mended one goes on."""
    stage = make_stage(pack=pack_with(lambda document: profile_of(document).update(retry={"attempts": 2})))
    stage.remote.script.next(*[verbs.untrusted_certificate()] * 4, when=creating)
    stage.save(1, name="Ada", email="ada@example.com")
    for tries in range(1, 5):
        stage.drain()
        attempt = stage.attempt()
        assert (attempt["status"], attempt["reason_code"]) == ("pending", "certificate_untrusted")
        assert (attempt["retry_count"], attempt["in_doubt"], attempt["hold_code"]) == (0, False, None)
        assert attempt["not_before"] >= stage.fixed.now() + dt.timedelta(minutes=5)
        assert stage.sends == tries
        stage.clock_forward()
    [throttle] = stage.rows("remote_throttle")
    assert throttle["reason"] == "the certificate is not trusted"
    stage.drain()
    assert stage.attempt()["status"] == "finalized"
    assert len(stage.remote.api.created) == 1
