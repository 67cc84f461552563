"""What an operator may do to a row, as one table: each verb, the states it may act on, and the arrow that it takes.

A verb without an entry for a state is refused there. An entry with no arrow leaves the status as it is and changes what
keeps the row waiting (a hold, a lane, an id set aside, a refused version). Which of the arrows of an entry is taken is
decided by evidence, never by the operator. Explanations, refusals and documentation are built from this table.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from pushlink.protocol.states import (
    BLOCKING,
    HOLDS,
    KNOWN_LANES,
    UPDATE_OPEN,
    AttemptStatus,
    CreateEvent,
    Hold,
    LinkEvent,
    LinkStatus,
    Operation,
    UpdateEvent,
)


class Verb(StrEnum):
    """What a person may decide. `reconcile` is the family that settles what is in doubt."""

    ADOPT = "reconcile adopt"
    ABSENT = "reconcile absent"
    LOOKUP = "reconcile lookup"
    REPLAY = "reconcile replay"
    REINTERPRET = "reconcile reinterpret"
    APPLIED = "reconcile applied"
    RESEND = "reconcile resend"
    SUPERSEDE = "supersede"
    UNHOLD = "unhold"
    ABANDON = "abandon"
    DISPOSE = "dispose"
    REPAIR_LANE = "repair-lane"
    RELEASE_VERSION = "release-version"
    VALIDATE_CREATE = "validate-create"
    SUSPEND = "suspend"
    REVALIDATE = "revalidate"
    RELOCATE = "relocate"
    RETIRE = "retire"
    RELEASE_SLOT = "release-slot"


class Target(StrEnum):
    """What kind of row a verb acts on; its id and its version name it."""

    ATTEMPT = "attempt"
    LINK = "link"


class Consent(StrEnum):
    """Whether somebody else has to agree."""

    NONE = "none"
    SETTING = "setting"  # where the settings ask for a second principal
    EVIDENCE = "evidence"  # the same, and always where a stored answer speaks against the verb


Event: TypeAlias = CreateEvent | UpdateEvent | LinkEvent

#: Where a row stands: the operation and status of an attempt, or the status of a link.
Place: TypeAlias = tuple[Operation, AttemptStatus] | LinkStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One verb. `holds` are the holds it needs, where it needs any; `argument` is what it has to be told."""

    target: Target
    says: str
    arrows: Mapping[Place, tuple[Event, ...]]
    holds: Mapping[Place, frozenset[Hold]] = field(default_factory=dict)
    argument: str | None = None
    consent: Consent = Consent.NONE
    settles: bool = False  # not before the settle time of the last send
    needs_unknown_lane: bool = False
    needs_contract: bool = False  # only where the contract that was frozen with the attempt allows it, and counts now


_A = AttemptStatus
_C = CreateEvent
_U = UpdateEvent
_L = LinkStatus
_E = LinkEvent
_CREATE, _UPDATE = Operation.CREATE, Operation.UPDATE

_AMBIGUOUS_CREATE: Final = (_CREATE, _A.AMBIGUOUS_REMOTE_EFFECT)
_AMBIGUOUS_UPDATE: Final = (_UPDATE, _A.AMBIGUOUS_REMOTE_EFFECT)
_TERMINAL_CREATE: Final = (_CREATE, _A.TERMINAL_FAILED)
_WRITEBACK: Final = (_CREATE, _A.WRITEBACK_PENDING)


def _holds_at(status: AttemptStatus) -> frozenset[Hold]:
    return frozenset(hold for hold, where in HOLDS.items() if status in where)


