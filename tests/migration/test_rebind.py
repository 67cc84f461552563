"""Rebinding a slot over real rows, on both databases: everything moves with its keys, or nothing does."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from flows.stage import PACK, Stage
from migration.slots import APPROVAL, OLD, apply, planned, receipts, renamed, slot_row
from operations.operators import decide, lost_create
from pushlink.errors import CallerError, Code, ConfigurationError
from pushlink.flows.outcomes import Outcome, Queued, Refused, Reserved
from pushlink.migration import rebind
from pushlink.migration.rebind import Verdict
from pushlink.operations.reads import history
from pushlink.operations.verifying import verify
from pushlink.protocol.identity import link_key
from pushlink.protocol.rebinding import new_rebind, read_rebind, write_rebind
from pushlink.protocol.snapshots import Slots
from pushlink.protocol.verbs import Verb
from pushlink.store import rebinds
from pushlink.store.tables import APPEND_ONLY, METADATA
from pushlink.testing import verbs
from pushlink.testing.messages import creating, updating

NEW = replace(OLD, action_slot_id="act-2")
ADA = {"name": "Ada", "email": "ada@example.com"}


def code_of(outcome: Outcome) -> Code:
    assert isinstance(outcome, Refused)
    return outcome.code


def refused(stage: Stage, manifest: Any, *kinds: str) -> CallerError:
    """The refusal of a manifest, the same from a dry run, after which everything is as it was."""
    before = stage.census()
    for dry_run in (True, False):
        with pytest.raises(CallerError) as caught:
            apply(stage, manifest, dry_run=dry_run)
        assert caught.value.code is Code.NOT_ALLOWED_NOW
        assert sorted(caught.value.evidence.get("kinds", {})) == sorted(kinds)
    assert stage.census() == before
    return caught.value


def every_state(stage: Stage) -> None:
    """A record in each state that a slot can hold: linked, doubtful, failed, held, retired, with a refused version."""
    stage.linked(1, **ADA)
    lost_create(stage, 2)
    stage.remote.script.next(verbs.answer(422, {"error": "no"}), when=creating)
    stage.save(3, name="Cid", email="c@example.com")
    stage.drain()
    decide(stage, Verb.RETIRE, stage.linked(4), release=True)
    decide(stage, Verb.RETIRE, stage.linked(5))
    stage.linked(6)
    stage.remote.script.next(verbs.answer(422, {"error": "no"}), when=updating)
    stage.save(6, name="Flo")
    stage.drain()
    stage.save(7, name="Gus", email="g@example.com")
    stage.save(1, name="Ada L.")


# ------------------------------------------------------------------------------------------------ the whole of it


@pytest.mark.rule("MG-07", "ID-04", "D-29", "DR-03")
def test_a_slot_s_rows_move_and_its_records_are_updated_and_never_created_again(stage: Stage) -> None:
    """Saves are refused until the rebind; then a link takes its update, and an unsent create is sent, both once."""
    link = stage.linked(1, **ADA)
    stage.save(2, name="Bea", email="b@example.com")
    stage.apply(renamed())
    assert code_of(stage.save(3, name="Cid", email="c@example.com")) is Code.LINEAGE_UNRESOLVED
    manifest = planned(stage)
    done = apply(stage, manifest)
    assert (done.verdict, done.members, done.links, done.attempts) == (Verdict.APPLIED, 2, 1, 2)
    assert isinstance(stage.save(3), Reserved)
    assert isinstance(stage.save(1, name="Ada L."), Queued)
    stage.drain()
    assert sorted(sent.method for sent in stage.remote.sent) == ["PATCH", "POST", "POST", "POST"]
    assert stage.link(1)["remote_id"] == link["remote_id"]
    assert {row["link_key"] for row in stage.links()} == {link_key(NEW, str(number)) for number in (1, 2, 3)}
    assert {row["status"] for row in stage.links()} == {"finalized"}


@pytest.mark.rule("MG-07", "D-10")
def test_every_row_of_every_state_moves_and_changes_nothing_but_its_keys(stage: Stage) -> None:
    """Ordinals, versions, statuses, holds, request keys, revalidation pointers: all that is no key is as it was."""
    every_state(stage)
    stage.apply(renamed())
    stage.drain()  # what is not sent is held now
    tables = {table.name.removeprefix("pushlink_"): table for table in rebinds.MOVED}
    before = {name: {_identity(row): row for row in stage.rows(name)} for name in tables}
    frozen = {name: stage.rows(name) for name in ("push_request", "push_response", "frozen_document")}
    manifest = planned(stage)
    assert len(manifest.members) == 7
    apply(stage, manifest)
    keys = {member.old_key: member.new_key for member in manifest.members}
    for name in tables:
        after = {_identity(row): row for row in stage.rows(name)}
        assert after.keys() == before[name].keys()
        for identity, row in before[name].items():
            differs = {column for column in row if after[identity][column] != row[column]}
            assert differs <= {
                "link_key",
                "slot_key",
                "create_key",
                "update_key",
                "locator_key",
                "action_slot_id",
                "row_version",
            }
            for column in ("link_key", "slot_key", "create_key", "update_key"):
                if column in row:
                    assert after[identity][column] == (row[column] and keys[row[column]])
    assert {name: stage.rows(name) for name in frozen} == frozen
    statuses = {row["status"] for row in before["push_attempt"].values()}
    assert {"finalized", "ambiguous_remote_effect", "terminal_failed", "pending"} <= statuses
    assert {row["status"] for row in before["remote_link"].values()} >= {"finalized", "retired"}


def _identity(row: dict[str, Any]) -> str:
    return str(row.get("id") or row["source_record_id"])


@pytest.mark.rule("MG-07")
def test_no_table_with_a_link_key_is_forgotten() -> None:
    """Each either moves, or is append-only and stays under the key that it was written for."""
    keyed = {c for table in METADATA.sorted_tables for c in table.columns if "link_key" in c.name}
    moved = {c for c in keyed if c.table in {*rebinds.MOVED, *APPEND_ONLY}}
    assert keyed == moved | set(rebinds.FOLLOWING)


@pytest.mark.rule("MG-07", "D-31")
def test_who_waits_for_whom_follows_the_keys(stage: Stage) -> None:
    """A child that waits, the record that it waits for, and the word that it may go on: all under the new keys."""
    stage.save(1, name="Ada", email="ada@example.com")
    old, new = stage.slot()["link_key"], link_key(NEW, "1")
    attempt = stage.attempt()["id"]
    wait = "INSERT INTO pushlink_association_wait (attempt_id, target_link_key, link_key) VALUES (:id, :target, :key)"
    stage.sql(wait, id=attempt, target="lk1_elsewhere", key=old)
    stage.sql(wait, id="of another record", target=old, key="lk1_elsewhere")
    wake = (
        "INSERT INTO pushlink_association_wake (target_link_key, finalized_at) VALUES (:target, '2025-01-01 00:00:00')"
    )
    stage.sql(wake, target=old)
    stage.apply(renamed())
    apply(stage, planned(stage))
    waits = {row["attempt_id"]: (row["link_key"], row["target_link_key"]) for row in stage.rows("association_wait")}
    assert waits == {attempt: (new, "lk1_elsewhere"), "of another record": ("lk1_elsewhere", new)}
    assert [row["target_link_key"] for row in stage.rows("association_wake")] == [new]


@pytest.mark.rule("MG-07", "D-29")
def test_doubt_is_settled_under_the_new_key_with_the_evidence_of_before(stage: Stage) -> None:
    """The remote record is taken over, and told the values that nobody knows it has; it is not created again."""
    doubtful = lost_create(stage)
    stage.apply(renamed())
    apply(stage, planned(stage))
    decide(stage, Verb.ADOPT, stage.attempt(id=doubtful["id"]), argument="1")
    stage.drain()
    assert [sent.method for sent in stage.remote.sent] == ["POST", "PATCH"]
    link = stage.link()
    assert (link["link_key"], link["remote_id"], link["status"]) == (link_key(NEW, "1"), "1", "finalized")
    assert (stage.person() or {})["remote_id"] == "1"


@pytest.mark.rule("MG-07", "DR-03")
def test_a_suspended_link_stays_suspended_until_somebody_revalidates_it(stage: Stage) -> None:
    """The move says whose link it is; that the configuration is right is another decision."""
    stage.linked(1, **ADA)
    stage.apply(renamed())
    stage.save(1, name="Ada L.")
    assert stage.link()["status"] == "suspended_drift"
    apply(stage, planned(stage))
    assert stage.link()["status"] == "suspended_drift"
    decide(stage, Verb.REVALIDATE, stage.link())
    assert isinstance(stage.save(1), Queued)
    stage.drain()
    assert [sent.method for sent in stage.remote.sent] == ["POST", "PATCH"]


@pytest.mark.rule("ID-07", "DR-05", "LK-03")
def test_another_owner_gets_the_links_by_a_manifest_alone(stage: Stage) -> None:
    """Locators and keys follow the owner; the install is another one, so a link is revalidated before it is updated."""
    stage.linked(1, **ADA)
    stage.uninstall()
    stage.apply(renamed("act-9", "dest-9", connector_owner_key="owner-2"))
    assert code_of(stage.save(1)) is Code.LINEAGE_UNRESOLVED
    before = stage.link()
    apply(stage, planned(stage, to="act-9"))
    link = stage.link()
    assert (link["connector_owner_key"], link["destination_slot_id"]) == ("owner-2", "dest-9")
    assert link["locator_key"] != before["locator_key"]
    assert stage.attempt()["destination_slot_id"] == "dest-9"
    decide(stage, Verb.REVALIDATE, link)
    assert isinstance(stage.save(1, name="Ada L."), Queued)
    stage.drain()
    assert [sent.method for sent in stage.remote.sent] == ["POST", "PATCH"]


@pytest.mark.rule("DR-20", "D-29")
def test_an_action_that_got_another_destination_takes_its_links_along(stage: Stage) -> None:
    """The action slot is in use all the time; only what it pushed to the old destination moves, and may move back."""
    stage.linked(1, **ADA)
    for number, destination in enumerate(("dest-2", "dest-1", "dest-2"), 1):
        stage.fixed.advance(seconds=1)
        stage.apply(renamed("act-1", destination))
        assert code_of(stage.save(2, name="Bea", email="b@example.com")) is Code.LINEAGE_UNRESOLVED
        apply(stage, planned(stage, to="act-1", operation_id=f"op-{number}"))
        assert stage.link()["link_key"] == link_key(replace(OLD, destination_slot_id=destination), "1")
        assert slot_row(stage, "act-1")["status"] == "active"
    assert isinstance(stage.save(2), Reserved)
    assert rebinds_of(stage, stage.link()["link_key"]) == {link_key(OLD, "1")}


def rebinds_of(stage: Stage, key: Any) -> set[str]:
    """The keys that a record's rows had before."""
    with stage.engine.begin() as conn:
        return {*rebinds.read_former_keys(conn, [key])[key]}


