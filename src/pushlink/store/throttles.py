"""Which destinations have asked to be left alone, and until when; shared by all workers of a deployment.

A throttled answer is one attempt's news and everybody's business: the row that it writes keeps every other create and
update of that destination from being claimed. Only requests wait; mirrors and recovery go on.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import sqlalchemy as sa

from pushlink.protocol.contracts import ProfileContract
from pushlink.store.dialect import array_rows, insert_ignore
from pushlink.store.tables import UtcTime, remote_throttle

#: How long after its end a throttle is remembered: its destination comes back a few rows at a time.
RAMP: Final = dt.timedelta(seconds=10)

#: Rows that one claim may take of a destination for each second since its throttle ended, and one more.
RAMP_ROWS_PER_S: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Throttle:
    """One destination of one tenant, under one credential, that wants to be left alone for a while."""

    tenant: str
    destination_slot_id: str
    credential_ref: str  # empty for none
    wait_ms: int
    reason: str
    profile: ProfileContract = field(compare=False)  # as the throttled request had it; says whom else this is about


def note_throttles(conn: sa.Connection, items: Sequence[Throttle], *, now: dt.datetime) -> None:
    """Remember each one; of two for the same place the later end counts."""
    if not items:
        return
    longest: dict[tuple[str, str, str], Throttle] = {}
    for item in sorted(items, key=lambda i: i.wait_ms):
        longest[item.tenant, item.destination_slot_id, item.credential_ref] = item
    rows = array_rows(
        conn,
        "throttled",
        {
            "tenant": sa.Text(),
            "destination_slot_id": sa.Text(),
            "credential_ref": sa.Text(),
            "until": UtcTime(),
            "why": sa.Text(),
        },
        [(*place, now + dt.timedelta(milliseconds=i.wait_ms), i.reason) for place, i in sorted(longest.items())],
    )
    t, r = remote_throttle, rows.c
    place = (r.tenant, r.destination_slot_id, r.credential_ref)
    at = sa.bindparam("throttled_at", now, UtcTime())
    chosen = sa.select(*place, r.until, r.why, sa.literal(0), at).where(sa.true()).order_by(*place)
    columns = ["tenant", "destination_slot_id", "credential_ref", "not_before", "reason", "hits", "updated_at"]
    conn.execute(insert_ignore(t).from_select(columns, chosen))
    conn.execute(
        sa.update(t)
        .where(
            t.c.tenant == r.tenant,
            t.c.destination_slot_id == r.destination_slot_id,
            t.c.credential_ref == r.credential_ref,
        )
        .values(
            not_before=sa.case((t.c.not_before < r.until, r.until), else_=t.c.not_before),
            reason=r.why,
            hits=t.c.hits + 1,
            updated_at=at,
        )
    )


def read_throttles(conn: sa.Connection, *, now: dt.datetime) -> Mapping[tuple[str, str], dt.datetime]:
    """Until when each destination of a tenant is left alone: those of now, and those that ended a moment ago."""
    found = conn.execute(_READ_THROTTLES, {"ended_after": now - RAMP})
    return {(tenant, destination): until for tenant, destination, until in found}


def read_reasons(conn: sa.Connection, *, now: dt.datetime) -> Mapping[tuple[str, str], tuple[dt.datetime, str]]:
    """For each destination that is left alone now: until when at the longest, and what said so."""
    t = remote_throttle
    statement = (
        sa.select(t.c.tenant, t.c.destination_slot_id, t.c.not_before, t.c.reason)
        .where(t.c.not_before > sa.bindparam("after", now, UtcTime()))
        .order_by(t.c.not_before)
    )
    return {(tenant, destination): (until, why) for tenant, destination, until, why in conn.execute(statement)}


def rows_allowed(until: dt.datetime | None, limit: int, *, now: dt.datetime) -> int:
    """How many requests one claim may take of a destination: none while it is left alone, then more and more."""
    if until is None:
        return limit
    if until > now:
        return 0
    return min(limit, 1 + int((now - until).total_seconds() * RAMP_ROWS_PER_S))


_READ_THROTTLES: Final = (
    sa.select(
        remote_throttle.c.tenant, remote_throttle.c.destination_slot_id, sa.func.max(remote_throttle.c.not_before)
    )
    .where(remote_throttle.c.not_before > sa.bindparam("ended_after", type_=UtcTime()))
    .group_by(remote_throttle.c.tenant, remote_throttle.c.destination_slot_id)
)
