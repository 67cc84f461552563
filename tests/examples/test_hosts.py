"""The hosts that docs/hosts.md shows are these, they run, and the page quotes them word for word."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker

from pushlink import Reserved, Runtime
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.drain import drain, open_runtime
from pushlink.testing.remote import FaultyRemote

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "hosts.md"
REGION = re.compile(r"^ *# region ([\w-]+)\n(.*?)^ *# endregion$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^<!-- region ([\w-]+) -->\n```python\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


def load(path: Path) -> ModuleType:
    """An example as a module of its own name: two of them are called `app`."""
    name = f"example_{path.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def remote() -> Iterator[FaultyRemote]:
    with FaultyRemote(RemoteOptions()) as opened:
        yield opened


@pytest.fixture
def open_host(tmp_path: Path, database_url: str, remote: FaultyRemote) -> Iterator[Callable[[ModuleType], Runtime]]:
    """A function that opens the runtime of an example, over its tables and its pack."""
    opened: list[Runtime] = []

    def open_(module: ModuleType) -> Runtime:
        pack = Path(str(module.__file__)).with_name("people.yaml")
        opened.append(
            open_runtime(
                tmp_path,
                pack=pack,
                base_url=remote.base_url,
                bind={"Person": module.Person},
                metadata=module.Base.metadata,
                database_url=database_url,
            )
        )
        return opened[-1]

    yield open_
    for runtime in opened:
        runtime.close()


def mirrors(runtime: Runtime, person: Any) -> list[Any]:
    with Session(runtime.engine) as session:
        return list(session.scalars(sa.select(person.remote_id).order_by(person.id)))


# ------------------------------------------------------------------------------------------------ FastAPI


def asynchronous(url: str) -> str:
    return re.sub(r"^sqlite(\+\w+)?:", "sqlite+aiosqlite:", url)


@pytest.mark.rule("D-44")
def test_the_fastapi_host_saves_and_pushes_in_one_transaction(
    open_host: Callable[[ModuleType], Runtime], remote: FaultyRemote, database_url: str
) -> None:
    """Its dependencies are overridden as any test of it would; a request that fails leaves no push behind."""
    import httpx
    from sqlalchemy.ext.asyncio import async_sessionmaker

    host = load(EXAMPLES / "fastapi_app" / "app.py")
    runtime = open_host(host)
    seen: list[tuple[int, Any]] = []

    async def scenario() -> None:
        engine = host.open_engine(asynchronous(database_url))
        sessions = async_sessionmaker(engine, expire_on_commit=False)

        async def get_db() -> AsyncIterator[Any]:
            async with sessions() as session:
                yield session

        host.app.dependency_overrides = {
            host.get_db: get_db,
            host.get_pushlink: lambda: runtime,
            host.current_user: lambda: "ann",
        }
        transport = httpx.ASGITransport(app=host.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://host") as client:
            for body in [{"email": "a@example.org", "name": "Ada"}, {"email": "a@example.org", "name": "Eve"}]:
                answer = await client.post("/people", json=body)
                seen.append((answer.status_code, answer.json()))
            await asyncio.to_thread(drain, runtime)
            answer = await client.patch("/people/1", params={"name": "Ada L."})
            seen.append((answer.status_code, answer.json()))
            await asyncio.to_thread(drain, runtime)
        await engine.dispose()

    asyncio.run(scenario())
    assert seen == [
        (201, {"id": 1, "push": ["reserved"]}),
        (409, {"detail": "This address is taken."}),
        (200, {"id": 1, "push": ["queued"]}),
    ]
    assert [record.document for record in remote.records] == [
        {"email": "a@example.org", "full_name": "Ada L.", "id": 1}
    ]
    assert remote.creates == 1
    assert mirrors(runtime, host.Person) == ["1"]


def test_the_fastapi_host_opens_and_closes_by_itself(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its own dependencies, in its own lifespan, from settings alone."""
    host = load(EXAMPLES / "fastapi_app" / "app.py")
    runtime = open_runtime(
        tmp_path,
        pack=EXAMPLES / "fastapi_app" / "people.yaml",
        bind={"Person": host.Person},
        metadata=host.Base.metadata,
        database_url=sqlite_url,
    )
    runtime.close()
    settings = f'database_url = "{sqlite_url}"\nsecret_file = "secret"\nauthority = {{kind = "allow_all"}}\n'
    (tmp_path / "pushlink.toml").write_text(settings, encoding="utf-8")
    monkeypatch.setenv("PUSHLINK_CONFIG", str(tmp_path / "pushlink.toml"))
    monkeypatch.setenv("APP_DATABASE_URL", asynchronous(sqlite_url))

    async def scenario() -> None:
        import httpx

        transport = httpx.ASGITransport(app=host.app)
        async with (
            host.lifespan(host.app),
            httpx.AsyncClient(transport=transport, base_url="http://host", headers={"X-User": "ann"}) as client,
        ):
            answer = await client.post("/people", json={"email": "a@example.org", "name": "Ada"})
            assert (answer.status_code, answer.json()["push"]) == (201, ["reserved"])

    asyncio.run(scenario())


