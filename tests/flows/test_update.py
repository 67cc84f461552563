"""Updates: what is wanted, what was sent, what was acknowledged, and what was refused, one request at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa

from flows.stage import PACK, MakeStage, Stage, action_of, pack_with, profile_of
from migration.moves import mapping_named
from pushlink.errors import Code
from pushlink.flows.outcomes import Queued, Refused, Reserved, Unchanged
from pushlink.testing import verbs
from pushlink.testing.messages import updating

ADA = {"name": "Ada", "email": "ada@example.com"}


def updates(stage: Stage) -> list[dict[str, Any]]:
    return stage.attempts(operation="update")


def bodies(stage: Stage) -> list[dict[str, Any]]:
    return [json.loads(request.body) for request in stage.remote.sent if request.method == "PATCH"]


def versions(stage: Stage) -> tuple[int, int, int]:
    slot = stage.slot()
    return slot["wanted_version"], slot["acknowledged_version"], slot["refused_version"]


# --------------------------------------------------------------------------------------- versions


@pytest.mark.rule("D-19", "PA-01", "D-03")
def test_a_changed_record_is_one_update_that_acknowledges_the_version_it_sent(stage: Stage) -> None:
    """The link names the target; afterwards wanted and acknowledged are the same version."""
    stage.linked(1, **ADA)
    assert versions(stage) == (1, 1, 0)
    outcome = stage.save(1, name="Ada L.")
    assert isinstance(outcome, Queued)
    assert outcome.attempt_id == updates(stage)[0]["id"]
    assert (outcome.version, outcome.waits_for) == (2, None)
    assert versions(stage) == (2, 1, 0)
    stage.drain()
    assert bodies(stage) == [{"name": "Ada L.", "email": "ada@example.com"}]
    assert versions(stage) == (2, 2, 0)
    row = updates(stage)[0]
    assert (row["status"], row["update_key"], row["dispatch_lane"]) == ("finalized", None, "configured")


@pytest.mark.rule("D-22")
def test_what_the_remote_has_already_is_not_sent_again(stage: Stage) -> None:
    """Saving again, saving after a mirror write, and saving a field that nobody maps are all `Unchanged`."""
    stage.linked(1, **ADA)
    assert stage.person() == {**stage.person(), "remote_id": "1"}
    for values in ({}, {"salary": "100"}, {"remote_source": "touched"}):
        assert isinstance(stage.save(1, **values), Unchanged)
    assert updates(stage) == []
    stage.drain()
    assert stage.sends == 1


@pytest.mark.rule("D-22", "PA-11")
def test_a_change_that_is_taken_back_before_it_was_sent_sends_nothing(stage: Stage) -> None:
    """The newest wanted values equal the applied ones: the update is superseded and its version acknowledged."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    stage.save(1, name="Ada")
    stage.drain()
    [row] = updates(stage)
    assert (row["status"], row["reason_code"]) == ("superseded", "same_as_applied")
    assert versions(stage) == (3, 3, 0)
    assert stage.sends == 1
    assert isinstance(stage.save(1), Unchanged)


@pytest.mark.rule("PA-11", "D-19")
def test_pending_updates_coalesce_to_the_newest_state(stage: Stage) -> None:
    """Five saves before a worker comes are one update with the last values."""
    stage.linked(1, **ADA)
    for number in range(5):
        stage.save(1, name=f"Ada {number}")
    assert len(updates(stage)) == 1
    stage.drain()
    assert [body["name"] for body in bodies(stage)] == ["Ada 4"]
    assert versions(stage) == (6, 6, 0)


