"""What an operator does about a create: adopt, confirm absent, supersede, let go on, abandon, dispose."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence

import pytest
import sqlalchemy as sa

from flows.stage import USER, MakeStage, Stage, action_of, pack_with, profile_of
from operations.operators import (
    ADA,
    WHY,
    actions,
    create_of,
    decide,
    failed_create,
    lost_create,
    refused,
    settle,
)
from pushlink.adapters.policy import AllowAllAuthority
from pushlink.errors import CallerError, Code
from pushlink.operations.actions import OperatorTerms
from pushlink.operations.verifying import verify
from pushlink.protocol.verbs import Verb
from pushlink.store.access import reading
from pushlink.testing import verbs
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.messages import creating
from pushlink.testing.scripted import ScriptedTransport

# --------------------------------------------------------------------------------------- adopt


@pytest.mark.rule("D-08", "C-007", "C-008", "SY-03", "AT-12")
@pytest.mark.parametrize(
    "answer", [verbs.store_then_answer(500), verbs.store_then_answer(504), verbs.store_then_close()]
)
def test_an_adopted_id_is_written_back_and_nothing_is_posted(stage: Stage, answer: verbs.Verb) -> None:
    """PARK, then explicit `writeback_pending`, then finalized with its mirror: one POST in all."""
    stage.remote.script.next(answer, when=creating)
    stage.save(1, **ADA)
    stage.drain()
    parked = create_of(stage)
    assert parked["status"] == "ambiguous_remote_effect"
    [remote_id] = [str(record.id) for record in stage.remote.api.records]
    done = decide(stage, Verb.ADOPT, parked, argument=remote_id)
    assert (done.before, done.after, done.remote_id) == (
        "create/ambiguous_remote_effect",
        "writeback_pending",
        remote_id,
    )
    stage.drain()
    assert create_of(stage)["status"] == "finalized"
    assert (stage.link()["remote_id"], stage.link()["status"]) == (remote_id, "finalized")
    person = stage.person()
    assert person is not None
    assert person["remote_id"] == remote_id
    assert len(stage.remote.api.records) == 1


@pytest.mark.rule("SY-03", "AT-11")
def test_a_decision_is_in_the_history_and_in_the_audit_with_who_and_why(stage: Stage) -> None:
    """One transition event by that operator, one sealed action with reason, before and after."""
    parked = lost_create(stage)
    decide(stage, Verb.ADOPT, parked, argument="7")
    [event] = stage.events(event="adopt")
    assert (event["actor"], event["from_status"], event["to_status"]) == (
        "operator:olga",
        "ambiguous_remote_effect",
        "writeback_pending",
    )
    [action] = actions(stage)
    assert (action["actor"], action["verb"], action["reason"]) == ("olga", "reconcile adopt", WHY)
    assert json.loads(action["before"])["row_version"] == parked["row_version"]
    assert json.loads(action["after"])["status"] == "writeback_pending"
    with reading(stage.engine) as conn:
        assert verify(conn).broken == ()


def test_an_adopted_id_acknowledges_no_version(stage: Stage) -> None:
    """Nobody knows what the found record holds, so the update that follows carries the whole body."""
    parked = lost_create(stage)
    decide(stage, Verb.ADOPT, parked, argument=str(stage.remote.api.records[0].id))
    stage.drain()
    [update] = stage.attempts(operation="update")
    assert update["status"] == "finalized"
    assert stage.slot()["acknowledged_version"] == 1


@pytest.mark.rule("C-026", "C-029", "D-27")
def test_a_duplicate_answer_is_adopted_by_a_person_alone(stage: Stage) -> None:
    """A 409 that names an id ends the create; its candidate is taken over only by `adopt`."""
    ended = failed_create(stage, verbs.answer(409, {"id": "6001"}))
    assert ended["status"] == "terminal_failed"
    assert ended["remote_id"] is None
    assert "6001" in ended["detail"]
    assert decide(stage, Verb.ADOPT, ended, argument="6001").after == "writeback_pending"


@pytest.mark.rule("C-026", "LK-03", "D-15")
def test_an_id_of_another_live_link_is_not_adopted_and_both_owners_are_named(stage: Stage) -> None:
    """One remote record has one owner: the refusal names the one that has it and the one that asks."""
    owner = stage.linked(2)
    ended = failed_create(stage, verbs.answer(409, {"id": owner["remote_id"]}))
    error = refused(stage, Verb.ADOPT, ended, argument=owner["remote_id"])
    assert error.evidence["owner_link_key"] == owner["link_key"]
    assert error.evidence["owner_record"] == "Person 2"
    assert error.evidence["claimed_by_link_key"] == ended["link_key"]


@pytest.mark.rule("D-25")
@pytest.mark.parametrize("text", ["people", "two words", "7\n", ""])
def test_what_is_no_id_at_that_remote_is_not_adopted(stage: Stage, text: str) -> None:
    """The action's own rule judges what a person types, as it judges an answer."""
    parked = lost_create(stage)
    refused(stage, Verb.ADOPT, parked, argument=text, code=Code.CALLER_MISTAKE)


