"""What people read: pages of links and attempts, one record's rows and timeline, and counts.

Nothing here takes a lock or decides about a push, and nothing returns a frozen body, a header or a stored reply's body.
Every function but the counts of a whole deployment is scoped by tenant. Pages are cut by key, newest first, never by
offset, and have `PAGE_MAX` rows at most. A record's timeline is in `history.py`.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar, cast

import sqlalchemy as sa

from pushlink.errors import CallerError
from pushlink.protocol.snapshots import AttemptId, Digest, LinkKey, Names
from pushlink.protocol.states import LEASED, AttemptStatus, Hold, LinkStatus, Operation
from pushlink.store.catalog import InstallRow
from pushlink.store.rows import AttemptRow, LinkRow, SlotRow, columns_of, read_names, read_row, read_rows
from pushlink.store.tables import (
    pack_install,
    push_attempt,
    push_request,
    push_response,
    push_slot,
    remote_link,
)

#: Rows of one page at most.
PAGE_MAX: Final = 200

T = TypeVar("T")
_Statement = TypeVar("_Statement", bound=sa.Select[Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some rows, and where the next page begins; `None` when there is none."""

    rows: tuple[T, ...]
    next_page: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAttempt:
    """An attempt, and the record that it is about."""

    attempt: AttemptRow
    source_object: str
    source_record_id: str
    action_slot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRow:
    """What is kept of one reply, without its headers and its body."""

    id: int
    attempt_id: AttemptId
    send_ordinal: int
    received_at: dt.datetime
    status: int | None
    body_size: int
    body_complete: bool
    erased_at: dt.datetime | None  # when its body was erased; size and verdict are kept
    error: str | None
    verdict: Mapping[str, object]
    candidate_id: str | None
    late: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedRow:
    """A frozen request whose body was erased: which one, and what is kept of the body."""

    attempt_id: AttemptId
    freeze: int
    body_digest: Digest
    body_size: int | None
    erased_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRow:
    """How many attempts stand in one place."""

    tenant: str
    operation: str
    lane: str
    status: str
    hold: str | None
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueRow:
    """Rows in work whose lease is over, and that nobody has recovered yet (D-39)."""

    lane: str
    status: str
    rows: int
    oldest_lease_until: dt.datetime


# ------------------------------------------------------------------------------------------------ pages


def read_link_page(
    conn: sa.Connection,
    *,
    tenant: str,
    source_object: str | None = None,
    record_id: str | None = None,
    statuses: Collection[LinkStatus] = (),
    page: str | None = None,
    limit: int = PAGE_MAX,
) -> Page[LinkRow]:
    """Links of a tenant, newest first."""
    t = remote_link
    statement = _asked(
        sa.select(*columns_of(LinkRow, t)).where(t.c.tenant == tenant),
        {t.c.source_object: source_object, t.c.source_record_id: record_id},
    )
    found = _newest(conn, statement, t, statuses, page, limit)
    return page_of([read_row(LinkRow, row) for row in found], limit, lambda link: link.id)


def read_attempt_page(
    conn: sa.Connection,
    *,
    tenant: str,
    source_object: str | None = None,
    record_id: str | None = None,
    operation: Operation | None = None,
    statuses: Collection[AttemptStatus] = (),
    hold: Hold | None = None,
    page: str | None = None,
    limit: int = PAGE_MAX,
) -> Page[ListedAttempt]:
    """Attempts of a tenant, newest first."""
    t, s = push_attempt, push_slot
    about = [s.c.source_object, s.c.source_record_id, s.c.action_slot_id]
    statement = _asked(
        sa.select(*columns_of(AttemptRow, t), *about)
        .join_from(t, s, s.c.link_key == t.c.link_key)
        .where(t.c.tenant == tenant),
        {
            s.c.tenant: None if source_object is None else tenant,  # an index leads with it
            s.c.source_object: source_object,
            s.c.source_record_id: record_id,
            t.c.operation: operation and operation.value,
            t.c.hold_code: hold and hold.value,
        },
    )
    found = _newest(conn, statement, t, statuses, page, limit)
    listed = [
        ListedAttempt(
            attempt=read_row(AttemptRow, cast("sa.Row[Any]", row[: -len(about)])),
            source_object=row.source_object,
            source_record_id=row.source_record_id,
            action_slot_id=row.action_slot_id,
        )
        for row in found
    ]
    return page_of(listed, limit, lambda item: item.attempt.id)


