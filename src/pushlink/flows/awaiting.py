"""What claims do for attempts that refer to other records: gather how it stands, and let go on what was waiting.

A link that is finalized tells its waiters through one row (`store/associations.py`); each claim lets a bounded number
of them go on. A held row is also looked at again by itself, after pauses that grow with its age, so that what nobody
told (a race, a parent that failed, a circle that formed later) is seen, and ended where the pack says so.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from pushlink.errors import Code
from pushlink.flows.associations import Question, read_targets, refer
from pushlink.flows.candidates import Candidate, SaveItem
from pushlink.flows.cycles import describe
from pushlink.flows.step_items import Settle
from pushlink.flows.world import World
from pushlink.ports import AuthorityRequest, RecordRef
from pushlink.protocol.association_contracts import Association
from pushlink.protocol.associations import (
    Reference,
    Vector,
    association_fields,
    carried_by,
    find_cycle,
    read_vector,
)
from pushlink.protocol.contracts import ActionContract
from pushlink.protocol.snapshots import AttemptId, AuthoritySnapshot, LinkKey, SourceValues
from pushlink.protocol.states import CLAIMED_IN_PLACE, USABLE_LINKS, CreateEvent, Lane, Operation
from pushlink.protocol.waiting import HOLD_OF, Standing, Target, look_pause, worst
from pushlink.store import associations, attempts, lifecycle, links, requests, slots
from pushlink.store.active import ActiveCatalog
from pushlink.store.attempts import SetHold
from pushlink.store.lifecycle import Claims, Move
from pushlink.store.rows import AttemptRow, RequestRow, SlotIdentity, SlotRow, slots_of

#: Rows that one claim lets go on, and that it looks at again.
WOKEN_MAX = 500
LOOKED_AT_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """What one attempt refers to, and how it stands with all that its request carries."""

    vector: Vector = ()
    targets: tuple[Target, ...] = ()
    origin: RequestRow | None = None
    contract: ActionContract | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An attempt with what it is made of: the request of a create, the slot of an update."""

    row: AttemptRow
    identity: SlotIdentity | SlotRow
    request: RequestRow | None = None
    slot: SlotRow | None = None


def read_awaited(
    world: World, conn: sa.Connection, items: Sequence[Held], catalog: ActiveCatalog
) -> dict[AttemptId, Awaited]:
    """How it stands with each attempt that refers to anything; others are not in the answer, and cost nothing."""
    found: dict[AttemptId, Awaited] = {}
    for item in items:
        contract = _contract(world, item, catalog)
        if contract is not None and contract.associations and item.row.status not in CLAIMED_IN_PLACE:
            found[item.row.id] = Awaited(vector=_frozen_vector(item), contract=contract)
    if not found:
        return found
    concerned = [item for item in items if item.row.id in found]
    blocked = _read_live(world, conn, concerned, found, catalog)
    questions = [
        Question(
            tenant=item.row.tenant,
            references=_carried(item.row, found[item.row.id].vector),
            waited=item.row.updated_at - item.row.created_at,
        )
        for item in concerned
    ]
    deferred = [item.row.id for item in concerned if item.row.dispatch_lane == Lane.DEFERRED_ASSOCIATION.value]
    origins = dict(zip(deferred, requests.read_first_requests(conn, deferred), strict=True))
    for item, targets in zip(concerned, read_targets(conn, questions), strict=True):
        key = item.row.id
        found[key] = replace(found[key], targets=targets + blocked.get(key, ()), origin=origins.get(key))
    return found


def let_go_on(
    world: World, conn: sa.Connection, lanes: Sequence[Lane], catalog: ActiveCatalog, *, actor: str, now: dt.datetime
) -> int:
    """Clear the holds of attempts whose record has its link now; answers how many."""
    rows = associations.take_woken(conn, lanes, limit=WOKEN_MAX)
    attempts.set_holds(conn, [_released(row, actor, "finalized", now) for row in rows], now=now)
    return len(rows) + _look_again(world, conn, lanes, catalog, actor=actor, now=now)


