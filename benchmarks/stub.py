"""A remote without delay: answers every POST with 201 and a fresh id, as fast as one process can.

Run as a process of its own, so that its CPU is not the worker's: `python -m benchmarks.stub`. It prints its port, and
on each line of standard input the number of creates that it has accepted.
"""

from __future__ import annotations

import asyncio
import sys


class Stub(asyncio.Protocol):
    """One connection; HTTP/1.1 with keep-alive, requests with a Content-Length."""

    accepted = 0

    def __init__(self) -> None:
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for answers."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every whole request in the buffer."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            place = head.find(b"content-length:")
            length = int(head[place + 15 :].split(b"\r\n", 1)[0]) if place >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            self._buffer = self._buffer[end + 4 + length :]
            Stub.accepted += 1
            body = b'{"id":%d}' % Stub.accepted
            closes = b"connection: close" in head
            self._transport.write(  # type: ignore[attr-defined]
                b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s"
                % (len(body), b"Connection: close\r\n" if closes else b"", body)
            )
            if closes:
                self._transport.close()


async def serve() -> None:
    """Listen on a free loopback port until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Stub, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        print(Stub.accepted, flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve())
