"""The dispatch lane of an attempt and the association vector of a request.

Rows of before are `configured` and have no vector: they stay as they are, in the lane they were always in, and nothing
replays or backfills them (DL-01, DL-13). Both columns are added in place, so no table is copied and no trigger is lost.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from pushlink.store.dialect import partial_index

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# As much of the table as its new indexes need.
_attempt = sa.Table(
    "pushlink_push_attempt",
    sa.MetaData(),
    sa.Column("id", sa.Text),
    sa.Column("tenant", sa.Text),
    sa.Column("destination_slot_id", sa.Text),
    sa.Column("dispatch_lane", sa.Text),
    sa.Column("not_before", sa.DateTime(timezone=True)),
    sa.Column("lease_until", sa.DateTime(timezone=True)),
)
_DUE = partial_index(
    "pushlink_attempt_due",
    _attempt.c.dispatch_lane,
    _attempt.c.tenant,
    _attempt.c.destination_slot_id,
    _attempt.c.not_before,
    _attempt.c.id,
    where="status IN ('pending', 'writeback_pending') AND hold_code IS NULL",
)
_LEASED = partial_index(
    "pushlink_attempt_leased",
    _attempt.c.dispatch_lane,
    _attempt.c.lease_until,
    where="status IN ('processing', 'post_sent', 'writeback_commit_pending')",
)


def upgrade() -> None:
    """Add the two columns in place and rebuild the indexes that begin with the lane."""
    op.add_column(
        "pushlink_push_attempt", sa.Column("dispatch_lane", sa.Text, nullable=False, server_default="configured")
    )
    op.add_column("pushlink_push_request", sa.Column("association_vector", sa.Text, nullable=True))
    for index in (_DUE, _LEASED):
        op.drop_index(str(index.name), table_name=_attempt.name)
        op.execute(sa.schema.CreateIndex(index))