def read_install_list(conn: sa.Connection, *, tenant: str) -> list[InstallRow]:
    """Every install of a tenant, ended ones too, by owner and time."""
    t = pack_install
    statement = sa.select(*columns_of(InstallRow, t)).where(t.c.tenant == tenant)
    return read_rows(InstallRow, conn.execute(statement.order_by(t.c.connector_owner_key, t.c.installed_at)))


def _asked(statement: _Statement, wanted: Mapping[sa.Column[Any], str | None]) -> _Statement:
    """Only rows with the values that are wanted; of a column whose value is None any will do."""
    return statement.where(*(column == value for column, value in wanted.items() if value is not None))


def _newest(
    conn: sa.Connection,
    statement: sa.Select[Any],
    table: sa.Table,
    statuses: Collection[StrEnum],
    page: str | None,
    limit: int,
) -> Sequence[sa.Row[Any]]:
    """The newest rows behind `page`, of these statuses or of all: one more than `limit`, if there is a next page."""
    if statuses:
        statement = statement.where(table.c.status.in_(sorted(status.value for status in statuses)))
    if page is not None:
        statement = statement.where(table.c.id < page)
    return conn.execute(statement.order_by(table.c.id.desc()).limit(row_limit(limit) + 1)).all()


# ------------------------------------------------------------------------------------------------ one record


def read_record_slots(conn: sa.Connection, *, tenant: str, source_object: str, record_id: str) -> list[SlotRow]:
    """The slots of a record: one for each action that it was ever saved for."""
    t = push_slot
    statement = sa.select(*columns_of(SlotRow, t)).where(
        t.c.tenant == tenant, t.c.source_object == source_object, t.c.source_record_id == record_id
    )
    return [read_row(SlotRow, row) for row in conn.execute(statement.order_by(t.c.created_at, t.c.link_key))]


def read_newest_attempt(conn: sa.Connection, key: LinkKey, operation: Operation) -> AttemptRow | None:
    """The newest attempt of a key, whatever became of it."""
    t = push_attempt
    statement = sa.select(*columns_of(AttemptRow, t)).where(t.c.link_key == key, t.c.operation == operation.value)
    row = conn.execute(statement.order_by(t.c.id.desc()).limit(1)).first()
    return None if row is None else read_row(AttemptRow, row)


def read_newest_link(conn: sa.Connection, key: LinkKey) -> LinkRow | None:
    """The newest link of a key, retired ones whose slot was released too."""
    t = remote_link
    statement = sa.select(*columns_of(LinkRow, t)).where(t.c.link_key == key).order_by(t.c.id.desc()).limit(1)
    row = conn.execute(statement).first()
    return None if row is None else read_row(LinkRow, row)


def read_frozen_names(conn: sa.Connection, ids: Sequence[AttemptId]) -> dict[AttemptId, Names]:
    """The display names that each attempt froze; an update that was never claimed has none yet."""
    if not ids:
        return {}
    t = push_request
    statement = sa.select(t.c.attempt_id, t.c.names).where(t.c.attempt_id.in_(ids)).order_by(t.c.freeze)
    return {row.attempt_id: read_names(row.names) for row in conn.execute(statement)}


def read_erased(conn: sa.Connection, ids: Sequence[AttemptId]) -> list[ErasedRow]:
    """The requests of these attempts whose bodies were erased, in the order of their freezes."""
    if not ids:
        return []
    t = push_request
    statement = sa.select(*columns_of(ErasedRow, t)).where(t.c.attempt_id.in_(ids), t.c.erased_at.is_not(None))
    return read_rows(ErasedRow, conn.execute(statement.order_by(t.c.attempt_id, t.c.freeze)))


