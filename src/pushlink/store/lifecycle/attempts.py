"""The compare-and-set of attempts: the only writer of an attempt's status.

Every move names the status it starts from and the proof of its right: a live claim's token for an owner, or the row
version that was read for everybody else. The target status comes from the machines in `protocol/states.py`; an arrow
that is not there raises before any SQL runs, and a row that has moved on in the meantime is answered with `Lost`, never
with a guess. What a transition implies for claim, checkpoint and keys is written here once, for all callers.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import sqlalchemy as sa

from pushlink.protocol.snapshots import AttemptId, ClaimToken, LinkKey
from pushlink.protocol.states import (
    CLAIMED_IN_PLACE,
    UNSETTLED,
    UPDATE_OPEN,
    AttemptStatus,
    CreateEvent,
    Hold,
    Lane,
    Operation,
    UpdateEvent,
    follow_create,
    follow_update,
)
from pushlink.store.dialect import Batch, insert_ignore
from pushlink.store.events import Event, insert_events, write_json
from pushlink.store.rows import AttemptRow, columns_of, read_rows
from pushlink.store.tables import UtcTime, push_attempt, push_slot

#: The claim outlives the move only where its owner has more to do.
_KEEPS_CLAIM: Final = (AttemptStatus.PROCESSING, AttemptStatus.POST_SENT, AttemptStatus.WRITEBACK_COMMIT_PENDING)

#: Tries of a mirror are counted apart from the sends that came before it.
_WRITEBACKS: Final = (AttemptStatus.WRITEBACK_COMMIT_PENDING, AttemptStatus.WRITEBACK_PENDING)

#: The one move that parts an attempt from an id it knows; an operator keeps that id as evidence.
_FORGETS_REMOTE_ID: Final = (CreateEvent.DISPOSE,)


class Claims(StrEnum):
    """What a move does to the count of claims that reached no recorded outcome."""

    KEEP = "keep"
    FORGIVE = "forgive"  # a give-back or a throttle: this claim does not count
    RESET = "reset"  # an outcome was recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One transition of one attempt, as it was read. `None` in an optional part means: as it was.

    With a `token` it is the claim's owner who moves, and the token decides; without one it is the version of `row`.
    """

    row: AttemptRow
    event: CreateEvent | UpdateEvent
    token: ClaimToken | None = None
    actor: str
    reason_code: str | None = None
    detail: Mapping[str, object] | None = None
    hold: Hold | None = None
    not_before: dt.datetime | None = None
    in_doubt: bool | None = None
    look_up_at: dt.datetime | None = None  # into doubt: when its record is looked for, if its contract says how
    remote_id: str | None = None
    retries: int = 0
    claims: Claims = Claims.RESET


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The move happened."""

    status: AttemptStatus
    row_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The row was no longer what the mover had read, or its claim is gone. Nothing was written."""

    attempt_id: AttemptId


def move_attempts(conn: sa.Connection, moves: Sequence[Move], *, now: dt.datetime) -> list[Moved | Lost]:
    """Make each move if its row is still as named; write one event for each that happened."""
    if not moves:
        return []
    targets = [_target(move.row.operation, move.row.status, move.event) for move in moves]
    rows = [
        (
            m.row.id,
            m.row.status,
            target,
            m.token,
            None if m.token else m.row.row_version,
            m.reason_code,
            write_json(m.detail),
            m.hold,
            m.not_before,
            m.in_doubt,
            m.look_up_at if target in UNSETTLED else None,
            m.remote_id,
            m.event in _FORGETS_REMOTE_ID,
            m.retries,
            m.claims,
        )
        for m, target in zip(moves, targets, strict=True)
    ]
    versions = {row.id: row.row_version for row in _MOVE(conn, rows, moved_at=now).all()}
    results: list[Moved | Lost] = [
        Moved(status=target, row_version=versions[move.row.id])
        if move.row.id in versions
        else Lost(attempt_id=move.row.id)
        for move, target in zip(moves, targets, strict=True)
    ]
    insert_events(
        conn,
        [_event(move, result) for move, result in zip(moves, results, strict=True) if isinstance(result, Moved)],
        now=now,
    )
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAttempt:
    """An attempt to reserve. `freeze_count` is 1 when its request is written in the same transaction."""

    id: AttemptId
    link_key: LinkKey
    tenant: str
    destination_slot_id: str
    operation: Operation
    lane: Lane
    ordinal: int
    version: int
    freeze_count: int
    not_before: dt.datetime
    expires_at: dt.datetime | None
    retry_count: int = 0
    association: str | None = None  # an update that is one association's call of its own
    actor: str
    detail: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupied:
    """Another attempt holds the key; nothing was written."""

    link_key: LinkKey


