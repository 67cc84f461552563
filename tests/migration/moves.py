"""What tests of mapping manifests do over and over: links under a pack, a pack that maps otherwise, and a manifest."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from flows.stage import Stage, action_of, pack_with, profile_of
from operations import operators
from pushlink.errors import CallerError, Code
from pushlink.migration import revalidate
from pushlink.protocol.manifest import Manifest, approve
from pushlink.protocol.snapshots import LinkKey
from pushlink.protocol.states import LEASED, AttemptStatus
from pushlink.protocol.verbs import Verb
from pushlink.store.tables import METADATA

APPROVAL = approve("Olga Owner", "The new field is optional at the remote; both mappings mean the same. Ticket 71.")
ACTOR = "cli:test"
POINTER = "last_mapping_revalidation_operation_id"


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


def refused(stage: Stage, manifest: Manifest, kind: str, *, count: int = 1) -> CallerError:
    """The refusal of a manifest, the same from a rehearsal, after which everything is as it was."""
    before = stage.census()
    with pytest.raises(CallerError) as rehearsed:
        validate(stage, manifest)
    with pytest.raises(CallerError) as caught:
        apply(stage, manifest)
    assert stage.census() == before
    assert caught.value.code is rehearsed.value.code is Code.NOT_ALLOWED_NOW
    assert caught.value.evidence == rehearsed.value.evidence
    assert caught.value.evidence["kinds"] == {kind: count}, caught.value.evidence
    return caught.value


def profile_changed(document: dict[str, Any]) -> dict[str, Any]:
    """The same pack with another endpoint class: drift that a revalidation of the profile accepts."""
    changed = copy.deepcopy(document)
    profile_of(changed)["endpoint_class"] = "other"
    return changed


def revalidate_profile(stage: Stage, record_id: int = 1) -> None:
    """An operator accepts what drifted but for the mapping."""
    operators.decide(stage, Verb.REVALIDATE, stage.link(record_id))


def force(stage: Stage, status: AttemptStatus, operation: str, key: str) -> None:
    """An attempt of a key in any status, by hand."""
    t = METADATA.tables["pushlink_push_attempt"]
    values: dict[str, Any] = {"status": status.value, "claim_token": None, "remote_io_started_at": None}
    if status in LEASED:
        values |= {"claim_token": "token", "lease_until": t.c.not_before}
    if operation == "create" and status == "terminal_failed":
        values["remote_id"] = None
    if operation == "update":
        values["update_key"] = t.c.link_key
    with stage.engine.begin() as conn:
        conn.execute(sa.update(t).where(t.c.link_key == key, t.c.operation == operation).values(values))
