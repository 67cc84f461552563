"""Which remotes are left alone now, why, until when, and how much waits for them meanwhile. Nobody has to do anything.

A throttle ends by itself. A circuit that opened is tried by one request after its pause, and everything that waits
keeps its place and its budget of retries.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from pushlink.store.access import Connection
from pushlink.store.circuits import read_circuits
from pushlink.store.paces import count_waiting
from pushlink.store.throttles import read_reasons


class HeldBy(StrEnum):
    """Why a destination is left alone."""

    THROTTLE = "throttle"  # the remote asked for it
    CIRCUIT_OPEN = "circuit_open"  # it failed too often
    CIRCUIT_TRYING = "circuit_trying"  # its pause is over: one request at a time finds out whether it is back


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """One destination of a tenant that is left alone. `until` is when it is asked again, `waiting` counts attempts."""

    tenant: str
    destination_slot_id: str
    held_by: HeldBy
    until: dt.datetime
    reason: str
    waiting: int

    @property
    def sentence(self) -> str:
        """For people, in one line."""
        what = _SAYS[self.held_by].format(until=self.until.strftime("%Y-%m-%d %H:%M:%S UTC"))
        return f"{what} ({self.reason}); {self.waiting} wait and lose nothing."


_SAYS = {
    HeldBy.THROTTLE: "The remote asked to be left alone until {until}",
    HeldBy.CIRCUIT_OPEN: "The remote fails and is left alone until {until}",
    HeldBy.CIRCUIT_TRYING: "The remote failed until {until}, and one request at a time finds out whether it is back",
}


def held_back(conn: Connection, *, tenant: str | None, now: dt.datetime) -> tuple[HeldBack, ...]:
    """Every destination that is left alone, of one tenant or (`None`) of all."""
    waiting = count_waiting(conn)
    return tuple(
        HeldBack(
            tenant=place[0],
            destination_slot_id=place[1],
            held_by=held_by,
            until=until,
            reason=reason,
            waiting=waiting.get(place, 0),
        )
        for place, held_by, until, reason in _found(conn, now)
        if tenant is None or place[0] == tenant
    )


def _found(conn: Connection, now: dt.datetime) -> Iterator[tuple[tuple[str, str], HeldBy, dt.datetime, str]]:
    for place, (until, reason) in sorted(read_reasons(conn, now=now).items()):
        yield place, HeldBy.THROTTLE, until, reason
    for place, kept in sorted(read_circuits(conn).items()):
        if kept.state.open_until is not None:
            held_by = HeldBy.CIRCUIT_OPEN if kept.state.is_open(now) else HeldBy.CIRCUIT_TRYING
            yield place, held_by, kept.state.open_until, kept.reason
