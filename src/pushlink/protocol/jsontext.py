"""JSON as bytes on the wire and back, with every digit kept.

Writing is deterministic (order as given, no blanks, UTF-8), keeps a decimal's digits, and refuses what JSON cannot say.
Reading is strict: UTF-8, no duplicate key, bounded depth, and numbers stay the text they were. Nothing here converts a
number to floating point. A byte order mark in front is skipped, as RFC 8259 allows; none is ever written.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeAlias

#: What can be written. Dictionaries and lists are read only here.
Json: TypeAlias = bool | int | float | str | Decimal | Sequence["Json"] | Mapping[str, "Json"] | None


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number as it was written; `1`, `1.0` and `1e0` are three different texts."""

    text: str

    @property
    def is_integer(self) -> bool:
        """Whether the text is a plain integer token; `-0` is not, there is no such id or count."""
        return self.text.lstrip("-").isdigit() and self.text != "-0"


#: What can be read.
Parsed: TypeAlias = bool | str | Number | list["Parsed"] | dict[str, "Parsed"] | None

#: A body is built from a flat list of mappings and a literal skeleton; deeper ones are mistakes.
WRITE_DEPTH_MAX: Final = 32

#: Replies come from a remote that may be hostile; nothing honest nests deeper.
READ_DEPTH_MAX: Final = 64

#: More digits than any numeric column holds; the bound keeps a tiny decimal such as 1E+999999 from becoming a megabyte.
NUMBER_DIGITS_MAX: Final = 1_000

_BRACKET_OR_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_OPEN: Final = frozenset("[{")
_CLOSE: Final = frozenset("]}")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def problem(value: Json, depth: int = 1) -> str | None:
    """Why `value` cannot be written, without the value itself; `None` when it can."""
    match value:
        case bool() | None:
            return None
        case int():
            return "the integer is too long" if value.bit_length() > NUMBER_DIGITS_MAX * 3 else None
        case float():
            return None if math.isfinite(value) else "NaN and infinity have no JSON form"
        case Decimal():
            return _decimal_problem(value)
        case str():
            return "the text is not Unicode (a lone surrogate)" if _SURROGATE.search(value) else None
    if depth > WRITE_DEPTH_MAX:
        return f"it nests deeper than {WRITE_DEPTH_MAX} levels"
    items: list[Json] = list(value)
    if isinstance(value, Mapping):
        items.extend(value.values())
    return next((found for item in items if (found := problem(item, depth + 1))), None)


def write(value: Json) -> str:
    """The JSON text of a value that has no `problem`."""
    match value:
        case Decimal():
            return format(value, "f")
        case bool() | int() | float() | str() | None:
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        case Mapping():
            return "{" + ",".join(f"{write(key)}:{write(item)}" for key, item in value.items()) + "}"
    return "[" + ",".join(map(write, value)) + "]"


def read(data: bytes) -> Parsed:
    """Parse a whole document; raises `ValueError` with a reason that never quotes the document."""
    try:
        text = data.decode("utf-8", "strict").removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    if _depth(text) > READ_DEPTH_MAX:
        msg = f"nested deeper than {READ_DEPTH_MAX} levels"
        raise ValueError(msg)
    try:
        parsed: Parsed = _DECODE(text)
    except json.JSONDecodeError:
        raise ValueError("not JSON") from None
    return parsed


def segments(pointer: str) -> tuple[str, ...]:
    """The reference tokens of a JSON Pointer (RFC 6901); the empty pointer has none."""
    if pointer == "":
        return ()
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/"))


def resolve(document: Parsed, pointer: str) -> Parsed:
    """What stands at `pointer`; `None` both for null and for nothing there, which mean the same to a reader of ids."""
    found = document
    for token in segments(pointer):
        match found:
            case dict():
                found = found.get(token)
            case list() if _INDEX.fullmatch(token) and int(token) < len(found):
                found = found[int(token)]
            case _:
                return None
    return found


def _decimal_problem(value: Decimal) -> str | None:
    if not value.is_finite():
        return "NaN and infinity have no JSON form"
    exponent = value.as_tuple().exponent
    if len(value.as_tuple().digits) + abs(int(exponent)) > NUMBER_DIGITS_MAX:
        return "the decimal is too long"
    return None


def _depth(text: str) -> int:
    """The deepest nesting of brackets outside of strings; counted before parsing, so that a parser never recurses."""
    if text.count("[") + text.count("{") <= READ_DEPTH_MAX:
        return 0
    depth = deepest = 0
    for match in _BRACKET_OR_STRING.finditer(text):
        token = match[0]
        if token in _OPEN:
            depth += 1
            deepest = max(deepest, depth)
        elif token in _CLOSE:
            depth -= 1
    return deepest


def _unique(pairs: list[tuple[str, Parsed]]) -> dict[str, Parsed]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _refuse_constant(_name: str) -> Parsed:
    raise ValueError("NaN and infinity have no JSON form")


# `json.loads` with hooks makes a decoder for each call.
_DECODE: Final = json.JSONDecoder(
    parse_int=Number, parse_float=Number, parse_constant=_refuse_constant, object_pairs_hook=_unique
).decode
