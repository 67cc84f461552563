"""Mapping manifests over real rows: made, rehearsed, kept out by what is in the way, applied whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from flows.stage import MakeStage, Stage, action_of, pack_with
from migration.moves import (
    ACTOR,
    APPROVAL,
    POINTER,
    apply,
    force,
    linked,
    manifest_of,
    mapping_named,
    moved_on,
    receipts,
    refused,
    validate,
)
from pushlink.errors import CallerError
from pushlink.flows.outcomes import Refused
from pushlink.migration import batches as batches_of
from pushlink.migration.revalidate import Verdict
from pushlink.operations.actions import Decision, OperatorTerms, act
from pushlink.operations.verifying import verify
from pushlink.protocol.manifest import (
    Manifest,
    MappingState,
    new_manifest,
    row_digest,
)
from pushlink.protocol.receipts import GENESIS
from pushlink.protocol.snapshots import Digest, InstallId, LinkKey
from pushlink.protocol.states import BLOCKING, UPDATE_IN_FLIGHT, AttemptStatus
from pushlink.protocol.verbs import Verb
from pushlink.store.tables import METADATA
from pushlink.testing import verbs
from pushlink.testing.messages import creating, updating


def edited(manifest: Manifest, place: int = 0, **more: Any) -> Manifest:
    """The manifest with another member in one place."""
    members = list(manifest.members)
    members[place] = replace(members[place], **more)
    return new_manifest(
        operation_id=manifest.operation_id,
        tenant=manifest.tenant,
        reason=manifest.reason,
        approval=manifest.approval,
        members=members,
    )


# ------------------------------------------------------------------------------------------------ making


@pytest.mark.rule("RV-12")
def test_a_manifest_has_the_listed_links_and_no_others(stage: Stage) -> None:
    """Nothing is found by resemblance: three links drifted alike, one was listed."""
    keys = moved_on(stage, 3)
    assert [member.link_key for member in manifest_of(stage, keys[1:2]).members] == [keys[1]]


@pytest.mark.rule("RV-12")
def test_a_list_with_a_link_that_cannot_be_moved_makes_no_manifest(stage: Stage) -> None:
    """Unknown, named twice, or nothing to change: each is told, and nothing is left out in silence."""
    keys = linked(stage, 2)
    stage.apply(mapping_named("/full_name"))
    apply(stage, manifest_of(stage, keys[:1], "op-1"))
    unknown = LinkKey("lk1_" + "0" * 64)
    with pytest.raises(CallerError) as caught:
        manifest_of(stage, [keys[0], keys[1], keys[1], unknown], "op-2")
    assert sorted(str(one) for one in caught.value.evidence["links"]) == sorted(
        [
            f"{keys[0]}: its mapping is the catalogue's already",
            f"{keys[1]}: it is there twice",
            f"{unknown}: this tenant has no such link",
        ]
    )
    stage.uninstall()
    with pytest.raises(CallerError, match="1 of 1 links"):
        manifest_of(stage, keys[1:], "op-2")
    with pytest.raises(CallerError):
        manifest_of(stage, [], "op-2")


@pytest.mark.rule("RV-12", "DR-06")
def test_a_manifest_carries_links_over_to_another_incarnation_of_their_pack(stage: Stage) -> None:
    """The install is part of the state; both are of one owner and tenant."""
    keys = linked(stage, 1)
    stage.uninstall()
    stage.apply(mapping_named("/full_name"))
    manifest = manifest_of(stage, keys)
    assert manifest.members[0].old.install_id != manifest.members[0].new.install_id
    apply(stage, manifest)
    sends = stage.sends
    stage.save(1, name="Ada L.")
    stage.drain()
    assert stage.sends == sends + 1


# ------------------------------------------------------------------------------------------------ the whole of it


@pytest.mark.rule("RV-01", "RV-10", "DR-13")
def test_updates_refuse_then_a_manifest_is_applied_then_updates_flow(stage: Stage) -> None:
    """No create, no request but the update itself, and no change of a record or an attempt by the manifest."""
    keys = moved_on(stage, 3)
    assert isinstance(stage.save(1, name="Ada L."), Refused)
    stage.drain()
    sends, untouched = stage.sends, stage.census()
    manifest = manifest_of(stage, keys)
    assert validate(stage, manifest).done.verdict is Verdict.APPLICABLE
    done = apply(stage, manifest)
    assert (done.verdict, done.members, done.current) == (Verdict.APPLIED, 3, 3)
    after = stage.census()
    changed = {name for name in after if after[name] != untouched[name]}
    assert changed == {
        "pushlink_remote_link",
        "pushlink_revalidation_receipt",
        "pushlink_operator_action",
        "pushlink_deployment",
    }
    assert stage.drain() == 0
    assert stage.sends == sends
    stage.save(1, name="Ada L.")
    stage.drain()
    [sent] = stage.remote.sent[sends:]
    assert sent.method == "PATCH"
    assert b'"full_name":"Ada L."' in sent.body
    assert len(stage.links()) == 3


@pytest.mark.rule("RV-03", "RV-08", "RV-13")
def test_the_link_holds_the_new_state_and_the_receipt_keeps_both(stage: Stage) -> None:
    """Fingerprints, install and pointer move together; the receipt has what was before, what is, and who said so."""
    [moved, other] = moved_on(stage, 2)
    before = {link["link_key"]: link for link in stage.links()}
    manifest = manifest_of(stage, [moved])
    apply(stage, manifest)
    after = {link["link_key"]: link for link in stage.links()}
    assert after[other] == before[other]
    assert before[moved][POINTER] is None
    rewritten = {name for name in after[moved] if after[moved][name] != before[moved][name]}
    assert rewritten == {"mapping_fingerprint", POINTER, "row_version"}
    [receipt] = receipts(stage)
    assert receipt == receipt | {
        "operation_id": "op-1",
        "link_id": before[moved]["id"],
        "link_key": moved,
        "tenant": "",
        "manifest_digest": manifest.digest,
        "approval_digest": APPROVAL.digest,
        "algorithm_versions": '{"body_fingerprint":1,"mapping_fingerprint":1,"row_digest":1}',
        "prior_operation_id": None,
        "old_mapping_fingerprint": before[moved]["mapping_fingerprint"],
        "new_mapping_fingerprint": after[moved]["mapping_fingerprint"],
        "old_body_fingerprint": before[moved]["body_fingerprint"],
        "new_body_fingerprint": after[moved]["body_fingerprint"],
        "old_install_id": before[moved]["validated_install_id"],
        "new_install_id": after[moved]["validated_install_id"],
        "row_digest_before": row_digest(before[moved]),
        "row_digest_after": row_digest(after[moved]),
        "actor": ACTOR,
        "reason": "the field was renamed",
        "previous_hash": GENESIS,
    }


@pytest.mark.rule("RV-13")
def test_links_that_no_manifest_moved_carry_their_creation_values(stage: Stage) -> None:
    """No pointer, no receipt, and the fingerprints that their create was frozen with."""
    keys = linked(stage, 2)
    for link in stage.links():
        [frozen] = stage.rows("push_request", attempt_id=stage.attempt(link_key=link["link_key"])["id"])
        assert link[POINTER] is None
        assert link["mapping_fingerprint"] == frozen["mapping_fingerprint"]
        assert link["body_fingerprint"] == frozen["body_fingerprint"]
    assert not receipts(stage)
    assert len(keys) == 2


@pytest.mark.rule("RV-08")
@pytest.mark.parametrize("statement", ["UPDATE {} SET actor = 'x'", "DELETE FROM {}"])
def test_the_database_refuses_to_change_a_receipt(stage: Stage, statement: str) -> None:
    """Whoever speaks to it."""
    apply(stage, manifest_of(stage, moved_on(stage, 1)))
    before = receipts(stage)
    with pytest.raises(sa.exc.DBAPIError):
        stage.sql(statement.replace("{}", "pushlink_revalidation_receipt"))
    assert receipts(stage) == before


def test_an_apply_is_in_the_audit_of_operators(stage: Stage) -> None:
    """Once, with actor, approver, reason and digests; a repeat and a rehearsal add nothing."""
    manifest = manifest_of(stage, moved_on(stage, 2))
    for run in (validate, apply, apply, validate):
        run(stage, manifest)
    [action] = stage.rows("operator_action", "id", verb="mapping_apply")
    assert action["actor"] == ACTOR
    assert action["approver"] == "Olga Owner"
    assert action["target_id"] == "op-1"
    assert manifest.digest in action["evidence"]
    with stage.engine.begin() as conn:
        assert not verify(conn).broken


def test_a_state_is_what_updates_are_validated_against() -> None:
    """Two fingerprints and an install, nothing else: there is no second snapshot (RV-01)."""
    assert set(MappingState.__slots__) == {"mapping_fingerprint", "body_fingerprint", "install_id"}


# ------------------------------------------------------------------------------------------------ rehearsal


@pytest.mark.rule("RV-07")
def test_a_rehearsal_answers_with_the_receipts_and_leaves_nothing(stage: Stage) -> None:
    """Not a row of any table differs; on the same clock the receipts are the very ones that the apply writes."""
    manifest = manifest_of(stage, moved_on(stage, 3))
    before = stage.census()
    rehearsed = validate(stage, manifest)
    assert stage.census() == before
    apply(stage, manifest)
    assert [
        {name: getattr(receipt, name) for name in type(receipt).__dataclass_fields__} for receipt in rehearsed.receipts
    ] == receipts(stage)


@pytest.mark.rule("RV-07")
def test_a_rehearsal_takes_the_locks_of_an_apply(stage: Stage) -> None:
    """The same statements in the same order, up to the first write."""
    manifest = manifest_of(stage, moved_on(stage, 2))
    seen: list[str] = []

    @event.listens_for(stage.engine, "before_cursor_execute")
    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    validate(stage, manifest)
    rehearsed, seen[:] = list(seen), []
    apply(stage, manifest)
    assert rehearsed == seen[: len(rehearsed)]
    assert not [one for one in rehearsed if one.lstrip().upper().startswith(("UPDATE", "INSERT", "DELETE"))]


@pytest.mark.rule("RV-04", "D-10")
def test_locks_go_from_the_catalogue_to_slots_links_and_attempts_in_link_key_order(
    stage: Stage, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In batches, all of one kind's in one order; a link's attempt is never locked before the link."""
    monkeypatch.setattr(batches_of, "SIZE", 2)
    keys = moved_on(stage, 5)
    manifest = manifest_of(stage, list(reversed(keys)))
    seen: list[tuple[str, tuple[int, ...]]] = []

    @event.listens_for(stage.engine, "before_cursor_execute")
    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "pg_advisory" in statement:
            seen.append(("catalog", ()))
        for table in ("push_slot", "remote_link", "push_attempt"):
            if f"FROM pushlink_{table} " in statement.replace("\n", " "):
                text = str(parameters)
                seen.append((table, tuple(place for place, key in enumerate(keys) if key in text)))
                if dialect == "postgresql":
                    assert "FOR NO KEY UPDATE" in statement
                assert "ORDER BY" in statement

    validate(stage, manifest)
    batches = [(0, 1), (2, 3), (4,)]
    expected = [("push_slot", batch) for batch in batches]
    expected += [(table, batch) for batch in batches for table in ("remote_link", "push_attempt")]
    assert [one for one in seen if one[0] != "catalog"] == expected
    if dialect == "postgresql":
        assert seen[0] == ("catalog", ())


