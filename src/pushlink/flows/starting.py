"""What must hold before a worker claims anything: tables, durability, and leases that can hold a whole request.

A worker that starts over a weakened database would checkpoint into the air (D-36), and one whose lease ends before a
request's deadline could never send at all (D-12). Both are refused at the start, with the setting to change. The tables
are looked at again and again: an upgrade does not stop the workers that it leaves too far behind.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import sqlalchemy as sa

from pushlink.errors import ConfigurationError
from pushlink.flows.world import World
from pushlink.store.dialect import check_durability
from pushlink.store.revision import require_current


class StartChecks:
    """The checks of one worker, as a step of its driver."""

    def __init__(self, world: World) -> None:
        self._world = world

    def check(self, conn: sa.Connection, items: Sequence[None], *, now: dt.datetime) -> list[None]:  # noqa: ARG002
        """Raise `ConfigurationError` for the first thing that a worker must not start with."""
        require_current(conn)
        check_durability(conn)
        self._check_leases(conn)
        return [None for _ in items]

    @staticmethod
    def check_tables(conn: sa.Connection, items: Sequence[None], *, now: dt.datetime) -> list[None]:  # noqa: ARG004
        """Raise `ConfigurationError` when the tables have become those of a release after the next one (D-43)."""
        require_current(conn)
        return [None for _ in items]

    def _check_leases(self, conn: sa.Connection) -> None:
        terms = self._world.terms
        for action in self._world.catalog.read(conn).all_actions():
            needs_ms = action.profile.timeouts.total_ms + terms.margin_ms
            if needs_ms > terms.lease_ms:
                msg = f"A lease of {terms.lease_ms} ms cannot hold a request of profile {action.names.profile!r}."
                raise ConfigurationError(
                    msg,
                    evidence={
                        "lease_ms": terms.lease_ms,
                        "margin_ms": terms.margin_ms,
                        "total_ms": action.profile.timeouts.total_ms,
                    },
                    next_step="make worker.lease longer, or timeouts.total of the profile shorter",
                )
