from __future__ import annotations

import asyncio
import json
import logging
import socket
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from pushlink.adapters.aiohttp_transport import AiohttpTransport
from pushlink.adapters.egress import EgressPolicy, Lookup, system_lookup
from pushlink.errors import CallerError, Code, ConfigurationError
from pushlink.ports import Secret, WireError, WireReply, WireRequest
from pushlink.protocol.contracts import (
    ActionContract,
    Auth,
    CreateContract,
    ProfileContract,
    Session,
    Success,
    Timeouts,
)
from pushlink.protocol.outcome import History, create_event, interpret
from pushlink.protocol.states import CreateEvent, Operation
from pushlink.testing.certificates import Certificates
from pushlink.testing.conformance import CanaryCredentials
from pushlink.testing.conformance_cases import CASES, OK, answers, answers_and_closes
from pushlink.testing.wire import FaultyServer, Peer, Script, closed_port, header_values, http_reply

LOCAL = EgressPolicy(allow_loopback=True)


def profile(
    base_url: str, *, auth: str = "bearer", ref: str | None = "canary:secret", total_ms: int = 800
) -> ProfileContract:
    return ProfileContract(
        base_url=base_url,
        credential_ref=ref,
        auth=Auth.model_construct(kind=auth),
        timeouts=Timeouts.model_construct(connect_ms=400, total_ms=total_ms),
    )


def request(base_url: str, *, method: str = "POST", fresh: bool = True, **options: object) -> WireRequest:
    return WireRequest(
        profile=profile(base_url, **options),
        tenant="",
        method=method,
        path="/things",
        headers=(("Content-Type", "application/json"),),
        body=b"{}",
        fresh_connection=fresh,
    )


def transport(credentials: object | None = None, **options: object) -> AiohttpTransport:
    return AiohttpTransport(credentials or CanaryCredentials(), **{"egress": LOCAL, **options})


def send(
    base_url: str, *, credentials: object | None = None, lookup: Lookup = system_lookup, **options: object
) -> WireReply:
    async def call() -> WireReply:
        async with transport(credentials, lookup=lookup) as one:
            return await one.send(request(base_url, **options))

    return asyncio.run(call())


# ------------------------------------------------------------------------------------ one request, or none at all


def fate(reply: WireReply) -> CreateEvent:
    """What becomes of a first create, by the protocol's own table."""
    action = ActionContract(create=CreateContract(path="/things", success=Success(status=(201,))), mappings=())
    verdict = interpret(Operation.CREATE, action, profile("https://service.test"), reply, History())
    return create_event(verdict, has_mirror=False)


