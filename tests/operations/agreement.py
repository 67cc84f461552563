"""That `explain` and `stuck` say the same of every record: what waits, for what, and what may be typed about it."""

from __future__ import annotations

from typing import Any, TypeAlias

from flows.stage import Stage
from pushlink.operations import waiting
from pushlink.operations.explain import explain
from pushlink.operations.waiting import Stuck, StuckGroup
from pushlink.protocol.attention import KINDS, Kind

#: Record, kind, code, surface, and the row that a decision names.
Waits: TypeAlias = tuple[str, str, str, str, str]

#: Rows of a page: few, so that every walk has several.
PAGE = 3


def groups_of(stage: Stage) -> tuple[StuckGroup, ...]:
    with stage.engine.begin() as conn:
        return waiting.stuck(conn, world=stage.world, now=stage.clock.now(conn))


def walked(stage: Stage, group: StuckGroup, limit: int = PAGE) -> list[Stuck]:
    """Every row of a cause, page by page."""
    rows: list[Stuck] = []
    page: str | None = None
    while True:
        with stage.engine.begin() as conn:
            now = stage.clock.now(conn)
            found = waiting.stuck_page(conn, group.cause, world=stage.world, page=page, limit=limit, now=now)
        assert len(found.rows) <= limit
        rows += found.rows
        if found.next_page is None:
            return rows
        page = found.next_page


def told_by_stuck(stage: Stage, page: int) -> dict[Waits, Stuck]:
    found: dict[Waits, Stuck] = {}
    for group in groups_of(stage):
        rows = walked(stage, group, page)
        assert len(rows) == group.count
        assert group.rows == tuple(rows[: len(group.rows)])
        for row in rows:
            record = f"{row.source_object} {row.record_id}" if row.record_id else ""
            waits = (record, group.kind, group.code, group.about, row.target_id)
            assert waits not in found
            found[waits] = row
    return found


def told_by_explain(stage: Stage) -> dict[Waits, Any]:
    found: dict[Waits, Any] = {}
    slots = stage.rows("push_slot")
    for name, record_id in sorted({(slot["source_object"], slot["source_record_id"]) for slot in slots}):
        with stage.engine.begin() as conn:
            said = explain(conn, name, record_id, now=stage.clock.now(conn), world=stage.world)
        for action in said.actions:
            assert action.needs_person == bool(action.needs)
            for need in action.needs:
                waits = (f"{name} {record_id}", need.kind, need.code, need.about, str(need.target_id))
                found[waits] = (need, action, said.notes)
    return found


def require_agreement(stage: Stage, *, page: int = PAGE) -> set[Waits]:
    """Hold both against each other; answers with what waits, of records."""
    stuck = told_by_stuck(stage, page)
    records = {waits: row for waits, row in stuck.items() if row.record_id}
    explained = told_by_explain(stage)
    assert set(records) == set(explained)
    for waits, row in records.items():
        need, action, _ = explained[waits]
        assert need.first == row.first, waits
        assert need.since == row.since, waits
        offered = {(verb.name, verb.command) for verb in action.verbs}
        extra = {(verb.name, verb.command) for verb in row.verbs if verb.name != "explain"} - offered
        assert not extra, waits
        assert row.first in row.verbs
    for _, kind, *_ in set(stuck) - set(records):
        says = KINDS[Kind(kind)].says
        notes = {note for _, _, said in explained.values() for note in said}
        assert kind == Kind.UNUSABLE or not explained or any(note.startswith(says) for note in notes), kind
    return set(records)
