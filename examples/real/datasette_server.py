"""A real datasette 1.0 alpha over a SQLite file: the verb stands in the path, ids are integers.

The file itself is the witness. It is counted and read past datasette, and a trigger keeps the tally of writes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import geo
from served import Served

#: Which table holds the records of a source object, as the pack has it.
TABLES: Mapping[str, str] = {"Country": "countries", "Subdivision": "subdivisions"}

CONFIGURATION = """
permissions: {insert-row: true, update-row: true}
"""

PROGRAM = """
from datasette.cli import cli
cli()
"""


class Datasette(Served):
    """One server; see `remotes.Remote`."""

    name = "datasette"
    ready_path = "/-/versions.json"
    #: Columns beside those of the host's table, by source object.
    extra: Mapping[str, tuple[str, ...]] = {}

    def prepare(self) -> None:
        """The file with its two tables, and who may write: whoever reaches loopback."""
        (self.folder / "datasette.yaml").write_text(CONFIGURATION, encoding="utf-8")
        with closing(sqlite3.connect(self._file)) as conn:
            conn.execute("PRAGMA journal_mode = wal")
            conn.execute("CREATE TABLE writes (place TEXT, id INTEGER)")
            for name, table in TABLES.items():
                columns = ", ".join(f'"{column}" TEXT' for column in self._columns(name))
                conn.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {columns})")
                for event in ("INSERT", "UPDATE"):
                    tally = f"INSERT INTO writes VALUES ('{table}', new.id)"  # noqa: S608 - names of ours
                    conn.execute(f"CREATE TRIGGER {table}_{event} AFTER {event} ON {table} BEGIN {tally}; END")
            conn.commit()

    def program(self) -> tuple[str, list[str]]:
        """Its own command line."""
        options = ["--config", str(self.folder / "datasette.yaml"), "--host", "127.0.0.1", "--port", str(self.port)]
        return PROGRAM, ["serve", str(self._file), *options]

    def count(self, source_object: str) -> int:
        """How many rows the file has."""
        [[found]] = self._read(f"SELECT count(*) FROM {TABLES[source_object]}")  # noqa: S608 - names of ours
        return int(found)

    def records(self, source_object: str) -> Mapping[str, Mapping[str, Any]]:
        """Every row of the file without its id."""
        names = self._columns(source_object)
        shown = ", ".join(f'"{name}"' for name in names)
        found = self._read(f"SELECT id, {shown} FROM {TABLES[source_object]}")  # noqa: S608 - names of ours
        return {str(row[0]): dict(zip(names, row[1:], strict=True)) for row in found}

    def marks(self, source_object: str) -> Mapping[str, object]:
        """How often each row was written."""
        found = self._read("SELECT id, count(*) FROM writes WHERE place = ? GROUP BY id", TABLES[source_object])
        return {str(row): written for row, written in found}

    def _columns(self, source_object: str) -> list[str]:
        return [*(column.name for column in geo.TABLES[source_object].columns), *self.extra.get(source_object, ())]

    @property
    def _file(self) -> Any:
        return self.folder / "geo-remote.db"

    def _read(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"{self._file.as_uri()}?mode=ro", uri=True)) as conn:
            return conn.execute(statement, values).fetchall()
