from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.examples import NOTHING_SENT, SENT, action, answer, failure, profile
from pushlink.errors import Code
from pushlink.protocol.contracts import Retry
from pushlink.protocol.evidence import StoredReply, WireError, WireTrace
from pushlink.protocol.outcome import (
    History,
    Verdict,
    backoff_ms,
    create_event,
    delay_ms,
    interpret,
    update_event,
)
from pushlink.protocol.replies import BY_STATUS, ROWS, Disposition, Effect
from pushlink.protocol.states import (
    AttemptStatus,
    CreateEvent,
    Hold,
    Operation,
    UpdateEvent,
    follow_create,
    follow_update,
)
from pushlink.protocol.waits import RETRY_AFTER_MS_MAX, retry_after_ms

CREATE, UPDATE = Operation.CREATE, Operation.UPDATE
NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
PROVEN = History(credential_proven=True)
STARTED = WireTrace(connected=True, request_started=True)

#: How a transport may end without an answer, each with every trace it can have.
FAILURES = [
    failure(error, trace)
    for error in WireError
    for trace in (NOTHING_SENT, WireTrace(connected=True), STARTED, replace(STARTED, request_sent=True), SENT)
]
HISTORIES = [
    History(
        in_doubt=doubt,
        live_replay_contract=live,
        credential_proven=proven,
        reauthenticated=again,
        retry_count=count,
    )
    for doubt, live, proven, again in itertools.product((False, True), repeat=4)
    for count in (0, 7)
]


def judge(operation: Operation, reply: StoredReply, history: History = PROVEN, **create: Any) -> Verdict:
    return interpret(operation, action(create=create), profile(), reply, history, received_at=NOW)


def create(status: int, body: bytes | str = b"", history: History = PROVEN, **more: Any) -> Verdict:
    return judge(CREATE, answer(status, body, **more), history)


def update(status: int, body: bytes | str = b"", history: History = PROVEN, **more: Any) -> Verdict:
    return judge(UPDATE, answer(status, body, **more), history)


def every_reply() -> Iterator[StoredReply]:
    yield from FAILURES
    yield StoredReply(trace=SENT)
    for status in (0, 100, 101, 199, *range(200, 600), 600, 999):
        yield answer(status, '{"id": 7}')
        yield answer(status, b"", body_complete=False)


N, A, U, X = Effect.NOT_APPLIED, Effect.APPLIED, Effect.UNKNOWN, Effect.APPLIED_UNIDENTIFIED
D = Disposition

REFUSED = (400, 405, 407, 411, 413, 414, 415, 417, 422, 424, 428, 431, 451, 501, 505)
KNOWN_UNKNOWN = (100, 101, 402, 406, 408, 418, 426, 460, 499, 500, 502, 503, 504, 507, 508, 510, 520, 524, 529, 599)

#: The meaning of each status for a first send with a proven credential: create, then update.
FIRST_SEND = {
    200: ((A, D.FINALIZE), (A, D.FINALIZE)),
    201: ((A, D.FINALIZE), (X, D.PARK)),
    202: ((Effect.ACCEPTED_PENDING, D.PARK), (A, D.FINALIZE)),
    203: ((A, D.FINALIZE), (X, D.PARK)),
    204: ((X, D.PARK), (A, D.FINALIZE)),
    **dict.fromkeys((205, 206, 207, 208, 226, 299), ((X, D.PARK), (X, D.PARK))),
    301: ((U, D.RECONCILE), (N, D.CONFLICT)),
    **dict.fromkeys((300, 302, 303, 304, 305, 399), ((U, D.RECONCILE), (U, D.RECONCILE))),
    307: ((N, D.TERMINAL), (N, D.TERMINAL)),
    308: ((N, D.TERMINAL), (N, D.CONFLICT)),
    **dict.fromkeys(
        (400, 405, 407, 411, 413, 414, 415, 417, 422, 424, 428, 431, 451, 501, 505), ((N, D.TERMINAL), (N, D.TERMINAL))
    ),
    401: ((N, D.REAUTH_ONCE), (N, D.REAUTH_ONCE)),
    **dict.fromkeys((403, 404, 410), ((N, D.TERMINAL), (N, D.GONE))),
    **dict.fromkeys((409, 412), ((N, D.TERMINAL), (N, D.CONFLICT))),
    **dict.fromkeys((421, 423, 425, 429, 511), ((N, D.RETRY_AT), (N, D.RETRY_AT))),
    **dict.fromkeys((*KNOWN_UNKNOWN, 0, 600, 999), ((U, D.RECONCILE), (U, D.RECONCILE))),
}


