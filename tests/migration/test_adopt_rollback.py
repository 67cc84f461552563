"""Taking an adoption back: what nothing has touched since, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.stage import Stage
from migration.adoptions import (
    adopted,
    decide,
    plan,
    reasons,
    results,
    roll_back,
    stays,
)
from pushlink.errors import CallerError
from pushlink.flows.outcomes import Reserved
from pushlink.protocol.verbs import Verb


def deleted(stage: Stage) -> None:
    """The host tells of a delete."""
    with stage.engine.begin() as conn:
        stage.runtime.deleted(conn, "Person", 1, user="ann")


#: What happened to record 1 since it was adopted, and why its link stays.
TOUCHED: dict[str, tuple[Callable[[Stage], object], str]] = {
    "saved": (lambda stage: stage.save(1, name="Ada L."), "record_saved"),
    "updated": (lambda stage: (stage.save(1, name="Ada L."), stage.drain()), "record_saved"),
    "its deletion was told": (deleted, "record_saved"),
    "suspended": (lambda stage: decide(stage, Verb.SUSPEND), "link_changed"),
    "retired": (lambda stage: decide(stage, Verb.RETIRE), "link_changed"),
    "released": (lambda stage: decide(stage, Verb.RETIRE, release=True), "link_changed"),
    "relocated": (lambda stage: decide(stage, Verb.RELOCATE, argument="r77"), "link_changed"),
    "nothing": (Stage.census, "rolled_back"),
    "the mirror was cleared": (lambda stage: stage.put(1, remote_id=None), "rolled_back"),
}


@pytest.mark.rule("MG-06", "D-35")
@pytest.mark.parametrize("case", TOUCHED)
def test_a_rollback_takes_back_what_nothing_has_touched_since(stage: Stage, tmp_path: Path, case: str) -> None:
    """What was touched stays, and is named; what is taken back is retired with its slot released."""
    adopted(stage, tmp_path, 1, 2)
    change, expected = TOUCHED[case]
    change(stage)
    kept = stage.rows("remote_link", source_record_id="1")
    assert stays(stage) == {"1": expected, "2": "rolled_back"}
    assert stage.link(2) == stage.link(2) | {"status": "retired", "slot_key": None, "locator_key": None}
    if expected != "rolled_back":
        assert stage.rows("remote_link", source_record_id="1") == kept
    [action] = stage.rows("operator_action", "id", verb="adopt_rollback")
    assert json.loads(action["after"])["links"] == 1 + (expected == "rolled_back")
    before = stage.census()
    again = stays(stage)
    assert again["2"] == "already_rolled_back"
    assert stage.census() == before


@pytest.mark.rule("MG-06")
def test_after_a_rollback_everything_is_as_if_nothing_had_been_adopted(stage: Stage, tmp_path: Path) -> None:
    """A save creates, an apply of the old manifest adopts nothing, and a new plan may adopt the record again."""
    adopted(stage, tmp_path, 1, 2)
    done = roll_back(stage)
    assert (done.links, done.rolled_back) == (2, 2)
    assert results(stage, tmp_path / "op-1") == {"1": "rolled_back", "2": "rolled_back"}
    assert isinstance(stage.save(1), Reserved)
    plan(stage, tmp_path, "op-2")
    assert reasons(tmp_path / "op-2") == {"1": "create_blocks", "2": "adopt"}
    assert results(stage, tmp_path / "op-2") == {"2": "adopted"}
    with pytest.raises(CallerError, match="adopted anything"):
        roll_back(stage, "op-9")
