"""Records that refer to other records: deferred until those have remote records, one by one and in crowds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from flows.family import PARENT, PLACE, Family, MakeFamily
from flows.stage import USER
from operations.agreement import require_agreement
from operations.operators import decide
from pushlink.errors import CallerError
from pushlink.flows.outcomes import Deferred, Reserved, Unchanged
from pushlink.migration import adopt, adopt_apply
from pushlink.operations.explain import explain
from pushlink.protocol.adoption import Pair
from pushlink.protocol.verbs import Verb
from pushlink.testing import verbs

# ------------------------------------------------------------------------------------------------ deferral


@pytest.mark.rule("DL-02", "DL-15", "AT-05", "C-084")
def test_a_child_of_an_unsaved_parent_is_deferred_and_sent_after_it_without_another_save(places: Family) -> None:
    """The vector is frozen at the save with its blank; nothing is sent; the same attempt goes on by itself."""
    places.write("Place", 2)
    outcome = places.keep("Place", 1, name="child", parent_id=2)
    assert isinstance(outcome, Deferred)
    before = places.of("Place", 1)
    assert (before["dispatch_lane"], before["status"], before["hold_code"], before["reason_code"]) == (
        "deferred_association", "pending", "association_waiting", "association_missing",
    )  # fmt: skip
    [request] = places.rows("push_request", attempt_id=before["id"])
    entries = json.loads(request["association_vector"])["content"]["entries"]
    assert [entry and entry["record_id"] for entry in entries] == ["2", None]
    assert outcome.waits_for == (entries[0]["link_key"],)
    assert (places.drain(), places.sends) == (0, 0)
    places.write("Place", 1, parent_id=99, name="changed without a save")
    assert isinstance(places.keep("Place", 2), Reserved)
    places.drain()
    after = places.of("Place", 1)
    assert (after["id"], after["status"]) == (before["id"], "finalized")
    parent_id = places.linked_to("Place", 2)["remote_id"]
    record = places.remote_record("Place", 1)
    assert (record["name"], record["parent"], record["country"]) == ("child", parent_id, None)
    assert [request.path for request in places.remote.sent] == ["/places", "/places"]
    assert places.rows("association_wait") == places.rows("association_wake") == []


@pytest.mark.rule("DL-02")
def test_a_child_of_a_linked_parent_is_an_ordinary_create(places: Family) -> None:
    """Its target is finalized, so the whole body is frozen at the save, and the lane is the configured one."""
    places.keep("Country", 1, name="c")
    places.drain()
    assert isinstance(places.keep("Place", 1, name="p", country_id=1), Reserved)
    assert places.of("Place", 1)["dispatch_lane"] == "configured"
    places.drain()
    assert places.remote_record("Place", 1)["country"] == places.linked_to("Country", 1)["remote_id"]


@pytest.mark.rule("DL-02", "DL-15", "C-084")
def test_a_whole_family_in_one_save_children_first(places: Family) -> None:
    """Grandchild, child, parent and country in the worst order: four creates, each after what it refers to."""
    with places.engine.begin() as conn:
        places.write_in(conn, "Country", 1)
        for child, parent in ((3, 2), (2, 1), (1, None)):
            places.write_in(conn, "Place", child, name=f"p{child}", parent_id=parent, country_id=1)
    outcomes = places.keep_many(("Place", 3), ("Place", 2), ("Place", 1), ("Country", 1))
    assert [type(outcome) for outcome in outcomes] == [Deferred, Deferred, Deferred, Reserved]
    places.drain()
    assert [attempt["status"] for attempt in places.attempts()] == ["finalized"] * 4
    assert places.sends == 4
    for child, parent in ((3, 2), (2, 1)):
        assert places.remote_record("Place", child)["parent"] == places.linked_to("Place", parent)["remote_id"]
    assert [isinstance(outcome, Unchanged) for outcome in places.keep_many(("Place", 3), ("Place", 1))] == [True, True]
    places.drain()
    assert places.sends == 4


@pytest.mark.rule("C-084", "DL-17", "D-30")
@pytest.mark.parametrize(
    ("spoil", "because"),
    [
        (verbs.store_then_close(), "create_ambiguous_remote_effect"),
        (verbs.answer(422, {"error": "no"}), "create_terminal_failed"),
    ],
)
def test_a_parent_that_is_parked_or_failed_is_the_childs_blocking_reason(
    places: Family, spoil: verbs.Verb, because: str
) -> None:
    """Nothing of the child is sent, it says for whom it waits and why, and it is not polled for ever."""
    places.write("Place", 2)
    places.remote.script.next(spoil)
    places.keep("Place", 2)
    places.drain()
    sends = places.sends
    assert isinstance(places.keep("Place", 1, name="child", parent_id=2), Deferred)
    child = places.of("Place", 1)
    assert child["hold_code"] == "association_blocked"
    assert json.loads(child["detail"]) == {
        "association": "parent", "record": "Place 2", "link_key": places.key("Place", 2), "because": because,
    }  # fmt: skip
    pauses = []
    for _ in range(15):
        places.fixed.set(places.of("Place", 1)["not_before"])
        places.drain()
        pauses.append((places.of("Place", 1)["not_before"] - places.fixed.now()).total_seconds())
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (5, 3_600)
    assert (places.of("Place", 1)["row_version"], places.sends) == (child["row_version"], sends)


@pytest.mark.rule("DL-17", "D-30", "C-084")
def test_a_blocked_child_goes_on_when_its_parent_is_settled(places: Family) -> None:
    """An operator adopts the parent's record; that finalization wakes the child."""
    places.write("Place", 2)
    places.remote.script.next(verbs.store_then_close())
    places.keep("Place", 2)
    places.drain()
    places.keep("Place", 1, name="child", parent_id=2)
    [stored] = places.remote.api.records
    parent = places.of("Place", 2)
    decide(places, Verb.ADOPT, parent, argument=stored.id)
    places.drain()
    assert places.of("Place", 1)["status"] == "finalized"
    assert places.remote_record("Place", 1)["parent"] == stored.id


