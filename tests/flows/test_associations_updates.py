"""Records that refer to other records: what updates say of those, and what only creates say."""

from __future__ import annotations

import json

import pytest

from flows.family import COUNTRY_OF, Family, MakeFamily, refused
from pushlink.errors import Code
from pushlink.flows.outcomes import Queued, Unchanged
from pushlink.testing import verbs


@pytest.mark.rule("PA-11", "D-21")
def test_another_parent_is_an_update_with_the_new_parents_id(places: Family) -> None:
    places.keep("Place", 2, name="old")
    places.drain()
    places.keep("Place", 1, name="child", parent_id=2)
    places.drain()
    places.write("Place", 3, name="new")
    queued = places.keep("Place", 1, parent_id=3)
    assert isinstance(queued, Queued)
    places.drain()
    update = places.of("Place", 1, "update")
    assert (update["hold_code"], places.sends) == ("association_waiting", 2)
    places.keep("Place", 3)
    places.drain()
    assert places.remote_record("Place", 1)["parent"] == places.linked_to("Place", 3)["remote_id"]
    assert [request.method for request in places.remote.sent] == ["POST", "POST", "POST", "PATCH"]
    blank = places.keep("Place", 1, parent_id=None)
    assert isinstance(blank, Queued)
    places.drain()
    assert places.remote_record("Place", 1)["parent"] is None


def test_an_update_that_waits_for_a_parent_takes_the_newest_version_when_it_goes_on(places: Family) -> None:
    places.keep("Place", 1, name="child")
    places.drain()
    places.write("Place", 2)
    places.keep("Place", 1, parent_id=2)
    places.drain()
    places.keep("Place", 1, parent_id=None, name="newest")
    places.drain()
    assert [request.method for request in places.remote.sent] == ["POST"]
    places.clock_forward(seconds=6)
    places.drain()
    record = places.remote_record("Place", 1)
    assert (record["name"], record.get("parent")) == ("newest", None)


def test_what_only_updates_say_is_said_by_one_after_the_create(make_family: MakeFamily) -> None:
    places = make_family({**COUNTRY_OF, "mode": "update_only"})
    places.keep("Country", 1, name="c")
    places.drain()
    places.keep("Place", 1, name="p", country_id=1)
    places.drain()
    assert [(r.method, json.loads(r.body)) for r in places.remote.sent[1:]] == [
        ("POST", {"name": "p"}),
        ("PATCH", {"name": "p", "country": places.linked_to("Country", 1)["remote_id"]}),
    ]
    assert isinstance(places.keep("Place", 1), Unchanged)


def test_what_only_the_create_says_is_not_said_again(make_family: MakeFamily) -> None:
    places = make_family({**COUNTRY_OF, "mode": "create_inline"})
    places.keep("Country", 1, name="c")
    places.drain()
    places.keep("Place", 1, name="p", country_id=1)
    places.drain()
    places.keep("Place", 1, country_id=None)
    places.drain()
    assert [request.method for request in places.remote.sent] == ["POST", "POST"]
    places.keep("Place", 1, name="other")
    places.drain()
    assert json.loads(places.remote.sent[-1].body) == {"name": "other"}


def test_a_nested_resource_is_created_below_its_parent(make_family: MakeFamily) -> None:
    country = {name: value for name, value in COUNTRY_OF.items() if name != "target"} | {"mode": "create_inline"}
    create = {"path": "/countries/{country}/places", "response": {"id": [{"from": "$response.body#/id"}]}}
    places = make_family(country, place={"create": create})
    places.write("Country", 1)
    places.keep("Place", 1, name="p", country_id=1)
    assert refused(places.keep("Place", 2, name="nowhere")).code is Code.FREEZE_FAILED
    places.remote.script.always(verbs.answer(201, {"id": "n-1"}), when=lambda asked: len(asked.segments) == 3)
    places.keep("Country", 1)
    places.drain()
    remote_id = places.linked_to("Country", 1)["remote_id"]
    assert [request.path for request in places.remote.sent] == ["/countries", f"/countries/{remote_id}/places"]
    assert places.linked_to("Place", 1)["remote_id"] == "n-1"