@pytest.mark.rule("PA-11", "D-19")
def test_updates_of_one_link_never_overlap_and_never_overtake(stage: Stage) -> None:
    """While one is on the wire, newer saves wait; what it acknowledges is what it sent, and one more follows."""
    stage.linked(1, **ADA)
    stage.save(1, name="second")
    flow = stage.paused().to_send()
    assert isinstance(stage.save(1, name="third"), Queued)
    outcome = stage.save(1, name="fourth")
    assert isinstance(outcome, Queued)
    assert stage.claim(by=stage.worker()) == []
    assert len(updates(stage)) == 1
    flow.finish()
    assert versions(stage) == (4, 2, 0)
    assert [row["status"] for row in updates(stage)] == ["finalized", "pending"]
    stage.drain()
    assert [body["name"] for body in bodies(stage)] == ["second", "fourth"]
    assert versions(stage) == (4, 4, 0)


@pytest.mark.rule("PA-11", "PA-10")
@pytest.mark.parametrize("ends", ["same as applied", "does not render"])
def test_a_save_between_claim_and_settlement_is_not_lost(stage: Stage, ends: str) -> None:
    """A claim read the slot, a save left its values to that open update, and it ends unsent: another one follows."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    if ends == "same as applied":
        stage.save(1, name="Ada")
    else:
        stage.sql("UPDATE pushlink_remote_link SET remote_id = '..'")
    flow = stage.paused()
    if ends == "does not render":
        stage.sql("UPDATE pushlink_remote_link SET remote_id = '1'")
    assert isinstance(stage.save(1, name="Countess"), Queued)
    flow.finish()
    stage.drain()
    assert bodies(stage)[-1]["name"] == "Countess"
    assert stage.remote.api.records[0].document["name"] == "Countess"


@pytest.mark.rule("D-19", "PA-11")
def test_an_update_that_was_given_back_gives_way_whole_to_a_newer_version(stage: Stage) -> None:
    """Rendered, throttled, and outdated, before or while it was on the wire: only the newest is sent again."""
    stage.linked(1, **ADA)
    stage.remote.script.next(verbs.answer(429), verbs.answer(429), when=updating)
    stage.save(1, name="second")
    stage.drain()
    assert updates(stage)[0]["status"] == "pending"
    outcome = stage.save(1, name="third")
    assert isinstance(outcome, Queued)
    assert [row["status"] for row in updates(stage)] == ["superseded", "pending"]
    stage.clock_forward()
    flow = stage.paused().to_send()
    stage.save(1, name="fourth")
    flow.finish()
    stage.clock_forward()
    stage.drain()
    assert [body["name"] for body in bodies(stage)] == ["second", "third", "fourth"]
    assert versions(stage) == (4, 4, 0)


@pytest.mark.rule("D-19")
def test_a_refused_version_is_remembered_and_not_sent_again_by_itself(stage: Stage) -> None:
    """422: the version is refused, the same values are refused at the save, other values go out again."""
    stage.linked(1, **ADA)
    stage.remote.script.next(verbs.answer(422, {"error": "name"}))
    stage.save(1, name="bad")
    stage.drain()
    row = updates(stage)[0]
    assert (row["status"], row["reason_code"], row["update_key"]) == ("terminal_failed", "remote_rejected", None)
    assert versions(stage) == (2, 1, 2)
    outcome = stage.save(1)
    assert isinstance(outcome, Refused)
    assert (outcome.code, outcome.next_verbs) == (Code.VERSION_REFUSED, ("release-version",))
    stage.clock_forward()
    stage.drain()
    assert stage.sends == 2
    assert stage.link()["status"] == "finalized"
    assert isinstance(stage.save(1, name="good"), Queued)
    stage.drain()
    assert versions(stage) == (3, 3, 2)
    assert stage.remote.api.records[0].document["name"] == "good"


@pytest.mark.rule("D-19", "PA-06", "AU-03")
def test_a_version_carries_all_values_of_its_own_author(stage: Stage) -> None:
    """Two authors' saves are not merged: the later one's values and authority are what is sent."""
    stage.linked(1, **ADA)
    stage.save(1, name="from ann", user="ann")
    stage.save(1, email="bob@example.com", user="bob")
    stage.drain()
    assert bodies(stage) == [{"name": "from ann", "email": "bob@example.com"}]
    [request] = stage.rows("push_request", attempt_id=updates(stage)[0]["id"])
    assert json.loads(request["authority"])["content"]["user_id"] == "bob"


# --------------------------------------------------------------------------------------- follow-ups of a create


@pytest.mark.rule("C-082", "PA-10", "RR-02", "D-19", "D-21")
def test_saves_while_the_create_is_in_flight_become_one_update_of_the_finalizing_transaction(stage: Stage) -> None:
    """Save, POST in flight, save, save: one attempt, one wanted version, one update when the link finalizes, 1 POST."""
    stage.save(1, **ADA)
    flow = stage.paused().to_send()
    for name in ("second", "third"):
        outcome = stage.save(1, name=name, user="bob")
        assert isinstance(outcome, Queued)
        assert outcome.waits_for is Code.CREATE_ACTIVE
    assert len(stage.attempts()) == 1
    flow.step()
    assert updates(stage) == []
    flow.step()  # the result transaction: link, acknowledged version and follow-up together
    assert stage.link()["status"] == "finalized"
    [row] = updates(stage)
    assert (row["status"], row["version"]) == ("pending", 3)
    flow.finish()
    stage.drain()
    assert [request.method for request in stage.remote.sent] == ["POST", "PATCH"]
    assert bodies(stage)[0]["name"] == "third"
    assert versions(stage) == (3, 3, 0)


@pytest.mark.rule("D-21")
def test_a_create_that_waits_for_its_mirror_does_not_hold_updates(stage: Stage) -> None:
    """Once the link is finalized an update goes its way, whatever the mirror does."""
    stage.save(1, **ADA)
    flow = stage.paused().to_send()
    flow.step()
    flow.step()
    assert stage.attempts()[0]["status"] == "writeback_commit_pending"
    assert isinstance(stage.save(1, name="Ada L."), Queued)
    stage.run(stage.claim())
    assert bodies(stage)[0]["name"] == "Ada L."
    flow.finish()
    assert stage.attempts()[0]["status"] == "finalized"


# --------------------------------------------------------------------------------------- the remote is another one


@pytest.mark.rule("PA-08", "RR-08", "DR-24", "D-23")
@pytest.mark.parametrize("status", [404, 410, 403])
def test_a_remote_that_is_gone_suspends_the_link_and_is_never_replaced(stage: Stage, status: int) -> None:
    """Under a credential that was accepted in this run: suspended in the same transaction, later saves refused."""
    stage.linked(1, **ADA)
    stage.remote.script.next(verbs.answer(status, {}))
    stage.save(1, name="Ada L.")
    flow = stage.paused().to_send()
    flow.step()
    flow.step()
    row, link = updates(stage)[0], stage.link()
    assert (row["status"], link["status"]) == ("terminal_failed", "suspended_drift")
    assert (row["reason_code"], link["reason_code"]) == ("remote_gone", "remote_gone")
    assert versions(stage) == (2, 1, 0)
    outcome = stage.save(1, name="again")
    assert isinstance(outcome, Refused)
    assert outcome.code is Code.LINK_SUSPENDED
    stage.clock_forward()
    stage.drain()
    assert stage.sends == 2
    assert stage.remote.api.creates == 1


@pytest.mark.rule("D-23")
def test_gone_needs_a_proven_credential(make_stage: MakeStage) -> None:
    """404 before this credential was ever accepted in this run is an authentication problem; acceptance settles it."""
    first = make_stage()
    first.linked(1, **ADA)
    stage = make_stage(pack=None, remote=first.remote)  # another process: nothing is proven there
    stage.remote.script.always(verbs.answer(404), when=updating)
    stage.save(1, name="Ada L.")
    stage.drain()
    row = updates(stage)[0]
    assert (row["status"], row["hold_code"], row["reason_code"]) == ("pending", "credential", "unauthenticated")
    assert stage.link()["status"] == "finalized"
    stage.save(2, name="Bea", email="b@example.com")
    stage.drain()
    assert stage.link(2)["status"] == "finalized"
    stage.clock_forward()
    stage.drain()
    assert stage.link(1)["status"] == "suspended_drift"


@pytest.mark.rule("C-067", "D-05", "D-23")
def test_a_second_401_holds_every_attempt_of_that_credential_until_it_is_another(make_stage: MakeStage) -> None:
    """One 401 goes back once; the second holds the profile; with a new generation the holds are looked at again."""
    waived = pack_with(lambda d: profile_of(d).update(waives={"credential_generation": True}))
    stage = make_stage(pack=waived)
    stage.linked(3, name="Cleo", email="c@example.com")
    stage.remote.script.always(verbs.answer(401, headers=[("WWW-Authenticate", "Bearer")]))
    stage.save(1, **ADA)
    stage.drain()
    assert (stage.attempts()[-1]["status"], stage.attempts()[-1]["hold_code"]) == ("pending", None)
    stage.clock_forward()
    stage.drain()
    row = stage.attempts()[-1]
    assert (row["status"], row["hold_code"], row["retry_count"]) == ("pending", "credential", 0)
    sends = stage.sends
    stage.save(2, name="Bea", email="b@example.com")
    stage.save(3, name="Cleo C.")
    stage.clock_forward()
    stage.drain()
    assert stage.sends == sends
    waiting = [r for r in stage.attempts() if r["status"] == "pending"]
    assert [r["hold_code"] for r in waiting] == ["credential"] * 3
    stage.remote.script.calm()
    stage.credentials.current = "generation-2"
    stage.clock_forward()
    stage.drain()
    assert {r["status"] for r in stage.attempts()} == {"finalized"}
    assert stage.remote.api.creates == 3


@pytest.mark.rule("PA-12", "DR-25")
@pytest.mark.parametrize("status", [409, 412, 301, 308])
def test_an_answer_that_says_another_record_suspends_the_link(stage: Stage, status: int) -> None:
    """A conflict, a failed precondition or a record that moved: nothing is overwritten, nothing is created."""
    stage.linked(1, **ADA)
    stage.remote.script.next(verbs.answer(status, {}, headers=[("Location", "https://api.example.com/v2/people/9")]))
    stage.save(1, name="Ada L.")
    stage.drain()
    assert (updates(stage)[0]["status"], stage.link()["status"]) == ("terminal_failed", "suspended_drift")
    assert stage.sends == 2


@pytest.mark.rule("PA-12", "DR-25")
def test_an_answer_that_shows_another_record_suspends_the_link(stage: Stage) -> None:
    """200 with a body that names another id: merged, or the wrong route."""
    stage.linked(1, **ADA)
    stage.remote.script.next(verbs.answer(200, {"id": 999}))
    stage.save(1, name="Ada L.")
    stage.drain()
    assert stage.link()["status"] == "suspended_drift"
    assert stage.link()["remote_id"] == "1"


@pytest.mark.rule("D-20", "PO-07")
def test_an_ambiguous_update_blocks_later_ones_until_it_is_settled(stage: Stage) -> None:
    """Its versions wait; nothing is sent on a guess; the link stays finalized."""
    stage.linked(1, **ADA)
    stage.remote.script.next(verbs.store_then_close())
    stage.save(1, name="second")
    stage.drain()
    row = updates(stage)[0]
    assert (row["status"], row["in_doubt"]) == ("ambiguous_remote_effect", True)
    assert row["update_key"]
    for name in ("third", "fourth"):
        outcome = stage.save(1, name=name)
        assert isinstance(outcome, Queued)
        assert outcome.waits_for is Code.UPDATE_AMBIGUOUS
    stage.clock_forward(days=30)
    stage.drain()
    assert stage.sends == 2
    assert len(updates(stage)) == 1
    assert versions(stage) == (4, 1, 0)
    assert stage.link()["status"] == "finalized"
    assert stage.slot()["applied_values_digest"] is None  # what the remote has now nobody knows


# --------------------------------------------------------------------------------------- drift and deletion


@pytest.mark.rule("PA-04", "DR-13", "D-11")
def test_an_update_that_meets_drift_is_held_and_heals_when_it_is_undone(stage: Stage) -> None:
    """The mapping changed after the save: held with the surface named; with the old mapping back it is sent."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    stage.apply(pack_with(lambda d: action_of(d)["mappings"].append({"source": "owner", "target": "/owner"})))
    stage.drain()
    row = updates(stage)[0]
    assert (row["status"], row["hold_code"]) == ("pending", "drift")
    assert "mapping" in json.loads(row["detail"])["surfaces"]
    assert stage.sends == 1
    stage.apply(pack_with())
    stage.drain()
    assert bodies(stage) == [{"name": "Ada L.", "email": "ada@example.com"}]


