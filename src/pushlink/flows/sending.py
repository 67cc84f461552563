"""What creates and updates share around a send: the wire request, the history, the answer.

The idempotency key, the body and the headers come from the frozen request alone; the credential is named here and
resolved by the transport, so no flow ever holds a secret.
"""

from __future__ import annotations

import datetime as dt
from http import HTTPStatus
from typing import Final

from pushlink.errors import Code
from pushlink.flows.claimed import Owned
from pushlink.flows.step_items import Answer, Granted
from pushlink.flows.world import World
from pushlink.ports import WireRequest
from pushlink.protocol.client_ids import read_client_id
from pushlink.protocol.evidence import StoredReply, WireError
from pushlink.protocol.kept import kept_headers
from pushlink.protocol.outcome import History, Verdict, delay_ms
from pushlink.protocol.reinterpretation import write_verdict
from pushlink.protocol.replies import Disposition, Effect
from pushlink.protocol.snapshots import ActionSnapshot, Digest, ProfileSnapshot, WritebackSnapshot
from pushlink.protocol.states import CreateEvent, Hold, UpdateEvent
from pushlink.store.attempts import Checkpoint
from pushlink.store.circuits import Health
from pushlink.store.credential_states import CredentialKey
from pushlink.store.rows import LinkRow, RequestRow, read_headers
from pushlink.store.throttles import Throttle

_UNAUTHORIZED: Final = 401

#: What one attempt meets and every other one of its destination would meet too.
_OF_THE_DESTINATION: Final = frozenset({Code.THROTTLED, Code.CERTIFICATE_UNTRUSTED})

#: Calls that end without an answer and say nothing about the remote: our own shutdown, our own pause, our own grant.
_NOT_THE_REMOTES: Final = frozenset({WireError.CANCELLED, WireError.CREDENTIAL, WireError.STOOD_STILL})


def wire_request(
    owned: Owned,
    profile: ProfileSnapshot,
    action: ActionSnapshot,
    request: RequestRow,
    body: bytes,
    *,
    granted: Granted,
    fresh: bool,
) -> WireRequest:
    """The frozen request, its body opened, as the transport takes it, and the reply headers to keep."""
    return WireRequest(
        profile=profile.contract,
        tenant=owned.attempt.tenant,
        method=request.method,
        path=request.path,
        headers=read_headers(request.headers),
        body=body,
        fresh_connection=fresh,
        keep_headers=kept_headers(action.contract, profile.contract),
        start_by_s=granted.start_by_s,
    )


def client_id_of(action: ActionSnapshot, profile: ProfileSnapshot, request: RequestRow) -> str | None:
    """The id that a frozen create gives its record itself, if it does."""
    return read_client_id(action.contract, profile.contract, path=request.path, idempotency_key=request.idempotency_key)


def checkpoint_of(owned: Owned, world: World, profile: ProfileSnapshot, *, freeze: int, version: int) -> Checkpoint:
    """The checkpoint that this send needs; its lease must hold the whole deadline and the margin (D-12)."""
    return Checkpoint(
        attempt_id=owned.attempt.id,
        token=owned.token,
        freeze=freeze,
        version=version,
        needs_ms=profile.contract.timeouts.total_ms + world.terms.margin_ms,
    )


def history_of(
    owned: Owned,
    world: World,
    profile: ProfileSnapshot,
    *,
    send_ordinal: int,
    replayable: bool = False,
    canonical_id: str | None = None,
    client_id: str | None = None,
    finds_stamp: bool = False,
    refetched: bool = False,
) -> History:
    """What is known of the attempt before this reply."""
    return History(
        send_ordinal=send_ordinal,
        in_doubt=owned.attempt.in_doubt,
        live_replay_contract=replayable,
        credential_proven=world.accepted(owned.attempt.tenant, profile),
        reauthenticated=owned.attempt.reason_code == Code.UNAUTHENTICATED,
        retry_count=owned.attempt.retry_count,
        canonical_id=canonical_id,
        client_id=client_id,
        finds_stamp=finds_stamp,
        refetched=refetched,
    )


