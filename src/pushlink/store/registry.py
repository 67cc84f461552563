"""The slot registry: every action and destination slot ever seen, whose it is, and where it has pushed to (D-29).

A slot id is identity and belongs to one owner for ever. An action slot keeps its source object, and remembers each
destination it stood at and for how long: that is how a later slot of the same object can be told to be a replacement.
The functions here decide about registry rows and read them; `catalog.py` writes them together with the installs.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NewType

import sqlalchemy as sa

from pushlink.packs.model import Pack
from pushlink.protocol.snapshots import Slots, read_time, write_time
from pushlink.store.dialect import Batch
from pushlink.store.tables import connector_slot


class SlotKind(StrEnum):
    """What a slot identifies."""

    ACTION = "action"
    DESTINATION = "destination"


class SlotStatus(StrEnum):
    """What became of a slot."""

    ACTIVE = "active"
    DROPPED = "dropped"  # its pack does not have it any more, or is uninstalled
    REBOUND = "rebound"  # its links moved to a successor
    RETIRED = "retired"  # an operator ended its lineage
    INDEPENDENT = "independent"  # active, and an operator said that it replaces no other


#: A slot that its pack has now.
IN_USE: Final = frozenset({SlotStatus.ACTIVE, SlotStatus.INDEPENDENT})

#: Somebody has said what became of its links: it stands in nobody's way.
RESOLVED: Final = frozenset({SlotStatus.REBOUND, SlotStatus.RETIRED})

#: (kind, slot id) within one tenant.
SlotName = NewType("SlotName", tuple[SlotKind, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """The time that an action slot pushed to one destination; `until` is `None` while it does.

    `rebound_to` is the action slot that got everything which stood there; nothing of this slot returns to it.
    """

    destination_slot_id: str
    since: dt.datetime
    until: dt.datetime | None
    rebound_to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSlot:
    """One `connector_slot`. `stays` are an action slot's, oldest first."""

    tenant: str
    kind: SlotKind
    slot_id: str
    connector_owner_key: str
    source_object: str | None
    display_name: str
    install_id: str
    status: SlotStatus
    successor_slot_id: str | None
    stays: tuple[Stay, ...]
    first_seen_at: dt.datetime
    updated_at: dt.datetime
    independent_at: dt.datetime | None = None  # of an independent slot: what ended later is not covered

    @property
    def name(self) -> SlotName:
        """What identifies it within its tenant."""
        return SlotName((self.kind, self.slot_id))

    @property
    def destination_slot_id(self) -> str | None:
        """Where an action slot pushes to now."""
        return next((stay.destination_slot_id for stay in self.stays if stay.until is None), None)


def read_registry(conn: sa.Connection, *, tenant: str | None = None) -> list[RegisteredSlot]:
    """All registered slots, of one tenant or of all."""
    statement = sa.select(connector_slot).order_by(*connector_slot.primary_key)
    if tenant is not None:
        statement = statement.where(connector_slot.c.tenant == tenant)
    return [_read(row) for row in conn.execute(statement).mappings()]


def read_action_slots(conn: sa.Connection, objects: Collection[tuple[str, str]]) -> list[RegisteredSlot]:
    """The registered action slots of some (tenant, source object)."""
    if not objects:
        return []
    return [_read(row) for row in _READ_ACTION_SLOTS(conn, sorted(set(objects))).mappings()]


def write_slots(conn: sa.Connection, known: Iterable[SlotName], slots: Sequence[RegisteredSlot]) -> None:
    """Insert the slots that are not among the `known` ones and update the others."""
    there = frozenset(known)
    fresh = [_row(slot) for slot in slots if slot.name not in there]
    changed = [_row(slot) for slot in slots if slot.name in there]
    if fresh:
        conn.execute(connector_slot.insert(), fresh)
    if changed:
        keys = [column.name for column in connector_slot.primary_key]
        statement = sa.update(connector_slot).where(*(connector_slot.c[k] == sa.bindparam(f"of_{k}") for k in keys))
        conn.execute(statement, [{f"of_{k}" if k in keys else k: value for k, value in row.items()} for row in changed])


# ------------------------------------------------------------------------------------------------ what an apply does


