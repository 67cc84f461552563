"""The tables, with the protocol's machines and keys as constraints.

Uniqueness hangs on nullable keys (`slot_key`, `locator_key`, `create_key`, `update_key`), not on partial indexes, so
that any SQL engine can hold it; partial indexes serve the claim only. Every name has the prefix `pushlink_`, so the
tables can live beside the host's own. Constraint names are sentences. What is append-only is listed in `APPEND_ONLY`;
`dialect.py` builds the triggers that make the database itself refuse an update or a delete of it.

Frozen documents that many rows share (profiles, actions) are kept once, by digest, in `frozen_document`; a row that
names a digest stores that snapshot.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from pushlink.protocol.states import (
    HOLDS,
    UPDATE_OPEN,
    AttemptStatus,
    Hold,
    LinkStatus,
    MirrorStatus,
    Operation,
    statuses,
)

PREFIX: Final = "pushlink_"


class UtcTime(sa.types.TypeDecorator[dt.datetime]):
    """An instant in UTC with microseconds. Bound values must carry a zone; results always do."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: dt.datetime | None, dialect: sa.Dialect) -> dt.datetime | None:
        """To UTC; a naive value is a defect of the caller."""
        if value is None:
            return None
        if value.tzinfo is None:
            msg = "a naive datetime never reaches the database"
            raise ValueError(msg)
        return value.astimezone(dt.UTC)

    def process_result_value(self, value: dt.datetime | None, dialect: sa.Dialect) -> dt.datetime | None:
        """From UTC; engines without zones hand back the naive UTC that was written."""
        if value is None or value.tzinfo is not None:
            return value
        return value.replace(tzinfo=dt.UTC)


METADATA: Final = sa.MetaData()


def _table(name: str, *items: Any) -> sa.Table:
    return sa.Table(PREFIX + name, METADATA, *items)


def _text(name: str, *, null: bool = False, key: bool = False, default: str | None = None) -> sa.Column[str]:
    return sa.Column(name, sa.Text, primary_key=key, nullable=null, server_default=default)


def _count(name: str, *, default: int = 0) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text(str(default)))


def _flag(name: str, *, default: bool = False) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.true() if default else sa.false())


def _time(name: str, *, null: bool = False) -> sa.Column[dt.datetime]:
    return sa.Column(name, UtcTime, nullable=null)


def _serial() -> sa.Column[int]:
    wide = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts only INTEGER keys up by itself
    return sa.Column("id", wide, primary_key=True, autoincrement=True)


def _words(values: Iterable[StrEnum]) -> str:
    return ", ".join(f"'{value.value}'" for value in sorted(values))


def _one_of(column: str, values: Iterable[StrEnum]) -> str:
    return f"{column} IN ({_words(values)})"


def _known_hold() -> str:
    # An unknown hold code is storable (a later release may hold rows that this one must leave alone).
    rules = [f"(hold_code <> '{hold.value}' OR {_one_of('status', where)})" for hold, where in sorted(HOLDS.items())]
    return "hold_code IS NULL OR (" + " AND ".join(rules) + ")"


_A = AttemptStatus

remote_link: Final = _table(
    "remote_link",
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
    _text("names"),  # display names for people and for drift evidence, a JSON object; never a key
    _text("created_install_id"),
    _text("validated_install_id"),
    _text("created_profile_digest"),
    _text("created_action_digest"),
    _text("profile_digest"),  # as last validated
    _text("action_digest"),  # as last validated
    _text("mapping_fingerprint"),
    _text("body_fingerprint"),
    _text("destination_scope"),
    _text("remote_id"),
    _text("remote_id_canonical"),
    _text("remote_version", null=True),
    _text("mirror_remote_id_field", null=True),
    _text("mirror_provenance_field", null=True),
    _text("mirror_status", default=MirrorStatus.NONE),
    _text("reason_code", null=True),
    _text("evidence", null=True),
    _text("last_mapping_revalidation_operation_id", null=True),
    _time("finalized_at"),
    _time("updated_at"),
    _count("row_version", default=1),
    sa.UniqueConstraint("slot_key", name="one_link_for_a_link_key"),
    sa.UniqueConstraint("locator_key", name="one_live_link_for_a_remote_record"),
    sa.CheckConstraint(_one_of("status", LinkStatus), name="a_link_has_a_known_status"),
    sa.CheckConstraint(_one_of("mirror_status", MirrorStatus), name="a_mirror_has_a_known_status"),
    sa.CheckConstraint(
        f"(locator_key IS NULL) = (status = '{LinkStatus.RETIRED.value}')", name="a_live_link_holds_its_remote_record"
    ),
    sa.CheckConstraint(
        f"slot_key IS NOT NULL OR status = '{LinkStatus.RETIRED.value}'", name="a_live_link_holds_its_slot"
    ),
    sa.CheckConstraint("remote_id <> ''", name="a_link_has_a_remote_id"),
    sa.Index("pushlink_link_by_record", "tenant", "source_object", "source_record_id"),
    sa.Index("pushlink_link_by_link_key", "link_key"),
    sa.Index("pushlink_link_by_slots", "connector_owner_key", "action_slot_id", "destination_slot_id"),
)

