"""The conformance suite's table of single faults: one row for each way in which one call can go wrong.

What a row does not claim, it leaves to the transport under test; what every reply must hold is in `conformance.py`.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from dataclasses import dataclass
from functools import partial
from typing import Final

from pushlink.ports import WireError
from pushlink.testing.conformance import BODY, Bench, Check
from pushlink.testing.wire import FaultyServer, Peer, Script, chunked_reply, http_reply

BOTH: Final = ("http", "https")
TLS: Final = ("https",)
BOUND: Final = 65_536
BIG_BODY: Final = b'{"filler":"' + b"x" * 8_000_000 + b'"}'
OK_BODY: Final = b'{"id":"r-1"}'
OK: Final = http_reply(201, OK_BODY, headers=(("Content-Type", "application/json"), ("Location", "/things/r-1")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call against one fault, and what must be told of it. `None` claims nothing."""

    name: str
    script: Script
    before_tls: Script | None = None
    accepts: bool = True
    certificate: str = "good"
    schemes: tuple[str, ...] = BOTH
    request_body: bytes = BODY
    total_ms: int = 2_000
    connect_ms: int = 1_000
    started: bool | None = True
    status: int | None = None  # the status that must be told; `None`: there must be none
    whole: bool = False  # whether the body must be told to be complete
    body: bytes | None = None  # the body that must be handed over, exactly
    errors: tuple[WireError, ...] = ()  # one of these; none listed: any
    hangs_up: bool = False  # whether the server must see the socket closed when the call has ended


def answers(reply: bytes) -> Script:
    """Read the request, answer, leave the connection open."""

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(reply)

    return script


def answers_and_closes(reply: bytes, *, reset: bool = False) -> Script:
    """Read the request, answer, close."""

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(reply)
        if not reset:
            peer.close()
            return
        peer.pause(0.05)  # a reset destroys what the other side has not read yet
        peer.reset()

    return script


def _nothing(peer: Peer) -> None:
    peer.hang()


def _close(peer: Peer) -> None:
    peer.close()


def _reset(peer: Peer) -> None:
    peer.reset()


def _reset_after_head(peer: Peer) -> None:
    peer.read_head()
    peer.reset()


def _reset_in_body(peer: Peer) -> None:
    peer.read_head()
    peer.read_some(10_000)
    peer.reset()


def _close_in_hello(peer: Peer) -> None:
    # Not read_some: what the raw socket brings is no request, and must not be counted as one.
    peer.sock.recv(100)
    peer.close()


def _reset_in_hello(peer: Peer) -> None:
    peer.sock.recv(10_000)
    peer.reset()


def _garbage_in_hello(peer: Peer) -> None:
    peer.sock.recv(10_000)
    peer.send(http_reply(400, b"this is no TLS"))
    peer.close()


def _silent_hello(peer: Peer) -> None:
    peer.pause(5)


def _drip_head(peer: Peer) -> None:
    peer.read_request()
    peer.drip(OK, pause_s=0.05)


def _drip_body(peer: Peer) -> None:
    peer.read_request()
    peer.send(http_reply(201, length=1_000))
    peer.drip(b"x" * 1_000, pause_s=0.05)


def _bad_chunk(peer: Peer) -> None:
    peer.read_request()
    peer.send(chunked_reply(201, end=b""))
    peer.pause(0.05)
    peer.send(b"unquotable\r\n{}\r\n0\r\n\r\n")


def _endless(first: bytes, again: bytes) -> Script:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(first)
        peer.flood(again * 64, limit=256_000_000)

    return script


def _early_413(peer: Peer) -> None:
    peer.read_head()
    peer.send(http_reply(413, b"no", headers=(("Connection", "close"),)))
    peer.half_close()
    peer.hang()


_GZIP: Final = (("Content-Encoding", "gzip"), ("Content-Type", "application/json"))
_BOMB: Final = gzip.compress(b"\x00" * 20_000_000)
_DEEP: Final = b"[" * 30_000
_HUGE_NUMBER: Final = b'{"id":' + b"9" * 5_000 + b"}"


