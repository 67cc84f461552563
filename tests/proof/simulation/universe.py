"""One simulated deployment: processes, requests, an operator, a remote and all that may happen to them, out of a seed.

Everything runs on one thread and is chosen by one random generator: a scheduler picks what happens next, an effect of a
flow at a time. The clock is a fixed one that the scheduler moves.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Final

import sqlalchemy as sa

from proof.simulation.faults import IN_THE_WORLD, Fault, Faults
from proof.simulation.operator import Operator
from proof.simulation.processes import Generation, Process
from proof.simulation.surroundings import NOTHING, FaultyDatabase, Network, SeededIds
from proof.stories import BOSSES
from pushlink.adapters.memory import FixedClock
from pushlink.adapters.policy import AllowAllAuthority
from pushlink.bootstrap import Parts, Runtime
from pushlink.flows.outcomes import Outcome, Refused
from pushlink.flows.world import Remembered
from pushlink.operations import deployments
from pushlink.packs.loader import load_pack_text
from pushlink.packs.model import Pack
from pushlink.ports import WireRequest
from pushlink.protocol.verbs import Verb
from pushlink.settings import AuthoritySettings, ContractSettings, Settings
from pushlink.store.catalog import apply_pack
from pushlink.testing.collection import Dedupe, RemoteOptions
from pushlink.testing.scripted import ScriptedTransport
from support.bench import METADATA, MIRROR, PACK, PERSON

#: Records that the database knows something of.
SAVED: Final = "SELECT s.source_record_id FROM pushlink_push_slot s JOIN pushlink_push_attempt a USING (link_key)"

#: A save that waits for one of these is written down with all its values (D-19).
WRITTEN_DOWN: Final = frozenset(
    {"create_active", "create_ambiguous", "create_terminal", "update_ambiguous", "link_suspended"}
)

CHANGE: Final = (
    PERSON.update().where(PERSON.c.id == sa.bindparam("of")).values(name=sa.bindparam("name"), boss=sa.bindparam("by"))
)

#: What a mapping is changed to and back.
MAPPINGS: Final = ("/name", "/label")
ID_RULE: Final = "id: [{from: $response.body#/id}]"
TENANTS: Final = ("", "other")

#: A replay contract, and for how long a create in doubt may be sent again by it. The remote never forgets a key, since
#: requests here are late by more than any margin; that the contract's own end is kept is looked at by itself.
CONTRACT: Final = (
    "idempotency: {in: header, name: Idempotency-Key, lifetime: 5m, margin: 1m,"
    " receipt: [{header: Idempotent-Replayed, equals: 'true'}]}"
)
NEVER_FORGETS: Final = Dedupe(seconds=math.inf)
FOREIGN_LANE: Final = "lane of tomorrow"
#: In one seed of so many, records refer to others; in one of so many, processes commit in groups.
WITH_BOSSES: Final = 5
WITH_GROUPS: Final = 10

#: How often a save names another boss, and how often an operator stops the link of one in the wrong moment.
PROMOTED: Final = 0.4
STOPPED: Final = 0.08

WORKERS_MAX: Final = 4
RECORDS_MAX: Final = 5

#: How often the process of the highest priority loses it: orders that need few such changes are found by few seeds.
DEMOTED: Final = 0.08

#: The world changes less often than a request fails.
WORLD_SCALE: Final = 0.15

#: How often everything is saved once more at the end, as `pushlink backfill` does it.
SAVED_AGAIN: Final = 2

#: Longer than a lease, an hour, a day: what the clock may jump by, in seconds.
JUMPS_S: Final = (5.0, 40.0, 120.0, 900.0, 3_600.0, 90_000.0)


class _TakenBackError(Exception):
    """The host's transaction is rolled back: its record refers to one that cannot be referred to."""


def _require_boss(outcome: Outcome, boss: str | None) -> None:
    if boss is not None and isinstance(outcome, Refused) and outcome.code.startswith("association_"):
        raise _TakenBackError


