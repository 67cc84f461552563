"""Requests end to end: creates that name their own record, form bodies, and updates that name theirs in the body."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import pytest

from flows.stage import MakeStage, Stage, action_of, pack_with, profile_of
from pushlink.flows.outcomes import Refused
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.scripted import ScriptedTransport
from pushlink.testing.verbs import answer, store_then_answer


def remote(**options: Any) -> ScriptedTransport:
    return ScriptedTransport(RemoteOptions(prefix="/v2", **options))


def create(**changes: Any) -> Any:
    return lambda document: action_of(document)["create"].update(changes)


@pytest.fixture
def putting(make_stage: MakeStage) -> Stage:
    """A stage whose create puts the record to an id of its own, at a remote that answers without a body."""
    pack = pack_with(create(method="PUT", path="/people/{client_id}", client_id={}, response={}))
    return make_stage(pack=pack, remote=remote(put_creates=True, answers="nothing"))


def test_a_record_is_put_to_the_id_that_was_reserved_for_it(putting: Stage) -> None:
    """The id is in the frozen path before anything is sent, and is the link's; updates go there."""
    putting.save(1, name="Ada", email="ada@example.com")
    [frozen] = putting.rows("push_request")
    assert frozen["path"] == f"/people/{frozen['idempotency_key']}"
    putting.drain()
    link = putting.link()
    assert (link["status"], link["remote_id"]) == ("finalized", frozen["idempotency_key"])
    assert putting.person()["remote_id"] == link["remote_id"]  # type: ignore[index]
    putting.save(1, name="Ada L.")
    putting.drain()
    assert putting.remote.log[-1].asked.segments == ("people", link["remote_id"])
    assert putting.remote.api.record("people", link["remote_id"]).document["name"] == "Ada L."
    assert putting.remote.api.creates == 1


def test_a_retry_and_a_later_create_of_the_key_have_ids_of_their_own(putting: Stage) -> None:
    """The same attempt puts to the same id again; only a superseded attempt's successor gets another."""
    putting.remote.script.next(answer(429))
    putting.save(1, name="Ada")
    putting.drain()
    putting.clock_forward()
    putting.drain()
    paths = {sent.path for sent in putting.remote.sent}
    assert len(putting.remote.sent) == 2
    assert paths == {f"/people/{putting.link()['remote_id']}"}


def test_a_success_whose_body_is_lost_still_has_its_id(putting: Stage) -> None:
    """Nothing has to be looked up: the record's id was known before it was sent."""
    putting.remote.script.next(store_then_answer(201, body=b"<html>"))
    putting.save(1, name="Ada")
    putting.drain()
    assert putting.link()["status"] == "finalized"
    assert putting.remote.api.record("people", putting.link()["remote_id"])


def test_an_own_id_of_a_field_that_is_empty_reserves_nothing(make_stage: MakeStage) -> None:
    """The record cannot be named, so nothing is reserved and nothing is sent."""
    rule = {"from": "field", "field": "email", "encode": {"lower_trim": True, "md5_hex": True}}
    pack = pack_with(create(method="PUT", path="/people/{client_id}", client_id=rule, response={}))
    stage = make_stage(pack=pack, remote=remote(put_creates=True))
    outcome = stage.save(1, name="Ada", email=None)
    assert isinstance(outcome, Refused)
    assert outcome.code == "value_unsendable"
    assert stage.attempts() == []
    stage.save(1, email=" ADA@example.com")
    stage.drain()
    first = stage.link()["remote_id"]
    stage.save(2, name="Other", email="ada@EXAMPLE.com")
    stage.drain()
    assert stage.attempts(link_key=stage.slot(2)["link_key"])[0]["status"] != "finalized"
    assert stage.link()["remote_id"] == first


