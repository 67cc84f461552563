"""An operator over a stage: decisions with the row version that is there, each in a transaction of its own."""

from __future__ import annotations

from typing import Any

import pytest

from flows.stage import Stage
from pushlink.errors import CallerError, Code
from pushlink.operations.actions import Decision, Done, OperatorTerms, act
from pushlink.protocol.verbs import VERBS, Target, Verb
from pushlink.store.access import Connection, commit
from pushlink.testing import verbs
from pushlink.testing.messages import creating, updating

ADA = {"name": "Ada", "email": "ada@example.com"}
WHY = "looked at the remote, ticket 17"

#: Longer than the settle time of the pack of these tests.
SETTLED_S = 3 * 3_600


def order_for(stage: Stage, verb: Verb, row: dict[str, Any], **more: Any) -> Decision:
    given = {"actor": "olga", "reason": WHY, "row_version": row["row_version"], **more}
    return Decision(verb=verb, target_id=row["id"], **given)


def decide(stage: Stage, verb: Verb, row: dict[str, Any], *, terms: OperatorTerms | None = None, **more: Any) -> Done:
    def once(conn: Connection) -> Done:
        decision = order_for(stage, verb, row, **more)
        return act(conn, stage.world, decision, terms=terms or OperatorTerms(), now=stage.clock.now(conn))

    return commit(stage.engine, once)


def refused(
    stage: Stage, verb: Verb, row: dict[str, Any], *, code: Code = Code.NOT_ALLOWED_NOW, **more: Any
) -> CallerError:
    """The refusal of a decision, which has left everything as it was."""
    before = stage.census()
    with pytest.raises(CallerError) as caught:
        decide(stage, verb, row, **more)
    assert caught.value.code is code
    assert stage.census() == before
    return caught.value


def lost_create(stage: Stage, record_id: int = 1) -> dict[str, Any]:
    """A create that was applied, and whose answer never came."""
    stage.remote.script.next(verbs.store_then_close(), when=creating)
    stage.save(record_id, **{**ADA, "email": f"p{record_id}@example.com"})
    stage.drain()
    return create_of(stage, record_id)


def failed_create(stage: Stage, answer: verbs.Verb | None = None) -> dict[str, Any]:
    """A create that the remote refused for good."""
    stage.remote.script.next(answer or verbs.answer(422, {"error": "no"}), when=creating)
    stage.save(1, **ADA)
    stage.drain()
    return create_of(stage)


def lost_update(stage: Stage) -> dict[str, Any]:
    """An update that was applied, and whose answer never came."""
    stage.linked(1, **ADA)
    stage.remote.script.next(verbs.store_then_close(), when=updating)
    stage.save(1, name="Ada L.")
    stage.drain()
    return stage.attempt(operation="update")


def create_of(stage: Stage, record_id: int = 1) -> dict[str, Any]:
    """The newest create of a record."""
    return stage.attempts(link_key=stage.slot(record_id)["link_key"], operation="create")[-1]


def settle(stage: Stage) -> None:
    """Wait until nothing of the last send can turn up any more."""
    stage.fixed.advance(seconds=SETTLED_S)


def actions(stage: Stage) -> list[dict[str, Any]]:
    """The audit, in its decision, without what an apply of a pack wrote."""
    return [row for row in stage.rows("operator_action", "id") if row["verb"] != "pack_apply"]


def is_of_attempt(verb: Verb) -> bool:
    return VERBS[verb].target is Target.ATTEMPT
