"""What an apply would meet: the catalogue as it would be, and links and attempts by the snapshots they share.

Nothing here writes or locks. Rows are counted by everything that a comparison looks at, and one row of each group is
read whole: a hundred thousand links of one snapshot are one comparison.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from pushlink.packs.model import Pack
from pushlink.protocol.identity import owner_key
from pushlink.protocol.snapshots import AttemptId, Digest, InstallId, LinkKey, Slots
from pushlink.protocol.states import BLOCKING, AttemptStatus, Operation
from pushlink.store import catalog, registry
from pushlink.store.active import ActiveCatalog
from pushlink.store.catalog import InstallRow
from pushlink.store.dialect import array_rows
from pushlink.store.requests import read_requests
from pushlink.store.rows import LinkRow, RequestRow, SlotIdentity, columns_of, read_row
from pushlink.store.slots import read_identities
from pushlink.store.tables import push_attempt, push_request, push_slot, remote_link

#: The id of an install that an apply would make; no row ever has it.
INSTALL_TO_BE: Final = InstallId("to-be-installed")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedApply:
    """What an apply would do to the catalogue, and the catalogue before and after it.

    `predecessors` has, for each action that would be active, the slots it may replace and that still own something.
    """

    revision: int  # of the install
    is_new_incarnation: bool
    is_changed: bool
    slots: Mapping[str, tuple[str, ...]]  # added, returned, dropped, moved
    before: ActiveCatalog
    after: ActiveCatalog
    predecessors: Mapping[Slots, tuple[Slots, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Rows that cannot be told apart by a comparison: how many, and the values that they share."""

    rows: int
    shared: tuple[tuple[sa.Column[Any], Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkGroup(_Group):
    """Live links that share their snapshots; `link` is one of them, `oldest` when the first of them was changed."""

    link: LinkRow
    oldest: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateGroup(_Group):
    """Creates that block their keys and share snapshots and standing; `request` and `slot` are one's."""

    request: RequestRow
    slot: SlotIdentity
    status: AttemptStatus
    hold: str | None
    in_doubt: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateGroup(_Group):
    """Open updates of links that share their snapshots; `link` is one's."""

    link: LinkRow
    status: AttemptStatus
    hold: str | None
    is_frozen: bool
    wanted_mapping_fingerprint: Digest | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One row of a group, for people to look at."""

    source_object: str
    record_id: str
    remote_id: str | None
    link_key: LinkKey


def plan_pack(conn: sa.Connection, pack: Pack, *, tenant: str, now: dt.datetime) -> PlannedApply:
    """What `catalog.apply_pack` would do; raises `ConfigurationError` for a pack that it would refuse."""
    slots = registry.read_registry(conn)
    known = {slot.name: slot for slot in slots if slot.tenant == tenant}
    catalog.refuse_unfit(pack, known)
    installs = catalog.load_installs(conn)
    key = owner_key(pack.connector_owner_key, tenant)
    old = next((row for row in installs if owner_key(row.connector_owner_key, row.tenant) == key), None)
    new = _install(pack, old, tenant, now)
    changed = registry.plan_apply(pack, known, tenant=tenant, install_id=new.id, now=now)
    is_changed = old is None or old.document_digest != new.document_digest or bool(changed)
    after = {(slot.tenant, slot.name): slot for slot in [*slots, *changed]}
    revision = catalog.catalog_revision(conn)
    others = [row for row in installs if row is not old]
    return PlannedApply(
        revision=new.revision if is_changed else new.revision - 1,
        is_new_incarnation=old is None,
        is_changed=is_changed,
        slots=registry.name_changes(changed, known),
        before=ActiveCatalog(revision, installs, slots),
        after=ActiveCatalog(revision + 1, [*others, new], after.values()),
        predecessors=_predecessors(conn, pack, tenant, list(after.values())),
    )


def _install(pack: Pack, old: InstallRow | None, tenant: str, now: dt.datetime) -> InstallRow:
    document = pack.document()
    return InstallRow(
        id=old.id if old else INSTALL_TO_BE,
        tenant=tenant,
        connector_owner_key=pack.connector_owner_key,
        pack=pack.pack,
        version=pack.version,
        namespace=pack.namespace,
        document=document.text,
        document_digest=document.digest,
        status="active",
        installed_at=old.installed_at if old else now,
        updated_at=now,
        revision=old.revision + 1 if old else 1,
    )


def _predecessors(
    conn: sa.Connection, pack: Pack, tenant: str, slots: Sequence[registry.RegisteredSlot]
) -> dict[Slots, tuple[Slots, ...]]:
    actions = [action.slots.in_tenant(tenant) for action in pack.actions()]
    owner = pack.connector_owner_key
    former = catalog.read_former_owners(conn, tenant, owner, slots, namespace=pack.namespace)
    replaced = {action: registry.replaced_by(action, slots, former_owners=former) for action in actions}
    owning = catalog.read_owning(conn, list(dict.fromkeys(probe for probes in replaced.values() for probe in probes)))
    found = {action: tuple(probe for probe in probes if probe in owning) for action, probes in replaced.items()}
    return {action: probes for action, probes in found.items() if probes}


# ------------------------------------------------------------------------------------------------ groups


def group_links(
    conn: sa.Connection,
    *,
    tenant: str | None,
    connector_owner_key: str | None = None,
    where: Sequence[sa.ColumnElement[bool]] = (),
) -> list[LinkGroup]:
    """Every live link of an owner in one tenant, or of all, by what a comparison looks at."""
    t = remote_link
    mine = [t.c.locator_key.is_not(None), *where]
    mine += [] if tenant is None else [t.c.tenant == tenant]
    mine += [] if connector_owner_key is None else [t.c.connector_owner_key == connector_owner_key]
    columns = [*_LINK_SHARES]
    counted = (*_counted(t.c.id), sa.func.min(t.c.updated_at).label("oldest"))
    found = conn.execute(_grouped(sa.select(*columns, *counted).where(*mine), columns)).all()
    links = _read_links(conn, [row.one for row in found])
    return [
        LinkGroup(rows=row.rows, shared=_shared(columns, row), link=links[row.one], oldest=row.oldest) for row in found
    ]


def group_creates(conn: sa.Connection, *, tenant: str, connector_owner_key: str) -> list[CreateGroup]:
    """Every create attempt that blocks a key of an owner in one tenant, by what a comparison looks at."""
    a, s = push_attempt, push_slot
    columns = [*_CREATE_SHARES]
    statement = _of_creates(sa.select(*columns, *_counted(a.c.id)))
    statement = statement.where(s.c.tenant == tenant, s.c.connector_owner_key == connector_owner_key)
    found = conn.execute(_grouped(statement, columns)).all()
    ids = [AttemptId(row.one) for row in found]
    keys: dict[str, LinkKey] = {row[0]: row[1] for row in conn.execute(_keys_of(conn, ids))}
    groups = []
    for row, request, slot in zip(
        found, read_requests(conn, ids), read_identities(conn, [keys[one] for one in ids]), strict=True
    ):
        if request is None or slot is None:  # somebody ended it between the statements, where that can be seen
            continue
        groups.append(
            CreateGroup(
                rows=row.rows,
                shared=_shared(columns, row),
                request=request,
                slot=slot,
                status=AttemptStatus(row.status),
                hold=row.hold_code,
                in_doubt=row.in_doubt,
            )
        )
    return groups


def group_updates(conn: sa.Connection, *, tenant: str, connector_owner_key: str) -> list[UpdateGroup]:
    """Every open update of an owner's links in one tenant, by what a comparison looks at."""
    t = remote_link
    columns = [*_UPDATE_SHARES]
    statement = _of_updates(sa.select(*columns, *_counted(t.c.id)))
    statement = statement.where(t.c.tenant == tenant, t.c.connector_owner_key == connector_owner_key)
    found = conn.execute(_grouped(statement, columns)).all()
    links = _read_links(conn, [row.one for row in found])
    place = len(_LINK_SHARES)
    return [
        UpdateGroup(
            rows=row.rows,
            shared=_shared(columns, row),
            link=links[row.one],
            status=AttemptStatus(row[place]),
            hold=row.hold_code,
            is_frozen=row.freeze_count > 0,
            wanted_mapping_fingerprint=row.wanted_mapping_fingerprint,
        )
        for row in found
    ]


def read_samples(conn: sa.Connection, group: LinkGroup | CreateGroup | UpdateGroup, *, limit: int) -> list[Sample]:
    """Some rows of a group, oldest first."""
    a, s, t = push_attempt, push_slot, remote_link
    about = [s.c.source_object, s.c.source_record_id]
    if isinstance(group, LinkGroup):
        columns = [t.c.source_object, t.c.source_record_id, t.c.remote_id, t.c.link_key]
        statement = sa.select(*columns).where(t.c.locator_key.is_not(None)).order_by(t.c.id)
    elif isinstance(group, CreateGroup):
        statement = _of_creates(sa.select(*about, a.c.remote_id, a.c.link_key)).order_by(a.c.id)
    else:
        statement = _of_updates(sa.select(*about, t.c.remote_id, t.c.link_key)).order_by(a.c.id)
    same = [column.is_not_distinct_from(value) for column, value in group.shared]
    found = conn.execute(statement.where(*same).limit(limit))
    return [Sample(source_object=row[0], record_id=row[1], remote_id=row[2], link_key=row[3]) for row in found]


def _of_creates(statement: sa.Select[Any]) -> sa.Select[Any]:
    a, r, s = push_attempt, push_request, push_slot
    joined = a.join(s, s.c.link_key == a.c.link_key).join(
        r, (r.c.attempt_id == a.c.id) & (r.c.freeze == a.c.freeze_count)
    )
    blocking = [a.c.operation == Operation.CREATE.value, a.c.status.in_(sorted(BLOCKING))]
    return statement.select_from(joined).where(*blocking)


def _of_updates(statement: sa.Select[Any]) -> sa.Select[Any]:
    a, s, t = push_attempt, push_slot, remote_link
    joined = t.join(a, a.c.update_key == t.c.slot_key).join(s, s.c.link_key == t.c.link_key)
    return statement.select_from(joined).where(t.c.locator_key.is_not(None))


def _grouped(statement: sa.Select[Any], columns: Sequence[sa.Column[Any]]) -> sa.Select[Any]:
    return statement.group_by(*columns).order_by(sa.literal_column("one"))


def _counted(key: sa.Column[Any]) -> tuple[sa.Label[int], sa.Label[str]]:
    return sa.func.count().label("rows"), sa.func.min(key).label("one")


def _shared(columns: Sequence[sa.Column[Any]], row: sa.Row[Any]) -> tuple[tuple[sa.Column[Any], Any], ...]:
    return tuple(zip(columns, row, strict=False))


def _read_links(conn: sa.Connection, ids: Sequence[str]) -> dict[str, LinkRow]:
    if not ids:
        return {}
    rows = array_rows(conn, "ids", {"id": sa.Text()}, [(one,) for one in sorted(set(ids))])
    t = remote_link
    statement = sa.select(*columns_of(LinkRow, t)).join_from(rows, t, t.c.id == rows.c.id)
    return {link.id: link for link in (read_row(LinkRow, row) for row in conn.execute(statement))}


def _keys_of(conn: sa.Connection, ids: Sequence[AttemptId]) -> sa.Select[Any]:
    t = push_attempt
    rows = array_rows(conn, "ids", {"id": sa.Text()}, [(one,) for one in ids])
    return sa.select(t.c.id, t.c.link_key).join_from(rows, t, t.c.id == rows.c.id)


_IDENTITY: Final = ("tenant", "connector_owner_key", "action_slot_id", "destination_slot_id", "source_object")

#: Everything of a link that a comparison looks at.
_LINK_SHARES: Final = tuple(
    remote_link.c[name]
    for name in (
        *_IDENTITY,
        "status",
        "names",
        "validated_install_id",
        "profile_digest",
        "action_digest",
        "mapping_fingerprint",
        "body_fingerprint",
    )
)

#: The same of a create, and where it stands.
_CREATE_SHARES: Final = (
    *(push_slot.c[name] for name in _IDENTITY),
    *(push_request.c[name] for name in ("names", "install_id", "profile_digest", "action_digest")),
    *(push_attempt.c[name] for name in ("status", "hold_code", "in_doubt")),
)

#: Of an open update: what its link's comparison looks at, where it stands, and the mapping of its values.
_UPDATE_SHARES: Final = (
    *_LINK_SHARES,
    *(push_attempt.c[name] for name in ("status", "hold_code", "freeze_count")),
    push_slot.c.wanted_mapping_fingerprint,
)
