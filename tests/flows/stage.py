"""A whole deployment on one database for tests of flows: records, a pack, a remote in memory, and a clock that stands.

`Stage.save` is a host's transaction, `Stage.drain` a worker that runs claimed flows one after another, `Stage.paused`
one claimed flow that a test moves on effect by effect. What the tables hold is read back as plain dictionaries.
"""

from __future__ import annotations

import copy
import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy as sa

from pushlink.adapters.memory import FixedClock
from pushlink.adapters.policy import AllowAllAuthority
from pushlink.bootstrap import Parts, Runtime
from pushlink.errors import ConfigurationError
from pushlink.flows.claim import ClaimOrder, ClaimSteps
from pushlink.flows.claimed import Claimed
from pushlink.flows.dispatch import flow_of
from pushlink.flows.drivers import Database, Failed, run_flow
from pushlink.flows.effects import Send, Tx
from pushlink.flows.outcomes import Outcome
from pushlink.flows.steps import Steps
from pushlink.packs.loader import load_pack_text
from pushlink.ports import Authority, Clock, Secret, Vault, WireReply
from pushlink.settings import AuthoritySettings, Settings
from pushlink.store import catalog
from pushlink.store.catalog import AppliedPack
from pushlink.store.claims import Turn
from pushlink.store.dialect import is_serialization_failure
from pushlink.store.tables import METADATA
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.scripted import ScriptedTransport

SECRET = "a deployment secret for tests, 32 bytes and more"
TOKEN = "canary-bearer-token-7f3a"
USER = "ann"

HOST = sa.MetaData()
PERSON = sa.Table(
    "person",
    HOST,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text),
    sa.Column("email", sa.Text),
    sa.Column("salary", sa.Text),
    sa.Column("born", sa.Date),
    sa.Column("owner", sa.Text),
    sa.Column("remote_id", sa.Text),
    sa.Column("remote_source", sa.Text),
)

#: One object, one action, a mirror; tests change copies of it with `pack_with`.
PACK: Mapping[str, Any] = {
    "pack": "people",
    "version": "1.0.0",
    "connector_owner_key": "owner-1",
    "namespace": "people",
    "profiles": {
        "main": {
            "base_url": "https://api.example.com/v2",
            "credential_ref": "env:PEOPLE_TOKEN",
            "destination_scope": "tenant-42",
        }
    },
    "destinations": [{"destination_slot_id": "dest-1", "target_object": "people", "profile": "main"}],
    "flows": [
        {
            "flow": "Push people",
            "version": 1,
            "actions": [
                {
                    "action": "push_person",
                    "action_slot_id": "act-1",
                    "source_object": "Person",
                    "destination": "dest-1",
                    "create": {"path": "/people", "response": {"id": [{"from": "$response.body#/id"}]}},
                    "update": {"path": "/people/{remote_id}"},
                    "mappings": [
                        {"source": "name", "target": "/name"},
                        {"source": "email", "target": "/email"},
                    ],
                    "mirror": {
                        "remote_id_field": "remote_id",
                        "provenance_field": "remote_source",
                        "provenance_value": "people",
                    },
                }
            ],
        }
    ],
}


def pack_with(change: Callable[[dict[str, Any]], object] | None = None) -> dict[str, Any]:
    """A copy of the pack after `change`, which gets the whole document."""
    document = copy.deepcopy(dict(PACK))
    if change is not None:
        change(document)
    return document


def action_of(document: dict[str, Any]) -> dict[str, Any]:
    """The pack's one action."""
    action: dict[str, Any] = document["flows"][0]["actions"][0]
    return action


def profile_of(document: dict[str, Any]) -> dict[str, Any]:
    """The pack's one profile."""
    profile: dict[str, Any] = document["profiles"]["main"]
    return profile


def without_mirror() -> dict[str, Any]:
    """The pack with no mirror: a result goes straight to finalized."""
    return pack_with(lambda document: action_of(document).pop("mirror"))


class MemoryCredentials:
    """One token for everybody, with a generation that a test can change or take away."""

    def __init__(self) -> None:
        self.value = TOKEN
        self.current: str | None = "generation-1"

    def generation(self, reference: str, *, tenant: str) -> str:
        if self.current is None:
            raise ConfigurationError(f"The credential {reference} is not set.")
        return self.current

    def resolve(self, reference: str, *, tenant: str) -> Secret:
        return Secret(value=self.value, generation=self.generation(reference, tenant=tenant))