def insert_attempts(conn: sa.Connection, items: Sequence[NewAttempt], *, now: dt.datetime) -> list[Moved | Occupied]:
    """Reserve each attempt unless its create key or update key is taken; the unique index decides, not a read."""
    if not items:
        return []
    status = {item.id: _target(item.operation, None, _RESERVE[item.operation]) for item in items}
    rows = [
        (
            i.id,
            i.link_key,
            i.tenant,
            i.destination_slot_id,
            i.operation,
            i.lane,
            status[i.id],
            i.link_key if i.operation is Operation.CREATE else None,
            None if i.operation is Operation.CREATE else i.link_key,
            i.ordinal,
            i.version,
            i.freeze_count,
            i.retry_count,
            i.not_before,
            i.expires_at,
            i.association,
            now,
            now,
        )
        for i in items
    ]
    written = {row.id for row in _INSERT(conn, rows)}
    insert_events(
        conn,
        [
            Event(
                attempt_id=i.id,
                link_key=i.link_key,
                tenant=i.tenant,
                subject=i.operation.value,
                event=_RESERVE[i.operation].value,
                to_status=status[i.id].value,
                actor=i.actor,
                evidence={"ordinal": i.ordinal, "version": i.version, **(i.detail or {})},
                row_version=1,
            )
            for i in items
            if i.id in written
        ],
        now=now,
    )
    return [
        Moved(status=status[i.id], row_version=1) if i.id in written else Occupied(link_key=i.link_key) for i in items
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The terms of one claim: a fresh token, the worker's incarnation, the server's timeline, and how long it lasts."""

    attempt_id: AttemptId
    row_version: int
    operation: Operation
    status: AttemptStatus
    token: ClaimToken
    incarnation: str
    timeline: str
    lease_until: dt.datetime


def claim_attempts(conn: sa.Connection, items: Sequence[Claim], *, now: dt.datetime) -> list[AttemptRow | None]:
    """Take each row for its claimant, and answer with it; a write-back claim keeps its status and hides the row until
    its lease ends. `None` where somebody else was quicker.

    Claims write no event of their own (the outcome's event names the claim); the count of claims is written here, so
    that a row which kills its workers is seen.
    """
    if not items:
        return []
    rows = [
        (
            c.attempt_id,
            c.row_version,
            c.status,
            _claimed(c),
            c.token,
            c.incarnation,
            c.timeline,
            c.lease_until,
        )
        for c in items
    ]
    taken = {row.id: row for row in read_rows(AttemptRow, _CLAIM(conn, rows, claimed_at=now))}
    return [taken.get(item.attempt_id) for item in items]


def _move_statement(rows: sa.FromClause) -> sa.Executable:
    t, m = push_attempt, rows.c
    keeps_claim = m.new_status.in_([s.value for s in _KEEPS_CLAIM])
    writebacks = [s.value for s in _WRITEBACKS]
    begins_writeback = sa.and_(m.new_status.in_(writebacks), m.old_status.not_in(writebacks))
    return (
        sa.update(t)
        .where(
            t.c.id == m.id,
            t.c.status == m.old_status,
            sa.or_(t.c.claim_token == m.token, sa.and_(m.token.is_(None), t.c.row_version == m.version)),
        )
        .values(
            status=m.new_status,
            hold_code=m.new_hold,
            reason_code=m.new_reason,
            detail=m.new_detail,
            claim_token=sa.case((keeps_claim, t.c.claim_token), else_=sa.null()),
            lease_until=sa.case((keeps_claim, t.c.lease_until), else_=m.new_look_up),
            remote_io_started_at=sa.case(
                (m.new_status == AttemptStatus.PENDING.value, sa.null()), else_=t.c.remote_io_started_at
            ),
            in_doubt=sa.func.coalesce(m.new_doubt, t.c.in_doubt),
            remote_id=sa.case((m.forgets_remote_id, sa.null()), else_=sa.func.coalesce(m.new_remote_id, t.c.remote_id)),
            create_key=sa.case((m.new_status == AttemptStatus.SUPERSEDED.value, sa.null()), else_=t.c.create_key),
            update_key=sa.case((m.new_status.in_([s.value for s in UPDATE_OPEN]), t.c.update_key), else_=sa.null()),
            not_before=sa.func.coalesce(m.new_not_before, t.c.not_before),
            retry_count=sa.case((begins_writeback, 0), else_=t.c.retry_count + m.retries),
            claim_count=sa.case(
                (m.claims == Claims.RESET.value, 0),
                (sa.and_(m.claims == Claims.FORGIVE.value, t.c.claim_count > 0), t.c.claim_count - 1),
                else_=t.c.claim_count,
            ),
            updated_at=sa.bindparam("moved_at", type_=UtcTime()),
            row_version=t.c.row_version + 1,
        )
        .returning(t.c.id, t.c.row_version)
    )


def _insert_statement(rows: sa.FromClause) -> sa.Executable:
    names = list(_INSERTED.columns)
    # What it is sent in order with is its slot's, which every caller has locked.
    order = sa.select(push_slot.c.order_key).where(push_slot.c.link_key == rows.c.link_key).scalar_subquery()
    chosen = sa.select(*(rows.c[name] for name in names), order).where(sa.true()).order_by(rows.c.link_key)
    return insert_ignore(push_attempt).from_select([*names, "order_key"], chosen).returning(push_attempt.c.id)


def _claim_statement(rows: sa.FromClause) -> sa.Executable:
    t, c = push_attempt, rows.c
    return (
        sa.update(t)
        .where(t.c.id == c.id, t.c.row_version == c.version, t.c.status == c.old_status, t.c.hold_code.is_(None))
        .values(
            status=c.new_status,
            claim_token=c.token,
            claimed_by=c.incarnation,
            claim_timeline=c.timeline,
            lease_until=c.until,
            not_before=sa.case((c.old_status == c.new_status, c.until), else_=t.c.not_before),
            claim_count=t.c.claim_count + 1,
            updated_at=sa.bindparam("claimed_at", type_=UtcTime()),
            row_version=t.c.row_version + 1,
        )
        .returning(*columns_of(AttemptRow, t))
    )


_MOVE: Final = Batch(
    "moves",
    {
        "id": sa.Text(),
        "old_status": sa.Text(),
        "new_status": sa.Text(),
        "token": sa.Text(),
        "version": sa.BigInteger(),
        "new_reason": sa.Text(),
        "new_detail": sa.Text(),
        "new_hold": sa.Text(),
        "new_not_before": UtcTime(),
        "new_doubt": sa.Boolean(),
        "new_look_up": UtcTime(),
        "new_remote_id": sa.Text(),
        "forgets_remote_id": sa.Boolean(),
        "retries": sa.BigInteger(),
        "claims": sa.Text(),
    },
).prepare(_move_statement)

_INSERTED: Final = Batch(
    "reserved",
    {
        "id": sa.Text(),
        "link_key": sa.Text(),
        "tenant": sa.Text(),
        "destination_slot_id": sa.Text(),
        "operation": sa.Text(),
        "dispatch_lane": sa.Text(),
        "status": sa.Text(),
        "create_key": sa.Text(),
        "update_key": sa.Text(),
        "ordinal": sa.BigInteger(),
        "version": sa.BigInteger(),
        "freeze_count": sa.BigInteger(),
        "retry_count": sa.BigInteger(),
        "not_before": UtcTime(),
        "expires_at": UtcTime(),
        "association": sa.Text(),
        "created_at": UtcTime(),
        "updated_at": UtcTime(),
    },
)
_INSERT: Final = _INSERTED.prepare(_insert_statement)

_CLAIM: Final = Batch(
    "claims",
    {
        "id": sa.Text(),
        "version": sa.BigInteger(),
        "old_status": sa.Text(),
        "new_status": sa.Text(),
        "token": sa.Text(),
        "incarnation": sa.Text(),
        "timeline": sa.Text(),
        "until": UtcTime(),
    },
).prepare(_claim_statement)

_RESERVE: Final[Mapping[Operation, CreateEvent | UpdateEvent]] = {
    Operation.CREATE: CreateEvent.RESERVE,
    Operation.UPDATE: UpdateEvent.RESERVE,
}


def _claimed(claim: Claim) -> AttemptStatus:
    if claim.status in CLAIMED_IN_PLACE:
        return claim.status
    return _target(
        claim.operation,
        claim.status,
        CreateEvent.CLAIM if claim.operation is Operation.CREATE else UpdateEvent.CLAIM,
    )


def _target(operation: Operation, status: AttemptStatus | None, event: CreateEvent | UpdateEvent) -> AttemptStatus:
    if isinstance(event, CreateEvent) and operation is Operation.CREATE:
        return follow_create(status, event)
    if isinstance(event, UpdateEvent) and operation is Operation.UPDATE:
        return follow_update(status, event)
    msg = f"event {event.value!r} is not one of an attempt that is a {operation.value}"
    raise TypeError(msg)


def _event(move: Move, result: Moved) -> Event:
    return Event(
        attempt_id=move.row.id,
        link_key=move.row.link_key,
        tenant=move.row.tenant,
        subject=move.row.operation.value,
        event=move.event.value,
        from_status=move.row.status.value,
        to_status=result.status.value,
        actor=move.actor,
        reason=move.reason_code,
        evidence={
            **(move.detail or {}),
            **({"hold": move.hold.value} if move.hold else {}),
            **({"claim": move.token} if move.token else {}),
        }
        or None,
        row_version=result.row_version,
    )
