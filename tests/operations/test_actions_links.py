"""What an operator does about updates and links, and that nothing else is possible in any state."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from flows.stage import USER, MakeStage, Stage, action_of, pack_with, profile_of
from operations.operators import (
    ADA,
    actions,
    create_of,
    decide,
    failed_create,
    is_of_attempt,
    lost_update,
    refused,
    settle,
)
from pushlink.errors import CallerError, Code
from pushlink.flows.outcomes import Queued
from pushlink.operations.actions import OperatorTerms
from pushlink.operations.waiting import stuck
from pushlink.protocol.states import AttemptStatus, LinkStatus, Operation, statuses
from pushlink.protocol.verbs import Standing, Verb, may_act
from pushlink.testing import verbs
from pushlink.testing.messages import updating

# --------------------------------------------------------------------------------------- updates


@pytest.mark.rule("D-20", "SY-03", "PA-10")
def test_an_update_that_was_applied_is_acknowledged_and_the_next_one_follows(stage: Stage) -> None:
    """What the operator saw at the remote is what the slot says, and newer values are on their way."""
    parked = lost_update(stage)
    stage.save(1, name="Ada Lovelace")
    done = decide(stage, Verb.APPLIED, parked)
    assert done.after == "finalized"
    assert stage.slot()["acknowledged_version"] == 2
    stage.drain()
    assert stage.attempts(id=done.made)[0]["status"] == "finalized"
    assert stage.slot()["acknowledged_version"] == 3


@pytest.mark.rule("D-20", "D-08")
def test_an_update_is_sent_again_only_after_the_settle_time(stage: Stage) -> None:
    """The doubtful one is superseded, and the newest version is a new update."""
    parked = lost_update(stage)
    refused(stage, Verb.RESEND, parked)
    settle(stage)
    done = decide(stage, Verb.RESEND, parked)
    assert done.after == "superseded"
    stage.drain()
    assert stage.attempts(id=done.made)[0]["status"] == "finalized"
    assert stage.slot()["acknowledged_version"] == 2


@pytest.mark.rule("D-14", "D-20")
def test_reading_a_late_answer_again_settles_an_update(stage: Stage) -> None:
    """The remote said that it was applied, after the claim was lost."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    flow = stage.paused().to_send()
    stage.clock_forward()
    stage.drain()
    refused(stage, Verb.REINTERPRET, stage.attempt(operation="update"))
    flow.finish()
    assert decide(stage, Verb.REINTERPRET, stage.attempt(operation="update")).after == "finalized"
    assert stage.slot()["acknowledged_version"] == 2


def refused_version(stage: Stage) -> dict[str, object]:
    stage.linked(1, **ADA)
    stage.remote.script.next(verbs.answer(422, {"error": "no"}), when=updating)
    stage.save(1, name="Ada L.")
    stage.drain()
    return stage.attempt(operation="update")


@pytest.mark.rule("D-19", "SY-03")
def test_a_released_version_is_sent_once_more(stage: Stage) -> None:
    """The due update is made in the same transaction; the refused version is not refused any more."""
    ended = refused_version(stage)
    done = decide(stage, Verb.RELEASE_VERSION, ended)
    slot = stage.slot()
    assert (slot["refused_version"], slot["wanted_state"]) == (0, None)
    stage.drain()
    assert stage.attempts(id=done.made)[0]["status"] == "finalized"
    assert stage.slot()["acknowledged_version"] == 2


@pytest.mark.rule("D-19")
def test_revalidation_sends_no_refused_version_again(stage: Stage) -> None:
    """Its link goes on, and the version waits for its release."""
    refused_version(stage)
    decide(stage, Verb.SUSPEND, stage.link())
    assert decide(stage, Verb.REVALIDATE, stage.link()).made is None
    assert stage.drain() == 0
    assert (len(stage.attempts(operation="update")), stage.slot()["refused_version"]) == (1, 2)


