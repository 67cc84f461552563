"""The local records: read exactly as they are, and shown a remote id back, over the host's own tables.

Every call works on the connection it is given, never on an engine of its own: it may be the host's, in the host's
transaction, and what the host wrote a moment ago is seen. Nothing here commits. Calls are set-oriented: records of one
object that are asked for the same fields are one statement.

Mirrors are shown to people and to older code and decide nothing. They are written last and only where nothing else
stands: a field that holds neither the expected nor the new text is left alone (PO-06), and a row that the host holds is
skipped rather than waited for, so that a slow transaction of the host never stops a worker.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.exc import NoSuchTableError
from sqlalchemy.orm import Mapper

from pushlink.adapters import scanning
from pushlink.adapters.mirrors import Mirror
from pushlink.adapters.objects import (
    BoundObject,
    ObjectDeclaration,
    bind_table,
    declare_table,
    key_types,
    raw,
    record_id_from,
    refuse_protected,
)
from pushlink.adapters.rows import Presence, database_errors, fetch, only_row
from pushlink.adapters.values import convert
from pushlink.errors import CallerError, Code, ConfigurationError, invariant
from pushlink.ports import MirrorResult, MirrorWrite, RecordRef, ScannedRow, ScanSize
from pushlink.protocol.identity import canonical_record_id, read_record_id
from pushlink.protocol.snapshots import SourceValue


class SqlRecordStore:
    """A `RecordStore` over declared tables.

    Tables are looked up in the database on first use, through the connection of that call, unless `bind` gave them.
    One instance serves all threads.
    """

    def __init__(self, declarations: Iterable[ObjectDeclaration] = ()) -> None:
        self._declarations: dict[str, ObjectDeclaration] = {}
        self._bound: dict[str, BoundObject] = {}
        self._presences: dict[str, Presence] = {}
        self._mappers: dict[Mapper[Any], str] = {}
        self._lock = threading.Lock()
        for declaration in declarations:
            self.declare(declaration)

    def declare(self, declaration: ObjectDeclaration) -> None:
        """Take a declaration; raises `ConfigurationError` for a second one of the name and for a table of pushlink."""
        refuse_protected(declaration)
        if declaration.name in self._declarations:
            raise ConfigurationError(
                f"Object {declaration.name} is declared twice.",
                evidence={"source_object": declaration.name},
                next_step="keep one of the two declarations",
            )
        self._declarations[declaration.name] = declaration

    def bind(self, source: object, name: str, *, zone: str = "UTC") -> None:
        """Tie an object to a `Table` or to a class that is mapped to one table.

        A declaration of that name wins, `zone` then says nothing; without one, the primary key and the columns are
        declared, under the class's attribute names.
        """
        table, mapper = _table_of(source, name)
        if name not in self._declarations:
            names = _field_names(mapper) if mapper is not None else None
            self.declare(declare_table(name, table, names=names, zone=zone))
        declaration = self._declarations[name]
        if (declaration.table, declaration.schema_name) != (table.name, table.schema):
            raise ConfigurationError(
                f"Object {name} is declared over another table than the one it is bound to.",
                evidence={"source_object": name, "declared": declaration.table, "bound": table.name},
                next_step="bind the class or table of the declared one",
            )
        with self._lock:
            self._bound[name] = bind_table(declaration, table)
            if mapper is not None:
                self._mappers[mapper] = name

    def objects(self) -> tuple[ObjectDeclaration, ...]:
        """All declarations, by name."""
        return tuple(self._declarations[name] for name in sorted(self._declarations))

    def reflect(self, conn: Connection) -> None:
        """Look up every table that is not bound yet, so that `fields` can be asked without a connection."""
        for name in sorted(self._declarations):
            self._object(conn, name)

    def object_of(self, row: object) -> str | None:
        """The source object that a row's class, or one it inherits from, is bound to; `None` for any other row."""
        mapper = getattr(sa.inspect(row, raiseerr=False), "mapper", None)
        lineage = mapper.iterate_to_root() if mapper is not None else ()
        return next((self._mappers[known] for known in lineage if known in self._mappers), None)

    def columns_of(self, source_object: str, fields: Iterable[str]) -> frozenset[str]:
        """The names of the columns behind fields of a bound object; what is no field of it has none."""
        bound = self._bound.get(source_object)
        found = {} if bound is None else bound.fields
        return frozenset(str(found[name].name) for name in fields if name in found)

    def ref_of(self, row: object) -> RecordRef:
        """The reference of a row of a bound class, by the class it is of; its key must be set (flush first)."""
        mapper = getattr(sa.inspect(row, raiseerr=False), "mapper", None)
        name = self.object_of(row)
        if mapper is None or name is None:
            raise CallerError(
                f"No source object is bound to {type(row).__name__}.",
                code=Code.OBJECT_UNKNOWN,
                next_step="bind the class, or pass the object and the record id",
            )
        declaration = self._declarations[name]
        attributes = _field_names(mapper)
        key = tuple(getattr(row, attributes[part.column]) for part in declaration.key)
        return RecordRef(source_object=name, record_id=record_id_from(declaration, key[0] if len(key) == 1 else key))

    # ------------------------------------------------------------------------------ the port

    def canonical_id(self, source_object: str, record_id: object) -> str:
        """The one text of a record id of the object's declared key type; raises `CallerError` for another type."""
        return record_id_from(self._declaration(source_object), record_id)

    def id_from_text(self, source_object: str, text: str) -> str:
        """The same for an id that a person typed: digits, a UUID in any spelling, text, or a composite key's text."""
        key_type, parts = key_types(self._declaration(source_object))
        return canonical_record_id(key_type, read_record_id(key_type, text, parts=parts), parts=parts)

    def known_fields(self, conn: Connection, source_object: str) -> frozenset[str]:
        """The field names of an object, after looking at its table if that was not done yet."""
        return frozenset(self._object(conn, source_object).fields)

    def fields(self, source_object: str) -> frozenset[str]:
        """The declared field names; raises `CallerError` for an unknown object.

        An object that declares no fields has those of its table, which must have been seen: `bind` or `reflect` first.
        """
        declaration = self._declaration(source_object)
        bound = self._bound.get(source_object)
        if bound is not None:
            return frozenset(bound.fields)
        if declaration.fields is None:
            raise ConfigurationError(
                f"The fields of {source_object} are those of its table, which was not looked at yet.",
                evidence={"source_object": source_object},
                next_step="call reflect(connection) first, or declare the fields in the settings",
            )
        return frozenset(declaration.fields)

    def read_records(
        self, conn: Connection, refs: Sequence[RecordRef], fields: Sequence[Sequence[str]]
    ) -> list[Mapping[str, SourceValue] | None]:
        """For each record its values of the asked fields, exact and in UTC, or None when the row is gone.

        Raises `CallerError` for a field that is not declared and for a value that cannot be kept exact.
        """
        invariant(len(refs) == len(fields), "Each record is asked for its own fields.", refs=len(refs))
        answers: list[Mapping[str, SourceValue] | None] = [None] * len(refs)
        groups: defaultdict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
        for index, (ref, wanted) in enumerate(zip(refs, fields, strict=True)):
            groups[ref.source_object, tuple(sorted(set(wanted)))].append(index)
        for (name, wanted), indexes in sorted(groups.items()):
            bound = self._object(conn, name)
            columns = _columns(bound, wanted)
            with database_errors(name):
                rows = fetch(conn, bound, [refs[i].record_id for i in indexes], [raw(column) for column in columns])
            for i in indexes:
                row = rows.get(refs[i].record_id)
                if row is not None:
                    answers[i] = {
                        field: convert(value, column.type, bound.zone, source_object=name, field=field)
                        for field, column, value in zip(wanted, columns, only_row(bound, row).values, strict=True)
                    }
        return answers

    def records_exist(self, conn: Connection, refs: Sequence[RecordRef]) -> list[bool]:
        """Whether each record's row is there."""
        answers = [False] * len(refs)
        groups: defaultdict[str, list[int]] = defaultdict(list)
        for index, ref in enumerate(refs):
            groups[ref.source_object].append(index)
        for name, indexes in sorted(groups.items()):
            bound = self._object(conn, name)
            with database_errors(name):
                there = self._presence(bound).find(conn, [refs[i].record_id for i in indexes])
            for i in indexes:
                answers[i] = refs[i].record_id in there
        return answers

    def write_mirrors(self, conn: Connection, writes: Sequence[MirrorWrite]) -> list[MirrorResult]:
        """Write compare-and-set mirrors in record order, skipping rows that somebody else has locked.

        A row that the database refuses, a value that does not fit its column, or a field that is not declared any
        more fails alone.
        """
        results = [MirrorResult.FAILED] * len(writes)
        groups: defaultdict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
        for index, write in enumerate(writes):
            groups[write.ref.source_object, tuple(sorted(write.values))].append(index)
        for (name, fields), indexes in sorted(groups.items()):
            try:
                bound = self._object(conn, name)
                mirror = Mirror(bound=bound, fields=fields, columns=tuple(_columns(bound, fields)))
            except (CallerError, ConfigurationError):
                continue  # it was frozen under settings that declared it; now it cannot be written
            with database_errors(name):
                found = mirror.write(conn, [writes[i] for i in indexes])
            for i, result in zip(indexes, found, strict=True):
                results[i] = result
        return results

    # ------------------------------------------------------------------------------ scans

    def open_window(
        self, conn: Connection, source_object: str, *, updated: str | None, since: str, now: dt.datetime
    ) -> tuple[str, str]:
        """The column and the window of the rows that changed at `since` or later; see `scanning`."""
        return scanning.open_window(conn, self._object(conn, source_object), updated=updated, since=since, now=now)

    def count_records(self, conn: Connection, source_object: str, *, window: str | None) -> ScanSize:
        """How many rows a scan has; without a window it is about the whole table."""
        return scanning.count_rows(conn, self._object(conn, source_object), window=window)

    def scan_records(
        self, conn: Connection, source_object: str, *, window: str | None, after: str | None, limit: int
    ) -> list[ScannedRow]:
        """The next rows after a place, in key order or in the order of their change; none at the end."""
        bound = self._object(conn, source_object)
        return scanning.scan_rows(conn, bound, window=window, after=after, limit=limit)

    # ------------------------------------------------------------------------------ inside

    def _declaration(self, source_object: str) -> ObjectDeclaration:
        declaration = self._declarations.get(source_object)
        if declaration is None:
            raise CallerError(
                f"There is no source object {source_object!r}.",
                code=Code.OBJECT_UNKNOWN,
                evidence={"source_object": source_object},
                next_step=f"use one of: {', '.join(sorted(self._declarations)) or '(none is declared)'}",
            )
        return declaration

    def _presence(self, bound: BoundObject) -> Presence:
        known = self._presences.get(bound.name)
        if known is None or known.bound is not bound:
            known = self._presences[bound.name] = Presence(bound)
        return known

    def _object(self, conn: Connection, name: str) -> BoundObject:
        bound = self._bound.get(name)
        if bound is not None:
            return bound
        declaration = self._declaration(name)
        with database_errors(name):
            try:
                table = sa.Table(
                    declaration.table,
                    sa.MetaData(),
                    schema=declaration.schema_name,
                    autoload_with=conn,
                    resolve_fks=False,
                )
            except NoSuchTableError as exc:
                raise ConfigurationError(
                    f"The table {declaration.table} of object {name} is not in this database.",
                    evidence={"source_object": name, "table": declaration.table},
                    next_step="mend the object's declaration, or create the table",
                ) from exc
        bound = bind_table(declaration, table)
        with self._lock:
            return self._bound.setdefault(name, bound)


def _table_of(source: object, name: str) -> tuple[sa.Table, Mapper[Any] | None]:
    if isinstance(source, sa.Table):
        return source, None
    mapper = sa.inspect(source, raiseerr=False)
    if isinstance(mapper, Mapper) and isinstance(mapper.local_table, sa.Table) and len(mapper.tables) == 1:
        return mapper.local_table, mapper
    raise ConfigurationError(
        f"Object {name} can be bound to a Table, or to a class that is mapped to exactly one table.",
        evidence={"source_object": name, "given": getattr(source, "__name__", type(source).__name__)},
        next_step="bind one of these, or declare the table in the settings",
    )


def _field_names(mapper: Mapper[Any]) -> dict[str, str]:
    """Column names to attribute names."""
    return {column.name: mapper.get_property_by_column(column).key for column in mapper.local_table.c}


def _columns(bound: BoundObject, fields: Iterable[str]) -> list[sa.ColumnClause[Any]]:
    columns = []
    for field in fields:
        if field not in bound.fields:
            raise CallerError(
                f"Object {bound.name} declares no field {field!r}.",
                evidence={"source_object": bound.name, "field": field},
                next_step="name a declared field, or declare this one in the settings",
            )
        columns.append(bound.fields[field])
    return columns
