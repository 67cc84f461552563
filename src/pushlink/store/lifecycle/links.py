"""The compare-and-set of links: the only writer of a link's status.

A link is born finalized or not at all: two unique keys decide, one for its slot and one for its remote record. Every
later move is bound to the row version that its mover read. Whoever waits for a record is told in the transaction that
finalizes its link.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import sqlalchemy as sa

from pushlink.protocol.snapshots import AttemptId, LinkKey
from pushlink.protocol.states import USABLE_LINKS, LinkEvent, LinkStatus, follow_link
from pushlink.store.associations import note_finalized
from pushlink.store.dialect import Batch, array_rows, insert_ignore
from pushlink.store.events import Event, insert_events, write_json
from pushlink.store.rows import LinkRow
from pushlink.store.tables import UtcTime, remote_link


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLink:
    """A link to finalize, and who made it: the row as it shall stand, but for its times, which the insert sets."""

    row: LinkRow
    attempt_id: AttemptId | None
    actor: str
    reason: str | None = None


def insert_links(conn: sa.Connection, items: Sequence[NewLink], *, now: dt.datetime) -> list[bool]:
    """Insert each link unless its slot or its remote record is taken; False where one of the two keys said no."""
    if not items:
        return []
    status = follow_link(None, LinkEvent.FINALIZE)
    rows = [_values_of(item.row) for item in items]
    written = {row.id for row in _INSERT(conn, rows, linked_at=now, born=status).all()}
    insert_events(
        conn,
        [
            Event(
                attempt_id=item.attempt_id,
                link_key=item.row.link_key,
                tenant=item.row.tenant,
                subject="link",
                event=LinkEvent.FINALIZE.value,
                to_status=status.value,
                actor=item.actor,
                reason=item.reason,
                evidence={"link_id": item.row.id, "remote_id": item.row.remote_id},
                row_version=1,
            )
            for item in items
            if item.row.id in written
        ],
        now=now,
    )
    note_finalized(conn, [item.row.link_key for item in items if item.row.id in written], now=now)
    return [item.row.id in written for item in items]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkMove:
    """One transition of one link, bound to the row version that the mover read."""

    link_id: str
    link_key: LinkKey
    tenant: str
    status: LinkStatus
    row_version: int
    event: LinkEvent
    actor: str
    attempt_id: AttemptId | None = None
    reason_code: str | None = None
    evidence: Mapping[str, object] | None = None


def move_links(conn: sa.Connection, moves: Sequence[LinkMove], *, now: dt.datetime) -> list[bool]:
    """Make each move if the link is still as named; a retired link lets go of its remote record."""
    if not moves:
        return []
    targets = [follow_link(move.status, move.event) for move in moves]
    rows = array_rows(
        conn,
        "moves",
        {
            "id": sa.Text(),
            "version": sa.BigInteger(),
            "old_status": sa.Text(),
            "new_status": sa.Text(),
            "new_reason": sa.Text(),
            "new_evidence": sa.Text(),
            "frees_slot": sa.Boolean(),
        },
        [
            (
                m.link_id,
                m.row_version,
                m.status.value,
                target.value,
                m.reason_code,
                write_json(m.evidence),
                m.event is LinkEvent.RELEASE_SLOT,
            )
            for m, target in zip(moves, targets, strict=True)
        ],
    )
    t, m = remote_link, rows.c
    statement = (
        sa.update(t)
        .where(t.c.id == m.id, t.c.row_version == m.version, t.c.status == m.old_status)
        .values(
            status=m.new_status,
            locator_key=sa.case((m.new_status == LinkStatus.RETIRED.value, sa.null()), else_=t.c.locator_key),
            slot_key=sa.case((m.frees_slot, sa.null()), else_=t.c.slot_key),
            reason_code=m.new_reason,
            evidence=m.new_evidence,
            updated_at=sa.bindparam("moved_at", now, UtcTime()),
            row_version=t.c.row_version + 1,
        )
        .returning(t.c.id)
    )
    written = {row.id for row in conn.execute(statement)}
    insert_events(
        conn,
        [
            Event(
                attempt_id=move.attempt_id,
                link_key=move.link_key,
                tenant=move.tenant,
                subject="link",
                event=move.event.value,
                from_status=move.status.value,
                to_status=target.value,
                actor=move.actor,
                reason=move.reason_code,
                evidence=move.evidence,
                row_version=move.row_version + 1,
            )
            for move, target in zip(moves, targets, strict=True)
            if move.link_id in written
        ],
        now=now,
    )
    usable = [
        move.link_key
        for move, target in zip(moves, targets, strict=True)
        if move.link_id in written and target in USABLE_LINKS
    ]
    note_finalized(conn, usable, now=now)
    return [move.link_id in written for move in moves]


def _insert_statement(rows: sa.FromClause) -> sa.Executable:
    instant = sa.bindparam("linked_at", type_=UtcTime())
    born = sa.bindparam("born", type_=sa.Text())
    chosen = sa.select(*(rows.c[name] for name in _COLUMNS), born, instant, instant).where(sa.true())
    names = [*_COLUMNS, "status", "finalized_at", "updated_at"]
    statement = insert_ignore(remote_link).from_select(names, chosen.order_by(rows.c.link_key))
    return statement.returning(remote_link.c.id)


_OF_THE_INSERT: Final = frozenset({"status", "finalized_at", "updated_at"})
_COLUMNS: Final[Mapping[str, sa.types.TypeEngine[Any]]] = {
    c.name: sa.BigInteger() if c.name == "row_version" else sa.Text()
    for c in remote_link.columns
    if c.name not in _OF_THE_INSERT
}
_values_of: Final = attrgetter(*_COLUMNS)
_INSERT: Final = Batch("linked", _COLUMNS).prepare(_insert_statement)
