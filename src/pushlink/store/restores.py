"""What tells a database that it is itself, and what becomes of it when it is not: marks, recovery mode, confirmation.

A mark counts the checkpoint groups that one state directory has seen; it is kept on both sides. Entering or leaving
recovery counts the catalogue up, so that a checkpoint which was validated before is refused in any process.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from pushlink.protocol.snapshots import LinkKey
from pushlink.protocol.states import KNOWN_LANES, CreateEvent, Operation, UpdateEvent, sources
from pushlink.store.audit import OperatorAction, record_actions
from pushlink.store.catalog import read_deployment
from pushlink.store.dialect import Lock, take_lock
from pushlink.store.events import Event, insert_events
from pushlink.store.rows import AttemptRow, columns_of, read_rows
from pushlink.store.tables import UtcTime, checkpoint_mark, deployment, push_attempt

#: Events written by one statement when a whole database is put in doubt.
EVENTS_AT_ONCE: Final = 1_000

# ------------------------------------------------------------------------------------------------ marks


def raise_mark(conn: sa.Connection, state_id: str, *, now: dt.datetime) -> int | None:
    """Count this state directory's mark up, locked until the transaction ends; `None` when the database has none."""
    found: int | None = conn.execute(_RAISE, {"of_state": state_id, "raised_at": now}).scalar()
    return found


def set_mark(conn: sa.Connection, state_id: str, mark: int, *, now: dt.datetime) -> None:
    """Let the mark of a state directory be `mark` at least."""
    table = checkpoint_mark
    if read_marks(conn).get(state_id) is None:
        conn.execute(table.insert(), {"state_id": state_id, "mark": mark, "updated_at": now})
        return
    lower = sa.update(table).where(table.c.state_id == state_id, table.c.mark < mark)
    conn.execute(lower.values(mark=mark, updated_at=now))


def read_marks(conn: sa.Connection) -> dict[str, int]:
    """The mark of each state directory that ever worked on this database."""
    statement = sa.select(checkpoint_mark.c.state_id, checkpoint_mark.c.mark)
    return {row.state_id: row.mark for row in conn.execute(statement)}


# ------------------------------------------------------------------------------------------------ the mode


def enter_recovery(
    conn: sa.Connection, *, reason: str, evidence: Mapping[str, object], actor: str, now: dt.datetime
) -> bool:
    """Let nothing be sent and nothing be saved until somebody confirms; False when it was so already."""
    take_lock(conn, Lock.CATALOG)
    if read_deployment(conn).mode != "running":
        return False
    _change(conn, now, mode="recovery")
    _audit(conn, "enter_recovery", "running", "recovery", evidence, reason=reason, actor=actor, now=now)
    return True


def leave_recovery(
    conn: sa.Connection, seen: int, *, reason: str, evidence: Mapping[str, object], actor: str, now: dt.datetime
) -> int | None:
    """Run again, with new creates refused until `clear`; answers how often the database has been confirmed now.

    `None` when that is not as often as was `seen`: somebody else confirmed it.
    """
    take_lock(conn, Lock.CATALOG)
    if read_deployment(conn).confirmations != seen:
        return None
    confirmations = seen + 1
    _change(conn, now, mode="running", confirmations=confirmations, uncleared_since=now)
    _audit(conn, "deployment_confirm", "recovery", "running", evidence, reason=reason, actor=actor, now=now)
    return confirmations


def clear(conn: sa.Connection, *, reason: str, actor: str, now: dt.datetime) -> bool:
    """Let records without a link be created again after a confirmation; False when nothing stood in their way."""
    take_lock(conn, Lock.CATALOG)
    since = read_deployment(conn).uncleared_since
    if since is None:
        return False
    _change(conn, now, uncleared_since=None)
    _audit(conn, "deployment_clear", since.isoformat(), None, {}, reason=reason, actor=actor, now=now)
    return True


