"""The catalogue: which packs are installed for whom, which slots exist, and the settings all processes share.

An install is an *incarnation*: applying a pack of the same owner and tenant again keeps its id and counts its revision
up; after an uninstall the next apply is another incarnation, and links of before fail closed until somebody validates
them. Every change here bumps the deployment's catalogue revision, by which processes know that theirs is old, and is
written to the operators' audit. Changes hold the catalogue's lock, so a checkpoint sees a change whole or not at all.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final

import sqlalchemy as sa

from pushlink.errors import CallerError, Code, ConfigurationError
from pushlink.packs.model import Pack
from pushlink.protocol.identity import owner_key
from pushlink.protocol.snapshots import Digest, InstallId, Slots
from pushlink.protocol.states import BLOCKING, LinkStatus, Operation
from pushlink.store import registry
from pushlink.store.audit import OperatorAction, record_actions
from pushlink.store.dialect import ORDINALITY, Lock, array_rows, take_lock
from pushlink.store.registry import SlotKind, SlotName, SlotStatus
from pushlink.store.rows import columns_of, read_row, read_rows
from pushlink.store.tables import deployment, pack_install, push_attempt, push_slot, remote_link


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The one `deployment` row: who this database is, and how all of its processes work."""

    deployment_id: str
    mode: str  # running or recovery
    general_worker: str  # on or off
    catalog_revision: int
    confirmations: int  # how often an operator confirmed that this is the right database
    uncleared_since: dt.datetime | None  # set from a confirmation until records may be created again
    updated_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRow:
    """One `pack_install`."""

    id: InstallId
    tenant: str
    connector_owner_key: str
    pack: str
    version: str
    namespace: str
    document: str
    document_digest: Digest
    status: str
    installed_at: dt.datetime
    updated_at: dt.datetime
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedPack:
    """What an apply did. Slot ids are of actions and of destinations alike."""

    install_id: InstallId
    revision: int  # of the install
    is_new_incarnation: bool
    is_changed: bool  # False: this very document was active already, and nothing was written
    added: tuple[str, ...]  # slots never seen before
    returned: tuple[str, ...]  # dropped earlier, and in use again
    dropped: tuple[str, ...]
    moved: tuple[str, ...]  # action slots that push to another destination now
    catalog_revision: int


# ------------------------------------------------------------------------------------------------ deployment


def read_deployment(conn: sa.Connection) -> Deployment:
    """The deployment's row; raises `ConfigurationError` when it is not there."""
    row = conn.execute(_DEPLOYMENT).one_or_none()
    if row is None:
        raise ConfigurationError(
            "The database has pushlink's tables, but no deployment.",
            code=Code.SCHEMA_OUTDATED,
            next_step="restore the row of pushlink_deployment from a backup",
        )
    return read_row(Deployment, row)


def catalog_revision(conn: sa.Connection) -> int:
    """The number that grows with every change of the catalogue."""
    return read_deployment(conn).catalog_revision


def share_revision(conn: sa.Connection) -> int:
    """The catalogue revision, which stays what it is until this transaction ends."""
    take_lock(conn, Lock.CATALOG, shared=True)
    return catalog_revision(conn)


def set_general_worker(conn: sa.Connection, *, on: bool, reason: str, actor: str, now: dt.datetime) -> bool:
    """Switch the general worker of all processes on or off; False when it was so already."""
    take_lock(conn, Lock.CATALOG)
    before, after = read_deployment(conn).general_worker, "on" if on else "off"
    if before == after:
        return False
    conn.execute(sa.update(deployment).values(general_worker=after, updated_at=now))
    _audit(conn, "general_worker", ("deployment", "1"), before, after, tenant="", reason=reason, actor=actor, now=now)
    return True


def _bump(conn: sa.Connection, now: dt.datetime) -> int:
    next_revision = deployment.c.catalog_revision + 1
    statement = sa.update(deployment).values(catalog_revision=next_revision, updated_at=now)
    return int(conn.execute(statement.returning(deployment.c.catalog_revision)).scalar_one())


# ------------------------------------------------------------------------------------------------ installs


def load_installs(conn: sa.Connection) -> list[InstallRow]:
    """Every active install with its document, by tenant and owner."""
    statement = _INSTALL.where(pack_install.c.active_key.is_not(None))
    statement = statement.order_by(pack_install.c.tenant, pack_install.c.connector_owner_key, pack_install.c.id)
    return read_rows(InstallRow, conn.execute(statement))


def read_active_install(conn: sa.Connection, *, tenant: str, connector_owner_key: str) -> InstallRow | None:
    """The active install of an owner for a tenant."""
    statement = _INSTALL.where(pack_install.c.active_key == owner_key(connector_owner_key, tenant))
    row = conn.execute(statement).one_or_none()
    return None if row is None else read_row(InstallRow, row)


