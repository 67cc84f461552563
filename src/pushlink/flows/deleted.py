"""A local delete, told by the host in its own transaction: it never deletes anything remotely.

What was never sent of the record ends here; a create that may have landed becomes ambiguous; links stay as evidence for
whoever decides about them. A later save of the same id begins where these rows stand, so nothing is created twice.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from pushlink.errors import Code
from pushlink.ports import RecordRef
from pushlink.protocol.snapshots import AttemptId, LinkKey
from pushlink.protocol.states import (
    CLAIMED_IN_PLACE,
    KNOWN_LANES,
    LEASED,
    UNSETTLED,
    CreateEvent,
    LinkStatus,
    Operation,
    UpdateEvent,
    sources,
)
from pushlink.store import attempts, lifecycle, links, slots
from pushlink.store.attempts import OpenAttempts
from pushlink.store.events import Event, insert_events
from pushlink.store.lifecycle import Move, Moved
from pushlink.store.rows import AttemptRow

_OPEN: Final = LEASED | UNSETTLED | CLAIMED_IN_PLACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """What a local delete meant for one action of the record."""

    link_key: LinkKey
    ended: tuple[AttemptId, ...]  # attempts that will not be sent any more
    open: tuple[AttemptId, ...]  # attempts that are in work or in doubt, and end by their own rules
    link_status: LinkStatus | None  # the link that stays


def mark_deleted(conn: sa.Connection, ref: RecordRef, *, tenant: str, actor: str, now: dt.datetime) -> list[Deleted]:
    """End what was never sent and mark the rest, under the locks of the record's slots."""
    found = slots.lock_record_slots(
        conn, tenant=tenant, source_object=ref.source_object, source_record_id=ref.record_id
    )
    keys = [slot.link_key for slot in found]
    standing = attempts.read_open_attempts(conn, keys)
    moves = [move for one in standing for row in _rows(one) if (move := _ending(row, ref, actor)) is not None]
    results = lifecycle.move_attempts(conn, moves, now=now)
    ended = {move.row.id for move, result in zip(moves, results, strict=True) if isinstance(result, Moved)}
    slots.mark_source_deleted(conn, keys, now=now)
    insert_events(
        conn,
        [
            Event(
                attempt_id=None,
                link_key=slot.link_key,
                tenant=tenant,
                subject="slot",
                event="source_deleted",
                actor=actor,
                reason=Code.SOURCE_GONE,
                row_version=slot.row_version + 1,
            )
            for slot in found
        ],
        now=now,
    )
    return [
        Deleted(
            link_key=key,
            ended=tuple(row.id for row in _rows(one) if row.id in ended),
            open=tuple(row.id for row in _rows(one) if row.id not in ended and row.status in _OPEN),
            link_status=link.status if link is not None else None,
        )
        for key, one, link in zip(keys, standing, links.read_links(conn, keys), strict=True)
    ]


def _rows(one: OpenAttempts) -> list[AttemptRow]:
    return [row for row in (one.create, one.update) if row is not None]


def _ending(row: AttemptRow, ref: RecordRef, actor: str) -> Move | None:
    """The move that ends an attempt nobody has claimed; `None` for one that is claimed, finished or a person's.

    One of a lane that this release does not know is a person's: nothing but a repair of its lane touches it (D-39).
    """
    event: CreateEvent | UpdateEvent = UpdateEvent.OBSOLETE
    if row.operation is Operation.CREATE:
        event = CreateEvent.DOUBT if row.in_doubt else CreateEvent.END_UNSENT
    if row.claim_token is not None or row.status not in sources(event) or row.dispatch_lane not in KNOWN_LANES:
        return None
    return Move(
        row=row,
        event=event,
        actor=actor,
        reason_code=Code.SOURCE_GONE,
        detail={"source_object": ref.source_object},
    )
