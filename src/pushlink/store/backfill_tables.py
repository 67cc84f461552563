"""The tables of backfills: how far each run came, and what its saves were refused. `tables.py` hands them on."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from pushlink.store.columns import count, table, text, time
from pushlink.store.dialect import serial_column

backfill: Final = table(
    "backfill",
    text("id", key=True),
    text("tenant"),
    text("source_object"),
    text("user_id"),
    text("updated_column", null=True),
    text("since", null=True),  # as it was asked for
    text("scan_window", null=True),  # what that came to, written by the record store
    text("open_key", null=True),  # kind of run; set until it ends, so that the same command finds it again
    text("scanned_to", null=True),  # the last row that was saved, written by the record store
    count("version"),
    count("expected"),
    count("records"),
    count("reserved"),
    count("deferred"),
    count("queued"),
    count("unchanged"),
    count("refused"),
    count("unconcerned"),  # records that no action is for
    count("unusable"),  # rows that have no record id
    time("started_at"),
    time("updated_at"),
    time("ended_at", null=True),
    sa.CheckConstraint("(open_key IS NULL) = (ended_at IS NOT NULL)", name="a_backfill_is_open_until_it_ends"),
    sa.UniqueConstraint("open_key", name="one_open_backfill_of_a_kind"),
    sa.Index("pushlink_backfill_by_object", "tenant", "source_object", "started_at"),
)

backfill_refusal: Final = table(
    "backfill_refusal",
    serial_column(),
    text("backfill_id"),
    text("tenant"),
    text("source_object"),
    text("source_record_id"),
    text("action"),
    text("code"),
    text("message"),
    time("at"),
    sa.Index("pushlink_backfill_refusal_by_run", "backfill_id", "id"),
    sa.Index("pushlink_backfill_refusal_by_record", "tenant", "source_object", "source_record_id"),
)