def apply_pack(
    conn: sa.Connection,
    pack: Pack,
    *,
    tenant: str,
    install_ids: Callable[[], str],
    reason: str,
    actor: str,
    now: dt.datetime,
) -> AppliedPack:
    """Make `pack` the active one of its owner for a tenant; `install_ids` names an incarnation when it is new.

    Raises `ConfigurationError` when the slot registry refuses it; nothing is written then. The pack was linted before.
    """
    take_lock(conn, Lock.CATALOG)
    known = _forget_resolved(conn, {slot.name: slot for slot in registry.read_registry(conn, tenant=tenant)})
    refuse_unfit(pack, known)
    document = pack.document()
    before = read_active_install(conn, tenant=tenant, connector_owner_key=pack.connector_owner_key)
    install_id = before.id if before else InstallId(install_ids())
    changed = registry.plan_apply(pack, known, tenant=tenant, install_id=install_id, now=now)
    if before and before.document_digest == document.digest and not changed:
        return _applied(before.id, before.revision, [], known, catalog_revision(conn), is_new=False, is_changed=False)
    shown = {
        "pack": pack.pack,
        "version": pack.version,
        "namespace": pack.namespace,
        "document": document.text,
        "document_digest": document.digest,
        "updated_at": now,
    }
    revision = before.revision + 1 if before else 1
    if before:
        conn.execute(sa.update(pack_install).where(pack_install.c.id == install_id).values(**shown, revision=revision))
    else:
        identity = {
            "id": install_id,
            "tenant": tenant,
            "connector_owner_key": pack.connector_owner_key,
            "active_key": owner_key(pack.connector_owner_key, tenant),
            "status": "active",
            "installed_at": now,
            "revision": revision,
        }
        conn.execute(pack_install.insert().values(**identity, **shown))
    registry.write_slots(conn, known, changed)
    applied = _applied(install_id, revision, changed, known, _bump(conn, now), is_new=before is None)
    old = {"version": before.version, "document_digest": before.document_digest} if before else {}
    new = {"version": pack.version, "document_digest": document.digest, "dropped": list(applied.dropped)}
    _audit(conn, "pack_apply", ("install", install_id), old, new, tenant=tenant, reason=reason, actor=actor, now=now)
    return applied


def refuse_unfit(pack: Pack, known: Mapping[SlotName, registry.RegisteredSlot]) -> None:
    """Raise `ConfigurationError` for a pack that the slot registry does not let in."""
    if said := registry.problems_of(pack, known):
        raise ConfigurationError(
            f"The pack {pack.pack!r} cannot be applied. {said[0]}",
            code=Code.PACK_INVALID,
            evidence={"slots": said},
            next_step="give a new action or destination a slot id of its own",
        )


def uninstall_pack(
    conn: sa.Connection, *, tenant: str, connector_owner_key: str, reason: str, actor: str, now: dt.datetime
) -> InstallRow:
    """End the active incarnation of an owner for a tenant and drop its slots; links and attempts stay as they are."""
    take_lock(conn, Lock.CATALOG)
    install = read_active_install(conn, tenant=tenant, connector_owner_key=connector_owner_key)
    if install is None:
        msg = f"No pack of the owner {connector_owner_key!r} is installed for this tenant."
        raise CallerError(msg, evidence={"tenant": tenant}, next_step="pushlink pack list")
    ended: dict[str, Any] = {"status": "uninstalled", "active_key": None, "updated_at": now}
    conn.execute(sa.update(pack_install).where(pack_install.c.id == install.id).values(ended))
    slots = registry.read_registry(conn, tenant=tenant)
    mine = [slot for slot in slots if slot.connector_owner_key == connector_owner_key]
    registry.write_slots(conn, [slot.name for slot in slots], registry.plan_drop(mine, now=now))
    _bump(conn, now)
    target = ("install", str(install.id))
    _audit(conn, "pack_uninstall", target, "active", "uninstalled", tenant=tenant, reason=reason, actor=actor, now=now)
    return install


