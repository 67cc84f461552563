"""Receipts of adoptions: what an operation made of one key, each sealed over the one before it of the same key.

An adoption and its rollback leave one each. They are asked for by migrations alone; no save and no update reads them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

from pushlink.protocol.snapshots import Digest, LinkKey, digest, write_time

#: What the first receipt of a key names as the one before it.
GENESIS: Final = "sha256:" + "0" * 64


class Deed(StrEnum):
    """What was done."""

    ADOPT = "adopt"
    ROLL_BACK = "roll_back"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionReceipt:
    """One `adoption_receipt`."""

    operation_id: str
    link_key: LinkKey
    deed: str  # a `Deed`
    position: int  # 1, 2, ... of this key
    tenant: str
    link_id: str
    source_object: str
    source_record_id: str
    remote_id: str
    manifest_digest: Digest
    record_digest: Digest  # of the fields that proved it
    row_digest: Digest  # of the link as the deed left it
    slot_version: int  # of the push slot as the deed left it
    actor: str
    reason: str
    previous_hash: str
    hash: str
    applied_at: dt.datetime


def seal(draft: Mapping[str, Any], before: AdoptionReceipt | None) -> AdoptionReceipt:
    """The receipt of a deed, behind the newest one of its key."""
    placed = {
        **draft,
        "position": 1 if before is None else before.position + 1,
        "previous_hash": GENESIS if before is None else before.hash,
    }
    return AdoptionReceipt(**placed, hash=_hash(placed))


def newest(receipts: Sequence[AdoptionReceipt]) -> AdoptionReceipt | str | None:
    """The newest receipt of a key whose chain is whole, or in words what is wrong with the chain."""
    before: AdoptionReceipt | None = None
    for place, receipt in enumerate(sorted(receipts, key=lambda one: one.position), 1):
        content = {entry.name: getattr(receipt, entry.name) for entry in fields(receipt)}
        if receipt.position != place or receipt.previous_hash != (GENESIS if before is None else before.hash):
            return f"the receipt at place {place} does not follow the one before it"
        if _hash(content) != receipt.hash:
            return f"the receipt of operation {receipt.operation_id} was changed after it was written"
        before = receipt
    return before


def _hash(receipt: Mapping[str, Any]) -> str:
    sealed = {name: value for name, value in receipt.items() if name != "hash"}
    return digest({**sealed, "applied_at": write_time(sealed["applied_at"])})