@pytest.mark.rule("RR-06", "D-19", "D-05")
def test_an_update_whose_tries_are_used_up_waits_for_a_person_and_may_go_once_more(make_stage: MakeStage) -> None:
    """Every connection was refused: the version ends with that reason, is listed, and no save of it starts anew."""
    stage = make_stage(pack=pack_with(lambda d: profile_of(d).update(retry={"attempts": 2})))
    stage.linked(1, **ADA)
    for _ in range(2):
        stage.remote.script.next(verbs.refuse_connection(), when=updating)
    stage.save(1, name="Ada L.")
    for _ in range(2):
        stage.drain()
        stage.clock_forward()
    ended = stage.attempt(operation="update")
    assert (ended["status"], ended["reason_code"]) == ("terminal_failed", "retries_exhausted")
    slot = stage.slot()
    assert (slot["wanted_version"], slot["refused_version"], slot["acknowledged_version"]) == (2, 2, 1)
    with stage.engine.begin() as conn:
        [group] = stuck(conn, now=stage.clock.now(conn))
    assert (group.kind, group.code, group.rows[0].target_id) == ("refused", "retries_exhausted", ended["id"])
    assert "release-version" in {verb.name for verb in group.rows[0].verbs}
    stage.save(1)
    assert stage.drain() == 0
    done = decide(stage, Verb.RELEASE_VERSION, ended)
    stage.drain()
    assert stage.attempts(id=done.made)[0]["status"] == "finalized"
    assert stage.slot()["acknowledged_version"] == 2


@pytest.mark.rule("D-19")
def test_a_version_that_is_overtaken_is_not_released(stage: Stage) -> None:
    """A newer save has gone on; the old one has nothing to be released for."""
    ended = refused_version(stage)
    stage.save(1, name="Ada Lovelace")
    refused(stage, Verb.RELEASE_VERSION, ended)


# --------------------------------------------------------------------------------------- suspend, revalidate, relocate


@pytest.mark.rule("LK-05", "PA-05", "SY-03")
def test_a_suspended_link_sends_nothing_until_it_is_revalidated(stage: Stage) -> None:
    """The values that were saved meanwhile are due with the revalidation."""
    link = stage.linked(1, **ADA)
    decide(stage, Verb.SUSPEND, link)
    stage.save(1, name="Ada L.")
    stage.drain()
    assert stage.attempts(operation="update") == []
    suspended = stage.link()
    assert (suspended["status"], suspended["reason_code"]) == ("suspended_drift", "operator_decision")
    done = decide(stage, Verb.REVALIDATE, suspended)
    assert (done.before, done.after) == ("suspended_drift", "finalized")
    stage.drain()
    assert stage.attempts(id=done.made)[0]["status"] == "finalized"
    assert (stage.link()["reason_code"], stage.link()["status"]) == (None, "finalized")
    assert len(stage.remote.api.records) == 1


@pytest.mark.rule("D-11", "DR-10", "SY-03")
def test_revalidation_accepts_the_drift_and_lets_the_held_update_go(stage: Stage) -> None:
    """The link is validated against the catalogue of now, and says what was accepted."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    stage.apply(pack_with(lambda document: profile_of(document).update(credential_ref="env:OTHER_TOKEN")))
    stage.drain()
    assert stage.attempt(operation="update")["hold_code"] == "drift"
    refused(stage, Verb.UNHOLD, stage.attempt(operation="update"))
    before = stage.link()
    decide(stage, Verb.REVALIDATE, before)
    stage.drain()
    assert stage.attempt(operation="update")["status"] == "finalized"
    after = stage.link()
    assert after["profile_digest"] != before["profile_digest"]
    assert after["created_profile_digest"] == before["created_profile_digest"]
    assert after["mapping_fingerprint"] == before["mapping_fingerprint"]
    accepted = json.loads(actions(stage)[-1]["evidence"])["accepted"]
    assert [hit["surface"] for hit in accepted] == ["credential_ref"]
    refused(stage, Verb.REVALIDATE, after)


@pytest.mark.rule("DR-13", "RV-01")
def test_revalidation_does_not_accept_another_mapping(stage: Stage) -> None:
    """Only a manifest changes a link's mapping; the fingerprints stay as they are."""
    link = stage.linked(1, **ADA)
    stage.apply(pack_with(lambda document: action_of(document)["mappings"].pop()))
    assert "manifest" in refused(stage, Verb.REVALIDATE, link).message
    decide(stage, Verb.SUSPEND, link)
    done = decide(stage, Verb.REVALIDATE, stage.link())
    assert "manifest" in done.notes[0]
    assert stage.link()["mapping_fingerprint"] == link["mapping_fingerprint"]


