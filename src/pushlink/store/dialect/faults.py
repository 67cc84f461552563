"""What a database error means: the few questions that callers ask, answered from SQLSTATEs and SQLite's error names."""

from __future__ import annotations

import re
import sqlite3
from typing import Final

import sqlalchemy as sa

from pushlink.store.columns import METADATA

#: No connection, a server that stops or starts, and sessions that were ended because they stood still.
_LOST_CLASSES: Final = ("08", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04")
_STARVED_CLASSES: Final = ("53", "58")  # insufficient resources, errors of the system below the server
_STARVED_NAMES: Final = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM")
_KEPT: Final = re.compile(r"is append-only: the row under (?P<key>\w+) is not replaced")


def is_unique_violation(exc: BaseException) -> str | None:
    """The name of the unique constraint that refused a row (`<table>_pkey` for a primary key), else `None`."""
    cause = _cause(exc)
    if isinstance(cause, sqlite3.IntegrityError):
        if match := _KEPT.search(str(cause)):
            return match["key"]
        _, found, columns = str(cause).partition("UNIQUE constraint failed: ")
        return _constraint_on(columns) if found else None
    if _sqlstate(cause) != "23505":
        return None
    for source in (getattr(cause, "diag", None), cause, cause.__cause__):
        if name := getattr(source, "constraint_name", None):
            return str(name)
    return "unknown"


def is_lock_not_available(exc: BaseException) -> bool:
    """Somebody else holds the row: NOWAIT or a lock timeout said so. The statement may be tried again later."""
    return _sqlstate(_cause(exc)) == "55P03"


def is_serialization_failure(exc: BaseException) -> bool:
    """The transaction lost to another one and only a new transaction can win; a deadlock's victim is one of these."""
    cause = _cause(exc)
    return _sqlstate(cause) in {"40001", "40P01"} or _sqlite_name(cause) == "SQLITE_BUSY_SNAPSHOT"


def is_busy(exc: BaseException) -> bool:
    """Another writer held the SQLite file for longer than the busy timeout."""
    return _sqlite_name(_cause(exc)).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def is_starved(exc: BaseException) -> bool:
    """The database had no disk, memory or I/O for it just now; the same transaction may succeed when there is room."""
    cause = _cause(exc)
    return str(_sqlstate(cause)).startswith(_STARVED_CLASSES) or _sqlite_name(cause).startswith(_STARVED_NAMES)


def is_connection_lost(exc: BaseException) -> bool:
    """The connection is gone, or none could be made. What an open COMMIT did is unknown (D-13)."""
    if isinstance(exc, sa.exc.DBAPIError) and exc.connection_invalidated:
        return True
    cause = _cause(exc)
    if isinstance(cause, sqlite3.Error):
        return False
    state = _sqlstate(cause)
    if state is None:
        return isinstance(exc, sa.exc.OperationalError) or type(cause).__name__ == "OperationalError"
    return state.startswith(_LOST_CLASSES)


def _cause(exc: BaseException) -> BaseException:
    original = exc.orig if isinstance(exc, sa.exc.DBAPIError) else None
    return exc if original is None else original


def _sqlstate(cause: BaseException) -> str | None:
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return None if state is None else str(state)


def _sqlite_name(cause: BaseException) -> str:
    return str(getattr(cause, "sqlite_errorname", ""))


def _constraint_on(columns: str) -> str:
    # SQLite names the columns ("table.a, table.b"); the tables know which constraint has them.
    pairs = [column.split(".", 1) for column in columns.split(", ")]
    name, wanted = pairs[0][0], {pair[-1] for pair in pairs}
    table = METADATA.tables.get(name)
    for constraint in table.constraints if table is not None else ():
        if isinstance(constraint, sa.UniqueConstraint) and {column.name for column in constraint.columns} == wanted:
            return str(constraint.name)
    return f"{name}_pkey"
