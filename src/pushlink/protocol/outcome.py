"""Interpretation: from what one send left behind to one verdict, as a pure function that can be run again years later.

`interpret` reads the stored reply with the frozen contracts and the history of the attempt. Four rules stand above the
table of answers. Only the transport's trace proves that nothing was sent. A body that is not whole is never read. Once
a send of an attempt ended unknown, no later refusal clears that: it may be the echo of our own first send. And an id is
never guessed: a success without one parks, a duplicate answer only names candidates.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pushlink.errors import Code
from pushlink.protocol.contracts import ActionContract, ProfileContract, Retry
from pushlink.protocol.criteria import all_hold
from pushlink.protocol.declarations import Reading, asserts_hold, declared_reading, is_success
from pushlink.protocol.evidence import StoredReply, WireError
from pushlink.protocol.extract import (
    CANDIDATES_MAX,
    extract_again,
    extract_candidates,
    extract_first,
    extract_known,
    extract_named,
    extract_version,
)
from pushlink.protocol.lookups import is_accepted
from pushlink.protocol.remoteids import Extracted, NoId, read_remote_id
from pushlink.protocol.repeats import converges, has_receipt, is_stored_failure, own_id, repeat_reading
from pushlink.protocol.replies import (
    ACCEPTED,
    APPLIED,
    ASK_WHOSE,
    BY_STATUS,
    CREDENTIAL_LOST,
    DUPLICATE,
    LOOK_FOR_ID,
    MATCHED,
    NOT_SENT,
    OURS,
    REFETCH,
    STALE,
    TOO_LATE,
    UNAUTHENTICATED,
    UNIDENTIFIED,
    UNKNOWN,
    UNLISTED,
    UNTRUSTED,
    WAIT_FOR_JOB,
    Disposition,
    Effect,
    Meaning,
)
from pushlink.protocol.states import CreateEvent, Hold, Operation, UpdateEvent
from pushlink.protocol.waits import retry_after_ms, throttle_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is known of an attempt before this reply.

    `live_replay_contract` is true only where D-07 allows a replay by itself: a frozen contract, still within its
    lifetime, in the `configured` lane. `credential_proven` means that this credential was accepted before (D-23).
    """

    send_ordinal: int = 1  # counts the sends of this attempt, this one included
    in_doubt: bool = False  # an earlier send was started and is not proved not-applied
    live_replay_contract: bool = False
    credential_proven: bool = False
    reauthenticated: bool = False  # an earlier 401 of this attempt was answered with a refreshed credential
    retry_count: int = 0  # earlier sends that counted against the budget
    canonical_id: str | None = None  # the linked record, for an update
    refetched: bool = False  # this send was made with a version that was read because the one before was stale
    client_id: str | None = None  # the id that a create gave its record itself
    finds_stamp: bool = False  # a trusted look-up can find the record of this create by its stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on one send. `row` names the row of the table; `evidence` holds no text of a body.

    An applied update has an id only where the remote gave its record another one.
    """

    effect: Effect
    disposition: Disposition
    code: Code | None  # None only when the request was applied and its record is known
    row: str
    remote_id: str | None = None
    canonical_id: str | None = None
    candidates: tuple[str, ...] = ()
    remote_version: str | None = None  # the version of the record that an applied request left
    retry_after_ms: int | None = None  # what the remote asked for, bounded
    burns_retry: bool = False
    hold: Hold | None = None
    settles: bool = False  # a receipt: the answer speaks for every send of the attempt, and ends its doubt
    evidence: Mapping[str, object]


#: A certificate is mended by people: looked at again after this long, it costs nobody a retry (milliseconds).
UNTRUSTED_PAUSE_MS: Final = 300_000

#: Which refusals of a re-send are read as the echo of an unknown first send, whatever may be replayed.
_ECHOES: Final = frozenset({Disposition.TERMINAL, Disposition.GONE, Disposition.CONFLICT})

_CREATE_EVENTS: Final[Mapping[tuple[Effect, Disposition], CreateEvent]] = {
    (Effect.NOT_SENT, Disposition.RETRY_AT): CreateEvent.NOT_APPLIED,
    (Effect.NOT_SENT, Disposition.TERMINAL): CreateEvent.REJECT,
    (Effect.NOT_SENT, Disposition.PARK): CreateEvent.NOT_APPLIED,
    (Effect.NOT_APPLIED, Disposition.RETRY_AT): CreateEvent.NOT_APPLIED,
    (Effect.NOT_APPLIED, Disposition.REAUTH_ONCE): CreateEvent.NOT_APPLIED,
    (Effect.NOT_APPLIED, Disposition.PARK): CreateEvent.NOT_APPLIED,
    (Effect.NOT_APPLIED, Disposition.TERMINAL): CreateEvent.REJECT,
    (Effect.NOT_APPLIED, Disposition.LOOK_UP): CreateEvent.ANSWER_STORED,
    (Effect.APPLIED_UNIDENTIFIED, Disposition.LOOK_UP): CreateEvent.ANSWER_STORED,
    (Effect.ACCEPTED_PENDING, Disposition.LOOK_UP): CreateEvent.ANSWER_STORED,
    (Effect.APPLIED_UNIDENTIFIED, Disposition.PARK): CreateEvent.UNKNOWN,
    (Effect.ACCEPTED_PENDING, Disposition.PARK): CreateEvent.UNKNOWN,
    (Effect.UNKNOWN, Disposition.RECONCILE): CreateEvent.UNKNOWN,
    (Effect.UNKNOWN, Disposition.RETRY_AT): CreateEvent.REPLAY,
    (Effect.UNKNOWN, Disposition.REAUTH_ONCE): CreateEvent.REPLAY,
    (Effect.UNKNOWN, Disposition.PARK): CreateEvent.REPLAY,
}

#: What becomes of a create that was applied, by whether a mirror is configured.
_FINALIZED_EVENTS: Final[Mapping[bool, CreateEvent]] = {
    True: CreateEvent.LINK_FINALIZED,
    False: CreateEvent.LINK_FINALIZED_NO_MIRROR,
}

_UPDATE_EVENTS: Final[Mapping[tuple[Effect, Disposition], UpdateEvent]] = {
    (Effect.NOT_SENT, Disposition.RETRY_AT): UpdateEvent.NOT_APPLIED,
    (Effect.NOT_SENT, Disposition.TERMINAL): UpdateEvent.REJECT,
    (Effect.NOT_SENT, Disposition.PARK): UpdateEvent.NOT_APPLIED,
    (Effect.NOT_APPLIED, Disposition.RETRY_AT): UpdateEvent.NOT_APPLIED,
    (Effect.NOT_APPLIED, Disposition.REAUTH_ONCE): UpdateEvent.NOT_APPLIED,
    (Effect.NOT_APPLIED, Disposition.PARK): UpdateEvent.NOT_APPLIED,
    (Effect.NOT_APPLIED, Disposition.TERMINAL): UpdateEvent.REJECT,
    (Effect.NOT_APPLIED, Disposition.GONE): UpdateEvent.REMOTE_GONE,
    (Effect.NOT_APPLIED, Disposition.CONFLICT): UpdateEvent.REMOTE_CONFLICT,
    (Effect.APPLIED, Disposition.CONFLICT): UpdateEvent.REMOTE_CONFLICT,
    (Effect.APPLIED, Disposition.GONE): UpdateEvent.REMOTE_GONE,
    (Effect.APPLIED, Disposition.FINALIZE): UpdateEvent.APPLIED,
    (Effect.APPLIED_UNIDENTIFIED, Disposition.PARK): UpdateEvent.UNKNOWN,
    (Effect.ACCEPTED_PENDING, Disposition.PARK): UpdateEvent.UNKNOWN,
    (Effect.UNKNOWN, Disposition.RECONCILE): UpdateEvent.UNKNOWN,
}


def interpret(
    operation: Operation,
    action: ActionContract,
    profile: ProfileContract,
    reply: StoredReply,
    history: History,
    *,
    received_at: dt.datetime | None = None,
) -> Verdict:
    """The verdict on one send. `received_at` is a moment of the database not after the reply; waits may be dates."""
    reading = _read(operation, action, profile, reply, history)
    meaning = reading.meaning
    is_create = operation is Operation.CREATE
    found: Extracted | NoId | None = None
    if meaning is OURS:
        found, meaning = own_id(action, reply, history.client_id), APPLIED
    elif is_create and meaning is APPLIED:
        found = extract_known(action, reply, history.client_id)
    successors: tuple[str, ...] = ()
    if isinstance(found, NoId):
        meaning = UNIDENTIFIED
    elif isinstance(found, Extracted) and not (converges(action) or all_hold(action.create.response.created, reply)):
        meaning = MATCHED
    elif operation is Operation.UPDATE:
        successors = _successors(action, reply, history)
        found = _another(action, reply, history) if meaning is APPLIED else None
        is_new_id = isinstance(found, Extracted) and action.create.response.id_rule.mutable
        if meaning is APPLIED and (successors or (found is not None and not is_new_id)):
            meaning = replace(APPLIED, disposition=Disposition.CONFLICT, code=Code.REMOTE_CHANGED)
    meaning = _looked_up(operation, action, reply, meaning, history)
    if reading.asks_whose and meaning is DUPLICATE and history.finds_stamp and not history.in_doubt:
        meaning = ASK_WHOSE
    is_throttle = meaning.code is Code.THROTTLED
    settles = is_create and history.in_doubt and _settles(action, reply, meaning)
    if is_create and is_stored_failure(action, reply, meaning):
        meaning = replace(meaning, replays=False)
    meaning = meaning if settles else _after_history(operation, meaning, profile, history)
    is_retry = meaning.disposition is Disposition.RETRY_AT
    identified = found if isinstance(found, Extracted) and meaning is APPLIED else None
    return Verdict(
        effect=meaning.effect,
        disposition=meaning.disposition,
        code=meaning.code,
        row=reading.row,
        remote_id=identified.remote_id if identified else None,
        canonical_id=identified.canonical if identified else None,
        candidates=_others(successors, found, meaning)
        if operation is Operation.UPDATE
        else _candidates(action, reply, found, reading, meaning),
        remote_version=extract_version(action, reply) if meaning is APPLIED else None,
        retry_after_ms=_wait_ms(reading, profile, reply, received_at, is_throttle=is_throttle) if is_retry else None,
        burns_retry=is_retry and meaning.burns_retry,
        hold=Hold.CREDENTIAL if _parks_profile(meaning) else None,
        settles=settles,
        evidence=_evidence(reply, history, found, reading, successors),
    )


def create_event(verdict: Verdict, *, has_mirror: bool) -> CreateEvent:
    """What a verdict does to a create attempt, unless the result transaction finds its locator taken."""
    if verdict.disposition is Disposition.FINALIZE:
        return _FINALIZED_EVENTS[has_mirror]
    return _CREATE_EVENTS[verdict.effect, verdict.disposition]


def update_event(verdict: Verdict) -> UpdateEvent:
    """What a verdict does to an update attempt; a remote that is gone or in conflict also suspends the link."""
    return _UPDATE_EVENTS[verdict.effect, verdict.disposition]


def backoff_ms(retry: Retry, count: int, jitter_permille: int) -> int:
    """The delay before try number `count + 1`, exponential up to the cap, plus a jitter of 0 to 1000 permille of it."""
    delay = min(retry.backoff.cap_ms, retry.backoff.base_ms << min(count, 40))
    return delay + delay * jitter_permille // 1_000


def delay_ms(verdict: Verdict, retry: Retry, count: int, jitter_permille: int) -> int:
    """How long a returned attempt waits: the back-off, or what the remote asked for and up to a tenth more."""
    asked = verdict.retry_after_ms or 0
    return max(asked + asked * jitter_permille // 10_000, backoff_ms(retry, count, jitter_permille))


#: What failed before the first byte for a reason that is not this request's; all else is tried within its budget.
_UNSENT: Final = {
    WireError.CREDENTIAL: Reading(row="the credential cannot be used", meaning=CREDENTIAL_LOST),
    WireError.CERTIFICATE: Reading(row="the certificate is not trusted", meaning=UNTRUSTED, wait_ms=UNTRUSTED_PAUSE_MS),
    WireError.STOOD_STILL: Reading(row="the process stood still", meaning=TOO_LATE),
}


def _read(
    operation: Operation, action: ActionContract, profile: ProfileContract, reply: StoredReply, history: History
) -> Reading:
    """The row and the meaning of this reply alone: declared rules, declared success, then the built-in table."""
    trace = reply.trace
    if reply.status is None:
        started = trace.request_started or trace.request_sent or trace.response_started or trace.response_complete
        if reply.error is not None and not started:
            return _UNSENT.get(reply.error, Reading(row="nothing was sent", meaning=NOT_SENT))
        return Reading(row="no answer", meaning=UNKNOWN)
    if not trace.request_started:
        return Reading(row="an answer to nothing", meaning=UNKNOWN)
    reading = None if operation is Operation.UPDATE else repeat_reading(action, reply, in_doubt=history.in_doubt)
    reading = reading or declared_reading(operation, action, profile, reply)
    if reading is None and operation is Operation.CREATE and is_accepted(action, reply):
        return Reading(row="declared as accepted", meaning=ACCEPTED)
    if reading is None and is_success(operation, action, reply):
        if not asserts_hold(operation, action, reply):
            return Reading(row="success that does not show what it must", meaning=UNKNOWN)
        return Reading(row="declared success", meaning=APPLIED)
    row = BY_STATUS.get(reply.status, UNLISTED)
    reading = reading or Reading(row=row.name, meaning=row.meaning(operation))
    meaning = reading.meaning
    needs_proof = meaning.disposition is Disposition.GONE and meaning.effect is Effect.NOT_APPLIED
    if needs_proof and not history.credential_proven:
        return replace(reading, meaning=UNAUTHENTICATED)
    if meaning is STALE and _may_refetch(action, history):
        return replace(reading, meaning=REFETCH)
    if meaning.disposition is Disposition.REAUTH_ONCE and history.reauthenticated:
        return replace(reading, meaning=UNAUTHENTICATED)
    return reading


def _may_refetch(action: ActionContract, history: History) -> bool:
    """Whether the profile lets a stale update read the record's version and try once more (C-047)."""
    condition = action.update.precondition if action.update is not None else None
    return condition is not None and condition.refetch_once and not history.refetched


