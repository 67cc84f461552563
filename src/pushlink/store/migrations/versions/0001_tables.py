"""Every table of the contract, but for the dispatch lane and the association vector, which came later.

What stands here is written out and never changes again: it is what a database of that time looks like, whatever the
code of today says. Names for statuses are repeated on purpose.
"""

from __future__ import annotations

import datetime as dt
import secrets

import sqlalchemy as sa
from alembic import op

from pushlink.store.dialect import append_only_ddl, current_time, partial_index, serial_column

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = sa.MetaData()


def _text(name: str, *, null: bool = False, key: bool = False, default: str | None = None) -> sa.Column[str]:
    return sa.Column(name, sa.Text, primary_key=key, nullable=null, server_default=default)


def _count(name: str, *, default: int = 0) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text(str(default)))


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false())


def _time(name: str, *, null: bool = False) -> sa.Column[dt.datetime]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=null)


remote_link = sa.Table(
    "pushlink_remote_link",
    _TABLES,
    _text("id", key=True),
    _text("link_key"),
    _text("tenant"),
    _text("connector_owner_key"),
    _text("action_slot_id"),
    _text("destination_slot_id"),
    _text("source_object"),
    _text("source_record_id"),
    _text("slot_key", null=True),
    _text("locator_key", null=True),
    _text("status"),
    _text("names"),
    _text("created_install_id"),
    _text("validated_install_id"),
    _text("created_profile_digest"),
    _text("created_action_digest"),
    _text("profile_digest"),
    _text("action_digest"),
    _text("mapping_fingerprint"),
    _text("body_fingerprint"),
    _text("destination_scope"),
    _text("remote_id"),
    _text("remote_id_canonical"),
    _text("remote_version", null=True),
    _text("mirror_remote_id_field", null=True),
    _text("mirror_provenance_field", null=True),
    _text("mirror_status", default="none"),
    _text("reason_code", null=True),
    _text("evidence", null=True),
    _text("last_mapping_revalidation_operation_id", null=True),
    _time("finalized_at"),
    _time("updated_at"),
    _count("row_version", default=1),
    sa.UniqueConstraint("slot_key", name="one_link_for_a_link_key"),
    sa.UniqueConstraint("locator_key", name="one_live_link_for_a_remote_record"),
    sa.CheckConstraint("status IN ('finalized', 'retired', 'suspended_drift')", name="a_link_has_a_known_status"),
    sa.CheckConstraint(
        "mirror_status IN ('failed', 'given_up', 'none', 'pending', 'skipped_foreign_value', "
        "'skipped_link_retired', 'skipped_source_deleted', 'written')",
        name="a_mirror_has_a_known_status",
    ),
    sa.CheckConstraint("(locator_key IS NULL) = (status = 'retired')", name="a_live_link_holds_its_remote_record"),
    sa.CheckConstraint("slot_key IS NOT NULL OR status = 'retired'", name="a_live_link_holds_its_slot"),
    sa.CheckConstraint("remote_id <> ''", name="a_link_has_a_remote_id"),
    sa.Index("pushlink_link_by_link_key", "link_key"),
    sa.Index("pushlink_link_by_record", "tenant", "source_object", "source_record_id"),
    sa.Index("pushlink_link_by_slots", "tenant", "connector_owner_key", "action_slot_id", "destination_slot_id"),
)

push_slot = sa.Table(
    "pushlink_push_slot",
    _TABLES,
    _text("link_key", key=True),
    _text("tenant"),
    _text("connector_owner_key"),
    _text("action_slot_id"),
    _text("destination_slot_id"),
    _text("source_object"),
    _text("source_record_id"),
    _count("create_ordinal"),
    _count("wanted_version"),
    _text("wanted_values", null=True),
    _text("wanted_values_digest", null=True),
    _text("wanted_authority", null=True),
    _text("wanted_mapping_fingerprint", null=True),
    _text("wanted_state", null=True),
    _time("wanted_at", null=True),
    _count("acknowledged_version"),
    _text("applied_values_digest", null=True),
    _count("refused_version"),
    _text("refused_evidence", null=True),
    _time("source_deleted_at", null=True),
    _time("created_at"),
    _count("row_version", default=1),
    sa.CheckConstraint("acknowledged_version <= wanted_version", name="nothing_is_acknowledged_before_it_is_wanted"),
    sa.CheckConstraint("refused_version <= wanted_version", name="nothing_is_refused_before_it_is_wanted"),
    sa.Index("pushlink_slot_by_record", "tenant", "source_object", "source_record_id"),
    sa.Index("pushlink_slot_by_slots", "tenant", "connector_owner_key", "action_slot_id", "destination_slot_id"),
)

