"""Records that refer to other records: the saver has to read those too, and they have to be there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from flows.family import COUNTRY_OF, PARENT, Family, MakeFamily, refused
from pushlink.adapters.policy import AllowAllAuthority
from pushlink.errors import Code
from pushlink.ports import AuthorityDecision, AuthorityRequest


class NotThese(AllowAllAuthority):
    """Everybody reads everything but one record and one field."""

    def __init__(self, *, record: str = "", field: str = "") -> None:
        super().__init__()
        self._record, self._field = record, field

    def decide_reads(self, conn: sa.Connection, requests: Any) -> list[AuthorityDecision | None]:
        return [self._narrowed(r, d) for r, d in zip(requests, super().decide_reads(conn, requests), strict=True)]

    def _narrowed(self, request: AuthorityRequest, decision: AuthorityDecision | None) -> AuthorityDecision | None:
        assert decision is not None
        if f"{request.ref.source_object} {request.ref.record_id}" == self._record:
            return replace(decision, row_readable=False, allowed_fields=(), denied_fields=request.fields)
        return replace(decision, allowed_fields=tuple(f for f in decision.allowed_fields if f != self._field))


@pytest.mark.rule("AU-04")
def test_a_target_that_the_saver_may_not_read_refuses_the_save(make_family: MakeFamily) -> None:
    """The target is authorized for the same user, at the save; nothing is reserved."""
    places = make_family(authority=NotThese(record="Place 2"))
    places.write("Place", 2)
    answer = refused(places.keep("Place", 1, name="child", parent_id=2))
    assert (answer.code, answer.evidence) == (Code.ASSOCIATION_DENIED, {"associations": ["parent"]})
    assert places.attempts() == []


@pytest.mark.rule("AU-04")
def test_a_source_field_that_the_saver_may_not_read_refuses_the_save(make_family: MakeFamily) -> None:
    """The reference itself is a value of the record."""
    places = make_family(authority=NotThese(field="parent_id"))
    places.write("Place", 2)
    assert refused(places.keep("Place", 1, name="child", parent_id=2)).code is Code.READ_DENIED
    assert places.attempts() == []


@pytest.mark.rule("AU-04")
def test_an_update_to_a_target_that_may_not_be_read_is_refused_too(make_family: MakeFamily) -> None:
    places = make_family(authority=NotThese(record="Place 2"))
    places.write("Place", 2)
    places.keep("Place", 1, name="child")
    places.drain()
    assert refused(places.keep("Place", 1, parent_id=2)).code is Code.ASSOCIATION_DENIED
    places.drain()
    assert places.sends == 1


@pytest.mark.rule("DL-16")
def test_a_reference_to_no_record_is_refused(places: Family) -> None:
    answer = refused(places.keep("Place", 1, name="child", parent_id=77))
    assert (answer.code, answer.evidence["associations"]) == (Code.ASSOCIATION_MISSING, ["parent"])


@pytest.mark.rule("DL-16")
@pytest.mark.parametrize("is_linked", [False, True])
def test_an_update_only_target_must_be_there_also_when_another_one_is_only_awaited(
    make_family: MakeFamily, is_linked: bool
) -> None:
    """The country has no remote record, so admission fails, whatever the parent's create waits for."""
    places = make_family(PARENT, {**COUNTRY_OF, "mode": "update_only"})
    places.write("Place", 2)
    places.write("Country", 1)
    if is_linked:
        places.keep("Place", 1, name="child")
        places.drain()
    answer = refused(places.keep("Place", 1, name="child", parent_id=2, country_id=1))
    assert answer.code is Code.ASSOCIATION_MISSING
    assert answer.evidence["associations"] == ["country"]
    assert json.dumps(answer.evidence["records"]).count("Country 1") == 1