@pytest.mark.rule("C-003", "D-05", "PO-07")
def test_a_failure_to_connect_comes_back_and_a_failure_after_the_first_byte_parks(certificates: Certificates) -> None:
    """Refused, unresolved and closed before the first byte may be sent again; closed after request bytes may not."""

    async def nobody(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    with closed_port() as port:
        refused = send(f"http://127.0.0.1:{port}")
    unresolved = send("https://service.test", lookup=nobody)
    # With TLS the close before the first request byte is provable: the handshake never ended.
    with FaultyServer(Peer.hang, tls=certificates.good, before_tls=Peer.close) as server:
        closed = send(server.base_url)
    with FaultyServer(answers_and_closes(b"")) as server:
        lost = send(server.base_url)
    assert [fate(reply) for reply in (refused, unresolved, closed)] == [CreateEvent.NOT_APPLIED] * 3
    assert fate(lost) is CreateEvent.UNKNOWN


@pytest.mark.rule("C-003")
def test_a_connection_that_is_closed_before_the_first_write_is_proved_unused() -> None:
    """A peer closes a kept connection while it idles: the next call takes another one, and arrives once."""

    async def call(base_url: str) -> list[WireReply]:
        async with transport(keepalive_s=60) as one:
            first = await one.send(request(base_url, fresh=False))
            await asyncio.sleep(0.03)
            return [first, await one.send(request(base_url, fresh=False))]

    with FaultyServer(answers_and_closes(OK)) as server:
        first, second = asyncio.run(call(server.base_url))
        assert first.status == second.status == 201
        assert not second.trace.reused_connection
        assert len(server.requests()) == 2


@pytest.mark.rule("PO-07", "D-05")
@pytest.mark.parametrize("case", [c for c in CASES if c.started is not None], ids=lambda case: case.name)
def test_every_fault_of_the_wire_has_one_fate(case: object, certificates: Certificates) -> None:
    """Not started comes back; everything else without a whole, identified 201 stays unknown or is a plain refusal."""
    tls = None if "http" in case.schemes else getattr(certificates, case.certificate)
    before_tls = case.before_tls if tls else None
    with FaultyServer(case.script, tls=tls, before_tls=before_tls, accepts=case.accepts) as server:

        async def call(base_url: str) -> WireReply:
            async with transport(ca_file=certificates.ca_file) as one:
                return await one.send(request(base_url, total_ms=min(case.total_ms, 400)))

        event = fate(asyncio.run(call(server.base_url)))
    if not case.started:
        assert event is CreateEvent.NOT_APPLIED
    elif case.status == 413:
        assert event is CreateEvent.REJECT
    else:
        assert event is CreateEvent.UNKNOWN


@pytest.mark.rule("D-05")
def test_waiting_for_a_free_connection_is_not_sending() -> None:
    """A call that never got a connection within its deadline is proved not sent."""

    async def call(base_url: str) -> list[WireReply]:
        async with transport(connections_per_host_max=1) as one:
            return await asyncio.gather(*(one.send(request(base_url, total_ms=limit)) for limit in (600, 200)))

    with FaultyServer(Peer.hang) as server:
        replies = asyncio.run(call(server.base_url))
        assert len(server.requests()) == 1
    assert [reply.error for reply in replies] == [WireError.DEADLINE] * 2
    assert [reply.trace.request_started for reply in replies] == [True, False]


def test_an_outer_timeout_gets_its_answer() -> None:
    """Whoever cancels a call awaits its evidence; the cancellation is used up by it."""

    async def call(base_url: str) -> WireReply:
        async with transport() as one:
            async with asyncio.timeout(0.1):
                reply = await one.send(request(base_url, total_ms=5_000))
            assert asyncio.current_task().cancelling() == 0
            return reply

    with FaultyServer(Peer.hang) as server:
        reply = asyncio.run(call(server.base_url))
        assert server.wait_until(lambda: server.connections[0].peer_closed)
    assert reply.error is WireError.CANCELLED
    assert reply.trace.request_started


# ------------------------------------------------------------------------------------ nothing that sends in secret


class RetryingSession:
    """Looks like a session and sends again; libraries of this shape exist."""

    def __init__(self, **options: object) -> None:
        self.connector = options["connector"]


async def send_again(request: aiohttp.ClientRequest, handler: object) -> aiohttp.ClientResponse:
    try:
        response = await handler(request)
    except aiohttp.ClientError:
        return await handler(request)
    return await handler(request) if response.status >= 500 else response


def _subclass(**options: object) -> aiohttp.ClientSession:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)

        class Session(aiohttp.ClientSession):
            """A subclass may override anything."""

    return Session(**options)


def _other_connector(**options: object) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(**{**options, "connector": aiohttp.TCPConnector()})


UNSAFE = {
    "a wrapper that retries": RetryingSession,
    "a subclass": _subclass,
    "another connector": _other_connector,
    "a retry middleware": lambda **options: aiohttp.ClientSession(**options, middlewares=(send_again,)),
    "the environment": lambda **options: aiohttp.ClientSession(**{**options, "trust_env": True}),
    "a cookie jar": lambda **options: aiohttp.ClientSession(**{**options, "cookie_jar": aiohttp.CookieJar()}),
    "inflation": lambda **options: aiohttp.ClientSession(**{**options, "auto_decompress": True}),
    "raising for a status": lambda **options: aiohttp.ClientSession(**{**options, "raise_for_status": True}),
}


@pytest.mark.rule("C-002")
@pytest.mark.parametrize("factory", UNSAFE.values(), ids=UNSAFE.keys())
def test_a_session_that_could_send_again_is_refused_at_start(factory: object) -> None:
    """Whatever mounts retries, or other ways to send what nobody froze, fails closed before the first request."""
    opened: list[object] = []

    def make(**options: object) -> object:
        opened.append(options["connector"])
        opened.append(factory(**options))
        return opened[-1]

    async def start() -> None:
        one = transport(session_factory=make)
        try:
            with pytest.raises(ConfigurationError) as refused:
                await one.start()
            assert refused.value.code is Code.TRANSPORT_UNSAFE
        finally:
            for thing in reversed(opened):
                if hasattr(thing, "close"):
                    await thing.close()

    asyncio.run(start())


