"""The body of a request: mapped values at their JSON Pointers inside the pack's literal skeleton.

Two mappings never share a target and none stands inside another; a mapping never overwrites a literal of the skeleton.
Members appear in the order of the mappings, then of `merge`, so the same values give the same bytes. A body is built
from values only: no text of a record is ever read as structure, and a GraphQL document is sent as it was declared. The
tree is built once and written last, as JSON, as a form, or as the variables of a GraphQL document.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from pushlink.errors import Code
from pushlink.protocol import jsontext
from pushlink.protocol.contracts import Body, Limits
from pushlink.protocol.contracts import Mapping as MappingContract
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.forms import Unwritable, write_form
from pushlink.protocol.jsontext import Json
from pushlink.protocol.placeholders import Unfilled, Variables, fill
from pushlink.protocol.snapshots import SourceValues
from pushlink.protocol.values import Omitted, encode_value

OperationName: TypeAlias = Literal["create", "update"]

#: A body under construction: only what JSON has, and only containers that may be changed here.
_Node: TypeAlias = "dict[str, _Node] | list[_Node] | Json"

#: What a skeleton may hold where a value goes.
_EMPTY: Final[tuple[Json, ...]] = (None, {})

_UNLIMITED: Final = Limits()

_NO_VARIABLES: Final[Variables] = MappingProxyType({})

#: The media type of an encoding, where a pack says no other.
_MEDIA_TYPES: Final = {"form": "application/x-www-form-urlencoded"}


def media_type_of(body: Body) -> str:
    """The `Content-Type` of a body: what the pack says, or what its encoding is called."""
    is_said = body.media_type != Body.model_fields["media_type"].default
    return body.media_type if is_said else _MEDIA_TYPES.get(body.encoding, body.media_type)


def mappings_for(mappings: Iterable[MappingContract], operation: OperationName) -> tuple[MappingContract, ...]:
    """The mappings that take part in one operation, in order."""
    return tuple(mapping for mapping in mappings if operation in mapping.operations)


def target_problems(mappings: Iterable[MappingContract], operation: OperationName) -> tuple[str, ...]:
    """Targets that are written twice, or one inside another, in one operation; a linter asks here too."""
    problems = []
    seen: list[tuple[str, tuple[str, ...]]] = []
    for mapping in mappings_for(mappings, operation):
        path = jsontext.segments(mapping.target)
        for target, other in seen:
            shared = min(len(path), len(other))
            if path[:shared] == other[:shared]:
                problems.append(f"{mapping.target or '(all)'} and {target or '(all)'} write the same place")
        seen.append((mapping.target, path))
    return tuple(problems)


def build_body(
    mappings: Iterable[MappingContract],
    operation: OperationName,
    body: Body,
    values: SourceValues,
    *,
    bytes_max: int,
    limits: Limits = _UNLIMITED,
    variables: Variables = _NO_VARIABLES,
    placed: Sequence[tuple[str, Json]] = (),
) -> bytes | RenderFailure:
    """The bytes of one body, or why there are none. An operation that maps nothing has no body (GT-05).

    `placed` are values that come from no field of the record, each with its target.
    """
    chosen = mappings_for(mappings, operation)
    if problems := target_problems(chosen, operation):
        return _failure(Code.MAPPING_UNUSABLE, f"The outbound mappings overlap: {problems[0]}.")
    root = _tree(chosen, operation, body, values, limits, placed)
    if isinstance(root, RenderFailure):
        return root
    if unmerged := _merge(root, body, variables):
        return unmerged
    data = _write(body, root)
    if isinstance(data, RenderFailure):
        return data
    bound = min(bytes_max, limits.body_bytes or bytes_max)
    if len(data) > bound:
        return RenderFailure(
            code=Code.BODY_TOO_LARGE,
            message=f"The body has {len(data)} bytes; {bound} are allowed.",
            evidence={"body_bytes": len(data), "body_bytes_max": bound},
        )
    return data


def complete_json(body: Body, data: bytes, placed: Sequence[tuple[str, Json]]) -> bytes | RenderFailure:
    """A body that was written before, with more values in it; only a JSON body can be completed."""
    if body.encoding != "json":
        return _failure(Code.FREEZE_FAILED, "A body that is no JSON cannot be completed.")
    root: _Node = json.loads(data, parse_float=Decimal)  # our own writer's text: digits stay as they are
    base = jsontext.segments(body.insert_at)
    for target, literal in placed:
        if problem := _place(root, base + jsontext.segments(target), literal):
            return _failure(Code.FREEZE_FAILED, f"The association does not fit the body: {problem}.", target)
    return jsontext.write(root).encode()


def _tree(
    chosen: tuple[MappingContract, ...],
    operation: OperationName,
    body: Body,
    values: SourceValues,
    limits: Limits,
    placed: Sequence[tuple[str, Json]],
) -> _Node | RenderFailure:
    """The skeleton with the mapped and the placed values in it."""
    root: _Node = copy.deepcopy(body.envelope) if body.envelope is not None else {}
    base = jsontext.segments(body.insert_at)
    says_something = bool(placed)
    for mapping in chosen:
        value = encode_value(mapping, values)
        if isinstance(value, RenderFailure):
            return value
        if isinstance(value, Omitted):
            continue
        if too_long := _too_long(mapping, value, limits):
            return too_long
        path = base + jsontext.segments(mapping.target)
        if not path:
            if body.envelope:
                return _failure(Code.MAPPING_UNUSABLE, "A whole body has no room for an envelope.", mapping.target)
            root = value
        elif problem := _place(root, path, value):
            return _failure(Code.MAPPING_UNUSABLE, f"The target does not fit the envelope: {problem}.", mapping.target)
        says_something = True
    for target, literal in placed:
        if problem := _place(root, base + jsontext.segments(target), literal):
            return _failure(Code.MAPPING_UNUSABLE, f"The association does not fit the envelope: {problem}.", target)
    if not says_something:
        return _failure(Code.MAPPING_UNUSABLE, f"The outbound mappings produce no body for this {operation}.")
    return root


def _merge(root: _Node, body: Body, variables: Variables) -> RenderFailure | None:
    """Put the body's own literals and placeholders into the tree; answers why one cannot be."""
    for pointer, literal in body.merge.items():
        merged = fill(literal, variables)
        if isinstance(merged, Unfilled):
            return _failure(Code.FREEZE_FAILED, f"{merged.name} cannot be sent: {merged.problem}.", pointer)
        if problem := _place(root, jsontext.segments(pointer), merged):
            return _failure(Code.MAPPING_UNUSABLE, f"The merged value does not fit the body: {problem}.", pointer)
    return None


