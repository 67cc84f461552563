"""Until when the rate of each shared limit is used up, and the lock under which one claim at a time counts for it."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from pushlink.store.circuits import Place
from pushlink.store.dialect import array_rows, insert_ignore
from pushlink.store.tables import UtcTime, push_attempt, remote_pace

#: Requests under way. A create whose answer is stored and that waits for its next look-up sends nothing meanwhile.
_UNDER_WAY = sa.text("pushlink_push_attempt.status = 'processing'")

#: Look-ups under way: claimed, and not at rest until the next one. The first predicates are those of partial indexes.
_LOOKING = (
    sa.text("pushlink_push_attempt.status IN ('processing', 'post_sent', 'writeback_commit_pending')"),
    sa.text(
        "pushlink_push_attempt.status = 'ambiguous_remote_effect' AND pushlink_push_attempt.lease_until IS NOT NULL"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Share:
    """Whom one limit is counted over, in a tenant: a destination, a credential or an account."""

    tenant: str
    name: str


def lock_paces(conn: sa.Connection, shares: Sequence[Share], *, now: dt.datetime) -> Mapping[Share, dt.datetime | None]:
    """Lock each share, in order, making those that are not there; no other claim counts for them meanwhile."""
    if not shares:
        return {}
    ordered = [(share.tenant, share.name) for share in sorted(set(shares))]
    columns: dict[str, sa.types.TypeEngine[Any]] = {"tenant": sa.Text(), "share": sa.Text(), "updated_at": UtcTime()}
    rows = array_rows(conn, "shares", columns, [(*key, now) for key in ordered])
    chosen = sa.select(*(rows.c[name] for name in columns)).where(sa.true()).order_by(rows.c.tenant, rows.c.share)
    conn.execute(insert_ignore(remote_pace).from_select(list(columns), chosen))
    t = remote_pace
    found = conn.execute(
        sa.select(t.c.tenant, t.c.share, t.c.paced_until)
        .where(sa.tuple_(t.c.tenant, t.c.share).in_(ordered))
        .order_by(t.c.tenant, t.c.share)
        .with_for_update()
    )
    return {Share(tenant=row.tenant, name=row.share): row.paced_until for row in found}


def read_paces(conn: sa.Connection) -> Mapping[Share, dt.datetime | None]:
    """Every share without a lock, for whoever only wants to know when to ask again."""
    t = remote_pace
    return {
        Share(tenant=row.tenant, name=row.share): row.paced_until
        for row in conn.execute(sa.select(t.c.tenant, t.c.share, t.c.paced_until))
    }


def write_paces(conn: sa.Connection, paced: Mapping[Share, dt.datetime], *, now: dt.datetime) -> None:
    """Keep until when each share is used up; call it under the lock."""
    t = remote_pace
    for share, until in sorted(paced.items()):
        mine = (t.c.tenant == share.tenant, t.c.share == share.name)
        conn.execute(sa.update(t).where(*mine).values(paced_until=until, updated_at=now))


def count_under_way(conn: sa.Connection, *, now: dt.datetime) -> Mapping[Place, int]:
    """How many attempts of each destination are claimed, by any worker and in any lane, and how many are looked up."""
    counts: Counter[Place] = Counter()
    for statement in (_COUNT, *_COUNT_LOOKING):
        for row in conn.execute(statement, {"moment": now}):
            counts[row.tenant, row.destination_slot_id] += row.claimed
    return counts


def count_waiting(conn: sa.Connection) -> Mapping[Place, int]:
    """How many attempts of each destination wait to be sent, in any lane; held ones wait for something else."""
    return {(row.tenant, row.destination_slot_id): row.waiting for row in conn.execute(_WAITING)}


_A: Final = push_attempt
_WAITING: Final = (
    sa.select(_A.c.tenant, _A.c.destination_slot_id, sa.func.count().label("waiting"))
    .where(_A.c.status == "pending", _A.c.hold_code.is_(None))
    .group_by(_A.c.tenant, _A.c.destination_slot_id)
)
_COUNT: Final = (
    sa.select(_A.c.tenant, _A.c.destination_slot_id, sa.func.count().label("claimed"))
    .where(_UNDER_WAY)
    .group_by(_A.c.tenant, _A.c.destination_slot_id)
)
_COUNT_LOOKING: Final = tuple(
    sa.select(_A.c.tenant, _A.c.destination_slot_id, sa.func.count().label("claimed"))
    .where(
        predicate,
        _A.c.status != "processing",
        _A.c.operation == "create",
        _A.c.claim_count > 0,
        _A.c.lease_until > sa.bindparam("moment", type_=UtcTime()),
    )
    .group_by(_A.c.tenant, _A.c.destination_slot_id)
    for predicate in _LOOKING
)
