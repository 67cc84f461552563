"""The tables of people: who may decide, and what was decided. `tables.py` hands them on with all the others."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from pushlink.store.columns import count, table, text, time
from pushlink.store.dialect import serial_column

operator_action: Final = table(
    "operator_action",
    serial_column(),
    time("at"),
    text("tenant"),
    text("actor"),
    text("approver", null=True),
    text("verb"),
    text("reason"),
    text("target_kind"),
    text("target_id"),
    text("link_key", null=True),
    text("before", null=True),
    text("after", null=True),
    text("evidence", null=True),
    text("previous_hash"),
    text("hash"),
    sa.UniqueConstraint("previous_hash", name="the_operator_chain_does_not_fork"),
    sa.Index("pushlink_operator_action_by_link_key", "link_key"),
)

principal: Final = table(
    "principal",
    text("id", key=True),
    text("name"),
    text("role"),
    text("token_sha256"),
    text("tenant", null=True),  # null: of every tenant
    time("created_at"),
    time("expires_at", null=True),
    time("revoked_at", null=True),
    count("refusals"),  # of its tokens, since the time beside it
    time("refusals_since", null=True),
    sa.UniqueConstraint("name", name="a_principal_has_a_name_of_its_own"),
    sa.UniqueConstraint("token_sha256", name="a_token_is_one_principal_s"),
    sa.CheckConstraint("role IN ('viewer', 'operator', 'approver', 'admin')", name="a_principal_has_a_known_role"),
)
