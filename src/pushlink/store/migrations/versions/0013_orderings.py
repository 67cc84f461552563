"""What is sent one after the other; of what was saved before, nothing is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from pushlink.store.dialect import partial_index

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_attempt = sa.Table(
    "pushlink_push_attempt",
    sa.MetaData(),
    sa.Column("id", sa.Text),
    sa.Column("tenant", sa.Text),
    sa.Column("destination_slot_id", sa.Text),
    sa.Column("order_key", sa.Text),
    sa.Column("created_at", sa.DateTime(timezone=True)),
)
_IN_ORDER = partial_index(
    "pushlink_attempt_in_order",
    _attempt.c.tenant,
    _attempt.c.destination_slot_id,
    _attempt.c.order_key,
    _attempt.c.created_at,
    _attempt.c.id,
    where="order_key IS NOT NULL AND status IN ('pending', 'processing', 'post_sent')",
)


def upgrade() -> None:
    """Add the keys in place, and the index that finds the first of each."""
    op.add_column("pushlink_push_slot", sa.Column("order_key", sa.Text, nullable=True))
    op.add_column("pushlink_push_attempt", sa.Column("order_key", sa.Text, nullable=True))
    op.execute(sa.schema.CreateIndex(_IN_ORDER))