@pytest.mark.rule("DR-06", "ID-06")
def test_a_reinstalled_pack_is_usable_after_revalidation(stage: Stage) -> None:
    """The link is found by its key, and is validated against the new incarnation by a person."""
    link = stage.linked(1, **ADA)
    stage.uninstall()
    refused(stage, Verb.REVALIDATE, link)
    stage.apply(pack_with())
    stage.save(1, name="Ada L.")
    stage.drain()
    assert stage.slot()["acknowledged_version"] == 1
    decide(stage, Verb.REVALIDATE, link)
    assert stage.link()["validated_install_id"] != link["validated_install_id"]
    assert stage.link()["created_install_id"] == link["created_install_id"]
    stage.save(1, name="Ada Lovelace")
    stage.drain()
    assert stage.slot()["acknowledged_version"] == stage.slot()["wanted_version"]


@pytest.mark.rule("DR-19", "D-26")
def test_a_revalidated_link_has_the_locator_of_the_remote_tenant_of_now(stage: Stage) -> None:
    """The same id at another remote tenant is another remote record, and is claimed as one."""
    link = stage.linked(1, **ADA)
    stage.apply(pack_with(lambda document: profile_of(document).update(destination_scope="tenant-43")))
    decide(stage, Verb.REVALIDATE, link)
    assert stage.link()["destination_scope"] == "tenant-43"
    assert stage.link()["locator_key"] != link["locator_key"]


@pytest.mark.rule("LK-03", "SY-03")
def test_a_relocated_link_points_to_the_successor_with_a_receipt(stage: Stage) -> None:
    """A merge at the remote: the old and the new locator are in the audit, and the next update goes to the new one."""
    link, other = stage.linked(1, **ADA), stage.linked(2)
    refused(stage, Verb.RELOCATE, link, argument=other["remote_id"])
    refused(stage, Verb.RELOCATE, link, argument=link["remote_id"])
    refused(stage, Verb.RELOCATE, link, argument="no id", code=Code.CALLER_MISTAKE)
    decide(stage, Verb.SUSPEND, link)
    done = decide(stage, Verb.RELOCATE, stage.link(), argument="777")
    assert (done.after, done.remote_id, stage.link()["remote_id"]) == ("finalized", "777", "777")
    locators = json.loads(actions(stage)[-1]["evidence"])["locators"]
    assert locators["old"] == {"remote_id": link["remote_id"], "locator_key": link["locator_key"]}
    assert locators["new"]["locator_key"] == stage.link()["locator_key"]
    assert create_of(stage)["status"] == "finalized"


# --------------------------------------------------------------------------------------- retire and release


@pytest.mark.rule("D-35", "LK-05", "GT-15")
def test_a_retired_link_closes_its_slot_until_it_is_released(stage: Stage) -> None:
    """Closed by default: a save is refused. Released, it creates another remote record with the next ordinal."""
    link = stage.linked(1, **ADA)
    decide(stage, Verb.RETIRE, link)
    retired = stage.link()
    assert (retired["status"], retired["locator_key"], retired["slot_key"]) == ("retired", None, link["link_key"])
    assert stage.save(1, name="Ada L.").code is Code.LINK_RETIRED  # type: ignore[union-attr]
    decide(stage, Verb.RELEASE_SLOT, retired)
    released = stage.link()
    assert released["slot_key"] is None
    assert create_of(stage)["create_key"] is None
    slot = stage.slot()
    assert (slot["wanted_version"], slot["acknowledged_version"], slot["refused_version"]) == (0, 0, 0)
    assert slot["applied_values_digest"] is None
    assert slot["create_ordinal"] == 1
    refused(stage, Verb.RELEASE_SLOT, released)
    stage.save(1, name="Ada L.")
    stage.drain()
    assert [row["ordinal"] for row in stage.attempts(operation="create")] == [1, 2]
    assert [row["status"] for row in stage.links()] == ["retired", "finalized"]


