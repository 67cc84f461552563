"""Backfills: how far each has come, what it counted, and what it was refused.

A run's row is locked while one of its batches is saved, and says where the next one begins; both commit together. A
refusal is one row for each record and action, as the last backfill that looked at the record found it: it is replaced
when another one looks, and gone when that one was not refused.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import sqlalchemy as sa

from pushlink.protocol.states import AttemptStatus
from pushlink.store.dialect import array_rows, insert_ignore
from pushlink.store.rows import columns_of, read_row, read_rows, values_of
from pushlink.store.tables import backfill, backfill_refusal, push_attempt, push_slot


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBackfill:
    """A run to begin. `open_key` says which runs are the same one: at most one of them is open."""

    id: str
    tenant: str
    source_object: str
    user_id: str
    updated_column: str | None
    since: str | None
    scan_window: str | None
    open_key: str
    expected: int
    unusable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the records of a run, or of one batch, came to: `records` counts records, the others mostly outcomes."""

    records: int = 0
    reserved: int = 0
    deferred: int = 0
    queued: int = 0
    unchanged: int = 0
    refused: int = 0
    unconcerned: int = 0  # records that no action is for
    unusable: int = 0  # rows that have no record id


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRow:
    """One run."""

    id: str
    tenant: str
    source_object: str
    user_id: str
    updated_column: str | None
    since: str | None
    scan_window: str | None
    open_key: str | None  # `None` once it has ended
    scanned_to: str | None
    version: int
    expected: int
    records: int
    reserved: int
    deferred: int
    queued: int
    unchanged: int
    refused: int
    unconcerned: int
    unusable: int
    started_at: dt.datetime
    updated_at: dt.datetime
    ended_at: dt.datetime | None

    @property
    def counts(self) -> Counts:
        """What it counted so far."""
        return Counts(**{field.name: getattr(self, field.name) for field in fields(Counts)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalRow:
    """One refusal that a backfill met."""

    source_record_id: str
    action: str
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where the create attempts stand that were made since a run began."""

    finalized: int = 0
    parked: int = 0
    held: int = 0
    waiting: int = 0


def open_backfill(conn: sa.Connection, new: NewBackfill, *, now: dt.datetime) -> BackfillRow:
    """Begin a run, unless one of its kind is open: then that one goes on."""
    conn.execute(insert_ignore(backfill).values(**values_of(new), started_at=now, updated_at=now))
    row = conn.execute(sa.select(*_ROW).where(backfill.c.open_key == new.open_key)).one()
    return read_row(BackfillRow, row)


def find_backfill(conn: sa.Connection, open_key: str) -> BackfillRow | None:
    """The open run of a kind."""
    row = conn.execute(sa.select(*_ROW).where(backfill.c.open_key == open_key)).one_or_none()
    return None if row is None else read_row(BackfillRow, row)


def lock_backfill(conn: sa.Connection, backfill_id: str) -> BackfillRow:
    """The run, which nobody else moves on until this transaction ends."""
    row = conn.execute(sa.select(*_ROW).where(backfill.c.id == backfill_id).with_for_update()).one()
    return read_row(BackfillRow, row)


def advance_backfill(
    conn: sa.Connection, backfill_id: str, counts: Counts, *, scanned_to: str, now: dt.datetime
) -> BackfillRow:
    """Count a batch that was saved in this transaction, and say where the next one begins; call it under the lock."""
    added = {name: backfill.c[name] + count for name, count in values_of(counts).items()}
    return _change(conn, backfill_id, added | {"scanned_to": scanned_to}, now)


def end_backfill(conn: sa.Connection, backfill_id: str, *, now: dt.datetime) -> BackfillRow:
    """End a run, finished or given up; call it under the lock."""
    return _change(conn, backfill_id, {"open_key": None, "ended_at": now}, now)


def replace_refusals(
    conn: sa.Connection,
    run: BackfillRow,
    record_ids: Sequence[str],
    refusals: Sequence[RefusalRow],
    *,
    now: dt.datetime,
) -> None:
    """Make these the refusals of all these records, in place of what was found before."""
    t = backfill_refusal
    if record_ids:
        rows = array_rows(conn, "looked_at", {"record_id": sa.Text()}, [(i,) for i in sorted(set(record_ids))])
        looked_at = t.c.source_record_id.in_(sa.select(rows.c.record_id))
        mine = (t.c.tenant == run.tenant, t.c.source_object == run.source_object)
        conn.execute(sa.delete(t).where(*mine, looked_at))
    about = {"backfill_id": run.id, "tenant": run.tenant, "source_object": run.source_object, "at": now}
    if refusals:
        conn.execute(sa.insert(t), [about | values_of(refusal) for refusal in refusals])


def read_refusals(conn: sa.Connection, backfill_id: str, *, limit: int | None = None) -> list[RefusalRow]:
    """The refusals of a run, in the order in which it met them."""
    t = backfill_refusal
    statement = sa.select(*columns_of(RefusalRow, t)).where(t.c.backfill_id == backfill_id).order_by(t.c.id)
    return read_rows(RefusalRow, conn.execute(statement.limit(limit)))


def count_refusals(conn: sa.Connection, backfill_id: str) -> dict[str, int]:
    """How often a run was refused with which code."""
    t = backfill_refusal
    statement = sa.select(t.c.code, sa.func.count()).where(t.c.backfill_id == backfill_id).group_by(t.c.code)
    return {str(code): int(count) for code, count in conn.execute(statement.order_by(t.c.code))}


def count_standing(conn: sa.Connection, *, tenant: str, source_object: str, since: dt.datetime) -> Standing:
    """Where the creates of an object stand that were reserved since then, whoever reserved them."""
    a, s = push_attempt, push_slot
    held = a.c.hold_code.is_not(None)
    statement = (
        sa.select(a.c.status, held.label("held"), sa.func.count())
        .join_from(s, a, a.c.link_key == s.c.link_key)
        .where(s.c.tenant == tenant, s.c.source_object == source_object)
        .where(a.c.operation == "create", a.c.created_at >= since)
        .group_by(a.c.status, held)
    )
    found = {"finalized": 0, "parked": 0, "held": 0, "waiting": 0}
    for status, is_held, count in conn.execute(statement):
        found[_STANDING.get(status) or ("held" if is_held else "waiting")] += int(count)
    return Standing(**found)


def _change(conn: sa.Connection, backfill_id: str, values: Mapping[str, Any], now: dt.datetime) -> BackfillRow:
    statement = sa.update(backfill).where(backfill.c.id == backfill_id, backfill.c.open_key.is_not(None))
    changed = statement.values(**values, version=backfill.c.version + 1, updated_at=now).returning(*_ROW)
    return read_row(BackfillRow, conn.execute(changed).one())


_ROW: Final = columns_of(BackfillRow, backfill)
_STANDING: Final[Mapping[str, str]] = {
    AttemptStatus.FINALIZED.value: "finalized",
    AttemptStatus.AMBIGUOUS_REMOTE_EFFECT.value: "parked",
    AttemptStatus.TERMINAL_FAILED.value: "parked",
}