@dataclass(slots=True)
class Paused:
    """One claimed flow that moves on only when it is told to. `effect` is what it asks for next."""

    stage: Stage
    claimed: Claimed
    flow: Any = None
    effect: Any = None
    replies: list[WireReply] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.flow = flow_of(self.claimed, self.stage.steps)
        self._advance(None)

    def step(self) -> Any:
        """Run the effect that waits; answers with its result."""
        effect = self.effect
        if isinstance(effect, Send):
            value: Any = self.stage.remote.send_now(effect.request)
            self.replies.append(value)
        else:
            [value] = self.stage.database.commit(effect.step, [effect])
            if isinstance(value, Failed):
                self.flow.close()
                self.effect = None
                raise value.error
        self._advance(value)
        return value

    def to_send(self) -> Paused:
        """Go on until a request is the next effect."""
        while self.effect is not None and not isinstance(self.effect, Send):
            self.step()
        return self

    def finish(self) -> None:
        """Go on to the end."""
        while self.effect is not None:
            self.step()

    def _advance(self, value: Any) -> None:
        try:
            self.effect = self.flow.send(value)
        except StopIteration:
            self.effect = None


#: A pack out of its text; most tests have the same one, and YAML is slow to read.
pack_of = functools.lru_cache(maxsize=100)(load_pack_text)