def declare_independent(
    conn: sa.Connection,
    *,
    tenant: str,
    action_slot_id: str,
    reason: str,
    actor: str,
    now: dt.datetime,
    seen_revision: int | None = None,
) -> tuple[str, ...]:
    """Say that an action slot in use replaces none of those that ended until now, so that it may create (D-29).

    Answers with the slots beside which it creates from now on: those that still own something. Said already, and
    nothing ended since, it writes nothing. Raises `CallerError` when the catalogue is not at `seen_revision` any more.
    """
    take_lock(conn, Lock.CATALOG)
    require_revision(conn, seen_revision)
    known = {slot.name: slot for slot in registry.read_registry(conn, tenant=tenant)}
    slot = known.get(SlotName((SlotKind.ACTION, action_slot_id)))
    if slot is None or slot.status not in registry.IN_USE or slot.destination_slot_id is None:
        msg = f"The action slot {action_slot_id!r} is not in use for this tenant."
        raise CallerError(msg, evidence={"tenant": tenant, "status": slot.status if slot else None})
    [beside] = read_unresolved_slots(conn, [registry.identity_of(slot, slot.destination_slot_id)])
    if slot.status is SlotStatus.INDEPENDENT and not beside:
        return ()
    registry.write_slots(conn, known, [registry.as_independent(slot, now=now)])
    _bump(conn, now)
    after = {"status": SlotStatus.INDEPENDENT.value, "beside": list(beside)}
    target = ("action_slot", action_slot_id)
    before = slot.status.value
    _audit(conn, "declare_independent", target, before, after, tenant=tenant, reason=reason, actor=actor, now=now)
    return beside


def retire_slot(
    conn: sa.Connection, *, tenant: str, action_slot_id: str, reason: str, actor: str, now: dt.datetime
) -> str:
    """End the lineage of an action slot that owns nothing any more; answers with the status that it has then.

    One that a pack has now stays in use: its records were retired, not the action.
    """
    take_lock(conn, Lock.CATALOG)
    known = {slot.name: slot for slot in registry.read_registry(conn, tenant=tenant)}
    slot = known.get(SlotName((SlotKind.ACTION, action_slot_id)))
    if slot is None:
        raise CallerError(f"There is no action slot {action_slot_id!r}.", next_step="pushlink slot list")
    is_over = slot.status is SlotStatus.DROPPED and not read_owning(conn, registry.ended_stays(slot))
    if not is_over:
        return slot.status.value
    registry.write_slots(conn, known, [registry.as_retired(slot, now=now)])
    _bump(conn, now)
    target = ("action_slot", action_slot_id)
    was, now_is = slot.status.value, SlotStatus.RETIRED.value
    _audit(conn, "slot_retire", target, was, now_is, tenant=tenant, reason=reason, actor=actor, now=now)
    return now_is


def require_revision(conn: sa.Connection, seen: int | None) -> None:
    """Refuse what was decided over another catalogue; call it under the catalogue's lock."""
    found = catalog_revision(conn)
    if seen is not None and seen != found:
        raise CallerError(
            "The catalogue has changed since it was looked at; nothing was done.",
            code=Code.STALE_VERSION,
            evidence={"seen": seen, "current": found},
            next_step="look at it again: pushlink slot list",
        )


def _applied(
    install_id: InstallId,
    revision: int,
    changed: Sequence[registry.RegisteredSlot],
    known: dict[SlotName, registry.RegisteredSlot],
    catalog: int,
    *,
    is_new: bool,
    is_changed: bool = True,
) -> AppliedPack:
    return AppliedPack(
        install_id=install_id,
        revision=revision,
        is_new_incarnation=is_new,
        is_changed=is_changed,
        catalog_revision=catalog,
        **registry.name_changes(changed, known),
    )


# ------------------------------------------------------------------------------------------------ lineage


def read_unresolved_slots(conn: sa.Connection, items: Sequence[Slots]) -> list[tuple[str, ...]]:
    """For each action the slots it may have replaced that still own something, as `action -> destination` (D-29).

    What owns something is a link that is not retired, or a create attempt that blocks. An empty answer means that the
    lineage is clear: nothing was replaced, or all of it was rebound, retired or superseded.
    """
    actions = dict.fromkeys(items)
    slots = registry.read_action_slots(conn, {(a.tenant, a.source_object) for a in actions})
    former = {
        key: read_former_owners(conn, *key, slots) for key in {(a.tenant, a.connector_owner_key) for a in actions}
    }
    replaced = {
        a: registry.replaced_by(a, slots, former_owners=former[a.tenant, a.connector_owner_key]) for a in actions
    }
    owning = read_owning(conn, list(dict.fromkeys(probe for probes in replaced.values() for probe in probes)))
    unresolved = {
        action: tuple(f"{probe.action_slot_id} -> {probe.destination_slot_id}" for probe in probes if probe in owning)
        for action, probes in replaced.items()
    }
    return [unresolved[item] for item in items]