@pytest.mark.rule("DR-11", "PA-04", "D-11")
def test_a_credential_that_changes_back_heals_what_it_held(stage: Stage) -> None:
    """Another generation refuses; holds are looked at again when the credential changes, not only the catalogue."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    stage.credentials.current = "generation-2"
    stage.drain()
    assert updates(stage)[0]["hold_code"] == "drift"
    assert stage.sends == 1
    stage.credentials.current = "generation-1"
    stage.clock_forward()
    stage.drain()
    assert updates(stage)[0]["status"] == "finalized"


def without_slot(document: dict[str, Any]) -> None:
    action_of(document).update(action_slot_id="act-2")


@pytest.mark.rule("DR-03", "LK-05", "ID-04")
def test_the_first_touch_of_a_link_without_its_slot_suspends_it(stage: Stage) -> None:
    """The pack dropped the action slot while an update waited: the claim suspends the link and ends the update."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    stage.apply(pack_with(without_slot))
    stage.drain()
    row, link = updates(stage)[0], stage.link()
    assert (row["status"], row["reason_code"]) == ("superseded", "link_suspended")
    assert (link["status"], link["reason_code"]) == ("suspended_drift", "drift")
    assert "DR-03" in json.loads(link["evidence"])["rules"]
    assert stage.sends == 1
    stage.apply(pack_with())
    outcome = stage.save(1, name="again")
    assert isinstance(outcome, Refused)
    assert outcome.code is Code.LINK_SUSPENDED


