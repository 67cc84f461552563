"""Scans: an object's rows a batch at a time, in the order of their keys or of a column that tells when they changed.

A batch is cut by value and never by offset, so rows that come and go in between cost nothing. The *place* of a row is a
text that says where to go on after it; a *window* is a text that says which rows a scan is about. Both are kept in a
checkpoint and read by this module alone. Values stand in them as the driver has them, so that the database compares
what it stored with what it stored.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Connection
from sqlalchemy.types import NullType

from pushlink.adapters.objects import BoundObject, plain_type
from pushlink.adapters.rows import database_errors
from pushlink.errors import CallerError, ConfigurationError
from pushlink.ports import RecordRef, ScannedRow, ScanSize
from pushlink.protocol.contracts import DurationMs
from pushlink.store.dialect import are_moments, are_plain, as_moment, has_typed_times, moment_text, teach_moments

_DURATION: Final[TypeAdapter[int]] = TypeAdapter(DurationMs)


def open_window(
    conn: Connection, bound: BoundObject, *, updated: str | None, since: str, now: dt.datetime
) -> tuple[str, str]:
    """The column and the window of the rows that changed at `since` or later, up to the newest change of this moment.

    `since` is a moment or a duration before `now` for a column of times, a number for one of counts, else a text.
    Without the upper end a table that is written to all the time would never be walked through.
    """
    name = updated or bound.declaration.updated
    if name is None:
        raise CallerError(
            f"Nothing says which column of {bound.name} tells when a record changed.",
            evidence={"source_object": bound.name},
            next_step="declare `updated` for the object in the settings, or name the column",
        )
    column = _column(bound, name)
    with database_errors(bound.name):
        first = _since(bound, column, since, now)
        form = _form(conn, bound, column, since, now)
        if form is not None:
            first = moment_text(_beginning(first, bound) if isinstance(first, dt.date) else _moment(since, now, bound))
        ordered = column if form is None else as_moment(column, bound.zone)
        newest = sa.select(_as_stored(sa.func.max(ordered))).select_from(bound.table)
        last = conn.execute(newest).scalar_one()
    window = {"column": name, "first": _write(first), "last": None if last is None else _write(last)}
    return name, json.dumps(window if form is None else {**window, "form": form})


#: The form of a window whose column is compared as moments, since the database has no type for times.
_MOMENTS: Final = "moments"


def _form(
    conn: Connection, bound: BoundObject, column: sa.ColumnClause[Any], since: str, now: dt.datetime
) -> str | None:
    """Whether the values have to be read before their order is that of time; `None` when they compare as they are."""
    if has_typed_times(conn):
        return None
    teach_moments(conn)
    match plain_type(column.type):
        case sa.DateTime():
            is_plain = are_plain(conn, bound.table, column, days=False)
        case sa.Date():
            return None if are_plain(conn, bound.table, column, days=True) else _MOMENTS
        case sa.String():  # times as texts, if that is what somebody asks for and what stands there
            is_asked = _is_moment(since, now, bound)
            is_plain = not (is_asked and are_moments(conn, bound.table, column, bound.zone))
        case _:
            return None
    return None if is_plain else _MOMENTS


def _beginning(first: dt.date, bound: BoundObject) -> dt.datetime:
    """The moment that a day or a time without a zone begins at."""
    moment = first if isinstance(first, dt.datetime) else dt.datetime.combine(first, dt.time())
    return moment if moment.tzinfo else moment.replace(tzinfo=bound.zone)


def _is_moment(since: str, now: dt.datetime, bound: BoundObject) -> bool:
    try:
        _moment(since, now, bound)
    except ValueError:
        return False
    return True


def count_rows(conn: Connection, bound: BoundObject, *, window: str | None) -> ScanSize:
    """How many rows a scan will hand out, and how many it cannot: those with no key, or no time of their change."""
    order, condition = _shape(conn, bound, window)
    missing = sa.or_(*(column.is_(None) for column in order))
    count = sa.select(sa.func.count()).select_from(bound.table)
    with database_errors(bound.name):
        rows = conn.execute(count.where(condition, ~missing)).scalar_one()
        unplaced = conn.execute(count.where(missing)).scalar_one()
    return ScanSize(rows=int(rows), unplaced=int(unplaced))


def scan_rows(
    conn: Connection, bound: BoundObject, *, window: str | None, after: str | None, limit: int
) -> list[ScannedRow]:
    """The next rows of a scan, `limit` at most; none when it has come to its end."""
    order, condition = _shape(conn, bound, window)
    keys = len(bound.key)
    places = [_as_stored(column).label(f"place_{position}") for position, column in enumerate(order)]
    statement = sa.select(*bound.select_key(), *places).select_from(bound.table).where(condition)
    statement = statement.where(*(column.is_not(None) for column in order)).order_by(*order).limit(limit)
    if after is not None:
        statement = statement.where(_is_after(order, [_read(item) for item in json.loads(after)]))
    with database_errors(bound.name):
        rows = [tuple(row) for row in conn.execute(statement)]
    return [_scanned(bound, row[:keys], row[keys:]) for row in rows]


def _scanned(bound: BoundObject, key: Sequence[object], place: Sequence[object]) -> ScannedRow:
    try:
        record_id = bound.record_id_of(key)
    except CallerError:  # of the declared type, and still no text that can be an id
        record_id = None
    return ScannedRow(
        ref=None if record_id is None else RecordRef(source_object=bound.name, record_id=record_id),
        place=json.dumps([_write(value) for value in place]),
        shown=", ".join(repr(value) for value in key) if record_id is None else record_id,
    )


def _shape(
    conn: Connection, bound: BoundObject, window: str | None
) -> tuple[list[sa.ColumnElement[Any]], sa.ColumnElement[bool]]:
    """What rows are ordered by, and which of them there are."""
    if window is None:
        return list(bound.key), sa.true()
    document = json.loads(window)
    column: sa.ColumnElement[Any] = _column(bound, document["column"])
    if document.get("form") == _MOMENTS:
        teach_moments(conn)
        column = as_moment(column, bound.zone)
    condition = column >= sa.literal(_read(document["first"]), column.type)
    if document["last"] is not None:
        condition = sa.and_(condition, _as_stored(column) <= sa.literal(_read(document["last"]), NullType()))
    return [column, *bound.key], condition


def _is_after(order: Sequence[sa.ColumnElement[Any]], place: Sequence[object]) -> sa.ColumnElement[bool]:
    # Neither side has a type here, else a value of the driver would be written as one of the host's.
    columns = [_as_stored(column) for column in order]
    values = [sa.literal(value, NullType()) for value in place]
    if len(values) == 1:
        return columns[0] > values[0]
    return sa.tuple_(*columns) > sa.tuple_(*values)


def _column(bound: BoundObject, name: str) -> sa.ColumnClause[Any]:
    found = bound.table.c.get(name)
    if found is None:
        raise CallerError(
            f"The table of {bound.name} has no column {name!r}.",
            evidence={"source_object": bound.name, "column": name},
            next_step="name the column as the database has it",
        )
    return found


def _as_stored(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    return sa.type_coerce(column, NullType())


def _since(bound: BoundObject, column: sa.ColumnClause[Any], text: str, now: dt.datetime) -> object:
    """What somebody typed, as a value that the column can be compared with."""
    kind = plain_type(column.type)
    try:
        match kind:
            case sa.DateTime():
                moment = _moment(text, now, bound).astimezone(bound.zone)
                return moment if kind.timezone else moment.replace(tzinfo=None)
            case sa.Date():
                return _moment(text, now, bound).astimezone(bound.zone).date()
            case sa.Integer():
                return int(text)
            case sa.String():
                return text
    except ValueError as exc:
        raise CallerError(
            f"{text!r} is nothing that column {column.name} of {bound.name} can be compared with.",
            evidence={"column": column.name, "type": type(kind).__name__},
            next_step="write a moment (2024-05-01T00:00:00Z) or a duration (2h) for times, a number for counts",
        ) from exc
    raise ConfigurationError(
        f"A {type(kind).__name__} column cannot tell when a record of {bound.name} changed.",
        evidence={"column": column.name},
        next_step="name a column of times, whole numbers or texts that only grow",
    )


def _moment(text: str, now: dt.datetime, bound: BoundObject) -> dt.datetime:
    try:
        return now - dt.timedelta(milliseconds=_DURATION.validate_python(text))
    except ValidationError:
        moment = dt.datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=bound.zone)


# ------------------------------------------------------------------------------------------------ values as text

_WRITERS: Final[tuple[tuple[type[Any], str, Callable[[Any], str]], ...]] = (
    (int, "integer", str),
    (str, "text", str),
    (uuid.UUID, "uuid", str),
    (Decimal, "decimal", str),
    (float, "float", float.hex),
    (dt.datetime, "moment", dt.datetime.isoformat),
    (dt.date, "day", dt.date.isoformat),
    (bytes, "bytes", bytes.hex),
)
_READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "integer": int,
    "text": str,
    "uuid": uuid.UUID,
    "decimal": Decimal,
    "float": float.fromhex,
    "moment": dt.datetime.fromisoformat,
    "day": dt.date.fromisoformat,
    "bytes": bytes.fromhex,
}


def _write(value: object) -> list[str]:
    for kind, name, write in _WRITERS:
        if isinstance(value, kind):
            return [name, write(value)]
    raise ConfigurationError(
        f"A scan cannot go on after a value of type {type(value).__name__}.",
        next_step="declare a key of whole numbers, texts or UUIDs",
    )


def _read(written: Sequence[str]) -> object:
    name, text = written
    return _READERS[name](text)
