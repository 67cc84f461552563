"""The update: the slot's wanted version becomes one request to the linked record, at most once at a time.

It is rendered at its first claim, from the values that the save froze and the configuration of now, and only while that
configuration is the one that the link was validated with; where its precondition needs the record's current version,
that is read first (`fetching.py`). What is acknowledged afterwards is the version that was sent.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pushlink.errors import Code, invariant
from pushlink.flows.associations import with_targets
from pushlink.flows.claimed import ClaimedUpdate, Frozen
from pushlink.flows.effects import Effect, Flow, Send, Tx
from pushlink.flows.fetching import Unfetched, associated_ids, fetch_request, is_unfetched, judge_fetched
from pushlink.flows.recording import record_answer
from pushlink.flows.sending import answer_of, checkpoint_of, history_of, wire_request
from pushlink.flows.step_items import Answer, Granted, NewId, Permission, Settle, Suspension
from pushlink.flows.steps import Steps
from pushlink.flows.world import World
from pushlink.protocol.association_calls import call_contract, render_call
from pushlink.protocol.associations import Vector, read_called, read_vector, write_vector
from pushlink.protocol.contracts import ActionContract
from pushlink.protocol.drift import Hit, stops_update, suspends_link
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.identity import locator_key, update_idempotency_key
from pushlink.protocol.outcome import History, Verdict, interpret, update_event
from pushlink.protocol.render import render_update
from pushlink.protocol.sealing import UNREAD, Unread
from pushlink.protocol.snapshots import (
    ActionSnapshot,
    Digest,
    Document,
    FrozenRequest,
    ProfileSnapshot,
    SourceValues,
)
from pushlink.protocol.snapshots import digest as document_digest
from pushlink.protocol.states import USABLE_LINKS, Hold, Operation, UpdateEvent
from pushlink.protocol.waiting import HOLD_OF, Standing, Target, look_pause, worst
from pushlink.store.active import ActiveAction
from pushlink.store.lifecycle import Claims
from pushlink.store.rows import LinkRow, RequestRow, slots_of, write_headers, write_names
from pushlink.store.sealing import open_body, open_values, seal_request

#: Updates that end because the remote record is not the one that was linked suspend the link as well.
_SUSPENDS = frozenset({UpdateEvent.REMOTE_GONE, UpdateEvent.REMOTE_CONFLICT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """An update that may be sent: its request, whether that is still to be written, and what it speaks to."""

    request: RequestRow
    is_new: bool
    documents: tuple[Document, ...]
    version: int
    link: LinkRow
    profile: ProfileSnapshot
    action: ActionSnapshot


def push_update(claimed: ClaimedUpdate, steps: Steps) -> Flow:
    """Run one claimed update to its end."""
    key = claimed.attempt.link_key
    ready = judge_update(claimed, steps.world)
    if isinstance(ready, Unfetched):
        ready = yield from _fetch(claimed, ready, steps.world)
    if isinstance(ready, Settle):
        yield Tx(step=steps.settle, item=ready, key=key)
        return
    granted = yield Tx(step=steps.checkpoint, item=_permission(claimed, ready, steps), key=key)
    if not isinstance(granted, Granted):
        return
    body = bytes(ready.request.body or b"")  # as it was rendered or opened
    reply = yield Send(
        request=wire_request(claimed, ready.profile, ready.action, ready.request, body, granted=granted, fresh=False)
    )
    history = history_of(
        claimed,
        steps.world,
        ready.profile,
        send_ordinal=granted.send_ordinal,
        canonical_id=ready.link.remote_id_canonical,
        refetched=claimed.attempt.reason_code == Code.REMOTE_CHANGED,
    )
    contracts = (ready.action.contract, ready.profile.contract)
    verdict = interpret(Operation.UPDATE, *contracts, reply, history, received_at=granted.at)
    answer = _answer(claimed, ready, granted, history, reply, verdict, steps.world)
    yield from record_answer(answer, steps)


def _fetch(claimed: ClaimedUpdate, unfetched: Unfetched, world: World) -> Generator[Effect, Any, Ready | Settle]:
    """Read the record's version, and render the update with it: nothing was sent before the checkpoint but a read."""
    request = fetch_request(claimed, unfetched, world)
    if isinstance(request, RenderFailure):
        return _ended(claimed, UpdateEvent.FAIL_VALIDATION, request.code, {"message": request.message})
    reply = yield Send(request=request, gated=False)
    found = judge_fetched(claimed, unfetched, reply, world)
    if isinstance(found, Settle):
        return found
    return _rendered(claimed, unfetched.link, unfetched.current, unfetched.version, world, found.remote_version)


