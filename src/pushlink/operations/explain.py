"""Why a record is where it is: for each action its state in a word, the cause with evidence, and what may follow.

Nothing is decided here that a flow decides: the rows say what is, `words.py` how it is called, `reasons.py` what a code
means. What drifted is computed the way a claim does it, and only where the caller has a `World`. No value of a record,
no body and no token is ever shown; evidence holds names, codes, times, digests and the ids that remotes gave.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pushlink.flows.again import drift_of_earlier
from pushlink.flows.drifting import Drifting
from pushlink.flows.inline import CLAIMABLE
from pushlink.flows.world import World
from pushlink.operations import words
from pushlink.operations.attention import Attention, Item
from pushlink.operations.contract_states import contract_state, settles_at
from pushlink.operations.decidable import decidable
from pushlink.operations.delays import Delay, delays_of
from pushlink.operations.offers import LOOK, offers
from pushlink.operations.reads import AttemptView, LinkView, attempt_view, link_view
from pushlink.operations.reasons import reason_of
from pushlink.operations.remotes import held_back
from pushlink.operations.shown import erased_shown, reply_shown, window_of
from pushlink.operations.verbs import Verb, verbs
from pushlink.operations.words import Word
from pushlink.protocol.attention import KINDS, Kind
from pushlink.protocol.drift import Hit, stops_update
from pushlink.protocol.lookups import may_be_looked_up
from pushlink.protocol.snapshots import Names, write_time
from pushlink.protocol.states import (
    BLOCKING,
    CLAIMED_IN_PLACE,
    KNOWN_LANES,
    LEASED,
    UPDATE_OPEN,
    USABLE_LINKS,
    Operation,
)
from pushlink.store import reads
from pushlink.store.access import Connection
from pushlink.store.active import ActiveAction, ActiveCatalog
from pushlink.store.catalog import read_deployment
from pushlink.store.reads import ReplyRow, read_object
from pushlink.store.rows import AttemptRow, LinkRow, SlotRow, read_names, slots_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why: a stable code where a row has one, a sentence, and the usual next step."""

    code: str | None
    sentence: str
    next_step: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What is wanted, what the remote acknowledged, and what it refused; 0 means that there is none."""

    wanted: int
    acknowledged: int
    refused: int
    note: str | None  # stale_mapping or refused_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One reason to wait for a person, the row that it is about, and what is safe to type first."""

    kind: str
    code: str
    about: str
    target_id: str | None
    since: dt.datetime | None
    first: Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionState:
    """One action of a record. `since` is when the state began, `None` for an action that was never saved."""

    action: str
    flow: str
    target_object: str
    profile: str
    action_slot_id: str
    destination_slot_id: str
    link_key: str | None
    state: str
    needs_person: bool
    needs: tuple[Need, ...]  # everything of it that waits for a person, as `stuck` lists it
    cause: Cause
    evidence: Mapping[str, object]
    since: dt.datetime | None
    waits_for: str
    versions: Versions | None
    remote_id: str | None
    link: LinkView | None
    create: AttemptView | None
    update: AttemptView | None
    verbs: tuple[Verb, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All actions of one record, and what concerns the whole deployment."""

    tenant: str
    source_object: str
    record_id: str
    actions: tuple[ActionState, ...]
    notes: tuple[str, ...]

    @property
    def needs_person(self) -> bool:
        """Whether an action waits for somebody."""
        return any(action.needs_person for action in self.actions)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Everything that stands under one link key."""

    slot: SlotRow
    link: LinkRow | None
    create: AttemptRow | None
    update: AttemptRow | None
    names: Names
    hits: tuple[Hit, ...]  # of a link that is not retired, what keeps an update from being sent
    blocks_create: bool

    @property
    def drift(self) -> tuple[Hit, ...]:
        """The same of a link that is in use."""
        return self.hits if self.link is not None and self.link.status in USABLE_LINKS else ()

    @property
    def is_closed(self) -> bool:
        """Whether a link holds the record's place."""
        return self.link is not None and self.link.slot_key is not None

    @property
    def open_create(self) -> AttemptRow | None:
        """The create that is not over."""
        return self.create if self.create is not None and self.create.status in BLOCKING else None

    @property
    def open_update(self) -> AttemptRow | None:
        """The update that is not over."""
        return self.update if self.update is not None and self.update.status in UPDATE_OPEN else None

    @property
    def is_blocked(self) -> bool:
        """Whether its place is free and another create would wait for a validation."""
        return self.blocks_create and self.create is not None and not self.is_closed and self.open_create is None


def explain(
    conn: Connection,
    source_object: str,
    record_id: str,
    *,
    tenant: str = "",
    now: dt.datetime,
    world: World | None = None,
) -> Explanation:
    """Explain one record; `record_id` is its canonical text."""
    attention = Attention(conn, world=world, tenant=tenant, now=now)
    catalog = attention.catalog
    drifting = Drifting(world) if world is not None else None
    slots = reads.read_record_slots(conn, tenant=tenant, source_object=source_object, record_id=record_id)
    known = [_gather(conn, slot, catalog, world, drifting) for slot in slots]
    saved = [_state(conn, rows, attention, now, world) for rows in known]
    seen = {(slot.action_slot_id, slot.destination_slot_id) for slot in slots}
    unsaved = [
        _unsaved(action, tenant, record_id)
        for action in catalog.actions_for(tenant, source_object)
        if (action.slots.action_slot_id, action.slots.destination_slot_id) not in seen
    ]
    return Explanation(
        tenant=tenant,
        source_object=source_object,
        record_id=record_id,
        actions=(*saved, *unsaved),
        notes=(*_notes(conn, attention, tenant, source_object), *_left_alone(conn, known, now)),
    )


def _notes(conn: Connection, attention: Attention, tenant: str, source_object: str) -> tuple[str, ...]:
    """What concerns more than this record: that everything waits for a person, or has another dispatcher."""
    said = [problem.message for problem in attention.catalog.problems_for(tenant, source_object)]
    for item in attention.of_deployment(source_object):
        said += [] if item.kind is Kind.UNUSABLE else [KINDS[item.kind].says + (f" {item.note}." if item.note else "")]
    if read_deployment(conn).general_worker != "on":
        said.append("The general worker is off: configured work is dispatched by `pushlink push` or the application.")
    return tuple(said)


def _left_alone(conn: Connection, known: list[_Rows], now: dt.datetime) -> Iterator[str]:
    """What waits although it is due: its destination is left alone."""
    open_attempts = [attempt for rows in known for attempt in (rows.create, rows.update) if attempt is not None]
    places = {(a.tenant, a.destination_slot_id) for a in open_attempts if a.status in CLAIMABLE}
    if places:
        for remote in held_back(conn, tenant=None, now=now):
            if (remote.tenant, remote.destination_slot_id) in places:
                yield f"{remote.destination_slot_id}: {remote.sentence}"


def _gather(
    conn: Connection, slot: SlotRow, catalog: ActiveCatalog, world: World | None, drifting: Drifting | None
) -> _Rows:
    key = slot.link_key
    link = reads.read_newest_link(conn, key)
    create = reads.read_newest_attempt(conn, key, Operation.CREATE)
    update = reads.read_newest_attempt(conn, key, Operation.UPDATE)
    hits: tuple[Hit, ...] = ()
    if world is not None and drifting is not None and link is not None and link.locator_key is not None:
        world.thaw(conn, [link.profile_digest], [link.action_digest])
        hits = stops_update(drifting.of_link(link, catalog))
    return _Rows(
        slot=slot,
        link=link,
        create=create,
        update=update,
        names=_names(conn, slot, link, create, catalog),
        hits=hits,
        blocks_create=_blocks_create(conn, slot, catalog, world, drifting),
    )


def _blocks_create(
    conn: Connection, slot: SlotRow, catalog: ActiveCatalog, world: World | None, drifting: Drifting | None
) -> bool:
    """Whether another create of the key would wait for a validation of its path, were nothing in its place (DR-15)."""
    if world is None or drifting is None or catalog.find(slots_of(slot)) is None:
        return False  # a slot that is over creates nothing, and stands in no other one's way
    return bool(drift_of_earlier(world, drifting, conn, {slot.link_key: slot}, catalog))


def _names(
    conn: Connection, slot: SlotRow, link: LinkRow | None, create: AttemptRow | None, catalog: ActiveCatalog
) -> Names:
    """The names of now, else those of the link, else those that the create froze."""
    current = catalog.find(slots_of(slot))
    if current is not None:
        return current.names
    if link is not None:
        return read_names(link.names)
    frozen = reads.read_frozen_names(conn, [create.id]) if create is not None else {}
    return next(iter(frozen.values()), _nameless(slot))


def _nameless(slot: SlotRow) -> Names:
    return Names(namespace="", flow="", flow_version="", action=slot.action_slot_id, target_object="", profile="")


def _state(conn: Connection, rows: _Rows, attention: Attention, now: dt.datetime, world: World | None) -> ActionState:
    word, attempt = _word(rows, now)
    delays = _delays(conn, attempt, attention.catalog, now)
    contract = contract_state(conn, world, attempt, now=now)
    settled = settles_at(conn, world, attempt)
    slot, link = rows.slot, rows.link
    replies = reads.read_replies(conn, [attempt.id], limit=3) if attempt is not None else []
    erased = reads.read_erased(conn, [each.id for each in (rows.create, rows.update) if each is not None])
    items = attention.of_record(
        slot,
        link,
        drift=rows.drift,
        blocked=rows.create if rows.is_blocked else None,
        update=rows.open_update,
        contract=(attempt, contract) if attempt is not None and contract is not None else None,
    )
    offered = [offers(conn, replace(item, link=link, drift=rows.hits), world=world, now=now) for item in items]
    may_follow = verbs(
        word.verbs, source_object=slot.source_object, record_id=slot.source_record_id, tenant=slot.tenant
    )
    also = [verb for offer in offered for verb in offer.verbs if verb.name != LOOK]
    decided = decidable(conn, slot, link, attempt, drift=rows.hits, contract=contract, world=world)
    return ActionState(
        action=rows.names.action,
        flow=rows.names.flow,
        target_object=rows.names.target_object,
        profile=rows.names.profile,
        action_slot_id=slot.action_slot_id,
        destination_slot_id=slot.destination_slot_id,
        link_key=slot.link_key,
        state=word.state,
        needs_person=bool(items),
        needs=tuple(_need(item, offer.first) for item, offer in zip(items, offered, strict=True)),
        cause=_cause(word, attempt, link),
        evidence=_evidence(word, rows, attempt, replies)
        | ({"contract": contract.shown()} if contract else {})
        | ({"settles_at": write_time(settled)} if settled else {})
        | ({"delayed_by": [delay.shown() for delay in delays]} if delays else {})
        | ({"erased": [erased_shown(each) for each in erased]} if erased else {}),
        since=_since(rows, attempt),
        waits_for=_waits_for(word, attempt, delays, now),
        versions=Versions(
            wanted=slot.wanted_version,
            acknowledged=slot.acknowledged_version,
            refused=slot.refused_version,
            note=slot.wanted_state,
        ),
        remote_id=link.remote_id if link is not None else _remote_id(rows.create),
        link=link_view(link) if link is not None else None,
        create=_view(rows.create, slot),
        update=_view(rows.update, slot),
        verbs=tuple(dict.fromkeys([*may_follow, *decided, *also])),
    )


def _need(item: Item, first: Verb) -> Need:
    target = item.attempt or item.link
    return Need(
        kind=item.kind.value,
        code=item.code,
        about=item.about,
        target_id=target.id if target is not None else None,
        since=item.since,
        first=first,
    )


def _delays(
    conn: Connection, attempt: AttemptRow | None, catalog: ActiveCatalog, now: dt.datetime
) -> tuple[Delay, ...]:
    """What keeps an attempt that may be sent from being taken."""
    if attempt is None or attempt.hold_code is not None or attempt.dispatch_lane not in KNOWN_LANES:
        return ()
    if attempt.status not in CLAIMABLE or attempt.status in CLAIMED_IN_PLACE:
        return ()
    return delays_of(conn, attempt, catalog, now=now)


def _waits_for(word: Word, attempt: AttemptRow | None, delays: Sequence[Delay], now: dt.datetime) -> str:
    """The word's own, unless the attempt's time has come and something else keeps it."""
    own = [] if delays and attempt is not None and attempt.not_before <= now else [_filled(word.waits_for, attempt)]
    return "; ".join([*own, *(delay.sentence for delay in delays)])


def _word(rows: _Rows, now: dt.datetime) -> tuple[Word, AttemptRow | None]:
    """The word of a key and the attempt that it is about; `None` when it is about the link or the slot."""
    link, open_update, open_create = rows.link, rows.open_update, rows.open_create
    if link is not None and rows.is_closed and (said := words.LINKS[link.status]) is not None:
        return said, open_update
    if open_create is not None and not rows.is_closed:
        return _attempt_word(open_create, now), open_create
    if link is None and rows.create is None:
        return words.UNSAVED, None  # a refused save left the slot, and nothing under it
    if not rows.is_closed:
        return (words.BLOCKED, rows.create) if rows.is_blocked else (words.FREED, None)
    if open_update is not None:
        return _attempt_word(open_update, now), open_update
    if rows.drift:
        return words.DRIFTED, None
    if open_create is not None:
        return _attempt_word(open_create, now), open_create
    return _settled_word(rows.slot, rows.update)


def _attempt_word(attempt: AttemptRow, now: dt.datetime) -> Word:
    if attempt.dispatch_lane not in KNOWN_LANES:
        return words.STRANDED
    if attempt.hold_code is not None:
        known = {hold.value: word for hold, word in words.HOLDS.items()}
        return known.get(attempt.hold_code, words.UNKNOWN_HOLD)
    is_waiting = may_be_looked_up(attempt.operation, attempt.status)  # its lease ends when the next look-up is due
    if attempt.status in LEASED and attempt.lease_until is not None and attempt.lease_until < now and not is_waiting:
        return words.OVERDUE
    table = words.CREATES if attempt.operation is Operation.CREATE else words.UPDATES
    return table[attempt.status]


def _settled_word(slot: SlotRow, update: AttemptRow | None) -> tuple[Word, AttemptRow | None]:
    """A finalized link with nothing open: what its versions say."""
    if slot.wanted_state == "stale_mapping":
        return words.STALE, None
    if slot.wanted_version == 0:
        return words.ADOPTED, None
    if slot.wanted_version <= slot.acknowledged_version:
        return words.SYNCED, None
    if slot.wanted_version <= slot.refused_version:
        return words.REJECTED, update
    if slot.wanted_values_digest is not None and slot.wanted_values_digest == slot.applied_values_digest:
        return words.SYNCED, None
    return words.BEHIND, update


def _cause(word: Word, attempt: AttemptRow | None, link: LinkRow | None) -> Cause:
    about_link = attempt is None or word in words.LINKS.values()
    code = link.reason_code if about_link and link is not None else attempt.reason_code if attempt else None
    if word is words.DRIFTED:
        code = "drift"
    if word in {words.SYNCED, words.ADOPTED, words.OVERDUE, words.STRANDED}:
        code = None
    if code is None:
        return Cause(code=None, sentence=_filled(word.says, attempt), next_step=None)
    reason = reason_of(code)
    sentence = f"{_filled(word.says, attempt)} {reason.sentence}"
    return Cause(code=code, sentence=sentence, next_step=reason.next_step)


def _evidence(word: Word, rows: _Rows, attempt: AttemptRow | None, replies: list[ReplyRow]) -> dict[str, object]:
    found: dict[str, object] = {}
    if attempt is not None:
        found |= read_object(attempt.detail)
        found |= {
            "attempt_id": attempt.id,
            "in_doubt": attempt.in_doubt,
            "send_count": attempt.send_count,
            "sent_between": window_of(attempt),
            "claimed_by": attempt.claimed_by,
        }
    if rows.link is not None and word in words.LINKS.values():
        found |= read_object(rows.link.evidence)
    if word is words.DRIFTED:
        found["drift"] = [{"rule": hit.rule, "surface": hit.surface.value, "says": hit.row.words} for hit in rows.drift]
    if word is words.REJECTED:
        found["refusal"] = read_object(rows.slot.refused_evidence)
    if replies:
        found["replies"] = [reply_shown(reply) for reply in replies]
    return {name: value for name, value in found.items() if value not in (None, "")}


def _since(rows: _Rows, attempt: AttemptRow | None) -> dt.datetime | None:
    if attempt is not None:
        return attempt.updated_at
    if rows.link is not None:
        return rows.link.updated_at
    return rows.create.updated_at if rows.create is not None else rows.slot.wanted_at or rows.slot.created_at


def _filled(text: str, attempt: AttemptRow | None) -> str:
    if attempt is None:
        return text
    return text.format(
        lane=attempt.dispatch_lane,
        hold=attempt.hold_code,
        claimed_by=attempt.claimed_by,
        lease_until=write_time(attempt.lease_until) if attempt.lease_until else "the end of its lease",
        not_before=write_time(attempt.not_before),
    )


def _remote_id(create: AttemptRow | None) -> str | None:
    return create.remote_id if create is not None else None


def _view(attempt: AttemptRow | None, slot: SlotRow) -> AttemptView | None:
    if attempt is None:
        return None
    return attempt_view(attempt, source_object=slot.source_object, record_id=slot.source_record_id)


def _unsaved(action: ActiveAction, tenant: str, record_id: str) -> ActionState:
    word, slots = words.UNSAVED, action.slots
    return ActionState(
        action=action.names.action,
        flow=action.names.flow,
        target_object=action.names.target_object,
        profile=action.names.profile,
        action_slot_id=slots.action_slot_id,
        destination_slot_id=slots.destination_slot_id,
        link_key=None,
        state=word.state,
        needs_person=False,
        needs=(),
        cause=Cause(code=None, sentence=word.says, next_step=None),
        evidence={},
        since=None,
        waits_for=word.waits_for,
        versions=None,
        remote_id=None,
        link=None,
        create=None,
        update=None,
        verbs=verbs(word.verbs, source_object=slots.source_object, record_id=record_id, tenant=tenant),
    )
