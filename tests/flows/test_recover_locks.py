"""Recovery keeps the order of locks: a slot that somebody holds is not waited for with an attempt in hand."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import sqlalchemy as sa

from flows.stage import Stage
from pushlink.store import slots
from pushlink.store.tables import push_attempt


def dead_update(stage: Stage) -> dict[str, Any]:
    """An update that a worker had sent when it died; its lease is over."""
    stage.linked(1)
    stage.save(1, name="Ada L.")
    stage.paused().to_send().step()
    stage.clock_forward()
    return stage.attempt(operation="update")


@pytest.mark.rule("D-10", "D-44")
def test_a_claim_that_recovers_never_waits_for_a_slot(stage: Stage, dialect: str) -> None:
    """A host holds the slot and then wants the attempt. Each would wait for the other; recovery comes back instead."""
    if dialect == "sqlite":
        pytest.skip("there one transaction writes at a time anyhow")
    dead = dead_update(stage)
    with stage.engine.begin() as host:
        host.execute(sa.text("SET LOCAL lock_timeout = '5s'"))
        slots.lock_slots(host, [dead["link_key"]], nowait=False)
        worker = threading.Thread(target=stage.claim, daemon=True)
        worker.start()
        worker.join(4)
        assert not worker.is_alive()
        t = push_attempt
        host.execute(sa.update(t).where(t.c.id == dead["id"]).values(row_version=t.c.row_version + 1))
    assert stage.attempt(id=dead["id"])["status"] == "processing"
    stage.clock_forward()
    stage.claim()
    assert stage.attempt(id=dead["id"])["status"] == "ambiguous_remote_effect"
    assert stage.slot()["applied_values_digest"] is None


@pytest.mark.rule("D-06", "D-20")
def test_a_recovered_update_forgets_what_was_applied_with_it(stage: Stage) -> None:
    """Nobody can say any more that a later body is the same, in the transaction that puts the update in doubt."""
    dead = dead_update(stage)
    assert stage.slot()["applied_values_digest"] is not None
    stage.claim()
    assert stage.attempt(id=dead["id"])["status"] == "ambiguous_remote_effect"
    assert stage.slot()["applied_values_digest"] is None
