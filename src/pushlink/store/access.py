"""Transactions for commands: one moment to read, one unit to write, and database trouble in pushlink's own errors.

Flows have their drivers and hosts their own transactions; this is for whoever types a command. A database that is not
at this release's schema is refused before anything is read from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias, TypeVar

import sqlalchemy as sa

from pushlink.errors import Code, ConfigurationError, Contended, Unavailable
from pushlink.store.dialect import is_busy, is_lock_not_available, is_serialization_failure, lift_idle_limit, read_only
from pushlink.store.revision import require_current

#: For rooms that speak no SQL but hand connections on.
Connection: TypeAlias = sa.Connection
Engine: TypeAlias = sa.Engine

T = TypeVar("T")

#: How often a transaction of pushlink's own is begun, as long as it loses to others.
TRIES_MAX: Final = 5


@contextmanager
def reading(engine: sa.Engine, *, check_schema: bool = True) -> Iterator[sa.Connection]:
    """A transaction that sees one moment, waits for no writer, changes nothing, and may last as long as its reader."""
    with translated(), read_only(engine).connect() as conn, conn.begin():
        lift_idle_limit(conn)
        if check_schema:
            require_current(conn)
        yield conn


@contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that commits when the block ends, and leaves nothing when it raises."""
    with translated(), engine.begin() as conn:
        require_current(conn)
        yield conn


def commit(engine: sa.Engine, work: Callable[[sa.Connection], T], *, tries: int = TRIES_MAX) -> T:
    """What `work` answers in a transaction of its own, which is run again when it lost to somebody else's.

    Raises `Contended` when it lost each time.
    """
    for _ in range(tries - 1):
        with suppress(Contended), writing(engine) as conn:
            return work(conn)
    with writing(engine) as conn:
        return work(conn)


def made(make: Callable[[], T]) -> T:
    """What `make` opens of a database address; one that cannot be opened is a `ConfigurationError`."""
    try:
        return make()
    except sa.exc.ArgumentError as exc:
        msg = "The database address of the settings cannot be read."
        raise ConfigurationError(msg, next_step="correct database_url; an address is scheme://...") from exc
    except ImportError as exc:
        raise ConfigurationError(
            f"The driver of the database address is not installed: {exc.name}.",
            evidence={"module": exc.name},
            next_step="install pushlink with the extra of that database",
        ) from exc


@contextmanager
def translated() -> Iterator[None]:
    """Trouble of the database in pushlink's own errors; what nobody expects passes as it is."""
    try:
        yield
    except sa.exc.DBAPIError as exc:
        evidence = {"error": type(exc.orig).__name__}
        if is_serialization_failure(exc) or is_busy(exc) or is_lock_not_available(exc):
            msg = "The database is busy with somebody else's transaction."
            raise Contended(msg, evidence=evidence, next_step="try again") from exc
        if isinstance(exc, sa.exc.OperationalError | sa.exc.InterfaceError) or exc.connection_invalidated:
            msg = f"The database does not answer: {_first_line(exc)}"
            raise Unavailable(msg, evidence=evidence, next_step="pushlink doctor") from exc
        if isinstance(exc, sa.exc.ProgrammingError):
            raise ConfigurationError(
                "The database refused a statement on pushlink's tables.",
                code=Code.SCHEMA_OUTDATED,
                evidence=evidence,
                next_step="pushlink db check",
            ) from exc
        raise


def _first_line(exc: sa.exc.DBAPIError) -> str:
    return str(exc.orig).strip().partition("\n")[0]
