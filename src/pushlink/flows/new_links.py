"""The row of a link that begins: after a create that was answered, or for a record that an adoption took over."""

from __future__ import annotations

import datetime as dt

from pushlink.flows.claimed import ClaimedCreate, ClaimedLookup, ClaimedStampLookup, ClaimedWriteback
from pushlink.protocol.identity import locator_key
from pushlink.protocol.snapshots import Digest, InstallId, LinkKey, Slots, WritebackSnapshot
from pushlink.protocol.states import LinkEvent, MirrorStatus, follow_link
from pushlink.store.rows import LinkRow, slots_of


def new_link(
    *,
    link_id: str,
    link_key: LinkKey,
    slots: Slots,
    record_id: str,
    names: str,
    install_id: InstallId,
    profile_digest: Digest,
    action_digest: Digest,
    mapping_fingerprint: Digest,
    body_fingerprint: Digest,
    destination_scope: str,
    remote_id: str,
    canonical_id: str,
    remote_version: str | None,
    mirror_fields: tuple[str, str | None] | None,
    mirror_status: MirrorStatus,
    at: dt.datetime,
) -> LinkRow:
    """A finalized link, validated by what made it. `mirror_fields` are those of the id and of the provenance."""
    remote_id_field, provenance_field = mirror_fields or (None, None)
    return LinkRow(
        id=link_id,
        link_key=link_key,
        tenant=slots.tenant,
        connector_owner_key=slots.connector_owner_key,
        action_slot_id=slots.action_slot_id,
        destination_slot_id=slots.destination_slot_id,
        source_object=slots.source_object,
        source_record_id=record_id,
        slot_key=link_key,
        locator_key=locator_key(slots, scope=destination_scope, canonical_id=canonical_id),
        status=follow_link(None, LinkEvent.FINALIZE),
        names=names,
        created_install_id=install_id,
        validated_install_id=install_id,
        created_profile_digest=profile_digest,
        created_action_digest=action_digest,
        profile_digest=profile_digest,
        action_digest=action_digest,
        mapping_fingerprint=mapping_fingerprint,
        body_fingerprint=body_fingerprint,
        destination_scope=destination_scope,
        remote_id=remote_id,
        remote_id_canonical=canonical_id,
        remote_version=remote_version,
        mirror_remote_id_field=remote_id_field,
        mirror_provenance_field=provenance_field,
        mirror_status=mirror_status,
        reason_code=None,
        evidence=None,
        last_mapping_revalidation_operation_id=None,
        finalized_at=at,
        updated_at=at,
        row_version=1,
    )


def link_of(
    claimed: ClaimedCreate | ClaimedWriteback | ClaimedLookup | ClaimedStampLookup,
    *,
    link_id: str,
    remote_id: str,
    canonical_id: str,
    writeback: WritebackSnapshot | None,
    remote_version: str | None = None,
) -> LinkRow:
    """The link that a remote id makes, from what the attempt had frozen and from its slot's identity."""
    request, slot = claimed.request, claimed.slot
    return new_link(
        link_id=link_id,
        link_key=claimed.attempt.link_key,
        slots=slots_of(slot),
        record_id=slot.source_record_id,
        names=request.names,
        install_id=request.install_id,
        profile_digest=request.profile_digest,
        action_digest=request.action_digest,
        mapping_fingerprint=request.mapping_fingerprint,
        body_fingerprint=request.body_fingerprint,
        destination_scope=claimed.profile.contract.destination_scope,
        remote_id=remote_id,
        canonical_id=canonical_id,
        remote_version=remote_version,
        mirror_fields=(writeback.remote_id_field, writeback.provenance_field) if writeback else None,
        mirror_status=MirrorStatus.PENDING if writeback else MirrorStatus.NONE,
        at=claimed.attempt.updated_at,
    )
