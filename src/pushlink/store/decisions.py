"""What an operator's decision reads and writes of attempts beyond their transitions: evidence, holds, lanes, keys.

Transitions stay in `lifecycle/`. Every write names the row version that was read, and tells of itself in the event log.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from pushlink.errors import Code
from pushlink.protocol.snapshots import AttemptId, LinkKey
from pushlink.protocol.states import Hold, Lane
from pushlink.protocol.waiting import ASSOCIATION_HOLDS
from pushlink.store.events import insert_events, unmoved
from pushlink.store.rows import AttemptRow, columns_of, read_rows
from pushlink.store.tables import attempt_event, push_attempt

#: The event that sets a remote id aside, with or without a transition; its evidence names the id.
DISPOSED_EVENT: Final = "dispose"

#: The event that clears a hold; a claim writes it as well, without a voucher.
_UNHELD_EVENT: Final = "unhold"

#: The event by which a confirmed restore puts an open create in doubt.
_CONFIRMED_EVENT: Final = "confirmed_in_doubt"

#: Rows held by a taken locator that one release looks at; they are few, each of them is a person's case.
CONFLICTS_MAX: Final = 10_000


def read_disposed(conn: sa.Connection, attempt_id: AttemptId) -> frozenset[str]:
    """The remote ids that somebody set aside for this attempt."""
    t = attempt_event
    statement = sa.select(t.c.evidence).where(t.c.attempt_id == attempt_id, t.c.event == DISPOSED_EVENT)
    found = [json.loads(text) for text in conn.execute(statement).scalars() if text]
    return frozenset(str(evidence["remote_id"]) for evidence in found if "remote_id" in evidence)


def read_vouched(conn: sa.Connection, ids: Sequence[AttemptId]) -> frozenset[AttemptId]:
    """The attempts that somebody let go on although their author was deactivated (D-38)."""
    if not ids:
        return frozenset()
    t = attempt_event
    statement = sa.select(t.c.attempt_id, t.c.evidence).where(t.c.attempt_id.in_(ids), t.c.event == _UNHELD_EVENT)
    return frozenset(
        AttemptId(row.attempt_id)
        for row in conn.execute(statement)
        if json.loads(row.evidence or "{}").get("vouched") == Hold.USER_INACTIVE.value
    )


def forgot_sends(conn: sa.Connection, row: AttemptRow) -> bool:
    """Whether the database may have lost sends of an attempt: it failed over, or was put back and confirmed."""
    t = attempt_event
    statement = sa.select(t.c.id).where(t.c.attempt_id == row.id, t.c.event == _CONFIRMED_EVENT).limit(1)
    return row.reason_code == Code.TIMELINE_CHANGED or conn.execute(statement).first() is not None


def clear_hold(
    conn: sa.Connection, row: AttemptRow, *, detail: Mapping[str, object], actor: str, now: dt.datetime
) -> bool:
    """Let a held row be claimed again with a fresh count of claims; one that waited too long may wait anew."""
    forgets_expiry = row.hold_code == Hold.EXPIRED.value
    values: dict[str, Any] = {"hold_code": None, "reason_code": None, "detail": None, "claim_count": 0}
    if forgets_expiry:
        values["expires_at"] = None
    if row.hold_code in ASSOCIATION_HOLDS:
        values["not_before"] = now  # it stood for the next look at what the row waits for
    evidence = {"hold": row.hold_code, "vouched": row.hold_code, **detail}
    return _write(conn, row, _UNHELD_EVENT, values, evidence, actor=actor, now=now)


def set_lane(
    conn: sa.Connection, row: AttemptRow, lane: Lane, *, detail: Mapping[str, object], actor: str, now: dt.datetime
) -> bool:
    """Move a row to a lane; nothing else of it changes."""
    evidence = {"old_lane": row.dispatch_lane, "new_lane": lane.value, **detail}
    return _write(conn, row, "repair_lane", {"dispatch_lane": lane.value}, evidence, actor=actor, now=now)


def set_aside(
    conn: sa.Connection,
    row: AttemptRow,
    remote_id: str,
    *,
    detail: Mapping[str, object],
    actor: str,
    now: dt.datetime,
) -> bool:
    """Set an id aside that late evidence named; the attempt itself stays where it is."""
    return _write(conn, row, DISPOSED_EVENT, {}, {"remote_id": remote_id, **detail}, actor=actor, now=now)


def free_create_keys(conn: sa.Connection, key: LinkKey) -> None:
    """The create attempt of a released slot does not occupy it any more; its status stays."""
    t = push_attempt
    conn.execute(
        sa.update(t).where(t.c.create_key == key).values(create_key=sa.null(), row_version=t.c.row_version + 1)
    )


def read_conflicts(conn: sa.Connection, *, tenant: str, owner: LinkKey) -> list[AttemptRow]:
    """The attempts that wait because the link of `owner` has the remote record that they were given."""
    t = push_attempt
    statement = (
        sa.select(*columns_of(AttemptRow, t))
        .where(t.c.tenant == tenant, t.c.hold_code == Hold.LOCATOR_CONFLICT.value)
        .order_by(t.c.link_key)
        .limit(CONFLICTS_MAX)
    )
    rows = read_rows(AttemptRow, conn.execute(statement))
    return [row for row in rows if row.detail and json.loads(row.detail).get("owner_link_key") == owner]


def _write(
    conn: sa.Connection,
    row: AttemptRow,
    event: str,
    values: Mapping[str, Any],
    evidence: Mapping[str, object],
    *,
    actor: str,
    now: dt.datetime,
) -> bool:
    t = push_attempt
    statement = (
        sa.update(t)
        .where(t.c.id == row.id, t.c.row_version == row.row_version)
        .values(**values, updated_at=now, row_version=t.c.row_version + 1)
    )
    if conn.execute(statement).rowcount != 1:
        return False
    insert_events(conn, [unmoved(row, event, actor=actor, evidence=evidence)], now=now)
    return True
