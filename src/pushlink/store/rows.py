"""Typed rows: what statements hand to flows instead of dictionaries and driver rows.

Every class mirrors one table of `tables.py`; JSON columns stay text here and are read by whoever needs them. Rows are
snapshots of one moment: whoever acts on one later names its token or its version, and the compare-and-set decides.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from pushlink.protocol.snapshots import AttemptId, ClaimToken, Digest, InstallId, LinkKey, Names, Slots
from pushlink.protocol.states import AttemptStatus, LinkStatus, Operation

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One `push_attempt`. `dispatch_lane` and `hold_code` are text: a later release may have words unknown here."""

    id: AttemptId
    link_key: LinkKey
    tenant: str
    destination_slot_id: str
    operation: Operation
    dispatch_lane: str
    status: AttemptStatus
    hold_code: str | None
    reason_code: str | None
    detail: str | None
    ordinal: int
    version: int
    freeze_count: int
    claim_token: ClaimToken | None
    claimed_by: str | None
    claim_timeline: str | None
    lease_until: dt.datetime | None
    claim_count: int
    remote_io_started_at: dt.datetime | None
    first_io_at: dt.datetime | None
    last_checkpoint_at: dt.datetime | None
    in_doubt: bool
    send_count: int
    retry_count: int
    not_before: dt.datetime
    expires_at: dt.datetime | None
    remote_id: str | None
    association: str | None
    created_at: dt.datetime
    updated_at: dt.datetime
    row_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRow:
    """The part of a `push_attempt` that decides whether it may be claimed."""

    id: AttemptId
    link_key: LinkKey
    tenant: str
    operation: Operation
    status: AttemptStatus
    hold_code: str | None
    claim_count: int
    expires_at: dt.datetime | None
    row_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One freeze of an attempt's request, with the snapshots that were frozen beside it."""

    attempt_id: AttemptId
    freeze: int
    idempotency_key: str
    method: str
    path: str
    headers: str
    body: bytes | None
    sealed_by: str | None = None
    body_size: int | None = None
    erased_at: dt.datetime | None = None
    body_digest: Digest
    values_digest: Digest
    install_id: InstallId
    names: str
    profile_digest: Digest
    action_digest: Digest
    mapping_fingerprint: Digest
    body_fingerprint: Digest
    authority: str
    association_vector: str | None
    writeback: str | None
    created_at: dt.datetime

    @property
    def sent_size(self) -> int | None:
        """Bytes of the body as it is sent; `None` once it is erased."""
        if self.body is None:
            return None
        return len(self.body) if self.body_size is None else self.body_size


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """One `remote_link`."""

    id: str
    link_key: LinkKey
    tenant: str
    connector_owner_key: str
    action_slot_id: str
    destination_slot_id: str
    source_object: str
    source_record_id: str
    slot_key: str | None
    locator_key: str | None
    status: LinkStatus
    names: str
    created_install_id: InstallId
    validated_install_id: InstallId
    created_profile_digest: Digest
    created_action_digest: Digest
    profile_digest: Digest
    action_digest: Digest
    mapping_fingerprint: Digest
    body_fingerprint: Digest
    destination_scope: str
    remote_id: str
    remote_id_canonical: str
    remote_version: str | None
    mirror_remote_id_field: str | None
    mirror_provenance_field: str | None
    mirror_status: str
    reason_code: str | None
    evidence: str | None
    last_mapping_revalidation_operation_id: str | None
    finalized_at: dt.datetime
    updated_at: dt.datetime
    row_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotIdentity:
    """Whose slot a `push_slot` is; written once, when the key is first seen."""

    link_key: LinkKey
    tenant: str
    connector_owner_key: str
    action_slot_id: str
    destination_slot_id: str
    source_object: str
    source_record_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotVersions:
    """What a `push_slot` says of versions, without any values."""

    link_key: LinkKey
    tenant: str
    destination_slot_id: str
    wanted_version: int
    wanted_associations: str | None
    called_associations: str | None
    acknowledged_version: int
    applied_values_digest: Digest | None
    refused_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRow:
    """One `push_slot`: the lock of a link key, its create ordinal and its versions."""

    link_key: LinkKey
    tenant: str
    connector_owner_key: str
    action_slot_id: str
    destination_slot_id: str
    source_object: str
    source_record_id: str
    create_ordinal: int
    wanted_version: int
    wanted_values: str | None
    wanted_sealed_by: str | None = None
    wanted_values_digest: Digest | None
    wanted_authority: str | None
    wanted_mapping_fingerprint: Digest | None
    wanted_associations: str | None
    called_associations: str | None
    wanted_state: str | None
    wanted_at: dt.datetime | None
    acknowledged_version: int
    applied_values_digest: Digest | None
    refused_version: int
    refused_evidence: str | None
    source_deleted_at: dt.datetime | None
    created_at: dt.datetime
    row_version: int


