"""What every `Transport` must hold, as checks against a server that misbehaves: run them against your own.

    results = await run_suite(lambda setting: MyTransport(setting.credentials, ca_file=setting.ca_file), certificates)
    assert not [problem for result in results for problem in result.problems]

A check makes a fresh transport, sends to a faulty server on loopback (which the transport must be allowed to reach),
and compares what was answered with what really arrived there, byte by byte. Above all: one call, at most one request,
and "not started" only when nothing arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

from pushlink.ports import Credentials, Secret, Transport, WireReply, WireRequest
from pushlink.protocol.contracts import ProfileContract, Timeouts
from pushlink.testing.certificates import Certificates
from pushlink.testing.wire import FaultyServer, Script, body_of, header_values

#: A call may end this much after its deadline, on a busy machine.
LATE_S_MAX: Final = 1.0

#: How long the server is watched for a request too many, after the call has returned.
GRACE_S: Final = 0.02

PATH: Final = "/things/a%2Fb%20c;v=1?x=%7e&y=%C3%A9"
BODY: Final = b'{"name":"\xc3\xa9","n":1.10}'
HEADERS: Final = (("Content-Type", "application/json"), ("X-Key", "k-1"))


class CanaryCredentials:
    """Credentials that hand out one secret, whose text must never be seen again outside of the request."""

    def __init__(self) -> None:
        self.secret = f"canary-{secrets.token_hex(12)}"

    def generation(self, reference: str, *, tenant: str) -> str:  # noqa: ARG002 - the signature is the port's
        """Always the same."""
        return "generation-1"

    def resolve(self, reference: str, *, tenant: str) -> Secret:
        """The canary."""
        return Secret(value=self.secret, generation=self.generation(reference, tenant=tenant))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a transport under test is made with: where secrets come from, and whom to trust besides."""

    credentials: Credentials
    ca_file: Path


TransportFactory: TypeAlias = Callable[[Setting], Transport]


