"""What tests of adoption do over and over: people with legacy ids, a plan, its manifest, an apply and a rollback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from flows.stage import PERSON, Stage
from operations import operators
from pushlink.migration import adopt, adopt_apply, adopt_rollback
from pushlink.migration.adopt import Asked
from pushlink.protocol.adoption import Pair
from pushlink.protocol.adoption_manifest import Totals
from pushlink.protocol.verbs import Verb
from pushlink.testing import messages

ACTOR = "olga"
REASON = "the old integration is switched off; ticket 9"

#: Columns of the stage's table that stand for the fields of an even older integration.
OLDER = Pair(remote_id="salary", provenance="owner")


def legacy(stage: Stage, *numbers: int, **more: Any) -> None:
    """People that an older integration has pushed: an id and its mark in the fields of the mirror."""
    people = [
        {
            "id": number,
            "name": f"Person {number}",
            "email": f"p{number}@example.com",
            "remote_id": f"r{number}",
            "remote_source": "people",
            **more,
        }
        for number in numbers
    ]
    with stage.engine.begin() as conn:
        conn.execute(sa.insert(PERSON), people)


def asked(operation_id: str = "op-1", **more: Any) -> Asked:
    """An adoption of the stage's one action."""
    given = {"source_object": "Person", "action_slot_id": "act-1", "older": (OLDER,), **more}
    return Asked(operation_id=operation_id, **given)


def plan(stage: Stage, home: Path, operation_id: str = "op-1", verification: Any = None, **more: Any) -> Totals:
    """Plan into `home / operation_id`."""
    return adopt.plan(
        stage.engine,
        stage.world,
        stage.runtime.records,
        asked(operation_id, **more),
        home / operation_id,
        verification=verification,
    )


def entries(path: Path) -> list[dict[str, Any]]:
    """The lines of a manifest between its first and its last."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:-1]]


def reasons(path: Path) -> dict[str, str]:
    """For each record of a manifest `adopt`, or why not."""
    return {entry["record_id"]: entry.get("because", "adopt") for entry in entries(path)}


def apply(stage: Stage, path: Path, **more: Any) -> adopt_apply.Applied:
    """Apply a manifest on the stage's clock."""
    manifest = adopt_apply.read_manifest(path)
    return adopt_apply.apply(stage.engine, stage.world, manifest, **{"actor": ACTOR, "reason": REASON, **more})


def results(stage: Stage, path: Path) -> dict[str, str]:
    """The same, with what became of each row."""
    found: dict[str, str] = {}
    apply(stage, path, on_result=lambda entry, result, _detail: found.update({entry.record_id: result}))
    return found


def roll_back(stage: Stage, operation_id: str = "op-1", **more: Any) -> adopt_rollback.RolledBack:
    """Take an operation back."""
    ordered = adopt_rollback.Ordered(operation_id=operation_id, tenant="", actor=ACTOR, reason="a mistake")
    return adopt_rollback.roll_back(stage.engine, stage.world, ordered, **more)


def stays(stage: Stage, operation_id: str = "op-1") -> dict[str, str]:
    """The same, with what became of each link."""
    found: dict[str, str] = {}
    say: Callable[..., None] = lambda receipt, result, _detail: found.update({receipt.source_record_id: result})  # noqa: E731
    roll_back(stage, operation_id, on_result=say)
    return found


def adopted(stage: Stage, home: Path, *numbers: int) -> None:
    """People that are adopted."""
    legacy(stage, *numbers)
    plan(stage, home)
    assert apply(stage, home / "op-1").adopted == len(numbers)


def decide(stage: Stage, verb: Verb, record_id: int = 1, **more: Any) -> None:
    """An operator's decision about the link of a person."""
    operators.decide(stage, verb, stage.link(record_id), **more)


def remote_record(stage: Stage, **fields: Any) -> str:
    """A record that is at the remote already; answers with its id."""
    told, _ = stage.remote.api.handle(
        messages.Asked(
            number=1,
            method="POST",
            target="/v2/people",
            headers=(("Content-Type", "application/json"),),
            body=json.dumps(fields).encode(),
            prefix="/v2",
        )
    )
    return str(json.loads(told.body)["id"])