@pytest.mark.rule("DR-23", "PO-03")
def test_an_update_of_a_deleted_source_is_not_sent(stage: Stage) -> None:
    """The link stays as evidence; the update is superseded."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    stage.drop(1)
    stage.drain()
    assert (updates(stage)[0]["status"], updates(stage)[0]["reason_code"]) == ("superseded", "source_gone")
    assert stage.link()["status"] == "finalized"
    assert stage.sends == 1


@pytest.mark.rule("PA-10", "C-097")
def test_a_wanted_version_without_a_carrier_is_carried_by_the_next_save(stage: Stage) -> None:
    """Its update ended with a deleted source; the record comes back with the very same values, and they are sent."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    stage.drop(1)
    stage.drain()
    stage.put(1, name="Ada L.", email="ada@example.com", remote_id="1", remote_source="people")
    outcome = stage.save(1)
    assert isinstance(outcome, Queued)
    stage.drain()
    assert stage.remote.api.records[0].document["name"] == "Ada L."
    assert isinstance(stage.save(1), Unchanged)


@pytest.mark.rule("PA-07", "D-21")
def test_the_checkpoint_sees_a_link_that_was_suspended_after_the_claim(stage: Stage) -> None:
    """The link is read again, share-locked, in the checkpoint's own transaction."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    flow = stage.paused()
    stage.sql("UPDATE pushlink_remote_link SET status = 'suspended_drift', row_version = row_version + 1")
    flow.finish()
    stage.drain()
    assert stage.sends == 1
    assert updates(stage)[0]["status"] == "superseded"


@pytest.mark.rule("PA-08", "D-10")
def test_old_evidence_does_not_undo_what_an_operator_did_meanwhile(stage: Stage) -> None:
    """A 404 for a record whose link was relocated while the request was on the wire says nothing about the new one."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    stage.remote.script.next(verbs.answer(404))
    flow = stage.paused().to_send()
    stage.sql("UPDATE pushlink_remote_link SET remote_id = '77', row_version = row_version + 1")
    flow.finish()
    assert stage.link()["status"] == "finalized"


