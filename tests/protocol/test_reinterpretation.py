"""What is written beside an answer is enough to reach its verdict again, and nothing usual is written."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from protocol.examples import action, answer, profile
from pushlink.protocol.contracts import ActionContract
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.lookup_verdicts import interpret_lookup
from pushlink.protocol.outcome import History, interpret
from pushlink.protocol.reinterpretation import is_same, reinterpret, write_verdict
from pushlink.protocol.states import Operation

NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
DATED = answer(429, "{}", headers=(("retry-after", "Sun, 01 Mar 2026 12:00:30 GMT"),))
LOOK_UP = {"path": "/find", "query": {"s": "{stamp}"}, "match": "/stamp", "id": [{"from": "$response.body#/id"}]}
STAMPED = action(create={"stamp": {}, "lookup": LOOK_UP})


@pytest.mark.rule("D-14")
@pytest.mark.parametrize(
    ("reply", "history", "asked_at", "written"),
    [
        (answer(201, '{"id": "7"}'), History(), None, {"history": {}}),
        (
            answer(422, "{}"),
            History(in_doubt=True, send_ordinal=2),
            None,
            {"history": {"in_doubt": True, "send_ordinal": 2}},
        ),
        (answer(404, "{}"), History(credential_proven=True), None, {"history": {"credential_proven": True}}),
        (DATED, History(), NOW, {"history": {}, "wait_ms": 30_000, "asked_at": "2026-03-01T12:00:00+00:00"}),
        (answer(429, "{}", headers=(("retry-after", "0"),)), History(), None, {"history": {}, "wait_ms": 0}),
    ],
)
@pytest.mark.parametrize("operation", list(Operation))
def test_a_verdict_is_reached_again_from_what_was_written(
    operation: Operation,
    reply: StoredReply,
    history: History,
    asked_at: dt.datetime | None,
    written: dict[str, Any],
) -> None:
    """As JSON, years later; only what is not the usual stands there."""
    verdict = interpret(operation, action(), profile(), reply, history, received_at=asked_at)
    kept = json.loads(json.dumps(write_verdict(verdict, history, asked_at=asked_at)))
    usual = {"effect", "disposition", "code", "row", "candidates"}
    assert {name: value for name, value in kept.items() if name not in usual} == written
    again = reinterpret(operation, action(), profile(), reply, kept)
    assert again == verdict
    assert is_same(again, kept)


@pytest.mark.rule("D-14")
@pytest.mark.parametrize(("mark", "remote_id"), [("m-1", "7"), ("m-2", None), (None, None)])
def test_a_look_up_is_read_again_with_its_name_and_its_mark(mark: str | None, remote_id: str | None) -> None:
    """Without a mark nothing is ours."""
    reply = answer(200, '{"stamp": "m-1", "id": 7}', headers=(("retry-after", "9"),))
    verdict = interpret_lookup(STAMPED, profile(), "lookup", reply, send_ordinal=3, mark=mark)
    history = History(send_ordinal=3)
    kept = json.loads(json.dumps(write_verdict(verdict, history, asked_at=None, look_up="lookup", mark=mark)))
    assert (kept["look_up"], kept.get("mark")) == ("lookup", mark)
    assert ("mark" in kept) is (mark is not None)
    again = reinterpret(Operation.CREATE, STAMPED, profile(), reply, kept)
    assert again == verdict
    assert again.remote_id == remote_id


def test_a_verdict_that_says_something_else_is_not_the_same() -> None:
    """A later release that reads better shows the difference; a fact that it does not know is passed over."""
    reply = answer(400, '{"code": "busy"}')
    kept = write_verdict(interpret(Operation.CREATE, action(), profile(), reply, History()), History(), asked_at=None)
    rule = {"when": [{"status": [400]}], "effect": "not_applied", "disposition": "retry_at", "because": "p. 4"}
    better: ActionContract = action(errors=[rule])
    verdict = reinterpret(Operation.CREATE, better, profile(), reply, kept)
    assert verdict.row == "action errors 1"
    assert not is_same(verdict, kept)
    older = {**kept, "history": {"in_doubt": True, "of_tomorrow": 5}}
    assert reinterpret(Operation.CREATE, action(), profile(), reply, older).evidence["in_doubt"] is True
    assert reinterpret(Operation.CREATE, action(), profile(), reply, {**kept, "history": None}).effect == kept["effect"]
