"""Fixtures that hand out databases: SQLite in a file and a real PostgreSQL, migrated or empty, fresh for every test.

    engine               an engine on a migrated database, once for each dialect
    database_url         its address (the same database as `engine` in the same test)
    sqlite_url, pg_url   a migrated database of one dialect
    empty_database_url, empty_sqlite_url, empty_pg_url    the same without migrations
    open_engine          a function from an address to an engine, disposed of when the test ends
    postgres             the shared server: url(database), dsn(database)

A migrated database is a copy of a template that was migrated once: a file copy, or CREATE DATABASE ... TEMPLATE.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from plugins import postgres as postgres_plugin

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Dialect, Engine
    from sqlalchemy.engine import ExceptionContext

DIALECTS = ("sqlite", "postgresql")
TEMPLATE = "pushlink_template"
#: Names the level of every transaction of the suite on PostgreSQL, of hosts and workers alike (`make isolation`).
ISOLATION = "PUSHLINK_TEST_ISOLATION"
LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
#: Said at the end of such a run: how many transactions the server ended in favour of others (SQLSTATE 40001 and 40P01).
REFUSALS = "{} transactions were refused in favour of others"
REFUSED: Counter[str] = Counter()
SHARED = pytest.StashKey[postgres_plugin.SharedServer]()
#: By dialect: the dialect of its first engine, which all share, and the statements that were compiled for it.
COMPILED: dict[str, tuple[Dialect, dict[Any, Any]]] = {}
OpenEngine: TypeAlias = "Callable[[str], Engine]"
NewDatabase: TypeAlias = Callable[[str], str]


# --------------------------------------------------------------------------------------- the run


def pytest_configure(config: pytest.Config) -> None:
    """The first process of the run owns the server's directory; xdist's workers are told where it is."""
    told = getattr(config, "workerinput", {}).get("pushlink_postgres_home")
    home = Path(told) if told else postgres_plugin.new_home()
    config.stash[SHARED] = postgres_plugin.SharedServer(home)
    if not told:
        config.stash[SHARED].hold()
        if place := postgres_plugin.memory():  # SQLite files lie beside it, where an fsync is asked for and is free
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(place))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["pushlink_postgres_home"] = str(node.config.stash[SHARED].home)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and SHARED in config.stash:
        config.stash[SHARED].release()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A run at a level leaves out what is about SQLite alone."""
    if not os.environ.get(ISOLATION):
        return
    left = [item for item in items if _is_of_sqlite(item)]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


