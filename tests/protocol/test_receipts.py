"""The receipts of mapping manifests: how a chain of them is broken, and what keeps a link from moving."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pushlink.errors import CallerError
from pushlink.protocol.manifest import (
    ROW_FIELDS,
    Manifest,
    MappingState,
    Member,
    approve,
    new_manifest,
    row_after,
    row_digest,
    state_of,
)
from pushlink.protocol.receipts import (
    Conflict,
    Facts,
    InTheWay,
    Receipt,
    Standing,
    judge_member,
    judge_repeat,
    project,
    rollback_of,
    trace,
)
from pushlink.protocol.snapshots import Digest, InstallId, LinkKey
from pushlink.protocol.states import BLOCKING, UPDATE_IN_FLIGHT, AttemptStatus, LinkStatus, Operation

NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
POINTER = "last_mapping_revalidation_operation_id"
KEY = LinkKey("lk1_" + "1" * 64)
NOBODY = "sha256:" + "0" * 64


def state(letter: str) -> MappingState:
    return MappingState(
        mapping_fingerprint=Digest("mapping1:" + letter * 64),
        body_fingerprint=Digest("body1:" + letter * 64),
        install_id=InstallId(f"install-{letter}"),
    )


def link(**more: str | None) -> dict[str, str | None]:
    """A link's bound columns, under mapping `a`."""
    row: dict[str, str | None] = dict.fromkeys(ROW_FIELDS, "x")
    row |= {"link_key": KEY, "tenant": "north", "status": LinkStatus.FINALIZED.value, POINTER: None}
    return row_after(row, state("a"), "") | {POINTER: None} | more


def manifest_for(row: Mapping[str, Any], to: str, operation_id: str, **more: Any) -> Manifest:
    member = Member(link_key=KEY, row_digest=row_digest(row), old=state_of(row), new=state(to))
    given: dict[str, Any] = {"tenant": "north", "reason": "renamed", "approval": approve("Olga", "yes"), **more}
    return new_manifest(operation_id=operation_id, members=[member], **given)


@dataclass(frozen=True)
class Moved:
    """A link after some moves: its row, the manifests, and the receipts by operation."""

    row: dict[str, str | None]
    manifests: tuple[Manifest, ...]
    receipts: dict[str, Receipt]


def moved(to: str) -> Moved:
    """A link that was moved to one mapping after the other, by operations `op-b`, `op-c` ..."""
    row, manifests, receipts = link(), [], {}
    for letter in to:
        manifest = manifest_for(row, letter, f"op-{letter}")
        prior = receipts.get(str(row[POINTER]))
        receipt = project(manifest, manifest.members[0], row, prior, actor="olga", now=NOW)
        receipts[manifest.operation_id] = receipt
        manifests.append(manifest)
        row = row_after(row, state(letter), manifest.operation_id)
    return Moved(row, tuple(manifests), receipts)


# ------------------------------------------------------------------------------------------------ chains


@pytest.mark.rule("D-43")
def test_the_first_receipt_of_a_link_is_pinned_and_names_nobody_before_it() -> None:
    """Its seal is over everything it says; the next one is sealed over that seal."""
    chain = moved("bc").receipts
    first, second = chain["op-b"], chain["op-c"]
    assert (first.previous_hash, first.prior_operation_id) == (NOBODY, None)
    assert first.hash == "sha256:08546db0e300f7361117810e697dad5a283202922d447b94a2c40461f2ace667"
    assert first.algorithm_versions == '{"body_fingerprint":1,"mapping_fingerprint":1,"row_digest":1}'
    assert (second.previous_hash, second.prior_operation_id) == (first.hash, "op-b")
    assert (first.row_digest_after, first.new) == (second.row_digest_before, second.old)


@pytest.mark.rule("RV-09")
@pytest.mark.parametrize("to", ["", "b", "bcd", "ba"])
def test_a_link_leads_through_all_its_receipts_newest_first(to: str) -> None:
    done = moved(to)
    found = trace(done.row, done.receipts)
    assert not isinstance(found, str)
    assert [receipt.new for receipt in found] == [state(letter) for letter in reversed(to)]


def forged(*, previous_hash: str | None = None, prior_operation_id: str | None = None) -> Receipt:
    """The receipt of `op-b` with another one before it, under a seal that holds: somebody wrote it so."""
    done = moved("b")
    prior = replace(done.receipts["op-b"], hash=previous_hash) if previous_hash else None
    row = link() | {POINTER: prior_operation_id}
    return project(done.manifests[0], done.manifests[0].members[0], row, prior, actor="olga", now=NOW)


