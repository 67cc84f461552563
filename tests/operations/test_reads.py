"""Lists are pages of a tenant's rows; a history is one timeline; counts add up."""

from __future__ import annotations

import pytest

from flows.stage import MakeStage, Stage
from pushlink.errors import CallerError
from pushlink.operations.reads import counts, history, list_attempts, list_links
from pushlink.protocol.states import AttemptStatus, Hold, LinkStatus, Operation
from pushlink.testing import verbs
from pushlink.testing.messages import creating


def people(stage: Stage, count: int, *, tenant: str = "") -> None:
    for number in range(1, count + 1):
        stage.save(number, tenant=tenant, name=f"P {number}", email=f"p{number}@example.com")
    stage.drain()


def test_pages_cover_every_row_once_newest_first(stage: Stage) -> None:
    """Two rows a page: the pages join without a gap and without a repetition."""
    people(stage, 5)
    seen, page = [], None
    with stage.engine.begin() as conn:
        while True:
            found = list_links(conn, page=page, limit=2)
            seen += [row.record_id for row in found.rows]
            page = found.next_page
            if page is None:
                break
    assert seen == ["5", "4", "3", "2", "1"]


@pytest.mark.parametrize("limit", [0, 201])
def test_a_page_is_bounded(stage: Stage, limit: int) -> None:
    """Nobody reads a million rows at once, and nobody reads none."""
    with stage.engine.begin() as conn, pytest.raises(CallerError):
        list_attempts(conn, limit=limit)


def test_filters_narrow(stage: Stage) -> None:
    """By object, record, operation, status and hold."""
    stage.remote.script.next(verbs.answer(422), when=creating)
    people(stage, 3)
    stage.save(2, name="again")
    with stage.engine.begin() as conn:
        failed = list_attempts(conn, statuses=[AttemptStatus.TERMINAL_FAILED])
        updates = list_attempts(conn, operation=Operation.UPDATE)
        second = list_attempts(conn, source_object="Person", record_id="2")
        assert [row.record_id for row in failed.rows] == ["1"]
        assert failed.rows[0].reason == "remote_rejected"
        assert [(row.record_id, row.status) for row in updates.rows] == [("2", "pending")]
        assert [row.operation for row in second.rows] == ["update", "create"]
        assert list_attempts(conn, source_object="Other").rows == ()
        assert list_attempts(conn, hold=Hold.DRIFT).rows == ()
        assert {row.record_id for row in list_links(conn, statuses=[LinkStatus.FINALIZED]).rows} == {"2", "3"}
        assert list_links(conn, statuses=[LinkStatus.RETIRED]).rows == ()


@pytest.mark.rule("D-40")
def test_every_list_is_one_tenants(stage: Stage) -> None:
    """The same record ids in two tenants never meet."""
    from flows.stage import PACK

    stage.apply(PACK, tenant="north")
    people(stage, 2)
    people(stage, 1, tenant="north")
    with stage.engine.begin() as conn:
        assert len(list_links(conn).rows) == 2
        assert [row.tenant for row in list_links(conn, tenant="north").rows] == ["north"]
        assert [row.tenant for row in list_attempts(conn, tenant="north").rows] == ["north"]
        assert list_attempts(conn, tenant="south").rows == ()
        assert {m.link_key for m in history(conn, "Person", "1").rows}.isdisjoint(
            {m.link_key for m in history(conn, "Person", "1", tenant="north").rows}
        )


@pytest.mark.rule("AT-11", "D-14")
def test_a_history_is_one_timeline_of_transitions_and_replies(stage: Stage) -> None:
    """Oldest first, in pages that join; a claim's token and a reply's body are not in it."""
    stage.linked(1, name="Ada", email="ada@example.com")
    with stage.engine.begin() as conn:
        whole = history(conn, "Person", "1", limit=200)
        parts, page = [], None
        while True:
            found = history(conn, "Person", "1", page=page, limit=2)
            parts += found.rows
            page = found.next_page
            if page is None:
                break
    assert tuple(parts) == whole.rows
    events = [(moment.subject, moment.event) for moment in whole.rows]
    assert events[0] == ("create", "reserve")
    assert ("reply", "reply") in events
    assert ("link", "finalize") in events
    assert [m.at for m in whole.rows] == sorted(m.at for m in whole.rows)
    assert "ada@example.com" not in repr(whole)
    assert not any("claim" in moment.evidence for moment in whole.rows)


def test_a_page_that_nobody_gave_is_refused(stage: Stage) -> None:
    """A cursor is the answer's own word."""
    stage.linked(1, name="Ada", email="ada@example.com")
    with stage.engine.begin() as conn, pytest.raises(CallerError):
        history(conn, "Person", "1", page="yesterday")


@pytest.mark.rule("D-39", "DL-09")
def test_counts_add_up_and_show_what_nobody_owns(make_stage: MakeStage) -> None:
    """Per status, lane, tenant and hold; rows past their lease and of unknown lanes stand apart."""
    stage = make_stage()
    people(stage, 2)
    stage.save(3, name="P 3")
    stage.save(4, name="P 4")
    stage.claim(1)
    stage.sql("UPDATE pushlink_push_attempt SET dispatch_lane = 'tomorrow' WHERE status = 'pending'")
    stage.clock_forward()
    with stage.engine.begin() as conn:
        found = counts(conn, now=stage.clock.now(conn))
    assert found.by_status == {"create/finalized": 2, "create/pending": 1, "create/processing": 1}
    assert found.by_lane == {"configured": 3, "tomorrow": 1}
    assert found.unknown_lanes == {"tomorrow": 1}
    assert found.by_tenant == {"": 4}
    assert found.links == {"finalized": 2}
    assert [(row.lane, row.status, row.rows) for row in found.overdue] == [("configured", "processing", 1)]
