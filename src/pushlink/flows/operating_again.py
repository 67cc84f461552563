"""The create path in the operator's hands: shown by every decision that frees a record's place, or validated by itself.

What a decision showed is kept by its fingerprint, so that any later change of it blocks the next create again (DR-15).
"""

from __future__ import annotations

from pushlink.flows.again import drift_of_earlier, fingerprint_of
from pushlink.flows.operating import Acting, Effects
from pushlink.store import attempts
from pushlink.store.active import ActiveAction
from pushlink.store.earlier import read_last_creates
from pushlink.store.rows import RequestRow, slots_of


def show_create_paths(acting: Acting, last: RequestRow | None) -> ActiveAction | None:
    """Keep in the evidence of a decision the create path of now beside the one that the key had; answers with now."""
    current = acting.world.catalog.read(acting.conn).find(slots_of(acting.subject.slot))
    frozen: str | None = None
    if last is not None:
        _, actions = acting.world.thaw(acting.conn, [], [last.action_digest])
        frozen = actions[last.action_digest].contract.create.path
    acting.evidence["create_path"] = {
        "frozen": frozen,
        "current": None if current is None else current.contract.create.path,
        "fingerprint": None if current is None else fingerprint_of(current),
    }
    return current


def validate_create(acting: Acting) -> Effects:
    """Somebody looked at both create paths: the next save of this record may create by the one of now."""
    row, slot = acting.attempt, acting.subject.slot
    [standing] = attempts.read_open_attempts(acting.conn, [slot.link_key])
    if acting.subject.link is not None or standing.create is not None:
        raise acting.refuse("Something stands under this record: no create waits for a validation.")
    if row.ordinal != slot.create_ordinal:
        raise acting.refuse("It is not the newest create of this record.", newest_ordinal=slot.create_ordinal)
    catalog = acting.world.catalog.read(acting.conn)
    blocking = drift_of_earlier(acting.world, acting.drifting, acting.conn, {slot.link_key: slot}, catalog)
    if not blocking:
        raise acting.refuse("Nothing of the create path waits for a validation.")
    last = read_last_creates(acting.conn, [slot.link_key])
    if show_create_paths(acting, last.get(slot.link_key)) is None:
        raise acting.refuse("No usable action of the catalogue has this slot.")
    acting.notes.append("Its next save is not held against the create before it any more: save the record again.")
    return Effects(status=row.status.value, row_version=row.row_version)
