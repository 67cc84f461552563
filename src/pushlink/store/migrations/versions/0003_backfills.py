"""Backfills: how far each one has come, and which records were refused when one last looked at them."""

from __future__ import annotations

import datetime as dt

import sqlalchemy as sa
from alembic import op

from pushlink.store.dialect import serial_column

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_COUNTS = (
    "version",
    "expected",
    "records",
    "reserved",
    "deferred",
    "queued",
    "unchanged",
    "refused",
    "unconcerned",
    "unusable",
)


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=null)


def _time(name: str, *, null: bool = False) -> sa.Column[dt.datetime]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=null)


def upgrade() -> None:
    """Add the two tables."""
    op.create_table(
        "pushlink_backfill",
        sa.Column("id", sa.Text, primary_key=True),
        _text("tenant"),
        _text("source_object"),
        _text("user_id"),
        _text("updated_column", null=True),
        _text("since", null=True),
        _text("scan_window", null=True),
        _text("open_key", null=True),
        _text("scanned_to", null=True),
        *(sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0")) for name in _COUNTS),
        _time("started_at"),
        _time("updated_at"),
        _time("ended_at", null=True),
        sa.CheckConstraint("(open_key IS NULL) = (ended_at IS NOT NULL)", name="a_backfill_is_open_until_it_ends"),
        sa.UniqueConstraint("open_key", name="one_open_backfill_of_a_kind"),
    )
    op.create_index("pushlink_backfill_by_object", "pushlink_backfill", ["tenant", "source_object", "started_at"])
    op.create_table(
        "pushlink_backfill_refusal",
        serial_column(),
        _text("backfill_id"),
        _text("tenant"),
        _text("source_object"),
        _text("source_record_id"),
        _text("action"),
        _text("code"),
        _text("message"),
        _time("at"),
    )
    op.create_index("pushlink_backfill_refusal_by_run", "pushlink_backfill_refusal", ["backfill_id", "id"])
    op.create_index(
        "pushlink_backfill_refusal_by_record",
        "pushlink_backfill_refusal",
        ["tenant", "source_object", "source_record_id"],
    )
