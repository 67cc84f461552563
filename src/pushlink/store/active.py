"""The catalogue as flows see it: every active action with all that a save, a claim or a comparison needs of its pack.

It is built from the installs and the registry in one go and never changes; a `CatalogReader` keeps the newest one of a
process and builds another when the deployment's catalogue revision has moved. An action that cannot be used says why,
and an object without an action says what is missing: names are never a fallback (ID-03).
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import sqlalchemy as sa

from pushlink.errors import Code, PushlinkError
from pushlink.packs.model import Pack, PackAction
from pushlink.protocol.contracts import ActionContract, Condition, ProfileContract
from pushlink.protocol.fingerprints import body_fingerprint, mapping_fingerprint
from pushlink.protocol.snapshots import ActionSnapshot, Digest, Document, InstallId, Names, Slots, digest
from pushlink.store import catalog
from pushlink.store.catalog import InstallRow
from pushlink.store.registry import IN_USE, RegisteredSlot, SlotKind, SlotName, read_registry

#: (tenant, owner key) or (tenant, source object), as the map's name says.
_Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why an action cannot be used, or an object has none: the gate's rule and code, a sentence, and evidence."""

    rule: str
    code: Code
    message: str
    evidence: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveAction:
    """One action of one active install. Usable when it has no problems."""

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
    problems: tuple[Problem, ...]

    @property
    def is_usable(self) -> bool:
        """Whether its slots resolve to exactly one active incarnation with an active profile."""
        return not self.problems


class ActiveCatalog:
    """All active actions of one catalogue revision."""

    def __init__(self, revision: int, installs: Sequence[InstallRow], registered: Iterable[RegisteredSlot]) -> None:
        self.revision = revision
        self._registered = {(slot.tenant, slot.name): slot for slot in registered}
        self._owners: dict[_Key, InstallRow] = {(i.tenant, i.connector_owner_key): i for i in installs}
        self._unreadable: dict[str, list[Problem]] = {}
        self._actions: dict[_Key, tuple[ActiveAction, ...]] = {}
        self._by_slots: dict[Slots, ActiveAction] = {}
        self._index(installs)

    def actions_for(self, tenant: str, source_object: str) -> tuple[ActiveAction, ...]:
        """The actions of a source object in the order of their packs, unusable ones too."""
        return self._actions.get((tenant, source_object), ())

    def find(self, slots: Slots) -> ActiveAction | None:
        """The one action with exactly these slots; `None` when there is none, or more than one."""
        return self._by_slots.get(slots)

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
        """Every action of every tenant."""
        return tuple(action for actions in self._actions.values() for action in actions)

    def problems_for(self, tenant: str, source_object: str) -> tuple[Problem, ...]:
        """Why the records of an object cannot be pushed: what its actions have, or that it has none (GT-01, GT-04)."""
        actions = self.actions_for(tenant, source_object)
        if actions:
            return tuple(problem for action in actions for problem in action.problems)
        if unreadable := self._unreadable.get(tenant):
            return tuple(unreadable)
        former = sorted(
            (
                slot
                for (of, _), slot in self._registered.items()
                if of == tenant and slot.source_object == source_object
            ),
            key=lambda slot: slot.slot_id,
        )
        evidence: dict[str, object] = {"tenant": tenant, "source_object": source_object}
        evidence["former_slots"] = {slot.slot_id: slot.status.value for slot in former}
        if former and not any(self.has_owner(tenant, slot.connector_owner_key) for slot in former):
            return (_problem("GT-04", "The pack that pushed this object is not installed any more.", evidence),)
        return (_problem("GT-01", "No installed pack has an action for this object.", evidence),)

    # -------------------------------------------------------------------------------------------- building

    def _index(self, installs: Sequence[InstallRow]) -> None:
        found = [action for install in installs for action in self._read(install)]
        seen: dict[Slots, list[InstallId]] = {}
        for action in found:
            seen.setdefault(action.slots, []).append(action.install_id)
        grouped: dict[_Key, list[ActiveAction]] = {}
        for action in found:
            twice = seen[action.slots]
            checked = action if len(twice) == 1 else _with(action, _two_installs(twice))
            grouped.setdefault((action.slots.tenant, action.slots.source_object), []).append(checked)
            if len(twice) == 1:
                self._by_slots[action.slots] = checked
        self._actions = {key: tuple(actions) for key, actions in grouped.items()}

    def _read(self, install: InstallRow) -> list[ActiveAction]:
        try:
            actions = Pack.read(install.document).actions()
        except (PushlinkError, ValueError, KeyError) as error:
            reason = error.message if isinstance(error, PushlinkError) else type(error).__name__
            evidence = {"install_id": install.id, "pack": install.pack, "reason": reason}
            message = f"This release cannot read the installed pack {install.pack!r}."
            self._unreadable.setdefault(install.tenant, []).append(_problem("GT-04", message, evidence))
            return []
        return [self._active(install, action) for action in actions]

    def _active(self, install: InstallRow, action: PackAction) -> ActiveAction:
        slots = action.slots.in_tenant(install.tenant)
        problems = [
            problem
            for kind, slot_id in (
                (SlotKind.ACTION, slots.action_slot_id),
                (SlotKind.DESTINATION, slots.destination_slot_id),
            )
            if (problem := self._slot_problem(install, kind, slot_id)) is not None
        ]
        if not action.profile.active:
            evidence = {"install_id": install.id, "profile": action.names.profile}
            problems.append(_problem("GT-04", f"The profile {action.names.profile!r} is not active.", evidence))
        return ActiveAction(
            install_id=install.id,
            slots=slots,
            names=action.names,
            contract=action.contract,
            profile=action.profile,
            profile_digest=digest(action.profile.model_dump(mode="json", by_alias=True)),
            conditions=action.when,
            document=ActionSnapshot(contract=action.contract).document(),
            mapping_fingerprint=mapping_fingerprint(action.contract),
            body_fingerprint=body_fingerprint(action.contract, action.profile),
            problems=tuple(problems),
        )

    def _slot_problem(self, install: InstallRow, kind: SlotKind, slot_id: str) -> Problem | None:
        slot = self.registered(install.tenant, kind, slot_id)
        evidence: dict[str, object] = {"install_id": install.id, "kind": kind.value, "slot_id": slot_id}
        if slot is None:
            return _problem("GT-02", f"The {kind.value} slot {slot_id!r} is not in the registry.", evidence)
        if slot.connector_owner_key != install.connector_owner_key:
            evidence["owner"] = slot.connector_owner_key
            return _problem("GT-02", f"The {kind.value} slot {slot_id!r} belongs to another owner.", evidence)
        if slot.status not in IN_USE:
            evidence |= {"status": slot.status.value, "successor": slot.successor_slot_id}
            return _problem("GT-02", f"The {kind.value} slot {slot_id!r} is {slot.status.value}.", evidence)
        return None


