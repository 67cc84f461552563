"""Keeping a database: contents sealed anew, contents erased after their time, rows pruned that decide nothing any more.

Each function is one batch in its caller's transaction, in the order of keys, and says where the next one begins. None
moves an attempt, a link or a slot. What still decides is left out by the statement itself, and the database's guards
refuse to let it go.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from pushlink.protocol.states import KNOWN_LANES, UPDATE_OPEN, AttemptStatus, Operation, statuses
from pushlink.store.rows import RequestRow, SlotRow, columns_of, read_rows
from pushlink.store.tables import (
    attempt_event,
    backfill,
    backfill_refusal,
    push_attempt,
    push_request,
    push_response,
    push_slot,
)

#: Creates whose contents nobody needs again: linked, or given up for another one.
_SETTLED_CREATES: Final = sorted(s.value for s in (AttemptStatus.FINALIZED, AttemptStatus.SUPERSEDED))
_ENDED_UPDATES: Final = sorted(status.value for status in statuses(Operation.UPDATE) - UPDATE_OPEN)
_LANES: Final = sorted(lane.value for lane in KNOWN_LANES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyBody:
    """The body of one stored reply, and what it is bound to."""

    id: int
    attempt_id: str
    claim_token: str
    send_ordinal: int
    body: bytes
    sealed_by: str | None


# ------------------------------------------------------------------------------------------------ sealing anew


def read_requests_of_other_keys(
    conn: sa.Connection, key: str, *, after: tuple[str, int], limit: int
) -> list[RequestRow]:
    """Frozen requests whose body is plain, or sealed with another key than `key`."""
    t = push_request
    later = sa.or_(t.c.attempt_id > after[0], sa.and_(t.c.attempt_id == after[0], t.c.freeze > after[1]))
    statement = sa.select(*columns_of(RequestRow, t)).where(t.c.body.is_not(None), _other(t, key), later)
    return read_rows(RequestRow, conn.execute(statement.order_by(t.c.attempt_id, t.c.freeze).limit(limit)))


def read_replies_of_other_keys(conn: sa.Connection, key: str, *, after: int, limit: int) -> list[ReplyBody]:
    """Stored replies with a body that is plain, or sealed with another key."""
    t = push_response
    has_body = sa.func.length(t.c.body) > 0
    statement = sa.select(*columns_of(ReplyBody, t)).where(has_body, _other(t, key), t.c.id > after)
    return read_rows(ReplyBody, conn.execute(statement.order_by(t.c.id).limit(limit)))


def read_wanted_of_other_keys(conn: sa.Connection, key: str, *, after: str, limit: int) -> list[SlotRow]:
    """Slots whose wanted values are plain, or sealed with another key."""
    t = push_slot
    other = sa.or_(t.c.wanted_sealed_by.is_(None), t.c.wanted_sealed_by != key)
    statement = sa.select(*columns_of(SlotRow, t)).where(t.c.wanted_values.is_not(None), other, t.c.link_key > after)
    return read_rows(SlotRow, conn.execute(statement.order_by(t.c.link_key).limit(limit)))


def write_request_bodies(conn: sa.Connection, rows: Sequence[RequestRow]) -> None:
    """Put each body in the place of the one that was read; one that was erased meanwhile stays erased."""
    t = push_request
    statement = (
        sa.update(t)
        .where(t.c.attempt_id == sa.bindparam("of"), t.c.freeze == sa.bindparam("number"), t.c.body.is_not(None))
        .values(body=sa.bindparam("new"), sealed_by=sa.bindparam("key"), body_size=sa.bindparam("size"))
    )
    _run(
        conn,
        statement,
        [
            {"of": r.attempt_id, "number": r.freeze, "new": r.body, "key": r.sealed_by, "size": r.body_size}
            for r in rows
        ],
    )


def write_reply_bodies(conn: sa.Connection, rows: Sequence[ReplyBody]) -> None:
    """The same for replies."""
    t = push_response
    statement = (
        sa.update(t)
        .where(t.c.id == sa.bindparam("of"), t.c.body.is_not(None))
        .values(body=sa.bindparam("new"), sealed_by=sa.bindparam("key"))
    )
    _run(conn, statement, [{"of": row.id, "new": row.body, "key": row.sealed_by} for row in rows])


def write_wanted_values(conn: sa.Connection, rows: Sequence[tuple[SlotRow, str, str | None]]) -> None:
    """The same for slots: where another version is wanted by now, that one stays. No version is counted up."""
    t = push_slot
    statement = (
        sa.update(t)
        .where(t.c.link_key == sa.bindparam("of"), t.c.wanted_values == sa.bindparam("old"))
        .values(wanted_values=sa.bindparam("new"), wanted_sealed_by=sa.bindparam("key"))
    )
    given = [{"of": row.link_key, "old": row.wanted_values, "new": new, "key": key} for row, new, key in rows]
    _run(conn, statement, given)


def count_keys(conn: sa.Connection) -> dict[str, dict[str, int]]:
    """How many contents each key seals, by kind of row; the empty key is of plain ones."""
    kinds = {
        "requests": (push_request.c.sealed_by, push_request.c.body.is_not(None)),
        "replies": (push_response.c.sealed_by, sa.func.length(push_response.c.body) > 0),
        "wanted": (push_slot.c.wanted_sealed_by, push_slot.c.wanted_values.is_not(None)),
    }
    return {
        kind: {
            key or "": int(rows)
            for key, rows in conn.execute(sa.select(column, sa.func.count()).where(there).group_by(column))
        }
        for kind, (column, there) in kinds.items()
    }


# ------------------------------------------------------------------------------------------------ erasing


def read_erasable(conn: sa.Connection, *, before: dt.datetime, after: str, limit: int) -> list[str]:
    """Attempts that ended before that moment and still have contents, by id."""
    t = push_attempt
    request, reply = push_request, push_response
    has_body = sa.exists().where(request.c.attempt_id == t.c.id, request.c.body.is_not(None))
    has_reply = sa.exists().where(reply.c.attempt_id == t.c.id, sa.func.length(reply.c.body) > 0)
    statement = sa.select(t.c.id).where(_ended(t), t.c.updated_at < before, t.c.id > after, has_body | has_reply)
    return list(conn.execute(statement.order_by(t.c.id).limit(limit)).scalars())


def erase_contents(conn: sa.Connection, ids: Sequence[str], *, now: dt.datetime) -> tuple[int, int]:
    """Erase the bodies of these attempts' requests and replies; digests and sizes stay. Answers how many of each."""
    request, reply = push_request, push_response
    gone = {"body": sa.null(), "sealed_by": sa.null(), "erased_at": now}
    requests = conn.execute(
        sa.update(request)
        .where(request.c.attempt_id.in_(ids), request.c.body.is_not(None))
        .values(**gone, body_size=sa.func.coalesce(request.c.body_size, sa.func.length(request.c.body)))
    )
    replies = conn.execute(
        sa.update(reply).where(reply.c.attempt_id.in_(ids), sa.func.length(reply.c.body) > 0).values(**gone)
    )
    return requests.rowcount, replies.rowcount


