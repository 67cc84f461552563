"""Whether this database is the one that this machine knows: ids and marks compared, in transactions (D-36).

The database and the state directory both know the deployment and a mark that every group of checkpoints raises. At the
start, and again in each checkpoint's own transaction, the two are compared. Where they disagree the deployment goes
into recovery mode, by itself and for all processes: reads and operator verbs only, until somebody confirms.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import sqlalchemy as sa

from pushlink.errors import ConfigurationError
from pushlink.flows.world import World
from pushlink.ports import StateKeeper, StateSeen
from pushlink.store import restores
from pushlink.store.catalog import Deployment, read_deployment

BEHIND: Final = "the database is behind what the state directory has seen"
ANOTHER: Final = "the database is of another deployment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a comparison came to: whether anything may be sent, and what the state directory is to keep."""

    is_running: bool
    keep: StateSeen | None = None


class CheckIn:
    """The comparison at the start of a worker or a dispatch, as a step of a driver."""

    def __init__(self, world: World) -> None:
        self._world = world

    def check_in(self, conn: sa.Connection, items: Sequence[str], *, now: dt.datetime) -> list[Checked]:
        """For each actor whether it may send.

        Raises `ConfigurationError` for a new state directory on a database that others work on, unless the settings
        name the deployment: a copy of a database looks exactly like that.
        """
        return [self._check_in(conn, actor, now) for actor in items]

    def _check_in(self, conn: sa.Connection, actor: str, now: dt.datetime) -> Checked:
        found, expected = read_deployment(conn), self._world.deployment_id
        if expected is not None and expected != found.deployment_id:
            evidence = {"settings": expected, "database": found.deployment_id}
            restores.enter_recovery(conn, reason=ANOTHER, evidence=evidence, actor=actor, now=now)
            return Checked(is_running=False)
        state = self._world.state
        if state is None:
            return Checked(is_running=found.mode == "running")
        seen = state.seen()
        marks = restores.read_marks(conn)
        if seen.deployment_id is None and expected is None and marks:
            raise _unknown_directory(found)
        if found.mode != "running":
            return Checked(is_running=False)
        known = marks.get(seen.state_id)
        keep = _aligned(conn, self._world, found, seen, known, actor=actor, now=now)
        return Checked(is_running=keep is not None, keep=keep)


def raise_mark(
    conn: sa.Connection, world: World, state: StateKeeper, *, actor: str, now: dt.datetime
) -> StateSeen | None:
    """Count the mark up in a checkpoint's transaction; `None` when the database turned out to be an older one."""
    seen = state.seen()
    mark = restores.raise_mark(conn, seen.state_id, now=now)
    if mark is not None and mark > seen.mark and seen.deployment_id is not None:
        return replace(seen, mark=mark)
    found, known = read_deployment(conn), None if mark is None else mark - 1
    if _aligned(conn, world, found, seen, known, actor=actor, now=now) is None:
        return None
    raised = restores.raise_mark(conn, seen.state_id, now=now) or 0
    return replace(seen, deployment_id=found.deployment_id, confirmations=found.confirmations, mark=raised)


def _aligned(
    conn: sa.Connection,
    world: World,
    found: Deployment,
    seen: StateSeen,
    known: int | None,
    *,
    actor: str,
    now: dt.datetime,
) -> StateSeen | None:
    """What the state directory is to know from now on, its mark in the database included; `None`: recovery."""
    if seen.deployment_id is None:
        if world.deployment_id is None and restores.read_marks(conn):
            raise _unknown_directory(found)
    elif (conflict := _conflict(found, seen, known)) is not None:
        reason, evidence = conflict
        restores.enter_recovery(conn, reason=reason, evidence=evidence, actor=actor, now=now)
        return None
    mark = max(seen.mark, known or 0)
    restores.set_mark(conn, seen.state_id, mark, now=now)
    return replace(seen, deployment_id=found.deployment_id, confirmations=found.confirmations, mark=mark)


def _conflict(found: Deployment, seen: StateSeen, known: int | None) -> tuple[str, dict[str, object]] | None:
    """Why this database cannot be the one that was seen, with both sides."""
    if seen.deployment_id != found.deployment_id:
        return ANOTHER, {"state": seen.deployment_id, "database": found.deployment_id}
    # A confirmation that this directory has not heard of yet put everything in doubt that the database may lack.
    if (seen.confirmations, seen.mark) <= (found.confirmations, known or 0):
        return None
    return BEHIND, {
        "marks": {"state": seen.mark, "database": known},
        "confirmations": {"state": seen.confirmations, "database": found.confirmations},
    }


def _unknown_directory(found: Deployment) -> ConfigurationError:
    return ConfigurationError(
        "This state directory is new, and others have worked on this database: it may be a copy.",
        evidence={"deployment_id": found.deployment_id},
        next_step=f'if these settings belong to it, write deployment_id = "{found.deployment_id}" into them',
    )