class Stage:
    """One deployment over one database."""

    def __init__(
        self,
        engine: sa.Engine,
        home: Path,
        *,
        pack: Mapping[str, Any] | None = None,
        remote: ScriptedTransport | None = None,
        authority: Authority | None = None,
        clock: Clock | None = None,
        credentials: Any = None,
        vault: Vault | None = None,
        **worker: Any,
    ) -> None:
        self.engine = engine
        self.fixed = FixedClock()
        self.clock: Clock = clock or self.fixed
        self.credentials: MemoryCredentials = credentials or MemoryCredentials()
        self.remote = remote or ScriptedTransport(RemoteOptions(prefix="/v2"), credentials=self.credentials)
        secret_file = home / "secret"
        secret_file.write_text(SECRET)
        settings = Settings(
            database_url=engine.url.render_as_string(hide_password=False),
            authority=AuthoritySettings(kind="allow_all"),
            secret_file=secret_file,
            worker=worker,
        )
        self.runtime = Runtime(
            settings,
            Parts(
                engine=engine,
                authority=authority or AllowAllAuthority(),
                credentials=self.credentials,
                clock=self.clock,
                transport=lambda: self.remote,
                vault=vault,
            ),
        )
        HOST.create_all(engine)
        self.runtime.bind(PERSON, "Person")
        self.world = self.runtime.world
        self.steps = Steps(self.world)
        self.database = Database(engine=engine, clock=self.clock)
        self.claims = self.worker()
        if pack is not None:
            self.apply(pack)

    # ---------------------------------------------------------------------------------- what people do

    def apply(self, document: Mapping[str, Any], *, tenant: str = "") -> AppliedPack:
        """Install a pack, or a changed one of the same owner."""
        pack = pack_of(json.dumps(document))
        with self.engine.begin() as conn:
            return catalog.apply_pack(
                conn,
                pack,
                tenant=tenant,
                install_ids=self.world.ids.fresh,
                reason="a test",
                actor="tester",
                now=self.clock.now(conn),
            )

    def uninstall(self, *, tenant: str = "") -> None:
        """End the active install."""
        with self.engine.begin() as conn:
            catalog.uninstall_pack(
                conn,
                tenant=tenant,
                connector_owner_key="owner-1",
                reason="a test",
                actor="tester",
                now=self.clock.now(conn),
            )

    def put(self, record_id: int = 1, **values: Any) -> None:
        """Insert or change a person, without a save."""
        with self.engine.begin() as conn:
            self.put_in(conn, record_id, **values)

    def put_in(self, conn: sa.Connection, record_id: int = 1, **values: Any) -> None:
        """The same in a transaction that is open."""
        done = conn.execute(sa.update(PERSON).where(PERSON.c.id == record_id).values(**values)) if values else None
        if done is None or done.rowcount == 0:
            conn.execute(sa.insert(PERSON).values(id=record_id, **values))

    def drop(self, record_id: int = 1) -> None:
        """Delete a person without telling anybody."""
        with self.engine.begin() as conn:
            conn.execute(sa.delete(PERSON).where(PERSON.c.id == record_id))

    def save(self, record_id: int = 1, *, user: str = USER, tenant: str = "", **values: Any) -> Outcome:
        """A host's transaction: write the person (if there are values), save, commit. One action, one outcome."""
        [outcome] = self.save_all(record_id, user=user, tenant=tenant, **values)
        return outcome

    def save_all(self, record_id: int = 1, *, user: str = USER, tenant: str = "", **values: Any) -> list[Outcome]:
        """The same with every outcome."""
        with self.engine.begin() as conn:
            if values:
                self.put_in(conn, record_id, **values)
            return self.runtime.save(conn, "Person", record_id, user=user, tenant=tenant)

    def linked(self, record_id: int = 1, **values: Any) -> dict[str, Any]:
        """A person that is saved and pushed; answers with the link."""
        self.save(record_id, **(values or {"name": f"Person {record_id}", "email": f"p{record_id}@example.com"}))
        self.drain()
        return self.link(record_id)

    def sql(self, statement: str, **parameters: Any) -> None:
        """Change the database behind everybody's back."""
        with self.engine.begin() as conn:
            conn.execute(sa.text(statement), parameters)

    # ---------------------------------------------------------------------------------- what workers do

    def worker(self) -> ClaimSteps:
        """The claims of another worker."""
        return ClaimSteps(self.world, incarnation=self.world.ids.token())

    def claim(self, limit: int = 100, *, by: ClaimSteps | None = None) -> list[Claimed]:
        """Claim what is due, and again where that lost to another worker, as a worker does."""
        claims = by or self.claims
        order = Tx(step=claims.claim, item=ClaimOrder(limit=limit, turn=Turn()), key="")
        while isinstance(found := self.database.commit(claims.claim, [order])[0], Failed):
            if not is_serialization_failure(found.error):
                raise found.error
        return found

    def run(self, claimed: Sequence[Claimed]) -> None:
        """Run claimed flows to their ends, one after another."""
        for item in claimed:
            flow = flow_of(item, self.steps)
            run_flow(flow, self.database, self.remote.send_now, until=time.monotonic() + 5)

    def drain(self, rounds: int = 50) -> int:
        """Claim and run until nothing is due at this moment; answers how many claims there were."""
        count = 0
        for _ in range(rounds):
            claimed = self.claim()
            if not claimed:
                return count
            count += len(claimed)
            self.run(claimed)
        msg = "the stage does not come to rest"
        raise AssertionError(msg)

    def clock_forward(self, **delta: float) -> None:
        """Let every lease end and every pause of a retry pass: an hour, unless it is said otherwise."""
        self.fixed.advance(**(delta or {"hours": 1}))

    def paused(self, *, by: ClaimSteps | None = None) -> Paused:
        """Claim the one row that is due, and hold its flow before its first effect."""
        [claimed] = self.claim(by=by)
        return Paused(self, claimed)

    def paused_of(self, claimed: Claimed) -> Paused:
        """Hold one claimed flow before its first effect."""
        return Paused(self, claimed)

    # ---------------------------------------------------------------------------------- what is there

    def rows(self, table: str, order: str = "1", **equal: Any) -> list[dict[str, Any]]:
        """Rows of one of pushlink's tables (named without prefix)."""
        found = METADATA.tables[f"pushlink_{table}"]
        statement = sa.select(found).where(*(found.c[name] == value for name, value in equal.items()))
        if order != "1":
            statement = statement.order_by(*(found.c[name] for name in order.split(",")))
        with self.engine.begin() as conn:
            return [dict(row) for row in conn.execute(statement).mappings()]

    def attempts(self, **equal: Any) -> list[dict[str, Any]]:
        """Attempts, oldest first."""
        return self.rows("push_attempt", "created_at,id", **equal)

    def attempt(self, **equal: Any) -> dict[str, Any]:
        """The one attempt."""
        [row] = self.attempts(**equal)
        return row

    def link(self, record_id: int = 1) -> dict[str, Any]:
        """The one link of a person."""
        [row] = self.rows("remote_link", source_record_id=str(record_id))
        return row

    def links(self) -> list[dict[str, Any]]:
        """All links."""
        return self.rows("remote_link", "source_record_id")

    def slot(self, record_id: int = 1) -> dict[str, Any]:
        """The push slot of a person."""
        [row] = self.rows("push_slot", source_record_id=str(record_id))
        return row

    def events(self, **equal: Any) -> list[dict[str, Any]]:
        """Events in their order."""
        return self.rows("attempt_event", "id", **equal)

    def person(self, record_id: int = 1) -> dict[str, Any] | None:
        """The local record."""
        with self.engine.begin() as conn:
            row = conn.execute(sa.select(PERSON).where(PERSON.c.id == record_id)).mappings().one_or_none()
        return None if row is None else dict(row)

    def dump(self) -> str:
        """Every value of every table of pushlink, as one text to search."""
        parts: list[str] = []
        with self.engine.begin() as conn:
            for table in METADATA.sorted_tables:
                for row in conn.execute(sa.select(table)):
                    parts += [
                        value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in row
                    ]
        return "\n".join(parts)

    def census(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table of pushlink, to compare before and after."""
        with self.engine.begin() as conn:
            return {
                table.name: sorted((tuple(row) for row in conn.execute(sa.select(table))), key=repr)
                for table in METADATA.sorted_tables
            }

    @property
    def sends(self) -> int:
        """Requests put on the wire."""
        return len(self.remote.sent)


def is_send(effect: object) -> bool:
    """Whether a request is the next effect."""
    return isinstance(effect, Send)


def step_of(effect: object) -> str:
    """The name of the step that a transaction runs."""
    return effect.step.__name__ if isinstance(effect, Tx) else "send"  # type: ignore[attr-defined]


#: The fixture's function: opens a stage with a pack, an authority or a clock of its own.
MakeStage: TypeAlias = Callable[..., Stage]
