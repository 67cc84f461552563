"""Rates and circuits, moment by moment."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from protocol.examples import values
from pushlink.protocol.limit_contracts import Circuit, Ordering, SendLimits
from pushlink.protocol.pacing import CircuitState, interval_of, next_at, observed, order_key, paced, permitted

NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)


def at(seconds: float) -> dt.datetime:
    return NOW + dt.timedelta(seconds=seconds)


def terms(**more: Any) -> Circuit:
    return Circuit.model_validate({"failures": 3, "window": "60s", "pause": "30s", **more})


def seen(state: CircuitState, *, failing: int = 0, fine: int = 0, second: float = 0, **more: Any) -> CircuitState:
    return observed(state, terms(**more), failing=failing, fine=fine, now=at(second))


@pytest.mark.parametrize(
    ("rate", "microseconds"),
    [
        ("1/s", 1_000_000),
        ("1/m", 60_000_000),
        ("1/h", 3_600_000_000),
        ("1/d", 86_400_000_000),
        ("10/s", 100_000),
        ("600/m", 100_000),
        ("9999999/s", 1),
    ],
)
def test_a_rate_is_the_time_between_two_requests(rate: str, microseconds: int) -> None:
    """In whole microseconds, and at least one."""
    assert interval_of(SendLimits(rate=rate)) == dt.timedelta(microseconds=microseconds)
    assert interval_of(SendLimits()) is None


@pytest.mark.parametrize(
    ("paced_until", "expected"),
    [(None, 3), (-9, 3), (0, 3), (0.5, 2), (1, 2), (2, 1), (2.5, 0), (3, 0), (9, 0)],
)
def test_as_many_may_go_as_the_burst_leaves(paced_until: float | None, expected: int) -> None:
    """All of it after a pause, none while the next request is further ahead than the burst reaches."""
    moment = None if paced_until is None else at(paced_until)
    assert permitted(moment, SECOND, 3, now=NOW) == expected


def test_what_was_let_go_moves_the_instant_and_says_when_one_more_may_go() -> None:
    """From now, or from where it stood ahead of now; a burst lets the next one go earlier."""
    assert paced(None, SECOND, 2, now=NOW) == at(2)
    assert paced(at(-5), SECOND, 2, now=NOW) == at(2)
    assert paced(at(1), SECOND, 2, now=NOW) == at(3)
    assert next_at(None, SECOND, 3) is None
    assert [next_at(at(3), SECOND, burst) for burst in (1, 3)] == [at(3), at(1)]
    for burst in (1, 3):
        moment = next_at(at(3), SECOND, burst)
        assert moment is not None
        assert permitted(at(3), SECOND, burst, now=moment) == 1
        assert permitted(at(3), SECOND, burst, now=moment - dt.timedelta(microseconds=1)) == 0


def test_a_circuit_opens_at_its_failures_when_they_are_half_of_what_was_answered() -> None:
    """Not before, not when more went well, and never by an answer that did."""
    two = seen(CircuitState(), failing=2)
    assert (two.failures, two.successes, two.window_started_at, two.open_until) == (2, 0, NOW, None)
    assert seen(two, failing=1).open_until == at(30)
    balanced = seen(CircuitState(), failing=2, fine=3)
    assert seen(balanced, failing=1).open_until == at(30)
    mostly_fine = seen(CircuitState(), failing=2, fine=4)
    assert seen(mostly_fine, failing=1).open_until is None
    assert seen(seen(mostly_fine, failing=1), fine=1).open_until is None
    one_short = replace(balanced, failures=3, successes=2)
    assert seen(one_short, fine=1).open_until is None


def test_a_circuit_of_no_failures_never_opens_and_one_of_a_single_one_at_once() -> None:
    assert seen(CircuitState(), failing=99, failures=0).open_until is None
    assert seen(CircuitState(), failing=1, failures=1).open_until == at(30)


def test_a_window_that_is_over_is_forgotten() -> None:
    """At its very end it still counts."""
    two = seen(CircuitState(), failing=2)
    assert seen(two, failing=1, second=60).open_until == at(90)
    later = seen(two, failing=1, second=60.001)
    assert (later.failures, later.window_started_at, later.open_until) == (1, at(60.001), None)


def test_an_open_circuit_learns_nothing_and_a_half_open_one_is_decided_by_one_answer() -> None:
    """What comes in while it is open was sent before; afterwards the pause doubles, four times at most."""
    opened = seen(CircuitState(), failing=3)
    assert opened == CircuitState(open_until=at(30), opened=1)
    assert [opened.is_open(at(second)) for second in (0, 29.999, 30)] == [True, True, False]
    assert [opened.is_half_open(at(second)) for second in (0, 29.999, 30)] == [False, False, True]
    assert not CircuitState().is_open(NOW)
    assert not CircuitState().is_half_open(NOW)
    assert seen(opened, failing=5, second=1) == opened
    assert seen(opened, fine=5, second=1) == opened
    assert seen(opened, second=30) == opened
    assert seen(opened, fine=1, second=30) == CircuitState()
    assert seen(opened, fine=1, failing=1, second=30) == CircuitState()
    assert seen(opened, failing=1, second=30) == CircuitState(open_until=at(30 + 60), opened=2)
    pauses = [
        seen(replace(opened, opened=times), failing=1, second=30).open_until == at(30 + pause)
        for times, pause in ((2, 120), (3, 240), (4, 480), (5, 480), (9, 480))
    ]
    assert all(pauses)


def test_what_is_sent_in_order_has_one_key_without_the_value_in_it() -> None:
    """A whole destination, what shares a field's value, or nothing; records without a value are of one kind."""
    by_field = Ordering(serialize_per="field", field="owner")
    assert order_key(None, values(owner="a")) is None
    assert order_key(Ordering(serialize_per="destination"), values(owner="a")) == "destination"
    keys = [order_key(by_field, values(**fields)) for fields in ({"owner": "a"}, {"owner": "b"}, {"owner": None}, {})]
    assert len(set(keys)) == 3
    assert keys[2] == keys[3]
    assert order_key(by_field, values(owner="a", name="n")) == keys[0]
    assert all(key is not None and key.startswith("field sha256:") for key in keys)