def test_a_form_is_sent_and_a_record_is_updated_by_post(make_stage: MakeStage) -> None:
    """Form bodies on both requests; the remote reads what was meant, digits and all."""

    def change(document: dict[str, Any]) -> None:
        action = action_of(document)
        action["create"]["body"] = {"encoding": "form"}
        action["update"] |= {"method": "POST", "body": {"encoding": "form", "merge": {"/source": "crm"}}}
        action["mappings"] = [
            {"source": "name", "target": "/name", "clear": "empty_string"},
            {"source": "email", "target": "/meta/email", "clear": "omit"},
        ]

    stage = make_stage(pack=pack_with(change), remote=remote())
    stage.linked(1, name="Zoë & co", email=None)
    stage.save(1, email="z@example.com")
    stage.drain()
    first, second = stage.remote.sent
    assert parse_qsl(first.body.decode(), keep_blank_values=True) == [("name", "Zoë & co")]
    assert dict(second.headers)["Content-Type"] == "application/x-www-form-urlencoded"
    assert parse_qsl(second.body.decode()) == [
        ("name", "Zoë & co"),
        ("meta[email]", "z@example.com"),
        ("source", "crm"),
    ]
    assert second.path == f"/people/{stage.link()['remote_id']}"


def test_an_update_names_its_record_in_the_body_and_its_realm_in_the_path(make_stage: MakeStage) -> None:
    """One path for both requests, the id and the literals in the body, the version of the API in the query."""

    def change(document: dict[str, Any]) -> None:
        profile_of(document)["variables"] = {"realm": "9130"}
        action = action_of(document)
        action["create"] |= {"path": "/{realm}/people", "query": {"minorversion": "75"}}
        action["update"] |= {
            "method": "POST",
            "path": "/{realm}/people",
            "query": {"minorversion": "75"},
            "body": {"merge": {"/Id": "{remote_id:integer}", "/sparse": True}},
        }

    stage = make_stage(pack=pack_with(change), remote=remote())
    stage.remote.script.always(answer(201, {"id": 7}))
    stage.linked(1, name="Ada", email="a@example.com")
    stage.remote.script.calm()
    stage.remote.script.always(answer(200, {"id": 7}))
    stage.save(1, name="Ada L.")
    stage.drain()
    assert {sent.path for sent in stage.remote.sent} == {"/9130/people?minorversion=75"}
    assert stage.remote.log[-1].asked.json() == {"name": "Ada L.", "email": "a@example.com", "Id": 7, "sparse": True}
    assert stage.attempts()[-1]["status"] == "finalized"


@pytest.mark.rule("DR-10", "PA-04")
def test_another_realm_is_another_endpoint(make_stage: MakeStage) -> None:
    """A profile's variables are part of what a link was validated with: nothing goes to another tenant's path."""

    def change(document: dict[str, Any]) -> None:
        profile_of(document)["variables"] = {"realm": "1"}
        action_of(document)["update"]["path"] = "/people/{remote_id}"

    stage = make_stage(pack=pack_with(change))
    stage.linked(1, name="Ada")

    def other(document: dict[str, Any]) -> None:
        change(document)
        profile_of(document)["variables"] = {"realm": "2"}
        document["version"] = "1.0.1"

    stage.apply(pack_with(other))
    outcome = stage.save(1, name="Ada L.")
    assert isinstance(outcome, Refused)
    assert outcome.code == "drift"
    assert "endpoint" in str(outcome.evidence)


@pytest.mark.rule("GT-13", "C-058", "RR-02")
def test_what_is_over_the_limits_of_an_action_is_refused_before_it_is_reserved(make_stage: MakeStage) -> None:
    """No slot, no attempt, no send; another record is not held up by it."""
    stage = make_stage(
        pack=pack_with(lambda document: action_of(document).update(limits={"body_bytes": 60, "field_chars": 30}))
    )
    for name, code in (("x" * 31, "value_unsendable"), ("é" * 30, "body_too_large")):
        outcome = stage.save(1, name=name, email="a@example.com")
        assert isinstance(outcome, Refused)
        assert outcome.code == code
    assert stage.attempts() == []
    stage.linked(2, name="Bea", email=None)
    assert stage.sends == 1