# ------------------------------------------------------------------------------------------------ lineage


@pytest.mark.rule("MG-07", "D-29")
def test_a_rebound_slot_is_never_used_again(stage: Stage) -> None:
    """No pack may have it, by itself or beside its successor."""
    stage.linked(1, **ADA)
    stage.apply(renamed())
    done = apply(stage, planned(stage))
    assert done.old_status == "rebound"
    row = slot_row(stage, "act-1")
    assert (row["status"], row["successor_slot_id"]) == ("rebound", "act-2")
    with pytest.raises(ConfigurationError, match="rebound to 'act-2'"):
        stage.apply(PACK)


@pytest.mark.rule("MG-07", "D-29")
def test_a_slot_with_two_destinations_is_rebound_one_manifest_for_each(stage: Stage) -> None:
    """Until the last, the slot is not over; and what was rebound cannot be had again at that destination."""
    stage.linked(1, **ADA)
    stage.apply(renamed("act-1", "dest-2"))
    stage.sql("UPDATE pushlink_connector_slot SET status = 'independent' WHERE slot_id = 'act-1'")
    stage.sql("UPDATE pushlink_deployment SET catalog_revision = catalog_revision + 1")
    stage.linked(2, name="Bea", email="b@example.com")
    stage.apply(renamed("act-2", "dest-2"))
    with pytest.raises(CallerError, match="several identities"):
        planned(stage)
    apply(stage, planned(stage, from_destination="dest-1"))
    row = slot_row(stage, "act-1")
    assert row["status"] == "dropped"
    assert [stay["rebound_to"] for stay in row["detail"]["stays"] if "rebound_to" in stay] == ["act-2"]
    with pytest.raises(ConfigurationError, match="was rebound to 'act-2'"):
        stage.apply(PACK)
    apply(stage, planned(stage, operation_id="op-2"))
    assert slot_row(stage, "act-1")["status"] == "rebound"
    assert {link["link_key"] for link in stage.links()} == {
        link_key(replace(NEW, destination_slot_id="dest-2"), str(number)) for number in (1, 2)
    }


