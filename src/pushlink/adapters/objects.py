"""Declared source objects: which table holds the records, what identifies one, and which fields may be named.

A declaration is data out of the settings, or derived from a mapped class. Bound to its table it knows the columns, and
turns the one text of a record id (D-42) into key values and back. pushlink's own tables are refused here, so that no
reader or writer of records ever reaches one (SY-01).
"""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import sqlalchemy as sa
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from sqlalchemy.sql import quoted_name
from sqlalchemy.types import NullType, TypeEngine

from pushlink.adapters.values import is_read_raw, uuid_of
from pushlink.errors import Code, ConfigurationError
from pushlink.protocol.identity import KeyType, RecordKey, canonical_record_id, read_record_id
from pushlink.store.tables import PROTECTED_TABLES

KeyValue: TypeAlias = int | str

#: What an integer column can hold; a larger id belongs to no row.
_INTEGER_MIN: Final = -(2**63)
_INTEGER_MAX: Final = 2**63 - 1
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")


def _database_name(name: str) -> str:
    if _UNPRINTABLE.search(name):
        msg = "a table or column name holds no control characters"
        raise ValueError(msg)
    return name


def _single_type(key_type: KeyType) -> KeyType:
    if key_type is KeyType.COMPOSITE:
        msg = "a composite key is declared by its columns, each with a type of its own"
        raise ValueError(msg)
    return key_type


def _zone_name(name: str) -> str:
    try:
        ZoneInfo(name)
    except (OSError, ZoneInfoNotFoundError) as exc:
        msg = "this is no IANA zone, such as Europe/Berlin"
        raise ValueError(msg) from exc
    return name


_API_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
#: A name that packs, policies and calls use.
ApiName: TypeAlias = Annotated[str, Field(pattern=rf"^{_API_NAME.pattern}$")]
#: A name as the database has it; always quoted, never put into SQL as text.
DatabaseName: TypeAlias = Annotated[str, Field(min_length=1, max_length=63), AfterValidator(_database_name)]


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class KeyColumn(_Declared):
    """One column of a key, and which type of id it holds: another type is refused."""

    column: DatabaseName
    type: Annotated[KeyType, AfterValidator(_single_type)]


class ObjectDeclaration(_Declared):
    """One source object. Without `fields` every column whose name can be a field is one, under the column's name.

    `zone` is the IANA zone that times without a zone are in; `updated` the column that tells when a row last changed.
    """

    name: ApiName
    table: DatabaseName
    schema_name: Annotated[DatabaseName | None, Field(alias="schema")] = None
    key: Annotated[tuple[KeyColumn, ...], Field(min_length=1)]
    fields: dict[ApiName, DatabaseName] | None = None
    updated: DatabaseName | None = None
    zone: Annotated[str, AfterValidator(_zone_name)] = "UTC"


def refuse_protected(declaration: ObjectDeclaration) -> None:
    """Raise `ConfigurationError` when the table is one of pushlink's own, in whatever schema and case."""
    if declaration.table.casefold() in {name.rpartition(".")[2].casefold() for name in PROTECTED_TABLES}:
        raise ConfigurationError(
            f"Object {declaration.name} names {declaration.table}, a table that pushlink manages itself.",
            code=Code.TABLE_PROTECTED,
            evidence={"source_object": declaration.name, "table": declaration.table},
            next_step="declare a table of the application",
        )


