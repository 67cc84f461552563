"""The claim: recover what is dead, take what is due, and gather in the same transaction every fact that flows need.

A claim never decides about a push; it decides only who may. Held, expired and poisoned rows are set aside here before
any I/O. The deployment's mode is read each time: in recovery nothing is claimed, and with the general worker off only
the lane of deferred associations is.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import sqlalchemy as sa

from pushlink.errors import Code, ProtocolViolation
from pushlink.flows.allowing import Allowing
from pushlink.flows.awaiting import Awaited, Held, let_go_on, read_awaited
from pushlink.flows.claim_facts import ClaimFacts, author_of, needs_link, source_of
from pushlink.flows.claimed import (
    Claimed,
    ClaimedCreate,
    ClaimedLookup,
    ClaimedStampLookup,
    ClaimedUpdate,
    ClaimedWriteback,
    Frozen,
)
from pushlink.flows.drifting import Drifting
from pushlink.flows.drivers import is_transient
from pushlink.flows.lookups_due import LookUpDue, ReadDue, StampLookUpDue, allowed_lookups
from pushlink.flows.picking import pick_due, pick_of
from pushlink.flows.recover import RECOVERED_MAX, recover_claims
from pushlink.flows.replaying import Trust, current_create, prospect_of
from pushlink.flows.telling import told
from pushlink.flows.world import World
from pushlink.protocol.snapshots import ClaimToken
from pushlink.protocol.states import (
    CLAIMED_IN_PLACE,
    KNOWN_LANES,
    RECHECKED_HOLDS,
    Hold,
    Lane,
    Operation,
)
from pushlink.store import associations, attempts, claims, lifecycle, links, requests, slots
from pushlink.store.active import ActiveCatalog
from pushlink.store.attempts import LookUpClaim, SetHold
from pushlink.store.catalog import Deployment, read_deployment
from pushlink.store.circuits import Place
from pushlink.store.claims import Turn
from pushlink.store.credential_states import CredentialKey, read_refused
from pushlink.store.decisions import read_vouched
from pushlink.store.dialect import is_connection_lost, timeline
from pushlink.store.lifecycle import Claim
from pushlink.store.rows import AttemptRow, DueRow, RequestRow, slots_of

log = logging.getLogger("pushlink.claim")

Due = TypeVar("Due", AttemptRow, DueRow)

#: A busy worker looks for dead claims that often at least, or 20 times within a lease; an idle one at every claim.
RECOVERY_PAUSE_MS_MAX: Final = 1_000

#: Held rows looked at again by one claim; the next claim goes on with the rest.
RECHECKED_MAX: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOrder:
    """How many rows to claim at most, and whose turn it is."""

    limit: int
    turn: Turn


@dataclass(frozen=True, slots=True)
class _Seen:
    """The state of the world that holds were last looked at in."""

    revision: int
    credentials: frozenset[tuple[str, str, str, bool]]
    refused: frozenset[CredentialKey] = field(compare=False)  # one more of them heals nothing


class ClaimSteps:
    """Claims of one worker incarnation."""

    def __init__(self, world: World, *, incarnation: str) -> None:
        self._world = world
        self._incarnation = incarnation
        self._drifting = Drifting(world)
        self._trust = Trust(world)
        self._allowing = Allowing(world)
        self._seen: _Seen | None = None
        self._recovered_at: dt.datetime | None = None

    def claim(self, conn: sa.Connection, items: Sequence[ClaimOrder], *, now: dt.datetime) -> list[list[Claimed]]:
        """Recover, then claim for each order (a worker gives one)."""
        deployment = read_deployment(conn)
        lanes = lanes_of(deployment)
        if not lanes:
            return [[] for _ in items]
        line = timeline(conn)
        self._recheck_holds(conn, lanes, deployment, now)
        let_go_on(
            self._world, conn, lanes, self._world.catalog.read(conn, deployment), actor=self._incarnation, now=now
        )
        is_due = self._recovery_is_due(now)
        asked = self._claim_lookups(conn, items, lanes, line, now) if is_due else []
        if is_due:
            self._recover_all(conn, lanes, line, now)
        found = [self._claim_one(conn, order, deployment, lanes, line, now) for order in items]
        if not is_due and not any(found):
            asked = self._claim_lookups(conn, items, lanes, line, now)
            if self._recover_all(conn, lanes, line, now):
                found = [self._claim_one(conn, order, deployment, lanes, line, now) for order in items]
        return [[*asked, *found[0]], *found[1:]] if asked else found

    def due_in_s(self, conn: sa.Connection, items: Sequence[None], *, now: dt.datetime) -> list[float | None]:
        """Seconds until the next row is due or the next lease ends; `None` when nothing waits in these lanes.

        A look at what waits for other records is no work to wait for: any later claim takes it.
        """
        lanes = lanes_of(read_deployment(conn))
        left_alone = self._allowing.not_before(conn, self._world.catalog.read(conn), now=now) if lanes else {}
        moment = claims.next_due(conn, lanes, left_alone) if lanes else None
        if lanes and associations.has_wakes(conn):
            moment = now
        return [None if moment is None else (moment - now).total_seconds()] * len(items)

    def _claim_lookups(
        self, conn: sa.Connection, orders: Sequence[ClaimOrder], lanes: Sequence[Lane], line: str, now: dt.datetime
    ) -> list[Claimed]:
        """Take the creates whose answer is stored and whose next look-up is due, no more than were asked for."""
        limit = min(order.limit for order in orders) if orders else 0
        if not limit:
            return []

        def read(without: frozenset[Place]) -> tuple[list[AttemptRow], list[AttemptRow]]:
            answered = claims.read_answered(conn, lanes, limit=limit, without=without, now=now)
            return answered, claims.read_looked_for(conn, lanes, limit=limit, without=without, now=now)

        return self._take_lookups(conn, read, limit, line, now)

    def _take_lookups(
        self, conn: sa.Connection, read: ReadDue, limit: int, line: str, now: dt.datetime
    ) -> list[Claimed]:
        """Take those of these rows that a look-up is made for, by their answer or by their stamp."""
        asked = allowed_lookups(self._world, conn, read, self._allowing, limit=limit, timeline=line, now=now)
        due = {each.row.id: each for each in asked if isinstance(each, LookUpDue)}
        by_stamp = {each.row.id: each for each in asked if isinstance(each, StampLookUpDue)}
        until = now + dt.timedelta(milliseconds=self._world.terms.lease_ms)
        taken = attempts.claim_lookups(
            conn,
            [
                LookUpClaim(
                    attempt_id=each.row.id,
                    row_version=each.row.row_version,
                    token=ClaimToken(self._world.ids.token()),
                    incarnation=self._incarnation,
                    lease_until=until,
                )
                for each in asked
            ],
            now=now,
        )
        mine = [row for row in taken if row is not None]
        identities = {s.link_key: s for s in slots.read_identities(conn, [row.link_key for row in mine]) if s}
        found: list[Claimed] = [
            ClaimedStampLookup(
                attempt=row,
                token=row.claim_token or ClaimToken(""),
                incarnation=self._incarnation,
                source=source_of(identities[row.link_key]),
                slot=identities[row.link_key],
                request=by_stamp[row.id].request,
                profile=by_stamp[row.id].profile,
                action=by_stamp[row.id].action,
                misses=by_stamp[row.id].misses,
            )
            for row in mine
            if row.id in by_stamp
        ]
        return found + [
            ClaimedLookup(
                attempt=row,
                token=row.claim_token or ClaimToken(""),
                incarnation=self._incarnation,
                source=source_of(identities[row.link_key]),
                slot=identities[row.link_key],
                request=due[row.id].request,
                profile=due[row.id].profile,
                action=due[row.id].action,
                answer=due[row.id].answer.reply,
                unread=due[row.id].answer.unread,
                name=due[row.id].name,
            )
            for row in mine
            if row.id in due
        ]

    def _recovery_is_due(self, now: dt.datetime) -> bool:
        last = self._recovered_at
        pause_ms = min(RECOVERY_PAUSE_MS_MAX, self._world.terms.lease_ms // 20)
        return last is None or not dt.timedelta() <= now - last < dt.timedelta(milliseconds=pause_ms)

    def _recover_all(self, conn: sa.Connection, lanes: Sequence[Lane], line: str, now: dt.datetime) -> int:
        count = recover_claims(self._world, conn, lanes, timeline=line, actor=self._incarnation, now=now)
        if count < RECOVERED_MAX:
            self._recovered_at = now
        return count

    def _claim_one(
        self,
        conn: sa.Connection,
        order: ClaimOrder,
        deployment: Deployment,
        lanes: Sequence[Lane],
        line: str,
        now: dt.datetime,
    ) -> list[Claimed]:
        catalog = self._world.catalog.read(conn, deployment)
        queues = claims.read_queues(conn, lanes)
        if not queues:
            return []
        budget = self._allowing.budget(conn, catalog, rows_max=order.limit, now=now)
        rows = pick_due(conn, queues, budget, turn=order.turn, limit=order.limit, now=now)
        self._allowing.settle(conn, budget, now=now)
        fit = self._set_aside(conn, rows, now)
        return self._claim_fit(conn, fit, deployment, line, now)

    def _within_limits(self, conn: sa.Connection, rows: Sequence[AttemptRow], now: dt.datetime) -> list[AttemptRow]:
        """Those of these rows that their destinations take now; what sends nothing goes in any case."""
        budget = self._allowing.budget(conn, self._world.catalog.read(conn), rows_max=len(rows), now=now)
        free = pick_of(conn, rows, budget, now=now)
        self._allowing.settle(conn, budget, now=now)
        return free

    def _claim_fit(
        self, conn: sa.Connection, rows: Sequence[DueRow], deployment: Deployment, line: str, now: dt.datetime
    ) -> list[Claimed]:
        """Take and gather; a row whose facts cannot be gathered costs its neighbours nothing (D-17).

        Such a row stays claimed until its lease ends, and the claims that it cost are counted: in the end it is poison.
        """
        if not rows:
            return []
        try:
            with conn.begin_nested():
                return self._gather(conn, self._take(conn, rows, line, now), now, deployment)
        except Exception as error:
            if is_transient(error) or is_connection_lost(error):
                raise
            if len(rows) == 1:
                # Not `exception`: what an error says may quote a row.
                log.error("attempt %s cannot be worked on: %s", rows[0].id, told(error))  # noqa: TRY400 - see above
                self._take(conn, rows, line, now)
                return []
        middle = len(rows) // 2
        return [
            claimed
            for part in (rows[:middle], rows[middle:])
            for claimed in self._claim_fit(conn, part, deployment, line, now)
        ]

    def _set_aside(self, conn: sa.Connection, rows: Sequence[Due], now: dt.datetime) -> list[Due]:
        """Hold what was claimed too often without an outcome, and what has waited too long to be sent unseen."""
        aside: dict[str, tuple[Hold, Code, dict[str, object]]] = {}
        for row in rows:
            if row.claim_count >= self._world.terms.claims_max:
                aside[row.id] = (Hold.POISON, Code.RETRIES_EXHAUSTED, {"claims": row.claim_count})
            elif row.expires_at is not None and row.expires_at <= now and row.status not in CLAIMED_IN_PLACE:
                aside[row.id] = (Hold.EXPIRED, Code.OUTDATED, {"expires_at": row.expires_at})
        attempts.set_holds(
            conn,
            [
                SetHold(row=row, hold=hold, reason_code=code, detail=detail, actor=self._incarnation)
                for row in rows
                if row.id in aside
                for hold, code, detail in [aside[row.id]]
            ],
            now=now,
        )
        return [row for row in rows if row.id not in aside]

    def _take(self, conn: sa.Connection, rows: Sequence[Due], line: str, now: dt.datetime) -> list[AttemptRow]:
        until = now + dt.timedelta(milliseconds=self._world.terms.lease_ms)
        orders = [
            Claim(
                attempt_id=row.id,
                row_version=row.row_version,
                operation=row.operation,
                status=row.status,
                token=ClaimToken(self._world.ids.token()),
                incarnation=self._incarnation,
                timeline=line,
                lease_until=until,
            )
            for row in rows
        ]
        return [row for row in lifecycle.claim_attempts(conn, orders, now=now) if row is not None]

    def _gather(
        self,
        conn: sa.Connection,
        rows: Sequence[AttemptRow],
        now: dt.datetime,
        deployment: Deployment | None = None,
    ) -> list[Claimed]:
        if not rows:
            return []
        creates = slots.read_identities(conn, [r.link_key for r in rows if r.operation is Operation.CREATE])
        updates = slots.read_slots(conn, [r.link_key for r in rows if r.operation is Operation.UPDATE])
        found_slots = {slot.link_key: slot for slot in updates if slot is not None}
        with_link = [row.link_key for row in rows if needs_link(row)]
        found_links = {link.link_key: link for link in links.read_links(conn, with_link) if link is not None}
        frozen = [row.id for row in rows if row.freeze_count > 0]
        found_requests = {r.attempt_id: r for r in requests.read_requests(conn, frozen) if r is not None}
        authors = {row.id: author_of(row, found_slots, found_requests) for row in rows}
        users = sorted(set(authors.values()) - {""})
        active = dict(zip(users, self._world.authority.users_active(conn, users), strict=True))
        left = [row.id for row in rows if not active.get(authors[row.id], False)]
        profiles = [r.profile_digest for r in found_requests.values()]
        profiles += [link.profile_digest for link in found_links.values()]
        actions = [r.action_digest for r in found_requests.values()]
        actions += [link.action_digest for link in found_links.values()]
        self._world.thaw(conn, profiles, actions)
        catalog = self._world.catalog.read(conn, deployment)
        identities = {slot.link_key: slot for slot in creates if slot is not None}
        made_of = [
            Held(
                row=row,
                identity=identities.get(row.link_key) or found_slots[row.link_key],
                request=found_requests.get(row.id),
                slot=found_slots.get(row.link_key),
            )
            for row in rows
        ]
        facts = ClaimFacts(
            identities=identities,
            slots=found_slots,
            links=found_links,
            requests=found_requests,
            authors=authors,
            active=active,
            vouched=read_vouched(conn, left),
            refused=read_refused(conn),
            trusted=self._trust.of(conn, [r.action_digest for r in found_requests.values()], now=now),
            awaited=read_awaited(self._world, conn, made_of, catalog),
        )
        return [self._claimed(row, facts, catalog) for row in rows]

    def _claimed(self, row: AttemptRow, facts: ClaimFacts, catalog: ActiveCatalog) -> Claimed:
        request = facts.requests.get(row.id)
        frozen = None if request is None else self._thawed(request)
        author = facts.authors[row.id]
        awaited = facts.awaited.get(row.id, Awaited())
        common = {
            "attempt": row,
            "token": row.claim_token,
            "incarnation": self._incarnation,
        }
        link = facts.links.get(row.link_key)
        if row.operation is Operation.UPDATE:
            slot = facts.slots[row.link_key]
            current = catalog.find(slots_of(slot))
            generation = "" if current is None else self._drifting.generation(current, row.tenant)
            reference = None if current is None else current.profile.credential_ref
            drift = () if link is None else self._drifting.of_link(link, catalog)
            return ClaimedUpdate(
                **common,  # type: ignore[arg-type]
                source=source_of(slot),
                slot=slot,
                request=frozen,
                link=link,
                current=current,
                generation=generation,
                credential_refused=facts.is_refused(row.tenant, reference, generation),
                user_active=facts.active.get(author, False) or row.id in facts.vouched,
                drift=drift,
                catalog_revision=catalog.revision,
                targets=awaited.targets,
            )
        if frozen is None:
            msg = "A create attempt has no frozen request."
            raise ProtocolViolation(msg, evidence={"attempt_id": row.id})
        identity = facts.identities[row.link_key]
        if row.status in CLAIMED_IN_PLACE:
            return ClaimedWriteback(
                **common,  # type: ignore[arg-type]
                source=source_of(identity),
                slot=identity,
                request=frozen.row,
                link=link,
                profile=frozen.profile,
                action=frozen.action,
            )
        reference = frozen.profile.contract.credential_ref
        generation = self._world.generation_of(reference, row.tenant)
        return ClaimedCreate(
            **common,  # type: ignore[arg-type]
            source=source_of(identity),
            slot=identity,
            request=frozen.row,
            profile=frozen.profile,
            action=frozen.action,
            generation=generation,
            credential_refused=facts.is_refused(row.tenant, reference, generation),
            user_active=facts.active.get(author, False) or row.id in facts.vouched,
            drift=self._drifting.of_request(frozen.row, identity, catalog),
            catalog_revision=catalog.revision,
            prospect=prospect_of(
                self._world,
                row,
                frozen.row,
                frozen.profile,
                frozen.action,
                current=current_create(catalog, identity),
                trusted=frozen.row.action_digest in facts.trusted,
            ),
            vector=awaited.vector,
            targets=awaited.targets,
            origin=awaited.origin,
        )

    def _thawed(self, request: RequestRow) -> Frozen:
        profile = self._world.profiles.get(request.profile_digest)
        action = self._world.actions.get(request.action_digest)
        if profile is None or action is None:
            msg = "snapshots are thawed before they are used"
            raise LookupError(msg)
        return Frozen(row=request, profile=profile, action=action)

    def _recheck_holds(
        self, conn: sa.Connection, lanes: Sequence[Lane], deployment: Deployment, now: dt.datetime
    ) -> None:
        """Lift the holds that a changed catalogue or credential may have healed; the next judgement sets them again."""
        seen = self._look(self._world.catalog.read(conn, deployment), read_refused(conn))
        known, self._seen = self._seen, None
        if known is not None and seen == known and known.refused <= seen.refused:
            self._seen = seen
            return
        rows = claims.read_held(conn, lanes, RECHECKED_HOLDS, limit=RECHECKED_MAX)
        detail = {"rechecked": seen.revision}
        attempts.set_holds(
            conn,
            [SetHold(row=row, hold=None, reason_code=None, detail=detail, actor=self._incarnation) for row in rows],
            now=now,
        )
        if len(rows) < RECHECKED_MAX:
            self._seen = seen

    def _look(self, catalog: ActiveCatalog, refused: frozenset[CredentialKey]) -> _Seen:
        """What holds depend on: the catalogue, credentials by generation and acceptance, and what was refused."""
        used = {(a.slots.tenant, a.profile.credential_ref) for a in catalog.all_actions() if a.profile.credential_ref}
        found = {(tenant, ref, self._world.generation_of(ref, tenant)) for tenant, ref in used}
        return _Seen(
            revision=catalog.revision,
            credentials=frozenset((*key, bool(self._world.proven.get(key))) for key in found),
            refused=refused,
        )


def lanes_of(deployment: Deployment) -> tuple[Lane, ...]:
    """The lanes that a worker may take: none in recovery, the narrow one while the general worker is off."""
    if deployment.mode != "running":
        return ()
    return tuple(sorted(KNOWN_LANES)) if deployment.general_worker == "on" else (Lane.DEFERRED_ASSOCIATION,)