@pytest.mark.rule("MG-07")
def test_an_action_of_before_there_were_slots_is_named_in_the_registry(stage: Stage) -> None:
    """No row stands under its name; its name is entered as lineage, and can be no slot's id any more."""
    manifest = planned(stage, of="push_people_old", to="act-1")
    assert manifest.members == ()
    done = apply(stage, manifest)
    assert (done.verdict, done.members, done.old_status) == (Verdict.APPLIED, 0, "rebound")
    row = slot_row(stage, "push_people_old")
    assert (row["successor_slot_id"], row["source_object"], row["status"]) == ("act-1", "Person", "rebound")
    assert apply(stage, manifest).verdict is Verdict.ALREADY_APPLIED
    with pytest.raises(ConfigurationError, match="rebound"):
        stage.apply(renamed("push_people_old"))


@pytest.mark.rule("MG-07")
def test_rows_under_a_name_that_was_never_a_slot_move_by_an_explicit_manifest(stage: Stage) -> None:
    """Links that somebody entered under an old action's name, which no registry knows: nothing finds them but this."""
    link = stage.linked(1, **ADA)
    legacy = replace(OLD, action_slot_id="push_people_old")
    key = link_key(legacy, "1")
    for table in ("remote_link", "push_slot"):
        stage.sql(f"UPDATE pushlink_{table} SET link_key = :key, action_slot_id = 'push_people_old'", key=key)
    stage.sql("UPDATE pushlink_push_attempt SET link_key = :key, create_key = :key", key=key)
    stage.sql("UPDATE pushlink_remote_link SET slot_key = :key", key=key)
    apply(stage, planned(stage, of="push_people_old", to="act-1"))
    assert stage.link() == link | {"row_version": link["row_version"] + 1}
    assert isinstance(stage.save(1, name="Ada L."), Queued)