class CatalogReader:
    """The catalogue of one process. It may be asked from any thread, inside any transaction."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: tuple[tuple[str, int, dt.datetime], ActiveCatalog] | None = None

    def read(self, conn: sa.Connection) -> ActiveCatalog:
        """The catalogue as this transaction sees it; built anew only when the revision moved."""
        while True:
            key = _version(conn)
            with self._lock:
                if self._newest is not None and self._newest[0] == key:
                    return self._newest[1]
            built = ActiveCatalog(key[1], catalog.load_installs(conn), read_registry(conn))
            if _version(conn) != key:
                continue  # somebody applied a pack between the statements
            with self._lock:
                self._newest = (key, built)
            return built

    def share_revision(self, conn: sa.Connection) -> int:
        """The catalogue revision, which nobody changes before this transaction ends (D-21)."""
        return catalog.share_revision(conn)


def _version(conn: sa.Connection) -> tuple[str, int, dt.datetime]:
    # The time tells a revision that was rolled back from another change that got the same number.
    row = catalog.read_deployment(conn)
    return row.deployment_id, row.catalog_revision, row.updated_at


_CODES = {"GT-01": Code.SLOT_UNRESOLVED, "GT-02": Code.OWNER_UNRESOLVED, "GT-04": Code.INSTALL_UNUSABLE}


def _problem(rule: str, message: str, evidence: Mapping[str, object]) -> Problem:
    return Problem(rule=rule, code=_CODES[rule], message=message, evidence=evidence)


def _two_installs(installs: list[InstallId]) -> Problem:
    message = "More than one active install has this action."
    return _problem("GT-04", message, {"install_ids": sorted(installs)})


def _with(action: ActiveAction, problem: Problem) -> ActiveAction:
    return replace(action, problems=(*action.problems, problem))
