"""A real Eve application with two resources: it answers an update without `If-Match` with 428, and names the version of
a record as `_etag` in the body.

Eve asks for a MongoDB server. Here mongomock stands in for it, inside of Eve's own process; everything that is seen on
the wire is Eve's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import geo
from served import Served

#: Which resource holds the records of a source object, as the pack has it.
RESOURCES: Mapping[str, str] = {"Country": "countries", "Subdivision": "subdivisions"}

PROGRAM = """
import json, mongomock
from eve.io.mongo import flask_pymongo
flask_pymongo.MongoClient = lambda *_, **options: mongomock.MongoClient(tz_aware=options.get("tz_aware", False))
from eve import Eve
# One request at a time: of two threads that insert first, mongomock keeps one record.
Eve(settings=json.loads(sys.argv[2])).run(host="127.0.0.1", port=int(sys.argv[1]), threaded=False)
"""

PAGE_MAX = 1_000_000


class EveServer(Served):
    """One application; see `remotes.Remote`."""

    name = "eve"

    def program(self) -> tuple[str, list[str]]:
        """Flask's own server, which logs each request."""
        resources = {
            resource: {
                "schema": {column.name: {"type": "string", "nullable": True} for column in geo.TABLES[name].columns},
                "resource_methods": ["GET", "POST"],
                "item_methods": ["GET", "PATCH"],
            }
            for name, resource in RESOURCES.items()
        }
        settings = {
            "DOMAIN": resources,
            "MONGO_DBNAME": "geo",
            "RENDERERS": ["eve.render.JSONRenderer"],
            "PAGINATION_LIMIT": PAGE_MAX,
        }
        return PROGRAM, [str(self.port), json.dumps(settings)]

    def count(self, source_object: str) -> int:
        """The total that a page of one record shows."""
        return int(self._list(source_object, 1)["_meta"]["total"])

    def records(self, source_object: str) -> Mapping[str, Mapping[str, Any]]:
        """Every record without what Eve adds, whose names begin with an underscore."""
        return {
            item["_id"]: {name: value for name, value in item.items() if not name.startswith("_")}
            for item in self._list(source_object, PAGE_MAX)["_items"]
        }

    def marks(self, source_object: str) -> Mapping[str, object]:
        """The version of each record."""
        return {item["_id"]: item["_etag"] for item in self._list(source_object, PAGE_MAX)["_items"]}

    def _list(self, source_object: str, limit: int) -> dict[str, Any]:
        listed: dict[str, Any] = self.ask("GET", f"/{RESOURCES[source_object]}?max_results={limit}")[1]
        return listed
