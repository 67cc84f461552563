"""Which look-ups are due: creates whose answer is stored, whose time has come, and whose frozen pack says what to ask.

A row whose pack declares no look-up, whose stored answer asks for none, or whose look-ups have killed too many workers,
is not among them: recovery parks it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import sqlalchemy as sa

from pushlink.flows.allowing import Allowing
from pushlink.flows.replaying import prospects
from pushlink.flows.world import World
from pushlink.protocol.lookups import BY_STAMP, Shown, lookup_named, may_be_looked_up, name_after, row_of
from pushlink.protocol.replies import Disposition
from pushlink.protocol.snapshots import ActionSnapshot, AttemptId, ProfileSnapshot
from pushlink.protocol.states import UNSETTLED
from pushlink.store import attempts, requests, responses
from pushlink.store.circuits import Place
from pushlink.store.responses import StoredAnswer
from pushlink.store.rows import AttemptRow, RequestRow


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpDue:
    """What one look-up is made with."""

    row: AttemptRow
    request: RequestRow
    profile: ProfileSnapshot
    action: ActionSnapshot
    answer: StoredAnswer
    name: str


def lookups_due(
    world: World, conn: sa.Connection, rows: Sequence[AttemptRow], *, timeline: str
) -> Mapping[AttemptId, LookUpDue]:
    """Those of these expired rows that are looked up, by attempt."""
    waiting = [row for row in rows if _may_wait(row, world.terms.claims_max, timeline)]
    if not waiting:
        return {}
    found = {r.attempt_id: r for r in requests.read_requests(conn, [row.id for row in waiting]) if r is not None}
    profiles, actions = world.thaw(
        conn, [r.profile_digest for r in found.values()], [r.action_digest for r in found.values()]
    )
    due: dict[AttemptId, LookUpDue] = {}
    for row in waiting:
        request = found.get(row.id)
        answer = _answer(responses.read_answers(conn, world.vault, row.id), row.send_count)
        if request is None or answer is None:
            continue
        action, name = actions[request.action_digest], name_after(answer.verdict.get("effect"))
        if name != BY_STAMP and lookup_named(action.contract, name) is not None:
            due[row.id] = LookUpDue(
                row=row,
                request=request,
                profile=profiles[request.profile_digest],
                action=action,
                answer=answer,
                name=name,
            )
    return due


@dataclass(frozen=True, slots=True, kw_only=True)
class StampLookUpDue:
    """What one look-up by the stamp is made with."""

    row: AttemptRow
    request: RequestRow
    profile: ProfileSnapshot
    action: ActionSnapshot
    misses: int


def stamp_lookups_due(
    world: World, conn: sa.Connection, rows: Sequence[AttemptRow], *, timeline: str, now: dt.datetime
) -> Mapping[AttemptId, StampLookUpDue]:
    """Those of these rows whose record is looked for by its stamp, by attempt.

    They are creates in doubt, and those that were told that a record is there already. Only a contract that counts now
    is asked, and not by a row whose look-ups have killed too many workers.
    """
    open_rows = [row for row in rows if row.remote_id is None and row.claim_count < world.terms.claims_max]
    hopeful = prospects(world, conn, open_rows, now=now)
    due: dict[AttemptId, StampLookUpDue] = {}
    for row in open_rows:
        prospect = hopeful.get(row.id)
        if prospect is None or prospect.look_up_ms is None:
            continue
        replies = responses.read_answers(conn, world.vault, row.id)
        is_answered = row.claim_timeline == timeline and _asks_whose(_answer(replies, row.send_count))
        if row.status not in UNSETTLED and not is_answered:
            continue
        [request] = requests.read_requests(conn, [row.id])
        if request is None:
            continue
        profiles, actions = world.thaw(conn, [request.profile_digest], [request.action_digest])
        due[row.id] = StampLookUpDue(
            row=row,
            request=request,
            profile=profiles[request.profile_digest],
            action=actions[request.action_digest],
            misses=_misses(replies),
        )
    return due


#: Reads the rows that may be looked up now, but for those of some destinations: with a stored answer, and in doubt.
ReadDue: TypeAlias = Callable[[frozenset[Place]], tuple[Sequence[AttemptRow], Sequence[AttemptRow]]]


def allowed_lookups(
    world: World,
    conn: sa.Connection,
    read: ReadDue,
    allowing: Allowing,
    *,
    limit: int,
    timeline: str,
    now: dt.datetime,
) -> list[LookUpDue | StampLookUpDue]:
    """The look-ups that are due and that their remotes take now, `limit` at most; what they take of rates is used up.

    A destination that takes no more is left out of the next read, so that what waits for it hides nobody else's.
    """
    answered, looked_for = read(frozenset())
    if not answered and not looked_for:
        return []
    budget = allowing.budget(conn, world.catalog.read(conn), rows_max=limit, now=now)
    found: dict[AttemptId, LookUpDue | StampLookUpDue] = {}
    full: frozenset[Place] = frozenset()
    while answered or looked_for:
        due: dict[AttemptId, LookUpDue | StampLookUpDue] = {
            **stamp_lookups_due(world, conn, [*answered, *looked_for], timeline=timeline, now=now),
            **lookups_due(world, conn, answered, timeline=timeline),
        }
        # What no contract looks for any more is left to people.
        attempts.schedule_lookups(conn, [row for row in looked_for if row.id not in due], None)
        before = full
        for each in due.values():
            place = (each.row.tenant, each.row.destination_slot_id)
            if each.row.id in found or place in full:
                continue
            if len(found) < limit and budget.takes(place):
                found[each.row.id] = each
            elif budget.is_used_up(place):
                full |= {place}
        if full == before or len(found) >= limit:
            break
        answered, looked_for = read(full)
    allowing.settle(conn, budget, now=now)
    return list(found.values())


def _asks_whose(answer: StoredAnswer | None) -> bool:
    return answer is not None and name_after(answer.verdict.get("effect")) == BY_STAMP


def _misses(replies: Sequence[StoredAnswer]) -> int:
    """How many look-ups by the stamp found nothing, since the last answer of another kind."""
    count = 0
    for reply in reversed(replies):
        if reply.verdict.get("look_up") != BY_STAMP or reply.verdict.get("row") != row_of(Shown.NOTHING):
            break
        count += 1
    return count


def _may_wait(row: AttemptRow, claims_max: int, timeline: str) -> bool:
    return (
        may_be_looked_up(row.operation, row.status)
        and row.claim_timeline == timeline
        and row.remote_id is None
        and row.claim_count < claims_max
    )


def _answer(replies: Sequence[StoredAnswer], send_ordinal: int) -> StoredAnswer | None:
    """The create's own answer to its last send, if it asked for a look-up."""
    own = [r for r in replies if r.send_ordinal == send_ordinal and not r.late and "look_up" not in r.verdict]
    return next((r for r in own if r.verdict.get("disposition") == Disposition.LOOK_UP), None)
