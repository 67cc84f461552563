"""The lane of creates that wait for another record: who may claim them, what is frozen, and what is never replayed."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from flows.family import Family
from pushlink.errors import Code
from pushlink.flows.outcomes import Queued
from pushlink.store.tables import METADATA
from pushlink.testing import verbs


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
    places.keep_child_first()
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
    places.keep_child_first()
    places.run(places.claim())  # the parent
    [claimed] = places.claim()
    places.paused_of(claimed).to_send().flow.close()
    places.clock_forward()
    places.drain()
    assert (places.of("Place", 1)["status"], places.sends) == ("ambiguous_remote_effect", 1)


@pytest.mark.rule("DL-04", "DL-15")
def test_a_dead_claim_before_the_checkpoint_completes_again(places: Family) -> None:
    places.keep_child_first()
    places.run(places.claim())  # the parent
    places.claim()
    places.clock_forward()
    places.drain()
    assert (places.of("Place", 1)["status"], places.sends) == ("finalized", 2)


@pytest.mark.rule("DL-15", "D-05")
def test_a_completed_request_that_was_not_applied_is_sent_again_as_it_was_frozen(places: Family) -> None:
    """The complete body is the second freeze; the retry has the same bytes and the same key."""
    places.keep_child_first()
    places.run(places.claim())  # the parent
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
