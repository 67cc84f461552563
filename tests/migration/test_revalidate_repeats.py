"""A manifest that is applied again only verifies: what it did, and that the chain of receipts holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from flows.stage import Stage
from migration.moves import (
    POINTER,
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
from pushlink.migration.revalidate import Verdict
from pushlink.operations.actions import Decision, OperatorTerms, act
from pushlink.protocol.manifest import (
    row_digest,
)
from pushlink.protocol.snapshots import LinkKey
from pushlink.protocol.verbs import Verb


@pytest.mark.rule("RV-06", "D-32")
def test_a_repeat_only_verifies(stage: Stage) -> None:
    """However often, and whatever the clock: nothing is written."""
    manifest = manifest_of(stage, moved_on(stage, 3))
    apply(stage, manifest)
    before = stage.census()
    stage.clock_forward()
    done = apply(stage, manifest)
    assert (done.verdict, done.members, done.superseded) == (Verdict.ALREADY_APPLIED, 3, 0)
    assert validate(stage, manifest).done == done
    assert stage.census() == before


@pytest.mark.rule("RV-06", "RV-09", "D-32")
def test_a_repeat_after_later_legitimate_changes_is_already_applied(stage: Stage) -> None:
    """A profile revalidation, a later manifest, ordinary updates and a retirement in between do not make it diverge."""
    first = manifest_of(stage, moved_on(stage, 3), "op-1")
    apply(stage, first)
    stage.apply(profile_changed(mapping_named("/full_name")))
    revalidate_profile(stage, 1)
    assert apply(stage, first).verdict is Verdict.ALREADY_APPLIED
    stage.apply(profile_changed(mapping_named("/title")))
    moved = LinkKey(stage.link(1)["link_key"])
    second = manifest_of(stage, [moved], "op-2")
    assert apply(stage, second).verdict is Verdict.APPLIED
    stage.save(1, name="Ada L.")
    stage.drain()
    link = stage.link(2)
    decision = Decision(
        verb=Verb.RETIRE, target_id=link["id"], row_version=link["row_version"], actor="o", reason="r", release=False
    )
    with stage.engine.begin() as conn:
        act(conn, stage.world, decision, terms=OperatorTerms(), now=stage.clock.now(conn))
    before = stage.census()
    done = apply(stage, first)
    assert (done.verdict, done.superseded) == (Verdict.ALREADY_APPLIED, 1)
    assert apply(stage, second).superseded == 0
    assert stage.census() == before


@pytest.mark.rule("RV-09")
def test_the_next_transition_proves_its_lineage_by_the_receipt_before(stage: Stage) -> None:
    """It names the operation before, is sealed over that receipt, and binds the row as it is by then."""
    keys = moved_on(stage, 1)
    apply(stage, manifest_of(stage, keys, "op-1"))
    stage.apply(profile_changed(mapping_named("/full_name")))
    revalidate_profile(stage, 1)
    stage.apply(profile_changed(mapping_named("/title")))
    second = manifest_of(stage, keys, "op-2")
    bound = row_digest(stage.link(1))
    assert apply(stage, second).verdict is Verdict.APPLIED
    one, two = receipts(stage)
    assert two["prior_operation_id"] == "op-1"
    assert two["previous_hash"] == one["hash"]
    assert two["old_mapping_fingerprint"] == one["new_mapping_fingerprint"]
    assert two["row_digest_before"] == bound != one["row_digest_after"]
    assert stage.link(1)[POINTER] == "op-2"


@pytest.mark.rule("RV-05", "RV-09")
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param("UPDATE pushlink_remote_link SET {p} = 'op-0'", id="the pointer names no receipt"),
        pytest.param("UPDATE pushlink_remote_link SET {p} = NULL", id="the pointer is gone"),
        pytest.param("UPDATE pushlink_remote_link SET mapping_fingerprint = :f", id="fingerprints moved by hand"),
    ],
)
def test_a_broken_chain_of_receipts_stops_the_next_operation_and_the_repeat(stage: Stage, spoil: str) -> None:
    """Somebody changed the link behind everybody's back, so lineage cannot be proved any more."""
    keys = moved_on(stage, 2)
    first = manifest_of(stage, keys, "op-1")
    apply(stage, first)
    with stage.engine.begin() as conn:
        bound = {"f": "mapping1:" + "0" * 64} if ":f" in spoil else {}
        conn.execute(sa.text(spoil.replace("{p}", POINTER)), bound)
    stage.apply(mapping_named("/title"))
    refused(stage, manifest_of(stage, keys, "op-2"), "receipts_broken", count=2)
    refused(stage, first, "receipts_broken", count=2)