def _is_of_sqlite(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return parameters.get("dialect") == "sqlite" or "sqlite_url" in getattr(item, "fixturenames", ())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count what a run at a level of its own met."""
    if os.environ.get(ISOLATION):
        terminalreporter.write_line(REFUSALS.format(REFUSED.total()))


def _count_refusal(context: ExceptionContext) -> None:
    state = getattr(context.original_exception, "sqlstate", None)
    REFUSED.update([state] if state in {"40001", "40P01"} else [])


def migrate(engine: Engine) -> None:
    """Bring an empty database to the newest revision."""
    from pushlink.store.schema import upgrade

    upgrade(engine)


def connect(url: str) -> Engine:
    """An engine as pushlink makes it; on PostgreSQL its transactions run at the level that the run was asked for."""
    from sqlalchemy import event

    from pushlink.store.dialect import create_engine

    level = os.environ.get(ISOLATION)
    engine = create_engine(url, **({"isolation_level": level} if level and url.startswith("postgresql") else {}))
    if level:
        event.listen(engine, "handle_error", _count_refusal)
    # A third of a test's time went into compiling the statements that the test before it had compiled already.
    engine.dialect, statements = COMPILED.setdefault(engine.dialect.name, (engine.dialect, {}))
    engine.update_execution_options(compiled_cache=statements)
    return engine


@pytest.fixture(scope="session", autouse=True)
def _commands_are_like_tests() -> Iterator[None]:
    """A command that runs in this process, as most tests of commands do, makes its engine here, and its parser once."""
    import typer.testing

    from pushlink import bootstrap

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, "create_engine", connect)
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.main.get_command))
        yield


# --------------------------------------------------------------------------------------- PostgreSQL


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> postgres_plugin.Server:
    """The server of the whole run."""
    return pytestconfig.stash[SHARED].ensure_started()


@pytest.fixture(scope="session")
def postgres_admin(postgres: postgres_plugin.Server) -> Iterator[psycopg.Connection[Any]]:
    """One connection of this process that makes and drops databases."""
    import psycopg

    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="session")
def postgres_template(postgres: postgres_plugin.Server, postgres_admin: psycopg.Connection[Any]) -> str:
    """The name of the migrated database that others are copied from; whoever comes first makes it."""
    with postgres_plugin.locked(postgres.home / "template.lock"):
        ready = postgres.home / "template.ready"
        if not ready.exists():
            postgres_admin.execute(f"DROP DATABASE IF EXISTS {TEMPLATE} WITH (FORCE)")
            postgres_admin.execute(f"CREATE DATABASE {TEMPLATE}")
            engine = connect(postgres.url(TEMPLATE))
            try:
                migrate(engine)
            finally:
                engine.dispose()
            ready.touch()
    return TEMPLATE


@pytest.fixture(scope="session")
def _database_names() -> Iterator[str]:
    process = os.environ.get("PYTEST_XDIST_WORKER", "main")
    return (f"test_{process}_{number}" for number in itertools.count(1))


@pytest.fixture
def new_postgres_database(
    postgres: postgres_plugin.Server, postgres_admin: psycopg.Connection[Any], _database_names: Iterator[str]
) -> Iterator[NewDatabase]:
    """A function from a template's name to the address of a fresh copy, dropped when the test ends."""
    made: list[str] = []

    def create(template: str) -> str:
        name = next(_database_names)
        # By files it takes a third of the time: the server is in memory, and what clients cache at first is copied too.
        postgres_admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        made.append(name)
        return postgres.url(name)

    yield create
    for name in made:
        postgres_admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def pg_url(new_postgres_database: NewDatabase, postgres_template: str) -> str:
    """A migrated PostgreSQL database of this test's own."""
    return new_postgres_database(postgres_template)


@pytest.fixture
def empty_pg_url(new_postgres_database: NewDatabase) -> str:
    """A PostgreSQL database with nothing in it."""
    return new_postgres_database("template0")


# --------------------------------------------------------------------------------------- SQLite


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The migrated file that others are copied from."""
    path = tmp_path_factory.mktemp("sqlite") / "template.sqlite"
    engine = connect(f"sqlite:///{path}")
    try:
        migrate(engine)
    finally:
        # The last connection to close moves the write-ahead log into the file, so that the file alone is the database.
        engine.dispose()
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A migrated SQLite database of this test's own."""
    path = tmp_path / "pushlink.sqlite"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture
def empty_sqlite_url(tmp_path: Path) -> str:
    """An address at which there is no SQLite file yet."""
    return f"sqlite:///{tmp_path / 'empty.sqlite'}"


# --------------------------------------------------------------------------------------- both


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    """The dialect of this run of the test."""
    return str(request.param)


@pytest.fixture
def database_url(dialect: str, request: pytest.FixtureRequest) -> str:
    """A migrated database of this test's own, once for each dialect."""
    return str(request.getfixturevalue("sqlite_url" if dialect == "sqlite" else "pg_url"))


@pytest.fixture
def empty_database_url(dialect: str, request: pytest.FixtureRequest) -> str:
    """A database without tables, once for each dialect."""
    return str(request.getfixturevalue("empty_sqlite_url" if dialect == "sqlite" else "empty_pg_url"))


@pytest.fixture
def open_engine() -> Iterator[OpenEngine]:
    """A function that opens engines; the test's end disposes of them."""
    opened: list[Engine] = []

    def open_(url: str) -> Engine:
        opened.append(connect(url))
        return opened[-1]

    yield open_
    for engine in reversed(opened):
        engine.dispose()


@pytest.fixture
def engine(database_url: str, open_engine: OpenEngine) -> Engine:
    """An engine on a migrated database of this test's own, once for each dialect."""
    return open_engine(database_url)
