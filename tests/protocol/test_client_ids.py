from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.examples import action, answer, profile, values
from pushlink.errors import Code
from pushlink.protocol.client_ids import make_client_id, read_client_id
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.outcome import History, interpret
from pushlink.protocol.render import render_create, source_fields
from pushlink.protocol.replies import Effect
from pushlink.protocol.snapshots import FrozenRequest
from pushlink.protocol.states import Operation

KEY = "0b4c6f0e-7c5d-8a3b-9e21-3f1d2c4b5a69"


def own(path: str, rule: dict[str, Any], **create: Any) -> Any:
    return action(create={"method": "PUT", "path": path, "client_id": rule, "response": {}, **create})


@pytest.mark.parametrize(
    ("contract", "fields", "path"),
    [
        (own("/t({client_id})", {}, key_quoting="odata_guid"), {"name": "n"}, f"/t({KEY})"),
        (own("/t/{client_id}", {"format": "token"}), {"name": "n"}, "/t/" + KEY.replace("-", "")),
        (
            own("/m/{client_id}", {"from": "field", "field": "mail", "encode": {"lower_trim": True, "md5_hex": True}}),
            {"name": "n", "mail": " A "},
            "/m/0cc175b9c0f1b6a831c399e269772661",
        ),
        (own("/m/{client_id}", {"from": "field", "field": "code"}), {"name": "n", "code": 7}, "/m/7"),
        (own("/m", {}, query={"id": "{client_id}"}), {"name": "n"}, f"/m?id={KEY}"),
    ],
)
def test_a_create_names_its_own_record(contract: Any, fields: dict[str, Any], path: str) -> None:
    """The id is made before anything is sent, stands in the request, and is read back from what was frozen."""
    request = render_create(contract, profile(), values(**fields), idempotency_key=KEY)
    assert isinstance(request, FrozenRequest)
    assert request.path == path
    made = make_client_id(contract, values(**fields), KEY)
    assert isinstance(made, str)
    assert read_client_id(contract, profile(), path=request.path, idempotency_key=KEY) == made


def test_an_own_id_may_stand_in_the_body() -> None:
    """As `merge` puts it there; the frozen key says which it was."""
    contract = own("/t", {}, body={"merge": {"/id": "{client_id}"}})
    request = render_create(contract, profile(), values(name="n"), idempotency_key=KEY)
    assert isinstance(request, FrozenRequest)
    assert request.body == b'{"name":"n","id":"' + KEY.encode() + b'"}'
    assert read_client_id(contract, profile(), path="/t", idempotency_key=KEY) == KEY


@pytest.mark.parametrize("code", [None, "", "a b", True, ("x",), "t"])
def test_a_field_that_makes_no_id_is_refused_before_anything_is_reserved(code: Any) -> None:
    """Empty, a sentence, no text, or the collection's own name: the save is refused, and the value is not repeated."""
    contract = own("/t/{client_id}", {"from": "field", "field": "code"})
    failure = render_create(contract, profile(), values(name="n", code=code), idempotency_key=KEY)
    assert isinstance(failure, RenderFailure)
    assert failure.code is Code.VALUE_UNSENDABLE
    assert "a b" not in str(failure)


@pytest.mark.rule("GT-07")
def test_the_field_of_an_own_id_needs_the_savers_authority() -> None:
    """It is read for the create, and only for that."""
    contract = own("/t/{client_id}", {"from": "field", "field": "mail"})
    assert source_fields(contract) == ("name", "mail")
    assert source_fields(contract, "update") == ("name",)


@pytest.mark.parametrize(
    ("reply", "remote_id"),
    [
        (answer(201), KEY),
        (answer(201, '{"id": null}'), KEY),
        (answer(201, '{"id": "other"}'), "other"),
        (answer(201, '{"id": "12', body_complete=False), KEY),
        (answer(201, "<p>done</p>"), KEY),
    ],
)
def test_the_own_id_is_the_links_where_the_answer_names_none(reply: Any, remote_id: str) -> None:
    """What the remote says wins; a success that says nothing still has its id."""
    contract = own("/t/{client_id}", {}, response={"id": [{"from": "$response.body#/id"}]})
    verdict = interpret(Operation.CREATE, contract, profile(), reply, History(client_id=KEY))
    assert (verdict.effect, verdict.remote_id) == (Effect.APPLIED, remote_id)


@pytest.mark.parametrize("body", ['{"id": {"a": 1}}', '{"id": "a b"}', '{"id": 1.5}'])
def test_an_answer_that_names_something_else_is_not_overruled(body: str) -> None:
    """Something stands there and it is no id: a person looks at it."""
    contract = own("/t/{client_id}", {}, response={"id": [{"from": "$response.body#/id"}]})
    verdict = interpret(Operation.CREATE, contract, profile(), answer(201, body), History(client_id=KEY))
    assert verdict.effect is Effect.APPLIED_UNIDENTIFIED


@given(code=st.from_regex(r"[^\s/\\?#%\x00-\x20\x7f-\x9f]{1,20}", fullmatch=True))
def test_every_own_id_that_is_sent_reads_back(code: str) -> None:
    """Through quoting and percent-encoding, whatever characters a key has."""
    contract = own("/t('{client_id}')/x", {"from": "field", "field": "code"})
    quoted = own("/t({client_id})", {"from": "field", "field": "code"}, key_quoting="odata_string")
    for made in (contract, quoted):
        request = render_create(made, profile(), values(name="n", code=code))
        if isinstance(request, FrozenRequest):
            assert read_client_id(made, profile(), path=request.path, idempotency_key=KEY) == code