# --------------------------------------------------------------------------------------- absent


@pytest.mark.rule("D-08", "C-016")
def test_absence_is_confirmed_only_after_the_settle_time(stage: Stage) -> None:
    """Deadline, pause and processing time after the last checkpoint: until then a straggler may still land."""
    stage.remote.script.next(verbs.close_after_read(), when=creating)
    stage.save(1, **ADA)
    stage.drain()
    parked = create_of(stage)
    profile_s = 30 + 600  # the call's deadline and the remote's processing time of a profile that declares neither
    stage.fixed.set(parked["last_checkpoint_at"] + dt.timedelta(seconds=profile_s + 600 - 1))
    error = refused(stage, Verb.ABSENT, parked)
    assert str(error.evidence["settles_at"]).startswith("2025-")
    stage.fixed.advance(seconds=1)
    done = decide(stage, Verb.ABSENT, parked)
    assert done.after == "terminal_failed"
    row = create_of(stage)
    assert (row["reason_code"], row["in_doubt"]) == ("confirmed_absent", False)


@pytest.mark.rule("D-08", "D-14", "D-09")
def test_absence_is_refused_while_a_late_answer_names_an_id(stage: Stage) -> None:
    """The answer came after its claim was lost: the record is there. Adopt it, or dispose of the id first."""
    parked = late_answer(stage)
    settle(stage)
    [remote_id] = [str(record.id) for record in stage.remote.api.records]
    assert refused(stage, Verb.ABSENT, parked).evidence["named"] == [remote_id]
    refused(stage, Verb.DISPOSE, parked, argument="another")
    decide(stage, Verb.DISPOSE, parked, argument=remote_id)
    assert decide(stage, Verb.ABSENT, create_of(stage), approver="peter").after == "terminal_failed"


def late_answer(stage: Stage) -> dict[str, object]:
    """An answer that names the id, after its worker had lost the row."""
    stage.save(1, **ADA)
    flow = stage.paused().to_send()
    stage.clock_forward()
    stage.drain()
    flow.finish()
    return create_of(stage)


@pytest.mark.rule("D-08")
def test_a_stored_success_is_called_absent_by_two_people_only(stage: Stage) -> None:
    """The remote said that it was done: one person alone may not say that it was not."""
    stage.remote.script.next(verbs.answer(201, {"no": "id"}), when=creating)
    stage.save(1, **ADA)
    stage.drain()
    settle(stage)
    parked = create_of(stage)
    assert refused(stage, Verb.ABSENT, parked).evidence["needs"] == "approver"
    refused(stage, Verb.ABSENT, parked, approver="olga", code=Code.NOT_PERMITTED)
    decide(stage, Verb.ABSENT, parked, approver="peter")
    assert [row["approver"] for row in actions(stage)] == ["peter"]


# --------------------------------------------------------------------------------------- supersede


