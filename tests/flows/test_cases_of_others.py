"""What happened to others: batches, natural keys, slow remotes, twins, another tenant, a search that lags."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flows.stage import MakeStage, Stage, action_of, pack_with, profile_of, without_mirror
from pushlink.errors import Code, PackError
from pushlink.flows.outcomes import Refused, Reserved
from pushlink.operations.actions import Decision, OperatorTerms, act
from pushlink.operations.waiting import stuck
from pushlink.packs.loader import load_pack_text
from pushlink.protocol.identity import locator_key
from pushlink.protocol.snapshots import Slots
from pushlink.protocol.verbs import Verb
from pushlink.testing import verbs
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.messages import Asked, creating, reading
from pushlink.testing.scripted import ScriptedTransport

TENANT_SLOTS = Slots(
    connector_owner_key="owner-1",
    tenant="",
    action_slot_id="act-1",
    source_object="Person",
    destination_slot_id="dest-1",
)


def methods(stage: Stage) -> list[str]:
    return [asked.method for asked in stage.remote.sent]


# --------------------------------------------------------------------------------------- C-030, batches


def list_pack() -> dict[str, Any]:
    """A remote that only takes lists: one record is put into a list of one, and one result is read."""

    def change(document: dict[str, Any]) -> None:
        action = action_of(document)
        action["create"] |= {
            "path": "/people/batch",
            "body": {"envelope": {"inputs": [{}]}, "insert_at": "/inputs/0"},
            "success": {
                "status": [200],
                "assert": [{"pointer": "/results/0"}, {"pointer": "/results/1", "absent": True}],
            },
            "response": {"id": [{"from": "$response.body#/results/0/id"}]},
            "conflict": [
                {
                    "when": [{"status": [200]}, {"pointer": "/errors/0/code", "equals": "CONFLICT"}],
                    "existing_id": [{"from": "$response.body#/errors/0/existing"}],
                }
            ],
        }
        del action["mirror"]

    return pack_with(change)


@pytest.mark.rule("C-030")
def test_creates_are_one_record_each_and_each_answer_is_judged_alone(make_stage: MakeStage) -> None:
    """Claimed together, sent one by one; a conflict, a short list and a list of others' results are one record's."""
    stage = make_stage(pack=list_pack())
    answers = {
        "a@example.com": verbs.answer(200, {"results": [{"id": "r-1"}]}),
        "b@example.com": verbs.answer(200, {"results": [], "errors": [{"code": "CONFLICT", "existing": "6001"}]}),
        "c@example.com": verbs.answer(207, {"results": []}),
        "d@example.com": verbs.answer(200, {"results": []}),
        "e@example.com": verbs.answer(200, {"results": [{"id": "r-8"}, {"id": "r-9"}]}),
    }
    for number, (email, told) in enumerate(answers.items(), start=1):
        stage.remote.script.always(told, when=lambda asked, email=email: email in asked.body.decode())
        stage.save(number, name=f"Person {number}", email=email)
    claimed = stage.claim()
    assert len(claimed) == len(answers)
    stage.run(claimed)
    bodies = [json.loads(asked.body) for asked in stage.remote.sent]
    assert sorted(body["inputs"][0]["email"] for body in bodies) == sorted(answers)
    assert {len(body["inputs"]) for body in bodies} == {1}
    by_key = {slot["link_key"]: slot["source_record_id"] for slot in stage.rows("push_slot")}
    ends = {by_key[row["link_key"]]: (row["status"], row["reason_code"]) for row in stage.attempts()}
    assert ends == {
        "1": ("finalized", None),
        "2": ("terminal_failed", Code.REMOTE_CONFLICT),
        "3": ("ambiguous_remote_effect", Code.APPLIED_UNIDENTIFIED),
        "4": ("ambiguous_remote_effect", Code.EFFECT_UNKNOWN),
        "5": ("ambiguous_remote_effect", Code.EFFECT_UNKNOWN),
    }
    assert [link["remote_id"] for link in stage.links()] == ["r-1"]
    assert {row["candidate_id"] for row in stage.rows("push_response")} == {None, "6001", "r-8"}


@pytest.mark.rule("C-030")
@pytest.mark.parametrize("key", ["batch", "bulk", "items"])
def test_no_pack_can_ask_for_a_batch_of_creates(key: str) -> None:
    """There is no word for it, so a result can never be given to a record that it is not about."""
    document = pack_with(lambda document: action_of(document)["create"].update({key: {"max": 3}}))
    with pytest.raises(PackError, match=f"`{key}` is no key"):
        load_pack_text(json.dumps(document))


# --------------------------------------------------------------------------------------- C-042, natural keys


@pytest.mark.rule("C-042")
@pytest.mark.parametrize("changed_at", ["home", "remote", "both"])
def test_an_update_goes_to_the_linked_id_whatever_becomes_of_a_natural_key(
    make_stage: MakeStage, changed_at: str
) -> None:
    """The address changes between the create and the update: the same remote record, no second one, no search."""
    stage = make_stage(remote=ScriptedTransport(RemoteOptions(prefix="/v2", unique_fields=("email",))))
    before = stage.linked(1, name="Ada", email="old@example.com")
    if changed_at != "home":
        stage.remote.api.edit("people", before["remote_id"], email="moved@example.com")
    email = "new@example.com" if changed_at != "remote" else "old@example.com"
    stage.save(1, name="Ada L.", email=email)
    stage.drain()
    assert methods(stage) == ["POST", "PATCH"]
    assert stage.remote.sent[-1].path == f"/people/{before['remote_id']}"
    [record] = stage.remote.api.records
    assert (record.id, record.document["email"]) == (before["remote_id"], email)
    assert (stage.link()["link_key"], stage.link()["remote_id"]) == (before["link_key"], before["remote_id"])


@pytest.mark.rule("C-042", "ID-01")
def test_a_natural_key_never_identifies_a_slot(make_stage: MakeStage) -> None:
    """Another local record with the old address is another slot with a create of its own; no link is found by it."""
    stage = make_stage()
    first = stage.linked(1, name="Ada", email="ada@example.com")
    stage.save(1, email="new@example.com")
    stage.drain()
    assert isinstance(stage.save(2, name="Ada", email="ada@example.com"), Reserved)
    stage.drain()
    second = stage.link(2)
    assert second["link_key"] != first["link_key"]
    assert second["remote_id"] != first["remote_id"]
    assert methods(stage) == ["POST", "PATCH", "POST"]


# --------------------------------------------------------------------------------------- C-052, another tenant


def always_seven() -> ScriptedTransport:
    return ScriptedTransport(RemoteOptions(prefix="/v2", ids=lambda _: 7))


def sandbox(scope: str, **profile: Any) -> dict[str, Any]:
    """The pack for one account of the remote; nothing else differs."""
    document = without_mirror()
    profile_of(document).update(profile, destination_scope=scope)
    return document


@pytest.mark.rule("C-052", "D-26", "DR-11")
@pytest.mark.parametrize("waives", [False, True])
def test_another_tenant_behind_the_same_profile_gets_nothing_until_it_is_validated(
    make_stage: MakeStage, waives: bool
) -> None:
    """A new credential reaches another account: neither the update nor the retry of a create is sent there.

    A profile that waives rotated secrets waives those of the same tenant alone.
    """
    waivers = {"waives": {"credential_generation": waives}}
    stage = make_stage(pack=sandbox("tenant-42", **waivers), remote=always_seven())
    old = stage.linked(1, name="Ada", email="a@example.com")
    stage.remote.script.next(*[verbs.refuse_connection()] * 2)
    stage.save(1, name="Ada L.")
    stage.save(2, name="Bob", email="b@example.com")
    stage.drain()
    tried = {row["id"]: row["send_count"] for row in stage.attempts(status="pending")}
    assert list(tried.values()) == [1, 1]
    stage.credentials.current = "generation-2"
    stage.apply(sandbox("tenant-43", **waivers))
    outcome = stage.save(1, name="Ada Lovelace")
    assert isinstance(outcome, Refused)
    assert outcome.code is Code.DRIFT
    stage.clock_forward()
    sent = stage.sends
    stage.drain()
    for row in stage.attempts(status="pending"):
        assert (row["hold_code"], row["send_count"]) == ("drift", tried.pop(row["id"]))
        surfaces = set(json.loads(row["detail"])["surfaces"])
        assert "credential_generation" in surfaces
        assert ("destination" in surfaces) is (row["operation"] == "update")
    assert tried == {}
    assert stage.sends == sent
    assert (
        stage.link()["locator_key"]
        == old["locator_key"]
        == locator_key(TENANT_SLOTS, scope="tenant-42", canonical_id="7")
    )


@pytest.mark.rule("C-052", "D-26")
def test_one_id_in_two_tenants_is_two_remote_records(make_stage: MakeStage) -> None:
    """The scope is part of the locator: the same id there is no conflict, and validating moves a link's locator."""
    stage = make_stage(pack=sandbox("tenant-42"), remote=always_seven())
    first = stage.linked(1, name="Ada", email="a@example.com")
    stage.apply(sandbox("tenant-43"))
    second = stage.linked(3, name="Eve", email="e@example.com")
    assert (first["remote_id"], second["remote_id"]) == ("7", "7")
    assert second["locator_key"] == locator_key(TENANT_SLOTS, scope="tenant-43", canonical_id="7")
    assert second["locator_key"] != first["locator_key"]
    retire = Decision(verb=Verb.RETIRE, target_id=second["id"], actor="olga", reason="wrong account", row_version=1)
    validate = Decision(verb=Verb.REVALIDATE, target_id=first["id"], actor="olga", reason="moved", row_version=1)
    for decision in (retire, validate):
        with stage.engine.begin() as conn:
            act(conn, stage.world, decision, terms=OperatorTerms(), now=stage.clock.now(conn))
    assert stage.link(1)["locator_key"] == second["locator_key"]
    stage.save(1, name="Ada L.")
    stage.drain()
    assert methods(stage)[-1] == "PATCH"