push_attempt = sa.Table(
    "pushlink_push_attempt",
    _TABLES,
    _text("id", key=True),
    _text("link_key"),
    _text("tenant"),
    _text("destination_slot_id"),
    _text("operation"),
    _text("status"),
    _text("hold_code", null=True),
    _text("reason_code", null=True),
    _text("detail", null=True),
    _text("create_key", null=True),
    _text("update_key", null=True),
    _count("ordinal"),
    _count("version"),
    _count("freeze_count"),
    _text("claim_token", null=True),
    _text("claimed_by", null=True),
    _text("claim_timeline", null=True),
    _time("lease_until", null=True),
    _count("claim_count"),
    _time("remote_io_started_at", null=True),
    _time("first_io_at", null=True),
    _time("last_checkpoint_at", null=True),
    _flag("in_doubt"),
    _count("send_count"),
    _count("retry_count"),
    _time("not_before"),
    _time("expires_at", null=True),
    _text("remote_id", null=True),
    _time("created_at"),
    _time("updated_at"),
    _count("row_version", default=1),
    sa.UniqueConstraint("create_key", name="one_create_attempt_for_a_link_key"),
    sa.UniqueConstraint("update_key", name="one_open_update_for_a_link_key"),
    sa.CheckConstraint(
        "(operation = 'create' AND status IN ('ambiguous_remote_effect', 'finalized', 'pending', "
        "'post_sent', 'processing', 'superseded', 'terminal_failed', 'writeback_commit_pending', "
        "'writeback_pending')) OR (operation = 'update' AND status IN ('ambiguous_remote_effect', "
        "'finalized', 'pending', 'post_sent', 'processing', 'superseded', 'terminal_failed'))",
        name="an_attempt_has_a_status_of_its_operation",
    ),
    sa.CheckConstraint("create_key IS NULL OR operation = 'create'", name="only_a_create_holds_the_create_key"),
    sa.CheckConstraint("status <> 'superseded' OR create_key IS NULL", name="a_superseded_create_frees_its_slot"),
    sa.CheckConstraint(
        "(update_key IS NOT NULL) = (operation = 'update' AND status IN ('ambiguous_remote_effect', "
        "'pending', 'post_sent', 'processing'))",
        name="an_open_update_holds_the_update_key",
    ),
    sa.CheckConstraint(
        "operation <> 'create' OR remote_id IS NULL OR status NOT IN ('superseded', 'terminal_failed')",
        name="a_known_remote_id_is_never_given_up",
    ),
    sa.CheckConstraint("NOT in_doubt OR status <> 'terminal_failed'", name="what_is_in_doubt_is_not_terminal"),
    sa.CheckConstraint(
        "status <> 'pending' OR (remote_io_started_at IS NULL AND claim_token IS NULL)",
        name="a_pending_attempt_has_no_claim_and_no_checkpoint",
    ),
    sa.CheckConstraint(
        "status NOT IN ('post_sent', 'processing') OR (claim_token IS NOT NULL AND lease_until IS NOT NULL)",
        name="an_attempt_in_work_has_an_owner",
    ),
    sa.CheckConstraint(
        "hold_code IS NULL OR ((hold_code <> 'association_blocked' OR status IN ('pending')) AND "
        "(hold_code <> 'association_moved' OR status IN ('pending')) AND (hold_code <> "
        "'association_waiting' OR status IN ('pending')) AND (hold_code <> 'credential' OR status IN "
        "('pending')) AND (hold_code <> 'drift' OR status IN ('pending')) AND (hold_code <> 'expired' "
        "OR status IN ('pending')) AND (hold_code <> 'locator_conflict' OR status IN "
        "('writeback_pending')) AND (hold_code <> 'poison' OR status IN ('pending', "
        "'writeback_pending')) AND (hold_code <> 'user_inactive' OR status IN ('pending')))",
        name="a_hold_stands_where_its_machine_allows",
    ),
    sa.Index("pushlink_attempt_by_link_key", "link_key", "operation"),
)
partial_index(
    "pushlink_attempt_due",
    push_attempt.c.tenant,
    push_attempt.c.destination_slot_id,
    push_attempt.c.not_before,
    push_attempt.c.id,
    where="status IN ('pending', 'writeback_pending') AND hold_code IS NULL",
)
partial_index(
    "pushlink_attempt_leased",
    push_attempt.c.lease_until,
    where="status IN ('processing', 'post_sent', 'writeback_commit_pending')",
)
partial_index(
    "pushlink_attempt_waiting_for_people",
    push_attempt.c.status,
    push_attempt.c.updated_at,
    where="hold_code IS NOT NULL OR status IN ('ambiguous_remote_effect', 'terminal_failed')",
)
push_request = sa.Table(
    "pushlink_push_request",
    _TABLES,
    _text("attempt_id", key=True),
    sa.Column("freeze", sa.Integer, primary_key=True, autoincrement=False),
    _text("idempotency_key"),
    _text("method"),
    _text("path"),
    _text("headers"),
    sa.Column("body", sa.LargeBinary, nullable=True),
    _text("body_digest"),
    _text("values_digest"),
    _text("install_id"),
    _text("names"),
    _text("profile_digest"),
    _text("action_digest"),
    _text("mapping_fingerprint"),
    _text("body_fingerprint"),
    _text("authority"),
    _text("writeback", null=True),
    _time("created_at"),
)