@pytest.mark.rule("PA-08")
def test_evidence_of_a_gone_record_outlives_a_bump_of_the_links_row(stage: Stage, engine: sa.Engine) -> None:
    """The link is suspended on what it is now, not on the row version that the claim had read."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    stage.remote.script.next(verbs.answer(404))
    flow = stage.paused().to_send()
    stage.sql("UPDATE pushlink_remote_link SET row_version = row_version + 1")
    flow.finish()
    assert stage.link()["status"] == "suspended_drift"


# --------------------------------------------------------------------------------------- crashes


@pytest.mark.rule("DL-06", "RR-03")
def test_an_update_whose_worker_died_before_the_checkpoint_is_sent_once(stage: Stage) -> None:
    """Nothing was started: pending again with one more retry, then one PATCH."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    stage.paused()
    stage.clock_forward()
    stage.drain()
    row = updates(stage)[0]
    assert (row["status"], row["retry_count"]) == ("finalized", 1)
    assert len(bodies(stage)) == 1


@pytest.mark.rule("DL-06")
def test_an_update_that_nobody_answers_for_is_parked(stage: Stage) -> None:
    """Its worker died before anything began, and the author of what it was to send is nowhere any more."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    stage.paused()
    stage.sql("UPDATE pushlink_push_slot SET wanted_authority = NULL")
    stage.clock_forward()
    stage.drain()
    row = updates(stage)[0]
    assert (row["status"], row["reason_code"]) == ("ambiguous_remote_effect", "authority_unavailable")
    assert not row["in_doubt"]
    assert stage.events(attempt_id=row["id"])[-1]["event"] == "recover_unauthorised"
    assert bodies(stage) == []


@pytest.mark.rule("DL-06", "DL-07", "D-20")
@pytest.mark.parametrize("is_sent", [False, True], ids=["checkpointed", "sent"])
def test_an_update_whose_worker_died_after_the_checkpoint_is_parked(stage: Stage, is_sent: bool) -> None:
    """The checkpoint precedes the first byte, so nobody can say what happened: ambiguous, never replayed."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    flow = stage.paused().to_send()
    assert updates(stage)[0]["remote_io_started_at"] is not None
    if is_sent:
        flow.step()
    stage.clock_forward()
    stage.drain()
    assert updates(stage)[0]["status"] == "ambiguous_remote_effect"
    assert len(bodies(stage)) == int(is_sent)


