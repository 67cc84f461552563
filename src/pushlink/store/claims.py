"""What a claim reads: which queues have work, which rows are at their heads, and whose lease has ended.

Queues take turns by tenant, then by destination, so that one with a hundred thousand rows delays another's single row
by a bounded number of claims. Every statement names the lanes it may see in a positive list; a row of any other lane is
never read here, so it can neither be touched nor starve anybody. Rows that somebody else has locked are skipped.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import sqlalchemy as sa

from pushlink.protocol.states import Hold, Lane
from pushlink.store.circuits import Place
from pushlink.store.rows import AttemptRow, DueRow, columns_of, read_rows
from pushlink.store.tables import UtcTime, push_attempt

#: Literal on purpose: the planner must see that the partial indexes of `tables.py` cover these predicates.
_DUE = sa.text(
    "pushlink_push_attempt.status IN ('pending', 'writeback_pending') AND pushlink_push_attempt.hold_code IS NULL"
)
_WRITEBACK = sa.text("pushlink_push_attempt.status = 'writeback_pending' AND pushlink_push_attempt.hold_code IS NULL")
_LEASED = sa.text("pushlink_push_attempt.status IN ('processing', 'post_sent', 'writeback_commit_pending')")
_LOOKED_FOR = sa.text(
    "pushlink_push_attempt.status = 'ambiguous_remote_effect' AND pushlink_push_attempt.lease_until IS NOT NULL"
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Queue:
    """One line of due work: a tenant's destination in one lane."""

    tenant: str
    destination_slot_id: str
    lane: str

    @property
    def place(self) -> tuple[str, str]:
        """Its tenant and destination: what limits are about."""
        return self.tenant, self.destination_slot_id


@dataclass(slots=True)
class Turn:
    """Where the round of tenants and destinations stands; one for each worker, moved on by every claim."""

    last_tenant: str = ""
    last_destination: dict[str, str] = field(default_factory=dict)


def read_queues(conn: sa.Connection, lanes: Sequence[Lane]) -> list[Queue]:
    """The queues that have due or waiting work, found by stepping over the index, not by reading the rows."""
    found: list[Queue] = []
    for lane in sorted(lanes):
        tenant, destination = "", ""
        while row := conn.execute(_NEXT_QUEUE, {"lane": lane, "after_tenant": tenant, "after": destination}).first():
            tenant, destination = row.tenant, row.destination_slot_id
            found.append(Queue(tenant=tenant, destination_slot_id=destination, lane=lane))
    return found


def share(
    queues: Sequence[Queue], turn: Turn, limit: int, takes: Callable[[Queue], bool] = lambda _: True
) -> list[tuple[Queue, int]]:
    """How many rows each queue may give to this claim, in the order of turns: tenants first, then destinations.

    `takes` is asked for each row, and uses up what several queues may share; a queue that is refused is passed over.
    """
    by_tenant = {tenant: list(lines) for tenant, lines in groupby(sorted(queues), key=lambda queue: queue.tenant)}
    tenants = _rotated(sorted(by_tenant), turn.last_tenant)
    lines = {tenant: _rotated_queues(by_tenant[tenant], turn.last_destination.get(tenant, "")) for tenant in tenants}
    counts: dict[Queue, int] = {}
    order: list[Queue] = []
    given = 0
    position = dict.fromkeys(tenants, 0)
    while tenants and given < limit:
        for tenant in list(tenants):
            if given == limit:
                break
            queue = _next_line(lines[tenant], position, tenant, takes)
            if queue is None:
                tenants.remove(tenant)
                continue
            if queue not in counts:
                order.append(queue)
            counts[queue] = counts.get(queue, 0) + 1
            turn.last_tenant, turn.last_destination[tenant] = tenant, queue.destination_slot_id
            given += 1
    return [(queue, counts[queue]) for queue in order]


def _next_line(
    lines: Sequence[Queue], position: dict[str, int], tenant: str, takes: Callable[[Queue], bool]
) -> Queue | None:
    """The tenant's next queue that may give one more row, and the position behind it; `None` when none of them may."""
    for _ in lines:
        queue = lines[position[tenant] % len(lines)]
        position[tenant] += 1
        if takes(queue):
            return queue
    return None


def _rotated(names: list[str], last: str) -> list[str]:
    return [name for name in names if name > last] + [name for name in names if name <= last]


def _rotated_queues(queues: list[Queue], last: str) -> list[Queue]:
    later = [queue for queue in queues if queue.destination_slot_id > last]
    return later + [queue for queue in queues if queue.destination_slot_id <= last]


