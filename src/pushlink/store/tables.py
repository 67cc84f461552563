"""The tables, with the protocol's machines and keys as constraints.

Uniqueness hangs on nullable keys (`slot_key`, `locator_key`, `create_key`, `update_key`), not on partial indexes, so
that any SQL engine can hold it; partial indexes serve the claim only. Every name has the prefix `pushlink_`, so the
tables can live beside the host's own. Constraint names are sentences. What is append-only is listed in `APPEND_ONLY`;
`dialect/` builds the triggers that make the database itself refuse an update or a delete of it.

Frozen documents that many rows share (profiles, actions) are kept once, by digest, in `frozen_document`; a row that
names a digest stores that snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

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
from pushlink.store.adoption_tables import adoption_receipt
from pushlink.store.association_tables import association_wait, association_wake
from pushlink.store.backfill_tables import backfill, backfill_refusal
from pushlink.store.certificate_tables import contract_certificate
from pushlink.store.columns import METADATA, PREFIX, UtcTime, count, flag, table, text, time
from pushlink.store.dialect import partial_index, serial_column
from pushlink.store.limit_tables import remote_circuit, remote_pace, remote_throttle
from pushlink.store.lineage_tables import rebind_receipt
from pushlink.store.people_tables import operator_action, principal

#: What is handed on from `columns.py` and from the tables that have a module of their own.
__all__ = [
    "METADATA",
    "PREFIX",
    "UtcTime",
    "adoption_receipt",
    "association_wait",
    "association_wake",
    "backfill",
    "backfill_refusal",
    "contract_certificate",
    "operator_action",
    "principal",
    "rebind_receipt",
    "remote_circuit",
    "remote_pace",
    "remote_throttle",
]


def _words(values: Iterable[StrEnum]) -> str:
    return ", ".join(f"'{value.value}'" for value in sorted(values))


def _one_of(column: str, values: Iterable[StrEnum]) -> str:
    return f"{column} IN ({_words(values)})"


def _known_hold() -> str:
    # An unknown hold code is storable (a later release may hold rows that this one must leave alone), so a hold that
    # came later needs no other CHECK: SQLite could only have one by copying the table.
    known = [(hold, where) for hold, where in sorted(HOLDS.items()) if hold is not Hold.BODY_UNREADABLE]
    rules = [f"(hold_code <> '{hold.value}' OR {_one_of('status', where)})" for hold, where in known]
    return "hold_code IS NULL OR (" + " AND ".join(rules) + ")"


_A = AttemptStatus

#: Held for another record. Literal, as the planner must see that the partial index covers it.
ASSOCIATION_HELD: Final = (
    "status = 'pending' AND hold_code IN ('association_blocked', 'association_moved', 'association_waiting')"
)

remote_link: Final = table(
    "remote_link",
    text("id", key=True),
    text("link_key"),
    text("tenant"),
    text("connector_owner_key"),
    text("action_slot_id"),
    text("destination_slot_id"),
    text("source_object"),
    text("source_record_id"),
    text("slot_key", null=True),
    text("locator_key", null=True),
    text("status"),
    text("names"),  # display names for people and for drift evidence, a JSON object; never a key
    text("created_install_id"),
    text("validated_install_id"),
    text("created_profile_digest"),
    text("created_action_digest"),
    text("profile_digest"),  # as last validated
    text("action_digest"),  # as last validated
    text("mapping_fingerprint"),
    text("body_fingerprint"),
    text("destination_scope"),
    text("remote_id"),
    text("remote_id_canonical"),
    text("remote_version", null=True),
    text("mirror_remote_id_field", null=True),
    text("mirror_provenance_field", null=True),
    text("mirror_status", default=MirrorStatus.NONE),
    text("reason_code", null=True),
    text("evidence", null=True),
    text("last_mapping_revalidation_operation_id", null=True),
    time("finalized_at"),
    time("updated_at"),
    count("row_version", default=1),
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
    sa.Index("pushlink_link_by_slots", "tenant", "connector_owner_key", "action_slot_id", "destination_slot_id"),
)

push_slot: Final = table(
    "push_slot",
    text("link_key", key=True),
    text("tenant"),
    text("connector_owner_key"),
    text("action_slot_id"),
    text("destination_slot_id"),
    text("source_object"),
    text("source_record_id"),
    count("create_ordinal"),
    count("wanted_version"),
    text("wanted_values", null=True),  # frozen `values` document; sealed: its envelope in base64
    text("wanted_sealed_by", null=True),  # the id of the key that opens it; null for a plain one
    text("wanted_values_digest", null=True),
    text("wanted_authority", null=True),  # frozen `authority` document of the author of that version
    text("wanted_mapping_fingerprint", null=True),
    text("wanted_associations", null=True),  # frozen `associations` vector of that version
    text("called_associations", null=True),  # what calls of their own have told the remote, by association
    text("order_key", null=True),  # what the wanted version is sent in order with
    text("wanted_state", null=True),  # `stale_mapping`, `refused_version` or null
    time("wanted_at", null=True),
    count("acknowledged_version"),
    text("applied_values_digest", null=True),
    count("refused_version"),
    text("refused_evidence", null=True),
    time("source_deleted_at", null=True),
    time("created_at"),
    count("row_version", default=1),
    sa.CheckConstraint("acknowledged_version <= wanted_version", name="nothing_is_acknowledged_before_it_is_wanted"),
    sa.CheckConstraint("refused_version <= wanted_version", name="nothing_is_refused_before_it_is_wanted"),
    sa.Index("pushlink_slot_by_record", "tenant", "source_object", "source_record_id"),
    sa.Index("pushlink_slot_by_slots", "tenant", "connector_owner_key", "action_slot_id", "destination_slot_id"),
)

push_attempt: Final = table(
    "push_attempt",
    text("id", key=True),
    text("link_key"),
    text("tenant"),
    text("destination_slot_id"),
    text("operation"),
    text("dispatch_lane", default="configured"),
    text("status"),
    text("hold_code", null=True),
    text("reason_code", null=True),
    text("detail", null=True),  # evidence of the hold or reason, a JSON object
    text("create_key", null=True),
    text("update_key", null=True),
    text("order_key", null=True),  # attempts of a destination with the same one go one after the other
    count("ordinal"),  # of a create; 0 for an update
    count("version"),  # the wanted version that this attempt carries
    count("freeze_count"),  # request rows written so far
    text("claim_token", null=True),
    text("claimed_by", null=True),
    text("claim_timeline", null=True),
    time("lease_until", null=True),
    count("claim_count"),  # claims without a recorded outcome since; give-backs and throttles do not count
    time("remote_io_started_at", null=True),  # the checkpoint
    time("first_io_at", null=True),
    time("last_checkpoint_at", null=True),
    flag("in_doubt"),
    count("send_count"),
    count("retry_count"),
    time("not_before"),
    time("expires_at", null=True),
    text("remote_id", null=True),
    text("association", null=True),  # an update that is one association's call of its own
    time("created_at"),
    time("updated_at"),
    count("row_version", default=1),
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
partial_index(
    "pushlink_attempt_due",
    push_attempt.c.dispatch_lane,
    push_attempt.c.tenant,
    push_attempt.c.destination_slot_id,
    push_attempt.c.not_before,
    push_attempt.c.id,
    where="status IN ('pending', 'writeback_pending') AND hold_code IS NULL",
)
partial_index(
    "pushlink_attempt_writeback_due",
    push_attempt.c.dispatch_lane,
    push_attempt.c.tenant,
    push_attempt.c.destination_slot_id,
    push_attempt.c.not_before,
    where="status = 'writeback_pending' AND hold_code IS NULL",
)
partial_index(
    "pushlink_attempt_in_order",
    push_attempt.c.tenant,
    push_attempt.c.destination_slot_id,
    push_attempt.c.order_key,
    push_attempt.c.created_at,
    push_attempt.c.id,
    where="order_key IS NOT NULL AND status IN ('pending', 'processing', 'post_sent')",
)
partial_index(
    "pushlink_attempt_leased",
    push_attempt.c.dispatch_lane,
    push_attempt.c.lease_until,
    where="status IN ('processing', 'post_sent', 'writeback_commit_pending')",
)
#: The creates in doubt whose record is looked for: the lease of such a row ends when its next look-up is due.
partial_index(
    "pushlink_attempt_lookup_due",
    push_attempt.c.dispatch_lane,
    push_attempt.c.lease_until,
    where="status = 'ambiguous_remote_effect' AND lease_until IS NOT NULL",
)
partial_index(
    "pushlink_attempt_waiting_for_people",
    push_attempt.c.status,
    push_attempt.c.updated_at,
    where="hold_code IS NOT NULL OR status IN ('ambiguous_remote_effect', 'terminal_failed')",
)

#: What waits for another record is looked at again from here, and from nowhere else.
partial_index(
    "pushlink_attempt_awaits_association",
    push_attempt.c.dispatch_lane,
    push_attempt.c.not_before,
    where=ASSOCIATION_HELD,
)

push_request: Final = table(
    "push_request",
    text("attempt_id", key=True),
    sa.Column("freeze", sa.Integer, primary_key=True, autoincrement=False),  # 1, 2, ...; the checkpoint names one
    text("idempotency_key"),
    text("method"),
    text("path"),
    text("headers"),
    sa.Column("body", sa.LargeBinary, nullable=True),  # sealed, or plain; null once erased, and the digest stays
    text("sealed_by", null=True),  # the id of the key that opens it; null for a plain one
    sa.Column("body_size", sa.BigInteger, nullable=True),  # in bytes, as it is sent; null: as long as the plain body
    time("erased_at", null=True),
    text("body_digest"),
    text("values_digest"),
    text("install_id"),
    text("names"),
    text("profile_digest"),
    text("action_digest"),
    text("mapping_fingerprint"),
    text("body_fingerprint"),
    text("authority"),  # frozen `authority` document
    text("association_vector", null=True),
    text("writeback", null=True),  # frozen `writeback` document
    time("created_at"),
)

push_response: Final = table(
    "push_response",
    serial_column(),
    text("attempt_id"),
    text("link_key"),
    text("claim_token"),
    count("send_ordinal"),
    time("received_at"),
    sa.Column("status", sa.Integer, nullable=True),
    text("headers"),
    sa.Column("body", sa.LargeBinary, nullable=True),  # sealed, or plain; null once erased
    text("sealed_by", null=True),
    time("erased_at", null=True),
    flag("body_complete"),
    count("body_size"),
    text("body_digest", null=True),
    text("trace"),
    text("verdict"),
    text("candidate_id", null=True),
    flag("late"),  # its claim was gone, or the attempt was parked: evidence without a transition
    sa.Index("pushlink_response_by_attempt", "attempt_id"),
)

attempt_event: Final = table(
    "attempt_event",
    serial_column(),
    text("attempt_id", null=True),  # null for an event of a link or a slot alone
    text("link_key"),
    text("tenant"),
    time("at"),
    text("subject"),  # create, update, link or slot
    text("event"),
    text("from_status", null=True),
    text("to_status", null=True),
    text("actor"),
    text("reason", null=True),
    text("evidence", null=True),
    count("row_version"),
    sa.Index("pushlink_event_by_link_key", "link_key", "id"),
    sa.Index("pushlink_event_by_attempt", "attempt_id", "id"),
)

frozen_document: Final = table(
    "frozen_document",
    text("digest", key=True),
    text("kind"),
    text("document"),
    time("created_at"),
)

pack_install: Final = table(
    "pack_install",
    text("id", key=True),
    text("tenant"),
    text("connector_owner_key"),
    text("active_key", null=True),  # owner key and tenant while the install is active
    text("pack"),
    text("version"),
    text("namespace"),
    text("document"),  # the pack as canonical JSON
    text("document_digest"),
    text("status"),
    time("installed_at"),
    time("updated_at"),
    count("revision", default=1),
    sa.UniqueConstraint("active_key", name="one_active_install_of_a_pack_for_a_tenant"),
    sa.CheckConstraint("status IN ('active', 'uninstalled')", name="an_install_has_a_known_status"),
    sa.CheckConstraint("(active_key IS NOT NULL) = (status = 'active')", name="an_active_install_holds_its_key"),
)

connector_slot: Final = table(
    "connector_slot",
    text("tenant", key=True),
    text("kind", key=True),  # action or destination
    text("slot_id", key=True),
    text("connector_owner_key"),
    text("source_object", null=True),  # of an action slot
    text("display_name"),
    text("install_id"),
    text("status"),
    text("successor_slot_id", null=True),
    text("detail", null=True),
    time("first_seen_at"),
    time("updated_at"),
    sa.CheckConstraint("kind IN ('action', 'destination')", name="a_slot_has_a_known_kind"),
    sa.CheckConstraint(
        "status IN ('active', 'dropped', 'rebound', 'retired', 'independent')", name="a_slot_has_a_known_status"
    ),
)

deployment: Final = table(
    "deployment",
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    text("deployment_id"),
    text("mode", default="running"),
    text("general_worker", default="on"),
    count("catalog_revision", default=1),
    count("confirmations"),
    time("uncleared_since", null=True),  # a confirmed database may lack links: new creates wait until it is cleared
    time("created_at"),
    time("updated_at"),
    sa.CheckConstraint("id = 1", name="there_is_one_deployment"),
    sa.CheckConstraint("mode IN ('running', 'recovery')", name="a_deployment_has_a_known_mode"),
    sa.CheckConstraint("general_worker IN ('on', 'off')", name="the_general_worker_is_on_or_off"),
)

checkpoint_mark: Final = table(
    "checkpoint_mark",
    text("state_id", key=True),  # of a worker's state directory
    count("mark"),
    time("updated_at"),
)

credential_state: Final = table(
    "credential_state",
    text("tenant", key=True),
    text("credential_ref", key=True),
    text("generation"),
    text("status"),
    text("detail", null=True),
    time("accepted_at", null=True),  # last proof that the remote accepted it (D-23)
    time("updated_at"),
    sa.CheckConstraint("status IN ('usable', 'refused')", name="a_credential_has_a_known_status"),
)

revalidation_receipt: Final = table(
    "revalidation_receipt",
    text("operation_id", key=True),
    text("link_id", key=True),
    text("link_key"),
    text("tenant"),
    text("manifest_digest"),
    text("approval_digest"),
    text("algorithm_versions"),
    text("prior_operation_id", null=True),
    text("old_mapping_fingerprint"),
    text("old_body_fingerprint"),
    text("new_mapping_fingerprint"),
    text("new_body_fingerprint"),
    text("old_install_id"),
    text("new_install_id"),
    text("row_digest_before"),
    text("row_digest_after"),
    text("actor"),
    text("reason"),
    text("previous_hash"),
    text("hash"),
    time("applied_at"),
    sa.Index("pushlink_receipt_by_link", "link_id", "applied_at"),
)

#: The database refuses UPDATE and DELETE of these (and, on SQLite, the delete that hides in INSERT OR REPLACE), but for
#: what a guard of `guarded.py` leaves open.
APPEND_ONLY: Final = (
    push_request,
    push_response,
    attempt_event,
    frozen_document,
    revalidation_receipt,
    adoption_receipt,
    rebind_receipt,
    operator_action,
    contract_certificate,
)

#: Managed system tables; the generic record store refuses every one of them (SY-01).
PROTECTED_TABLES: Final = frozenset(METADATA.tables) | {PREFIX + "schema_version"}
