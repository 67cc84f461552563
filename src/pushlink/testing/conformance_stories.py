"""The conformance suite's stories: what takes more than one call, another server, or a hand on the caller."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Final

from pushlink.ports import WireError, WireReply
from pushlink.testing.conformance import Bench, Check
from pushlink.testing.conformance_cases import OK, OK_BODY, answers
from pushlink.testing.wire import FaultyServer, Peer, Script, body_of, closed_port, header_values, http_reply

#: Statuses that ask to go elsewhere.
REDIRECTS: Final = (300, 301, 302, 303, 307, 308)

CALLS_AT_ONCE: Final = 60


def _keeps_answering(peer: Peer, reply: bytes = OK) -> None:
    while True:
        peer.read_request()
        peer.send(reply)


async def refused_connection(bench: Bench) -> None:
    """Nobody listens: nothing was sent."""
    with closed_port() as port:
        reply = await bench.send(bench.request(f"{'https' if bench.is_tls else 'http'}://127.0.0.1:{port}"))
    bench.expect(reply.error is WireError.CONNECT, f"the error is {reply.error}")
    bench.expect(not reply.trace.request_started and not reply.trace.connected, "something is said to have started")


async def redirect(status: int, bench: Bench) -> None:
    """A redirect is an answer: another origin is never called, and neither is the same one again."""
    with bench.server(_keeps_answering) as elsewhere:
        location = f"{elsewhere.base_url}/canary"
        with bench.server(answers(http_reply(status, b"", headers=(("Location", location),)))) as server:
            request = bench.request(server.base_url)
            reply = await bench.send(request)
            await bench.count(server, request)
        bench.expect(reply.status == status, f"the status is {reply.status}")
        bench.expect(("location", location) in reply.headers, "the Location is not told")
        bench.expect(not elsewhere.connections, "the other origin was called")


async def redirect_to_itself(bench: Bench) -> None:
    """A redirect within the origin is not followed either."""
    with bench.server(partial(_keeps_answering, reply=http_reply(307, headers=(("Location", "/other"),)))) as server:
        request = bench.request(server.base_url, fresh=False)
        reply = await bench.send(request)
        await bench.count(server, request)
    bench.expect(reply.status == 307, f"the status is {reply.status}")  # noqa: PLR2004 - the status that was answered


async def fresh_connections(bench: Bench) -> None:
    """A fresh call never rides on a connection that another call used, nor leaves one behind."""
    with bench.server(_keeps_answering) as server:
        pooled, fresh = bench.request(server.base_url, fresh=False), bench.request(server.base_url)
        replies = [await bench.send(request) for request in (pooled, fresh, fresh, pooled)]
        await bench.count(server, pooled)
        counts = sorted(len(log.requests()) for log in server.connections)
    bench.expect([r.status for r in replies] == [201] * 4, f"not every call was answered: {replies}")
    bench.expect(counts in ([1, 1, 2], [1, 1, 1, 1]), f"requests per connection: {counts}")
    bench.expect(not any(r.trace.reused_connection for r in replies[1:3]), "a fresh call reports a reused connection")
    bench.expect(replies[3].trace.reused_connection == (counts == [1, 1, 2]), "reuse is reported wrongly")


def _answers_once_then(end: str) -> Script:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(OK)
        if end == "closes while idle":
            peer.close()
            return
        if end == "resets while idle":
            peer.pause(0.03)  # a reset destroys what the other side has not read yet
            peer.reset()
            return
        if end == "closes at the next byte":
            peer.read_some(1)
            peer.close()
        elif end == "closes after the next request":
            peer.read_request()
            peer.close()

    return script


async def stale_connection(end: str, method: str, bench: Bench) -> None:
    """A kept connection turns out closed: the second call is told as it was, and is not made again in secret."""
    with bench.server(_answers_once_then(end)) as server:
        request = bench.request(server.base_url, method=method, fresh=False)
        first = await bench.send(request)
        if "idle" in end:
            await asyncio.sleep(0.06)
        second = await bench.send(request)
        await bench.count(server, request)
        seen = len(server.requests())
    bench.expect(first.status == 201, f"the first call: {first}")  # noqa: PLR2004 - as answered
    if second.status is None and not second.trace.request_started:
        bench.expect(seen == 1, "a call that is said not to have started arrived")
    if second.status is not None:
        bench.expect(len(server.connections) == 2, "an answer came from a closed connection")  # noqa: PLR2004


async def answer_to_nothing(bench: Bench) -> None:
    """A second answer that came while the connection was idle is not taken for the answer to the next request."""
    stray = http_reply(200, b'{"id":"stray"}')

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(OK + (stray if peer.number == 0 else b""))
        peer.hang()

    with bench.server(script) as server:
        request = bench.request(server.base_url, fresh=False, total_ms=500)
        await bench.send(request)
        await asyncio.sleep(0.02)
        second = await bench.send(request)
        await bench.count(server, request)
    bench.expect(b"stray" not in second.body, "the answer to nothing was taken for an answer")


async def late_answer_to_nothing(bench: Bench) -> None:
    """The same when the stray answer comes a moment after the first one was read."""
    stray = http_reply(408, b'{"id":"stray"}', headers=(("Connection", "close"),))

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(OK)
        if peer.number == 0:
            peer.pause(0.02)
            peer.send(stray)
        peer.hang()

    with bench.server(script) as server:
        request = bench.request(server.base_url, fresh=False, total_ms=500)
        await bench.send(request)
        await asyncio.sleep(0.06)
        second = await bench.send(request)
        await bench.count(server, request)
    bench.expect(b"stray" not in second.body, "the answer to nothing was taken for an answer")


async def cookies(bench: Bench) -> None:
    """A cookie that is set is never sent back."""
    reply = http_reply(200, OK_BODY, headers=(("Set-Cookie", "session=1; Path=/"),))
    with bench.server(partial(_keeps_answering, reply=reply)) as server:
        request = bench.request(server.base_url, fresh=False)
        for _ in range(2):
            await bench.send(request)
        await bench.count(server, request)


async def cancelled_in_flight(bench: Bench) -> None:
    """A cancelled call closes its socket and still tells what is known."""
    with FaultyServer(Peer.hang, tls=bench.certificates.good if bench.is_tls else None) as server:
        request = bench.request(server.base_url)
        call = asyncio.create_task(bench.send(request))
        arrived = await asyncio.to_thread(server.wait_until, lambda: len(server.requests()) == 1)
        call.cancel()
        reply = await call
        closed = await asyncio.to_thread(server.wait_until, lambda: server.connections[0].peer_closed)
        await bench.count(server, request)
    bench.expect(arrived, "the request did not arrive")
    bench.expect(closed, "the socket stays open after a cancellation")
    bench.expect(reply.error is WireError.CANCELLED, f"the error is {reply.error}")
    bench.expect(reply.trace.request_started, "a request that arrived is said not to have started")


async def cancelled_at_once(bench: Bench) -> None:
    """A call that is cancelled while it connects was not sent, or is not said to be so."""
    with bench.server(_keeps_answering, accepts=False) as server:
        request = bench.request(server.base_url)
        call = asyncio.create_task(bench.send(request))
        await asyncio.sleep(0)
        call.cancel()
        try:
            reply = await call
        except asyncio.CancelledError:
            return  # cancelled before the call began: nothing was called
        await bench.count(server, request)
    bench.expect(reply.error is WireError.CANCELLED, f"the error is {reply.error}")


async def many_at_once(bench: Bench) -> None:
    """Calls at the same time neither mix nor multiply."""

    def script(peer: Peer) -> None:
        while True:
            arrived = peer.read_request()
            peer.send(http_reply(200, body_of(arrived)))

    with bench.server(script) as server:
        requests = [
            bench.request(server.base_url, body=b'{"n":%d}' % n, fresh=bool(n % 2), total_ms=8_000, connect_ms=8_000)
            for n in range(CALLS_AT_ONCE)
        ]
        replies: list[WireReply] = await asyncio.gather(*(bench.send(request) for request in requests))
        seen = sorted(body_of(request) for request in server.requests())
    for request, reply in zip(requests, replies, strict=True):
        bench.expect(reply.body == request.body, f"another answer: {reply}")
    bench.expect(seen == sorted(request.body for request in requests), "what arrived is not what was sent")


async def injected_header(header: tuple[str, str], bench: Bench) -> None:
    """A header that would frame, address or authenticate the message is refused before anything is sent."""
    with bench.server(_keeps_answering) as server:
        request = bench.request(server.base_url, headers=(header,))
        reply = await bench.send(request)
        await bench.count(server, request)
    bench.expect(not reply.trace.request_started, "it was sent")
    bench.expect(reply.error is WireError.BEFORE_CONNECT, f"the error is {reply.error}")


async def kept_headers(bench: Bench) -> None:
    """The usual reply headers are kept, and those the request asks for; a challenge loses all but its scheme."""
    headers = (
        *(("ETag", '"1"'), ("Retry-After", "7"), ("RateLimit-Remaining", "3"), ("X-Remote-Id", "r-9")),
        *(("X-Request-Id", "q"), ("WWW-Authenticate", 'Bearer realm="unquotable"'), ("Server", "s")),
    )
    with bench.server(answers(http_reply(401, OK_BODY, headers=headers))) as server:
        reply = await bench.send(bench.request(server.base_url, keep_headers=("X-Remote-Id", "Set-Cookie")))
    kept = dict(reply.headers)
    wanted = {"etag": '"1"', "retry-after": "7", "ratelimit-remaining": "3", "x-remote-id": "r-9", "x-request-id": "q"}
    bench.expect(wanted.items() <= kept.items(), f"kept: {kept}")
    bench.expect(kept.get("www-authenticate") == "Bearer", "the challenge is kept whole")
    bench.expect("server" not in kept, "a header was kept unasked")


async def host_header(bench: Bench) -> None:
    """The Host is that of the base URL, and is there once."""
    with bench.server(answers(OK)) as server:
        await bench.send(bench.request(server.base_url))
        hosts = header_values(server.requests()[0], "host")
    bench.expect(hosts == [f"{server.host}:{server.port}"], f"the Host became {hosts}")


async def deadline_is_total(bench: Bench) -> None:
    """Steady progress does not extend the call."""

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.pause(0.2)
        peer.send(OK[:30])
        peer.pause(0.2)
        peer.send(OK[30:60])
        peer.pause(0.2)
        peer.send(OK[60:])

    with bench.server(script) as server:
        request = bench.request(server.base_url, total_ms=450)
        start = time.monotonic()
        reply = await bench.send(request)
        took_s = time.monotonic() - start
        await bench.count(server, request)
    bench.expect(reply.error is WireError.DEADLINE, f"the error is {reply.error} after {took_s:.2f} s")


async def closed_transport(bench: Bench) -> None:
    """After `close` nothing is sent, and it is said so."""
    with bench.server(_keeps_answering) as server:
        request = bench.request(server.base_url, fresh=False)
        await bench.send(request)
        await bench.transport.close()
        reply = await bench.send(request)
        await bench.count(server, request)
    bench.expect(not reply.trace.request_started, "a closed transport sent")


_INJECTED: Final = (
    *(("X-A", "1\r\nX-B: 2"), ("X-A", "1\n"), ("X-A", "\x00"), ("X-A\r\nX-B", "1"), ("X A", "1"), ("X-A", "\u00e9")),
    *(("Host", "elsewhere.test"), ("Content-Length", "0"), ("Transfer-Encoding", "chunked"), ("Connection", "close")),
    *(("Authorization", "Bearer x"), ("Cookie", "a=b"), ("Proxy-Authorization", "x"), ("Expect", "100-continue")),
    *(("X-A", "x" * 9_000), ("", "1")),
)

STORIES: Final = (
    Check(name="a refused connection", run=refused_connection),
    *(Check(name=f"a redirect {status} elsewhere", run=partial(redirect, status)) for status in REDIRECTS),
    Check(name="a redirect to itself", run=redirect_to_itself),
    Check(name="fresh connections", run=fresh_connections),
    *(
        Check(name=f"a kept connection {end}, {method}", run=partial(stale_connection, end, method))
        for end in (
            *("closes while idle", "resets while idle", "closes at the next byte", "closes after the next request"),
        )
        for method in ("PUT", "POST", "PATCH", "DELETE", "GET")
    ),
    Check(name="an answer to nothing", run=answer_to_nothing),
    Check(name="a late answer to nothing", run=late_answer_to_nothing),
    Check(name="cookies", run=cookies),
    Check(name="cancelled in flight", run=cancelled_in_flight),
    Check(name="cancelled at once", run=cancelled_at_once),
    Check(name="many at once", run=many_at_once),
    *(
        Check(name=f"injected header {number}", run=partial(injected_header, header), schemes=("http",))
        for number, header in enumerate(_INJECTED)
    ),
    Check(name="kept headers", run=kept_headers),
    Check(name="the Host header", run=host_header),
    Check(name="the deadline is total", run=deadline_is_total),
    Check(name="a closed transport", run=closed_transport),
)
