"""Push slots: one row per link key, locked before anything that decides about that key.

The lock order is slot, then link, then attempt, and within a kind by link key. Versions live here: what is wanted, what
the remote acknowledged, and what it refused.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import sqlalchemy as sa

from pushlink.protocol.snapshots import Digest, LinkKey
from pushlink.store.dialect import Batch, array_rows, insert_ignore
from pushlink.store.events import write_json
from pushlink.store.rows import SlotIdentity, SlotRow, SlotVersions, columns_of, read_rows
from pushlink.store.tables import UtcTime, push_slot

_IDENTITY = (
    "link_key",
    "tenant",
    "connector_owner_key",
    "action_slot_id",
    "destination_slot_id",
    "source_object",
    "source_record_id",
)


def open_slots(conn: sa.Connection, items: Sequence[SlotIdentity], *, now: dt.datetime) -> list[SlotRow]:
    """Make the slots that are not there yet, then lock all of them in link-key order and read them."""
    if not items:
        return []
    _OPEN(conn, [(*(getattr(item, name) for name in _IDENTITY), now) for item in items])
    locked = lock_slots(conn, [item.link_key for item in items], nowait=False)
    return [slot for slot in locked if slot is not None]


def lock_slots(conn: sa.Connection, keys: Sequence[LinkKey], *, nowait: bool) -> list[SlotRow | None]:
    """Lock and read; with `nowait` a slot that a slow host holds raises at once, and the caller's group is split."""
    if not keys:
        return []
    locked = _LOCK_NOWAIT if nowait else _LOCK
    found = {row.link_key: row for row in read_rows(SlotRow, locked(conn, [(key,) for key in sorted(set(keys))]))}
    return [found.get(key) for key in keys]


def hold_free_slots(conn: sa.Connection, keys: Sequence[LinkKey]) -> frozenset[LinkKey]:
    """Lock those of these slots that nobody else holds, without waiting for any; for whoever holds later locks."""
    if not keys:
        return frozenset()
    return frozenset(LinkKey(row.link_key) for row in _HOLD_FREE(conn, [(key,) for key in sorted(set(keys))]))


def lock_versions(conn: sa.Connection, keys: Sequence[LinkKey]) -> list[SlotVersions | None]:
    """Lock as `lock_slots` with `nowait` does, and read the versions alone."""
    if not keys:
        return []
    locked = _LOCK_VERSIONS(conn, [(key,) for key in sorted(set(keys))])
    found = {row.link_key: row for row in read_rows(SlotVersions, locked)}
    return [found.get(key) for key in keys]


def read_slots(conn: sa.Connection, keys: Sequence[LinkKey]) -> list[SlotRow | None]:
    """Read without a lock: for claims and for people, never for a gate."""
    if not keys:
        return []
    found = {row.link_key: row for row in read_rows(SlotRow, _READ(conn, [(key,) for key in keys]))}
    return [found.get(key) for key in keys]


def read_identities(conn: sa.Connection, keys: Sequence[LinkKey]) -> list[SlotIdentity | None]:
    """Read what never changes of a slot: enough for a create, whose values are frozen in its request."""
    if not keys:
        return []
    found = {row.link_key: row for row in read_rows(SlotIdentity, _READ_IDENTITY(conn, [(key,) for key in keys]))}
    return [found.get(key) for key in keys]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A version that a save's gates let through: all mapped values, frozen under its own author's authority."""

    link_key: LinkKey
    values: str
    sealed_by: str | None = None
    values_digest: Digest
    authority: str
    mapping_fingerprint: Digest
    associations: str | None  # the frozen vector; None for an action without associations
    order_key: str | None  # what it is sent in order with
    takes_ordinal: bool  # True when the same transaction reserves a create


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedVersion:
    """The numbers that a recorded version was given."""

    version: int
    ordinal: int


def record_wanted(conn: sa.Connection, items: Sequence[Wanted], *, now: dt.datetime) -> list[WantedVersion]:
    """Make each the slot's wanted version (nothing is merged across authors); call it under the slot's lock."""
    if not items:
        return []
    rows = [
        (
            i.link_key,
            i.values,
            i.sealed_by,
            i.values_digest,
            i.authority,
            i.mapping_fingerprint,
            i.associations,
            i.order_key,
            i.takes_ordinal,
        )
        for i in items
    ]
    found = {
        row.link_key: WantedVersion(version=row.wanted_version, ordinal=row.create_ordinal)
        for row in _RECORD(conn, rows, wanted_now=now)
    }
    return [found[item.link_key] for item in items]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """What the remote said of one version: it has it, or it refused it (with safe evidence)."""

    link_key: LinkKey
    version: int
    values_digest: Digest | None  # of what was applied; None when the version was refused
    refused: Mapping[str, object] | None = None


def acknowledge_versions(conn: sa.Connection, items: Sequence[Acknowledgement]) -> None:
    """Move `acknowledged_version` or `refused_version` up to the version that was sent; never back, never past it."""
    if not items:
        return
    _ACKNOWLEDGE(conn, [(i.link_key, i.version, i.values_digest, write_json(i.refused)) for i in items])


def forget_applied(conn: sa.Connection, keys: Sequence[LinkKey]) -> None:
    """After an update whose effect is unknown nobody can say what the remote holds: no later body is "the same"."""
    if not keys:
        return
    rows = array_rows(conn, "keys", {"link_key": sa.Text()}, [(key,) for key in keys])
    conn.execute(
        sa.update(push_slot)
        .where(push_slot.c.link_key == rows.c.link_key)
        .values(applied_values_digest=sa.null(), row_version=push_slot.c.row_version + 1)
    )


def mark_stale_mapping(conn: sa.Connection, keys: Sequence[LinkKey]) -> None:
    """The wanted version was frozen under a mapping that was revalidated away; a backfill saves it again."""
    if not keys:
        return
    rows = array_rows(conn, "keys", {"link_key": sa.Text()}, [(key,) for key in keys])
    conn.execute(
        sa.update(push_slot)
        .where(push_slot.c.link_key == rows.c.link_key)
        .values(wanted_state="stale_mapping", row_version=push_slot.c.row_version + 1)
    )


def write_called(conn: sa.Connection, items: Sequence[tuple[LinkKey, str]]) -> None:
    """Remember which associations calls of their own have told the remote; call it under the slot's lock."""
    if not items:
        return
    rows = array_rows(conn, "called", {"link_key": sa.Text(), "calls": sa.Text()}, list(items))
    conn.execute(
        sa.update(push_slot)
        .where(push_slot.c.link_key == rows.c.link_key)
        .values(called_associations=rows.c.calls, row_version=push_slot.c.row_version + 1)
    )