def read_former_owners(
    conn: sa.Connection,
    tenant: str,
    connector_owner_key: str,
    slots: Sequence[registry.RegisteredSlot],
    *,
    namespace: str | None = None,
) -> frozenset[str]:
    """The owners among `slots` that this one may have taken the place of, not installed any more (ID-05, ID-07).

    They had the namespace that this owner has (or is to have). A shared name never moves a link; it stops a create that
    would be the second one of a record, until somebody says what became of the first.
    """
    others = {s.connector_owner_key for s in slots if s.tenant == tenant} - {connector_owner_key}
    if not others:
        return frozenset()
    t = pack_install
    statement = sa.select(
        t.c.connector_owner_key, t.c.namespace, t.c.active_key, t.c.installed_at, t.c.updated_at
    ).where(t.c.tenant == tenant, t.c.connector_owner_key.in_(sorted({*others, connector_owner_key})))
    rows = conn.execute(statement).all()
    active = {row.connector_owner_key: row for row in rows if row.active_key is not None}
    mine = active.get(connector_owner_key)
    wanted = namespace or (mine.namespace if mine is not None else None)
    return frozenset(
        row.connector_owner_key
        for row in rows
        if row.namespace == wanted and row.connector_owner_key in others and row.connector_owner_key not in active
        if mine is None or row.updated_at <= mine.installed_at  # what stood beside it was no predecessor
    )


def _forget_resolved(
    conn: sa.Connection, known: dict[SlotName, registry.RegisteredSlot]
) -> dict[SlotName, registry.RegisteredSlot]:
    """The registry without the stays that ended and own nothing any more, so that no save has to ask about them."""
    ended = {slot.name: registry.ended_stays(slot) for slot in known.values()}
    owning = read_owning(conn, list(dict.fromkeys(probe for probes in ended.values() for probe in probes)))
    lighter = [
        registry.keep_stays(known[name], [probe for probe in probes if probe in owning])
        for name, probes in ended.items()
        if not owning.issuperset(probes)
    ]
    registry.write_slots(conn, known, lighter)
    return known | {slot.name: slot for slot in lighter}


def read_owning(conn: sa.Connection, probes: Sequence[Slots]) -> set[Slots]:
    """Those probes under which a live link or a blocking create attempt stands."""
    if not probes:
        return set()
    live = sa.select(remote_link.c.id).where(remote_link.c.status != LinkStatus.RETIRED.value)
    blocking = sa.select(push_attempt.c.id).where(
        push_attempt.c.link_key == push_slot.c.link_key,
        push_attempt.c.operation == Operation.CREATE.value,
        push_attempt.c.status.in_(sorted(BLOCKING)),
    )
    linked = _matching(conn, _used(conn, probes, remote_link), remote_link, live)
    others = [probe for probe in probes if probe not in linked]
    return linked | _matching(conn, _used(conn, others, push_slot), push_slot, blocking)


def _used(conn: sa.Connection, probes: Sequence[Slots], table: sa.Table) -> list[Slots]:
    """The probes that have any row in `table`.

    It asks for the first row at or behind each probe in the order of the index: an equality would let a planner that
    expects a match soon read a whole table to find that there is none.
    """
    if not probes:
        return []
    old = _as_rows(conn, probes)
    columns = [table.c[name] for name in _INDEXED]
    behind = sa.tuple_(*columns) >= sa.tuple_(*(old.c[name] for name in _INDEXED))
    first = sa.select(*columns).where(behind).order_by(*columns).limit(1).correlate(old).subquery("first")
    is_used = (
        sa.select(sa.literal(1)).where(*(first.c[name] == old.c[name] for name in _INDEXED)).correlate(old).exists()
    )
    return [probes[place - 1] for place in conn.execute(sa.select(old.c[ORDINALITY]).where(is_used)).scalars()]


def _matching(conn: sa.Connection, probes: Sequence[Slots], table: sa.Table, rows: sa.Select[tuple[str]]) -> set[Slots]:
    """The probes for which `rows` of `table` exist."""
    if not probes:
        return set()
    old = _as_rows(conn, probes)
    same = [table.c[name] == old.c[name] for name in _PROBE]
    statement = sa.select(old.c[ORDINALITY]).where(rows.where(*same).correlate(old).exists())
    return {probes[place - 1] for place in conn.execute(statement).scalars()}


def _as_rows(conn: sa.Connection, probes: Sequence[Slots]) -> sa.FromClause:
    return array_rows(conn, "old", {name: sa.Text() for name in _PROBE}, [_PROBE_OF(probe) for probe in probes])


def _audit(
    conn: sa.Connection,
    verb: str,
    target: tuple[str, str],
    before: object,
    after: object,
    *,
    tenant: str,
    reason: str,
    actor: str,
    now: dt.datetime,
) -> None:
    action = OperatorAction(
        tenant=tenant,
        actor=actor,
        verb=verb,
        reason=reason,
        target_kind=target[0],
        target_id=target[1],
        before={"was": before} if before else {},
        after={"is": after},
    )
    record_actions(conn, [action], now=now)


_DEPLOYMENT: Final = sa.select(*columns_of(Deployment, deployment))
_INSTALL: Final = sa.select(*columns_of(InstallRow, pack_install))
_PROBE: Final = tuple(field.name for field in fields(Slots))
_INDEXED: Final = ("tenant", "connector_owner_key", "action_slot_id", "destination_slot_id")
_PROBE_OF: Final = attrgetter(*_PROBE)