def judge_update(claimed: ClaimedUpdate, world: World) -> Ready | Settle | Unfetched:
    """What stops this update before any I/O, as the settlement it makes, or the request that may be sent.

    An update that needs the record's current version is answered with what is to be read first.
    """
    slot, link, current = claimed.slot, claimed.link, claimed.current
    if link is None or link.status not in USABLE_LINKS:
        over = _obsolete(claimed, Code.LINK_MISSING if link is None else Code.LINK_SUSPENDED)
        # What a link that cannot be used still owes is due again when somebody validates it.
        return over if claimed.attempt.association is None else replace(over, judged=None)
    if claimed.attempt.association is not None:
        return _judge_call(claimed, claimed.attempt.association, link, world)
    version = _version(claimed)
    if version <= slot.acknowledged_version:
        return _obsolete(claimed, Code.OUTDATED)
    if claimed.request is not None and slot.wanted_version > version and not claimed.attempt.in_doubt:
        return _obsolete(claimed, Code.OUTDATED)  # given back, and a newer version replaces it whole
    if claimed.request is None and slot.wanted_values_digest == slot.applied_values_digest:
        return replace(_obsolete(claimed, Code.SAME_AS_APPLIED), acknowledges=version)
    if (stop := _judge_world(claimed, link)) is not None:
        return stop
    if current is None:
        return _held(claimed, Code.DRIFT, Hold.DRIFT, {"surfaces": ["action_slot"]})
    reads = is_unfetched(claimed, current.contract.update, link)
    if claimed.request is not None and not reads and _names_the_same(claimed, claimed.request.row):
        return _frozen(claimed, claimed.request, link, world)
    if not current.has_mapping(slot.wanted_mapping_fingerprint):
        return replace(_obsolete(claimed, Code.STALE_MAPPING), outdates_wanted=True)
    if reads:
        return Unfetched(link=link, current=current, version=version)
    return _rendered(claimed, link, current, version, world, link.remote_version)


def _judge_world(claimed: ClaimedUpdate, link: LinkRow) -> Settle | None:
    """What stops any request to this link: drift, the credential, the author, a record that it refers to."""
    lost = suspends_link(claimed.drift)
    if lost:
        return _suspended(claimed, link, lost)
    if claimed.credential_refused:
        return _held(claimed, Code.UNAUTHENTICATED, Hold.CREDENTIAL, {"because": "the remote refused this credential"})
    if not claimed.user_active:
        return _held(claimed, Code.AUTHORITY_UNAVAILABLE, Hold.USER_INACTIVE, {"user": "inactive"})
    if stopping := stops_update(claimed.drift):
        return _held(claimed, Code.DRIFT, Hold.DRIFT, {"surfaces": [hit.surface.value for hit in stopping]})
    target = worst(claimed.targets)
    return None if target is None else _awaiting(claimed, target)


def _judge_call(claimed: ClaimedUpdate, name: str, link: LinkRow, world: World) -> Ready | Settle:
    """The call of one association: for the record that is meant now, and only while it was not told."""
    slot, current = claimed.slot, claimed.current
    reference = next((target.reference for target in claimed.targets), None)
    told = read_called(slot.called_associations).get(name)
    if reference is None or told == reference.record_id:
        return _obsolete(claimed, Code.OUTDATED)
    if (stop := _judge_world(claimed, link)) is not None:
        return stop
    contract = None if current is None else call_contract(current.contract, name)
    if current is None or contract is None:
        return _held(claimed, Code.DRIFT, Hold.DRIFT, {"surfaces": ["action_slot"]})
    frozen = render_call(current.contract, current.profile, name, link.remote_id, other_id=reference.remote_id)
    if isinstance(frozen, RenderFailure):
        detail = {"message": frozen.message, **frozen.evidence}
        # Not due again by itself: it would not render either.
        return replace(_ended(claimed, UpdateEvent.FAIL_VALIDATION, frozen.code, detail), judged=None)
    digest = Digest(slot.applied_values_digest or "")
    ready = _ready(
        claimed,
        link,
        current,
        frozen,
        world,
        vector=(reference,),
        digest=digest,
        read_as=contract,
        version=claimed.attempt.version,
    )
    # Calls for several records may have equal bytes: what tells them apart is their route.
    about = document_digest({"association": name, "path": frozen.path, "body": frozen.body_digest})
    key = update_idempotency_key(world.secret, slot.link_key, ready.version, about)
    return replace(ready, request=replace(ready.request, idempotency_key=key))


