"""From what a database driver hands over to an exact source value, or to an error that shows no value.

Columns of the types below are read as the driver has them, past SQLAlchemy's own conversion: it would round a decimal
that a database without decimals keeps as text or as a binary fraction, and would quote the text of a date that it
cannot read. A column of any other type (a host's own decorated type, say) is read through SQLAlchemy and judged by
what comes out. Nothing depends on the machine's zone: a time without a zone is taken in the zone that the object
declares, and of an hour that a clock change repeats it is the first (D-41).
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from pushlink.errors import CallerError, Code
from pushlink.protocol.snapshots import SourceValue

_Column: TypeAlias = TypeEngine[Any]
_Convert: TypeAlias = Callable[[Any, _Column, ZoneInfo], SourceValue]

#: More digits than any amount or measurement has, few enough that writing one out costs nothing.
_DIGITS_MAX: Final = 1_000
_EXACT: Final = decimal.Context(prec=2 * _DIGITS_MAX, traps=[decimal.InvalidOperation])


def is_read_raw(column_type: _Column) -> bool:
    """Whether a column of this type is read as the driver has it, past SQLAlchemy's conversion."""
    return not isinstance(column_type, sa.types.TypeDecorator)


def convert(raw: object, column_type: _Column, zone: ZoneInfo, *, source_object: str, field: str) -> SourceValue:
    """The exact source value, with times in UTC; raises `CallerError` that names field and types, never the value."""
    if raw is None:
        return None
    try:
        for known, converter in _CONVERTERS:
            if isinstance(column_type, known):
                return converter(raw, column_type, zone)
        return _natural(raw, column_type, zone)
    except (TypeError, ValueError, ArithmeticError):
        # The cause quotes the value, so it is not chained.
        stored, declared = type(raw).__name__, type(column_type).__name__
        raise CallerError(
            f"Field {field} of {source_object} holds a value ({stored} in a column of type {declared}) that cannot be "
            "kept exact.",
            code=Code.VALUE_UNSENDABLE,
            evidence={"source_object": source_object, "field": field, "type": stored, "column_type": declared},
            next_step="map another field, or store this one as text, number, date, time, truth value or list of texts",
        ) from None


def uuid_of(raw: object) -> uuid.UUID:
    """The UUID that a driver hands over as such, as text in any of its spellings, or as 16 bytes."""
    match raw:
        case uuid.UUID():
            return raw
        case str():
            return uuid.UUID(raw)
        case bytes() | memoryview():
            return uuid.UUID(bytes=bytes(raw))
        case _:
            raise TypeError


def _boolean(raw: object, _type: _Column, _zone: ZoneInfo) -> SourceValue:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, int) and raw in {0, 1}:
        return bool(raw)
    raise TypeError


def _integer(raw: object, _type: _Column, _zone: ZoneInfo) -> SourceValue:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    raise TypeError


def _decimal(raw: object, column_type: _Column, _zone: ZoneInfo) -> SourceValue:
    match raw:
        case bool():
            raise TypeError
        case float():
            # The shortest text that reads back as the same binary fraction: what the host wrote, digit for digit.
            value = Decimal(repr(raw))
        case int() | str() | Decimal():
            value = Decimal(raw)
        case _:
            raise TypeError
    if not value.is_finite() or len(value.as_tuple().digits) > _DIGITS_MAX or abs(value.adjusted()) > _DIGITS_MAX:
        raise ValueError
    scale = getattr(column_type, "scale", None)
    if scale is not None and not isinstance(column_type, sa.Float):
        # Databases differ in whether they keep the zeros after the point; the declared scale says how many there are.
        padded = value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
        value = padded if padded == value else value
    return value


def _datetime(raw: object, _type: _Column, zone: ZoneInfo) -> SourceValue:
    moment = dt.datetime.fromisoformat(raw) if isinstance(raw, str) else raw
    if not isinstance(moment, dt.datetime):
        raise TypeError
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(dt.UTC)


def _date(raw: object, _type: _Column, _zone: ZoneInfo) -> SourceValue:
    day = dt.date.fromisoformat(raw) if isinstance(raw, str) else raw
    if isinstance(day, dt.date) and not isinstance(day, dt.datetime):
        return day
    raise TypeError


def _time(raw: object, _type: _Column, _zone: ZoneInfo) -> SourceValue:
    moment = dt.time.fromisoformat(raw) if isinstance(raw, str) else raw
    if isinstance(moment, dt.time):
        return moment
    raise TypeError


def _uuid(raw: object, _type: _Column, _zone: ZoneInfo) -> SourceValue:
    return str(uuid_of(raw))


def _text(raw: object, _type: _Column, _zone: ZoneInfo) -> SourceValue:
    match raw:
        case str():
            return raw
        case uuid.UUID():
            return str(raw)
        case _:
            raise TypeError


def _texts(raw: object, _type: _Column, _zone: ZoneInfo) -> SourceValue:
    value = json.loads(raw) if isinstance(raw, str) else raw
    if value is None:
        return None
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise TypeError


def _refused(_raw: object, _type: _Column, _zone: ZoneInfo) -> SourceValue:
    raise TypeError


def _natural(raw: object, column_type: _Column, zone: ZoneInfo) -> SourceValue:
    """A value of a column whose type says nothing: judged by what it is."""
    match raw:
        case enum.Enum():
            return _natural(raw.value, column_type, zone)
        case bool() | int() | str():
            return raw
        case float() | Decimal():
            return _decimal(raw, column_type, zone)
        case dt.datetime():
            return _datetime(raw, column_type, zone)
        case dt.date() | dt.time():
            return raw
        case uuid.UUID():
            return str(raw)
        case list() | tuple():
            return _texts(raw, column_type, zone)
        case _:
            raise TypeError


#: The first type that a column's type is or descends from decides.
_CONVERTERS: Final[tuple[tuple[type[_Column], _Convert], ...]] = (
    (sa.Boolean, _boolean),
    (sa.Integer, _integer),
    (sa.Float, _decimal),
    (sa.Numeric, _decimal),
    (sa.DateTime, _datetime),
    (sa.Date, _date),
    (sa.Time, _time),
    (sa.Interval, _refused),
    (sa.Uuid, _uuid),
    (sa.JSON, _texts),
    (sa.ARRAY, _texts),
    (sa.LargeBinary, _refused),
    (sa.String, _text),
)
