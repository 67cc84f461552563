"""Faults of a database's own code that meet what pushlink promises, by its version."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

#: SQLite's "WAL-reset bug" (sqlite.org/wal.html): a checkpoint that starts while another one has just ended and a
#: writer begins the log anew may take pages for copied that are not, and lose transactions that were committed.
_WAL_RESET_FROM: Final = (3, 7, 0)
#: The first release of each branch without it; later branches never had it.
_WAL_RESET_MENDED: Final = ((3, 44, 6), (3, 50, 7), (3, 51, 3))

#: What people are told about it, and what they can do.
LOSSY_FAULT: Final = (
    "SQLite {version} has the WAL-reset bug: in a rare race of two processes it loses what was committed."
)
LOSSY_REMEDY: Final = "run Python with SQLite 3.51.3 or later (or 3.50.7, or 3.44.6), or keep the tables in PostgreSQL"

_SQLITE_VERSION: Final = sa.text("SELECT sqlite_version()")


def lossy_version(conn: sa.Connection) -> str | None:
    """The version of the SQLite library of this process if it may lose committed transactions, else `None`."""
    if conn.dialect.name != "sqlite":
        return None
    version = str(conn.execute(_SQLITE_VERSION).scalar_one())
    return version if has_wal_reset_bug(version) else None


def has_wal_reset_bug(version: str) -> bool:
    """Whether this SQLite release (`3.40.1`) has the bug. A distribution may have mended it under the old number."""
    release = tuple(int(part) for part in version.split(".")[:3])
    is_mended = release >= _WAL_RESET_MENDED[-1] or any(
        release[:2] == mended[:2] and release >= mended for mended in _WAL_RESET_MENDED
    )
    return release >= _WAL_RESET_FROM and not is_mended