def read_due(
    conn: sa.Connection, queue: Queue, *, limit: int, now: dt.datetime, writebacks_only: bool = False
) -> list[DueRow]:
    """The rows at the head of one queue that are due, locked for this transaction, skipping what others hold.

    With `writebacks_only`, those alone that send nothing: what is left to do while the remote wants to be left alone.
    """
    bound = {
        "lane": queue.lane,
        "of_tenant": queue.tenant,
        "of_destination": queue.destination_slot_id,
        "due_by": now,
        "at_most": limit,
    }
    return read_rows(DueRow, conn.execute(_READ_DUE_WRITEBACKS if writebacks_only else _READ_DUE, bound))


def read_expired(conn: sa.Connection, lanes: Sequence[Lane], *, limit: int, now: dt.datetime) -> list[AttemptRow]:
    """Rows in work whose lease has ended by the database's clock, locked, skipping what others hold."""
    bound = {"lanes": [lane.value for lane in lanes], "ended_by": now, "at_most": limit}
    return read_rows(AttemptRow, conn.execute(_READ_EXPIRED, bound))


def read_answered(
    conn: sa.Connection, lanes: Sequence[Lane], *, limit: int, now: dt.datetime, without: Collection[Place] = ()
) -> list[AttemptRow]:
    """Creates whose answer is stored and whose time has come: a look-up is due, or their owner is dead. Locked.

    Those of the destinations `without` are left out.
    """
    bound = {"lanes": [lane.value for lane in lanes], "ended_by": now, "at_most": limit}
    return read_rows(AttemptRow, conn.execute(_elsewhere(_READ_ANSWERED, without), bound))


def read_looked_for(
    conn: sa.Connection, lanes: Sequence[Lane], *, limit: int, now: dt.datetime, without: Collection[Place] = ()
) -> list[AttemptRow]:
    """Creates in doubt whose record is to be looked for now, by their frozen contract. Locked; as above."""
    bound = {"lanes": [lane.value for lane in lanes], "ended_by": now, "at_most": limit}
    return read_rows(AttemptRow, conn.execute(_elsewhere(_READ_LOOKED_FOR, without), bound))


def _elsewhere(statement: sa.Select[Any], without: Collection[Place]) -> sa.Select[Any]:
    place = sa.tuple_(_T.c.tenant, _T.c.destination_slot_id)
    return statement.where(place.not_in(sorted(without))) if without else statement


def read_held(conn: sa.Connection, lanes: Sequence[Lane], holds: Collection[Hold], *, limit: int) -> list[AttemptRow]:
    """Rows under one of `holds`, oldest first, locked, skipping what others hold."""
    bound = {
        "lanes": [lane.value for lane in lanes],
        "holds": sorted(hold.value for hold in holds),
        "at_most": limit,
    }
    return read_rows(AttemptRow, conn.execute(_READ_HELD, bound))


def next_due(
    conn: sa.Connection, lanes: Sequence[Lane], throttled: Mapping[tuple[str, str], dt.datetime] | None = None
) -> dt.datetime | None:
    """When the earliest waiting row becomes due or the earliest lease ends; `None` when nothing waits.

    The requests and look-ups of a `throttled` destination become due when it wants to be asked again.
    """
    bound = {"lanes": [lane.value for lane in lanes]}
    if throttled:
        moments = [conn.execute(statement, bound).scalar() for statement in (_NEXT_OWNED, _NEXT_WRITEBACK)]
        moments += [_next_of(conn, queue, throttled) for queue in read_queues(conn, lanes)]
        for statement in (_NEXT_ANSWERED, _NEXT_LOOKED_FOR):
            of_places = conn.execute(_by_place(statement), bound)
            moments += [max(row.moment, throttled.get((row.tenant, row.place), row.moment)) for row in of_places]
    else:
        whole = (_NEXT_LEASED, _NEXT_LOOKED_FOR, _NEXT_WAITING)
        moments = [conn.execute(statement, bound).scalar() for statement in whole]
    return min((moment for moment in moments if moment is not None), default=None)


def _by_place(statement: sa.Select[Any]) -> sa.Select[Any]:
    place = (_T.c.tenant, _T.c.destination_slot_id)
    return statement.add_columns(place[0], place[1].label("place")).group_by(*place)


