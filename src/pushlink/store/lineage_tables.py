"""The table of slot lineage: under which key a record's rows stood before. `tables.py` hands it on."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from pushlink.store.columns import table, text, time

rebind_receipt: Final = table(
    "rebind_receipt",
    text("operation_id", key=True),
    text("old_link_key", key=True),
    text("new_link_key"),
    text("tenant"),
    text("source_object"),
    text("source_record_id"),
    text("manifest_digest"),
    text("approval_digest"),
    text("old_slots"),  # owner, action and destination, as canonical JSON
    text("new_slots"),
    text("moved"),  # the ids of the links and attempts that moved, as canonical JSON
    text("rows_digest_before"),
    text("rows_digest_after"),
    text("actor"),
    text("reason"),
    text("previous_hash"),
    text("hash"),
    time("applied_at"),
    sa.Index("pushlink_rebind_by_new_key", "new_link_key"),
    sa.Index("pushlink_rebind_by_record", "tenant", "source_object", "source_record_id"),
)
