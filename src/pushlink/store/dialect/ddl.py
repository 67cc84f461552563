"""Definitions that differ between the engines: counted keys, partial indexes, append-only triggers, a schema lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql


def serial_column(name: str = "id") -> sa.Column[int]:
    """A 64-bit primary key that counts itself up. SQLite does that for INTEGER keys only."""
    wide = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, wide, primary_key=True, autoincrement=True)


def partial_index(name: str, *columns: Any, where: str) -> sa.Index:
    """An index of the rows for which `where` holds, the same on both engines."""
    condition = sa.text(where)
    return sa.Index(name, *columns, postgresql_where=condition, sqlite_where=condition)


class _InsertIgnore(postgresql.Insert):
    """An INSERT whose select always has a WHERE: without one SQLite takes ON CONFLICT for the condition of a join."""

    inherit_cache = True

    def from_select(self, names: Sequence[Any], select: Any, include_defaults: bool = True) -> Self:
        """As in SQLAlchemy."""
        if isinstance(select, sa.Select) and select.whereclause is None:
            select = select.where(sa.text("1 = 1"))
        return super().from_select(names, select, include_defaults)


def insert_ignore(table: sa.Table) -> postgresql.Insert:
    """INSERT ... ON CONFLICT DO NOTHING: a row that any unique key refuses is left out, its neighbours stay.

    Both engines read the clause alike, so one construct serves both; RETURNING names the rows that went in.
    """
    return _InsertIgnore(table).on_conflict_do_nothing()
