"""A certificate of our own in the handshake: shown to the remote that asks for it, kept from everybody else."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from pushlink.adapters.aiohttp_transport import AiohttpTransport
from pushlink.adapters.egress import EgressPolicy
from pushlink.adapters.tls import CONTEXTS_MAX, TlsContexts
from pushlink.adapters.wire import RequestRefused
from pushlink.ports import Secret, WireError, WireReply, WireRequest
from pushlink.protocol.contracts import Auth, ProfileContract, Timeouts
from pushlink.testing.certificates import Certificates
from pushlink.testing.conformance_cases import OK, answers
from pushlink.testing.wire import FaultyServer, Peer, header_values


class Kept:
    """One secret under every reference."""

    def __init__(self, value: str) -> None:
        self.value = value

    def generation(self, reference: str, *, tenant: str) -> str:
        return "g1"

    def resolve(self, reference: str, *, tenant: str) -> Secret:
        return Secret(value=self.value, generation="g1")


def send(base_url: str, secret: str, certificates: Certificates, *, kind: str = "mtls", count: int = 1) -> WireReply:
    """So many creates one after the other over kept connections; the answer to the last one."""
    profile = ProfileContract(
        base_url=base_url,
        credential_ref="file:/run/client.pem",
        auth=Auth.model_validate({"kind": kind}),
        timeouts=Timeouts.model_construct(connect_ms=1_000, total_ms=4_000),
    )
    asked = WireRequest(
        profile=profile, tenant="", method="POST", path="/things", headers=(), body=b"{}", fresh_connection=False
    )

    async def call() -> WireReply:
        egress = EgressPolicy(allow_loopback=True)
        async with AiohttpTransport(Kept(secret), egress=egress, ca_file=certificates.ca_file) as wire:
            replies = [await wire.send(asked) for _ in range(count)]
        return replies[-1]

    return asyncio.run(call())


def answers_twice(peer: Peer) -> None:
    """Two requests on one connection."""
    for _ in range(2):
        peer.read_request()
        peer.send(OK)


def test_the_remote_sees_the_certificate_and_no_header(certificates: Certificates) -> None:
    """It asks for one in the handshake, once for two requests, and neither of them carries anything of it."""
    with FaultyServer(answers_twice, tls=certificates.asks_for_client) as server:
        assert send(server.base_url, certificates.client, certificates, count=2).status == 201
        assert len(server.connections) == 1
        assert [header_values(request, "authorization") for request in server.requests()] == [[], []]
        assert not any(b"PRIVATE" in request for request in server.requests())


def test_without_it_the_remote_answers_nothing(certificates: Certificates) -> None:
    """The same server refuses a profile that shows none: so it was the certificate that let the other one in."""
    with FaultyServer(answers(OK), tls=certificates.asks_for_client) as server:
        assert send(server.base_url, "token", certificates, kind="bearer").status is None
        assert server.requests() == []


def test_an_older_handshake_refuses_before_a_byte_of_the_request(certificates: Certificates) -> None:
    """Up to TLS 1.2 the remote judges the certificate first: what it refuses is proved not sent."""
    context, keep = certificates.asks_for_client, certificates.asks_for_client.maximum_version
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        with FaultyServer(answers(OK), tls=context) as server:
            assert send(server.base_url, certificates.client, certificates).status == 201
            refused = send(server.base_url, "token", certificates, kind="bearer")
    finally:
        context.maximum_version = keep
    assert refused.error is WireError.TLS
    assert not refused.trace.request_started


@pytest.mark.rule("D-34")
@pytest.mark.parametrize("secret", ["", "not PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_refused_and_not_told(secret: str, certificates: Certificates) -> None:
    """Before any connection, by reference; nobody is asked for a password."""
    with FaultyServer(answers(OK), tls=certificates.asks_for_client) as server:
        reply = send(server.base_url, secret, certificates)
        assert (reply.error, reply.trace.request_started) == (WireError.BEFORE_CONNECT, False)
        assert "file:/run/client.pem" in reply.error_text
        assert secret == "" or secret not in reply.error_text
        assert server.connections == []


def test_a_key_with_a_password_asks_nobody(certificates: Certificates) -> None:
    """There is no terminal; the refusal says what is wrong."""
    key = serialization.load_pem_private_key(certificates.client.encode(), None)
    sealed = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"hunter2"),
    ).decode()
    with pytest.raises(RequestRefused, match="without a password"):
        TlsContexts(None).presenting(sealed + certificates.client, "env:PEM")


def test_a_certificate_is_never_shown_in_the_clear(certificates: Certificates) -> None:
    """A base URL without TLS has no handshake to show it in."""
    with FaultyServer(answers(OK)) as server:
        reply = send(server.base_url, certificates.client, certificates)
        assert (reply.error, server.connections) == (WireError.BEFORE_CONNECT, [])


def open_descriptors() -> int:
    """How many this process has; nothing where the system does not say."""
    known = Path("/proc/self/fd")
    return len(list(known.iterdir())) if known.is_dir() else 0


def test_a_context_is_made_once_for_each_secret_and_leaves_no_descriptor(certificates: Certificates) -> None:
    """Connections are kept for one context, so a second one would end them; many secrets are bounded."""
    contexts = TlsContexts(certificates.ca_file)
    before = open_descriptors()
    first = contexts.presenting(certificates.client, "env:PEM")
    assert contexts.presenting(certificates.client, "env:PEM") is first
    assert first is not contexts.plain
    for number in range(CONTEXTS_MAX):
        contexts.presenting(f"{certificates.client}\n# {number}\n", "env:PEM")
    assert contexts.presenting(certificates.client, "env:PEM") is not first
    assert open_descriptors() == before
