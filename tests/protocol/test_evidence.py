"""What nobody has seen has not been seen: facts that are not written down claim nothing."""

from __future__ import annotations

from dataclasses import asdict

from pushlink.protocol.evidence import StoredReply, WireTrace
from pushlink.protocol.outcome import History, Verdict
from pushlink.protocol.pacing import CircuitState
from pushlink.protocol.replies import Disposition, Effect
from pushlink.protocol.waiting import TargetFacts


def test_a_trace_proves_only_what_was_noted() -> None:
    """Nothing was sent, nothing came back, and no connection was used again."""
    assert set(asdict(WireTrace()).values()) == {False}


def test_a_reply_without_a_body_is_no_whole_one() -> None:
    reply = StoredReply(trace=WireTrace())
    assert (reply.body, reply.body_complete, reply.body_size) == (b"", False, 0)


def test_an_attempt_of_which_nothing_is_known_was_sent_once_and_may_nothing() -> None:
    """Neither an earlier send nor a contract, a proven credential or a spent try is taken for granted."""
    known = asdict(History())
    assert known.pop("send_ordinal") == 1
    assert known.pop("retry_count") == 0
    assert {value for value in known.values() if value is not None} == {False}


def test_a_verdict_spends_no_try_and_settles_no_doubt_unless_it_says_so() -> None:
    verdict = Verdict(effect=Effect.UNKNOWN, disposition=Disposition.RECONCILE, code=None, row="x", evidence={})
    assert (verdict.burns_retry, verdict.settles) == (False, False)


def test_a_destination_of_which_nothing_is_known_is_closed_and_counts_from_nothing() -> None:
    state = CircuitState()
    assert (state.failures, state.successes, state.opened) == (0, 0, 0)


def test_a_record_of_which_nothing_is_known_has_not_moved() -> None:
    assert not TargetFacts().is_rebound
