"""After a POST: the mirror is shown, tried again, skipped or given up, and never costs a link or a second request."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa
from sqlalchemy.sql import text

from flows.stage import MakeStage, Stage, pack_with, profile_of
from pushlink.ports import MirrorResult
from pushlink.testing import verbs

ADA = {"name": "Ada", "email": "ada@example.com"}


@pytest.fixture
def broken_mirror(stage: Stage) -> Stage:
    """A stage whose database refuses every mirror: a constraint of the host's own."""
    _refuse_mirrors(stage.engine)
    return stage


def _refuse_mirrors(engine: sa.Engine) -> None:
    with engine.begin() as conn:
        if engine.dialect.name == "sqlite":
            conn.execute(
                text(
                    "CREATE TRIGGER no_mirror BEFORE UPDATE OF remote_id ON person"
                    " BEGIN SELECT RAISE(ABORT, 'no mirrors here'); END"
                )
            )
        else:
            conn.execute(text("ALTER TABLE person ADD CONSTRAINT no_mirror CHECK (remote_id IS NULL)"))


def _allow_mirrors(engine: sa.Engine) -> None:
    with engine.begin() as conn:
        conn.execute(
            text(
                "DROP TRIGGER no_mirror"
                if engine.dialect.name == "sqlite"
                else "ALTER TABLE person DROP CONSTRAINT no_mirror"
            )
        )


@pytest.mark.rule("PO-01", "AT-12")
def test_response_link_and_move_are_one_transaction_and_the_mirror_comes_after_it(stage: Stage) -> None:
    """Before the result commit there is nothing; after it there are all three; the record's field is still empty."""
    stage.save(1, **ADA)
    flow = stage.paused().to_send()
    flow.step()
    assert (stage.links(), stage.rows("push_response")) == ([], [])
    flow.step()
    assert (len(stage.links()), len(stage.rows("push_response"))) == (1, 1)
    assert stage.attempt()["status"] == "writeback_commit_pending"
    person = stage.person()
    assert person is not None
    assert person["remote_id"] is None
    flow.step()
    assert stage.person() == {**person, "remote_id": "1", "remote_source": "people"}


@pytest.mark.rule("PO-02", "RR-05", "D-02", "AT-12")
def test_a_failed_mirror_is_tried_again_and_never_another_post(broken_mirror: Stage) -> None:
    """`writeback_pending` with longer pauses; the link is finalized all the while; once it works it is written."""
    stage = broken_mirror
    stage.save(1, **ADA)
    stage.drain()
    row = stage.attempt()
    assert (row["status"], row["reason_code"]) == ("writeback_pending", "mirror_failed")
    assert (stage.link()["status"], stage.link()["mirror_status"]) == ("finalized", "failed")
    first = row["not_before"] - stage.fixed.now()
    stage.fixed.set(row["not_before"])
    stage.drain()
    again = stage.attempt()
    assert again["status"] == "writeback_pending"
    assert again["not_before"] - stage.fixed.now() > first
    _allow_mirrors(stage.engine)
    stage.clock_forward()
    stage.drain()
    assert stage.attempt()["status"] == "finalized"
    assert stage.link()["mirror_status"] == "written"
    assert stage.person() == {**stage.person(), "remote_id": "1"}
    assert stage.sends == 1


@pytest.mark.rule("PO-02", "RR-06")
def test_a_mirror_that_never_works_is_given_up_and_the_link_stays(make_stage: MakeStage) -> None:
    """After the declared number of tries the attempt is finished, and says so on the link."""
    stage = make_stage(mirror_tries_max=3)
    _refuse_mirrors(stage.engine)
    stage.save(1, **ADA)
    for _ in range(6):
        stage.drain()
        stage.clock_forward()
    assert stage.attempt()["status"] == "finalized"
    assert (stage.link()["status"], stage.link()["mirror_status"]) == ("finalized", "given_up")
    assert stage.sends == 1


@pytest.mark.rule("PO-02")
def test_tries_of_a_mirror_are_counted_apart_from_those_of_the_send(make_stage: MakeStage) -> None:
    """A create that was sent often does not lose its mirror at the first hitch."""
    stage = make_stage(pack=pack_with(lambda d: profile_of(d).update(retry={"attempts": 50})), mirror_tries_max=3)
    _refuse_mirrors(stage.engine)
    stage.remote.script.next(*[verbs.refuse_connection()] * 5)
    stage.save(1, **ADA)
    for _ in range(7):
        stage.drain()
        stage.clock_forward()
    assert stage.attempt()["status"] == "writeback_pending"
    _allow_mirrors(stage.engine)
    stage.clock_forward()
    stage.drain()
    assert stage.link()["mirror_status"] == "written"


