"""Records that refer to other records by a call of its own, which has its own checkpoint and its own end."""

from __future__ import annotations

import pytest

from flows.family import TIE, Family, MakeFamily
from operations.agreement import require_agreement
from operations.operators import decide
from pushlink.errors import Code
from pushlink.flows.outcomes import Queued, Reserved, Unchanged
from pushlink.protocol.verbs import Verb
from pushlink.testing import verbs
from pushlink.testing.messages import creating


def ties(places: Family) -> list[tuple[str, str]]:
    return [(r.document["place"], r.document["country"]) for r in places.remote.api.records if r.collection == "ties"]


@pytest.mark.rule("DL-07", "C-084")
def test_a_call_after_the_create_has_a_checkpoint_of_its_own(make_family: MakeFamily) -> None:
    """The create does not wait for the other record; the call does, and is told once."""
    places = make_family(TIE)
    places.write("Country", 1)
    assert isinstance(places.keep("Place", 1, name="p", country_id=1), Reserved)
    places.drain()
    call = places.of("Place", 1, "update")
    assert (call["association"], call["hold_code"], ties(places)) == ("country", "association_waiting", [])
    places.keep("Country", 1)
    [claimed] = [c for c in places.claim() if c.attempt.operation == "create"]
    places.run([claimed])
    [claimed] = places.claim()
    flow = places.paused_of(claimed).to_send()
    assert places.of("Place", 1, "update")["remote_io_started_at"] is not None
    flow.finish()
    own, other = places.linked_to("Place", 1)["remote_id"], places.linked_to("Country", 1)["remote_id"]
    assert ties(places) == [(own, other)]
    places.drain()
    assert isinstance(places.keep("Place", 1), Unchanged)
    places.drain()
    assert len(ties(places)) == 1


@pytest.mark.rule("DL-07", "DL-06")
def test_a_call_whose_answer_is_lost_parks_alone_and_never_reopens_the_create(make_family: MakeFamily) -> None:
    places = make_family(TIE)
    places.keep("Country", 1, name="c")
    places.drain()
    places.remote.script.always(
        verbs.store_then_close(), when=lambda asked: creating(asked) and asked.segments == ("ties",)
    )
    places.keep("Place", 1, name="p", country_id=1)
    places.drain()
    call = places.of("Place", 1, "update")
    assert (call["status"], places.of("Place", 1)["status"]) == ("ambiguous_remote_effect", "finalized")
    assert places.linked_to("Place", 1)["status"] == "finalized"
    places.clock_forward()
    places.drain()
    assert len(ties(places)) == 1
    queued = places.keep("Place", 1, name="newer")
    assert isinstance(queued, Queued)
    assert queued.waits_for is Code.UPDATE_AMBIGUOUS
    decide(places, Verb.APPLIED, call)
    places.drain()
    assert len(ties(places)) == 1
    assert places.remote_record("Place", 1)["name"] == "newer"


def test_another_country_is_another_call_and_the_same_one_is_none(make_family: MakeFamily) -> None:
    places = make_family(TIE)
    for country in (1, 2):
        places.keep("Country", country, name="c")
    places.drain()
    places.keep("Place", 1, name="p", country_id=1)
    places.drain()
    places.keep("Place", 1, country_id=2)
    places.drain()
    places.keep("Place", 1, name="renamed")
    places.drain()
    expected = [places.linked_to("Country", country)["remote_id"] for country in (1, 2)]
    assert [country for _, country in ties(places)] == expected
    assert sum(request.method == "PATCH" for request in places.remote.sent) == 1


def test_a_refused_call_waits_for_a_person(make_family: MakeFamily) -> None:
    places = make_family(TIE)
    places.keep("Country", 1, name="c")
    places.drain()
    places.remote.script.next(verbs.PLAINLY, verbs.answer(422, {"error": "no"}))
    places.keep("Place", 1, name="p", country_id=1)
    places.drain()
    call = places.of("Place", 1, "update")
    assert (call["status"], places.linked_to("Place", 1)["status"]) == ("terminal_failed", "finalized")
    places.keep("Place", 1, name="renamed")
    places.drain()
    assert ties(places) == []
    require_agreement(places)
    decide(places, Verb.RELEASE_VERSION, call)
    places.drain()
    assert len(ties(places)) == 1
