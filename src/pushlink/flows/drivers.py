"""Drivers: what runs a flow's effects. They know transactions, threads and time, and nothing about pushes.

`run_flow` is the synchronous one (inline dispatch on a request thread); `GroupingDriver` is the worker's: it gathers
the `Tx` effects of many flows that wait at the same step and commits them as one transaction in link-key order. A group
that fails is split, so that one bad row never costs its neighbours anything. A `Tx` that follows a `Send` is tried
again through an outage of the database; everything else that fails abandons its flow, and recovery by lease owns the
rest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa

from pushlink.errors import Unavailable
from pushlink.flows.effects import Flow, Send, Step, Tx
from pushlink.flows.telling import told
from pushlink.ports import Clock, Transport, WireReply, WireRequest
from pushlink.store.dialect import (
    is_busy,
    is_connection_lost,
    is_lock_not_available,
    is_serialization_failure,
    is_starved,
)

log = logging.getLogger("pushlink.driver")

#: Tries of a transaction before any byte was sent; afterwards the flow is left to recovery.
TRIES_BEFORE_SEND: Final = 5

#: First and longest pause between two tries of one transaction, in seconds.
PAUSE_S: Final = 0.02
PAUSE_S_MAX: Final = 1.0


@dataclass(frozen=True, slots=True)
class Failed:
    """A transaction that did not commit for this item; `transient` when trying again may help."""

    error: Exception
    transient: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Where steps run: an engine and the clock that is read inside each transaction."""

    engine: sa.Engine
    clock: Clock

    def commit(self, step: Step, txs: Sequence[Tx]) -> list[Any]:
        """Run `step` for all in one transaction; on failure split, until a single item has its own `Failed`.

        Every exception becomes a value: an error that escaped here would leave its flows waiting for ever. An outage is
        not split, nor is a file that somebody else writes to: each half would only wait for it again, ten seconds each.
        """
        try:
            with self.engine.begin() as conn:
                now = self.clock.now(conn)
                return list(step(conn, [tx.item for tx in txs], now=now))
        except Exception as error:  # noqa: BLE001 - delivered to the flow's driver as a value
            away = is_connection_lost(error)
            if len(txs) == 1 or away or is_busy(error):
                return [Failed(error, away or is_transient(error))] * len(txs)
            middle = len(txs) // 2
            return self.commit(step, txs[:middle]) + self.commit(step, txs[middle:])


def is_transient(error: BaseException) -> bool:
    """Whether a new transaction may succeed where this one failed."""
    return (
        isinstance(error, Unavailable)
        or is_lock_not_available(error)
        or is_serialization_failure(error)
        or is_busy(error)
        or is_starved(error)
    )


