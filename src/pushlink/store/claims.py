"""What a claim reads: which queues have work, which rows are at their heads, and whose lease has ended.

Queues take turns by tenant, then by destination, so that one with a hundred thousand rows delays another's single row
by a bounded number of claims. Every statement names the lanes it may see in a positive list; a row of any other lane is
never read here, so it can neither be touched nor starve anybody. Rows that somebody else has locked are skipped.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import sqlalchemy as sa

from pushlink.protocol.states import Hold, Lane
from pushlink.store.rows import AttemptRow, columns_of, read_row
from pushlink.store.tables import UtcTime, push_attempt

#: Literal on purpose: the planner must see that the partial indexes of `tables.py` cover these predicates.
_DUE = sa.text(
    "pushlink_push_attempt.status IN ('pending', 'writeback_pending') AND pushlink_push_attempt.hold_code IS NULL"
)
_LEASED = sa.text("pushlink_push_attempt.status IN ('processing', 'post_sent', 'writeback_commit_pending')")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Queue:
    """One line of due work: a tenant's destination in one lane."""

    tenant: str
    destination_slot_id: str
    lane: str


@dataclass(slots=True)
class Turn:
    """Where the round of tenants and destinations stands; one for each worker, moved on by every claim."""

    last_tenant: str = ""
    last_destination: dict[str, str] = field(default_factory=dict)


def read_queues(conn: sa.Connection, lanes: Sequence[Lane]) -> list[Queue]:
    """The queues that have due or waiting work, found by stepping over the index, not by reading the rows."""
    found: list[Queue] = []
    t = push_attempt
    place = sa.tuple_(t.c.tenant, t.c.destination_slot_id)
    step = (
        sa.select(t.c.tenant, t.c.destination_slot_id)
        .where(
            t.c.dispatch_lane == sa.bindparam("lane"),
            place > sa.tuple_(sa.bindparam("after_tenant", type_=sa.Text()), sa.bindparam("after", type_=sa.Text())),
            _DUE,
        )
        .order_by(t.c.tenant, t.c.destination_slot_id)
        .limit(1)
    )
    for lane in sorted(lanes):
        tenant, destination = "", ""
        while row := conn.execute(step, {"lane": lane, "after_tenant": tenant, "after": destination}).first():
            tenant, destination = row.tenant, row.destination_slot_id
            found.append(Queue(tenant=tenant, destination_slot_id=destination, lane=lane))
    return found


def share(queues: Sequence[Queue], turn: Turn, limit: int) -> list[tuple[Queue, int]]:
    """How many rows each queue may give to this claim, in the order of turns: tenants first, then destinations."""
    by_tenant = {tenant: list(lines) for tenant, lines in groupby(sorted(queues), key=lambda queue: queue.tenant)}
    tenants = _rotated(sorted(by_tenant), turn.last_tenant)
    lines = {tenant: _rotated_queues(by_tenant[tenant], turn.last_destination.get(tenant, "")) for tenant in tenants}
    counts: dict[Queue, int] = {}
    order: list[Queue] = []
    given = 0
    position = dict.fromkeys(tenants, 0)
    while tenants and given < limit:
        for tenant in tenants:
            if given == limit:
                break
            queue = lines[tenant][position[tenant] % len(lines[tenant])]
            position[tenant] += 1
            if queue not in counts:
                order.append(queue)
            counts[queue] = counts.get(queue, 0) + 1
            turn.last_tenant, turn.last_destination[tenant] = tenant, queue.destination_slot_id
            given += 1
    return [(queue, counts[queue]) for queue in order]


def _rotated(names: list[str], last: str) -> list[str]:
    return [name for name in names if name > last] + [name for name in names if name <= last]


def _rotated_queues(queues: list[Queue], last: str) -> list[Queue]:
    later = [queue for queue in queues if queue.destination_slot_id > last]
    return later + [queue for queue in queues if queue.destination_slot_id <= last]


def read_due(conn: sa.Connection, queue: Queue, *, limit: int, now: dt.datetime) -> list[AttemptRow]:
    """The rows at the head of one queue that are due, locked for this transaction, skipping what others hold."""
    t = push_attempt
    statement = (
        sa.select(*columns_of(AttemptRow, t))
        .where(
            t.c.dispatch_lane == sa.bindparam("lane", queue.lane),
            t.c.tenant == sa.bindparam("of_tenant", queue.tenant),
            t.c.destination_slot_id == sa.bindparam("of_destination", queue.destination_slot_id),
            t.c.not_before <= sa.bindparam("due_by", now, UtcTime()),
            _DUE,
        )
        .order_by(t.c.not_before, t.c.id)
        .limit(sa.bindparam("at_most", limit, sa.Integer()))
        .with_for_update(skip_locked=True, key_share=True)
    )
    return [read_row(AttemptRow, row) for row in conn.execute(statement)]


def read_expired(conn: sa.Connection, lanes: Sequence[Lane], *, limit: int, now: dt.datetime) -> list[AttemptRow]:
    """Rows in work whose lease has ended by the database's clock, locked, skipping what others hold."""
    t = push_attempt
    statement = (
        sa.select(*columns_of(AttemptRow, t))
        .where(
            t.c.dispatch_lane.in_([lane.value for lane in lanes]),
            t.c.lease_until < sa.bindparam("ended_by", now, UtcTime()),
            _LEASED,
        )
        .order_by(t.c.lease_until, t.c.id)
        .limit(sa.bindparam("at_most", limit, sa.Integer()))
        .with_for_update(skip_locked=True, key_share=True)
    )
    return [read_row(AttemptRow, row) for row in conn.execute(statement)]


def read_held(conn: sa.Connection, lanes: Sequence[Lane], holds: Collection[Hold], *, limit: int) -> list[AttemptRow]:
    """Rows under one of `holds`, oldest first, locked, skipping what others hold."""
    t = push_attempt
    statement = (
        sa.select(*columns_of(AttemptRow, t))
        .where(
            t.c.dispatch_lane.in_([lane.value for lane in lanes]),
            t.c.hold_code.in_(sorted(hold.value for hold in holds)),
        )
        .order_by(t.c.updated_at, t.c.id)
        .limit(sa.bindparam("at_most", limit, sa.Integer()))
        .with_for_update(skip_locked=True, key_share=True)
    )
    return [read_row(AttemptRow, row) for row in conn.execute(statement)]


def next_due(conn: sa.Connection, lanes: Sequence[Lane]) -> dt.datetime | None:
    """When the earliest waiting row becomes due or the earliest lease ends; `None` when nothing waits."""
    t = push_attempt
    lane_values = [lane.value for lane in lanes]
    waiting = sa.select(sa.func.min(t.c.not_before)).where(t.c.dispatch_lane.in_(lane_values), _DUE)
    leased = sa.select(sa.func.min(t.c.lease_until)).where(t.c.dispatch_lane.in_(lane_values), _LEASED)
    moments: list[dt.datetime] = [m for q in (waiting, leased) if (m := conn.execute(q).scalar()) is not None]
    return min(moments, default=None)
