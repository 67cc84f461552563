"""Scenarios: what a process does while it is disturbed, on a deployment of its own, against a remote of its own.

`Stand` is the deployment: one database, one pack, one state directory. `Hand` is one process of it: it saves as a host,
works as a worker (the real one, in an event loop), decides as an operator, and recovers whatever died before it. Its
clock is the database's, read by SQL as always, and moved on by what the scenario says, so that no lease is waited for.

A `Scenario` names its record's key itself (the remote finds the story's faults by it), and runs again and again on the
same database with another record each time. The table of them is in `proof.stories`.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import mmap
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from pushlink.adapters.clock_ids import DatabaseClock
from pushlink.bootstrap import Parts, Runtime
from pushlink.errors import CallerError, Code, Contended, Unavailable
from pushlink.flows.drivers import run_flow
from pushlink.flows.guarding import database_of
from pushlink.flows.steps import Steps
from pushlink.migration import revalidate
from pushlink.operations.actions import Decision, OperatorTerms, act
from pushlink.protocol.manifest import approve, read_manifest, write_manifest
from pushlink.protocol.snapshots import LinkKey
from pushlink.protocol.verbs import Verb
from pushlink.store.dialect import create_engine
from pushlink.testing.certificates import make_certificates
from pushlink.testing.drain import OneToken, apply, claims_of, drain_inline, open_runtime
from pushlink.testing.driver import SendNow, worker_pass
from pushlink.worker import WorkerOptions
from support.bench import METADATA, MIRROR, PACK, PERSON, FailingMirrors

#: Longer than any lease, and longer than any settle time of the pack of these scenarios.
PAST_THE_LEASE_S: Final = 150.0
SETTLED_S: Final = 3 * 3_600.0

#: Between two cases on one database, so that no clock ever goes back.
CASE_S: Final = 24 * 3_600.0

#: How long a synchronous driver tries a transaction again, in seconds.
PATIENCE_S: Final = 5.0

#: How often a host or an operator runs a transaction again that failed.
TRIES: Final = 3

#: A host, an operator and a supervisor expect these; another error of a disturbed process is a defect.
EXPECTED: Final = (sa.exc.DBAPIError, Unavailable, Contended)


class ShiftedClock:
    """The database's clock, some seconds later; processes that are forked from one share the shift."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, struct.calcsize("d"))
        self._clock = DatabaseClock()

    @property
    def shift_s(self) -> float:
        """How many seconds later."""
        [shift] = struct.unpack("d", self._shared[:])
        return float(shift)

    @shift_s.setter
    def shift_s(self, shift_s: float) -> None:
        self._shared[:] = struct.pack("d", shift_s)

    def now(self, conn: sa.Connection) -> dt.datetime:
        """The current time of this process."""
        return self._clock.now(conn) + dt.timedelta(seconds=self.shift_s)


class Stand:
    """One deployment: engine, pack, state directory. Made once, used by many processes that are forked afterwards."""

    def __init__(
        self, url: str, home: Path, remote: str, log: Path, *, pack: str = PACK + MIRROR, **worker: Any
    ) -> None:
        self.url = url
        self.home = home
        self.remote = remote
        self.log = log
        self.engine = create_engine(url)
        self.clock = ShiftedClock()
        self._parts = Parts(engine=self.engine, clock=self.clock, credentials=OneToken("token"))
        self.settings = open_runtime(
            home,
            pack=pack,
            base_url=remote,
            bind={"Person": PERSON},
            metadata=METADATA,
            parts=self._parts,
            database_url=url,
            state_directory=home / "state",
            worker={"poll": "50ms", "grace": "2s", **worker},
            contracts={"trust_uncertified": True},  # the remote of these scenarios keeps what their packs say
            # A transport that reads this machine's certificate authorities anew takes longer than a whole case.
            egress={"allow_loopback": True, "ca_file": make_certificates(home).ca_file},
        ).settings

    def open(self) -> Runtime:
        """A runtime that knows nothing yet, as a process that has just started."""
        runtime = Runtime(self.settings, self._parts)
        runtime.bind(PERSON, "Person")
        return runtime


