"""Many rows in one statement: an array of values for each column, bound as parameters, read as a table.

A statement over such a source is the same text for one row and for a thousand, so SQLAlchemy compiles it once and the
database plans it once. PostgreSQL takes one array a column (`unnest`), SQLite one JSON document (`json_each`).
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from pushlink.errors import CallerError

#: The column that says where a row stood in the list, from 1.
ORDINALITY: Final = "ordinality"

_READY: Final = "pushlink_arrays"
_UNHEX: Final = "pushlink_unhex"


def array_rows(
    conn: sa.Connection,
    name: str,
    columns: Mapping[str, sa.types.TypeEngine[Any]],
    rows: Sequence[Sequence[Any] | Mapping[str, Any]],
) -> sa.FromClause:
    """`rows` as a table called `name`, with the given columns and `ordinality` (1, 2, ...) to order by.

    A row is a sequence in the order of `columns`, or a mapping that has them all. Types: text, integers, booleans,
    floats, instants (`UtcTime`) and bytes, each of them nullable. Text with a NUL character is refused, as PostgreSQL
    would refuse it.
    """
    lists: list[list[Any]]
    if not rows:
        lists = [[] for _ in columns]
    elif isinstance(rows[0], Mapping):
        lists = [[cast("Mapping[str, Any]", row)[column] for row in rows] for column in columns]
    else:
        lists = [list(values) for values in zip(*cast("Sequence[Sequence[Any]]", rows), strict=True)]
    _check_width(name, columns, lists)
    values = [_plain(column, kind, items) for (column, kind), items in zip(columns.items(), lists, strict=True)]
    if conn.dialect.name == "sqlite":
        return _json_rows(conn, name, columns, values)
    return _array_rows(conn, name, columns, values)


def _check_width(name: str, columns: Mapping[str, Any], lists: list[list[Any]]) -> None:
    if len(lists) != len(columns):
        msg = f"Rows for {name!r} have {len(lists)} values, but {len(columns)} columns were declared."
        raise CallerError(msg)


def _plain(column: str, kind: sa.types.TypeEngine[Any], items: list[Any]) -> list[Any]:
    """The items without subclasses of str (an enum is the text it stands for), and without what text cannot hold."""
    if not isinstance(kind, sa.String):
        return items
    if not set(map(type, items)) <= {str, type(None)}:
        items = [None if item is None else str(item) for item in items]
    if any(item is not None and "\0" in item for item in items):
        msg = f"A text for column {column!r} has a NUL character; neither database keeps it as text."
        raise CallerError(msg, next_step="store such data as bytes")
    return items


# ------------------------------------------------------------------------------------------------ PostgreSQL


class _Items(list[Any]):
    """A list that its psycopg connection sends in binary; to any other driver it is a list."""

    __slots__ = ()


class _ArrayOf(sa.types.TypeDecorator[list[Any]]):
    """An array of one item type, bound without looking at nested lists."""

    impl = postgresql.ARRAY
    cache_ok = True

    def __init__(self, item_type: sa.types.TypeEngine[Any]) -> None:
        super().__init__(item_type)
        self.item_type = item_type

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], list[Any]]:
        process = self.item_type.dialect_impl(dialect).bind_processor(dialect)
        if process is None:
            return _Items
        return lambda items: _Items(map(process, items))


def _array_rows(
    conn: sa.Connection, name: str, columns: Mapping[str, sa.types.TypeEngine[Any]], values: list[list[Any]]
) -> sa.FromClause:
    if _READY not in conn.info:
        _send_in_binary(conn)
        conn.info[_READY] = True
    arrays = [
        sa.bindparam(f"{name}_{column}", items, type_=_ArrayOf(kind), unique=True)
        for (column, kind), items in zip(columns.items(), values, strict=True)
    ]
    shape = [sa.column(column, kind) for column, kind in columns.items()]
    source = sa.func.unnest(*arrays).table_valued(*shape, with_ordinality=ORDINALITY, name=name)
    return source.render_derived(name=name)


def _send_in_binary(conn: sa.Connection) -> None:
    adapters = getattr(conn.connection.driver_connection, "adapters", None)
    if adapters is None:
        return  # a host's engine on another driver; it sends the arrays in its own way
    from psycopg.types.array import ListBinaryDumper  # noqa: PLC0415 - psycopg is an extra

    adapters.register_dumper(_Items, ListBinaryDumper)


# ------------------------------------------------------------------------------------------------ SQLite


def _json_rows(
    conn: sa.Connection, name: str, columns: Mapping[str, sa.types.TypeEngine[Any]], values: list[list[Any]]
) -> sa.FromClause:
    if _READY not in conn.info:
        # SQLite has its own unhex from 3.41 on; a function of ours serves every version and every host's engine.
        conn.connection.dbapi_connection.create_function(_UNHEX, 1, _unhex, deterministic=True)  # type: ignore[union-attr]
        conn.info[_READY] = True
    encoded = [_json_items(conn.dialect, kind, items) for kind, items in zip(columns.values(), values, strict=True)]
    document = json.dumps(list(zip(*encoded, strict=True)), ensure_ascii=False, separators=(",", ":"))
    each = sa.func.json_each(sa.bindparam(f"{name}_rows", document, type_=sa.Text(), unique=True)).table_valued(
        sa.column("key", sa.Integer()), sa.column("value", sa.Text()), name=f"{name}_each"
    )
    shape = [_json_column(each.c.value, place, column, kind) for place, (column, kind) in enumerate(columns.items())]
    return sa.select(*shape, (each.c.key + 1).label(ORDINALITY)).subquery(name)


def _json_items(dialect: sa.Dialect, kind: sa.types.TypeEngine[Any], items: list[Any]) -> list[Any]:
    if isinstance(kind, sa.LargeBinary):
        return [None if item is None else bytes(item).hex() for item in items]
    process = kind.dialect_impl(dialect).bind_processor(dialect)
    return items if process is None else list(map(process, items))


def _json_column(row: sa.ColumnElement[str], place: int, column: str, kind: sa.types.TypeEngine[Any]) -> sa.Label[Any]:
    path = sa.literal(f"$[{place}]", sa.Text())
    if isinstance(kind, sa.LargeBinary):
        item: sa.ColumnElement[Any] = getattr(sa.func, _UNHEX)(sa.func.json_extract(row, path))
    else:
        item = sa.func.json_extract(row, path)
    return sa.type_coerce(item, kind).label(column)


def _unhex(text: str | None) -> bytes | None:
    return None if text is None else binascii.unhexlify(text)