@pytest.mark.rule("PO-07")
@pytest.mark.parametrize(("status", "expected"), FIRST_SEND.items())
def test_each_status_means_what_the_table_of_answers_says(status: int, expected: tuple[Any, Any]) -> None:
    """Effect and disposition of a first send, for a create and for an update of the linked record."""
    for operation, wanted in zip((CREATE, UPDATE), expected, strict=True):
        verdict = judge(operation, answer(status, '{"id": "7"}'))
        assert (verdict.effect, verdict.disposition) == wanted


@pytest.mark.rule("PO-07")
def test_no_status_stands_in_two_rows_and_an_unlisted_one_is_unknown() -> None:
    """The table is total: what no row names is unknown, never a retry and never terminal."""
    listed = [status for row in ROWS for status in row.statuses]
    assert len(listed) == len(set(listed)) == len(BY_STATUS)
    for status in set(range(1000)) - set(listed):
        assert create(status).effect is Effect.UNKNOWN


@pytest.mark.rule("PO-07")
@pytest.mark.parametrize("reply", FAILURES, ids=lambda reply: f"{reply.error}-{int(reply.trace.request_started)}")
@pytest.mark.parametrize("operation", list(Operation))
def test_only_the_trace_proves_that_nothing_was_sent(reply: StoredReply, operation: Operation) -> None:
    """Whatever the error is called: no byte left means not sent, else the effect is unknown."""
    verdict = judge(operation, reply)
    nothing_left = reply.trace in (NOTHING_SENT, WireTrace(connected=True))
    assert verdict.effect is (Effect.NOT_SENT if nothing_left else Effect.UNKNOWN)
    unsent = Disposition.PARK if reply.error is WireError.CREDENTIAL else Disposition.RETRY_AT  # a grant that is lost
    assert verdict.disposition is (unsent if nothing_left else Disposition.RECONCILE)


def test_contradictory_evidence_is_unknown() -> None:
    """An answer to a request that never started, or neither answer nor error, proves nothing."""
    assert create(201, '{"id": 1}', trace=NOTHING_SENT).effect is Effect.UNKNOWN
    assert judge(CREATE, StoredReply(trace=NOTHING_SENT)).effect is Effect.UNKNOWN


@pytest.mark.rule("C-021", "D-25")
@pytest.mark.parametrize("status", [200, 201, 203])
def test_a_declared_success_with_an_id_finalizes(status: int) -> None:
    """200, 201 and 203 by default; the id comes as received and in its canonical form."""
    verdict = create(status, '{"id": 7}')
    assert (verdict.effect, verdict.disposition, verdict.code) == (Effect.APPLIED, Disposition.FINALIZE, None)
    assert (verdict.remote_id, verdict.canonical_id, verdict.candidates) == ("7", "7", ())


@pytest.mark.rule("C-021", "C-023")
def test_a_profile_may_narrow_or_widen_what_success_is() -> None:
    """A declared 202 with an id is created; an undeclared 200 is not."""
    declared = judge(CREATE, answer(202, '{"id": "x"}'), PROVEN, success={"status": [202]})
    assert (declared.effect, declared.remote_id) == (Effect.APPLIED, "x")
    assert judge(CREATE, answer(200, '{"id": "x"}'), PROVEN, success={"status": [202]}).effect is X


@pytest.mark.rule("C-021", "C-023")
@pytest.mark.parametrize(("status", "effect"), [(202, Effect.ACCEPTED_PENDING), (204, X), (207, X)])
def test_another_success_parks_with_its_id_as_a_candidate(status: int, effect: Effect) -> None:
    """Accepted for later, or a success that was not declared: nothing is finalized, the id stays as evidence."""
    verdict = create(status, '{"id": "x"}')
    assert (verdict.effect, verdict.disposition, verdict.remote_id) == (effect, Disposition.PARK, None)
    assert verdict.candidates == ("x",)
    assert create_event(verdict, has_mirror=False) is CreateEvent.UNKNOWN