class Hand:
    """One process of a stand, and the record that its scenario is about."""

    def __init__(self, stand: Stand, record: str, shift_s: float, *, send: SendNow | None = None) -> None:
        self.stand = stand
        self._send = send  # a way to the remote without sockets
        self.record = record
        self.engine = stand.engine
        self.clock = stand.clock
        self.clock.shift_s = shift_s
        self.runtime = stand.open()

    # ------------------------------------------------------------------------------ the host

    def save(self, name: str, record: str | None = None) -> None:
        """Write a record and save it in one transaction, and again when that failed, as a host's users do."""
        wanted = record or self.record
        self.patiently(lambda: self._save(wanted, name))

    def _save(self, record: str, name: str) -> None:
        with self.engine.begin() as conn:
            there = conn.execute(sa.select(PERSON.c.id).where(PERSON.c.id == record)).first()
            if there is None:
                conn.execute(PERSON.insert().values(id=record, name=name))
            else:
                conn.execute(PERSON.update().where(PERSON.c.id == record).values(name=name))
            self.runtime.save(conn, "Person", record, user="u1")

    # ------------------------------------------------------------------------------ the worker

    def work(self) -> None:
        """Run the real worker until nothing is due at this moment."""
        options = WorkerOptions(poll_s=0.02, threads=2, grace_s=2.0, idle_horizon_s=0.0)
        asyncio.run(self.runtime.worker(options=options).run(until_idle=True))

    def work_once(self) -> None:
        """One round of a worker on this thread: the synchronous driver, as an inline dispatch has it."""
        world = self.runtime.world
        with self._sending() as send:
            flow = worker_pass(claims_of(world), Steps(world))
            run_flow(flow, database_of(world, self.engine), send, until=time.monotonic() + PATIENCE_S)

    def recover(self) -> None:
        """Let every lease end, then work on one thread until nothing waits, however late it becomes due."""
        self.later(PAST_THE_LEASE_S)
        world = self.runtime.world
        with self._sending() as send:
            drain_inline(world, database_of(world, self.engine), send, advance=self.later)

    @contextmanager
    def _sending(self) -> Iterator[SendNow]:
        if self._send is not None:
            yield self._send
            return
        with asyncio.Runner() as runner:
            transport = self.runtime.transport()
            yield lambda request: runner.run(transport.send(request))
            runner.run(transport.close())

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.shift_s += seconds

    def fail_mirrors(self, count: int) -> None:
        """Let the next mirror writes fail, as when the host's table is locked."""
        mirrors = FailingMirrors(self.runtime.records)
        mirrors.failing = count
        self.runtime.__dict__["world"] = replace(self.runtime.world, records=mirrors)

    # ------------------------------------------------------------------------------ the operator

    def decide(self, verb: Verb, *, operation: str = "create", argument: str | None = None, **more: Any) -> None:
        """Decide about the newest attempt of the record as it stands; done already is done."""

        def once() -> None:
            row = self.attempt(operation)
            given = {"actor": "olga", "reason": "looked at the remote", "argument": argument, **more}
            decision = Decision(verb=verb, target_id=row.id, row_version=row.row_version, **given)
            try:
                with self.engine.begin() as conn:
                    act(conn, self.runtime.world, decision, terms=OperatorTerms(), now=self.clock.now(conn))
            except CallerError as error:
                if error.code is not Code.NOT_ALLOWED_NOW:
                    raise

        self.patiently(once)

    def attempt(self, operation: str = "create", *, conn: sa.Connection | None = None) -> Any:
        """The newest attempt of the record; `None` when there is none."""
        query = sa.text(
            "SELECT a.id, a.row_version, a.status FROM pushlink_push_attempt a"
            " JOIN pushlink_push_slot s ON s.link_key = a.link_key"
            " WHERE s.source_record_id = :record AND a.operation = :operation ORDER BY a.id DESC"
        )
        bound = {"record": self.record, "operation": operation}
        if conn is not None:
            return conn.execute(query, bound).first()
        with self.engine.begin() as own:
            return own.execute(query, bound).first()

    def remote_id(self) -> str:
        """What an operator finds at the remote."""
        lines = [json.loads(line) for line in self.stand.log.read_text(encoding="utf-8").splitlines()]
        return next(line["id"] for line in reversed(lines) if line.get("key") == self.record and line["applied"])

    def patiently(self, once: Callable[[], None]) -> None:
        """Do it, and again when the database failed, as hosts and operators do."""
        for tries in range(TRIES):
            try:
                once()
            except EXPECTED:
                if tries + 1 == TRIES:
                    raise
            else:
                return

    # ------------------------------------------------------------------------------ the integrator

    def change_pack(self, text: str) -> None:
        """Apply another version of the pack."""
        apply(self.runtime, text + MIRROR, base_url=self.stand.remote)

    def write_manifest(self, records: Sequence[str]) -> None:
        """A manifest that brings the links of these records to the mapping of now, kept in a file."""
        query = sa.text("SELECT link_key FROM pushlink_remote_link WHERE source_record_id = :record")
        with self.engine.begin() as conn:
            keys = [LinkKey(conn.execute(query, {"record": one}).scalar_one()) for one in records]
        manifest = revalidate.make_manifest(
            self.engine,
            sorted(keys),
            operation_id=f"op-{self.record}",
            tenant="",
            reason="the field was renamed",
            approval=approve("Olga Owner", "Both mappings mean the same."),
        )
        self._manifest.write_text(write_manifest(manifest), encoding="utf-8")

    def apply_manifest(self) -> None:
        """Apply it; one that was applied is verified."""
        manifest = read_manifest(self._manifest.read_text(encoding="utf-8"))
        self.patiently(lambda: revalidate.apply(self.engine, manifest, actor="cli:proof", now=self.clock.now) and None)

    @property
    def _manifest(self) -> Path:
        return self.stand.home / f"{self.record}.json"


def _nothing(hand: Hand) -> None:
    del hand


def _alone(record: str) -> tuple[str, ...]:
    return (record,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One story. `act` is what is disturbed, after `prepare`; `recover` is what a fresh process does about it.

    `ends` is every way in which it may end, in the words of the judge.
    """

    name: str
    act: Callable[[Hand], None]
    ends: frozenset[str]
    prepare: Callable[[Hand], None] = _nothing
    recover: Callable[[Hand], None] = Hand.recover
    records: Callable[[str], tuple[str, ...]] = _alone
    behaviours: Mapping[str, Sequence[str]] = field(default_factory=dict)
    refuses: int = 0
    together: bool = False
    pack: str | None = None  # where it is not the lane's
    dedupe: bool = False  # whether the remote answers a repeat under one key as it did before

    @property
    def prefix(self) -> str:
        """What the keys of its records begin with."""
        return self.name.replace(" ", "-").replace(",", "")
