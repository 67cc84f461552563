"""Which look-ups are due: creates whose answer is stored, whose time has come, and whose frozen pack says what to ask.

A row whose pack declares no look-up, whose stored answer asks for none, or whose look-ups have killed too many workers,
is not among them: recovery parks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from pushlink.flows.world import World
from pushlink.protocol.lookups import lookup_named, may_be_looked_up, name_after
from pushlink.protocol.replies import Disposition
from pushlink.protocol.snapshots import ActionSnapshot, AttemptId, ProfileSnapshot
from pushlink.store import requests, responses
from pushlink.store.responses import KeptReply
from pushlink.store.rows import AttemptRow, RequestRow


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpDue:
    """What one look-up is made with."""

    row: AttemptRow
    request: RequestRow
    profile: ProfileSnapshot
    action: ActionSnapshot
    answer: KeptReply
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
        answer = _answer(responses.read_replies(conn, row.id), row.send_count)
        if request is None or answer is None:
            continue
        action, name = actions[request.action_digest], name_after(answer.verdict.get("effect"))
        if lookup_named(action.contract, name) is not None:
            due[row.id] = LookUpDue(
                row=row,
                request=request,
                profile=profiles[request.profile_digest],
                action=action,
                answer=answer,
                name=name,
            )
    return due


def _may_wait(row: AttemptRow, claims_max: int, timeline: str) -> bool:
    return (
        may_be_looked_up(row.operation, row.status)
        and row.claim_timeline == timeline
        and row.remote_id is None
        and row.claim_count < claims_max
    )


def _answer(replies: Sequence[KeptReply], send_ordinal: int) -> KeptReply | None:
    """The create's own answer to its last send, if it asked for a look-up."""
    own = [r for r in replies if r.send_ordinal == send_ordinal and not r.late and "look_up" not in r.verdict]
    return next((r for r in own if r.verdict.get("disposition") == Disposition.LOOK_UP), None)
