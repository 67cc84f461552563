"""Definitions that differ between the engines: counted keys, partial indexes, append-only triggers, a schema lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from pushlink.store.columns import UtcTime


def serial_column() -> sa.Column[int]:
    """The `id` of a table that counts: a 64-bit primary key. SQLite does that for INTEGER keys only."""
    wide = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column("id", wide, primary_key=True, autoincrement=True)


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


# ------------------------------------------------------------------------------------------------ append-only tables

REFUSE_FUNCTION: Final = """
CREATE OR REPLACE FUNCTION pushlink_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'restrict_violation',
        MESSAGE = TG_TABLE_NAME || ' is append-only: ' || TG_OP || ' is refused.';
END
$$
"""
_REFUSE_ROWS: Final = """
CREATE TRIGGER %(table)s_keeps_rows BEFORE UPDATE OR DELETE ON %(table)s
FOR EACH ROW EXECUTE FUNCTION pushlink_refuse_change()
"""
_REFUSE_TRUNCATE: Final = """
CREATE TRIGGER %(table)s_keeps_all BEFORE TRUNCATE ON %(table)s
FOR EACH STATEMENT EXECUTE FUNCTION pushlink_refuse_change()
"""
_REFUSE_UPDATE: Final = """
CREATE TRIGGER %(table)s_keeps_values BEFORE UPDATE ON %(table)s
BEGIN SELECT RAISE(ABORT, '%(table)s is append-only: UPDATE is refused.'); END
"""
_REFUSE_DELETE: Final = """
CREATE TRIGGER %(table)s_keeps_rows BEFORE DELETE ON %(table)s
BEGIN SELECT RAISE(ABORT, '%(table)s is append-only: DELETE is refused.'); END
"""
# INSERT OR REPLACE deletes the row in its way, and fires no delete trigger unless the connection asked for recursive
# triggers. So an insert that would meet a row is looked at first: the same row again is left out, as ON CONFLICT DO
# NOTHING would leave it out; another row under its key is refused with the key's name, which `faults.py` reads.
_REFUSE_REPLACE: Final = """
CREATE TRIGGER %(table)s_keeps_keys BEFORE INSERT ON %(table)s
WHEN EXISTS (SELECT 1 FROM %(table)s AS old WHERE %(any_key)s)
BEGIN
    SELECT CASE
        WHEN EXISTS (SELECT 1 FROM %(table)s AS old WHERE %(same_row)s) THEN RAISE(IGNORE)
        %(each_key)s
    END;
END
"""
_REFUSE_KEY: Final = """
        WHEN EXISTS (SELECT 1 FROM %(table)s AS old WHERE %(key)s)
        THEN RAISE(ABORT, '%(table)s is append-only: the row under %(name)s is not replaced.')
"""

_TRIGGERS: Final = {
    "postgresql": {"keeps_rows": _REFUSE_ROWS, "keeps_all": _REFUSE_TRUNCATE},
    "sqlite": {"keeps_values": _REFUSE_UPDATE, "keeps_rows": _REFUSE_DELETE, "keeps_keys": _REFUSE_REPLACE},
}


def append_only_ddl(conn: sa.Connection, table: sa.Table) -> list[sa.DDL]:
    """What makes the database itself refuse every change of `table` but an insert.

    On PostgreSQL UPDATE, DELETE and TRUNCATE; on SQLite UPDATE, DELETE, and an INSERT that would replace a row.
    """
    return strict_ddl(conn, table, strict_kinds(conn.dialect.name))


def strict_kinds(dialect: str) -> list[str]:
    """The triggers of a table whose rows neither change nor leave."""
    return list(_TRIGGERS[dialect])


def strict_ddl(conn: sa.Connection, table: sa.Table, kinds: Iterable[str]) -> list[sa.DDL]:
    """Some of these triggers."""
    keys = _keys(table)
    each_key = [_REFUSE_KEY % {"table": table.name, "name": name, "key": key} for name, key in keys.items()]
    names = {
        "table": table.name,
        "any_key": " OR ".join(f"({key})" for key in keys.values()),
        "each_key": "".join(each_key).strip(),
        "same_row": _same_row(table),
    }
    patterns = [_TRIGGERS[conn.dialect.name][kind] for kind in kinds]
    if conn.dialect.name == "postgresql":
        patterns.insert(0, REFUSE_FUNCTION)
    return [definition(pattern, names) for pattern in patterns]


def definition(pattern: str, names: Mapping[str, str]) -> sa.DDL:
    """One definition with its names filled in."""
    return sa.DDL(pattern.strip(), context=names)  # type: ignore[no-untyped-call]


def _keys(table: sa.Table) -> dict[str, str]:
    """For each primary and unique key the condition under which `old` stands in the way of NEW."""
    uniques = {str(c.name): c for c in table.constraints if isinstance(c, sa.UniqueConstraint)}
    keys = {f"{table.name}_pkey": table.primary_key} | dict(sorted(uniques.items()))
    return {
        name: " AND ".join(f"old.{column.name} = NEW.{column.name}" for column in key.columns)
        for name, key in keys.items()
    }


def _same_row(table: sa.Table) -> str:
    # An instant says when the row was written, not what it says.
    return " AND ".join(
        f"old.{column.name} IS NEW.{column.name}"
        for column in table.columns
        if not isinstance(column.type, sa.DateTime | UtcTime)
    )