@pytest.mark.rule("AT-03", "RR-06", "D-08")
def test_only_after_supersede_is_there_another_create(stage: Stage) -> None:
    """Ambiguous, absent, superseded, a new attempt: ordinal 2, another idempotency key, and the wanted POST."""
    stage.remote.script.next(verbs.close_after_read(), when=creating)
    stage.save(1, **ADA)
    stage.drain()
    settle(stage)
    decide(stage, Verb.ABSENT, create_of(stage))
    ended = create_of(stage)
    assert decide(stage, Verb.SUPERSEDE, ended).after == "superseded"
    stage.save(1, name="Ada L.")
    stage.drain()
    first, second = stage.attempts(operation="create")
    assert (first["ordinal"], first["status"], first["create_key"]) == (1, "superseded", None)
    assert (second["ordinal"], second["status"]) == (2, "finalized")
    keys = {row["idempotency_key"] for row in stage.rows("push_request", "attempt_id")}
    assert len(keys) == 2


@pytest.mark.rule("AT-03", "D-19")
def test_supersede_reserves_the_newest_wanted_version_under_its_own_authors_authority(stage: Stage) -> None:
    """The values of the newest save, frozen by its author, in the transaction that freed the place."""
    ended = failed_create(stage)
    stage.save(1, user="eve", name="Ada Lovelace")
    done = decide(stage, Verb.SUPERSEDE, ended, reserve=True)
    made = create_of(stage)
    assert (made["id"], made["status"], made["ordinal"], made["version"]) == (done.made, "pending", 2, 2)
    [request] = stage.rows("push_request", attempt_id=made["id"])
    assert json.loads(request["body"])["name"] == "Ada Lovelace"
    assert '"user_id":"eve"' in request["authority"]
    stage.drain()
    assert create_of(stage)["status"] == "finalized"
    person = stage.person()
    assert person is not None
    assert person["remote_id"] == stage.link()["remote_id"]
    assert stage.slot()["acknowledged_version"] == 2


@pytest.mark.rule("DR-15")
def test_supersede_shows_the_create_path_of_now_beside_the_old_one(stage: Stage) -> None:
    """What is validated with it is in the audit."""
    ended = failed_create(stage)
    stage.apply(pack_with(lambda document: action_of(document)["create"].update(path="/persons")))
    decide(stage, Verb.SUPERSEDE, ended, reserve=True)
    evidence = json.loads(actions(stage)[-1]["evidence"])
    assert evidence["create_path"].pop("fingerprint").startswith("create_path")
    assert evidence["create_path"] == {"frozen": "/people", "current": "/persons"}
    [request] = stage.rows("push_request", attempt_id=create_of(stage)["id"])
    assert request["path"] == "/persons"


@pytest.mark.parametrize("change", ["mapping", "deleted", "uninstalled"])
def test_supersede_with_reserve_is_refused_whole_where_a_save_would_be(stage: Stage, change: str) -> None:
    """Neither half of it happens: the place stays occupied."""
    ended = failed_create(stage)
    if change == "mapping":
        stage.apply(pack_with(lambda document: action_of(document)["mappings"].pop()))
    elif change == "deleted":
        stage.drop(1)
    else:
        stage.uninstall()
    refused(stage, Verb.SUPERSEDE, ended, reserve=True)
    assert create_of(stage)["status"] == "terminal_failed"


@pytest.mark.rule("D-09")
def test_a_late_id_forbids_supersede_until_it_is_disposed_of(stage: Stage) -> None:
    """The create ended, and then an answer came that names a record: a second POST would make another one."""
    stage.save(1, **ADA)
    flow = stage.paused().to_send()
    stage.clock_forward()
    stage.drain()
    settle(stage)
    decide(stage, Verb.ABSENT, create_of(stage))
    flow.finish()
    ended = create_of(stage)
    [remote_id] = refused(stage, Verb.SUPERSEDE, ended).evidence["named"]
    decide(stage, Verb.DISPOSE, ended, argument=remote_id)
    assert decide(stage, Verb.SUPERSEDE, create_of(stage)).after == "superseded"


@pytest.mark.rule("SY-03")
@pytest.mark.parametrize("verb", [Verb.SUPERSEDE, Verb.ABSENT])
def test_settings_can_ask_for_a_second_principal(stage: Stage, verb: Verb) -> None:
    """Another one than the actor has to agree, and is in the audit."""
    terms = OperatorTerms(second_principal=True)
    row = failed_create(stage) if verb is Verb.SUPERSEDE else lost_create(stage)
    settle(stage)
    assert refused(stage, verb, row, terms=terms).evidence["needs"] == "approver"
    refused(stage, verb, row, terms=terms, approver="olga", code=Code.NOT_PERMITTED)
    decide(stage, verb, row, terms=terms, approver="peter")
    assert actions(stage)[-1]["approver"] == "peter"


