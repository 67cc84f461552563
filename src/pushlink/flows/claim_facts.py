"""What a claim reads of all the rows that it took, before it hands each to its flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pushlink.flows.awaiting import Awaited
from pushlink.ports import RecordRef
from pushlink.protocol.snapshots import AttemptId, Digest, LinkKey, thaw
from pushlink.protocol.states import CLAIMED_IN_PLACE, Operation
from pushlink.store.credential_states import CredentialKey
from pushlink.store.rows import AttemptRow, LinkRow, RequestRow, SlotIdentity, SlotRow


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """What is read of all claimed rows at once, by link key or attempt id."""

    identities: Mapping[LinkKey, SlotIdentity]  # of creates
    slots: Mapping[LinkKey, SlotRow]  # of updates
    links: Mapping[LinkKey, LinkRow]
    requests: Mapping[AttemptId, RequestRow]
    authors: Mapping[AttemptId, str]
    active: Mapping[str, bool]
    vouched: frozenset[AttemptId]  # whom an operator lets go on although their authors are not active
    refused: frozenset[CredentialKey]
    trusted: frozenset[Digest]  # the frozen actions whose replay contract counts
    awaited: Mapping[AttemptId, Awaited]  # of attempts that refer to other records

    def is_refused(self, tenant: str, reference: str | None, generation: str) -> bool:
        """Whether the remote does not take this generation of a credential."""
        if reference is None:
            return False
        return CredentialKey(tenant=tenant, reference=reference, generation=generation) in self.refused


def source_of(slot: SlotRow | SlotIdentity) -> RecordRef:
    """The local record that a slot is about."""
    return RecordRef(source_object=slot.source_object, record_id=slot.source_record_id)


def needs_link(row: AttemptRow) -> bool:
    """Whether a claimed row is about a link that is there."""
    return row.operation is Operation.UPDATE or row.status in CLAIMED_IN_PLACE


def author_of(row: AttemptRow, slot_rows: Mapping[LinkKey, SlotRow], frozen: Mapping[AttemptId, RequestRow]) -> str:
    """The user whose authority the attempt carries: of its frozen request, else of the slot's wanted version."""
    request = frozen.get(row.id)
    text = request.authority if request is not None else slot_rows[row.link_key].wanted_authority
    return str(thaw("authority", text)["user_id"]) if text else ""
