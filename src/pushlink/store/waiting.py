"""What waits for a person, by cause; and every row of a tenant, a page at a time, for an export.

Counts and samples are read from the index of rows that wait for people; nothing is locked and nothing is decided.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from pushlink.protocol.replies import FOR_PEOPLE
from pushlink.protocol.states import (
    BLOCKING,
    KNOWN_LANES,
    UPDATE_OPEN,
    AttemptStatus,
    Hold,
    LinkStatus,
    Operation,
)
from pushlink.store.rows import AttemptRow, LinkRow, columns_of, read_row
from pushlink.store.tables import attempt_event, push_attempt, push_slot, remote_link

#: Holds that end by themselves: the row they wait for is at work.
_PATIENT: Final = (Hold.ASSOCIATION_WAITING.value,)

#: Reasons of what is tried again by itself, and yet waits for somebody.
_IN_VAIN: Final = tuple(sorted(code.value for code in FOR_PEOPLE))


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRow:
    """One row that waits: an attempt or a link, and its record."""

    cause: str
    attempt: AttemptRow | None
    link: LinkRow | None
    source_object: str
    source_record_id: str
    since: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """How many wait for one reason, and since when the first of them does."""

    kind: str  # held, doubtful, failed, refused, retried, stranded or suspended
    code: str
    rows: int
    oldest: dt.datetime


def read_causes(conn: sa.Connection, *, tenant: str | None) -> list[Cause]:
    """Every cause with its count, of attempts and links alike: of one tenant, or of the whole deployment."""
    t, link = push_attempt, remote_link
    of_tenant = {table: sa.true() if tenant is None else table.c.tenant == tenant for table in (t, link)}
    attempts = (
        sa.select(
            _kind().label("kind"),
            sa.func.coalesce(t.c.hold_code, t.c.reason_code, sa.literal("")).label("code"),
            t.c.updated_at.label("since"),
        )
        .join_from(t, push_slot, push_slot.c.link_key == t.c.link_key)
        .where(of_tenant[t], _waits())
    )
    suspended = sa.select(
        sa.literal("suspended").label("kind"),
        sa.func.coalesce(link.c.reason_code, sa.literal("")).label("code"),
        link.c.updated_at.label("since"),
    ).where(of_tenant[link], link.c.status == LinkStatus.SUSPENDED_DRIFT.value)
    found = [cause for statement in (attempts, suspended) for cause in _counted(conn, statement)]
    return sorted(found, key=lambda cause: (cause.kind, cause.code))


def _counted(conn: sa.Connection, statement: sa.Select[Any]) -> Iterator[Cause]:
    rows = statement.subquery("rows")
    grouped = sa.select(rows.c.kind, rows.c.code, sa.func.count(), sa.func.min(rows.c.since))
    for kind, code, count, oldest in conn.execute(grouped.group_by(rows.c.kind, rows.c.code)):
        yield Cause(kind=kind, code=code, rows=count, oldest=oldest)


def read_waiting(conn: sa.Connection, cause: Cause, *, tenant: str, limit: int) -> list[WaitingRow]:
    """The rows that have waited longest for one reason."""
    if cause.kind == "suspended":
        return _suspended(conn, cause, tenant, limit)
    t, s = push_attempt, push_slot
    code = sa.func.coalesce(t.c.hold_code, t.c.reason_code, sa.literal(""))
    about = [s.c.source_object, s.c.source_record_id]
    statement = (
        sa.select(*columns_of(AttemptRow, t), *about)
        .join_from(t, s, s.c.link_key == t.c.link_key)
        .where(t.c.tenant == tenant, _waits(), _kind() == cause.kind, code == cause.code)
        .order_by(t.c.updated_at, t.c.id)
        .limit(limit)
    )
    rows = []
    for row in conn.execute(statement):
        attempt = read_row(AttemptRow, row[: -len(about)])  # type: ignore[arg-type]
        rows.append(
            WaitingRow(
                cause=cause.code,
                attempt=attempt,
                link=None,
                source_object=row.source_object,
                source_record_id=row.source_record_id,
                since=attempt.updated_at,
            )
        )
    return rows


def _suspended(conn: sa.Connection, cause: Cause, tenant: str, limit: int) -> list[WaitingRow]:
    t = remote_link
    statement = (
        sa.select(*columns_of(LinkRow, t))
        .where(
            t.c.tenant == tenant,
            t.c.status == LinkStatus.SUSPENDED_DRIFT.value,
            sa.func.coalesce(t.c.reason_code, sa.literal("")) == cause.code,
        )
        .order_by(t.c.updated_at, t.c.id)
        .limit(limit)
    )
    links = [read_row(LinkRow, row) for row in conn.execute(statement)]
    return [
        WaitingRow(
            cause=cause.code,
            attempt=None,
            link=link,
            source_object=link.source_object,
            source_record_id=link.source_record_id,
            since=link.updated_at,
        )
        for link in links
    ]


def _kind() -> sa.ColumnElement[str]:
    t = push_attempt
    return sa.case(
        (t.c.dispatch_lane.not_in(sorted(KNOWN_LANES)), "stranded"),
        (t.c.hold_code.is_not(None), "held"),
        (t.c.status == AttemptStatus.AMBIGUOUS_REMOTE_EFFECT.value, "doubtful"),
        (t.c.status == AttemptStatus.PENDING.value, "retried"),
        (t.c.operation == Operation.UPDATE.value, "refused"),
        else_="failed",
    )


def _waits() -> sa.ColumnElement[bool]:
    """Held, in doubt, tried in vain, ended without a remote record, refused as it is wanted, or of an unknown lane."""
    t, s = push_attempt, push_slot
    is_open = sa.or_(
        sa.and_(t.c.operation == Operation.CREATE.value, t.c.status.in_(sorted(BLOCKING))),
        sa.and_(t.c.operation == Operation.UPDATE.value, t.c.status.in_(sorted(UPDATE_OPEN))),
    )
    is_ended = t.c.status == AttemptStatus.TERMINAL_FAILED.value
    is_refused = sa.or_(
        sa.and_(t.c.association.is_(None), s.c.wanted_state == "refused_version", t.c.version == s.c.refused_version),
        sa.and_(t.c.association.is_not(None), _is_newest_call()),
    )
    return sa.or_(
        sa.and_(t.c.hold_code.is_not(None), t.c.hold_code.not_in(_PATIENT)),
        t.c.status == AttemptStatus.AMBIGUOUS_REMOTE_EFFECT.value,
        sa.and_(t.c.status == AttemptStatus.PENDING.value, t.c.hold_code.is_(None), t.c.reason_code.in_(_IN_VAIN)),
        sa.and_(is_ended, t.c.operation == Operation.CREATE.value),
        sa.and_(is_ended, t.c.operation == Operation.UPDATE.value, is_refused),
        sa.and_(t.c.dispatch_lane.not_in(sorted(KNOWN_LANES)), is_open),
    )


def _is_newest_call() -> sa.ColumnElement[bool]:
    """Whether nothing came after an association's call of its own: ids of later attempts sort after it."""
    later, t = push_attempt.alias("later"), push_attempt
    same = sa.and_(later.c.link_key == t.c.link_key, later.c.association == t.c.association, later.c.id > t.c.id)
    return ~sa.select(sa.literal(1)).where(same).exists()


# ------------------------------------------------------------------------------------------------ export

#: Rows read at a time by an export.
PAGE: Final = 500

#: What is exported, and without which columns: no token of a claim, no frozen values.
_EXPORTED: Final = {
    "link": (remote_link, frozenset[str]()),
    "attempt": (push_attempt, frozenset({"claim_token"})),
    "event": (attempt_event, frozenset[str]()),
}


def read_all(
    conn: sa.Connection, kind: str, *, tenant: str, after: str | int | None = None
) -> Iterator[dict[str, Any]]:
    """Every row of one kind, in the order of its key, beginning behind a key; read in pages, never by offset."""
    table, hidden = _EXPORTED[kind]
    columns: Sequence[sa.Column[Any]] = [column for column in table.columns if column.name not in hidden]
    while True:
        statement = sa.select(*columns).where(table.c.tenant == tenant)
        if after is not None:
            statement = statement.where(table.c.id > after)
        page = conn.execute(statement.order_by(table.c.id).limit(PAGE)).mappings().all()
        yield from (dict(row) for row in page)
        if len(page) < PAGE:
            return
        after = page[-1]["id"]
