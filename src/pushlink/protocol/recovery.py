"""What becomes of an attempt whose claim has ended without a recorded outcome, as two tables.

The caller has found that the lease is over and that the row's lane is one it may consume; this module says which event
follows, or none. Only a checkpoint that was never written, on the same timeline of the database, proves that nothing
was sent. Everything else is unknown, and unknown is replayed only under a live contract in the `configured` lane.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Generic, TypeVar

from pushlink.protocol.states import KNOWN_LANES, AttemptStatus, CreateEvent, Lane, UpdateEvent

E = TypeVar("E", CreateEvent, UpdateEvent)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryFacts:
    """What is known of an attempt with an expired claim.

    `live_replay_contract`: a frozen contract that is still within its lifetime, checked on the database's clock.
    `replay_authority`: an update's frozen intent and its author's authority are both still there.
    """

    lane: str  # as stored; a word that is no known lane is left alone
    status: AttemptStatus
    checkpoint_set: bool
    same_timeline: bool
    live_replay_contract: bool
    in_doubt: bool
    remote_id_known: bool
    replay_authority: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[E]):
    """One row: the facts it asks for (`None` asks for nothing) and the event that follows."""

    name: str
    status: AttemptStatus
    event: E
    lane: Lane | None = None
    checkpoint_set: bool | None = None
    same_timeline: bool | None = None
    live_replay_contract: bool | None = None
    in_doubt: bool | None = None
    remote_id_known: bool | None = None
    replay_authority: bool | None = None


_A = AttemptStatus
_C = CreateEvent
_U = UpdateEvent

#: The first row that fits decides; a status that no row names is not recovered.
CREATE_RULES: Final[tuple[Rule[CreateEvent], ...]] = (
    Rule(
        name="claimed and never started",
        status=_A.PROCESSING,
        checkpoint_set=False,
        same_timeline=True,
        event=_C.RECOVER_UNSTARTED,
    ),
    Rule(
        name="started, and a known id outlives every contract",
        status=_A.PROCESSING,
        remote_id_known=True,
        event=_C.UNKNOWN,
    ),
    Rule(
        name="started, replay contract in the configured lane",
        status=_A.PROCESSING,
        lane=Lane.CONFIGURED,
        live_replay_contract=True,
        event=_C.REPLAY,
    ),
    Rule(name="started, or of an older timeline", status=_A.PROCESSING, event=_C.UNKNOWN),
    Rule(
        name="sent, and a known id outlives every contract",
        status=_A.POST_SENT,
        remote_id_known=True,
        event=_C.UNKNOWN,
    ),
    Rule(
        name="sent, replay contract in the configured lane",
        status=_A.POST_SENT,
        lane=Lane.CONFIGURED,
        live_replay_contract=True,
        event=_C.REPLAY,
    ),
    Rule(name="sent", status=_A.POST_SENT, event=_C.UNKNOWN),
    Rule(
        name="result committed, mirror never tried",
        status=_A.WRITEBACK_COMMIT_PENDING,
        checkpoint_set=True,
        remote_id_known=True,
        event=_C.PROMOTE,
    ),
)

UPDATE_RULES: Final[tuple[Rule[UpdateEvent], ...]] = (
    Rule(
        name="claimed and never started, with authority",
        status=_A.PROCESSING,
        checkpoint_set=False,
        same_timeline=True,
        in_doubt=False,
        replay_authority=True,
        event=_U.RECOVER_UNSTARTED,
    ),
    Rule(
        name="claimed and never started, without authority",
        status=_A.PROCESSING,
        checkpoint_set=False,
        same_timeline=True,
        replay_authority=False,
        event=_U.RECOVER_UNAUTHORISED,
    ),
    Rule(name="started, in doubt, or of an older timeline", status=_A.PROCESSING, event=_U.UNKNOWN),
    Rule(name="sent", status=_A.POST_SENT, event=_U.UNKNOWN),
)

#: The facts that a rule may ask for; `lane` is compared apart, since a row may hold any word there.
_ASKED: Final = tuple(entry.name for entry in fields(RecoveryFacts) if entry.name not in {"lane", "status"})


def recover_create(facts: RecoveryFacts) -> CreateEvent | None:
    """The event that ends an expired claim on a create attempt, or `None` when the row is left as it is."""
    return _first(CREATE_RULES, facts)


def recover_update(facts: RecoveryFacts) -> UpdateEvent | None:
    """The event that ends an expired claim on an update attempt, or `None` when the row is left as it is."""
    return _first(UPDATE_RULES, facts)


def _first(rules: tuple[Rule[E], ...], facts: RecoveryFacts) -> E | None:
    if facts.lane not in KNOWN_LANES:
        return None
    return next((rule.event for rule in rules if _fits(rule, facts)), None)


def _fits(rule: Rule[E], facts: RecoveryFacts) -> bool:
    if rule.status != facts.status or (rule.lane is not None and rule.lane != facts.lane):
        return False
    return all(getattr(rule, name) in {None, getattr(facts, name)} for name in _ASKED)
