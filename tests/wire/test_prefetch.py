from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from pushlink.adapters.aiohttp_transport import AiohttpTransport
from pushlink.adapters.egress import EgressPolicy
from pushlink.adapters.prefetch import open_session
from pushlink.adapters.wire import RequestRefused
from pushlink.errors import Code
from pushlink.ports import Secret, WireError, WireReply, WireRequest
from pushlink.protocol.contracts import Prefetch, ProfileContract
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.messages import creating, reading
from pushlink.testing.remote import FaultyRemote
from pushlink.testing.verbs import answer, hang

PREFETCH = {
    "path": "/session",
    "headers": {"X-CSRF-Token": "Fetch"},
    "capture": "X-CSRF-Token",
    "expired": [{"status": [403], "header": "x-csrf-token", "equals": "Required"}],
}
TOKEN = "canary-session-token-51"
COOKIE = "canary-session-cookie-51"


class Rotating:
    """A credential whose generation a test can change."""

    def __init__(self) -> None:
        self.current = "g1"

    def generation(self, reference: str, *, tenant: str) -> str:
        return self.current

    def resolve(self, reference: str, *, tenant: str) -> Secret:
        return Secret(value=f"secret-of-{tenant or 'nobody'}", generation=self.current)


@pytest.fixture
def remote() -> Iterator[FaultyRemote]:
    """A remote that opens a session for everybody who asks."""
    with FaultyRemote(RemoteOptions()) as one:
        opened(one, TOKEN)
        yield one


def opened(remote: FaultyRemote, token: str, *cookies: str, status: int = 200) -> None:
    headers = [("X-CSRF-Token", token)]
    headers += [("Set-Cookie", cookie) for cookie in cookies or (f"sid={COOKIE}; Path=/; HttpOnly", "lang=en")]
    remote.always(answer(status, {}, headers=headers), when=reading)


def request(remote: FaultyRemote, *, tenant: str = "", total: str = "2s", **prefetch: Any) -> WireRequest:
    document = {
        "base_url": remote.base_url,
        "credential_ref": "env:X",
        "timeouts": {"connect": "1s", "total": total},
        "session": {"prefetch": {**PREFETCH, **prefetch}},
    }
    return WireRequest(
        profile=ProfileContract.model_validate_json(json.dumps(document)),
        tenant=tenant,
        method="POST",
        path="/people",
        headers=(("Content-Type", "application/json"),),
        body=b'{"name": "Ada"}',
        fresh_connection=True,
        keep_headers=("x-csrf-token",),
    )


def run(work: Callable[[AiohttpTransport], Any], credentials: Rotating | None = None) -> Any:
    async def call() -> Any:
        async with AiohttpTransport(credentials or Rotating(), egress=EgressPolicy(allow_loopback=True)) as transport:
            return await work(transport)

    return asyncio.run(call())


def sends(*requests: WireRequest) -> list[WireReply]:
    async def each(transport: AiohttpTransport) -> list[WireReply]:
        return [await transport.send(one) for one in requests]

    replies: list[WireReply] = run(each)
    return replies


def told(remote: FaultyRemote, name: str) -> list[str | None]:
    return [logged.asked.header(name) for logged in remote.log]


def test_a_session_is_opened_once_and_carried_by_every_request(remote: FaultyRemote) -> None:
    """One GET, whose token and cookies go with each request after it; its own question is not repeated."""
    first, second = sends(request(remote), request(remote))
    assert (first.status, second.status) == (201, 201)
    assert [logged.asked.method for logged in remote.log] == ["GET", "POST", "POST"]
    assert told(remote, "X-CSRF-Token") == ["Fetch", TOKEN, TOKEN]
    assert told(remote, "Cookie") == [None, f"sid={COOKIE}; lang=en", f"sid={COOKIE}; lang=en"]
    assert told(remote, "Authorization") == ["Bearer secret-of-nobody"] * 3


@pytest.mark.rule("C-059", "D-34")
def test_nothing_of_a_session_is_in_a_reply(remote: FaultyRemote) -> None:
    """Token and cookies live in the transport alone: no evidence, no repr has them."""
    [reply] = sends(request(remote))
    assert TOKEN not in repr(reply)
    assert COOKIE not in repr(reply)
    raw = [(b"X-CSRF-Token", TOKEN.encode()), (b"Set-Cookie", f"a={COOKIE}".encode())]
    kept = open_session(Prefetch.model_validate_json(json.dumps(PREFETCH)), 200, raw)
    assert kept.headers == (("X-CSRF-Token", TOKEN), ("Cookie", f"a={COOKIE}"))
    assert TOKEN not in repr(kept)
    assert COOKIE not in repr(kept)


def test_many_requests_at_once_open_one_session(remote: FaultyRemote) -> None:
    """The first opens it, the others wait for it."""

    async def work(transport: AiohttpTransport) -> Sequence[WireReply]:
        return await asyncio.gather(*(transport.send(request(remote)) for _ in range(8)))

    assert {reply.status for reply in run(work)} == {201}
    assert [logged.asked.method for logged in remote.log].count("GET") == 1