@pytest.mark.rule("AT-03")
def test_an_update_needs_no_ordinal_and_takes_no_create_slot(stage: Stage) -> None:
    """The create ordinal counts reservations of creates alone."""
    outcome = stage.save(1, **ADA)
    assert isinstance(outcome, Reserved)
    stage.drain()
    stage.save(1, name="Ada L.")
    stage.drain()
    assert stage.slot()["create_ordinal"] == 1
    assert updates(stage)[0]["ordinal"] == 0


@pytest.mark.rule("D-21", "D-36")
def test_a_host_that_lives_through_a_restore_compares_with_the_packs_of_now(stage: Stage) -> None:
    """A restored catalogue counts from an older number, so the same number comes again for another pack."""
    stage.linked(1, name="Ada", email="ada@example.com")
    stage.apply(mapping_named("/full_name"))
    refused = stage.save(1, name="Ada L.")
    assert isinstance(refused, Refused)
    assert refused.code == Code.DRIFT
    [number] = {row["catalog_revision"] for row in stage.rows("deployment")}
    stage.clock_forward()
    stage.sql("UPDATE pushlink_deployment SET catalog_revision = catalog_revision - 1")
    stage.apply(PACK)
    assert {row["catalog_revision"] for row in stage.rows("deployment")} == {number}
    assert isinstance(stage.save(1, name="Ada L."), Queued)