def _looked_up(
    operation: Operation, action: ActionContract, reply: StoredReply, meaning: Meaning, history: History
) -> Meaning:
    """A create whose answer does not name its record, where the pack says what to ask next; in doubt it parks."""
    if operation is Operation.UPDATE or history.in_doubt:
        return meaning
    if meaning is UNIDENTIFIED and action.create.followup is not None:
        return LOOK_FOR_ID
    contract = action.create.asynchronous
    if meaning is ACCEPTED and contract is not None and (not contract.job or extract_first(contract.job, reply)):
        return WAIT_FOR_JOB
    return meaning


def _after_history(operation: Operation, meaning: Meaning, profile: ProfileContract, history: History) -> Meaning:
    """Budget, doubt and replay: what the reply alone cannot know."""
    replayable = operation is Operation.CREATE and history.live_replay_contract
    exhausted = meaning.burns_retry and history.retry_count + 1 >= profile.retry.attempts
    match meaning.effect:
        case Effect.NOT_SENT | Effect.NOT_APPLIED if history.in_doubt:
            if meaning.disposition in _ECHOES or exhausted or not replayable:
                return UNKNOWN
            return replace(meaning, effect=Effect.UNKNOWN)
        case Effect.NOT_SENT | Effect.NOT_APPLIED if meaning.disposition is Disposition.RETRY_AT and exhausted:
            return replace(meaning, disposition=Disposition.TERMINAL, code=Code.RETRIES_EXHAUSTED)
        case Effect.UNKNOWN if replayable and not exhausted and meaning.replays:
            return replace(meaning, disposition=Disposition.RETRY_AT)
        case _:
            return meaning


