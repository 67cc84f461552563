"""Backfill: save every record of an object, or those that changed lately, and survive everything on the way.

Each batch is one transaction of pushlink's own engine: its records are saved, its refusals are written down, and the
run's row says where the next batch begins, all of it or nothing. So a process that is killed anywhere has lost nothing
and repeats nothing: the same command finds the open run and goes on, and two processes at the same run take turns.
What is saved again in another run is `Unchanged`; nothing is sent here, workers do that.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from pushlink.errors import Code
from pushlink.flows.apart import save_apart
from pushlink.flows.outcomes import Deferred, Outcome, Queued, Refused, Reserved, Unchanged
from pushlink.ports import Clock, Ids, RecordRef, RecordScan, ScannedRow
from pushlink.store.access import Connection, Engine, commit, reading
from pushlink.store.backfill import (
    BackfillRow,
    Counts,
    NewBackfill,
    RefusalRow,
    Standing,
    advance_backfill,
    count_refusals,
    count_standing,
    end_backfill,
    find_backfill,
    lock_backfill,
    open_backfill,
    read_refusals,
    replace_refusals,
)

#: Times that a batch is run again after it lost a race to other writers, before the run stops to be resumed.
TRIES_MAX: Final = 10

T = TypeVar("T")


class SaveMany(Protocol):
    """`Runtime.save_many`."""

    def __call__(
        self, host: Connection, records: Sequence[RecordRef], /, *, user: object, tenant: str
    ) -> list[list[Outcome]]:
        """Save in the host's transaction, in a savepoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a backfill is about. Runs that are asked for alike are one run until it ends."""

    source_object: str
    user: str
    tenant: str = ""
    since: str | None = None  # a moment, a duration until now, or a number; `None` means all records
    updated: str | None = None  # the column that tells when a record changed; as declared unless named

    @property
    def key(self) -> str:
        """Which runs are the same one."""
        return json.dumps([self.tenant, self.source_object, self.user, self.updated, self.since])


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A run, and whether it was begun by an earlier process."""

    run: BackfillRow
    resumed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run stands: what it counted over all of its processes, and what became of what it reserved."""

    run: BackfillRow
    refused: Mapping[str, int]  # code -> count, of the run
    standing: Standing


class Backfill:
    """One deployment's backfills. `scan` and `save` are a runtime's `records` and `save_many`."""

    def __init__(self, *, engine: Engine, scan: RecordScan, save: SaveMany, clock: Clock, ids: Ids) -> None:
        self._engine = engine
        self._scan = scan
        self._save = save
        self._clock = clock
        self._ids = ids

    def begin(self, asked: Asked, *, restart: bool = False) -> Begun:
        """The open run of this kind, or a new one; with `restart` an open one is given up and another begins.

        Raises `CallerError` for an object or a column that is not there.
        """

        def begin(conn: Connection) -> Begun:
            now = self._clock.now(conn)
            known = find_backfill(conn, asked.key)
            if known is not None and not restart:
                return Begun(run=known, resumed=True)
            if known is not None:
                end_backfill(conn, lock_backfill(conn, known.id).id, now=now)
            return Begun(run=open_backfill(conn, self._new(conn, asked, now), now=now), resumed=False)

        return commit(self._engine, begin, tries=TRIES_MAX)

    def step(self, run: BackfillRow, *, batch: int) -> BackfillRow:
        """Save the next `batch` rows, or end the run when there are none; answers with the run as it stands then.

        Raises `Contended` when other writers leave no room: nothing is lost, call it again.
        """
        return commit(self._engine, lambda conn: self._batch(conn, run.id, batch), tries=TRIES_MAX)

    def progress(self, run: BackfillRow) -> Progress:
        """What is known of a run now; it costs a walk over what was reserved since it began."""
        with reading(self._engine, check_schema=False) as conn:
            standing = count_standing(conn, tenant=run.tenant, source_object=run.source_object, since=run.started_at)
            return Progress(run=run, refused=count_refusals(conn, run.id), standing=standing)

    def refusals(self, run: BackfillRow, *, limit: int | None = None) -> list[RefusalRow]:
        """What the run was refused, in the order in which it met it, by whichever process."""
        with reading(self._engine, check_schema=False) as conn:
            return read_refusals(conn, run.id, limit=limit)

    # ---------------------------------------------------------------------------------- inside

    def _new(self, conn: Connection, asked: Asked, now: dt.datetime) -> NewBackfill:
        column = window = None
        if asked.since is not None:
            column, window = self._scan.open_window(
                conn, asked.source_object, updated=asked.updated, since=asked.since, now=now
            )
        size = self._scan.count_records(conn, asked.source_object, window=window)
        return NewBackfill(
            id=self._ids.fresh(),
            tenant=asked.tenant,
            source_object=asked.source_object,
            user_id=asked.user,
            updated_column=column,
            since=asked.since,
            scan_window=window,
            open_key=asked.key,
            expected=size.rows + size.unplaced,
            unusable=size.unplaced,
        )

    def _batch(self, conn: Connection, run_id: str, limit: int) -> BackfillRow:
        run = lock_backfill(conn, run_id)
        if run.ended_at is not None:
            return run  # another process came to the end, or began anew
        now = self._clock.now(conn)
        rows = self._scan.scan_records(
            conn, run.source_object, window=run.scan_window, after=run.scanned_to, limit=limit
        )
        if not rows:
            return end_backfill(conn, run.id, now=now)
        refs = [row.ref for row in rows if row.ref is not None]

        def save(group: Sequence[RecordRef]) -> list[list[Outcome]]:
            return self._save(conn, group, user=run.user_id, tenant=run.tenant)

        outcomes = save_apart(save, refs, tenant=run.tenant)
        refusals = [*_unusable(rows), *_refused(outcomes)]
        replace_refusals(conn, run, [row.shown for row in rows], refusals, now=now)
        return advance_backfill(conn, run.id, _counts(rows, outcomes), scanned_to=rows[-1].place, now=now)


def _unusable(rows: Sequence[ScannedRow]) -> Iterator[RefusalRow]:
    for row in rows:
        if row.ref is None:
            message = "What stands in the row's key is no id of the declared type."
            yield RefusalRow(source_record_id=row.shown, action="", code=Code.RECORD_ID_UNUSABLE.value, message=message)


def _refused(outcomes: Sequence[Sequence[Outcome]]) -> Iterator[RefusalRow]:
    for found in outcomes:
        for one in found:
            if isinstance(one, Refused):
                yield RefusalRow(
                    source_record_id=one.about.record_id,
                    action=one.about.action,
                    code=one.code.value,
                    message=one.message,
                )


def _counts(rows: Sequence[ScannedRow], outcomes: Sequence[Sequence[Outcome]]) -> Counts:
    kinds = Counter(type(one) for found in outcomes for one in found)
    return Counts(
        records=len(outcomes),
        reserved=kinds[Reserved],
        deferred=kinds[Deferred],
        queued=kinds[Queued],
        unchanged=kinds[Unchanged],
        refused=kinds[Refused],
        unconcerned=sum(1 for found in outcomes if not found),
        unusable=len(rows) - len(outcomes),
    )