def problems_of(pack: Pack, known: Mapping[SlotName, RegisteredSlot]) -> list[str]:
    """Why the registry refuses a pack, one sentence for each slot; empty when it does not."""
    said: list[str] = []
    seen: set[SlotName] = set()
    for name, source_object, _, destination in _declared(pack):
        kind, slot_id = name
        if name in seen:
            said.append(f"The {kind} slot {slot_id!r} stands in the pack twice.")
        seen.add(name)
        before = known.get(name)
        if before is None:
            continue
        if before.connector_owner_key != pack.connector_owner_key:
            said.append(f"The {kind} slot {slot_id!r} belongs to another owner, {before.connector_owner_key!r}.")
        elif before.status is SlotStatus.REBOUND:
            said.append(
                f"The {kind} slot {slot_id!r} was rebound to {before.successor_slot_id!r}; its links are there."
            )
        elif (successor := rebound_to(before, destination)) is not None:
            said.append(
                f"What the {kind} slot {slot_id!r} pushed to {destination!r} was rebound to {successor!r};"
                " its links are there."
            )
        elif before.source_object != source_object:
            said.append(
                f"The {kind} slot {slot_id!r} is the one of {before.source_object!r}, not of {source_object!r};"
                " a slot keeps its object."
            )
    return said


def plan_apply(
    pack: Pack, known: Mapping[SlotName, RegisteredSlot], *, tenant: str, install_id: str, now: dt.datetime
) -> list[RegisteredSlot]:
    """The registry rows that change when `pack` becomes the active one of its owner."""
    wanted: dict[SlotName, RegisteredSlot] = {}
    for name, source_object, display_name, destination in _declared(pack):
        before = known.get(name)
        in_use = before is not None and before.status in IN_USE
        wanted[name] = RegisteredSlot(
            tenant=tenant,
            kind=name[0],
            slot_id=name[1],
            connector_owner_key=pack.connector_owner_key,
            source_object=source_object,
            display_name=display_name,
            install_id=install_id,
            status=before.status if before is not None and in_use else SlotStatus.ACTIVE,
            successor_slot_id=None,
            stays=_stays(before.stays if before else (), destination, now),
            first_seen_at=before.first_seen_at if before else now,
            updated_at=now,
            independent_at=before.independent_at if before is not None and in_use else None,
        )
    gone = [s for s in known.values() if s.connector_owner_key == pack.connector_owner_key and s.name not in wanted]
    changed = [
        slot
        for name, slot in wanted.items()
        if replace(slot, updated_at=_time_of(known.get(name), now)) != known.get(name)
    ]
    return changed + plan_drop(gone, now=now)


def plan_drop(slots: Iterable[RegisteredSlot], *, now: dt.datetime) -> list[RegisteredSlot]:
    """The registry rows that change when none of `slots` is in a pack any more."""
    return [
        replace(slot, status=SlotStatus.DROPPED, stays=_stays(slot.stays, None, now), updated_at=now)
        for slot in slots
        if slot.status in IN_USE
    ]


def name_changes(
    changed: Iterable[RegisteredSlot], known: Mapping[SlotName, RegisteredSlot]
) -> dict[str, tuple[str, ...]]:
    """The ids of the slots that change, by what becomes of them: added, returned, dropped or moved."""
    names: dict[str, set[str]] = {"added": set(), "returned": set(), "dropped": set(), "moved": set()}
    for slot in changed:
        before = known.get(slot.name)
        if slot.status not in IN_USE:
            names["dropped"].add(slot.slot_id)
        elif before is None:
            names["added"].add(slot.slot_id)
        elif before.status not in IN_USE:
            names["returned"].add(slot.slot_id)
        elif before.destination_slot_id != slot.destination_slot_id:
            names["moved"].add(slot.slot_id)
    return {name: tuple(sorted(ids)) for name, ids in names.items()}


def as_independent(slot: RegisteredSlot, *, now: dt.datetime) -> RegisteredSlot:
    """The same slot, said to replace none of those that ended until now."""
    return replace(slot, status=SlotStatus.INDEPENDENT, independent_at=now, updated_at=now)


def as_retired(slot: RegisteredSlot, *, now: dt.datetime) -> RegisteredSlot:
    """The same slot, whose lineage an operator ended."""
    return replace(slot, status=SlotStatus.RETIRED, updated_at=now)


