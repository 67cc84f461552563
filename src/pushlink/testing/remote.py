"""A faulty remote on loopback: a small collection API over real HTTP, which misbehaves exactly where a script says.

    with FaultyRemote(RemoteOptions(ids="uuid", token="s3cret")) as remote:
        remote.next(store_then_close(), when=creating)      # the next create takes effect and is never answered
        ...                                                 # run what is tested against remote.base_url
        assert remote.creates_by(lambda record: record.document["email"]) == {"a@example.org": 1}

It counts what it accepted and logs every request byte by byte, so it is a witness that knows nothing of pushlink. It
runs an event loop in a thread of its own; every method may be called from any thread. Loopback only.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from pushlink.testing.collection import Collections, Record, RemoteOptions
from pushlink.testing.messages import Asked, Logged, Told, When, anything
from pushlink.testing.verbs import MISSING_BYTES, NOTHING_DONE, PLAINLY, Ending, Reach, Script, Verb

T = TypeVar("T")

#: The longest head of a request that is read, and how long starting and stopping may take.
HEAD_BYTES_MAX: Final = 1_048_576
PATIENCE_S: Final = 10.0

_HOST: Final = "127.0.0.1"

#: Verbs that only a wire can play: the request would never come here.
_NOT_HERE: Final = frozenset({Reach.NOT_STARTED, Reach.REFUSED, Reach.UNTRUSTED, Reach.HALF_WRITTEN})


class FaultyRemote:
    """A scriptable HTTP server. Use it in a `with`, or call `start` and `close`. `port` 0 takes a free one."""

    def __init__(self, options: RemoteOptions | None = None, *, port: int = 0) -> None:
        self.api = Collections(options)
        self.port = port
        self._script = Script()
        self._log: list[Logged] = []
        self._unread: list[Verb] = []
        self._connections = 0
        self._asked = 0
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faulty-remote", daemon=True)
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    # ---------------------------------------------------------------------------------- its life

    def start(self) -> Self:
        """Listen. Answers with itself."""
        self._thread.start()
        self._on_loop(self._listen())
        return self

    def close(self) -> None:
        """Stop listening, close every connection and end the thread."""
        if self._thread.is_alive():
            self._on_loop(self._hush())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE_S)
        if not self._loop.is_closed():
            self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def base_url(self) -> str:
        """Where it listens, with the prefix of its paths."""
        return f"http://{_HOST}:{self.port}{self.api.options.prefix}"

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Be gone for a while: connections are closed and new ones refused; afterwards it is at the same port again."""
        self._on_loop(self._hush())
        try:
            yield
        finally:
            self._on_loop(self._listen())

    # ---------------------------------------------------------------------------------- its script

    def next(self, *verbs: Verb, when: When = anything) -> None:
        """The next requests that fit `when` meet these verbs, one each, in order.

        `close_before_read` is played on the next connection instead, for no request can be looked at before it is
        read. Raises `ValueError` for a verb that only a `ScriptedTransport` can play.
        """
        for verb in verbs:
            _check(verb)
            if verb.reach is not Reach.UNREAD:
                self._script.next(verb, when=when)
            elif when is not anything:
                msg = "a connection that is closed before it is read cannot be chosen by its request"
                raise ValueError(msg)
            else:
                with self._changed:
                    self._unread.append(verb)

    def always(self, verb: Verb, *, when: When = anything) -> None:
        """Every request that fits meets this verb, unless a line of `next` is for it; the newest rule wins."""
        _check(verb)
        if verb.reach is Reach.UNREAD:
            msg = "say with next() how many connections are closed before they are read"
            raise ValueError(msg)
        self._script.always(verb, when=when)

    def calm(self) -> None:
        """Forget the script."""
        self._script.calm()
        with self._changed:
            self._unread.clear()

    # ---------------------------------------------------------------------------------- what it saw

    @property
    def log(self) -> tuple[Logged, ...]:
        """Every request that was read whole, in order, with what became of it."""
        with self._changed:
            return tuple(self._log)

    @property
    def connections(self) -> int:
        """How many connections were accepted."""
        with self._changed:
            return self._connections

    @property
    def records(self) -> list[Record]:
        """Every live record, oldest first."""
        return self.api.records

    @property
    def creates(self) -> int:
        """How many creates took effect, answered or not."""
        return self.api.creates

    def creates_by(self, key: Callable[[Record], Hashable]) -> Counter[Hashable]:
        """How many creates took effect for each key, by a function of the record as it was created."""
        return self.api.creates_by(key)

    def wait_until(self, holds: Callable[[], bool], *, seconds: float = 5.0) -> bool:
        """Wait for something that a request changes; `False` when it does not come in time."""
        end = time.monotonic() + seconds
        with self._changed:
            while not holds():
                if not self._changed.wait(end - time.monotonic()) and not holds():
                    return False
        return True

    # ---------------------------------------------------------------------------------- serving

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(
            self._accept, _HOST, self.port, limit=HEAD_BYTES_MAX, reuse_address=True, backlog=512
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _hush(self) -> None:
        if self._server is not None:
            self._server.close()
        for task, writer in list(self._serving.items()):
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._serving[task] = writer
        with self._changed:
            self._connections += 1
            verb = self._unread.pop(0) if self._unread else PLAINLY
            self._changed.notify_all()
        try:
            if verb.reach is Reach.ARRIVES:
                while await self._serve(reader, writer):
                    pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # the peer went away in the middle, or does not speak HTTP
        except asyncio.CancelledError:
            pass  # the remote goes down; a cancelled task would be reported by the stream's own callback
        finally:
            writer.transport.abort() if writer.transport.is_closing() else writer.close()
            self._serving.pop(task, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; `False` when the connection is to be closed."""
        raw = await _read_request(reader)
        if not raw:
            return False
        asked = self._parse(*raw)
        verb = self._script.choose(asked)
        told, changed = self.api.handle(asked) if verb.stores else (NOTHING_DONE, False)
        told = verb.answer or told
        is_told = verb.ending not in {Ending.SILENT, Ending.RAW, Ending.HANGING}
        with self._changed:
            self._log.append(
                Logged(asked=asked, verb=verb.name, status=told.status if is_told else None, changed=changed)
            )
            self._changed.notify_all()
        if verb.delay_s:
            await asyncio.sleep(verb.delay_s)
        if verb.ending is Ending.HANGING:
            await reader.read()  # until the peer gives up
            return False
        writer.write(_bytes_of(verb, told))
        await writer.drain()
        closes = (asked.header("Connection") or "").lower() == "close"
        return verb.ending in {Ending.WHOLE, Ending.BAD_ENCODING} and not closes

    def _parse(self, head: bytes, coded: bytes, body: bytes) -> Asked:
        line, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, target, _ = line.split(" ")
        pairs = [text.partition(":") for text in rest]
        with self._changed:
            self._asked += 1
            number = self._asked
        return Asked(
            number=number,
            method=method,
            target=target,
            headers=tuple((name, value.strip()) for name, _, value in pairs),
            body=body,
            raw=head + coded,
            prefix=self.api.options.prefix,
        )


def _check(verb: Verb) -> None:
    if verb.reach in _NOT_HERE:
        msg = f"no server can play {verb.name}: the request would never reach it"
        raise ValueError(msg)


async def _read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes, bytes] | None:
    """The head, the body as it was coded, and the body; `None` when the peer closed between two requests."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    fields = {
        name.strip().lower(): value.strip() for name, _, value in (x.partition(b":") for x in head.split(b"\r\n"))
    }
    if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
        return (head, *await _read_chunks(reader))
    body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
    return head, body, body


async def _read_chunks(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    coded, body = b"", b""
    while True:
        line = await reader.readuntil(b"\r\n")
        chunk = await reader.readexactly(int(line.split(b";")[0], 16) + 2)
        coded, body = coded + line + chunk, body + chunk[:-2]
        if chunk == b"\r\n":
            return coded, body


def _bytes_of(verb: Verb, told: Told) -> bytes:
    """What goes over the wire; whether the connection is closed then is the ending's business."""
    match verb.ending:
        case Ending.SILENT:
            return b""
        case Ending.RAW:
            return verb.raw
        case Ending.SHORT:
            return told.to_bytes(claimed_length=len(told.body) + MISSING_BYTES)
        case Ending.CUT:
            whole = told.to_bytes()
            return whole[: len(whole) - len(told.body) + len(told.body) // 2 if verb.cut_at is None else verb.cut_at]
        case Ending.BAD_ENCODING:
            return replace(
                told, headers=(*told.headers, ("Content-Encoding", "gzip")), body=b"\x00" + told.body
            ).to_bytes()
    return told.to_bytes()
