"""Attempts: what is read of them, the checkpoint, and the writes of an owner that change no status.

Transitions are in `lifecycle.py`. The checkpoint is the one write after which a byte may be on the wire: it needs the
claim's token and a lease that lasts longer than the call that follows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import sqlalchemy as sa

from pushlink.protocol.snapshots import AttemptId, ClaimToken, LinkKey
from pushlink.protocol.states import AttemptStatus, Hold
from pushlink.store.dialect import Batch, array_rows
from pushlink.store.events import insert_events, unmoved, write_json
from pushlink.store.rows import AttemptRow, DueRow, columns_of, read_row, read_rows
from pushlink.store.tables import UtcTime, push_attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAttempts:
    """What stands in the way of a link key: the create that occupies it, and its one open update."""

    create: AttemptRow | None
    update: AttemptRow | None


def read_open_attempts(conn: sa.Connection, keys: Sequence[LinkKey]) -> list[OpenAttempts]:
    """For each key, by its unique keys; call it under the slot's lock."""
    if not keys:
        return []
    rows = [(key,) for key in keys]
    creates = {row.link_key: row for row in read_rows(AttemptRow, _OPEN_CREATES(conn, rows))}
    updates = {row.link_key: row for row in read_rows(AttemptRow, _OPEN_UPDATES(conn, rows))}
    return [OpenAttempts(create=creates.get(key), update=updates.get(key)) for key in keys]


def read_attempts(conn: sa.Connection, ids: Sequence[AttemptId]) -> list[AttemptRow | None]:
    """Each attempt by its id."""
    if not ids:
        return []
    found = {row.id: row for row in read_rows(AttemptRow, _READ(conn, [(i,) for i in ids]))}
    return [found.get(i) for i in ids]


def lock_claims(conn: sa.Connection, claims: Sequence[tuple[AttemptId, ClaimToken]]) -> list[AttemptStatus | None]:
    """Lock each attempt; its status while its claim token is still the one named, else `None`."""
    if not claims:
        return []
    found = {(row.id, row.claim_token): row.status for row in _LOCK_CLAIMS(conn, [(i,) for i, _ in claims]).all()}
    return [AttemptStatus(found[claim]) if claim in found else None for claim in claims]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The right to send once: the owner's token, the freeze that will be sent, and how long the call may take."""

    attempt_id: AttemptId
    token: ClaimToken
    freeze: int
    version: int  # the wanted version that the request carries
    needs_ms: int  # the request's total deadline and a margin; the lease must last at least that long


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointed:
    """The checkpoint is written (now, or before by this same claim, when the commit's outcome was unknown).

    `first_at` is when the attempt was first allowed to send.
    """

    send_ordinal: int
    first_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost:
    """The claim is gone, or its lease is too short for the call. Nothing may be sent."""

    attempt_id: AttemptId