VERBS: Final[Mapping[Verb, Rule]] = {
    Verb.ADOPT: Rule(
        target=Target.ATTEMPT,
        says="Take over the remote record whose id you name; nothing is sent.",
        arrows={_AMBIGUOUS_CREATE: (_C.ADOPT,), _TERMINAL_CREATE: (_C.ADOPT,)},
        argument="ID",
    ),
    Verb.ABSENT: Rule(
        target=Target.ATTEMPT,
        says="Say, after looking, that the remote has no such record; nothing is sent.",
        arrows={_AMBIGUOUS_CREATE: (_C.CONFIRM_ABSENT,)},
        consent=Consent.EVIDENCE,
        settles=True,
    ),
    Verb.LOOKUP: Rule(
        target=Target.ATTEMPT,
        says="Let the look-up that the pack declares find our own stamp now; it only reads.",
        arrows={_AMBIGUOUS_CREATE: ()},
        needs_contract=True,
    ),
    Verb.REPLAY: Rule(
        target=Target.ATTEMPT,
        says="Send the same bytes once more under a replay contract that still holds.",
        arrows={_AMBIGUOUS_CREATE: (_C.REPLAY_EXPLICIT,)},
        needs_contract=True,
    ),
    Verb.REINTERPRET: Rule(
        target=Target.ATTEMPT,
        says="Read the stored answers again by the frozen contract; nothing is sent.",
        arrows={
            _AMBIGUOUS_CREATE: (_C.ADOPT, _C.CONFIRM_ABSENT),
            _AMBIGUOUS_UPDATE: (_U.SETTLE_APPLIED,),
        },
    ),
    Verb.APPLIED: Rule(
        target=Target.ATTEMPT,
        says="Say, after looking, that the update was applied.",
        arrows={_AMBIGUOUS_UPDATE: (_U.SETTLE_APPLIED,)},
    ),
    Verb.RESEND: Rule(
        target=Target.ATTEMPT,
        says="Give the doubtful update up and send the newest version again.",
        arrows={_AMBIGUOUS_UPDATE: (_U.RESEND,)},
        settles=True,
    ),
    Verb.SUPERSEDE: Rule(
        target=Target.ATTEMPT,
        says="Free the record's place for another create.",
        arrows={_TERMINAL_CREATE: (_C.SUPERSEDE,)},
        consent=Consent.SETTING,
    ),
    Verb.UNHOLD: Rule(
        target=Target.ATTEMPT,
        says="Let a held attempt go on.",
        arrows={(_CREATE, _A.PENDING): (), (_UPDATE, _A.PENDING): (), _WRITEBACK: ()},
        holds={
            (_CREATE, _A.PENDING): _holds_at(_A.PENDING),
            (_UPDATE, _A.PENDING): _holds_at(_A.PENDING),
            _WRITEBACK: _holds_at(_A.WRITEBACK_PENDING),
        },
    ),
    Verb.ABANDON: Rule(
        target=Target.ATTEMPT,
        says="End a held create; one that may have been sent becomes doubtful instead.",
        arrows={(_CREATE, _A.PENDING): (_C.END_UNSENT, _C.DOUBT)},
        holds={(_CREATE, _A.PENDING): _holds_at(_A.PENDING)},
    ),
    Verb.DISPOSE: Rule(
        target=Target.ATTEMPT,
        says="Set a known or named remote id aside as evidence, so that the attempt can end.",
        arrows={_WRITEBACK: (_C.DISPOSE,), _AMBIGUOUS_CREATE: (), _TERMINAL_CREATE: ()},
        holds={_WRITEBACK: frozenset({Hold.LOCATOR_CONFLICT})},
        argument="ID",
    ),
    Verb.REPAIR_LANE: Rule(
        target=Target.ATTEMPT,
        says="Move a row of an unknown lane to a known one.",
        arrows={
            **{(_CREATE, status): () for status in sorted(BLOCKING)},
            **{(_UPDATE, status): () for status in sorted(UPDATE_OPEN)},
        },
        argument="LANE",
        needs_unknown_lane=True,
    ),
    Verb.RELEASE_VERSION: Rule(
        target=Target.ATTEMPT,
        says="Allow the refused version to be sent once more.",
        arrows={(_UPDATE, _A.TERMINAL_FAILED): ()},
    ),
    Verb.VALIDATE_CREATE: Rule(
        target=Target.ATTEMPT,
        says="Accept the create path of now for a record whose place is free, after looking at both.",
        arrows={(_CREATE, _A.SUPERSEDED): (), (_CREATE, _A.FINALIZED): ()},
    ),
    Verb.SUSPEND: Rule(
        target=Target.LINK,
        says="Stop updates of this link until somebody revalidates it.",
        arrows={_L.FINALIZED: (_E.SUSPEND,)},
    ),
    Verb.REVALIDATE: Rule(
        target=Target.LINK,
        says="Accept the configuration of now for this link, after looking at the differences.",
        arrows={_L.SUSPENDED_DRIFT: (_E.REVALIDATE,), _L.FINALIZED: ()},
    ),
    Verb.RELOCATE: Rule(
        target=Target.LINK,
        says="Point the link to the remote record that took the place of the old one.",
        arrows={_L.FINALIZED: (_E.RELOCATE,), _L.SUSPENDED_DRIFT: (_E.RELOCATE,)},
        argument="ID",
    ),
    Verb.RETIRE: Rule(
        target=Target.LINK,
        says="End the link; its remote record is left alone.",
        arrows={_L.FINALIZED: (_E.RETIRE,), _L.SUSPENDED_DRIFT: (_E.RETIRE,)},
    ),
    Verb.RELEASE_SLOT: Rule(
        target=Target.LINK,
        says="Allow another create for a record whose link is retired.",
        arrows={_L.RETIRED: (_E.RELEASE_SLOT,)},
        consent=Consent.SETTING,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a row stands: its place, and for an attempt its hold and its lane."""

    place: Place
    hold: str | None = None
    lane: str | None = None


def may_act(verb: Verb, standing: Standing) -> bool:
    """Whether the state as such allows the verb; evidence, waits and consent are asked for afterwards."""
    rule = VERBS[verb]
    if standing.place not in rule.arrows:
        return False
    is_stranded = standing.lane is not None and standing.lane not in KNOWN_LANES
    if is_stranded != rule.needs_unknown_lane:
        return False
    needed = rule.holds.get(standing.place)
    if needed is not None:
        return standing.hold in {hold.value for hold in needed}
    return True


def allowed_verbs(standing: Standing) -> tuple[Verb, ...]:
    """Every verb that the state allows, in the order of the table."""
    return tuple(verb for verb in VERBS if may_act(verb, standing))


def settles_at(last_send: dt.datetime, *, total_ms: int, pause_ms: int, processing_ms: int) -> dt.datetime:
    """From when on nothing of the last send can still turn up (D-08).

    Its checkpoint, the call's whole deadline, the longest pause of a process that the deployment declares, and the time
    that the remote declares for working on a request.
    """
    return last_send + dt.timedelta(milliseconds=total_ms + pause_ms + processing_ms)
