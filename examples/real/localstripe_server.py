"""A real localstripe: it answers like Stripe's API, takes forms, and updates by POST.

Its own start listens on every interface and writes all of its memory to one file in /tmp after each write; here the
same application listens on loopback, and its memory stays in memory.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from served import Served

#: The resources that hold the records of each source object, and the fields that are not metadata there.
RESOURCES: Mapping[str, str] = {"Country": "customers", "Subdivision": "products"}
OWN_FIELDS: Mapping[str, Mapping[str, str]] = {
    "Country": {"name": "name", "description": "official_name"},
    "Subdivision": {"name": "name"},
}

PROGRAM = """
import logging
from aiohttp import web
from localstripe import resources, server
resources.Store.dump_to_disk = lambda self: None
log = logging.getLogger("aiohttp.access")
log.setLevel(logging.INFO)
log.addHandler(logging.StreamHandler())
web.run_app(server.app, host="127.0.0.1", port=int(sys.argv[1]), access_log=log, print=None)
"""


class Localstripe(Served):
    """One server; see `remotes.Remote`."""

    name = "localstripe"
    ready_path = "/v1/customers"

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__(folder, port)
        self.secret = f"sk_{secrets.token_hex(16)}"  # any key with this beginning is let in

    def program(self) -> tuple[str, list[str]]:
        """Its application in aiohttp's server it, which logs each request."""
        return PROGRAM, [str(self.port)]

    def count(self, source_object: str) -> int:
        """The total that a list of one record shows."""
        return int(self._list(source_object, 1)["total_count"])

    def records(self, source_object: str) -> Mapping[str, Mapping[str, Any]]:
        """Every record; an empty text is how a form says that there is nothing."""
        own = OWN_FIELDS[source_object]
        return {
            entry["id"]: {
                name: value or None
                for name, value in ({ours: entry[theirs] for theirs, ours in own.items()} | entry["metadata"]).items()
            }
            for entry in self._list(source_object, 1_000_000)["data"]
        }

    def _list(self, source_object: str, limit: int) -> dict[str, Any]:
        listed: dict[str, Any] = self.ask("GET", f"/v1/{RESOURCES[source_object]}?limit={limit}")[1]
        return listed