def read_erasable_wanted(conn: sa.Connection, *, before: dt.datetime, after: str, limit: int) -> list[str]:
    """Slots whose newest version the remote has had for that long, and that nothing is to be made of, by link key."""
    t, a = push_slot, push_attempt
    is_open = sa.exists().where(a.c.link_key == t.c.link_key, ~_ended(a))
    statement = sa.select(t.c.link_key).where(
        t.c.wanted_values.is_not(None),
        t.c.wanted_version == t.c.acknowledged_version,
        t.c.wanted_state.is_(None),
        t.c.wanted_at < before,
        t.c.link_key > after,
        ~is_open,
    )
    return list(conn.execute(statement.order_by(t.c.link_key).limit(limit)).scalars())


def erase_wanted(conn: sa.Connection, keys: Sequence[str]) -> int:
    """Erase the values that these slots keep of what the remote has; their digest stays, and so no save changes."""
    t = push_slot
    found = conn.execute(
        sa.update(t)
        .where(t.c.link_key.in_(keys), t.c.wanted_version == t.c.acknowledged_version, t.c.wanted_state.is_(None))
        .values(wanted_values=sa.null(), wanted_sealed_by=sa.null())
    )
    return found.rowcount


# ------------------------------------------------------------------------------------------------ pruning


def read_prunable(conn: sa.Connection, *, before: dt.datetime, after: str, limit: int) -> list[str]:
    """Updates that ended before that moment and decide nothing, by id.

    The newest update of a key's values stays, and the newest call of each association, since people are shown them and
    may have to decide; so does one that nobody could prove anything about, one that a late answer speaks of, and one of
    a lane that this release does not know.
    """
    t, r = push_attempt, push_response
    newer = t.alias("newer")
    has_newer = sa.exists().where(
        newer.c.link_key == t.c.link_key,
        newer.c.operation == Operation.UPDATE.value,
        newer.c.association.is_not_distinct_from(t.c.association),
        newer.c.id > t.c.id,
    )
    has_late = sa.exists().where(r.c.attempt_id == t.c.id, r.c.late)
    statement = sa.select(t.c.id).where(
        t.c.operation == Operation.UPDATE.value,
        t.c.status.in_(_ENDED_UPDATES),
        t.c.updated_at < before,
        t.c.id > after,
        ~t.c.in_doubt,
        t.c.dispatch_lane.in_(_LANES),
        has_newer,
        ~has_late,
    )
    return list(conn.execute(statement.order_by(t.c.id).limit(limit)).scalars())


