"""A faulty server on raw sockets: it misbehaves exactly where a script says, and logs every byte it was sent.

A script is a function of a `Peer`, run in a thread of its own for each connection. When it returns, the connection is
left open and whatever still arrives is logged too, so that a request somebody sends again is seen. Loopback only.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self, TypeAlias

#: No script waits longer for a peer than this; a test that reaches it has failed for another reason.
PATIENCE_S: Final = 10.0

_HEAD_END: Final = b"\r\n\r\n"
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class ConnectionLog:
    """What one connection brought: every byte of the application, and how it ended."""

    received: bytearray = field(default_factory=bytearray)
    peer_closed: bool = False
    handshake_failed: bool = False

    def requests(self) -> list[bytes]:
        """The requests in order, each with its body; the last one may be incomplete."""
        return split_requests(bytes(self.received))


def split_requests(data: bytes) -> list[bytes]:
    """Cut the bytes of one connection into requests; what follows the last whole one is a begun request."""
    found: list[bytes] = []
    while data:
        head, separator, rest = data.partition(_HEAD_END)
        size = _body_size(head, rest) if separator else None
        if size is None or size > len(rest):
            return [*found, data]
        found.append(head + separator + rest[:size])
        data = rest[size:]
    return found


def header_values(request: bytes, name: str) -> list[str]:
    """The values of a header of a request, in order."""
    lines = request.partition(_HEAD_END)[0].split(b"\r\n")[1:]
    pairs = [line.decode("latin-1").partition(":") for line in lines]
    return [value.strip() for key, _, value in pairs if key.lower() == name.lower()]


def body_of(request: bytes) -> bytes:
    """The body of a request as it was sent."""
    return request.partition(_HEAD_END)[2]


def _body_size(head: bytes, rest: bytes) -> int | None:
    if any(value.lower() == "chunked" for value in header_values(head + _HEAD_END, "transfer-encoding")):
        end = rest.find(b"0\r\n\r\n")
        return end + len(b"0\r\n\r\n") if end >= 0 else None
    lengths = header_values(head + _HEAD_END, "content-length")
    return int(lengths[0]) if lengths else 0


class PeerGone(Exception):
    """The other side closed, or the server stops; a script ends with it."""


class Peer:
    """One connection as a script sees it."""

    def __init__(self, sock: socket.socket, log: ConnectionLog, stopping: threading.Event, number: int) -> None:
        self.sock = sock
        self.log = log
        self.number = number  # 0 for the first connection of the server
        self.is_open = True
        self._stopping = stopping
        self._unread = b""

    def start_tls(self, context: ssl.SSLContext) -> bool:
        """Become the server of a TLS connection; `False` when the handshake failed."""
        try:
            self.sock = context.wrap_socket(self.sock, server_side=True)
        except OSError:
            self.log.handshake_failed = True
            return False
        return True

    def _receive(self, size: int = 65_536) -> bytes:
        try:
            data = self.sock.recv(size)
        except OSError as exc:
            self.log.peer_closed = not isinstance(exc, TimeoutError)
            raise PeerGone from exc
        if not data:
            self.log.peer_closed = True
            raise PeerGone
        self.log.received += data
        return data

    def read_head(self) -> bytes:
        """Read up to the empty line that ends the headers; more of the body may come with it."""
        while _HEAD_END not in self._unread:
            self._unread += self._receive()
        head, _, self._unread = self._unread.partition(_HEAD_END)
        return head + _HEAD_END

    def read_request(self) -> bytes:
        """Read one request, all of it."""
        head = self.read_head()
        while (size := _body_size(head.removesuffix(_HEAD_END), self._unread)) is None or size > len(self._unread):
            self._unread += self._receive()
        body, self._unread = self._unread[:size], self._unread[size:]
        return head + body

    def read_some(self, size: int) -> bytes:
        """Read at most so many bytes, once."""
        return self._receive(size)

    def send(self, data: bytes) -> None:
        """Send all of it."""
        try:
            self.sock.sendall(data)
        except OSError as exc:
            self.log.peer_closed = True
            raise PeerGone from exc

    def drip(self, data: bytes, *, pause_s: float) -> None:
        """Send byte by byte."""
        for byte in data:
            self.send(bytes([byte]))
            self.pause(pause_s)

    def flood(self, data: bytes, *, limit: int) -> None:
        """Send the same again and again, until the peer closes or the limit is reached."""
        sent = 0
        while sent < limit:
            self.send(data)
            sent += len(data)

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond the life of the server."""
        if self._stopping.wait(seconds):
            raise PeerGone

    def hang(self) -> None:
        """Say nothing more; whatever the peer sends is logged until it closes."""
        while True:
            self._receive()

    def half_close(self) -> None:
        """Say that nothing more will be sent, and go on reading."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close in order, which resets when something was left unread."""
        self.is_open = False
        with contextlib.suppress(OSError):
            self.sock.close()

    def reset(self) -> None:
        """Close with a reset, whatever was read."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.close()


#: What a server does with a connection.
Script: TypeAlias = Callable[[Peer], None]


class FaultyServer:
    """Listens on a free port of loopback and runs a script for each connection. Use it in a `with`.

    `before_tls` runs on the raw socket ahead of the handshake; with `accepts=False` the port listens, and the kernel
    completes connections that nobody ever takes.
    """

    def __init__(
        self,
        script: Script,
        *,
        tls: ssl.SSLContext | None = None,
        before_tls: Script | None = None,
        accepts: bool = True,
        host: str = "127.0.0.1",
    ) -> None:
        self._script = script
        self._tls = tls
        self._before_tls = before_tls
        self._accepts = accepts
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._peers: list[Peer] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server((host, 0), backlog=256)
        self.host = host
        self.port: int = self._listener.getsockname()[1]
        self.connections: list[ConnectionLog] = []
        self.errors: list[BaseException] = []

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return f"{'https' if self._tls else 'http'}://{self.host}:{self.port}"

    def requests(self) -> list[bytes]:
        """Every request of every connection, begun ones included."""
        with self._lock:
            logs = list(self.connections)
        return [request for log in logs for request in log.requests()]

    def wait_until(self, holds: Callable[[], bool], *, seconds: float = 2.0) -> bool:
        """Wait for something that a connection's thread will notice soon."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                return False
            time.sleep(0.002)
        return True

    def __enter__(self) -> Self:
        if self._accepts:
            self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Close everything and wait for the threads."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            peers, threads = list(self._peers), list(self._threads)
        for peer in peers:
            with contextlib.suppress(OSError):
                peer.sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(PATIENCE_S)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True, name="faulty-server")
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.settimeout(PATIENCE_S)
            # Without this a small answer over TLS waits for the acknowledgement of the session tickets, some 40 ms.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            log = ConnectionLog()
            with self._lock:
                peer = Peer(sock, log, self._stopping, number=len(self.connections))
                self.connections.append(log)
                self._peers.append(peer)
            self._start(self._serve, peer)

    def _serve(self, peer: Peer) -> None:
        try:
            with contextlib.suppress(PeerGone):
                if self._before_tls is not None:
                    self._before_tls(peer)
                if peer.is_open and self._tls is not None and not peer.start_tls(self._tls):
                    return
                if peer.is_open:
                    self._script(peer)
                if peer.is_open:
                    peer.hang()
        except Exception as exc:  # noqa: BLE001 - a script's mistake must reach the test, not the thread's end
            self.errors.append(exc)
        finally:
            peer.close()


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """A port of loopback that refuses connections: it is bound, so nobody else gets it, and does not listen."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


def http_reply(
    status: int,
    body: bytes = b"",
    *,
    headers: tuple[tuple[str, str], ...] = (),
    length: int | None = -1,
    reason: str = "Whatever",
) -> bytes:
    """The bytes of a response; `length` is the Content-Length to claim, by default the true one, `None` for none."""
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers)]
    if length is not None:
        lines.append(f"Content-Length: {len(body) if length < 0 else length}")
    return "\r\n".join(lines).encode("latin-1") + _HEAD_END + body


def chunked_reply(
    status: int, *chunks: bytes, end: bytes = b"0\r\n\r\n", headers: tuple[tuple[str, str], ...] = ()
) -> bytes:
    """The bytes of a response in chunks; another `end` leaves the last chunk out."""
    head = http_reply(status, headers=(*headers, ("Transfer-Encoding", "chunked")), length=None)
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + end
