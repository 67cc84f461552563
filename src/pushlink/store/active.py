"""The catalogue as flows see it: every active action with all that a save, a claim or a comparison needs of its pack.

It is built from the installs and the registry in one go and never changes; a `CatalogReader` keeps the newest one of a
process and builds another when the deployment's catalogue revision has moved. An action that cannot be used says why,
and an object without an action says what is missing: names are never a fallback (ID-03).
"""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import sqlalchemy as sa

from pushlink.errors import PushlinkError
from pushlink.packs.model import Pack, PackAction
from pushlink.protocol.contracts import ActionContract, Condition, ProfileContract
from pushlink.protocol.fingerprints import body_fingerprint, is_same_mapping, mapping_fingerprint
from pushlink.protocol.snapshots import ActionSnapshot, Digest, Document, InstallId, Names, Slots, digest, digest_bytes
from pushlink.store import catalog
from pushlink.store.catalog import Deployment, InstallRow
from pushlink.store.registry import IN_USE, RegisteredSlot, SlotKind, SlotName, ended_stays, read_registry

#: (tenant, owner key) or (tenant, source object), as the map's name says.
_Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why one action cannot be used, or an object has none, as the facts that gates ask for, and in words.

    `usable_installs` counts the active incarnations that this action resolves to with an active profile.
    """

    action: str  # its name for people; empty when the object has no action
    message: str
    evidence: Mapping[str, object]
    slot_resolved: bool = True
    owner_resolved: bool = True
    destination_resolved: bool = True
    usable_installs: int = 1
    mapping_problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveAction:
    """One action of one active install."""

    install_id: InstallId
    slots: Slots
    names: Names
    contract: ActionContract
    profile: ProfileContract
    profile_digest: Digest  # of the contract alone, without a credential's generation
    conditions: tuple[Condition, ...]
    document: Document  # the action snapshot, frozen
    mapping_fingerprint: Digest
    body_fingerprint: Digest

    def has_mapping(self, frozen: str | None) -> bool:
        """Whether the mapping under which values were frozen is that of now, whichever release froze them (D-43)."""
        return frozen == self.mapping_fingerprint or is_same_mapping(frozen or "", self.contract)


class ActiveCatalog:
    """All active actions of one catalogue revision.

    `edition` names this very reading for what is remembered about it. The revision does not: after a restore the
    same numbers come again for other packs.
    """

    def __init__(self, revision: int, installs: Sequence[InstallRow], registered: Iterable[RegisteredSlot]) -> None:
        self.revision = revision
        self.edition = object()
        self._registered = {(slot.tenant, slot.name): slot for slot in registered}
        self._owners: dict[_Key, InstallRow] = {(i.tenant, i.connector_owner_key): i for i in installs}
        self._usable: dict[_Key, list[ActiveAction]] = {}
        self._problems: dict[_Key, list[Problem]] = {}
        self._refused: dict[str, list[Problem]] = {}
        self._refused_owners: set[_Key] = set()
        self._by_slots: dict[Slots, ActiveAction] = {}
        self._by_action_slot: dict[tuple[str, str, str], ActiveAction] = {}
        self._former = _former_slots(self._registered.values())
        found = [action for install in installs for action in self._read(install)]
        counts = Counter(action.slots for action in found)
        for action in found:
            self._sort_in(action, counts[action.slots])

    def actions_for(self, tenant: str, source_object: str) -> tuple[ActiveAction, ...]:
        """The usable actions of a source object, in the order of their packs."""
        return tuple(self._usable.get((tenant, source_object), ()))

    def problems_for(self, tenant: str, source_object: str) -> tuple[Problem, ...]:
        """One problem for each action of an object that is not usable; one as well when it has no action at all."""
        key = (tenant, source_object)
        if key in self._problems or key in self._usable:
            return tuple(self._problems.get(key, ()))
        return tuple(self._refused.get(tenant, ())) or (self._without_action(tenant, source_object),)

    def find(self, slots: Slots) -> ActiveAction | None:
        """The one action that these slots resolve to, with an inactive profile too; `None` when they do not resolve."""
        return self._by_slots.get(slots)

    def find_elsewhere(self, slots: Slots) -> ActiveAction | None:
        """The action of the same owner and action slot where it pushes to now; `None` when it is not in the pack."""
        return self._by_action_slot.get((slots.tenant, slots.connector_owner_key, slots.action_slot_id))

    def find_action(self, tenant: str, connector_owner_key: str, action_slot_id: str) -> ActiveAction | None:
        """The owner's action of this slot, wherever it pushes to."""
        return self._by_action_slot.get((tenant, connector_owner_key, action_slot_id))

    def former_slots(self, tenant: str, source_object: str) -> tuple[Slots, ...]:
        """The identities under which this object was pushed and is not any more; nobody has resolved them yet."""
        return self._former.get((tenant, source_object), ())

    def is_readable(self, tenant: str, connector_owner_key: str) -> bool:
        """Whether this release can read the owner's active pack, and nobody has changed it in the database."""
        return (tenant, connector_owner_key) not in self._refused_owners

    def owner_in_namespace(self, tenant: str, namespace: str) -> str | None:
        """Which owner's active pack has this namespace: evidence to stop by, never to adopt by (ID-05, ID-07)."""
        installs = (install for install in self._owners.values() if install.tenant == tenant)
        return next((install.connector_owner_key for install in installs if install.namespace == namespace), None)

    def has_owner(self, tenant: str, connector_owner_key: str) -> bool:
        """Whether a pack of this owner is active for the tenant."""
        return (tenant, connector_owner_key) in self._owners

    def install_of(self, tenant: str, connector_owner_key: str) -> InstallRow | None:
        """The active install of an owner for a tenant."""
        return self._owners.get((tenant, connector_owner_key))

    def registered(self, tenant: str, kind: SlotKind, slot_id: str) -> RegisteredSlot | None:
        """What the registry knows about a slot, in use or not."""
        return self._registered.get((tenant, SlotName((kind, slot_id))))

    def all_actions(self) -> tuple[ActiveAction, ...]:
        """Every usable action of every tenant."""
        return tuple(action for actions in self._usable.values() for action in actions)

    # -------------------------------------------------------------------------------------------- building

    def _read(self, install: InstallRow) -> list[ActiveAction]:
        if digest_bytes(install.document.encode()) != install.document_digest:
            problem = Problem(
                action="",
                message=f"The installed pack {install.pack!r} is not what was applied: somebody changed its document.",
                evidence={"install_id": install.id, "pack": install.pack, "document_digest": install.document_digest},
                mapping_problems=("customized",),
            )
            return self._refuse(install, problem)
        try:
            actions = Pack.read(install.document).actions()
        except (PushlinkError, ValueError, KeyError) as error:
            reason = error.message if isinstance(error, PushlinkError) else type(error).__name__
            problem = Problem(
                action="",
                message=f"This release cannot read the installed pack {install.pack!r}.",
                evidence={"install_id": install.id, "pack": install.pack, "reason": reason},
                usable_installs=0,
            )
            return self._refuse(install, problem)
        return [_active(install, action) for action in actions]

    def _refuse(self, install: InstallRow, problem: Problem) -> list[ActiveAction]:
        self._refused.setdefault(install.tenant, []).append(problem)
        self._refused_owners.add((install.tenant, install.connector_owner_key))
        return []

    def _sort_in(self, action: ActiveAction, count: int) -> None:
        """Where an action belongs: usable, found by its slots alone, or neither; `count` installs have it."""
        key = (action.slots.tenant, action.slots.source_object)
        problem = self._slot_problem(action) or _install_problem(action, count)
        if problem is None:
            self._usable.setdefault(key, []).append(action)
        else:
            self._problems.setdefault(key, []).append(problem)
        if problem is None or (problem.usable_installs == 0 and count == 1):
            slots = action.slots
            self._by_slots[slots] = action
            self._by_action_slot[slots.tenant, slots.connector_owner_key, slots.action_slot_id] = action

    def _slot_problem(self, action: ActiveAction) -> Problem | None:
        slots = action.slots
        for kind, slot_id in (
            (SlotKind.ACTION, slots.action_slot_id),
            (SlotKind.DESTINATION, slots.destination_slot_id),
        ):
            slot = self.registered(slots.tenant, kind, slot_id)
            is_mine = slot is None or slot.connector_owner_key == slots.connector_owner_key
            is_resolved = slot is not None and is_mine and slot.status in IN_USE
            if is_resolved:
                continue
            return Problem(
                action=action.names.action,
                message=f"The {kind.value} slot {slot_id!r} {_said(slot, is_mine=is_mine)}.",
                evidence={
                    "install_id": action.install_id,
                    "kind": kind.value,
                    "slot_id": slot_id,
                    "status": slot.status.value if slot else None,
                    "successor": slot.successor_slot_id if slot else None,
                },
                slot_resolved=kind is not SlotKind.ACTION or not is_mine,
                owner_resolved=is_mine,
                destination_resolved=kind is not SlotKind.DESTINATION,
            )
        return None

    def _without_action(self, tenant: str, source_object: str) -> Problem:
        former = {
            slot.slot_id: slot
            for (of, _), slot in sorted(self._registered.items())
            if of == tenant and slot.source_object == source_object
        }
        is_uninstalled = bool(former) and not any(
            self.has_owner(tenant, slot.connector_owner_key) for slot in former.values()
        )
        return Problem(
            action="",
            message="The pack that pushed this object is not installed any more."
            if is_uninstalled
            else "No installed pack has an action for this object.",
            evidence={"former_slots": {slot_id: slot.status.value for slot_id, slot in former.items()}},
            slot_resolved=is_uninstalled,
            usable_installs=0,
        )


