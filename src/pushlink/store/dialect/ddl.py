"""Definitions that differ between the engines: counted keys, partial indexes, append-only triggers, a schema lock."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa


def serial_column(name: str = "id") -> sa.Column[int]:
    """A 64-bit primary key that counts itself up. SQLite does that for INTEGER keys only."""
    wide = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, wide, primary_key=True, autoincrement=True)


def partial_index(name: str, *columns: Any, where: str) -> sa.Index:
    """An index of the rows for which `where` holds, the same on both engines."""
    condition = sa.text(where)
    return sa.Index(name, *columns, postgresql_where=condition, sqlite_where=condition)