@pytest.mark.rule("C-002")
@pytest.mark.parametrize("reply", [b"", http_reply(503, b"", headers=(("Connection", "close"),))])
def test_a_retry_that_is_mounted_later_is_stripped(reply: bytes) -> None:
    """Even middlewares that reach the open session run for nobody: one request arrives."""

    async def call(base_url: str) -> WireReply:
        async with transport() as one:
            for session in one._sessions.values():
                session._middlewares = (send_again,)
            return await one.send(request(base_url, method="PUT"))

    with FaultyServer(answers_and_closes(reply)) as server:
        asyncio.run(call(server.base_url))
        assert len(server.requests()) == 1


@pytest.mark.rule("D-28")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_proxies_and_passwords_of_the_environment_are_not_used(
    scheme: str, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing goes to a proxy that the environment names, and no password of a netrc is sent."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password unquotable\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with (
        FaultyServer(answers(OK)) as proxy,
        FaultyServer(answers(OK), tls=certificates.good if scheme == "https" else None) as server,
    ):
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.base_url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)

        async def call(auth: str) -> WireReply:
            async with transport(ca_file=certificates.ca_file) as one:
                return await one.send(request(server.base_url, auth=auth))

        assert asyncio.run(call("bearer")).status == 201
        assert asyncio.run(call("none")).status == 201
        assert proxy.connections == []
        with_secret, without = server.requests()
        assert header_values(with_secret, "authorization")[0].startswith("Bearer canary-")
        assert header_values(without, "authorization") == []


def test_a_transport_belongs_to_one_loop() -> None:
    """Sockets of another event loop are a caller's mistake, and said to be."""
    one = transport()
    with closed_port() as port:
        asyncio.run(one.send(request(f"http://127.0.0.1:{port}")))
        with pytest.raises(CallerError):
            asyncio.run(one.send(request(f"http://127.0.0.1:{port}")))
        asyncio.run(one.close())


# ------------------------------------------------------------------------------------ secrets


class Provider:
    """A provider that answers or fails as told."""

    def __init__(self, value: str | Exception) -> None:
        self.value = value

    def generation(self, reference: str, *, tenant: str) -> str:
        return "1"

    def resolve(self, reference: str, *, tenant: str) -> Secret:
        if isinstance(self.value, Exception):
            raise self.value
        return Secret(value=self.value, generation="1")


@pytest.mark.parametrize(
    "value",
    [
        "s3cret\r\nX-Injected: 1",
        "s3cret\n",
        "s3cret with spaces",
        "",
        "s3cret\u00e9",
        "s3cret" * 2_000,
        ConfigurationError("s3cret is not there", code=Code.CREDENTIAL_UNAVAILABLE),
        OSError("s3cret cannot be fetched"),
        KeyError("s3cret"),
    ],
)
def test_a_credential_that_cannot_be_sent_stops_the_call_before_it_connects(value: str | Exception) -> None:
    """Nothing is connected, and what is said names the reference and not the value."""
    with FaultyServer(answers(OK)) as server:
        reply = send(server.base_url, credentials=Provider(value))
        assert server.connections == []
    assert reply.error is WireError.BEFORE_CONNECT
    assert not reply.trace.request_started
    assert "canary:secret" in reply.error_text
    assert "s3cret" not in repr(reply)


def test_a_profile_without_a_credential_reference_sends_nothing() -> None:
    """A bearer profile that names no credential is refused here, whatever the linter said."""
    reply = send("https://service.test", ref=None)
    assert reply.error is WireError.BEFORE_CONNECT


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG):
        yield caplog


@pytest.mark.parametrize(
    "script",
    [
        answers(OK),
        answers_and_closes(b""),
        answers_and_closes(b"HTTP/1.1 200 OK\r\nX-\x00: 1\r\n\r\n"),
        answers_and_closes(http_reply(201, b"{", length=100), reset=True),
        answers(http_reply(401, b"", headers=(("WWW-Authenticate", "Bearer unquotable"),))),
        Peer.hang,
        Peer.reset,
    ],
)
def test_the_secret_is_in_no_log_and_no_reply(
    script: Script, certificates: Certificates, everything_logged: pytest.LogCaptureFixture
) -> None:
    """With every logger at DEBUG and the event loop in debug mode, over http and https."""
    secret = CanaryCredentials()
    replies = []

    async def call(base_url: str) -> WireReply:
        async with transport(secret, ca_file=certificates.ca_file) as one:
            assert secret.secret not in repr(one)
            return await one.send(request(base_url, total_ms=300))

    for tls in (None, certificates.good):
        with FaultyServer(script, tls=tls) as server:
            replies.append(asyncio.run(call(server.base_url), debug=True))
    assert secret.secret not in everything_logged.text
    assert secret.secret not in repr(replies)
    assert all("unquotable" not in reply.error_text for reply in replies)


