"""What every declared value of a pack is made of: the base model, and the few kinds of text and number in it.

A contract is immutable, refuses unknown keys and converts nothing silently. A field that a later release added is
marked, so that a pack which does not write it has the digest that it always had.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, PlainSerializer

#: A JSON Pointer (RFC 6901): empty for the whole document, else it starts with a slash.
Pointer: TypeAlias = Annotated[str, Field(pattern=r"^(/([^~/]|~[01])*)*$")]

#: The integers that every JSON reader keeps exact, RFC 8785 among them; a larger constant is written as text.
INTEGER_MAX = 2**53 - 1

#: A JSON scalar of a criterion or a constant. Numbers with a fraction are written as text: equality is exact.
Scalar: TypeAlias = str | Annotated[int, Field(ge=-INTEGER_MAX, le=INTEGER_MAX)] | bool | None

#: Wide enough that a duration frozen in milliseconds is read back.
DURATION_PATTERN = r"^[0-9]{1,12}(ms|s|m|h|d)$"

#: A year is longer than anything a pack waits for.
DURATION_MS_MAX = 366 * 86_400_000

_DURATION = re.compile(r"(?P<count>[0-9]{1,12})(?P<unit>ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration_ms(value: object) -> object:
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        duration_ms = int(match["count"]) * _UNIT_MS[match["unit"]]
        if duration_ms <= DURATION_MS_MAX:
            return duration_ms
        msg = "write a duration of at most 366 days"
        raise ValueError(msg)
    msg = "write a duration as a whole number and a unit, such as 500ms, 5s, 10m, 2h or 1d"
    raise ValueError(msg)


#: A duration in milliseconds; written as `500ms`, `5s`, `10m`, `2h` or `1d`.
DurationMs: TypeAlias = Annotated[
    int,
    BeforeValidator(_duration_ms, json_schema_input_type=Annotated[str, Field(pattern=DURATION_PATTERN)]),
    PlainSerializer(lambda ms: f"{ms}ms", return_type=str),
]


def _plain_json(value: JsonValue) -> JsonValue:
    if isinstance(value, float) or (isinstance(value, int) and abs(value) > INTEGER_MAX):
        msg = "write a number with a fraction, or one beyond 2^53, as text"
        raise ValueError(msg)
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _plain_json(item)
    return value


#: A literal JSON value of a pack: text, integers, booleans, null, lists and objects.
PlainJson: TypeAlias = Annotated[JsonValue, AfterValidator(_plain_json)]


class Contract(BaseModel):
    """Base of every declared value: immutable, no unknown keys, no silent conversion between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)


class Later:
    """The mark of a field that came after the first release: `Annotated[kind, LATER]`, with a default."""

    def __repr__(self) -> str:
        return "LATER"


LATER: Final = Later()


def write_whole(contract: BaseModel) -> dict[str, object]:
    """Everything a contract says, defaults too; a later field stands in it only where it says more than its default."""
    document: dict[str, object] = contract.model_dump(mode="json", by_alias=True)
    _leave_out(contract, document)
    return document


def _leave_out(contract: BaseModel, document: dict[str, object]) -> None:
    for name, info in type(contract).model_fields.items():
        value, spelling = getattr(contract, name), info.alias or name
        if LATER in info.metadata and value == info.get_default():
            del document[spelling]
            continue
        for below, written in _contracts_in(value, document[spelling]):
            _leave_out(below, written)


def _contracts_in(value: object, written: object) -> Iterator[tuple[BaseModel, dict[str, object]]]:
    match value, written:
        case BaseModel(), dict():
            yield value, written
        case tuple(), list():
            for item, part in zip(value, written, strict=True):
                yield from _contracts_in(item, part)
        case dict(), dict():
            for key, item in value.items():
                yield from _contracts_in(item, written[key])
