"""Receipts of adoptions, which nobody can change or remove."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from pushlink.store.dialect import append_only_ddl

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_TABLE = "pushlink_adoption_receipt"


def _text(name: str, *, key: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, primary_key=key)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0"))


def upgrade() -> None:
    """Add the table, its index and its triggers."""
    made = op.create_table(
        _TABLE,
        _text("operation_id", key=True),
        _text("link_key", key=True),
        _text("deed", key=True),
        _count("position"),
        _text("tenant"),
        _text("link_id"),
        _text("source_object"),
        _text("source_record_id"),
        _text("remote_id"),
        _text("manifest_digest"),
        _text("record_digest"),
        _text("row_digest"),
        _count("slot_version"),
        _text("actor"),
        _text("reason"),
        _text("previous_hash"),
        _text("hash"),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("link_key", "position", name="the_adoptions_of_a_key_are_one_chain"),
        sa.CheckConstraint("deed IN ('adopt', 'roll_back')", name="an_adoption_receipt_has_a_known_deed"),
    )
    op.create_index("pushlink_adoption_by_link", _TABLE, ["link_id"])
    for statement in append_only_ddl(op.get_bind(), made):
        op.execute(statement)