def write_checkpoints(
    conn: sa.Connection, items: Sequence[Checkpoint], *, now: dt.datetime
) -> list[Checkpointed | LeaseLost]:
    """Write `remote_io_started_at` where the fence holds. A repeat under the same token changes nothing and agrees.

    The answer is each claim's own: an ended claim of an attempt is refused beside a live one of the same attempt.
    """
    if not items:
        return []
    rows = [(i.attempt_id, i.token, i.freeze, i.version, now + dt.timedelta(milliseconds=i.needs_ms)) for i in items]
    written = {(row.id, row.claim_token): row for row in _CHECKPOINT(conn, rows, checkpoint_at=now).all()}
    return [
        Checkpointed(send_ordinal=row.send_count, first_at=row.first_io_at)
        if (row := written.get((i.attempt_id, i.token))) is not None
        else LeaseLost(attempt_id=i.attempt_id)
        for i in items
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """An owner lets go of a create that is looked up; whoever finds its lease ended asks. `until` None: nobody does."""

    attempt_id: AttemptId
    token: ClaimToken
    until: dt.datetime | None


def await_lookups(conn: sa.Connection, items: Sequence[Wait]) -> list[bool]:
    """End each claim's lease at the time of the next look-up; False where the claim was gone."""
    if not items:
        return []
    rows = array_rows(
        conn,
        "waits",
        {"id": sa.Text(), "token": sa.Text(), "due": UtcTime()},
        [(i.attempt_id, i.token, i.until) for i in items],
    )
    t, r = push_attempt, rows.c
    statement = (
        sa.update(t)
        .where(t.c.id == r.id, t.c.claim_token == r.token, t.c.status.in_(_LOOKED_UP))
        .values(lease_until=r.due, claim_count=0, row_version=t.c.row_version + 1)
        .returning(t.c.id)
    )
    written = {row.id for row in conn.execute(statement)}
    return [i.attempt_id in written for i in items]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpClaim:
    """The terms of a claim that only reads the remote; it takes the place of one whose lease has ended."""

    attempt_id: AttemptId
    row_version: int
    token: ClaimToken
    incarnation: str
    lease_until: dt.datetime


def claim_lookups(conn: sa.Connection, items: Sequence[LookUpClaim], *, now: dt.datetime) -> list[AttemptRow | None]:
    """Take each row for a look-up: another token and lease, the same status. `None` where somebody was quicker."""
    if not items:
        return []
    rows = array_rows(
        conn,
        "lookups",
        {
            "id": sa.Text(),
            "version": sa.BigInteger(),
            "token": sa.Text(),
            "incarnation": sa.Text(),
            "until": UtcTime(),
        },
        [(i.attempt_id, i.row_version, i.token, i.incarnation, i.lease_until) for i in items],
    )
    t, r = push_attempt, rows.c
    statement = (
        sa.update(t)
        .where(t.c.id == r.id, t.c.row_version == r.version, t.c.status.in_(_LOOKED_UP))
        .values(
            claim_token=r.token,
            claimed_by=r.incarnation,
            lease_until=r.until,
            claim_count=t.c.claim_count + 1,
            updated_at=sa.bindparam("looked_up_at", now, UtcTime()),
            row_version=t.c.row_version + 1,
        )
        .returning(*columns_of(AttemptRow, t))
    )
    taken = {row.id: read_row(AttemptRow, row) for row in conn.execute(statement)}
    return [taken.get(i.attempt_id) for i in items]


def schedule_lookups(conn: sa.Connection, rows: Sequence[AttemptRow], due: dt.datetime | None) -> list[bool]:
    """Say when the record of each create in doubt is looked for next, `None` for never; False where a row has moved."""
    if not rows:
        return []
    named = array_rows(
        conn, "scheduled", {"id": sa.Text(), "version": sa.BigInteger()}, [(r.id, r.row_version) for r in rows]
    )
    t, s = push_attempt, named.c
    statement = (
        sa.update(t)
        .where(
            t.c.id == s.id,
            t.c.row_version == s.version,
            t.c.status == AttemptStatus.AMBIGUOUS_REMOTE_EFFECT.value,
        )
        .values(
            lease_until=sa.bindparam("looks_at", due, UtcTime()),
            claim_token=sa.null(),
            claim_count=0,
            row_version=t.c.row_version + 1,
        )
        .returning(t.c.id)
    )
    written = {row.id for row in conn.execute(statement)}
    return [row.id in written for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpEnd:
    """A create in doubt that is not looked for any more, and why; it stays parked."""

    row: AttemptRow
    token: ClaimToken
    reason_code: str
    detail: Mapping[str, object]
    actor: str


def end_lookups(conn: sa.Connection, items: Sequence[LookUpEnd], *, now: dt.datetime) -> list[bool]:
    """Write why each is not looked for any more; False where the claim was gone."""
    if not items:
        return []
    rows = array_rows(
        conn,
        "ended",
        {"id": sa.Text(), "token": sa.Text(), "new_reason": sa.Text(), "new_detail": sa.Text()},
        [(i.row.id, i.token, i.reason_code, write_json(i.detail)) for i in items],
    )
    t, e = push_attempt, rows.c
    statement = (
        sa.update(t)
        .where(
            t.c.id == e.id,
            t.c.claim_token == e.token,
            t.c.status == AttemptStatus.AMBIGUOUS_REMOTE_EFFECT.value,
        )
        .values(
            claim_token=sa.null(),
            lease_until=sa.null(),
            reason_code=e.new_reason,
            detail=e.new_detail,
            updated_at=sa.bindparam("ended_at", now, UtcTime()),
            row_version=t.c.row_version + 1,
        )
        .returning(t.c.id)
    )
    written = {row.id for row in conn.execute(statement)}
    insert_events(
        conn,
        [
            unmoved(i.row, "looked_in_vain", actor=i.actor, reason=i.reason_code, evidence=i.detail)
            for i in items
            if i.row.id in written
        ],
        now=now,
    )
    return [i.row.id in written for i in items]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """An owner lets go of a write-back claim without an outcome; the row is due again at `not_before`."""

    attempt_id: AttemptId
    token: ClaimToken
    not_before: dt.datetime
    reason_code: str
    detail: Mapping[str, object] | None = None


def release_writebacks(conn: sa.Connection, items: Sequence[Release], *, now: dt.datetime) -> list[bool]:
    """Put each write-back back in line; False where the claim was gone."""
    if not items:
        return []
    rows = array_rows(
        conn,
        "released",
        {"id": sa.Text(), "token": sa.Text(), "due": UtcTime(), "new_reason": sa.Text(), "new_detail": sa.Text()},
        [(i.attempt_id, i.token, i.not_before, i.reason_code, write_json(i.detail)) for i in items],
    )
    t, r = push_attempt, rows.c
    statement = (
        sa.update(t)
        .where(t.c.id == r.id, t.c.claim_token == r.token, t.c.status == AttemptStatus.WRITEBACK_PENDING.value)
        .values(
            claim_token=sa.null(),
            lease_until=sa.null(),
            not_before=r.due,
            reason_code=r.new_reason,
            detail=r.new_detail,
            claim_count=sa.case((t.c.claim_count > 0, t.c.claim_count - 1), else_=0),
            retry_count=t.c.retry_count + 1,
            updated_at=sa.bindparam("released_at", now, UtcTime()),
            row_version=t.c.row_version + 1,
        )
        .returning(t.c.id)
    )
    written = {row.id for row in conn.execute(statement)}
    return [i.attempt_id in written for i in items]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetHold:
    """A hold to set or, with `hold` None, to clear, on a row that nobody has claimed."""

    row: AttemptRow | DueRow
    hold: Hold | None
    reason_code: str | None
    detail: Mapping[str, object] | None
    actor: str
    not_before: dt.datetime | None = None  # None: as it was


def set_holds(conn: sa.Connection, items: Sequence[SetHold], *, now: dt.datetime) -> list[bool]:
    """Write each hold on the row version that was read; a hold changes no status."""
    if not items:
        return []
    rows = array_rows(
        conn,
        "holds",
        {
            "id": sa.Text(),
            "version": sa.BigInteger(),
            "new_hold": sa.Text(),
            "new_reason": sa.Text(),
            "new_detail": sa.Text(),
            "due": UtcTime(),
        },
        [
            (
                i.row.id,
                i.row.row_version,
                i.hold.value if i.hold else None,
                i.reason_code,
                write_json(i.detail),
                i.not_before,
            )
            for i in items
        ],
    )
    t, h = push_attempt, rows.c
    statement = (
        sa.update(t)
        .where(t.c.id == h.id, t.c.row_version == h.version)
        .values(
            hold_code=h.new_hold,
            reason_code=h.new_reason,
            detail=h.new_detail,
            not_before=sa.func.coalesce(h.due, t.c.not_before),
            updated_at=sa.bindparam("held_at", now, UtcTime()),
            row_version=t.c.row_version + 1,
        )
        .returning(t.c.id)
    )
    written = {row.id for row in conn.execute(statement)}
    insert_events(
        conn,
        [
            unmoved(
                i.row,
                "hold" if i.hold else "unhold",
                actor=i.actor,
                reason=i.reason_code,
                evidence={**(i.detail or {}), "hold": i.hold.value if i.hold else i.row.hold_code},
            )
            for i in items
            if i.row.id in written
        ],
        now=now,
    )
    return [i.row.id in written for i in items]


def _read_statement(rows: sa.FromClause) -> sa.Executable:
    t = push_attempt
    return sa.select(*columns_of(AttemptRow, t)).join_from(rows, t, t.c.id == rows.c.id)


def _open_statement(rows: sa.FromClause, *, key: sa.Column[str | None]) -> sa.Executable:
    t = push_attempt
    return sa.select(*columns_of(AttemptRow, t)).join_from(rows, t, key == rows.c.link_key)


def _lock_statement(rows: sa.FromClause) -> sa.Executable:
    t = push_attempt
    return (
        sa.select(t.c.id, t.c.claim_token, t.c.status)
        .where(t.c.id.in_(sa.select(rows.c.id)))
        .order_by(t.c.link_key)
        .with_for_update(key_share=True, of=t)
    )


def _checkpoint_statement(rows: sa.FromClause) -> sa.Executable:
    t, c = push_attempt, rows.c
    instant = sa.bindparam("checkpoint_at", type_=UtcTime())
    fresh = t.c.remote_io_started_at.is_(None)
    return (
        sa.update(t)
        .where(
            t.c.id == c.id,
            t.c.claim_token == c.token,
            t.c.status == AttemptStatus.PROCESSING.value,
            t.c.lease_until >= c.lasts_until,
        )
        .values(
            remote_io_started_at=sa.func.coalesce(t.c.remote_io_started_at, instant),
            first_io_at=sa.func.coalesce(t.c.first_io_at, instant),
            last_checkpoint_at=sa.func.coalesce(t.c.remote_io_started_at, instant),
            freeze_count=c.frozen,
            version=c.carried,
            send_count=t.c.send_count + sa.case((fresh, 1), else_=0),
            row_version=t.c.row_version + sa.case((fresh, 1), else_=0),
            updated_at=instant,
        )
        .returning(t.c.id, t.c.claim_token, t.c.send_count, t.c.first_io_at)
    )


#: A look-up claim is taken in these; it changes no status.
_LOOKED_UP: Final = (AttemptStatus.POST_SENT.value, AttemptStatus.AMBIGUOUS_REMOTE_EFFECT.value)

_READ: Final = Batch("ids", {"id": sa.Text()}).prepare(_read_statement)
_KEYS: Final = Batch("keys", {"link_key": sa.Text()})
_OPEN_CREATES: Final = _KEYS.prepare(partial(_open_statement, key=push_attempt.c.create_key))
_OPEN_UPDATES: Final = _KEYS.prepare(partial(_open_statement, key=push_attempt.c.update_key))
_LOCK_CLAIMS: Final = Batch("claims", {"id": sa.Text()}).prepare(_lock_statement)
_CHECKPOINT: Final = Batch(
    "checkpoints",
    {
        "id": sa.Text(),
        "token": sa.Text(),
        "frozen": sa.BigInteger(),
        "carried": sa.BigInteger(),
        "lasts_until": UtcTime(),
    },
).prepare(_checkpoint_statement)
