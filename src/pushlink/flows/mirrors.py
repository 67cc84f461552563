"""Mirrors: what is written into the record's own fields after its link is finalized, and what becomes of a failure.

A mirror is for people and decides nothing. It has a transaction of its own; a row that cannot be written now goes on to
the write-back claim, is tried again with longer pauses, and is given up in the end without losing anything.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import sqlalchemy as sa

from pushlink.errors import Code
from pushlink.flows.world import World
from pushlink.ports import MirrorResult, MirrorWrite, RecordRef
from pushlink.protocol.snapshots import ClaimToken, WritebackSnapshot
from pushlink.protocol.states import CLAIMED_IN_PLACE, CreateEvent, MirrorStatus
from pushlink.store import attempts, lifecycle, links
from pushlink.store.attempts import Release
from pushlink.store.lifecycle import Move, Moved
from pushlink.store.rows import AttemptRow


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorDue:
    """A mirror that its owner writes next."""

    attempt: AttemptRow
    token: ClaimToken
    actor: str
    writeback: WritebackSnapshot | None  # None when the attempt has no mirror to write
    remote_id: str


_MIRROR_STATUS: Final[Mapping[MirrorResult, MirrorStatus]] = {
    MirrorResult.WRITTEN: MirrorStatus.WRITTEN,
    MirrorResult.FOREIGN_VALUE: MirrorStatus.SKIPPED_FOREIGN_VALUE,
    MirrorResult.SOURCE_GONE: MirrorStatus.SKIPPED_SOURCE_DELETED,
}


class Mirrors:
    """The steps of mirrors; a part of `Steps`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def mirror(self, conn: sa.Connection, items: Sequence[MirrorDue], *, now: dt.datetime) -> list[None]:
        """Write mirrors where the fields hold what is expected; a failed one is left to the write-back claim.

        Only under a live claim: whoever lost it writes nothing into the record either (AT-09).
        """
        owned = _owned(conn, items)
        with_mirror = [i for i in owned if i.writeback is not None]
        answers = self._world.records.write_mirrors(
            conn, [_mirror_write(i, i.writeback) for i in with_mirror if i.writeback]
        )
        done = [(i, a) for i, a in zip(with_mirror, answers, strict=True)]
        failed = [(i, a) for i, a in done if a not in _MIRROR_STATUS]
        settled = [(i, _MIRROR_STATUS[a]) for i, a in done if a in _MIRROR_STATUS]
        self._settle_mirrors(conn, [*settled, *((i, MirrorStatus.NONE) for i in owned if i.writeback is None)], now)
        self._postpone_mirrors(conn, [(i, {"mirror": a.value}) for i, a in failed], now)
        return [None] * len(items)

    def mirror_failed(self, conn: sa.Connection, items: Sequence[MirrorDue], *, now: dt.datetime) -> list[None]:
        """What runs instead when a mirror's own transaction failed: the row goes on to the write-back claim (DL-10)."""
        self._postpone_mirrors(conn, [(i, {"mirror": "failed"}) for i in _owned(conn, items)], now)
        return [None] * len(items)

    def _settle_mirrors(
        self, conn: sa.Connection, settled: Sequence[tuple[MirrorDue, MirrorStatus]], now: dt.datetime
    ) -> None:
        moves = [
            _owner_move(
                i,
                CreateEvent.MIRROR_SETTLED,
                detail={"mirror": status.value},
            )
            for i, status in settled
        ]
        results = lifecycle.move_attempts(conn, moves, now=now)
        links.set_mirror_status(
            conn,
            [
                links.MirrorOutcome(link_key=i.attempt.link_key, status=status)
                for (i, status), result in zip(settled, results, strict=True)
                if isinstance(result, Moved)
            ],
            now=now,
        )

    def _postpone_mirrors(
        self, conn: sa.Connection, failed: Sequence[tuple[MirrorDue, Mapping[str, object]]], now: dt.datetime
    ) -> None:
        terms = self._world.terms
        tired = [(i, MirrorStatus.GIVEN_UP) for i, _ in failed if i.attempt.retry_count >= terms.mirror_tries_max]
        again = [(i, detail) for i, detail in failed if i.attempt.retry_count < terms.mirror_tries_max]
        self._settle_mirrors(conn, tired, now)
        due = {
            i.attempt.id: now + dt.timedelta(milliseconds=terms.mirror_pause_ms * 2 ** min(i.attempt.retry_count, 8))
            for i, _ in again
        }
        first = [(i, detail) for i, detail in again if i.attempt.status not in CLAIMED_IN_PLACE]
        lifecycle.move_attempts(
            conn,
            [
                replace(
                    _owner_move(i, CreateEvent.MIRROR_FAILED, detail=detail),
                    not_before=due[i.attempt.id],
                    reason_code=Code.MIRROR_FAILED,
                )
                for i, detail in first
            ],
            now=now,
        )
        attempts.release_writebacks(
            conn,
            [
                Release(
                    attempt_id=i.attempt.id,
                    token=i.token,
                    not_before=due[i.attempt.id],
                    reason_code=Code.MIRROR_FAILED,
                    detail=detail,
                )
                for i, detail in again
                if i.attempt.status in CLAIMED_IN_PLACE
            ],
            now=now,
        )
        links.set_mirror_status(
            conn,
            [links.MirrorOutcome(link_key=i.attempt.link_key, status=MirrorStatus.FAILED) for i, _ in again],
            now=now,
        )


def _owned(conn: sa.Connection, items: Sequence[MirrorDue]) -> list[MirrorDue]:
    held = attempts.lock_claims(conn, [(i.attempt.id, i.token) for i in items])
    return [i for i, is_held in zip(items, held, strict=True) if is_held]


def _mirror_write(item: MirrorDue, snapshot: WritebackSnapshot) -> MirrorWrite:
    values: dict[str, str | None] = {snapshot.remote_id_field: item.remote_id}
    expected: dict[str, str | None] = {snapshot.remote_id_field: snapshot.expected_remote_id}
    if snapshot.provenance_field is not None:
        values[snapshot.provenance_field] = snapshot.provenance_value
        expected[snapshot.provenance_field] = snapshot.expected_provenance
    return MirrorWrite(
        ref=RecordRef(source_object=snapshot.source_object, record_id=snapshot.source_record_id),
        values=values,
        expected=expected,
    )


def _owner_move(item: MirrorDue, event: CreateEvent, *, detail: Mapping[str, object]) -> Move:
    return Move(
        row=item.attempt,
        event=event,
        token=item.token,
        actor=item.actor,
        detail=detail,
        retries=1 if event is CreateEvent.MIRROR_FAILED else 0,
    )
