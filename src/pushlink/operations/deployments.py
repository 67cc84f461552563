"""The life of a deployment's database: what it is, what its workers may take, recovery mode, and the way out (D-36).

A database that may be a copy or an old backup is confirmed by a person. Confirming puts in doubt whatever may have been
sent without this database knowing it, and new creates wait until the lost time has been looked at and is cleared.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pushlink.errors import CallerError, Code
from pushlink.flows.recover import make_recoveries, recovery_of
from pushlink.flows.world import World
from pushlink.ports import StateSeen
from pushlink.store import restores, slots
from pushlink.store.access import Connection
from pushlink.store.catalog import Deployment, read_deployment, set_general_worker

#: Rows that a confirmation recovers by one statement.
RECOVERED_AT_ONCE: Final = 200

#: The timeline of a confirmed database: none that a claim was ever made on.
_CONFIRMED: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentView:
    """A database and what this machine knows of it. `state` is `None` without a state directory."""

    deployment_id: str
    mode: str
    general_worker: str  # on or off
    confirmations: int
    uncleared_since: dt.datetime | None
    settings_name: str | None  # the deployment that the settings name
    state: StateSeen | None
    mark: int | None  # of this state directory, in the database

    @property
    def is_guarded(self) -> bool:
        """Whether a restored database would be noticed on this machine."""
        return self.state is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """What a confirmation did. `keep` is for the state directory, once the transaction has committed."""

    doubted: int  # creates that are in doubt now and were not before
    recovered: int  # claims that were ended, whoever had them
    confirmations: int
    keep: StateSeen | None


def show(conn: Connection, world: World) -> DeploymentView:
    """The database's identity beside this machine's memory of it."""
    found = read_deployment(conn)
    state = None if world.state is None else world.state.seen()
    return DeploymentView(
        deployment_id=found.deployment_id,
        mode=found.mode,
        general_worker=found.general_worker,
        confirmations=found.confirmations,
        uncleared_since=found.uncleared_since,
        settings_name=world.deployment_id,
        state=state,
        mark=None if state is None else restores.read_marks(conn).get(state.state_id),
    )


def switch_general_worker(conn: Connection, *, on: bool, actor: str, reason: str, now: dt.datetime) -> bool:
    """Let workers take every lane, or only creates that wait for another record (DL-03); False: it was so already."""
    _require_reason(reason)
    return set_general_worker(conn, on=on, reason=reason, actor=actor, now=now)


def recover(conn: Connection, *, actor: str, reason: str, now: dt.datetime) -> bool:
    """Enter recovery mode by hand, as after a restore that nobody could notice; False: it was so already."""
    _require_reason(reason)
    return restores.enter_recovery(conn, reason=reason, evidence={}, actor=actor, now=now)


def confirm(
    conn: Connection, world: World, *, actor: str, reason: str, now: dt.datetime, seen: int | None = None
) -> Confirmed:
    """Say that this is the right database, in the caller's transaction: doubt what it may not know, and run again.

    `seen` is how often it had been confirmed when somebody looked. Raises `CallerError` outside of recovery mode, when
    that has changed, or when the settings name another deployment.
    """
    _require_reason(reason)
    found = _seen(conn, seen)
    if found.mode == "running":
        msg = "The deployment is running; there is nothing to confirm."
        raise CallerError(msg, code=Code.NOT_ALLOWED_NOW, next_step="pushlink deployment show")
    if world.deployment_id is not None and world.deployment_id != found.deployment_id:
        raise CallerError(
            "The settings name another deployment than this database is of.",
            code=Code.NOT_ALLOWED_NOW,
            evidence={"settings": world.deployment_id, "database": found.deployment_id},
            next_step=f'if this database is the right one, write deployment_id = "{found.deployment_id}" into them',
        )
    slots.lock_slots(conn, restores.read_updated_keys(conn), nowait=False)  # before any attempt is locked
    doubted = restores.doubt_open_creates(conn, actor=actor, reason=reason, now=now)
    recovered = _recover(conn, actor=actor, now=now)
    evidence = {"in_doubt": doubted, "claims_ended": recovered}
    confirmations = restores.leave_recovery(
        conn, found.confirmations, reason=reason, evidence=evidence, actor=actor, now=now
    )
    if confirmations is None:
        raise _stale(found.confirmations, read_deployment(conn))
    keep = None
    if world.state is not None:
        known = world.state.seen()
        mark = max(known.mark, restores.read_marks(conn).get(known.state_id, 0))
        restores.set_mark(conn, known.state_id, mark, now=now)
        keep = replace(known, deployment_id=found.deployment_id, confirmations=confirmations, mark=mark)
    return Confirmed(doubted=doubted, recovered=recovered, confirmations=confirmations, keep=keep)


def clear(conn: Connection, *, actor: str, reason: str, now: dt.datetime, seen: int | None = None) -> bool:
    """Let records without a link be created again after a confirmation; False when nothing stood in their way."""
    _require_reason(reason)
    _seen(conn, seen)
    return restores.clear(conn, reason=reason, actor=actor, now=now)


def _seen(conn: Connection, seen: int | None) -> Deployment:
    """The deployment, held against what somebody looked at."""
    found = read_deployment(conn)
    if seen is not None and seen != found.confirmations:
        raise _stale(seen, found)
    return found


def _stale(seen: int, found: Deployment) -> CallerError:
    return CallerError(
        "The deployment was confirmed since it was looked at; nothing was done.",
        code=Code.STALE_VERSION,
        evidence={"seen": seen, "current": found.confirmations},
        next_step="look at it again: pushlink deployment show",
    )


def _recover(conn: Connection, *, actor: str, now: dt.datetime) -> int:
    """End every claim as one of an older timeline: its owner may have been another server, at another time."""
    after, count = "", 0
    while rows := restores.read_in_work(conn, after=after, limit=RECOVERED_AT_ONCE):
        after = rows[-1].id
        ended = partial(recovery_of, timeline=_CONFIRMED, replay_authority=True, actor=actor, now=now)
        found = [ended(row, None) for row in rows]
        count += len(make_recoveries(conn, [move for move in found if move is not None], now=now))
    return count


def _require_reason(reason: str) -> None:
    if not reason.strip():
        msg = "This needs a reason."
        raise CallerError(msg, next_step="say why, with --reason")
