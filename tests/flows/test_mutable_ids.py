"""Ids that change: an update gives its record another id, and the link follows in the transaction of the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flows.stage import MakeStage, Stage, action_of, pack_with, step_of
from pushlink.protocol.identity import locator_key
from pushlink.protocol.snapshots import Slots
from pushlink.testing import verbs
from pushlink.testing.messages import updating


def mutable(**update: Any) -> dict[str, Any]:
    """The pack whose remote may give a record another id."""

    def change(document: dict[str, Any]) -> None:
        action_of(document)["create"]["response"]["id_rule"] = {"mutable": True}
        action_of(document)["update"].update(update)

    return pack_with(change)


def renamed(stage: Stage, answer: Any, record_id: int = 1, name: str = "Ada L.") -> None:
    """One update whose answer is `answer`."""
    stage.remote.script.next(answer, when=updating)
    stage.save(record_id, name=name)
    stage.drain()


def key_of(remote_id: str) -> str:
    slots = Slots(
        connector_owner_key="owner-1",
        tenant="",
        action_slot_id="act-1",
        source_object="Person",
        destination_slot_id="dest-1",
    )
    return locator_key(slots, scope="tenant-42", canonical_id=remote_id)


def test_the_link_follows_the_new_id_with_the_answers_transaction(make_stage: MakeStage) -> None:
    """Id, locator and acknowledged version change together, and an event keeps both locators."""
    stage = make_stage(pack=mutable())
    before = stage.linked(1, name="Ada")
    stage.remote.script.next(verbs.answer(200, {"id": "fresh-7"}), when=updating)
    stage.save(1, name="Ada L.")
    flow = stage.paused().to_send()
    flow.step()
    assert step_of(flow.effect) == "record"
    assert stage.link()["remote_id"] == before["remote_id"]
    flow.step()
    link = stage.link()
    assert (link["status"], link["remote_id"], link["remote_id_canonical"]) == ("finalized", "fresh-7", "fresh-7")
    assert link["locator_key"] == key_of("fresh-7") != before["locator_key"] == key_of(before["remote_id"])
    assert stage.slot()["acknowledged_version"] == stage.slot()["wanted_version"] == 2
    [told] = stage.events(subject="link", event="relocate")
    assert told["attempt_id"] == stage.attempts()[-1]["id"]
    assert json.loads(told["evidence"])["locators"] == {
        "old": {"remote_id": before["remote_id"], "locator_key": before["locator_key"]},
        "new": {"remote_id": "fresh-7", "locator_key": link["locator_key"]},
    }


def test_the_next_update_goes_to_the_new_id(make_stage: MakeStage) -> None:
    """The route is rendered from the link as it is now; an update without a change of id relocates nothing."""
    stage = make_stage(pack=mutable())
    stage.linked(1, name="Ada")
    renamed(stage, verbs.answer(200, {"id": "fresh-7"}))
    renamed(stage, verbs.answer(200, {"id": "fresh-7"}), name="Ada Lovelace")
    assert stage.remote.log[-1].asked.path == "/v2/people/fresh-7"
    assert len(stage.events(subject="link", event="relocate")) == 1
    assert stage.attempts()[-1]["status"] == "finalized"


@pytest.mark.parametrize("status", [200, 202])
def test_any_declared_success_may_show_the_new_id(make_stage: MakeStage, status: int) -> None:
    """An answer is read for the id by what the pack declares as done, not by its being a 200."""
    stage = make_stage(pack=mutable(success={"status": [200, 202]}))
    stage.linked(1, name="Ada")
    renamed(stage, verbs.answer(status, {"id": "fresh-7"}))
    assert stage.link()["remote_id"] == "fresh-7"


def test_an_answer_that_names_no_id_leaves_the_link_as_it_is(make_stage: MakeStage) -> None:
    """An empty 204 says nothing about the id, so nothing is concluded from it."""
    stage = make_stage(pack=mutable())
    before = stage.linked(1, name="Ada")
    renamed(stage, verbs.answer(204))
    assert stage.link()["remote_id"] == before["remote_id"]
    assert stage.attempts()[-1]["status"] == "finalized"
    assert stage.events(subject="link", event="relocate") == []


def test_an_id_that_cannot_be_used_suspends_the_link(make_stage: MakeStage) -> None:
    """Something stands where the id should be, and it is none: the record may have another id now, nobody guesses."""
    stage = make_stage(pack=mutable())
    before = stage.linked(1, name="Ada")
    renamed(stage, verbs.answer(200, {"id": {"nested": 7}}))
    link = stage.link()
    assert (link["status"], link["reason_code"]) == ("suspended_drift", "remote_changed")
    assert link["remote_id"] == before["remote_id"]


@pytest.mark.rule("C-043")
def test_without_the_declaration_another_id_is_evidence(make_stage: MakeStage) -> None:
    """The link keeps its id and is suspended; the id that the answer named stands in the evidence of the update."""
    stage = make_stage()
    before = stage.linked(1, name="Ada")
    renamed(stage, verbs.answer(200, {"id": "survivor-9"}))
    link = stage.link()
    assert (link["status"], link["remote_id"], link["locator_key"]) == (
        "suspended_drift",
        before["remote_id"],
        before["locator_key"],
    )
    assert json.loads(link["evidence"])["candidates"] == ["survivor-9"]
    assert stage.attempts()[-1]["status"] == "terminal_failed"


@pytest.mark.rule("LK-07")
def test_an_id_that_another_link_owns_is_never_taken_over(make_stage: MakeStage) -> None:
    """The update parks as a conflict that names both records; neither link changes its remote record."""
    stage = make_stage(pack=mutable())
    ada, bob = stage.linked(1, name="Ada"), stage.linked(2, name="Bob")
    renamed(stage, verbs.answer(200, {"id": bob["remote_id"]}))
    link = stage.link(1)
    assert (link["status"], link["reason_code"], link["remote_id"]) == (
        "suspended_drift",
        "locator_conflict",
        ada["remote_id"],
    )
    facts = json.loads(link["evidence"])
    assert facts["owner_link_key"] == bob["link_key"]
    assert facts["owner_record"] == "Person 2"
    assert facts["candidates"] == [bob["remote_id"]]
    assert stage.link(2) == bob
    assert stage.slot(1)["acknowledged_version"] == 1


@pytest.mark.rule("LK-07", "D-17")
def test_two_answers_of_one_group_never_share_a_new_id(make_stage: MakeStage) -> None:
    """The first in the order of link keys gets the id, the other one is a conflict; the group is one transaction."""
    stage = make_stage(pack=mutable())
    for record_id in (1, 2):
        stage.linked(record_id, name=f"Person {record_id}")
        stage.remote.script.next(verbs.answer(200, {"id": "shared-7"}), when=updating)
        stage.save(record_id, name=f"Changed {record_id}")
    paused = [stage.paused_of(claimed).to_send() for claimed in stage.claim()]
    for flow in paused:
        flow.step()
    effects = sorted((flow.effect for flow in paused), key=lambda effect: effect.key)
    stage.database.commit(effects[0].step, effects)
    assert sorted(link["status"] for link in stage.links()) == ["finalized", "suspended_drift"]
    [winner] = [link for link in stage.links() if link["remote_id"] == "shared-7"]
    assert winner["link_key"] == min(link["link_key"] for link in stage.links())


def test_records_that_swap_their_ids_are_left_to_a_person(make_stage: MakeStage) -> None:
    """Each new id is the other link's in this moment, so nothing is overwritten and both are suspended."""
    stage = make_stage(pack=mutable())
    before = {record_id: stage.linked(record_id, name=f"Person {record_id}") for record_id in (1, 2)}
    for record_id, other in ((1, 2), (2, 1)):
        renamed(stage, verbs.answer(200, {"id": before[other]["remote_id"]}), record_id, f"Changed {record_id}")
    for record_id in (1, 2):
        assert stage.link(record_id)["status"] == "suspended_drift"
        assert stage.link(record_id)["remote_id"] == before[record_id]["remote_id"]


