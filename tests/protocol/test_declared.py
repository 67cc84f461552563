from __future__ import annotations

import json
from typing import Annotated

import pytest
from pydantic import Field, ValidationError

from pushlink.protocol.declared import (
    DURATION_MS_MAX,
    INTEGER_MAX,
    LATER,
    Contract,
    DurationMs,
    PlainJson,
    write_whole,
)


class Inner(Contract):
    old: int = 1
    new: Annotated[int, LATER] = 0


class Spelled(Contract):
    of_python: Annotated[int, Field(alias="of-packs")] = 0


class Outer(Contract):
    one: Inner = Inner()
    many: tuple[Inner, ...] = ()
    named: Annotated[dict[str, Inner], LATER] = {}  # noqa: RUF012  (pydantic copies it)
    text: Annotated[str | None, LATER] = None


@pytest.mark.rule("D-43")
def test_a_field_of_a_later_release_is_written_only_where_it_says_something() -> None:
    """A pack that does not use it keeps the digest that it always had; one that does says it in full."""
    assert write_whole(Outer(many=(Inner(),))) == {"one": {"old": 1}, "many": [{"old": 1}]}
    used = Outer(one=Inner(new=5), many=(Inner(new=2),), named={"a": Inner(), "b": Inner(new=3)}, text="t")
    assert write_whole(used) == {
        "one": {"old": 1, "new": 5},
        "many": [{"old": 1, "new": 2}],
        "named": {"a": {"old": 1}, "b": {"old": 1, "new": 3}},
        "text": "t",
    }


def test_a_contract_is_written_as_packs_spell_it() -> None:
    assert write_whole(Spelled(of_python=1)) == {"of-packs": 1}


class Timed(Contract):
    wait_ms: Annotated[DurationMs, Field(alias="wait")] = 0
    said: PlainJson = None


@pytest.mark.parametrize(
    ("text", "ms"),
    [("7ms", 7), ("7s", 7_000), ("7m", 420_000), ("7h", 25_200_000), ("7d", 604_800_000), ("366d", DURATION_MS_MAX)],
)
def test_a_duration_is_a_number_and_a_unit_and_is_written_in_milliseconds(text: str, ms: int) -> None:
    """What was written is read back."""
    read = Timed.model_validate_json(json.dumps({"wait": text}))
    assert read.wait_ms == ms
    assert write_whole(read)["wait"] == f"{ms}ms"
    assert Timed.model_validate_json(read.model_dump_json(by_alias=True)) == read


@pytest.mark.parametrize("value", ["367d", f"{DURATION_MS_MAX + 1}ms", "1w", "1.5s", "-1s", " 1s", "s", "", 5, None])
def test_what_is_no_duration_or_longer_than_a_year_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match="write a duration"):
        Timed.model_validate_json(json.dumps({"wait": value}))


@pytest.mark.parametrize("value", [INTEGER_MAX, -INTEGER_MAX, "1.5", True, None, {"a": [1, "b", {"c": 0}]}])
def test_a_literal_holds_what_every_reader_of_json_reads_alike(value: object) -> None:
    assert Timed.model_validate_json(json.dumps({"said": value})).said == value


@pytest.mark.parametrize("value", [INTEGER_MAX + 1, -INTEGER_MAX - 1, 1.5, 2.0, {"a": [1.5]}, [{"b": INTEGER_MAX + 1}]])
def test_a_number_that_some_reader_rounds_is_refused_wherever_it_stands(value: object) -> None:
    with pytest.raises(ValidationError, match="as text"):
        Timed.model_validate_json(json.dumps({"said": value}))


def test_a_contract_is_never_changed_and_converts_nothing() -> None:
    """Nor does it drop what it does not know; code may use the names of Python."""
    with pytest.raises(ValidationError, match="frozen"):
        Inner().old = 2  # type: ignore[misc]
    for document in ({"old": "1"}, {"old": True}, {"older": 1}):
        with pytest.raises(ValidationError):
            Inner.model_validate(document)
    assert Spelled(of_python=3) == Spelled.model_validate({"of-packs": 3}) == Spelled.model_validate({"of_python": 3})
