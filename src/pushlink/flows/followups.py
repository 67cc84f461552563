"""The update that is due next, made in the transaction that opens its way (PA-10, D-19).

Nobody is told and nothing is queued elsewhere: whoever finalizes a link or ends its update compares the wanted version
with the one that was just dealt with, under the slot's lock, and reserves the difference as one update attempt.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from pushlink.ports import Ids
from pushlink.protocol.snapshots import AttemptId
from pushlink.protocol.states import Lane, Operation
from pushlink.store import lifecycle
from pushlink.store.lifecycle import Moved, NewAttempt, Occupied
from pushlink.store.rows import AttemptRow, SlotRow, SlotVersions


@dataclass(frozen=True, slots=True, kw_only=True)
class Followup:
    """A slot whose way is open, as it was read under its lock, and the attempt that opened it."""

    slot: SlotRow | SlotVersions
    after: AttemptRow
    actor: str


def insert_followups(
    conn: sa.Connection, items: Sequence[Followup], *, ids: Ids, now: dt.datetime
) -> list[Moved | Occupied]:
    """Reserve one update for each slot that wants a newer version than the one that was dealt with."""
    due = [i for i in items if i.slot.wanted_version > max(i.after.version, i.slot.refused_version)]
    return lifecycle.insert_attempts(
        conn,
        [
            NewAttempt(
                id=AttemptId(ids.fresh()),
                link_key=i.slot.link_key,
                tenant=i.slot.tenant,
                destination_slot_id=i.slot.destination_slot_id,
                operation=Operation.UPDATE,
                lane=_lane(i.after),
                ordinal=0,
                version=i.slot.wanted_version,
                freeze_count=0,
                not_before=now,
                expires_at=None,
                actor=i.actor,
                detail={"follows": i.after.id},
            )
            for i in due
        ],
        now=now,
    )


def _lane(after: AttemptRow) -> Lane:
    follows_deferred_create = (
        after.operation is Operation.CREATE and after.dispatch_lane == Lane.DEFERRED_ASSOCIATION.value
    )
    return Lane.DEFERRED_ASSOCIATION if follows_deferred_create else Lane.CONFIGURED
