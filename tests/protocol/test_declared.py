from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field

from pushlink.protocol.declared import LATER, Contract, write_whole


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