push_response = sa.Table(
    "pushlink_push_response",
    _TABLES,
    serial_column(),
    _text("attempt_id"),
    _text("link_key"),
    _text("claim_token"),
    _count("send_ordinal"),
    _time("received_at"),
    sa.Column("status", sa.Integer, nullable=True),
    _text("headers"),
    sa.Column("body", sa.LargeBinary, nullable=True),
    _flag("body_complete"),
    _count("body_size"),
    _text("body_digest", null=True),
    _text("trace"),
    _text("verdict"),
    _text("candidate_id", null=True),
    _flag("late"),
    sa.Index("pushlink_response_by_attempt", "attempt_id"),
)

attempt_event = sa.Table(
    "pushlink_attempt_event",
    _TABLES,
    serial_column(),
    _text("attempt_id", null=True),
    _text("link_key"),
    _text("tenant"),
    _time("at"),
    _text("subject"),
    _text("event"),
    _text("from_status", null=True),
    _text("to_status", null=True),
    _text("actor"),
    _text("reason", null=True),
    _text("evidence", null=True),
    _count("row_version"),
    sa.Index("pushlink_event_by_attempt", "attempt_id", "id"),
    sa.Index("pushlink_event_by_link_key", "link_key", "id"),
)

frozen_document = sa.Table(
    "pushlink_frozen_document",
    _TABLES,
    _text("digest", key=True),
    _text("kind"),
    _text("document"),
    _time("created_at"),
)

pack_install = sa.Table(
    "pushlink_pack_install",
    _TABLES,
    _text("id", key=True),
    _text("tenant"),
    _text("connector_owner_key"),
    _text("active_key", null=True),
    _text("pack"),
    _text("version"),
    _text("namespace"),
    _text("document"),
    _text("document_digest"),
    _text("status"),
    _time("installed_at"),
    _time("updated_at"),
    _count("revision", default=1),
    sa.UniqueConstraint("active_key", name="one_active_install_of_a_pack_for_a_tenant"),
    sa.CheckConstraint("status IN ('active', 'uninstalled')", name="an_install_has_a_known_status"),
    sa.CheckConstraint("(active_key IS NOT NULL) = (status = 'active')", name="an_active_install_holds_its_key"),
)