push_slot: Final = _table(
    "push_slot",
    _text("link_key", key=True),
    _text("tenant"),
    _text("connector_owner_key"),
    _text("action_slot_id"),
    _text("destination_slot_id"),
    _text("source_object"),
    _text("source_record_id"),
    _count("create_ordinal"),
    _count("wanted_version"),
    _text("wanted_values", null=True),  # frozen `values` document
    _text("wanted_values_digest", null=True),
    _text("wanted_authority", null=True),  # frozen `authority` document of the author of that version
    _text("wanted_mapping_fingerprint", null=True),
    _text("wanted_state", null=True),  # `stale_mapping`, `refused_version` or null
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
    sa.Index("pushlink_slot_by_slots", "connector_owner_key", "action_slot_id", "destination_slot_id"),
)

push_attempt: Final = _table(
    "push_attempt",
    _text("id", key=True),
    _text("link_key"),
    _text("tenant"),
    _text("destination_slot_id"),
    _text("operation"),
    _text("dispatch_lane", default="configured"),
    _text("status"),
    _text("hold_code", null=True),
    _text("reason_code", null=True),
    _text("detail", null=True),  # evidence of the hold or reason, a JSON object
    _text("create_key", null=True),
    _text("update_key", null=True),
    _count("ordinal"),  # of a create; 0 for an update
    _count("version"),  # the wanted version that this attempt carries
    _count("freeze_count"),  # request rows written so far
    _text("claim_token", null=True),
    _text("claimed_by", null=True),
    _text("claim_timeline", null=True),
    _time("lease_until", null=True),
    _count("claim_count"),  # claims without a recorded outcome since; give-backs and throttles do not count
    _time("remote_io_started_at", null=True),  # the checkpoint
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
        f"(operation = 'create' AND {_one_of('status', statuses(Operation.CREATE))})"
        f" OR (operation = 'update' AND {_one_of('status', statuses(Operation.UPDATE))})",
        name="an_attempt_has_a_status_of_its_operation",
    ),
    sa.CheckConstraint("create_key IS NULL OR operation = 'create'", name="only_a_create_holds_the_create_key"),
    sa.CheckConstraint(
        f"status <> '{_A.SUPERSEDED.value}' OR create_key IS NULL", name="a_superseded_create_frees_its_slot"
    ),
    sa.CheckConstraint(
        f"(update_key IS NOT NULL) = (operation = 'update' AND {_one_of('status', UPDATE_OPEN)})",
        name="an_open_update_holds_the_update_key",
    ),
    sa.CheckConstraint(
        f"operation <> 'create' OR remote_id IS NULL OR status NOT IN ({_words([_A.TERMINAL_FAILED, _A.SUPERSEDED])})",
        name="a_known_remote_id_is_never_given_up",
    ),
    sa.CheckConstraint(
        f"NOT in_doubt OR status <> '{_A.TERMINAL_FAILED.value}'", name="what_is_in_doubt_is_not_terminal"
    ),
    sa.CheckConstraint(
        f"status <> '{_A.PENDING.value}' OR (remote_io_started_at IS NULL AND claim_token IS NULL)",
        name="a_pending_attempt_has_no_claim_and_no_checkpoint",
    ),
    sa.CheckConstraint(
        f"status NOT IN ({_words([_A.PROCESSING, _A.POST_SENT])})"
        " OR (claim_token IS NOT NULL AND lease_until IS NOT NULL)",
        name="an_attempt_in_work_has_an_owner",
    ),
    sa.CheckConstraint(_known_hold(), name="a_hold_stands_where_its_machine_allows"),
    sa.Index("pushlink_attempt_by_link_key", "link_key", "operation"),
)

#: The claim reads queue heads from these; partial, so that finished rows leave them.
sa.Index(
    "pushlink_attempt_due",
    push_attempt.c.dispatch_lane,
    push_attempt.c.tenant,
    push_attempt.c.destination_slot_id,
    push_attempt.c.not_before,
    push_attempt.c.id,
    postgresql_where=sa.text("status IN ('pending', 'writeback_pending') AND hold_code IS NULL"),
    sqlite_where=sa.text("status IN ('pending', 'writeback_pending') AND hold_code IS NULL"),
)
sa.Index(
    "pushlink_attempt_leased",
    push_attempt.c.dispatch_lane,
    push_attempt.c.lease_until,
    postgresql_where=sa.text("status IN ('processing', 'post_sent', 'writeback_commit_pending')"),
    sqlite_where=sa.text("status IN ('processing', 'post_sent', 'writeback_commit_pending')"),
)
sa.Index(
    "pushlink_attempt_waiting_for_people",
    push_attempt.c.status,
    push_attempt.c.updated_at,
    postgresql_where=sa.text("hold_code IS NOT NULL OR status IN ('ambiguous_remote_effect', 'terminal_failed')"),
    sqlite_where=sa.text("hold_code IS NOT NULL OR status IN ('ambiguous_remote_effect', 'terminal_failed')"),
)