def _declared(pack: Pack) -> Iterator[tuple[SlotName, str | None, str, str | None]]:
    """For each slot of a pack its name, source object, display name and, of an action, the destination."""
    for destination in pack.destinations:
        yield SlotName((SlotKind.DESTINATION, destination.destination_slot_id)), None, destination.target_object, None
    for action in pack.actions():
        slots = action.slots
        shown = f"{action.names.flow}/{action.names.action}"
        yield SlotName((SlotKind.ACTION, slots.action_slot_id)), slots.source_object, shown, slots.destination_slot_id


def _stays(before: tuple[Stay, ...], destination: str | None, now: dt.datetime) -> tuple[Stay, ...]:
    if any(stay.until is None and stay.destination_slot_id == destination for stay in before):
        return before
    ended = tuple(replace(stay, until=stay.until or now) for stay in before)
    return ended if destination is None else (*ended, Stay(destination_slot_id=destination, since=now, until=None))


def _time_of(slot: RegisteredSlot | None, now: dt.datetime) -> dt.datetime:
    return now if slot is None else slot.updated_at


# ------------------------------------------------------------------------------------------------ lineage


def ended_stays(slot: RegisteredSlot) -> list[Slots]:
    """The identities under which an action slot pushed earlier and does not now, unless somebody resolved them."""
    if slot.source_object is None or slot.status in RESOLVED:
        return []
    ended = [stay for stay in slot.stays if stay.until is not None and stay.rebound_to is None]
    destinations = [stay.destination_slot_id for stay in ended]
    return [
        identity_of(slot, destination)
        for destination in dict.fromkeys(destinations)
        if destination != slot.destination_slot_id
    ]


def identity_of(slot: RegisteredSlot, destination: str) -> Slots:
    """The identity under which an action slot pushes, or pushed, to a destination."""
    return Slots(
        tenant=slot.tenant,
        connector_owner_key=slot.connector_owner_key,
        action_slot_id=slot.slot_id,
        destination_slot_id=destination,
        source_object=slot.source_object or "",
    )


def keep_stays(slot: RegisteredSlot, owning: Iterable[Slots]) -> RegisteredSlot:
    """The slot without the ended stays that are not among `owning`."""
    kept = {identity.destination_slot_id for identity in owning}
    stays = [s for s in slot.stays if s.until is None or s.rebound_to or s.destination_slot_id in kept]
    return replace(slot, stays=tuple(stays))


def rebound_to(slot: RegisteredSlot, destination: str | None) -> str | None:
    """The slot that got what this one pushed to `destination`, if somebody rebound it."""
    return next((s.rebound_to for s in slot.stays if s.rebound_to and s.destination_slot_id == destination), None)


def rebind(slot: RegisteredSlot, old: Slots, new: Slots, *, now: dt.datetime) -> RegisteredSlot:
    """The slot after everything that it had at `old` has moved to `new`; another action slot is its successor there.

    A slot that is not in use and has nothing left to resolve is rebound as a whole.
    """
    if old.action_slot_id == new.action_slot_id:
        return replace(slot, updated_at=now)
    there = [s for s in slot.stays if s.destination_slot_id == old.destination_slot_id]
    kept = [s for s in slot.stays if s.destination_slot_id != old.destination_slot_id]
    since = min((s.since for s in there), default=now)
    gone = Stay(
        destination_slot_id=old.destination_slot_id,
        since=since,
        until=max((s.until or now for s in there), default=now),
        rebound_to=new.action_slot_id,
    )
    return replace(slot, stays=(gone, *kept), updated_at=now)


def end_lineage(slot: RegisteredSlot, successor: str, *, now: dt.datetime) -> RegisteredSlot:
    """A slot of which nothing is left: no pack may have it again."""
    return replace(slot, status=SlotStatus.REBOUND, successor_slot_id=successor, updated_at=now)


def former_names(slots: Slots, registry: Iterable[RegisteredSlot]) -> set[str]:
    """The names of older slots, and of actions of before there were slots, that rebind manifests led to this slot."""
    ended = [
        slot
        for slot in registry
        if (slot.kind, slot.tenant, slot.source_object) == (SlotKind.ACTION, slots.tenant, slots.source_object)
        and slot.status is SlotStatus.REBOUND
    ]
    found: set[str] = set()
    reached = {slots.action_slot_id}
    while reached:
        reached = {slot.slot_id for slot in ended if slot.successor_slot_id in reached} - found
        found |= reached
    return found


