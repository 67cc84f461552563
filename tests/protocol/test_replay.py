"""Until when a create may be sent again, by its frozen contract and the one of now; how keys and stamps look."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from protocol.examples import action
from pushlink.protocol.contracts import CreateContract, Idempotency, Repeat, Stamp
from pushlink.protocol.replay import (
    UNKNOWN_LIFETIME_MS,
    Allowed,
    ReplayFacts,
    Why,
    classes_of,
    contract_digest,
    first_sent_header,
    has_contract,
    key_of,
    may_replay,
    stamp_of,
)

FIRST = dt.datetime(2025, 3, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)
KEY = "0b4c6f0e-7c5d-8a3b-9e21-3f1d2c4b5a69"


def create(**parts: Any) -> CreateContract:
    made: CreateContract = action().create
    return made.model_copy(update=parts)


def keyed(lifetime: str | None = "1h", **more: Any) -> CreateContract:
    return create(idempotency=Idempotency.model_validate({"name": "Idempotency-Key", "lifetime": lifetime, **more}))


def facts(current: CreateContract | None, **more: Any) -> ReplayFacts:
    usual = {"certified": True, "body_size": 10, "credential_changed": False, "first_send": FIRST, "total_ms": 30_000}
    return ReplayFacts(current=current, **{**usual, **more})


def after(seconds: float) -> Allowed:
    return Allowed(until=FIRST + dt.timedelta(seconds=seconds))


@pytest.mark.rule("D-07")
@pytest.mark.parametrize(
    ("frozen", "current", "expected"),
    [
        (keyed(), keyed(), after(3_600 - 60 - 30)),
        (keyed(), keyed("2h"), after(3_600 - 60 - 30)),  # never wider than it was frozen
        (keyed(), keyed("30m"), after(1_800 - 60 - 30)),  # but narrower at once
        (keyed(None), keyed(None), after(UNKNOWN_LIFETIME_MS / 1_000 - 60 - 30)),
        (keyed("1m"), keyed("1m"), after(0)),
        (create(), keyed(), Why.NONE_DECLARED),  # a later pack opens nothing
        (keyed(), create(), Why.WITHDRAWN),
        (keyed(), None, Why.WITHDRAWN),
        (keyed(), create(repeat=Repeat(kind="upsert")), Why.WITHDRAWN),
    ],
)
def test_the_frozen_contract_decides_and_the_one_of_now_narrows(
    frozen: CreateContract, current: CreateContract | None, expected: Allowed | Why
) -> None:
    assert may_replay(frozen, facts(current)) == expected


@pytest.mark.rule("C-092", "D-07")
@pytest.mark.parametrize(
    ("contract", "change", "expected"),
    [
        (keyed(), {"certified": False}, Why.UNCERTIFIED),
        (keyed(), {"body_size": None}, Why.ERASED),
        (keyed(body_bytes_max=10), {"body_size": 11}, Why.BODY_TOO_LONG),
        (keyed(scope="credential"), {"credential_changed": True}, Why.CREDENTIAL_CHANGED),
        (keyed(), {"first_send": None}, Why.NEVER_SENT),
    ],
)
def test_each_thing_that_a_repeat_hangs_on_stops_it(
    contract: CreateContract, change: dict[str, Any], expected: Why
) -> None:
    assert may_replay(contract, replace(facts(contract), **change)) is expected


def test_what_a_key_does_not_hang_on_stops_nothing() -> None:
    """Another credential of the same tenant, and a body at the bound."""
    contract = keyed(body_bytes_max=10)
    assert isinstance(may_replay(contract, facts(contract, credential_changed=True)), Allowed)


@pytest.mark.rule("C-092")
def test_a_key_is_written_as_the_remote_wants_it() -> None:
    """The same 128 bits, as a UUID, as one of version 4, and as 32 digits; a stamp with its prefix."""
    shown = {
        name: key_of(Idempotency.model_validate({"name": "k", "format": name}), KEY)
        for name in ("uuid", "uuid_v4", "token")
    }
    assert shown == {
        "uuid": KEY,
        "uuid_v4": "0b4c6f0e-7c5d-4a3b-9e21-3f1d2c4b5a69",
        "token": "0b4c6f0e7c5d8a3b9e213f1d2c4b5a69",
    }
    assert stamp_of(Stamp(format="token", prefix="pl-"), KEY) == "pl-0b4c6f0e7c5d8a3b9e213f1d2c4b5a69"


def test_the_first_send_is_told_as_http_writes_moments() -> None:
    """Whole seconds of GMT; nothing where the remote does not ask."""
    assert first_sent_header(keyed(), FIRST) == ()
    asks = keyed(first_sent="Repeatability-First-Sent")
    assert first_sent_header(asks, FIRST) == (("Repeatability-First-Sent", "Sat, 01 Mar 2025 12:00:00 GMT"),)


@pytest.mark.rule("C-091")
def test_a_certificate_is_about_everything_that_a_create_says() -> None:
    """Whatever is written differently is another contract; what is not written changes nothing."""
    base = keyed()
    assert contract_digest(base) == contract_digest(keyed())
    others = [keyed("1s"), keyed(scope="credential"), keyed(stores="2xx"), base.model_copy(update={"path": "/other"})]
    assert len({contract_digest(contract) for contract in (base, *others)}) == len(others) + 1


def test_a_certificate_of_the_first_release_still_counts() -> None:
    """The digest is pinned: what a create says, as packs spell it, without its defaults."""
    assert contract_digest(keyed()) == "sha256:d4dd502f70f2f5cc23f7d9772ee1ad3af64465752b4c7ae96e69bb62faae8f2f"


def test_what_is_declared_has_a_class_for_people() -> None:
    """And a create that declares nothing has the last one."""
    assert (classes_of(create()), has_contract(create())) == (("R7 none",), False)
    assert classes_of(keyed()) == ("R1 key",)
    assert classes_of(create(repeat=Repeat(kind="upsert"))) == ("R3 upsert",)
    duplicate: dict[str, Any] = {"conflict": [{"when": [{"status": [409]}], "policy": "adopt_if_stamp"}]}
    assert classes_of(action(create=duplicate).create) == ("R4 conflict that names the record",)
    look_up = {"path": "/f", "query": {"s": "{stamp}"}, "match": "/s", "id": [{"from": "$response.body#/id"}]}
    for consistency, said in (("strong", "R5 consistent look-up"), ("index", "R6 lagging look-up")):
        found = action(create={"stamp": {}, "lookup": {**look_up, "consistency": consistency}}).create
        assert classes_of(found) == (said,)
        assert has_contract(found)
    duplicate["conflict"][0].pop("policy")
    assert classes_of(action(create=duplicate).create) == ("R7 none",)
