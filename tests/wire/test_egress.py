from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlink.adapters.aiohttp_transport import AiohttpTransport
from pushlink.adapters.egress import (
    AddressKind,
    EgressPolicy,
    EgressRefused,
    Lookup,
    address_kind,
    build_url,
    parse_origin,
    system_lookup,
)
from pushlink.ports import WireError, WireReply, WireRequest
from pushlink.protocol.contracts import Auth, ProfileContract, Timeouts
from pushlink.testing.certificates import Certificates
from pushlink.testing.conformance import CanaryCredentials
from pushlink.testing.conformance_cases import OK, answers
from pushlink.testing.wire import FaultyServer, header_values

CLOSED = EgressPolicy()
LOCAL = EgressPolicy(allow_loopback=True)


@dataclass
class Names:
    """A resolver that answers from a script: the first answer to the first question, and so on, the last for ever."""

    answers: Sequence[Sequence[str]]
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


def request(base_url: str, *, path: str = "/things", total_ms: int = 800, fresh: bool = True) -> WireRequest:
    profile = ProfileContract(
        base_url=base_url,
        credential_ref="canary:secret",
        auth=Auth(kind="bearer"),
        timeouts=Timeouts.model_construct(connect_ms=300, total_ms=total_ms),
    )
    return WireRequest(
        profile=profile, tenant="", method="POST", path=path, headers=(), body=b"{}", fresh_connection=fresh
    )


def send(
    base_url: str,
    *,
    egress: EgressPolicy = CLOSED,
    lookup: Lookup = system_lookup,
    path: str = "/things",
    certificates: Certificates | None = None,
) -> WireReply:
    async def call() -> WireReply:
        ca_file = certificates.ca_file if certificates else None
        async with AiohttpTransport(CanaryCredentials(), egress=egress, lookup=lookup, ca_file=ca_file) as transport:
            return await transport.send(request(base_url, path=path))

    return asyncio.run(call())


LOOPBACK_ANSWER = [["127.0.0.1"]]
PUBLIC = "93.184.216.34"

