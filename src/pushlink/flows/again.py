"""A create on a key that had one before: held against the newest of those, until somebody has looked (DR-15).

Such a key is free again only by a decision, a supersede or a released slot, which shows the create path of now beside
the old one and takes it as validated. A path that a pack changes after that decision blocks the next create, until
somebody validates it by a decision of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from pushlink.flows.drifting import Drifting
from pushlink.flows.world import World
from pushlink.protocol.drift import Hit, blocks_new_create
from pushlink.protocol.fingerprints import fingerprints
from pushlink.protocol.snapshots import Digest, LinkKey
from pushlink.protocol.surfaces import Surface
from pushlink.store.active import ActiveAction, ActiveCatalog
from pushlink.store.earlier import Validated, read_last_creates, read_validations
from pushlink.store.rows import SlotRow, slots_of


def drift_of_earlier(
    world: World, drifting: Drifting, conn: sa.Connection, free: Mapping[LinkKey, SlotRow], catalog: ActiveCatalog
) -> dict[LinkKey, tuple[Hit, ...]]:
    """What differs from the newest create of each slot that has none now, where nobody has validated it since."""
    last = read_last_creates(conn, [key for key, slot in free.items() if slot.create_ordinal > 0])
    frozen = list(last.values())
    world.thaw(conn, [request.profile_digest for request in frozen], [request.action_digest for request in frozen])
    hits = {key: drifting.of_request(request, free[key], catalog) for key, request in last.items()}
    blocking = [key for key, found in hits.items() if blocks_new_create(found)]
    seen = read_validations(conn, blocking)
    return {key: hits[key] for key in blocking if not _is_validated(free[key], seen.get(key), catalog)}


def _is_validated(slot: SlotRow, seen: Validated | None, catalog: ActiveCatalog) -> bool:
    """Whether the create path of now is the one that a decision showed, or was active before that decision."""
    current = catalog.find(slots_of(slot))
    install = catalog.install_of(slot.tenant, slot.connector_owner_key)
    if seen is None or current is None or install is None:
        return False
    return seen.fingerprint == fingerprint_of(current) or install.updated_at < seen.at


def fingerprint_of(action: ActiveAction) -> Digest:
    """All that makes a create path: the template, its query, and ids of our own in it."""
    return fingerprints(action.contract, action.profile)[Surface.CREATE_PATH]
