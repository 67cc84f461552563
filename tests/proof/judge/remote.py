"""A remote as a process of its own: real sockets, faults by record, and a log that is on the disk before any answer.

    python -m proof.judge.remote LOG BEHAVIOURS [--dedupe]

It prints its port and serves until its standard input is closed. A record's key says which story it belongs to (what
stands before the first dot), BEHAVIOURS (JSON) what becomes of that story's first POSTs and PATCHes of each record:
`{"lost": {"POST": ["reply_lost"]}}`; everything beyond the list is served plainly. With `--dedupe` a POST whose
`Idempotency-Key` was seen is applied once, and answered again with `Idempotent-Replayed: true`. A line of the log says
what was asked, whether it took effect, and on which record; what came in half is a line with the method `broken`, and
what an older integration sends (it has the header `Older-Integration`) is marked `older`. Nothing here is pushlink's.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

Behaviours: TypeAlias = dict[str, dict[str, list[str]]]

#: What a behaviour does: whether the request takes effect, and the status that answers it (0 is none at all).
BEHAVIOURS: Final[dict[str, tuple[bool, int]]] = {
    "plain": (True, 200),
    "reject": (False, 422),
    "reply_lost": (True, 0),
    "request_lost": (False, 0),
    "error_with_effect": (True, 503),
    "error_without_effect": (False, 503),
    "truncated": (True, 200),
    "throttle": (False, 429),
}
_PLAIN: Final = "plain"
_REPLAYED: Final = "replayed"


class State:
    """The records, and the log of what was done to them."""

    def __init__(self, log: str, behaviours: Behaviours, *, dedupe: bool) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._behaviours = behaviours
        self._dedupe = dedupe
        self._lock = threading.Lock()
        self._asked: Counter[tuple[str, str]] = Counter()
        self._answers: dict[str, str] = {}  # idempotency key: record id
        self.records: dict[str, dict[str, Any]] = {}

    def serve(
        self, method: str, path: str, body: bytes, key: str | None, *, older: bool = False
    ) -> tuple[str, int, Any]:
        """Do what is asked, write it down, and say how to answer: behaviour, status, document."""
        with self._lock:
            if method == "GET":
                return _PLAIN, *self._read(path)
            document = json.loads(body)
            record_id = path.rpartition("/")[2] if method != "POST" else None
            name = str(document.get("key") or self.records.get(record_id or "", {}).get("key"))
            behaviour = self._next(name, method)
            applies, status = BEHAVIOURS[behaviour]
            is_known = record_id is None or record_id in self.records
            replayed = self._answers.get(key or "") if self._dedupe else None
            applied = applies and is_known and replayed is None
            made = replayed or (self._apply(record_id, document, key) if applied else record_id)
            self._write(
                {
                    "method": method,
                    "path": path,
                    "key": name,
                    "id": made,
                    "applied": applied,
                    "behaviour": behaviour,
                    "document": document,
                    "digest": hashlib.sha256(body).hexdigest(),
                    "idempotency_key": key,
                    "older": older,
                }
            )
            if not is_known:
                return _PLAIN, 404, {"error": "not found"}
            created = method == "POST" and status == 200
            told = (
                {**self.records[made], "id": made} if status == 200 and made in self.records else {"error": behaviour}
            )
            is_again = replayed is not None and behaviour == _PLAIN
            return _REPLAYED if is_again else behaviour, 201 if created else status, told

    def broken(self) -> None:
        """A request that did not come in whole."""
        with self._lock:
            self._write({"method": "broken"})

    def _next(self, name: str, method: str) -> str:
        planned = self._behaviours.get(name.partition(".")[0], {}).get(method, [])
        at = self._asked[name, method]
        self._asked[name, method] += 1
        return planned[at] if at < len(planned) else _PLAIN

    def _apply(self, record_id: str | None, document: dict[str, Any], key: str | None) -> str:
        made = record_id or f"rec_{len(self.records) + 1:06d}"
        self.records[made] = {**self.records.get(made, {}), **document}
        if record_id is None and key is not None:
            self._answers[key] = made
        return made

    def _read(self, path: str) -> tuple[int, Any]:
        parts = urlsplit(path)
        last = parts.path.rpartition("/")[2]
        if last in self.records:
            return 200, {**self.records[last], "id": last}
        wanted = dict(parse_qsl(parts.query))
        found = [
            {**document, "id": name}
            for name, document in self.records.items()
            if all(str(document.get(field)) == value for field, value in wanted.items())
        ]
        return (200, {"records": found}) if "?" in path else (404, {"error": "not found"})

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._log, json.dumps(line).encode() + b"\n")
        os.fsync(self._log)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together
    state: State

    def do_POST(self) -> None:
        """A create."""
        self._serve()

    do_PATCH = do_PUT = do_GET = do_POST  # noqa: N815 - the library's names

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            self.state.broken()
            self.close_connection = True
            return
        key, older = self.headers.get("Idempotency-Key"), "Older-Integration" in self.headers
        behaviour, status, document = self.state.serve(self.command, self.path, body, key, older=older)
        if status == 0:
            self._hang_up()
            return
        told = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(told)))
        if behaviour == _REPLAYED:
            self.send_header("Idempotent-Replayed", "true")
        self.end_headers()
        is_cut = behaviour == "truncated"
        self.wfile.write(told[: len(told) // 2] if is_cut else told)
        if is_cut:
            self.wfile.flush()
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Say nothing: the log is the file."""


class Server(ThreadingHTTPServer):
    """A thread for each connection; a client that dies in the middle is nothing to tell."""

    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections are cut all the time here."""


def main() -> None:
    """Serve until the one who started this closes the pipe, or dies."""
    log, behaviours, *options = sys.argv[1:]
    Handler.state = State(log, json.loads(behaviours), dedupe="--dedupe" in options)
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdout.write(f"{server.server_address[1]}\n")
        sys.stdout.flush()
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