@pytest.mark.rule("DL-17", "MG-01")
def test_an_adopted_parent_lets_its_child_go_on(places: Family, tmp_path: Path) -> None:
    """The parent's link comes from a migration, not from a create: the child that waited refers to it at once."""
    places.write("Place", 2, name="parent", remote_id="old-7")
    places.write("Place", 3, name="other", remote_id="old-8")
    places.keep("Place", 1, name="child", parent_id=2)
    places.drain()
    assert places.of("Place", 1)["hold_code"] == "association_waiting"
    ordered = adopt.Asked(
        source_object="Place",
        action_slot_id="act-place",
        operation_id="op-1",
        current=Pair(remote_id="remote_id", provenance="name"),
        markers=("parent", "other"),
    )
    adopt.plan(places.engine, places.world, places.runtime.records, ordered, tmp_path / "plan")
    manifest = adopt_apply.read_manifest(tmp_path / "plan")
    done = adopt_apply.apply(places.engine, places.world, manifest, actor="olga", reason="the old sync is off")
    assert done.adopted == 2
    places.drain()
    assert places.of("Place", 1)["status"] == "finalized"
    assert places.remote_record("Place", 1)["parent"] == "old-7"
    assert len(places.remote.api.records) == 1


@pytest.mark.rule("DL-17", "D-30")
def test_what_nobody_told_is_found_by_looking_again(places: Family) -> None:
    """A wake-up that a race lost: the held row itself is looked at after a pause, and goes on."""
    places.write("Place", 2)
    places.keep("Place", 1, name="child", parent_id=2)
    places.sql("DELETE FROM pushlink_association_wait")
    places.keep("Place", 2)
    places.drain()
    assert places.of("Place", 1)["hold_code"] == "association_waiting"
    places.clock_forward(seconds=6)
    places.drain()
    assert places.of("Place", 1)["status"] == "finalized"


@pytest.mark.rule("DL-15", "DL-17")
def test_a_parent_that_is_finalized_while_its_child_is_judged_wakes_it_all_the_same(places: Family) -> None:
    """The claim saw the parent at work; its link is there before the hold is written, and the hold ends at once."""
    places.keep_child_first()
    [parent] = places.claim()
    decide(places, Verb.UNHOLD, places.of("Place", 1))
    [child] = places.claim()
    flow = places.paused_of(child)
    places.run([parent])
    flow.finish()
    assert places.of("Place", 1)["hold_code"] == "association_waiting"
    places.drain()
    assert places.of("Place", 1)["status"] == "finalized"


@pytest.mark.rule("DL-17")
def test_a_parent_that_nobody_saves_becomes_somebodys_business(places: Family) -> None:
    """For an hour it is a matter of order; then the child is listed for a person, and still goes on by itself."""
    places.write("Place", 2)
    places.keep("Place", 1, name="child", parent_id=2)
    places.clock_forward(hours=2)
    places.drain()
    child = places.of("Place", 1)
    assert (child["hold_code"], json.loads(child["detail"])["because"]) == ("association_blocked", "not_saved")
    places.keep("Place", 2)
    places.drain()
    assert places.of("Place", 1)["status"] == "finalized"


@pytest.mark.rule("DL-17", "D-30")
def test_a_child_ends_where_its_pack_says_how_long_it_waits(make_family: MakeFamily) -> None:
    """Only for a parent that cannot be created; the attempt never sent anything, so it ends terminal."""
    places = make_family({**PARENT, "gives_up_after": "2h"})
    places.write("Place", 2)
    places.remote.script.next(verbs.answer(422, {"error": "no"}))
    places.keep("Place", 2)
    places.keep("Place", 1, name="child", parent_id=2)
    places.drain()
    places.clock_forward(minutes=90)
    places.drain()
    assert places.of("Place", 1)["status"] == "pending"
    places.clock_forward(minutes=31)
    places.drain()
    child = places.of("Place", 1)
    assert (child["status"], child["reason_code"]) == ("terminal_failed", "association_missing")
    assert json.loads(child["detail"])["gave_up"] is True
    assert places.rows("association_wait") == []


