"""Principals: who may decide what, known by the digest of a token."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table; while it is empty, whoever may run the command line is the local administrator."""
    op.create_table(
        "pushlink_principal",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("token_sha256", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.UniqueConstraint("name", name="a_principal_has_a_name_of_its_own"),
        sa.UniqueConstraint("token_sha256", name="a_token_is_one_principal_s"),
        sa.CheckConstraint("role IN ('viewer', 'operator', 'approver', 'admin')", name="a_principal_has_a_known_role"),
    )
