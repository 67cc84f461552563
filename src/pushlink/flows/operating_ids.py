"""A remote record that an operator names: its id as this remote writes it, and that nobody else has the record."""

from __future__ import annotations

from pushlink.errors import CallerError
from pushlink.flows.operating import Acting
from pushlink.protocol.contracts import ActionContract
from pushlink.protocol.identity import locator_key
from pushlink.protocol.remoteids import Extracted, read_remote_id
from pushlink.protocol.snapshots import LocatorKey
from pushlink.store import links
from pushlink.store.rows import LinkRow, SlotRow, slots_of


def unowned_record(
    acting: Acting, contract: ActionContract, text: str, *, scope: str, claimed_by: SlotRow | LinkRow
) -> tuple[Extracted, LocatorKey]:
    """The id and its locator; a refusal names both owners where a live link, other than the claiming one, has it."""
    found = read_remote_id(contract, text)
    if not isinstance(found, Extracted):
        raise CallerError(
            f"That is no id at this remote: {found.reason}.",
            evidence={"reason": found.reason.value},
            next_step="copy the id exactly as the remote shows it",
        )
    key = locator_key(slots_of(claimed_by), scope=scope, canonical_id=found.canonical)
    [owner] = links.read_locators(acting.conn, [key])
    is_own = owner is not None and isinstance(claimed_by, LinkRow) and owner.id == claimed_by.id
    if owner is not None and not is_own:
        raise acting.refuse(
            f"The remote record {text!r} belongs to {owner.source_object} {owner.source_record_id}.",
            remote_id=text,
            owner_link_id=owner.id,
            owner_link_key=owner.link_key,
            owner_record=f"{owner.source_object} {owner.source_record_id}",
            claimed_by_link_key=claimed_by.link_key,
        )
    return found, key
