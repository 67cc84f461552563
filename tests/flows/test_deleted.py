"""A local delete, told by the host: it ends what was never sent, marks the rest, and deletes nothing remotely."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from flows.stage import USER, Stage
from pushlink.flows.deleted import Deleted
from pushlink.flows.outcomes import Refused
from pushlink.testing import verbs

ADA = {"name": "Ada", "email": "ada@example.com"}


def delete(stage: Stage, record_id: int = 1, *, commit: bool = True) -> list[Deleted]:
    with stage.engine.connect() as conn, conn.begin() as transaction:
        found = stage.runtime.deleted(conn, "Person", record_id, user=USER)
        conn.execute(sa.text("DELETE FROM person WHERE id = :id"), {"id": record_id})
        if not commit:
            transaction.rollback()
        return found


@pytest.mark.rule("DR-22", "RR-07", "GT-08", "GT-11")
def test_a_create_that_was_never_sent_ends_with_its_record(stage: Stage) -> None:
    """Terminal with `source_gone` in the host's transaction, by the user who deleted; its slot stays taken."""
    outcome = stage.save(1, **ADA)
    [found] = delete(stage)
    assert found == Deleted(link_key=outcome.about.link_key, ended=(stage.attempt()["id"],), open=(), link_status=None)
    row = stage.attempt()
    assert (row["status"], row["reason_code"], row["create_key"]) == ("terminal_failed", "source_gone", row["link_key"])
    assert [e["actor"] for e in stage.events(event="end_unsent")] == [f"user:{USER}"]
    stage.drain()
    assert stage.sends == 0
    assert isinstance(stage.save(1, **ADA), Refused)


@pytest.mark.rule("DR-22", "D-09")
def test_a_create_in_doubt_becomes_ambiguous(stage: Stage) -> None:
    """What may have landed is never called terminal."""
    stage.save(1, **ADA)
    stage.sql("UPDATE pushlink_push_attempt SET in_doubt = true")
    [found] = delete(stage)
    assert found.ended == (stage.attempt()["id"],)
    assert stage.attempt()["status"] == "ambiguous_remote_effect"


@pytest.mark.rule("DR-23", "PO-03")
def test_a_link_stays_and_its_waiting_update_ends(stage: Stage) -> None:
    """Nothing is deleted or sent remotely; the slot remembers the delete until a save of the same id."""
    stage.linked(1, **ADA)
    stage.save(1, name="Ada L.")
    [found] = delete(stage)
    assert (len(found.ended), found.open, found.link_status) == (1, (), "finalized")
    assert stage.attempt(operation="update")["status"] == "superseded"
    assert stage.slot()["source_deleted_at"] == stage.fixed.now()
    assert [e["event"] for e in stage.events(subject="slot")] == ["source_deleted"]
    stage.drain()
    assert stage.sends == 1
    assert len(stage.remote.api.records) == 1
    stage.save(1, name="Ada is back", email="ada@example.com")
    stage.drain()
    assert stage.slot()["source_deleted_at"] is None
    assert stage.remote.api.records[0].document["name"] == "Ada is back"
    assert stage.remote.api.creates == 1


@pytest.mark.rule("AT-09", "PO-03")
def test_an_attempt_in_work_keeps_its_owner_and_its_result(stage: Stage) -> None:
    """The worker that owns the claim records its answer; the mirror is skipped, the link stays."""
    stage.save(1, **ADA)
    flow = stage.paused().to_send()
    [found] = delete(stage)
    assert (found.ended, found.open) == ((), (stage.attempt()["id"],))
    flow.finish()
    assert stage.link()["mirror_status"] == "skipped_source_deleted"
    assert stage.attempt()["status"] == "finalized"


@pytest.mark.rule("PO-05")
def test_an_ambiguous_create_stays_for_people(stage: Stage) -> None:
    """A deleted record settles nothing about what the remote has."""
    stage.remote.script.next(verbs.store_then_close())
    stage.save(1, **ADA)
    stage.drain()
    [found] = delete(stage)
    assert (found.ended, len(found.open)) == ((), 1)
    assert stage.attempt()["status"] == "ambiguous_remote_effect"


@pytest.mark.rule("D-44")
def test_a_delete_that_rolls_back_leaves_everything(stage: Stage) -> None:
    """It is the host's transaction; and a record that pushlink never saw has nothing to end."""
    stage.save(1, **ADA)
    before = stage.census()
    delete(stage, commit=False)
    assert stage.census() == before
    assert delete(stage, 99) == []
