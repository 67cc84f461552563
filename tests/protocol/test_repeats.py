"""Where a create's key stands, and what an answer means under a contract for repeats."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.examples import action, answer, failure, profile, values
from pushlink.errors import Code
from pushlink.protocol.contracts import ActionContract
from pushlink.protocol.evidence import StoredReply, WireError
from pushlink.protocol.outcome import History, Verdict, create_event, interpret
from pushlink.protocol.render import render_create
from pushlink.protocol.replies import Disposition, Effect
from pushlink.protocol.snapshots import FrozenRequest
from pushlink.protocol.states import CreateEvent, Operation

KEY = "0b4c6f0e-7c5d-8a3b-9e21-3f1d2c4b5a69"
LIVE = History(live_replay_contract=True, credential_proven=True)
DOUBT = History(live_replay_contract=True, credential_proven=True, in_doubt=True, send_ordinal=2)
REPLAYED = ("x-replayed", "true")


def keyed(**more: Any) -> ActionContract:
    return action(
        create={
            "idempotency": {
                "name": "Idempotency-Key",
                "receipt": [{"header": "X-Replayed", "equals": "true"}],
                "mismatch": [{"pointer": "/code", "equals": "other_body"}],
                "in_flight": [{"status": [409], "pointer": "/code", "equals": "in_use"}],
                **more,
            }
        }
    )


def named(**more: Any) -> ActionContract:
    exists = [{"status": [409], "pointer": "/code", "equals": "exists"}]
    return action(create={"repeat": {"kind": "conditional", "exists": exists, **more}})


def judge(made: ActionContract, reply: StoredReply, history: History = LIVE) -> Verdict:
    return interpret(Operation.CREATE, made, profile(), reply, history)


@pytest.mark.rule("D-37")
@pytest.mark.parametrize(
    ("idempotency", "path", "header", "body"),
    [
        ({"name": "X-Key"}, "/things", KEY, b'{"name":"n"}'),
        ({"name": "X-Key", "quoted": True}, "/things", f'"{KEY}"', b'{"name":"n"}'),
        ({"in": "query", "name": "X-Key"}, f"/things?a=1&X-Key={KEY}", None, b'{"name":"n"}'),
        ({"in": "body", "name": "/key"}, "/things", None, b'{"name":"n","m":1,"key":"' + KEY.encode() + b'"}'),
    ],
)
def test_a_key_stands_in_one_place_of_its_request(
    idempotency: dict[str, Any], path: str, header: str | None, body: bytes
) -> None:
    """Beside what the pack says there itself."""
    create: dict[str, Any] = {"idempotency": idempotency}
    if idempotency.get("in") == "query":
        create["query"] = {"a": "1"}
    if idempotency.get("in") == "body":
        create["body"] = {"merge": {"/m": 1}}
    request = render_create(action(create=create), profile(), values(name="n"), idempotency_key=KEY)
    assert isinstance(request, FrozenRequest), request
    assert (request.path, dict(request.headers).get("X-Key"), request.body) == (path, header, body)


def test_a_create_without_a_contract_sends_no_key() -> None:
    request = render_create(action(), profile(), values(name="n"), idempotency_key=KEY)
    assert isinstance(request, FrozenRequest)
    assert KEY not in f"{request}"


@pytest.mark.rule("D-07")
@pytest.mark.parametrize(
    ("reply", "row", "code", "disposition"),
    [
        (answer(422, '{"code": "other_body"}'), "the key came with another body", Code.KEY_MISMATCH, "reconcile"),
        (answer(409, '{"code": "in_use"}'), "the key is still in use", Code.KEY_IN_FLIGHT, "retry_at"),
        (answer(409, '{"code": "else"}'), "conflict", Code.REMOTE_CONFLICT, "terminal"),
        (answer(401, '{"code": "other_body"}'), "unauthenticated", Code.UNAUTHENTICATED, "reauth_once"),
    ],
)
def test_what_a_remote_says_of_a_key_stands_above_the_table(
    reply: StoredReply, row: str, code: Code, disposition: str
) -> None:
    """A key with another body is never sent again, one in use is; a 401 is about the credential."""
    verdict = judge(keyed(), reply)
    assert (verdict.row, verdict.code, verdict.disposition) == (row, code, disposition)
    assert judge(keyed(), failure(WireError.READ)).row == "nothing was sent"


@pytest.mark.rule("D-06")
@pytest.mark.parametrize(
    ("reply", "event", "settles"),
    [
        (answer(422, "{}", headers=(REPLAYED,)), CreateEvent.REJECT, True),
        (answer(422, "{}"), CreateEvent.UNKNOWN, False),
        (answer(429, "{}", headers=(REPLAYED,)), CreateEvent.REPLAY, False),
        (answer(503, "{}", headers=(REPLAYED,)), CreateEvent.UNKNOWN, False),
        (answer(503, "{}"), CreateEvent.REPLAY, False),
        (answer(500, "{}"), CreateEvent.UNKNOWN, False),
    ],
)
def test_a_receipt_settles_a_doubt_with_a_refusal_and_nothing_else(
    reply: StoredReply, event: CreateEvent, settles: bool
) -> None:
    """The stored answer to the first send; a failure that is stored would be given again for ever."""
    verdict = judge(keyed(), reply, DOUBT)
    assert (create_event(verdict, has_mirror=False), verdict.settles) == (event, settles)


@pytest.mark.parametrize(
    ("stores", "status", "event"),
    [
        ("all", 500, CreateEvent.UNKNOWN),
        ("2xx_4xx", 500, CreateEvent.REPLAY),
        ("all", 502, CreateEvent.REPLAY),
        ("2xx", 500, CreateEvent.REPLAY),
    ],
)
def test_a_stored_failure_is_not_asked_for_again(stores: str, status: int, event: CreateEvent) -> None:
    """Only a 500, and only of a remote that stores everything: a gateway stores nothing."""
    assert create_event(judge(keyed(stores=stores), answer(status, "{}")), has_mirror=False) is event


@pytest.mark.rule("D-06", "D-27")
@pytest.mark.parametrize(
    ("history", "existing", "expected"),
    [
        (DOUBT, '"9"', (Effect.APPLIED, "9")),
        (DOUBT, "null", (Effect.APPLIED, "c-1")),
        (LIVE, '"9"', (Effect.NOT_APPLIED, None)),
    ],
)
def test_it_exists_is_our_own_record_only_when_an_earlier_send_may_have_made_it(
    history: History, existing: str, expected: tuple[Effect, str | None]
) -> None:
    """As the answer names it, or as we did before we first sent it."""
    made = named(existing_id=[{"from": "$response.body#/existing"}])
    told = answer(409, f'{{"code": "exists", "existing": {existing}}}')
    told_of = History(in_doubt=history.in_doubt, live_replay_contract=True, credential_proven=True, client_id="c-1")
    verdict = judge(made, told, told_of)
    assert (verdict.effect, verdict.remote_id) == expected
    nameless = judge(named(), told, DOUBT)
    assert (nameless.effect, nameless.disposition) == (Effect.APPLIED_UNIDENTIFIED, Disposition.PARK)


def test_a_record_that_a_repeat_met_is_its_own() -> None:
    """Where the create converges, a record that was there before is the one that we named."""
    response = {"id": [{"from": "$response.body#/id"}], "created": [{"status": [201]}]}
    met = answer(200, '{"id": "7"}')
    upsert = action(create={"repeat": {"kind": "upsert"}, "response": response})
    assert judge(upsert, met).remote_id == "7"
    assert judge(action(create={"response": response}), met).remote_id is None
