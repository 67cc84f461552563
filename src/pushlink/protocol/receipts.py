"""Receipts of mapping manifests, and the judgement of each member: may it move, has it moved, or what is in the way.

A receipt is one link's move. Each is sealed over the one before it of the same link, and the link names its newest, so
lineage can be proved from that pointer back to what the link was created with. Only a manifest's transaction asks for
receipts; an update is validated against the link alone (RV-01, RV-11).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

from pushlink.errors import CallerError
from pushlink.protocol.manifest import (
    FINDINGS_SHOWN_MAX,
    BoundRow,
    Manifest,
    MappingState,
    Member,
    new_manifest,
    row_after,
    row_digest,
    state_of,
)
from pushlink.protocol.snapshots import Digest, InstallId, LinkKey, canonical, digest, write_time
from pushlink.protocol.states import BLOCKING, UPDATE_IN_FLIGHT, USABLE_LINKS, AttemptStatus, LinkStatus, Operation

#: What the first receipt of a link names as the one before it.
GENESIS: Final = "sha256:" + "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One `revalidation_receipt`: how one operation moved one link, sealed over the link's receipt before."""

    operation_id: str
    link_id: str
    link_key: LinkKey
    tenant: str
    manifest_digest: Digest
    approval_digest: Digest
    algorithm_versions: str  # canonical JSON
    prior_operation_id: str | None
    old_mapping_fingerprint: Digest
    old_body_fingerprint: Digest
    new_mapping_fingerprint: Digest
    new_body_fingerprint: Digest
    old_install_id: InstallId
    new_install_id: InstallId
    row_digest_before: Digest
    row_digest_after: Digest
    actor: str
    reason: str
    previous_hash: str
    hash: str
    applied_at: dt.datetime

    @property
    def old(self) -> MappingState:
        """The state before."""
        return MappingState(
            mapping_fingerprint=self.old_mapping_fingerprint,
            body_fingerprint=self.old_body_fingerprint,
            install_id=self.old_install_id,
        )

    @property
    def new(self) -> MappingState:
        """The state after."""
        return MappingState(
            mapping_fingerprint=self.new_mapping_fingerprint,
            body_fingerprint=self.new_body_fingerprint,
            install_id=self.new_install_id,
        )


# ------------------------------------------------------------------------------------------------ one after another


def project(
    manifest: Manifest, member: Member, row: BoundRow, prior: Receipt | None, *, actor: str, now: dt.datetime
) -> Receipt:
    """The receipt of one member's move, from the row as it is under its lock."""
    draft: dict[str, Any] = {
        "operation_id": manifest.operation_id,
        "link_id": row["id"],
        "link_key": member.link_key,
        "tenant": manifest.tenant,
        "manifest_digest": manifest.digest,
        "approval_digest": manifest.approval.digest,
        "algorithm_versions": canonical(dict(manifest.algorithms)).decode(),
        "prior_operation_id": row["last_mapping_revalidation_operation_id"],
        "old_mapping_fingerprint": member.old.mapping_fingerprint,
        "old_body_fingerprint": member.old.body_fingerprint,
        "new_mapping_fingerprint": member.new.mapping_fingerprint,
        "new_body_fingerprint": member.new.body_fingerprint,
        "old_install_id": member.old.install_id,
        "new_install_id": member.new.install_id,
        "row_digest_before": member.row_digest,
        "row_digest_after": row_digest(row_after(row, member.new, manifest.operation_id)),
        "actor": actor,
        "reason": manifest.reason,
        "previous_hash": prior.hash if prior is not None else GENESIS,
        "applied_at": now,
    }
    return Receipt(**draft, hash=_seal(draft))


def trace(row: BoundRow, receipts: Mapping[str, Receipt]) -> tuple[Receipt, ...] | str:
    """A link's receipts from the one it names back to its first, or, in words, what is wrong with them.

    Fingerprints must run through without a gap, up to those that the row has now. The install may have moved on between
    two of them and since: that is a revalidation of the profile, which has a life of its own (RV-09, D-32).
    """
    chain: list[Receipt] = []
    name = row["last_mapping_revalidation_operation_id"]
    held = (row["mapping_fingerprint"], row["body_fingerprint"])
    sealed: str | None = None
    while name is not None and len(chain) <= len(receipts):
        receipt = receipts.get(name)
        if receipt is None:
            return f"the receipt of operation {name} is missing"
        if _seal({field.name: getattr(receipt, field.name) for field in fields(receipt)}) != receipt.hash:
            return f"the receipt of operation {name} was changed after it was written"
        if sealed is not None and sealed != receipt.hash:
            return f"the receipt of operation {name} is not the one that the next was sealed over"
        if held != (receipt.new_mapping_fingerprint, receipt.new_body_fingerprint):
            return f"the fingerprints are not those that operation {name} left"
        chain.append(receipt)
        held = (receipt.old_mapping_fingerprint, receipt.old_body_fingerprint)
        name, sealed = receipt.prior_operation_id, receipt.previous_hash
    if len(chain) != len(receipts):
        return "there are receipts that do not lead to what the link names"
    if chain and chain[-1].previous_hash != GENESIS:
        return f"the receipt of operation {chain[-1].operation_id} names another before it"
    return tuple(chain)


def _seal(receipt: Mapping[str, Any]) -> str:
    sealed = {name: value for name, value in receipt.items() if name != "hash"}
    return digest({**sealed, "applied_at": write_time(receipt["applied_at"])})


# ------------------------------------------------------------------------------------------------ going back


