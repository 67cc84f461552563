"""The statements of a mapping manifest: its locks, the move of a link's mapping state, and the receipts.

Locks go from the catalogue to slots, links and attempts, each kind in link-key order, and none is waited for longer
than the caller bounds. Attempts are locked and read, never written; records, requests and events are out of reach.
Nothing else in the store reads receipts (RV-11).
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from pushlink.errors import invariant
from pushlink.protocol.manifest import ROW_FIELDS, BoundRow, MappingState
from pushlink.protocol.receipts import Receipt, Standing
from pushlink.protocol.snapshots import InstallId, LinkKey
from pushlink.protocol.states import BLOCKING, UPDATE_OPEN, USABLE_LINKS, AttemptStatus, Operation
from pushlink.store.access import translated
from pushlink.store.dialect import Batch, Lock, bound_lock_waits, take_lock
from pushlink.store.revision import require_current
from pushlink.store.rows import LinkRow, columns_of, read_rows, values_of
from pushlink.store.tables import (
    UtcTime,
    deployment,
    pack_install,
    push_attempt,
    push_slot,
    remote_link,
    revalidation_receipt,
)


@contextmanager
def rehearsing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction with all the locks of a real one that leaves nothing, however the block ends."""
    with translated(), engine.connect() as conn, conn.begin() as transaction:
        require_current(conn)
        yield conn
        transaction.rollback()


# ------------------------------------------------------------------------------------------------ locks


def lock_catalog(conn: sa.Connection, *, wait_ms: int) -> None:
    """Bound every wait of this transaction, then keep the catalogue as it is: no pack changes and no send begins."""
    bound_lock_waits(conn, wait_ms)
    take_lock(conn, Lock.CATALOG)


def lock_keys(conn: sa.Connection, keys: Sequence[LinkKey]) -> set[LinkKey]:
    """Lock the push slots of these keys, in their order; answers with those that are there."""
    return {LinkKey(row.link_key) for row in _LOCK_SLOTS(conn, [(key,) for key in keys])}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLink:
    """A link under its lock: what a manifest binds of it, and the version of the row."""

    row: BoundRow
    row_version: int


def lock_holders(conn: sa.Connection, keys: Sequence[LinkKey]) -> dict[LinkKey, HeldLink]:
    """The links that hold these keys' slots, locked for a change in the keys' order."""
    return {link.link_key: _held(link) for link in read_rows(LinkRow, _LOCK_LINKS(conn, [(key,) for key in keys]))}


def lock_attempts(conn: sa.Connection, keys: Sequence[LinkKey]) -> dict[LinkKey, list[Standing]]:
    """Attempts of these keys that are not over, locked so that nobody claims one meanwhile."""
    found: dict[LinkKey, list[Standing]] = defaultdict(list)
    for row in _LOCK_ATTEMPTS(conn, [(key,) for key in keys]):
        standing = Standing(id=row.id, operation=Operation(row.operation), status=AttemptStatus(row.status))
        found[LinkKey(row.link_key)].append(standing)
    return found


# ------------------------------------------------------------------------------------------------ reads


def read_holders(conn: sa.Connection, keys: Sequence[LinkKey]) -> dict[LinkKey, LinkRow]:
    """The links that hold these keys' slots, without a lock: to make a manifest of."""
    return {link.link_key: link for link in read_rows(LinkRow, _READ_LINKS(conn, [(key,) for key in keys]))}


def read_by_id(conn: sa.Connection, ids: Sequence[str]) -> dict[str, HeldLink]:
    """Links by their ids, whatever became of their slots since."""
    return {link.id: _held(link) for link in read_rows(LinkRow, _READ_BY_ID(conn, [(i,) for i in ids]))}


def count_receipts(conn: sa.Connection, operation_id: str) -> int:
    """How many links an operation has moved."""
    return int(conn.execute(_COUNT, {"operation": operation_id}).scalar_one())


