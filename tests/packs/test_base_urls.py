"""A base URL that lint takes is one that the transport takes, and the other way round."""

from __future__ import annotations

import pytest

from pushlink.adapters.egress import EgressRefused, parse_origin
from pushlink.packs import grammar


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com",
        "https://api.example.com/",
        "https://api.example.com/v2",
        "https://api.example.com:8443/v2/",
        "http://127.0.0.1:8731",
        "http://localhost:8731",
        "https://[::1]:8443",
        "https://xn--exmple-cua.com",
        "https://api_1.example.com/a;b=1",
    ],
)
def test_a_base_url_that_lint_takes_is_one_for_the_transport(url: str) -> None:
    assert list(grammar.base_url_problems(url)) == []
    parse_origin(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com@evil.example.net",
        "https://user@api.example.com",
        "HTTPS://api.example.com",
        "https:/api.example.com",
        "https://api.example.com.",
        "https://127.1",
        "https://0x7f.1",
        "https://[127.0.0.1]",
        "https://api.example.com:0",
        "https://api.example.com:65536",
        "https://api.example.com//a",
        "https://api.example.com/%2e%2e/a",
        "https://api.example.com\\evil",
        "https://api.example.com/a b",
        " https://api.example.com",
        "https://api.example.com\n",
        "javascript:alert(1)",
        "",
    ],
)
def test_a_base_url_that_the_transport_refuses_is_refused_by_lint(url: str) -> None:
    with pytest.raises(EgressRefused):
        parse_origin(url)
    assert list(grammar.base_url_problems(url))
