"""What stands under each slot: counts for people, and the live links of one slot a page at a time.

Nothing is locked and nothing is decided; whoever acts on a row names its version.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import sqlalchemy as sa

from pushlink.protocol.snapshots import LinkKey
from pushlink.protocol.states import BLOCKING, LinkStatus, Operation
from pushlink.store.rows import AttemptRow, LinkRow, columns_of, read_row, read_rows
from pushlink.store.tables import push_attempt, push_slot, remote_link


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """How many links that are not retired, and how many creates that are not over."""

    links: int = 0
    creates: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCreate:
    """A create that keeps its slot from being resolved, and its record."""

    attempt: AttemptRow
    source_object: str
    source_record_id: str


def count_owned(conn: sa.Connection, *, tenant: str) -> Mapping[str, Owned]:
    """By action slot, over all its destinations."""
    links, creates = remote_link, push_attempt
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    live = (
        sa.select(links.c.action_slot_id, sa.func.count())
        .where(links.c.tenant == tenant, links.c.status != LinkStatus.RETIRED.value)
        .group_by(links.c.action_slot_id)
    )
    blocking = (
        sa.select(push_slot.c.action_slot_id, sa.func.count())
        .join_from(push_slot, creates, creates.c.create_key == push_slot.c.link_key)
        .where(push_slot.c.tenant == tenant, creates.c.status.in_(sorted(BLOCKING)))
        .group_by(push_slot.c.action_slot_id)
    )
    for place, statement in enumerate((live, blocking)):
        for slot_id, count in conn.execute(statement):
            found[slot_id][place] = count
    return {slot_id: Owned(links=links, creates=creates) for slot_id, (links, creates) in found.items()}


def read_live_links(
    conn: sa.Connection, *, tenant: str, action_slot_id: str, after: LinkKey | None, limit: int
) -> list[LinkRow]:
    """The next links of a slot that are not retired, in the order of their keys."""
    t = remote_link
    statement = sa.select(*columns_of(LinkRow, t)).where(
        t.c.tenant == tenant, t.c.action_slot_id == action_slot_id, t.c.status != LinkStatus.RETIRED.value
    )
    if after is not None:
        statement = statement.where(t.c.link_key > after)
    return read_rows(LinkRow, conn.execute(statement.order_by(t.c.link_key).limit(limit)))


def read_open_creates(conn: sa.Connection, *, tenant: str, action_slot_id: str, limit: int) -> Sequence[OpenCreate]:
    """The first creates of a slot that are not over, in the order of their keys."""
    t, s = push_attempt, push_slot
    statement = (
        sa.select(*columns_of(AttemptRow, t), s.c.source_object, s.c.source_record_id)
        .join_from(s, t, t.c.create_key == s.c.link_key)
        .where(
            s.c.tenant == tenant,
            s.c.action_slot_id == action_slot_id,
            t.c.operation == Operation.CREATE.value,
            t.c.status.in_(sorted(BLOCKING)),
        )
        .order_by(t.c.link_key)
        .limit(limit)
    )
    return [
        OpenCreate(
            attempt=read_row(AttemptRow, cast("sa.Row[Any]", row[:-2])),
            source_object=row.source_object,
            source_record_id=row.source_record_id,
        )
        for row in conn.execute(statement)
    ]
