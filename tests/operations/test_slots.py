"""Independence of a slot, and the end of a whole one: link by link, resumable, and nothing that is not over is lost."""

from __future__ import annotations

from typing import Any

import pytest

from flows.stage import Stage
from migration.slots import renamed, slot_row
from operations.operators import ADA, WHY, actions, lost_create
from pushlink.errors import CallerError, Code
from pushlink.flows.outcomes import Refused, Reserved
from pushlink.operations import slots
from pushlink.operations.actions import OperatorTerms
from pushlink.operations.slots import RetireSlot
from pushlink.store.access import writing


def declare(stage: Stage, slot: str, *, revision: int | None = None) -> slots.Independent:
    with stage.engine.begin() as conn:
        seen = revision or slots.list_slots(conn).catalog_revision
        return slots.declare_independent(
            conn, stage.world, slot, tenant="", actor="olga", reason=WHY, catalog_revision=seen
        )


def retire(stage: Stage, slot: str = "act-1", *, links: int | None = None, **more: Any) -> slots.SlotRetired:
    terms = more.pop("terms", OperatorTerms())
    run = {name: more.pop(name) for name in ("dry_run", "on_progress") if name in more}
    asked = RetireSlot(tenant="", slot=slot, links=links, actor="olga", reason=WHY, **more)
    return slots.retire_slot(lambda: writing(stage.engine), stage.world, asked, terms=terms, **run)


def view(stage: Stage, slot: str) -> slots.SlotView:
    with stage.engine.begin() as conn:
        [found] = [one for one in slots.list_slots(conn).slots if one.slot_id == slot]
    return found


# ------------------------------------------------------------------------------------------------ independence


@pytest.mark.rule("D-29", "ID-04", "SY-03")
def test_an_independent_slot_creates_beside_the_old_one_and_the_audit_says_beside_what(stage: Stage) -> None:
    """Refused before, reserved after; who said so, why, and which slots owned something then, stay in the audit."""
    stage.linked(1, **ADA)
    stage.apply(renamed())
    assert isinstance(stage.save(2, name="Bea", email="b@example.com"), Refused)
    done = declare(stage, "act-2")
    assert done == slots.Independent(slot="act-2", status="independent", beside=("act-1 -> dest-1",))
    assert isinstance(stage.save(2), Reserved)
    [action] = actions(stage)
    assert (action["verb"], action["actor"], action["reason"]) == ("declare_independent", "olga", WHY)
    assert "act-1 -> dest-1" in action["after"]
    before = stage.census()
    assert declare(stage, "act-2").beside == ()
    assert stage.census() == before


@pytest.mark.rule("D-29")
def test_independence_covers_what_ended_before_it_was_said_and_nothing_after(stage: Stage) -> None:
    """A slot that moves to another destination later still owns what it pushed to the first."""
    stage.apply(renamed())
    declare(stage, "act-2")
    stage.fixed.advance(minutes=1)
    stage.linked(1, **ADA)
    stage.apply(renamed("act-2", "dest-2"))
    outcome = stage.save(2, name="Bea", email="b@example.com")
    assert isinstance(outcome, Refused)
    assert outcome.evidence["unresolved_slots"] == ["act-2 -> dest-1"]
    assert slot_row(stage, "act-2")["status"] == "independent"
    stage.fixed.advance(minutes=1)
    assert declare(stage, "act-2").beside == ("act-2 -> dest-1",)
    assert isinstance(stage.save(2), Reserved)


@pytest.mark.rule("SY-03", "D-29")
def test_independence_is_of_a_slot_in_use_at_the_revision_that_was_seen(stage: Stage) -> None:
    """Another catalogue, an unknown slot, one that is gone, no reason: refused, and nothing was written."""
    stage.linked(1, **ADA)
    stage.apply(renamed())
    before = stage.census()
    with pytest.raises(CallerError) as stale:
        declare(stage, "act-2", revision=1)
    assert stale.value.code is Code.STALE_VERSION
    for slot in ("act-1", "act-9"):
        with pytest.raises(CallerError, match="not in use"):
            declare(stage, slot)
    with stage.engine.begin() as conn, pytest.raises(CallerError, match="reason"):
        slots.declare_independent(conn, stage.world, "act-2", tenant="", actor="olga", reason=" ", catalog_revision=99)
    assert stage.census() == before


# ------------------------------------------------------------------------------------------------ retiring