def _names_the_same(claimed: ClaimedUpdate, request: RequestRow) -> bool:
    """Whether a request that was frozen before names the remote records that it would name now."""
    before = {entry.name: entry.remote_id for entry in read_vector(request.association_vector) if entry is not None}
    return all(before.get(t.reference.name) == t.reference.remote_id for t in claimed.targets)


def _frozen(claimed: ClaimedUpdate, request: Frozen, link: LinkRow, world: World) -> Ready | Settle:
    if request.row.mapping_fingerprint != link.mapping_fingerprint:
        return replace(_obsolete(claimed, Code.STALE_MAPPING), outdates_wanted=True)
    body = open_body(world.vault, request.row)
    if isinstance(body, Unread):
        return _unreadable(claimed, body)
    return Ready(
        request=replace(request.row, body=body, sealed_by=None),
        is_new=False,
        documents=(),
        version=claimed.attempt.version,
        link=link,
        profile=request.profile,
        action=request.action,
    )


def _rendered(
    claimed: ClaimedUpdate,
    link: LinkRow,
    current: ActiveAction,
    version: int,
    world: World,
    remote_version: str | None,
) -> Ready | Settle:
    slot = claimed.slot
    invariant(slot.wanted_version > 0, "an update waits for values that nobody wants", link_key=slot.link_key)
    text = open_values(world.vault, slot)
    if isinstance(text, Unread):
        return _unreadable(claimed, text)
    values = SourceValues.read(text)
    vector = with_targets(read_vector(slot.wanted_associations), claimed.targets)
    frozen = render_update(
        current.contract,
        current.profile,
        values,
        link.remote_id,
        remote_version=remote_version,
        associated=associated_ids(claimed, current),
    )
    if isinstance(frozen, RenderFailure):
        detail = {"message": frozen.message, **frozen.evidence}
        return _ended(claimed, UpdateEvent.FAIL_VALIDATION, frozen.code, detail)
    digest = Digest(slot.wanted_values_digest or "")
    return _ready(claimed, link, current, frozen, world, vector=vector, digest=digest, version=version)


def _ready(
    claimed: ClaimedUpdate,
    link: LinkRow,
    current: ActiveAction,
    frozen: FrozenRequest,
    world: World,
    *,
    vector: Vector,
    digest: Digest,
    version: int,
    read_as: ActionContract | None = None,
) -> Ready:
    """A request that this claim renders; it is frozen with the checkpoint."""
    slot = claimed.slot
    profile = world.profile_document(current.profile, current.profile_digest, claimed.generation)
    request = RequestRow(
        attempt_id=claimed.attempt.id,
        freeze=claimed.attempt.freeze_count + 1,
        idempotency_key=update_idempotency_key(world.secret, slot.link_key, version, frozen.body_digest),
        method=frozen.method,
        path=frozen.path,
        headers=write_headers(frozen.headers),
        body=frozen.body,
        body_digest=frozen.body_digest,
        values_digest=digest,
        install_id=current.install_id,
        names=write_names(current.names),
        profile_digest=profile.digest,
        action_digest=current.document.digest,
        mapping_fingerprint=link.mapping_fingerprint,  # that of now, as the link's own release wrote it
        body_fingerprint=current.body_fingerprint,
        authority=slot.wanted_authority or "",
        association_vector=write_vector(vector) if vector else None,
        writeback=None,
        created_at=claimed.attempt.updated_at,
    )
    return Ready(
        request=request,
        is_new=True,
        documents=(profile, current.document),
        version=version,
        link=link,
        profile=ProfileSnapshot(contract=current.profile, credential_generation=claimed.generation),
        action=ActionSnapshot(contract=read_as or current.contract),
    )


def _permission(claimed: ClaimedUpdate, ready: Ready, steps: Steps) -> Permission:
    return Permission(
        attempt=claimed.attempt,
        token=claimed.token,
        actor=claimed.incarnation,
        checkpoint=checkpoint_of(
            claimed, steps.world, ready.profile, freeze=ready.request.freeze, version=ready.version
        ),
        request=seal_request(steps.world.vault, ready.request) if ready.is_new else None,
        documents=ready.documents,
        source=claimed.source,
        catalog_revision=claimed.catalog_revision,
        credential_ref=ready.profile.contract.credential_ref,
        credential_generation=claimed.generation,
        link_id=ready.link.id,
        link_version=ready.link.row_version,
        link_mapping=ready.link.mapping_fingerprint,
        targets=claimed.targets,
    )


