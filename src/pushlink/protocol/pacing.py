"""How rates and circuits go on, as pure functions of a moment that the database gives.

A rate is kept as one instant, the time at which the next request is due (the generic cell rate algorithm): nothing has
to be counted down, and whoever holds the row can tell how many more may go. A circuit is closed, open until a moment,
or, after that moment, half open: one request tries, and its outcome decides.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import Final

from pushlink.protocol.limit_contracts import Circuit, Ordering, SendLimits
from pushlink.protocol.snapshots import SourceValues

_UNIT_US: Final = {"s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}

#: A circuit that opens again and again pauses up to 2 to this power times as long.
DOUBLINGS_MAX: Final = 4


def order_key(ordering: Ordering | None, values: SourceValues) -> str | None:
    """What an attempt is sent in order with: everything of its destination, or what has the same value in a field.

    The value itself does not stand in the key. Records without a value are in order with each other.
    """
    if ordering is None:
        return None
    if ordering.field is None:
        return "destination"
    alone = SourceValues(values={ordering.field: values.values.get(ordering.field)})
    return f"field {alone.document().digest}"


def interval_of(limits: SendLimits) -> dt.timedelta | None:
    """The time between two requests of a rate; `None` without one."""
    if limits.rate is None:
        return None
    count, _, unit = limits.rate.partition("/")
    return dt.timedelta(microseconds=max(1, _UNIT_US[unit] // int(count)))


def permitted(paced_until: dt.datetime | None, interval: dt.timedelta, burst: int, *, now: dt.datetime) -> int:
    """How many requests may go at this moment; `burst` of them when none went for a while."""
    ahead = max(dt.timedelta(), (paced_until or now) - now)
    return max(0, (interval * burst - ahead) // interval)


def paced(paced_until: dt.datetime | None, interval: dt.timedelta, count: int, *, now: dt.datetime) -> dt.datetime:
    """The instant to keep after `count` requests were let go."""
    return max(paced_until or now, now) + interval * count


def next_at(paced_until: dt.datetime | None, interval: dt.timedelta, burst: int) -> dt.datetime | None:
    """From when on one request may go; `None` when one may go at any time."""
    return None if paced_until is None else paced_until - interval * (burst - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitState:
    """What is known of one destination: the answers of this window, and until when it is left alone."""

    failures: int = 0
    successes: int = 0
    window_started_at: dt.datetime | None = None
    open_until: dt.datetime | None = None  # None: closed
    opened: int = 0  # times in a row

    def is_open(self, now: dt.datetime) -> bool:
        """Whether nothing is sent there now."""
        return self.open_until is not None and self.open_until > now

    def is_half_open(self, now: dt.datetime) -> bool:
        """Whether one request at a time may find out if the remote is back."""
        return self.open_until is not None and self.open_until <= now


def observed(state: CircuitState, terms: Circuit, *, failing: int, fine: int, now: dt.datetime) -> CircuitState:
    """The state after so many answers of either kind. What comes in while a circuit is open was sent before it."""
    if state.is_open(now):
        return state
    if state.is_half_open(now):
        if fine:
            return CircuitState()
        return _opened(state, terms, now=now) if failing else state
    if state.window_started_at is None or now - state.window_started_at > dt.timedelta(milliseconds=terms.window_ms):
        state = CircuitState(window_started_at=now)
    state = replace(state, failures=state.failures + failing, successes=state.successes + fine)
    is_broken = 0 < terms.failures <= state.failures and state.failures >= state.successes
    return _opened(state, terms, now=now) if is_broken and failing else state


def _opened(state: CircuitState, terms: Circuit, *, now: dt.datetime) -> CircuitState:
    pause_ms = terms.pause_ms << min(state.opened, DOUBLINGS_MAX)
    return CircuitState(open_until=now + dt.timedelta(milliseconds=pause_ms), opened=state.opened + 1)
