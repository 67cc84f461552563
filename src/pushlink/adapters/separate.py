"""Records in another database than pushlink's tables (D-45): a record store with an engine of its own.

One transaction over two databases there is not: the host commits its records first and then saves on a connection of
pushlink's, and a reconciling scan (`pushlink backfill --since`) finds what a crash in between lost. So the connection
that a caller hands in is not looked at here; records are read as they are committed, and mirrors are committed at once.
A mirror is compared before it is written and may be written again, so a worker that dies in between repeats it.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, Engine

from pushlink.adapters.objects import ObjectDeclaration
from pushlink.adapters.records import SqlRecordStore
from pushlink.ports import MirrorResult, MirrorWrite, RecordRef, ScannedRow, ScanSize
from pushlink.protocol.snapshots import SourceValue
from pushlink.store.dialect import read_only


class SeparateRecordStore(SqlRecordStore):
    """A record store over tables of another database; `open_engine` is called once, at the first use."""

    def __init__(self, declarations: Iterable[ObjectDeclaration], open_engine: Callable[[], Engine]) -> None:
        super().__init__(declarations)
        self._open_engine = open_engine
        self._engine: Engine | None = None
        self._opening = threading.Lock()

    def close(self) -> None:
        """Give back the connections."""
        with self._opening:
            if self._engine is not None:
                self._engine.dispose()

    def reflect(self, conn: Connection) -> None:
        """Look up every table that is not bound yet."""
        del conn
        with self._reading() as own:
            super().reflect(own)

    def known_fields(self, conn: Connection, source_object: str) -> frozenset[str]:
        """The field names of an object, after looking at its table if that was not done yet."""
        if source_object in self._bound:
            return super().known_fields(conn, source_object)
        with self._reading() as own:
            return super().known_fields(own, source_object)

    def records_exist(self, conn: Connection, refs: Sequence[RecordRef]) -> list[bool]:
        """Whether each record's row is there."""
        del conn
        with self._reading() as own:
            return super().records_exist(own, refs)

    def read_records(
        self, conn: Connection, refs: Sequence[RecordRef], fields: Sequence[Sequence[str]]
    ) -> list[Mapping[str, SourceValue] | None]:
        """For each record its values of the asked fields as they are committed, or `None` when the row is gone."""
        del conn
        with self._reading() as own:
            return super().read_records(own, refs, fields)

    def write_mirrors(self, conn: Connection, writes: Sequence[MirrorWrite]) -> list[MirrorResult]:
        """Write compare-and-set mirrors, and commit them."""
        del conn
        with self._made().begin() as own:
            return super().write_mirrors(own, writes)

    def open_window(
        self, conn: Connection, source_object: str, *, updated: str | None, since: str, now: dt.datetime
    ) -> tuple[str, str]:
        """The column and the window of the rows that changed at `since` or later."""
        del conn
        with self._reading() as own:
            return super().open_window(own, source_object, updated=updated, since=since, now=now)

    def count_records(self, conn: Connection, source_object: str, *, window: str | None) -> ScanSize:
        """How many rows a scan has."""
        del conn
        with self._reading() as own:
            return super().count_records(own, source_object, window=window)

    def scan_records(
        self, conn: Connection, source_object: str, *, window: str | None, after: str | None, limit: int
    ) -> list[ScannedRow]:
        """The next rows after a place."""
        del conn
        with self._reading() as own:
            return super().scan_records(own, source_object, window=window, after=after, limit=limit)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with read_only(self._made()).connect() as own, own.begin():
            yield own

    def _made(self) -> Engine:
        with self._opening:
            if self._engine is None:
                self._engine = self._open_engine()
            return self._engine
