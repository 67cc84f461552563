"""Pruning changes no answer: not of a save, not of `explain`, not of what waits, not of the audit (SY-05)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flows.stage import USER, MakeStage, Stage
from operations.operators import create_of, decide, lost_create
from pushlink.operations import keeping, waiting
from pushlink.operations.explain import explain
from pushlink.operations.keeping import Run
from pushlink.operations.verifying import verify
from pushlink.protocol.verbs import Verb
from pushlink.testing import verbs
from pushlink.testing.messages import creating, updating


def updated(stage: Stage, number: int) -> None:
    """A linked record with two updates behind it, which are what a pruning may take one of."""
    stage.linked(number, name=f"Person {number}", email=f"p{number}@example.com")
    for name in ("second", "third"):
        stage.save(number, name=f"{name} {number}")
        stage.drain()


def update_in_doubt(stage: Stage, number: int) -> None:
    updated(stage, number)
    stage.remote.script.next(verbs.store_then_close(), when=updating)
    stage.save(number, name="doubt")
    stage.drain()


def update_refused(stage: Stage, number: int) -> None:
    updated(stage, number)
    stage.remote.script.next(verbs.answer(422, {"error": "no"}), when=updating)
    stage.save(number, name="refused")
    stage.drain()


def update_then_refused_then_updated(stage: Stage, number: int) -> None:
    update_refused(stage, number)
    stage.save(number, name="better")
    stage.drain()


def link_suspended(stage: Stage, number: int) -> None:
    updated(stage, number)
    stage.remote.script.next(verbs.answer(404, {}), when=updating)
    stage.save(number, name="gone")
    stage.drain()


def link_retired(stage: Stage, number: int) -> None:
    updated(stage, number)
    decide(stage, Verb.RETIRE, stage.rows("remote_link", source_record_id=str(number))[-1])


def update_waits(stage: Stage, number: int) -> None:
    updated(stage, number)
    stage.save(number, name="waits")


def update_held(stage: Stage, number: int) -> None:
    update_waits(stage, number)
    [row] = stage.attempts(status="pending", link_key=stage.slot(number)["link_key"])
    stage.sql("UPDATE pushlink_push_attempt SET hold_code = 'poison' WHERE id = :id", id=row["id"])


def update_late(stage: Stage, number: int) -> None:
    updated(stage, number)
    stage.save(number, name="late")
    late = stage.paused().to_send()
    stage.clock_forward()
    stage.drain()
    late.finish()


def create_refused(stage: Stage, number: int) -> None:
    stage.remote.script.next(verbs.answer(422, {"error": "no"}), when=creating)
    stage.save(number, name="refused", email=f"p{number}@example.com")
    stage.drain()


def create_superseded(stage: Stage, number: int) -> None:
    create_refused(stage, number)
    decide(stage, Verb.SUPERSEDE, create_of(stage, number))


def create_waits(stage: Stage, number: int) -> None:
    stage.save(number, name="waits", email=f"p{number}@example.com")


SCENES: tuple[Callable[[Stage, int], Any], ...] = (
    updated,
    update_in_doubt,
    update_refused,
    update_then_refused_then_updated,
    link_suspended,
    link_retired,
    update_late,
    update_held,
    update_waits,
    lost_create,
    create_refused,
    create_superseded,
    create_waits,
)


#: Columns that name a frozen document, by table: links compare with theirs for ever, requests are judged by theirs.
REFERENCES = {
    "remote_link": ("created_profile_digest", "created_action_digest", "profile_digest", "action_digest"),
    "push_request": ("profile_digest", "action_digest"),
}


def saved_again(stage: Stage, number: int) -> tuple[str, str]:
    """What a save of the record would answer, and why; nothing of it stays."""
    with stage.engine.connect() as conn:
        [outcome] = stage.runtime.save(conn, "Person", number, user=USER)
        conn.rollback()
    return type(outcome).__name__, str(getattr(outcome, "code", ""))


def answers(stage: Stage, numbers: range) -> dict[str, Any]:
    """Everything that people and gates are told."""
    found: dict[str, Any] = {"saves": [saved_again(stage, number) for number in numbers]}
    with stage.engine.begin() as conn:
        now = stage.clock.now(conn)
        found["explain"] = [explain(conn, "Person", str(n), now=now, world=stage.world) for n in numbers]
        found["stuck"] = waiting.stuck(conn, world=stage.world, now=now)
    return found


@pytest.mark.rule("SY-05")
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_pruning_changes_no_answer(make_stage: MakeStage, scene: Callable[[Stage, int], Any]) -> None:
    """Whatever state a record is in; what is left is as it was, and what left had ended and was not the newest."""
    stage = make_stage()
    scene(stage, 1)
    updated(stage, 2)
    stage.fixed.advance(days=400)
    numbers = range(1, 3)
    before, rows = answers(stage, numbers), {row["id"]: row for row in stage.attempts()}
    done = keeping.prune(Run(engine=stage.engine, world=stage.world, actor="olga", reason="nightly"), days=1)
    assert done.counts["updates"] >= 1
    assert answers(stage, numbers) == before
    left = {row["id"]: row for row in stage.attempts()}
    assert left == {name: rows[name] for name in left}
    gone = [row for name, row in rows.items() if name not in left]
    assert len(gone) == done.counts["updates"]
    for row in gone:
        newest = max(r["id"] for r in rows.values() if (r["link_key"], r["operation"]) == (row["link_key"], "update"))
        assert (row["operation"], row["in_doubt"], row["hold_code"], row["update_key"]) == ("update", False, None, None)
        assert row["status"] in {"finalized", "superseded", "terminal_failed"}
        assert row["id"] != newest
    documents = {row["digest"] for row in stage.rows("frozen_document")}
    named = {row[column] for name, columns in REFERENCES.items() for row in stage.rows(name) for column in columns}
    assert named <= documents
    told = {row["attempt_id"] for name in ("push_request", "push_response") for row in stage.rows(name)}
    assert told <= set(left)
    with stage.engine.begin() as conn:
        assert verify(conn).is_whole


def test_what_is_young_stays(make_stage: MakeStage) -> None:
    """An age is counted from the end of an update."""
    stage = make_stage()
    updated(stage, 1)
    stage.fixed.advance(days=20)
    before = stage.census()
    done = keeping.prune(Run(engine=stage.engine, world=stage.world, actor="olga", reason="nightly"), days=30)
    assert done.counts == {}
    assert stage.census() == before