def _another(action: ActionContract, reply: StoredReply, history: History) -> Extracted | NoId | None:
    """The other id that the answer to an update shows: of a record that was merged, of the wrong route, or a new one.

    Only a 200 carries a representation of the record, unless the pack says that ids change.
    """
    if history.canonical_id is None:
        return None
    if reply.status != 200 and not action.create.response.id_rule.mutable:  # noqa: PLR2004
        return None
    return extract_again(action, reply, history.canonical_id)


def _settles(action: ActionContract, reply: StoredReply, meaning: Meaning) -> bool:
    """Whether a definite refusal of a repeat is the stored answer to the first send, and not to this one alone."""
    is_refusal = meaning.effect is Effect.NOT_APPLIED and meaning.disposition is Disposition.TERMINAL
    return is_refusal and has_receipt(action, reply)


def _successors(action: ActionContract, reply: StoredReply, history: History) -> tuple[str, ...]:
    """The records that the linked one was merged into, as the answer names them; never the linked one itself."""
    merged = action.update.merged if action.update is not None else None
    if merged is None or reply.status is None:
        return ()
    named = [(text, read_remote_id(action, text)) for text in extract_named(action, merged.successor, reply)]
    return tuple(
        text for text, found in named if isinstance(found, Extracted) and found.canonical != history.canonical_id
    )


