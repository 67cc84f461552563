"""The look-up of a create in doubt: one GET by our own stamp, under a claim that leaves the attempt where it is.

It changes nothing at the remote. One record with the stamp is ours: its link is finalized with the version that was
reserved. Finding nothing ends the attempt only where the pack says that it proves something, and only after everything
that was ever sent has settled; otherwise the attempt stays parked and is asked about again, as long as the pack says.
"""

from __future__ import annotations

import datetime as dt

from pushlink.errors import Code, ProtocolViolation
from pushlink.flows.claimed import ClaimedStampLookup
from pushlink.flows.create import writeback_of
from pushlink.flows.effects import Flow, Send, Tx
from pushlink.flows.lookup import looked_up, lookup_request, shows_record
from pushlink.flows.recording import record_answer
from pushlink.flows.sending import client_id_of
from pushlink.flows.step_items import Answer, InVain, LooksNoMore
from pushlink.flows.steps import Steps
from pushlink.flows.world import World
from pushlink.protocol.contracts import StampLookUp
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.lookup_verdicts import interpret_lookup
from pushlink.protocol.lookups import BY_STAMP, Shown, row_of
from pushlink.protocol.outcome import Verdict, create_event
from pushlink.protocol.replies import Disposition
from pushlink.protocol.sealing import UNREAD, Unread
from pushlink.protocol.stamp_lookups import last_look, mark_of, proves_absence_from, render_stamp_lookup
from pushlink.protocol.states import UNSETTLED, CreateEvent
from pushlink.protocol.verbs import settles_at
from pushlink.store.sealing import open_body


def look_for(claimed: ClaimedStampLookup, steps: Steps) -> Flow:
    """Ask once whether the record is there, and go on by what the answer shows."""
    key, create = claimed.attempt.link_key, claimed.action.contract.create
    lookup = _declared(claimed)
    client_id = client_id_of(claimed.action, claimed.profile, claimed.request)
    body = open_body(steps.world.vault, claimed.request)
    asked = render_stamp_lookup(
        lookup,
        create,
        claimed.profile.contract,
        idempotency_key=claimed.request.idempotency_key,
        client_id=client_id,
        body=b"" if isinstance(body, Unread) else body,
    )
    if isinstance(asked, RenderFailure):
        yield Tx(step=steps.stop_looking, item=_nothing_to_ask_by(claimed, asked, body), key=key)
        return
    reply = yield Send(request=lookup_request(claimed, asked), gated=False)
    mark = mark_of(create, claimed.request.idempotency_key, client_id)
    verdict = interpret_lookup(
        claimed.action.contract,
        claimed.profile.contract,
        BY_STAMP,
        reply,
        send_ordinal=claimed.attempt.send_count,
        received_at=claimed.attempt.updated_at,
        mark=mark,
    )
    answer = _answer(claimed, reply, verdict, mark, steps)
    if verdict.disposition is not Disposition.FINALIZE:
        yield Tx(
            step=steps.look_again,
            item=_in_vain(claimed, lookup, verdict, answer, steps.world),
            key=key,
            after_send=True,
        )
        return
    yield from record_answer(answer, steps)


def _declared(claimed: ClaimedStampLookup) -> StampLookUp:
    lookup = claimed.action.contract.create.lookup
    if lookup is None:
        msg = "A look-up is claimed that no contract declares."
        raise ProtocolViolation(msg, evidence={"attempt_id": claimed.attempt.id, "look_up": BY_STAMP})
    return lookup


def _nothing_to_ask_by(claimed: ClaimedStampLookup, failure: RenderFailure, body: bytes | Unread) -> LooksNoMore:
    why = {"unread": body.value, "because": UNREAD[body]} if isinstance(body, Unread) else {}
    return LooksNoMore(
        attempt=claimed.attempt,
        token=claimed.token,
        actor=claimed.incarnation,
        reason_code=Code.BODY_UNREADABLE if why else Code.LOOKUP_IN_VAIN,
        detail={"look_up": BY_STAMP, "message": failure.message, **failure.evidence, **why},
    )


def _answer(
    claimed: ClaimedStampLookup, reply: StoredReply, verdict: Verdict, mark: str | None, steps: Steps
) -> Answer:
    event = CreateEvent.UNKNOWN
    if shows_record(verdict):
        event = _event(claimed, verdict, has_mirror=writeback_of(claimed.request) is not None)
    return looked_up(claimed, reply, verdict, steps, look_up=BY_STAMP, event=event, code=verdict.code, mark=mark)


def _event(claimed: ClaimedStampLookup, verdict: Verdict, *, has_mirror: bool) -> CreateEvent:
    if claimed.attempt.status in UNSETTLED:
        return CreateEvent.STAMP_FOUND
    return create_event(verdict, has_mirror=has_mirror)


def _in_vain(
    claimed: ClaimedStampLookup, lookup: StampLookUp, verdict: Verdict, answer: Answer, world: World
) -> InVain:
    attempt, profile = claimed.attempt, claimed.profile.contract
    last_send = attempt.last_checkpoint_at or attempt.updated_at
    settled = settles_at(
        last_send,
        total_ms=profile.timeouts.total_ms,
        pause_ms=world.terms.pause_max_ms,
        processing_ms=profile.remote_processing_ms,
    )
    proof_from = proves_absence_from(lookup, settled) if attempt.last_checkpoint_at is not None else None
    found_nothing = verdict.row == row_of(Shown.NOTHING)
    return InVain(
        answer=answer,
        every_ms=max(lookup.every_ms, verdict.retry_after_ms or 0),
        until=last_look(lookup, last_send, proof_from),
        ends=verdict.disposition is Disposition.PARK,
        proof_from=proof_from if found_nothing and claimed.misses + 1 >= lookup.misses_min else None,
        refused_from=last_send + dt.timedelta(milliseconds=lookup.lag_ms) if found_nothing else None,
    )
