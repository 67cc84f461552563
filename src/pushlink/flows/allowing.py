"""How many requests a claim may take of each destination: throttles, circuits, rates and requests at once.

All of it is shared through the database. What is capped is counted under the lock of its share (`remote_pace`), so two
workers that claim at once never take more than a limit together. A claim that was taken counts as a request under way
until its outcome is recorded or its lease has been recovered.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import sqlalchemy as sa

from pushlink.flows.world import World
from pushlink.protocol.contracts import ProfileContract, SendLimits
from pushlink.protocol.pacing import interval_of, next_at, paced, permitted
from pushlink.store.active import ActiveCatalog
from pushlink.store.circuits import Place, lock_circuit, read_circuits
from pushlink.store.paces import Share, count_under_way, lock_paces, read_paces, write_paces
from pushlink.store.throttles import Throttle, read_throttles, rows_allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """One limit, and whom it is counted over."""

    share: Share
    limits: SendLimits
    places: frozenset[Place]


@dataclass(slots=True)
class Budget:
    """What one claim may still take. `take` uses it up; `spent` is what went of each share."""

    rows_max: int
    of_place: Mapping[Place, int]
    caps: Mapping[Place, Cap]
    of_share: dict[Share, int]
    taken: Counter[Place] = field(default_factory=Counter)
    spent: Counter[Share] = field(default_factory=Counter)

    def left(self, place: Place) -> int:
        """How many more requests may be taken of a destination."""
        own = self.of_place.get(place, self.rows_max) - self.taken[place]
        cap = self.caps.get(place)
        shared = self.rows_max if cap is None else self.of_share[cap.share] - self.spent[cap.share]
        return max(0, min(own, shared))

    def is_used_up(self, place: Place) -> bool:
        """Whether a destination that is limited takes nothing more."""
        return (place in self.of_place or place in self.caps) and not self.left(place)

    def takes(self, place: Place) -> bool:
        """Take one more request of a destination, if there is room for it."""
        has_room = self.left(place) > 0
        self.take(place, int(has_room))
        return has_room

    def copy(self) -> Budget:
        """The same, to plan with."""
        return replace(self, taken=self.taken.copy(), spent=self.spent.copy())

    def take(self, place: Place, count: int) -> None:
        """Use it up."""
        self.taken[place] += count
        if (cap := self.caps.get(place)) is not None:
            self.spent[cap.share] += count


#: The one key under which the caps of a revision are remembered.
_NEWEST: Final = "newest"


class Allowing:
    """The limits of one process's claims."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[str, tuple[ActiveCatalog, Mapping[Place, Cap]]] = {}

    def budget(self, conn: sa.Connection, catalog: ActiveCatalog, *, rows_max: int, now: dt.datetime) -> Budget:
        """What a claim of this transaction may take; it locks the shares of every limit, in their order."""
        caps = self._caps(catalog)
        shares = {cap.share: cap for cap in caps.values()}
        until = lock_paces(conn, list(shares), now=now)
        of_place = {
            place: rows_allowed(moment, rows_max, now=now) for place, moment in read_throttles(conn, now=now).items()
        }
        circuits = {place: kept.state for place, kept in read_circuits(conn).items() if kept.state.open_until}
        trying = [place for place, state in sorted(circuits.items()) if state.is_half_open(now)]
        for place in trying:
            circuits[place] = lock_circuit(conn, place)
        has_counts = trying or any(cap.limits.max_concurrency for cap in shares.values())
        counts = count_under_way(conn, now=now) if has_counts else {}
        for place, state in circuits.items():
            if state.is_open(now):
                of_place[place] = 0
            elif state.is_half_open(now):
                of_place[place] = min(of_place.get(place, 1), 0 if counts.get(place) else 1)
        of_share = {share: _left(cap, until[share], counts, rows_max, now) for share, cap in shares.items()}
        return Budget(rows_max=rows_max, of_place=of_place, caps=caps, of_share=of_share)

    def settle(self, conn: sa.Connection, budget: Budget, *, now: dt.datetime) -> None:
        """Write what the claim took of each rate."""
        rates = {
            cap.share: interval
            for cap in budget.caps.values()
            if budget.spent[cap.share] and (interval := interval_of(cap.limits)) is not None
        }
        if rates:
            before = lock_paces(conn, list(rates), now=now)
            after = {share: paced(before[share], every, budget.spent[share], now=now) for share, every in rates.items()}
            write_paces(conn, after, now=now)

    def not_before(
        self, conn: sa.Connection, catalog: ActiveCatalog, *, now: dt.datetime
    ) -> Mapping[Place, dt.datetime]:
        """From when on each destination that is left alone now may be asked again."""
        found = {place: until for place, until in read_throttles(conn, now=now).items() if until > now}
        for place, kept in read_circuits(conn).items():
            if kept.state.open_until is not None and kept.state.is_open(now):
                found[place] = max(found.get(place, now), kept.state.open_until)
        caps = self._caps(catalog)
        if any(cap.limits.rate for cap in caps.values()):
            until = read_paces(conn)
            for place, cap in caps.items():
                interval = interval_of(cap.limits)
                moment = None if interval is None else next_at(until.get(cap.share), interval, cap.limits.burst)
                if moment is not None and moment > now:
                    found[place] = max(found.get(place, now), moment)
        return found

    def _caps(self, catalog: ActiveCatalog) -> Mapping[Place, Cap]:
        known = self._known.get(_NEWEST)
        if known is None or known[0] is not catalog:
            known = self._known[_NEWEST] = (catalog, caps_of(catalog))
        return known[1]