# (host as written in a base URL, what every name resolves to); PORT is the canary's.
HOSTS = [
    *[
        (host, LOOPBACK_ANSWER)
        for host in ("localhost", "LOCALHOST", "service.test", "a.localhost", "xn--bcher-kva.test")
    ],
    *[(host, LOOPBACK_ANSWER) for host in ("127.0.0.1", "127.0.0.2", "127.255.255.254", "127.1", "127.0.1", "127")],
    *[(host, LOOPBACK_ANSWER) for host in ("2130706433", "0x7f000001", "0x7f.0.0.1", "0x7f.1", "017700000001")],
    *[(host, LOOPBACK_ANSWER) for host in ("0177.0.0.1", "127.0.0.01", "127.0.0.0x1", "0", "1.2.3.4.5")],
    *[(host, LOOPBACK_ANSWER) for host in ("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]")],
    *[(host, LOOPBACK_ANSWER) for host in ("[0:0:0:0:0:0:0:1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]")],
    *[(host, LOOPBACK_ANSWER) for host in ("[2002:7f00:1::]", "[2001:0:7f00:1::]", "[fe80::1]", "[fec0::1]")],
    *[(host, LOOPBACK_ANSWER) for host in ("[fc00::1]", "[fd00:ec2::254]", "[ff02::1]", "[::1%25lo]", "::1")],
    *[(host, LOOPBACK_ANSWER) for host in ("10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "100.100.100.200")],
    *[(host, LOOPBACK_ANSWER) for host in ("169.254.169.254", "168.63.129.16", "224.0.0.1", "255.255.255.255")],
    *[(host, LOOPBACK_ANSWER) for host in ("198.18.0.1", "192.0.2.1", "192.88.99.1", "240.0.0.1")],
    *[(host, LOOPBACK_ANSWER) for host in ("localhost.", "127.0.0.1.", "service..test", ".localhost", "-a.test")],
    *[(host, LOOPBACK_ANSWER) for host in ("user@127.0.0.1", "a:b@localhost", "api.example.com@127.0.0.1")],
    *[(host, LOOPBACK_ANSWER) for host in ("127.0.0.1\\.example.com", "127.0.0.1#.example.com", "127.0.0.1?.example")],
    *[
        (host, LOOPBACK_ANSWER)
        for host in ("b\u00fccher.test", "\uff11\uff12\uff17.0.0.1", "\u2460.test", "127\u30020.0.1")
    ],
    *[
        (host, LOOPBACK_ANSWER)
        for host in ("local%68ost", "127.0.0.1%00", "local host", "localhost\t", "localhost\r\n")
    ],
    ("0.0.0.0", LOOPBACK_ANSWER),  # noqa: S104 - a host as somebody may write it
    ("mixed.test", [[PUBLIC, "127.0.0.1"]]),
    ("mixed6.test", [["2606:2800:220:1::1", "::1"]]),
    ("mapped.test", [["::ffff:127.0.0.1"]]),
    ("nat64.test", [["64:ff9b::7f00:1"]]),
    ("scoped.test", [["fe80::1%lo"]]),
    ("private.test", [["10.0.0.1"]]),
    ("metadata.test", [["169.254.169.254"]]),
    ("nothing.test", [[]]),
    ("nonsense.test", [["not an address"]]),
    ("many.test", [[f"93.184.216.{n}" for n in range(100)]]),
    ("zero.test", [["0.0.0.0"]]),  # noqa: S104 - an answer, not a binding
]


@pytest.mark.rule("D-28")
@pytest.mark.parametrize(("host", "resolves_to"), HOSTS, ids=[repr(host) for host, _ in HOSTS])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_spelling_of_a_local_address_reaches_it(scheme: str, host: str, resolves_to: list[list[str]]) -> None:
    """Over eighty ways to write a host, each before any connection: the listener on loopback hears nothing."""
    with FaultyServer(answers(OK)) as canary:
        reply = send(f"{scheme}://{host}:{canary.port}", lookup=Names(resolves_to))
        assert reply.error in (WireError.BEFORE_CONNECT, WireError.RESOLVE)
        assert not reply.trace.request_started
        assert not reply.trace.connected
        assert canary.connections == []


@pytest.mark.parametrize(
    "base_url",
    [
        *(
            "ftp://service.test",
            "file:///etc/passwd",
            "//service.test",
            "service.test",
            "https:service.test",
            "https://",
        ),
        *("https://service.test:0", "https://service.test:65536", "https://service.test:x", "https://service.test:-1"),
        *(
            "https://service.test/a?b=c",
            "https://service.test/a#b",
            "https://service.test/../x",
            "https://service.test/%",
        ),
        *(
            "https://service.test//x",
            "https://service.test/%2e%2e/x",
            " https://service.test",
            "https://service.test\n",
        ),
        *(
            "HTTPS://service.test",
            "unix:///run/x.sock",
            "javascript:alert(1)",
            "",
            "https://[::1",
            "https://service.test\\x",
        ),
    ],
)
def test_a_base_url_that_two_parsers_could_read_differently_is_refused(base_url: str) -> None:
    """Only scheme, host, port and path, in their plain form, are a base URL."""
    with pytest.raises(EgressRefused):
        parse_origin(base_url)
    reply = send(base_url, egress=LOCAL, lookup=Names(LOOPBACK_ANSWER))
    assert reply.error is WireError.BEFORE_CONNECT
    assert not reply.trace.request_started


def test_the_checked_address_is_the_connected_address() -> None:
    """One look-up: what it returned is checked and connected, under the name's own Host."""
    names = Names([["127.0.0.1"], ["10.255.255.1"]])
    with FaultyServer(answers(OK)) as server:
        reply = send(f"http://service.test:{server.port}", egress=LOCAL, lookup=names)
        assert reply.status == 201
        assert names.asked == ["service.test"]
        assert header_values(server.requests()[0], "host") == [f"service.test:{server.port}"]


def test_an_answer_that_changes_after_the_check_changes_nothing() -> None:
    """Rebinding: the first answer is admitted, every later one is loopback; loopback is never connected."""
    names = Names([["10.255.255.1"], ["127.0.0.1"]])
    with FaultyServer(answers(OK)) as canary:
        reply = send(f"http://service.test:{canary.port}", egress=EgressPolicy(allow_private=True), lookup=names)
        assert reply.status is None
        assert not reply.trace.request_started
        assert names.asked == ["service.test"]
        assert canary.connections == []


def test_the_certificate_is_asked_for_and_checked_under_the_original_name(certificates: Certificates) -> None:
    """Connecting to a checked address keeps the server name of the base URL; another name's certificate is refused."""
    asked: list[str | None] = []
    certificates.good.sni_callback = lambda _sock, name, _context: asked.append(name)
    try:
        with FaultyServer(answers(OK), tls=certificates.good) as server:
            good = send(
                f"https://localhost:{server.port}",
                egress=LOCAL,
                lookup=Names(LOOPBACK_ANSWER),
                certificates=certificates,
            )
            bad = send(
                f"https://other.test:{server.port}",
                egress=LOCAL,
                lookup=Names(LOOPBACK_ANSWER),
                certificates=certificates,
            )
    finally:
        certificates.good.sni_callback = None
    assert asked == ["localhost", "other.test"]
    assert good.status == 201
    assert bad.error is WireError.CERTIFICATE
    assert not bad.trace.request_started


def test_a_dead_address_is_passed_over_and_the_request_goes_out_once() -> None:
    """Of several admitted addresses, the first that connects gets the one request."""
    with FaultyServer(answers(OK)) as server:
        reply = send(
            f"http://service.test:{server.port}", egress=LOCAL, lookup=Names([["127.0.0.9", "::1", "127.0.0.1"]])
        )
        assert reply.status == 201
        assert len(server.requests()) == 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (PUBLIC, AddressKind.PUBLIC),
        ("2606:2800:220:1::1", AddressKind.PUBLIC),
        ("127.0.0.1", AddressKind.LOOPBACK),
        ("::1", AddressKind.LOOPBACK),
        ("10.1.2.3", AddressKind.PRIVATE),
        ("100.64.0.1", AddressKind.PRIVATE),
        ("fd12::1", AddressKind.PRIVATE),
        ("100.100.100.200", AddressKind.SPECIAL),
        ("fd00:ec2::254", AddressKind.SPECIAL),
        ("169.254.0.1", AddressKind.SPECIAL),
        ("::ffff:93.184.216.34", AddressKind.SPECIAL),
        ("2001:db8::1", AddressKind.SPECIAL),
        ("127.1", AddressKind.SPECIAL),
        ("", AddressKind.SPECIAL),
    ],
)
def test_every_address_has_one_kind(text: str, kind: AddressKind) -> None:
    """The tables sort addresses; what is no canonical address is never admitted."""
    assert address_kind(text) is kind