def _others(successors: tuple[str, ...], found: Extracted | NoId | None, meaning: Meaning) -> tuple[str, ...]:
    """What the answer to an update names beside the linked record, for the person who decides."""
    if meaning is APPLIED or found is None:
        return successors
    named = found.candidate if isinstance(found, NoId) else found.remote_id
    return tuple(dict.fromkeys(text for text in (*successors, named) if text is not None))


def _candidates(
    action: ActionContract, reply: StoredReply, found: Extracted | NoId | None, reading: Reading, meaning: Meaning
) -> tuple[str, ...]:
    if reply.status is None or meaning is APPLIED:
        return ()
    refused = found.candidate if isinstance(found, NoId) else found.remote_id if found is not None else None
    named = (refused, *reading.candidates, *extract_candidates(action, reply))
    return tuple(dict.fromkeys(text for text in named if text is not None))[:CANDIDATES_MAX]


def _wait_ms(
    reading: Reading,
    profile: ProfileContract,
    reply: StoredReply,
    received_at: dt.datetime | None,
    *,
    is_throttle: bool,
) -> int | None:
    """What is waited at least: the remote's own word, and for a throttle the places that the profile declares."""
    said = throttle_ms(profile.rate_limit, reply, received_at) if is_throttle else retry_after_ms(reply, received_at)
    asked = [wait for wait in (said, reading.wait_ms) if wait is not None]
    return max(asked, default=None)


def _parks_profile(meaning: Meaning) -> bool:
    return meaning.disposition is Disposition.PARK and meaning.code is Code.UNAUTHENTICATED


def _evidence(
    reply: StoredReply,
    history: History,
    found: Extracted | NoId | None,
    reading: Reading,
    successors: tuple[str, ...],
) -> dict[str, object]:
    facts: dict[str, object] = {
        "status": reply.status,
        "error": reply.error,
        "request_started": reply.trace.request_started,
        "request_sent": reply.trace.request_sent,
        "body_complete": reply.body_complete,
        "body_size": reply.body_size,
        "body_digest": reply.body_digest,
        "send_ordinal": history.send_ordinal,
        "in_doubt": history.in_doubt,
    }
    more: dict[str, object | None] = {
        "error_text": reply.error_text or None,
        "no_id": found.reason if isinstance(found, NoId) else None,
        "because": reading.because,
        "variant": reading.variant,
        "successor": next(iter(successors), None),
    }
    return facts | {name: value for name, value in more.items() if value is not None}
