"""Applying an adoption: what is proved becomes a link like any other, once, with a receipt and a place in the audit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flows.stage import Stage, action_of, pack_with, profile_of
from migration.adoptions import (
    ACTOR,
    REASON,
    adopted,
    apply,
    decide,
    entries,
    legacy,
    plan,
    remote_record,
    results,
    roll_back,
    stays,
)
from pushlink.errors import CallerError, Code
from pushlink.flows.outcomes import Queued, Refused
from pushlink.migration import adopt_apply, batches
from pushlink.operations.actions import Decision, OperatorTerms, act
from pushlink.operations.verifying import verify
from pushlink.protocol.verbs import Verb
from pushlink.store.tables import METADATA
from pushlink.testing import verbs
from pushlink.testing.messages import creating

# ------------------------------------------------------------------------------------------------ apply


@pytest.mark.rule("MG-04", "LK-04", "ID-01")
def test_an_adopted_link_is_the_row_that_a_push_makes(stage: Stage, tmp_path: Path) -> None:
    """Column by column, but for its own id, what it is about, and the attempt that it never had."""
    pushed = stage.linked(1)
    adopted(stage, tmp_path, 2)
    found = stage.link(2)
    own = {"id", "link_key", "slot_key", "source_record_id", "remote_id", "remote_id_canonical", "locator_key"}
    assert {name for name in found if found[name] != pushed[name]} - own <= {"remote_version", "row_version"}
    assert found["row_version"] == 1
    assert found["slot_key"] == found["link_key"] == stage.slot(2)["link_key"]
    assert not stage.attempts(link_key=found["link_key"])
    [event] = stage.events(link_key=found["link_key"])
    assert (event["event"], event["actor"], event["to_status"]) == ("finalize", f"operator:{ACTOR}", "finalized")


@pytest.mark.rule("MG-01", "MG-05", "LK-01", "PA-01")
@pytest.mark.parametrize(
    "mirror", [{}, {"remote_id": None, "remote_source": None}, {"remote_id": "r-other"}, {"remote_source": "x"}]
)
def test_the_next_save_of_an_adopted_record_updates_its_remote_record(
    stage: Stage, tmp_path: Path, mirror: dict[str, Any]
) -> None:
    """Never a create, whatever stands in the legacy fields by now: after the cutover they decide nothing."""
    remote_id = remote_record(stage, name="Ada")
    legacy(stage, 1, remote_id=remote_id)
    plan(stage, tmp_path)
    apply(stage, tmp_path / "op-1")
    outcome = stage.save(1, name="Ada L.", **mirror)
    assert isinstance(outcome, Queued)
    stage.drain()
    [sent] = stage.remote.sent
    assert (sent.method, sent.path) == ("PATCH", f"/people/{remote_id}")
    assert json.loads(sent.body) == {"name": "Ada L.", "email": "p1@example.com"}
    assert stage.attempt()["status"] == "finalized"
    assert stage.slot()["acknowledged_version"] == 1
    assert len(stage.remote.api.records) == 1
    stage.save(1, name="Ada Lovelace")
    stage.drain()
    assert stage.remote.sent[-1].path == f"/people/{remote_id}"


@pytest.mark.rule("MG-04", "DR-13", "DR-10")
@pytest.mark.parametrize(
    "change",
    [
        lambda document: action_of(document)["mappings"][0].update(target="/full_name"),
        lambda document: profile_of(document).update(endpoint_class="other"),
    ],
)
def test_drift_stops_an_adopted_link_as_it_stops_any_other(
    stage: Stage, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    """The link is validated against the configuration that it was adopted under."""
    adopted(stage, tmp_path, 1)
    stage.apply(pack_with(change))
    outcome = stage.save(1, name="Ada L.")
    assert isinstance(outcome, Refused)
    assert outcome.code is Code.DRIFT
    stage.drain()
    assert stage.sends == 0


@pytest.mark.rule("MG-04", "PA-08", "DR-24")
def test_a_remote_record_that_is_not_there_suspends_an_adopted_link(stage: Stage, tmp_path: Path) -> None:
    """And no replacement is created."""
    stage.linked(9)  # proves the credential
    adopted(stage, tmp_path, 1)
    stage.save(1, name="Ada L.")
    stage.drain()
    assert stage.link(1)["status"] == "suspended_drift"
    assert stage.remote.api.creates == 1


@pytest.mark.rule("MG-04", "LK-03", "LK-07")
def test_a_create_that_is_given_an_adopted_id_waits_for_its_owner(stage: Stage, tmp_path: Path) -> None:
    """The unique locator holds for adopted links too; a rollback of the adoption lets the create go on (D-15)."""
    adopted(stage, tmp_path, 1)
    stage.remote.script.next(verbs.answer(201, {"id": "r1"}), when=creating)
    stage.save(2, name="Grace")
    stage.drain()
    [waiting] = stage.attempts()
    assert waiting["hold_code"] == "locator_conflict"
    assert json.loads(waiting["detail"])["owner_link_key"] == stage.link(1)["link_key"]
    assert stays(stage) == {"1": "rolled_back"}
    stage.clock_forward()
    stage.drain()
    assert stage.link(2)["remote_id"] == "r1"


#: What happens to record 2 between plan and apply, and what becomes of it.
SINCE: dict[str, tuple[Callable[[Stage], object], str]] = {
    "its id changed": (lambda stage: stage.put(2, remote_id="r9"), "record_changed"),
    "its mark changed": (lambda stage: stage.put(2, remote_source="other"), "record_changed"),
    "an older field was filled": (lambda stage: stage.put(2, owner="people"), "record_changed"),
    "the record is gone": (lambda stage: stage.drop(2), "record_gone"),
    "it was saved, and waits": (lambda stage: stage.save(2), "create_blocks"),
    "its id was given to another": (
        lambda stage: (
            stage.remote.script.next(verbs.answer(201, {"id": "r2"}), when=creating),
            stage.save(7, name="Seven"),
            stage.drain(),
        ),
        "owned_elsewhere",
    ),
    "nothing that was read": (lambda stage: stage.put(2, name="Another name"), "adopted"),
}


@pytest.mark.rule("MG-06", "MG-04", "D-17")
@pytest.mark.parametrize("case", SINCE)
def test_a_row_that_changed_since_the_plan_is_refused_alone(stage: Stage, tmp_path: Path, case: str) -> None:
    """Its neighbours are adopted, and nothing of it is written."""
    legacy(stage, 1, 2, 3)
    plan(stage, tmp_path)
    change, expected = SINCE[case]
    change(stage)
    assert results(stage, tmp_path / "op-1") == {"1": "adopted", "2": expected, "3": "adopted"}
    linked = {link["source_record_id"]: link["remote_id"] for link in stage.links()}
    assert ("2" in linked) is (expected == "adopted")
    assert len(stage.rows("adoption_receipt")) == 2 + (expected == "adopted")


@pytest.mark.rule("MG-06", "D-19")
def test_what_was_wanted_before_the_link_was_there_is_sent_with_it(stage: Stage, tmp_path: Path) -> None:
    """A version that was recorded and never created becomes an update; one that came after the plan stops the row."""
    stage.remote.script.next(verbs.answer(422), when=creating)
    stage.save(1, name="Ada")
    stage.drain()
    row = stage.attempt()
    supersede = Decision(
        verb=Verb.SUPERSEDE, target_id=row["id"], row_version=row["row_version"], actor="olga", reason="it is there"
    )
    with stage.engine.begin() as conn:
        act(conn, stage.world, supersede, terms=OperatorTerms(), now=stage.clock.now(conn))
    remote_id = remote_record(stage, name="?")
    stage.put(1, remote_id=remote_id, remote_source="people")
    plan(stage, tmp_path)
    t = METADATA.tables["pushlink_push_slot"]
    with stage.engine.begin() as conn:
        conn.execute(sa.update(t).values(wanted_version=t.c.wanted_version + 1))
    assert results(stage, tmp_path / "op-1") == {"1": "rows_changed"}
    plan(stage, tmp_path, "op-2")
    assert results(stage, tmp_path / "op-2") == {"1": "adopted"}
    stage.drain()
    sent = stage.remote.sent[-1]
    assert (sent.method, sent.path) == ("PATCH", f"/people/{remote_id}")
    assert stays(stage, "op-2") == {"1": "record_saved"}


@pytest.mark.rule("MG-06")
def test_an_apply_that_is_repeated_changes_nothing(stage: Stage, tmp_path: Path) -> None:
    """Also after the adopted links lived on: updated, suspended, retired, with their slots released."""
    adopted(stage, tmp_path, 1, 2, 3)
    stage.save(1, name="Ada L.")
    decide(stage, Verb.SUSPEND, 2)
    decide(stage, Verb.RETIRE, 3, release=True)
    before = stage.census()
    done = apply(stage, tmp_path / "op-1")
    assert (done.adopted, done.already_adopted, sum(done.refused.values())) == (0, 3, 0)
    assert stage.census() == before


@pytest.mark.rule("MG-06", "D-21")
def test_an_apply_under_another_configuration_than_the_planned_one_is_refused_whole(
    stage: Stage, tmp_path: Path
) -> None:
    """The link would be validated against something that nobody planned with."""
    legacy(stage, 1)
    plan(stage, tmp_path)
    stage.apply(pack_with(lambda document: action_of(document)["mappings"].pop()))
    before = stage.census()
    with pytest.raises(CallerError) as caught:
        apply(stage, tmp_path / "op-1")
    assert caught.value.code is Code.NOT_ALLOWED_NOW
    assert caught.value.evidence == {"changed": ["action_digest", "mapping_fingerprint"]}
    assert stage.census() == before


@pytest.mark.rule("MG-06")
def test_another_manifest_under_an_operation_id_that_was_used_is_refused(stage: Stage, tmp_path: Path) -> None:
    """An operation is one manifest."""
    adopted(stage, tmp_path, 1)
    legacy(stage, 2)
    (tmp_path / "op-1").rename(tmp_path / "first")
    plan(stage, tmp_path)
    with pytest.raises(CallerError, match="Another manifest was applied") as caught:
        apply(stage, tmp_path / "op-1")
    assert caught.value.code is Code.NOT_ALLOWED_NOW
    assert len(stage.links()) == 1


def spoil_totals(lines: list[bytes]) -> None:
    lines[-1] = lines[-1].replace(b'"adoptable":3', b'"adoptable":4')


#: What somebody did to a manifest, and what is said of it.
SPOILED: dict[str, tuple[Callable[[list[bytes]], object], str]] = {
    "another remote id": (
        lambda lines: lines.__setitem__(1, lines[1].replace(b'"remote_id":"r', b'"remote_id":"R')),
        "digest",
    ),
    "a line is missing": (lambda lines: lines.pop(2), "totals"),
    "a line is there twice": (lambda lines: lines.insert(2, lines[1]), "not sorted"),
    "two lines changed places": (lambda lines: lines.insert(1, lines.pop(2)), "not sorted"),
    "the end is missing": (lambda lines: lines.pop(), "ends before its last line"),
    "something behind the end": (lambda lines: lines.append(lines[-1]), "behind its last line"),
    "other totals": (spoil_totals, "totals"),
    "a blank": (lambda lines: lines.__setitem__(1, lines[1].replace(b":", b": ", 1)), "canonical form"),
    "no JSON": (lambda lines: lines.__setitem__(1, b"adopt everything\n"), "no JSON"),
    "a deep nest": (lambda lines: lines.__setitem__(1, b"[" * 5_000 + b"]" * 5_000 + b"\n"), "line 2"),
    "another format": (lambda lines: lines.__setitem__(0, lines[0].replace(b'"format":1', b'"format":2')), "format 1"),
    "a name more": (
        lambda lines: lines.__setitem__(1, lines[1].replace(b'{"link_key"', b'{"a":1,"link_key"')),
        "exactly",
    ),
    "another tenant": (lambda lines: lines.__setitem__(0, lines[0].replace(b'"tenant":""', b'"tenant":"t"')), "digest"),
    "an operation of blanks": (
        lambda lines: lines.__setitem__(0, lines[0].replace(b'"op-1"', b'" "')),
        "operation_id is empty",
    ),
}


@pytest.mark.rule("MG-06")
@pytest.mark.parametrize("case", SPOILED)
def test_a_manifest_that_was_edited_is_not_applied(stage: Stage, tmp_path: Path, case: str) -> None:
    """Any byte of it; nothing is written."""
    legacy(stage, 1, 2, 3)
    plan(stage, tmp_path)
    path = tmp_path / "op-1"
    lines = path.read_bytes().splitlines(keepends=True)
    change, said = SPOILED[case]
    change(lines)
    path.write_bytes(b"".join(lines))
    with pytest.raises(CallerError, match="cannot be used") as caught:
        adopt_apply.read_manifest(path)
    assert said in caught.value.message
    assert caught.value.evidence["line"]
    assert stage.links() == []


@pytest.mark.rule("D-40", "MG-04")
def test_an_adoption_belongs_to_its_tenant(stage: Stage, tmp_path: Path) -> None:
    """Two tenants adopt the same record under keys of their own; neither takes the other's back."""
    stage.apply(pack_with(), tenant="north")
    legacy(stage, 1)
    plan(stage, tmp_path, "op-1")
    plan(stage, tmp_path, "op-2", tenant="north")
    assert results(stage, tmp_path / "op-1") == {"1": "adopted"}
    assert results(stage, tmp_path / "op-2") == {"1": "adopted"}
    assert {link["tenant"] for link in stage.links()} == {"", "north"}
    with pytest.raises(CallerError, match="adopted anything"):
        roll_back(stage, "op-2")


