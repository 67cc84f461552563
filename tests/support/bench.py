"""A bench for flows: one host table, one pack, one runtime on a clock that stands still, and a wire without sockets.

One bench serves many scenarios on one database: each takes records of its own, named after it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from proof.judge import Judge, judged
from pushlink.adapters.memory import FixedClock
from pushlink.bootstrap import Parts, Runtime
from pushlink.flows.drivers import Database
from pushlink.flows.outcomes import Outcome
from pushlink.flows.steps import Steps
from pushlink.flows.world import Remembered, World
from pushlink.ports import MirrorResult, MirrorWrite, RecordStore
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.drain import OneToken, claims_of, drain_inline, open_runtime
from pushlink.testing.driver import Death, End, run_dying, worker_pass
from pushlink.testing.messages import Asked
from pushlink.testing.scripted import ScriptedTransport

PACK = """
pack: people
version: 1.0.0
connector_owner_key: 0b7f4d1e-2f8e-4b3c-9a11-6f1f0c9d2a01
namespace: people
profiles:
  main:
    base_url: http://127.0.0.1:9
    credential_ref: env:TOKEN
    timeouts: {connect: 1s, total: 10s}
    retry: {attempts: 3, backoff: {base: 1s, cap: 10s}}
destinations:
  - {destination_slot_id: 0b7f4d1e-2f8e-4b3c-9a11-6f1f0c9d2a02, target_object: people, profile: main}
