"""What lint says about preconditions: their parts, where their version comes from, and what they guard."""

from __future__ import annotations

from pushlink.packs import grammar
from pushlink.packs.lint_requests import made_by
from pushlink.packs.rules import Hit, Hits
from pushlink.packs.tree import Steps
from pushlink.protocol.body import OperationName, mappings_for
from pushlink.protocol.contracts import (
    ActionContract,
    CreatePrecondition,
    Prefetch,
    ProfileContract,
    UpdateContract,
    UpdatePrecondition,
)
from pushlink.protocol.declarations import claim_problem
from pushlink.protocol.jsontext import segments
from pushlink.protocol.paths import query_problem
from pushlink.protocol.placeholders import LINK_VERSION, REMOTE_ID, names_in
from pushlink.protocol.preconditions import version_places

#: The kinds under which an update never makes a record that is gone.
_GUARDS = frozenset({"if_match_star", "etag"})


def is_guarded(update: UpdateContract) -> bool:
    """Whether a precondition keeps an update from creating what is not there (D-24)."""
    return update.precondition is not None and update.precondition.kind in _GUARDS


def check_precondition(
    steps: Steps, operation: OperationName, action: ActionContract, profile: ProfileContract | None
) -> Hits:
    """One operation's precondition, and a version that is sent without one."""
    own = frozenset() if profile is None else frozenset(profile.variables)
    here: Steps = (*steps, "precondition")
    if operation == "create":
        if action.create.precondition is not None:
            yield from _check_create(here, action.create.precondition, own | made_by(action.create))
        return
    update = action.update
    if update is None:
        return
    condition = update.precondition
    sends_version = LINK_VERSION in {*names_in(update.body.merge), *names_in(update.query)}
    is_fetched = condition is not None and (condition.source == "fresh_get" or condition.refetch_once)
    needs = sends_version or (condition is not None and condition.kind != "if_match_star")
    if needs and not is_fetched and not action.create.response.version:
        message = "Nobody reads the version that is sent. Say in response.version of the create where answers show it."
        yield Hit("precondition", here if condition is not None else (*steps, "body", "merge"), message)
    if condition is not None:
        yield from _check_update(here, action, update, condition, own | {REMOTE_ID})


def check_prefetch(steps: Steps, profile: ProfileContract, prefetch: Prefetch) -> Hits:
    """What is opened before a request: its route, what is read from it, and what says that it is over."""
    own = frozenset(profile.variables)
    problems = grammar.path_problems(prefetch.path, variables=own, needed=frozenset())
    yield from (Hit("path", (*steps, "path"), problem) for problem in problems)
    yield from _check_query((*steps, "query"), prefetch.query, own)
    yield from (Hit("session", (*steps, "capture"), text) for text in grammar.header_problems(prefetch.capture, "x"))
    if prefetch.capture.lower() in {name.lower() for name in profile.headers}:
        yield Hit("session", (*steps, "capture"), f"The profile sends `{prefetch.capture}` itself. Remove it there.")
    for index, criterion in enumerate(prefetch.expired):
        if problem := claim_problem((criterion,)):
            yield Hit("override", (*steps, "expired", index), problem)


def _check_create(steps: Steps, condition: CreatePrecondition, allowed: frozenset[str]) -> Hits:
    if (condition.kind == "if_none_exist") is not bool(condition.query):
        yield Hit("precondition", steps, "Write kind: if_none_exist and its query together.")
    yield from _check_query((*steps, "query"), condition.query, allowed)


def _check_update(
    steps: Steps, action: ActionContract, update: UpdateContract, condition: UpdatePrecondition, allowed: frozenset[str]
) -> Hits:
    if (condition.kind == "version_field") is not (condition.pointer is not None):
        yield Hit("precondition", steps, "Write kind: version_field and the pointer to it in the body together.")
    if condition.integer and condition.kind != "version_field":
        yield Hit("precondition", (*steps, "integer"), "Only a version in the body can be a number. Remove it.")
    is_fetched = condition.source == "fresh_get" or condition.refetch_once
    if condition.kind == "if_match_star" and is_fetched:
        yield Hit("precondition", steps, "if_match_star names no version, so there is nothing to read. Remove that.")
    elif is_fetched and not version_places(update, action.create):
        message = "Say where the version stands in the answer: fetch: {version: [{from: $response.body#/version}]}."
        yield Hit("precondition", (*steps, "fetch"), message)
    for index, extractor in enumerate(condition.fetch.version):
        if problem := grammar.extractor_problem(extractor.source):
            yield Hit("id-source", (*steps, "fetch", "version", index, "from"), problem)
        if extractor.regex is not None:
            problems = grammar.pattern_problems(extractor.regex, groups=1)
            yield from (Hit("id-pattern", (*steps, "fetch", "version", index, "regex"), text) for text in problems)
    if condition.fetch.path is not None:
        problems = grammar.path_problems(condition.fetch.path, variables=allowed, needed=frozenset())
        yield from (Hit("path", (*steps, "fetch", "path"), problem) for problem in problems)
    yield from _check_query((*steps, "fetch", "query"), condition.fetch.query, allowed)
    for index, criterion in enumerate(condition.on_fail):
        if problem := claim_problem((criterion,)):
            yield Hit("override", (*steps, "on_fail", index), problem)
    place = segments(condition.pointer or "")
    taken = [segments(update.body.insert_at + mapping.target) for mapping in mappings_for(action.mappings, "update")]
    taken += [segments(pointer) for pointer in update.body.merge]
    if place and any(place[: len(other)] == other[: len(place)] for other in taken):
        yield Hit("precondition", (*steps, "pointer"), "Something else is written there. Keep one of the two.")


def _check_query(steps: Steps, query: dict[str, str], allowed: frozenset[str]) -> Hits:
    for name, value in query.items():
        if problem := query_problem(name, value, allowed=allowed):
            yield Hit("query", (*steps, name), grammar.sentence(problem))
