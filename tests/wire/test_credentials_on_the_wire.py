"""How a secret is put on a request: every kind of `auth`, byte for byte, and never anywhere else."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from pushlink.adapters.wire import RequestRefused, present_credential
from pushlink.protocol.contracts import Auth

SECRET = "s3cr3t+/=value"


def auth(**declared: Any) -> Auth:
    return Auth.model_validate(declared, by_alias=True)


@pytest.mark.parametrize(
    ("declared", "header"),
    [
        ({"kind": "bearer"}, ("Authorization", f"Bearer {SECRET}")),
        ({"kind": "bearer", "prefix": "Token"}, ("Authorization", f"Token {SECRET}")),
        ({"kind": "bearer", "prefix": ""}, ("Authorization", SECRET)),
        ({"kind": "api_key", "name": "x-key"}, ("x-key", SECRET)),
        (
            {"kind": "basic", "username": "ada"},
            ("Authorization", "Basic " + base64.b64encode(f"ada:{SECRET}".encode()).decode()),
        ),
        (
            {"kind": "basic", "secret_is": "username"},
            ("Authorization", "Basic " + base64.b64encode(f"{SECRET}:".encode()).decode()),
        ),
    ],
)
def test_a_secret_goes_into_the_header_that_its_kind_names(declared: dict[str, Any], header: tuple[str, str]) -> None:
    """One header, and nothing in the query."""
    shown = present_credential(auth(**declared), SECRET, "env:KEY")
    assert shown.header == header
    assert shown.query == ""


def test_an_api_key_of_the_query_is_encoded_once() -> None:
    """A secret with characters that mean something in a query stays one value."""
    shown = present_credential(auth(kind="api_key", name="api token", **{"in": "query"}), "a&b=c%d", "env:KEY")
    assert shown.header is None
    assert shown.query == "api%20token=a%26b%3Dc%25d"


def test_a_pair_is_one_secret_when_no_user_is_declared() -> None:
    """`user:password` as it stands; further colons belong to the password."""
    shown = present_credential(auth(kind="basic"), "ada:love:lace", "env:KEY")
    assert shown.header == ("Authorization", "Basic " + base64.b64encode(b"ada:love:lace").decode())


@pytest.mark.rule("D-34")
@pytest.mark.parametrize(
    ("declared", "secret"),
    [
        ({"kind": "bearer"}, "with space"),
        ({"kind": "bearer"}, ""),
        ({"kind": "bearer"}, "line\r\nX: y"),
        ({"kind": "api_key"}, SECRET),
        ({"kind": "basic"}, ":no-user"),
        ({"kind": "basic", "username": "a:b"}, SECRET),
        ({"kind": "basic", "username": "ada"}, "line\nbreak"),
    ],
)
def test_a_secret_that_cannot_be_carried_is_refused_without_being_told(declared: dict[str, Any], secret: str) -> None:
    """The refusal names the reference; neither it nor a repr shows the secret."""
    with pytest.raises(RequestRefused) as caught:
        present_credential(auth(**declared), secret, "env:KEY")
    assert secret == "" or secret not in str(caught.value)


@pytest.mark.rule("D-34")
def test_a_presented_credential_shows_nothing() -> None:
    """Its repr may stand in a log or a traceback."""
    shown = present_credential(auth(kind="api_key", name="key", **{"in": "query"}), SECRET, "env:KEY")
    assert "s3cr3t" not in repr(shown)
