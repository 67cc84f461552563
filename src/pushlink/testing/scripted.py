"""A transport without sockets: each send plays a verb on a collection API in memory and says what a wire would have.

For tests that must run a thousand sends, such as a death at every effect. What it reports is as true as what a real
transport reports: `request_started` is False exactly when no byte could have left, and a verb that stores has stored.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from pushlink.adapters.wire import decode_body, keep_headers, present_credential
from pushlink.ports import Credentials, Transport, WireError, WireReply, WireRequest, WireTrace
from pushlink.testing.collection import Collections, RemoteOptions
from pushlink.testing.messages import Asked, Logged, Told
from pushlink.testing.verbs import MISSING_BYTES, NOTHING_DONE, Ending, Reach, Script, Verb

_SENT: Final = WireTrace(connected=True, request_started=True, request_sent=True)

#: What a transport sees of a request that does not arrive.
_ON_THE_WAY: Final = {
    Reach.NOT_STARTED: (WireError.BEFORE_CONNECT, WireTrace()),
    Reach.REFUSED: (WireError.CONNECT, WireTrace()),
    Reach.UNTRUSTED: (WireError.CERTIFICATE, WireTrace()),
    Reach.HALF_WRITTEN: (WireError.WRITE, WireTrace(connected=True, request_started=True)),
    Reach.UNREAD: (WireError.READ, _SENT),
}


class ScriptedTransport(Transport):
    """A remote and the way to it in one. `credentials` are needed only by a remote that wants a token."""

    def __init__(self, options: RemoteOptions | None = None, *, credentials: Credentials | None = None) -> None:
        self.api = Collections(options)
        self.script = Script()
        self.log: list[Logged] = []
        self.sent: list[WireRequest] = []
        self._credentials = credentials
        self._numbers = itertools.count(1)

    async def send(self, request: WireRequest) -> WireReply:
        """Send at once."""
        return self.send_now(request)

    async def close(self) -> None:
        """There is nothing to release; it goes on working afterwards."""

    def send_now(self, request: WireRequest) -> WireReply:
        """Send without an event loop: what a synchronous driver takes as its `send`."""
        self.sent.append(request)
        asked = self._asked(request)
        verb = self.script.choose(asked)
        told, changed = self.api.handle(asked) if verb.stores else (NOTHING_DONE, False)
        told = verb.answer or told
        reply = _reply(request, verb, told)
        self.log.append(Logged(asked=asked, verb=verb.name, status=reply.status, changed=changed))
        return reply

    def _asked(self, request: WireRequest) -> Asked:
        reference, headers, path = request.profile.credential_ref, request.headers, request.path
        if self._credentials is not None and reference is not None and request.profile.auth.kind != "none":
            secret = self._credentials.resolve(reference, tenant=request.tenant)
            shown = present_credential(request.profile.auth, secret.value, reference)
            headers = headers if shown.header is None else (*headers, shown.header)
            path += (("&" if "?" in path else "?") + shown.query) if shown.query else ""
        return Asked(
            number=next(self._numbers),
            method=request.method,
            target=urlsplit(request.profile.base_url).path.rstrip("/") + "/" + path.lstrip("/"),
            headers=headers,
            body=request.body,
            prefix=self.api.options.prefix,
        )


def _reply(request: WireRequest, verb: Verb, told: Told) -> WireReply:
    if verb.reach is not Reach.ARRIVES:
        error, trace = _ON_THE_WAY[verb.reach]
        return WireReply(trace=trace, error=error, error_text=verb.name)
    if verb.ending is Ending.HANGING or verb.delay_s * 1_000 >= request.profile.timeouts.total_ms:
        return WireReply(trace=_SENT, error=WireError.DEADLINE, error_text="the deadline is over")
    match verb.ending:
        case Ending.SILENT:
            return WireReply(trace=_SENT, error=WireError.READ, error_text="closed without an answer")
        case Ending.RAW:
            return WireReply(trace=_SENT, error=WireError.MALFORMED, error_text="the answer is not HTTP")
        case Ending.SHORT:
            return _broken(request, told, told.body, claims=len(told.body) + MISSING_BYTES)
        case Ending.CUT:
            return _cut(request, verb, told)
        case Ending.BAD_ENCODING:
            garbled = replace(told, headers=(*told.headers, ("Content-Encoding", "gzip")), body=b"\x00" + told.body)
            return _whole(request, garbled)
    return _whole(request, told)


def _whole(request: WireRequest, told: Told, *, claims: int | None = None) -> WireReply:
    headers = keep_headers(_raw(told, len(told.body) if claims is None else claims), request.keep_headers)
    bound = request.profile.reply_bytes_max
    decoded = decode_body(told.body, [v for n, v in headers if n == "content-encoding"], bound)
    problem = decoded.problem or ("the body is longer than its bound" if len(told.body) > bound else "")
    return WireReply(
        trace=replace(_SENT, response_started=True, response_complete=True),
        error_text=problem,
        status=told.status,
        headers=headers,
        body=decoded.body[:bound],
        body_complete=not problem,
        body_size=len(told.body),
        body_digest=hashlib.sha256(told.body).hexdigest() if told.body else "",
    )


def _broken(request: WireRequest, told: Told, body: bytes, *, claims: int) -> WireReply:
    return replace(
        _whole(request, replace(told, body=body), claims=claims),
        trace=replace(_SENT, response_started=True),
        error=WireError.READ,
        error_text="closed in the middle of the body",
        body_complete=False,
    )


def _cut(request: WireRequest, verb: Verb, told: Told) -> WireReply:
    head = len(told.to_bytes()) - len(told.body)
    at = head + len(told.body) // 2 if verb.cut_at is None else verb.cut_at
    if at < head:
        return WireReply(trace=_SENT, error=WireError.READ, error_text="closed in the middle of the headers")
    return _broken(request, told, told.body[: at - head], claims=len(told.body))


def _raw(told: Told, length: int) -> list[tuple[bytes, bytes]]:
    lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in told.headers]
    return [*lines, (b"Content-Length", str(length).encode())]