def _answer(
    claimed: ClaimedUpdate,
    ready: Ready,
    granted: Granted,
    history: History,
    reply: StoredReply,
    verdict: Verdict,
    world: World,
) -> Answer:
    event = update_event(verdict)
    is_call = claimed.attempt.association is not None
    if is_call and event in _SUSPENDS:
        event = UpdateEvent.REJECT  # either of two records may be gone: the call is refused, and the link stands
    answer = answer_of(
        claimed,
        world,
        ready.profile,
        history=history,
        asked_at=granted.at,
        reply=reply,
        verdict=verdict,
        event=event,
    )
    if is_call:
        return replace(answer, called=next(target.reference.record_id for target in claimed.targets))
    has_version = verdict.remote_version is not None or ready.link.remote_version is not None
    return replace(
        answer,
        attempt=replace(answer.attempt, version=ready.version),
        values_digest=ready.request.values_digest,
        suspends=event in _SUSPENDS,
        link_before=ready.link,
        forgets_version=event is UpdateEvent.APPLIED and has_version,
        names=_other_names(claimed, ready.link) if event is UpdateEvent.APPLIED else None,
        candidate_id=verdict.remote_id or answer.candidate_id,
        new_id=_new_id(ready.link, verdict),
    )


def _new_id(link: LinkRow, verdict: Verdict) -> NewId | None:
    """The record's new id, where the remote gave it one."""
    if verdict.remote_id is None or verdict.canonical_id is None:
        return None
    key = locator_key(slots_of(link), scope=link.destination_scope, canonical_id=verdict.canonical_id)
    return NewId(remote_id=verdict.remote_id, canonical_id=verdict.canonical_id, locator_key=key)


def _other_names(claimed: ClaimedUpdate, link: LinkRow) -> str | None:
    """The names of now, where the link shows others: renaming alone stops nothing (DR-02, DR-04, DR-07)."""
    names = write_names(claimed.current.names) if claimed.current is not None else link.names
    return names if names != link.names else None


def _version(claimed: ClaimedUpdate) -> int:
    """The wanted version that this claim is about: the one that was rendered, or the newest that it read."""
    if claimed.attempt.association is not None:
        return claimed.attempt.version
    return claimed.attempt.version if claimed.request else claimed.slot.wanted_version


def _ended(claimed: ClaimedUpdate, event: UpdateEvent, code: Code, detail: Mapping[str, object]) -> Settle:
    judged = replace(claimed.attempt, version=_version(claimed))
    return Settle(move=claimed.move(event, code, detail), judged=judged)


def _obsolete(claimed: ClaimedUpdate, code: Code) -> Settle:
    return _ended(claimed, UpdateEvent.OBSOLETE, code, {})


def _suspended(claimed: ClaimedUpdate, link: LinkRow, lost: Sequence[Hit]) -> Settle:
    """The first touch of a link whose lineage is gone: it is suspended, and the update ends with it."""
    detail = {
        "surfaces": [hit.surface.value for hit in lost],
        "rules": [hit.rule for hit in lost],
        "catalog_revision": claimed.catalog_revision,
    }
    suspension = Suspension(
        link=link,
        attempt_id=claimed.attempt.id,
        actor=claimed.incarnation,
        reason_code=Code.DRIFT,
        evidence=detail,
    )
    return replace(_ended(claimed, UpdateEvent.OBSOLETE, Code.LINK_SUSPENDED, detail), suspends=suspension)


def _unreadable(claimed: ClaimedUpdate, why: Unread) -> Settle:
    """What was to be sent cannot be read: nothing is sent, and a newer save takes its place."""
    return _held(claimed, Code.BODY_UNREADABLE, Hold.BODY_UNREADABLE, {"unread": why.value, "because": UNREAD[why]})


def _held(claimed: ClaimedUpdate, code: Code, hold: Hold, detail: Mapping[str, object]) -> Settle:
    evidence = {**detail, "catalog_revision": claimed.catalog_revision}
    return Settle(move=replace(claimed.move(UpdateEvent.GIVE_BACK, code, evidence), hold=hold, claims=Claims.FORGIVE))


def _awaiting(claimed: ClaimedUpdate, target: Target) -> Settle:
    """The hold of an update whose new target has no remote record yet, or lost it."""
    attempt = claimed.attempt
    held = _held(claimed, Code.ASSOCIATION_MISSING, HOLD_OF[target.standing], target.evidence())
    pause = look_pause(attempt.updated_at - attempt.created_at)
    stopping = (each for each in claimed.targets if each.standing is not Standing.READY)
    return replace(
        held,
        move=replace(held.move, not_before=attempt.updated_at + pause),
        awaits=tuple(each.reference.link_key for each in stopping),
    )