# ------------------------------------------------------------------------------------------------ Flask


@pytest.mark.rule("D-44")
@pytest.mark.parametrize("make", ["create_app", "create_hooked_app"])
def test_the_flask_host_saves_and_pushes_in_one_transaction(
    open_host: Callable[[ModuleType], Runtime], remote: FaultyRemote, make: str
) -> None:
    """By a call, and by the hook; a request that fails leaves no push behind."""
    host = load(EXAMPLES / "flask_app" / "app.py")
    runtime = open_host(host)
    app = getattr(host, make)(runtime, sessionmaker(runtime.engine))
    client = app.test_client()
    headers = {"X-User": "ann"}
    assert client.post("/people", json={"email": "a@example.org", "name": "Ada"}).status_code == 401
    answer = client.post("/people", json={"email": "a@example.org", "name": "Ada"}, headers=headers)
    assert (answer.status_code, answer.json["id"]) == (201, 1)
    assert client.post("/people", json={"email": "a@example.org", "name": "Eve"}, headers=headers).status_code == 500
    drain(runtime)
    assert [record.document for record in remote.records] == [{"email": "a@example.org", "full_name": "Ada", "id": 1}]
    assert mirrors(runtime, host.Person) == ["1"]


def test_the_flask_host_tells_of_a_delete(open_host: Callable[[ModuleType], Runtime], remote: FaultyRemote) -> None:
    """What was never sent ends with it, and nothing is deleted remotely."""
    host = load(EXAMPLES / "flask_app" / "app.py")
    runtime = open_host(host)
    client = host.create_app(runtime, sessionmaker(runtime.engine)).test_client()
    for name in ("Ada", "Eve"):
        client.post("/people", json={"email": f"{name}@example.org", "name": name}, headers={"X-User": "ann"})
    assert client.delete("/people/1", headers={"X-User": "ann"}).status_code == 204
    drain(runtime)
    assert [record.document["full_name"] for record in remote.records] == ["Eve"]


# ------------------------------------------------------------------------------------------------ scripts


def said_by(tmp_path: Path, script: str, *words: str) -> list[str]:
    """What a script prints, run as a process of its own; it reaches nothing that the caller's environment names."""
    environment = {**os.environ, "PUSHLINK_DATABASE_URL": f"sqlite:///{tmp_path / 'somebody.db'}"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / script), *words],
        capture_output=True,
        encoding="utf-8",
        env=environment,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "somebody.db").exists()
    return done.stdout.splitlines()


def test_the_bulk_import_runs_as_it_is_shown(tmp_path: Path) -> None:
    """A chunk a transaction, and each record once at the remote."""
    said = said_by(tmp_path, "bulk_import.py", "--rows", "250", "--chunk", "100")
    assert said[:2] == ["250 Reserved", "the remote holds 250 records after 250 creates"]


@pytest.mark.rule("D-45")
def test_the_scan_finds_what_a_crash_between_two_databases_lost(tmp_path: Path) -> None:
    """Once, and nothing of what was not lost."""
    assert said_by(tmp_path, "separate_database.py") == [
        "after a crash the remote holds 3 of 4",
        "the scan finds 1, and then 0",
        "now the remote holds 4 of 4, after 4 creates",
    ]


def test_a_host_without_the_orm_saves_on_its_connection(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its own transaction, which a rollback ends whole."""
    monkeypatch.syspath_prepend(EXAMPLES)
    host = load(EXAMPLES / "separate_database.py")
    from quickstart import PACK

    pack = PACK.replace("REMOTE", "http://127.0.0.1:9")
    runtime = open_runtime(tmp_path, pack=pack, metadata=host.METADATA, objects=host.OBJECTS, database_url=database_url)
    with runtime.engine.connect() as conn:
        [outcome] = host.add_and_save(runtime, conn, "Ada")
        conn.rollback()
        assert isinstance(outcome, Reserved)
        [outcome] = host.add_and_save(runtime, conn, "Grace")
        conn.commit()
        assert conn.exec_driver_sql("SELECT count(*) FROM pushlink_push_attempt").scalar_one() == 1
    runtime.close()


# ------------------------------------------------------------------------------------------------ the page


def regions() -> dict[str, str]:
    """The marked regions of the examples, without their indentation."""
    found: dict[str, str] = {}
    for path in sorted(EXAMPLES.rglob("*.py")):
        for name, body in re.findall(
            r"^ *# region ([\w-]+)\n(.*?)^ *# endregion$", path.read_text(), re.MULTILINE | re.DOTALL
        ):
            lines = body.rstrip("\n").split("\n")
            indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
            found[name] = "\n".join(line[indent:] for line in lines).strip("\n")
    return found


def test_the_page_quotes_the_examples() -> None:
    """Every block of Python on the page is a region of a tested example, and names it."""
    blocks = re.findall(
        r"^<!-- region ([\w-]+) -->\n```python\n(.*?)\n```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(blocks) == PAGE.read_text().count("```python")
    known = regions()
    for name, text in blocks:
        assert text == known[name], name
    assert {"begin-immediate", "fastapi", "flask", "hook", "bulk"} <= {name for name, _ in blocks}