class CatalogReader:
    """The catalogue of one process. It may be asked from any thread, inside any transaction."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: tuple[tuple[str, int, dt.datetime], ActiveCatalog] | None = None

    def read(self, conn: sa.Connection, deployment: Deployment | None = None) -> ActiveCatalog:
        """The catalogue as this transaction sees it; built anew only when the revision moved.

        `deployment` is its row, for whoever has read it in this transaction already.
        """
        while True:
            key = _version(deployment or catalog.read_deployment(conn))
            deployment = None
            with self._lock:
                if self._newest is not None and self._newest[0] == key:
                    return self._newest[1]
            built = ActiveCatalog(key[1], catalog.load_installs(conn), read_registry(conn))
            if _version(catalog.read_deployment(conn)) != key:
                continue  # somebody applied a pack between the statements
            with self._lock:
                self._newest = (key, built)
            return built

    def share_revision(self, conn: sa.Connection) -> int:
        """The catalogue revision, which nobody changes before this transaction ends (D-21)."""
        return catalog.share_revision(conn)


def _version(row: Deployment) -> tuple[str, int, dt.datetime]:
    # The time tells a revision that was rolled back from another change that got the same number.
    return row.deployment_id, row.catalog_revision, row.updated_at


def _active(install: InstallRow, action: PackAction) -> ActiveAction:
    return ActiveAction(
        install_id=install.id,
        slots=action.slots.in_tenant(install.tenant),
        names=action.names,
        contract=action.contract,
        profile=action.profile,
        profile_digest=digest(action.profile.model_dump(mode="json", by_alias=True)),
        conditions=action.when,
        document=ActionSnapshot(contract=action.contract).document(),
        mapping_fingerprint=mapping_fingerprint(action.contract),
        body_fingerprint=body_fingerprint(action.contract, action.profile),
    )


def _former_slots(registered: Iterable[RegisteredSlot]) -> dict[_Key, tuple[Slots, ...]]:
    found: dict[_Key, list[Slots]] = {}
    for slot in registered:
        for identity in ended_stays(slot):
            found.setdefault((identity.tenant, identity.source_object), []).append(identity)
    return {key: tuple(identities) for key, identities in found.items()}


def _install_problem(action: ActiveAction, count: int) -> Problem | None:
    if count == 1 and action.profile.active:
        return None
    name = action.names.profile
    return Problem(
        action=action.names.action,
        message=f"{count} active installs have this action." if count > 1 else f"The profile {name!r} is not active.",
        evidence={"install_id": action.install_id, "installs": count, "profile": name},
        usable_installs=count if count > 1 else 0,
    )


def _said(slot: RegisteredSlot | None, *, is_mine: bool) -> str:
    if slot is None:
        return "is not in the registry"
    return f"is {slot.status.value}" if is_mine else "belongs to another owner"
