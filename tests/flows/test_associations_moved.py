"""Records that refer to one whose link was retired, relocated or suspended meanwhile: nothing goes to a wrong one."""

from __future__ import annotations

import json

import pytest

from flows.family import Family, refused
from operations.operators import decide
from pushlink.errors import Code
from pushlink.flows.outcomes import Deferred
from pushlink.protocol.verbs import Verb


def retire(places: Family, record_id: int) -> None:
    decide(places, Verb.RETIRE, places.linked_to("Place", record_id))


@pytest.mark.rule("D-31", "D-21", "DL-15")
def test_a_target_retired_between_freeze_and_checkpoint_sends_nothing(places: Family) -> None:
    """The checkpoint looks at the target again, under a lock; the attempt is given back and then held."""
    places.keep_child_first()
    places.run(places.claim())  # the parent
    [claimed] = places.claim()
    flow = places.paused_of(claimed)
    retire(places, 2)
    flow.finish()
    assert (places.of("Place", 1)["status"], places.of("Place", 1)["remote_io_started_at"]) == ("pending", None)
    places.drain()
    child = places.of("Place", 1)
    assert (child["hold_code"], json.loads(child["detail"])["because"]) == ("association_moved", "link_retired")
    assert places.sends == 1
    assert len(places.rows("push_request", attempt_id=child["id"])) == 1


@pytest.mark.rule("D-21", "DL-15")
def test_a_target_relocated_between_freeze_and_checkpoint_is_frozen_anew(places: Family) -> None:
    """Same link, another remote id: what is sent names the new one."""
    places.keep_child_first()
    places.run(places.claim())  # the parent
    [claimed] = places.claim()
    flow = places.paused_of(claimed)
    decide(places, Verb.RELOCATE, places.linked_to("Place", 2), argument="4711")
    flow.finish()
    assert places.sends == 1
    places.drain()
    assert places.of("Place", 1)["status"] == "finalized"
    assert places.remote_record("Place", 1)["parent"] == "4711"


@pytest.mark.rule("D-31")
def test_a_target_that_moved_before_an_ordinary_create_is_sent_holds_it(places: Family) -> None:
    """Its body was complete at the save and names the old remote record: nothing is sent."""
    places.keep("Place", 2, name="parent")
    places.drain()
    places.keep("Place", 1, name="child", parent_id=2)
    decide(places, Verb.RELOCATE, places.linked_to("Place", 2), argument="4711")
    places.drain()
    child = places.of("Place", 1)
    assert (child["status"], child["hold_code"], places.sends) == ("pending", "association_moved", 1)
    assert json.loads(child["detail"]) == {"because": "relocated", "record": "Place 2"}


@pytest.mark.rule("D-31", "DL-17")
def test_a_target_whose_link_is_retired_is_refused_at_the_save(places: Family) -> None:
    places.keep("Place", 2, name="parent")
    places.drain()
    retire(places, 2)
    answer = refused(places.keep("Place", 1, name="child", parent_id=2))
    assert answer.code is Code.ASSOCIATION_MISSING
    assert answer.evidence["records"] == [
        {"association": "parent", "record": "Place 2", "link_key": places.key("Place", 2), "because": "link_retired"}
    ]


@pytest.mark.rule("DL-17", "C-084")
def test_a_suspended_target_blocks_until_it_is_validated_again(places: Family) -> None:
    places.keep("Place", 2, name="parent")
    places.drain()
    decide(places, Verb.SUSPEND, places.linked_to("Place", 2))
    assert isinstance(places.keep("Place", 1, name="child", parent_id=2), Deferred)
    assert places.of("Place", 1)["hold_code"] == "association_blocked"
    decide(places, Verb.REVALIDATE, places.linked_to("Place", 2))
    places.drain()
    assert places.of("Place", 1)["status"] == "finalized"