def prune_updates(conn: sa.Connection, ids: Sequence[str]) -> dict[str, int]:
    """Delete these updates, and then what told of them; answers how many rows of each kind."""
    counts = {"updates": conn.execute(sa.delete(push_attempt).where(push_attempt.c.id.in_(ids))).rowcount}
    for name, table in (("requests", push_request), ("replies", push_response), ("events", attempt_event)):
        counts[name] = conn.execute(sa.delete(table).where(table.c.attempt_id.in_(ids))).rowcount
    return counts


def read_prunable_backfills(conn: sa.Connection, *, before: dt.datetime, after: str, limit: int) -> list[str]:
    """Backfills that ended before that moment, by id; the newest of each object stays."""
    t = backfill
    newer = t.alias("newer")
    has_newer = sa.exists().where(
        newer.c.tenant == t.c.tenant,
        newer.c.source_object == t.c.source_object,
        newer.c.started_at > t.c.started_at,
    )
    statement = sa.select(t.c.id).where(t.c.ended_at < before, t.c.id > after, has_newer)
    return list(conn.execute(statement.order_by(t.c.id).limit(limit)).scalars())


def prune_backfills(conn: sa.Connection, ids: Sequence[str]) -> dict[str, int]:
    """Delete these runs with the refusals that they were the last to meet."""
    refusals = conn.execute(sa.delete(backfill_refusal).where(backfill_refusal.c.backfill_id.in_(ids))).rowcount
    runs = conn.execute(sa.delete(backfill).where(backfill.c.id.in_(ids))).rowcount
    return {"backfills": runs, "refusals": refusals}


def _ended(t: Any) -> sa.ColumnElement[bool]:
    is_create = t.c.operation == Operation.CREATE.value
    return sa.or_(
        sa.and_(is_create, t.c.status.in_(_SETTLED_CREATES)),
        sa.and_(~is_create, t.c.status.in_(_ENDED_UPDATES)),
    )


def _other(t: sa.Table, key: str) -> sa.ColumnElement[bool]:
    return sa.or_(t.c.sealed_by.is_(None), t.c.sealed_by != key)


def _run(conn: sa.Connection, statement: sa.Update, given: Sequence[dict[str, Any]]) -> None:
    if given:
        conn.execute(statement, list(given))
