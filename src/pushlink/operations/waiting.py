"""Everything that waits for a person, by cause, with the commands to type; and exports."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from pushlink.operations.decidable import decidable
from pushlink.operations.reasons import reason_of
from pushlink.operations.verbs import Verb, verbs
from pushlink.operations.words import HOLDS
from pushlink.protocol.snapshots import write_time
from pushlink.store import waiting
from pushlink.store.access import Connection
from pushlink.store.slots import read_slots
from pushlink.store.waiting import WaitingRow

#: What an export can hold, in the order in which it is written.
EXPORTED: Final = ("link", "attempt", "event")

#: Rows that are shown of each cause.
SAMPLES: Final = 5

#: What the kinds of waiting mean.
KINDS: Final = {
    "doubtful": "It may have been applied, and nobody can prove it either way.",
    "failed": "The create ended without a remote record, and holds the record's place.",
    "held": "It may not be claimed until somebody decides, or the cause is gone.",
    "refused": "The newest values of a linked record were refused, or could not be brought to the remote.",
    "retried": "It is tried again by itself, and in vain until somebody mends the cause.",
    "stranded": "It is of a lane that this release does not know.",
    "suspended": "The link is suspended; nothing is sent.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """One record that waits. `target_id` is the attempt or the link, `verbs` are what may be decided about it."""

    source_object: str
    record_id: str
    target: str
    target_id: str
    row_version: int
    since: dt.datetime
    verbs: tuple[Verb, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckGroup:
    """Everything that waits for one reason; `rows` are those that have waited longest."""

    kind: str
    code: str
    says: str
    reason: str
    next_step: str
    count: int
    oldest: dt.datetime
    rows: tuple[Stuck, ...]


def stuck(conn: Connection, *, tenant: str = "", samples: int = SAMPLES) -> tuple[StuckGroup, ...]:
    """What waits for a person, by kind and cause."""
    groups = []
    for cause in waiting.read_causes(conn, tenant=tenant):
        says, next_step = _reason(cause.code)
        rows = waiting.read_waiting(conn, cause, tenant=tenant, limit=samples) if samples else []
        groups.append(
            StuckGroup(
                kind=cause.kind,
                code=cause.code,
                says=KINDS[cause.kind],
                reason=says,
                next_step=next_step,
                count=cause.rows,
                oldest=cause.oldest,
                rows=tuple(_stuck(conn, row) for row in rows),
            )
        )
    return tuple(groups)


def export(
    conn: Connection, *, tenant: str = "", kinds: Collection[str] = EXPORTED, after: str | None = None
) -> Iterator[str]:
    """One JSON object a line, by kind and key; `after` is the last key that an earlier export of one kind had."""
    for kind in EXPORTED:
        if kind not in kinds:
            continue
        begin = None if after is None else int(after) if kind == "event" else after
        for row in waiting.read_all(conn, kind, tenant=tenant, after=begin):
            plain = {name: write_time(v) if isinstance(v, dt.datetime) else v for name, v in row.items()}
            yield json.dumps({"kind": kind, **plain}, ensure_ascii=False, sort_keys=True)


def _reason(code: str) -> tuple[str, str]:
    """What a hold or a reason says, and what usually follows."""
    held = {hold.value: word for hold, word in HOLDS.items()}.get(code)
    if held is not None:
        return held.says, f"Wait for {held.waits_for}."
    reason = reason_of(code) if code else None
    return (reason.sentence, reason.next_step) if reason is not None else ("", "")


def _stuck(conn: Connection, row: WaitingRow) -> Stuck:
    key = row.attempt.link_key if row.attempt is not None else row.link.link_key if row.link is not None else None
    [slot] = read_slots(conn, [key]) if key is not None else [None]
    is_attempt = row.attempt is not None
    target = row.attempt or row.link
    if slot is None or target is None:
        msg = "a row that waits has a slot"
        raise LookupError(msg)
    return Stuck(
        source_object=row.source_object,
        record_id=row.source_record_id,
        target="attempt" if is_attempt else "link",
        target_id=target.id,
        row_version=target.row_version,
        since=row.since,
        verbs=decidable(conn, slot, row.link, row.attempt, drift=())
        or verbs(("explain",), source_object=row.source_object, record_id=row.source_record_id, tenant=slot.tenant),
    )