def _write(body: Body, root: _Node) -> bytes | RenderFailure:
    """The tree in the body's encoding."""
    if body.encoding == "graphql":
        if body.graphql is None:
            return _failure(Code.MAPPING_UNUSABLE, "A GraphQL body has no document.")
        named = {} if body.graphql.operation_name is None else {"operationName": body.graphql.operation_name}
        root = {"query": body.graphql.document, **named, "variables": root}
    if problem := jsontext.problem(root):
        return _failure(Code.VALUE_UNSENDABLE, f"The body cannot be written as JSON: {problem}.")
    if body.encoding != "form":
        return jsontext.write(root).encode()
    try:
        return write_form(root, body.arrays).encode()
    except Unwritable as unwritable:
        return _failure(Code.VALUE_UNSENDABLE, f"The body cannot be written as a form: {unwritable}.")


def _too_long(mapping: MappingContract, value: Json, limits: Limits) -> RenderFailure | None:
    """Whether a mapped text has more characters than the remote takes; the length is said, the text is not."""
    chars_max = mapping.chars_max or limits.field_chars
    length = max((len(text) for text in _texts(value)), default=0)
    if chars_max is None or length <= chars_max:
        return None
    return RenderFailure(
        code=Code.VALUE_UNSENDABLE,
        message=f"The text for {mapping.target or 'the whole body'} has {length} characters; {chars_max} are allowed.",
        evidence={"field": mapping.source, "target": mapping.target, "chars": length, "chars_max": chars_max},
    )


def _texts(value: Json) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from _texts(item)
        case list() | tuple():
            for item in value:
                yield from _texts(item)


def _place(root: _Node, path: tuple[str, ...], value: Json) -> str | None:
    """Put `value` at `path`, making objects on the way; says why when something stands there already."""
    node = root
    for index, token in enumerate(path):
        is_last = index == len(path) - 1
        if isinstance(node, dict):
            if is_last:
                if node.get(token) not in _EMPTY:
                    return "the envelope has a literal there"
                node[token] = value
            elif node.get(token) is None:
                node[token] = {}
            node = node[token]
        elif isinstance(node, list):
            if not token.isdigit() or token != str(int(token[:9])) or int(token) >= len(node):
                return "the envelope's list has no such element"
            if is_last:
                if node[int(token)] not in _EMPTY:
                    return "the envelope has a literal there"
                node[int(token)] = value
            elif node[int(token)] is None:
                node[int(token)] = {}
            node = node[int(token)]
        else:
            return "a literal of the envelope stands in the way"
    return None


def _failure(code: Code, message: str, target: str | None = None) -> RenderFailure:
    return RenderFailure(code=code, message=message, evidence={} if target is None else {"target": target})
