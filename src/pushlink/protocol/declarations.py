"""What a pack's own rules make of an answer, and what they may not make of it.

A declared rule stands above the built-in table, along few edges. Nothing becomes applied here. "Not applied" is a claim
that makes a second send possible, so it names its statuses, and where the built-in table is not sure it also names
something that stands in the body. A 401 is read by nobody else. An answer to a create that shows a usable id never
counts as not applied, whatever was declared. A rule that breaks one of these is not used; lint says so before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pushlink.protocol import jsontext
from pushlink.protocol.contracts import ActionContract, Criterion, ErrorRule, ProfileContract, Success
from pushlink.protocol.criteria import all_hold, holds, is_nothing, shows_something_in_the_body
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.extract import extract_id, extract_named, read_body
from pushlink.protocol.remoteids import Extracted
from pushlink.protocol.replies import (
    BY_STATUS,
    CONFLICT,
    DELETED,
    DUPLICATE,
    GONE,
    REAUTHENTICATE,
    REJECTED,
    RETRY,
    STALE,
    THROTTLE,
    UNKNOWN,
    UNLISTED,
    Effect,
    Meaning,
)
from pushlink.protocol.states import Operation

#: The status that no rule of a pack may read otherwise: HTTP promises that it was not applied, and a second one parks.
UNAUTHORIZED: Final = 401

#: A rule that claims "not applied" for more statuses that the table is not sure of is one about a whole class.
UNSURE_STATUSES_MAX: Final = 8

_SUCCESSES: Final = range(200, 300)

#: What says that an update's precondition did not hold, without a pack's help (RFC 9110 and 6585).
_STAR_FAILS: Final = frozenset({412})
_VERSION_FAILS: Final = frozenset({412, 428})
_NEVER_UNAUTHORIZED: Final = "A 401 cannot be read otherwise: it was not applied, and the credential is refreshed once."


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a declared rule says about one answer. `row` names the rule for people, as a place in the pack."""

    row: str
    meaning: Meaning
    wait_ms: int | None = None
    because: str | None = None
    candidates: tuple[str, ...] = ()
    variant: str | None = None
    asks_whose: bool = False  # the pack's look-up shows whether the record that is there is our own


def declared_reading(
    operation: Operation, action: ActionContract, profile: ProfileContract, reply: StoredReply
) -> Reading | None:
    """The first declared rule that fits this answer; `None` where the pack says nothing about it."""
    if reply.status is None or reply.status == UNAUTHORIZED:
        return None
    if _is_partial(operation, action, reply):
        return Reading(row="data together with errors", meaning=UNKNOWN)
    reading = (
        _session_over(profile, reply)
        or _failed_precondition(operation, action, reply)
        or next(_readings(operation, action, profile, reply), None)
    )
    is_claim = reading is not None and reading.meaning.effect is Effect.NOT_APPLIED and reading.meaning is not DUPLICATE
    if is_claim and operation is Operation.CREATE and _shows_an_id(action, reply):
        return Reading(row="not applied, and yet an id", meaning=UNKNOWN)
    return reading


def rule_problem(rule: ErrorRule) -> str | None:
    """Why a pack may not read answers by this rule, as a sentence; `None` when it may."""
    if rule.effect == "unknown":
        if rule.disposition != "reconcile" or rule.wait_ms is not None:
            return "What is unknown is reconciled: write disposition: reconcile, and no wait."
        names_it = UNAUTHORIZED in (_named_statuses(rule.when) or ())
        return _NEVER_UNAUTHORIZED if names_it else None
    if rule.disposition == "reconcile":
        return "What was not applied needs no reconciling: write retry_at, terminal, conflict or gone."
    if rule.wait_ms is not None and rule.disposition != "retry_at":
        return "A wait belongs to retry_at."
    return claim_problem(rule.when)


@lru_cache(maxsize=512)
def claim_problem(criteria: tuple[Criterion, ...]) -> str | None:
    """Why these criteria may not claim that nothing was applied, as a sentence; `None` when they may."""
    statuses = _named_statuses(criteria)
    if statuses is None:
        return "Name the statuses: without them it would cover time-outs of a gateway too."
    if UNAUTHORIZED in statuses:
        return _NEVER_UNAUTHORIZED
    unsure = sorted(status for status in statuses if not _is_surely_not_applied(status))
    if len(unsure) > UNSURE_STATUSES_MAX:
        return (
            f"Name at most {UNSURE_STATUSES_MAX} statuses that are not refusals by themselves: this is a whole class."
        )
    if unsure and not any(shows_something_in_the_body(criterion) for criterion in criteria):
        shown = ", ".join(map(str, unsure))
        return f"{shown} may have been applied. Name also what stands in the body then: a pointer and its value."
    return None


def is_success(operation: Operation, action: ActionContract, reply: StoredReply) -> bool:
    """Whether a reply has a status that its operation declares as done."""
    success = _success(operation, action)
    return success is not None and reply.status in success.status


def asserts_hold(operation: Operation, action: ActionContract, reply: StoredReply) -> bool:
    """Whether everything that a declared success must show is shown."""
    success = _success(operation, action)
    return success is not None and all_hold(success.asserts, reply)


def _success(operation: Operation, action: ActionContract) -> Success | None:
    if operation is Operation.CREATE:
        return action.create.success
    return None if action.update is None else action.update.success