class Patience:
    """How often, and how far apart, one transaction is tried; the rule is the same for every driver."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx
        self.tries = 0

    def after(self, failed: Failed) -> float | Tx | None:
        """Seconds to wait before the next try, the transaction to run instead, or `None` to abandon the flow."""
        self.tries += 1
        if failed.transient and (self.tx.after_send or self.tries < TRIES_BEFORE_SEND):
            return min(PAUSE_S * float(2 ** min(self.tries - 1, 10)), PAUSE_S_MAX)
        return self.tx.on_failure


def run_flow(flow: Flow, database: Database, send: Callable[[WireRequest], WireReply], *, until: float) -> None:
    """Run one flow to its end on this thread. `until` (monotonic seconds) ends the patience with a database outage."""
    value: Any = None
    while True:
        try:
            effect = flow.send(value)
        except StopIteration:
            return
        if isinstance(effect, Send):
            value = send(effect.request)
            continue
        patience = Patience(effect)
        while isinstance(value := database.commit(patience.tx.step, [patience.tx])[0], Failed):
            match patience.after(value):
                case float() as pause if time.monotonic() < until:
                    time.sleep(pause)
                case Tx() as instead:
                    patience = Patience(instead)
                case _:
                    flow.close()
                    raise value.error


@dataclass(slots=True, eq=False)
class Run:
    """A flow on a driver, and the transaction that it waits for."""

    flow: Flow
    patience: Patience | None = None


def _key(run: Run) -> str:
    return run.patience.tx.key if run.patience else ""


@dataclass(slots=True, eq=False)
class Station:
    """Where flows wait at one step."""

    step: Step
    waiting: deque[Run] = field(default_factory=deque)
    busy: bool = False

    def take(self, count: int) -> list[Run]:
        """The first that wait, no more than `count`, and one for each key; in the order of keys.

        A worker that waited for its database past a lease may have claimed the same row again, so that a flow of the
        ended claim and one of the live claim wait here together. They are two groups: each meets the fence by itself.
        """
        group: dict[str, Run] = {}
        put_off: list[Run] = []
        while self.waiting and len(group) < count:
            run = self.waiting.popleft()
            if group.setdefault(_key(run), run) is not run:
                put_off.append(run)
        self.waiting.extendleft(reversed(put_off))
        return sorted(group.values(), key=_key)


class GroupingDriver:
    """Runs many flows on one event loop, their transactions in groups on a small pool of threads.

    `sends_max` bounds requests on the wire: a group of the gate (the checkpoint step) takes only as many flows as there
    are free sends, and is flushed just before them, so that a crash leaves few attempts in doubt.
    """

    def __init__(
        self,
        database: Database,
        transport: Transport,
        *,
        gate: Step,
        threads: int = 3,
        group_max: int = 64,
        sends_max: int = 128,
    ) -> None:
        self._database = database
        self._transport = transport
        self._gate = gate
        self._group_max = group_max
        self._sends_free = sends_max
        self._threads_free = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="pushlink-tx")
        self._stations: dict[Step, Station] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._room = asyncio.Event()
        self._room.set()
        self._closing = False
        self._ended = asyncio.Event()
        self.live = 0
        self.abandoned = 0

    def start(self, flow: Flow) -> None:
        """Begin a flow; it runs until it ends, is abandoned, or the driver is closed."""
        self.live += 1
        self._idle.clear()
        self._resume(Run(flow), None)

    async def call(self, step: Step, item: Any) -> Any:
        """Run one step outside any flow (a claim, a recovery) in its own transaction; raises what it raised."""
        loop = asyncio.get_running_loop()
        [result] = await loop.run_in_executor(
            self._pool, self._database.commit, step, [Tx(step=step, item=item, key="")]
        )
        if isinstance(result, Failed):
            raise result.error
        return result

    async def wait_idle(self) -> None:
        """Until no flow is live."""
        await self._idle.wait()

    async def wait_end(self) -> None:
        """Until a flow ends from now on: what is capped may have room then."""
        self._ended.clear()
        await self._ended.wait()

    async def wait_room(self, live_max: int) -> None:
        """Until fewer than `live_max` flows are live."""
        while self.live >= live_max:
            self._room.clear()
            await self._room.wait()

    async def close(self, *, grace_s: float) -> None:
        """Let flows end for at most `grace_s` seconds, then drop them: their rows are recovered by lease (D-18)."""
        try:
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
        except TimeoutError:
            log.warning("%d flows were still in work when the grace time ended", self.live)
        self._closing = True
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._pool.shutdown(wait=True)

    def _resume(self, run: Run, value: Any) -> bool:
        """Give the flow its value and start what it asks for next; True when that is a send that the gate counted."""
        try:
            effect = run.flow.send(value)
        except StopIteration:
            self._end()
            return False
        except Exception as error:  # noqa: BLE001 - one flow's defect ends that flow and no other
            self._abandon(run, "a flow failed", error)
            return False
        if isinstance(effect, Send):
            self._spawn(self._send(run, effect))
            return effect.gated
        self._enqueue(run, Patience(effect))
        return False

    def _abandon(self, run: Run, what: str, error: BaseException) -> None:
        """End a flow that cannot go on. What it holds is recovered by lease; a checkpoint makes it doubtful then."""
        log.error("%s; its attempt is recovered when the lease ends: %s", what, told(error))
        run.flow.close()
        self.abandoned += 1
        self._end()

    def _end(self) -> None:
        self.live -= 1
        self._room.set()
        self._ended.set()
        if self.live == 0:
            self._idle.set()

    def _enqueue(self, run: Run, patience: Patience) -> None:
        run.patience = patience
        step = patience.tx.step
        station = self._stations.get(step)
        if station is None:
            station = self._stations[step] = Station(step)
        station.waiting.append(run)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        while not self._closing and self._threads_free and (station := self._longest()):
            runs = station.take(self._takes(station))
            if station.step == self._gate:
                self._sends_free -= len(runs)
            station.busy = True
            self._threads_free -= 1
            self._spawn(self._commit(station, runs))

    def _takes(self, station: Station) -> int:
        room = self._sends_free if station.step == self._gate else self._group_max
        return min(len(station.waiting), self._group_max, room)

    def _longest(self) -> Station | None:
        ready = [s for s in self._stations.values() if not s.busy and self._takes(s) > 0]
        return max(ready, key=lambda s: len(s.waiting), default=None)

    async def _commit(self, station: Station, runs: list[Run]) -> None:
        txs = [run.patience.tx for run in runs if run.patience]
        loop = asyncio.get_running_loop()
        results = await loop.run_in_executor(self._pool, self._database.commit, station.step, txs)
        station.busy = False
        self._threads_free += 1
        gate = station.step == self._gate
        for run, result in zip(runs, results, strict=True):
            is_sending = False
            if isinstance(result, Failed):
                self._retry(run, result)
            else:
                is_sending = self._resume(run, result)
            if gate and not is_sending:
                self._sends_free += 1  # the flow ended, or waits for another transaction, this one again perhaps
        self._schedule()

    def _retry(self, run: Run, failed: Failed) -> None:
        patience = run.patience
        verdict = patience.after(failed) if patience else None
        match verdict:
            case float() as pause if not self._closing:
                self._spawn(self._again(run, pause))
            case Tx() as instead:
                self._enqueue(run, Patience(instead))
            case _:
                self._abandon(run, "a transaction failed", failed.error)

    async def _again(self, run: Run, pause: float) -> None:
        await asyncio.sleep(pause)
        if run.patience:
            self._enqueue(run, run.patience)

    async def _send(self, run: Run, effect: Send) -> None:
        try:
            reply = await self._transport.send(effect.request)
        except Exception as error:  # noqa: BLE001 - a transport that raises breaks its promise; the others go on
            self._abandon(run, "a transport raised", error)
            return
        finally:
            self._sends_free += int(effect.gated)
            self._schedule()
        self._resume(run, reply)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