@pytest.mark.rule("RV-09")
def test_a_chain_with_anything_wrong_in_it_proves_nothing() -> None:
    """A receipt that is gone, changed, sealed over another, or not led to; fingerprints that do not run through."""
    done = moved("bcd")
    first, second, last = (done.receipts[name] for name in ("op-b", "op-c", "op-d"))

    def said(row: Mapping[str, str | None] = done.row, **instead: Receipt | None) -> str:
        chain = {"op-b": first, "op-c": second, "op-d": last} | {n.replace("_", "-"): one for n, one in instead.items()}
        found = trace(row, {name: receipt for name, receipt in chain.items() if receipt is not None})
        assert isinstance(found, str)
        return found

    assert said(op_c=None) == "the receipt of operation op-c is missing"
    assert said(op_d=None) == "the receipt of operation op-d is missing"
    assert said(op_c=replace(second, reason="else")) == "the receipt of operation op-c was changed after it was written"
    other = project(done.manifests[1], done.manifests[1].members[0], link(), first, actor="else", now=NOW)
    assert said(op_c=other) == "the receipt of operation op-c is not the one that the next was sealed over"
    assert said(done.row | {"body_fingerprint": "x"}) == "the fingerprints are not those that operation op-d left"
    assert said(done.row | {"mapping_fingerprint": "x"}) == "the fingerprints are not those that operation op-d left"
    assert said(done.row | {POINTER: None}) == "there are receipts that do not lead to what the link names"
    beside = replace(first, operation_id="op-z")
    assert said(op_z=beside) == "there are receipts that do not lead to what the link names"


def test_a_first_receipt_that_was_sealed_over_another_names_one_that_is_not_there() -> None:
    """Cutting the oldest receipts off and mending the pointer does not help."""
    row = row_after(link(), state("b"), "op-b")
    alone = forged(previous_hash="sha256:" + "7" * 64)
    assert trace(row, {"op-b": alone}) == "the receipt of operation op-b names another before it"
    assert trace(row, {"op-b": forged()}) == (forged(),)


def test_receipts_that_name_each_other_are_followed_once() -> None:
    """Whoever wrote them: a circle ends."""
    circle = forged(prior_operation_id="op-b")
    assert isinstance(trace(moved("b").row, {"op-b": circle}), str)


@pytest.mark.rule("RV-09")
def test_an_install_may_have_moved_on_between_two_receipts() -> None:
    """A revalidation of the profile has a life of its own."""
    done = moved("bc")
    assert not isinstance(trace(done.row | {"validated_install_id": "install-9"}, done.receipts), str)


# ------------------------------------------------------------------------------------------------ going back


def test_a_rollback_takes_every_member_back_to_where_its_receipt_says() -> None:
    """Of this very manifest, bound to the row as the operation left it, or as it is said to be now."""
    done = moved("bc")
    receipts = list(done.receipts.values())
    back = rollback_of(done.manifests[1], receipts, operation_id="op-back", reason="again")
    [member] = back.members
    assert (member.old, member.new, member.row_digest) == (state("c"), state("b"), row_digest(done.row))
    assert (back.operation_id, back.reason, back.approval) == ("op-back", "again", done.manifests[1].approval)
    now = Digest("sha256:" + "5" * 64)
    told = rollback_of(done.manifests[1], receipts, operation_id="op-back", reason="again", row_digests={KEY: now})
    assert [one.row_digest for one in told.members] == [now]


@pytest.mark.parametrize("which", ["none", "another manifest's", "one too many"])
def test_a_rollback_needs_one_receipt_of_the_manifest_for_each_member(which: str) -> None:
    done = moved("bc")
    stray = replace(done.receipts["op-c"], link_key=LinkKey("lk1_" + "2" * 64))
    given = {"none": [], "another manifest's": [done.receipts["op-b"]], "one too many": [done.receipts["op-c"], stray]}
    with pytest.raises(CallerError, match="have no receipt") as caught:
        rollback_of(done.manifests[1], given[which], operation_id="op-back", reason="again")
    assert caught.value.evidence == {"links": [] if which == "one too many" else [KEY]}


# ------------------------------------------------------------------------------------------------ judging


def judged(row: dict[str, str | None] | None, manifest: Manifest, **more: Any) -> Conflict | tuple[Receipt, ...]:
    facts: dict[str, Any] = {"has_slot": True, "attempts": (), "receipts": {}, "install_known": True, **more}
    return judge_member(manifest, manifest.members[0], Facts(row=row, **facts))