def take_ordinal(conn: sa.Connection, key: LinkKey) -> int:
    """The ordinal of the create that is reserved now, without a new wanted version; call it under the slot's lock."""
    t = push_slot
    statement = (
        sa.update(t)
        .where(t.c.link_key == key)
        .values(create_ordinal=t.c.create_ordinal + 1, row_version=t.c.row_version + 1)
        .returning(t.c.create_ordinal)
    )
    return int(conn.execute(statement).scalar_one())


def release_refused(conn: sa.Connection, key: LinkKey) -> None:
    """Let the version that the remote refused be sent again; what it said of it stays in events and replies."""
    t = push_slot
    conn.execute(
        sa.update(t)
        .where(t.c.link_key == key)
        .values(
            refused_version=0,
            refused_evidence=sa.null(),
            wanted_state=sa.null(),
            row_version=t.c.row_version + 1,
        )
    )


def reset_versions(conn: sa.Connection, key: LinkKey) -> None:
    """A released slot begins anew: nothing is wanted, acknowledged, refused or applied. Only the ordinal goes on."""
    t = push_slot
    conn.execute(
        sa.update(t)
        .where(t.c.link_key == key)
        .values(
            wanted_version=0,
            wanted_values=sa.null(),
            wanted_sealed_by=sa.null(),
            wanted_values_digest=sa.null(),
            wanted_authority=sa.null(),
            wanted_mapping_fingerprint=sa.null(),
            wanted_associations=sa.null(),
            called_associations=sa.null(),
            wanted_state=sa.null(),
            wanted_at=sa.null(),
            acknowledged_version=0,
            applied_values_digest=sa.null(),
            refused_version=0,
            refused_evidence=sa.null(),
            row_version=t.c.row_version + 1,
        )
    )


def lock_record_slots(conn: sa.Connection, *, tenant: str, source_object: str, source_record_id: str) -> list[SlotRow]:
    """Every slot of one record, whatever action it is of, locked in link-key order."""
    t = push_slot
    statement = (
        sa.select(*columns_of(SlotRow, t))
        .where(
            t.c.tenant == tenant,
            t.c.source_object == source_object,
            t.c.source_record_id == source_record_id,
        )
        .order_by(t.c.link_key)
        .with_for_update(key_share=True, of=t)
    )
    return read_rows(SlotRow, conn.execute(statement))


def mark_source_deleted(conn: sa.Connection, keys: Sequence[LinkKey], *, now: dt.datetime) -> None:
    """Remember that the host told of a local delete; a later save of the same id clears it."""
    if not keys:
        return
    rows = array_rows(conn, "keys", {"link_key": sa.Text()}, [(key,) for key in keys])
    conn.execute(
        sa.update(push_slot)
        .where(push_slot.c.link_key == rows.c.link_key)
        .values(
            source_deleted_at=sa.bindparam("deleted_now", now, UtcTime()),
            row_version=push_slot.c.row_version + 1,
        )
    )


