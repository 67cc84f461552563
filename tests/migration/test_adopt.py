"""Planning an adoption: what fields and our own rows prove, and what the manifest says of everything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flows.stage import PERSON, MakeStage, Stage, action_of, pack_with
from migration import slots
from migration.adoptions import (
    apply,
    asked,
    decide,
    entries,
    legacy,
    plan,
    reasons,
    results,
)
from migration.moves import force
from pushlink.errors import CallerError, Code
from pushlink.migration import adopt, batches
from pushlink.operations.actions import Decision, OperatorTerms, act
from pushlink.protocol.adoption import Because
from pushlink.protocol.snapshots import canonical
from pushlink.protocol.states import BLOCKING, AttemptStatus
from pushlink.protocol.verbs import Verb
from pushlink.store.tables import METADATA
from pushlink.testing import verbs
from pushlink.testing.messages import creating


def people(stage: Stage) -> list[dict[str, Any]]:
    """The host's table, whole."""
    with stage.engine.begin() as conn:
        return [dict(row) for row in conn.execute(sa.select(PERSON).order_by(PERSON.c.id)).mappings()]


# ------------------------------------------------------------------------------------------------ what fields prove

#: What stands in a record, and what becomes of it.
FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "one id, one mark": ({}, "adopt"),
    "another mark that was named": ({"remote_source": "sync-2"}, "adopt"),
    "two fields with an id": ({"salary": "s1", "owner": "people"}, "several_ids"),
    "two fields with one and the same id": ({"salary": "r1"}, "several_ids"),
    "a mark without an id": ({"remote_id": None}, "provenance_without_id"),
    "a mark with an empty id": ({"remote_id": ""}, "provenance_without_id"),
    "an older mark without its id": ({"owner": "people"}, "provenance_without_id"),
    "an id in the older pair alone": (
        {"remote_id": None, "remote_source": None, "salary": "s1", "owner": "people"},
        "outside_pair",
    ),
    "an id in the older pair, without a mark": (
        {"remote_id": None, "remote_source": None, "salary": "s1"},
        "outside_pair",
    ),
    "an id without a mark": ({"remote_source": None}, "id_without_provenance"),
    "a mark of no slot": ({"remote_source": "push_person_2019"}, "action_unmapped"),
    "a mark that is almost one": ({"remote_source": "People"}, "action_unmapped"),
    "a mark with a blank": ({"remote_source": "people "}, "action_unmapped"),
    "a mark of another destination": ({"remote_source": "people-eu"}, "destination_changed"),
    "a field that says another destination": ({"email": "eu"}, "destination_changed"),
    "a field that says no destination": ({"email": None}, "destination_changed"),
    "an id that is a sentence": ({"remote_id": "see ticket 7"}, "id_unusable"),
    "the collection's own name": ({"remote_id": "people"}, "id_unusable"),
    "an id against the profile's rule": ({"remote_id": "x1"}, "id_unusable"),
    "an id that would change the route": ({"remote_id": "r1/../r2"}, "id_unusable"),
}


@pytest.mark.rule("MG-07", "MG-09")
def test_the_old_name_of_an_action_is_its_mark_once_a_manifest_has_said_so(stage: Stage, tmp_path: Path) -> None:
    """Named lineage proves an id, also over two steps, and is in the manifest; a name that is like it proves none."""
    legacy(stage, 1, 2, remote_source="push_people_old")
    legacy(stage, 3, remote_source="push_people_older")
    legacy(stage, 4, remote_source="push_people")
    assert plan(stage, tmp_path, "op-1").adoptable == 0
    slots.apply(stage, slots.planned(stage, of="push_people_old", to="act-1", operation_id="move-1"))
    plan(stage, tmp_path, "op-2")
    assert reasons(tmp_path / "op-2") == dict.fromkeys("12", "adopt") | dict.fromkeys("34", "action_unmapped")
    with pytest.raises(CallerError, match="one destination"):
        plan(stage, tmp_path, "op-3", elsewhere=("push_people_old",))
    assert results(stage, tmp_path / "op-2") == {"1": "adopted", "2": "adopted"}
    stage.sql("UPDATE person SET remote_source = NULL, remote_id = NULL WHERE id = 2")
    legacy(stage, 5, remote_source="push_people_old")
    stage.apply(slots.renamed("act-2"))
    slots.apply(stage, slots.planned(stage, of="act-1", to="act-2", operation_id="move-2"))
    slots.apply(stage, slots.planned(stage, of="push_people_older", to="act-2", operation_id="move-3"))
    plan(stage, tmp_path, "op-4", action_slot_id="act-2")
    found = {"1": "already_linked", "3": "adopt", "4": "action_unmapped", "5": "adopt"}
    assert reasons(tmp_path / "op-4") == found
    head = json.loads((tmp_path / "op-4").read_text(encoding="utf-8").splitlines()[0])
    assert head["legacy"]["markers"] == ["act-1", "people", "push_people_old", "push_people_older"]
    assert results(stage, tmp_path / "op-4") == {"3": "adopted", "5": "adopted"}