# ------------------------------------------------------------------------------------------------ what is in the way


@pytest.mark.rule("RV-03", "RV-05")
@pytest.mark.parametrize(
    "column",
    [
        "remote_id",
        "remote_id_canonical",
        "locator_key",
        "profile_digest",
        "action_digest",
        "created_profile_digest",
        "destination_scope",
        "validated_install_id",
        "mirror_remote_id_field",
        "body_fingerprint",
    ],
)
def test_a_link_that_changed_since_keeps_the_whole_manifest_out(stage: Stage, column: str) -> None:
    """One column of one link of three."""
    keys = moved_on(stage, 3)
    manifest = manifest_of(stage, keys)
    t = METADATA.tables["pushlink_remote_link"]
    with stage.engine.begin() as conn:
        conn.execute(sa.update(t).where(t.c.link_key == keys[1]).values({column: "other"}))
    error = refused(stage, manifest, "row_changed")
    assert keys[1] in str(error.evidence["conflicts"])


@pytest.mark.rule("RV-05")
@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"link_key": LinkKey("lk1_" + "f" * 64)}, "link_missing"),
        ({"row_digest": Digest("sha256:" + "0" * 64)}, "row_changed"),
        ({"old": "another"}, "state_differs"),
        ({"new": "another install"}, "install_unknown"),
    ],
)
def test_one_wrong_member_keeps_the_whole_manifest_out(stage: Stage, more: dict[str, Any], kind: str) -> None:
    """A link that is not there, another row, another old state, an install of nobody."""
    manifest = manifest_of(stage, moved_on(stage, 3))
    member = manifest.members[2]
    if more.get("old"):
        more = {"old": replace(member.old, install_id=InstallId("another"))}
    if more.get("new"):
        more = {"new": replace(member.new, install_id=InstallId("another"))}
    refused(stage, edited(manifest, 2, **more), kind)


