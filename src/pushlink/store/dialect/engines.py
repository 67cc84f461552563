"""Engines as pushlink opens them, and the settings of a database that its promises rest on."""

from __future__ import annotations

import datetime as dt
import logging
import sqlite3
import time
from typing import Any, Final, NoReturn

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.pool import QueuePool

from pushlink.errors import Code, ConfigurationError, Unavailable
from pushlink.store.columns import UtcTime
from pushlink.store.dialect.faults import is_connection_lost

#: How long a statement waits for another writer of a SQLite file before it gives up.
BUSY_TIMEOUT_MS: Final = 10_000

#: How long a transaction on one of pushlink's own PostgreSQL sessions may stand still. The server ends the session of a
#: process that is stopped in the middle of one, so that nobody waits for its row locks for ever. None of pushlink's
#: transactions waits for anything but the database; reading commands, which may, lift it (`lift_idle_limit`).
IDLE_TIMEOUT_MS: Final = 60_000

#: The mark that `create_engine` leaves on each of its DBAPI connections.
OWN: Final = "pushlink_own"

#: The end of the name of the logger under which statements of these engines are logged.
LOGGING_NAME: Final = "pushlink"

#: Only where nobody set one: for the role, the database, or in the address.
_LIMIT_IDLE: Final = (
    "SELECT set_config('idle_in_transaction_session_timeout', %s, false)"
    " WHERE current_setting('idle_in_transaction_session_timeout') = '0'"
)

_SQLITE_PRAGMAS: Final = (
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA recursive_triggers=ON",  # a row that INSERT OR REPLACE throws away fires its delete trigger
)