# --------------------------------------------------------------------------------------- what is stored


@pytest.mark.rule("D-14", "D-08")
def test_reading_a_late_answer_again_adopts_the_id_that_it_names(stage: Stage) -> None:
    """The receipt is there; nothing is sent and nobody types the id."""
    parked = late_answer(stage)
    done = decide(stage, Verb.REINTERPRET, parked)
    assert done.remote_id == str(stage.remote.api.records[0].id)
    stage.drain()
    assert create_of(stage)["status"] == "finalized"


@pytest.mark.rule("D-06", "D-14")
def test_reading_a_late_refusal_of_the_only_send_again_ends_the_create(stage: Stage) -> None:
    """Every send of it is proved not applied, so no settle time is waited for."""
    stage.remote.script.next(verbs.answer(422, {"error": "no"}), when=creating)
    parked = late_answer(stage)
    done = decide(stage, Verb.REINTERPRET, parked)
    assert (done.after, create_of(stage)["reason_code"]) == ("terminal_failed", "remote_rejected")


@pytest.mark.rule("D-06")
def test_reading_again_settles_nothing_that_is_unknown(stage: Stage) -> None:
    """A send without an answer stays in doubt."""
    parked = lost_create(stage)
    assert "read again" in refused(stage, Verb.REINTERPRET, parked).message


@pytest.mark.rule("D-07")
@pytest.mark.parametrize("verb", [Verb.REPLAY, Verb.LOOKUP])
def test_a_replay_and_a_look_up_need_a_declared_contract(stage: Stage, verb: Verb) -> None:
    """Without one they are refused with that reason."""
    parked = lost_create(stage)
    assert "contract" in refused(stage, verb, parked).message


# --------------------------------------------------------------------------------------- holds


@pytest.mark.rule("D-16")
def test_a_poisoned_row_goes_on_with_a_fresh_count(stage: Stage) -> None:
    """`unhold` gives it as many claims as it had at first."""
    stage.save(1, **ADA)
    stage.sql("UPDATE pushlink_push_attempt SET claim_count = 99")
    stage.drain()
    held = create_of(stage)
    assert held["hold_code"] == "poison"
    decide(stage, Verb.UNHOLD, held)
    stage.drain()
    assert create_of(stage)["status"] == "finalized"


@pytest.mark.rule("C-067", "SY-03")
@pytest.mark.parametrize("is_mended", [True, False])
def test_a_refused_credential_that_was_mended_at_the_remote_is_vouched_for(stage: Stage, is_mended: bool) -> None:
    """The secret stays what it was: one `unhold` lets all that wait for it go on, or be refused anew."""
    stage.linked(3, **ADA)
    stage.remote.script.always(verbs.answer(401, headers=[("WWW-Authenticate", "Bearer")]))
    stage.save(1, **ADA)
    stage.save(3, name="Ada L.")
    for _ in range(3):
        stage.clock_forward()
        stage.drain()
    waiting = stage.attempts(status="pending")
    assert [row["hold_code"] for row in waiting] == ["credential"] * 2
    sends = stage.sends
    if is_mended:
        stage.remote.script.calm()
    decide(stage, Verb.UNHOLD, waiting[-1])
    [action] = actions(stage)
    said = json.loads(action["evidence"])["credential"]
    assert (said["was_refused"], "generation" in said) == (True, False)
    for _ in range(3):
        stage.clock_forward()
        stage.drain()
    rows = {row["hold_code"] for row in stage.attempts()}
    assert rows == ({None} if is_mended else {None, "credential"})
    assert stage.sends > sends
    if is_mended:
        assert {row["status"] for row in stage.attempts()} == {"finalized"}
    else:
        sends = stage.sends
        stage.clock_forward()
        stage.drain()
        assert stage.sends == sends


