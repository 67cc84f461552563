"""Recovery of dead claims, inside the claim: a row whose lease has ended moves by one table, or stays.

Only the database's clock ends a lease, only lanes that this worker may take are read, and each row moves on its own
version. What was checkpointed is in doubt from here on; what was not is provably unsent, on the same timeline.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from pushlink.errors import Code
from pushlink.flows.claim_facts import author_of
from pushlink.flows.lookups_due import lookups_due, stamp_lookups_due
from pushlink.flows.replaying import Prospect, later, prospects
from pushlink.flows.world import World
from pushlink.protocol.lookups import may_be_looked_up
from pushlink.protocol.recovery import RecoveryFacts, recover_create, recover_update
from pushlink.protocol.snapshots import AttemptId
from pushlink.protocol.states import CreateEvent, Lane, Operation, UpdateEvent
from pushlink.store import lifecycle, requests, slots
from pushlink.store.claims import read_expired
from pushlink.store.lifecycle import Claims, Move, Moved
from pushlink.store.rows import AttemptRow

#: Rows recovered by one claim; the next claim goes on with the rest.
RECOVERED_MAX: Final = 200

_INTO_DOUBT: Final = frozenset({CreateEvent.UNKNOWN, CreateEvent.REPLAY, UpdateEvent.UNKNOWN})


def recover_claims(
    world: World, conn: sa.Connection, lanes: Sequence[Lane], *, timeline: str, actor: str, now: dt.datetime
) -> int:
    """Move every row that a dead claim left behind, a bounded number of them; answers how many moved.

    A create that waits for a declared look-up is left alone: its time has come, and whoever claims next asks.
    """
    rows = read_expired(conn, lanes, limit=RECOVERED_MAX, now=now)
    waiting = {
        *lookups_due(world, conn, rows, timeline=timeline),
        *stamp_lookups_due(world, conn, _answered(rows), timeline=timeline, now=now),
    }
    dead = [row for row in rows if row.id not in waiting]
    moves = recoveries_of(world, conn, dead, timeline=timeline, actor=actor, now=now)
    return len(make_recoveries(conn, moves, now=now))


def make_recoveries(conn: sa.Connection, moves: Sequence[Move], *, now: dt.datetime) -> list[Move]:
    """Make these moves; answers with those that were made.

    An update that becomes doubtful writes its push slot too. Whoever calls has locked attempts already, and elsewhere
    the slot comes first; so a slot that somebody holds is not waited for, and its row is left to the next recovery.
    """
    free = slots.hold_free_slots(conn, [move.row.link_key for move in moves if move.event is UpdateEvent.UNKNOWN])
    moves = [move for move in moves if move.event is not UpdateEvent.UNKNOWN or move.row.link_key in free]
    results = lifecycle.move_attempts(conn, moves, now=now)
    moved = [move for move, result in zip(moves, results, strict=True) if isinstance(result, Moved)]
    slots.forget_applied(conn, [move.row.link_key for move in moved if move.event is UpdateEvent.UNKNOWN])
    return moved


def recoveries_of(
    world: World, conn: sa.Connection, rows: Sequence[AttemptRow], *, timeline: str, actor: str, now: dt.datetime
) -> list[Move]:
    """The moves that recover these expired rows; one that the table leaves alone has none.

    A create that may have been sent is sent again or looked for by the contract that it froze.
    """
    sent = [row for row in rows if row.operation is Operation.CREATE and _may_be_there(row, timeline)]
    found = prospects(world, conn, sent, now=now)
    nobodys = _without_author(conn, rows)
    moves = [
        recovery_of(
            row, found.get(row.id), timeline=timeline, replay_authority=row.id not in nobodys, actor=actor, now=now
        )
        for row in rows
    ]
    return [move for move in moves if move is not None]


def _reason(event: CreateEvent | UpdateEvent, facts: RecoveryFacts) -> Code:
    if event is UpdateEvent.RECOVER_UNAUTHORISED:
        return Code.AUTHORITY_UNAVAILABLE
    return Code.LEASE_EXPIRED if facts.same_timeline else Code.TIMELINE_CHANGED


def _answered(rows: Sequence[AttemptRow]) -> list[AttemptRow]:
    return [row for row in rows if may_be_looked_up(row.operation, row.status)]


def _may_be_there(row: AttemptRow, timeline: str) -> bool:
    is_started = row.remote_io_started_at is not None or row.claim_timeline != timeline
    return is_started and row.remote_id is None


def _without_author(conn: sa.Connection, rows: Sequence[AttemptRow]) -> set[AttemptId]:
    """Updates that never began and that nobody answers for any more (DL-06): neither frozen nor wanted by anybody."""
    unstarted = [row for row in rows if row.operation is Operation.UPDATE and row.remote_io_started_at is None]
    frozen = {one.attempt_id: one for one in requests.read_requests(conn, [row.id for row in unstarted]) if one}
    wanted = {one.link_key: one for one in slots.read_slots(conn, [row.link_key for row in unstarted]) if one}
    return {row.id for row in unstarted if not author_of(row, wanted, frozen)}


def recovery_of(
    row: AttemptRow,
    prospect: Prospect | None,
    *,
    timeline: str,
    replay_authority: bool,
    actor: str,
    now: dt.datetime,
) -> Move | None:
    """The move that recovers one expired row; `None` where the table leaves it alone."""
    facts = RecoveryFacts(
        lane=row.dispatch_lane,
        status=row.status,
        checkpoint_set=row.remote_io_started_at is not None,
        same_timeline=row.claim_timeline == timeline,
        live_replay_contract=prospect is not None and prospect.is_live(row, now),
        in_doubt=row.in_doubt,
        remote_id_known=row.remote_id is not None,
        replay_authority=replay_authority,
    )
    event = recover_create(facts) if row.operation is Operation.CREATE else recover_update(facts)
    if event is None:
        return None
    doubtful = event in _INTO_DOUBT
    return Move(
        row=row,
        event=event,
        actor=actor,
        reason_code=_reason(event, facts),
        detail={
            "claimed_by": row.claimed_by,
            "lease_until": row.lease_until,
            "checkpoint_at": row.remote_io_started_at,
            "send_count": row.send_count,
        },
        in_doubt=True if doubtful else None,
        look_up_at=None if prospect is None else later(now, prospect.look_up_ms),
        retries=1 if event is UpdateEvent.RECOVER_UNSTARTED else 0,
        claims=Claims.RESET if doubtful else Claims.KEEP,
    )
