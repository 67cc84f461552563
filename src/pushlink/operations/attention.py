"""Everything that waits for a person: what rows tell of by themselves, and what a comparison with now shows.

`explain` asks for one record, `stuck` for a tenant, `doctor` for a deployment, and all of them here. Links are compared
with the catalogue by groups that share their snapshots, so a hundred thousand of them are a handful of comparisons.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final

from pushlink.errors import Code
from pushlink.flows.again import drift_of_earlier
from pushlink.flows.drifting import Drifting
from pushlink.flows.replaying import Trust
from pushlink.flows.world import World
from pushlink.operations.contract_states import ContractState
from pushlink.protocol.attention import Kind
from pushlink.protocol.drift import Hit, stops_update, strictest
from pushlink.protocol.replay import has_contract
from pushlink.protocol.snapshots import Digest, LinkKey
from pushlink.protocol.states import Hold, Operation
from pushlink.store import links, waiting
from pushlink.store.access import Connection
from pushlink.store.active import ActiveCatalog, CatalogReader
from pushlink.store.catalog import read_deployment, read_unresolved_slots
from pushlink.store.plans import LinkGroup
from pushlink.store.reads import read_newest_attempt
from pushlink.store.registry import IN_USE, SlotKind, read_registry
from pushlink.store.rows import AttemptRow, LinkRow, SlotRow, slots_of
from pushlink.store.slots import read_slots
from pushlink.store.waiting import WaitingRow

#: Freed slots that are looked at in one go.
FREED_PAGE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why some wait, and how many. `about` tells causes of one code apart: the surface that drifted."""

    kind: Kind
    code: str
    about: str
    rows: int
    oldest: dt.datetime | None

    @property
    def name(self) -> str:
        """As it is typed: `held/drift`, `drifted/drift/mapping`, `behind`."""
        return "/".join(part for part in (self.kind.value, self.code, self.about) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that waits. `key` is where a page goes on; a whole deployment or action has a note and no rows."""

    kind: Kind
    code: str
    about: str = ""
    key: str
    since: dt.datetime | None
    source_object: str = ""
    record_id: str = ""
    slot: SlotRow | None = None
    attempt: AttemptRow | None = None
    link: LinkRow | None = None
    drift: tuple[Hit, ...] = ()
    note: str = ""
    seen: int = 0  # of a deployment: how often it was confirmed


class Attention:
    """What waits in one tenant, or with `None` in all of them, at one moment. Without a `World` nothing is compared."""

    def __init__(self, conn: Connection, *, world: World | None, tenant: str | None, now: dt.datetime) -> None:
        self._conn = conn
        self._world = world
        self._tenant = tenant
        self._now = now
        self.catalog: ActiveCatalog = (world.catalog if world is not None else CatalogReader()).read(conn)
        self._drifting = Drifting(world) if world is not None else None

    def causes(self, kind: Kind | None = None) -> list[Cause]:
        """Every cause, or those of one kind, by kind, code and what it is about; a whole deployment's come first."""
        found = [
            Cause(kind=c.kind, code=c.code, about="", rows=c.rows, oldest=c.oldest)
            for c in waiting.read_causes(self._conn, tenant=self._tenant, kind=kind)
        ]
        if kind in {None, Kind.DRIFTED}:
            found += [
                _grouped(Kind.DRIFTED, Code.DRIFT.value, surface, groups) for surface, groups in self._drifted.items()
            ]
        if kind in {None, Kind.BLOCKED}:
            found += _counted(self._blocked(""))
        if kind in {None, Kind.UNCERTIFIED} and self._uncertified:
            found.append(_grouped(Kind.UNCERTIFIED, "", "", list(self._uncertified.values())))
        whole = [cause for cause in _counted(self.of_deployment()) if kind in {None, cause.kind}]
        return [*whole, *sorted(found, key=lambda cause: cause.name)]

    def items(self, cause: Cause, *, after: str = "", limit: int) -> list[Item]:
        """What waits for one cause, behind a key; what was made first comes first. Only of one tenant."""
        tenant = self._tenant or ""
        match cause.kind:
            case Kind.DRIFTED:
                groups = self._drifted.get(cause.about, [])
                found = waiting.read_grouped(self._conn, groups, after=after, limit=limit)
                return self._of_links(found)
            case Kind.BLOCKED:
                return [self._with_create(item) for item in islice(self._blocked(after), limit)]
            case Kind.UNCERTIFIED:
                actions = list(self._uncertified)
                attempts = waiting.read_doubtful(self._conn, actions, tenant=tenant, after=after, limit=limit)
                return [_of_attempt(row, slot) for row, slot in zip(attempts, self._slots(attempts), strict=True)]
            case Kind.RECOVERING | Kind.UNCLEARED | Kind.REPLACED | Kind.UNUSABLE:
                same = [item for item in self.of_deployment() if item.kind is cause.kind and item.key > after]
                return same[:limit]
            case _:
                rows = waiting.read_waiting(self._conn, cause.kind, cause.code, tenant=tenant, after=after, limit=limit)
                return self._of_rows(rows)

    def of_record(
        self,
        slot: SlotRow,
        link: LinkRow | None,
        *,
        drift: tuple[Hit, ...],
        blocked: AttemptRow | None,
        update: AttemptRow | None,
        contract: tuple[AttemptRow, ContractState] | None,
    ) -> list[Item]:
        """Everything that waits under one link key, from what its explanation has compared already."""
        found = self._of_rows(waiting.read_waiting_of(self._conn, [slot.link_key]))
        is_told = update is not None and update.hold_code == Hold.DRIFT.value
        if drift and link is not None and not is_told:
            found.append(_of_link(link, slot, drift))
        if blocked is not None:
            found.append(replace(_of_slot(slot), attempt=blocked))
        if contract is not None and not contract[1].is_certified:
            found.append(_of_attempt(contract[0], slot))
        return found

    def of_deployment(self, source_object: str | None = None) -> Iterator[Item]:
        """What waits as a whole: the deployment, actions that cannot be used, slots that replace others."""
        found = read_deployment(self._conn)
        if found.mode != "running":
            yield _of_whole(Kind.RECOVERING, found.updated_at, found.confirmations)
        if found.uncleared_since is not None:
            yield _of_whole(Kind.UNCLEARED, found.uncleared_since, found.confirmations)
        yield from self._unusable(source_object)
        yield from self._replaced(source_object)

    # -------------------------------------------------------------------------------------------- by comparison

    @cached_property
    def _drifted(self) -> Mapping[str, list[LinkGroup]]:
        """Groups of links that an update would be refused for, by the surface that decides."""
        found: dict[str, list[LinkGroup]] = defaultdict(list)
        if self._world is not None:
            groups = waiting.group_finalized(self._conn, tenant=self._tenant)
            for group in groups:
                hits = self._drift_of(group.link)
                if hits:
                    found[surface_of(hits)].append(group)
        return dict(sorted(found.items()))

    def _drift_of(self, link: LinkRow | None) -> tuple[Hit, ...]:
        if link is None or self._drifting is None or self._world is None:
            return ()
        self._world.thaw(self._conn, [link.profile_digest], [link.action_digest])
        return stops_update(self._drifting.of_link(link, self.catalog))

    def _blocked(self, after: str) -> Iterator[Item]:
        """Records whose place is free and whose next create would be refused for its path (DR-15)."""
        if self._world is None or self._drifting is None:
            return
        while page := waiting.read_freed(self._conn, tenant=self._tenant, after=after, limit=FREED_PAGE):
            freed: dict[LinkKey, SlotRow] = {
                slot.link_key: slot for slot in page if self.catalog.find(slots_of(slot)) is not None
            }
            blocked = drift_of_earlier(self._world, self._drifting, self._conn, freed, self.catalog)
            yield from (_of_slot(slot) for key, slot in freed.items() if key in blocked)
            after = page[-1].link_key

    @cached_property
    def _uncertified(self) -> Mapping[Digest, waiting.DoubtfulGroup]:
        """Creates in doubt whose frozen contract nobody relies on, by the action that they froze."""
        if self._world is None:
            return {}
        groups = {group.action_digest: group for group in waiting.group_doubtful(self._conn, tenant=self._tenant)}
        _, actions = self._world.thaw(self._conn, [], list(groups))
        trusted = Trust(self._world).of(self._conn, groups, now=self._now)
        return {
            digest: group
            for digest, group in groups.items()
            if digest not in trusted and has_contract(actions[digest].contract.create)
        }

    def _unusable(self, source_object: str | None) -> Iterator[Item]:
        objects = {
            (slot.tenant, slot.source_object)
            for slot in read_registry(self._conn, tenant=self._tenant)
            if slot.kind is SlotKind.ACTION and slot.status in IN_USE and slot.source_object is not None
        }
        for tenant, name in sorted(objects):
            for problem in self.catalog.problems_for(tenant, name) if source_object in (None, name) else ():
                key = f"{tenant}/{name}/{problem.action}"
                yield Item(
                    kind=Kind.UNUSABLE,
                    code=Code.INSTALL_UNUSABLE.value,
                    key=key,
                    since=None,
                    source_object=name,
                    note=f"{problem.action or name}: {problem.message}",
                )

    def _replaced(self, source_object: str | None) -> Iterator[Item]:
        actions = [
            action
            for action in self.catalog.all_actions()
            if self._tenant in (None, action.slots.tenant) and source_object in (None, action.slots.source_object)
        ]
        unresolved = read_unresolved_slots(self._conn, [action.slots for action in actions])
        for action, old in sorted(zip(actions, unresolved, strict=True), key=lambda pair: pair[0].slots.action_slot_id):
            if old:
                yield Item(
                    kind=Kind.REPLACED,
                    code=Code.LINEAGE_UNRESOLVED.value,
                    key=action.slots.action_slot_id,
                    since=None,
                    source_object=action.slots.source_object,
                    note=f"{action.names.action} ({action.slots.action_slot_id}) after {', '.join(old)}",
                )

    # -------------------------------------------------------------------------------------------- rows

    def _of_rows(self, rows: Sequence[WaitingRow]) -> list[Item]:
        slots = read_slots(self._conn, [row.link_key for row in rows])
        owned = links.read_links(self._conn, [row.link_key for row in rows])
        return [
            Item(
                kind=row.kind,
                code=row.code,
                key=row.key,
                since=row.since,
                source_object=row.source_object,
                record_id=row.source_record_id,
                slot=slot,
                attempt=row.attempt,
                link=link if row.attempt is None or _is_held_update(row.attempt) else None,
                drift=self._drift_of(link) if row.kind is Kind.SUSPENDED or _is_held_update(row.attempt) else (),
            )
            for row, slot, link in zip(rows, slots, owned, strict=True)
        ]

    def _with_create(self, item: Item) -> Item:
        return replace(item, attempt=read_newest_attempt(self._conn, LinkKey(item.key), Operation.CREATE))

    def _of_links(self, found: Sequence[LinkRow]) -> list[Item]:
        slots = read_slots(self._conn, [link.link_key for link in found])
        return [
            _of_link(link, slot, self._drift_of(link))
            for link, slot in zip(found, slots, strict=True)
            if slot is not None
        ]

    def _slots(self, attempts: Sequence[AttemptRow]) -> list[SlotRow | None]:
        return read_slots(self._conn, [row.link_key for row in attempts])


def _is_held_update(attempt: AttemptRow | None) -> bool:
    """Whether it is the link that has to be looked at: an update is held for it."""
    return attempt is not None and attempt.operation is Operation.UPDATE and attempt.hold_code == Hold.DRIFT.value


def surface_of(hits: Iterable[Hit]) -> str:
    """The surface that decides about a link."""
    decides = strictest(hits).link_hit
    return "" if decides is None else decides.surface.value


def _of_whole(kind: Kind, since: dt.datetime, confirmations: int) -> Item:
    return Item(kind=kind, code=Code.RECOVERY_MODE.value, key="deployment", since=since, seen=confirmations)


def _of_link(link: LinkRow, slot: SlotRow, drift: tuple[Hit, ...]) -> Item:
    return Item(
        kind=Kind.DRIFTED,
        code=Code.DRIFT.value,
        about=surface_of(drift),
        key=link.id,
        since=link.updated_at,
        source_object=link.source_object,
        record_id=link.source_record_id,
        slot=slot,
        link=link,
        drift=drift,
    )


def _of_slot(slot: SlotRow) -> Item:
    return Item(
        kind=Kind.BLOCKED,
        code=Code.DRIFT.value,
        key=slot.link_key,
        since=slot.wanted_at or slot.created_at,
        source_object=slot.source_object,
        record_id=slot.source_record_id,
        slot=slot,
    )


def _of_attempt(attempt: AttemptRow, slot: SlotRow | None) -> Item:
    return Item(
        kind=Kind.UNCERTIFIED,
        code="",
        key=attempt.id,
        since=attempt.updated_at,
        source_object=slot.source_object if slot is not None else "",
        record_id=slot.source_record_id if slot is not None else "",
        slot=slot,
        attempt=attempt,
    )


def _grouped(kind: Kind, code: str, about: str, groups: Sequence[LinkGroup | waiting.DoubtfulGroup]) -> Cause:
    """The cause of groups that were judged as such."""
    rows, oldest = sum(group.rows for group in groups), min(group.oldest for group in groups)
    return Cause(kind=kind, code=code, about=about, rows=rows, oldest=oldest)


def _counted(items: Iterable[Item]) -> list[Cause]:
    """Causes of what is looked at one by one; none of it is kept."""
    found: dict[tuple[Kind, str], Cause] = {}
    for item in items:
        known = found.get((item.kind, item.code))
        times = [since for since in (item.since, known.oldest if known else None) if since is not None]
        found[item.kind, item.code] = Cause(
            kind=item.kind,
            code=item.code,
            about="",
            rows=1 + (known.rows if known else 0),
            oldest=min(times, default=None),
        )
    return list(found.values())