@dataclass(slots=True, kw_only=True)
class Bench:
    """What a check works with: one transport, one canary secret, and a list of what was found wrong."""

    transport: Transport
    certificates: Certificates
    canary: CanaryCredentials
    is_tls: bool
    problems: list[str] = field(default_factory=list)
    started: int = 0  # calls that said that their request had started

    def expect(self, holds: bool, problem: str) -> None:
        """Note a problem unless something holds."""
        if not holds:
            self.problems.append(problem)

    def server(self, script: Script, **options: object) -> FaultyServer:
        """A faulty server of the scheme under test."""
        tls = self.certificates.good if self.is_tls else None
        return FaultyServer(script, **{"tls": tls, **options})  # type: ignore[arg-type]

    def request(
        self,
        base_url: str,
        *,
        method: str = "POST",
        path: str = PATH,
        headers: tuple[tuple[str, str], ...] = HEADERS,
        body: bytes = BODY,
        fresh: bool = True,
        total_ms: int = 2_000,
        connect_ms: int = 1_000,
        reply_bytes_max: int = 65_536,
        keep_headers: tuple[str, ...] = (),
    ) -> WireRequest:
        """A request like those of a worker."""
        profile = ProfileContract.model_construct(
            base_url=base_url,
            credential_ref="canary:secret",
            timeouts=Timeouts.model_construct(connect_ms=connect_ms, total_ms=total_ms),
            reply_bytes_max=reply_bytes_max,
        )
        return WireRequest(
            profile=profile,
            tenant="",
            method=method,
            path=path,
            headers=headers,
            body=body,
            fresh_connection=fresh,
            keep_headers=keep_headers,
        )

    async def send(self, request: WireRequest) -> WireReply:
        """Send once, and hold the reply against what every reply must hold."""
        start = time.monotonic()
        reply = await self.transport.send(request)
        late_s = time.monotonic() - start - request.profile.timeouts.total_ms / 1_000
        self.expect(late_s <= LATE_S_MAX, f"the call ended {late_s:.2f} s after its deadline")
        self._check_reply(reply, request)
        self.started += reply.trace.request_started
        return reply

    def _check_reply(self, reply: WireReply, request: WireRequest) -> None:
        trace, bound = reply.trace, request.profile.reply_bytes_max
        self.expect(reply.status is not None or reply.error is not None, "neither a response nor an error")
        self.expect(trace.response_started == (reply.status is not None), "the trace and the status disagree")
        self.expect(not reply.body_complete or reply.error is None, "a complete body together with an error")
        self.expect(not reply.body_complete or trace.response_complete, "a complete body of an incomplete response")
        self.expect(trace.request_started or reply.status is None, "a response to a request that never started")
        self.expect(not trace.request_sent or trace.request_started, "sent, but never started")
        self.expect(len(reply.body) <= bound, f"{len(reply.body)} bytes of body are kept, {bound} are allowed")
        shown = repr(replace(reply, body=b""))
        self.expect(self.canary.secret not in shown, "the secret shows in the reply")
        self.expect(not self._quotes_a_reply(reply.error_text), "the error's text quotes the reply")
        names = {name for name, _ in reply.headers}
        self.expect(all(name == name.lower() for name in names), "reply headers are not in lower case")
        self.expect(not names & {"set-cookie", "authorization", "x-unknown"}, "a reply header was kept unasked")

    @staticmethod
    def _quotes_a_reply(text: str) -> bool:
        return "unquotable" in text.lower()

    async def count(self, server: FaultyServer, request: WireRequest) -> None:
        """Compare with what arrived: no request too many, none denied, none changed."""
        too_many = await asyncio.to_thread(
            server.wait_until, lambda: len(server.requests()) > self.started, seconds=GRACE_S
        )
        seen = server.requests()
        self.expect(not too_many, f"{len(seen)} requests arrived, {self.started} are said to have started")
        for error in server.errors:
            self.problems.append(f"the faulty server failed: {error!r}")
        for arrived in seen:
            if len(body_of(arrived)) == len(request.body):
                self.check_bytes(arrived, request)

    def check_bytes(self, arrived: bytes, request: WireRequest) -> None:
        """A request must arrive exactly as it was frozen, with the credential and no more than framing added."""
        line = arrived.partition(b"\r\n")[0].decode("latin-1")
        self.expect(line == f"{request.method} {request.path} HTTP/1.1", f"the request line became {line!r}")
        self.expect(body_of(arrived) == request.body, "the body was changed")
        for name, value in (*request.headers, ("Authorization", f"Bearer {self.canary.secret}")):
            self.expect(header_values(arrived, name) == [value], f"the header {name} was changed")
        self.expect(header_values(arrived, "content-length") == [str(len(request.body))], "no exact Content-Length")
        self.expect(not header_values(arrived, "transfer-encoding"), "the request came in chunks")
        self.expect(not header_values(arrived, "cookie"), "a cookie was sent")
        codings = header_values(arrived, "accept-encoding")
        self.expect(codings in ([], ["identity"]), f"compression was asked for: {codings}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that must hold; `schemes` says over which of http and https it makes sense."""

    name: str
    run: Callable[[Bench], Awaitable[None]]
    schemes: tuple[str, ...] = ("http", "https")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a check found; no problems means that it holds."""

    name: str
    scheme: str
    problems: tuple[str, ...]


@contextlib.asynccontextmanager
async def open_bench(factory: TransportFactory, certificates: Certificates, *, tls: bool) -> AsyncIterator[Bench]:
    """A bench with a fresh transport, closed afterwards."""
    canary = CanaryCredentials()
    transport = factory(Setting(credentials=canary, ca_file=certificates.ca_file))
    try:
        yield Bench(transport=transport, certificates=certificates, canary=canary, is_tls=tls)
    finally:
        await transport.close()


async def run_check(check: Check, factory: TransportFactory, certificates: Certificates, *, scheme: str) -> Result:
    """Run one check. A transport that raises has a problem, whatever it raises."""
    async with open_bench(factory, certificates, tls=scheme == "https") as bench:
        try:
            await check.run(bench)
        except Exception as exc:  # noqa: BLE001 - this is what a transport must not do
            bench.problems.append(f"it raised {type(exc).__name__}: {exc}")
    return Result(name=check.name, scheme=scheme, problems=tuple(bench.problems))


async def run_suite(
    factory: TransportFactory, certificates: Certificates, checks: Sequence[Check] | None = None
) -> list[Result]:
    """Run all checks, or some, over http and https."""
    if checks is None:
        checks = all_checks()
    return [
        await run_check(check, factory, certificates, scheme=scheme) for check in checks for scheme in check.schemes
    ]


def all_checks() -> tuple[Check, ...]:
    """Every check there is."""
    from pushlink.testing.conformance_cases import CHECKS  # noqa: PLC0415 - they are made of what this module defines
    from pushlink.testing.conformance_stories import STORIES  # noqa: PLC0415

    return (*CHECKS, *STORIES)
