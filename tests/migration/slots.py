"""What tests of rebinding do over and over: a pack whose action has another slot, and a manifest to it."""

from __future__ import annotations

import json
from typing import Any

from flows.stage import Stage, action_of, pack_with
from pushlink.migration import rebind
from pushlink.protocol.documents import approve
from pushlink.protocol.rebinding import Rebind
from pushlink.protocol.snapshots import Slots

APPROVAL = approve("Olga Owner", "act-2 is act-1 under another id; nothing else changed. Ticket 72.")
ACTOR = "olga"
OLD = Slots(
    tenant="",
    connector_owner_key="owner-1",
    action_slot_id="act-1",
    destination_slot_id="dest-1",
    source_object="Person",
)


def renamed(action: str = "act-2", destination: str = "dest-1", **more: Any) -> dict[str, Any]:
    """The pack with another slot for its one action."""

    def change(document: dict[str, Any]) -> None:
        document.update(more)
        document["destinations"][0]["destination_slot_id"] = destination
        action_of(document).update(action_slot_id=action, destination=destination)

    return pack_with(change)


def planned(stage: Stage, *, to: str = "act-2", of: str = "act-1", operation_id: str = "op-1", **more: Any) -> Rebind:
    """A manifest from one action slot to another."""
    ask = rebind.Ask(tenant="", from_action=of, to_action=to, **more)
    manifest, done = rebind.plan(
        stage.engine,
        ask,
        operation_id=operation_id,
        reason="the slot got another id",
        approval=APPROVAL,
        now=stage.clock.now,
    )
    assert done.verdict is rebind.Verdict.APPLICABLE
    return manifest


def apply(stage: Stage, manifest: Rebind, **more: Any) -> rebind.Done:
    """Apply it on the stage's clock."""
    return rebind.apply(stage.engine, manifest, actor=ACTOR, now=stage.clock.now, **more)


def receipts(stage: Stage) -> list[dict[str, Any]]:
    """What is in the table of receipts."""
    return stage.rows("rebind_receipt", "operation_id,old_link_key")


def slot_row(stage: Stage, slot_id: str) -> dict[str, Any]:
    """The registry's row of an action slot."""
    [row] = stage.rows("connector_slot", kind="action", slot_id=slot_id)
    return row | {"detail": json.loads(row["detail"] or "{}")}
