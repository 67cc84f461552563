"""Reserving the newest wanted version anew, for a create that was just superseded.

Nothing is read from the record but what stands in its mirror fields: the values are those that the newest save froze
under its own author's authority, rendered by the configuration of now. The gates of a save are asked again as far as
they can be: a catalogue, lineage, source or author that would refuse a save refuses this as well.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from pushlink.errors import Code
from pushlink.flows.operating import Acting
from pushlink.flows.reserve import WAKE_CHANNEL
from pushlink.ports import RecordRef
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.identity import create_idempotency_key
from pushlink.protocol.render import render_create
from pushlink.protocol.sealing import UNREAD, Unread
from pushlink.protocol.snapshots import (
    AttemptId,
    AuthoritySnapshot,
    FrozenRequest,
    SourceValues,
    WritebackSnapshot,
)
from pushlink.protocol.states import Lane, Operation
from pushlink.store import lifecycle, requests, slots
from pushlink.store.active import ActiveAction
from pushlink.store.catalog import read_deployment, read_unresolved_slots
from pushlink.store.dialect import notify
from pushlink.store.lifecycle import Moved, NewAttempt
from pushlink.store.rows import RequestRow, SlotRow, slots_of, write_headers, write_names
from pushlink.store.sealing import open_values, seal_request

_SAVE_AGAIN: Final = "supersede without --reserve, then save the record again"


def reserve_wanted(acting: Acting, action: ActiveAction | None) -> AttemptId:
    """Reserve the slot's wanted version as a create, in the transaction that freed the key."""
    slot = acting.subject.slot
    values, authority = _wanted(acting, slot)
    if action is None or not action.profile.active:
        raise acting.refuse(f"No usable action of the catalogue has this slot; {_SAVE_AGAIN}.")
    if action.contract.associations:
        raise acting.refuse(f"What the record refers to is resolved and authorized by a save alone; {_SAVE_AGAIN}.")
    _ask_gates(acting, slot, action, authority)
    ordinal = slots.take_ordinal(acting.conn, slot.link_key)
    key = create_idempotency_key(acting.world.secret, slot.link_key, ordinal)
    request = render_create(action.contract, action.profile, values, idempotency_key=key)
    if isinstance(request, RenderFailure):
        raise acting.refuse(f"The wanted version cannot be rendered: {request.message}", code=request.code.value)
    wait_ms = action.profile.expires_after_ms
    attempt = NewAttempt(
        id=AttemptId(acting.world.ids.fresh()),
        link_key=slot.link_key,
        tenant=slot.tenant,
        destination_slot_id=slot.destination_slot_id,
        operation=Operation.CREATE,
        lane=Lane.CONFIGURED,
        ordinal=ordinal,
        version=slot.wanted_version,
        freeze_count=1,
        not_before=acting.now,
        expires_at=None if wait_ms is None else acting.now + dt.timedelta(milliseconds=wait_ms),
        actor=acting.actor,
        detail={"supersedes": acting.decision.target_id},
    )
    [made] = lifecycle.insert_attempts(acting.conn, [attempt], now=acting.now)
    if not isinstance(made, Moved):
        raise acting.stale()
    generation = acting.world.generation(action.profile, slot.tenant)
    profile = acting.world.profile_document(action.profile, action.profile_digest, generation)
    requests.keep_documents(acting.conn, [profile, action.document], now=acting.now)
    row = _row(acting, slot, action, attempt, request, key, profile.digest)
    requests.insert_requests(acting.conn, [seal_request(acting.world.vault, row)])
    notify(acting.conn, WAKE_CHANNEL)
    return attempt.id


