"""The table of adoptions: one receipt for each link that a migration made or took back. `tables.py` hands it on."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from pushlink.store.columns import count, table, text, time

adoption_receipt: Final = table(
    "adoption_receipt",
    text("operation_id", key=True),
    text("link_key", key=True),
    text("deed", key=True),
    count("position"),  # 1, 2, ... of the link key
    text("tenant"),
    text("link_id"),
    text("source_object"),
    text("source_record_id"),
    text("remote_id"),
    text("manifest_digest"),
    text("record_digest"),
    text("row_digest"),
    count("slot_version"),
    text("actor"),
    text("reason"),
    text("previous_hash"),
    text("hash"),
    time("applied_at"),
    sa.UniqueConstraint("link_key", "position", name="the_adoptions_of_a_key_are_one_chain"),
    sa.CheckConstraint("deed IN ('adopt', 'roll_back')", name="an_adoption_receipt_has_a_known_deed"),
    sa.Index("pushlink_adoption_by_link", "link_id"),
)