def read_receipts_of(conn: sa.Connection, operation_id: str, keys: Sequence[LinkKey]) -> dict[LinkKey, Receipt]:
    """The receipts of one operation for these keys."""
    found = _READ_OPERATION(conn, [(key,) for key in keys], operation=operation_id)
    return {receipt.link_key: receipt for receipt in read_rows(Receipt, found)}


def read_histories(conn: sa.Connection, link_ids: Sequence[str]) -> dict[str, dict[str, Receipt]]:
    """Every receipt of these links: by link, then by operation."""
    found: dict[str, dict[str, Receipt]] = defaultdict(dict)
    for receipt in read_rows(Receipt, _READ_HISTORIES(conn, [(i,) for i in link_ids])):
        found[receipt.link_id][receipt.operation_id] = receipt
    return found


def read_owners(conn: sa.Connection, install_ids: Sequence[InstallId]) -> dict[str, tuple[str, str]]:
    """Tenant and owner of each install that ever was."""
    return {row.id: (row.tenant, row.connector_owner_key) for row in _READ_OWNERS(conn, [(i,) for i in install_ids])}


# ------------------------------------------------------------------------------------------------ writes


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingMove:
    """One link's new mapping state, bound to the row version and the state that were read under its lock."""

    link_id: str
    row_version: int
    pointer: str | None
    old: MappingState
    new: MappingState


def move_mappings(
    conn: sa.Connection, moves: Sequence[MappingMove], operation_id: str, *, now: dt.datetime
) -> list[bool]:
    """Write each state and the pointer to the receipt; False where the row was not as named."""
    if not moves:
        return []
    rows = [(m.link_id, m.row_version, m.pointer, *_values(m.old), *_values(m.new)) for m in moves]
    written = {row.id for row in _MOVE(conn, rows, operation=operation_id, moved_at=now)}
    return [move.link_id in written for move in moves]


def insert_receipts(conn: sa.Connection, receipts: Sequence[Receipt]) -> None:
    """Append receipts; nobody can change or remove one."""
    if receipts:
        conn.execute(revalidation_receipt.insert(), [values_of(receipt) for receipt in receipts])


def announce(conn: sa.Connection, *, now: dt.datetime) -> None:
    """Count the catalogue up, so that every worker judges held updates anew; call it under the catalogue's lock."""
    done = conn.execute(
        sa.update(deployment).values(catalog_revision=deployment.c.catalog_revision + 1, updated_at=now)
    )
    invariant(done.rowcount == 1, "There is one deployment.", rows=done.rowcount)


def _held(link: LinkRow) -> HeldLink:
    return HeldLink(row={name: getattr(link, name) for name in ROW_FIELDS}, row_version=link.row_version)


def row_of(link: LinkRow) -> BoundRow:
    """What a manifest binds of a link."""
    return _held(link).row


def _values(state: MappingState) -> tuple[str, str, str]:
    return state.mapping_fingerprint, state.body_fingerprint, state.install_id


# ----------------------------------------------------------------------------------------------- statements, built once


def _lock_slots(rows: sa.FromClause) -> sa.Executable:
    t = push_slot
    chosen = sa.select(t.c.link_key).where(t.c.link_key.in_(sa.select(rows.c.link_key)))
    return chosen.order_by(t.c.link_key).with_for_update(key_share=True, of=t)


def _read_links(rows: sa.FromClause) -> sa.Select[tuple[object, ...]]:
    t = remote_link
    chosen = sa.select(*columns_of(LinkRow, t)).where(t.c.slot_key.in_(sa.select(rows.c.link_key)))
    return chosen.order_by(t.c.link_key)


def _lock_links(rows: sa.FromClause) -> sa.Executable:
    return _read_links(rows).with_for_update(key_share=True, of=remote_link)


def _read_by_id(rows: sa.FromClause) -> sa.Executable:
    t = remote_link
    return sa.select(*columns_of(LinkRow, t)).where(t.c.id.in_(sa.select(rows.c.id)))