def test_tenants_and_credential_generations_have_sessions_of_their_own(remote: FaultyRemote) -> None:
    """What one tenant opened is never carried by another's request, nor by a rotated credential."""
    credentials = Rotating()

    async def work(transport: AiohttpTransport) -> None:
        for tenant in ("a", "b", "a"):
            await transport.send(request(remote, tenant=tenant))
        credentials.current = "g2"
        await transport.send(request(remote, tenant="a"))

    run(work, credentials)
    assert [logged.asked.method for logged in remote.log].count("GET") == 3


def test_a_session_that_is_over_is_opened_anew_by_the_next_request(remote: FaultyRemote) -> None:
    """The transport sends nothing twice: the refusal comes back as it is, and the next send opens another session."""
    remote.next(answer(403, {}, headers=[("X-CSRF-Token", "Required")]), when=creating)
    refused, accepted = sends(request(remote), request(remote))
    assert (refused.status, accepted.status) == (403, 201)
    assert [logged.asked.method for logged in remote.log] == ["GET", "POST", "GET", "POST"]
    remote.next(answer(403, {}), when=creating)
    before = len(remote.log)
    sends(request(remote), request(remote))
    assert [logged.asked.method for logged in remote.log[before:]] == ["GET", "POST", "POST"]


@pytest.mark.rule("D-05")
@pytest.mark.parametrize("verb", [answer(500), answer(302), answer(200, {}), hang()], ids=lambda verb: verb.name)
def test_a_session_that_does_not_open_proves_that_nothing_was_sent(remote: FaultyRemote, verb: Any) -> None:
    """No byte of the request itself has left: it may be sent again."""
    remote.next(verb, when=reading)
    [reply] = sends(request(remote, total="600ms"))
    assert reply.error in {WireError.BEFORE_CONNECT, WireError.DEADLINE}
    assert not reply.trace.request_started
    assert remote.creates == 0


@pytest.mark.parametrize(
    ("status", "raw"),
    [
        (None, []),
        (404, [(b"X-CSRF-Token", b"t")]),
        (200, []),
        (200, [(b"X-CSRF-Token", b"a"), (b"X-CSRF-Token", b"b")]),
        (200, [(b"X-CSRF-Token", b"a\r\nX-Evil: 1")]),
        (200, [(b"X-CSRF-Token", b"")]),
        (200, [(b"X-CSRF-Token", b"x" * 9_000)]),
    ],
)
def test_an_answer_without_one_usable_token_opens_nothing(status: int | None, raw: list[tuple[bytes, bytes]]) -> None:
    """A hostile answer cannot put another header into our requests."""
    with pytest.raises(RequestRefused):
        open_session(Prefetch.model_validate_json(json.dumps(PREFETCH)), status, raw)


def test_a_cookie_that_could_break_a_header_is_left_out() -> None:
    """Only plain pairs are carried, the last one of a name."""
    raw = [(b"X-CSRF-Token", b"t")]
    raw += [(b"Set-Cookie", cookie) for cookie in (b"a=1", b"b=x y", b"=z", b"c", b"a=2; Path=/", b"d=\xff")]
    rule = Prefetch.model_validate_json(json.dumps(PREFETCH))
    assert open_session(rule, 204, raw).headers == (("X-CSRF-Token", "t"), ("Cookie", "a=2"))
    plain = rule.model_copy(update={"cookies": False})
    assert open_session(plain, 200, raw).headers == (("X-CSRF-Token", "t"),)


def test_a_refusal_that_the_pack_names_is_tried_once_more_and_then_parks() -> None:
    """The protocol's reading: not applied, opened anew once, and held as a credential's business the second time."""
    from protocol.examples import action, profile
    from protocol.examples import answer as told_by
    from pushlink.protocol.outcome import History, interpret
    from pushlink.protocol.replies import Disposition, Effect
    from pushlink.protocol.states import Operation

    remote = profile(session={"prefetch": PREFETCH})
    over = told_by(403, headers=(("x-csrf-token", "Required"),))
    for operation in (Operation.CREATE, Operation.UPDATE):
        first = interpret(operation, action(), remote, over, History())
        assert (first.effect, first.disposition) == (Effect.NOT_APPLIED, Disposition.REAUTH_ONCE)
        again = interpret(operation, action(), remote, over, History(reauthenticated=True))
        assert (again.effect, again.disposition, again.code) == (
            Effect.NOT_APPLIED,
            Disposition.PARK,
            Code.UNAUTHENTICATED,
        )
        doubtful = interpret(operation, action(), remote, over, History(in_doubt=True))
        assert doubtful.effect is Effect.UNKNOWN
    other = interpret(Operation.CREATE, action(), remote, told_by(403), History())
    assert other.disposition is Disposition.TERMINAL