# ------------------------------------------------------------------------------------------------ many


@pytest.mark.rule("DL-15", "D-33")
def test_a_parent_with_many_children_lets_them_go_on_a_bounded_number_at_a_time(
    places: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finalization writes one row; claims do the rest, and others' rows are claimed meanwhile."""
    monkeypatch.setattr("pushlink.flows.awaiting.WOKEN_MAX", 10)
    with places.engine.begin() as conn:
        places.write_in(conn, "Country", 1)
        conn.execute(sa.insert(PLACE), [{"id": n, "name": f"p{n}", "country_id": 1} for n in range(1, 36)])
        outcomes = places.runtime.save_many(conn, [("Place", n) for n in range(1, 36)], user=USER)
    assert all(isinstance(outcome, Deferred) for [outcome] in outcomes)
    places.keep("Country", 1)
    places.run(places.claim())
    assert len(places.rows("association_wake")) == 1
    assert len(places.claim()) == 10
    assert len(places.rows("association_wait")) == 25
    places.clock_forward(seconds=1)
    places.drain()
    places.clock_forward()
    places.drain()
    assert {row["status"] for row in places.attempts()} == {"finalized"}
    assert places.sends == 36


@pytest.mark.rule("D-33", "DL-15")
def test_children_of_one_parent_delay_nobody_else(places: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hundred children go on at once; another destination's single row is in the very next claim."""
    monkeypatch.setattr("pushlink.flows.awaiting.WOKEN_MAX", 100)
    with places.engine.begin() as conn:
        places.write_in(conn, "Country", 1)
        conn.execute(sa.insert(PLACE), [{"id": n, "name": f"p{n}", "country_id": 1} for n in range(1, 301)])
        places.runtime.save_many(conn, [("Place", n) for n in range(1, 301)], user=USER)
    places.keep("Country", 1)
    places.run(places.claim())
    assert len(places.claim(limit=10)) == 10
    places.keep("Country", 2, name="alone")
    assert "Country" in [claimed.source.source_object for claimed in places.claim(limit=2)]


# ------------------------------------------------------------------------------------------------ for people


@pytest.mark.rule("D-30", "C-084")
def test_an_explanation_names_the_parent_and_why_it_cannot_go_on(places: Family) -> None:
    """State, cause and evidence; the verbs that are allowed are those of a hold."""
    places.write("Place", 2)
    places.remote.script.next(verbs.answer(422, {"error": "no"}))
    places.keep("Place", 2)
    places.drain()
    places.keep("Place", 1, name="child", parent_id=2)
    with places.engine.begin() as conn:
        found = explain(conn, "Place", "1", now=places.clock.now(conn), world=places.world)
    [action] = found.actions
    assert (action.state, action.needs_person) == ("held", True)
    assert action.evidence["record"] == "Place 2"
    assert action.evidence["because"] == "create_terminal_failed"
    assert "cannot get a remote record" in action.cause.sentence
    assert {row[:3] for row in require_agreement(places)} == {
        ("Place 1", "held", "association_blocked"),
        ("Place 2", "failed", "remote_rejected"),
    }


def test_unholding_a_waiting_child_has_it_judged_at_once(places: Family) -> None:
    """It does not wait for its pause, and is held again while its parent is not there."""
    places.write("Place", 2)
    places.keep("Place", 1, name="child", parent_id=2)
    places.clock_forward(minutes=30)
    places.drain()
    decide(places, Verb.UNHOLD, places.of("Place", 1))
    assert len(places.claim()) == 1
    places.clock_forward()
    places.drain()
    assert places.of("Place", 1)["hold_code"] in ("association_waiting", "association_blocked")
    assert places.sends == 0


@pytest.mark.rule("DL-17")
def test_an_abandoned_child_may_be_superseded_and_saved_anew(places: Family) -> None:
    places.write("Place", 2)
    places.keep("Place", 1, name="child", parent_id=2)
    decide(places, Verb.ABANDON, places.of("Place", 1))
    assert places.of("Place", 1)["status"] == "terminal_failed"
    decide(places, Verb.SUPERSEDE, places.of("Place", 1))
    assert isinstance(places.keep("Place", 1, parent_id=None), Reserved)
    places.drain()
    assert places.of("Place", 1)["status"] == "finalized"
    assert places.sends == 1


@pytest.mark.rule("AU-04")
def test_a_superseded_create_that_refers_to_others_is_reserved_by_a_save_alone(places: Family) -> None:
    """Nobody but a save authorizes what it refers to; a reservation by the operator would send no parent."""
    places.keep("Place", 2, name="parent")
    places.drain()
    places.remote.script.next(verbs.answer(422, {"error": "no"}))
    places.keep("Place", 1, name="child", parent_id=2)
    places.drain()
    with pytest.raises(CallerError, match="by a save alone"):
        decide(places, Verb.SUPERSEDE, places.of("Place", 1), reserve=True)
    assert places.of("Place", 1)["status"] == "terminal_failed"