# ------------------------------------------------------------------------------------------------ receipts, audit


@pytest.mark.rule("MG-06", "SY-03")
def test_each_adoption_has_a_receipt_and_each_batch_its_place_in_the_audit(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who, why, by which manifest, from which fields; a repeat and a plan add nothing."""
    monkeypatch.setattr(batches, "SIZE", 2)
    adopted(stage, tmp_path, 1, 2, 3)
    apply(stage, tmp_path / "op-1")
    digest = json.loads((tmp_path / "op-1").read_text().splitlines()[-1])["digest"]
    receipts = stage.rows("adoption_receipt", "link_key")
    planned = {entry["link_key"]: entry for entry in entries(tmp_path / "op-1")}
    for receipt in receipts:
        assert receipt["deed"] == "adopt"
        assert (receipt["actor"], receipt["reason"], receipt["manifest_digest"]) == (ACTOR, REASON, digest)
        assert receipt["record_digest"] == planned[receipt["link_key"]]["record_digest"]
        assert (receipt["position"], receipt["previous_hash"]) == (1, "sha256:" + "0" * 64)
    assert len(receipts) == 3
    actions = stage.rows("operator_action", "id", verb="adopt_apply")
    assert [json.loads(action["after"])["links"] for action in actions] == [2, 1]
    assert {(action["actor"], action["reason"], action["target_id"]) for action in actions} == {(ACTOR, REASON, "op-1")}
    with stage.engine.begin() as conn:
        assert not verify(conn).broken


@pytest.mark.rule("MG-06")
def test_receipts_of_a_key_are_one_sealed_chain(stage: Stage, tmp_path: Path, dialect: str) -> None:
    """Adopted, taken back, adopted again: three places; a receipt that was changed stops whoever comes next."""
    adopted(stage, tmp_path, 1)
    roll_back(stage)
    plan(stage, tmp_path, "op-2")
    assert apply(stage, tmp_path / "op-2").adopted == 1
    chain = stage.rows("adoption_receipt", "position")
    assert [(one["operation_id"], one["deed"]) for one in chain] == [
        ("op-1", "adopt"),
        ("op-1", "roll_back"),
        ("op-2", "adopt"),
    ]
    assert [one["previous_hash"] for one in chain[1:]] == [one["hash"] for one in chain[:-1]]
    with stage.engine.begin() as conn:
        if dialect == "postgresql":
            conn.execute(sa.text("ALTER TABLE pushlink_adoption_receipt DISABLE TRIGGER ALL"))
        else:
            for (name,) in conn.execute(
                sa.text("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = :t"),
                {"t": "pushlink_adoption_receipt"},
            ).all():
                conn.execute(sa.DDL("DROP TRIGGER %(name)s", context={"name": name}))
        conn.execute(sa.text("UPDATE pushlink_adoption_receipt SET actor = 'nobody' WHERE position = 2"))
    assert results(stage, tmp_path / "op-2") == {"1": "receipts_broken"}
    assert stays(stage, "op-2") == {"1": "receipts_broken"}