# ------------------------------------------------------------------------------------------------ in the way


@pytest.mark.rule("MG-07")
def test_every_collision_is_named_and_nothing_is_moved(stage: Stage) -> None:
    """Rows under new keys of two of three records, and the third of them stays too."""
    for number in (1, 2, 3):
        stage.linked(number)
    stage.apply(renamed())
    manifest = planned(stage)
    stage.sql("UPDATE pushlink_connector_slot SET status = 'independent' WHERE slot_id = 'act-2'")
    stage.sql("UPDATE pushlink_deployment SET catalog_revision = catalog_revision + 1")
    made = [stage.save(number) for number in (2, 3)]
    assert all(isinstance(outcome, Reserved) for outcome in made)
    error = refused(stage, manifest, "key_taken")
    assert error.evidence["count"] == 2
    named = "\n".join(error.evidence["conflicts"])  # type: ignore[arg-type]
    for record_id, outcome in zip((2, 3), made, strict=True):
        assert f"{record_id} (" in named
        assert str(outcome.attempt_id) in named  # type: ignore[union-attr]
    with pytest.raises(CallerError):
        planned(stage)


@pytest.mark.rule("MG-07", "LK-03")
def test_a_remote_record_that_the_new_destination_knows_already_is_in_the_way(stage: Stage) -> None:
    """Two links would claim it; the one that has it is named."""
    stage.linked(1, **ADA)
    stage.apply(renamed("act-2", "dest-2"))
    manifest = planned(stage)
    stage.sql("UPDATE pushlink_connector_slot SET status = 'independent' WHERE slot_id = 'act-2'")
    stage.sql("UPDATE pushlink_deployment SET catalog_revision = catalog_revision + 1")
    stage.remote.script.next(verbs.answer(201, {"id": 1}), when=creating)
    owner = stage.linked(2, name="Bea", email="b@example.com")
    error = refused(stage, manifest, "remote_taken")
    assert f"Person 2 (link {owner['id']})" in str(error.evidence["conflicts"])


