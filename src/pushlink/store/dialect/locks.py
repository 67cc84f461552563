"""Locks that belong to no row: one word each for the schema, the catalogue and the audit chain, and whole tables.

They last until the transaction ends, wait in the order they were asked for, and write nothing. SQLite has one writer
at a time anyhow, from the moment its transaction begins.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

import sqlalchemy as sa

from pushlink.store.dialect.ddl import definition


class Lock(IntEnum):
    """What is locked; the numbers only have to be the same in every process. Taken in this order."""

    SCHEMA = 0x70757368_6C696E01
    CATALOG = 0x70757368_6C696E02
    AUDIT = 0x70757368_6C696E03


def take_lock(conn: sa.Connection, lock: Lock, *, shared: bool = False) -> None:
    """Wait until nobody else holds `lock`; shared holders bear each other. Read what it guards in a later statement."""
    if conn.dialect.name == "postgresql":
        conn.execute(_SHARED if shared else _ALONE, {"word": lock.value})


def bound_lock_waits(conn: sa.Connection, wait_ms: int) -> None:
    """Let no lock be waited for longer until this transaction ends; `is_lock_not_available` tells of one that was.

    SQLite has waited for its one writer when the transaction began, as long as the busy timeout of its engine says.
    """
    if conn.dialect.name == "postgresql":
        conn.execute(_WAITS, {"wait": f"{wait_ms}ms"})


def take_tables(conn: sa.Connection, tables: Iterable[str], *, wait_ms: int) -> None:
    """Keep everybody else out of these tables until this transaction ends.

    All of it takes no longer than `wait_ms`, so that whoever came meanwhile waits no longer either;
    `is_lock_not_available` tells when that was not enough. Other locks of this transaction wait as long from then on.
    """
    if conn.dialect.name == "postgresql":
        end = time.monotonic() + wait_ms / 1000
        for table in tables:
            bound_lock_waits(conn, max(1, round((end - time.monotonic()) * 1000)))
            conn.execute(definition("LOCK TABLE %(table)s IN ACCESS EXCLUSIVE MODE", {"table": table}))
        bound_lock_waits(conn, wait_ms)


_WAITS: Final = sa.select(sa.func.set_config("lock_timeout", sa.bindparam("wait", type_=sa.Text()), sa.true()))
_WORD: Final = sa.bindparam("word", type_=sa.BigInteger())
_SHARED: Final = sa.select(sa.func.pg_advisory_xact_lock_shared(_WORD))
_ALONE: Final = sa.select(sa.func.pg_advisory_xact_lock(_WORD))