def strict(document: dict[str, Any]) -> None:
    """Ids of this remote begin with an r."""
    action_of(document)["create"]["response"]["id_rule"] = {"pattern": "^r.*$"}


@pytest.mark.rule("MG-01", "MG-02")
@pytest.mark.parametrize("case", FIELDS)
def test_a_record_is_adopted_only_when_its_fields_prove_one_id(
    make_stage: MakeStage, tmp_path: Path, case: str
) -> None:
    """Each kind of trouble has its reason, with what was seen; a record without anything of old is none."""
    stage = make_stage(pack=pack_with(strict))
    more, expected = FIELDS[case]
    legacy(stage, 1, **{"email": "home", **more})
    stage.put(2, name="nobody pushed this one")
    totals = plan(
        stage,
        tmp_path,
        markers=("people", "sync-2"),
        elsewhere=("people-eu",),
        destination_field="email",
        destination_value="home",
    )
    assert reasons(tmp_path / "op-1") == {"1": expected}
    assert (totals.records, totals.empty, totals.adoptable) == (2, 1, int(expected == "adopt"))
    [entry] = entries(tmp_path / "op-1")
    assert bool(entry.get("detail")) is (expected != "adopt")
    assert results(stage, tmp_path / "op-1") == ({"1": "adopted"} if expected == "adopt" else {})
    assert len(stage.links()) == int(expected == "adopt")


@pytest.mark.rule("MG-03", "LK-03", "D-25")
def test_records_that_claim_one_remote_record_are_all_refused(make_stage: MakeStage, tmp_path: Path) -> None:
    """Also when they spell its id otherwise: what is compared is the canonical id."""

    def integers(document: dict[str, Any]) -> None:
        action_of(document)["create"]["response"]["id_rule"] = {"canonical": "integer_v1"}

    stage = make_stage(pack=pack_with(integers))
    for number, text in enumerate(("7", "007", "8", "9", "7", "09"), 1):
        legacy(stage, number, remote_id=text)
    plan(stage, tmp_path)
    twice = {"1", "2", "4", "5", "6"}
    assert reasons(tmp_path / "op-1") == dict.fromkeys(twice, "claimed_twice") | {"3": "adopt"}
    by_id = {entry["record_id"]: entry.get("detail", "") for entry in entries(tmp_path / "op-1")}
    assert "record 6 claims '09'" in by_id["4"]
    assert results(stage, tmp_path / "op-1") == {"3": "adopted"}


@pytest.mark.rule("MG-02")
def test_a_value_that_cannot_be_kept_exact_costs_its_own_record_only(
    stage: Stage, tmp_path: Path, dialect: str
) -> None:
    """A number that is none, in a column of numbers; its neighbours are judged."""
    if dialect == "postgresql":
        pytest.skip("there a column of a type holds values of this type alone")
    legacy(stage, 1, 2)
    stage.sql("UPDATE person SET born = 'no day' WHERE id = 1")
    plan(stage, tmp_path, destination_field="born", destination_value="")
    assert reasons(tmp_path / "op-1") == {"1": "record_unusable", "2": "adopt"}