@pytest.mark.rule("MG-07")
@pytest.mark.parametrize("to", ["claimed", "sent"])
def test_an_attempt_that_a_worker_has_is_in_the_way(stage: Stage, to: str) -> None:
    """From its claim until it is recorded; a lease that has ended is recovered first."""
    stage.save(1, **ADA)
    paused = stage.paused()
    if to == "sent":
        paused.to_send().step()
    stage.apply(renamed())
    ask = rebind.Ask(tenant="", from_action="act-1", to_action="act-2")
    with pytest.raises(CallerError) as caught:
        rebind.plan(stage.engine, ask, operation_id="op-1", reason="r", approval=APPROVAL, now=stage.clock.now)
    assert caught.value.evidence["kinds"] == {"in_work": 1}
    paused.finish()
    apply(stage, planned(stage))
    stage.drain()
    assert stage.sends == (1 if to == "sent" else stage.sends)


@pytest.mark.rule("MG-07", "D-12")
def test_a_claim_that_is_over_loses_its_token_with_the_move(stage: Stage) -> None:
    """A mirror that a worker writes is in the way while its lease lasts; afterwards the late worker changes nothing."""
    stage.save(1, **ADA)
    paused = stage.paused().to_send()
    paused.step()  # the request
    paused.step()  # its result: the mirror is left
    stage.clock_forward()
    [claimed] = stage.claim()
    assert stage.attempt()["status"] == "writeback_pending"
    stage.apply(renamed())
    with pytest.raises(CallerError) as caught:
        planned(stage)
    assert caught.value.evidence["kinds"] == {"in_work": 1}
    stage.clock_forward()
    apply(stage, planned(stage))
    moved = stage.census()
    stage.paused_of(claimed).finish()
    after = stage.census()
    assert {name for name in after if after[name] != moved[name]} <= {"pushlink_attempt_event"}
    stage.drain()
    assert (stage.attempt()["status"], stage.sends) == ("finalized", 1)
    assert (stage.person() or {})["remote_id"] == "1"


@pytest.mark.rule("MG-07")
@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("push_slot", "create_ordinal", 7),
        ("push_slot", "wanted_values_digest", "other"),
        ("remote_link", "remote_id", "other"),
        ("remote_link", "mapping_fingerprint", "other"),
        ("push_attempt", "ordinal", 7),
        ("push_attempt", "send_count", 7),
    ],
)
def test_rows_that_changed_since_keep_the_whole_manifest_out(
    stage: Stage, table: str, column: str, value: object
) -> None:
    """One column of one row of two records."""
    for number in (1, 2):
        stage.linked(number)
    stage.apply(renamed())
    manifest = planned(stage)
    t = METADATA.tables[f"pushlink_{table}"]
    with stage.engine.begin() as conn:
        conn.execute(sa.update(t).where(t.c.link_key == manifest.members[1].old_key).values({column: value}))
    refused(stage, manifest, "rows_changed")