@pytest.mark.rule("RV-05", "D-40")
def test_a_link_of_another_tenant_is_none(stage: Stage) -> None:
    """The manifest of a tenant moves its own links alone."""
    keys = moved_on(stage, 1)
    manifest = manifest_of(stage, keys)
    other = new_manifest(
        operation_id="op-2", tenant="north", reason="r", approval=APPROVAL, members=list(manifest.members)
    )
    refused(stage, other, "link_missing")
    with pytest.raises(CallerError):
        manifest_of(stage, keys, tenant="north")


@pytest.mark.rule("RV-05")
def test_the_install_must_be_of_the_links_owner(make_stage: MakeStage) -> None:
    """Another owner's install is no lineage."""
    stage = make_stage()
    keys = moved_on(stage, 1)
    manifest = manifest_of(stage, keys)
    other = pack_with()
    other.update(pack="other", connector_owner_key="owner-2")
    action_of(other)["action_slot_id"] = "act-2"
    other["destinations"][0]["destination_slot_id"] = action_of(other)["destination"] = "dest-2"
    foreign = stage.apply(other).install_id
    new = replace(manifest.members[0].new, install_id=InstallId(foreign))
    refused(stage, edited(manifest, new=new), "install_unknown")


@pytest.mark.rule("RV-05")
@pytest.mark.parametrize("verb", [Verb.SUSPEND, Verb.RETIRE])
def test_a_link_that_is_not_finalized_is_in_the_way(stage: Stage, verb: Verb) -> None:
    """Suspended or retired since the manifest was made."""
    manifest = manifest_of(stage, moved_on(stage, 2))
    link = stage.link(1)
    decision = Decision(verb=verb, target_id=link["id"], row_version=link["row_version"], actor="olga", reason="so")
    with stage.engine.begin() as conn:
        act(conn, stage.world, decision, terms=OperatorTerms(), now=stage.clock.now(conn))
    refused(stage, manifest, "link_unusable")


