"""The body of a request: mapped values at their JSON Pointers inside the pack's literal skeleton.

Two mappings never share a target and none stands inside another; a mapping never overwrites a literal of the skeleton.
Members appear in the order of the mappings, so the same values give the same bytes. A body is built from values only:
no text of a record is ever read as structure.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from pushlink.errors import Code
from pushlink.protocol import jsontext
from pushlink.protocol.contracts import Body
from pushlink.protocol.contracts import Mapping as MappingContract
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.jsontext import Json
from pushlink.protocol.snapshots import SourceValues
from pushlink.protocol.values import Omitted, encode_value

OperationName: TypeAlias = Literal["create", "update"]

#: A body under construction: only what JSON has, and only containers that may be changed here.
_Node: TypeAlias = "dict[str, _Node] | list[_Node] | Json"

#: What a skeleton may hold where a value goes.
_PLACEHOLDERS: Final[tuple[Json, ...]] = (None, {})


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
) -> bytes | RenderFailure:
    """The bytes of one body, or why there are none. An operation that maps nothing has no body (GT-05)."""
    chosen = mappings_for(mappings, operation)
    if problems := target_problems(chosen, operation):
        return _failure(Code.MAPPING_UNUSABLE, f"The outbound mappings overlap: {problems[0]}.")
    root: _Node = copy.deepcopy(body.envelope) if body.envelope is not None else {}
    base = jsontext.segments(body.insert_at)
    placed = 0
    for mapping in chosen:
        value = encode_value(mapping, values)
        if isinstance(value, RenderFailure):
            return value
        if isinstance(value, Omitted):
            continue
        path = base + jsontext.segments(mapping.target)
        if not path:
            if body.envelope:
                return _failure(Code.MAPPING_UNUSABLE, "A whole body has no room for an envelope.", mapping.target)
            root = value
        elif problem := _place(root, path, value):
            return _failure(Code.MAPPING_UNUSABLE, f"The target does not fit the envelope: {problem}.", mapping.target)
        placed += 1
    if not placed:
        return _failure(Code.MAPPING_UNUSABLE, f"The outbound mappings produce no body for this {operation}.")
    if problem := jsontext.problem(root):
        return _failure(Code.VALUE_UNSENDABLE, f"The body cannot be written as JSON: {problem}.")
    data = jsontext.write(root).encode()
    if len(data) > bytes_max:
        return RenderFailure(
            code=Code.BODY_TOO_LARGE,
            message=f"The body has {len(data)} bytes; the profile allows {bytes_max}.",
            evidence={"body_bytes": len(data), "body_bytes_max": bytes_max},
        )
    return data


def _place(root: _Node, path: tuple[str, ...], value: Json) -> str | None:
    """Put `value` at `path`, making objects on the way; says why when something stands there already."""
    node = root
    for index, token in enumerate(path):
        is_last = index == len(path) - 1
        if isinstance(node, dict):
            if is_last:
                if node.get(token) not in _PLACEHOLDERS:
                    return "the envelope has a literal there"
                node[token] = value
            elif node.get(token) is None:
                node[token] = {}
            node = node[token]
        elif isinstance(node, list):
            if not token.isdigit() or token != str(int(token[:9])) or int(token) >= len(node):
                return "the envelope's list has no such element"
            if is_last:
                if node[int(token)] not in _PLACEHOLDERS:
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
