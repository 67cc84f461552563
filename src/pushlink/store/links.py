"""Links: reads, and the writes that change no status. Inserts and transitions are in `lifecycle.py`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from pushlink.protocol.snapshots import LinkKey, LocatorKey
from pushlink.protocol.states import MirrorStatus
from pushlink.store.dialect import array_rows
from pushlink.store.rows import LinkRow, columns_of, read_row
from pushlink.store.tables import UtcTime, remote_link


def read_links(conn: sa.Connection, keys: Sequence[LinkKey], *, lock: bool = False) -> list[LinkRow | None]:
    """The link that holds each key's slot (retired ones too, while the slot is closed); with `lock`, share-locked."""
    return _read(conn, remote_link.c.slot_key, keys, lock=lock)


def read_locators(conn: sa.Connection, locators: Sequence[LocatorKey]) -> list[LinkRow | None]:
    """The live link that owns each remote record."""
    return _read(conn, remote_link.c.locator_key, locators, lock=False)


def _read(
    conn: sa.Connection, column: sa.Column[str | None], keys: Sequence[str], *, lock: bool
) -> list[LinkRow | None]:
    if not keys:
        return []
    rows = array_rows(conn, "keys", {"wanted_key": sa.Text()}, [(key,) for key in sorted(set(keys))])
    t = remote_link
    statement = sa.select(*columns_of(LinkRow, t)).where(column.in_(sa.select(rows.c.wanted_key)))
    if lock:
        statement = statement.order_by(t.c.link_key).with_for_update(read=True, of=t)
    found = {getattr(row, column.name): read_row(LinkRow, row) for row in conn.execute(statement)}
    return [found.get(key) for key in keys]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOutcome:
    """What became of a link's mirror."""

    link_key: LinkKey
    status: MirrorStatus


def set_mirror_status(conn: sa.Connection, items: Sequence[MirrorOutcome], *, now: dt.datetime) -> None:
    """Record the last mirror status; the mirror is never authority, so this bumps no version that a gate reads."""
    if not items:
        return
    rows = array_rows(
        conn,
        "mirrors",
        {"link_key": sa.Text(), "outcome": sa.Text()},
        [(i.link_key, i.status.value) for i in sorted(items, key=lambda i: i.link_key)],
    )
    conn.execute(
        sa.update(remote_link)
        .where(remote_link.c.slot_key == rows.c.link_key)
        .values(mirror_status=rows.c.outcome, updated_at=sa.bindparam("mirrored_at", now, UtcTime()))
    )
