"""Before a pack is applied: what would change for slots, links and attempts, computed the way a claim computes it.

Nothing is written and no lock is taken. The plan builds the catalogue that the apply would leave and compares every
group of rows with it, and with the catalogue of now, so that what drifted before is told from what the pack would do.
It holds while the rest stays as it is: rows, credentials, sources, permissions, and what the remote says.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from os import PathLike
from typing import Final, TypeAlias

from pushlink.flows.drifting import Drifting
from pushlink.flows.world import World
from pushlink.packs.loader import load_pack
from pushlink.protocol.drift import MATRIX, AttemptVerdict, Hit, LinkVerdict, Row, strictest
from pushlink.protocol.fates import AttemptFate, LinkFate, create_fate, link_fate, update_fate
from pushlink.protocol.snapshots import Slots
from pushlink.store.access import Connection
from pushlink.store.active import ActiveCatalog
from pushlink.store.plans import (
    CreateGroup,
    LinkGroup,
    PlannedApply,
    Sample,
    UpdateGroup,
    group_creates,
    group_links,
    group_updates,
    plan_pack,
    read_samples,
)
from pushlink.store.rows import slots_of

#: Samples shown of each surface and of each lineage that blocks.
SAMPLES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FateCount:
    """How many rows have one fate under the catalogue of now, and would have it after the apply."""

    fate: str
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceView:
    """One row of the drift matrix that would be hit. A link or create that drifted so before is counted in both.

    `link_verdict` and `create_verdict` are the strictest among the rows, after the waivers of their profile. `decides`
    counts the links for which this surface brings the verdict.
    """

    rule: str
    surface: str
    says: str
    links_before: int
    links: int
    link_verdict: str
    decides: int
    creates_before: int
    creates: int
    create_verdict: str
    blocks_new_create: bool  # another create of these keys waits for supersede or release-slot, which show both paths
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedView:
    """An action whose new records would reserve nothing, because slots that it may replace still own something."""

    action_slot_id: str
    destination_slot_id: str
    source_object: str
    replaced: tuple[str, ...]  # as `action -> destination`
    links: int
    creates: int
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """What an apply would do. `revision` is the install's; the catalogue's is counted up with every change."""

    file: str
    pack: str
    version: str
    tenant: str
    revision: int
    is_new_incarnation: bool
    is_changed: bool
    added_slots: tuple[str, ...]
    returned_slots: tuple[str, ...]
    dropped_slots: tuple[str, ...]
    moved_slots: tuple[str, ...]
    links: tuple[FateCount, ...]
    creates: tuple[FateCount, ...]
    updates: tuple[FateCount, ...]
    surfaces: tuple[SurfaceView, ...]
    creates_blocked: tuple[BlockedView, ...]

    @property
    def stops_something(self) -> bool:
        """Whether fewer links or creates would go on than do now, or new records would be refused."""
        lost = any(count.after > count.before for count in (*self.links, *self.creates) if count.fate in _STOPPED)
        return lost or bool(self.creates_blocked)


_STOPPED: Final = frozenset({LinkFate.REFUSED, LinkFate.SUSPENDS, AttemptFate.HELD, AttemptFate.DOUBTFUL})

_Judged: TypeAlias = tuple[LinkGroup | CreateGroup, tuple[Hit, ...], tuple[Hit, ...]]


def plan(
    conn: Connection,
    path: str | PathLike[str],
    *,
    tenant: str,
    world: World,
    now: dt.datetime,
    samples: int = SAMPLES,
) -> PlanView:
    """What `apply` of this file would do for a tenant; raises what `apply` would raise for a pack that is refused."""
    pack = load_pack(path)
    planned = plan_pack(conn, pack, tenant=tenant, now=now)
    owner = pack.connector_owner_key
    links = group_links(conn, tenant=tenant, connector_owner_key=owner)
    creates = group_creates(conn, tenant=tenant, connector_owner_key=owner)
    updates = group_updates(conn, tenant=tenant, connector_owner_key=owner)
    validated = [*(group.link for group in links), *(group.link for group in updates)]
    frozen = [group.request for group in creates]
    profiles = [*(row.profile_digest for row in validated), *(row.profile_digest for row in frozen)]
    actions = [*(row.action_digest for row in validated), *(row.action_digest for row in frozen)]
    world.thaw(conn, profiles, actions)
    judge = _Judge(world, planned)
    judged: list[_Judged] = [(group, *judge.link(group)) for group in links]
    judged += [(group, *judge.create(group)) for group in creates]
    return PlanView(
        file=str(path),
        pack=pack.pack,
        version=pack.version,
        tenant=tenant,
        revision=planned.revision,
        is_new_incarnation=planned.is_new_incarnation,
        is_changed=planned.is_changed,
        **{f"{name}_slots": ids for name, ids in planned.slots.items()},
        links=_counts(LinkFate, [(group.rows, judge.link_fates(group)) for group in links]),
        creates=_counts(AttemptFate, [(group.rows, judge.create_fates(group)) for group in creates]),
        updates=_counts(AttemptFate, [(group.rows, judge.update_fates(group)) for group in updates]),
        surfaces=tuple(_surfaces(judged, lambda group, limit: read_samples(conn, group, limit=limit), samples)),
        creates_blocked=tuple(_blocked(conn, planned, links, creates, samples)),
    )


class _Judge:
    """Every comparison of a plan, with the catalogue of now and with the one that would be."""

    def __init__(self, world: World, planned: PlannedApply) -> None:
        self._drifting = Drifting(world)
        self._sides = (planned.before, planned.after)

    def link(self, group: LinkGroup | UpdateGroup) -> tuple[tuple[Hit, ...], tuple[Hit, ...]]:
        before, after = (self._drifting.of_link(group.link, side) for side in self._sides)
        return before, after

    def create(self, group: CreateGroup) -> tuple[tuple[Hit, ...], tuple[Hit, ...]]:
        before, after = (self._drifting.of_request(group.request, group.slot, side) for side in self._sides)
        return before, after

    def link_fates(self, group: LinkGroup) -> list[StrEnum]:
        return [link_fate(group.link.status, hits) for hits in self.link(group)]

    def create_fates(self, group: CreateGroup) -> list[StrEnum]:
        standing = {"in_doubt": group.in_doubt, "hold": group.hold}
        return [create_fate(group.status, **standing, hits=hits) for hits in self.create(group)]  # type: ignore[arg-type]

    def update_fates(self, group: UpdateGroup) -> list[StrEnum]:
        return [
            update_fate(
                group.status,
                group.link.status,
                hold=group.hold,
                is_stale=not group.is_frozen and _is_stale(group, side),
                hits=hits,
            )
            for side, hits in zip(self._sides, self.link(group), strict=True)
        ]


def _is_stale(group: UpdateGroup, side: ActiveCatalog) -> bool:
    current = side.find(slots_of(group.link))
    return current is not None and not current.has_mapping(group.wanted_mapping_fingerprint)


def _counts(fates: type[StrEnum], groups: Sequence[tuple[int, list[StrEnum]]]) -> tuple[FateCount, ...]:
    """Every fate that some row has or would have, in the order of its enumeration."""
    before, after = Counter[StrEnum](), Counter[StrEnum]()
    for rows, (old, new) in groups:
        before[old] += rows
        after[new] += rows
    return tuple(
        FateCount(fate=fate.value, before=before[fate], after=after[fate])
        for fate in fates
        if before[fate] or after[fate]
    )


def _surfaces(
    judged: Sequence[_Judged], read: Callable[[LinkGroup | CreateGroup, int], list[Sample]], samples: int
) -> list[SurfaceView]:
    found = [_surface(row, judged, read, samples) for row in MATRIX]
    return [view for view in found if view is not None]


def _surface(
    row: Row, judged: Sequence[_Judged], read: Callable[[LinkGroup | CreateGroup, int], list[Sample]], samples: int
) -> SurfaceView | None:
    """One row of the matrix over all groups; `None` when the apply leaves it as it is, hit by nothing."""
    counts: Counter[str] = Counter()
    hits: dict[str, list[Hit]] = {"links": [], "creates": []}
    shown: list[Sample] = []
    for group, before, after in judged:
        kind = "links" if isinstance(group, LinkGroup) else "creates"
        counts[f"{kind}_before"] += group.rows if any(hit.row is row for hit in before) else 0
        hit = next((one for one in after if one.row is row), None)
        if hit is None:
            continue
        counts[kind] += group.rows
        hits[kind].append(hit)
        decides = strictest(after).link_hit
        if kind == "links" and decides is hit:
            counts["decides"] += group.rows
        if len(shown) < samples:
            shown += read(group, samples - len(shown))
    if not any(counts.values()):
        return None
    return SurfaceView(
        rule=row.rule,
        surface=row.surface.value,
        says=row.words,
        links_before=counts["links_before"],
        links=counts["links"],
        link_verdict=(strictest(hits["links"]).link if hits["links"] else LinkVerdict.NONE).value,
        decides=counts["decides"],
        creates_before=counts["creates_before"],
        creates=counts["creates"],
        create_verdict=(strictest(hits["creates"]).create if hits["creates"] else AttemptVerdict.NONE).value,
        blocks_new_create=row.blocks_new_create,
        samples=tuple(shown),
    )


def _blocked(
    conn: Connection,
    planned: PlannedApply,
    links: Sequence[LinkGroup],
    creates: Sequence[CreateGroup],
    samples: int,
) -> list[BlockedView]:
    """The actions that would create nothing until somebody says what becomes of the slots they replace (D-29)."""
    owners: Mapping[Slots, list[LinkGroup | CreateGroup]] = {
        old: [
            *(group for group in links if slots_of(group.link) == old),
            *(group for group in creates if slots_of(group.slot) == old),
        ]
        for probes in planned.predecessors.values()
        for old in probes
    }
    views = []
    for action, probes in planned.predecessors.items():
        groups = [group for old in probes for group in owners[old]]
        shown: list[Sample] = []
        for group in groups:
            if len(shown) < samples:
                shown += read_samples(conn, group, limit=samples - len(shown))
        views.append(
            BlockedView(
                action_slot_id=action.action_slot_id,
                destination_slot_id=action.destination_slot_id,
                source_object=action.source_object,
                replaced=tuple(f"{old.action_slot_id} -> {old.destination_slot_id}" for old in probes),
                links=sum(group.rows for group in groups if isinstance(group, LinkGroup)),
                creates=sum(group.rows for group in groups if isinstance(group, CreateGroup)),
                samples=tuple(shown),
            )
        )
    return views
