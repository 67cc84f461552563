"""What refers to what: the vector of a wanted version, who waits for whom, and which links were just finalized.

Rows of before refer to nothing. Every column is added in place, so no table is copied and no trigger is lost.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from pushlink.store.dialect import partial_index

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# As much of the table as its new index needs.
_attempt = sa.Table(
    "pushlink_push_attempt",
    sa.MetaData(),
    sa.Column("dispatch_lane", sa.Text),
    sa.Column("not_before", sa.DateTime(timezone=True)),
)
_AWAITS = partial_index(
    "pushlink_attempt_awaits_association",
    _attempt.c.dispatch_lane,
    _attempt.c.not_before,
    where="status = 'pending' AND hold_code IN ('association_blocked', 'association_moved', 'association_waiting')",
)


def upgrade() -> None:
    """Add the columns, the two tables and the index of what waits."""
    op.add_column("pushlink_push_slot", sa.Column("wanted_associations", sa.Text, nullable=True))
    op.add_column("pushlink_push_slot", sa.Column("called_associations", sa.Text, nullable=True))
    op.add_column("pushlink_push_attempt", sa.Column("association", sa.Text, nullable=True))
    op.create_table(
        "pushlink_association_wait",
        sa.Column("attempt_id", sa.Text, nullable=False),
        sa.Column("target_link_key", sa.Text, nullable=False),
        sa.Column("link_key", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", "target_link_key"),
    )
    op.create_index("pushlink_wait_by_target", "pushlink_association_wait", ["target_link_key"])
    op.create_index("pushlink_wait_by_link_key", "pushlink_association_wait", ["link_key"])
    op.create_table(
        "pushlink_association_wake",
        sa.Column("target_link_key", sa.Text, nullable=False),
        sa.Column("finalized_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("target_link_key"),
    )
    op.execute(sa.schema.CreateIndex(_AWAITS))
