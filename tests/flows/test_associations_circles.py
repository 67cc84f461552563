"""Records that refer to each other in a circle: refused where it would close, held where it forms later."""

from __future__ import annotations

import json

import pytest

from flows.family import Family, refused
from pushlink.errors import Code
from pushlink.flows.outcomes import Deferred, Refused, Reserved


@pytest.mark.rule("DL-17", "D-30")
def test_a_record_that_refers_to_itself_is_refused(places: Family) -> None:
    places.write("Place", 1, name="p", parent_id=1)
    answer = refused(places.keep("Place", 1))
    assert (answer.code, answer.evidence) == (Code.ASSOCIATION_CYCLE, {"cycle": ["Place 1"]})


@pytest.mark.rule("DL-17", "D-30")
def test_a_circle_over_several_saves_is_refused_where_it_would_close(places: Family) -> None:
    """The refusal names the records; what waited already goes on waiting."""
    for record, parent in ((1, 2), (2, 3), (3, 1)):
        places.write("Place", record, name=f"p{record}", parent_id=parent)
    assert isinstance(places.keep("Place", 1), Deferred)
    assert isinstance(places.keep("Place", 2), Deferred)
    answer = refused(places.keep("Place", 3))
    assert answer.code is Code.ASSOCIATION_CYCLE
    assert answer.evidence["cycle"] == ["Place 3", "Place 1", "Place 2"]
    places.write("Place", 3, parent_id=None)
    places.keep("Place", 3)
    places.drain()
    assert [row["status"] for row in places.attempts()] == ["finalized"] * 3


@pytest.mark.rule("DL-17", "D-30")
def test_a_circle_within_one_save_refuses_its_members_and_no_other(places: Family) -> None:
    for record, parent in ((1, 2), (2, 1), (3, 1), (4, None)):
        places.write("Place", record, name=f"p{record}", parent_id=parent)
    outcomes = places.keep_many(("Place", 1), ("Place", 2), ("Place", 3), ("Place", 4))
    assert [type(outcome) for outcome in outcomes] == [Refused, Refused, Deferred, Reserved]


@pytest.mark.rule("DL-17", "D-30")
def test_a_circle_that_forms_later_is_a_hold(places: Family) -> None:
    """Two admissions that could not see each other: the rows are held, with the circle as evidence."""
    for record, parent in ((1, 2), (2, 3)):
        places.write("Place", record, name=f"p{record}", parent_id=parent)
    places.write("Place", 3)
    places.keep("Place", 1)
    places.keep("Place", 2)
    one, two = places.of("Place", 1), places.of("Place", 2)
    places.sql(
        "UPDATE pushlink_association_wait SET target_link_key = :one WHERE attempt_id = :two",
        one=one["link_key"], two=two["id"],
    )  # fmt: skip
    places.clock_forward(seconds=6)
    places.drain()
    detail = json.loads(places.of("Place", 1)["detail"])
    assert (places.of("Place", 1)["hold_code"], detail["because"]) == (
        "association_blocked",
        "circle: Place 1, Place 2",
    )
