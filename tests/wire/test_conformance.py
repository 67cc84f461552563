from __future__ import annotations

import asyncio

import pytest

from pushlink.adapters.aiohttp_transport import AiohttpTransport
from pushlink.adapters.egress import EgressPolicy
from pushlink.testing.certificates import Certificates
from pushlink.testing.conformance import Check, Setting, all_checks, run_check

EVERY = [
    pytest.param(check, scheme, id=f"{scheme}: {check.name}") for check in all_checks() for scheme in check.schemes
]


def transport(setting: Setting) -> AiohttpTransport:
    return AiohttpTransport(
        setting.credentials, egress=EgressPolicy(allow_loopback=True), ca_file=setting.ca_file, keepalive_s=30
    )


@pytest.mark.rule("PO-07", "D-05", "D-28")
@pytest.mark.parametrize(("check", "scheme"), EVERY)
def test_the_transport_conforms(check: Check, scheme: str, certificates: Certificates) -> None:
    """One call is at most one request on the wire, and what is told of it is what arrived."""
    result = asyncio.run(run_check(check, transport, certificates, scheme=scheme))
    assert result.problems == ()