@pytest.mark.rule("D-09")
def test_the_id_of_a_mirror_that_only_waits_is_not_disposed_of(stage: Stage) -> None:
    """Only a conflict parts an attempt from an id that it knows."""
    stage.remote.script.next(verbs.store_then_answer(500), when=creating)
    stage.save(1, **ADA)
    stage.drain()
    [remote_id] = [str(record.id) for record in stage.remote.api.records]
    decide(stage, Verb.ADOPT, create_of(stage), argument=remote_id)
    waiting = create_of(stage)
    assert (waiting["status"], waiting["hold_code"]) == ("writeback_pending", None)
    refused(stage, Verb.DISPOSE, waiting, argument=remote_id)
    stage.drain()
    assert stage.link()["remote_id"] == remote_id


@pytest.mark.rule("D-38")
def test_a_row_that_waited_too_long_goes_on_when_somebody_says_so(make_stage: MakeStage) -> None:
    """Its time is over for good, not for one claim."""
    stage = make_stage(pack=pack_with(lambda document: profile_of(document).update(expires_after="1h")))
    stage.save(1, **ADA)
    stage.fixed.advance(hours=2)
    stage.drain()
    held = create_of(stage)
    assert held["hold_code"] == "expired"
    decide(stage, Verb.UNHOLD, held)
    stage.drain()
    assert create_of(stage)["status"] == "finalized"


class Everybody(AllowAllAuthority):
    """Lets everybody read, and knows who has left."""

    gone = frozenset[str]()

    def users_active(self, conn: sa.Connection, user_ids: Sequence[str]) -> list[bool]:
        return [user not in self.gone for user in user_ids]


@pytest.mark.rule("D-38")
def test_what_an_author_who_left_wanted_goes_on_when_somebody_vouches_for_it(make_stage: MakeStage) -> None:
    """`unhold` lets this attempt go, though its author stays inactive; another one is held as before."""
    authority = Everybody()
    stage = make_stage(authority=authority)
    stage.save(1, **ADA)
    stage.save(2, name="Eve", email="eve@example.com")
    authority.gone = frozenset({USER})
    stage.drain()
    assert {create_of(stage, number)["hold_code"] for number in (1, 2)} == {"user_inactive"}
    decide(stage, Verb.UNHOLD, create_of(stage))
    stage.drain()
    assert create_of(stage)["status"] == "finalized"
    assert create_of(stage, 2)["hold_code"] == "user_inactive"


@pytest.mark.rule("D-06", "D-36")
def test_a_restored_database_has_answers_for_what_it_remembers_only(stage: Stage) -> None:
    """A stored refusal proves nothing of sends that were forgotten."""
    stage.remote.script.next(verbs.answer(422, {"error": "no"}), when=creating)
    parked = late_answer(stage)
    stage.sql("UPDATE pushlink_push_attempt SET reason_code = 'timeline_changed'")
    refused(stage, Verb.REINTERPRET, parked)


@pytest.mark.rule("D-11")
def test_a_drift_that_still_stands_is_not_lifted_by_a_word(stage: Stage) -> None:
    """The refusal names what differs; abandon and supersede with reserve is the way to the configuration of now."""
    stage.save(1, **ADA)
    stage.apply(pack_with(lambda document: profile_of(document).update(credential_ref="env:OTHER_TOKEN")))
    stage.drain()
    held = create_of(stage)
    assert refused(stage, Verb.UNHOLD, held).evidence["drift"][0]["surface"] == "credential_ref"
    assert decide(stage, Verb.ABANDON, held).after == "terminal_failed"
    assert create_of(stage)["reason_code"] == "abandoned"
    decide(stage, Verb.SUPERSEDE, create_of(stage), reserve=True)
    stage.drain()
    assert create_of(stage)["status"] == "finalized"
    assert stage.sends == 1


@pytest.mark.rule("D-06", "D-09", "D-11")
def test_abandoning_what_may_have_been_sent_makes_it_doubtful(stage: Stage) -> None:
    """Only what was provably never sent ends terminal."""
    stage.save(1, **ADA)
    stage.sql("UPDATE pushlink_push_attempt SET hold_code = 'poison', in_doubt = :yes", yes=True)
    assert decide(stage, Verb.ABANDON, create_of(stage)).after == "ambiguous_remote_effect"


