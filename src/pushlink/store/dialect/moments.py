"""Times as a host's table has them, in one form that can be compared.

PostgreSQL has types for times. SQLite keeps whatever it was given: texts of many forms, with a zone or without, whole
seconds of Unix, days of Julian. A function of ours reads all of them as one text in UTC, so that their order is the
order of time; what cannot be read has no place in it. Texts as SQLAlchemy writes them need no function.
"""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from typing import Any, Final, cast
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from sqlalchemy.types import NullType

_READY: Final = "pushlink_moments"
_NAME: Final = "pushlink_moment"

#: How SQLAlchemy writes a time and a day: their order as texts is the order of time already.
_DIGITS: Final = "[0-9]" * 2
_DAY: Final = f"{_DIGITS}{_DIGITS}-{_DIGITS}-{_DIGITS}"
_PLAIN: Final = (f"{_DAY} {_DIGITS}:{_DIGITS}:{_DIGITS}.{_DIGITS}{_DIGITS}{_DIGITS}", _DAY)

#: A REAL below is a day of Julian and not a second of Unix: SQLite's own rule for its modifier `auto`.
_JULIAN_MAX: Final = 5_373_484.5
_JULIAN_OF_UNIX: Final = 2_440_587.5
_DAY_S: Final = 86_400


def has_typed_times(conn: sa.Connection) -> bool:
    """Whether the database itself knows what a time is."""
    return conn.dialect.name != "sqlite"


def teach_moments(conn: sa.Connection) -> None:
    """Let this connection read times of any form; a database with types for them needs nothing."""
    if has_typed_times(conn) or _READY in conn.info:
        return
    cast("Any", conn.connection.dbapi_connection).create_function(_NAME, 2, _read, deterministic=True)
    conn.info[_READY] = True


def as_moment(column: sa.ColumnElement[Any], zone: ZoneInfo) -> sa.ColumnElement[Any]:
    """The column's times as texts in UTC, for a connection that was taught; a time without a zone is one of `zone`."""
    moment: sa.ColumnElement[Any] = getattr(sa.func, _NAME)(sa.type_coerce(column, NullType()), zone.key)
    return moment


def moment_text(moment: dt.datetime) -> str:
    """A time as `as_moment` writes it."""
    return moment.astimezone(dt.UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def are_plain(conn: sa.Connection, table: sa.FromClause, column: sa.ColumnElement[Any], *, days: bool) -> bool:
    """Whether every time of the column stands there as SQLAlchemy writes it, so that texts may be compared."""
    stored = sa.type_coerce(column, NullType())
    is_plain = sa.and_(sa.func.typeof(stored) == "text", stored.op("GLOB")(_PLAIN[days]))
    odd = sa.select(sa.literal(1)).select_from(table).where(stored.is_not(None), ~is_plain).limit(1)
    return conn.execute(odd).first() is None


def are_moments(conn: sa.Connection, table: sa.FromClause, column: sa.ColumnElement[Any], zone: ZoneInfo) -> bool:
    """Whether every value of the column reads as a time, and there is one."""
    moment = as_moment(column, zone)
    stored = sa.type_coerce(column, NullType())
    count = sa.select(sa.func.count(stored), sa.func.count(moment)).select_from(table)
    values, moments = conn.execute(count).one()
    return bool(values and values == moments)


def _read(value: object, zone: str) -> str | None:
    try:
        return _text_of(value, zone)
    except (ValueError, OverflowError):
        return None


def _text_of(value: object, zone: str) -> str | None:
    match value:
        case int():
            return moment_text(dt.datetime.fromtimestamp(value, dt.UTC))
        case float() if 0 <= value < _JULIAN_MAX:
            return moment_text(dt.datetime.fromtimestamp(round((value - _JULIAN_OF_UNIX) * _DAY_S, 3), dt.UTC))
        case float():
            return moment_text(dt.datetime.fromtimestamp(value, dt.UTC))
        case str():
            found = dt.datetime.fromisoformat(value.strip())
            return moment_text(found if found.tzinfo else found.replace(tzinfo=_zone(zone)))
        case _:
            return None


@lru_cache(maxsize=32)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
