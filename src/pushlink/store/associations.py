"""Who waits for whom, set-oriented: the waits of held attempts, the links that were finalized, and what to look at.

A finalization writes one row however many wait; claims let those go on, a bounded number each. What a race made
nobody tell is found by looking at each held row again from time to time, in the order of an index.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from pushlink.protocol.snapshots import AttemptId, LinkKey
from pushlink.protocol.states import Lane
from pushlink.store.dialect import Batch, array_rows, insert_ignore, notify
from pushlink.store.rows import AttemptRow, columns_of, read_row, read_rows
from pushlink.store.tables import (
    ASSOCIATION_HELD,
    UtcTime,
    association_wait,
    association_wake,
    push_attempt,
    rebind_receipt,
)

#: The channel that wakes workers when something became due.
WAKE_CHANNEL: Final = "pushlink_due"

#: How many steps of who waits for whom are followed from a set of records; a longer chain is found waiting, no more.
EDGES_MAX: Final = 20_000

#: Finalized links that one claim looks at.
_WAKES_MAX: Final = 50

_HELD: Final = sa.text(
    ASSOCIATION_HELD.replace("status", "pushlink_push_attempt.status").replace(
        "hold_code", "pushlink_push_attempt.hold_code"
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One attempt waits for one record."""

    attempt_id: AttemptId
    link_key: LinkKey  # whose attempt it is
    target_link_key: LinkKey


def insert_waits(conn: sa.Connection, items: Sequence[Wait]) -> None:
    """Remember each wait, once."""
    if not items:
        return
    ordered = sorted({(i.attempt_id, i.target_link_key, i.link_key) for i in items})
    names = ["attempt_id", "target_link_key", "link_key"]
    conn.execute(insert_ignore(association_wait), [dict(zip(names, row, strict=True)) for row in ordered])


def delete_waits(conn: sa.Connection, ids: Sequence[AttemptId]) -> None:
    """Forget what these attempts waited for."""
    if not ids:
        return
    rows = array_rows(conn, "ids", {"id": sa.Text()}, [(i,) for i in ids])
    conn.execute(sa.delete(association_wait).where(association_wait.c.attempt_id.in_(sa.select(rows.c.id))))


def note_finalized(conn: sa.Connection, keys: Sequence[LinkKey], *, now: dt.datetime) -> None:
    """Tell claims that these records have their links, where anybody waits for them; one row for each."""
    if not keys:
        return
    written = _NOTE_FINALIZED(conn, [(key,) for key in keys], told_at=now).all()
    if written:
        notify(conn, WAKE_CHANNEL)


def take_woken(conn: sa.Connection, lanes: Sequence[Lane], *, limit: int) -> list[AttemptRow]:
    """Held attempts of these lanes whose record has its link now, a bounded number, locked; their waits are gone.

    The rest of a link with more children than that stays for the next claim.
    """
    wakes = conn.execute(_READ_WAKES, {"at_most": _WAKES_MAX}).scalars().all()
    if not wakes:
        return []
    bound = {"lanes": [lane.value for lane in lanes], "targets": wakes, "at_most": limit}
    ids = [AttemptId(found) for found in conn.execute(_READ_WOKEN, bound).scalars()]
    rows = _lock(conn, ids)
    reached = {"targets": wakes}
    if len(ids) < limit:
        conn.execute(_DELETE_WAKES, reached)
        conn.execute(_DELETE_SETTLED, reached)
    w = association_wait
    gone = array_rows(conn, "gone", {"id": sa.Text()}, [(i,) for i in ids]) if ids else None
    if gone is not None:
        conn.execute(sa.delete(w).where(w.c.attempt_id.in_(sa.select(gone.c.id)), w.c.target_link_key.in_(wakes)))
    return rows


def read_looks(conn: sa.Connection, lanes: Sequence[Lane], *, limit: int, now: dt.datetime) -> list[AttemptRow]:
    """Held attempts whose time has come to be looked at again, locked, skipping what others hold."""
    bound = {"lanes": [lane.value for lane in lanes], "due_by": now, "at_most": limit}
    return read_rows(AttemptRow, conn.execute(_READ_LOOKS, bound))


def has_wakes(conn: sa.Connection) -> bool:
    """Whether a link was finalized that somebody still waits for."""
    return conn.execute(_ANY_WAKE).first() is not None


def postpone_looks(conn: sa.Connection, items: Sequence[tuple[AttemptId, dt.datetime]]) -> None:
    """Look at each later; nothing else of the row changes, so that a decision about it stays valid."""
    if not items:
        return
    rows = array_rows(conn, "looks", {"id": sa.Text(), "later": UtcTime()}, list(items))
    t = push_attempt
    conn.execute(sa.update(t).where(t.c.id == rows.c.id, _HELD).values(not_before=rows.c.later))