def _wanted(acting: Acting, slot: SlotRow) -> tuple[SourceValues, AuthoritySnapshot]:
    if acting.attempt.dispatch_lane != Lane.CONFIGURED.value:
        raise acting.refuse(f"Its associations are resolved by a save alone; {_SAVE_AGAIN}.")
    if slot.wanted_values is None or slot.wanted_authority is None:
        raise acting.refuse(f"Nothing is wanted under this key; {_SAVE_AGAIN}.")
    values = open_values(acting.world.vault, slot)
    if isinstance(values, Unread):
        raise acting.refuse(f"The wanted values cannot be read: {UNREAD[values]}.", code=Code.BODY_UNREADABLE.value)
    return SourceValues.read(values), AuthoritySnapshot.read(slot.wanted_authority)


def _ask_gates(acting: Acting, slot: SlotRow, action: ActiveAction, authority: AuthoritySnapshot) -> None:
    """What a save would be refused for, of all that may have changed since the version was wanted."""
    conn, world = acting.conn, acting.world
    if read_deployment(conn).mode != "running":
        raise acting.refuse("The deployment is in recovery mode; nothing is reserved.", code=Code.RECOVERY_MODE.value)
    if not action.has_mapping(slot.wanted_mapping_fingerprint):
        raise acting.refuse(
            f"The wanted values were frozen under another mapping; {_SAVE_AGAIN}.", code=Code.STALE_MAPPING.value
        )
    [is_active] = world.authority.users_active(conn, [authority.user_id])
    if not is_active:
        raise acting.refuse(
            f"The author of the wanted version is not active any more; {_SAVE_AGAIN}.",
            code=Code.AUTHORITY_UNAVAILABLE.value,
        )
    [is_there] = world.records.records_exist(conn, [_ref(slot)])
    if not is_there:
        raise acting.refuse("The source record does not exist any more.", code=Code.SOURCE_GONE.value)
    [unresolved] = read_unresolved_slots(conn, [slots_of(slot)])
    if unresolved:
        raise acting.refuse(
            "Older slots of this owner and object still own links or attempts.",
            code=Code.LINEAGE_UNRESOLVED.value,
            unresolved_slots=list(unresolved),
        )


def _row(
    acting: Acting,
    slot: SlotRow,
    action: ActiveAction,
    attempt: NewAttempt,
    request: FrozenRequest,
    key: str,
    profile_digest: str,
) -> RequestRow:
    writeback = _writeback(acting, slot, action)
    return RequestRow(
        attempt_id=attempt.id,
        freeze=1,
        idempotency_key=key,
        method=request.method,
        path=request.path,
        headers=write_headers(request.headers),
        body=request.body,
        body_digest=request.body_digest,
        values_digest=slot.wanted_values_digest or request.body_digest,
        install_id=action.install_id,
        names=write_names(action.names),
        profile_digest=type(request.body_digest)(profile_digest),
        action_digest=action.document.digest,
        mapping_fingerprint=action.mapping_fingerprint,
        body_fingerprint=action.body_fingerprint,
        authority=slot.wanted_authority or "",
        association_vector="[]",
        writeback=writeback.document().text if writeback is not None else None,
        created_at=acting.now,
    )


def _writeback(acting: Acting, slot: SlotRow, action: ActiveAction) -> WritebackSnapshot | None:
    mirror = action.contract.mirror
    if mirror is None:
        return None
    names = [name for name in (mirror.remote_id_field, mirror.provenance_field) if name is not None]
    [row] = acting.world.records.read_records(acting.conn, [_ref(slot)], [names])
    stands = {name: None if row is None or row[name] is None else str(row[name]) for name in names}
    field = mirror.provenance_field
    return WritebackSnapshot(
        source_object=slot.source_object,
        source_record_id=slot.source_record_id,
        remote_id_field=mirror.remote_id_field,
        provenance_field=field,
        provenance_value=mirror.provenance_value or action.names.namespace,
        expected_remote_id=stands[mirror.remote_id_field],
        expected_provenance=stands[field] if field is not None else None,
    )


def _ref(slot: SlotRow) -> RecordRef:
    return RecordRef(source_object=slot.source_object, record_id=slot.source_record_id)
