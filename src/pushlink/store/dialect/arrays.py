"""Many rows in one statement: one JSON document, bound as a parameter and read as a table.

A statement over such a source is the same text for one row and for a thousand, so SQLAlchemy compiles it once and the
database plans it once. `Batch` also builds it once: statements that run for every push are prepared when their module
is imported. PostgreSQL reads the document with `json_to_recordset`, SQLite with `json_each`. Measured here, one
document costs the worker a third less than an array for each column, since no Python runs for each item.
"""

from __future__ import annotations

import binascii
import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from pushlink.errors import CallerError
from pushlink.store.columns import UtcTime

#: The column that says where a row stood in the list, from 1.
ORDINALITY: Final = "ordinality"

_READY: Final = "pushlink_arrays"
_UNHEX: Final = "pushlink_unhex"
_NUL: Final = "\\u0000"
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Batch:
    """The shape of many rows: a name and typed columns, and `ordinality` (1, 2, ...) to order by.

    Types: text, integers, booleans, instants (`UtcTime`) and bytes, each of them nullable. Text with a NUL character is
    refused, as PostgreSQL would refuse it.
    """

    def __init__(self, name: str, columns: Mapping[str, sa.types.TypeEngine[Any]]) -> None:
        self.name = name
        self.columns = dict(columns)
        self.parameter = f"{name}_rows"
        self._sources: dict[bool, sa.FromClause] = {}
        self._names = (*columns, ORDINALITY)

    def prepare(self, build: Callable[[Any], sa.Executable]) -> Prepared:
        """A statement over this source, built once for each kind of database; `build` gets the source's columns."""
        return Prepared(self, build)

    def source(self, conn: sa.Connection) -> sa.FromClause:
        """The rows as a table; the document is bound at execution."""
        on_sqlite = conn.dialect.name == "sqlite"
        known = self._sources.get(on_sqlite)
        if known is None:
            known = self._sources[on_sqlite] = self.bound(conn, sa.bindparam(self.parameter, type_=sa.Text()))
        return known

    def bound(self, conn: sa.Connection, document: sa.BindParameter[str]) -> sa.FromClause:
        """The rows as a table, read from `document`."""
        return self._json_each(document) if conn.dialect.name == "sqlite" else self._recordset(document)

    def document(self, conn: sa.Connection, rows: Sequence[Sequence[Any]]) -> str:
        """The rows as the JSON text that the source reads."""
        on_sqlite = conn.dialect.name == "sqlite"
        if on_sqlite and _READY not in conn.info:
            # SQLite has its own unhex from 3.41 on; a function of ours serves every version and every host's engine.
            driver = cast("Any", conn.connection.dbapi_connection)
            driver.create_function(_UNHEX, 1, _unhex, deterministic=True)
            conn.info[_READY] = True
        width = len(self.columns)
        wrong = next((len(row) for row in rows if len(row) != width), None)
        if wrong is not None:
            msg = f"Rows for {self.name!r} have {wrong} values, but {width} columns were declared."
            raise CallerError(msg)
        writers = self._writers(on_sqlite=on_sqlite)
        if writers:
            rows = [_written(row, writers) for row in rows]
        if on_sqlite:
            text = _ENCODE(list(rows))
        else:
            named = [dict(zip(self._names, (*row, place), strict=True)) for place, row in enumerate(rows, 1)]
            text = _ENCODE(named)
        if _NUL in text:
            self._refuse_nul(rows)
        return text

    def _refuse_nul(self, rows: Sequence[Sequence[Any]]) -> None:
        found = {
            column
            for row in rows
            for column, item in zip(self.columns, row, strict=True)
            if isinstance(item, str) and "\0" in item
        }
        if found:
            msg = f"A text for column {min(found)!r} has a NUL character; neither database keeps it as text."
            raise CallerError(msg, next_step="store such data as bytes")

    def _writers(self, *, on_sqlite: bool) -> dict[int, Callable[[Any], Any]]:
        """What JSON has no form for, by place in the row."""
        found: dict[int, Callable[[Any], Any]] = {}
        for place, kind in enumerate(self.columns.values()):
            if isinstance(kind, UtcTime):
                found[place] = _sqlite_time if on_sqlite else _iso_time
            elif isinstance(kind, sa.LargeBinary):
                found[place] = _hex if on_sqlite else _bytea
        return found

    def _recordset(self, document: sa.BindParameter[str]) -> sa.FromClause:
        shape = [sa.column(name, kind) for name, kind in self.columns.items()]
        records = sa.func.json_to_recordset(sa.cast(document, postgresql.JSON))
        source = records.table_valued(*shape, sa.column(ORDINALITY, sa.BigInteger()))
        return source.render_derived(name=self.name, with_types=True)

    def _json_each(self, document: sa.BindParameter[str]) -> sa.FromClause:
        each = sa.func.json_each(document).table_valued(
            sa.column("key", sa.Integer()), sa.column("value", sa.Text()), name=f"{self.name}_each"
        )
        shape = [_json_column(each.c.value, i, name, kind) for i, (name, kind) in enumerate(self.columns.items())]
        return sa.select(*shape, (each.c.key + 1).label(ORDINALITY)).subquery(self.name)