def read_edges(conn: sa.Connection, keys: Sequence[LinkKey]) -> dict[LinkKey, list[LinkKey]]:
    """Who waits for whom, from these records on, as far as unsent attempts go: each key with what it waits for."""
    if not keys:
        return {}
    rows = array_rows(conn, "starts", {"link_key": sa.Text()}, [(key,) for key in sorted(set(keys))])
    w, t = association_wait, push_attempt
    held = sa.select(sa.literal(1)).where(t.c.id == w.c.attempt_id, _HELD, t.c.operation == "create").exists()
    walk = (
        sa.select(w.c.link_key, w.c.target_link_key)
        .join_from(rows, w, w.c.link_key == rows.c.link_key)
        .where(held)
        .cte("walk", recursive=True)
    )
    further = (
        sa.select(w.c.link_key, w.c.target_link_key)
        .join_from(walk, w, w.c.link_key == walk.c.target_link_key)
        .where(held)
    )
    walk = walk.union(further)
    edges: dict[LinkKey, list[LinkKey]] = {}
    for link_key, target in conn.execute(sa.select(walk.c.link_key, walk.c.target_link_key).limit(EDGES_MAX)):
        edges.setdefault(LinkKey(link_key), []).append(LinkKey(target))
    return edges


def read_left_keys(conn: sa.Connection, items: Sequence[tuple[str, str, str, LinkKey]]) -> set[LinkKey]:
    """Of these (tenant, object, record id, key), the keys whose rows a rebind has moved to another one."""
    if not items:
        return set()
    names = ("tenant", "source_object", "source_record_id", "old_link_key")
    rows = array_rows(conn, "asked", dict.fromkeys(names, sa.Text()), sorted(set(items)))
    t = rebind_receipt
    same = sa.and_(*(t.c[name] == rows.c[name] for name in names))
    return set(conn.execute(sa.select(t.c.old_link_key).join_from(rows, t, same)).scalars())


def _lock(conn: sa.Connection, ids: Sequence[AttemptId]) -> list[AttemptRow]:
    """The rows that are still held, locked in link-key order, skipping what others hold."""
    if not ids:
        return []
    rows = array_rows(conn, "woken", {"id": sa.Text()}, [(i,) for i in ids])
    t = push_attempt
    statement = (
        sa.select(*columns_of(AttemptRow, t))
        .where(t.c.id.in_(sa.select(rows.c.id)), _HELD)
        .order_by(t.c.link_key)
        .with_for_update(skip_locked=True, key_share=True, of=t)
    )
    return [read_row(AttemptRow, row) for row in conn.execute(statement)]


def _note_statement(rows: sa.FromClause) -> sa.Executable:
    w = association_wait
    is_awaited = sa.select(sa.literal(1)).where(w.c.target_link_key == rows.c.link_key).exists()
    told_at = sa.bindparam("told_at", type_=UtcTime())
    chosen = sa.select(rows.c.link_key, told_at).where(is_awaited).order_by(rows.c.link_key)
    statement = insert_ignore(association_wake).from_select(["target_link_key", "finalized_at"], chosen)
    return statement.returning(association_wake.c.target_link_key)


# --------------------------------------------------------------------------------------- statements, built once

_NOTE_FINALIZED: Final = Batch("finalized", {"link_key": sa.Text()}).prepare(_note_statement)

_T: Final = push_attempt
_AT_MOST: Final = sa.bindparam("at_most", type_=sa.Integer())
_IN_LANES: Final = _T.c.dispatch_lane.in_(sa.bindparam("lanes", expanding=True, type_=sa.Text()))
_TARGETS: Final = sa.bindparam("targets", expanding=True, type_=sa.Text())

_READ_WAKES: Final = (
    sa.select(association_wake.c.target_link_key)
    .order_by(association_wake.c.finalized_at, association_wake.c.target_link_key)
    .limit(_AT_MOST)
    .with_for_update(skip_locked=True)
)
_READ_WOKEN: Final = (
    sa.select(_T.c.id)
    .distinct()
    .join_from(association_wait, _T, _T.c.id == association_wait.c.attempt_id)
    .where(association_wait.c.target_link_key.in_(_TARGETS), _IN_LANES, _HELD)
    .limit(_AT_MOST)
)
_DELETE_WAKES: Final = sa.delete(association_wake).where(association_wake.c.target_link_key.in_(_TARGETS))
#: Waits of attempts that are not held any more: nobody will ask for them.
_DELETE_SETTLED: Final = sa.delete(association_wait).where(
    association_wait.c.target_link_key.in_(_TARGETS),
    ~sa.select(sa.literal(1)).where(_T.c.id == association_wait.c.attempt_id, _HELD).exists(),
)
_READ_LOOKS: Final = (
    sa.select(*columns_of(AttemptRow, _T))
    .where(_IN_LANES, _T.c.not_before <= sa.bindparam("due_by", type_=UtcTime()), _HELD)
    .order_by(_T.c.not_before, _T.c.id)
    .limit(_AT_MOST)
    .with_for_update(skip_locked=True, key_share=True)
)
_ANY_WAKE: Final = sa.select(association_wake.c.target_link_key).limit(1)
