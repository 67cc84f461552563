"""Answers that come after their claim is gone: evidence, kept once, with no transition."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from flows.stage import MakeStage, step_of
from pushlink.flows.effects import Tx


@pytest.mark.rule("D-13", "D-14")
def test_a_late_answer_whose_commit_nobody_heard_of_is_kept_once(make_stage: MakeStage) -> None:
    """The transaction that keeps it is tried again after a commit of unknown outcome; the evidence is there once."""
    stage = make_stage()
    stage.save(name="Ada", email="ada@example.com")
    slow = stage.paused().to_send()
    slow.step()  # sent and answered
    stage.clock_forward()
    stage.drain()  # its lease is over: recovered, in doubt
    slow.step()  # the claim is gone
    late = slow.effect
    assert isinstance(late, Tx)
    assert step_of(late) == "keep_late"
    committed: list[Any] = stage.database.commit(late.step, [late])
    assert committed == [None]
    slow.finish()  # the same transaction again, as after an answer that was lost
    [answer] = stage.rows("push_response", "id")
    assert bool(answer["late"]) is True
    assert stage.attempt()["status"] == "ambiguous_remote_effect"


@pytest.mark.rule("D-14")
def test_late_answers_of_two_sends_are_both_kept(make_stage: MakeStage) -> None:
    """What is there already is told by its send: another claim's late answer is news."""
    stage = make_stage()
    for record in (1, 2):
        stage.save(record, name=f"Person {record}", email=f"p{record}@example.com")
    first, second = (stage.paused_of(claimed).to_send() for claimed in stage.claim())
    first.step(), second.step()
    stage.clock_forward()
    stage.drain()
    first.finish(), second.finish()
    with stage.engine.begin() as conn:
        kept = conn.execute(sa.text("SELECT count(*) FROM pushlink_push_response WHERE late")).scalar_one()
    assert kept == 2