@pytest.mark.rule("RV-04")
@pytest.mark.parametrize("status", sorted(BLOCKING))
def test_a_blocking_create_keeps_the_whole_manifest_out(stage: Stage, status: AttemptStatus) -> None:
    """In each status that blocks; a create that waits for its mirror blocks as well. No attempt is changed."""
    keys = moved_on(stage, 2)
    manifest = manifest_of(stage, keys)
    force(stage, status, "create", keys[0])
    refused(stage, manifest, "create_blocks")


@pytest.mark.rule("RV-04", "D-21")
@pytest.mark.parametrize("status", sorted(UPDATE_IN_FLIGHT))
def test_an_update_that_may_have_been_sent_keeps_the_whole_manifest_out(stage: Stage, status: AttemptStatus) -> None:
    """Its bytes may land under the mapping of before."""
    keys = linked(stage, 2)
    stage.save(1, name="Ada L.")
    stage.drain()
    stage.apply(mapping_named("/full_name"))
    manifest = manifest_of(stage, keys)
    force(stage, status, "update", stage.attempt(operation="update")["link_key"])
    refused(stage, manifest, "update_in_flight")


@pytest.mark.rule("RV-04")
def test_creates_and_updates_that_are_over_are_not_in_the_way(stage: Stage) -> None:
    """They occupy the key for ever; occupying is not blocking (MACHINES, Keys)."""
    keys = linked(stage, 1)
    stage.save(1, name="Ada L.")
    stage.drain()
    stage.apply(mapping_named("/full_name"))
    assert {row["status"] for row in stage.attempts()} == {"finalized"}
    assert apply(stage, manifest_of(stage, keys)).verdict is Verdict.APPLIED


@pytest.mark.rule("RV-04")
def test_an_update_in_doubt_blocks_until_an_operator_settles_it(stage: Stage) -> None:
    """Parked is in flight; settled, the same manifest goes through."""
    keys = linked(stage, 2)
    stage.remote.script.next(verbs.store_then_close(), when=updating)
    stage.save(1, name="Ada L.")
    stage.drain()
    stage.apply(mapping_named("/full_name"))
    manifest = manifest_of(stage, keys)
    refused(stage, manifest, "update_in_flight")
    row = stage.attempt(operation="update")
    decision = Decision(
        verb=Verb.APPLIED, target_id=row["id"], row_version=row["row_version"], actor="olga", reason="seen there"
    )
    with stage.engine.begin() as conn:
        act(conn, stage.world, decision, terms=OperatorTerms(), now=stage.clock.now(conn))
    assert apply(stage, manifest).verdict is Verdict.APPLIED


def test_an_unsent_create_of_another_key_is_not_in_the_way(stage: Stage) -> None:
    """Only attempts of the members' own keys block."""
    keys = moved_on(stage, 1)
    stage.remote.script.next(verbs.answer(422), when=creating)
    stage.save(7, name="Someone", email="else@example.com")
    stage.drain()
    assert apply(stage, manifest_of(stage, keys)).verdict is Verdict.APPLIED
