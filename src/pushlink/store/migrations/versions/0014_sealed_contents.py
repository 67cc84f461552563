"""Which key seals a content, when it was erased, and triggers that let exactly that happen to a row.

Rows of before are plain and stay so until `pushlink rekey` seals them. Columns are added in place. An ended update and
what told of it may be pruned from now on; nothing else that was kept for ever may be deleted.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from pushlink.store.dialect import Guard, Leaves, guard_ddl

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_GUARDS = {
    "pushlink_push_request": Guard(leaves=Leaves.WITH_ITS_ATTEMPT, content="body", sized=True),
    "pushlink_push_response": Guard(leaves=Leaves.WITH_ITS_ATTEMPT, content="body"),
    "pushlink_attempt_event": Guard(leaves=Leaves.WITH_ITS_ATTEMPT),
    "pushlink_push_attempt": Guard(leaves=Leaves.AS_ENDED_UPDATE, changes=True),
}


def upgrade() -> None:
    """Add the columns, then guard each table with the columns that it has now."""
    op.add_column("pushlink_push_slot", sa.Column("wanted_sealed_by", sa.Text, nullable=True))
    for table in ("pushlink_push_request", "pushlink_push_response"):
        op.add_column(table, sa.Column("sealed_by", sa.Text, nullable=True))
        op.add_column(table, sa.Column("erased_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("pushlink_push_request", sa.Column("body_size", sa.BigInteger, nullable=True))
    conn = op.get_bind()
    for name, guard in _GUARDS.items():
        for statement in guard_ddl(conn, sa.Table(name, sa.MetaData(), autoload_with=conn), guard):
            op.execute(statement)
