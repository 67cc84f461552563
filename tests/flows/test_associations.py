"""Records that refer to other records: deferred until those have remote records, and never sent to a wrong one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import sqlalchemy as sa

from flows.family import COUNTRY_OF, PARENT, PLACE, Family
from flows.stage import USER
from operations.agreement import require_agreement
from operations.operators import decide
from pushlink.adapters.policy import AllowAllAuthority
from pushlink.errors import CallerError, Code
from pushlink.flows.outcomes import Deferred, Outcome, Queued, Refused, Reserved, Unchanged
from pushlink.migration import adopt, adopt_apply
from pushlink.operations.explain import explain
from pushlink.ports import AuthorityDecision, AuthorityRequest
from pushlink.protocol.adoption import Pair
from pushlink.protocol.verbs import Verb
from pushlink.store.tables import METADATA
from pushlink.testing import verbs
from pushlink.testing.messages import creating

MakeFamily: TypeAlias = Callable[..., Family]


@pytest.fixture
def make_family(engine: sa.Engine, tmp_path: Path) -> MakeFamily:
    """A function that opens a stage of countries and places, with the associations that it is given."""

    def make(*associations: Any, **options: Any) -> Family:
        return Family(engine, tmp_path, *associations, **options)

    return make


@pytest.fixture
def places(make_family: MakeFamily) -> Family:
    """Places with a parent place and a country, both as foreign keys."""
    return make_family()


def refused(outcome: Outcome) -> Refused:
    assert isinstance(outcome, Refused), outcome
    return outcome


# ------------------------------------------------------------------------------------------------ deferral


@pytest.mark.rule("DL-02", "DL-15", "AT-05", "C-084")
def test_a_child_of_an_unsaved_parent_is_deferred_and_sent_after_it_without_another_save(places: Family) -> None:
    """The vector is frozen at the save with its blank; nothing is sent; the same attempt goes on by itself."""
    places.write("Place", 2)
    outcome = places.keep("Place", 1, name="child", parent_id=2)
    assert isinstance(outcome, Deferred)
    before = places.of("Place", 1)
    assert (before["dispatch_lane"], before["status"], before["hold_code"]) == (
        "deferred_association", "pending", "association_waiting",
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
    places.write("Place", 2)
    places.keep("Place", 1, name="child", parent_id=2)
    places.keep("Place", 2)
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


# ------------------------------------------------------------------------------------------------ authority


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


# ------------------------------------------------------------------------------------------------ circles


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


# ------------------------------------------------------------------------------------------------ moved targets


def retire(places: Family, record_id: int) -> None:
    decide(places, Verb.RETIRE, places.linked_to("Place", record_id))


@pytest.mark.rule("D-31", "D-21", "DL-15")
def test_a_target_retired_between_freeze_and_checkpoint_sends_nothing(places: Family) -> None:
    """The checkpoint looks at the target again, under a lock; the attempt is given back and then held."""
    places.write("Place", 2)
    places.keep("Place", 1, name="child", parent_id=2)
    places.keep("Place", 2)
    places.run(places.claim())
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
    places.write("Place", 2)
    places.keep("Place", 1, name="child", parent_id=2)
    places.keep("Place", 2)
    places.run(places.claim())
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


# ------------------------------------------------------------------------------------------------ the lane


@pytest.mark.rule("DL-05", "DL-14")
def test_another_save_of_a_deferred_child_leaves_it_to_the_worker(places: Family) -> None:
    """It is one attempt; the newer values wait, and are one update after the create."""
    places.write("Place", 2)
    places.keep("Place", 1, name="first", parent_id=2)
    before = places.of("Place", 1)
    again = places.keep("Place", 1, name="second")
    assert isinstance(again, Queued)
    assert again.waits_for is Code.CREATE_ACTIVE
    assert places.of("Place", 1) == before
    assert [str(one.standing) for one in places.runtime.push("Place", 1)] == ["other_lane"]
    places.keep("Place", 2)
    places.drain()
    assert [request.method for request in places.remote.sent] == ["POST", "POST", "PATCH"]
    assert places.remote_record("Place", 1)["name"] == "second"
    assert [row["dispatch_lane"] for row in places.attempts(link_key=before["link_key"])] == [
        "deferred_association"
    ] * 2


@pytest.mark.rule("DL-03", "DL-15", "DL-02")
def test_with_the_general_worker_off_the_narrow_one_finishes_children_of_inline_parents(places: Family) -> None:
    """The request path pushes the parent inline; the narrow worker takes the child, and nothing that is configured."""
    places.only_narrow()
    places.write("Place", 2)
    places.keep("Place", 1, name="child", parent_id=2)
    places.keep("Place", 2)
    assert (places.drain(), places.sends) == (0, 0)
    places.runtime.push("Place", 2)
    assert places.sends == 1
    places.keep("Place", 3, name="of the request path")
    places.drain()
    assert places.of("Place", 1)["status"] == "finalized"
    assert places.of("Place", 3)["status"] == "pending"
    assert places.sends == 2


@pytest.mark.rule("DL-04")
def test_a_deferred_create_that_may_have_been_sent_is_never_replayed(places: Family) -> None:
    places.write("Place", 2)
    places.keep("Place", 1, name="child", parent_id=2)
    places.keep("Place", 2)
    places.run(places.claim())
    [claimed] = places.claim()
    places.paused_of(claimed).to_send().flow.close()
    places.clock_forward()
    places.drain()
    assert (places.of("Place", 1)["status"], places.sends) == ("ambiguous_remote_effect", 1)


@pytest.mark.rule("DL-04", "DL-15")
def test_a_dead_claim_before_the_checkpoint_completes_again(places: Family) -> None:
    places.write("Place", 2)
    places.keep("Place", 1, name="child", parent_id=2)
    places.keep("Place", 2)
    places.run(places.claim())
    places.claim()
    places.clock_forward()
    places.drain()
    assert (places.of("Place", 1)["status"], places.sends) == ("finalized", 2)


@pytest.mark.rule("DL-15", "D-05")
def test_a_completed_request_that_was_not_applied_is_sent_again_as_it_was_frozen(places: Family) -> None:
    """The complete body is the second freeze; the retry has the same bytes and the same key."""
    places.write("Place", 2)
    places.keep("Place", 1, name="child", parent_id=2)
    places.keep("Place", 2)
    places.run(places.claim())
    places.remote.script.next(verbs.refuse_connection())
    places.drain()
    places.clock_forward()
    places.drain()
    first, second = places.remote.sent[-2:]
    assert (first.body, first.headers) == (second.body, second.headers)
    child = places.of("Place", 1)
    assert (child["status"], child["freeze_count"]) == ("finalized", 2)
    assert [row["freeze"] for row in places.rows("push_request", "freeze", attempt_id=child["id"])] == [1, 2]


@pytest.mark.rule("DL-13")
def test_a_deferred_create_without_its_whole_vector_fails_closed(places: Family) -> None:
    """It is never rebuilt from what the record says now."""
    places.write("Place", 2)
    places.keep("Place", 1, name="child", parent_id=2)
    child = places.of("Place", 1)
    _replace_request(places, child["id"], association_vector=None)
    places.keep("Place", 2)
    places.drain()
    places.clock_forward(seconds=6)
    places.drain()
    after = places.of("Place", 1)
    assert (after["status"], after["reason_code"], places.sends) == ("terminal_failed", "freeze_failed", 1)


def _replace_request(places: Family, attempt_id: str, **values: Any) -> None:
    """Write another first freeze in the place of one, as a database of before would have it."""
    [row] = places.rows("push_request", attempt_id=attempt_id)
    table = METADATA.tables["pushlink_push_request"]
    with places.engine.begin() as conn:
        _without_triggers(conn)
        conn.execute(sa.update(table).where(table.c.attempt_id == attempt_id).values(**{**row, **values}))


def _without_triggers(conn: sa.Connection) -> None:
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql("ALTER TABLE pushlink_push_request DISABLE TRIGGER ALL")
        return
    conn.exec_driver_sql("DROP TRIGGER IF EXISTS pushlink_push_request_keeps_values")
    conn.exec_driver_sql("DROP TRIGGER IF EXISTS pushlink_push_request_keeps_rows")


# ------------------------------------------------------------------------------------------------ updates


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


# ------------------------------------------------------------------------------------------------ calls of their own

TIE = {**{k: v for k, v in COUNTRY_OF.items() if k != "target"}, "mode": "call_after"}
TIE["call"] = {
    "method": "POST",
    "path": "/ties",
    "body": {"place": "{remote_id}", "country": "{country}"},
    "success": {"status": [201]},
}


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
