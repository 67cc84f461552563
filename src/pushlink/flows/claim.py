"""The claim: recover what is dead, take what is due, and gather in the same transaction every fact that flows need.

A claim never decides about a push; it decides only who may. Held, expired and poisoned rows are set aside here before
any I/O. The deployment's mode is read each time: in recovery nothing is claimed, and with the general worker off only
the lane of deferred associations is.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import sqlalchemy as sa

from pushlink.errors import Code, ProtocolViolation
from pushlink.flows.claimed import Claimed, ClaimedCreate, ClaimedUpdate, ClaimedWriteback, Frozen
from pushlink.flows.drifting import Drifting
from pushlink.flows.recover import recover_claims
from pushlink.flows.world import World
from pushlink.ports import RecordRef
from pushlink.protocol.snapshots import AttemptId, ClaimToken, LinkKey, thaw
from pushlink.protocol.states import (
    CLAIMED_IN_PLACE,
    KNOWN_LANES,
    RECHECKED_HOLDS,
    CreateEvent,
    Hold,
    Lane,
    Operation,
    UpdateEvent,
    follow_create,
    follow_update,
)
from pushlink.store import attempts, claims, lifecycle, links, requests, slots
from pushlink.store.active import ActiveCatalog
from pushlink.store.attempts import SetHold
from pushlink.store.catalog import Deployment, read_deployment
from pushlink.store.claims import Turn
from pushlink.store.dialect import timeline
from pushlink.store.lifecycle import Claim
from pushlink.store.rows import AttemptRow, LinkRow, RequestRow, SlotRow, slots_of

#: Held rows looked at again by one claim; the next claim goes on with the rest.
RECHECKED_MAX: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOrder:
    """How many rows to claim at most, and whose turn it is."""

    limit: int
    turn: Turn


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is read of all claimed rows at once, by link key or attempt id."""

    slots: Mapping[LinkKey, SlotRow]
    links: Mapping[LinkKey, LinkRow]
    requests: Mapping[AttemptId, RequestRow]
    exists: Mapping[AttemptId, bool]
    authors: Mapping[AttemptId, str]
    active: Mapping[str, bool]