def read_row(kind: type[T], row: sa.Row[Any]) -> T:
    """Build `kind` from a result row that was selected with `columns_of`: its columns are the fields, in order."""
    values = dict(zip(_field_names(kind), row, strict=True))
    for name, convert in _CONVERTERS.get(kind, ()):
        values[name] = convert(values[name])
    return kind(**values)


def read_rows(kind: type[T], result: sa.Result[Any]) -> list[T]:
    """All rows of a result, as `read_row` builds them."""
    return [read_row(kind, row) for row in result.all()]


def columns_of(kind: type[Any], table: sa.Table) -> list[sa.Column[Any]]:
    """The columns of `table` that `kind` has a field for, in field order."""
    return [table.c[name] for name in _field_names(kind)]


def values_of(row: Any) -> dict[str, Any]:
    """The fields of a row by the names of their columns, as an insert takes them."""
    return {name: getattr(row, name) for name in _field_names(type(row))}


def _field_names(kind: type[Any]) -> tuple[str, ...]:
    names = _NAMES.get(kind)
    if names is None:
        names = _NAMES[kind] = tuple(field.name for field in fields(kind))
    return names


_NAMES: Final[dict[type[Any], tuple[str, ...]]] = {}


def _members(kind: type[StrEnum]) -> Callable[[str], StrEnum]:
    """From a stored word to its member, by look-up since this runs for every row; another word raises `ValueError`."""
    known = {member.value: member for member in kind}
    return lambda word: known.get(word) or kind(word)


_CONVERTERS: Final[Mapping[type[Any], tuple[tuple[str, Callable[[Any], Any]], ...]]] = {
    AttemptRow: (("operation", _members(Operation)), ("status", _members(AttemptStatus))),
    DueRow: (("operation", _members(Operation)), ("status", _members(AttemptStatus))),
    LinkRow: (("status", _members(LinkStatus)),),
}


def slots_of(row: SlotRow | SlotIdentity | LinkRow) -> Slots:
    """The stable identity that a slot or a link carries."""
    return Slots(
        tenant=row.tenant,
        connector_owner_key=row.connector_owner_key,
        action_slot_id=row.action_slot_id,
        destination_slot_id=row.destination_slot_id,
        source_object=row.source_object,
    )


def write_names(names: Names) -> str:
    """Display names as the JSON object that rows keep."""
    return json.dumps({field.name: getattr(names, field.name) for field in fields(names)}, sort_keys=True)


def read_names(text: str) -> Names:
    """The inverse of `write_names`; a name that an older release did not keep is empty."""
    kept = json.loads(text)
    return Names(**{field.name: str(kept.get(field.name, "")) for field in fields(Names)})


def write_headers(headers: Sequence[tuple[str, str]]) -> str:
    """Headers in sending order, as JSON."""
    return json.dumps([list(pair) for pair in headers])


def read_headers(text: str) -> tuple[tuple[str, str], ...]:
    """The inverse of `write_headers`."""
    return tuple((str(name), str(value)) for name, value in json.loads(text))
