"""The worker: claims due attempts, runs their flows on the grouping driver, and stops without losing an answer.

It knows when to claim and which flow a claim needs, and nothing else. Recovery of dead claims happens inside the claim
(there is no separate job that could get stuck). A wake-up by NOTIFY shortens the wait; polling finds everything anyway.
On a stop it claims no more, lets requests in flight end within the grace time and records them; what is left keeps its
lease and is recovered by it, never handed back once its checkpoint is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from pushlink.errors import Unavailable
from pushlink.flows.claim import ClaimOrder, ClaimSteps
from pushlink.flows.claimed import Claimed
from pushlink.flows.dispatch import flow_of
from pushlink.flows.drivers import Database, GroupingDriver, is_transient
from pushlink.flows.guarding import check_in, database_of
from pushlink.flows.reserve import WAKE_CHANNEL
from pushlink.flows.starting import StartChecks
from pushlink.flows.steps import Steps
from pushlink.flows.world import World
from pushlink.ports import Transport
from pushlink.store.claims import Turn
from pushlink.store.dialect import Listener, listen, writers_at_once

log = logging.getLogger("pushlink.worker")

#: Pause after a claim that failed (the database is away), in seconds.
OUTAGE_PAUSE_S: Final = 0.5

#: How often a worker looks whether the tables are still those of its release or the next one, in seconds.
TABLES_CHECK_S: Final = 30.0

#: Shortest pause between two claims that found nothing, and the pause while a limit or a lock keeps what is due back
#: (requests of other workers end unseen; one of this worker's own wakes it), in seconds.
SHORTEST_PAUSE_S: Final = 0.005
FULL_PAUSE_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How one worker runs. `idle_horizon_s`: with `until_idle`, work that becomes due that soon is waited for."""

    sends_max: int = 128
    threads: int = 3
    poll_s: float = 1.0
    grace_s: float = 25.0
    claim_max: int = 128
    idle_horizon_s: float = 3.0


@dataclass(slots=True)
class Tally:
    """What a worker has done so far, for people and progress bars."""

    claimed: int = 0
    abandoned: int = 0


