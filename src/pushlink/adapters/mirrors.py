"""Mirrors: a remote id shown in the host's own row, by compare-and-set.

Rows are locked in key order before they are compared, so nobody changes them in between; one that somebody else holds
is skipped, never waited for. What the database refuses (a constraint, a trigger, a text that does not fit) is undone by
a savepoint and tried again row by row, so that it costs its own row only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.types import NullType

from pushlink.adapters.objects import BoundObject, plain_type
from pushlink.adapters.rows import fetch
from pushlink.ports import MirrorResult, MirrorWrite
from pushlink.store.dialect import is_connection_lost

#: An integer column takes an id whose digits read back the same; 18 digits fit into 64 bits.
_DIGITS: Final = re.compile(r"0|[1-9][0-9]{0,17}")


class _TableHeld(Exception):
    """An outcome that undoes a savepoint: somebody holds the whole table, and the wait for it was cut off."""


class _RowMoved(Exception):
    """An outcome that undoes a savepoint: a row did not take its update although it was compared under a lock."""


@dataclass(frozen=True, slots=True)
class _Change:
    """One row to update: its key as stored, and each field's stored old and new value."""

    key: tuple[object, ...]
    old: tuple[Any, ...]
    new: tuple[Any, ...]

    def parameters(self) -> dict[str, Any]:
        parts = (("key", self.key), ("old", self.old), ("new", self.new))
        return {f"{name}_{index}": value for name, values in parts for index, value in enumerate(values)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """The mirror fields of one object, written for many records at once."""

    bound: BoundObject
    fields: tuple[str, ...]
    columns: tuple[sa.ColumnClause[Any], ...]

    def write(self, conn: Connection, writes: Sequence[MirrorWrite]) -> list[MirrorResult]:
        """One result for each write, in order; all of them name exactly this mirror's fields."""
        keys = {column.name for column in self.bound.key}
        if any(column.name in keys or not _holds_text_or_digits(column) for column in self.columns):
            return [MirrorResult.FAILED] * len(writes)
        return self._write_or_split(conn, writes)

    def _write_or_split(self, conn: Connection, writes: Sequence[MirrorWrite]) -> list[MirrorResult]:
        try:
            with conn.begin_nested():
                return self._compare_and_set(conn, writes)
        except _TableHeld:
            return [MirrorResult.LOCKED] * len(writes)
        except (DBAPIError, _RowMoved) as exc:
            if is_connection_lost(exc):
                raise
            if len(writes) == 1:
                return [_verdict(exc)]
        return [result for write in writes for result in self._write_or_split(conn, [write])]

    def _compare_and_set(self, conn: Connection, writes: Sequence[MirrorWrite]) -> list[MirrorResult]:
        ids = [write.ref.record_id for write in writes]
        try:
            rows = dict(fetch(conn, self.bound, ids, self.columns, lock=True))
        except OperationalError as exc:
            if is_connection_lost(exc):
                raise
            raise _TableHeld from exc
        unseen = [record_id for record_id in ids if record_id not in rows]
        held = fetch(conn, self.bound, unseen, ()) if unseen else {}
        results, changes = [], []
        for write in writes:
            record_id = write.ref.record_id
            if record_id not in rows:
                results.append(MirrorResult.LOCKED if record_id in held else MirrorResult.SOURCE_GONE)
                continue
            if len(rows[record_id]) != 1:
                results.append(MirrorResult.FAILED)
                continue
            row = rows[record_id][0]
            result, new = self._compare(write, row.values)
            results.append(result)
            if new is not None:
                changes.append(_Change(row.key, row.values, new))
                rows[record_id] = [type(row)(row.key, new)]
        if changes:
            done = conn.execute(self._statement(), [change.parameters() for change in changes]).rowcount
            if done not in {len(changes), -1}:  # -1: the driver does not count
                raise _RowMoved
        return results

    def _compare(self, write: MirrorWrite, stored: tuple[Any, ...]) -> tuple[MirrorResult, tuple[Any, ...] | None]:
        """The verdict on one row, and the values to store when there is something to store."""
        new = []
        for field, column, value in zip(self.fields, self.columns, stored, strict=True):
            wanted, shown = write.values[field], _shown(column, value)
            if shown not in {wanted, write.expected.get(field)}:
                return MirrorResult.FOREIGN_VALUE, None
            if wanted is not None and _is_integer(column) and not _DIGITS.fullmatch(wanted):
                return MirrorResult.FAILED, None
            unchanged = shown == wanted
            new.append(value if unchanged else int(wanted) if wanted is not None and _is_integer(column) else wanted)
        changed = tuple(new)
        return MirrorResult.WRITTEN, changed if changed != stored else None

    def _statement(self) -> sa.Update:
        """The update of one row, whose condition is all that was compared; names of parameters are never columns'."""
        same_key = [
            sa.type_coerce(column, NullType()) == sa.bindparam(f"key_{index}", type_=NullType())
            for index, column in enumerate(self.bound.key)
        ]
        same_values = [
            column.is_not_distinct_from(sa.bindparam(f"old_{index}", type_=column.type))
            for index, column in enumerate(self.columns)
        ]
        new = {
            column.name: sa.bindparam(f"new_{index}", type_=column.type) for index, column in enumerate(self.columns)
        }
        return sa.update(self.bound.table).where(*same_key, *same_values).values(new)


def _verdict(exc: Exception) -> MirrorResult:
    match exc:
        case _RowMoved():
            return MirrorResult.FOREIGN_VALUE
        case OperationalError():
            return MirrorResult.LOCKED
        case _:
            return MirrorResult.FAILED


def _holds_text_or_digits(column: sa.ColumnClause[Any]) -> bool:
    return isinstance(plain_type(column.type), sa.String | sa.Integer | NullType)


def _is_integer(column: sa.ColumnClause[Any]) -> bool:
    return isinstance(plain_type(column.type), sa.Integer)


def _shown(column: sa.ColumnClause[Any], stored: object) -> object:
    """What stands in a mirror field, as text to compare with; anything else is foreign and stays as it is."""
    if isinstance(stored, int) and not isinstance(stored, bool):
        return str(stored)
    if isinstance(stored, str) and isinstance(plain_type(column.type), sa.CHAR):
        return stored.rstrip(" ")
    return stored
