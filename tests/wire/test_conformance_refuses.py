from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import replace

import aiohttp
import pytest

from pushlink.adapters.aiohttp_transport import AiohttpTransport
from pushlink.adapters.egress import EgressPolicy
from pushlink.ports import Transport, WireError, WireReply, WireRequest, WireTrace
from pushlink.testing.certificates import Certificates
from pushlink.testing.conformance import Check, Setting, all_checks, run_check

CHECKS = {check.name: check for check in all_checks()}


class Careless:
    """A transport that does one thing wrong; everything else is left to a good one."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.good = AiohttpTransport(
            setting.credentials, egress=EgressPolicy(allow_loopback=True), ca_file=setting.ca_file, keepalive_s=30
        )

    async def send(self, request: WireRequest) -> WireReply:
        return await self.good.send(request)

    async def close(self) -> None:
        await self.good.close()


class SendsTwice(Careless):
    async def send(self, request: WireRequest) -> WireReply:
        await self.good.send(request)
        return await self.good.send(request)


class TriesAgain(Careless):
    async def send(self, request: WireRequest) -> WireReply:
        reply = await self.good.send(request)
        return await self.good.send(request) if reply.error or (reply.status or 0) >= 500 else reply


class Follows(Careless):
    async def send(self, request: WireRequest) -> WireReply:
        reply = await self.good.send(request)
        target = dict(reply.headers).get("location")
        if reply.status not in (301, 302, 303, 307, 308) or target is None:
            return reply
        scheme, _, rest = target.partition("://")
        host, _, path = rest.partition("/")
        base_url = f"{scheme}://{host}" if rest else request.profile.base_url
        profile = request.profile.model_copy(update={"base_url": base_url})
        return await self.good.send(replace(request, profile=profile, path=f"/{path}" if rest else target))


class KeepsConnections(Careless):
    async def send(self, request: WireRequest) -> WireReply:
        return await self.good.send(replace(request, fresh_connection=False))


class DeniesTheStart(Careless):
    async def send(self, request: WireRequest) -> WireReply:
        reply = await self.good.send(request)
        return replace(reply, trace=WireTrace()) if reply.error in (WireError.READ, WireError.WRITE) else reply


class BelievesTheEnd(Careless):
    async def send(self, request: WireRequest) -> WireReply:
        reply = await self.good.send(request)
        if reply.status is None:
            return reply
        return replace(reply, error=None, body_complete=True, trace=replace(reply.trace, response_complete=True))


class TellsTheSecret(Careless):
    async def send(self, request: WireRequest) -> WireReply:
        reply = await self.good.send(request)
        secret = self.setting.credentials.resolve("canary:secret", tenant="").value
        return replace(reply, error_text=f"failed with {secret}") if reply.error else reply


class Raises(Careless):
    async def send(self, request: WireRequest) -> WireReply:
        reply = await self.good.send(request)
        if reply.error:
            raise ConnectionError(reply.error_text)
        return reply


class Late(Careless):
    async def send(self, request: WireRequest) -> WireReply:
        timeouts = request.profile.timeouts.model_copy(update={"total_ms": 1_600})
        return await self.good.send(replace(request, profile=request.profile.model_copy(update={"timeouts": timeouts})))


class Plain:
    """A client library as it comes: with its own second tries, cookies, redirects and inflation."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.session: aiohttp.ClientSession | None = None

    async def send(self, request: WireRequest) -> WireReply:
        if self.session is None:
            context = ssl.create_default_context(cafile=str(self.setting.ca_file))
            jar = aiohttp.CookieJar(unsafe=True)
            self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), cookie_jar=jar)
        secret = self.setting.credentials.resolve("", tenant="").value
        headers = {**dict(request.headers), "Authorization": f"Bearer {secret}"}
        timeout = aiohttp.ClientTimeout(total=request.profile.timeouts.total_ms / 1_000)
        started = WireTrace(request_started=True)
        try:
            async with self.session.request(
                request.method,
                request.profile.base_url + request.path,
                data=request.body,
                headers=headers,
                timeout=timeout,
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError):
            return WireReply(trace=started, error=WireError.READ, error_text="failed")
        trace = replace(started, request_sent=True, response_started=True, response_complete=True)
        return WireReply(trace=trace, status=response.status, body=body, body_complete=True)

    async def close(self) -> None:
        if self.session is not None:
            await self.session.close()


def problems(
    make: Callable[[Setting], Transport], check: Check, certificates: Certificates, scheme: str = "http"
) -> tuple[str, ...]:
    return asyncio.run(run_check(check, make, certificates, scheme=scheme)).problems


@pytest.mark.rule("C-014")
@pytest.mark.parametrize("name", ["an answer", "closed after the request", "no content", "status 503 is an answer"])
def test_a_transport_that_sends_twice_per_call_is_refused(name: str, certificates: Certificates) -> None:
    """The suite counts requests on the wire, so a second one within a call is seen, whatever the call answers."""
    assert any("requests arrived" in problem for problem in problems(SendsTwice, CHECKS[name], certificates))


@pytest.mark.rule("C-014", "C-002")
@pytest.mark.parametrize("name", ["closed after the request", "reset after the request", "status 503 is an answer"])
def test_a_transport_that_tries_again_after_a_failure_is_refused(name: str, certificates: Certificates) -> None:
    """A client layer with retries of its own does not pass."""
    assert any("requests arrived" in problem for problem in problems(TriesAgain, CHECKS[name], certificates))


@pytest.mark.parametrize(
    "name", ["closes at the next byte, PUT", "closes after the next request, PUT", "closes after the next request, GET"]
)
def test_the_librarys_own_second_try_on_a_stale_connection_is_seen(name: str, certificates: Certificates) -> None:
    """As it comes, aiohttp sends idempotent methods again when a kept connection fails; the suite notices."""
    found = problems(Plain, CHECKS[f"a kept connection {name}"], certificates)
    assert any("requests arrived" in problem for problem in found)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (Follows, "a redirect 307 elsewhere"),
        (Follows, "a redirect 302 elsewhere"),
        (Follows, "a redirect to itself"),
        (KeepsConnections, "fresh connections"),
        (DeniesTheStart, "closed after the request"),
        (DeniesTheStart, "reset in the body"),
        (BelievesTheEnd, "a short body"),
        (BelievesTheEnd, "a body that ends with the connection"),
        (BelievesTheEnd, "a body over its bound"),
        (TellsTheSecret, "closed after the request"),
        (Raises, "not HTTP"),
        (Late, "silent after the request"),
        (Late, "headers byte by byte"),
        (Plain, "cookies"),
        (Plain, "a gzip bomb"),
        (Plain, "the deadline is total"),
        (Plain, "a certificate for another host"),
        (Plain, "an answer"),
    ],
)
def test_each_carelessness_is_refused(
    make: Callable[[Setting], Transport], name: str, certificates: Certificates
) -> None:
    """A check that cannot fail proves nothing: each of these transports is caught by the check made for it."""
    check = CHECKS[name]
    assert problems(make, check, certificates, scheme=check.schemes[0])


def test_the_suite_covers_every_stage_over_both_schemes() -> None:
    """No check is lost by a slip in the table: names are unique, and most run over http and https."""
    assert len(CHECKS) == len(all_checks())
    assert sum(len(check.schemes) for check in all_checks()) >= 220
