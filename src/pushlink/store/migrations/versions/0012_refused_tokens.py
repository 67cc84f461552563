"""How often a principal's token was refused lately. Principals of before begin with none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both columns in place."""
    op.add_column(
        "pushlink_principal", sa.Column("refusals", sa.BigInteger, nullable=False, server_default=sa.text("0"))
    )
    op.add_column("pushlink_principal", sa.Column("refusals_since", sa.DateTime(timezone=True), nullable=True))