@pytest.mark.rule("D-35", "SY-03")
def test_a_link_is_retired_and_its_slot_released_in_one_decision(stage: Stage) -> None:
    """With a second principal where the settings ask for one."""
    link = stage.linked(1, **ADA)
    terms = OperatorTerms(second_principal=True)
    refused(stage, Verb.RETIRE, link, release=True, terms=terms)
    decide(stage, Verb.RETIRE, link, release=True, terms=terms, approver="peter")
    assert stage.link()["slot_key"] is None
    stage.save(1, name="Ada L.")
    assert create_of(stage)["ordinal"] == 2


@pytest.mark.rule("D-35", "AT-12")
def test_retiring_ends_a_mirror_that_was_due(stage: Stage) -> None:
    """The create is finalized with a skipped mirror, and a worker that had it writes nothing."""
    stage.save(1, **ADA)
    flow = stage.paused().to_send()
    flow.step()
    flow.step()
    assert create_of(stage)["status"] == "writeback_commit_pending"
    decide(stage, Verb.RETIRE, stage.link())
    assert create_of(stage)["status"] == "finalized"
    flow.finish()
    stage.drain()
    person = stage.person()
    assert person is not None
    assert person["remote_id"] is None
    assert stage.link()["mirror_status"] == "skipped_link_retired"


@pytest.mark.rule("D-39", "SY-05")
def test_a_row_of_an_unknown_lane_is_touched_by_no_save_no_delete_and_no_retirement(stage: Stage) -> None:
    """An update that was sent once and given back: its lane is repaired first, whatever becomes of its record."""
    stage.linked(1, **ADA)
    stage.remote.script.next(verbs.answer(429), when=updating)
    stage.save(1, name="Ada L.")
    stage.drain()
    stage.sql("UPDATE pushlink_push_attempt SET dispatch_lane = 'of_tomorrow' WHERE operation = 'update'")
    before = stage.attempts(operation="update")
    assert [(row["status"], row["freeze_count"]) for row in before] == [("pending", 1)]
    assert isinstance(stage.save(1, name="Ada Lovelace"), Queued)
    assert (stage.slot()["wanted_version"], stage.attempts(operation="update")) == (3, before)
    assert "repair" in refused(stage, Verb.RETIRE, stage.link()).message
    with stage.engine.begin() as conn:
        [found] = stage.runtime.deleted(conn, "Person", 1, user=USER)
    assert found.ended == ()
    assert stage.attempts(operation="update") == before


@pytest.mark.rule("D-35")
def test_retiring_ends_an_update_that_is_due_or_doubtful(stage: Stage) -> None:
    """`superseded`, in the same transaction."""
    lost_update(stage)
    decide(stage, Verb.RETIRE, stage.link())
    row = stage.attempt(operation="update")
    assert (row["status"], row["reason_code"], row["update_key"]) == ("superseded", "link_retired", None)
    stage.linked(2)
    stage.save(2, name="Eve")
    decide(stage, Verb.RETIRE, stage.link(2))
    assert stage.attempts(operation="update", link_key=stage.slot(2)["link_key"])[0]["status"] == "superseded"