@pytest.mark.rule("D-15", "LK-07")
def test_a_conflict_ends_by_disposing_of_the_id(make_stage: MakeStage) -> None:
    """The id is evidence from then on, and only then may the create be superseded."""
    stage = make_stage(remote=ScriptedTransport(RemoteOptions(prefix="/v2", ids=lambda _: 7)))
    stage.linked(1, **ADA)
    stage.save(2, name="Eve", email="eve@example.com")
    stage.drain()
    held = create_of(stage, 2)
    assert (held["status"], held["hold_code"]) == ("writeback_pending", "locator_conflict")
    refused(stage, Verb.SUPERSEDE, held)
    refused(stage, Verb.UNHOLD, held)
    refused(stage, Verb.DISPOSE, held, argument="8")
    assert decide(stage, Verb.DISPOSE, held, argument="7").after == "terminal_failed"
    ended = create_of(stage, 2)
    assert (ended["remote_id"], ended["reason_code"]) == (None, "disposed")
    assert '"remote_id": "7"' in stage.events(event="dispose")[0]["evidence"]
    assert decide(stage, Verb.SUPERSEDE, ended).after == "superseded"


@pytest.mark.rule("D-15", "LK-07")
def test_a_conflict_ends_by_retiring_the_other_link(make_stage: MakeStage) -> None:
    """The remote record is free: the create that waited gets its link."""
    stage = make_stage(remote=ScriptedTransport(RemoteOptions(prefix="/v2", ids=lambda _: 7)))
    owner = stage.linked(1, **ADA)
    stage.save(2, name="Eve", email="eve@example.com")
    stage.drain()
    decide(stage, Verb.RETIRE, owner)
    stage.drain()
    assert create_of(stage, 2)["status"] == "finalized"
    assert stage.link(2)["remote_id"] == "7"


# --------------------------------------------------------------------------------------- lanes and orders


@pytest.mark.rule("SY-05", "DL-09")
def test_a_row_of_an_unknown_lane_is_repaired_by_name(stage: Stage) -> None:
    """Every other verb leaves it alone; afterwards it is work like any other."""
    stage.save(1, **ADA)
    stage.sql("UPDATE pushlink_push_attempt SET dispatch_lane = 'of_tomorrow'")
    stranded = create_of(stage)
    for verb in (Verb.UNHOLD, Verb.ABANDON, Verb.SUPERSEDE):
        refused(stage, verb, stranded)
    refused(stage, Verb.REPAIR_LANE, stranded, argument="nowhere", code=Code.CALLER_MISTAKE)
    decide(stage, Verb.REPAIR_LANE, stranded, argument="configured")
    stage.drain()
    assert create_of(stage)["status"] == "finalized"


@pytest.mark.rule("SY-03")
@pytest.mark.parametrize("words", [{"actor": " "}, {"reason": ""}, {"reason": "x" * 2_001}])
def test_a_decision_has_an_actor_and_a_reason(stage: Stage, words: dict[str, str]) -> None:
    """Without them nothing is read, let alone written."""
    refused(stage, Verb.ABANDON, lost_create(stage), code=Code.CALLER_MISTAKE, **words)


@pytest.mark.rule("SY-03")
def test_a_decision_about_a_row_that_changed_meanwhile_is_stale(stage: Stage) -> None:
    """Two operators who saw the same version: one of them decides."""
    parked = lost_create(stage)
    decide(stage, Verb.ADOPT, parked, argument="7")
    error = refused(stage, Verb.ADOPT, parked, argument="7", code=Code.STALE_VERSION)
    assert error.evidence["current"] == parked["row_version"] + 1
    assert error.next_step == "look at it again: pushlink explain Person 1"


@pytest.mark.rule("D-40")
def test_a_row_of_another_tenant_does_not_exist(stage: Stage) -> None:
    """The same answer as for an id that nobody has."""
    parked = lost_create(stage)
    mine = refused(stage, Verb.ADOPT, parked, argument="7", tenant="north", code=Code.RECORD_UNKNOWN)
    none = refused(
        stage, Verb.ADOPT, {**parked, "id": "0" * 32}, argument="7", tenant="north", code=Code.RECORD_UNKNOWN
    )
    assert isinstance(mine, CallerError)
    assert mine.message.replace(str(parked["id"]), "0" * 32) == none.message