@pytest.mark.rule("PO-07", "D-25")
@pytest.mark.parametrize(
    ("body", "reason", "candidates"),
    [
        ("", "absent", ()),
        ("{}", "absent", ()),
        ('{"id": true}', "wrong_type", ()),
        ('{"id": 1e3}', "wrong_type", ("1e3",)),
        ('{"id": "no such id"}', "sentence", ("no such id",)),
        ("<html>", "body_unreadable", ()),
    ],
)
def test_a_success_without_a_usable_id_parks_and_is_never_sent_again(
    body: str, reason: str, candidates: tuple[str, ...]
) -> None:
    """Applied, and nobody knows where: ambiguous, whatever contract there is."""
    for history in HISTORIES:
        verdict = create(201, body, history)
        assert (verdict.effect, verdict.disposition) == (X, Disposition.PARK)
        assert verdict.candidates == candidates
        assert verdict.evidence["no_id"] == reason
        assert create_event(verdict, has_mirror=True) is CreateEvent.UNKNOWN


@pytest.mark.rule("PO-07")
def test_a_cut_body_gives_no_id_and_a_whole_header_does() -> None:
    """Status and headers are complete, so the success is certain; half a body must never yield half an id."""
    cut = {"body_complete": False}
    assert create(201, '{"id": 12}', **cut).effect is X
    by_header = {"response": {"id": [{"from": "$response.header.X-Id"}]}}
    reply = answer(201, '{"id": 12}', headers=(("x-id", "123"),), **cut)
    assert judge(CREATE, reply, PROVEN, **by_header).remote_id == "123"


@pytest.mark.rule("D-27", "C-028", "C-029")
def test_a_duplicate_answer_adopts_nothing() -> None:
    """The ids it names are candidates on a terminal attempt; an unexplained conflict is terminal too."""
    named = create(409, '{"id": "6001"}')
    assert (named.disposition, named.code) == (Disposition.TERMINAL, Code.REMOTE_CONFLICT)
    assert (named.remote_id, named.candidates) == (None, ("6001",))
    assert create_event(named, has_mirror=True) is CreateEvent.REJECT
    bare = create(409, "<html>")
    assert (bare.disposition, bare.candidates) == (Disposition.TERMINAL, ())


@pytest.mark.rule("D-06", "PO-07")
@pytest.mark.parametrize("operation", list(Operation))
def test_unknown_is_sticky(operation: Operation) -> None:
    """Once in doubt, no answer and no failure of a later send says "not applied" again, and nothing ends terminal."""
    for reply, history in itertools.product(every_reply(), [each for each in HISTORIES if each.in_doubt]):
        verdict = judge(operation, reply, history)
        assert verdict.effect not in {Effect.NOT_SENT, Effect.NOT_APPLIED}
        event = create_event(verdict, has_mirror=True) if operation is CREATE else update_event(verdict)
        assert event not in {CreateEvent.NOT_APPLIED, CreateEvent.REJECT, UpdateEvent.NOT_APPLIED, UpdateEvent.REJECT}
        if not history.live_replay_contract:
            assert event is not CreateEvent.REPLAY


@pytest.mark.rule("D-06")
@pytest.mark.parametrize("status", [404, 409, 410, 412, 422])
def test_a_refusal_of_a_resend_may_be_the_echo_of_the_first_send(status: int) -> None:
    """Even under a replay contract it is settled by evidence or an operator, not by sending again."""
    history = replace(PROVEN, in_doubt=True, live_replay_contract=True, send_ordinal=2)
    verdict = create(status, '{"id": "6001"}', history)
    assert (verdict.effect, verdict.disposition) == (Effect.UNKNOWN, Disposition.RECONCILE)
    assert verdict.candidates == ("6001",)


@pytest.mark.parametrize("reply", [failure(WireError.READ, SENT), answer(500), answer(503), answer(504)])
def test_an_unknown_outcome_is_replayed_only_under_a_live_contract(reply: StoredReply) -> None:
    """With the contract it goes back to pending for a byte-identical replay; without, and for an update, it parks."""
    live = replace(PROVEN, live_replay_contract=True)
    assert create_event(judge(CREATE, reply, live), has_mirror=True) is CreateEvent.REPLAY
    assert create_event(judge(CREATE, reply), has_mirror=True) is CreateEvent.UNKNOWN
    assert update_event(judge(UPDATE, reply, live)) is UpdateEvent.UNKNOWN


