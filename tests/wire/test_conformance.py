from __future__ import annotations

import asyncio

import pytest

from pushlink.adapters.aiohttp_transport import AiohttpTransport
from pushlink.adapters.egress import EgressPolicy
from pushlink.testing.certificates import Certificates
from pushlink.testing.conformance import Check, Setting, all_checks, run_check
from pushlink.testing.conformance_cases import CASES, CHECKS, STATUS_CASES
from pushlink.testing.conformance_stories import STORIES

EVERY = [
    pytest.param(check, scheme, id=f"{scheme}: {check.name}") for check in all_checks() for scheme in check.schemes
]

#: What depends on how a loop reads, closes and keeps time: the stories, and every case in which the caller hangs up.
ON_ANOTHER_LOOP = [
    pytest.param(check, scheme, id=f"{scheme}: {check.name}")
    for check in (*(CHECKS[i] for i, case in enumerate((*CASES, *STATUS_CASES)) if case.hangs_up), *STORIES)
    for scheme in check.schemes
    if "header" not in check.name and not check.name.endswith(("PATCH", "DELETE", "GET"))
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


@pytest.mark.parametrize(("check", "scheme"), ON_ANOTHER_LOOP)
def test_the_transport_conforms_on_the_faster_loop_too(check: Check, scheme: str, certificates: Certificates) -> None:
    """A loop that reads megabytes at once and has transports of its own changes nothing."""
    uvloop = pytest.importorskip("uvloop")
    result = uvloop.run(run_check(check, transport, certificates, scheme=scheme))
    assert result.problems == ()