@pytest.mark.rule("PO-06")
@pytest.mark.parametrize("field", ["remote_id", "remote_source"])
def test_a_foreign_value_in_a_mirror_field_is_not_overwritten(stage: Stage, field: str) -> None:
    """Somebody wrote there between save and mirror: both fields stay as they are, and the status says so."""
    stage.save(1, **ADA)
    stage.put(1, **{field: "somebody's own"})
    before = stage.person()
    stage.drain()
    assert stage.person() == before
    assert stage.link()["mirror_status"] == "skipped_foreign_value"
    assert stage.attempt()["status"] == "finalized"


@pytest.mark.rule("PO-06")
def test_what_stood_there_at_the_save_may_be_replaced_and_the_same_value_is_no_write(stage: Stage) -> None:
    """A legacy id that was there at the save is expected; a field that holds the new id already is written."""
    stage.save(1, **ADA, remote_id="legacy", remote_source="old")
    stage.drain()
    assert stage.person() == {**stage.person(), "remote_id": "1", "remote_source": "people"}
    stage.save(2, name="Bea")
    stage.put(2, remote_id="2", remote_source="people")
    stage.drain()
    assert stage.link(2)["mirror_status"] == "written"


@pytest.mark.rule("PO-03", "DR-23")
def test_a_source_that_was_deleted_before_its_mirror_is_not_made_again(stage: Stage) -> None:
    """Link and attempt stay as evidence, the mirror is skipped, no local and no remote record is made."""
    stage.save(1, **ADA)
    flow = stage.paused().to_send()
    flow.step()
    stage.drop(1)
    flow.finish()
    assert stage.person() is None
    assert (stage.link()["status"], stage.link()["mirror_status"]) == ("finalized", "skipped_source_deleted")
    assert stage.attempt()["status"] == "finalized"
    assert stage.sends == 1


@pytest.mark.rule("AT-09", "PO-06")
def test_a_worker_that_lost_its_claim_writes_no_mirror(stage: Stage) -> None:
    """Paused before the mirror, woken after another worker finished the row and a person cleared the field: nothing."""
    stage.save(1, **ADA)
    flow = stage.paused().to_send()
    flow.step()
    flow.step()
    stage.clock_forward()
    stage.drain()
    stage.put(1, remote_id=None, remote_source=None)
    before = stage.census()
    flow.finish()
    assert stage.census() == before
    person = stage.person()
    assert person is not None
    assert (person["remote_id"], person["remote_source"]) == (None, None)


@pytest.mark.rule("D-16", "RR-05")
def test_a_writeback_whose_workers_die_is_held_as_poison(make_stage: MakeStage) -> None:
    """Claims without an outcome are counted for write-backs too; the link stays finalized."""
    stage = make_stage(claims_max=2)
    _refuse_mirrors(stage.engine)
    stage.save(1, **ADA)
    stage.drain()
    for _ in range(3):
        stage.clock_forward()
        stage.claim()
    row = stage.attempt()
    assert (row["status"], row["hold_code"]) == ("writeback_pending", "poison")
    assert json.loads(row["detail"])["claims"] == 2
    assert stage.link()["status"] == "finalized"


@pytest.mark.rule("DL-10", "D-17")
def test_a_mirror_that_the_host_holds_is_left_for_later(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """`locked` is no failure of the push: the row is due again, and the neighbour's mirror is written."""
    write = stage.runtime.records.write_mirrors

    def one_is_locked(conn: sa.Connection, writes: list[object]) -> list[MirrorResult]:
        return [
            MirrorResult.LOCKED if w.ref.record_id == "1" else write(conn, [w])[0]  # type: ignore[attr-defined, list-item]
            for w in writes
        ]

    monkeypatch.setattr(stage.runtime.records, "write_mirrors", one_is_locked)
    for number in (1, 2):
        stage.save(number, name=f"Person {number}")
    stage.drain()
    assert (stage.link(1)["mirror_status"], stage.link(2)["mirror_status"]) == ("failed", "written")
    monkeypatch.undo()
    stage.clock_forward()
    stage.drain()
    assert stage.link(1)["mirror_status"] == "written"