# --------------------------------------------------------------------------------------- C-011, a remote that is slow


@pytest.mark.rule("C-011")
def test_creates_that_a_slow_remote_takes_late_are_one_burst_in_stuck(
    make_stage: MakeStage,
) -> None:
    """It queues every create, makes it later and answers none: each was sent once, and people see them together."""
    stage = make_stage(pack=without_mirror())
    stage.remote.script.always(verbs.store_then_hang(), when=creating)
    for number in (1, 2, 3):
        stage.save(number, name=f"Person {number}", email=f"p{number}@example.com")
    stage.drain()
    stage.clock_forward(seconds=30)
    for number in (1, 2, 3):
        stage.save(number, name=f"Person {number} again")
    stage.clock_forward()
    stage.drain()
    assert methods(stage) == ["POST"] * 3
    assert len(stage.remote.api.created) == 3
    with stage.engine.connect() as conn:
        [burst] = stuck(conn, now=stage.fixed.now())
    assert (burst.kind, burst.code, burst.count) == ("doubtful", "effect_unknown", 3)
    assert sorted(row.record_id for row in burst.rows) == ["1", "2", "3"]


# --------------------------------------------------------------------------------------- C-051, a twin of the remote's


@pytest.mark.rule("C-051")
def test_a_twin_that_the_remote_made_by_itself_is_neither_looked_for_nor_touched(make_stage: MakeStage) -> None:
    """Only the id that answered our own request is linked; the twin keeps what it was, also after an update."""
    stage = make_stage(pack=without_mirror())
    ada = {"name": "Ada", "email": "ada@example.com"}
    told, _ = stage.remote.api.handle(
        Asked(
            number=1,
            method="POST",
            target="/v2/people",
            headers=(("Content-Type", "application/json"),),
            body=json.dumps(ada).encode(),
            prefix="/v2",
        )
    )
    assert told.status == 201
    [made] = stage.remote.api.records
    before = dict(made.document)
    stage.save(1, **ada)
    stage.drain()
    stage.save(1, name="Ada L.")
    stage.drain()
    assert methods(stage) == ["POST", "PATCH"]
    assert stage.link()["remote_id"] != made.id
    assert dict(stage.remote.api.record("people", made.id).document) == before


