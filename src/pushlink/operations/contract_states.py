"""What the contract of a create in doubt allows now, in words and for the list of what may be decided."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from pushlink.flows.operating_creates import settle_time
from pushlink.flows.replaying import prospects
from pushlink.flows.world import World
from pushlink.protocol.replay import Allowed, Why, classes_of
from pushlink.protocol.snapshots import write_time
from pushlink.protocol.states import UNSETTLED, Operation
from pushlink.store.access import Connection
from pushlink.store.requests import read_requests
from pushlink.store.rows import AttemptRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractState:
    """The recovery classes that were frozen with a create, and what they are good for at this moment."""

    classes: tuple[str, ...]
    is_certified: bool
    is_replayed: bool  # an operator may order the same bytes to be sent again
    is_looked_up: bool
    replay_until: dt.datetime | None
    not_replayed: str | None  # why it is not sent again
    looks_at: dt.datetime | None  # when its record is looked for next

    def shown(self) -> dict[str, object]:
        """The evidence that `explain` shows."""
        found: dict[str, object | None] = {
            "classes": list(self.classes),
            "certified": self.is_certified,
            "replay_until": None if self.replay_until is None else write_time(self.replay_until),
            "not_replayed": self.not_replayed,
            "looked_for_at": None if self.looks_at is None else write_time(self.looks_at),
        }
        return {name: value for name, value in found.items() if value is not None}


def settles_at(conn: Connection, world: World | None, attempt: AttemptRow | None) -> dt.datetime | None:
    """From when on `reconcile --absent` and `--resend` are let through for what is in doubt (D-08)."""
    if world is None or attempt is None or attempt.status not in UNSETTLED:
        return None
    [request] = read_requests(conn, [attempt.id])
    if request is None:
        return None
    profiles, _ = world.thaw(conn, [request.profile_digest], [])
    return settle_time(conn, attempt, profiles[request.profile_digest], pause_max_ms=world.terms.pause_max_ms)[1]


def contract_state(
    conn: Connection, world: World | None, attempt: AttemptRow | None, *, now: dt.datetime
) -> ContractState | None:
    """The state of one create in doubt whose frozen pack declares a contract; `None` for everything else."""
    if world is None or attempt is None or attempt.operation is not Operation.CREATE:
        return None
    if attempt.status not in UNSETTLED:
        return None
    prospect = prospects(world, conn, [attempt], now=now).get(attempt.id)
    if prospect is None:
        return None
    allowed = prospect.ordered_until(attempt)
    until = allowed.until if isinstance(allowed, Allowed) else None
    is_over = until is not None and now >= until
    return ContractState(
        classes=classes_of(prospect.create),
        is_certified=prospect.facts.certified,
        is_replayed=until is not None and not is_over,
        is_looked_up=prospect.look_up_ms is not None,
        replay_until=until,
        not_replayed=allowed.value if isinstance(allowed, Why) else Why.EXPIRED.value if is_over else None,
        looks_at=attempt.lease_until,
    )