@pytest.mark.rule("MG-01")
def test_without_a_field_of_marks_nothing_is_planned(make_stage: MakeStage, tmp_path: Path) -> None:
    """An id alone proves nothing; whoever plans may name the two fields, and only fields that are there."""

    def markless(document: dict[str, Any]) -> None:
        action_of(document)["mirror"] = {"remote_id_field": "remote_id"}

    stage = make_stage(pack=pack_with(markless))
    legacy(stage, 1)
    with pytest.raises(CallerError, match="proves nothing"):
        plan(stage, tmp_path)
    with pytest.raises(CallerError, match="has no field nothing"):
        plan(stage, tmp_path, current=adopt.Pair(remote_id="remote_id", provenance="nothing"))
    plan(stage, tmp_path, current=adopt.Pair(remote_id="remote_id", provenance="remote_source"))
    assert reasons(tmp_path / "op-1") == {"1": "adopt"}
    assert not (tmp_path / ".pushlink-adopt-").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"action_slot_id": "act-9"}, "No usable action"),
        ({"source_object": "Nothing"}, "No usable action"),
        ({"markers": ("people",), "elsewhere": ("people",)}, "means one destination"),
        ({"markers": ("",)}, "means one destination"),
        ({"older": (adopt.Pair(remote_id="remote_id", provenance="owner"),)}, "stands in two pairs"),
        ({"destination_field": "planet"}, "has no field planet"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(
    stage: Stage, tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    """Before a record is read; no file is left."""
    with pytest.raises(CallerError, match=said):
        plan(stage, tmp_path, **more)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith((".pushlink", "op"))] == []


# ------------------------------------------------------------------------------------------------ what our rows say


@pytest.mark.rule("MG-09", "ID-04")
def test_nothing_is_adopted_across_an_older_slot_that_owns_something(stage: Stage, tmp_path: Path) -> None:
    """What stands in a record may be the id that the older slot got; the same when the slot was replaced meanwhile."""
    stage.linked(1)
    legacy(stage, 2)
    plan(stage, tmp_path, "op-1")

    def replaced(document: dict[str, Any]) -> None:
        action_of(document)["action_slot_id"] = "act-2"

    stage.apply(pack_with(replaced))
    for run in (
        lambda: plan(stage, tmp_path, "op-2", action_slot_id="act-2"),
        lambda: apply(stage, tmp_path / "op-1"),
    ):
        with pytest.raises(CallerError) as caught:
            run()
    assert caught.value.code is Code.CALLER_MISTAKE  # the planned slot is no action's any more
    with pytest.raises(CallerError) as caught:
        plan(stage, tmp_path, "op-2", action_slot_id="act-2")
    assert caught.value.code is Code.NOT_ALLOWED_NOW
    assert caught.value.evidence == {"unresolved_slots": ["act-1 -> dest-1"]}


@pytest.mark.rule("MG-09", "AT-02")
@pytest.mark.parametrize("status", sorted(BLOCKING))
def test_a_create_that_is_not_over_keeps_its_record_out(
    make_stage: MakeStage, tmp_path: Path, status: AttemptStatus
) -> None:
    """Whatever its status: it may have made a remote record that nobody has seen yet."""
    stage = make_stage(pack=pack_with(lambda document: action_of(document).pop("mirror")))
    stage.remote.script.next(verbs.store_then_close(), when=creating)
    stage.save(1, name="Ada")
    stage.drain()
    stage.sql("UPDATE pushlink_push_attempt SET in_doubt = false")
    force(stage, status, "create", stage.attempt()["link_key"])
    stage.put(1, remote_id="r1", remote_source="people")
    legacy(stage, 2)
    plan(stage, tmp_path, current=adopt.Pair(remote_id="remote_id", provenance="remote_source"))
    assert reasons(tmp_path / "op-1") == {"1": "create_blocks", "2": "adopt"}
    assert results(stage, tmp_path / "op-1") == {"2": "adopted"}


@pytest.mark.rule("MG-09", "D-08")
def test_an_ambiguous_create_is_settled_by_a_person_and_not_by_the_record(stage: Stage, tmp_path: Path) -> None:
    """The record shows an id, the create is in doubt: adopting the id on the attempt is the only way."""
    stage.remote.script.next(verbs.store_then_close(), when=creating)
    stage.save(1, name="Ada")
    stage.drain()
    [record] = stage.remote.api.records
    stage.put(1, remote_id=str(record.id), remote_source="people")
    plan(stage, tmp_path)
    assert reasons(tmp_path / "op-1") == {"1": "create_blocks"}
    row = stage.attempt()
    decision = Decision(
        verb=Verb.ADOPT,
        target_id=row["id"],
        row_version=row["row_version"],
        actor="olga",
        reason="seen there",
        argument=str(record.id),
    )
    with stage.engine.begin() as conn:
        act(conn, stage.world, decision, terms=OperatorTerms(), now=stage.clock.now(conn))
    legacy(stage, 2, remote_id=str(record.id))
    plan(stage, tmp_path, "op-2")
    assert reasons(tmp_path / "op-2") == {"1": "claimed_twice", "2": "claimed_twice"}
    stage.put(1, remote_id=None, remote_source=None)
    plan(stage, tmp_path, "op-3")
    assert reasons(tmp_path / "op-3") == {"2": "conflict_open"}


@pytest.mark.rule("MG-09", "LK-07", "D-15")
def test_nothing_is_adopted_while_a_locator_conflict_is_open(stage: Stage, tmp_path: Path) -> None:
    """An attempt waits for a remote record that its owner has let go meanwhile: a third record does not get it."""
    stage.linked(1)
    taken = stage.link(1)["remote_id"]
    stage.remote.script.next(verbs.answer(201, {"id": taken}), when=creating)
    stage.save(2, name="Grace")
    stage.drain()
    assert stage.attempts(hold_code="locator_conflict")
    legacy(stage, 3, remote_id=taken)
    plan(stage, tmp_path, "op-1")
    assert reasons(tmp_path / "op-1")["3"] == "claimed_twice"  # the mirror of the first claims it as well
    stage.put(1, remote_id=None, remote_source=None)
    plan(stage, tmp_path, "op-2")
    assert reasons(tmp_path / "op-2") == {"3": "owned_elsewhere"}
    t = METADATA.tables["pushlink_remote_link"]
    with stage.engine.begin() as conn:  # the owner lets go, and nobody has told the attempt yet
        conn.execute(sa.update(t).values(locator_key=None, status="retired"))
    plan(stage, tmp_path, "op-3")
    assert reasons(tmp_path / "op-3") == {"3": "conflict_open"}
    assert results(stage, tmp_path / "op-3") == {}


@pytest.mark.rule("MG-02", "LK-03", "MG-05")
def test_what_is_linked_already_stays_as_it_is(stage: Stage, tmp_path: Path) -> None:
    """The same id needs nothing, another one is not believed, and an id of another record's link is not given away."""
    stage.linked(1)
    stage.linked(2)
    stage.linked(3)
    ids = {number: stage.link(number)["remote_id"] for number in (1, 2, 3)}
    stage.put(2, remote_id="elsewhere")
    stage.put(3, remote_id=None, remote_source=None)
    legacy(stage, 4, remote_id=ids[3])
    before = stage.census()
    plan(stage, tmp_path)
    assert reasons(tmp_path / "op-1") == {"1": "already_linked", "2": "link_differs", "4": "owned_elsewhere"}
    assert stage.census() == before


@pytest.mark.rule("MG-09", "D-35")
@pytest.mark.parametrize("release", [False, True])
def test_a_link_that_a_person_retired_does_not_come_back_through_the_record(
    stage: Stage, tmp_path: Path, release: bool
) -> None:
    """Neither with its slot closed nor with its slot released: the mirror still shows the id that was given up."""
    stage.linked(1)
    decide(stage, Verb.RETIRE, release=release)
    plan(stage, tmp_path)
    assert reasons(tmp_path / "op-1") == {"1": "link_retired"}
    if release:
        stage.put(1, remote_id="r-new")
        plan(stage, tmp_path, "op-2")
        assert reasons(tmp_path / "op-2") == {"1": "adopt"}


# ------------------------------------------------------------------------------------------------ dry run


@pytest.mark.rule("MG-06")
def test_a_plan_changes_nothing_and_says_exactly_what_an_apply_does(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a row of ours or of the host differs; the apply adopts the planned rows and no other; both in batches."""
    monkeypatch.setattr(batches, "SIZE", 3)
    legacy(stage, *range(1, 9))
    legacy(stage, 20, remote_source="other")
    legacy(stage, 21, 22, remote_id="r20")
    stage.linked(30)
    before, host = stage.census(), people(stage)
    totals = plan(stage, tmp_path)
    assert (stage.census(), people(stage)) == (before, host)
    planned = reasons(tmp_path / "op-1")
    assert {record for record, said in planned.items() if said == "adopt"} == {str(number) for number in range(1, 9)}
    assert totals.adoptable == 8
    assert totals.refused == {"action_unmapped": 1, "already_linked": 1, "claimed_twice": 2}
    seen: list[int] = []
    apply(stage, tmp_path / "op-1", on_progress=seen.append)
    assert seen == [3, 6, 8]
    linked = {link["source_record_id"] for link in stage.links()}
    assert linked == {str(number) for number in range(1, 9)} | {"30"}
    assert people(stage) == host
    assert stage.sends == 1


@pytest.mark.rule("MG-06")
def test_the_same_rows_and_declarations_give_the_same_bytes(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the size of a batch and of a sorted run, and in link-key order."""
    legacy(stage, *range(1, 30))
    legacy(stage, 40, 41, remote_id="r1")
    plan(stage, tmp_path)
    first = (tmp_path / "op-1").read_bytes()
    monkeypatch.setattr(batches, "SIZE", 7)
    monkeypatch.setattr("pushlink.migration.spool.RUN", 4)
    (tmp_path / "op-1").unlink()
    plan(stage, tmp_path)
    assert (tmp_path / "op-1").read_bytes() == first
    keys = [entry["link_key"] for entry in entries(tmp_path / "op-1")]
    assert keys == sorted(keys)
    for line in first.splitlines():
        assert canonical(json.loads(line)) == line
    with pytest.raises(CallerError, match="never written over"):
        plan(stage, tmp_path)


def test_every_reason_has_a_test() -> None:
    """Somewhere in these files; a reason that nothing gives is none."""
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_adopt*.py"))
    assert [one.value for one in Because if f'"{one.value}"' not in text] == []
    assert asked().operation_id == "op-1"
