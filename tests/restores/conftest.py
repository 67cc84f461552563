"""Deployments that are copied, put back and confirmed: real files, real databases, and a remote that counts."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from flows.stage import HOST, PACK, PERSON, SECRET, MemoryCredentials, Stage
from plugins.databases import NewDatabase, OpenEngine
from pushlink.adapters.policy import AllowAllAuthority
from pushlink.bootstrap import Parts, Runtime
from pushlink.flows.outcomes import Outcome
from pushlink.operations import deployments
from pushlink.operations.deployments import Confirmed
from pushlink.packs.loader import load_pack_text
from pushlink.settings import AuthoritySettings, Settings
from pushlink.store.catalog import apply_pack, read_deployment
from pushlink.store.tables import METADATA
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.scripted import ScriptedTransport

CopyDatabase: TypeAlias = Callable[[sa.Engine], str]


@pytest.fixture
def copy_database(tmp_path: Path, request: pytest.FixtureRequest) -> CopyDatabase:
    """A function that copies a whole database, as a backup or a clone does, and answers with the copy's address."""
    count = 0

    def copy(engine: sa.Engine) -> str:
        nonlocal count
        count += 1
        engine.dispose()
        if engine.dialect.name == "sqlite":
            place = tmp_path / f"copy-{count}.sqlite"
            shutil.copyfile(str(engine.url.database), place)
            return f"sqlite:///{place}"
        new: NewDatabase = request.getfixturevalue("new_postgres_database")
        return new(str(make_url(engine.url).database))

    return copy


@dataclass
class House:
    """One machine: a database, a state directory, a remote. `address` may be changed to another database."""

    engine: sa.Engine
    home: Path
    remote: ScriptedTransport
    state: Path | None
    credentials: MemoryCredentials
    deployment_id: str | None = None
    made: list[Runtime] = field(default_factory=list)

    def runtime(self) -> Runtime:
        """A process of its own on this machine."""
        settings = Settings(
            database_url=self.engine.url.render_as_string(hide_password=False),
            authority=AuthoritySettings(kind="allow_all"),
            secret_file=self.home / "secret",
            state_directory=self.state,
            deployment_id=self.deployment_id,
        )
        parts = Parts(
            engine=self.engine,
            authority=AllowAllAuthority(),
            credentials=self.credentials,
            transport=lambda: self.remote,
        )
        runtime = Runtime(settings, parts)
        runtime.bind(PERSON, "Person")
        self.made.append(runtime)
        return runtime

    def install(self) -> None:
        """The host's table and the pack."""
        HOST.create_all(self.engine)
        runtime = self.runtime()
        with self.engine.begin() as conn:
            apply_pack(
                conn,
                load_pack_text(json.dumps(PACK)),
                tenant="",
                install_ids=runtime.world.ids.fresh,
                reason="a test",
                actor="tester",
                now=runtime.world.clock.now(conn),
            )

    def save(self, record_id: int, name: str = "Ann") -> Outcome:
        """A host's transaction."""
        runtime = self.runtime()
        with self.engine.begin() as conn:
            changed = conn.execute(sa.update(PERSON).where(PERSON.c.id == record_id).values(name=name))
            if changed.rowcount == 0:
                conn.execute(PERSON.insert().values(id=record_id, name=name))
            [outcome] = runtime.save(conn, "Person", record_id, user="ann")
        return outcome

    def work(self) -> int:
        """A worker that starts, works until nothing is due, and ends; answers what it claimed."""
        return asyncio.run(self.runtime().worker().run(until_idle=True)).claimed

    def confirm(self) -> Confirmed:
        """What `pushlink deployment confirm` does."""
        runtime = self.runtime()
        with self.engine.begin() as conn:
            now = runtime.world.clock.now(conn)
            done = deployments.confirm(conn, runtime.world, actor="ann", reason="looked at it", now=now)
        if runtime.state is not None and done.keep is not None:
            runtime.state.keep(done.keep)
        return done

    def clear(self) -> bool:
        """What `pushlink deployment clear` does."""
        runtime = self.runtime()
        with self.engine.begin() as conn:
            return deployments.clear(conn, actor="ann", reason="compared", now=runtime.world.clock.now(conn))

    @property
    def mode(self) -> str:
        """Running or recovery."""
        with self.engine.begin() as conn:
            return read_deployment(conn).mode

    @property
    def posts(self) -> int:
        """Requests that reached the remote."""
        return len(self.remote.sent)

    def rows(self, table: str) -> list[dict[str, object]]:
        """Rows of one of pushlink's tables, in the order of their keys."""
        found = METADATA.tables[f"pushlink_{table}"]
        with self.engine.begin() as conn:
            statement = sa.select(found).order_by(*found.primary_key.columns)
            return [dict(row) for row in conn.execute(statement).mappings()]


@pytest.fixture
def house(engine: sa.Engine, tmp_path: Path) -> Iterator[House]:
    """A machine with a state directory."""
    (tmp_path / "secret").write_text(SECRET)
    credentials = MemoryCredentials()
    remote = ScriptedTransport(RemoteOptions(prefix="/v2"), credentials=credentials)
    one = House(engine, tmp_path, remote, tmp_path / "state", credentials)
    one.install()
    yield one
    for runtime in one.made:
        runtime.close()


@pytest.fixture
def move(open_engine: OpenEngine) -> Callable[[House, str], None]:
    """A function that lets a machine work on another database."""

    def move_to(house: House, url: str) -> None:
        house.engine = open_engine(url)

    return move_to


@pytest.fixture
def stage(engine: sa.Engine, tmp_path: Path) -> Stage:
    """A deployment on a clock that stands."""
    return Stage(engine, tmp_path, pack=PACK)
