"""The demo's remote: a small JSON API on loopback, in a process of its own, that counts what it accepts.

    POST  /{collection}         creates a record, answers 201 with its integer id; every call makes another record
    PATCH /{collection}/{id}    merges into a record, answers 200, or 404 for an id that it never gave
    GET   /{collection}         every record of a collection
    GET   /-/counts             how many requests of each kind had an effect

Every request carries the bearer token of the environment variable REMOTE_TOKEN. The first line on standard output is
the address; the process ends when its standard input does, so that it never outlives the demo. It is written without
pushlink: a witness should know nothing of whom it testifies about.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import json
import os
import sys
from collections import Counter
from http import HTTPStatus
from typing import Any

#: A connection burst of a whole worker fits into the queue of the socket.
BACKLOG = 1_024


class Records:
    """What the remote holds and has done."""

    def __init__(self) -> None:
        self.collections: dict[str, dict[int, dict[str, Any]]] = {"people": {}, "organisations": {}}
        self.numbers = itertools.count(1001)
        self.counts: Counter[str] = Counter()

    def handle(self, method: str, path: str, body: bytes) -> tuple[HTTPStatus, object]:
        """Answer one request."""
        collection, _, name = path.strip("/").partition("/")
        if (method, path) == ("GET", "/-/counts"):
            return HTTPStatus.OK, self.counts
        records = self.collections.get(collection)
        if records is None:
            return HTTPStatus.NOT_FOUND, {"error": "there is no such collection"}
        match method:
            case "GET" if not name:
                return HTTPStatus.OK, list(records.values())
            case "POST" if not name:
                number = next(self.numbers)
                records[number] = {"id": number, **json.loads(body)}
                self.counts["created"] += 1
                return HTTPStatus.CREATED, records[number]
            case "PATCH" if name.isdigit() and int(name) in records:
                _merge(records[int(name)], json.loads(body))
                self.counts["updated"] += 1
                return HTTPStatus.OK, records[int(name)]
        return HTTPStatus.NOT_FOUND, {"error": "there is no such record"}


def _merge(record: dict[str, Any], change: dict[str, Any]) -> None:
    """Objects are merged member by member; anything else takes the place of what was there."""
    for name, value in change.items():
        if isinstance(value, dict) and isinstance(record.get(name), dict):
            _merge(record[name], value)
        else:
            record[name] = value


async def serve() -> None:
    """Listen on a free port until standard input ends."""
    records = Records()
    wanted = f"Bearer {os.environ['REMOTE_TOKEN']}".encode()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, path, _ = head[0].split(" ")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                if hmac.compare_digest(headers.get("authorization", "").encode("latin-1"), wanted):
                    status, answer = records.handle(method, path, body)
                else:
                    status, answer = HTTPStatus.UNAUTHORIZED, {"error": "the token is not mine"}
                text = json.dumps(answer, ensure_ascii=False).encode()
                writer.write(
                    f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(text)}\r\n\r\n".encode()
                    + text
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is gone
        finally:
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=BACKLOG)
    async with server:
        host, port = server.sockets[0].getsockname()
        print(f"http://{host}:{port}", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