def read_replies(conn: sa.Connection, ids: Sequence[AttemptId], *, limit: int = PAGE_MAX) -> list[ReplyRow]:
    """The newest replies to these attempts, newest first."""
    if not ids:
        return []
    t = push_response
    statement = sa.select(*REPLY_COLUMNS).where(t.c.attempt_id.in_(ids)).order_by(t.c.id.desc()).limit(row_limit(limit))
    return [reply_of(row) for row in conn.execute(statement).mappings()]


# ------------------------------------------------------------------------------------------------ counts


def read_counts(conn: sa.Connection) -> list[CountRow]:
    """How many attempts stand where, in the whole deployment."""
    t = push_attempt
    place = (t.c.tenant, t.c.operation, t.c.dispatch_lane, t.c.status, t.c.hold_code)
    statement = sa.select(*place, sa.func.count().label("rows")).group_by(*place).order_by(*place)
    return [
        CountRow(tenant=tenant, operation=operation, lane=lane, status=status, hold=hold, rows=rows)
        for tenant, operation, lane, status, hold, rows in conn.execute(statement)
    ]


def read_link_counts(conn: sa.Connection) -> dict[str, int]:
    """How many links have which status."""
    t = remote_link
    statement = sa.select(t.c.status, sa.func.count()).group_by(t.c.status).order_by(t.c.status)
    return {str(status): int(rows) for status, rows in conn.execute(statement)}


def read_overdue(conn: sa.Connection, *, now: dt.datetime) -> list[OverdueRow]:
    """Rows past their lease per lane and status, of every lane, known or not."""
    t = push_attempt
    statement = (
        sa.select(t.c.dispatch_lane, t.c.status, sa.func.count(), sa.func.min(t.c.lease_until))
        .where(t.c.status.in_(sorted(status.value for status in LEASED)), t.c.lease_until < now)
        .group_by(t.c.dispatch_lane, t.c.status)
        .order_by(t.c.dispatch_lane, t.c.status)
    )
    return [
        OverdueRow(lane=lane, status=status, rows=rows, oldest_lease_until=oldest)
        for lane, status, rows, oldest in conn.execute(statement)
    ]


# ------------------------------------------------------------------------------------------------ small things


def read_object(text: str | None) -> dict[str, object]:
    """A JSON object as rows keep it; empty when there is none."""
    value = json.loads(text) if text else {}
    return value if isinstance(value, dict) else {"value": value}


#: What is read of a reply to be shown: no headers, no body. What went wrong is told by its trace.
REPLY_COLUMNS: Final = tuple(push_response.c["trace" if name == "error" else name] for name in ReplyRow.__slots__)


def reply_of(row: Mapping[str, Any] | sa.RowMapping) -> ReplyRow:
    """What is shown of a reply that was selected by `REPLY_COLUMNS`."""
    kept = {column.name: row[column.name] for column in REPLY_COLUMNS}
    error = read_object(kept.pop("trace")).get("error")
    return ReplyRow(**kept | {"error": str(error) if error else None, "verdict": read_object(row["verdict"])})


def row_limit(limit: int) -> int:
    """The rows of one page; raises `CallerError` for more than a page may have."""
    if not 1 <= limit <= PAGE_MAX:
        msg = f"A page has 1 to {PAGE_MAX} rows, not {limit}."
        raise CallerError(msg, evidence={"limit": limit}, next_step="go on with the next page")
    return limit


def page_of(rows: list[T], limit: int, key: Any) -> Page[T]:
    """The first `limit` rows; there is a next page where one more was read."""
    shown = tuple(rows[:limit])
    return Page(rows=shown, next_page=str(key(shown[-1])) if len(rows) > limit else None)