@given(st.ip_addresses())
def test_what_is_taken_for_public_is_global(address: object) -> None:
    """The standard library's own view of the registries never calls a public address of ours anything but global."""
    if address_kind(str(address)) is AddressKind.PUBLIC:
        assert address.is_global
        assert not address.is_multicast
        assert not address.is_link_local
        assert not address.is_reserved


def test_plain_http_goes_to_local_addresses_only_unless_the_deployment_says_so() -> None:
    """A bearer secret does not cross a public network in the clear."""
    with pytest.raises(EgressRefused, match="plain HTTP"):
        CLOSED.check(PUBLIC, scheme="http")
    CLOSED.check(PUBLIC, scheme="https")
    LOCAL.check("127.0.0.1", scheme="http")
    EgressPolicy(allow_plain_http=True).check(PUBLIC, scheme="http")


def test_a_private_address_is_reached_only_where_private_ones_are_allowed() -> None:
    """The two permissions are separate, and neither opens metadata, link-local or translated addresses."""
    both = EgressPolicy(allow_loopback=True, allow_private=True, allow_plain_http=True)
    with pytest.raises(EgressRefused):
        LOCAL.check("10.0.0.1")
    with pytest.raises(EgressRefused):
        EgressPolicy(allow_private=True).check("127.0.0.1")
    for special in ("169.254.169.254", "100.100.100.200", "::ffff:10.0.0.1", "64:ff9b::a00:1", "0.0.0.0"):  # noqa: S104
        with pytest.raises(EgressRefused):
            both.check(special)


