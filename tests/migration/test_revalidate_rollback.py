"""The way back of a manifest is one more manifest, made from its receipts and bound to rows as they are by now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flows.stage import Stage, pack_with
from migration.moves import (
    ACTOR,
    apply,
    manifest_of,
    mapping_named,
    moved_on,
    profile_changed,
    receipts,
    refused,
    revalidate_profile,
    validate,
)
from pushlink.errors import CallerError
from pushlink.flows.outcomes import Refused
from pushlink.migration import revalidate
from pushlink.migration.revalidate import Verdict
from pushlink.protocol.manifest import (
    Manifest,
    read_manifest,
    write_manifest,
)
from pushlink.protocol.receipts import rollback_of
from pushlink.protocol.snapshots import Digest


def way_back(stage: Stage, manifest: Manifest, operation_id: str = "back-1") -> Manifest:
    return revalidate.make_rollback(stage.engine, manifest, operation_id=operation_id, actor=ACTOR, now=stage.clock.now)


@pytest.mark.rule("RV-12")
def test_the_way_back_is_the_same_before_and_after(stage: Stage) -> None:
    """It can be written down, and looked at, before the way there is taken."""
    manifest = manifest_of(stage, moved_on(stage, 2))
    before = way_back(stage, manifest)
    assert not receipts(stage)
    apply(stage, manifest)
    assert write_manifest(way_back(stage, manifest)) == write_manifest(before)
    assert read_manifest(write_manifest(before)) == before


@pytest.mark.rule("RV-12", "RV-09")
def test_a_rollback_is_one_more_operation(stage: Stage) -> None:
    """Fingerprints are restored, with receipts of its own; the first operation stays applied, and is superseded."""
    keys = moved_on(stage, 2)
    old = {link["link_key"]: link["mapping_fingerprint"] for link in stage.links()}
    manifest = manifest_of(stage, keys)
    apply(stage, manifest)
    back = way_back(stage, manifest)
    done = apply(stage, back)
    assert (done.verdict, done.current) == (Verdict.APPLIED, 0)
    assert {link["link_key"]: link["mapping_fingerprint"] for link in stage.links()} == old
    assert apply(stage, manifest).superseded == 2
    assert isinstance(stage.save(1, name="Ada L."), Refused)
    stage.apply(pack_with())
    sends = stage.sends
    stage.save(1, name="Ada L.")
    stage.drain()
    [sent] = stage.remote.sent[sends:]
    assert b'"name":"Ada L."' in sent.body


@pytest.mark.rule("RV-09", "RV-12")
def test_a_rollback_binds_rows_as_they_are_by_now(stage: Stage) -> None:
    """After a profile revalidation the way back is made anew, and goes through."""
    manifest = manifest_of(stage, moved_on(stage, 1))
    apply(stage, manifest)
    early = way_back(stage, manifest)
    stage.apply(profile_changed(mapping_named("/full_name")))
    revalidate_profile(stage, 1)
    refused(stage, early, "row_changed")
    assert apply(stage, way_back(stage, manifest)).verdict is Verdict.APPLIED


@pytest.mark.rule("RV-12")
def test_an_operation_that_a_later_one_was_built_on_is_not_taken_back_first(stage: Stage) -> None:
    """The later one goes first."""
    keys = moved_on(stage, 1)
    first = manifest_of(stage, keys, "op-1")
    apply(stage, first)
    stage.apply(mapping_named("/title"))
    apply(stage, manifest_of(stage, keys, "op-2"))
    with pytest.raises(CallerError, match="later operation"):
        way_back(stage, first)


@pytest.mark.rule("RV-12")
def test_a_rollback_needs_a_receipt_of_each_member(stage: Stage) -> None:
    """Of this very manifest."""
    manifest = manifest_of(stage, moved_on(stage, 2))
    found = validate(stage, manifest).receipts
    assert len(rollback_of(manifest, found, operation_id="b", reason="r").members) == 2
    with pytest.raises(CallerError):
        rollback_of(manifest, found[:1], operation_id="b", reason="r")
    with pytest.raises(CallerError):
        rollback_of(replace(manifest, digest=Digest("sha256:" + "1" * 64)), found, operation_id="b", reason="r")
