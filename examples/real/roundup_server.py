"""A real roundup tracker with two classes of its own: its REST interface wants a header on every write, a token, and
the ETag of a record that was read just before.

The tracker's SQLite file is the witness. Each request opens the whole tracker, so it is slow.
"""

from __future__ import annotations

import secrets
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import geo
import jwt
from served import Served

#: Which class holds the records of a source object, as the pack has it.
CLASSES: Mapping[str, str] = {"Country": "country", "Subdivision": "subdivision"}

#: Added to the schema of roundup's own minimal template; the tracker's administrator may do everything anyway.
SCHEMA = """
country = Class(db, "country", alpha_2=String(), alpha_3=String(), numeric=String(), name=String(),
    official_name=String(), flag=String())
subdivision = Class(db, "subdivision", code=String(), type=String(), name=String(), country_code=String(),
    parent_code=String())
"""

#: The settings that differ from what `roundup-admin genconfig` would write.
CONFIGURATION = """
[main]
database = db
template_engine = zopetal
admin_email = admin@example.com
dispatcher_email = admin@example.com
[tracker]
web = {url}/
email = tracker@example.com
[web]
jwt_secret = {key}
[rdbms]
backend = sqlite
[mail]
domain = example.com
host = localhost
"""

#: Its own server refuses to run as root, which everybody is in a container; its WSGI application does not mind. It gets
#: one request at a time: with threads, CPython 3.11 fails now and then in `ast.literal_eval`, which roundup calls.
PROGRAM = """
from wsgiref.simple_server import WSGIServer, make_server
from roundup.cgi.wsgi_handler import RequestDispatcher
Patient = type("Patient", (WSGIServer,), {"request_queue_size": 128})
make_server("127.0.0.1", int(sys.argv[1]), RequestDispatcher(sys.argv[2]), server_class=Patient).serve_forever()
"""


class Roundup(Served):
    """One tracker; see `remotes.Remote`."""

    name = "roundup"
    ready_path = "/rest"

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__(folder, port)
        self._key = secrets.token_hex(32)
        self._home = folder / "tracker"
        now = datetime.now(UTC)
        claims = {"sub": "1", "iss": f"{self.url}/", "aud": f"{self.url}/", "roles": ["Admin"], "iat": now}
        self.secret = jwt.encode({**claims, "exp": now + timedelta(days=1)}, self._key, algorithm="HS256")

    def prepare(self) -> None:
        """A tracker after roundup's minimal template, with our classes, made by its own tool."""
        self._admin("install", "minimal", "sqlite")
        with (self._home / "schema.py").open("a", encoding="utf-8") as schema:
            schema.write(SCHEMA)
        configuration = CONFIGURATION.format(url=self.url, key=self._key)
        (self._home / "config.ini").write_text(configuration, encoding="utf-8")
        self._admin("initialise", secrets.token_urlsafe(16))

    def program(self) -> tuple[str, list[str]]:
        """Its WSGI application in the server of the standard library, which logs each request."""
        return PROGRAM, [str(self.port), str(self._home)]

    def count(self, source_object: str) -> int:
        """How many records the tracker's own file has."""
        [[found]] = self._read(f"SELECT count(*) FROM _{CLASSES[source_object]} WHERE __retired__ = 0")  # noqa: S608
        return int(found)

    def records(self, source_object: str) -> Mapping[str, Mapping[str, Any]]:
        """Every record of the file, without what roundup keeps beside it."""
        names = [column.name for column in geo.TABLES[source_object].columns]
        shown = ", ".join(f"_{name}" for name in names)
        found = self._read(f"SELECT id, {shown} FROM _{CLASSES[source_object]}")  # noqa: S608 - names of ours
        return {str(row[0]): dict(zip(names, row[1:], strict=True)) for row in found}

    def marks(self, source_object: str) -> Mapping[str, object]:
        """How many entries the history of each record has."""
        found = self._read(f"SELECT nodeid, count(*) FROM {CLASSES[source_object]}__journal GROUP BY nodeid")  # noqa: S608
        return {str(record): entries for record, entries in found}

    def _admin(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "roundup.scripts.roundup_admin", "-i", str(self._home), *arguments]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, cwd=self.folder)
        if done.returncode:
            msg = f"roundup-admin {arguments[0]} failed: {done.stdout}{done.stderr}"
            raise RuntimeError(msg)

    def _read(self, statement: str) -> list[tuple[Any, ...]]:
        file = self._home / "db" / "db"
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as conn:
            return conn.execute(statement).fetchall()