def _next_of(conn: sa.Connection, queue: Queue, throttled: Mapping[tuple[str, str], dt.datetime]) -> dt.datetime | None:
    bound = {"lane": queue.lane, "of_tenant": queue.tenant, "of_destination": queue.destination_slot_id}
    moment: dt.datetime | None = conn.execute(_NEXT_OF_QUEUE, bound).scalar()
    until = throttled.get((queue.tenant, queue.destination_slot_id))
    return moment if moment is None or until is None else max(moment, until)


# --------------------------------------------------------------------------------------- statements, built once

_T: Final = push_attempt
_IN_LANES: Final = _T.c.dispatch_lane.in_(sa.bindparam("lanes", expanding=True, type_=sa.Text()))
_AT_MOST: Final = sa.bindparam("at_most", type_=sa.Integer())
_ANSWERED: Final = sa.and_(_T.c.status == "post_sent", _T.c.operation == "create")

_NEXT_QUEUE: Final = (
    sa.select(_T.c.tenant, _T.c.destination_slot_id)
    .where(
        _T.c.dispatch_lane == sa.bindparam("lane"),
        sa.tuple_(_T.c.tenant, _T.c.destination_slot_id)
        > sa.tuple_(sa.bindparam("after_tenant", type_=sa.Text()), sa.bindparam("after", type_=sa.Text())),
        _DUE,
    )
    .order_by(_T.c.tenant, _T.c.destination_slot_id)
    .limit(1)
)
_READ_DUE: Final = (
    sa.select(*columns_of(DueRow, _T))
    .where(
        sa.or_(_T.c.order_key.is_(None), _T.c.status == "writeback_pending"),  # what is ordered: `ordered.py`
        _T.c.dispatch_lane == sa.bindparam("lane"),
        _T.c.tenant == sa.bindparam("of_tenant"),
        _T.c.destination_slot_id == sa.bindparam("of_destination"),
        _T.c.not_before <= sa.bindparam("due_by", type_=UtcTime()),
        _DUE,
    )
    .order_by(_T.c.not_before, _T.c.id)
    .limit(_AT_MOST)
    .with_for_update(skip_locked=True, key_share=True)
)
_READ_DUE_WRITEBACKS: Final = _READ_DUE.where(_WRITEBACK)
_READ_EXPIRED: Final = (
    sa.select(*columns_of(AttemptRow, _T))
    .where(_IN_LANES, _T.c.lease_until < sa.bindparam("ended_by", type_=UtcTime()), _LEASED)
    .order_by(_T.c.lease_until, _T.c.id)
    .limit(_AT_MOST)
    .with_for_update(skip_locked=True, key_share=True)
)
_READ_ANSWERED: Final = _READ_EXPIRED.where(_ANSWERED)
_READ_LOOKED_FOR: Final = (
    sa.select(*columns_of(AttemptRow, _T))
    .where(_IN_LANES, _T.c.lease_until <= sa.bindparam("ended_by", type_=UtcTime()), _LOOKED_FOR)
    .order_by(_T.c.lease_until, _T.c.id)
    .limit(_AT_MOST)
    .with_for_update(skip_locked=True, key_share=True)
)
_READ_HELD: Final = (
    sa.select(*columns_of(AttemptRow, _T))
    .where(_IN_LANES, _T.c.hold_code.in_(sa.bindparam("holds", expanding=True, type_=sa.Text())))
    .order_by(_T.c.updated_at, _T.c.id)
    .limit(_AT_MOST)
    .with_for_update(skip_locked=True, key_share=True)
)
_NEXT_OF_QUEUE: Final = sa.select(sa.func.min(_T.c.not_before)).where(
    _T.c.dispatch_lane == sa.bindparam("lane"),
    _T.c.tenant == sa.bindparam("of_tenant"),
    _T.c.destination_slot_id == sa.bindparam("of_destination"),
    _DUE,
)
_NEXT_WRITEBACK: Final = sa.select(sa.func.min(_T.c.not_before)).where(_IN_LANES, _WRITEBACK)
_NEXT_WAITING: Final = sa.select(sa.func.min(_T.c.not_before)).where(_IN_LANES, _DUE)
_NEXT_LEASE: Final = sa.select(sa.func.min(_T.c.lease_until).label("moment"))
_NEXT_LEASED: Final = _NEXT_LEASE.where(_IN_LANES, _LEASED)
_NEXT_LOOKED_FOR: Final = _NEXT_LEASE.where(_IN_LANES, _LOOKED_FOR)
_NEXT_ANSWERED: Final = _NEXT_LEASED.where(_ANSWERED)
_NEXT_OWNED: Final = _NEXT_LEASED.where(sa.not_(_ANSWERED))
