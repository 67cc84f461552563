"""Databases whose checkpoints this machine remembers before anything that they allow is sent (D-36).

The mark of a group is kept after its commit and before its sends, on the thread that committed: a crash in between
leaves the database ahead of the state directory, which is no conflict.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from pushlink.errors import Code, ConfigurationError, Unavailable
from pushlink.flows.drivers import Database, Failed
from pushlink.flows.effects import Step, Tx
from pushlink.flows.marks import Checked, CheckIn
from pushlink.flows.step_items import Granted, Permission, Withheld
from pushlink.flows.world import World
from pushlink.ports import StateKeeper
from pushlink.protocol.states import CreateEvent, Operation, UpdateEvent
from pushlink.store import lifecycle
from pushlink.store.lifecycle import Claims, Lost, Move, Moved

#: How long attempts rest when the state directory did not take their mark, in seconds.
REST_S: Final = 5.0


def check_in(world: World, database: Database, *, actor: str) -> bool:
    """Compare, let the state directory keep what came of it, and say whether anything may be sent.

    Call it on a thread that may wait. Raises `ConfigurationError` and `Unavailable`.
    """
    step = CheckIn(world).check_in
    [result] = database.commit(step, [Tx(step=step, item=actor, key="")])
    if isinstance(result, Failed):
        raise result.error
    if isinstance(result, Checked) and result.keep is not None and world.state is not None:
        world.state.keep(result.keep)
    return bool(result.is_running)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedDatabase(Database):
    """A database whose checkpoints are known to the state directory before anything that they allow is sent."""

    state: StateKeeper

    def commit(self, step: Step, txs: Sequence[Tx]) -> list[Any]:
        """As in `Database`; then the highest mark of the group is kept, or nothing of the group may be sent."""
        results = Database.commit(self, step, txs)
        raised = [result.seen for result in results if isinstance(result, Granted) and result.seen is not None]
        if not raised:
            return results
        try:
            self.state.keep(max(raised, key=lambda seen: (seen.confirmations, seen.mark)))
        except (Unavailable, ConfigurationError) as error:
            return [
                self._taken_back(tx, error) if isinstance(result, Granted) else result
                for tx, result in zip(txs, results, strict=True)
            ]
        return results

    def _taken_back(self, tx: Tx, error: Exception) -> Withheld | Failed:
        """No byte was sent under this checkpoint, and its owner lives: the attempt goes back in line (D-05)."""
        [moved] = Database.commit(self, take_back, [Tx(step=take_back, item=tx.item, key=tx.key)])
        return moved if isinstance(moved, Failed) else Withheld(because=str(error))


def database_of(world: World, engine: sa.Engine) -> Database:
    """Where the flows of a world run their transactions."""
    if world.state is None:
        return Database(engine=engine, clock=world.clock)
    return GuardedDatabase(engine=engine, clock=world.clock, state=world.state)


def take_back(conn: sa.Connection, items: Sequence[Permission], *, now: dt.datetime) -> Sequence[Moved | Lost]:
    """Return checkpointed attempts that were proved unsent to `pending`; what was in doubt before stays so."""
    moves = [
        Move(
            row=item.attempt,
            event=_NOT_SENT[item.attempt.operation],
            token=item.token,
            actor=item.actor,
            reason_code=Code.NOT_SENT,
            detail={"because": "the state directory did not take the mark"},
            not_before=now + dt.timedelta(seconds=REST_S),
            claims=Claims.FORGIVE,
        )
        for item in items
    ]
    return lifecycle.move_attempts(conn, moves, now=now)


_NOT_SENT: Final[Mapping[Operation, CreateEvent | UpdateEvent]] = {
    Operation.CREATE: CreateEvent.NOT_APPLIED,
    Operation.UPDATE: UpdateEvent.NOT_APPLIED,
}