@pytest.mark.rule("MG-07")
def test_a_record_that_the_manifest_does_not_name_keeps_it_out(stage: Stage) -> None:
    """All rows of a slot move or none: a manifest without one of them is not applied."""
    for number in (1, 2):
        stage.linked(number)
    stage.apply(renamed())
    whole = planned(stage)
    partly = new_rebind(
        operation_id="op-2",
        reason="r",
        approval=APPROVAL,
        old=whole.old,
        new=whole.new,
        members=whole.members[:1],
    )
    refused(stage, partly, "not_listed")
    gone = replace(whole.members[1], old_key=link_key(OLD, "9"), new_key=link_key(NEW, "9"), record_id="9")
    more = new_rebind(
        operation_id="op-3",
        reason="r",
        approval=APPROVAL,
        old=whole.old,
        new=whole.new,
        members=[*whole.members, gone],
    )
    refused(stage, more, "rows_missing")


@pytest.mark.rule("ID-03", "MG-07")
def test_both_slots_have_to_be_what_the_manifest_needs(stage: Stage) -> None:
    """The new one is in a pack, the old one is in none; another tenant has neither."""
    stage.linked(1, **ADA)
    with pytest.raises(CallerError, match="No action of an installed pack"):
        planned(stage)
    stage.apply(renamed())
    manifest = planned(stage)
    stage.apply(PACK)
    error = refused(stage, manifest)
    assert "no action of an installed pack" in error.message
    both = renamed()
    both["flows"][0]["actions"].append({**PACK["flows"][0]["actions"][0], "action": "push_old"})
    stage.apply(both)
    error = refused(stage, manifest)
    assert "is in use" in error.message


# ------------------------------------------------------------------------------------------------ repeats, evidence


@pytest.mark.rule("MG-07", "D-32")
def test_a_repeat_changes_nothing_and_another_manifest_under_its_id_is_refused(stage: Stage) -> None:
    """Also after the rows have moved on to a third slot."""
    for number in (1, 2):
        stage.linked(number)
    stage.apply(renamed())
    manifest = planned(stage)
    apply(stage, manifest)
    before = stage.census()
    assert apply(stage, manifest).verdict is Verdict.ALREADY_APPLIED
    assert apply(stage, manifest, dry_run=True).verdict is Verdict.ALREADY_APPLIED
    assert stage.census() == before
    stage.apply(renamed("act-3"))
    apply(stage, planned(stage, of="act-2", to="act-3", operation_id="op-2"))
    assert apply(stage, manifest).verdict is Verdict.ALREADY_APPLIED
    other = new_rebind(
        operation_id="op-1",
        reason="another",
        approval=APPROVAL,
        old=manifest.old,
        new=manifest.new,
        members=manifest.members,
    )
    refused(stage, other)


@pytest.mark.rule("MG-07", "SY-03")
def test_receipts_lead_from_key_to_key_and_the_audit_names_the_manifest(stage: Stage) -> None:
    """Each is sealed over the one that brought the rows; the audit's chain is whole."""
    stage.linked(1, **ADA)
    moves = []
    for number, slot in enumerate(("act-2", "act-3"), 1):
        stage.apply(renamed(slot))
        moves.append(planned(stage, of=f"act-{number}", to=slot, operation_id=f"op-{number}"))
        apply(stage, moves[-1])
    first, second = receipts(stage)
    assert (first["old_link_key"], second["new_link_key"]) == (link_key(OLD, "1"), stage.link()["link_key"])
    assert second["old_link_key"] == first["new_link_key"]
    assert second["previous_hash"] == first["hash"]
    assert (first["rows_digest_after"], first["manifest_digest"]) == (second["rows_digest_before"], moves[0].digest)
    assert json.loads(first["moved"]) == {"attempts": [stage.attempt()["id"]], "links": [stage.link()["id"]]}
    [action, _] = stage.rows("operator_action", "id", verb=rebinds.AUDITED_AS)
    assert (action["actor"], action["approver"], action["target_id"]) == ("olga", "Olga Owner", "op-1")
    assert moves[0].digest in action["evidence"]
    assert rebinds_of(stage, stage.link()["link_key"]) == {first["old_link_key"], second["old_link_key"]}
    with stage.engine.begin() as conn:
        assert not verify(conn).broken