def _change(conn: sa.Connection, now: dt.datetime, **values: Any) -> None:
    revision = deployment.c.catalog_revision + 1
    conn.execute(sa.update(deployment).values(**values, catalog_revision=revision, updated_at=now))


def _audit(
    conn: sa.Connection,
    verb: str,
    before: str,
    after: str | None,
    evidence: Mapping[str, object],
    *,
    reason: str,
    actor: str,
    now: dt.datetime,
) -> None:
    action = OperatorAction(
        tenant="",
        actor=actor,
        verb=verb,
        reason=reason,
        target_kind="deployment",
        target_id="1",
        before={"was": before},
        after={"is": after},
        evidence=evidence,
    )
    record_actions(conn, [action], now=now)


# ------------------------------------------------------------------------------------------------ what is in doubt


def doubt_open_creates(conn: sa.Connection, *, actor: str, reason: str, now: dt.datetime) -> int:
    """Put every create that may have been sent after the backup in doubt, by id; how many were not so before.

    The time of the first send is not known any more. It was not before the reservation, so a replay contract's lifetime
    counts from there.
    """
    t = push_attempt
    statement = (
        sa.update(t)
        .where(t.c.operation == Operation.CREATE.value, t.c.status.in_(_OPEN), ~t.c.in_doubt)
        .values(
            in_doubt=sa.true(),
            first_io_at=sa.func.coalesce(t.c.first_io_at, t.c.created_at),
            row_version=t.c.row_version + 1,
            updated_at=now,
        )
        .returning(t.c.id, t.c.link_key, t.c.tenant, t.c.status, t.c.row_version)
    )
    events = [
        Event(
            attempt_id=row.id,
            link_key=row.link_key,
            tenant=row.tenant,
            subject="create",
            event="confirmed_in_doubt",
            from_status=row.status,
            to_status=row.status,
            actor=actor,
            reason=reason,
            row_version=row.row_version,
        )
        for row in sorted(conn.execute(statement).all(), key=lambda row: row.id)  # databases answer in any order
    ]
    for start in range(0, len(events), EVENTS_AT_ONCE):
        insert_events(conn, events[start : start + EVENTS_AT_ONCE], now=now)
    return len(events)


def read_updated_keys(conn: sa.Connection) -> list[LinkKey]:
    """The keys whose update somebody claimed and may have sent, in their order, without a lock."""
    t = push_attempt
    statement = sa.select(t.c.link_key).where(t.c.update_key.is_not(None), t.c.status.in_(_IN_WORK))
    return [LinkKey(key) for key in conn.execute(statement.order_by(t.c.link_key)).scalars()]


def read_in_work(conn: sa.Connection, *, after: str, limit: int) -> Sequence[AttemptRow]:
    """Attempts that somebody claimed and that may have been sent, by id, locked; whether the lease lasts or not."""
    t = push_attempt
    statement = (
        sa.select(*columns_of(AttemptRow, t))
        .where(
            t.c.id > after,
            t.c.status.in_(_IN_WORK),
            t.c.dispatch_lane.in_(sorted(lane.value for lane in KNOWN_LANES)),
        )
        .order_by(t.c.id)
        .limit(limit)
        .with_for_update(key_share=True)
    )
    return read_rows(AttemptRow, conn.execute(statement))


_IN_WORK: Final = sorted(status.value for status in sources(CreateEvent.UNKNOWN) | sources(UpdateEvent.UNKNOWN))
_OPEN: Final = sorted(status.value for status in sources(CreateEvent.CLAIM) | sources(CreateEvent.UNKNOWN))
_RAISE: Final = (
    sa.update(checkpoint_mark)
    .where(checkpoint_mark.c.state_id == sa.bindparam("of_state"))
    .values(mark=checkpoint_mark.c.mark + 1, updated_at=sa.bindparam("raised_at", type_=UtcTime()))
    .returning(checkpoint_mark.c.mark)
)
