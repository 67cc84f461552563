"""Circuits of destinations that fail, and how much of a shared limit is used up; both are empty at first."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "pushlink_remote_circuit",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("destination_slot_id", sa.Text, primary_key=True),
        sa.Column("failures", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("successes", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("window_started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("open_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("opened", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("failures >= 0 AND successes >= 0", name="a_circuit_counts_upwards"),
        sa.CheckConstraint("open_until IS NULL OR opened > 0", name="an_open_circuit_was_opened"),
    )
    op.create_table(
        "pushlink_remote_pace",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("share", sa.Text, primary_key=True),
        sa.Column("paced_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
    )
