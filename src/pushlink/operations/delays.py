"""Why an attempt that may be sent is not taken: its turn in an ordering, and the limits of its destination.

Nobody has to do anything about any of it. It is computed as a claim computes it, without a lock.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pushlink.flows.allowing import caps_of
from pushlink.operations.remotes import HeldBy, held_back
from pushlink.protocol.pacing import interval_of, next_at
from pushlink.protocol.snapshots import write_time
from pushlink.store.access import Connection
from pushlink.store.active import ActiveCatalog
from pushlink.store.ordered import read_in_front
from pushlink.store.paces import count_under_way, read_paces
from pushlink.store.rows import AttemptRow

_HELD_BY: Final = {
    HeldBy.THROTTLE: "the remote, which asked to be left alone until {until}",
    HeldBy.CIRCUIT_OPEN: "the remote, which fails and is left alone until {until}",
    HeldBy.CIRCUIT_TRYING: "the remote, which failed: one request at a time finds out whether it is back",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """One reason: `sentence` goes on from "waits for"; `facts` are for programs."""

    by: str
    sentence: str
    facts: dict[str, object]

    def shown(self) -> dict[str, object]:
        """One flat object."""
        return {"by": self.by, **self.facts}


def delays_of(conn: Connection, attempt: AttemptRow, catalog: ActiveCatalog, *, now: dt.datetime) -> tuple[Delay, ...]:
    """Everything that keeps a pending attempt that is not held from being claimed now, beside its own time."""
    return (*_ordering(conn, attempt), *_left_alone(conn, attempt, now), *_caps(conn, attempt, catalog, now))


def _ordering(conn: Connection, attempt: AttemptRow) -> Iterator[Delay]:
    front = read_in_front(conn, attempt.id)
    if front is not None:
        who = f"the {front.operation.value} of {front.source_object} {front.record_id} ({front.status})"
        yield Delay(
            by="ordering",
            sentence=f"its turn: {front.count} before it in its ordering, first {who}",
            facts={
                "in_front": front.count,
                "attempt_id": front.attempt_id,
                "operation": front.operation.value,
                "status": front.status,
                "source_object": front.source_object,
                "record_id": front.record_id,
            },
        )


def _left_alone(conn: Connection, attempt: AttemptRow, now: dt.datetime) -> Iterator[Delay]:
    for remote in held_back(conn, tenant=attempt.tenant, now=now):
        if remote.destination_slot_id == attempt.destination_slot_id:
            until = write_time(remote.until)
            yield Delay(
                by=remote.held_by.value,
                sentence=_HELD_BY[remote.held_by].format(until=until),
                facts={"until": until, "reason": remote.reason},
            )


def _caps(conn: Connection, attempt: AttemptRow, catalog: ActiveCatalog, now: dt.datetime) -> Iterator[Delay]:
    cap = caps_of(catalog).get((attempt.tenant, attempt.destination_slot_id))
    if cap is None:
        return
    if (interval := interval_of(cap.limits)) is not None:
        moment = next_at(read_paces(conn).get(cap.share), interval, cap.limits.burst)
        if moment is not None and moment > now:
            until = write_time(moment)
            yield Delay(
                by="rate",
                sentence=f"the rate of {cap.limits.rate}, which lets the next request go at {until}",
                facts={"rate": cap.limits.rate, "until": until, "counted_over": cap.share.name},
            )
    if (at_most := cap.limits.max_concurrency) is not None:
        counts = count_under_way(conn, now=now)
        under_way = sum(counts.get(place, 0) for place in cap.places)
        if under_way >= at_most:
            yield Delay(
                by="max_concurrency",
                sentence=f"an answer: {under_way} of at most {at_most} requests are under way",
                facts={"under_way": under_way, "at_most": at_most, "counted_over": cap.share.name},
            )