class Worker:
    """One worker process's loop. Its identity is a random incarnation, never a name (C-079)."""

    def __init__(
        self,
        *,
        world: World,
        engine: sa.Engine,
        transport: Transport,
        options: WorkerOptions | None = None,
        on_progress: Callable[[Tally], None] | None = None,
    ) -> None:
        self.incarnation = world.ids.token()
        self.tally = Tally()
        self._world = world
        self._engine = engine
        self._transport = transport
        self._options = options or WorkerOptions()
        self._on_progress = on_progress
        self._steps = Steps(world)
        self._starts = StartChecks(world)
        self._checked_at = 0.0
        self._claims = ClaimSteps(world, incarnation=self.incarnation)
        self._turn = Turn()
        self._stop = asyncio.Event()
        self._wake = asyncio.Event()

    def stop(self) -> None:
        """Ask the loop to end; call it from the loop's own thread (a signal handler of the loop does)."""
        self._stop.set()
        self._wake.set()

    async def run(self, *, until_idle: bool = False) -> Tally:
        """Work until stopped, or with `until_idle` until nothing is due and nothing is in flight.

        Raises `ConfigurationError` when the database's tables or durability, or the lease, do not allow a start, and
        when the tables have become those of a release that is not the next one.
        """
        database = database_of(self._world, self._engine)
        driver = GroupingDriver(
            database,
            self._transport,
            gate=self._steps.checkpoint,
            threads=writers_at_once(self._engine, self._options.threads),
            sends_max=self._options.sends_max,
        )
        listener: Listener | None = None
        listening: asyncio.Task[None] | None = None
        try:
            await self._begin(driver, database)
            listener = listen(self._engine, WAKE_CHANNEL)
            listening = asyncio.create_task(self._listen(listener))
            while not self._stop.is_set():
                await driver.wait_room(self._room())
                claimed = await self._claim(driver)
                for item in claimed:
                    driver.start(flow_of(item, self._steps))
                self._report(driver, len(claimed))
                if not claimed and not await self._rest(driver, until_idle=until_idle):
                    break
        finally:
            if listener is not None and listening is not None:
                listener.close()
                await listening
            await driver.close(grace_s=self._options.grace_s)
            self._report(driver, 0)
            await self._transport.close()
        return self.tally

    async def _begin(self, driver: GroupingDriver, database: Database) -> None:
        """Look at what a worker must not begin with; a database that others keep busy just now is asked again."""
        while True:
            try:
                await driver.call(self._starts.check, None)
                self._checked_at = time.monotonic()
                return await asyncio.to_thread(self._check_in, database)
            except sa.exc.DBAPIError as error:
                if self._stop.is_set() or not is_transient(error):
                    raise
                log.warning("the database is busy (%s); the worker waits to begin", type(error).__name__)
                await asyncio.sleep(OUTAGE_PAUSE_S)

    def _check_in(self, database: Database) -> None:
        """Compare the database with what this machine knows of it, and say what that means."""
        if self._world.state is None:
            log.info("without a state_directory nobody notices a restored database")
        if not check_in(self._world, database, actor=self.incarnation):
            log.error("the deployment is in recovery mode, nothing is sent; see `pushlink deployment show`")

    def _room(self) -> int:
        """Fewer live flows than these make room for a claim: not for a few rows at a time, and before sends run dry."""
        return 2 * self._options.sends_max - min(self._options.claim_max, self._options.sends_max) // 2

    async def _claim(self, driver: GroupingDriver) -> list[Claimed]:
        self._wake.clear()
        limit = min(self._options.claim_max, 2 * self._options.sends_max - driver.live)
        try:
            if time.monotonic() - self._checked_at > TABLES_CHECK_S:
                await driver.call(self._starts.check_tables, None)
                self._checked_at = time.monotonic()
            claimed: list[Claimed] = await driver.call(self._claims.claim, ClaimOrder(limit=limit, turn=self._turn))
        except (sa.exc.SQLAlchemyError, Unavailable) as error:
            log.warning("no claim was possible (%s); trying again", type(error).__name__)
            await asyncio.sleep(OUTAGE_PAUSE_S)
            return []
        return claimed

    async def _rest(self, driver: GroupingDriver, *, until_idle: bool) -> bool:
        """Wait for a wake-up, for the next row to become due, or for the poll; False when `until_idle` is reached."""
        try:
            due_s: float | None = await driver.call(self._claims.due_in_s, None)
        except (sa.exc.SQLAlchemyError, Unavailable):
            due_s = self._options.poll_s
        if until_idle and driver.live == 0 and (due_s is None or due_s > self._options.idle_horizon_s):
            return False
        is_full = due_s is not None and due_s <= 0  # what is due has no room among the requests under way
        pause = self._options.poll_s if due_s is None else min(self._options.poll_s, FULL_PAUSE_S if is_full else due_s)
        waiting: list[asyncio.Task[Any]] = [asyncio.create_task(self._wake.wait())]
        if until_idle and driver.live:
            waiting.append(asyncio.create_task(driver.wait_idle()))
        if is_full and driver.live:
            waiting.append(asyncio.create_task(driver.wait_end()))
        await asyncio.wait(waiting, timeout=max(pause, SHORTEST_PAUSE_S), return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return True

    async def _listen(self, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        while not self._stop.is_set():
            started = time.monotonic()
            woken = await loop.run_in_executor(None, listener.wait, self._options.poll_s)
            if woken:
                self._wake.set()
            elif time.monotonic() - started < self._options.poll_s / 2:
                return  # closed

    def _report(self, driver: GroupingDriver, claimed: int) -> None:
        self.tally.claimed += claimed
        self.tally.abandoned = driver.abandoned
        if self._on_progress is not None:
            self._on_progress(self.tally)
