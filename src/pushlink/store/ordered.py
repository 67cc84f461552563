"""What is sent one after the other: the first of each ordering, and nothing while one of it is under way.

Attempts that share an `order_key` at a destination go in the order of their saves. An attempt that waits for its next
try keeps its place; one that is held, in doubt or ended gives it up. The lock under which this is read
(`paces.lock_paces`) makes it true across workers.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from pushlink.protocol.snapshots import AttemptId
from pushlink.protocol.states import Operation
from pushlink.store.claims import Queue
from pushlink.store.dialect import array_rows
from pushlink.store.rows import DueRow, columns_of, read_rows
from pushlink.store.tables import UtcTime, push_attempt, push_slot


def has_ordered(conn: sa.Connection, queue: Queue) -> bool:
    """Whether anything open at this queue's destination is sent in an order."""
    bound = {"of_tenant": queue.tenant, "of_destination": queue.destination_slot_id}
    return conn.execute(_HAS_ORDERED, bound).first() is not None


def read_firsts(conn: sa.Connection, queue: Queue, *, limit: int, now: dt.datetime) -> list[DueRow]:
    """The rows of one queue whose turn it is in their orderings, locked, skipping what others hold."""
    bound = {
        "lane": queue.lane,
        "of_tenant": queue.tenant,
        "of_destination": queue.destination_slot_id,
        "due_by": now,
        "at_most": limit,
    }
    return read_rows(DueRow, conn.execute(_READ_FIRSTS, bound))


def read_out_of_turn(conn: sa.Connection, ids: Sequence[AttemptId]) -> frozenset[AttemptId]:
    """Those of these attempts whose turn it is not."""
    if not ids:
        return frozenset()
    rows = array_rows(conn, "ids", {"id": sa.Text()}, [(i,) for i in ids])
    t = push_attempt
    blocked = sa.exists().where(*_in_front())
    found = conn.execute(sa.select(t.c.id).join_from(rows, t, t.c.id == rows.c.id).where(blocked))
    return frozenset(AttemptId(row.id) for row in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class InFront:
    """What goes before an attempt: how many, and the one whose turn it is."""

    count: int
    attempt_id: AttemptId
    operation: Operation
    status: str
    source_object: str
    record_id: str


def read_in_front(conn: sa.Connection, attempt_id: AttemptId) -> InFront | None:
    """What goes before this attempt in its ordering; `None` when it is its turn, or when it stands in no ordering."""
    t, slot = push_attempt, push_slot
    row = conn.execute(
        sa.select(
            sa.func.count().over().label("how_many"),
            _OTHER.c.id,
            _OTHER.c.operation,
            _OTHER.c.status,
            slot.c.source_object,
            slot.c.source_record_id,
        )
        .select_from(t)
        .join(_OTHER, sa.and_(*_in_front()))
        .join(slot, slot.c.link_key == _OTHER.c.link_key)
        .where(t.c.id == attempt_id)
        .order_by(_OTHER.c.status == "pending", _OTHER.c.created_at, _OTHER.c.id)
        .limit(1)
    ).first()
    if row is None:
        return None
    return InFront(
        count=row.how_many,
        attempt_id=AttemptId(row.id),
        operation=Operation(row.operation),
        status=row.status,
        source_object=row.source_object,
        record_id=row.source_record_id,
    )


def _in_front() -> tuple[sa.ColumnElement[bool], ...]:
    """What makes another open attempt of the same ordering go first: it is under way, or older and not held."""
    t = push_attempt
    before = sa.tuple_(_OTHER.c.created_at, _OTHER.c.id) < sa.tuple_(t.c.created_at, t.c.id)
    return (
        _OTHER.c.tenant == t.c.tenant,
        _OTHER.c.destination_slot_id == t.c.destination_slot_id,
        _OTHER.c.order_key == t.c.order_key,
        _OTHER.c.id != t.c.id,
        sa.and_(_OTHER_OPEN),
        sa.or_(_OTHER.c.status != "pending", sa.and_(_OTHER.c.hold_code.is_(None), before)),
    )


# --------------------------------------------------------------------------------------- statements, built once


def _open(alias: sa.FromClause, literal: sa.TextClause) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        alias.c.tenant == sa.bindparam("of_tenant", type_=sa.Text()),
        alias.c.destination_slot_id == sa.bindparam("of_destination", type_=sa.Text()),
        sa.and_(literal),
    )


_A: Final = push_attempt.alias("first_key")
_B: Final = push_attempt.alias("next_key")
_HEAD: Final = push_attempt.alias("head")
_BUSY: Final = push_attempt.alias("busy")
_OTHER: Final = push_attempt.alias("other")

#: Literal on purpose, as in `claims.py`: the planner must see that the partial index covers them.
_A_OPEN = sa.text("first_key.order_key IS NOT NULL AND first_key.status IN ('pending', 'processing', 'post_sent')")
_B_OPEN = sa.text("next_key.order_key IS NOT NULL AND next_key.status IN ('pending', 'processing', 'post_sent')")
_HEAD_OPEN = sa.text("head.order_key IS NOT NULL AND head.status IN ('pending', 'processing', 'post_sent')")
_BUSY_OPEN = sa.text("busy.order_key IS NOT NULL AND busy.status IN ('pending', 'processing', 'post_sent')")
_OTHER_OPEN = sa.text("other.order_key IS NOT NULL AND other.status IN ('pending', 'processing', 'post_sent')")

_HAS_ORDERED: Final = sa.select(sa.literal(1)).select_from(_A).where(*_open(_A, _A_OPEN)).limit(1)

_FIRST_KEY: Final = sa.select(sa.func.min(_A.c.order_key).label("order_key")).where(*_open(_A, _A_OPEN))
_KEYS_SO_FAR: Final = _FIRST_KEY.cte("order_keys", recursive=True)
_KEYS: Final = _KEYS_SO_FAR.union_all(
    sa.select(
        sa.select(sa.func.min(_B.c.order_key))
        .where(*_open(_B, _B_OPEN), _B.c.order_key > _KEYS_SO_FAR.c.order_key)
        .scalar_subquery()
    ).where(_KEYS_SO_FAR.c.order_key.is_not(None))
)
_FIRST_OF_KEY: Final = (
    sa.select(_HEAD.c.id)
    .where(*_open(_HEAD, _HEAD_OPEN), _HEAD.c.order_key == _KEYS.c.order_key, _HEAD.c.hold_code.is_(None))
    .order_by(_HEAD.c.created_at, _HEAD.c.id)
    .limit(1)
    .correlate(_KEYS)
    .scalar_subquery()
)
_IS_BUSY: Final = (
    sa.exists()
    .where(*_open(_BUSY, _BUSY_OPEN), _BUSY.c.order_key == _KEYS.c.order_key, _BUSY.c.status != "pending")
    .correlate(_KEYS)
)
_FIRSTS: Final = sa.select(_FIRST_OF_KEY).select_from(_KEYS).where(_KEYS.c.order_key.is_not(None), ~_IS_BUSY)

_T: Final = push_attempt
_READ_FIRSTS: Final = (
    sa.select(*columns_of(DueRow, _T))
    .where(
        _T.c.id.in_(_FIRSTS),
        _T.c.status == "pending",
        _T.c.hold_code.is_(None),
        _T.c.dispatch_lane == sa.bindparam("lane"),
        _T.c.not_before <= sa.bindparam("due_by", type_=UtcTime()),
    )
    .order_by(_T.c.created_at, _T.c.id)
    .limit(sa.bindparam("at_most", type_=sa.Integer()))
    .with_for_update(of=_T, skip_locked=True, key_share=True)
)