@pytest.mark.rule("D-29", "D-35", "SY-03")
def test_a_slot_is_retired_link_by_link_and_its_successor_may_create(stage: Stage) -> None:
    """A dry run says what would be done and changes nothing; then every link is retired, and the lineage is over."""
    for number in (1, 2, 3):
        stage.linked(number)
    stage.apply(renamed())
    before = stage.census()
    tried = retire(stage, dry_run=True)
    assert (tried.applied, tried.done, tried.links, tried.status) == (False, 3, 3, "dropped")
    assert stage.census() == before
    told: list[int] = []
    done = retire(stage, links=3, on_progress=told.append)
    assert (done.applied, done.done, done.refused, done.left, done.status) == (True, 3, 0, 0, "retired")
    assert [row.outcome for row in done.retired] == ["done"] * 3
    assert told == [1, 2, 3]
    assert {link["status"] for link in stage.links()} == {"retired"}
    assert [row["verb"] for row in actions(stage)] == ["retire"] * 3 + ["slot_retire"]
    assert isinstance(stage.save(1), Reserved)
    again = retire(stage, links=0)
    assert (again.done, again.status) == (0, "retired")


@pytest.mark.rule("D-29", "D-17")
def test_what_a_kill_left_is_retired_by_the_same_command(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each link is committed by itself; the next run finds the others, over pages as well."""
    monkeypatch.setattr(slots, "PAGE", 2)
    for number in range(1, 6):
        stage.linked(number)
    stage.apply(renamed())

    def killed(done: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retire(stage, links=5, on_progress=killed)
    assert view(stage, "act-1").links == 2
    done = retire(stage, links=5)
    assert (done.links, done.done, done.status) == (2, 2, "retired")


@pytest.mark.rule("D-17", "SY-03")
def test_a_link_that_changed_meanwhile_is_refused_in_its_own_row(stage: Stage) -> None:
    """Somebody suspends one between the page and its turn: its row says so, the others are retired."""
    for number in (1, 2, 3):
        stage.linked(number)
    last = max(stage.links(), key=lambda link: link["link_key"])

    def meddle(done: int) -> None:
        if done == 1:
            stage.sql("UPDATE pushlink_remote_link SET row_version = row_version + 1 WHERE id = :id", id=last["id"])

    done = retire(stage, links=3, on_progress=meddle)
    assert [(row.outcome, row.code) for row in done.retired] == [
        ("done", None),
        ("done", None),
        ("refused", Code.STALE_VERSION.value),
    ]
    assert view(stage, "act-1").links == 1


@pytest.mark.rule("D-29", "D-09")
def test_a_create_that_is_not_over_keeps_its_slot(stage: Stage) -> None:
    """It is named, and the slot is not retired: what became of its request is another decision."""
    stage.linked(1, **ADA)
    doubtful = lost_create(stage, 2)
    stage.apply(renamed())
    done = retire(stage, links=1)
    assert (done.done, done.left, done.status) == (1, 1, "dropped")
    assert [(row.kind, row.id, row.outcome) for row in done.retired][1:] == [("create", doubtful["id"], "left")]
    assert isinstance(stage.save(3, name="Cid", email="c@example.com"), Refused)


@pytest.mark.rule("SY-03", "D-35")
def test_more_links_than_were_looked_at_are_not_retired(stage: Stage) -> None:
    """Nor any link of an unknown slot, nor without a reason, nor released without a second one where it is asked."""
    for number in (1, 2):
        stage.linked(number)
    before = stage.census()
    for more, code in (
        ({"links": 1}, Code.STALE_VERSION),
        ({"links": 2, "slot": "act-9"}, Code.RECORD_UNKNOWN),
    ):
        with pytest.raises(CallerError) as caught:
            retire(stage, **more)  # type: ignore[arg-type]
        assert caught.value.code is code
    done = retire(stage, links=2, release=True, terms=OperatorTerms(second_principal=True))
    assert [row.code for row in done.retired] == [Code.NOT_ALLOWED_NOW.value] * 2
    assert stage.census() == before
    done = retire(stage, links=2, release=True, approver="peter", terms=OperatorTerms(second_principal=True))
    assert (done.done, done.status) == (2, "active")
    assert isinstance(stage.save(1), Reserved)


def test_the_list_says_what_stands_under_each_slot(stage: Stage) -> None:
    """Live links, creates that are not over, where it pushed, and what became of it."""
    stage.linked(1, **ADA)
    lost_create(stage, 2)
    stage.fixed.advance(seconds=1)
    stage.apply(renamed("act-1", "dest-2"))
    old = view(stage, "act-1")
    assert (old.links, old.creates, old.status) == (1, 1, "active")
    assert (old.destination_slot_id, old.former_destinations) == ("dest-2", ("dest-1",))
    assert view(stage, "dest-1").status == "dropped"
