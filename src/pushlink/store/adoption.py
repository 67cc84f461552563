"""The statements of adoptions: what stands under keys and remote records, and the receipts.

A plan reads here without locks, an apply and a rollback under the push slots' locks. Links are written by `lifecycle/`
alone, as everywhere. Nothing outside of migrations imports this module (MG-08).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import sqlalchemy as sa

from pushlink.protocol.adoption import HeldLink, OurRows
from pushlink.protocol.adoption_receipts import AdoptionReceipt, Deed
from pushlink.protocol.snapshots import LinkKey, LocatorKey
from pushlink.protocol.states import AttemptStatus, Hold, LinkStatus, Operation
from pushlink.store import attempts, links, slots
from pushlink.store.dialect import Batch
from pushlink.store.rows import AttemptRow, LinkRow, SlotRow, columns_of, read_rows, values_of
from pushlink.store.tables import adoption_receipt, push_attempt, remote_link

#: Attempts that wait for a remote record of another key and are let go at once.
CONFLICTS_MAX: Final = 1_000


def read_our_rows(
    conn: sa.Connection, claims: Mapping[LinkKey, LocatorKey], claimants: Mapping[LocatorKey, str], *, lock: bool
) -> dict[LinkKey, OurRows]:
    """What stands under each key and under the remote record that is claimed for it; lock the slots before, to apply.

    `claimants` are the attempts that `read_claimants` found, by the remote record that they were given.
    """
    keys = list(claims)
    held = links.read_links(conn, keys, lock=lock)
    owners = links.read_locators(conn, [claims[key] for key in keys])
    creates = attempts.read_open_attempts(conn, keys)
    known = slots.read_slots(conn, keys)
    given_up = _read_given_up(conn, keys)
    return {
        key: OurRows(
            versions=None if slot is None else _versions(slot),
            link=None if link is None else _held(link),
            create=None if standing.create is None else (standing.create.id, standing.create.status),
            given_up=frozenset(given_up.get(key, ())),
            owner=None if owner is None else f"{owner.source_object} {owner.source_record_id}",
            claimant=claimants.get(claims[key]),
        )
        for key, link, owner, standing, slot in zip(keys, held, owners, creates, known, strict=True)
    }


def read_claimants(conn: sa.Connection, *, tenant: str, destination_slot_id: str) -> list[tuple[str, str]]:
    """Creates that were given a remote id at this destination and have no link for it yet: attempt and remote id.

    Few at any time: each of them waits for a person, or for a claim that is due at once.
    """
    t, link = push_attempt, remote_link
    has_link = sa.select(link.c.id).where(link.c.slot_key == t.c.link_key)
    waiting = (t.c.status == AttemptStatus.WRITEBACK_PENDING.value, t.c.remote_id.is_not(None))
    mine = (t.c.tenant == tenant, t.c.destination_slot_id == destination_slot_id)
    statement = sa.select(t.c.id, t.c.remote_id).where(
        *mine, *waiting, t.c.operation == Operation.CREATE.value, ~has_link.exists()
    )
    return [(row.id, row.remote_id) for row in conn.execute(statement)]


def read_waiting_for(conn: sa.Connection, tenant: str) -> list[AttemptRow]:
    """The attempts that wait because a link of another key has their remote record."""
    t = push_attempt
    statement = sa.select(*columns_of(AttemptRow, t)).where(
        t.c.tenant == tenant, t.c.hold_code == Hold.LOCATOR_CONFLICT.value
    )
    return read_rows(AttemptRow, conn.execute(statement.order_by(t.c.link_key).limit(CONFLICTS_MAX)))


def _read_given_up(conn: sa.Connection, keys: Sequence[LinkKey]) -> dict[LinkKey, set[str]]:
    """Canonical ids of retired links of these keys, but for those that a rollback of an adoption retired."""
    found: dict[LinkKey, set[str]] = defaultdict(set)
    for row in _GIVEN_UP(conn, [(key,) for key in keys]):
        found[LinkKey(row.link_key)].add(row.remote_id_canonical)
    return found


def _versions(slot: SlotRow) -> tuple[int, int, int, int]:
    return slot.create_ordinal, slot.wanted_version, slot.acknowledged_version, slot.refused_version


def _held(link: LinkRow) -> HeldLink:
    return HeldLink(
        status=link.status,
        remote_id=link.remote_id,
        canonical=link.remote_id_canonical,
        is_live=link.locator_key is not None,
    )


# ------------------------------------------------------------------------------------------------ receipts


def read_histories(conn: sa.Connection, keys: Sequence[LinkKey]) -> dict[LinkKey, list[AdoptionReceipt]]:
    """Every receipt of these keys."""
    found: dict[LinkKey, list[AdoptionReceipt]] = defaultdict(list)
    for receipt in _receipts(_HISTORIES(conn, [(key,) for key in keys])):
        found[receipt.link_key].append(receipt)
    return found


def read_adopted(
    conn: sa.Connection, operation_id: str, *, tenant: str, after: LinkKey | None, limit: int
) -> list[AdoptionReceipt]:
    """The next adoptions of an operation in link-key order."""
    t = adoption_receipt
    statement = sa.select(*columns_of(AdoptionReceipt, t)).where(
        t.c.operation_id == operation_id, t.c.tenant == tenant, t.c.deed == Deed.ADOPT.value
    )
    if after is not None:
        statement = statement.where(t.c.link_key > after)
    return _receipts(conn.execute(statement.order_by(t.c.link_key).limit(limit)))


def read_manifest_digests(conn: sa.Connection, operation_id: str) -> set[str]:
    """The manifests that were applied under an operation's id: one, or none."""
    t = adoption_receipt
    statement = sa.select(t.c.manifest_digest).where(t.c.operation_id == operation_id).distinct().limit(2)
    return set(conn.execute(statement).scalars())


def count_adopted(conn: sa.Connection, operation_id: str, *, tenant: str) -> int:
    """How many links an operation has adopted."""
    t = adoption_receipt
    count = sa.select(sa.func.count()).select_from(t)
    statement = count.where(t.c.operation_id == operation_id, t.c.tenant == tenant, t.c.deed == Deed.ADOPT.value)
    return int(conn.execute(statement).scalar_one())


def insert_receipts(conn: sa.Connection, receipts: Sequence[AdoptionReceipt]) -> None:
    """Append receipts; nobody can change or remove one."""
    if receipts:
        conn.execute(adoption_receipt.insert(), [values_of(receipt) for receipt in receipts])


def _receipts(result: sa.Result[tuple[object, ...]]) -> list[AdoptionReceipt]:
    return read_rows(AdoptionReceipt, result)


# ----------------------------------------------------------------------------------------------- statements, built once


def _given_up_statement(rows: sa.FromClause) -> sa.Executable:
    t, r = remote_link, adoption_receipt
    rolled_back = sa.select(r.c.link_id).where(r.c.link_id == t.c.id, r.c.deed == Deed.ROLL_BACK.value)
    return sa.select(t.c.link_key, t.c.remote_id_canonical).where(
        t.c.link_key.in_(sa.select(rows.c.link_key)), t.c.status == LinkStatus.RETIRED.value, ~rolled_back.exists()
    )


def _histories_statement(rows: sa.FromClause) -> sa.Executable:
    t = adoption_receipt
    return sa.select(*columns_of(AdoptionReceipt, t)).where(t.c.link_key.in_(sa.select(rows.c.link_key)))


_KEYS: Final = Batch("keys", {"link_key": sa.Text()})
_GIVEN_UP: Final = _KEYS.prepare(_given_up_statement)
_HISTORIES: Final = _KEYS.prepare(_histories_statement)
