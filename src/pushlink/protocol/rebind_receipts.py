"""What a rebind leaves behind, and the judgement of each member: may it move, has it moved, or what is in the way.

A receipt says of one record which key its rows left and which they got. Each is sealed over the receipt that brought
the rows where they were, so the lineage of a key can be proved back to the key that its first row was given.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

from pushlink.protocol.rebinding import Member, Rebind, Standing, moved, parts_of, rows_digest
from pushlink.protocol.snapshots import Digest, LinkKey, canonical, digest, write_time

#: What the first receipt of a record's rows names as the one before it.
GENESIS: Final = "sha256:" + "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RebindReceipt:
    """One `rebind_receipt`: how one operation moved one record's rows, sealed over the move before."""

    operation_id: str
    old_link_key: LinkKey
    new_link_key: LinkKey
    tenant: str
    source_object: str
    source_record_id: str
    manifest_digest: Digest
    approval_digest: Digest
    old_slots: str  # canonical JSON
    new_slots: str
    moved: str  # canonical JSON: the ids of links and attempts
    rows_digest_before: Digest
    rows_digest_after: Digest
    actor: str
    reason: str
    previous_hash: str
    hash: str
    applied_at: dt.datetime


def receipt_of(
    manifest: Rebind, member: Member, before: Standing, prior: RebindReceipt | None, *, actor: str, now: dt.datetime
) -> RebindReceipt:
    """The receipt of one member's move, from the rows as they are under their locks."""
    ids = {"links": [row["id"] for row in before.links], "attempts": [row["id"] for row in before.attempts]}
    draft: dict[str, Any] = {
        "operation_id": manifest.operation_id,
        "old_link_key": member.old_key,
        "new_link_key": member.new_key,
        "tenant": manifest.tenant,
        "source_object": manifest.old.source_object,
        "source_record_id": member.record_id,
        "manifest_digest": manifest.digest,
        "approval_digest": manifest.approval.digest,
        "old_slots": canonical(parts_of(manifest.old)).decode(),
        "new_slots": canonical(parts_of(manifest.new)).decode(),
        "moved": canonical({name: sorted(of) for name, of in ids.items()}).decode(),
        "rows_digest_before": member.rows_digest,
        "rows_digest_after": rows_digest(moved(before, manifest.new, member.new_key)),
        "actor": actor,
        "reason": manifest.reason,
        "previous_hash": prior.hash if prior is not None else GENESIS,
        "applied_at": now,
    }
    return RebindReceipt(**draft, hash=_seal(draft))


def is_sealed(receipt: RebindReceipt) -> bool:
    """Whether a receipt is as it was written."""
    return _seal({field.name: getattr(receipt, field.name) for field in fields(receipt)}) == receipt.hash


def _seal(receipt: Mapping[str, Any]) -> str:
    sealed = {name: value for name, value in receipt.items() if name != "hash"}
    return digest({**sealed, "applied_at": write_time(receipt["applied_at"])})


# ------------------------------------------------------------------------------------------------ judging


class InTheWay(StrEnum):
    """Why a member keeps its whole manifest from being applied."""

    ROWS_MISSING = "rows_missing"  # nothing stands under the old key any more
    ROWS_CHANGED = "rows_changed"  # not the rows that the manifest was made for
    NOT_LISTED = "not_listed"  # a record of the old slot that the manifest does not name
    IN_WORK = "in_work"  # a worker has an attempt of the key in its hands
    KEY_TAKEN = "key_taken"  # rows stand under the new key already
    REMOTE_TAKEN = "remote_taken"  # another live link of the new destination has the remote record
    RECEIPTS_BROKEN = "receipts_broken"  # the lineage so far cannot be proved
    DIVERGED = "diverged"  # a receipt of this operation says something else


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One member that is in the way."""

    record_id: str
    link_key: LinkKey
    because: InTheWay
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What stands under both keys of a member, read under their locks. `owners` are records by the locator they own."""

    old: Standing
    new: Standing
    owners: Mapping[str, str]
    prior: RebindReceipt | None


def judge_member(manifest: Rebind, member: Member, facts: Facts) -> Conflict | None:
    """What keeps a member of a new operation from moving."""
    if facts.old.slot is None and not facts.old.links and not facts.old.attempts:
        return conflict(member, InTheWay.ROWS_MISSING, "nothing stands under the old key")
    if facts.old.in_work:
        return conflict(member, InTheWay.IN_WORK, f"attempt {', '.join(facts.old.in_work)} is in work")
    if not facts.new.is_bare:
        return conflict(member, InTheWay.KEY_TAKEN, f"under {member.new_key} stand {_named(facts.new)}")
    if rows_digest(facts.old) != member.rows_digest:
        return conflict(member, InTheWay.ROWS_CHANGED, "the rows are not as the manifest found them")
    for link in moved(facts.old, manifest.new, member.new_key).links:
        owner = facts.owners.get(str(link["locator_key"]))
        if owner is not None:
            detail = f"the remote record {link['remote_id']} belongs to {owner}"
            return conflict(member, InTheWay.REMOTE_TAKEN, detail)
    if facts.prior is not None and not is_sealed(facts.prior):
        detail = f"the receipt of operation {facts.prior.operation_id} was changed after it was written"
        return conflict(member, InTheWay.RECEIPTS_BROKEN, detail)
    return None


def judge_repeat(manifest: Rebind, member: Member, receipt: RebindReceipt | None) -> Conflict | None:
    """Whether a member was moved by this very manifest."""
    if receipt is None:
        return conflict(member, InTheWay.DIVERGED, "it has no receipt of this operation, and others have")
    if not is_sealed(receipt):
        return conflict(member, InTheWay.RECEIPTS_BROKEN, "its receipt was changed after it was written")
    says = (receipt.manifest_digest, receipt.approval_digest, receipt.new_link_key, receipt.rows_digest_before)
    if says != (manifest.digest, manifest.approval.digest, member.new_key, member.rows_digest):
        return conflict(member, InTheWay.DIVERGED, "its receipt of this operation says something else")
    return None


def conflict(member: Member, because: InTheWay, detail: str) -> Conflict:
    """What is in the way of one member."""
    return Conflict(record_id=member.record_id, link_key=member.old_key, because=because, detail=detail)


def _named(standing: Standing) -> str:
    rows = [f"link {link['id']}" for link in standing.links]
    rows += [f"{attempt['operation']} {attempt['id']}" for attempt in standing.attempts]
    return ", ".join(rows) or "versions that were wanted"
