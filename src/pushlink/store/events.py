"""The append-only log of every transition and every piece of late evidence.

An event is written in the transaction of what it tells of. `evidence` is a JSON object without secrets and without
values that somebody may not read; it names codes, ids, digests and times.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import sqlalchemy as sa

from pushlink.protocol.snapshots import AttemptId, LinkKey
from pushlink.store.dialect import ORDINALITY, Batch
from pushlink.store.rows import AttemptRow, DueRow
from pushlink.store.tables import UtcTime, attempt_event

Subject = Literal["create", "update", "link", "slot"]

_COLUMNS: dict[str, sa.types.TypeEngine[Any]] = {
    "attempt_id": sa.Text(),
    "link_key": sa.Text(),
    "tenant": sa.Text(),
    "subject": sa.Text(),
    "event": sa.Text(),
    "from_status": sa.Text(),
    "to_status": sa.Text(),
    "actor": sa.Text(),
    "reason": sa.Text(),
    "evidence": sa.Text(),
    "row_version": sa.BigInteger(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What happened to one attempt, link or slot, who did it, and why."""

    attempt_id: AttemptId | None
    link_key: LinkKey
    tenant: str
    subject: Subject
    event: str
    from_status: str | None = None
    to_status: str | None = None
    actor: str
    reason: str | None = None
    evidence: Mapping[str, object] | None = None
    row_version: int = 0


def insert_events(conn: sa.Connection, events: Sequence[Event], *, now: dt.datetime) -> None:
    """Append `events` in their order."""
    if not events:
        return
    rows = [
        (
            e.attempt_id,
            e.link_key,
            e.tenant,
            e.subject,
            e.event,
            e.from_status,
            e.to_status,
            e.actor,
            e.reason,
            write_json(e.evidence),
            e.row_version,
        )
        for e in events
    ]
    _INSERT(conn, rows, happened_at=now)


def write_json(value: Mapping[str, object] | None) -> str | None:
    """A JSON object as rows keep it; times and enums become text."""
    return None if value is None else _ENCODE(value)


def _insert_statement(rows: sa.FromClause) -> sa.Executable:
    instant = sa.bindparam("happened_at", type_=UtcTime())
    chosen = sa.select(*(rows.c[name] for name in _COLUMNS), instant).order_by(rows.c[ORDINALITY])
    return sa.insert(attempt_event).from_select([*_COLUMNS, "at"], chosen)


# `json.dumps` with any option makes an encoder for each call.
_ENCODE: Final = json.JSONEncoder(default=str).encode

_INSERT: Final = Batch("happened", _COLUMNS).prepare(_insert_statement)


def unmoved(
    row: AttemptRow | DueRow,
    event: str,
    *,
    actor: str,
    reason: str | None = None,
    evidence: Mapping[str, object] | None,
) -> Event:
    """An event of an attempt that stands where it stood."""
    return Event(
        attempt_id=row.id,
        link_key=row.link_key,
        tenant=row.tenant,
        subject=row.operation.value,
        event=event,
        from_status=row.status.value,
        to_status=row.status.value,
        actor=actor,
        reason=reason,
        evidence=evidence,
        row_version=row.row_version + 1,
    )