def _open_statement(rows: sa.FromClause) -> sa.Executable:
    names = list(_SEEN.columns)
    chosen = sa.select(*(rows.c[name] for name in names)).where(sa.true()).order_by(rows.c.link_key)
    return insert_ignore(push_slot).from_select(names, chosen)


def _lock_statement(rows: sa.FromClause, *, kind: type[Any], nowait: bool) -> sa.Executable:
    t = push_slot
    return (
        sa.select(*columns_of(kind, t))
        .where(t.c.link_key.in_(sa.select(rows.c.link_key)))
        .order_by(t.c.link_key)
        .with_for_update(nowait=nowait, key_share=True, of=t)
    )


def _hold_free_statement(rows: sa.FromClause) -> sa.Executable:
    t = push_slot
    chosen = sa.select(t.c.link_key).where(t.c.link_key.in_(sa.select(rows.c.link_key))).order_by(t.c.link_key)
    return chosen.with_for_update(skip_locked=True, key_share=True, of=t)


def _read_statement(rows: sa.FromClause, *, kind: type[Any]) -> sa.Executable:
    t = push_slot
    return sa.select(*columns_of(kind, t)).join_from(rows, t, t.c.link_key == rows.c.link_key)


def _record_statement(rows: sa.FromClause) -> sa.Executable:
    t, w = push_slot, rows.c
    return (
        sa.update(t)
        .where(t.c.link_key == w.link_key)
        .values(
            wanted_version=t.c.wanted_version + 1,
            wanted_values=w.new_values,
            wanted_sealed_by=w.new_sealed_by,
            wanted_values_digest=w.new_digest,
            wanted_authority=w.new_authority,
            wanted_mapping_fingerprint=w.new_mapping,
            wanted_associations=w.new_associations,
            order_key=w.new_order,
            wanted_state=sa.null(),
            wanted_at=sa.bindparam("wanted_now", type_=UtcTime()),
            create_ordinal=t.c.create_ordinal + sa.case((w.takes_ordinal, 1), else_=0),
            source_deleted_at=sa.null(),
            row_version=t.c.row_version + 1,
        )
        .returning(t.c.link_key, t.c.wanted_version, t.c.create_ordinal)
    )


def _acknowledge_statement(rows: sa.FromClause) -> sa.Executable:
    t, a = push_slot, rows.c
    applied = sa.and_(a.refusal.is_(None), a.sent > t.c.acknowledged_version)
    refused = sa.and_(a.refusal.is_not(None), a.sent > t.c.refused_version)
    return (
        sa.update(t)
        .where(t.c.link_key == a.link_key)
        .values(
            acknowledged_version=sa.case((applied, a.sent), else_=t.c.acknowledged_version),
            applied_values_digest=sa.case((applied, a.digest), else_=t.c.applied_values_digest),
            refused_version=sa.case((refused, a.sent), else_=t.c.refused_version),
            refused_evidence=sa.case((refused, a.refusal), else_=t.c.refused_evidence),
            wanted_state=sa.case(
                (sa.and_(refused, a.sent == t.c.wanted_version), "refused_version"), else_=t.c.wanted_state
            ),
            row_version=t.c.row_version + 1,
        )
    )


_SEEN: Final = Batch("seen", {**{name: sa.Text() for name in _IDENTITY}, "created_at": UtcTime()})
_OPEN: Final = _SEEN.prepare(_open_statement)
_KEYS: Final = Batch("keys", {"link_key": sa.Text()})
_LOCK: Final = _KEYS.prepare(partial(_lock_statement, kind=SlotRow, nowait=False))
_LOCK_NOWAIT: Final = _KEYS.prepare(partial(_lock_statement, kind=SlotRow, nowait=True))
_HOLD_FREE: Final = _KEYS.prepare(_hold_free_statement)
_LOCK_VERSIONS: Final = _KEYS.prepare(partial(_lock_statement, kind=SlotVersions, nowait=True))
_READ: Final = _KEYS.prepare(partial(_read_statement, kind=SlotRow))
_READ_IDENTITY: Final = _KEYS.prepare(partial(_read_statement, kind=SlotIdentity))
_RECORD: Final = Batch(
    "wanted",
    {
        "link_key": sa.Text(),
        "new_values": sa.Text(),
        "new_sealed_by": sa.Text(),
        "new_digest": sa.Text(),
        "new_authority": sa.Text(),
        "new_mapping": sa.Text(),
        "new_associations": sa.Text(),
        "new_order": sa.Text(),
        "takes_ordinal": sa.Boolean(),
    },
).prepare(_record_statement)
_ACKNOWLEDGE: Final = Batch(
    "answers",
    {"link_key": sa.Text(), "sent": sa.BigInteger(), "digest": sa.Text(), "refusal": sa.Text()},
).prepare(_acknowledge_statement)