def without_triggers(stage: Stage, dialect: str, change: Callable[[sa.Connection], object]) -> None:
    """Change receipts as only the owner of the database could, with its guards taken off."""
    with stage.engine.begin() as conn:
        if dialect == "postgresql":
            conn.execute(sa.text("ALTER TABLE pushlink_revalidation_receipt DISABLE TRIGGER ALL"))
        else:
            found = (
                "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'pushlink_revalidation_receipt'"
            )
            for (name,) in conn.execute(sa.text(found)).all():
                conn.execute(sa.DDL("DROP TRIGGER %(name)s", context={"name": name}))
        change(conn)


@pytest.mark.rule("RV-05", "RV-08")
@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE pushlink_revalidation_receipt SET actor = 'somebody' WHERE operation_id = 'op-1'",
        "UPDATE pushlink_revalidation_receipt SET previous_hash = hash WHERE operation_id = 'op-2'",
        "DELETE FROM pushlink_revalidation_receipt WHERE operation_id = 'op-1'",
    ],
)
def test_a_receipt_that_was_tampered_with_stops_everything(stage: Stage, dialect: str, spoil: str) -> None:
    """Seals and chain tell, even of an older receipt than the one that the link names."""
    keys = moved_on(stage, 1)
    apply(stage, manifest_of(stage, keys, "op-1"))
    stage.apply(mapping_named("/title"))
    second = manifest_of(stage, keys, "op-2")
    apply(stage, second)
    stage.apply(mapping_named("/third"))
    third = manifest_of(stage, keys, "op-3")
    without_triggers(stage, dialect, lambda conn: conn.execute(sa.text(spoil)))
    refused(stage, third, "receipts_broken")
    refused(stage, second, "receipts_broken")


@pytest.mark.rule("RV-05", "RV-06")
def test_a_mixed_operation_fails_closed(stage: Stage, dialect: str) -> None:
    """Some members have receipts and some have none: nobody can say what happened, so nothing does."""
    manifest = manifest_of(stage, moved_on(stage, 3))
    apply(stage, manifest)
    key = manifest.members[1].link_key
    before = "DELETE FROM pushlink_revalidation_receipt WHERE link_key = :key"
    without_triggers(stage, dialect, lambda conn: conn.execute(sa.text(before), {"key": key}))
    census = stage.census()
    with pytest.raises(CallerError) as caught:
        apply(stage, manifest)
    assert "2 links have a receipt of this operation, 3 should" in caught.value.message
    assert stage.census() == census


@pytest.mark.rule("RV-05", "RV-06")
def test_another_manifest_under_an_operation_id_that_was_used_fails_closed(stage: Stage) -> None:
    """With other links, with other members, or with another reason: it is not the operation that was applied."""
    keys = moved_on(stage, 4)
    first = manifest_of(stage, keys[:2], "op-1")
    others = manifest_of(stage, keys[2:], "op-1")
    longer = manifest_of(stage, keys[:3], "op-1")
    renamed = manifest_of(stage, keys[:2], "op-1", reason="another reason")
    apply(stage, first)
    refused(stage, others, "diverged", count=2)
    refused(stage, renamed, "diverged", count=2)
    with pytest.raises(CallerError):
        apply(stage, longer)
    assert len(receipts(stage)) == 2
