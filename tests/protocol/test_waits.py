"""How long an answer asks to be left alone, in every unit and from every place."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from protocol.examples import action, answer, profile
from pushlink.protocol.contracts import RateLimit
from pushlink.protocol.kept import ALWAYS_KEPT, kept_headers
from pushlink.protocol.outcome import History, interpret
from pushlink.protocol.states import Operation
from pushlink.protocol.waits import throttle_ms

NOW = dt.datetime(2026, 3, 1, 23, 59, 30, tzinfo=dt.UTC)
EPOCH = int(NOW.timestamp())


def limit(*waits: dict[str, Any], **more: Any) -> RateLimit:
    return RateLimit.model_validate_json(json.dumps({"wait": list(waits), **more}))


@pytest.mark.parametrize(
    ("unit", "text", "expected"),
    [
        ("seconds", "12", 12_000),
        ("seconds", "1.5", 1_500),
        ("seconds", "-1", None),
        ("seconds", "soon", None),
        ("seconds", "99999999999", None),
        ("milliseconds", "1500", 1_500),
        ("milliseconds", "1500.9", 1_500),
        ("milliseconds", "1e3", None),
        ("http_date", "Mon, 02 Mar 2026 00:00:00 GMT", 30_000),
        ("http_date", "2026-03-02", None),
        ("epoch_s", str(EPOCH + 5), 5_000),
        ("epoch_s", str(EPOCH - 5), 0),
        ("epoch_s", "9" * 15, None),
        ("epoch_ms", str(EPOCH * 1_000 + 5), 5),
        ("iso8601", "2026-03-02T00:00:10Z", 40_000),
        ("iso8601", "2026-03-02T01:00:10+01:00", 40_000),
        ("iso8601", "2026-03-02T00:00:10", 40_000),
        ("iso8601", "tomorrow", None),
    ],
)
def test_every_unit_is_read_from_a_header_and_from_the_body(unit: str, text: str, expected: int | None) -> None:
    """What cannot be read says nothing; a moment that is over asks for nothing more."""
    at_header = limit({"header": "X-Reset", "unit": unit})
    assert throttle_ms(at_header, answer(429, headers=(("x-reset", text),)), NOW) == expected
    in_body = limit({"pointer": "/error/wait", "unit": unit})
    assert throttle_ms(in_body, answer(429, json.dumps({"error": {"wait": text}})), NOW) == expected


def test_a_place_counts_only_when_its_conditions_hold() -> None:
    """A day's limit and one of a minute, told apart by another header; without either, the last place decides."""
    waits = limit(
        {"when": [{"header": "X-Problem", "equals": "day"}], "until": "utc_midnight"},
        {"when": [{"status": [403]}, {"pointer": "/kind", "equals": "burst"}], "pointer": "/s", "unit": "seconds"},
        {"fixed": "1m"},
    )
    assert throttle_ms(waits, answer(429, headers=(("x-problem", "day"),)), NOW) == 30_001
    assert throttle_ms(waits, answer(429, headers=(("x-problem", "minute"),)), NOW) == 60_000
    burst = '{"kind": "burst", "s": 7}'
    assert throttle_ms(waits, answer(403, burst), NOW) == 7_000
    assert throttle_ms(waits, answer(429, burst), NOW) == 60_000
    kept = kept_headers(
        action(), profile(rate_limit={"wait": json.loads(waits.model_dump_json(by_alias=True))["wait"]})
    )
    assert set(kept) == {*ALWAYS_KEPT, "x-problem"}


def test_the_first_place_that_says_something_decides() -> None:
    """In order; then `Retry-After`, then nothing."""
    waits = limit(
        {"header": "X-Reset", "unit": "seconds"},
        {"pointer": "/message", "regex": "^Wait ([0-9]+) s.*$", "unit": "seconds"},
    )
    said = '{"message": "Wait 7 s, please"}'
    assert throttle_ms(waits, answer(429, said, headers=(("x-reset", "3"), ("retry-after", "9")))) == 3_000
    assert throttle_ms(waits, answer(429, said, headers=(("retry-after", "9"),))) == 7_000
    assert throttle_ms(waits, answer(429, "{}", headers=(("retry-after", "9"),))) == 9_000
    assert throttle_ms(waits, answer(429, "{}")) is None
    assert throttle_ms(limit(*[{"pointer": "/wait", "unit": "seconds"}]), answer(429, '{"wait": 2.5}')) == 2_500


def test_a_wait_may_be_fixed_or_until_the_day_ends_and_is_capped() -> None:
    """A quota of a day ends at midnight in UTC; without any time of the answer that is not known."""
    assert throttle_ms(limit({"fixed": "30s"}), answer(429)) == 30_000
    midnight = limit({"until": "utc_midnight"})
    assert throttle_ms(midnight, answer(429), NOW) == 30_001
    assert throttle_ms(midnight, answer(429)) is None
    assert throttle_ms(midnight, answer(429), NOW.replace(microsecond=1)) == 30_000
    dated = answer(429, headers=(("date", "Sun, 01 Mar 2026 23:59:59 GMT"),))
    assert throttle_ms(midnight, dated, NOW) == 1_001
    for wait in ({"fixed": "2d"}, {"header": "A", "unit": "seconds"}, {"header": "B", "unit": "epoch_s"}):
        reply = answer(429, headers=(("a", "999999"), ("b", str(EPOCH + 999_999))))
        assert throttle_ms(limit(wait, cap="1h"), reply, NOW) == 3_600_000
    assert throttle_ms(limit(cap="5s"), answer(429, headers=(("retry-after", "9"),))) == 5_000


