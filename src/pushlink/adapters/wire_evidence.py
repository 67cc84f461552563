"""The evidence of one send, taken inside the HTTP library just before the first byte and just after the last.

An `Exchange` is written as things happen and can be turned into a reply at any moment, so a deadline or a cancellation
tells as much as a response does. Its guard is the only way from a call to the wire, and lets one request through.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_middlewares import ClientHandlerType
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

from pushlink.adapters.wire import BodyKeeper, decode_body
from pushlink.flows.uptime import uptime_s
from pushlink.ports import WireError, WireReply, WireTrace

#: So many interim responses may wait to be read; more come from a peer that means to keep us busy.
INTERIM_RESPONSES_MAX: Final = 32


class NotWritten(Exception):
    """A connection that turned out useless before the first byte was written to it."""


class Once(aiohttp.ClientError):
    """Wraps every failure of the one dispatch, so that the library has nothing to retry; the cause is inside."""


class Exchange:
    """What is known of one send so far; written as things happen, and turned into a reply at any moment."""

    __slots__ = (
        *("connected", "dispatched", "drained", "framed", "headers", "keeper", "peer_check", "raw", "reused"),
        *("started", "status", "transport", "until_s", "whole", "written"),
    )

    def __init__(self, *, bound: int, peer_check: Callable[[str], None], until_s: float = math.inf) -> None:
        self.dispatched = self.connected = self.reused = self.started = False
        self.written = self.drained = self.whole = self.framed = False
        self.status: int | None = None
        self.headers: tuple[tuple[str, str], ...] = ()
        self.raw: tuple[tuple[bytes, bytes], ...] = ()  # for this transport alone: an answer that is stored has none
        self.keeper = BodyKeeper(bound)
        self.transport: asyncio.Transport | None = None
        self.peer_check = peer_check
        self.until_s = until_s  # uptime at which the call's deadline is over

    async def guard(self, request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
        """The one dispatch of this call: a middleware that no second one gets past."""
        if self.dispatched or not isinstance(request, OnceRequest):
            msg = "a second dispatch, or a request that gives no evidence, is not let through"
            raise Once(msg)
        self.dispatched = True
        request.exchange = self
        try:
            return await handler(request)
        except Exception as exc:
            raise Once from exc

    def before_first_byte(self, conn: Connection) -> None:
        """The last moment of proof: check the connection, then count the request as started."""
        protocol = conn.protocol
        self.transport = transport = conn.transport
        self.connected = True
        # `should_close` tells of bytes that nobody asked for: an answer to another request, or a peer that talks first.
        if not isinstance(protocol, OnceHandler) or transport is None or conn.closed or protocol.should_close:
            msg = "the connection was closed or out of step before the first byte"
            raise NotWritten(msg)
        if uptime_s() > self.until_s:
            msg = "the call's deadline was over before the first byte"
            raise NotWritten(msg)
        self.reused = protocol.requests > 0
        protocol.requests += 1
        peer = transport.get_extra_info("peername")
        self.peer_check(str(peer[0]) if peer else "")
        self.started = True

    def after_body(self, conn: Connection) -> None:
        """The library is done with the body: was all of it handed over?"""
        protocol, transport = conn.protocol, conn.transport
        self.written = protocol is not None and transport is not None and protocol.exception() is None
        self.drained = self.written and transport is not None and transport.get_write_buffer_size() == 0

    def trace(self) -> WireTrace:
        """The evidence of this moment."""
        return WireTrace(
            connected=self.connected,
            request_started=self.started,
            request_sent=self.written and (self.drained or self.status is not None),
            response_started=self.status is not None,
            response_complete=self.whole and self.framed,
            reused_connection=self.reused,
        )

    def reply(self, error: WireError | None = None, text: str = "") -> WireReply:
        """What came back, whole or not."""
        body, complete = self.keeper.prefix, self.whole and self.framed
        if self.whole and not self.keeper.is_whole:
            complete, text = False, text or "the body is longer than its bound"
        elif self.whole and not self.framed:
            text = text or "the body has no length and no chunks: its end cannot be told from a lost connection"
        if complete:
            codings = [value for name, value in self.headers if name == "content-encoding"]
            if codings:
                decoded = decode_body(body, codings, self.keeper.bound)
                body = decoded.body
                if decoded.problem:
                    complete, text = False, decoded.problem
        return WireReply(
            trace=self.trace(),
            error=error,
            error_text=text,
            status=self.status,
            headers=self.headers,
            body=body,
            body_complete=complete,
            body_size=self.keeper.size,
            body_digest=self.keeper.digest,
        )

    def abort(self) -> None:
        """Close the socket at once, whatever is still buffered."""
        if self.transport is not None:
            self.transport.abort()


class OnceHandler(ResponseHandler):
    """A connection that counts its requests, and tells the reader at once when what arrives makes no sense."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.requests = 0

    def data_received(self, data: bytes) -> None:
        """Take what arrived; a flood of interim responses ends the connection before it ends our patience."""
        super().data_received(data)
        if len(self) > INTERIM_RESPONSES_MAX and self.transport is not None:
            self._buffer.clear()
            self.set_exception(aiohttp.ServerDisconnectedError("too many interim responses"))
            self.transport.abort()
        # The library tells whoever waits for a response, but not whoever reads the body of one.
        error, payload = self.exception(), self._payload
        if error is not None and payload is not None and payload.exception() is None:
            payload.set_exception(error)


class OnceConnector(aiohttp.TCPConnector):
    """A connector whose connections are `OnceHandler`s."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        handler: type[ResponseHandler] = OnceHandler
        self._factory = partial(handler, self._loop)


class OnceRequest(aiohttp.ClientRequest):
    """A request that reports to its exchange just before its first byte and just after its last."""

    exchange: Exchange | None = None

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """Write to a connection, after the last checks."""
        exchange = self.exchange
        if exchange is None:
            msg = "a request without evidence is not sent"
            raise NotWritten(msg)
        exchange.before_first_byte(conn)
        response = await super().send(conn)
        if not self.body:
            exchange.after_body(conn)
        return response

    async def write_bytes(
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> None:
        """Write the body."""
        await super().write_bytes(writer, conn, content_length)
        if self.exchange is not None:
            self.exchange.after_body(conn)
