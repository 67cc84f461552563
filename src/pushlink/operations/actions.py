"""The operator's verbs for Python and for every surface: one entry for all of them, and one for a bulk of them.

A decision names its row and the version that was seen, its actor and its reason; `protocol/verbs.py` says where which
verb is allowed. The caller's transaction holds everything or nothing of it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Final

from pushlink.flows import operating_again, operating_creates, operating_links, operating_updates
from pushlink.flows.operating import (
    Acting,
    Decision,
    Done,
    Effects,
    OperatorTerms,
    finish,
    lock_subject,
    refusal_of_words,
    require_allowed,
)
from pushlink.flows.world import World
from pushlink.protocol.states import Operation
from pushlink.protocol.verbs import Verb
from pushlink.store.access import Connection

__all__ = ["Decision", "Done", "OperatorTerms", "act"]

_Act = Callable[[Acting], Effects]

_ACTS: Final[Mapping[Verb, _Act]] = {
    Verb.ADOPT: operating_creates.adopt,
    Verb.ABSENT: operating_creates.absent,
    Verb.LOOKUP: operating_creates.look_up,
    Verb.REPLAY: operating_creates.replay,
    Verb.APPLIED: operating_updates.applied,
    Verb.RESEND: operating_updates.resend,
    Verb.SUPERSEDE: operating_creates.supersede,
    Verb.UNHOLD: operating_creates.unhold,
    Verb.ABANDON: operating_creates.abandon,
    Verb.DISPOSE: operating_creates.dispose,
    Verb.REPAIR_LANE: operating_creates.repair_lane,
    Verb.RELEASE_VERSION: operating_updates.release_version,
    Verb.VALIDATE_CREATE: operating_again.validate_create,
    Verb.SUSPEND: operating_links.suspend,
    Verb.REVALIDATE: operating_links.revalidate,
    Verb.RELOCATE: operating_links.relocate,
    Verb.RETIRE: operating_links.retire,
    Verb.RELEASE_SLOT: operating_links.release_slot,
}

_REINTERPRETS: Final[Mapping[Operation, _Act]] = {
    Operation.CREATE: operating_creates.reinterpret,
    Operation.UPDATE: operating_updates.reinterpret,
}


def act(conn: Connection, world: World, decision: Decision, *, terms: OperatorTerms, now: dt.datetime) -> Done:
    """Do what an operator decided, in the caller's transaction.

    Raises `CallerError`: `stale_version` when the row has changed since it was seen, `not_allowed_now` with the verbs
    that are allowed, `record_unknown` for a row that the tenant does not have. Nothing is written then.
    """
    if (wrong := refusal_of_words(decision)) is not None:
        raise wrong
    subject = lock_subject(conn, decision)
    require_allowed(decision, subject)
    acting = Acting(conn=conn, world=world, decision=decision, terms=terms, now=now, subject=subject)
    return finish(acting, _act_of(decision.verb, subject.attempt.operation if subject.attempt else None)(acting))


def _act_of(verb: Verb, operation: Operation | None) -> _Act:
    if verb is Verb.REINTERPRET and operation is not None:
        return _REINTERPRETS[operation]
    return _ACTS[verb]