connector_slot = sa.Table(
    "pushlink_connector_slot",
    _TABLES,
    _text("tenant", key=True),
    _text("kind", key=True),
    _text("slot_id", key=True),
    _text("connector_owner_key"),
    _text("source_object", null=True),
    _text("display_name"),
    _text("install_id"),
    _text("status"),
    _text("successor_slot_id", null=True),
    _text("detail", null=True),
    _time("first_seen_at"),
    _time("updated_at"),
    sa.CheckConstraint("kind IN ('action', 'destination')", name="a_slot_has_a_known_kind"),
    sa.CheckConstraint(
        "status IN ('active', 'dropped', 'rebound', 'retired', 'independent')", name="a_slot_has_a_known_status"
    ),
)

deployment = sa.Table(
    "pushlink_deployment",
    _TABLES,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    _text("deployment_id"),
    _text("mode", default="running"),
    _text("general_worker", default="on"),
    _count("catalog_revision", default=1),
    _time("created_at"),
    _time("updated_at"),
    sa.CheckConstraint("id = 1", name="there_is_one_deployment"),
    sa.CheckConstraint("mode IN ('running', 'recovery')", name="a_deployment_has_a_known_mode"),
    sa.CheckConstraint("general_worker IN ('on', 'off')", name="the_general_worker_is_on_or_off"),
)

checkpoint_mark = sa.Table(
    "pushlink_checkpoint_mark",
    _TABLES,
    _text("state_id", key=True),
    _count("mark"),
    _time("updated_at"),
)

remote_throttle = sa.Table(
    "pushlink_remote_throttle",
    _TABLES,
    _text("tenant", key=True),
    _text("destination_slot_id", key=True),
    _text("credential_ref", key=True),
    _time("not_before"),
    _text("reason"),
    _count("hits"),
    _time("updated_at"),
)

credential_state = sa.Table(
    "pushlink_credential_state",
    _TABLES,
    _text("tenant", key=True),
    _text("credential_ref", key=True),
    _text("generation"),
    _text("status"),
    _text("detail", null=True),
    _time("accepted_at", null=True),
    _time("updated_at"),
    sa.CheckConstraint("status IN ('usable', 'refused')", name="a_credential_has_a_known_status"),
)

revalidation_receipt = sa.Table(
    "pushlink_revalidation_receipt",
    _TABLES,
    _text("operation_id", key=True),
    _text("link_id", key=True),
    _text("link_key"),
    _text("tenant"),
    _text("manifest_digest"),
    _text("approval_digest"),
    _text("algorithm_versions"),
    _text("prior_operation_id", null=True),
    _text("old_mapping_fingerprint"),
    _text("old_body_fingerprint"),
    _text("new_mapping_fingerprint"),
    _text("new_body_fingerprint"),
    _text("old_install_id"),
    _text("new_install_id"),
    _text("row_digest_before"),
    _text("row_digest_after"),
    _text("actor"),
    _text("reason"),
    _text("previous_hash"),
    _text("hash"),
    _time("applied_at"),
    sa.Index("pushlink_receipt_by_link", "link_id", "applied_at"),
)

operator_action = sa.Table(
    "pushlink_operator_action",
    _TABLES,
    serial_column(),
    _time("at"),
    _text("tenant"),
    _text("actor"),
    _text("approver", null=True),
    _text("verb"),
    _text("reason"),
    _text("target_kind"),
    _text("target_id"),
    _text("link_key", null=True),
    _text("before", null=True),
    _text("after", null=True),
    _text("evidence", null=True),
    _text("previous_hash"),
    _text("hash"),
    sa.UniqueConstraint("previous_hash", name="the_operator_chain_does_not_fork"),
    sa.Index("pushlink_operator_action_by_link_key", "link_key"),
)


_APPEND_ONLY = (
    push_request,
    push_response,
    attempt_event,
    frozen_document,
    revalidation_receipt,
    operator_action,
)


def upgrade() -> None:
    """Create the tables, protect what is append-only, and give this deployment its identity."""
    conn = op.get_bind()
    _TABLES.create_all(conn, checkfirst=False)
    for table in _APPEND_ONLY:
        for statement in append_only_ddl(conn, table):
            op.execute(statement)
    now = current_time(conn)
    conn.execute(deployment.insert().values(id=1, deployment_id=secrets.token_hex(16), created_at=now, updated_at=now))
