"""Inline dispatch: the due attempts of one record, run on the caller's own thread through the same flows as a worker's.

It takes what a worker would take, of the `configured` lane only, and of the named keys only: dead claims of these keys
are recovered first, holds that a changed catalogue may have healed are looked at again, and every write has the same
fence. Attempts that wait for an association are neither recovered nor sent here (DL-05, DL-14). A record's create and
the update that follows it are dispatched in one call; no attempt is dispatched twice in it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import sqlalchemy as sa

from pushlink.errors import CallerError, Code
from pushlink.flows.claim import ClaimSteps
from pushlink.flows.claimed import Claimed, ClaimedLookup, ClaimedStampLookup
from pushlink.flows.dispatch import flow_of
from pushlink.flows.drivers import Database, run_flow
from pushlink.flows.effects import Flow, Tx
from pushlink.flows.recover import make_recoveries, recoveries_of
from pushlink.flows.steps import Steps
from pushlink.flows.world import World
from pushlink.ports import Transport, WireReply, WireRequest
from pushlink.protocol.lookups import may_be_looked_up
from pushlink.protocol.snapshots import AttemptId, LinkKey
from pushlink.protocol.states import (
    BLOCKING,
    CLAIMED_IN_PLACE,
    LEASED,
    RECHECKED_HOLDS,
    UNSETTLED,
    UPDATE_OPEN,
    CreateEvent,
    Lane,
    UpdateEvent,
    sources,
)
from pushlink.protocol.waiting import ASSOCIATION_HOLDS
from pushlink.store import attempts
from pushlink.store.attempts import SetHold
from pushlink.store.catalog import read_deployment
from pushlink.store.circuits import Place
from pushlink.store.dialect import timeline
from pushlink.store.rows import AttemptRow

#: A claim may take a row in one of these.
CLAIMABLE: Final = sources(CreateEvent.CLAIM) | sources(UpdateEvent.CLAIM) | CLAIMED_IN_PLACE

#: What only reads: what it finds is gone on with in the same call.
_READS: Final = (ClaimedLookup, ClaimedStampLookup)

#: A create, its mirror, and the updates that follow; a record needs no more rounds in one call.
ROUNDS_MAX: Final = 8


class Standing(StrEnum):
    """What an inline dispatch did with an attempt, or why it did nothing."""

    DISPATCHED = "dispatched"  # its flow ran; the row says with which result
    NOT_DUE = "not_due"  # it waits for its time
    HELD = "held"
    IN_WORK = "in_work"  # somebody else has it under a live claim
    OTHER_LANE = "other_lane"  # a worker's business
    PARKED = "parked"  # it needs a person


@dataclass(frozen=True, slots=True, kw_only=True)
class Inline:
    """One attempt as it stands after the dispatch."""

    attempt: AttemptRow
    standing: Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineOrder:
    """Which keys to dispatch, without the attempts that this call has had already."""

    keys: tuple[LinkKey, ...]
    had: frozenset[AttemptId] = frozenset()


class InlineClaims(ClaimSteps):
    """Claims of one inline dispatch."""

    def claim_due(self, conn: sa.Connection, items: Sequence[InlineOrder], *, now: dt.datetime) -> list[list[Claimed]]:
        """For each order: recover, look at holds again, and claim what is due."""
        deployment = read_deployment(conn)
        if deployment.mode != "running":
            raise CallerError(
                "The deployment is in recovery mode; nothing is sent.",
                code=Code.RECOVERY_MODE,
                next_step="pushlink doctor",
            )
        return [self._claim_order(conn, order, deployment.catalog_revision, now) for order in items]

    def read_standing(
        self, conn: sa.Connection, items: Sequence[InlineOrder], *, now: dt.datetime
    ) -> list[list[Inline]]:
        """For each order its attempts as they stand now: those that were dispatched, then what is open beside them."""
        del now
        answers = []
        for order in items:
            had = [row for row in attempts.read_attempts(conn, sorted(order.had)) if row is not None]
            others = [row for row in _open(conn, order.keys) if row.id not in order.had]
            shown = [(row, Standing.DISPATCHED) for row in had] + [(row, _standing(row)) for row in others]
            answers.append([Inline(attempt=row, standing=standing) for row, standing in shown])
        return answers

    def _claim_order(self, conn: sa.Connection, order: InlineOrder, revision: int, now: dt.datetime) -> list[Claimed]:
        line = timeline(conn)

        def read(without: frozenset[Place]) -> tuple[list[AttemptRow], list[AttemptRow]]:
            ours = [row for row in _ours(conn, order) if (row.tenant, row.destination_slot_id) not in without]
            answered = [row for row in ours if may_be_looked_up(row.operation, row.status) and _is_dead(row, now)]
            return answered, [row for row in ours if _is_looked_for(row, now)]

        asked = self._take_lookups(conn, read, len(order.keys), line, now)
        dead = [row for row in _ours(conn, order) if _is_dead(row, now)]
        moves = recoveries_of(self._world, conn, dead, timeline=line, actor=self._incarnation, now=now)
        make_recoveries(conn, moves, now=now)
        self._recheck(conn, [row for row in _ours(conn, order) if _may_have_healed(row, revision)], revision, now)
        due = [
            row
            for row in _ours(conn, order)
            if row.status in CLAIMABLE and row.hold_code is None and row.not_before <= now
        ]
        fit = self._within_limits(conn, self._set_aside(conn, due, now), now)
        return [*asked, *self._gather(conn, self._take(conn, fit, line, now), now)]

    def _recheck(self, conn: sa.Connection, rows: Sequence[AttemptRow], revision: int, now: dt.datetime) -> None:
        detail = {"rechecked": revision}
        holds = [
            SetHold(row=row, hold=None, reason_code=None, detail=detail, actor=self._incarnation, not_before=now)
            if row.hold_code in ASSOCIATION_HOLDS
            else SetHold(row=row, hold=None, reason_code=None, detail=detail, actor=self._incarnation)
            for row in rows
        ]
        attempts.set_holds(conn, holds, now=now)


def dispatch_inline(world: World, database: Database, transport: Transport, keys: Sequence[LinkKey]) -> list[Inline]:
    """Dispatch what is due of these keys on this thread, with an event loop of its own for the transport, and close it.

    Raises `CallerError` on a thread whose event loop runs, and whatever a step raised that no retry could help: the
    attempt is then recovered by its lease.
    """
    _refuse_running_loop()
    claims, steps = InlineClaims(world, incarnation=world.ids.token()), Steps(world)
    with asyncio.Runner() as runner:

        def send(request: WireRequest) -> WireReply:
            return runner.run(transport.send(request))

        try:
            order = InlineOrder(keys=tuple(keys))
            for _ in range(ROUNDS_MAX):
                until = time.monotonic() + world.terms.lease_ms / 1_000
                claimed: list[Claimed] = []
                run_flow(_asking(Tx(step=claims.claim_due, item=order, key=""), claimed), database, send, until=until)
                if not claimed:
                    break
                for item in claimed:
                    run_flow(flow_of(item, steps), database, send, until=until)
                order = InlineOrder(
                    keys=order.keys,
                    had=order.had | {item.attempt.id for item in claimed if not isinstance(item, _READS)},
                )
            standing: list[Inline] = []
            tx = Tx(step=claims.read_standing, item=order, key="")
            run_flow(_asking(tx, standing), database, send, until=time.monotonic())
        finally:
            runner.run(transport.close())
    return standing


def _asking(tx: Tx, answers: list[Claimed] | list[Inline]) -> Flow:
    """A flow of one step, whose answer is put into `answers`: a claim is tried again as any transaction is."""
    answers.extend((yield tx))


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    msg = "An inline dispatch blocks its thread, and the event loop of this thread runs."
    raise CallerError(msg, next_step="call it in another thread: asyncio.to_thread")


def _open(conn: sa.Connection, keys: Sequence[LinkKey]) -> list[AttemptRow]:
    """What stands under the keys and is not finished, creates first."""
    found = attempts.read_open_attempts(conn, keys)
    creates = [o.create for o in found if o.create is not None and o.create.status in BLOCKING]
    return creates + [o.update for o in found if o.update is not None and o.update.status in UPDATE_OPEN]


def _ours(conn: sa.Connection, order: InlineOrder) -> list[AttemptRow]:
    rows = _open(conn, order.keys)
    return [row for row in rows if row.dispatch_lane == Lane.CONFIGURED.value and row.id not in order.had]


def _is_dead(row: AttemptRow, now: dt.datetime) -> bool:
    return row.status in LEASED and row.lease_until is not None and row.lease_until < now


def _is_looked_for(row: AttemptRow, now: dt.datetime) -> bool:
    return row.status in UNSETTLED and row.lease_until is not None and row.lease_until <= now


def _may_have_healed(row: AttemptRow, revision: int) -> bool:
    """Whether the catalogue changed since a hold was set that such a change may heal; what waits for another record is
    judged anew each time.
    """
    if row.hold_code in ASSOCIATION_HOLDS:
        return True
    if row.hold_code not in RECHECKED_HOLDS:
        return False
    detail = json.loads(row.detail) if row.detail else {}
    return bool(detail.get("catalog_revision") != revision)


def _standing(row: AttemptRow) -> Standing:
    if row.dispatch_lane != Lane.CONFIGURED.value:
        return Standing.OTHER_LANE
    if row.hold_code is not None:
        return Standing.HELD
    if row.status in LEASED:
        return Standing.IN_WORK
    return Standing.NOT_DUE if row.status in CLAIMABLE else Standing.PARKED
