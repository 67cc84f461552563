"""Updates around a manifest: what was frozen under the old mapping is not sent, and no update reads a receipt."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event

from flows.stage import Stage
from migration.moves import (
    apply,
    linked,
    manifest_of,
    mapping_named,
    refused,
)
from pushlink.migration.revalidate import Verdict


@pytest.mark.rule("RV-11", "D-19")
def test_a_version_that_was_frozen_under_the_old_mapping_becomes_stale(stage: Stage) -> None:
    """It waited, was held by the drift, and is never sent; a new save of the same values is, under the new mapping."""
    keys = linked(stage, 2)
    stage.save(1, name="Ada L.")
    stage.apply(mapping_named("/full_name"))
    stage.drain()
    assert stage.attempt(operation="update")["hold_code"] == "drift"
    sends = stage.sends
    apply(stage, manifest_of(stage, keys))
    stage.drain()
    assert stage.attempt(operation="update")["status"] == "superseded"
    assert stage.attempt(operation="update")["reason_code"] == "stale_mapping"
    assert stage.slot(1)["wanted_state"] == "stale_mapping"
    assert stage.sends == sends
    stage.save(1)
    stage.drain()
    [sent] = stage.remote.sent[sends:]
    assert b'"full_name":"Ada L."' in sent.body


@pytest.mark.rule("RV-04", "D-21")
def test_an_update_that_was_claimed_before_the_manifest_sends_nothing_of_the_old_mapping(stage: Stage) -> None:
    """It is in flight from its claim on, so the manifest waits; given back, it goes on under what holds then."""
    keys = linked(stage, 1)
    stage.save(1, name="Ada L.")
    paused = stage.paused()
    stage.apply(mapping_named("/full_name"))
    refused(stage, manifest_of(stage, keys), "update_in_flight")
    sends = stage.sends
    paused.finish()
    assert stage.sends == sends
    assert apply(stage, manifest_of(stage, keys)).verdict is Verdict.APPLIED
    stage.drain()
    assert stage.sends == sends
    assert stage.slot(1)["wanted_state"] == "stale_mapping"


@pytest.mark.rule("RV-01", "RV-11")
def test_an_update_reads_no_receipt(stage: Stage) -> None:
    """Not one statement of a save, a claim, a checkpoint or an answer names the table, before or after a manifest."""
    keys = linked(stage, 2)
    seen: list[str] = []

    @event.listens_for(stage.engine, "before_cursor_execute")
    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    stage.save(1, name="Ada L.")
    stage.drain()
    event.remove(stage.engine, "before_cursor_execute", note)
    stage.apply(mapping_named("/full_name"))
    apply(stage, manifest_of(stage, keys))
    event.listen(stage.engine, "before_cursor_execute", note)
    stage.save(2, name="Grace")
    stage.drain()
    assert len([one for one in stage.remote.sent if one.method == "PATCH"]) == 2
    assert len(seen) > 20
    assert not [one for one in seen if "revalidation_receipt" in one]