class Prepared:
    """One statement over a `Batch`."""

    def __init__(self, batch: Batch, build: Callable[[Any], sa.Executable]) -> None:
        self._batch = batch
        self._build = build
        self._statements: dict[int, sa.Executable] = {}

    def __call__(self, conn: sa.Connection, rows: Sequence[Sequence[Any]], **parameters: Any) -> sa.CursorResult[Any]:
        """Execute for `rows` (sequences in the order of the batch's columns)."""
        source = self._batch.source(conn)
        statement = self._statements.get(id(source))
        if statement is None:
            statement = self._statements[id(source)] = self._build(source)
        document = self._batch.document(conn, rows)
        return cast("sa.CursorResult[Any]", conn.execute(statement, {self._batch.parameter: document, **parameters}))


def array_rows(
    conn: sa.Connection,
    name: str,
    columns: Mapping[str, sa.types.TypeEngine[Any]],
    rows: Sequence[Sequence[Any] | Mapping[str, Any]],
) -> sa.FromClause:
    """`rows` as a table called `name`, for a statement that is built where it runs.

    A row is a sequence in the order of `columns`, or a mapping that has them all.
    """
    batch = Batch(name, columns)
    plain = [[row[column] for column in columns] if isinstance(row, Mapping) else row for row in rows]
    document = batch.document(conn, plain)
    return batch.bound(conn, sa.bindparam(batch.parameter, document, type_=sa.Text(), unique=True))


def _written(row: Sequence[Any], writers: Mapping[int, Callable[[Any], Any]]) -> list[Any]:
    values = list(row)
    for place, write in writers.items():
        if values[place] is not None:
            values[place] = write(values[place])
    return values


def _in_utc(moment: dt.datetime) -> dt.datetime:
    if moment.tzinfo is None:
        msg = "a naive datetime never reaches the database"
        raise ValueError(msg)
    return moment.astimezone(dt.UTC)


def _iso_time(moment: dt.datetime) -> str:
    return _in_utc(moment).isoformat()


def _sqlite_time(moment: dt.datetime) -> str:
    # As SQLAlchemy writes a DateTime there: text order is time order.
    return _in_utc(moment).replace(tzinfo=None).isoformat(" ", "microseconds")


def _hex(data: bytes) -> str:
    return bytes(data).hex()


def _bytea(data: bytes) -> str:
    return "\\x" + bytes(data).hex()


def _json_column(row: sa.ColumnElement[str], place: int, column: str, kind: sa.types.TypeEngine[Any]) -> sa.Label[Any]:
    path = sa.literal(f"$[{place}]", sa.Text())
    if isinstance(kind, sa.LargeBinary):
        item: sa.ColumnElement[Any] = getattr(sa.func, _UNHEX)(sa.func.json_extract(row, path))
    else:
        item = sa.func.json_extract(row, path)
    return sa.type_coerce(item, kind).label(column)


def _unhex(text: str | None) -> bytes | None:
    return None if text is None else binascii.unhexlify(text)
