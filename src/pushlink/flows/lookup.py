"""The look-up: one request that reads, for a create whose answer is stored and did not name its record.

It runs under a claim of its own, a while after the answer, and changes nothing at the remote. When it shows the record,
the create is finished as if its own answer had named it. Otherwise the attempt waits for the next look-up, or parks.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from pushlink.errors import Code, ProtocolViolation
from pushlink.flows.claimed import ClaimedLookup, ClaimedStampLookup
from pushlink.flows.create import writeback_of
from pushlink.flows.effects import Flow, Send, Tx
from pushlink.flows.new_links import link_of
from pushlink.flows.recording import record_answer
from pushlink.flows.sending import health_of, throttle_of
from pushlink.flows.step_items import Answer, Settle, Waiting
from pushlink.flows.steps import Steps
from pushlink.ports import WireRequest
from pushlink.protocol.contracts import LookUp
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.kept import kept_headers
from pushlink.protocol.lookup_verdicts import code_before, interpret_lookup
from pushlink.protocol.lookups import LookUpRequest, lookup_named, render_lookup
from pushlink.protocol.outcome import History, Verdict, create_event
from pushlink.protocol.reinterpretation import write_verdict
from pushlink.protocol.replies import Disposition, Effect
from pushlink.protocol.sealing import UNREAD, Unread
from pushlink.protocol.states import CreateEvent
from pushlink.store.lifecycle import Move
from pushlink.store.sealing import open_body


def look_up(claimed: ClaimedLookup, steps: Steps) -> Flow:
    """Ask once, and go on by what the answer shows."""
    key = claimed.attempt.link_key
    contract = _contract(claimed)
    body = open_body(steps.world.vault, claimed.request)
    known = b"" if isinstance(body, Unread) else body
    asked = render_lookup(contract, claimed.profile.contract, answer=claimed.answer, body=known)
    if isinstance(asked, RenderFailure):
        unread = body if isinstance(body, Unread) else claimed.unread
        yield Tx(step=steps.settle, item=Settle(move=_parked(claimed, asked, unread)), key=key)
        return
    reply = yield Send(request=lookup_request(claimed, asked), gated=False)
    verdict = interpret_lookup(
        claimed.action.contract,
        claimed.profile.contract,
        claimed.name,
        reply,
        send_ordinal=claimed.attempt.send_count,
        received_at=claimed.attempt.updated_at,
    )
    answer = _answer(claimed, reply, verdict, steps)
    if verdict.disposition is Disposition.LOOK_UP:
        yield Tx(step=steps.wait_again, item=_waiting(claimed, contract, verdict, answer), key=key, after_send=True)
        return
    yield from record_answer(answer, steps)


def _contract(claimed: ClaimedLookup) -> LookUp:
    contract = lookup_named(claimed.action.contract, claimed.name)
    if contract is None:
        msg = "A look-up is claimed that no contract declares."
        raise ProtocolViolation(msg, evidence={"attempt_id": claimed.attempt.id, "look_up": claimed.name})
    return contract


def lookup_request(claimed: ClaimedLookup | ClaimedStampLookup, asked: LookUpRequest) -> WireRequest:
    """A look-up as the transport takes it: with the profile's credential, and nothing of the create."""
    profile = claimed.profile.contract
    return WireRequest(
        profile=profile,
        tenant=claimed.attempt.tenant,
        method=asked.method,
        path=asked.path,
        headers=asked.headers,
        body=asked.body,
        fresh_connection=False,
        keep_headers=kept_headers(claimed.action.contract, profile),
    )


def _answer(claimed: ClaimedLookup, reply: StoredReply, verdict: Verdict, steps: Steps) -> Answer:
    if not shows_record(verdict):
        code = code_before(claimed.name)
        return looked_up(claimed, reply, verdict, steps, look_up=claimed.name, event=CreateEvent.UNKNOWN, code=code)
    event = create_event(verdict, has_mirror=writeback_of(claimed.request) is not None)
    answer = looked_up(claimed, reply, verdict, steps, look_up=claimed.name, event=event, code=None)
    return replace(answer, detail=None)


def shows_record(verdict: Verdict) -> bool:
    """Whether a look-up found the one record, and its id can be used."""
    return verdict.remote_id is not None and verdict.canonical_id is not None


def looked_up(
    claimed: ClaimedLookup | ClaimedStampLookup,
    reply: StoredReply,
    verdict: Verdict,
    steps: Steps,
    *,
    look_up: str,
    event: CreateEvent,
    code: Code | None,
    mark: str | None = None,
) -> Answer:
    """What a look-up answered, with the record's link where it shows the record."""
    writeback = writeback_of(claimed.request)
    return Answer(
        attempt=claimed.attempt,
        token=claimed.token,
        actor=claimed.incarnation,
        send_ordinal=claimed.attempt.send_count,
        reply=reply,
        verdict=write_verdict(
            verdict,
            History(send_ordinal=claimed.attempt.send_count),
            asked_at=None if verdict.retry_after_ms is None else claimed.attempt.updated_at,
            look_up=look_up,
            mark=mark,
        ),
        candidate_id=None,
        event=event,
        reason_code=code,
        detail={**verdict.evidence, "row": verdict.row},
        in_doubt=None if verdict.effect is Effect.APPLIED else True,
        link=link_of(
            claimed,
            link_id=steps.world.ids.fresh(),
            remote_id=verdict.remote_id or "",
            canonical_id=verdict.canonical_id or "",
            writeback=writeback,
        )
        if shows_record(verdict)
        else None,
        writeback=writeback,
        values_digest=claimed.request.values_digest,
        throttle=throttle_of(claimed, claimed.profile, verdict),
        health=health_of(claimed, claimed.profile, reply, verdict, is_read=verdict.code is not Code.THROTTLED),
    )


def _waiting(claimed: ClaimedLookup, contract: LookUp, verdict: Verdict, answer: Answer) -> Waiting:
    sent_at = claimed.attempt.last_checkpoint_at or claimed.attempt.updated_at
    return Waiting(
        answer=answer,
        every_ms=max(contract.every_ms, verdict.retry_after_ms or 0),
        deadline=sent_at + dt.timedelta(milliseconds=contract.timeout_ms),
    )


def _parked(claimed: ClaimedLookup, failure: RenderFailure, unread: Unread | None) -> Move:
    """There is nothing to ask by, or it cannot be read: nobody will know without a person."""
    why = {} if unread is None else {"unread": unread.value, "because": UNREAD[unread]}
    return Move(
        row=claimed.attempt,
        event=CreateEvent.UNKNOWN,
        token=claimed.token,
        actor=claimed.incarnation,
        reason_code=claimed.attempt.reason_code if unread is None else Code.BODY_UNREADABLE,
        detail={"look_up": claimed.name, "message": failure.message, **failure.evidence, **why},
        in_doubt=True,
    )