def _lock_attempts(rows: sa.FromClause) -> sa.Executable:
    t = push_attempt
    creates = sa.and_(t.c.operation == Operation.CREATE.value, t.c.status.in_(sorted(BLOCKING)))
    updates = sa.and_(t.c.operation == Operation.UPDATE.value, t.c.status.in_(sorted(UPDATE_OPEN)))
    return (
        sa.select(t.c.id, t.c.link_key, t.c.operation, t.c.status)
        .where(t.c.link_key.in_(sa.select(rows.c.link_key)), sa.or_(creates, updates))
        .order_by(t.c.link_key, t.c.id)
        .with_for_update(key_share=True, of=t)
    )


def _read_operation(rows: sa.FromClause) -> sa.Executable:
    t = revalidation_receipt
    operation = sa.bindparam("operation", type_=sa.Text())
    return sa.select(*columns_of(Receipt, t)).where(
        t.c.operation_id == operation, t.c.link_key.in_(sa.select(rows.c.link_key))
    )


def _read_histories(rows: sa.FromClause) -> sa.Executable:
    t = revalidation_receipt
    return sa.select(*columns_of(Receipt, t)).where(t.c.link_id.in_(sa.select(rows.c.id)))


def _read_owners(rows: sa.FromClause) -> sa.Executable:
    t = pack_install
    return sa.select(t.c.id, t.c.tenant, t.c.connector_owner_key).where(t.c.id.in_(sa.select(rows.c.id)))


def _move(rows: sa.FromClause) -> sa.Executable:
    t, m = remote_link, rows.c
    return (
        sa.update(t)
        .where(
            t.c.id == m.id,
            t.c.row_version == m.version,
            t.c.mapping_fingerprint == m.old_mapping,
            t.c.body_fingerprint == m.old_body,
            t.c.validated_install_id == m.old_install,
            t.c.last_mapping_revalidation_operation_id.is_not_distinct_from(m.pointer),
            t.c.status.in_(sorted(USABLE_LINKS)),
        )
        .values(
            mapping_fingerprint=m.new_mapping,
            body_fingerprint=m.new_body,
            validated_install_id=m.new_install,
            last_mapping_revalidation_operation_id=sa.bindparam("operation", type_=sa.Text()),
            updated_at=sa.bindparam("moved_at", type_=UtcTime()),
            row_version=t.c.row_version + 1,
        )
        .returning(t.c.id)
    )


_KEYS: Final = Batch("keys", {"link_key": sa.Text()})
_IDS: Final = Batch("ids", {"id": sa.Text()})
_MOVES: Final = Batch(
    "moves",
    {
        "id": sa.Text(),
        "version": sa.BigInteger(),
        "pointer": sa.Text(),
        "old_mapping": sa.Text(),
        "old_body": sa.Text(),
        "old_install": sa.Text(),
        "new_mapping": sa.Text(),
        "new_body": sa.Text(),
        "new_install": sa.Text(),
    },
)
_COUNT: Final = (
    sa.select(sa.func.count())
    .select_from(revalidation_receipt)
    .where(revalidation_receipt.c.operation_id == sa.bindparam("operation", type_=sa.Text()))
)
_LOCK_SLOTS: Final = _KEYS.prepare(_lock_slots)
_LOCK_LINKS: Final = _KEYS.prepare(_lock_links)
_READ_LINKS: Final = _KEYS.prepare(_read_links)
_READ_BY_ID: Final = _IDS.prepare(_read_by_id)
_LOCK_ATTEMPTS: Final = _KEYS.prepare(_lock_attempts)
_READ_OPERATION: Final = _KEYS.prepare(_read_operation)
_READ_HISTORIES: Final = _IDS.prepare(_read_histories)
_READ_OWNERS: Final = _IDS.prepare(_read_owners)
_MOVE: Final = _MOVES.prepare(_move)
