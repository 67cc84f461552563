"""How often a database was confirmed, and since when new creates wait to be cleared.

A database of before was never confirmed and has nothing to clear.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both columns in place."""
    op.add_column(
        "pushlink_deployment", sa.Column("confirmations", sa.BigInteger, nullable=False, server_default=sa.text("0"))
    )
    op.add_column("pushlink_deployment", sa.Column("uncleared_since", sa.DateTime(timezone=True), nullable=True))