class ClaimSteps:
    """Claims of one worker incarnation."""

    def __init__(self, world: World, *, incarnation: str) -> None:
        self._world = world
        self._incarnation = incarnation
        self._drifting = Drifting(world)
        self._revision_seen = 0

    def claim(self, conn: sa.Connection, items: Sequence[ClaimOrder], *, now: dt.datetime) -> list[list[Claimed]]:
        """Recover, then claim for each order (a worker gives one)."""
        deployment = read_deployment(conn)
        lanes = lanes_of(deployment)
        if not lanes:
            return [[] for _ in items]
        line = timeline(conn)
        recover_claims(conn, lanes, timeline=line, actor=self._incarnation, now=now)
        self._recheck_holds(conn, lanes, deployment.catalog_revision, now)
        return [self._claim_one(conn, order, lanes, line, now) for order in items]

    def due_in_s(self, conn: sa.Connection, items: Sequence[None], *, now: dt.datetime) -> list[float | None]:
        """Seconds until the next row is due or the next lease ends; `None` when nothing waits in these lanes."""
        lanes = lanes_of(read_deployment(conn))
        moment = claims.next_due(conn, lanes) if lanes else None
        return [None if moment is None else (moment - now).total_seconds()] * len(items)

    def claim_key(self, conn: sa.Connection, items: Sequence[AttemptRow], *, now: dt.datetime) -> list[Claimed | None]:
        """Claim these very rows, for inline dispatch; `None` where somebody else was quicker or the row is held."""
        taken = self._take(conn, list(items), timeline(conn), now)
        by_id = {item.attempt.id: item for item in self._gather(conn, taken, now)}
        return [by_id.get(item.id) for item in items]

    def _claim_one(
        self, conn: sa.Connection, order: ClaimOrder, lanes: Sequence[Lane], line: str, now: dt.datetime
    ) -> list[Claimed]:
        rows: list[AttemptRow] = []
        for queue, count in claims.share(claims.read_queues(conn, lanes), order.turn, order.limit):
            rows += claims.read_due(conn, queue, limit=count, now=now)
        fit = self._set_aside(conn, rows, now)
        return self._gather(conn, self._take(conn, fit, line, now), now)

    def _set_aside(self, conn: sa.Connection, rows: Sequence[AttemptRow], now: dt.datetime) -> list[AttemptRow]:
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

    def _take(self, conn: sa.Connection, rows: Sequence[AttemptRow], line: str, now: dt.datetime) -> list[AttemptRow]:
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
        answers = lifecycle.claim_attempts(conn, orders, now=now)
        return [_as_claimed(row, order, now) for row, order, won in zip(rows, orders, answers, strict=True) if won]

    def _gather(self, conn: sa.Connection, rows: Sequence[AttemptRow], now: dt.datetime) -> list[Claimed]:
        if not rows:
            return []
        keys = [row.link_key for row in rows]
        found_slots = {s.link_key: s for s in slots.read_slots(conn, keys) if s is not None}
        with_link = [row.link_key for row in rows if _needs_link(row)]
        found_links = {link.link_key: link for link in links.read_links(conn, with_link) if link is not None}
        frozen = [row.id for row in rows if row.freeze_count > 0]
        found_requests = {r.attempt_id: r for r in requests.read_requests(conn, frozen) if r is not None}
        sources = {key: source_of(slot) for key, slot in found_slots.items()}
        exist = self._world.records.records_exist(conn, [sources[row.link_key] for row in rows])
        authors = {row.id: _author(row, found_slots, found_requests) for row in rows}
        users = sorted(set(authors.values()) - {""})
        facts = _Facts(
            slots=found_slots,
            links=found_links,
            requests=found_requests,
            exists={row.id: there for row, there in zip(rows, exist, strict=True)},
            authors=authors,
            active=dict(zip(users, self._world.authority.users_active(conn, users), strict=True)),
        )
        profiles = [r.profile_digest for r in found_requests.values()]
        profiles += [link.profile_digest for link in found_links.values()]
        actions = [r.action_digest for r in found_requests.values()]
        actions += [link.action_digest for link in found_links.values()]
        self._world.thaw(conn, profiles, actions)
        catalog = self._world.catalog.read(conn)
        return [self._claimed(row, facts, catalog) for row in rows]

    def _claimed(self, row: AttemptRow, facts: _Facts, catalog: ActiveCatalog) -> Claimed:
        slot = facts.slots[row.link_key]
        request = facts.requests.get(row.id)
        frozen = None if request is None else self._thawed(request)
        author = facts.authors[row.id]
        common = {
            "attempt": row,
            "token": row.claim_token,
            "incarnation": self._incarnation,
            "source": source_of(slot),
            "source_exists": facts.exists[row.id],
            "slot": slot,
        }
        link = facts.links.get(row.link_key)
        if row.operation is Operation.UPDATE:
            current = catalog.find(slots_of(slot))
            drift = () if link is None else self._drifting.of_link(link, catalog)
            return ClaimedUpdate(
                **common,  # type: ignore[arg-type]
                request=frozen,
                link=link,
                current=current,
                generation="" if current is None else self._drifting.generation(current, row.tenant),
                user_active=facts.active.get(author, False),
                drift=drift,
                catalog_revision=catalog.revision,
            )
        if frozen is None:
            msg = "A create attempt has no frozen request."
            raise ProtocolViolation(msg, evidence={"attempt_id": row.id})
        if row.status in CLAIMED_IN_PLACE:
            return ClaimedWriteback(
                **common,  # type: ignore[arg-type]
                request=frozen.row,
                link=link,
                profile=frozen.profile,
                action=frozen.action,
            )
        return ClaimedCreate(
            **common,  # type: ignore[arg-type]
            request=frozen.row,
            profile=frozen.profile,
            action=frozen.action,
            user_active=facts.active.get(author, False),
            drift=self._drifting.of_request(frozen.row, slot, catalog),
            catalog_revision=catalog.revision,
        )

    def _thawed(self, request: RequestRow) -> Frozen:
        profile = self._world.profiles.get(request.profile_digest)
        action = self._world.actions.get(request.action_digest)
        if profile is None or action is None:
            msg = "snapshots are thawed before they are used"
            raise LookupError(msg)
        return Frozen(row=request, profile=profile, action=action)

    def _recheck_holds(self, conn: sa.Connection, lanes: Sequence[Lane], revision: int, now: dt.datetime) -> None:
        """After the catalogue changed, holds that it may have healed are lifted; the next judgement sets them again."""
        if revision == self._revision_seen:
            return
        rows = claims.read_held(conn, lanes, RECHECKED_HOLDS, limit=RECHECKED_MAX)
        attempts.set_holds(
            conn,
            [
                SetHold(row=row, hold=None, reason_code=None, detail={"rechecked": revision}, actor=self._incarnation)
                for row in rows
            ],
            now=now,
        )
        if len(rows) < RECHECKED_MAX:
            self._revision_seen = revision


def lanes_of(deployment: Deployment) -> tuple[Lane, ...]:
    """The lanes that a worker may take: none in recovery, the narrow one while the general worker is off."""
    if deployment.mode != "running":
        return ()
    return tuple(sorted(KNOWN_LANES)) if deployment.general_worker == "on" else (Lane.DEFERRED_ASSOCIATION,)


def source_of(slot: SlotRow) -> RecordRef:
    """The local record that a slot is about."""
    return RecordRef(source_object=slot.source_object, record_id=slot.source_record_id)


def _as_claimed(row: AttemptRow, order: Claim, now: dt.datetime) -> AttemptRow:
    """The row as the claim left it, without reading it again."""
    in_place = row.status in CLAIMED_IN_PLACE
    follow = follow_create if row.operation is Operation.CREATE else follow_update
    event = CreateEvent.CLAIM if row.operation is Operation.CREATE else UpdateEvent.CLAIM
    return replace(
        row,
        status=row.status if in_place else follow(row.status, event),  # type: ignore[arg-type]
        claim_token=order.token,
        claimed_by=order.incarnation,
        claim_timeline=order.timeline,
        lease_until=order.lease_until,
        not_before=order.lease_until if in_place else row.not_before,
        claim_count=row.claim_count + 1,
        updated_at=now,
        row_version=row.row_version + 1,
    )


def _needs_link(row: AttemptRow) -> bool:
    return row.operation is Operation.UPDATE or row.status in CLAIMED_IN_PLACE


def _author(row: AttemptRow, slot_rows: Mapping[LinkKey, SlotRow], frozen: Mapping[AttemptId, RequestRow]) -> str:
    """The user whose authority the attempt carries: of its frozen request, else of the slot's wanted version."""
    request = frozen.get(row.id)
    text = request.authority if request is not None else slot_rows[row.link_key].wanted_authority
    return str(thaw("authority", text)["user_id"]) if text else ""
