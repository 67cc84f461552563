"""The statements of a rebind manifest: its locks, the move of every row of a slot, the receipts, and the lineage.

Locks go from the catalogue to slots, links and attempts, each kind in link-key order over old and new keys together,
and none is waited for longer than the caller bounds. No status is written, and nothing append-only: events, replies and
the audit stay under the key that they were written for, and receipts lead from one key to the other.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

import sqlalchemy as sa

from pushlink.protocol.rebind_receipts import RebindReceipt
from pushlink.protocol.rebinding import ATTEMPT_FIELDS, LINK_FIELDS, SLOT_FIELDS, Standing
from pushlink.protocol.snapshots import LinkKey, Slots
from pushlink.protocol.states import LEASED, AttemptStatus
from pushlink.store import registry
from pushlink.store.association_tables import association_wait, association_wake
from pushlink.store.catalog import read_owning
from pushlink.store.dialect import Batch
from pushlink.store.registry import IN_USE, RegisteredSlot, SlotKind, SlotName, SlotStatus
from pushlink.store.rows import columns_of, read_rows, values_of
from pushlink.store.tables import operator_action, push_attempt, push_slot, rebind_receipt, remote_link

#: The tables whose rows belong to a link key and move with it; what is append-only stays where it was written.
MOVED: Final = (push_slot, remote_link, push_attempt)

#: What says who waits for whom, by keys alone: each of its columns follows a key that moves.
FOLLOWING: Final = (association_wait.c.link_key, association_wait.c.target_link_key, association_wake.c.target_link_key)

#: The word of the audit for an operation; its evidence names the manifest.
AUDITED_AS: Final = "slot rebind"

_IDENTITY: Final = ("tenant", "connector_owner_key", "action_slot_id", "destination_slot_id", "source_object")
_ANY_KEY: Final = re.compile(r"lk1_[0-9a-f]{64}")


# ------------------------------------------------------------------------------------------------ reads


def read_identities(conn: sa.Connection, *, tenant: str, action_slot_id: str) -> list[Slots]:
    """Every identity under which rows of an action slot stand, whether or not the registry knows it."""
    found: set[Slots] = set()
    for table in (push_slot, remote_link):
        columns = [table.c[name] for name in _IDENTITY]
        chosen = sa.select(*columns).where(table.c.tenant == tenant, table.c.action_slot_id == action_slot_id)
        found |= {Slots(**row) for row in conn.execute(chosen.distinct()).mappings()}
    return sorted(found, key=lambda slots: (slots.connector_owner_key, slots.destination_slot_id))


def read_population(conn: sa.Connection, slots: Slots) -> dict[LinkKey, str]:
    """The record of every key that has rows under a slot, in the order of the keys."""
    found: dict[LinkKey, str] = {}
    for table in (push_slot, remote_link):
        same = [table.c[name] == getattr(slots, name) for name in _IDENTITY]
        for row in conn.execute(sa.select(table.c.link_key, table.c.source_record_id).where(*same)):
            found[LinkKey(row.link_key)] = row.source_record_id
    return dict(sorted(found.items()))


def read_standing(conn: sa.Connection, keys: Sequence[LinkKey], *, now: dt.datetime) -> dict[LinkKey, Standing]:
    """Everything that stands under these keys, without a lock."""
    return _standing(conn, keys, (_READ_SLOTS, _READ_LINKS, _READ_ATTEMPTS), now)


def read_owners(conn: sa.Connection, locators: Collection[str]) -> dict[str, str]:
    """The record whose live link has each of these locators."""
    rows = _READ_OWNERS(conn, [(key,) for key in sorted(locators)]) if locators else ()
    return {row.locator_key: f"{row.source_object} {row.source_record_id} (link {row.id})" for row in rows}


def read_operation(conn: sa.Connection, operation_id: str) -> str | None:
    """The digest of the manifest that was applied under this id, if one was."""
    t = operator_action
    statement = sa.select(t.c.evidence).where(
        t.c.verb == AUDITED_AS, t.c.target_kind == "manifest", t.c.target_id == operation_id
    )
    found = conn.execute(statement.limit(1)).scalar_one_or_none()
    return None if found is None else str(json.loads(found)["manifest_digest"])


def count_receipts(conn: sa.Connection, operation_id: str) -> int:
    """How many records an operation has moved."""
    t = rebind_receipt
    counted = sa.select(sa.func.count()).select_from(t).where(t.c.operation_id == operation_id)
    return int(conn.execute(counted).scalar_one())


def read_receipts(conn: sa.Connection, operation_id: str, keys: Sequence[LinkKey]) -> dict[LinkKey, RebindReceipt]:
    """The receipts of one operation, by the key that the rows left."""
    found = read_rows(RebindReceipt, _READ_OPERATION(conn, [(key,) for key in keys], operation=operation_id))
    return {receipt.old_link_key: receipt for receipt in found}


def read_arrivals(conn: sa.Connection, keys: Sequence[LinkKey]) -> dict[LinkKey, RebindReceipt]:
    """The newest receipt that brought rows to each key."""
    found = read_rows(RebindReceipt, _READ_ARRIVALS(conn, [(key,) for key in keys]))
    return {receipt.new_link_key: receipt for receipt in found}


def read_former_keys(conn: sa.Connection, keys: Sequence[LinkKey]) -> dict[LinkKey, set[LinkKey]]:
    """For each key the ones that its rows had before, near and far: what was written for them stays there."""
    former: dict[LinkKey, set[LinkKey]] = {key: set() for key in keys}
    leads_to: dict[LinkKey, set[LinkKey]] = {key: {key} for key in keys}
    while leads_to:
        further: dict[LinkKey, set[LinkKey]] = defaultdict(set)
        for row in _READ_DEPARTED(conn, [(key,) for key in sorted(leads_to)]):
            old = LinkKey(row.old_link_key)
            for key in leads_to[row.new_link_key]:
                if old not in former[key] and old != key:
                    former[key].add(old)
                    further[old].add(key)
        leads_to = further
    return former


# ------------------------------------------------------------------------------------------------ locks


def lock_slots(conn: sa.Connection, keys: Sequence[LinkKey]) -> None:
    """Lock the push slots of these keys; give them in link-key order over all batches."""
    _LOCK_SLOTS(conn, [(key,) for key in keys]).all()


def lock_standing(conn: sa.Connection, keys: Sequence[LinkKey], *, now: dt.datetime) -> dict[LinkKey, Standing]:
    """Lock the links, then the attempts of these keys, and read all that stands there; their slots are locked."""
    return _standing(conn, keys, (_READ_SLOTS, _LOCK_LINKS, _LOCK_ATTEMPTS), now)


def _standing(
    conn: sa.Connection, keys: Sequence[LinkKey], statements: Sequence[Any], now: dt.datetime
) -> dict[LinkKey, Standing]:
    slots, links, attempts = ([dict(r) for r in each(conn, [(k,) for k in keys]).mappings()] for each in statements)
    of: dict[str, tuple[list[Any], list[Any], list[str]]] = defaultdict(lambda: ([], [], []))
    for link in links:
        of[link["link_key"]][0].append(link)
    for attempt in attempts:
        token, until = attempt.pop("claim_token"), attempt.pop("lease_until")
        of[attempt["link_key"]][1].append(attempt)
        is_claimed = token is not None and until is not None and until > now
        if is_claimed or AttemptStatus(attempt["status"]) in LEASED:
            of[attempt["link_key"]][2].append(attempt["id"])
    slot_of = {slot["link_key"]: slot for slot in slots}
    return {
        key: Standing(
            slot=slot_of.get(key),
            links=tuple(of[key][0]),
            attempts=tuple(of[key][1]),
            in_work=tuple(of[key][2]),
        )
        for key in keys
    }


# ------------------------------------------------------------------------------------------------ writes


def drop_bare_slots(conn: sa.Connection, keys: Sequence[LinkKey]) -> None:
    """Remove slots that a refused save left behind, of which nothing ever came."""
    if keys:
        _DROP_BARE(conn, [(key,) for key in keys])


def move_rows(conn: sa.Connection, old: Mapping[LinkKey, Standing], new: Mapping[LinkKey, Standing]) -> set[LinkKey]:
    """Write the rows of each old key as `new` has them; answers with the keys of which a row was not as named."""
    moves: dict[str, list[tuple[Any, ...]]] = {"slots": [], "links": [], "attempts": []}
    for key, after in new.items():
        slot = () if after.slot is None else (after.slot,)
        for kind, rows, names in (
            ("slots", slot, _SLOT_MOVE),
            ("links", after.links, _LINK_MOVE),
            ("attempts", after.attempts, _ATTEMPT_MOVE),
        ):
            moves[kind] += [tuple({**row, "old": key}[name] for name in names) for row in rows]
    written: dict[str, int] = defaultdict(int)
    for statement, kind in ((_MOVE_SLOTS, "slots"), (_MOVE_LINKS, "links"), (_MOVE_ATTEMPTS, "attempts")):
        for row in statement(conn, moves[kind]) if moves[kind] else ():
            written[row.link_key] += 1
    changed = [(key, _key_of(after)) for key, after in new.items()]
    for follow in _FOLLOW if changed else ():
        follow(conn, changed)
    return {key for key, after in new.items() if written[_key_of(after)] != _count(old[key])}


def _key_of(standing: Standing) -> str:
    first = standing.slot or next(iter((*standing.links, *standing.attempts)))
    return str(first["link_key"])


def _count(standing: Standing) -> int:
    return (standing.slot is not None) + len(standing.links) + len(standing.attempts)


def insert_receipts(conn: sa.Connection, receipts: Sequence[RebindReceipt]) -> None:
    """Append receipts; nobody can change or remove one."""
    if receipts:
        conn.execute(rebind_receipt.insert(), [values_of(receipt) for receipt in receipts])


def readdress_holds(conn: sa.Connection, tenant: str, keys: Mapping[LinkKey, LinkKey]) -> int:
    """Let the evidence of holds that names a moved key name its new one, whosever attempt it is."""
    t = push_attempt
    rows = conn.execute(
        sa.select(t.c.id, t.c.detail)
        .where(t.c.tenant == tenant, t.c.hold_code.is_not(None), t.c.detail.like("%lk1\\_%", escape="\\"))
        .order_by(t.c.link_key, t.c.id)
        .with_for_update(key_share=True, of=t)
    ).all()
    changed = [
        (row.id, detail)
        for row in rows
        if (detail := _ANY_KEY.sub(lambda m: keys.get(LinkKey(m[0]), m[0]), row.detail)) != row.detail
    ]
    if changed:
        _READDRESS(conn, changed)
    return len(changed)


def record_lineage(conn: sa.Connection, old: Slots, new: Slots, *, install_id: str, now: dt.datetime) -> SlotStatus:
    """Name the successor of a slot in the registry, so that no pack can have it again; answers with its status.

    A slot that the registry has never seen (an action of before it had slots) is entered under its old name.
    """
    known = {slot.name: slot for slot in registry.read_registry(conn, tenant=old.tenant)}
    slot = known.get(SlotName((SlotKind.ACTION, old.action_slot_id))) or _never_seen(old, install_id, now)
    slot = registry.rebind(slot, old, new, now=now)
    is_over = slot.status not in IN_USE and not read_owning(conn, registry.ended_stays(slot))
    if is_over and old.action_slot_id != new.action_slot_id:
        slot = registry.end_lineage(slot, new.action_slot_id, now=now)
    registry.write_slots(conn, known, [slot])
    return slot.status


def _never_seen(old: Slots, install_id: str, now: dt.datetime) -> RegisteredSlot:
    return RegisteredSlot(
        tenant=old.tenant,
        kind=SlotKind.ACTION,
        slot_id=old.action_slot_id,
        connector_owner_key=old.connector_owner_key,
        source_object=old.source_object,
        display_name=old.action_slot_id,
        install_id=install_id,
        status=SlotStatus.DROPPED,
        successor_slot_id=None,
        stays=(),
        first_seen_at=now,
        updated_at=now,
    )


# ----------------------------------------------------------------------------------------------- statements, built once


def _of_keys(rows: sa.FromClause, table: sa.Table, names: Sequence[str], *, lock: bool) -> sa.Executable:
    order = [table.c[name] for name in ("link_key", "id") if name in table.c]
    chosen = sa.select(*(table.c[name] for name in names)).where(table.c.link_key.in_(sa.select(rows.c.link_key)))
    chosen = chosen.order_by(*order)
    return chosen.with_for_update(key_share=True, of=table) if lock else chosen


def _move_slots(rows: sa.FromClause) -> sa.Executable:
    t, m = push_slot, rows.c
    values = {name: m[name] for name in _SLOT_MOVE if name != "old"}
    return (
        sa.update(t)
        .where(t.c.link_key == m.old)
        .values(**values, row_version=t.c.row_version + 1)
        .returning(t.c.link_key)
    )


def _move(rows: sa.FromClause, table: sa.Table, names: Sequence[str]) -> Any:
    m = rows.c
    return (
        sa.update(table)
        .where(table.c.id == m.id, table.c.link_key == m.old)
        .values(**{name: m[name] for name in names if name not in {"old", "id"}}, row_version=table.c.row_version + 1)
        .returning(table.c.link_key)
    )


def _move_attempts(rows: sa.FromClause) -> Any:
    # A claim that is over goes with the move: whoever still holds its token would look for the rows under the old key.
    t = push_attempt
    return _move(rows, t, _ATTEMPT_MOVE).values(claim_token=sa.null(), lease_until=sa.null())


def _follow(rows: sa.FromClause, column: sa.Column[str]) -> sa.Executable:
    return sa.update(column.table).where(column == rows.c.old).values({column: rows.c.link_key})


def _drop_bare(rows: sa.FromClause) -> sa.Executable:
    t = push_slot
    return sa.delete(t).where(
        t.c.link_key.in_(sa.select(rows.c.link_key)), t.c.create_ordinal == 0, t.c.wanted_version == 0
    )


def _readdress(rows: sa.FromClause) -> sa.Executable:
    t = push_attempt
    return sa.update(t).where(t.c.id == rows.c.id).values(detail=rows.c.detail, row_version=t.c.row_version + 1)


def _read_owners(rows: sa.FromClause) -> sa.Executable:
    t = remote_link
    return sa.select(t.c.id, t.c.locator_key, t.c.source_object, t.c.source_record_id).where(
        t.c.locator_key.in_(sa.select(rows.c.link_key))
    )


def _read_operation(rows: sa.FromClause) -> sa.Executable:
    t = rebind_receipt
    operation = sa.bindparam("operation", type_=sa.Text())
    return sa.select(*columns_of(RebindReceipt, t)).where(
        t.c.operation_id == operation, t.c.old_link_key.in_(sa.select(rows.c.link_key))
    )


def _read_arrivals(rows: sa.FromClause) -> sa.Executable:
    t = rebind_receipt
    chosen = sa.select(*columns_of(RebindReceipt, t)).where(t.c.new_link_key.in_(sa.select(rows.c.link_key)))
    return chosen.order_by(t.c.applied_at, t.c.operation_id)


def _read_departed(rows: sa.FromClause) -> sa.Executable:
    t = rebind_receipt
    return sa.select(t.c.old_link_key, t.c.new_link_key).where(t.c.new_link_key.in_(sa.select(rows.c.link_key)))


_KEYS: Final = Batch("keys", {"link_key": sa.Text()})
_SLOT_MOVE: Final = ("old", "link_key", "connector_owner_key", "action_slot_id", "destination_slot_id")
_LINK_MOVE: Final = (
    "old",
    "id",
    "link_key",
    "slot_key",
    "locator_key",
    "connector_owner_key",
    "action_slot_id",
    "destination_slot_id",
)
_ATTEMPT_MOVE: Final = ("old", "id", "link_key", "create_key", "update_key", "destination_slot_id")
_CLAIMS: Final = ("claim_token", "lease_until")


def _texts(name: str, columns: Sequence[str]) -> Batch:
    return Batch(name, dict.fromkeys(columns, sa.Text()))


_READ_SLOTS: Final = _KEYS.prepare(partial(_of_keys, table=push_slot, names=SLOT_FIELDS, lock=False))
_LOCK_SLOTS: Final = _KEYS.prepare(partial(_of_keys, table=push_slot, names=("link_key",), lock=True))
_READ_LINKS: Final = _KEYS.prepare(partial(_of_keys, table=remote_link, names=LINK_FIELDS, lock=False))
_LOCK_LINKS: Final = _KEYS.prepare(partial(_of_keys, table=remote_link, names=LINK_FIELDS, lock=True))
_READ_ATTEMPTS: Final = _KEYS.prepare(
    partial(_of_keys, table=push_attempt, names=(*ATTEMPT_FIELDS, *_CLAIMS), lock=False)
)
_LOCK_ATTEMPTS: Final = _KEYS.prepare(
    partial(_of_keys, table=push_attempt, names=(*ATTEMPT_FIELDS, *_CLAIMS), lock=True)
)
_READ_OWNERS: Final = _KEYS.prepare(_read_owners)
_READ_OPERATION: Final = _KEYS.prepare(_read_operation)
_READ_ARRIVALS: Final = _KEYS.prepare(_read_arrivals)
_READ_DEPARTED: Final = _KEYS.prepare(_read_departed)
_DROP_BARE: Final = _KEYS.prepare(_drop_bare)
_MOVE_SLOTS: Final = _texts("moves", _SLOT_MOVE).prepare(_move_slots)
_MOVE_LINKS: Final = _texts("moves", _LINK_MOVE).prepare(partial(_move, table=remote_link, names=_LINK_MOVE))
_MOVE_ATTEMPTS: Final = _texts("moves", _ATTEMPT_MOVE).prepare(_move_attempts)
_FOLLOW: Final = tuple(_texts("keys", ("old", "link_key")).prepare(partial(_follow, column=c)) for c in FOLLOWING)
_READDRESS: Final = _texts("details", ("id", "detail")).prepare(_readdress)