_SEGMENT = st.text("abcXYZ019-._~!$&'()*+,;=:@", min_size=1, max_size=8).filter(lambda text: text.strip(".") != "")
_ESCAPED = st.binary(min_size=1, max_size=4).map(lambda raw: "".join(f"%{byte:02X}" for byte in raw))
_PATHS = st.builds(
    lambda segments, query: "/" + "/".join(segments) + query,
    st.lists(st.one_of(_SEGMENT, _SEGMENT.flatmap(lambda text: _ESCAPED.map(text.__add__))), min_size=1, max_size=5),
    st.one_of(st.just(""), st.builds("?q={}".format, st.one_of(_SEGMENT, _ESCAPED))),
)


@given(_PATHS, st.sampled_from(["https://service.test", "https://service.test/", "https://service.test:8443/api/v1/"]))
def test_a_url_is_its_base_and_its_path_and_nothing_else(path: str, base_url: str) -> None:
    """Nothing is decoded, encoded or normalised on the way."""
    url = build_url(parse_origin(base_url), path)
    assert str(url) == base_url.removesuffix("/") + path
    assert url.raw_path_qs.endswith(path)


@pytest.mark.rule("D-28")
@pytest.mark.parametrize(
    "path",
    [
        *("", "things", "//evil.test/x", "/../x", "/a/..", "/a/./b", "/%2e%2e/x", "/a/%2E", "https://evil.test/x"),
        *("/a b", "/a\\b", "/a#b", "/\u00e9", "/%", "/%4", "/%zz", "/a\r\nX: y", "@evil.test/", ".evil.test/", ":80/"),
        *("/a//b", "/a\x00", "/a?b=\r\n", "?x", "/a?b#c"),
    ],
)
def test_a_path_never_leaves_the_base_url(path: str) -> None:
    """Paths that could change the origin, climb, or be normalised are not sent at all."""
    with FaultyServer(answers(OK)) as server:
        reply = send(server.base_url, egress=LOCAL, path=path)
        assert reply.error is WireError.BEFORE_CONNECT
        assert server.connections == []


def test_the_raw_path_on_the_wire_is_the_frozen_one() -> None:
    """A hundred awkward paths on one kept connection, compared byte by byte with the request lines that arrived."""
    odd = ["%2F", "%2f", "%41", "a%20b", "a+b", "(key='x%27%27y')", "a;b=c,d", "%E2%82%AC", "%00", "~", "-", "a:b@c"]
    paths = [f"/{first}/{second}" for first in odd for second in odd[:8]] + [f"/x?q={text}" for text in odd]

    def script(peer: object) -> None:
        while True:
            peer.read_request()
            peer.send(OK)

    async def call(base_url: str) -> None:
        async with AiohttpTransport(CanaryCredentials(), egress=LOCAL) as transport:
            for path in paths:
                reply = await transport.send(request(base_url, path=path, fresh=False))
                assert reply.status == 201

    with FaultyServer(script) as server:
        asyncio.run(call(server.base_url + "/api"))
        lines = [arrived.partition(b"\r\n")[0].decode() for arrived in server.requests()]
        assert lines == [f"POST /api{path} HTTP/1.1" for path in paths]
        assert len(server.connections) == 1


@pytest.mark.rule("C-003")
def test_a_name_without_an_address_is_not_sent() -> None:
    """DNS failure: proved before any byte."""

    async def nobody(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "unquotable")

    reply = send("https://service.test", lookup=nobody)
    assert reply.error is WireError.RESOLVE
    assert not reply.trace.request_started
    assert "unquotable" not in reply.error_text


def test_a_look_up_that_hangs_ends_at_the_deadline() -> None:
    """The deadline covers the look-up too."""

    async def sleeps(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(60)
        return []

    reply = send("https://service.test", lookup=sleeps)
    assert reply.error is WireError.DEADLINE
    assert not reply.trace.request_started
