"""Receipts of rebound slots, append-only.

Rows of before stand under the keys they were given; nothing has moved them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from pushlink.store.dialect import append_only_ddl

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_TEXTS = (
    "tenant",
    "source_object",
    "source_record_id",
    "manifest_digest",
    "approval_digest",
    "old_slots",
    "new_slots",
    "moved",
    "rows_digest_before",
    "rows_digest_after",
    "actor",
    "reason",
    "previous_hash",
    "hash",
)


def upgrade() -> None:
    """Add the table, and let the database refuse every change of it but an insert."""
    made = op.create_table(
        "pushlink_rebind_receipt",
        sa.Column("operation_id", sa.Text, primary_key=True),
        sa.Column("old_link_key", sa.Text, primary_key=True),
        sa.Column("new_link_key", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in _TEXTS),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("pushlink_rebind_by_new_key", "pushlink_rebind_receipt", ["new_link_key"])
    op.create_index(
        "pushlink_rebind_by_record", "pushlink_rebind_receipt", ["tenant", "source_object", "source_record_id"]
    )
    for statement in append_only_ddl(op.get_bind(), made):
        op.execute(statement)
