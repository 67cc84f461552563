"""A proxy before PostgreSQL that cuts connections around a COMMIT: before it, after it, or when nobody can tell."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

_CHUNK_BYTES: Final = 65_536
_COMMIT: Final = b"COMMIT"

#: The server never hears of it; it does, and its answer is held back; it does, and the line is cut at once.
CUTS: Final = ("before the COMMIT", "after the COMMIT", "during the COMMIT")


class CutProxy:
    """Use it in a `with`. `rate` is the share of COMMITs whose connection is cut; set it to 0 to heal."""

    def __init__(self, socket: Callable[[], Path], *, seed: int) -> None:
        self.rate = 0.0
        self.cuts: Counter[str] = Counter()
        self.port = 0
        self._socket = socket
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(_ended(tasks))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())  # one more turn, in which transports close
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream = await asyncio.open_unix_connection(str(self._socket()))
        except OSError:
            writer.close()
            return
        held = asyncio.Event()  # set: the server's answers are swallowed
        down = asyncio.create_task(self._downstream(upstream_reader, writer, held))
        try:
            await self._upstream(reader, upstream, held, down)
        except (OSError, asyncio.CancelledError):
            pass  # cut, or closed: the stream's own callback would ask a cancelled task for its error
        finally:
            down.cancel()
            upstream.transport.abort()
            writer.transport.abort()

    async def _upstream(
        self,
        reader: asyncio.StreamReader,
        upstream: asyncio.StreamWriter,
        held: asyncio.Event,
        down: asyncio.Task[None],
    ) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            cut = self._cut(data)
            if cut == CUTS[0]:
                return
            if cut == CUTS[1]:
                held.set()
            upstream.write(data)
            await upstream.drain()
            if cut == CUTS[1]:
                await down  # ends with the answer that it swallowed
            if cut is not None:
                return

    async def _downstream(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, held: asyncio.Event
    ) -> None:
        try:
            while (data := await reader.read(_CHUNK_BYTES)) and not held.is_set():
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        if not held.is_set():
            writer.close()

    def _cut(self, data: bytes) -> str | None:
        if _COMMIT not in data or self._random.random() >= self.rate:
            return None
        cut = self._random.choice(CUTS)
        self.cuts[cut] += 1
        return cut


async def _ended(tasks: set[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
