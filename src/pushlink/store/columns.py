"""What tables are made of: the one `MetaData`, the type of an instant, and a builder for each kind of column.

It stands apart from `tables.py` so that `dialect/` may read the metadata (to name a violated constraint) although the
tables use `dialect/` for what only one engine understands.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import sqlalchemy as sa

PREFIX: Final = "pushlink_"

METADATA: Final = sa.MetaData()


class UtcTime(sa.types.TypeDecorator[dt.datetime]):
    """An instant in UTC with microseconds. Bound values must carry a zone; results always do."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: dt.datetime | None, dialect: sa.Dialect) -> dt.datetime | None:  # noqa: ARG002
        """To UTC; a naive value is a defect of the caller."""
        if value is None:
            return None
        if value.tzinfo is None:
            msg = "a naive datetime never reaches the database"
            raise ValueError(msg)
        return value.astimezone(dt.UTC)

    def process_result_value(self, value: dt.datetime | None, dialect: sa.Dialect) -> dt.datetime | None:  # noqa: ARG002
        """In UTC, whatever zone the session shows; engines without zones hand back the naive UTC that was written."""
        if value is None:
            return None
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)


def table(name: str, *items: Any) -> sa.Table:
    """A table of pushlink, under its prefix."""
    return sa.Table(PREFIX + name, METADATA, *items)


def text(name: str, *, null: bool = False, key: bool = False, default: str | None = None) -> sa.Column[str]:
    """Text of any length, exact and case-sensitive."""
    return sa.Column(name, sa.Text, primary_key=key, nullable=null, server_default=default)


def count(name: str, *, default: int = 0) -> sa.Column[int]:
    """A counter or a version; never null."""
    return sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text(str(default)))


def flag(name: str) -> sa.Column[bool]:
    """A truth value, false unless it is set; never null."""
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false())


def time(name: str, *, null: bool = False) -> sa.Column[dt.datetime]:
    """An instant."""
    return sa.Column(name, UtcTime, nullable=null)
