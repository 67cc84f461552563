"""Links: reads, and the writes that change no status. Inserts and transitions are in `lifecycle.py`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import sqlalchemy as sa

from pushlink.protocol.snapshots import Digest, InstallId, LinkKey, LocatorKey
from pushlink.protocol.states import MirrorStatus
from pushlink.store.dialect import Batch, Prepared, array_rows
from pushlink.store.rows import LinkRow, columns_of, read_row, read_rows
from pushlink.store.tables import UtcTime, remote_link


def read_links(conn: sa.Connection, keys: Sequence[LinkKey], *, lock: bool = False) -> list[LinkRow | None]:
    """The link that holds each key's slot (retired ones too, while the slot is closed); with `lock`, share-locked."""
    return _read(conn, _LOCK_BY_SLOT if lock else _BY_SLOT, "slot_key", keys)


def read_locators(conn: sa.Connection, locators: Sequence[LocatorKey]) -> list[LinkRow | None]:
    """The live link that owns each remote record."""
    return _read(conn, _BY_LOCATOR, "locator_key", locators)


def lock_link(conn: sa.Connection, link_id: str) -> LinkRow | None:
    """One link by its id, locked for a change; call it under its slot's lock."""
    t = remote_link
    statement = sa.select(*columns_of(LinkRow, t)).where(t.c.id == link_id).with_for_update(key_share=True, of=t)
    row = conn.execute(statement).first()
    return None if row is None else read_row(LinkRow, row)


def read_link(conn: sa.Connection, link_id: str) -> LinkRow | None:
    """One link by its id, without a lock."""
    t = remote_link
    row = conn.execute(sa.select(*columns_of(LinkRow, t)).where(t.c.id == link_id)).first()
    return None if row is None else read_row(LinkRow, row)


def _read(conn: sa.Connection, prepared: Prepared, name: str, keys: Sequence[str]) -> list[LinkRow | None]:
    if not keys:
        return []
    rows = read_rows(LinkRow, prepared(conn, [(key,) for key in sorted(set(keys))]))
    found = {getattr(row, name): row for row in rows}
    return [found.get(key) for key in keys]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOutcome:
    """What became of a link's mirror."""

    link_key: LinkKey
    status: MirrorStatus


def set_mirror_status(conn: sa.Connection, items: Sequence[MirrorOutcome], *, now: dt.datetime) -> None:
    """Record the last mirror status; the mirror is never authority, so this bumps no version that a gate reads."""
    _write_column(conn, "mirror_status", {i.link_key: i.status.value for i in items}, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenVersion:
    """The version of a linked record as an answer showed it; `None` when it was changed and none was shown."""

    link_key: LinkKey
    version: str | None


def write_versions(conn: sa.Connection, items: Sequence[SeenVersion], *, now: dt.datetime) -> None:
    """Keep the remote's version of each linked record; no gate reads it, so no row version is bumped."""
    _write_column(conn, "remote_version", {i.link_key: i.version for i in items}, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownNames:
    """The names of flow, action, profile and namespace that a link shows from now on."""

    link_key: LinkKey
    names: str


def write_names(conn: sa.Connection, items: Sequence[ShownNames], *, now: dt.datetime) -> None:
    """Show each link under the names of now; names are never identity, so this bumps no version that a gate reads."""
    _write_column(conn, "names", {i.link_key: i.names for i in items}, now=now)


def _write_column(conn: sa.Connection, column: str, texts: Mapping[LinkKey, str | None], *, now: dt.datetime) -> None:
    """Write one text of each of these slots' links, in their order; no row version is bumped."""
    if not texts:
        return
    pairs = [(key, texts[key]) for key in sorted(texts)]
    rows = array_rows(conn, "written", {"link_key": sa.Text(), "content": sa.Text()}, pairs)
    conn.execute(
        sa.update(remote_link)
        .where(remote_link.c.slot_key == rows.c.link_key)
        .values({column: rows.c.content, "updated_at": sa.bindparam("written_at", now, UtcTime())})
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What a link is validated against from now on. Its mapping and body fingerprints belong to manifests alone."""

    link_id: str
    row_version: int
    install_id: InstallId
    profile_digest: Digest
    action_digest: Digest
    names: str
    destination_scope: str
    remote_id_canonical: str
    locator_key: LocatorKey


def write_validation(conn: sa.Connection, item: Validation, *, now: dt.datetime) -> bool:
    """Write it on the row version that was read; False when the row has moved on."""
    return _rewrite(
        conn,
        item.link_id,
        item.row_version,
        now,
        validated_install_id=item.install_id,
        profile_digest=item.profile_digest,
        action_digest=item.action_digest,
        names=item.names,
        destination_scope=item.destination_scope,
        remote_id_canonical=item.remote_id_canonical,
        locator_key=item.locator_key,
        reason_code=None,
        evidence=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    """The remote record that a link points to from now on."""

    link_id: str
    row_version: int
    remote_id: str
    remote_id_canonical: str
    locator_key: LocatorKey


def write_relocations(conn: sa.Connection, items: Sequence[Relocation], *, now: dt.datetime) -> list[bool]:
    """Write each on the row version that was read; what was known of the old record's version goes with it.

    The unique key of remote records has the last word: an id that another live link has raises an integrity error.
    """
    return [
        _rewrite(
            conn,
            item.link_id,
            item.row_version,
            now,
            remote_id=item.remote_id,
            remote_id_canonical=item.remote_id_canonical,
            locator_key=item.locator_key,
            remote_version=None,
        )
        for item in items
    ]


def _rewrite(conn: sa.Connection, link_id: str, row_version: int, now: dt.datetime, **values: object) -> bool:
    t = remote_link
    statement = (
        sa.update(t)
        .where(t.c.id == link_id, t.c.row_version == row_version)
        .values(**values, updated_at=now, row_version=t.c.row_version + 1)
    )
    return conn.execute(statement).rowcount == 1


def _read_statement(rows: sa.FromClause, *, column: sa.Column[str | None], lock: bool) -> sa.Executable:
    t = remote_link
    statement = sa.select(*columns_of(LinkRow, t)).where(column.in_(sa.select(rows.c.wanted_key)))
    return statement.order_by(t.c.link_key).with_for_update(read=True, of=t) if lock else statement


_KEYS: Final = Batch("keys", {"wanted_key": sa.Text()})
_BY_SLOT: Final = _KEYS.prepare(partial(_read_statement, column=remote_link.c.slot_key, lock=False))
_LOCK_BY_SLOT: Final = _KEYS.prepare(partial(_read_statement, column=remote_link.c.slot_key, lock=True))
_BY_LOCATOR: Final = _KEYS.prepare(partial(_read_statement, column=remote_link.c.locator_key, lock=False))
