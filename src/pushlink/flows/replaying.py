"""What a create in doubt may do by itself: be sent again, or be looked for, under the contract that was frozen with it.

A contract counts where it was certified, or where the settings trust those that were not; a pack of now may narrow it.
What is gathered here is read in the transaction of a claim or of a recovery; the lifetime itself is compared once more
in the transaction of the checkpoint, by the database's clock (D-07).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from pushlink.errors import Code
from pushlink.flows.world import World
from pushlink.protocol.contracts import CreateContract
from pushlink.protocol.replay import Allowed, ReplayFacts, Why, contract_digest, has_contract, may_replay
from pushlink.protocol.snapshots import ActionSnapshot, AttemptId, Digest, LinkKey, ProfileSnapshot
from pushlink.protocol.states import Lane
from pushlink.store import requests, slots
from pushlink.store.active import ActiveCatalog
from pushlink.store.certificates import read_trusted
from pushlink.store.rows import AttemptRow, RequestRow, SlotIdentity, slots_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What one create may do when nobody knows what became of it."""

    create: CreateContract
    facts: ReplayFacts

    @property
    def look_up_ms(self) -> int | None:
        """How long after a doubt its record is looked for; `None` where no trusted contract says how."""
        lookup = self.create.lookup
        return lookup.every_ms if lookup is not None and self.facts.certified else None

    def replay(self, row: AttemptRow, *, first_send: dt.datetime | None = None) -> Allowed | Why:
        """Until when this attempt may be sent again, or why not; `first_send` where its row does not say it yet."""
        if row.dispatch_lane != Lane.CONFIGURED.value and not is_ordered(row):
            return Why.LANE
        return may_replay(self.create, replace(self.facts, first_send=row.first_io_at or first_send))

    def ordered_until(self, row: AttemptRow) -> Allowed | Why:
        """Until when an operator may order another send, in any lane, or why not."""
        return may_replay(self.create, replace(self.facts, first_send=row.first_io_at))

    def is_live(self, row: AttemptRow, now: dt.datetime, *, first_send: dt.datetime | None = None) -> bool:
        """Whether this attempt is sent again by itself, should an outcome that is recorded now be unknown."""
        if row.dispatch_lane != Lane.CONFIGURED.value:
            return False
        allowed = self.replay(row, first_send=first_send)
        return isinstance(allowed, Allowed) and now < allowed.until


def is_ordered(row: AttemptRow) -> bool:
    """Whether an operator ordered this attempt to be sent again: the one replay that any lane makes."""
    return row.in_doubt and row.reason_code == Code.OPERATOR_DECISION.value


def later(now: dt.datetime, pause_ms: int | None) -> dt.datetime | None:
    """That much later, where something is to happen at all."""
    return None if pause_ms is None else now + dt.timedelta(milliseconds=pause_ms)


class Trust:
    """Which frozen actions have a contract that counts now, by the digests of their snapshots."""

    def __init__(self, world: World) -> None:
        self._world = world

    def of(self, conn: sa.Connection, actions: Iterable[Digest], *, now: dt.datetime) -> frozenset[Digest]:
        """Those of these thawed action snapshots whose contract may be relied on."""
        found = {digest: named for digest in set(actions) if (named := self._contract(digest)) is not None}
        if not found or self._world.terms.trusts_uncertified:
            return frozenset(found)
        trusted = read_trusted(conn, sorted(found.values()), now=now)
        return frozenset(digest for digest, named in found.items() if named in trusted)

    def _contract(self, digest: Digest) -> Digest | None:
        known = self._world.contracts.get(digest)
        if known is not None:
            return known or None
        action = self._world.actions.get(digest)
        create = None if action is None else action.contract.create
        named = contract_digest(create) if create is not None and has_contract(create) else Digest("")
        return self._world.contracts.put(digest, named) or None


def prospect_of(
    world: World,
    row: AttemptRow,
    request: RequestRow,
    profile: ProfileSnapshot,
    action: ActionSnapshot,
    *,
    current: CreateContract | None,
    trusted: bool,
) -> Prospect:
    """The prospect of one create from what it froze and from the create of now."""
    generation = world.generation_of(profile.contract.credential_ref, row.tenant)
    return Prospect(
        create=action.contract.create,
        facts=ReplayFacts(
            certified=trusted,
            current=current,
            body_size=request.sent_size,
            credential_changed=generation != profile.credential_generation,
            first_send=row.first_io_at,
            total_ms=profile.contract.timeouts.total_ms,
        ),
    )


def prospects(
    world: World, conn: sa.Connection, rows: Sequence[AttemptRow], *, now: dt.datetime
) -> Mapping[AttemptId, Prospect]:
    """The prospects of creates that a recovery or an operator looks at, by attempt; reads all that it needs."""
    if not rows:
        return {}
    found = {r.attempt_id: r for r in requests.read_requests(conn, [row.id for row in rows]) if r is not None}
    profiles, actions = world.thaw(
        conn, [r.profile_digest for r in found.values()], [r.action_digest for r in found.values()]
    )
    trusted = Trust(world).of(conn, actions, now=now)
    concerned = [
        row for row in rows if row.id in found and has_contract(actions[found[row.id].action_digest].contract.create)
    ]
    if not concerned:
        return {}
    catalog = world.catalog.read(conn)
    identities = _identities(conn, [row.link_key for row in concerned])
    answers = {}
    for row in concerned:
        request = found[row.id]
        answers[row.id] = prospect_of(
            world,
            row,
            request,
            profiles[request.profile_digest],
            actions[request.action_digest],
            current=current_create(catalog, identities.get(row.link_key)),
            trusted=request.action_digest in trusted,
        )
    return answers


def current_create(catalog: ActiveCatalog, identity: SlotIdentity | None) -> CreateContract | None:
    """The create of now for a slot, wherever its action pushes to."""
    if identity is None:
        return None
    at = slots_of(identity)
    current = catalog.find(at) or catalog.find_elsewhere(at)
    return None if current is None else current.contract.create


def _identities(conn: sa.Connection, keys: Sequence[LinkKey]) -> Mapping[LinkKey, SlotIdentity]:
    return {slot.link_key: slot for slot in slots.read_identities(conn, keys) if slot is not None}