push_request: Final = _table(
    "push_request",
    _text("attempt_id", key=True),
    sa.Column("freeze", sa.Integer, primary_key=True, autoincrement=False),  # 1, 2, ...; the checkpoint names one
    _text("idempotency_key"),
    _text("method"),
    _text("path"),
    _text("headers"),
    sa.Column("body", sa.LargeBinary, nullable=True),  # null once erased; the digest stays
    _text("body_digest"),
    _text("values_digest"),
    _text("install_id"),
    _text("names"),
    _text("profile_digest"),
    _text("action_digest"),
    _text("mapping_fingerprint"),
    _text("body_fingerprint"),
    _text("authority"),  # frozen `authority` document
    _text("association_vector", null=True),
    _text("writeback", null=True),  # frozen `writeback` document
    _time("created_at"),
)

push_response: Final = _table(
    "push_response",
    _serial(),
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
    _flag("late"),  # its claim was gone, or the attempt was parked: evidence without a transition
    sa.Index("pushlink_response_by_attempt", "attempt_id"),
)

attempt_event: Final = _table(
    "attempt_event",
    _serial(),
    _text("attempt_id", null=True),  # null for an event of a link or a slot alone
    _text("link_key"),
    _text("tenant"),
    _time("at"),
    _text("subject"),  # create, update, link or slot
    _text("event"),
    _text("from_status", null=True),
    _text("to_status", null=True),
    _text("actor"),
    _text("reason", null=True),
    _text("evidence", null=True),
    _count("row_version"),
    sa.Index("pushlink_event_by_link_key", "link_key", "id"),
    sa.Index("pushlink_event_by_attempt", "attempt_id", "id"),
)

frozen_document: Final = _table(
    "frozen_document",
    _text("digest", key=True),
    _text("kind"),
    _text("document"),
    _time("created_at"),
)

pack_install: Final = _table(
    "pack_install",
    _text("id", key=True),
    _text("tenant"),
    _text("connector_owner_key"),
    _text("active_key", null=True),  # owner key and tenant while the install is active
    _text("pack"),
    _text("version"),
    _text("namespace"),
    _text("document"),  # the pack as canonical JSON
    _text("document_digest"),
    _text("status"),
    _time("installed_at"),
    _time("updated_at"),
    _count("revision", default=1),
    sa.UniqueConstraint("active_key", name="one_active_install_of_a_pack_for_a_tenant"),
    sa.CheckConstraint("status IN ('active', 'uninstalled')", name="an_install_has_a_known_status"),
    sa.CheckConstraint("(active_key IS NOT NULL) = (status = 'active')", name="an_active_install_holds_its_key"),
)

connector_slot: Final = _table(
    "connector_slot",
    _text("tenant", key=True),
    _text("kind", key=True),  # action or destination
    _text("slot_id", key=True),
    _text("connector_owner_key"),
    _text("source_object", null=True),  # of an action slot
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

deployment: Final = _table(
    "deployment",
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

checkpoint_mark: Final = _table(
    "checkpoint_mark",
    _text("state_id", key=True),  # of a worker's state directory
    _count("mark"),
    _time("updated_at"),
)

remote_throttle: Final = _table(
    "remote_throttle",
    _text("tenant", key=True),
    _text("destination_slot_id", key=True),
    _text("credential_ref", key=True),
    _time("not_before"),
    _text("reason"),
    _count("hits"),
    _time("updated_at"),
)

credential_state: Final = _table(
    "credential_state",
    _text("tenant", key=True),
    _text("credential_ref", key=True),
    _text("generation"),
    _text("status"),
    _text("detail", null=True),
    _time("accepted_at", null=True),  # last proof that the remote accepted it (D-23)
    _time("updated_at"),
    sa.CheckConstraint("status IN ('usable', 'refused')", name="a_credential_has_a_known_status"),
)

revalidation_receipt: Final = _table(
    "revalidation_receipt",
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

operator_action: Final = _table(
    "operator_action",
    _serial(),
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

#: The database refuses UPDATE and DELETE of these (and, on SQLite, the delete that hides in INSERT OR REPLACE).
APPEND_ONLY: Final = (
    push_request,
    push_response,
    attempt_event,
    frozen_document,
    revalidation_receipt,
    operator_action,
)

#: Managed system tables; the generic record store refuses every one of them (SY-01).
PROTECTED_TABLES: Final = frozenset(METADATA.tables) | {PREFIX + "schema_version"}

#: Holds that a claim re-evaluates once what they name has changed.
RECHECKED_HOLDS: Final = frozenset({Hold.DRIFT, Hold.CREDENTIAL, Hold.ASSOCIATION_WAITING})
