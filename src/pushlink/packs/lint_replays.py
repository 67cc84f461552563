"""What lint says about contracts for creates in doubt: keys, repeats, stamps and the look-ups by them, sandboxes.

A combination that cannot hold is refused when a pack is loaded: a lifetime that is over before it begins, a repeat that
converges on a record of somebody else's, a list that proves nothing although the pack says so.
"""

from __future__ import annotations

from pushlink.packs import grammar
from pushlink.packs.lint_requests import made_by
from pushlink.packs.lint_responses import check_lookup_request, names_asked
from pushlink.packs.rules import Hit, Hits
from pushlink.packs.tree import Steps
from pushlink.protocol.body import mappings_for
from pushlink.protocol.contracts import (
    ActionContract,
    CreateContract,
    Idempotency,
    ProfileContract,
    Repeat,
    Sandbox,
    StampLookUp,
    Timeouts,
)
from pushlink.protocol.headers import header_problem
from pushlink.protocol.jsontext import segments
from pushlink.protocol.placeholders import CLIENT_ID, STAMP, name_of
from pushlink.protocol.replay import terms_of


def check_replays(steps: Steps, action: ActionContract, profile: ProfileContract | None) -> Hits:
    """Everything that a create declares for the case that nobody knows what became of it."""
    create = action.create
    own = frozenset() if profile is None else frozenset(profile.variables)
    if create.idempotency is not None:
        yield from _check_key((*steps, "idempotency"), action, create.idempotency, profile)
        if create.repeat is not None:
            yield Hit("repeat", (*steps, "repeat"), "A key says already how the create is repeated. Keep one of them.")
    if create.repeat is not None:
        yield from _check_repeat((*steps, "repeat"), create, create.repeat)
    yield from _check_lifetime(steps, create, profile)
    if create.lookup is not None:
        yield from _check_lookup((*steps, "lookup"), create, create.lookup, own | made_by(create))
    for index, conflict in enumerate(create.conflict):
        if conflict.policy == "adopt_if_stamp" and create.lookup is None:
            message = "Nothing shows whose record it is. Write a lookup by the stamp as well, or policy: park."
            yield Hit("stamp", (*steps, "conflict", index, "policy"), message)


def check_sandbox(steps: Steps, profile: ProfileContract, sandbox: Sandbox) -> Hits:
    """A place to try things: another address or another credential, of a remote that is reached like the real one."""
    yield from (Hit("sandbox", (*steps, "base_url"), text) for text in grammar.base_url_problems(sandbox.base_url))
    if sandbox.credential_ref is not None and (problem := grammar.credential_ref_problem(sandbox.credential_ref)):
        yield Hit("sandbox", (*steps, "credential_ref"), problem)
    if (sandbox.base_url, sandbox.credential_ref) == (profile.base_url, profile.credential_ref):
        yield Hit("sandbox", steps, "This is the profile's own place. Name another address, or another credential.")
    for name in sandbox.variables.keys() - profile.variables.keys():
        yield Hit(
            "sandbox", (*steps, "variables", name), "The profile has no such variable. Remove it, or add it there."
        )


def _check_key(steps: Steps, action: ActionContract, key: Idempotency, profile: ProfileContract | None) -> Hits:
    create = action.create
    taken = {name.lower() for name in (*create.headers, *(() if profile is None else profile.headers))}
    for part, name in (("name", key.name if key.location == "header" else None), ("first_sent", key.first_sent)):
        if name is None:
            continue
        if problem := header_problem(name, "x"):
            yield Hit("idempotency", (*steps, part), f"`{name}` cannot be sent: {problem}.")
        elif name.lower() in taken:
            yield Hit(
                "idempotency", (*steps, part), f"`{name}` is declared among the headers as well. Remove it there."
            )
    if key.location == "query" and key.name in create.query:
        yield Hit("idempotency", (*steps, "name"), "The query has this parameter already. Remove it there.")
    if key.location == "body":
        yield from _check_place((*steps, "name"), action, key.name)
    if key.quoted and key.location != "header":
        yield Hit("idempotency", (*steps, "quoted"), "Only a header is written in quotes. Remove it.")
    stated = {*create.prefer, *_stated(create), *(() if profile is None else _stated(profile))}
    for preference in key.requires:
        if preference not in stated:
            message = f"The remote looks at the key only with `Prefer: {preference}`. Write prefer: [{preference}]."
            yield Hit("idempotency", (*steps, "requires"), message)


def _check_place(steps: Steps, action: ActionContract, pointer: str) -> Hits:
    if not pointer.startswith("/"):
        yield Hit("idempotency", steps, "In a body the name is a JSON Pointer to the key's place, such as /request_id.")
        return
    body, place = action.create.body, segments(pointer)
    taken = [segments(body.insert_at + mapping.target) for mapping in mappings_for(action.mappings, "create")]
    taken += [segments(other) for other in body.merge]
    if any(place[: len(other)] == other[: len(place)] for other in taken):
        yield Hit("idempotency", steps, "Something else is written there. Keep one of the two.")