def answer_of(
    owned: Owned,
    world: World,
    profile: ProfileSnapshot,
    *,
    history: History,
    asked_at: dt.datetime,
    reply: StoredReply,
    verdict: Verdict,
    event: CreateEvent | UpdateEvent,
    link: LinkRow | None = None,
    writeback: WritebackSnapshot | None = None,
    values_digest: Digest | None = None,
    look_for_after_ms: int | None = None,
) -> Answer:
    """The parts of an answer that do not depend on the operation; notes a credential that the remote accepted."""
    if verdict.effect is Effect.APPLIED:
        world.note_accepted(owned.attempt.tenant, profile)
    returns = event in (CreateEvent.NOT_APPLIED, CreateEvent.REPLAY, UpdateEvent.NOT_APPLIED)
    wait = (
        delay_ms(verdict, profile.contract.retry, owned.attempt.retry_count, world.jitter_permille())
        if returns
        else None
    )
    # What a plain success has to say stands in its response row alone.
    is_plain = verdict.effect is Effect.APPLIED and verdict.disposition is Disposition.FINALIZE
    return Answer(
        attempt=owned.attempt,
        token=owned.token,
        actor=owned.incarnation,
        send_ordinal=history.send_ordinal,
        reply=reply,
        verdict=write_verdict(verdict, history, asked_at=None if verdict.retry_after_ms is None else asked_at),
        candidate_id=next(iter(verdict.candidates), None),
        event=event,
        reason_code=verdict.code,
        detail=None if is_plain else {**verdict.evidence, "candidates": list(verdict.candidates), "row": verdict.row},
        hold=verdict.hold,
        retry_after_ms=wait,
        counts_as_retry=verdict.burns_retry,
        in_doubt=_doubt_after(verdict),
        link=link,
        writeback=writeback,
        values_digest=values_digest,
        refused_credential=_refused_credential(owned, world, profile, reply, verdict),
        look_up_after_ms=0 if verdict.disposition is Disposition.LOOK_UP else None,
        look_for_after_ms=look_for_after_ms,
        throttle=throttle_of(owned, profile, verdict),
        health=health_of(owned, profile, reply, verdict),
        remote_version=verdict.remote_version,
    )


def _doubt_after(verdict: Verdict) -> bool | None:
    """Whether the attempt is in doubt after this verdict; `None` leaves it as it was."""
    if verdict.settles:
        return False
    return None if verdict.effect in (Effect.NOT_SENT, Effect.NOT_APPLIED, Effect.APPLIED) else True


def throttle_of(owned: Owned, profile: ProfileSnapshot, verdict: Verdict) -> Throttle | None:
    """What an answer says to everybody who would ask this remote next: too much, or that it cannot be trusted now."""
    if verdict.code not in _OF_THE_DESTINATION:
        return None
    if verdict.code is Code.THROTTLED and profile.contract.rate_limit.scope == "record":
        return None  # the attempt alone waits
    asked = verdict.retry_after_ms
    return Throttle(
        tenant=owned.attempt.tenant,
        destination_slot_id=owned.attempt.destination_slot_id,
        credential_ref=profile.contract.credential_ref or "",
        wait_ms=profile.contract.retry.backoff.base_ms if asked is None else asked,
        reason=verdict.row,
        profile=profile.contract,
    )


def health_of(
    owned: Owned, profile: ProfileSnapshot, reply: StoredReply, verdict: Verdict, *, is_read: bool = False
) -> Health | None:
    """Whether the remote failed, as far as this reply tells: no answer, or a 5xx whose meaning nobody declared.

    What a read says of the effect is about the create that it looks for, so its status alone counts.
    """
    if reply.status is None and reply.error in _NOT_THE_REMOTES:
        return None
    is_failure = reply.status is None or reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return Health(
        tenant=owned.attempt.tenant,
        destination_slot_id=owned.attempt.destination_slot_id,
        failing=is_failure and (is_read or verdict.effect in (Effect.NOT_SENT, Effect.UNKNOWN)),
        reason=verdict.row if reply.error is None else f"{verdict.row}: {reply.error}",
        terms=profile.contract.circuit,
    )


def _refused_credential(
    owned: Owned, world: World, profile: ProfileSnapshot, reply: StoredReply, verdict: Verdict
) -> CredentialKey | None:
    """The credential that a second 401 speaks of; a 404 without a proven credential says nothing about others."""
    reference = profile.contract.credential_ref
    if reference is None or verdict.hold is not Hold.CREDENTIAL:
        return None
    if reply.status != _UNAUTHORIZED and reply.error is not WireError.CREDENTIAL:
        return None
    tenant = owned.attempt.tenant
    return CredentialKey(tenant=tenant, reference=reference, generation=world.generation_of(reference, tenant))
