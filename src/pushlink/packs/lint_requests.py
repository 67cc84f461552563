"""What lint says about requests: routes and queries, placeholders, headers that are made, forms and GraphQL documents.

`lint.py` walks the pack and calls these with the steps to each operation; nothing here knows another action.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from pushlink.packs import grammar
from pushlink.packs.rules import Hit, Hits
from pushlink.packs.tree import Steps
from pushlink.protocol.body import OperationName, mappings_for
from pushlink.protocol.contracts import (
    ActionContract,
    Body,
    ClientId,
    CreateContract,
    CreatePrecondition,
    ProfileContract,
    UpdateContract,
)
from pushlink.protocol.contracts import Mapping as MappingContract
from pushlink.protocol.jsontext import segments
from pushlink.protocol.paths import names_in_template, query_problem, value_problem
from pushlink.protocol.placeholders import CLIENT_ID, LINK_VERSION, REMOTE_ID, RESERVED, STAMP, name_of, names_in
from pushlink.protocol.values import encode_problems

Request: TypeAlias = CreateContract | UpdateContract

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_DECLARED_VARIABLE: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)\s*:")
_OPERATION: Final = re.compile(r"\b(?:mutation|query)\s+([A-Za-z_][A-Za-z0-9_]*)")
_COMMENT_OR_TEXT: Final = re.compile(r'"""[\s\S]*?"""|"(?:[^"\\\n]|\\.)*"|#[^\n]*')
_FORM_TYPE: Final = "application/x-www-form-urlencoded"

#: What an update may name beside the variables of its profile.
_OF_UPDATES: Final = frozenset({REMOTE_ID, LINK_VERSION})


def made_by(create: CreateContract) -> frozenset[str]:
    """What a create makes itself, and may name in its request."""
    made = {CLIENT_ID: create.client_id, STAMP: create.stamp}
    return frozenset(name for name, rule in made.items() if rule is not None)


def check_variables(steps: Steps, profile: ProfileContract) -> Hits:
    """A profile's own variables: names that mean nothing else, values that may stand in a path."""
    for name, value in profile.variables.items():
        if name in RESERVED or not _NAME.fullmatch(name):
            message = f"`{name}` cannot be the name of a variable. Write another word of letters, digits and _."
            yield Hit("variables", (*steps, "variables", name), message)
        if problem := value_problem(value):
            message = f"This value cannot stand in a path: {problem}. Write one that can."
            yield Hit("variables", (*steps, "variables", name), message)
        if grammar.secret_suspected(name, value):
            message = "This looks like a secret. A pack never holds one; remove it."
            yield Hit("secret-literal", (*steps, "variables", name), message)


def check_request(
    steps: Steps,
    operation: OperationName,
    action: ActionContract,
    profile: ProfileContract | None,
    associations: frozenset[str] = frozenset(),
) -> Hits:
    """Everything about one operation's request that its own contract, its associations and its profile decide."""
    request = action.create if operation == "create" else action.update
    if request is None:
        return
    own = associations | (frozenset() if profile is None else frozenset(profile.variables))
    allowed = own | (made_by(action.create) if operation == "create" else _OF_UPDATES)
    yield from _check_route(steps, operation, request, allowed)
    yield from _check_preferences(steps, request)
    if operation == "create" and action.create.client_id is not None:
        yield from _check_client_id((*steps, "client_id"), action.create, action.create.client_id)
    yield from _check_body(steps, operation, request.body, action.mappings, allowed)


def _check_route(steps: Steps, operation: OperationName, request: Request, allowed: frozenset[str]) -> Hits:
    in_path = allowed - {LINK_VERSION}
    elsewhere = {name_of(text) for text in request.query.values()} | set(names_in(request.body.merge))
    record = frozenset({REMOTE_ID} if operation == "update" else allowed & {CLIENT_ID, STAMP})
    if isinstance(request, CreateContract) and isinstance(request.precondition, CreatePrecondition):
        elsewhere |= {name_of(text) for text in request.precondition.query.values()}
    needed = record - elsewhere
    problems = grammar.path_problems(request.path, variables=in_path, needed=needed)
    yield from (Hit("path", (*steps, "path"), problem) for problem in problems)
    if request.key_quoting != "none" and not record.intersection(names_in_template(request.path)):
        message = f"No key stands in the path, so there is nothing to write as {request.key_quoting}. Remove it."
        yield Hit("key-quoting", (*steps, "key_quoting"), message)
    for name, value in request.query.items():
        here: Steps = (*steps, "query", name)
        if problem := query_problem(name, value, allowed=allowed):
            message = f"{grammar.sentence(problem)} Write a literal, or one of {_shown(allowed)}."
            yield Hit("query", here, message)
        if name_of(value) is None and grammar.secret_suspected(name, value):
            yield Hit("secret-literal", here, "This looks like a secret. A pack never holds one; remove it.")


def _check_client_id(steps: Steps, create: CreateContract, rule: ClientId) -> Hits:
    if (rule.source == "field") is not (rule.field is not None):
        yield Hit("client-id", steps, "Write from: field and the field together.")
    if rule.source == "field" and CLIENT_ID not in names_in_template(create.path):
        message = "An id made of a field must stand in the path as {client_id}: it is read back from there."
        yield Hit("client-id", steps, message)
    for problem in encode_problems(rule.encode):
        yield Hit("client-id", (*steps, "encode"), grammar.sentence(problem))


