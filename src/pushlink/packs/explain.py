"""Turns pydantic's errors into findings: the place in the file, the path as people write it, a sentence that helps.

One finding a place. An error inside a value that the tree already refused is dropped, so nobody mends one thing twice.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pushlink.errors import Finding
from pushlink.packs.tree import Node, Steps, key_place, value_place, write_path

#: What a value should have been, by pydantic's name of the mistake.
_NOUNS: Final[Mapping[str, str]] = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "keys with values",
    "model_type": "keys with values",
    "none_required": "nothing",
}

#: What a pattern of the model means, in words.
_PATTERNS: Final[Mapping[str, str]] = {
    r"^(/([^~/]|~[01])*)*$": "Write a JSON Pointer such as /a/b; a slash inside a name is ~1.",
    r"^[A-Za-z0-9._-]{1,128}$": "Write 1 to 128 letters, digits, dots, underscores or hyphens; a UUID is best.",
    r"^[^\x00-\x1f\x7f]{1,200}$": "Write one line of 1 to 200 characters.",
    r"^([0-9]{1,9}\.){2}[0-9]{1,9}([-+][0-9A-Za-z.-]{1,64})?$": "Write three numbers, as in 1.4.0.",
}

#: Keys that other tools have and pushlink leaves out on purpose.
_LEFT_OUT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("retries", "max_retries", "retry_on", "retry_on_timeout", "retry_statuses"),
        "Remove it: a request is sent again only when nothing was applied, by proof; `retry` counts those tries.",
    ),
    **dict.fromkeys(
        ("follow_redirects", "allow_redirects", "redirects", "max_redirects"),
        "Remove it: redirects are never followed. Write the endpoint that answers as base_url.",
    ),
    **dict.fromkeys(
        ("creates", "second_create", "then_create"),
        "Remove it: one action creates exactly one remote record. Give the other record an action of its own.",
    ),
}

_ONE_CREATE: Final = " One action creates exactly one remote record: give the other record an action of its own."


@dataclass(frozen=True, slots=True)
class _Located:
    """An error, the steps to the value it is about, and the value; None when the value is not there."""

    error: ErrorDetails
    steps: Steps
    node: Node | None


def explain(error: ValidationError, model: type[BaseModel], root: Node, file: str) -> Iterator[Finding]:
    """One finding for each place that pydantic complains about, in the order of its complaints."""
    by_place: dict[Steps, list[_Located]] = {}
    for details in error.errors(include_url=False, include_input=False):
        located = _locate(details, root)
        if not _refused_before(root, located.steps) and not _follows(located):
            by_place.setdefault(located.steps, []).append(located)
    for steps, group in by_place.items():
        unknown = group[0].error["type"] == "extra_forbidden"
        line, column = key_place(root, steps) if unknown else value_place(root, steps)
        message = _sentence(group, model)
        yield Finding(file=file, line=line, column=column, path=write_path(steps), message=message)


def _locate(details: ErrorDetails, root: Node) -> _Located:
    """Follow pydantic's location as far as the document goes; what is left names branches of a union."""
    steps: list[str | int] = []
    node = root
    for step in details["loc"]:
        below = node.child(step)
        if below is None:
            if details["type"] == "missing":
                return _Located(details, (*steps, step), None)
            break
        steps.append(step)
        node = below
    return _Located(details, tuple(steps), node)


def _refused_before(root: Node, steps: Steps) -> bool:
    node: Node | None = root
    for step in steps:
        if node is None or node.faulty:
            break
        node = node.child(step)
    return node is not None and node.faulty


def _follows(located: _Located) -> bool:
    """A list counts as empty when none of its entries is sound: each of those is explained by itself."""
    node = located.node
    return located.error["type"] == "too_short" and node is not None and bool(node.items or node.entries)


def _sentence(group: Sequence[_Located], model: type[BaseModel]) -> str:
    # A value that may also be left out answers with "nothing expected" beside the complaint that helps.
    telling = [located for located in group if located.error["type"] != "none_required"] or list(group)
    kinds = list(dict.fromkeys(located.error["type"] for located in telling))
    first = telling[0]
    if first.node is not None and all(kind in _NOUNS for kind in kinds):
        return _wrong_kind([_NOUNS[kind] for kind in kinds], first)
    named = next((located for located in telling if located.error["type"] not in _NOUNS), first)
    return _named(named, model)


def _wrong_kind(nouns: Sequence[str], located: _Located) -> str:
    node = located.node
    wanted = " or ".join(dict.fromkeys(nouns))
    if node is None or (node.value is None and node.kind() == "nothing"):
        return f"Nothing is written here. Write {wanted}, or remove the key if you do not need it."
    message = f"Write {wanted} here, not {node.kind()}."
    if wanted == "text" and isinstance(node.value, int):
        shown = str(node.value).lower() if isinstance(node.value, bool) else str(node.value)
        message = f'Write text here: put it in quotes, "{shown}".'
    if located.steps[-1:] == ("create",) and node.items is not None:
        message += _ONE_CREATE
    return message


def _named(located: _Located, model: type[BaseModel]) -> str:
    context: Mapping[str, Any] = located.error.get("ctx", {})
    match located.error["type"]:
        case "missing":
            return f"`{located.steps[-1]}` is missing. Add it here."
        case "extra_forbidden":
            return _unknown_key(located.steps, model)
        case "enum" | "literal_error":
            return f"Write one of {context['expected']}."
        case "string_pattern_mismatch":
            pattern = str(context["pattern"])
            return _PATTERNS.get(pattern, f"This does not have the form {pattern}.")
        case "greater_than_equal":
            return f"Write {context['ge']} or more."
        case "less_than_equal":
            return f"Write {context['le']} or less."
        case "too_short":
            return "This is empty. Write at least one entry."
        case "value_error":
            text = str(context["error"])
            return text[:1].upper() + text[1:].rstrip(".") + "."
        case _:
            return located.error["msg"].rstrip(".") + "."


def _unknown_key(steps: Steps, model: type[BaseModel]) -> str:
    key = str(steps[-1])
    if key in _LEFT_OUT:
        return f"`{key}` is no key of a pack. {_LEFT_OUT[key]}"
    known = _keys_at(model, steps[:-1])
    close = difflib.get_close_matches(key, known, n=1)
    if close:
        return f"`{key}` is no key here. Did you mean `{close[0]}`?"
    return f"`{key}` is no key here. Known are: {', '.join(known)}." if known else f"`{key}` is no key here. Remove it."


def _keys_at(model: type[BaseModel], steps: Steps) -> list[str]:
    """The keys, as written, of the model at the end of the steps."""
    annotation: object = model
    for step in steps:
        annotation = _below(_bare(annotation), step)
    bare = _bare(annotation)
    if not (isinstance(bare, type) and issubclass(bare, BaseModel)):
        return []
    return [info.alias or name for name, info in bare.model_fields.items()]


def _below(annotation: object, step: str | int) -> object:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, info in annotation.model_fields.items():
            if (info.alias or name) == step:
                return info.annotation
        return None
    arguments = get_args(annotation)
    return (arguments[1] if get_origin(annotation) is dict else arguments[0]) if arguments else None


def _bare(annotation: object) -> object:
    """The type itself, without `Annotated` and the `None` of an optional value."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in {Union, types.UnionType}:
            annotation = next(argument for argument in get_args(annotation) if argument is not type(None))
        else:
            return annotation