def declare_table(
    name: str, table: sa.Table, *, names: Mapping[str, str] | None = None, zone: str
) -> ObjectDeclaration:
    """The declaration that a table's primary key and columns imply; `names` maps column names to field names."""
    if not _is_api_name(name):
        raise _unfit(name, table.name, "an object's name is a letter or _, then up to 62 letters, digits or _")
    keys = []
    for column in table.primary_key.columns:
        key_type = next((kind for known, kind in _KEY_TYPES if isinstance(plain_type(column.type), known)), None)
        if key_type is None:
            raise _unfit(name, column.name, f"a {type(column.type).__name__} column cannot be a key")
        keys.append(KeyColumn(column=column.name, type=key_type))
    if not keys:
        raise _unfit(name, table.name, "the table has no primary key")
    wanted = names or {column.name: column.name for column in table.columns}
    return ObjectDeclaration(
        name=name,
        table=table.name,
        schema_name=table.schema,
        key=tuple(keys),
        fields={field: column for column, field in wanted.items() if _is_api_name(field)},
        zone=zone,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundObject:
    """A declaration with its columns; they carry no defaults, so a mirror writes what it was asked and no more."""

    declaration: ObjectDeclaration
    table: sa.TableClause
    key: tuple[sa.ColumnClause[Any], ...]
    fields: Mapping[str, sa.ColumnClause[Any]]
    zone: ZoneInfo

    @property
    def name(self) -> str:
        """The object's API name."""
        return self.declaration.name

    def select_key(self) -> list[sa.ColumnElement[Any]]:
        """The key as the driver has it, labelled `key_0`, `key_1` ..."""
        return [raw(column).label(f"key_{position}") for position, column in enumerate(self.key)]

    def record_id_of(self, stored: Sequence[object]) -> str | None:
        """The record id of stored key values; None when they are no key of the declared types."""
        parts: list[KeyValue] = []
        for column, value in zip(self.declaration.key, stored, strict=True):
            part = _read_part(column.type, value)
            if part is None:
                return None
            parts.append(part)
        return record_id_from(self.declaration, parts[0] if len(parts) == 1 else tuple(parts))

    def where_key(self, record_ids: Sequence[str]) -> sa.ColumnElement[bool] | None:
        """The condition that finds these records; None when no row can have one of them."""
        spellings = [found for record_id in record_ids for found in self.stored_forms(record_id)]
        if not spellings:
            return None
        if len(self.key) == 1:
            return _comparable(self.key[0]).in_([parts[0] for parts in spellings])
        return sa.tuple_(*(_comparable(column) for column in self.key)).in_(spellings)

    def comparable_key(self) -> sa.ColumnElement[Any]:
        """The only key column, to compare with."""
        [column] = self.key
        return _comparable(column)

    def stored_forms(self, record_id: str) -> Iterator[tuple[object, ...]]:
        """Every way in which the table may hold this id."""
        key_type, part_types = key_types(self.declaration)
        key: RecordKey = read_record_id(key_type, record_id, parts=part_types)
        parts = key if isinstance(key, tuple) else (key,)
        forms = (
            _stored_forms(part.type, column.type, value)
            for part, column, value in zip(self.declaration.key, self.key, parts, strict=True)
        )
        return itertools.product(*forms)


def bind_table(declaration: ObjectDeclaration, table: sa.Table) -> BoundObject:
    """Check the declaration against the table and look its columns up."""
    columns = {str(column.name): sa.column(_quoted(column.name), column.type) for column in table.columns}

    def column(name: str) -> sa.ColumnClause[Any]:
        if name not in columns:
            raise _unfit(declaration.name, name, f"table {table.name} has no such column")
        return columns[name]

    key = []
    for part in declaration.key:
        found = column(part.column)
        if not isinstance(plain_type(found.type), _KEY_HOLDERS[part.type]):
            raise _unfit(
                declaration.name, part.column, f"a {type(found.type).__name__} column holds no {part.type.value} key"
            )
        key.append(found)
    if declaration.fields is None:
        fields = {name: found for name, found in columns.items() if _is_api_name(name)}
    else:
        fields = {field: column(name) for field, name in declaration.fields.items()}
    if declaration.updated is not None:
        column(declaration.updated)
    return BoundObject(
        declaration=declaration,
        table=sa.table(_quoted(table.name), *columns.values(), schema=table.schema and _quoted(table.schema)),
        key=tuple(key),
        fields=fields,
        zone=ZoneInfo(declaration.zone),
    )


def raw(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """The column as the driver has it, unless its type is one that only the host can read."""
    return sa.type_coerce(column, NullType()) if is_read_raw(column.type) else column


def record_id_from(declaration: ObjectDeclaration, value: object) -> str:
    """The canonical text of a key; a composite key is given as the tuple of its parts in the declared order."""
    key_type, part_types = key_types(declaration)
    return canonical_record_id(key_type, value, parts=part_types)


def key_types(declaration: ObjectDeclaration) -> tuple[KeyType, tuple[KeyType, ...]]:
    """The type of an object's record ids, and of their parts when they are composite."""
    types = tuple(column.type for column in declaration.key)
    return (types[0], ()) if len(types) == 1 else (KeyType.COMPOSITE, types)


def _read_part(key_type: KeyType, stored: object) -> KeyValue | None:
    """What a row's key column holds, as a value of the declared type; None for anything else."""
    match key_type, stored:
        case KeyType.INTEGER, bool():
            return None
        case KeyType.INTEGER, int():
            return stored
        case KeyType.INTEGER, Decimal() if stored.is_finite() and stored == stored.to_integral_value():
            return int(stored)
        case KeyType.TEXT, str():
            return stored
        case KeyType.UUID, _:
            try:
                return str(uuid_of(stored))
            except (TypeError, ValueError):
                return None
        case _:
            return None


def _stored_forms(key_type: KeyType, column_type: TypeEngine[Any], value: KeyValue) -> tuple[object, ...]:
    """The spellings of a key value that a column of this type may hold; none when it cannot hold it."""
    if key_type is KeyType.INTEGER:
        return (value,) if _INTEGER_MIN <= int(value) <= _INTEGER_MAX else ()
    if key_type is KeyType.TEXT:
        return (value,)
    identity = uuid.UUID(str(value))
    match plain_type(column_type):
        case sa.Uuid(as_uuid=True):
            return (identity,)
        case sa.Uuid():
            return (str(identity),)
        case sa.LargeBinary():
            return (identity.bytes,)
        case _:
            return (str(identity), identity.hex)


def _comparable(column: sa.ColumnClause[Any]) -> sa.ColumnElement[Any]:
    """A key column to compare with: an id too long for the column finds nothing, where a cast of it would fail."""
    return sa.type_coerce(column, sa.BigInteger()) if isinstance(column.type, sa.Integer | sa.Numeric) else column


def _quoted(name: str) -> quoted_name:
    """A name that is always written in quotes: which words are reserved differs between databases and releases."""
    return quoted_name(name, quote=True)


def plain_type(column_type: TypeEngine[Any]) -> TypeEngine[Any]:
    """The type below a host's decoration."""
    return column_type.impl_instance if isinstance(column_type, sa.types.TypeDecorator) else column_type


def _is_api_name(name: str) -> bool:
    return _API_NAME.fullmatch(name) is not None


def _unfit(source_object: str, column: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"Object {source_object} cannot be read as declared: {column}: {why}.",
        evidence={"source_object": source_object, "column": column},
        next_step="mend the object's declaration in the settings",
    )


#: Which columns can hold a key of a type. A column without a type may hold anything.
_KEY_HOLDERS: Final[Mapping[KeyType, tuple[type[TypeEngine[Any]], ...]]] = {
    KeyType.INTEGER: (sa.Integer, sa.Numeric, NullType),
    KeyType.UUID: (sa.Uuid, sa.String, sa.LargeBinary, NullType),
    KeyType.TEXT: (sa.String, NullType),
}

#: Which key type a column implies when nobody declared one.
_KEY_TYPES: Final[tuple[tuple[type[TypeEngine[Any]], KeyType], ...]] = (
    (sa.Integer, KeyType.INTEGER),
    (sa.Uuid, KeyType.UUID),
    (sa.String, KeyType.TEXT),
)