@pytest.mark.rule("MG-07", "D-15")
def test_a_hold_that_names_a_moved_owner_ends_when_that_link_lets_go(stage: Stage) -> None:
    """The evidence of a locator conflict names the owner's key; it follows the owner."""
    stage.remote.script.always(verbs.answer(201, {"id": 7}), when=creating)
    stage.linked(1, **ADA)
    stage.save(2, name="Bea", email="b@example.com")
    stage.drain()
    held = stage.attempt(link_key=stage.slot(2)["link_key"])
    assert held["hold_code"] == "locator_conflict"
    stage.apply(renamed())
    apply(stage, planned(stage))
    assert json.loads(stage.attempt(id=held["id"])["detail"])["owner_link_key"] == stage.link(1)["link_key"]
    decide(stage, Verb.RETIRE, stage.link(1))
    stage.drain()
    assert stage.attempt(id=held["id"])["status"] == "finalized"


@pytest.mark.rule("MG-07", "AT-11")
def test_the_history_of_a_record_goes_on_across_its_keys(stage: Stage) -> None:
    """Its create, its reply and the decision of before stand in the same line as what came after."""
    decide(stage, Verb.SUSPEND, stage.linked(1, **ADA))
    stage.apply(renamed())
    with stage.engine.begin() as conn:
        before = history(conn, "Person", "1").rows
    stage.fixed.advance(seconds=1)
    apply(stage, planned(stage))
    decide(stage, Verb.REVALIDATE, stage.link())
    with stage.engine.begin() as conn:
        after = history(conn, "Person", "1").rows
    assert after[: len(before)] == before
    assert {moment.kind for moment in before} == {"event", "reply", "action"}
    assert "revalidate" in {moment.event for moment in after[len(before) :]}


@pytest.mark.rule("MG-07")
def test_a_manifest_is_read_byte_for_byte(stage: Stage) -> None:
    """One changed character, a key that is not the new slot's, a member twice: refused before any row is read."""
    for number in (1, 2):
        stage.linked(number)
    stage.apply(renamed())
    manifest = planned(stage)
    text = write_rebind(manifest)
    assert read_rebind(text) == manifest
    for changed in (
        text.replace("the slot got", "the slot has"),
        text.replace('"record_id":"1"', '"record_id":"3"'),
        text.replace('"tenant":""', '"tenant":"north"'),
        text.replace(" ", "  "),
        text.replace('"kind":"rebind_manifest"', '"kind":"mapping_manifest"'),
    ):
        with pytest.raises(CallerError, match="manifest"):
            read_rebind(changed)
    for members in (
        [manifest.members[0], manifest.members[0]],
        [replace(manifest.members[0], new_key=manifest.members[1].new_key)],
    ):
        with pytest.raises(CallerError):
            new_rebind(
                operation_id="o", reason="r", approval=APPROVAL, old=manifest.old, new=manifest.new, members=members
            )
    with pytest.raises(CallerError, match="both slots are the same"):
        new_rebind(operation_id="o", reason="r", approval=APPROVAL, old=NEW, new=NEW, members=[])


def test_a_slot_of_another_tenant_is_none(stage: Stage) -> None:
    """Each tenant's rows move by its own manifest."""
    stage.linked(1, **ADA)
    stage.apply(renamed())
    ask = rebind.Ask(tenant="north", from_action="act-1", to_action="act-2")
    with pytest.raises(CallerError):
        rebind.plan(stage.engine, ask, operation_id="o", reason="r", approval=APPROVAL, now=stage.clock.now)
    foreign = Slots(**{**{name: getattr(OLD, name) for name in OLD.__slots__}, "tenant": "north"})
    manifest = new_rebind(
        operation_id="o",
        reason="r",
        approval=APPROVAL,
        old=foreign,
        new=replace(foreign, action_slot_id="act-2"),
        members=[],
    )
    refused(stage, manifest)
