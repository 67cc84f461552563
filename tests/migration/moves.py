"""What tests of mapping manifests do over and over: links under a pack, a pack that maps otherwise, and a manifest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flows.stage import Stage, action_of, pack_with
from pushlink.migration import revalidate
from pushlink.protocol.manifest import Manifest, approve
from pushlink.protocol.snapshots import LinkKey

APPROVAL = approve("Olga Owner", "The new field is optional at the remote; both mappings mean the same. Ticket 71.")
ACTOR = "cli:test"


def mapping_named(target: str) -> dict[str, Any]:
    """The pack with its first mapping pointed elsewhere; from version 2 on."""

    def change(document: dict[str, Any]) -> None:
        document["version"] = "2.0.0"
        action_of(document)["mappings"][0]["target"] = target

    return pack_with(change)


def linked(stage: Stage, count: int) -> list[LinkKey]:
    """That many people, saved and pushed, by link key."""
    for number in range(1, count + 1):
        stage.save(number, name=f"Person {number}", email=f"p{number}@example.com")
    stage.drain()
    return sorted(LinkKey(link["link_key"]) for link in stage.links())


def moved_on(stage: Stage, count: int = 2, target: str = "/full_name") -> list[LinkKey]:
    """Links of before, under a pack that maps otherwise now."""
    keys = linked(stage, count)
    stage.apply(mapping_named(target))
    return keys


def manifest_of(stage: Stage, keys: Sequence[LinkKey], operation_id: str = "op-1", **more: Any) -> Manifest:
    """A manifest that brings these links to the catalogue of now."""
    given = {"tenant": "", "reason": "the field was renamed", "approval": APPROVAL, **more}
    return revalidate.make_manifest(stage.engine, keys, operation_id=operation_id, **given)


def apply(stage: Stage, manifest: Manifest) -> revalidate.Done:
    """Apply it on the stage's clock."""
    return revalidate.apply(stage.engine, manifest, actor=ACTOR, now=stage.clock.now)


def validate(stage: Stage, manifest: Manifest) -> revalidate.Rehearsed:
    """Validate it on the stage's clock."""
    return revalidate.validate(stage.engine, manifest, actor=ACTOR, now=stage.clock.now)


def receipts(stage: Stage, **equal: Any) -> list[dict[str, Any]]:
    """What is in the table of receipts."""
    return stage.rows("revalidation_receipt", "operation_id,link_key", **equal)