@pytest.mark.rule("D-35")
def test_a_slot_is_not_released_under_an_update_that_is_on_the_wire(stage: Stage) -> None:
    """Its answer would have no version to acknowledge; the link alone may be retired."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    flow = stage.paused().to_send()
    link = stage.link()
    refused(stage, Verb.RETIRE, link, release=True)
    decide(stage, Verb.RETIRE, link)
    refused(stage, Verb.RELEASE_SLOT, stage.link())
    flow.finish()
    decide(stage, Verb.RELEASE_SLOT, stage.link())
    stage.drain()


# --------------------------------------------------------------------------------------- every state


def rows_in_every_state(stage: Stage) -> dict[tuple[Operation, AttemptStatus], dict[str, object]]:
    """One attempt in each status, by hand: what it takes to be there is not what is tested."""
    found: dict[tuple[Operation, AttemptStatus], dict[str, object]] = {}
    places = [(operation, status) for operation in Operation for status in sorted(statuses(operation))]
    for number, (operation, status) in enumerate(places, 1):
        stage.save(number, name=f"P{number}", email="e@example.com")
        in_work = status in {AttemptStatus.PROCESSING, AttemptStatus.POST_SENT}
        is_open = operation is Operation.UPDATE and status in {
            AttemptStatus.PENDING,
            AttemptStatus.PROCESSING,
            AttemptStatus.POST_SENT,
            AttemptStatus.AMBIGUOUS_REMOTE_EFFECT,
        }
        keeps_key = operation is Operation.CREATE and status is not AttemptStatus.SUPERSEDED
        stage.sql(
            "UPDATE pushlink_push_attempt SET operation = :operation, status = :status, claim_token = :token,"
            " lease_until = :lease, create_key = CASE WHEN :c = 1 THEN link_key END,"
            " update_key = CASE WHEN :u = 1 THEN link_key END WHERE link_key = :key",
            operation=operation.value,
            status=status.value,
            token="t" if in_work else None,
            lease=stage.clock.now(None).isoformat(" ") if in_work else None,  # type: ignore[arg-type]
            c=int(keeps_key),
            u=int(is_open),
            key=stage.slot(number)["link_key"],
        )
        [found[operation, status]] = stage.attempts(link_key=stage.slot(number)["link_key"])
    return found


@pytest.mark.rule("AT-08", "D-08", "SY-03")
def test_a_verb_is_refused_in_every_state_that_it_is_not_for(stage: Stage) -> None:
    """Each (verb, status) without an entry is `not_allowed_now`, names what is allowed, and changes nothing."""
    rows = rows_in_every_state(stage)
    before = stage.census()
    for verb, (place, row) in itertools.product(filter(is_of_attempt, Verb), rows.items()):
        if may_act(verb, Standing(place=place, hold=None, lane="configured")):
            continue
        with pytest.raises(Exception, match="cannot be done in the state") as caught:
            decide(stage, verb, row, argument="7")
        assert caught.value.code is Code.NOT_ALLOWED_NOW  # type: ignore[attr-defined]
        assert isinstance(caught.value.evidence["allowed"], list)  # type: ignore[attr-defined]
    assert stage.census() == before


@pytest.mark.rule("LK-05", "LK-06", "SY-03")
def test_a_verb_of_links_is_refused_in_every_status_that_it_is_not_for(stage: Stage) -> None:
    """A retired link comes back by no verb; only its slot may be released."""
    link = stage.linked(1, **ADA)
    for status in LinkStatus:
        if status is LinkStatus.SUSPENDED_DRIFT:
            decide(stage, Verb.SUSPEND, link)
        elif status is LinkStatus.RETIRED:
            decide(stage, Verb.RETIRE, stage.link())
        row = stage.link()
        assert row["status"] == status.value
        for verb in Verb:
            if not is_of_attempt(verb) and not may_act(verb, Standing(place=status)):
                refused(stage, verb, row, argument="7")


@pytest.mark.rule("SY-03")
def test_an_unsent_create_of_another_record_is_no_link(make_stage: MakeStage) -> None:
    """A verb of links finds no attempt, and the other way round."""
    stage = make_stage()
    ended = failed_create(stage)
    refused(stage, Verb.RETIRE, ended, code=Code.RECORD_UNKNOWN)
    refused(stage, Verb.SUPERSEDE, stage.linked(2), code=Code.RECORD_UNKNOWN)


@pytest.mark.rule("SY-03", "D-10")
def test_many_clicks_are_one_decision(stage: Stage) -> None:
    """Twenty operators at once about one version: one transition and one line in the audit, the others are stale."""
    ended = failed_create(stage)

    def click(number: int) -> str:
        try:
            return decide(stage, Verb.SUPERSEDE, ended, reserve=True, actor=f"olga-{number}").after
        except CallerError as error:
            return error.code.value

    with ThreadPoolExecutor(max_workers=8) as pool:
        answers = sorted(pool.map(click, range(20)))
    assert answers == ["stale_version"] * 19 + ["superseded"]
    assert len(actions(stage)) == 1
    assert [row["ordinal"] for row in stage.attempts(operation="create")] == [1, 2]