def rollback_of(
    manifest: Manifest,
    receipts: Iterable[Receipt],
    *,
    operation_id: str,
    reason: str,
    row_digests: Mapping[LinkKey, Digest] | None = None,
) -> Manifest:
    """The manifest that takes every member back to where its receipt says it came from, under the same approval.

    Receipts may be projected ones, so a way back exists before the way there is taken. `row_digests` are those of the
    rows as they are now, where something else has changed since; else the rows are bound as the operation leaves them.
    Raises `CallerError` unless there is exactly one receipt of this very manifest for each member.
    """
    found = {receipt.link_key: receipt for receipt in receipts if receipt.manifest_digest == manifest.digest}
    missing = [member.link_key for member in manifest.members if member.link_key not in found]
    if missing or len(found) != len(manifest.members):
        raise CallerError(
            f"{len(missing)} members of the manifest have no receipt of it.",
            evidence={"links": missing[:FINDINGS_SHOWN_MAX]},
            next_step="a rollback needs the receipts of an apply, or of a validation that found nothing",
        )
    now = row_digests or {}
    return new_manifest(
        operation_id=operation_id,
        tenant=manifest.tenant,
        reason=reason,
        approval=manifest.approval,
        members=[
            Member(
                link_key=key,
                row_digest=now.get(key, receipt.row_digest_after),
                old=receipt.new,
                new=receipt.old,
            )
            for key, receipt in found.items()
        ],
    )


# ------------------------------------------------------------------------------------------------ judging


class InTheWay(StrEnum):
    """Why a member keeps its whole manifest from being applied."""

    LINK_MISSING = "link_missing"  # the tenant has no link that holds this key
    SLOT_MISSING = "slot_missing"  # there is no push slot to lock
    LINK_UNUSABLE = "link_unusable"  # suspended or retired
    ROW_CHANGED = "row_changed"  # not the row that the manifest was made for
    STATE_DIFFERS = "state_differs"  # the manifest's old state is not that of the row it names
    INSTALL_UNKNOWN = "install_unknown"  # the new install is none of this owner and tenant
    CREATE_BLOCKS = "create_blocks"  # a create attempt of the key is not over
    UPDATE_IN_FLIGHT = "update_in_flight"  # an update of the link may be on the wire, or may have landed
    RECEIPTS_BROKEN = "receipts_broken"  # lineage cannot be proved
    DIVERGED = "diverged"  # a receipt of this operation says something else


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One member that is in the way."""

    link_key: LinkKey
    because: InTheWay
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One attempt of a link key."""

    id: str
    operation: Operation
    status: AttemptStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What stands under one link key, all of it read under its locks. `row` is `None` without a link."""

    row: BoundRow | None
    has_slot: bool
    attempts: Sequence[Standing]
    receipts: Mapping[str, Receipt]
    install_known: bool


def judge_member(manifest: Manifest, member: Member, facts: Facts) -> Conflict | tuple[Receipt, ...]:
    """What keeps a member of a new operation from moving, or its receipts so far, newest first."""
    row, key = facts.row, member.link_key
    if row is None or row["tenant"] != manifest.tenant:
        return _conflict(key, InTheWay.LINK_MISSING, "no link of this tenant holds the key")
    if not facts.has_slot:
        return _conflict(key, InTheWay.SLOT_MISSING, "the key has no push slot")
    if LinkStatus(row["status"] or "") not in USABLE_LINKS:
        return _conflict(key, InTheWay.LINK_UNUSABLE, f"the link is {row['status']}")
    for attempt in facts.attempts:
        if attempt.operation is Operation.CREATE and attempt.status in BLOCKING:
            return _conflict(key, InTheWay.CREATE_BLOCKS, f"create {attempt.id} is {attempt.status}")
        if attempt.operation is Operation.UPDATE and attempt.status in UPDATE_IN_FLIGHT:
            return _conflict(key, InTheWay.UPDATE_IN_FLIGHT, f"update {attempt.id} is {attempt.status}")
    chain = trace(row, facts.receipts)
    if isinstance(chain, str):
        return _conflict(key, InTheWay.RECEIPTS_BROKEN, chain)
    if row_digest(row) != member.row_digest:
        return _conflict(key, InTheWay.ROW_CHANGED, "the link is not as the manifest found it")
    if state_of(row) != member.old:
        return _conflict(key, InTheWay.STATE_DIFFERS, "the link has another state than the manifest says it had")
    if not facts.install_known:
        return _conflict(key, InTheWay.INSTALL_UNKNOWN, f"{member.new.install_id} is no install of this link's owner")
    return chain


def judge_repeat(
    manifest: Manifest, member: Member, row: BoundRow | None, receipts: Mapping[str, Receipt]
) -> Conflict | tuple[Receipt, ...]:
    """Whether a member was moved by this very manifest: from its link's pointer the receipts lead to that move (D-32).

    Answers with the receipts that came after it, newest first: none when it is the newest.
    """
    key = member.link_key
    if row is None:
        return _conflict(key, InTheWay.LINK_MISSING, "the receipt's link is gone")
    chain = trace(row, receipts)
    if isinstance(chain, str):
        return _conflict(key, InTheWay.RECEIPTS_BROKEN, chain)
    for place, receipt in enumerate(chain):
        if receipt.operation_id != manifest.operation_id:
            continue
        if _says(receipt) == (manifest.digest, manifest.approval.digest, member.row_digest, member.old, member.new):
            return chain[:place]
        return _conflict(key, InTheWay.DIVERGED, "its receipt of this operation says something else")
    return _conflict(key, InTheWay.DIVERGED, "it has no receipt of this operation, and others have")


def _says(receipt: Receipt) -> tuple[object, ...]:
    return (
        receipt.manifest_digest,
        receipt.approval_digest,
        receipt.row_digest_before,
        receipt.old,
        receipt.new,
    )


def _conflict(key: LinkKey, because: InTheWay, detail: str) -> Conflict:
    return Conflict(link_key=key, because=because, detail=detail)
