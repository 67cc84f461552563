"""The update that is due next, made in the transaction that opens its way (PA-10, D-19).

Nobody is told and nothing is queued elsewhere: whoever finalizes a link or ends its update compares the wanted version
with the one that was just dealt with, under the slot's lock, and reserves the difference as one update attempt. Where
no newer version waits, an association that has a call of its own and was not told yet is the next one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from pushlink.flows.step_items import Answer
from pushlink.ports import Ids
from pushlink.protocol.associations import due_call, read_called, read_vector, write_called
from pushlink.protocol.snapshots import AttemptId, LinkKey
from pushlink.protocol.states import Lane, Operation, UpdateEvent
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
    found = [(i, due_of(i.slot, beyond=i.after.version)) for i in items]
    due = [(i, what) for i, what in found if what is not None]
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
                version=what.version,
                association=what.association,
                freeze_count=0,
                not_before=now,
                expires_at=None,
                actor=i.actor,
                detail={"follows": i.after.id},
            )
            for i, what in due
        ],
        now=now,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What a link wants next: an update to its wanted version, or one association's call of its own."""

    version: int
    association: str | None = None


def due_of(slot: SlotRow | SlotVersions, *, beyond: int) -> Due | None:
    """What is due once version `beyond` was dealt with; `None` when nothing is."""
    if slot.wanted_version > max(beyond, slot.refused_version):
        return Due(version=slot.wanted_version)
    if slot.wanted_associations is None:
        return None
    call = due_call(read_vector(slot.wanted_associations), read_called(slot.called_associations))
    return None if call is None else Due(version=slot.wanted_version, association=call.name)


def after_call(attempt: AttemptRow, slot: SlotRow | SlotVersions) -> AttemptRow:
    """The attempt as what a follow-up comes after: a call of its own has dealt with no version."""
    return attempt if attempt.association is None else replace(attempt, version=slot.acknowledged_version)


def after_answer(item: Answer, slot: SlotRow | SlotVersions) -> AttemptRow:
    """The same for an answer; a create that left something unsaid has dealt with no version either."""
    return replace(item.attempt, version=0) if item.is_partial else after_call(item.attempt, slot)


def called_by(item: Answer, slot: SlotRow | SlotVersions | None) -> tuple[LinkKey, str] | None:
    """What an answered call of its own adds to what was told; a refused one is not made again by itself."""
    if item.called is None or slot is None or item.event not in (UpdateEvent.APPLIED, UpdateEvent.REJECT):
        return None
    return slot.link_key, _told(item, slot)


def with_called(item: Answer, slot: SlotVersions) -> SlotVersions:
    """The slot as it stands after the answer."""
    return slot if called_by(item, slot) is None else replace(slot, called_associations=_told(item, slot))


def _told(item: Answer, slot: SlotRow | SlotVersions) -> str:
    name = item.attempt.association or ""
    return write_called({**read_called(slot.called_associations), name: item.called or ""})


def _lane(after: AttemptRow) -> Lane:
    is_deferred = after.dispatch_lane == Lane.DEFERRED_ASSOCIATION.value
    goes_on = after.operation is Operation.CREATE or after.association is not None
    return Lane.DEFERRED_ASSOCIATION if is_deferred and goes_on else Lane.CONFIGURED
