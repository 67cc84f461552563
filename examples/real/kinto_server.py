"""A real kinto server: its own process on loopback, in memory, open to everybody who can reach it.

Its own limits are out of the way (pages, fetch size), its requests are logged as JSON lines by its own logger.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from served import Served, settled

#: Which collection of the bucket holds the records of a source object, as the pack has it.
COLLECTIONS: Mapping[str, str] = {"Country": "countries", "Subdivision": "subdivisions"}
#: What kinto adds to every record.
ADDED = ("id", "last_modified")
WRITES = ("POST", "PUT", "PATCH", "DELETE")

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

PROGRAM = """
from kinto.__main__ import main
main()
"""


class Kinto(Served):
    """One server with one bucket; see `remotes.Remote`."""

    name = "kinto"
    ready_path = "/v1/"

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__(folder, port)
        self._requests = folder / "kinto-requests.jsonl"

    def prepare(self) -> None:
        """Write the configuration."""
        text = CONFIGURATION.format(port=self.port, log=str(self._requests))
        (self.folder / "kinto.ini").write_text(text, encoding="utf-8")

    def program(self) -> tuple[str, list[str]]:
        """Its own command line."""
        return PROGRAM, ["start", "--ini", str(self.folder / "kinto.ini")]

    def make_places(self) -> None:
        """Make the bucket and its collections."""
        self.ask("PUT", "/v1/buckets/geo", {})
        for collection in COLLECTIONS.values():
            self.ask("PUT", f"/v1/buckets/geo/collections/{collection}", {})

    def begin_log(self) -> None:
        """Its requests have a log of their own."""
        self._requests.write_bytes(b"")

    def count(self, source_object: str) -> int:
        """The header in which kinto says how many records a collection has."""
        headers, _ = self.ask("HEAD", _records(source_object))
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
        """The writes in that log."""
        lines = settled(self._requests).splitlines()
        fields = (json.loads(line)["Fields"] for line in lines)
        return Counter(f"{entry['method']} {entry['code']}" for entry in fields if entry["method"] in WRITES)

    def _list(self, source_object: str) -> tuple[str, list[dict[str, Any]]]:
        headers, answer = self.ask("GET", _records(source_object))
        if "Next-Page" in headers:
            msg = "kinto answered with a page of the records instead of all of them"
            raise RuntimeError(msg)
        return headers["ETag"], answer["data"]


def _records(source_object: str) -> str:
    return f"/v1/buckets/geo/collections/{COLLECTIONS[source_object]}/records"