flows:
  - flow: People
    version: 1
    actions:
      - action: push_person
        action_slot_id: 0b7f4d1e-2f8e-4b3c-9a11-6f1f0c9d2a03
        source_object: Person
        destination: 0b7f4d1e-2f8e-4b3c-9a11-6f1f0c9d2a02
        create: {method: POST, path: /people, success: {status: [201]}, response: {id: [{from: $response.body#/id}]}}
        update: {method: PATCH, path: "/people/{remote_id}", success: {status: [200]}}
        mappings:
          - {source: id, target: /key}
          - {source: name, target: /name}
"""

MIRROR = "        mirror: {remote_id_field: remote_id, provenance_field: remote_source, provenance_value: people}\n"

METADATA = sa.MetaData()
PERSON = sa.Table(
    "person",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text),
    sa.Column("remote_id", sa.Text),
    sa.Column("remote_source", sa.Text),
    sa.Column("boss", sa.Text),
)

#: Longer than any lease.
PAST_THE_LEASE_S = 120.0


class FailingMirrors:
    """A record store whose next mirror writes fail, as when the host's table is locked for a moment."""

    def __init__(self, inner: RecordStore) -> None:
        self._inner = inner
        self.failing = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write_mirrors(self, conn: sa.Connection, writes: Sequence[MirrorWrite]) -> list[MirrorResult]:
        if not writes or not self.failing:
            return self._inner.write_mirrors(conn, writes)
        self.failing -= 1
        return [MirrorResult.FAILED] * len(writes)


class Bench:
    """Everything around the flows that a scenario needs."""

    def __init__(self, engine: sa.Engine, directory: Path, *, mirror: bool) -> None:
        self.clock = FixedClock()
        self.credentials = OneToken("token")
        self.wire = ScriptedTransport(RemoteOptions(ids="text"), credentials=self.credentials)
        self.runtime: Runtime = open_runtime(
            directory,
            pack=PACK + MIRROR if mirror else PACK,
            bind={"Person": PERSON},
            metadata=METADATA,
            parts=Parts(engine=engine, clock=self.clock, credentials=self.credentials, transport=lambda: self.wire),
            state_directory=None,  # benches share a database; a new directory on it would be taken for a clone
        )
        self.database = Database(engine=engine, clock=self.clock)
        self.accepted: Remembered[bool] | None = None
        self.mirrors = FailingMirrors(self.runtime.records)
        self.judge = Judge(engine)
        self._engine = engine
        self._sends: Counter[str] = Counter()
        self._numbers = itertools.count(1)

    @property
    def world(self) -> World:
        """The world of a process that has just started: it knows no accepted credentials but those of `accepted`."""
        return replace(self.runtime.world, records=self.mirrors, proven=self.accepted or Remembered(8))

    # ---------------------------------------------------------------------------------- the host

    def save(self, record: str, **values: Any) -> Outcome:
        """Write a record and save it, in one transaction of the host."""
        with self._engine.begin() as conn:
            there = conn.execute(sa.select(PERSON.c.id).where(PERSON.c.id == record)).first()
            if there is None:
                conn.execute(PERSON.insert().values(id=record, **values))
            else:
                conn.execute(PERSON.update().where(PERSON.c.id == record).values(**values))
            [outcome] = self.runtime.save(conn, "Person", record, user="u1")
        return outcome

    def delete(self, record: str) -> None:
        """The host deletes the record and tells nobody."""
        with self._engine.begin() as conn:
            conn.execute(PERSON.delete().where(PERSON.c.id == record))

    def new_record(self, name: str = "Ada") -> str:
        """A record that was just saved, under a name that no other scenario has."""
        record = f"r{next(self._numbers)}"
        self.save(record, name=name)
        return record

    def linked_record(self) -> str:
        """A record that is finalized at the remote, mirror and all."""
        record = self.new_record()
        self.drain()
        return record

    # ---------------------------------------------------------------------------------- workers

    def work(self, death: Death) -> End:
        """One round of a worker of its own, under a death."""
        world = self.world
        return run_dying(worker_pass(claims_of(world), Steps(world)), self.database, self.wire.send_now, death)

    def drain(self) -> int:
        """Let a fresh worker work until nothing waits."""
        return drain_inline(self.world, self.database, self.wire.send_now, advance=self._advance)

    def recover(self) -> None:
        """Wait past the lease of whoever died, and let a fresh worker go on."""
        self.clock.advance(seconds=PAST_THE_LEASE_S)
        self.drain()

    def _advance(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)

    # ---------------------------------------------------------------------------------- what came of it

    def rows(self, record: str, operation: str = "create") -> list[Any]:
        """The attempts of a record, oldest first."""
        query = sa.text(
            "SELECT a.* FROM pushlink_push_attempt a JOIN pushlink_push_slot s ON s.link_key = a.link_key"
            " WHERE s.source_record_id = :record AND a.operation = :operation ORDER BY a.id"
        )
        with self._engine.begin() as conn:
            return list(conn.execute(query, {"record": record, "operation": operation}))

    def statuses(self, record: str, operation: str = "create") -> list[str]:
        """The statuses of a record's attempts, oldest first."""
        return [row.status for row in self.rows(record, operation)]

    def link(self, record: str) -> Any:
        """The link of a record, or `None`."""
        query = sa.text("SELECT * FROM pushlink_remote_link WHERE source_record_id = :record")
        with self._engine.begin() as conn:
            return conn.execute(query, {"record": record}).one_or_none()

    def mirror(self, record: str) -> str | None:
        """What the record's mirror field shows."""
        with self._engine.begin() as conn:
            return conn.execute(sa.select(PERSON.c.remote_id).where(PERSON.c.id == record)).scalar_one_or_none()

    def creates(self, record: str) -> int:
        """How many creates of a record the remote accepted."""
        return self.wire.api.creates_by(_key_of)[record]

    def check(self, story: object, *, settled: bool, record: str | None = None) -> None:
        """Every invariant, by the independent judge: of all records, or of one."""
        creates = self.wire.api.creates_by(lambda made: (_key_of(made), made.id))
        seen = sum(self._sends.values())
        self._sends += Counter(_asked_key(entry.asked) for entry in self.wire.log[seen:])
        judged(
            self.judge.problems(
                creates=Counter(key for key, _ in creates),
                sends=self._sends,
                owners={remote_id: key for key, remote_id in creates},
                settled=settled,
                record=record,
            ),
            story,
        )


def _key_of(record: Any) -> str:
    return str(record.document["key"])


def _asked_key(asked: Asked) -> str:
    return str(asked.json()["key"])
