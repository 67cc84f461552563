"""A real kinto server: its own process on loopback, in memory, open to everybody who can reach it.

Its own limits are out of the way (pages, fetch size), its requests are logged as JSON lines by its own logger.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

#: Which collection of the bucket holds the records of a source object, as the pack has it.
COLLECTIONS: Mapping[str, str] = {"Country": "countries", "Subdivision": "subdivisions"}
#: What kinto adds to every record.
ADDED = ("id", "last_modified")
WRITES = ("POST", "PUT", "PATCH", "DELETE")
START_S_MAX = 60.0

# More threads than cores only fight for the interpreter's lock; the burst of a whole worker waits in the queue.
CONFIGURATION = """
[server:main]
use = egg:waitress#main
host = 127.0.0.1
port = {port}
threads = 4
backlog = 4096
connection_limit = 1000

[app:main]
use = egg:kinto
kinto.storage_backend = kinto.core.storage.memory
kinto.permission_backend = kinto.core.permission.memory
kinto.cache_backend = kinto.core.cache.memory
kinto.storage_max_fetch_size = 1000000
kinto.bucket_create_principals = system.Everyone
multiauth.policies = basicauth

[loggers]
keys = root, requests, queue

[handlers]
keys = console, requests

[formatters]
keys = plain, json

[logger_root]
level = WARNING
handlers = console

[logger_requests]
level = INFO
handlers = requests
qualname = request.summary
propagate = 0

[logger_queue]
level = ERROR
handlers = console
qualname = waitress.queue
propagate = 0

[handler_console]
class = StreamHandler
args = (sys.stderr,)
formatter = plain

[handler_requests]
class = FileHandler
args = ({log!r}, "a", "utf-8")
formatter = json

[formatter_plain]
format = %(asctime)s %(levelname)s %(name)s %(message)s

[formatter_json]
class = kinto.core.JsonLogFormatter
"""

#: kinto's command line, which also ends when its standard input does, so that it never outlives the run.
PROGRAM = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
from kinto.__main__ import main
main()
"""


class Kinto:
    """One server with one bucket; see `remotes.Remote`."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._log = folder / "kinto-requests.jsonl"
        self._url = f"http://127.0.0.1:{port}"
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Write the configuration, start the server and make the bucket and its collections."""
        configuration = self._folder / "kinto.ini"
        configuration.write_text(CONFIGURATION.format(port=self._port, log=str(self._log)), encoding="utf-8")
        with (self._folder / "kinto.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, "start", "--ini", str(configuration)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        self._wait_until_ready()
        self._ask("PUT", "/v1/buckets/geo", {})
        for collection in COLLECTIONS.values():
            self._ask("PUT", f"/v1/buckets/geo/collections/{collection}", {})
        self._log.write_bytes(b"")  # the counts begin with what pushlink sends; the log is appended to
        return self._url

    def count(self, source_object: str) -> int:
        """The header in which kinto says how many records a collection has."""
        headers, _ = self._ask("HEAD", _records(source_object))
        return int(headers["Total-Records"])

    def records(self, source_object: str) -> Mapping[str, Mapping[str, Any]]:
        """Every record without `id` and `last_modified`."""
        return {
            record["id"]: {name: value for name, value in record.items() if name not in ADDED}
            for record in self._list(source_object)[1]
        }

    def marks(self, source_object: str) -> Mapping[str, object]:
        """`last_modified` of every record, and the ETag of the collection."""
        etag, records = self._list(source_object)
        return {"": etag, **{record["id"]: record["last_modified"] for record in records}}

    def requests(self) -> Counter[str]:
        """The writes in the log."""
        lines = self._log.read_text(encoding="utf-8").splitlines()
        fields = (json.loads(line)["Fields"] for line in lines)
        return Counter(f"{entry['method']} {entry['code']}" for entry in fields if entry["method"] in WRITES)

    def stop(self) -> float:
        """Close its standard input, and read its bill."""
        if self._process is None:
            return 0.0
        if self._process.stdin is not None:
            self._process.stdin.close()
        _, _, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = 0
        self._process = None
        return usage.ru_utime + usage.ru_stime

    def _list(self, source_object: str) -> tuple[str, list[dict[str, Any]]]:
        headers, answer = self._ask("GET", _records(source_object))
        if "Next-Page" in headers:
            msg = "kinto answered with a page of the records instead of all of them"
            raise RuntimeError(msg)
        return headers["ETag"], answer["data"]

    def _ask(self, method: str, path: str, body: object = None) -> tuple[Mapping[str, str], Any]:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._url + path, data=data, method=method, headers={"Content-Type": "application/json"})  # noqa: S310 - our own address
        with urlopen(request, timeout=60) as response:  # noqa: S310 - the same
            text = response.read()
            return response.headers, json.loads(text) if text and method != "HEAD" else None

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            try:
                self._ask("GET", "/v1/")
            except (URLError, ConnectionError):
                time.sleep(0.1)
            else:
                return
        tail = (self._folder / "kinto.log").read_text(encoding="utf-8", errors="replace")[-2_000:]
        msg = f"kinto did not start; its log ends:\n{tail}"
        raise RuntimeError(msg)


def _records(source_object: str) -> str:
    return f"/v1/buckets/geo/collections/{COLLECTIONS[source_object]}/records"
