"""Placeholders: the few places where a literal of a pack takes a value of the link, the attempt or the profile.

A placeholder is a whole text, `{remote_id}` or `{remote_id:integer}`; a text that only contains braces is a literal,
and nothing is ever put into the middle of one. Which names there are depends on the place: lint knows, and so does
whoever passes the variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pushlink.protocol.jsontext import Json

#: The id of the linked record, on an update.
REMOTE_ID: Final = "remote_id"

#: The version token of the linked record, on an update.
LINK_VERSION: Final = "link_version"

#: The id that a create gives its record itself.
CLIENT_ID: Final = "client_id"

#: The text that stands in one create alone, by which it is found again.
STAMP: Final = "stamp"

#: The key of a create, as its remote wants it; the runtime puts it where the pack's `idempotency` says.
IDEMPOTENCY_KEY: Final = "idempotency_key"

#: What a profile's own variables may not be called.
RESERVED: Final = frozenset({REMOTE_ID, LINK_VERSION, CLIENT_ID, STAMP, IDEMPOTENCY_KEY})

#: A value by name; `None` is a variable that is known here and has no value (a link without a version).
Variables: TypeAlias = Mapping[str, str | None]

_PLACEHOLDER: Final = re.compile(r"\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::(?P<form>integer))?\}")
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class Unfilled:
    """Why a placeholder has no value, without any value."""

    name: str
    problem: str


def name_of(value: object) -> str | None:
    """The name in a text that is a placeholder, else `None`."""
    match = _PLACEHOLDER.fullmatch(value) if isinstance(value, str) else None
    return match["name"] if match else None


def names_in(value: object) -> Iterator[str]:
    """Every placeholder's name in a literal, at any depth."""
    match value:
        case str() if (name := name_of(value)) is not None:
            yield name
        case dict():
            for item in value.values():
                yield from names_in(item)
        case list() | tuple():
            for item in value:
                yield from names_in(item)


def fill(value: Json, variables: Variables) -> Json | Unfilled:
    """A literal with its placeholders filled; the first one that cannot be decides."""
    match value:
        case str():
            match = _PLACEHOLDER.fullmatch(value)
            return value if match is None else _fill(match["name"], match["form"], variables)
        case dict():
            members: dict[str, Json] = {}
            for key, item in value.items():
                if isinstance(filled := fill(item, variables), Unfilled):
                    return filled
                members[key] = filled
            return members
        case list():
            elements: list[Json] = []
            for item in value:
                if isinstance(filled := fill(item, variables), Unfilled):
                    return filled
                elements.append(filled)
            return elements
        case _:
            return value


def _fill(name: str, form: str | None, variables: Variables) -> Json | Unfilled:
    if name not in variables:
        return Unfilled(name, "it is not known here")
    text = variables[name]
    if text is None:
        return Unfilled(name, "the link has none")
    if form is None:
        return text
    return int(text) if _INTEGER.fullmatch(text) else Unfilled(name, "it is no whole number")
