"""Form bodies: a tree of values as `application/x-www-form-urlencoded`, members of objects in brackets.

`{"a": {"b": [1, 2]}}` is `a[b][]=1&a[b][]=2` before it is percent-encoded; how elements of a list are told apart is the
pack's choice. A form has texts only: what it cannot say (null, an empty list or object, a bracket in a name, and an
object in a list without numbers) is a problem and never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final, Literal, TypeAlias
from urllib.parse import quote_plus

from pushlink.protocol import jsontext
from pushlink.protocol.jsontext import Json

ArrayStyle: TypeAlias = Literal["brackets", "indexed", "repeated"]

_BRACKETS: Final = frozenset("[]")


class Unwritable(Exception):
    """A value that a form cannot say; the text says which kind, and holds no value."""


def write_form(value: Json, arrays: ArrayStyle) -> str:
    """The form of an object that has no `jsontext.problem`; raises `Unwritable` for what a form cannot say."""
    if not isinstance(value, Mapping):
        msg = "a form is an object of named values"
        raise Unwritable(msg)
    return "&".join(f"{quote_plus(name)}={quote_plus(text)}" for name, text in _members(value, "", arrays))


def _members(value: Mapping[str, Json], prefix: str, arrays: ArrayStyle) -> Iterator[tuple[str, str]]:
    for name, item in value.items():
        if name == "" or _BRACKETS & set(name):
            msg = "a name is empty or holds a bracket, so it would read as another place"
            raise Unwritable(msg)
        yield from _pairs(item, f"{prefix}[{name}]" if prefix else name, arrays)


def _pairs(value: Json, name: str, arrays: ArrayStyle) -> Iterator[tuple[str, str]]:
    match value:
        case None:
            msg = "a form has no null; write clear: empty_string, omit or sentinel"
            raise Unwritable(msg)
        case str():
            yield name, value
        case bool() | int() | float() | Decimal():
            yield name, jsontext.write(value)
        case Mapping():
            if not value:
                msg = "a form has no empty object"
                raise Unwritable(msg)
            yield from _members(value, name, arrays)
        case _:
            yield from _elements(list(value), name, arrays)


def _elements(items: list[Json], name: str, arrays: ArrayStyle) -> Iterator[tuple[str, str]]:
    if not items:
        msg = "a form has no empty list; join it to a text, or clear the field in another way"
        raise Unwritable(msg)
    for index, item in enumerate(items):
        if arrays == "indexed":
            yield from _pairs(item, f"{name}[{index}]", arrays)
        elif isinstance(item, str | bool | int | float | Decimal):
            yield from _pairs(item, f"{name}[]" if arrays == "brackets" else name, arrays)
        else:
            msg = "a list of lists or objects needs arrays: indexed"
            raise Unwritable(msg)