class _NoRows(logging.Filter):
    """Statements may be logged, rows never: they hold bodies, replies and values of records (S8)."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno > logging.DEBUG


_NO_ROWS: Final = _NoRows()


def create_engine(url: str | URL, **options: Any) -> sa.Engine:
    """An engine on SQLite or PostgreSQL that never weakens a commit and shows no parameter or row in a log or error.

    SQLite: every transaction begins IMMEDIATE (`read_only` makes an engine whose transactions do not), WAL, FULL.
    PostgreSQL: psycopg 3, READ COMMITTED, no transaction idle for longer than `IDLE_TIMEOUT_MS`. `options` go to
    SQLAlchemy and win over what is set here.
    """
    address = make_url(url)
    settings: dict[str, Any] = {"hide_parameters": True, "echo": False, "logging_name": LOGGING_NAME}
    logging.getLogger(f"sqlalchemy.engine.Engine.{LOGGING_NAME}").addFilter(_NO_ROWS)
    match address.get_backend_name():
        case "sqlite":
            return _sqlite_engine(address, settings | options)
        case "postgresql" | "postgres":
            return _postgresql_engine(address, settings | options)
        case other:
            raise ConfigurationError(
                f"pushlink keeps its tables in SQLite or PostgreSQL, not in {other!r}.",
                code=Code.SETTINGS_INVALID,
                evidence={"database": address.render_as_string(hide_password=True)},
                next_step="set the database address to sqlite:///FILE or postgresql+psycopg://...",
            )


def read_only(engine: sa.Engine) -> sa.Engine:
    """The same engine for readers: its transactions see one moment and wait for no writer."""
    if engine.dialect.name == "sqlite":
        return engine.execution_options(pushlink_read_only=True)
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def lift_idle_limit(conn: sa.Connection) -> None:
    """Let this one transaction stand still for as long as it likes: it holds no row lock that others wait for."""
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")


def _postgresql_engine(address: URL, settings: dict[str, Any]) -> sa.Engine:
    if address.drivername in {"postgres", "postgresql"}:
        address = address.set(drivername="postgresql+psycopg")
    defaults: dict[str, Any] = {
        "isolation_level": "READ COMMITTED",
        "pool_size": 5,
        "max_overflow": 10,
        "pool_use_lifo": True,
        "pool_recycle": 3600,
    }
    merged = defaults | settings
    merged["connect_args"] = {"application_name": "pushlink", "connect_timeout": 10} | dict(
        merged.get("connect_args", {})
    )
    engine = sa.create_engine(address, **merged)

    @event.listens_for(engine, "connect")
    def own(dbapi_connection: Any, record: Any) -> None:
        record.info[OWN] = True
        dbapi_connection.execute(_LIMIT_IDLE, (str(IDLE_TIMEOUT_MS),))
        dbapi_connection.commit()

    @event.listens_for(engine, "handle_error")
    def ended(context: ExceptionContext) -> None:
        # SQLAlchemy looks for lost connections among operational errors only.
        context.is_disconnect |= is_connection_lost(context.original_exception)

    return engine


def _sqlite_engine(address: URL, settings: dict[str, Any]) -> sa.Engine:
    if address.drivername == "sqlite":
        address = address.set(drivername="sqlite+pysqlite")
    in_memory = address.database in {None, "", ":memory:"} or "mode=memory" in str(address)
    defaults: dict[str, Any] = {"poolclass": QueuePool}
    if in_memory:
        # The connection is the database: one, shared by all threads in turn, and never thrown away.
        defaults |= {"pool_size": 1, "max_overflow": 0}
    merged = defaults | settings
    connect_args = {"timeout": BUSY_TIMEOUT_MS / 1000, "check_same_thread": False}
    merged["connect_args"] = connect_args | dict(merged.get("connect_args", {}))
    engine = sa.create_engine(address, **merged)

    @event.listens_for(engine, "connect")
    def own(dbapi_connection: Any, record: Any) -> None:
        record.info[OWN] = True
        dbapi_connection.isolation_level = None  # the driver begins nothing by itself
        if not in_memory:
            _use_write_ahead_log(dbapi_connection)
        for pragma in _SQLITE_PRAGMAS:
            dbapi_connection.execute(pragma)

    @event.listens_for(engine, "begin")
    def begin(conn: sa.Connection) -> None:
        options = conn.get_execution_options()
        if options.get("isolation_level") == "AUTOCOMMIT":
            return
        try:
            conn.exec_driver_sql("BEGIN" if options.get("pushlink_read_only") else "BEGIN IMMEDIATE")
        except sa.exc.DBAPIError:
            conn.close()  # SQLAlchemy would run its next statement without a transaction
            raise

    @event.listens_for(engine, "commit")
    def commit(conn: sa.Connection) -> None:
        # The driver's commit succeeds where nothing is open: a full disk or a failed read may have ended it.
        if not in_memory and _has_lost_transaction(conn):
            raise Unavailable("SQLite ended the transaction by itself after an error; it is not committed.")

    return engine


def _has_lost_transaction(conn: sa.Connection) -> bool:
    driver: Any = conn.connection.driver_connection
    return conn.get_execution_options().get("isolation_level") != "AUTOCOMMIT" and not driver.in_transaction


def _use_write_ahead_log(dbapi_connection: sqlite3.Connection) -> None:
    # The mode is kept in the file. Changing it does not wait for other connections as statements do, so this waits.
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while dbapi_connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            dbapi_connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


# ------------------------------------------------------------------------------------------------ the clock

_NOW: Final = {
    "postgresql": sa.select(sa.type_coerce(sa.func.clock_timestamp(), UtcTime())),
    "sqlite": sa.select(sa.type_coerce(sa.func.strftime("%Y-%m-%d %H:%M:%f000", "now"), UtcTime())),
}
_TIMELINE: Final = sa.text(
    "SELECT (SELECT system_identifier FROM pg_control_system())::text"
    " || ':' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)"
)


def current_time(conn: sa.Connection) -> dt.datetime:
    """The database's clock now, in UTC; on PostgreSQL not the transaction's start. SQLite counts milliseconds."""
    moment: dt.datetime = conn.execute(_NOW[conn.dialect.name]).scalar_one()
    return moment


def timeline(conn: sa.Connection) -> str:
    """Which history of which server this is: it changes when a replica is promoted or another cluster answers.

    The number comes from the write position, not from the control file, which lags behind a promotion until the first
    checkpoint. A SQLite file has no replica that could answer in its place, so its timeline never changes.
    """
    if conn.dialect.name == "sqlite":
        return "file"
    return str(conn.execute(_TIMELINE).scalar_one())


# ------------------------------------------------------------------------------------------------ durability

_SETTINGS: Final = sa.text(
    "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')"
    " ORDER BY name"
)
_SYNCHRONOUS: Final = {0: "off", 1: "normal", 2: "full", 3: "extra"}


def check_durability(conn: sa.Connection, *, allow_memory: bool = False) -> None:
    """Refuse a database whose settings let a crash take back what it said was committed (D-36).

    `allow_memory` is for tests: a database in memory has no crash to survive. Raises `ConfigurationError`.
    """
    if conn.dialect.name == "postgresql":
        for name, setting in conn.execute(_SETTINGS):
            if setting == "off":
                _refuse(name, setting, "on", "set it in postgresql.conf or for the role, and reload the server")
        return
    mode = str(conn.exec_driver_sql("PRAGMA journal_mode").scalar_one())
    if mode == "memory" and allow_memory:
        return
    if mode != "wal":
        _refuse("journal_mode", mode, "wal", "use a database file, opened by pushlink.store.dialect.create_engine")
    level = _SYNCHRONOUS[int(conn.exec_driver_sql("PRAGMA synchronous").scalar_one())]
    if level not in {"full", "extra"}:
        _refuse("synchronous", level, "full", "set PRAGMA synchronous=FULL on every connection")


def _refuse(setting: str, value: str, wanted: str, next_step: str) -> NoReturn:
    raise ConfigurationError(
        f"The database would lose committed work in a crash: {setting} is {value}, pushlink needs {wanted}.",
        code=Code.DURABILITY_WEAKENED,
        evidence={"setting": setting, "value": value, "wanted": wanted},
        next_step=next_step,
    )


def writers_at_once(engine: sa.Engine, wanted: int) -> int:
    """How many threads may write at the same time: one where the engine has a single writer anyway."""
    return 1 if engine.dialect.name == "sqlite" else wanted
