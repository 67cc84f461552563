"""Doubles of clock and ids that live in memory: time moves when it is told to, and identities count from one.

They implement the ports `Clock` and `Ids` and touch no connection, so a test of any layer can put them in place.
"""

from __future__ import annotations

import datetime as dt
import itertools

from sqlalchemy import Connection

#: Where a fixed clock starts unless it is told: a plain moment, far from every daylight saving change.
START = dt.datetime(2025, 1, 15, 12, 0, 0, tzinfo=dt.UTC)


class FixedClock:
    """A clock that stands still until it is set or advanced; the same for every connection."""

    def __init__(self, start: dt.datetime = START) -> None:
        self._now = _in_utc(start)

    def now(self, conn: Connection | None = None) -> dt.datetime:
        """The moment it was set to, in UTC; no connection is needed or used."""
        del conn
        return self._now

    def set(self, moment: dt.datetime) -> None:
        """Jump to a moment, earlier ones too; it must carry a zone."""
        self._now = _in_utc(moment)

    def advance(self, **delta: float) -> dt.datetime:
        """Move by the keywords of `datetime.timedelta`, such as `seconds=5`; returns the new moment."""
        self._now += dt.timedelta(**delta)
        return self._now


class SequentialIds:
    """Identities 1, 2, 3 ... as 32 hexadecimal digits; tokens count on their own and start with `f`."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._tokens = itertools.count(1)

    def fresh(self) -> str:
        """The next identity; later ones sort after earlier ones."""
        return f"{next(self._ids):032x}"

    def token(self) -> str:
        """The next token; never equal to an identity."""
        return f"f{next(self._tokens):031x}"


def _in_utc(moment: dt.datetime) -> dt.datetime:
    if moment.tzinfo is None:
        msg = "a clock shows a moment with a zone"
        raise ValueError(msg)
    return moment.astimezone(dt.UTC)
