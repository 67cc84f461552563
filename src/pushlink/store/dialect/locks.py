"""Locks that belong to no row: one word each for the schema, the catalogue and the audit chain.

They last until the transaction ends, wait in the order they were asked for, and write nothing. SQLite has one writer
at a time anyhow, from the moment its transaction begins.
"""

from __future__ import annotations

from enum import IntEnum

import sqlalchemy as sa


class Lock(IntEnum):
    """What is locked; the numbers only have to be the same in every process. Taken in this order."""

    SCHEMA = 0x70757368_6C696E01
    CATALOG = 0x70757368_6C696E02
    AUDIT = 0x70757368_6C696E03


def take_lock(conn: sa.Connection, lock: Lock, *, shared: bool = False) -> None:
    """Wait until nobody else holds `lock`; shared holders bear each other. Read what it guards in a later statement."""
    if conn.dialect.name == "postgresql":
        take = sa.func.pg_advisory_xact_lock_shared if shared else sa.func.pg_advisory_xact_lock
        conn.execute(sa.select(take(lock.value)))
