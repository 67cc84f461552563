"""Semantic findings: what has the shape of a pack and still cannot work, is unsafe, or is probably not meant.

The rules are the table in `rules.py`: their names are stable, and `docs/packs.md` shows the same table. The checks
below walk the pack in the order of the document and name the steps to what they found, so that a finding points
into the file. Nothing here looks at the world: no name is resolved, no file or variable is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from pydantic import BaseModel

from pushlink.packs import grammar
from pushlink.packs.lint_associations import association_names, check_associations, probes
from pushlink.packs.lint_headers import check_headers
from pushlink.packs.lint_limits import check_limits, check_ordering, check_token
from pushlink.packs.lint_preconditions import check_precondition, check_prefetch, is_guarded
from pushlink.packs.lint_replays import check_replays, check_sandbox
from pushlink.packs.lint_requests import check_request, check_variables
from pushlink.packs.lint_responses import check_action_answers, check_criterion, check_profile_answers
from pushlink.packs.model import Action, Destination, Pack
from pushlink.packs.rules import RULE_ORDER, RULES, RULES_BY_NAME, Hit, Hits, LintFinding, Rule, Severity
from pushlink.packs.tree import Node, Steps, value_place, write_path
from pushlink.protocol.body import OperationName, build_body
from pushlink.protocol.contracts import (
    Auth,
    Body,
    Clear,
    Condition,
    CreateContract,
    Criterion,
    Mirror,
    ProfileContract,
    UpdateContract,
)
from pushlink.protocol.contracts import Mapping as MappingContract
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.jsontext import segments
from pushlink.protocol.snapshots import SourceValues
from pushlink.protocol.values import encode_problems

__all__ = ["RULES", "LintFinding", "Rule", "Severity", "lint"]


#: No envelope of a pack is longer than its file may be; what the body may have is the profile's business.
_PROBE_BYTES_MAX: Final = 16 * 1_048_576

_M = TypeVar("_M", bound=BaseModel)


def lint(pack: Pack, *, file: str = "<pack>", root: Node | None = None) -> tuple[LintFinding, ...]:
    """Everything that the rules find: in the order of the document, or of the checks when `root` is not known.

    What is wrong for both operations of an action is said once.
    """
    findings = []
    hits = itertools.chain(_check_names(pack), _check_profiles(pack), _check_actions(pack), _check_tests(pack))
    for hit in dict.fromkeys(hits):
        line, column = value_place(root, hit.steps)
        rule = RULES_BY_NAME[hit.rule]
        findings.append(
            LintFinding(
                file=file,
                line=line,
                column=column,
                path=write_path(hit.steps),
                message=hit.message,
                rule=rule.name,
                severity=rule.severity,
            )
        )
    if root is None:
        return tuple(findings)
    return tuple(sorted(findings, key=lambda found: (found.line, found.column, RULE_ORDER[found.rule])))


def _actions(pack: Pack) -> Iterator[tuple[Steps, Action]]:
    for flow_index, flow in enumerate(pack.flows):
        for action_index, action in enumerate(flow.actions):
            yield ("flows", flow_index, "actions", action_index), action


# Names and slots


def _check_names(pack: Pack) -> Hits:
    yield from _duplicates(
        (((*steps, "action_slot_id"), action.action_slot_id) for steps, action in _actions(pack)),
        "Give each action a slot id of its own: it is what a record's link hangs on.",
    )
    destinations: list[tuple[Steps, Destination]] = [
        (("destinations", index), entry) for index, entry in enumerate(pack.destinations)
    ]
    yield from _duplicates(
        (((*steps, "destination_slot_id"), entry.destination_slot_id) for steps, entry in destinations),
        "Give each destination a slot id of its own.",
    )
    places: dict[tuple[str, str], str] = {}
    for steps, entry in destinations:
        if entry.profile not in pack.profiles:
            known = ", ".join(f"`{name}`" for name in pack.profiles)
            message = f"There is no profile `{entry.profile}`. Known are {known}."
            yield Hit("unknown-profile", (*steps, "profile"), message)
        first = places.setdefault((entry.target_object, entry.profile), entry.destination_slot_id)
        if first != entry.destination_slot_id:
            message = f"`{first}` is the same target object with the same profile. Use one destination for both."
            yield Hit("same-place", (*steps, "target_object"), message)
    used = {action.destination for _, action in _actions(pack)}
    known_slots = {entry.destination_slot_id for _, entry in destinations}
    for steps, action in _actions(pack):
        if action.destination not in known_slots:
            message = f"There is no destination `{action.destination}`. Write one of the pack's destination_slot_ids."
            yield Hit("unknown-destination", (*steps, "destination"), message)
    for steps, entry in destinations:
        if entry.destination_slot_id not in used:
            yield Hit("unused-destination", steps, "No action pushes here.")
    for name in pack.profiles.keys() - {entry.profile for _, entry in destinations}:
        yield Hit("unused-profile", ("profiles", name), "No destination uses this profile.")


def _duplicates(slots: Iterable[tuple[Steps, str]], advice: str) -> Hits:
    seen: dict[str, Steps] = {}
    for steps, slot in slots:
        first = seen.setdefault(slot, steps)
        if first != steps:
            yield Hit("duplicate-slot", steps, f"`{slot}` is taken by {write_path(first)}. {advice}")


# Profiles


def _check_profiles(pack: Pack) -> Hits:
    for name, profile in pack.profiles.items():
        steps: Steps = ("profiles", name)
        yield from (Hit("base-url", (*steps, "base_url"), text) for text in grammar.base_url_problems(profile.base_url))
        if profile.base_url.startswith("http://") and not grammar.is_loopback_or_private(profile.base_url):
            message = "Requests and the credential cross the network in the clear. Use https."
            yield Hit("plain-http", (*steps, "base_url"), message)
        yield from _check_credential(steps, profile)
        if problem := grammar.path_characters_problem(profile.path_characters):
            yield Hit("path-characters", (*steps, "path_characters"), problem)
        yield from check_headers((*steps, "headers"), profile.headers, profile)
        yield from _check_times(steps, profile)
        yield from check_variables(steps, profile)
        if profile.session is not None:
            prefetch_steps: Steps = (*steps, "session", "prefetch")
            prefetch = profile.session.prefetch
            # The header that asks for the token has the token's name, and a word such as Fetch in its place.
            asked = (*prefetch_steps, "headers")
            yield from check_headers(asked, prefetch.headers, profile, asks_for=prefetch.capture)
            yield from check_prefetch(prefetch_steps, profile, profile.session.prefetch)
        if profile.sandbox is not None:
            yield from check_sandbox((*steps, "sandbox"), profile, profile.sandbox)
        yield from check_profile_answers(steps, profile)
        yield from check_limits(steps, profile)


def _check_credential(steps: Steps, profile: ProfileContract) -> Hits:
    if profile.credential_ref is None:
        if profile.auth.kind != "none":
            message = (
                f"`{profile.auth.kind}` needs a credential_ref, such as env:NAME. For none, write auth: {{kind: none}}."
            )
            yield Hit("credential-missing", steps, message)
        return
    yield from _check_auth((*steps, "auth"), profile.auth, profile.base_url)
    if problem := grammar.credential_ref_problem(profile.credential_ref):
        yield Hit("credential-ref", (*steps, "credential_ref"), problem)
    if profile.auth.kind == "none":
        message = "The credential is never sent: auth is none. Remove one of the two."
        yield Hit("credential-unused", (*steps, "credential_ref"), message)


#: Which kind of `auth` each of its other keys belongs to.
_AUTH_KEYS: Final = {
    "token": "oauth2",
    "prefix": "bearer",
    "in": "api_key",
    "name": "api_key",
    "username": "basic",
    "secret_is": "basic",
}


def _check_auth(steps: Steps, auth: Auth, base_url: str) -> Hits:
    written = auth.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for key, kind in _AUTH_KEYS.items():
        if key in written and auth.kind != kind:
            yield Hit("auth", (*steps, key), f"`{key}` is of `kind: {kind}` only. Remove it, or change the kind.")
    yield from check_token(steps, auth)
    if auth.kind == "mtls" and not base_url.startswith("https://"):
        yield Hit("auth", (*steps, "kind"), "A certificate is shown in a TLS handshake. Write a base_url with https.")
    if auth.kind == "api_key":
        if auth.name is None:
            yield Hit("auth", steps, "`api_key` needs the name of its header or parameter.")
        elif auth.location == "header":
            yield from (Hit("auth", (*steps, "name"), problem) for problem in grammar.header_problems(auth.name, "x"))
    if auth.kind == "basic" and auth.username is not None and auth.secret_is != "password":  # noqa: S105 - a role
        yield Hit("auth", (*steps, "username"), "The secret is the user here. Remove the username, or `secret_is`.")


def _check_times(steps: Steps, profile: ProfileContract) -> Hits:
    timeouts, backoff = profile.timeouts, profile.retry.backoff
    if not 0 < timeouts.connect_ms <= timeouts.total_ms:
        message = "Write a connect time above zero that is no longer than the total."
        yield Hit("timeouts", (*steps, "timeouts"), message)
    if not 0 < backoff.base_ms <= backoff.cap_ms:
        message = "Write a base above zero that is no longer than the cap."
        yield Hit("backoff", (*steps, "retry", "backoff"), message)


# Actions


def _check_actions(pack: Pack) -> Hits:
    mirrors: dict[tuple[str, str], str] = {}
    reached = {place.destination_slot_id: pack.profiles.get(place.profile) for place in pack.destinations}
    by_slot = {action.action_slot_id: action for _, action in _actions(pack)}
    for steps, action in _actions(pack):
        profile = reached.get(action.destination)
        yield from _check_request((*steps, "create"), action.create, profile)
        known = association_names(action, "create")
        yield from check_request((*steps, "create"), "create", action, profile, known)
        yield from check_precondition((*steps, "create"), "create", action, profile)
        if action.update is not None:
            yield from _check_update((*steps, "update"), action.update, profile)
            known = association_names(action, "update")
            yield from check_request((*steps, "update"), "update", action, profile, known)
            yield from check_precondition((*steps, "update"), "update", action, profile)
        yield from check_action_answers(steps, action, profile)
        yield from check_associations(steps, action, by_slot, profile)
        yield from check_replays((*steps, "create"), action, profile)
        yield from check_ordering(steps, action)
        yield from _check_mappings(steps, action)
        yield from _check_overlaps((*steps, "mappings"), action.mappings)
        for operation, request in _requests(action):
            yield from _check_envelope((*steps, "mappings"), operation, request.body, action.mappings)
            yield from _check_envelope((*steps, "associations"), operation, request.body, probes(action))
        if action.mirror is not None:
            mirror_steps: Steps = (*steps, "mirror")
            yield from _check_mirror(mirror_steps, action.mirror, action.mappings)
            field = (action.source_object, action.mirror.remote_id_field)
            if (first := mirrors.setdefault(field, action.action)) != action.action:
                message = (
                    f"`{first}` writes this field of the same object: whichever is second finds a foreign value there."
                )
                yield Hit("shared-mirror", (*mirror_steps, "remote_id_field"), message)


def _requests(action: Action) -> Iterator[tuple[OperationName, CreateContract | UpdateContract]]:
    yield "create", action.create
    if action.update is not None:
        yield "update", action.update


def _check_request(steps: Steps, request: CreateContract | UpdateContract, profile: ProfileContract | None) -> Hits:
    yield from check_headers((*steps, "headers"), request.headers, profile)
    yield from _check_body((*steps, "body"), request.body)


def _check_update(steps: Steps, update: UpdateContract, profile: ProfileContract | None) -> Hits:
    yield from _check_request(steps, update, profile)
    if update.creates_if_missing and not is_guarded(update):
        message = "This update would create a record that was deleted remotely. Guard it by kind: if_match_star."
        yield Hit("update-guard", (*steps, "creates_if_missing"), message)


def _check_body(steps: Steps, body: Body) -> Hits:
    if problem := grammar.media_type_problem(body.media_type):
        yield Hit("media-type", (*steps, "media_type"), problem)
    if body.envelope is not None:
        yield from _check_literals((*steps, "envelope"), body.envelope)
    yield from _check_literals((*steps, "merge"), body.merge)


def _check_envelope(steps: Steps, operation: OperationName, body: Body, mappings: tuple[MappingContract, ...]) -> Hits:
    """Each mapping alone, with a value that any place could take, built as the runtime builds it."""
    for index, mapping in enumerate(mappings):
        if operation in mapping.operations and body != Body():
            probe = MappingContract(constant="x", target=mapping.target)
            skeleton = body.model_copy(update={"encoding": "json", "graphql": None, "merge": {}})
            built = build_body((probe,), operation, skeleton, SourceValues(values={}), bytes_max=_PROBE_BYTES_MAX)
            if isinstance(built, RenderFailure):
                message = (
                    f"In the body of the {operation}: {built.message} Point target or insert_at to an empty place."
                )
                yield Hit("envelope", (*steps, index, "target"), message)


def _check_literals(steps: Steps, value: object) -> Hits:
    """Secrets in a literal skeleton, at any depth."""
    match value:
        case dict():
            for key, below in value.items():
                yield from _check_literals((*steps, str(key)), below)
        case list() | tuple():
            for index, below in enumerate(value):
                yield from _check_literals((*steps, index), below)
        case str() if grammar.secret_suspected(str(steps[-1]), value):
            yield Hit("secret-literal", steps, "This looks like a secret. A pack never holds one; remove it.")


# Mappings, mirrors, tests


def _check_mappings(steps: Steps, action: Action) -> Hits:
    operations: dict[str, Steps] = {"create": (*steps, "create")}
    if action.update is not None:
        operations["update"] = (*steps, "update")
    for operation in operations:
        if not any(operation in mapping.operations for mapping in action.mappings):
            message = f"No mapping is for the {operation}, so it has no body. Add one."
            yield Hit("no-body", (*steps, "mappings"), message)
    for index, mapping in enumerate(action.mappings):
        here: Steps = (*steps, "mappings", index)
        yield from _check_mapping(here, mapping)
        if action.update is None and mapping.operations == ("update",):
            yield Hit("unused-mapping", (*here, "operations"), "The action has no update, so this is never sent.")
        replaces = action.update is not None and action.update.semantics == "replace"
        if replaces and mapping.operations == ("create",):
            message = "The update replaces the whole record, so it erases this field. Map it for both operations."
            yield Hit("replace-erases", (*here, "operations"), message)


def _check_mapping(steps: Steps, mapping: MappingContract) -> Hits:
    if not mapping.source and "constant" not in mapping.model_fields_set:
        yield Hit("mapping-value", steps, "Write a source, the field that is read, or a constant.")
    if mapping.source is not None and mapping.constant is not None:
        yield Hit("mapping-value", steps, "Write a source or a constant, not both.")
    if not mapping.operations or len(set(mapping.operations)) < len(mapping.operations):
        yield Hit("mapping-operations", (*steps, "operations"), "Write [create], [update], or leave it out for both.")
    for problem in encode_problems(mapping.encode):
        yield Hit("encode", (*steps, "encode"), grammar.sentence(problem))
    if (mapping.clear is Clear.SENTINEL) is not (mapping.sentinel is not None):
        yield Hit("sentinel", (*steps, "clear"), "Write clear: sentinel and the sentinel, a value, together.")
    tokens = segments(mapping.target)
    if isinstance(mapping.constant, str) and grammar.secret_suspected(tokens[-1] if tokens else "", mapping.constant):
        yield Hit(
            "secret-literal", (*steps, "constant"), "This looks like a secret. A pack never holds one; remove it."
        )


def _check_overlaps(steps: Steps, mappings: tuple[MappingContract, ...]) -> Hits:
    """Two targets overlap when one is the other, or the beginning of it, within one operation."""
    whole: dict[tuple[str, tuple[str, ...]], int] = {}
    beginnings: dict[tuple[str, tuple[str, ...]], int] = {}
    for index, mapping in enumerate(mappings):
        tokens = segments(mapping.target)
        before = [tokens[:length] for length in range(len(tokens) + 1)]
        earlier = [beginnings.get((operation, tokens)) for operation in mapping.operations]
        earlier += [whole.get((operation, prefix)) for operation in mapping.operations for prefix in before]
        if (found := next((place for place in earlier if place is not None), None)) is not None:
            other = write_path((*steps, found))
            message = f"{other} writes {mappings[found].target or 'the whole body'} too. Keep one of them."
            yield Hit("overlapping-targets", (*steps, index, "target"), message)
        for operation in mapping.operations:
            whole.setdefault((operation, tokens), index)
            for prefix in before:
                beginnings.setdefault((operation, prefix), index)


def _check_mirror(steps: Steps, mirror: Mirror, mappings: tuple[MappingContract, ...]) -> Hits:
    if mirror.remote_id_field == mirror.provenance_field:
        yield Hit("mirror", (*steps, "provenance_field"), "Write another field: this one holds the remote id.")
    if (mirror.provenance_field is None) is not (mirror.provenance_value is None):
        message = "Write provenance_field and provenance_value together, or neither."
        yield Hit("mirror", steps, message)
    sources = {mapping.source for mapping in mappings}
    for name in ("remote_id_field", "provenance_field"):
        field = getattr(mirror, name)
        if field is not None and field in sources:
            message = f"`{field}` is pushed as well, so every mirror would cause an update. Do not map it."
            yield Hit("mirror", (*steps, name), message)


def _check_tests(pack: Pack) -> Hits:
    for steps, condition in _instances(pack, Condition, ()):
        yield from _check_test(steps, condition, ("equals", "in", "present"), condition.one_of)
    for steps, criterion in _instances(pack, Criterion, ()):
        yield from _check_test(steps, criterion, ("status", "header", "pointer"), criterion.one_of)
        yield from check_criterion(steps, criterion)


def _check_test(steps: Steps, test: Condition | Criterion, parts: tuple[str, ...], one_of: object) -> Hits:
    written = test.model_fields_set
    if not any(getattr(test, "one_of" if part == "in" else part) is not None for part in parts):
        advice = "To test for an empty value, write present: false." if "equals" in written else ""
        yield Hit("empty-test", steps, f"Write at least one of {', '.join(parts)}. {advice}".rstrip())
    if one_of == ():
        yield Hit("empty-test", (*steps, "in"), "Write at least one value: an empty list never holds.")


def _instances(value: object, wanted: type[_M], steps: Steps) -> Iterator[tuple[Steps, _M]]:
    """Every value of one model inside another, with the steps to it as written."""
    if isinstance(value, wanted):
        yield steps, value
    elif isinstance(value, BaseModel):
        for name, info in type(value).model_fields.items():
            yield from _instances(getattr(value, name), wanted, (*steps, info.alias or name))
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from _instances(below, wanted, (*steps, str(key)))
    elif isinstance(value, tuple):
        for index, below in enumerate(value):
            yield from _instances(below, wanted, (*steps, index))