def _check_preferences(steps: Steps, request: Request) -> Hits:
    prefers: set[str] = set(request.prefer)
    static = next((value for name, value in request.headers.items() if name.lower() == "prefer"), None)
    if static is not None:
        if prefers:
            yield Hit("prefer", (*steps, "prefer"), "A Prefer header is declared as well. Keep one of the two.")
        prefers |= {part.partition(";")[0].strip() for part in static.split(",")}
    if {"return=representation", "return=minimal"} <= prefers:
        yield Hit("prefer", (*steps, "prefer"), "Write return=representation or return=minimal, not both.")
    if len(set(request.prefer)) < len(request.prefer):
        yield Hit("prefer", (*steps, "prefer"), "A preference is written twice. Keep one of them.")
    if not isinstance(request, CreateContract) or not request.response.id or request.client_id is not None:
        return
    in_body = [grammar.is_in_body(extractor.source) for extractor in request.response.id]
    where: Steps = (*steps, "prefer") if request.prefer else (*steps, "headers")
    if "return=minimal" in prefers and all(in_body):
        message = "A minimal answer has no body, and every place of the id is in the body. Read it from a header too."
        yield Hit("prefer", where, message)
    if "return=representation" in prefers and not any(in_body):
        message = (
            "A representation may come without the header that names the record, and no place of the id is in the "
            "body. Read it from the body too."
        )
        yield Hit("prefer", where, message)


def _check_body(
    steps: Steps,
    operation: OperationName,
    body: Body,
    mappings: tuple[MappingContract, ...],
    allowed: frozenset[str],
) -> Hits:
    here: Steps = (*steps, "body")
    for pointer, literal in body.merge.items():
        for name in names_in(literal):
            if name not in allowed:
                message = f"`{{{name}}}` is not known in a {operation}. Known are {_shown(allowed)}."
                yield Hit("merge", (*here, "merge", pointer), message)
    chosen = mappings_for(mappings, operation)
    for mapping in chosen:
        if any(_meets(segments(pointer), segments(body.insert_at + mapping.target)) for pointer in body.merge):
            message = f"`{mapping.target or 'the whole body'}` is mapped as well. Keep one of the two."
            yield Hit("merge", (*here, "merge"), message)
    if (body.encoding == "graphql") is not (body.graphql is not None):
        yield Hit("graphql", (*here, "graphql"), "Write encoding: graphql and the graphql document together.")
    elif body.graphql is not None:
        yield from _check_document((*here, "graphql"), body, chosen)
    if body.encoding == "form":
        yield from _check_form(steps, body, mappings, operation)


def _check_document(steps: Steps, body: Body, chosen: tuple[MappingContract, ...]) -> Hits:
    document = body.graphql.document if body.graphql else ""
    bare = _COMMENT_OR_TEXT.sub(" ", document)
    if not bare.strip() or bare.count("{") != bare.count("}") or bare.count("(") != bare.count(")"):
        yield Hit("graphql", (*steps, "document"), "Write a whole document: its braces do not pair.")
        return
    names = _OPERATION.findall(bare)
    wanted = body.graphql.operation_name if body.graphql else None
    if wanted is not None and wanted not in names:
        message = f"The document has no operation `{wanted}`. Known are {', '.join(names) or 'none with a name'}."
        yield Hit("graphql", (*steps, "operation_name"), message)
    if len(names) > 1 and wanted is None:
        yield Hit("graphql", (*steps, "document"), "It has several operations: say in operation_name which is meant.")
    declared = set(_DECLARED_VARIABLE.findall(bare))
    for name in _variables_used(body, chosen):
        if name not in declared:
            message = f"The document declares no variable `${name}`, which the body sends. Declare it, or map less."
            yield Hit("graphql", (*steps, "document"), message)


def _variables_used(body: Body, chosen: tuple[MappingContract, ...]) -> Iterator[str]:
    places = [segments(body.insert_at + mapping.target) for mapping in chosen]
    places += [segments(pointer) for pointer in body.merge]
    yield from dict.fromkeys([*(body.envelope or {}), *(place[0] for place in places if place)])


def _check_form(steps: Steps, body: Body, mappings: tuple[MappingContract, ...], operation: OperationName) -> Hits:
    if body.media_type not in {_FORM_TYPE, Body().media_type}:
        yield Hit("media-type", (*steps, "body", "media_type"), f"A form is {_FORM_TYPE}. Remove the media type.")
    if _has_unsayable(body.envelope):
        message = "A form has no null and no empty list or object. Remove it, or write a text."
        yield Hit("form-values", (*steps, "body", "envelope"), message)
    for index, mapping in enumerate(mappings):
        if operation in mapping.operations and mapping.source is not None and mapping.clear.value == "null":
            message = "A form has no null, so an empty field would be refused. Write clear: empty_string, or omit."
            yield Hit("form-values", (*steps[:-1], "mappings", index), message)


def _has_unsayable(value: object) -> bool:
    match value:
        case dict():
            return any(item is None or item == [] or _has_unsayable(item) for item in value.values() if item != {})
        case list():
            return any(item is None or item == [] or _has_unsayable(item) for item in value)
        case _:
            return False


def _meets(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]


def _shown(names: frozenset[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names)) or "none"
