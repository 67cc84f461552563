"""An index of the write-backs that are due.

While a destination wants to be left alone its requests are passed over, however many wait; its write-backs are not.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from pushlink.store.dialect import partial_index

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# As much of the table as its new index needs.
_attempt = sa.Table(
    "pushlink_push_attempt",
    sa.MetaData(),
    sa.Column("tenant", sa.Text),
    sa.Column("destination_slot_id", sa.Text),
    sa.Column("dispatch_lane", sa.Text),
    sa.Column("not_before", sa.DateTime(timezone=True)),
)
_WRITEBACK_DUE = partial_index(
    "pushlink_attempt_writeback_due",
    _attempt.c.dispatch_lane,
    _attempt.c.tenant,
    _attempt.c.destination_slot_id,
    _attempt.c.not_before,
    where="status = 'writeback_pending' AND hold_code IS NULL",
)


def upgrade() -> None:
    """Build the index; every row stays as it is."""
    op.execute(sa.schema.CreateIndex(_WRITEBACK_DUE))