def test_a_link_that_was_suspended_meanwhile_is_not_moved(make_stage: MakeStage) -> None:
    """What a person decided while the update was on the wire stands; the new id is evidence beside it."""
    stage = make_stage(pack=mutable())
    before = stage.linked(1, name="Ada")
    stage.remote.script.next(verbs.answer(200, {"id": "fresh-7"}), when=updating)
    stage.save(1, name="Ada L.")
    flow = stage.paused().to_send()
    flow.step()
    stage.sql("UPDATE pushlink_remote_link SET status = 'suspended_drift', row_version = row_version + 1")
    flow.finish()
    link = stage.link()
    assert (link["status"], link["remote_id"]) == ("suspended_drift", before["remote_id"])
    assert stage.attempts()[-1]["status"] == "terminal_failed"
    assert stage.rows("push_response", "received_at,id")[-1]["candidate_id"] == "fresh-7"


def test_an_answer_that_comes_too_late_keeps_the_new_id_as_evidence(make_stage: MakeStage) -> None:
    """The claim was gone when the answer came: the id is stored with it, and the link stays where it was (D-14)."""
    stage = make_stage(pack=mutable())
    before = stage.linked(1, name="Ada")
    stage.remote.script.next(verbs.answer(200, {"id": "fresh-7"}), when=updating)
    stage.save(1, name="Ada L.")
    flow = stage.paused().to_send()
    stage.clock_forward()
    stage.claim()  # recovers the ended lease
    flow.finish()
    kept = stage.rows("push_response", "received_at,id")[-1]
    assert (bool(kept["late"]), kept["candidate_id"]) == (True, "fresh-7")
    assert stage.link()["remote_id"] == before["remote_id"]


def test_the_read_before_an_update_moves_no_link(make_stage: MakeStage) -> None:
    """A GET gives no record another id: one that differs is another record's, and suspends the link."""
    condition = {"kind": "etag", "source": "fresh_get", "fetch": {"version": [{"from": "$response.header.ETag"}]}}
    stage = make_stage(pack=mutable(precondition=condition))
    before = stage.linked(1, name="Ada")
    stage.remote.script.next(verbs.answer(200, {"id": "survivor-9"}, headers=[("ETag", '"v1"')]))
    stage.save(1, name="Ada L.")
    stage.drain()
    link = stage.link()
    assert (link["status"], link["remote_id"]) == ("suspended_drift", before["remote_id"])