def test_what_a_remote_echoes_is_body_and_nothing_else() -> None:
    """A remote that repeats the request in headers and reason gets none of it into what is kept beside the body."""
    secret = CanaryCredentials()

    def echo(peer: Peer) -> None:
        token = header_values(peer.read_request(), "authorization")[0]
        peer.send(http_reply(200, b"{}", reason=token, headers=(("X-Echo", token), ("Set-Cookie", token))))

    with FaultyServer(echo) as server:
        reply = send(server.base_url, credentials=secret)
    assert reply.status == 200
    assert secret.secret not in repr(reply)


# ------------------------------------------------------------------------------------ bounds


def test_a_large_reply_is_hashed_whole_and_kept_in_part() -> None:
    """Up to four times the bound everything is read, so the digest is of the whole body."""
    import hashlib

    body = b"0123456789abcdef" * 10_000
    one = request("http://x.test")
    bounded = one.profile.model_copy(update={"reply_bytes_max": 100_000})
    with FaultyServer(answers(http_reply(200, body))) as server:

        async def call() -> WireReply:
            async with transport() as sender:
                contract = bounded.model_copy(update={"base_url": server.base_url})
                return await sender.send(
                    WireRequest(
                        profile=contract,
                        tenant="",
                        method="GET",
                        path="/x",
                        headers=(),
                        body=b"",
                        fresh_connection=True,
                    )
                )

        reply = asyncio.run(call())
    assert reply.body == body[:100_000]
    assert reply.body_size == len(body)
    assert reply.body_digest == hashlib.sha256(body).hexdigest()
    assert not reply.body_complete
    assert reply.error is None


def test_tls_below_1_2_is_refused(certificates: Certificates) -> None:
    """An old protocol ends in the handshake: nothing was sent."""
    import ssl

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        certificates.good.minimum_version, keep = ssl.TLSVersion.TLSv1, certificates.good.minimum_version
        certificates.good.maximum_version = ssl.TLSVersion.TLSv1_1
    try:
        with FaultyServer(answers(OK), tls=certificates.good) as server:

            async def call() -> WireReply:
                async with transport(ca_file=certificates.ca_file) as one:
                    return await one.send(request(server.base_url))

            reply = asyncio.run(call())
    finally:
        certificates.good.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
        certificates.good.minimum_version = keep
    assert reply.error is WireError.TLS
    assert not reply.trace.request_started


@pytest.mark.rule("D-05")
@pytest.mark.parametrize(
    ("name", "because"),
    [
        ("wrong_host", "certificate is not valid for"),
        ("expired", "certificate has expired"),
        ("unknown_authority", "unable to get local issuer certificate"),
    ],
)
@pytest.mark.parametrize("session", [False, True], ids=["request", "session"])
def test_a_certificate_that_is_not_trusted_is_told_apart(
    certificates: Certificates, name: str, because: str, session: bool
) -> None:
    """The host and why, in one sentence; no byte of a request was sent, not even of the one that opens a session."""
    with FaultyServer(answers(OK), tls=getattr(certificates, name)) as server:

        async def call() -> WireReply:
            asked = request(server.base_url)
            if session:
                opening = {"prefetch": {"path": "/token", "capture": "X-Token", "expired": [{"status": [403]}]}}
                opened = Session.model_validate_json(json.dumps(opening))
                asked = replace(asked, profile=asked.profile.model_copy(update={"session": opened}))
            async with transport(ca_file=certificates.ca_file) as one:
                return await one.send(asked)

        reply = asyncio.run(call())
        assert server.requests() == []
    assert reply.error is WireError.CERTIFICATE
    assert reply.error_text.startswith("the certificate of 127.0.0.1 is not trusted: ")
    assert because in reply.error_text
    assert not reply.trace.request_started