def test_a_throttled_replay_is_tried_again_under_its_contract() -> None:
    """Still in doubt, so the event is a replay; the remote's wait is kept and the budget is not touched."""
    history = replace(PROVEN, in_doubt=True, live_replay_contract=True, retry_count=100)
    verdict = create(429, b"", history, headers=(("retry-after", "5"),))
    assert (verdict.effect, verdict.disposition) == (Effect.UNKNOWN, Disposition.RETRY_AT)
    assert (verdict.retry_after_ms, verdict.burns_retry) == (5_000, False)
    assert create_event(verdict, has_mirror=True) is CreateEvent.REPLAY


@pytest.mark.parametrize("in_doubt", [False, True])
@pytest.mark.parametrize(
    ("reply", "reauthenticated", "disposition"),
    [
        (answer(429), False, Disposition.RETRY_AT),
        (answer(401), False, Disposition.REAUTH_ONCE),
        (answer(401), True, Disposition.PARK),
        (failure(WireError.CREDENTIAL), False, Disposition.PARK),
        (failure(WireError.CERTIFICATE), False, Disposition.RETRY_AT),
        (failure(WireError.STOOD_STILL), False, Disposition.RETRY_AT),
    ],
    ids=["throttled", "a first 401", "a second 401", "no credential", "no trust", "too late"],
)
def test_what_is_not_about_the_request_costs_it_no_try(
    reply: StoredReply, reauthenticated: bool, disposition: Disposition, in_doubt: bool
) -> None:
    """Not even when all of them are spent: neither a first send nor a repeat under its contract ends for it."""
    spent = replace(PROVEN, retry_count=1_000, reauthenticated=reauthenticated)
    verdict = judge(CREATE, reply, replace(spent, in_doubt=in_doubt, live_replay_contract=in_doubt))
    assert (verdict.disposition, verdict.burns_retry) == (disposition, False)


def test_exhaustion_is_terminal_when_proved_and_ambiguous_when_not() -> None:
    """Eight sends by default; a throttle is never one of them."""
    last = replace(PROVEN, retry_count=7)
    refused = judge(CREATE, failure(WireError.CONNECT), last)
    assert (refused.disposition, refused.code) == (Disposition.TERMINAL, Code.RETRIES_EXHAUSTED)
    assert judge(CREATE, failure(WireError.CONNECT), replace(PROVEN, retry_count=6)).disposition is D.RETRY_AT
    assert create(429, b"", replace(PROVEN, retry_count=1000)).disposition is Disposition.RETRY_AT
    doubtful = judge(CREATE, failure(WireError.CONNECT), replace(last, in_doubt=True, live_replay_contract=True))
    assert create_event(doubtful, has_mirror=True) is CreateEvent.UNKNOWN


@pytest.mark.parametrize("operation", list(Operation))
def test_a_first_401_refreshes_the_credential_once_and_a_second_holds_the_profile(operation: Operation) -> None:
    """Both were not applied, both return the attempt; the second one waits for somebody to mend the credential."""
    first = judge(operation, answer(401))
    assert (first.disposition, first.hold, first.burns_retry) == (Disposition.REAUTH_ONCE, None, False)
    second = judge(operation, answer(401), replace(PROVEN, reauthenticated=True))
    assert (second.effect, second.hold, second.code) == (N, Hold.CREDENTIAL, Code.UNAUTHENTICATED)
    for verdict in (first, second):
        event = create_event(verdict, has_mirror=True) if operation is CREATE else update_event(verdict)
        assert event in {CreateEvent.NOT_APPLIED, UpdateEvent.NOT_APPLIED}