def spread(catalog: ActiveCatalog, throttles: Iterable[Throttle]) -> list[Throttle]:
    """Each throttle once for every destination that its scope holds back; its own one is always among them."""
    found: list[Throttle] = []
    for throttle in throttles:
        share = share_of((throttle.tenant, throttle.destination_slot_id), throttle.profile)
        held = {throttle.destination_slot_id} | {
            action.slots.destination_slot_id
            for action in catalog.all_actions()
            if action.slots.tenant == throttle.tenant and _shares(throttle.profile, action.profile, share)
        }
        found += [replace(throttle, destination_slot_id=slot) for slot in sorted(held)]
    return found


def share_of(place: Place, profile: ProfileContract) -> Share:
    """Whom a limit of this profile is counted over, at this destination."""
    tenant, destination = place
    match profile.rate_limit.scope:
        case "credential":
            return Share(tenant=tenant, name=f"credential {profile.credential_ref or ''}")
        case "remote_account":
            return Share(tenant=tenant, name=f"remote_account {profile.base_url} {profile.destination_scope}")
        case "endpoint":
            return Share(tenant=tenant, name=f"endpoint {profile.base_url}")
        case "destination" | "record":
            return Share(tenant=tenant, name=f"destination {destination}")


def _shares(throttled: ProfileContract, other: ProfileContract, share: Share) -> bool:
    """Whether another profile's destination is held back too, whatever that profile says of its own scope."""
    same_scope = other.model_copy(update={"rate_limit": throttled.rate_limit})
    is_wide = throttled.rate_limit.scope not in ("destination", "record")
    return is_wide and share_of((share.tenant, ""), same_scope) == share


def caps_of(catalog: ActiveCatalog) -> Mapping[Place, Cap]:
    """The limits of every destination; where two profiles share one, the narrower number of each counts."""
    found: dict[Place, tuple[Share, SendLimits]] = {}
    for action in catalog.all_actions():
        limits = action.profile.limits
        if limits.rate is not None or limits.max_concurrency is not None:
            place = (action.slots.tenant, action.slots.destination_slot_id)
            found[place] = (share_of(place, action.profile), limits)
    by_share: dict[Share, list[SendLimits]] = {}
    for share, limits in found.values():
        by_share.setdefault(share, []).append(limits)
    caps = {
        share: Cap(
            share=share,
            limits=_narrowest(limits),
            places=frozenset(place for place, (of, _) in found.items() if of == share),
        )
        for share, limits in by_share.items()
    }
    return {place: caps[share] for place, (share, _) in found.items()}


def _narrowest(limits: Sequence[SendLimits]) -> SendLimits:
    rated = [one for one in limits if one.rate is not None]
    slowest = max(rated, key=lambda one: interval_of(one) or dt.timedelta(), default=SendLimits())
    at_once = [one.max_concurrency for one in limits if one.max_concurrency is not None]
    return SendLimits(rate=slowest.rate, burst=slowest.burst, max_concurrency=min(at_once, default=None))


def _left(
    cap: Cap, paced_until: dt.datetime | None, counts: Mapping[Place, int], rows_max: int, now: dt.datetime
) -> int:
    left = rows_max
    if (interval := interval_of(cap.limits)) is not None:
        left = min(left, permitted(paced_until, interval, cap.limits.burst, now=now))
    if cap.limits.max_concurrency is not None:
        left = min(left, cap.limits.max_concurrency - sum(counts.get(place, 0) for place in cap.places))
    return max(0, left)