def _readings(
    operation: Operation, action: ActionContract, profile: ProfileContract, reply: StoredReply
) -> Iterator[Reading]:
    """Every declared rule that fits, in order: the action's, the profile's, duplicates and deletions, throttles."""
    for row, rule in _rules(action, profile):
        is_for_it = not rule.on or operation.value in rule.on
        if is_for_it and rule_problem(rule) is None and all_hold(rule.when, reply):
            meaning = _meaning(rule, operation)
            yield Reading(
                row=row,
                meaning=meaning,
                wait_ms=rule.wait_ms,
                because=rule.because,
                candidates=_existing(action, reply) if meaning is DUPLICATE else (),
            )
    if operation is Operation.CREATE:
        for index, conflict in enumerate(action.create.conflict):
            if claim_problem(conflict.when) is None and all_hold(conflict.when, reply):
                yield Reading(
                    row=f"declared duplicate {index + 1}",
                    meaning=DUPLICATE,
                    candidates=extract_named(action, conflict.existing_id, reply),
                    variant=conflict.variant,
                    asks_whose=conflict.policy == "adopt_if_stamp",
                )
    elif action.update is not None:
        for index, criterion in enumerate(action.update.deleted):
            if claim_problem((criterion,)) is None and holds(criterion, reply):
                meaning = DELETED if reply.status in _SUCCESSES else GONE
                yield Reading(row=f"declared deletion {index + 1}", meaning=meaning)
    if (throttle := _throttle(profile, reply)) is not None:
        yield throttle


def rule_on_lookup(
    action: ActionContract, profile: ProfileContract, reply: StoredReply
) -> tuple[str, ErrorRule] | None:
    """The first declared rule about look-ups that fits an answer to one, and its place in the pack."""
    fitting = (
        (row, rule)
        for row, rule in _rules(action, profile)
        if "lookup" in rule.on and rule_problem(rule) is None and all_hold(rule.when, reply)
    )
    return next(fitting, None)


def throttle_row(profile: ProfileContract, reply: StoredReply) -> str | None:
    """The row that says that an answer is a throttle, whatever was asked; `None` where it is none."""
    if reply.status is None:
        return None
    if BY_STATUS.get(reply.status, UNLISTED).create is THROTTLE:
        return BY_STATUS[reply.status].name
    declared = _throttle(profile, reply)
    return None if declared is None else declared.row


def _rules(action: ActionContract, profile: ProfileContract) -> Iterator[tuple[str, ErrorRule]]:
    for name, rules in (("action errors", action.errors), ("profile errors", profile.errors)):
        yield from ((f"{name} {index + 1}", rule) for index, rule in enumerate(rules))


def _throttle(profile: ProfileContract, reply: StoredReply) -> Reading | None:
    for index, criterion in enumerate(profile.rate_limit.detect):
        if claim_problem((criterion,)) is None and holds(criterion, reply):
            return Reading(row=f"declared throttle {index + 1}", meaning=THROTTLE)
    return None


def _session_over(profile: ProfileContract, reply: StoredReply) -> Reading | None:
    """Whether the remote refused a request because what was opened before is over: it is opened anew, once."""
    expired = () if profile.session is None else profile.session.prefetch.expired
    if any(claim_problem((criterion,)) is None and holds(criterion, reply) for criterion in expired):
        return Reading(row="session is over", meaning=REAUTHENTICATE)
    return None


def _failed_precondition(operation: Operation, action: ActionContract, reply: StoredReply) -> Reading | None:
    """Whether an update was refused because what it asked to hold does not: gone, or changed by somebody else."""
    condition = action.update.precondition if operation is Operation.UPDATE and action.update is not None else None
    if condition is None:
        return None
    declared = any(claim_problem((criterion,)) is None and holds(criterion, reply) for criterion in condition.on_fail)
    is_star = condition.kind == "if_match_star"
    if not declared and reply.status not in (_STAR_FAILS if is_star else _VERSION_FAILS):
        return None
    return Reading(row="precondition did not hold", meaning=GONE if is_star else STALE)


def _meaning(rule: ErrorRule, operation: Operation) -> Meaning:
    if rule.effect == "unknown":
        return UNKNOWN
    is_create = operation is Operation.CREATE
    match rule.disposition:
        case "retry_at":
            return RETRY
        case "conflict":
            return DUPLICATE if is_create else CONFLICT
        case "gone":
            return REJECTED if is_create else GONE
        case _:
            return REJECTED


def _existing(action: ActionContract, reply: StoredReply) -> tuple[str, ...]:
    places = [extractor for conflict in action.create.conflict for extractor in conflict.existing_id]
    return extract_named(action, places, reply)


def _named_statuses(criteria: tuple[Criterion, ...]) -> frozenset[int] | None:
    """The statuses that all criteria together allow; `None` when none of them names any."""
    named = [frozenset(criterion.status) for criterion in criteria if criterion.status]
    return frozenset.intersection(*named) if named else None


def _is_surely_not_applied(status: int) -> bool:
    row = BY_STATUS.get(status, UNLISTED)
    return row.create.effect is Effect.NOT_APPLIED and row.update.effect is Effect.NOT_APPLIED


def _shows_an_id(action: ActionContract, reply: StoredReply) -> bool:
    """Whether a 2xx shows what a success would; another answer may well repeat an id that it complains about."""
    return reply.status in _SUCCESSES and isinstance(extract_id(action, reply), Extracted)


def _is_partial(operation: Operation, action: ActionContract, reply: StoredReply) -> bool:
    """Whether a GraphQL answer has errors and data: some of it was done, nobody knows what (2xx only)."""
    request = action.create if operation is Operation.CREATE else action.update
    if request is None or request.body.encoding != "graphql" or reply.status not in _SUCCESSES:
        return False
    body = read_body(reply)
    if not isinstance(body, dict) or is_nothing(jsontext.resolve(body, "/errors")):
        return False
    data = body.get("data")
    return isinstance(data, dict) and any(value is not None for value in data.values())