@pytest.mark.rule("D-23")
@pytest.mark.parametrize("status", [403, 404, 410])
def test_gone_needs_a_proven_credential(status: int) -> None:
    """A remote that hides records from a stranger says the same; only an accepted credential makes it "gone"."""
    gone = update(status)
    assert (gone.effect, gone.disposition, gone.code) == (N, Disposition.GONE, Code.REMOTE_GONE)
    assert update_event(gone) is UpdateEvent.REMOTE_GONE
    stranger = update(status, b"", History())
    assert (stranger.disposition, stranger.hold, stranger.code) == (D.PARK, Hold.CREDENTIAL, Code.UNAUTHENTICATED)
    assert update_event(stranger) is UpdateEvent.NOT_APPLIED


@pytest.mark.parametrize("status", [409, 412])
def test_a_conflict_of_an_update_suspends_its_link(status: int) -> None:
    """Without a contract nothing is overwritten and nothing is tried again."""
    assert update_event(update(status)) is UpdateEvent.REMOTE_CONFLICT


def test_an_update_that_shows_another_record_suspends_its_link() -> None:
    """200 with another id, or a permanent move: the locator is stale, whoever the survivor is."""
    linked = replace(PROVEN, canonical_id="7")
    other = update(200, '{"id": 8}', linked)
    assert (other.effect, other.disposition, other.code) == (A, Disposition.CONFLICT, Code.REMOTE_CHANGED)
    assert update_event(other) is UpdateEvent.REMOTE_CONFLICT
    assert update_event(update(200, '{"id": "7"}', linked)) is UpdateEvent.APPLIED
    assert update_event(update(200, "not json", linked)) is UpdateEvent.APPLIED
    assert update_event(update(204, "", linked)) is UpdateEvent.APPLIED
    assert update_event(update(301, "", linked)) is UpdateEvent.REMOTE_CONFLICT


def test_a_header_of_an_update_names_no_other_record() -> None:
    """Only a representation in the body shows which record was updated; a link to something else does not."""
    by_header = {"response": {"id": [{"from": "$response.header.X-Id"}, {"from": "$response.body#/id"}]}}
    linked = replace(PROVEN, canonical_id="7")
    same = answer(200, '{"id": 7}', headers=(("x-id", "8"),))
    assert judge(UPDATE, same, linked, **by_header).disposition is Disposition.FINALIZE
    other = answer(200, '{"id": 9}', headers=(("x-id", "7"),))
    assert judge(UPDATE, other, linked, **by_header).disposition is Disposition.CONFLICT


@pytest.mark.parametrize("status", range(300, 400))
@pytest.mark.parametrize("operation", list(Operation))
def test_a_redirect_is_an_answer_and_never_followed(status: int, operation: Operation) -> None:
    """No redirect finalizes, retries or yields an id."""
    verdict = judge(operation, answer(status, '{"id": 1}', headers=(("location", "https://evil.example/things/1"),)))
    assert verdict.disposition not in {Disposition.FINALIZE, Disposition.RETRY_AT, Disposition.REAUTH_ONCE}
    assert verdict.remote_id is None


@pytest.mark.rule("AT-08", "D-03")
@pytest.mark.parametrize("status", [AttemptStatus.PROCESSING, AttemptStatus.POST_SENT])
def test_every_verdict_is_an_arrow_of_its_machine(status: AttemptStatus) -> None:
    """Whatever a remote does, with whatever history, the machines have an arrow for it."""
    for reply, history in itertools.product(every_reply(), HISTORIES):
        verdict = judge(CREATE, reply, history)
        for has_mirror in (False, True):
            follow_create(status, create_event(verdict, has_mirror=has_mirror))
        follow_update(status, update_event(judge(UPDATE, reply, history)))


@pytest.mark.parametrize(
    ("has_mirror", "event"), [(True, CreateEvent.LINK_FINALIZED), (False, CreateEvent.LINK_FINALIZED_NO_MIRROR)]
)
def test_an_applied_create_goes_on_by_its_mirror(has_mirror: bool, event: CreateEvent) -> None:
    """With none to write it is done. A locator that is taken is found by the transaction that would link it."""
    assert create_event(create(201, '{"id": 7}'), has_mirror=has_mirror) is event


def test_interpretation_can_be_run_again_from_what_is_stored() -> None:
    """The verdict is a function of contract, stored reply and history; no clock, no order, no wire."""
    for reply in every_reply():
        assert judge(CREATE, reply) == judge(CREATE, replace(reply))


