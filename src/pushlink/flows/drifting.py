"""Both sides of a drift comparison, from rows and from the catalogue of now.

The comparison itself is the matrix in `protocol/drift.py`. What is compared is remembered by digests and by the
reading of the catalogue, since thousands of rows share a handful of snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pushlink.flows.world import World
from pushlink.protocol.drift import DriftFacts, Hit, classify
from pushlink.protocol.fingerprints import fingerprints
from pushlink.protocol.identity import owner_key
from pushlink.protocol.render import update_route
from pushlink.protocol.snapshots import ActionSnapshot, Digest, Names, ProfileSnapshot, Slots
from pushlink.protocol.surfaces import Surface
from pushlink.store.active import ActiveAction, ActiveCatalog
from pushlink.store.rows import LinkRow, RequestRow, SlotIdentity, SlotRow, read_names, slots_of


class Drifting:
    """Comparisons, which a process makes once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known = world.comparisons

    def of_link(self, link: LinkRow, catalog: ActiveCatalog) -> tuple[Hit, ...]:
        """What differs between a link as it was last validated and now."""
        overrides = {
            Surface.MAPPING: Digest(link.mapping_fingerprint),
            Surface.BODY: Digest(link.body_fingerprint),
        }
        return self._compare(
            slots_of(link),
            (link.profile_digest, link.action_digest),
            (link.validated_install_id, link.names),
            overrides,
            catalog,
        )

    def of_request(self, request: RequestRow, slot: SlotIdentity | SlotRow, catalog: ActiveCatalog) -> tuple[Hit, ...]:
        """What differs between a create as it was frozen and now."""
        return self._compare(
            slots_of(slot),
            (request.profile_digest, request.action_digest),
            (request.install_id, request.names),
            {},
            catalog,
        )

    def _compare(
        self,
        slots: Slots,
        digests: tuple[Digest, Digest],
        shown: tuple[str, str],
        overrides: Mapping[Surface, Digest],
        catalog: ActiveCatalog,
    ) -> tuple[Hit, ...]:
        current = catalog.find(slots) or catalog.find_elsewhere(slots)
        generation = "" if current is None else self.generation(current, slots.tenant)
        key = (slots, digests, shown, tuple(sorted(overrides.items())), catalog.edition, generation)
        known = self._known.get(key)
        if known is not None:
            return known
        profile, action = self._world.profiles.get(digests[0]), self._world.actions.get(digests[1])
        if profile is None or action is None:
            msg = "snapshots are thawed before they are compared"
            raise LookupError(msg)
        frozen = _facts(slots, shown[0], read_names(shown[1]), profile, action, overrides)
        if current is None:
            return self._known.put(key, classify(frozen, _unresolved(frozen, slots, catalog)))
        now = _facts(
            current.slots,
            current.install_id,
            current.names,
            ProfileSnapshot(contract=current.profile, credential_generation=generation),
            ActionSnapshot(contract=current.contract),
            {},
            like=frozen.fingerprints,
        )
        return self._known.put(key, classify(frozen, now, current.profile.waives))

    def generation(self, current: ActiveAction, tenant: str) -> str:
        """The generation of now; a credential that cannot be found has none, which differs from every frozen one."""
        return self._world.generation_of(current.profile.credential_ref, tenant)


def _unresolved(frozen: DriftFacts, slots: Slots, catalog: ActiveCatalog) -> DriftFacts:
    """What is known of now when no action has the slot: only what is missing differs, the rest cannot be told.

    An owner that is gone says nothing about its slots. Another owner under the same namespace is another owner (DR-05),
    and a pack that nobody can read is another install (DR-06) until it can be read again.
    """
    if not catalog.has_owner(slots.tenant, slots.connector_owner_key):
        other = catalog.owner_in_namespace(slots.tenant, frozen.names.namespace)
        return replace(frozen, owner_key=None if other is None else owner_key(other, slots.tenant))
    if not catalog.is_readable(slots.tenant, slots.connector_owner_key):
        return replace(frozen, install_id="")
    return replace(frozen, action_slot_id=None)


def _facts(
    slots: Slots,
    install_id: str,
    names: Names,
    profile: ProfileSnapshot,
    action: ActionSnapshot,
    overrides: Mapping[Surface, Digest],
    like: Mapping[Surface, Digest] | None = None,
) -> DriftFacts:
    """One side; `like` has the fingerprints of the other, so that each is computed by the version that was stored."""
    return DriftFacts(
        owner_key=owner_key(slots.connector_owner_key, slots.tenant),
        action_slot_id=slots.action_slot_id,
        destination_slot_id=slots.destination_slot_id,
        install_id=install_id,
        names=names,
        profile_active=profile.contract.active,
        credential_generation=profile.credential_generation,
        fingerprints={**fingerprints(action.contract, profile.contract, like=like), **overrides},
        address=(profile.contract.base_url, update_route(action.contract, profile.contract)),
    )