def _look_again(
    world: World, conn: sa.Connection, lanes: Sequence[Lane], catalog: ActiveCatalog, *, actor: str, now: dt.datetime
) -> int:
    """Judge held rows anew whose pause is over: they go on, are held otherwise, end, or wait again."""
    rows = associations.read_looks(conn, lanes, limit=LOOKED_AT_MAX, now=now)
    if not rows:
        return 0
    awaited = read_awaited(world, conn, gather_held(world, conn, [_as_of(row, now) for row in rows]), catalog)
    circles = _circles(conn, rows, awaited)
    freed, held, ended, later = [], [], [], []
    for row in rows:
        state = awaited.get(row.id, Awaited())
        target = circles.get(row.id) or worst(state.targets)
        if target is None:
            freed.append(_released(row, actor, "looked_at_again", now))
        elif _is_given_up(row, target, state, now):
            ended.append(_given_up(row, target, actor))
        elif HOLD_OF[target.standing].value != row.hold_code:
            held.append(_held(row, target, state, actor, now))
        else:
            later.append((row.id, now + _pause(row, target, state, now)))
    attempts.set_holds(conn, [*freed, *held], now=now)
    lifecycle.move_attempts(conn, ended, now=now)
    associations.postpone_looks(conn, later)
    associations.delete_waits(conn, [*(hold.row.id for hold in freed), *(move.row.id for move in ended)])
    return len(freed)


def await_targets(conn: sa.Connection, items: Sequence[Settle], *, now: dt.datetime) -> None:
    """Remember whom these holds wait for. A record that was finalized since the claim had looked is told at once.

    Call it under the slots of the awaited records: who finalizes one has to hold its slot, so it either has done so and
    is seen here, or comes later and sees what is written here.
    """
    waits = [
        associations.Wait(attempt_id=i.move.row.id, link_key=i.move.row.link_key, target_link_key=key)
        for i in items
        for key in i.awaits
    ]
    if not waits:
        return
    associations.insert_waits(conn, waits)
    there = links.read_links(conn, sorted({wait.target_link_key for wait in waits}))
    usable = [link.link_key for link in there if link is not None and link.status in USABLE_LINKS]
    associations.note_finalized(conn, usable, now=now)


def gather_held(world: World, conn: sa.Connection, rows: Sequence[AttemptRow]) -> list[Held]:
    """What each attempt is made of, with the snapshots that it names thawed."""
    keys = [row.link_key for row in rows]
    creates = [row.id for row in rows if row.operation is Operation.CREATE]
    frozen = {request.attempt_id: request for request in requests.read_requests(conn, creates) if request}
    found = {slot.link_key: slot for slot in slots.read_slots(conn, keys) if slot is not None}
    world.thaw(conn, [], [request.action_digest for request in frozen.values()])
    return [
        Held(row=row, identity=found[row.link_key], request=frozen.get(row.id), slot=found[row.link_key])
        for row in rows
    ]


def _contract(world: World, item: Held, catalog: ActiveCatalog) -> ActionContract | None:
    """What a create was frozen with; what an update will be rendered by."""
    if item.row.operation is Operation.CREATE:
        snapshot = None if item.request is None else world.actions.get(item.request.action_digest)
        return None if snapshot is None else snapshot.contract
    current = catalog.find(slots_of(item.identity))
    return None if current is None else current.contract


def _frozen_vector(item: Held) -> Vector:
    if item.row.operation is Operation.CREATE:
        return read_vector(item.request.association_vector if item.request else None)
    return read_vector(item.slot.wanted_associations if item.slot else None)


def _carried(row: AttemptRow, vector: Vector) -> tuple[Reference, ...]:
    if row.association is not None:
        return tuple(entry for entry in vector if entry is not None and entry.name == row.association)
    return tuple(carried_by(vector, "create" if row.operation is Operation.CREATE else "update"))


def _circles(
    conn: sa.Connection, rows: Sequence[AttemptRow], awaited: Mapping[AttemptId, Awaited]
) -> dict[AttemptId, Target]:
    """Attempts that wait for themselves by way of others, which no admission could see (D-30)."""
    waiting = {
        row.id: (row, target)
        for row in rows
        if row.operation is Operation.CREATE and (target := worst(awaited.get(row.id, Awaited()).targets)) is not None
    }
    edges = associations.read_edges(conn, [row.link_key for row, _ in waiting.values()])
    found = {key: cycle for key, (row, _) in waiting.items() if (cycle := find_cycle(edges, row.link_key)) is not None}
    words = describe(conn, {key for cycle in found.values() for key in cycle})
    return {
        key: replace(
            waiting[key][1],
            standing=Standing.BLOCKED,
            because="circle: " + ", ".join(words[part] for part in cycle),
        )
        for key, cycle in found.items()
    }


# ----------------------------------------------------------------------------- rows of before vectors (DL-13)


