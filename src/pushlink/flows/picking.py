"""Which rows a claim takes: queues in turns, each within its limits, and what is ordered only when it is its turn."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import sqlalchemy as sa

from pushlink.flows.allowing import Budget
from pushlink.protocol.states import CLAIMED_IN_PLACE
from pushlink.store.claims import Queue, Turn, read_due, share
from pushlink.store.ordered import has_ordered, read_firsts, read_out_of_turn
from pushlink.store.paces import Share, lock_paces
from pushlink.store.rows import AttemptRow, DueRow


def pick_due(
    conn: sa.Connection, queues: Sequence[Queue], budget: Budget, *, turn: Turn, limit: int, now: dt.datetime
) -> list[DueRow]:
    """The due rows that this claim may take, locked; what they take of their limits is used up in the budget."""
    rows: list[DueRow] = []
    ordered = frozenset(queue for queue in queues if has_ordered(conn, queue))
    _lock_orderings(conn, [queue.place for queue in ordered], now)
    planned = budget.copy()
    for queue, count in share(queues, turn, limit, lambda queue: planned.takes(queue.place)):
        found = read_firsts(conn, queue, limit=count, now=now) if queue in ordered else []
        found += read_due(conn, queue, limit=count - len(found), now=now) if len(found) < count else []
        budget.take(queue.place, sum(1 for row in found if row.status not in CLAIMED_IN_PLACE))
        rows += found
    for queue in queues:
        if budget.is_used_up(queue.place):  # left alone, or nothing more of its limit: only what sends nothing
            there = {row.id for row in rows}
            more = read_due(conn, queue, limit=limit, now=now, writebacks_only=True)
            rows += [row for row in more if row.id not in there]
    return rows


def pick_of(conn: sa.Connection, rows: Sequence[AttemptRow], budget: Budget, *, now: dt.datetime) -> list[AttemptRow]:
    """Those of these rows that may go now; what sends nothing goes in any case."""
    sending = [row for row in rows if row.status not in CLAIMED_IN_PLACE]
    _lock_orderings(conn, sorted({(row.tenant, row.destination_slot_id) for row in sending}), now)
    waiting = read_out_of_turn(conn, [row.id for row in sending])
    return [
        row
        for row in rows
        if row.status in CLAIMED_IN_PLACE
        or (row.id not in waiting and budget.takes((row.tenant, row.destination_slot_id)))
    ]


def _lock_orderings(conn: sa.Connection, places: Sequence[tuple[str, str]], now: dt.datetime) -> None:
    shares = [Share(tenant=tenant, name=f"ordering {destination}") for tenant, destination in places]
    lock_paces(conn, shares, now=now)