SECRET_BODY = '{"error": "mary@example.com has token s3cr3t", "id": "x y"}'


@pytest.mark.parametrize("status", [200, 202, 400, 401, 404, 409, 500])
@pytest.mark.parametrize("operation", list(Operation))
def test_evidence_holds_no_text_of_a_body(status: int, operation: Operation) -> None:
    """Error bodies echo personal data; the verdict carries sizes, digests and reasons."""
    verdict = judge(operation, answer(status, SECRET_BODY))
    assert "mary" not in f"{dict(verdict.evidence)}"
    assert "s3cr3t" not in f"{dict(verdict.evidence)}"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((("retry-after", "120"),), 120_000),
        ((("Retry-After", " 0 "),), 0),
        ((("retry-after", "999999999"),), RETRY_AFTER_MS_MAX),
        ((("retry-after", "Sun, 01 Mar 2026 12:00:30 GMT"),), 30_000),
        ((("retry-after", "Sun, 01 Mar 2026 11:00:00 GMT"),), 0),
        ((("retry-after", "Sun, 01 Mar 2026 12:01:00 GMT"), ("date", "Sun, 01 Mar 2026 12:00:50 GMT")), 10_000),
        ((("retry-after", "Sun, 31 Feb 2026 12:00:00 GMT"),), None),
        ((("retry-after", "Sun, 01 Foo 2026 12:00:00 GMT"),), None),
        ((("retry-after", "-1"),), None),
        ((("retry-after", "1.5"),), None),
        ((("retry-after", "soon"),), None),
        ((), None),
    ],
)
def test_retry_after_is_read_in_seconds_or_against_the_remotes_own_date(
    headers: tuple[tuple[str, str], ...], expected: int | None
) -> None:
    """A wrong clock on either side changes nothing; what cannot be read is as good as not said."""
    assert retry_after_ms(answer(429, headers=headers), NOW) == expected


def test_a_date_without_a_clock_says_nothing() -> None:
    """Without the remote's date and without a time of receipt there is nothing to count from."""
    assert retry_after_ms(answer(429, headers=(("retry-after", "Sun, 01 Mar 2026 12:00:30 GMT"),))) is None


@given(count=st.integers(0, 100), jitter=st.integers(0, 1000), asked=st.none() | st.integers(0, 10_000))
def test_a_returned_attempt_never_comes_back_too_early(count: int, jitter: int, asked: int | None) -> None:
    """Jitter only adds; the back-off grows up to its cap; what the remote asked for is a floor."""
    retry = Retry()
    plain = backoff_ms(retry, count, 0)
    assert plain == min(retry.backoff.cap_ms, retry.backoff.base_ms * 2**count)
    assert plain <= backoff_ms(retry, count, jitter) <= 2 * plain
    headers = (("retry-after", str(asked)),) if asked is not None else ()
    verdict = create(429, headers=headers)
    assert delay_ms(verdict, retry, count, jitter) >= max(plain, (asked or 0) * 1000)


def test_jitter_is_a_permille_of_the_delay_and_a_tenth_of_that_of_what_was_asked_for() -> None:
    """From none to all of it."""
    retry = Retry()
    assert [backoff_ms(retry, 1, jitter) for jitter in (0, 500, 1_000)] == [4_000, 6_000, 8_000]
    at_once = Retry.model_validate({"backoff": {"base": "0s"}})
    assert delay_ms(create(423), at_once, 3, 1_000) == 0
    asked = create(429, headers=(("retry-after", "100"),))
    assert [delay_ms(asked, retry, 0, jitter) for jitter in (0, 500, 1_000)] == [100_000, 105_000, 110_000]


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_gateways_answer_after_the_origin_stored_the_record_is_unknown(status: int) -> None:
    """A retry hint of a gateway is no proof that the origin did nothing."""
    verdict = create(status, b"", headers=(("retry-after", "30"),))
    assert (verdict.effect, verdict.disposition, verdict.retry_after_ms) == (U, Disposition.RECONCILE, None)


def test_a_form_that_only_says_thanks_parks() -> None:
    """200 without an id: applied or not, there is no second POST."""
    assert create_event(create(200, "thanks"), has_mirror=True) is CreateEvent.UNKNOWN