def _read_live(
    world: World,
    conn: sa.Connection,
    items: Sequence[Held],
    found: dict[AttemptId, Awaited],
    catalog: ActiveCatalog,
) -> dict[AttemptId, tuple[Target, ...]]:
    """Look up what `configured` creates without a vector refer to now; answers what their author may not know.

    This is for rows that were reserved before vectors were kept. A deferred create is never looked up: it fails closed.
    """
    older = [
        (item, candidate)
        for item in items
        if item.row.operation is Operation.CREATE
        and item.row.dispatch_lane == Lane.CONFIGURED.value
        and not found[item.row.id].vector
        and (candidate := _candidate_of(world, conn, item, found[item.row.id].contract, catalog)) is not None
    ]
    blocked: dict[AttemptId, tuple[Target, ...]] = {}
    referred = refer(world, conn, [candidate for _, candidate in older], catalog) if older else []
    for (item, candidate), references in zip(older, referred, strict=True):
        unknown = {*references.missing, *references.denied}
        own = candidate.action.contract.associations
        blocked[item.row.id] = (
            *(_unknown(each, "no_such_record") for each in own if each.name in unknown),
            *(_unknown(each, "not_readable") for each in own if each.source in candidate.denied),
        )
        vector = tuple(None if entry is None or entry.name in unknown else entry for entry in references.vector)
        found[item.row.id] = replace(found[item.row.id], vector=vector)
    return blocked


def _candidate_of(
    world: World, conn: sa.Connection, item: Held, contract: ActionContract | None, catalog: ActiveCatalog
) -> Candidate | None:
    """The record of an attempt, as its author may read it now."""
    current = catalog.find(slots_of(item.identity))
    if current is None or item.request is None or contract is None:
        return None
    author = AuthoritySnapshot.read(item.request.authority).user_id
    ref = RecordRef(source_object=item.identity.source_object, record_id=item.identity.source_record_id)
    fields = association_fields(contract)
    [decision] = world.authority.decide_reads(conn, [AuthorityRequest(user_id=author, ref=ref, fields=fields)])
    allowed = () if decision is None or not decision.row_readable else decision.allowed_fields
    [row] = world.records.read_records(conn, [ref], [[field for field in fields if field in allowed]])
    return Candidate(
        item=SaveItem(ref=ref, user_id=author, tenant=item.row.tenant),
        position=0,
        action=replace(current, contract=contract),
        link_key=item.row.link_key,
        decision=decision,
        denied=tuple(field for field in fields if field not in allowed),
        exists=row is not None,
        values=SourceValues(values=row or {}),
        mirror={},
    )


def _unknown(association: Association, because: str) -> Target:
    reference = Reference(
        name=association.name,
        mode=association.mode,
        source_object=association.source_object,
        record_id="",
        action_slot_id=association.action_slot_id,
        link_key=LinkKey(""),
    )
    return Target(reference=reference, standing=Standing.BLOCKED, because=because)


# ----------------------------------------------------------------------------------------------- what is written


def _as_of(row: AttemptRow, now: dt.datetime) -> AttemptRow:
    return replace(row, updated_at=now)


def _released(row: AttemptRow, actor: str, because: str, now: dt.datetime) -> SetHold:
    return SetHold(row=row, hold=None, reason_code=None, detail={"because": because}, actor=actor, not_before=now)


def _held(row: AttemptRow, target: Target, state: Awaited, actor: str, now: dt.datetime) -> SetHold:
    return SetHold(
        row=row,
        hold=HOLD_OF[target.standing],
        reason_code=Code.ASSOCIATION_MISSING,
        detail=target.evidence(),
        actor=actor,
        not_before=now + _pause(row, target, state, now),
    )


def _limit(target: Target, state: Awaited) -> dt.timedelta | None:
    """How long the pack lets a create wait for a record that cannot get a remote record."""
    contract = state.contract
    own = () if contract is None else contract.associations
    found = next((each.gives_up_after_ms for each in own if each.name == target.reference.name), None)
    return None if found is None else dt.timedelta(milliseconds=found)


def _is_given_up(row: AttemptRow, target: Target, state: Awaited, now: dt.datetime) -> bool:
    limit = _limit(target, state)
    is_hopeless = target.standing is not Standing.WAITING and row.operation is Operation.CREATE
    return is_hopeless and limit is not None and now - row.created_at >= limit


def _pause(row: AttemptRow, target: Target, state: Awaited, now: dt.datetime) -> dt.timedelta:
    age, limit = now - row.created_at, _limit(target, state)
    pause = look_pause(age)
    return pause if limit is None or limit <= age else min(pause, limit - age)


def _given_up(row: AttemptRow, target: Target, actor: str) -> Move:
    return Move(
        row=row,
        event=CreateEvent.DOUBT if row.in_doubt else CreateEvent.END_UNSENT,
        actor=actor,
        reason_code=Code.ASSOCIATION_MISSING,
        detail={**target.evidence(), "gave_up": True},
        claims=Claims.RESET,
    )
