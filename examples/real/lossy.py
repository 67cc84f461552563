"""A proxy in front of a real server that loses answers: the server has done its work, and nobody hears of it.

Every so many writes it passes the request on, waits for the whole answer, and closes the caller's connection without a
byte of it. Everything else goes through as it came.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Self

HOST = "127.0.0.1"
PATIENCE_S = 60.0
WRITES = (b"POST", b"PUT", b"PATCH", b"DELETE")


class LossyProxy:
    """A TCP proxy that understands as much of HTTP/1.1 as it needs. Use it in a `with`."""

    def __init__(self, upstream_port: int, port: int, *, every: int) -> None:
        self.url = f"http://{HOST}:{port}"
        self.writes = 0
        self.lost: list[bytes] = []  # the bodies of the writes whose answers were lost
        self._upstream = upstream_port
        self._port = port
        self._every = every
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lossy-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)

    async def _listen(self) -> None:
        await asyncio.start_server(self._serve, HOST, self._port, backlog=1_024)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests of one connection, one after the other; each goes over a connection of its own."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while (request := await _message(reader)) is not None:
                answer = await asyncio.wait_for(self._ask(request), PATIENCE_S)
                if self._loses(request):
                    break
                writer.write(answer)
                await writer.drain()
        writer.close()

    async def _ask(self, request: tuple[bytes, bytes]) -> bytes:
        reader, writer = await asyncio.open_connection(HOST, self._upstream)
        try:
            writer.write(b"".join(request))
            await writer.drain()
            answer = await _message(reader)
            return b"" if answer is None else b"".join(answer)
        finally:
            writer.close()

    def _loses(self, request: tuple[bytes, bytes]) -> bool:
        head, body = request
        if not head.startswith(WRITES):
            return False
        self.writes += 1
        if self.writes % self._every:
            return False
        self.lost.append(body)
        return True


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes] | None:
    """Head and body of one message as they are on the wire; `None` when the other side has closed."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    fields = dict(_fields(head.split(b"\r\n")[1:]))
    if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
        return head, await _chunks(reader)
    return head, await reader.readexactly(int(fields.get(b"content-length", b"0")))


def _fields(lines: Iterable[bytes]) -> Iterable[tuple[bytes, bytes]]:
    for line in lines:
        name, colon, value = line.partition(b":")
        if colon:
            yield name.strip().lower(), value.strip()


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while True:
        size = await reader.readuntil(b"\r\n")
        chunk = await reader.readexactly(int(size.split(b";")[0], 16) + 2)
        parts += [size, chunk]
        if chunk == b"\r\n":
            return b"".join(parts)