class Universe:
    """The world of one seed."""

    def __init__(self, engine: sa.Engine, directory: Any, seed: int, copy_of: Callable[[], Any]) -> None:
        self.rng = random.Random(seed)
        self.engine = engine
        self.clock = FixedClock()
        self.credentials = Generation()
        self.faults = Faults.draw(self.rng)
        self.has_contract = self.rng.random() < 0.4
        options = RemoteOptions(ids="text", clock=self._seconds, dedupe=NEVER_FORGETS if self.has_contract else None)
        self.wire = ScriptedTransport(options, credentials=self.credentials)
        self.network = Network(self.wire, self.faults, key_of, self._owned_ids)
        self.ids = SeededIds(self.rng)
        self.backup: Any = None
        self._copy_of = copy_of
        self.tenants = TENANTS[: self.rng.choice((1, 2))]
        self.records = [
            (f"{tenant[:1] or 'p'}{number}", tenant)
            for tenant in self.tenants
            for number in range(1, self.rng.randint(1, RECORDS_MAX) + 1)
        ]
        self.mapping = 0
        self.operator = Operator(self)
        self.retires = Fault.FOREIGN_ID not in self.faults.rates  # a remote that lies about ids, and a freed locator
        self.processes: list[Process] = []
        self.everybody: list[Process] = []  # dead ones too
        self.names: dict[str, str] = {}  # what the last accepted save of a record holds
        self.bosses: dict[str, str | None] = {}  # whom it refers to
        self.served: defaultdict[str, set[str | None]] = defaultdict(set)  # whom it ever referred to
        self.deleted: set[str] = set()
        self.gone: set[str] = set()  # records whose remote record somebody deleted
        self.stranded: dict[str, str] = {}  # attempt: record
        self._link_keys: dict[str, str] = {}
        self.trace: list[str] = []
        (directory / "secret").write_text("a secret of the simulation, long enough for anybody")
        settings = Settings(
            database_url=engine.url.render_as_string(hide_password=False),
            authority=AuthoritySettings(kind="allow_all"),
            contracts=ContractSettings(trust_uncertified=True),
            secret_file=directory / "secret",
        )
        parts = Parts(
            engine=engine,
            authority=AllowAllAuthority(),
            clock=self.clock,
            credentials=self.credentials,
            ids=self.ids,
            transport=lambda: self.wire,
        )
        self.runtime = Runtime(settings, parts)
        METADATA.create_all(engine)
        self.runtime.bind(PERSON, "Person")
        self.has_mirror = self.rng.random() < 0.5
        self.has_bosses, self.is_grouping = seed % WITH_BOSSES == 3, seed % WITH_GROUPS == 8
        self._apply()
        self.database = FaultyDatabase(engine=engine, clock=self.clock, faults=self.faults)
        self.has_priorities = seed % 2 == 0
        self.workers = self.rng.randint(1, WORKERS_MAX)
        for _ in range(self.workers):
            self.start()

    # ---------------------------------------------------------------------------------- processes

    def start(self) -> Process:
        """A process that knows nothing."""
        world = replace(self.runtime.world, proven=Remembered(64), profiles=Remembered(64), actions=Remembered(64))
        process = Process(f"w{self.ids.token()[:4]}", world, self.database, self.network)
        process.priority = self.rng.random() if self.has_priorities else 0.0
        process.is_grouping, process.has_bosses = self.is_grouping, self.has_bosses
        self.processes.append(process)
        self.everybody.append(process)
        return process

    def kill(self, process: Process) -> None:
        """It is gone; a fresh one takes its place."""
        process.kill()
        self.processes.remove(process)
        self.start()

    # ---------------------------------------------------------------------------------- what happens

    def happen(self) -> str:
        """One thing, and what it was."""
        self.clock.advance(seconds=self.rng.random())
        fault = self.faults.strike(*IN_THE_WORLD, scale=WORLD_SCALE)
        if fault is not None:
            return self._trouble(fault)
        if self.has_bosses and self.rng.random() < STOPPED and (said := self._stop_boss()) != NOTHING:
            return said
        choice = self.rng.random()
        if choice < 0.20:
            return self.save()
        if choice < 0.80:
            return self.work()
        if choice < 0.88:
            return self.operator.operate()
        if choice < 0.95:
            return self.wait(self.rng.choice(JUMPS_S[:4]))
        if self.network.underway:
            index = self.rng.randrange(len(self.network.underway))
            key = key_of(self.network.underway[index])
            self.network.deliver(index)
            return f"a late request for {key} arrives"
        return self.wake()

    def work(self) -> str:
        """Some process that is awake goes on."""
        awake = [process for process in self.processes if not process.paused]
        if not awake:
            return self.wake()
        process = self._next(awake)
        return process.step(self.rng) if process.weave.alive else process.claim(self.rng.randint(1, 4))

    def _next(self, awake: list[Process]) -> Process:
        """Any of them; or, where this seed has priorities, the one of the highest, which few steps take from it."""
        if not self.has_priorities:
            return self.rng.choice(awake)
        first = max(awake, key=lambda process: process.priority)
        if self.rng.random() < DEMOTED:
            first.priority = -self.rng.random()
        return first

    def wake(self) -> str:
        """A process that stood still goes on."""
        for process in self.processes:
            if process.paused:
                process.paused = False
                return f"{process.name} wakes"
        return NOTHING

    def wait(self, seconds: float) -> str:
        """Time passes."""
        self.clock.advance(seconds=seconds)
        return f"{seconds:.0f} s pass"

    def save(self) -> str:
        """A request changes a record and saves it."""
        record, tenant = self.rng.choice(self.records)
        if record in self.deleted:
            return NOTHING
        name = f"n{self.rng.randrange(1_000)}"
        if self.has_bosses and self.rng.random() < PROMOTED:
            others = [one for one, of in self.records if of == tenant and one != record and one in self.names]
            self.bosses[record] = self.rng.choice(others) if others else None
        return self.save_as(record, tenant, name)

    def save_as(self, record: str, tenant: str, name: str) -> str:
        """The host's transaction. A boss who cannot be referred to is taken back, and the rest saved without him."""
        boss = self.bosses.get(record)
        try:
            with self.engine.begin() as conn:
                if conn.execute(CHANGE, {"of": record, "name": name, "by": boss}).rowcount == 0:
                    conn.execute(PERSON.insert(), {"id": record, "name": name, "boss": boss})
                [outcome] = self.runtime.save(conn, "Person", record, user="u1", tenant=tenant)
                _require_boss(outcome, boss)
        except _TakenBackError:
            self.bosses[record] = None
            return self.save_as(record, tenant, name)
        self.names[record] = name
        self.served[record].add(boss)
        said = outcome.code if isinstance(outcome, Refused) else type(outcome).__name__
        if said in WRITTEN_DOWN:
            self._require_wanted(record, name)
        return f"save {record} {name}{f' under {boss}' if boss else ''}: {said}"

    def _stop_boss(self) -> str:
        """An operator stops the link of somebody whose people are about to be sent."""
        busy = {key for process in self.processes for key in process.busy_with}
        led = {boss for record, boss in sorted(self.bosses.items()) if boss and self.link_key(record) in busy}
        if not led:
            return NOTHING
        return self.operator.decide_about_link(Verb.SUSPEND, self.rng.choice(sorted(led)))

    def _require_wanted(self, record: str, name: str) -> None:
        with self.engine.begin() as conn:
            query = sa.text("SELECT wanted_values FROM pushlink_push_slot WHERE source_record_id = :r")
            values = conn.execute(query, {"r": record}).scalar_one_or_none() or ""
        if f'"{name}"' not in values:
            raise AssertionError(f"{record} was saved as {name}, has to wait, and is not written down")

    def _trouble(self, fault: Fault) -> str:
        said = {
            Fault.KILL: self._kill,
            Fault.PAUSE: self._pause,
            Fault.CLOCK_FORWARD: lambda: self.wait(self.rng.choice(JUMPS_S)),
            Fault.CLOCK_BACK: self._set_back,
            Fault.GONE: self._delete_remotely,
            Fault.CREDENTIAL: self._change_credential,
            Fault.MAPPING: self._change_mapping,
            Fault.SOURCE_DELETED: self._delete,
            Fault.SUSPENDED: lambda: self.operator.decide_about_link(Verb.SUSPEND),
            Fault.RESTORED: self._restore,
            Fault.FOREIGN_LANE: self._strand,
        }[fault]()
        if said == NOTHING:
            self.faults.undo(fault)
        return said

    def _kill(self) -> str:
        process = self.rng.choice(self.processes)
        self.kill(process)
        return f"kill {process.name}"

    def _pause(self) -> str:
        process = self.rng.choice(self.processes)
        process.paused = True
        return f"pause {process.name}"

    def _set_back(self) -> str:
        self.clock.advance(seconds=-self.rng.choice(JUMPS_S))
        return "the clock goes back"

    def _delete_remotely(self) -> str:
        records = self.wire.api.records
        if not records:
            return NOTHING
        gone = self.rng.choice(records)
        self.wire.api.delete(gone.collection, gone.id)
        self.gone.add(str(gone.document["key"]))
        return f"{gone.id} is deleted remotely"

    def _change_credential(self) -> str:
        self.credentials.current = self.rng.choice(("generation-1", "generation-2"))
        return f"credential {self.credentials.current}"

    def _change_mapping(self) -> str:
        self.mapping = 1 - self.mapping
        self._apply()
        return f"mapping {self.mapping}"

    def _apply(self) -> None:
        target = MAPPINGS[self.mapping]
        pack = _pack(target, mirror=self.has_mirror, contract=self.has_contract, bosses=self.has_bosses)
        with self.engine.begin() as conn:
            for tenant in self.tenants:
                apply_pack(
                    conn,
                    pack,
                    tenant=tenant,
                    install_ids=self.ids.fresh,
                    reason="sim",
                    actor="sim",
                    now=self.clock.now(),
                )

    def _delete(self) -> str:
        there = [place for place in self.records if place[0] in self.names and place[0] not in self.deleted]
        if not there:
            return NOTHING
        record, tenant = self.rng.choice(there)
        told = self.rng.random() < 0.5
        with self.engine.begin() as conn:
            conn.execute(PERSON.delete().where(PERSON.c.id == record))
            if told:
                self.runtime.deleted(conn, "Person", record, user="u1", tenant=tenant)
        self.deleted.add(record)
        return f"{record} is deleted{', and pushlink told' if told else ''}"

    def _strand(self) -> str:
        """One row, due or claimed, is of a lane that is not known here; people find it on their list."""
        with self.engine.begin() as conn:
            query = sa.text(
                "SELECT a.id, s.source_record_id FROM pushlink_push_attempt a"
                " JOIN pushlink_push_slot s USING (link_key)"
                " WHERE a.status = 'pending' AND a.hold_code IS NULL AND a.dispatch_lane = 'configured' ORDER BY a.id"
            )
            rows = [(row.id, row.source_record_id) for row in conn.execute(query)]
            if not rows or self.stranded:
                return NOTHING
            chosen, record = self.rng.choice(rows)
            self.stranded[chosen] = record
            conn.execute(
                sa.text("UPDATE pushlink_push_attempt SET dispatch_lane = :lane WHERE id = :id"),
                {"lane": FOREIGN_LANE, "id": chosen},
            )
        return f"{chosen[:16]} is of another lane"

    def _restore(self) -> str:
        """An older copy of the database comes back; every process of before is stopped first, as the runbook says."""
        if self.backup is None or self.rng.random() < 0.5:
            self.backup = self._copy_of(), self.mapping
            self.faults.undo(Fault.RESTORED)  # not yet
            return "a backup is made"
        for process in list(self.processes):
            self.kill(process)
        put_back, self.mapping = self.backup  # the catalogue is of then, too
        put_back()
        self.backup = None
        self.network.forgotten = [*self.network.underway]
        with self.engine.begin() as conn:
            now = self.clock.now()
            deployments.recover(conn, actor="sim", reason="restored", now=now)
            deployments.confirm(conn, self.runtime.world, actor="sim", reason="restored", now=now)
        return "restored and confirmed"

    def waits_for_later(self, record: str) -> bool:
        """Whether somebody that this record referred to waits for a newer release: then it waits as well."""
        above, looked_at = {record}, set[str]()
        while one := min(above - looked_at, default=None):
            looked_at.add(one)
            above |= {boss for boss in self.served[one] if boss is not None}
        return bool((above - {record}) & set(self.stranded.values()))

    # ---------------------------------------------------------------------------------- the end

    def heal(self, rounds: int = 60) -> None:
        """No more faults; everything that stood still goes on, and people settle what waits for them."""
        self.faults.healed = True
        for process in self.processes:
            process.paused = False
        while self.network.underway:
            self.network.deliver(0)
        self.clock.advance(days=3)  # past every lease and pause that a clock which went back has left in the future
        again = 0
        for _ in range(rounds):
            before = len(self.trace)
            self._work_until_idle()
            told = [self.operator.settle(tenant, row) for tenant, row in self.operator.stuck()]
            self.trace += [
                said for said in (*told, self.operator.accept_mapping()) if said != NOTHING and "leaves" not in said
            ]
            self.clock.advance(hours=1)
            if len(self.trace) > before:
                is_free = self.has_bosses and any(said.endswith("to superseded") for said in told)
                again = 0 if is_free else again  # whoever waited for others for so long is saved once more
                continue
            if again == SAVED_AGAIN:
                return
            again += 1
            self._clear()
            self.operator.accept_configuration()
            for record, tenant in self.records:
                if record in self.names and record not in self.deleted:
                    self.trace.append(self.save_as(record, tenant, self.names[record]))
        raise AssertionError("it does not come to rest: " + " | ".join(self.trace[-20:]))

    def _clear(self) -> None:
        """After a restore: look which records have a remote record that the database knows nothing of, and say so.

        Those are for adoption, with a manifest; here nobody saves them any more.
        """
        with self.engine.begin() as conn:
            known = set(conn.execute(sa.text(SAVED)).scalars())
            deployments.clear(conn, actor="op", reason="looked at", now=self.clock.now())
        made = {str(record.document["key"]) for record in self.wire.api.created}  # even if it was deleted there since
        for record, _ in self.records:
            if record not in known and record in made:
                self.deleted.add(record)

    def _work_until_idle(self) -> None:
        for _ in range(2_000):
            busy = [process for process in self.processes if process.weave.alive]
            if busy:
                self.trace.append(busy[0].step(self.rng))
                continue
            said = self.processes[0].claim(8)
            if said == "claimed 0":
                return
            self.trace.append(said)
        raise AssertionError("the work has no end")

    # ---------------------------------------------------------------------------------- looking

    def _seconds(self) -> float:
        return self.clock.now().timestamp()

    def link_key(self, record: str) -> str:
        """The key of a record's slot, empty before its first save."""
        if record not in self._link_keys:  # it never changes
            with self.engine.begin() as conn:
                query = sa.text("SELECT link_key FROM pushlink_push_slot WHERE source_record_id = :r")
                found = conn.execute(query, {"r": record}).scalar_one_or_none()
            if found is None:
                return ""
            self._link_keys[record] = found
        return self._link_keys[record]

    def _owned_ids(self, request: WireRequest) -> list[str]:
        with self.engine.begin() as conn:
            query = sa.text(
                "SELECT remote_id FROM pushlink_remote_link"
                " WHERE status <> 'retired' AND tenant = :t AND source_record_id <> :r ORDER BY 1"
            )
            return list(conn.execute(query, {"r": key_of(request), "t": request.tenant}).scalars())


@cache
def _pack(target: str, *, mirror: bool, contract: bool, bosses: bool) -> Pack:
    text = (PACK + MIRROR if mirror else PACK) + (BOSSES if bosses else "")
    text = text.replace("target: /name}", f"target: {target}}}")
    text = text.replace("path: /people,", f"path: /people, {CONTRACT}," if contract else "path: /people,")
    return load_pack_text(text.replace(ID_RULE, f"{ID_RULE}, candidates: [{{from: $response.body#/existing}}]"))


def key_of(request: WireRequest) -> str:
    """The record that a request is about; its body says so."""
    return str(json.loads(request.body)["key"])