def _stated(holder: CreateContract | ProfileContract) -> frozenset[str]:
    values = [value for name, value in holder.headers.items() if name.lower() == "prefer"]
    return frozenset(part.partition(";")[0].strip() for value in values for part in value.split(","))


def _check_repeat(steps: Steps, create: CreateContract, repeat: Repeat) -> Hits:
    if not _is_ours(create):
        message = (
            "A repeat converges only on a record that this create named itself: write a stamp, or a client_id from the "
            "idempotency_key. Another record with the same value may be somebody else's."
        )
        yield Hit("repeat", steps, message)
    condition = create.precondition
    if repeat.kind == "upsert":
        if condition is not None:
            yield Hit("repeat", (*steps, "kind"), "An upsert has no precondition: it takes effect each time. Keep one.")
        if repeat.exists or repeat.existing_id:
            yield Hit("repeat", (*steps, "exists"), "An upsert is answered as a success. Remove it, or be conditional.")
        return
    by_query = condition is not None and condition.kind == "if_none_exist"
    if not repeat.exists and not by_query:
        yield Hit("repeat", (*steps, "exists"), "Say how a repeat is answered: exists: [{status: [412]}].")
    if by_query and condition is not None:
        asked = {name_of(value) for value in condition.query.values()}
        if not asked & {STAMP, CLIENT_ID}:
            message = "The query meets records of others too. Put {stamp} into it, where the body has it."
            yield Hit("repeat", (*steps, "kind"), message)
    elif repeat.exists and not repeat.existing_id and create.client_id is None:
        message = "Say where that answer names the record, or give the record its id with client_id."
        yield Hit("repeat", (*steps, "existing_id"), message)
    for index, extractor in enumerate(repeat.existing_id):
        if problem := grammar.extractor_problem(extractor.source):
            yield Hit("id-source", (*steps, "existing_id", index, "from"), problem)


def _is_ours(create: CreateContract) -> bool:
    own_id = create.client_id is not None and create.client_id.source == "idempotency_key"
    return own_id or create.stamp is not None


def _check_lifetime(steps: Steps, create: CreateContract, profile: ProfileContract | None) -> Hits:
    terms = terms_of(create)
    timeouts = Timeouts() if profile is None else profile.timeouts
    for name, declared in (("idempotency", create.idempotency), ("repeat", create.repeat)):
        if declared is not None and declared.lifetime_ms is None:
            message = "Write how long the remote remembers a create, as its documentation says: lifetime: 24h."
            yield Hit("lifetime-unknown", (*steps, name), message)
    if terms is not None and terms.usable_ms <= timeouts.total_ms:
        name = "idempotency" if create.idempotency is not None else "repeat"
        message = (
            "The lifetime is over before a repeat could be answered: it needs more than margin and timeouts.total. "
            "Without a lifetime it is 15 minutes."
        )
        yield Hit("lifetime", (*steps, name), message)


def _check_lookup(steps: Steps, create: CreateContract, lookup: StampLookUp, allowed: frozenset[str]) -> Hits:
    if not _is_ours(create):
        message = "Nothing tells our record from another: write a stamp, or a client_id from the idempotency_key."
        yield Hit("stamp", steps, message)
    for name in ("job", "only"):
        if getattr(lookup, name):
            yield Hit("look-up", (*steps, name), f"`{name}` is of other look-ups. This one reads items and match.")
    if lookup.key is not None:
        allowed |= {"key"}
    yield from check_lookup_request(steps, lookup, allowed)
    yield from _check_proof(steps, lookup, is_asked_by_stamp=bool(names_asked(lookup) & {STAMP, CLIENT_ID}))
    if lookup.every_ms == 0:
        yield Hit("look-up", (*steps, "every"), "Write a pause above zero.")
    for index, extractor in enumerate(lookup.id):
        if not grammar.is_in_body(extractor.source):
            yield Hit("look-up", (*steps, "id", index), "The id is read in the found item: $response.body#/pointer.")


def _check_proof(steps: Steps, lookup: StampLookUp, *, is_asked_by_stamp: bool) -> Hits:
    """What finding nothing may prove."""
    if lookup.absence_is_proof and not is_asked_by_stamp:
        message = (
            "A list that is not asked by {stamp} or {client_id} proves no absence: the record may be on another page."
        )
        yield Hit("look-up", (*steps, "absence_is_proof"), message)
    if lookup.absence_is_proof and lookup.consistency == "index" and lookup.lag_ms == 0:
        message = "An index shows a new record later. Say how much later at most: lag: 60s."
        yield Hit("look-up", (*steps, "lag"), message)
    if lookup.consistency == "strong" and lookup.lag_ms > 0:
        yield Hit("look-up", (*steps, "lag"), "What lags behind is an index. Write consistency: index, or no lag.")
