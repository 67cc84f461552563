"""What lint says about answers: success and its assertions, ids and versions, declared errors, throttles.

`lint.py` walks the pack and calls these with the steps to each part. What a rule may not claim is decided in
`protocol/declarations.py`, which does not use such a rule either; here it is only said.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pushlink.packs import grammar
from pushlink.packs.model import Action
from pushlink.packs.rules import Hit, Hits
from pushlink.packs.tree import Steps
from pushlink.protocol.contracts import (
    CreateContract,
    Criterion,
    ErrorRule,
    IdExtractor,
    LookUp,
    ProfileContract,
    RateLimit,
    UpdateContract,
)
from pushlink.protocol.criteria import criterion_problem
from pushlink.protocol.declarations import claim_problem, rule_problem
from pushlink.protocol.lookups import JOB, KEY
from pushlink.protocol.paths import names_in_template, query_problem
from pushlink.protocol.placeholders import name_of, names_in
from pushlink.protocol.waits import wait_problem

#: Statuses whose responses never have a body (RFC 9110).
_BODILESS: Final = frozenset({204, 205})


def check_profile_answers(steps: Steps, profile: ProfileContract) -> Hits:
    """What a profile says about all answers of its remote."""
    yield from _check_errors((*steps, "errors"), profile.errors)
    yield from _check_rate_limit((*steps, "rate_limit"), profile.rate_limit)


def check_action_answers(steps: Steps, action: Action, profile: ProfileContract | None) -> Hits:
    """What an action says about the answers to its own requests."""
    yield from _check_create((*steps, "create"), action.create)
    own = frozenset() if profile is None else frozenset(profile.variables)
    for name, lookup in (("followup", action.create.followup), ("async", action.create.asynchronous)):
        if lookup is not None:
            yield from _check_lookup((*steps, "create", name), lookup, own)
    if action.update is not None:
        yield from _check_update((*steps, "update"), action.update)
    yield from _check_errors((*steps, "errors"), action.errors)


def check_criterion(steps: Steps, criterion: Criterion) -> Hits:
    """One criterion by itself, wherever it stands."""
    if criterion.regex is not None:
        problems = grammar.pattern_problems(criterion.regex)
        yield from (Hit("criterion", (*steps, "regex"), problem) for problem in problems)
        criterion = criterion.model_copy(update={"regex": "x"})
    is_empty = criterion.status is None and criterion.header is None and criterion.pointer is None
    if not is_empty and (problem := criterion_problem(criterion)):
        yield Hit("criterion", steps, grammar.sentence(problem))


def _check_success(steps: Steps, request: CreateContract | UpdateContract) -> Hits:
    success_steps: Steps = (*steps, "success")
    if not request.success.status:
        yield Hit("success-empty", (*success_steps, "status"), "Write the statuses that mean done, such as [200].")
    if request.body.encoding == "graphql" and not request.success.asserts:
        message = "A GraphQL answer says 200 whatever happened. Write assert: [{pointer: /errors, absent: true}]."
        yield Hit("graphql-assert", success_steps, message)
    for index, criterion in enumerate(request.success.asserts):
        if criterion.status is not None:
            message = "The status stands above. An assertion is about what the answer shows: a pointer or a header."
            yield Hit("criterion", (*success_steps, "assert", index, "status"), message)


def _check_create(steps: Steps, create: CreateContract) -> Hits:
    yield from _check_success(steps, create)
    response, here = create.response, (*steps, "response")
    parts = () if response.composite is None else response.composite.parts
    extractors = (*response.id, *parts)
    if not extractors and create.client_id is None:
        message = "Say where the id of the new record stands: response: {id: [{from: $response.body#/id}]}."
        yield Hit("id-missing", (*here, "id"), message)
    if response.id and parts:
        yield Hit("composite-id", (*here, "composite"), "An id has several parts or one. Write composite or id.")
    for name in ("id", "candidates", "version"):
        yield from _check_extractors((*here, name), getattr(response, name))
    yield from _check_extractors((*here, "composite", "parts"), parts)
    pattern = response.id_rule.pattern
    if pattern is not None:
        problems = grammar.pattern_problems(pattern)
        yield from (Hit("id-pattern", (*here, "id_rule", "pattern"), problem) for problem in problems)
    bodiless = sorted(_BODILESS.intersection(create.success.status))
    in_body = bool(extractors) and all(grammar.is_in_body(extractor.source) for extractor in extractors)
    if bodiless and in_body and create.client_id is None:
        message = f"A {bodiless[0]} has no body, so its id is never found and the create parks. Read it from a header."
        yield Hit("bodiless-success", (*steps, "success", "status"), message)
    for index, conflict in enumerate(create.conflict):
        conflict_steps: Steps = (*steps, "conflict", index)
        yield from _check_extractors((*conflict_steps, "existing_id"), conflict.existing_id)
        yield from _check_claim((*conflict_steps, "when"), conflict.when)


def check_lookup_request(steps: Steps, lookup: LookUp, allowed: frozenset[str]) -> Hits:
    """The route and the body of a look-up, which may name what is allowed."""
    for problem in grammar.path_problems(lookup.path, variables=allowed, needed=frozenset()):
        yield Hit("look-up", (*steps, "path"), problem)
    for name, value in lookup.query.items():
        unsound = query_problem(name, value, allowed=allowed)
        if unsound is not None:
            yield Hit("look-up", (*steps, "query", name), grammar.sentence(unsound))
    for name in sorted(set(names_in(lookup.body)) - allowed):
        yield Hit("look-up", (*steps, "body"), f"`{{{name}}}` is not known here. Known are {_shown(allowed)}.")
    if lookup.body is not None and lookup.method == "GET":
        yield Hit("look-up", (*steps, "body"), "A GET has no body. Write method: POST, or put it into the query.")


def names_asked(lookup: LookUp) -> frozenset[str | None]:
    """The variables that a look-up names in its path, its query or its body."""
    in_query = {name_of(value) for value in lookup.query.values()}
    return frozenset({*names_in_template(lookup.path), *in_query, *names_in(lookup.body)})


def _check_lookup(steps: Steps, lookup: LookUp, own: frozenset[str]) -> Hits:
    needed = frozenset(name for name, is_there in ((JOB, lookup.job), (KEY, lookup.key is not None)) if is_there)
    allowed = own | needed
    used = names_asked(lookup)
    yield from check_lookup_request(steps, lookup, allowed)
    for name in sorted(needed - used):
        yield Hit("look-up", (*steps, name), f"Write {{{name}}} in the path, the query or the body, or leave it out.")
    if not needed:
        yield Hit(
            "look-up", steps, "Say what the record is found by: a job that the answer names, or a key of the body."
        )
    if lookup.key is not None and lookup.only is None:
        message = "Others may have the same key. Write only, the list of what was found: several are nobody's."
        yield Hit("look-up", (*steps, "key"), message)
    if lookup.every_ms == 0:
        yield Hit("look-up", (*steps, "every"), "Write a pause above zero.")
    for part in ("job", "id"):
        yield from _check_extractors((*steps, part), getattr(lookup, part))


def _check_update(steps: Steps, update: UpdateContract) -> Hits:
    yield from _check_success(steps, update)
    for index, criterion in enumerate(update.deleted):
        yield from _check_claim((*steps, "deleted", index), (criterion,))
    if update.merged is not None:
        yield from _check_extractors((*steps, "merged", "successor"), update.merged.successor)


def _check_errors(steps: Steps, rules: Iterable[ErrorRule]) -> Hits:
    for index, rule in enumerate(rules):
        if problem := rule_problem(rule):
            yield Hit("override", (*steps, index), problem)


def _check_claim(steps: Steps, criteria: tuple[Criterion, ...]) -> Hits:
    if problem := claim_problem(criteria):
        yield Hit("override", steps, problem)


def _check_rate_limit(steps: Steps, limit: RateLimit) -> Hits:
    for index, criterion in enumerate(limit.detect):
        yield from _check_claim((*steps, "detect", index), (criterion,))
    for index, wait in enumerate(limit.wait):
        if problem := wait_problem(wait):
            yield Hit("wait", (*steps, "wait", index), grammar.sentence(problem))
    if limit.cap_ms == 0:
        yield Hit("wait", (*steps, "cap"), "Write a longest wait above zero.")


def _shown(names: frozenset[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names)) or "none"


def _check_extractors(steps: Steps, extractors: Iterable[IdExtractor]) -> Hits:
    for index, extractor in enumerate(extractors):
        if problem := grammar.extractor_problem(extractor.source):
            yield Hit("id-source", (*steps, index, "from"), problem)
        if extractor.regex is not None:
            problems = grammar.pattern_problems(extractor.regex, groups=1)
            yield from (Hit("id-pattern", (*steps, index, "regex"), problem) for problem in problems)