@pytest.mark.parametrize(
    ("place", "is_used"),
    [
        ({"fixed": "5s"}, True),
        ({"fixed": "5s", "unit": "seconds"}, False),
        ({"fixed": "5s", "regex": "^([0-9])$"}, False),
        ({"until": "utc_midnight", "unit": "seconds"}, False),
        ({"header": "X-Reset"}, False),
        ({"header": "X-Reset", "pointer": "/wait", "unit": "seconds"}, False),
        ({}, False),
    ],
)
def test_a_place_whose_parts_do_not_go_together_is_not_used(place: dict[str, Any], is_used: bool) -> None:
    """It says one thing in one place; `Retry-After` decides then."""
    reply = answer(429, '{"wait": 5}', headers=(("x-reset", "5"), ("retry-after", "9")))
    assert throttle_ms(limit(place), reply, NOW) == (5_000 if is_used else 9_000)


def test_a_moment_is_read_against_the_answer_s_own_date() -> None:
    """A clock of ours that is wrong moves nothing."""
    reply = answer(429, headers=(("date", "Sun, 01 Mar 2026 23:59:30 GMT"), ("x", str(EPOCH + 5))))
    off = NOW + dt.timedelta(minutes=10)
    assert throttle_ms(limit({"header": "X", "unit": "epoch_s"}), reply, off) == 5_000


def test_only_a_throttle_reads_the_declared_places() -> None:
    """A lock that is sent again later waits for its own header, and at least as long as its rule says."""
    remote = profile(rate_limit={"wait": [{"fixed": "5m"}]})
    verdict = interpret(Operation.CREATE, action(), remote, answer(423, headers=(("retry-after", "2"),)), History())
    assert verdict.retry_after_ms == 2_000
    throttled = interpret(Operation.CREATE, action(), remote, answer(429), History())
    assert (throttled.retry_after_ms, throttled.burns_retry) == (300_000, False)


def test_the_headers_that_are_kept_are_those_that_some_contract_names() -> None:
    """From every place that may name one, in lower case and once."""
    made = action(
        create={
            "success": {"status": [200], "assert": [{"header": "X-Ok"}]},
            "response": {
                "id": [{"from": "$response.header.Location"}, {"from": "$response.body#/id"}],
                "version": [{"from": "$response.header.ETag"}],
                "created": [{"header": "X-Made"}],
                "candidates": [{"from": "$response.header.X-Existing"}],
            },
            "conflict": [{"when": [{"header": "X-Dup"}], "existing_id": [{"from": "$response.header.X-Id"}]}],
        },
        update={
            "deleted": [{"header": "X-Gone"}],
            "merged": {"successor": [{"from": "$response.header.X-Next"}]},
            "success": {"status": [200], "assert": [{"header": "X-Ok"}]},
        },
        errors=[
            {"when": [{"header": "X-Code"}], "effect": "unknown", "disposition": "reconcile", "because": "it says so"}
        ],
    )
    remote = profile(
        rate_limit={
            "detect": [{"status": [403], "header": "X-Left"}],
            "wait": [{"header": "X-Reset", "unit": "seconds"}],
        }
    )
    names = {"x-ok", "etag", "x-made", "x-existing", "x-dup", "x-id", "x-gone", "x-next", "x-code", "x-left", "x-reset"}
    kept = kept_headers(made, remote)
    assert set(kept) == {*ALWAYS_KEPT, *names}
    assert len(kept) == len(set(kept))
    assert kept_headers(action(), profile()) == ALWAYS_KEPT


def test_the_headers_of_a_version_and_of_a_session_are_kept() -> None:
    """Where a read finds the version by itself, what says that it was stale, and that a session is over."""
    on_fail = [{"status": [400], "header": "X-Stale"}]
    versioned = action(update={"precondition": {"kind": "if_unmodified_since", "on_fail": on_fail}})
    over = [{"status": [403], "header": "X-Over"}]
    remote = profile(session={"prefetch": {"path": "/t", "capture": "X-T", "expired": over}})
    assert set(kept_headers(versioned, remote)) == {*ALWAYS_KEPT, "last-modified", "x-stale", "x-over"}


def test_one_number_of_a_header_that_holds_several() -> None:
    """The structured `RateLimit` header: its reset stands between others."""
    pattern = "^limit=[0-9]{1,6}, remaining=[0-9]{1,6}, reset=([0-9]{1,6})$"
    reply = answer(429, headers=(("ratelimit", "limit=100, remaining=0, reset=5"),))
    assert throttle_ms(limit({"header": "RateLimit", "unit": "seconds", "regex": pattern}), reply) == 5_000
