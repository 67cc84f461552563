"""The create: validate, checkpoint, send once, interpret, finalize, mirror.

The flow reads from top to bottom as the protocol does. Whatever stops it before the checkpoint gives the row back,
holds it, ends it, or (when an earlier send is in doubt) parks it; whatever stops it afterwards is owned by recovery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pushlink.errors import Code
from pushlink.flows.claimed import ClaimedCreate
from pushlink.flows.completing import Complete, Stop, complete_create
from pushlink.flows.effects import Flow, Send, Tx
from pushlink.flows.new_links import link_of
from pushlink.flows.recording import record_answer
from pushlink.flows.sending import answer_of, checkpoint_of, client_id_of, history_of, wire_request
from pushlink.flows.step_items import Granted, Permission, Settle
from pushlink.flows.steps import Steps
from pushlink.flows.world import World
from pushlink.protocol.associations import is_only_updated, read_vector
from pushlink.protocol.drift import holds_create
from pushlink.protocol.outcome import Verdict, create_event, interpret
from pushlink.protocol.replay import Allowed, Why, first_sent_header
from pushlink.protocol.sealing import UNREAD, Unread
from pushlink.protocol.snapshots import WritebackSnapshot
from pushlink.protocol.states import CreateEvent, Hold, Operation
from pushlink.protocol.waiting import look_pause
from pushlink.store.lifecycle import Claims, Move
from pushlink.store.rows import LinkRow, RequestRow
from pushlink.store.sealing import opened, seal_request


def push_create(claimed: ClaimedCreate, steps: Steps) -> Flow:
    """Run one claimed create to its end."""
    key = claimed.attempt.link_key
    readable = sendable(claimed, steps.world)
    if isinstance(readable, Move):
        yield Tx(step=steps.settle, item=Settle(move=readable, look_up_ms=claimed.prospect.look_up_ms), key=key)
        return
    claimed = readable
    complete = complete_create(claimed)
    if isinstance(complete, Stop):
        yield Tx(step=steps.settle, item=_settle(claimed, complete), key=key)
        return
    leaves_to_updates = is_only_updated(read_vector(claimed.request.association_vector))
    claimed = replace(claimed, request=complete.request)
    granted = yield Tx(step=steps.checkpoint, item=_permission(claimed, complete, steps), key=key)
    if not isinstance(granted, Granted):
        return
    is_live = claimed.prospect.is_live(claimed.attempt, granted.at, first_send=granted.first_at)
    body = bytes(claimed.request.body or b"")  # as it was opened, or completed
    wire = wire_request(
        claimed, claimed.profile, claimed.action, claimed.request, body, granted=granted, fresh=not is_live
    )
    own_headers = first_sent_header(claimed.action.contract.create, granted.first_at)
    reply = yield Send(request=replace(wire, headers=(*wire.headers, *own_headers)))
    history = history_of(
        claimed,
        steps.world,
        claimed.profile,
        send_ordinal=granted.send_ordinal,
        replayable=is_live,
        finds_stamp=claimed.prospect.look_up_ms is not None,
        client_id=client_id_of(claimed.action, claimed.profile, claimed.request),
    )
    contracts = (claimed.action.contract, claimed.profile.contract)
    verdict = interpret(Operation.CREATE, *contracts, reply, history, received_at=granted.at)
    writeback = writeback_of(claimed.request)
    answer = answer_of(
        claimed,
        steps.world,
        claimed.profile,
        history=history,
        asked_at=granted.at,
        reply=reply,
        verdict=verdict,
        event=create_event(verdict, has_mirror=writeback is not None),
        link=_link_to_make(claimed, verdict, writeback, steps),
        writeback=writeback,
        values_digest=claimed.request.values_digest,
        look_for_after_ms=claimed.prospect.look_up_ms,
    )
    answer = replace(answer, is_partial=leaves_to_updates)
    yield from record_answer(answer, steps)


def sendable(claimed: ClaimedCreate, world: World) -> ClaimedCreate | Move:
    """The claim with its bodies opened, or the move that is made instead; what cannot be read is never guessed at."""
    if (stop := judge_create(claimed)) is not None:
        return stop
    request = opened(world.vault, claimed.request)
    origin = None if claimed.origin is None else opened(world.vault, claimed.origin)
    if not isinstance(request, Unread) and not isinstance(origin, Unread):
        return replace(claimed, request=request, origin=origin)
    why = request if isinstance(request, Unread) else origin
    in_doubt = claimed.attempt.in_doubt
    event = CreateEvent.DOUBT if in_doubt else CreateEvent.GIVE_BACK
    hold = None if in_doubt else Hold.BODY_UNREADABLE
    detail = {"unread": why.value, "because": UNREAD[why]} if isinstance(why, Unread) else {}
    return _stop(claimed, event, Code.BODY_UNREADABLE, detail, hold=hold)


def judge_create(claimed: ClaimedCreate) -> Move | None:
    """What stops this create before any I/O, as the move that it makes; `None` when it may be sent."""
    attempt = claimed.attempt
    allowed = claimed.prospect.replay(attempt) if attempt.in_doubt else None
    if isinstance(allowed, Why):
        return _stop(claimed, CreateEvent.DOUBT, Code.REPLAY_NOT_ALLOWED, {"because": allowed.value})
    holding = holds_create(claimed.drift)
    if holding:
        detail = {"surfaces": [hit.surface.value for hit in holding], "catalog_revision": claimed.catalog_revision}
        if attempt.in_doubt:
            return _stop(claimed, CreateEvent.DOUBT, Code.DRIFT, detail)
        return _stop(claimed, CreateEvent.GIVE_BACK, Code.DRIFT, detail, hold=Hold.DRIFT)
    if claimed.credential_refused:
        event = CreateEvent.DOUBT if attempt.in_doubt else CreateEvent.GIVE_BACK
        hold = None if attempt.in_doubt else Hold.CREDENTIAL
        return _stop(claimed, event, Code.UNAUTHENTICATED, {"because": "the remote refused this credential"}, hold=hold)
    if not claimed.user_active and not attempt.in_doubt:
        return _stop(claimed, CreateEvent.GIVE_BACK, Code.AUTHORITY_UNAVAILABLE, {}, hold=Hold.USER_INACTIVE)
    return None


def writeback_of(request: RequestRow) -> WritebackSnapshot | None:
    """The mirror that was frozen with a request, if there is one."""
    return WritebackSnapshot.read(request.writeback) if request.writeback else None


def _link_to_make(
    claimed: ClaimedCreate, verdict: Verdict, writeback: WritebackSnapshot | None, steps: Steps
) -> LinkRow | None:
    if verdict.remote_id is None or verdict.canonical_id is None:
        return None
    return link_of(
        claimed,
        link_id=steps.world.ids.fresh(),
        remote_id=verdict.remote_id,
        canonical_id=verdict.canonical_id,
        writeback=writeback,
        remote_version=verdict.remote_version,
    )


def _settle(claimed: ClaimedCreate, stop: Stop) -> Settle:
    """The end of a claim whose create waits for another record, or cannot be completed."""
    move = _stop(claimed, stop.event, stop.code, stop.detail, hold=stop.hold)
    if stop.hold is None:
        return Settle(move=move, look_up_ms=claimed.prospect.look_up_ms)
    age = claimed.attempt.updated_at - claimed.attempt.created_at
    move = replace(move, not_before=claimed.attempt.updated_at + look_pause(age))
    return Settle(move=move, awaits=tuple(target.reference.link_key for target in stop.awaits))


def _permission(claimed: ClaimedCreate, complete: Complete, steps: Steps) -> Permission:
    allowed = claimed.prospect.replay(claimed.attempt) if claimed.attempt.in_doubt else None
    return Permission(
        attempt=claimed.attempt,
        token=claimed.token,
        actor=claimed.incarnation,
        checkpoint=checkpoint_of(
            claimed,
            steps.world,
            claimed.profile,
            freeze=claimed.request.freeze,
            version=claimed.attempt.version,
        ),
        request=seal_request(steps.world.vault, complete.request) if complete.is_new else None,
        targets=complete.targets,
        source=claimed.source,
        catalog_revision=claimed.catalog_revision,
        credential_ref=claimed.profile.contract.credential_ref,
        credential_generation=claimed.generation,
        replay_until=allowed.until if isinstance(allowed, Allowed) else None,
        look_up_ms=claimed.prospect.look_up_ms,
    )


def _stop(
    claimed: ClaimedCreate,
    event: CreateEvent,
    code: Code,
    detail: Mapping[str, object],
    *,
    hold: Hold | None = None,
) -> Move:
    claims = Claims.FORGIVE if event is CreateEvent.GIVE_BACK else Claims.RESET
    return replace(claimed.move(event, code, detail), hold=hold, claims=claims)
