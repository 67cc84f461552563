"""Lists, one record's history, and counts, as people and scripts get them: plain values, a page at a time.

Nothing here shows a frozen body, a header or a claim's token. Every list is scoped by tenant; `counts` are of a whole
deployment.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pushlink.protocol.states import KNOWN_LANES, AttemptStatus, Hold, LinkStatus, Operation
from pushlink.store import reads
from pushlink.store.access import Connection
from pushlink.store.history import Moment, read_timeline
from pushlink.store.reads import PAGE_MAX, ListedAttempt, OverdueRow, Page
from pushlink.store.rebinds import read_former_keys
from pushlink.store.rows import AttemptRow, LinkRow, read_names

#: Rows of a page unless asked for others.
PAGE_ROWS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkView:
    """One link: which local record owns which remote record."""

    id: str
    link_key: str
    tenant: str
    source_object: str
    record_id: str
    status: str
    action: str
    target_object: str
    profile: str
    remote_id: str
    mirror_status: str
    reason: str | None
    finalized_at: dt.datetime
    updated_at: dt.datetime
    row_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One create or update attempt, without its request."""

    id: str
    link_key: str
    tenant: str
    source_object: str
    record_id: str
    operation: str
    lane: str
    status: str
    hold: str | None
    reason: str | None
    in_doubt: bool
    ordinal: int
    version: int
    claim_count: int
    send_count: int
    retry_count: int
    remote_id: str | None
    not_before: dt.datetime
    lease_until: dt.datetime | None
    first_io_at: dt.datetime | None
    created_at: dt.datetime
    updated_at: dt.datetime
    row_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many attempts and links stand where. `overdue` are rows past their lease, of every tenant (D-39)."""

    links: Mapping[str, int]
    by_status: Mapping[str, int]  # operation and status, as `create/pending`
    by_hold: Mapping[str, int]
    by_lane: Mapping[str, int]
    by_tenant: Mapping[str, int]
    unknown_lanes: Mapping[str, int]
    overdue: tuple[OverdueRow, ...]


def list_links(
    conn: Connection,
    *,
    tenant: str = "",
    source_object: str | None = None,
    record_id: str | None = None,
    statuses: Collection[LinkStatus] = (),
    page: str | None = None,
    limit: int = PAGE_ROWS,
) -> Page[LinkView]:
    """Links of a tenant, newest first; `limit` is at most `PAGE_MAX`."""
    found = reads.read_link_page(
        conn,
        tenant=tenant,
        source_object=source_object,
        record_id=record_id,
        statuses=statuses,
        page=page,
        limit=limit,
    )
    return Page(rows=tuple(link_view(row) for row in found.rows), next_page=found.next_page)


def list_attempts(
    conn: Connection,
    *,
    tenant: str = "",
    source_object: str | None = None,
    record_id: str | None = None,
    operation: Operation | None = None,
    statuses: Collection[AttemptStatus] = (),
    hold: Hold | None = None,
    page: str | None = None,
    limit: int = PAGE_ROWS,
) -> Page[AttemptView]:
    """Attempts of a tenant, newest first; `limit` is at most `PAGE_MAX`."""
    found = reads.read_attempt_page(
        conn,
        tenant=tenant,
        source_object=source_object,
        record_id=record_id,
        operation=operation,
        statuses=statuses,
        hold=hold,
        page=page,
        limit=limit,
    )
    return Page(rows=tuple(_listed_view(row) for row in found.rows), next_page=found.next_page)


def history(
    conn: Connection,
    source_object: str,
    record_id: str,
    *,
    tenant: str = "",
    page: str | None = None,
    limit: int = PAGE_ROWS,
) -> Page[Moment]:
    """Everything that happened to one record, oldest first: transitions, replies, what people did, and receipts.

    A record whose slot was rebound is followed to the keys that its rows had before.
    """
    slots = reads.read_record_slots(conn, tenant=tenant, source_object=source_object, record_id=record_id)
    keys = {slot.link_key for slot in slots}
    keys = keys.union(*read_former_keys(conn, sorted(keys)).values())
    return read_timeline(conn, sorted(keys), page=page, limit=limit)


def counts(conn: Connection, *, now: dt.datetime) -> Counts:
    """Counts of the whole deployment."""
    rows = reads.read_counts(conn)
    return Counts(
        links=reads.read_link_counts(conn),
        by_status=_sums((f"{row.operation}/{row.status}", row.rows) for row in rows),
        by_hold=_sums((row.hold, row.rows) for row in rows if row.hold is not None),
        by_lane=_sums((row.lane, row.rows) for row in rows),
        by_tenant=_sums((row.tenant, row.rows) for row in rows),
        unknown_lanes=_sums((row.lane, row.rows) for row in rows if row.lane not in KNOWN_LANES),
        overdue=tuple(reads.read_overdue(conn, now=now)),
    )


def link_view(row: LinkRow) -> LinkView:
    """A link as it is shown."""
    names = read_names(row.names)
    return LinkView(
        id=row.id,
        link_key=row.link_key,
        tenant=row.tenant,
        source_object=row.source_object,
        record_id=row.source_record_id,
        status=row.status.value,
        action=names.action,
        target_object=names.target_object,
        profile=names.profile,
        remote_id=row.remote_id,
        mirror_status=row.mirror_status,
        reason=row.reason_code,
        finalized_at=row.finalized_at,
        updated_at=row.updated_at,
        row_version=row.row_version,
    )


def attempt_view(row: AttemptRow, *, source_object: str, record_id: str) -> AttemptView:
    """An attempt as it is shown."""
    return AttemptView(
        id=row.id,
        link_key=row.link_key,
        tenant=row.tenant,
        source_object=source_object,
        record_id=record_id,
        operation=row.operation.value,
        lane=row.dispatch_lane,
        status=row.status.value,
        hold=row.hold_code,
        reason=row.reason_code,
        in_doubt=row.in_doubt,
        ordinal=row.ordinal,
        version=row.version,
        claim_count=row.claim_count,
        send_count=row.send_count,
        retry_count=row.retry_count,
        remote_id=row.remote_id,
        not_before=row.not_before,
        lease_until=row.lease_until,
        first_io_at=row.first_io_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
        row_version=row.row_version,
    )


def _listed_view(item: ListedAttempt) -> AttemptView:
    return attempt_view(item.attempt, source_object=item.source_object, record_id=item.source_record_id)


def _sums(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for name, rows in pairs:
        total[name] += rows
    return dict(sorted(total.items()))


__all__ = [
    "PAGE_MAX",
    "PAGE_ROWS",
    "AttemptView",
    "Counts",
    "LinkView",
    "Moment",
    "Page",
    "attempt_view",
    "counts",
    "history",
    "link_view",
    "list_attempts",
    "list_links",
]