def _read_errors(*more: WireError) -> tuple[WireError, ...]:
    return (WireError.READ, WireError.WRITE, WireError.MALFORMED, *more)


def _exact(name: str, body: bytes, **headers: str) -> Case:
    """A body that is odd to read and perfectly framed: the transport hands it over byte by byte."""
    pairs = tuple((key.replace("_", "-"), value) for key, value in headers.items())
    return Case(name=name, script=answers(http_reply(200, body, headers=pairs)), status=200, whole=True, body=body)


_NOT_STARTED: Final = (WireError.CONNECT, WireError.TLS, WireError.DEADLINE)

#: A transport that cannot tell a certificate from the rest of the handshake says the latter.
_UNTRUSTED: Final = (WireError.CERTIFICATE, WireError.TLS)

CASES: Final = (
    # Before the request: nothing left this process, and it is said so.
    Case(
        name="closed in the handshake",
        script=_nothing,
        before_tls=_close_in_hello,
        schemes=TLS,
        started=False,
        errors=_NOT_STARTED,
    ),
    Case(
        name="reset in the handshake",
        script=_nothing,
        before_tls=_reset_in_hello,
        schemes=TLS,
        started=False,
        errors=_NOT_STARTED,
    ),
    Case(
        name="no TLS on a TLS port",
        script=_nothing,
        before_tls=_garbage_in_hello,
        schemes=TLS,
        started=False,
        errors=_NOT_STARTED,
    ),
    Case(
        name="a handshake that never ends",
        script=_nothing,
        before_tls=_silent_hello,
        schemes=TLS,
        started=False,
        errors=_NOT_STARTED,
        total_ms=600,
        connect_ms=300,
    ),
    Case(
        name="a certificate for another host",
        script=_nothing,
        certificate="wrong_host",
        schemes=TLS,
        started=False,
        errors=_UNTRUSTED,
    ),
    Case(
        name="an expired certificate",
        script=_nothing,
        certificate="expired",
        schemes=TLS,
        started=False,
        errors=_UNTRUSTED,
    ),
    Case(
        name="a certificate of an unknown authority",
        script=_nothing,
        certificate="unknown_authority",
        schemes=TLS,
        started=False,
        errors=_UNTRUSTED,
    ),
    # Around the request: what arrived cannot be known, so nothing is denied.
    Case(name="never accepted", script=_nothing, accepts=False, total_ms=500, connect_ms=300, started=None),
    Case(name="closed on accept", script=_close, before_tls=_close, started=None),
    Case(name="reset on accept", script=_reset, before_tls=_reset, started=None),
    Case(name="closed before a byte is read", script=_close, started=None),
    Case(name="reset after the headers", script=_reset_after_head, request_body=BIG_BODY, errors=_read_errors()),
    Case(name="reset in the body", script=_reset_in_body, request_body=BIG_BODY, errors=_read_errors()),
    Case(name="a refusal before the body was read", script=_early_413, request_body=BIG_BODY, status=413, whole=True),
    # After the request, without a response.
    Case(name="closed after the request", script=answers_and_closes(b""), errors=_read_errors()),
    Case(name="reset after the request", script=answers_and_closes(b"", reset=True), errors=_read_errors()),
    Case(name="silent after the request", script=_nothing, total_ms=400, errors=(WireError.DEADLINE,), hangs_up=True),
    Case(
        name="an interim response, then closed",
        errors=_read_errors(),
        script=answers_and_closes(b"HTTP/1.1 100 Continue\r\n\r\n"),
    ),
    Case(name="half a status line", script=answers_and_closes(b"HTTP/1.1 20"), errors=_read_errors()),
    Case(name="half of the headers", script=answers_and_closes(OK[:40]), errors=_read_errors()),
    Case(name="not HTTP", script=answers_and_closes(b"unquotable garbage\r\n\r\n"), errors=_read_errors()),
    Case(
        name="a bad header",
        script=answers(b"HTTP/1.1 200 OK\r\nun quotable\x00: unquotable\r\n\r\n"),
        errors=_read_errors(),
    ),
    Case(
        name="a switch of protocols",
        errors=_read_errors(WireError.DEADLINE),
        total_ms=500,
        script=answers(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
    ),
    Case(
        name="endless headers",
        script=_endless(b"HTTP/1.1 200 OK\r\n", b"X-Unquotable: " + b"u" * 1_000 + b"\r\n"),
        errors=_read_errors(),
        hangs_up=True,
    ),
    Case(
        name="one endless header",
        script=_endless(b"HTTP/1.1 200 OK\r\nX-Unquotable: ", b"u" * 1_000),
        errors=_read_errors(),
        hangs_up=True,
    ),
    Case(
        name="endless interim responses",
        script=_endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        total_ms=500,
        errors=_read_errors(WireError.DEADLINE),
        hangs_up=True,
    ),
    Case(name="headers byte by byte", script=_drip_head, total_ms=400, errors=(WireError.DEADLINE,), hangs_up=True),
    # A response whose headers are whole and whose body is not: told as such, and never as complete.
    Case(
        name="a body byte by byte",
        script=_drip_body,
        total_ms=400,
        status=201,
        errors=(WireError.DEADLINE,),
        hangs_up=True,
    ),
    Case(name="a short body", script=answers_and_closes(http_reply(201, OK_BODY[:6], length=12)), status=201),
    Case(
        name="a short body and a reset",
        status=201,
        script=answers_and_closes(http_reply(201, OK_BODY[:6], length=12), reset=True),
    ),
    Case(name="no last chunk", script=answers_and_closes(chunked_reply(201, OK_BODY, end=b"")), status=201),
    Case(
        name="half of the last chunk", script=answers_and_closes(chunked_reply(201, OK_BODY, end=b"0\r\n")), status=201
    ),
    Case(
        name="a chunk of no size",
        status=201,
        total_ms=500,  # an answer that stops making sense may be waited for until the deadline
        script=_bad_chunk,
    ),
    Case(
        name="a body that ends with the connection",
        status=201,
        script=answers_and_closes(http_reply(201, OK_BODY, length=None)),
    ),
    Case(name="a giant length", script=answers_and_closes(http_reply(201, OK_BODY, length=10 * 2**30)), status=201),
    Case(
        name="an endless body in chunks",
        status=200,
        hangs_up=True,
        script=_endless(chunked_reply(200, end=b""), b"400\r\n" + b"x" * 1_024 + b"\r\n"),
    ),
    Case(
        name="an endless body with a length",
        status=200,
        hangs_up=True,
        script=_endless(http_reply(200, length=10 * 2**30), b"x" * 1_024),
    ),
    Case(name="a body over its bound", script=answers(http_reply(200, b"x" * (BOUND + 1))), status=200),
    Case(
        name="damaged gzip", status=200, script=answers(http_reply(200, b"\x1f\x8b\x08\x00unquotable", headers=_GZIP))
    ),
    Case(
        name="half of a gzip",
        status=200,
        script=answers(http_reply(200, gzip.compress(OK_BODY * 99)[:-12], headers=_GZIP)),
    ),
    Case(
        name="gzip with something behind it",
        status=200,
        script=answers(http_reply(200, gzip.compress(OK_BODY) + b"{}", headers=_GZIP)),
    ),
    Case(name="a gzip bomb", script=answers(http_reply(200, _BOMB, headers=_GZIP)), status=200),
    Case(
        name="a deflate bomb",
        status=200,
        script=answers(http_reply(200, zlib.compress(b"\x00" * 9_000_000), headers=(("Content-Encoding", "deflate"),))),
    ),
    Case(
        name="a bomb in a bomb",
        status=200,
        script=answers(http_reply(200, gzip.compress(_BOMB), headers=(("Content-Encoding", "gzip, gzip"),))),
    ),
    Case(
        name="a coding nobody knows",
        status=200,
        script=answers(http_reply(200, OK_BODY, headers=(("Content-Encoding", "br"),))),
    ),
    # Responses that are whole.
    Case(name="an answer", script=answers(OK), status=201, whole=True, body=OK_BODY),
    Case(name="an answer, then closed", script=answers_and_closes(OK), status=201, whole=True, body=OK_BODY),
    Case(
        name="an answer in chunks",
        status=201,
        whole=True,
        body=OK_BODY,
        script=answers(chunked_reply(201, OK_BODY[:5], OK_BODY[5:])),
    ),
    Case(
        name="an answer of HTTP/1.0",
        status=201,
        whole=True,
        body=OK_BODY,
        script=answers_and_closes(OK.replace(b"HTTP/1.1", b"HTTP/1.0")),
    ),
    Case(
        name="interim responses, then the answer",
        status=201,
        whole=True,
        body=OK_BODY,
        script=answers(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK),
    ),
    Case(name="no content", script=answers(b"HTTP/1.1 204 No Content\r\n\r\n"), status=204, whole=True, body=b""),
    Case(
        name="gzip that nobody asked for",
        status=200,
        whole=True,
        body=OK_BODY,
        script=answers(http_reply(200, gzip.compress(OK_BODY), headers=_GZIP)),
    ),
    Case(name="a whole large request", script=answers(OK), request_body=BIG_BODY, status=201, whole=True),
    Case(name="no body to send", script=answers(OK), request_body=b"", status=201, whole=True),
    _exact("a byte order mark", b"\xef\xbb\xbf" + OK_BODY, Content_Type="application/json"),
    _exact("a page of HTML", b"<html><body>Sign in</body></html>", Content_Type="text/html"),
    _exact("a key twice", b'{"id":"r-1","id":"r-2"}'),
    _exact("deep JSON", _DEEP),
    _exact("a huge number", _HUGE_NUMBER),
    _exact("no UTF-8", b'{"id":"\xff\xfe"}'),
    _exact("headers that stay private", OK_BODY, Set_Cookie="a=unquotable", X_Unknown="unquotable"),
)

# Statuses at which some client somewhere sends again by itself.
_TEMPTING: Final = (401, 407, 408, 409, 421, 425, 429, 500, 502, 503, 504)
_TEMPTING_HEADERS: Final = (("Retry-After", "0"), ("WWW-Authenticate", "Basic realm=unquotable"))

STATUS_CASES: Final = tuple(
    Case(
        name=f"status {status} is an answer",
        status=status,
        whole=True,
        body=b"{}",
        script=answers(http_reply(status, b"{}", headers=(*_TEMPTING_HEADERS, ("Connection", "close")))),
    )
    for status in _TEMPTING
)


async def run_case(case: Case, bench: Bench) -> None:
    """Make the one call of a case and hold the reply against the row."""
    tls = getattr(bench.certificates, case.certificate) if bench.is_tls else None
    before_tls = case.before_tls if bench.is_tls else None
    with FaultyServer(case.script, tls=tls, before_tls=before_tls, accepts=case.accepts) as server:
        request = bench.request(
            server.base_url,
            body=case.request_body,
            total_ms=case.total_ms,
            connect_ms=case.connect_ms,
            reply_bytes_max=BOUND,
        )
        reply = await bench.send(request)
        if case.hangs_up:
            closed = await asyncio.to_thread(
                server.wait_until, lambda: all(log.peer_closed for log in server.connections)
            )
            bench.expect(closed, "the socket stays open after the call")
        await bench.count(server, request)
    if case.started is not None:
        bench.expect(reply.trace.request_started == case.started, f"started is {reply.trace.request_started}")
    bench.expect(reply.status == case.status, f"the status is {reply.status}, not {case.status} ({reply.error_text})")
    bench.expect(reply.body_complete == case.whole, f"the body is told to be complete: {reply.body_complete}")
    if case.body is not None:
        bench.expect(reply.body == case.body, f"the body became {reply.body[:80]!r}")
    if case.errors:
        bench.expect(reply.error in case.errors, f"the error is {reply.error}")
    if case.whole:
        bench.expect(reply.error is None, f"a whole response comes with {reply.error}")


CHECKS: Final = tuple(
    Check(name=case.name, run=partial(run_case, case), schemes=case.schemes) for case in (*CASES, *STATUS_CASES)
)
