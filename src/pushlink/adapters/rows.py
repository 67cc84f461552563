"""Rows of declared objects, found by record id: the one select that reads, checks and locks records.

A row counts as a record's only when its own key, read back, has that record's canonical text: a database that compares
without regard to case or to trailing blanks never makes one row answer for two records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.types import TypeEngine

from pushlink.adapters.objects import BoundObject
from pushlink.errors import CallerError, Code, ConfigurationError
from pushlink.protocol.identity import KeyType
from pushlink.store.dialect import (
    Batch,
    Prepared,
    is_busy,
    is_connection_lost,
    is_lock_not_available,
    is_serialization_failure,
    is_starved,
)

#: Keys in one statement: far below every engine's bound on parameters, composite keys and spellings of UUIDs included.
_KEYS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Row:
    """One row as read: its key as the driver has it, and the values of the selected columns."""

    key: tuple[object, ...]
    values: tuple[Any, ...]


def fetch(
    conn: Connection,
    bound: BoundObject,
    record_ids: Sequence[str],
    columns: Sequence[sa.ColumnElement[Any]],
    *,
    lock: bool = False,
) -> Mapping[str, list[Row]]:
    """The rows of these records by record id.

    With `lock` they are locked in key order, and rows that somebody else has locked are left out instead of waited for
    (where the database locks rows at all).
    """
    found: defaultdict[str, list[Row]] = defaultdict(list)
    ids = sorted(set(record_ids))
    wanted = frozenset(ids)
    keys = len(bound.key)
    selected = [column.label(f"value_{position}") for position, column in enumerate(columns)]
    for start in range(0, len(ids), _KEYS_MAX):
        condition = bound.where_key(ids[start : start + _KEYS_MAX])
        if condition is None:
            continue
        query = sa.select(*bound.select_key(), *selected).select_from(bound.table).where(condition)
        if lock:
            query = query.order_by(*bound.key).with_for_update(key_share=True, skip_locked=True)
        for row in conn.execute(query):
            key = tuple(row[:keys])
            record_id = bound.record_id_of(key)
            if record_id in wanted:
                found[record_id].append(Row(key, tuple(row[keys:])))
    return found


class Presence:
    """Whether rows are there: one statement, built once, where one column of integers or text is the key.

    It runs for every group of sends. Keys of other kinds have several spellings and go through `fetch`.
    """

    def __init__(self, bound: BoundObject) -> None:
        self.bound = bound
        self._read: Prepared | None = None
        column = bound.key[0].type
        plain = _PLAIN_KEYS.get(bound.declaration.key[0].type) if len(bound.key) == 1 else None
        if plain is not None and isinstance(column, plain[0]) and not isinstance(column, sa.Enum):
            self._read = Batch("wanted", {"key": plain[1]}).prepare(self._statement)

    def find(self, conn: Connection, record_ids: Sequence[str]) -> frozenset[str]:
        """The record ids among these that have a row."""
        if self._read is None:
            return self._single(fetch(conn, self.bound, record_ids, ()))
        wanted = {record_id: form for record_id in record_ids for (form,) in self.bound.stored_forms(record_id)}
        found: defaultdict[str, list[Row]] = defaultdict(list)
        for (key,) in self._read(conn, [(form,) for form in wanted.values()]).all() if wanted else ():
            record_id = self.bound.record_id_of((key,))
            if record_id in wanted:
                found[record_id].append(Row((key,), ()))
        return self._single(found)

    def _single(self, found: Mapping[str, list[Row]]) -> frozenset[str]:
        for rows in found.values():
            only_row(self.bound, rows)
        return frozenset(found)

    def _statement(self, wanted: sa.FromClause) -> sa.Executable:
        [key] = self.bound.select_key()
        matches = self.bound.comparable_key().in_(sa.select(wanted.c.key))
        return sa.select(key).select_from(self.bound.table).where(matches)


#: Keys with one spelling: the column types that hold it plainly, and the type that it is compared as.
_PLAIN_KEYS: Final[Mapping[KeyType, tuple[type[TypeEngine[Any]], TypeEngine[Any]]]] = {
    KeyType.INTEGER: (sa.Integer, sa.BigInteger()),
    KeyType.TEXT: (sa.String, sa.Text()),
}


def only_row(bound: BoundObject, rows: Sequence[Row]) -> Row:
    """The one row of a record; raises `ConfigurationError` when the declared key does not tell rows apart."""
    if len(rows) == 1:
        return rows[0]
    raise ConfigurationError(
        f"Object {bound.name} has {len(rows)} rows with one and the same key.",
        evidence={"source_object": bound.name, "key": [column.name for column in bound.key]},
        next_step="declare all columns of the table's primary key",
    )


@contextmanager
def database_errors(source_object: str) -> Iterator[None]:
    """Translate what a driver raises about the records themselves. Its messages quote values: those are not chained.

    A lost connection, a lost race and a full disk are not about them: they pass as they are, to whoever owns the
    transaction and knows whether it may be run again.
    """
    try:
        yield
    except DataError as exc:
        raise CallerError(
            f"A record of {source_object} holds a value that the database's driver cannot hand over.",
            code=Code.VALUE_UNSENDABLE,
            evidence={"source_object": source_object, "error": type(exc.orig).__name__},
            next_step="look for dates out of range in the mapped fields",
        ) from None
    except DBAPIError as exc:
        if any(is_meant(exc) for is_meant in _OF_THE_TRANSACTION):
            raise
        raise ConfigurationError(
            f"The database refused a statement on the records of {source_object}.",
            evidence={"source_object": source_object, "error": type(exc.orig).__name__},
            next_step="compare the object's declaration with the table and its permissions",
        ) from exc


_OF_THE_TRANSACTION: Final = (
    is_connection_lost,
    is_lock_not_available,
    is_serialization_failure,
    is_busy,
    is_starved,
)