# --------------------------------------------------------------------------------------- C-054, a search that lags

SEARCHED = {
    "path": "/people",
    "key": "/email",
    "query": {"email": "{key}"},
    "only": "/records",
    "id": [{"from": "$response.body#/records/0/id"}],
    "every": "5s",
    "timeout": "60s",
}


@pytest.mark.rule("C-054")
def test_a_search_that_lags_concludes_nothing_and_is_never_asked_before_a_create(make_stage: MakeStage) -> None:
    """Zero results at five seconds are no absence: the create waits, is not sent again, and is found when it shows."""

    def change(document: dict[str, Any]) -> None:
        action_of(document)["create"]["followup"] = SEARCHED

    remote = ScriptedTransport(RemoteOptions(prefix="/v2"))
    stage = make_stage(pack=pack_with(change), remote=remote)
    remote.script.next(verbs.store_then_answer(201, {}), when=creating)
    remote.script.next(*[verbs.answer(200, {"records": []})] * 5, when=reading)
    stage.save(1, name="Ada", email="ada@example.com")
    stage.drain()
    assert methods(stage)[0] == "POST"
    for seconds in range(0, 30, 5):
        stage.drain()
        attempt = stage.attempt()
        assert (attempt["status"], attempt["in_doubt"]) == ("post_sent", True), seconds
        assert stage.links() == []
        stage.clock_forward(seconds=5.5)
    stage.drain()
    assert (stage.attempt()["status"], stage.link()["remote_id"]) == ("finalized", "1")
    assert methods(stage) == ["POST", *["GET"] * 6]
    assert len(remote.api.created) == 1
