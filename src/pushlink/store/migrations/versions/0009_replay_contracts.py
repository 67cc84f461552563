"""Certificates of replay contracts, and an index of the creates in doubt whose record is looked for.

A create that was parked before has no look-up due; it waits for a person as it did.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from pushlink.store.dialect import append_only_ddl, partial_index, serial_column

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# As much of the table as its new index needs.
_attempt = sa.Table(
    "pushlink_push_attempt",
    sa.MetaData(),
    sa.Column("dispatch_lane", sa.Text),
    sa.Column("lease_until", sa.DateTime(timezone=True)),
)
_LOOKUP_DUE = partial_index(
    "pushlink_attempt_lookup_due",
    _attempt.c.dispatch_lane,
    _attempt.c.lease_until,
    where="status = 'ambiguous_remote_effect' AND lease_until IS NOT NULL",
)
_CERTIFICATE = sa.Table(
    "pushlink_contract_certificate",
    sa.MetaData(),
    serial_column(),
    sa.Column("contract_digest", sa.Text, nullable=False),
    sa.Column("pack", sa.Text, nullable=False),
    sa.Column("profile", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("classes", sa.Text, nullable=False),
    sa.Column("remote", sa.Text, nullable=False),
    sa.Column("passed", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("evidence", sa.Text, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("certified_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
    sa.CheckConstraint("expires_at >= certified_at", name="a_certificate_ends_after_it_begins"),
    sa.Index("pushlink_certificate_by_contract", "contract_digest", "id"),
)


def upgrade() -> None:
    """Add the table, which only grows, and build the index; every row stays as it is."""
    conn = op.get_bind()
    _CERTIFICATE.create(conn, checkfirst=False)
    for statement in append_only_ddl(conn, _CERTIFICATE):
        op.execute(statement)
    op.execute(sa.schema.CreateIndex(_LOOKUP_DUE))