def replaced_by(
    slots: Slots, registry: Iterable[RegisteredSlot], *, former_owners: Collection[str] = ()
) -> list[Slots]:
    """The identities that `slots` may have replaced.

    They are of the same owner (or of one of its `former_owners`), tenant and source object, and were not in use any
    more when `slots` came into use. What stood beside it for a time is another action, not a predecessor. A slot that
    is declared independent replaces none that ended before somebody said so; where it pushed itself since then, its own
    links are no less its own.
    """
    scope = (slots.tenant, slots.source_object)
    owners = {slots.connector_owner_key, *former_owners}
    related = [s for s in registry if (s.tenant, s.source_object) == scope and s.connector_owner_key in owners]
    own = [slot for slot in related if slot.slot_id == slots.action_slot_id]
    declared = next((slot for slot in own if slot.status is SlotStatus.INDEPENDENT), None)
    if declared is not None and declared.independent_at is None:
        return []
    covered = None if declared is None else declared.independent_at
    since = next((slot.stays[-1].since for slot in own if slot.destination_slot_id == slots.destination_slot_id), None)
    return [
        identity
        for slot in related
        for identity in ended_stays(slot)
        if identity != slots and _counts(_ended_at(slot, identity.destination_slot_id), since, covered)
    ]


def _counts(ended: dt.datetime, since: dt.datetime | None, covered: dt.datetime | None) -> bool:
    """Whether what ended then may be a predecessor of what began at `since`, and nobody has said that it is none."""
    return (since is None or ended <= since) and (covered is None or ended > covered)


def _ended_at(slot: RegisteredSlot, destination: str) -> dt.datetime:
    return max(s.until for s in slot.stays if s.until is not None and s.destination_slot_id == destination)


# ------------------------------------------------------------------------------------------------ rows


def _read_action_slots_statement(rows: sa.FromClause) -> sa.Executable:
    t = connector_slot
    same = sa.and_(t.c.tenant == rows.c.tenant, t.c.source_object == rows.c.source_object)
    of_actions = sa.select(t).join_from(rows, t, same).where(t.c.kind == SlotKind.ACTION.value)
    return of_actions.order_by(*t.primary_key)


_OBJECTS: Final = Batch("objects", {"tenant": sa.Text(), "source_object": sa.Text()})
_READ_ACTION_SLOTS: Final = _OBJECTS.prepare(_read_action_slots_statement)


def _read(row: sa.RowMapping) -> RegisteredSlot:
    kept = json.loads(row["detail"]) if row["detail"] else {}
    stays = tuple(
        Stay(
            destination_slot_id=stay["destination_slot_id"],
            since=read_time(stay["since"]),
            until=read_time(stay["until"]) if stay["until"] else None,
            rebound_to=stay.get("rebound_to"),
        )
        for stay in kept.get("stays", ())
    )
    plain = {name: value for name, value in row.items() if name not in {"detail", "kind", "status"}}
    since = kept.get("independent_at")
    return RegisteredSlot(
        kind=SlotKind(row["kind"]),
        status=SlotStatus(row["status"]),
        stays=stays,
        independent_at=read_time(since) if since else None,
        **plain,
    )


def _row(slot: RegisteredSlot) -> dict[str, Any]:
    stays = [
        {
            "destination_slot_id": stay.destination_slot_id,
            "since": write_time(stay.since),
            "until": write_time(stay.until) if stay.until else None,
            **({"rebound_to": stay.rebound_to} if stay.rebound_to else {}),
        }
        for stay in slot.stays
    ]
    row = {column.name: getattr(slot, column.name) for column in connector_slot.columns if column.name != "detail"}
    kept: dict[str, Any] = {"stays": stays} if stays else {}
    if slot.independent_at is not None:
        kept["independent_at"] = write_time(slot.independent_at)
    return row | {
        "kind": slot.kind.value,
        "status": slot.status.value,
        "detail": json.dumps(kept) if kept else None,
    }