def attempt(operation: Operation, status: AttemptStatus) -> tuple[Standing, ...]:
    return (Standing(id="a1", operation=operation, status=status),)


@pytest.mark.parametrize(
    ("row", "facts", "because"),
    [
        (None, {}, InTheWay.LINK_MISSING),
        ({"tenant": "south"}, {}, InTheWay.LINK_MISSING),
        ({}, {"has_slot": False}, InTheWay.SLOT_MISSING),
        ({"status": LinkStatus.SUSPENDED_DRIFT.value}, {}, InTheWay.LINK_UNUSABLE),
        ({"status": LinkStatus.RETIRED.value}, {}, InTheWay.LINK_UNUSABLE),
        ({POINTER: "op-b"}, {}, InTheWay.RECEIPTS_BROKEN),
        ({"remote_id": "else"}, {}, InTheWay.ROW_CHANGED),
        ({}, {"install_known": False}, InTheWay.INSTALL_UNKNOWN),
    ],
)
def test_one_thing_in_the_way_is_named(
    row: dict[str, str | None] | None, facts: dict[str, Any], because: InTheWay
) -> None:
    found = judged(None if row is None else link() | row, manifest_for(link(), "b", "op-b"), **facts)
    assert isinstance(found, Conflict)
    assert (found.because, found.link_key) == (because, KEY)


def test_nothing_in_the_way_answers_with_the_receipts_so_far() -> None:
    assert judged(link(), manifest_for(link(), "b", "op-b")) == ()
    done = moved("b")
    assert judged(done.row, manifest_for(done.row, "c", "op-c"), receipts=done.receipts) == (done.receipts["op-b"],)


@pytest.mark.rule("RV-04")
@pytest.mark.parametrize("status", list(AttemptStatus))
def test_a_create_that_is_not_over_and_an_update_on_its_way_stop_a_link(status: AttemptStatus) -> None:
    """Nothing else does."""
    for operation, statuses, because in (
        (Operation.CREATE, BLOCKING, InTheWay.CREATE_BLOCKS),
        (Operation.UPDATE, UPDATE_IN_FLIGHT, InTheWay.UPDATE_IN_FLIGHT),
    ):
        found = judged(link(), manifest_for(link(), "b", "op-b"), attempts=attempt(operation, status))
        assert (isinstance(found, Conflict) and found.because is because) is (status in statuses)


def test_an_old_state_that_is_not_the_row_s_is_in_the_way() -> None:
    """Even under the digest of that row."""
    member = Member(link_key=KEY, row_digest=row_digest(link()), old=state("c"), new=state("b"))
    manifest = new_manifest(
        operation_id="op-b", tenant="north", reason="renamed", approval=approve("Olga", "yes"), members=[member]
    )
    found = judged(link(), manifest)
    assert isinstance(found, Conflict)
    assert found.because is InTheWay.STATE_DIFFERS


@pytest.mark.rule("D-32")
def test_a_repeat_answers_with_the_receipts_that_came_after_its_own() -> None:
    """None when it is the newest."""
    done = moved("bcd")
    after = {
        manifest.operation_id: judge_repeat(manifest, manifest.members[0], done.row, done.receipts)
        for manifest in done.manifests
    }
    second, last = done.receipts["op-c"], done.receipts["op-d"]
    assert after == {"op-b": (last, second), "op-c": (last,), "op-d": ()}


@pytest.mark.rule("D-32")
@pytest.mark.parametrize(
    ("change", "because"),
    [
        ({"row": None}, InTheWay.LINK_MISSING),
        ({"receipts": {}}, InTheWay.RECEIPTS_BROKEN),
        ({"operation_id": "op-z"}, InTheWay.DIVERGED),
        ({"reason": "another"}, InTheWay.DIVERGED),
        ({"approval": approve("Olga", "no")}, InTheWay.DIVERGED),
        ({"to": "d"}, InTheWay.DIVERGED),
    ],
)
def test_what_is_no_repeat_of_a_move_is_in_the_way(change: dict[str, Any], because: InTheWay) -> None:
    """Its link is gone, its lineage broken, or a receipt of this operation says something else."""
    done = moved("b")
    given = {"operation_id": "op-b", "to": "b", **change}
    more = {name: given[name] for name in ("reason", "approval") if name in given}
    manifest = manifest_for(link(), given["to"], given["operation_id"], **more)
    found = judge_repeat(
        manifest, manifest.members[0], given.get("row", done.row), given.get("receipts", done.receipts)
    )
    assert isinstance(found, Conflict)
    assert found.because is because
