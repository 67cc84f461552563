"""All records of an object, a batch at a time in key order: what `save --all` walks through.

A batch is cut by key and never by offset, so that rows which come and go in between cost nothing; rows whose key is no
id of the declared type are counted and left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from pushlink.adapters.objects import BoundObject
from pushlink.adapters.records import SqlRecordStore
from pushlink.adapters.rows import database_errors
from pushlink.ports import RecordRef


@dataclass(frozen=True, slots=True)
class Batch:
    """Some records, how many rows had no usable key, and the key to go on after; `None` at the end."""

    refs: tuple[RecordRef, ...]
    skipped: int
    last_key: tuple[object, ...] | None


def count_records(records: SqlRecordStore, conn: Connection, source_object: str) -> int:
    """How many rows the object's table has."""
    bound = _bound(records, conn, source_object)
    with database_errors(source_object):
        return int(conn.execute(sa.select(sa.func.count()).select_from(bound.table)).scalar_one())


def list_records(
    records: SqlRecordStore, conn: Connection, source_object: str, *, after: tuple[object, ...] | None, limit: int
) -> Batch:
    """The next records in key order."""
    bound = _bound(records, conn, source_object)
    key = bound.select_key()
    statement = sa.select(*key).select_from(bound.table).order_by(*bound.key).limit(limit)
    if after is not None:
        statement = statement.where(_is_after(bound, after))
    with database_errors(source_object):
        rows = [tuple(row) for row in conn.execute(statement)]
    found = [bound.record_id_of(row) for row in rows]
    return Batch(
        refs=tuple(RecordRef(source_object=source_object, record_id=i) for i in found if i is not None),
        skipped=found.count(None),
        last_key=rows[-1] if len(rows) == limit else None,
    )


def _is_after(bound: BoundObject, key: tuple[object, ...]) -> sa.ColumnElement[bool]:
    values = [sa.literal(value, type_=sa.types.NullType()) for value in key]
    if len(values) == 1:
        return bound.key[0] > values[0]
    return sa.tuple_(*bound.key) > sa.tuple_(*values)


def _bound(records: SqlRecordStore, conn: Connection, source_object: str) -> BoundObject:
    return records._object(conn, source_object)  # noqa: SLF001 - the same room
