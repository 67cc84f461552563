"""The receipts of adoptions: a chain for each key, and what breaks it."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from pushlink.protocol.adoption_receipts import AdoptionReceipt, Deed, newest, seal
from pushlink.protocol.snapshots import Digest, LinkKey

DRAFT: dict[str, Any] = {
    "operation_id": "op-1",
    "link_key": LinkKey("lk1_" + "1" * 64),
    "deed": Deed.ADOPT.value,
    "tenant": "north",
    "link_id": "l1",
    "source_object": "Person",
    "source_record_id": "1",
    "remote_id": "7001",
    "manifest_digest": Digest("sha256:" + "2" * 64),
    "record_digest": Digest("sha256:" + "3" * 64),
    "row_digest": Digest("sha256:" + "4" * 64),
    "slot_version": 5,
    "actor": "olga",
    "reason": "the old integration is switched off",
    "applied_at": dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC),
}


def chain() -> list[AdoptionReceipt]:
    """Adopted, taken back, adopted again."""
    receipts: list[AdoptionReceipt] = []
    for number, deed in enumerate((Deed.ADOPT, Deed.ROLL_BACK, Deed.ADOPT)):
        draft = {**DRAFT, "operation_id": f"op-{number}", "deed": deed.value}
        receipts.append(seal(draft, receipts[-1] if receipts else None))
    return receipts


@pytest.mark.rule("D-43")
def test_the_first_receipt_of_a_key_is_pinned_and_the_next_ones_count_on() -> None:
    first, second, third = chain()
    assert (first.position, first.previous_hash) == (1, "sha256:" + "0" * 64)
    assert first.hash == "sha256:59e09e76ccf82b80d70a5fb9f3a778b5de19a05ed66df1d8d91a738a8d786410"
    assert (second.position, second.previous_hash) == (2, first.hash)
    assert (third.position, third.previous_hash) == (3, second.hash)


def test_the_newest_receipt_of_a_whole_chain_is_found_in_any_order() -> None:
    receipts = chain()
    assert newest([]) is None
    assert newest(receipts[:1]) == receipts[0]
    assert newest(receipts[::-1]) == receipts[2]


def test_a_chain_with_anything_wrong_in_it_has_no_newest_receipt() -> None:
    """One is missing, twice there, changed, or sealed over another."""
    first, second, third = chain()
    other = seal({**DRAFT, "operation_id": "op-1", "reason": "else"}, first)
    assert newest([second, third]) == "the receipt at place 1 does not follow the one before it"
    assert newest([first, third]) == "the receipt at place 2 does not follow the one before it"
    assert newest([first, first]) == "the receipt at place 2 does not follow the one before it"
    assert newest([first, other, third]) == "the receipt at place 3 does not follow the one before it"
    changed = replace(second, remote_id="7002")
    assert newest([first, changed, third]) == "the receipt of operation op-1 was changed after it was written"
