"""Steps of look-ups by the stamp that did not show the record: ask again, give up, or end what was proved absent.

What an answer is worth depends on the moment at which it is written, so it is decided here, by the database's clock and
under the row's lock, with every stored answer of the attempt read once more.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from pushlink.errors import Code
from pushlink.flows.step_items import Answer, InVain, LooksNoMore
from pushlink.protocol.replies import Effect
from pushlink.protocol.sealing import Plain
from pushlink.protocol.states import UNSETTLED, CreateEvent
from pushlink.store import attempts, decisions, lifecycle, responses
from pushlink.store.attempts import LookUpEnd, Wait
from pushlink.store.lifecycle import Move

#: A stored answer of one of these says that the remote did it, whatever a look-up does not find.
SAYS_DONE: Final = frozenset({Effect.APPLIED.value, Effect.APPLIED_UNIDENTIFIED.value})


#: What the last look-up was answered is no reason to give up by itself: the time is over.
_NOT_A_REASON: Final = (None, Code.THROTTLED)


def go_on(conn: sa.Connection, items: Sequence[InVain], *, now: dt.datetime) -> None:
    """What follows each of these answers, which are stored already; their claims are locked."""
    ends: list[LooksNoMore] = []
    moves: list[Move] = []
    waits: list[Wait] = []
    for item in items:
        row, answer = item.answer.attempt, item.answer
        due = now + dt.timedelta(milliseconds=item.every_ms)
        is_doubtful = row.status in UNSETTLED
        if is_doubtful and item.proof_from is not None and now >= item.proof_from and not _speaks_against(conn, answer):
            moves.append(_move(answer, CreateEvent.CONFIRM_ABSENT, Code.CONFIRMED_ABSENT, in_doubt=False))
        elif not is_doubtful and item.refused_from is not None and now >= item.refused_from:
            moves.append(_move(answer, CreateEvent.REJECT, Code.REMOTE_CONFLICT, in_doubt=None))
        elif not item.ends and due <= item.until:
            waits.append(Wait(attempt_id=row.id, token=answer.token, until=due))
        elif is_doubtful:
            ends.append(_end(answer))
        else:
            moves.append(_move(answer, CreateEvent.UNKNOWN, answer.reason_code or Code.LOOKUP_IN_VAIN, in_doubt=True))
    attempts.await_lookups(conn, waits)
    lifecycle.move_attempts(conn, moves, now=now)
    stop(conn, ends, now=now)


def stop(conn: sa.Connection, items: Sequence[LooksNoMore], *, now: dt.datetime) -> None:
    """Make no further look-up of these by itself."""
    attempts.end_lookups(
        conn,
        [
            LookUpEnd(row=i.attempt, token=i.token, reason_code=i.reason_code, detail=i.detail, actor=i.actor)
            for i in items
        ],
        now=now,
    )


def _speaks_against(conn: sa.Connection, answer: Answer) -> bool:
    """Whether something that is known forbids to believe that nothing was made: then a person decides (D-08)."""
    row = answer.attempt
    if decisions.forgot_sends(conn, row):
        return True
    disposed = decisions.read_disposed(conn, row.id)
    answers = responses.read_answers(conn, Plain(), row.id)  # of no body is anything asked here
    return any(
        stored.effect in SAYS_DONE or (stored.candidate_id is not None and stored.candidate_id not in disposed)
        for stored in answers
    )


def _end(answer: Answer) -> LooksNoMore:
    return LooksNoMore(
        attempt=answer.attempt,
        token=answer.token,
        actor=answer.actor,
        reason_code=Code.LOOKUP_IN_VAIN if answer.reason_code in _NOT_A_REASON else answer.reason_code,
        detail=answer.detail or {},
    )


def _move(answer: Answer, event: CreateEvent, code: Code, *, in_doubt: bool | None) -> Move:
    return Move(
        row=answer.attempt,
        event=event,
        token=answer.token,
        actor=answer.actor,
        reason_code=code,
        detail=answer.detail,
        in_doubt=in_doubt,
    )
