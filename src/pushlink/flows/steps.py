"""Steps: what the flows' transactions do, for many flows at once.

Each method is one `Tx` step. It takes locks in the one order (slot, link, attempt; by link key), calls store functions,
and answers with a value for each flow. Steps that find a claim gone write nothing for it and say so; what a reply said
is then kept as late evidence by a step of its own.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace

import sqlalchemy as sa

from pushlink.errors import Code, Contended, ProtocolViolation
from pushlink.flows import looking
from pushlink.flows.allowing import spread
from pushlink.flows.awaiting import await_targets
from pushlink.flows.followups import Followup, after_answer, after_call, called_by, insert_followups, with_called
from pushlink.flows.marks import BEHIND, raise_mark
from pushlink.flows.mirrors import MirrorDue, Mirrors
from pushlink.flows.rechecks import moved_target, out_of_time, what_changed, withdrawal
from pushlink.flows.relocating import relocate_links
from pushlink.flows.replaying import later
from pushlink.flows.step_items import (
    Adoption,
    Answer,
    ClaimGone,
    Granted,
    InVain,
    LooksNoMore,
    Permission,
    Recorded,
    Settle,
    Suspension,
    Waiting,
    Withheld,
)
from pushlink.flows.uptime import uptime_s
from pushlink.flows.world import World
from pushlink.ports import StateSeen
from pushlink.protocol.snapshots import AttemptId, LocatorKey
from pushlink.protocol.states import (
    CLAIMED_IN_PLACE,
    USABLE_LINKS,
    AttemptStatus,
    CreateEvent,
    Hold,
    LinkEvent,
    UpdateEvent,
    follow_create,
)
from pushlink.store import attempts, lifecycle, links, requests, responses, slots
from pushlink.store.attempts import LeaseLost, Release, Wait
from pushlink.store.circuits import note_health
from pushlink.store.credential_states import refuse_credentials
from pushlink.store.lifecycle import LinkMove, Lost, Move, Moved, NewLink
from pushlink.store.links import SeenVersion, ShownNames
from pushlink.store.rows import LinkRow
from pushlink.store.sealing import seal_reply
from pushlink.store.slots import Acknowledgement
from pushlink.store.throttles import Throttle, note_throttles


class Steps:
    """The steps over one `World`. A bound method is its own identity: a driver groups by it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.mirrors = Mirrors(world)

    def settle(self, conn: sa.Connection, items: Sequence[Settle], *, now: dt.datetime) -> list[Moved | Lost]:
        """End or give back claims before any byte was sent.

        An update that ends makes way for a version that was saved after its claim had read the slot: that save saw an
        open update and left its values to it.
        """
        touched = [i.move.row.link_key for i in items if i.judged is not None]
        touched += [key for i in items for key in i.awaits]  # whoever finalizes one of these holds its slot
        locked = dict(zip(touched, slots.lock_slots(conn, touched, nowait=True), strict=True))
        moves = [replace(i.move, look_up_at=later(now, i.look_up_ms)) for i in items]
        results = lifecycle.move_attempts(conn, moves, now=now)
        happened = [i for i, result in zip(items, results, strict=True) if isinstance(result, Moved)]
        await_targets(conn, happened, now=now)
        self._suspend_links(conn, [i.suspends for i in happened if i.suspends is not None], now)
        self._note_throttles(conn, [i.throttle for i in happened], now)
        slots.acknowledge_versions(
            conn,
            [
                Acknowledgement(
                    link_key=i.move.row.link_key,
                    version=i.acknowledges,
                    values_digest=slot.applied_values_digest,
                )
                for i in happened
                if i.acknowledges is not None and (slot := locked[i.move.row.link_key]) is not None
            ],
        )
        slots.mark_stale_mapping(
            conn,
            [
                i.move.row.link_key
                for i in happened
                if i.outdates_wanted and i.judged is not None
                if (slot := locked[i.move.row.link_key]) is not None and slot.wanted_version == i.judged.version
            ],
        )
        insert_followups(
            conn,
            [
                Followup(slot=slot, after=after_call(i.judged, slot), actor=i.move.actor)
                for i in happened
                if i.judged is not None and (slot := locked[i.move.row.link_key]) is not None
            ],
            ids=self.world.ids,
            now=now,
        )
        return results

    def checkpoint(
        self, conn: sa.Connection, items: Sequence[Permission], *, now: dt.datetime
    ) -> list[Granted | Withheld]:
        """Check again what validation read, then write the checkpoint under the fence (D-12, D-13, D-21).

        Who stands still afterwards for longer than the margin may not send any more: its lease could not hold the call.
        The mark comes first: a database that turns out to be an older one goes into recovery mode, and nothing is sent.
        """
        start_by_s = uptime_s() + self.world.terms.margin_ms / 1_000
        seen = self._marked(conn, items, now)
        if seen is None and self.world.state is not None:
            return [Withheld(because=BEHIND) for _ in items]
        revision = self.world.catalog.share_revision(conn)
        exist = self.world.records.records_exist(conn, [i.source for i in items])
        named = [target.reference.link_key for i in items for target in i.targets]
        locked = links.read_links(conn, [*(i.attempt.link_key for i in items if i.link_id), *named], lock=True)
        by_key = {link.link_key: link for link in locked if link is not None}
        generations = self._generations(items)
        # By claim and not by attempt: the right to send is the token's.
        changed = {
            item.token: change
            for item, there in zip(items, exist, strict=True)
            if (change := what_changed(item, revision, there, by_key.get(item.attempt.link_key), generations, now))
            or (change := moved_target(item.targets, by_key))
        }
        fit = [item for item in items if item.token not in changed]
        answers = attempts.write_checkpoints(conn, [item.checkpoint for item in fit], now=now)
        written = {
            item.token: answer for item, answer in zip(fit, answers, strict=True) if not isinstance(answer, LeaseLost)
        }
        begun = [i for i in fit if i.request and i.token in written]
        requests.keep_documents(conn, [document for i in begun for document in i.documents], now=now)
        requests.insert_requests(conn, [i.request for i in begun if i.request])
        changed |= out_of_time(conn, [i for i in fit if i.token not in written])
        lifecycle.move_attempts(
            conn, [withdrawal(item, changed[item.token], now) for item in items if item.token in changed], now=now
        )
        return [
            Granted(
                send_ordinal=answer.send_ordinal, at=now, first_at=answer.first_at, start_by_s=start_by_s, seen=seen
            )
            if (answer := written.get(item.token)) is not None
            else Withheld(because=changed.get(item.token, "the claim is gone"))
            for item in items
        ]

    def record(self, conn: sa.Connection, items: Sequence[Answer], *, now: dt.datetime) -> list[Recorded | ClaimGone]:
        """Store each reply, then what it means: link, attempt, versions and the update that is due next, together."""
        keys = [i.attempt.link_key for i in items]
        locked = dict(zip(keys, slots.lock_versions(conn, keys), strict=True))
        mine = self._mine(conn, items)
        fresh = [i for i in items if mine[i.attempt.id] == "mine"]
        responses.insert_responses(conn, [self._received(i, late=False) for i in fresh], now=now)
        fresh = relocate_links(conn, fresh, now=now)
        linked = self._finalize_links(conn, [i for i in fresh if i.link is not None], now)
        self._suspend_links(conn, [_suspension(i, i.link_before) for i in fresh if i.suspends and i.link_before], now)
        conflicts = {
            i.attempt.id: _conflict(conn, i.link) for i in fresh if i.link and not linked.get(i.attempt.id, True)
        }
        moves = [_answer_move(i, linked.get(i.attempt.id), conflicts.get(i.attempt.id), now) for i in fresh]
        results = lifecycle.move_attempts(conn, moves, now=now)
        for item, result in zip(fresh, results, strict=True):
            if isinstance(result, Lost):
                msg = "A claim went while its answer was written."
                raise Contended(msg, evidence={"attempt_id": item.attempt.id})  # the next try reads that it is gone
        slots.acknowledge_versions(conn, [a for i in fresh if (a := _acknowledgement(i, linked)) is not None])
        slots.forget_applied(
            conn, [i.attempt.link_key for i in fresh if i.event is UpdateEvent.UNKNOWN and not i.called]
        )
        slots.write_called(conn, [c for i in fresh if (c := called_by(i, locked[i.attempt.link_key])) is not None])
        self._await_lookups(conn, [(i, i.look_up_after_ms) for i in fresh if i.look_up_after_ms is not None], now)
        refuse_credentials(conn, [key for i in fresh if (key := i.refused_credential) is not None], now=now)
        self._note_limits(conn, fresh, now)
        links.write_versions(conn, [_seen_version(i) for i in fresh if i.forgets_version], now=now)
        renamed = [ShownNames(link_key=i.attempt.link_key, names=i.names) for i in fresh if i.names]
        links.write_names(conn, renamed, now=now)
        insert_followups(
            conn,
            [
                Followup(slot=with_called(i, slot), after=after_answer(i, slot), actor=i.actor)
                for i in fresh
                if _opens_the_way(i, linked) and (slot := locked[i.attempt.link_key]) is not None
            ],
            ids=self.world.ids,
            now=now,
        )
        # Where this very answer is stored already, the commit of an earlier try had happened after all.
        return [
            ClaimGone()
            if mine[i.attempt.id] == "gone"
            else Recorded(mirror=None if linked.get(i.attempt.id) is False else _mirror_due(i))
            for i in items
        ]

    def wait_again(self, conn: sa.Connection, items: Sequence[Waiting], *, now: dt.datetime) -> list[None]:
        """Store what a look-up answered, and let the next one come due; or park, where there is no time for one."""
        mine = self._mine(conn, [i.answer for i in items])
        fresh = [i for i in items if mine[i.answer.attempt.id] == "mine"]
        responses.insert_responses(conn, [self._received(i.answer, late=False) for i in fresh], now=now)
        again = [i for i in fresh if now + dt.timedelta(milliseconds=i.every_ms) <= i.deadline]
        self._await_lookups(conn, [(i.answer, i.every_ms) for i in again], now)
        self._note_limits(conn, [i.answer for i in fresh], now)
        over = [i.answer for i in fresh if i not in again]
        lifecycle.move_attempts(conn, [_answer_move(answer, None, None, now) for answer in over], now=now)
        return [None] * len(items)

    def look_again(self, conn: sa.Connection, items: Sequence[InVain], *, now: dt.datetime) -> list[None]:
        """Store what a look-up by the stamp answered, and do what follows from its not showing the one record."""
        mine = self._mine(conn, [i.answer for i in items])
        fresh = [i for i in items if mine[i.answer.attempt.id] == "mine"]
        responses.insert_responses(conn, [self._received(i.answer, late=False) for i in fresh], now=now)
        looking.go_on(conn, fresh, now=now)
        self._note_limits(conn, [i.answer for i in fresh], now)
        return [None] * len(items)

    def stop_looking(self, conn: sa.Connection, items: Sequence[LooksNoMore], *, now: dt.datetime) -> list[None]:
        """Make no further look-up of these by itself: there is nothing to ask by."""
        looking.stop(conn, items, now=now)
        return [None] * len(items)

    def _received(self, item: Answer, *, late: bool) -> responses.Received:
        body = seal_reply(
            self.world.vault,
            item.reply.body,
            attempt_id=item.attempt.id,
            claim_token=item.token,
            send_ordinal=item.send_ordinal,
        )
        return responses.Received(
            attempt_id=item.attempt.id,
            link_key=item.attempt.link_key,
            token=item.token,
            send_ordinal=item.send_ordinal,
            reply=item.reply,
            body=body,
            verdict=item.verdict,
            candidate_id=item.link.remote_id if late and item.link is not None else item.candidate_id,
            late=late,
        )

    def _await_lookups(self, conn: sa.Connection, items: Sequence[tuple[Answer, int]], now: dt.datetime) -> None:
        attempts.await_lookups(
            conn,
            [
                Wait(attempt_id=i.attempt.id, token=i.token, until=now + dt.timedelta(milliseconds=wait_ms))
                for i, wait_ms in items
            ],
        )

    def keep_late(self, conn: sa.Connection, items: Sequence[Answer], *, now: dt.datetime) -> list[None]:
        """A reply whose claim was gone: evidence without a transition, which reconciliation offers (D-14).

        Tried again after a commit that nobody answered, it is kept once.
        """
        kept = responses.read_stored(conn, [(i.attempt.id, i.token, i.send_ordinal) for i in items], late=True)
        news = [i for i, is_kept in zip(items, kept, strict=True) if not is_kept]
        responses.insert_responses(conn, [self._received(i, late=True) for i in news], now=now)
        return [None] * len(items)

    def finalize_adopted(
        self, conn: sa.Connection, items: Sequence[Adoption], *, now: dt.datetime
    ) -> list[Recorded | ClaimGone]:
        """Insert the link of a known id first; where another link has its remote record, hold and say whose it is."""
        keys = [i.attempt.link_key for i in items]
        locked = dict(zip(keys, slots.lock_slots(conn, keys, nowait=True), strict=True))
        held = attempts.lock_claims(conn, [(i.attempt.id, i.token) for i in items])
        mine = [i for i, is_held in zip(items, held, strict=True) if is_held]
        answers = lifecycle.insert_links(conn, [_new_link(i) for i in mine], now=now)
        there = links.read_links(conn, [i.attempt.link_key for i in mine])
        linked = {
            i.attempt.id: made or (link is not None and link.remote_id == i.link.remote_id)
            for i, made, link in zip(mine, answers, there, strict=True)
        }
        self._hold_conflicts(conn, [i for i in mine if not linked[i.attempt.id]], now)
        # An id that was only adopted acknowledges no version: the update that follows carries the whole body.
        insert_followups(
            conn,
            [
                Followup(slot=slot, after=replace(i.attempt, version=slot.acknowledged_version), actor=i.actor)
                for i in mine
                if linked[i.attempt.id] and (slot := locked[i.attempt.link_key]) is not None
            ],
            ids=self.world.ids,
            now=now,
        )
        return [Recorded() if linked.get(i.attempt.id) else ClaimGone() for i in items]

    def _hold_conflicts(self, conn: sa.Connection, items: Sequence[Adoption], now: dt.datetime) -> None:
        attempts.release_writebacks(
            conn,
            [
                Release(attempt_id=i.attempt.id, token=i.token, not_before=now, reason_code=Code.LOCATOR_CONFLICT)
                for i in items
            ],
            now=now,
        )
        rows = attempts.read_attempts(conn, [i.attempt.id for i in items])
        attempts.set_holds(
            conn,
            [
                attempts.SetHold(
                    row=row,
                    hold=Hold.LOCATOR_CONFLICT,
                    reason_code=Code.LOCATOR_CONFLICT,
                    detail=_conflict(conn, i.link),
                    actor=i.actor,
                )
                for i, row in zip(items, rows, strict=True)
                if row is not None
            ],
            now=now,
        )

    def _marked(self, conn: sa.Connection, items: Sequence[Permission], now: dt.datetime) -> StateSeen | None:
        """What the state directory is to keep before a send of this group; `None` without one, or in recovery."""
        if self.world.state is None or not items:
            return None
        return raise_mark(conn, self.world, self.world.state, actor=items[0].actor, now=now)

    def _generations(self, items: Sequence[Permission]) -> dict[tuple[str, str], str]:
        """The credential generations of now, by reference and tenant."""
        used = {(i.credential_ref, i.attempt.tenant) for i in items if i.credential_ref is not None}
        return {(ref, tenant): self.world.generation_of(ref, tenant) for ref, tenant in sorted(used)}

    def _note_limits(self, conn: sa.Connection, items: Sequence[Answer], now: dt.datetime) -> None:
        """What the answers say to everybody who would ask these remotes next: a wait, or that they fail."""
        self._note_throttles(conn, [i.throttle for i in items], now)
        note_health(conn, [health for i in items if (health := i.health) is not None], now=now)

    def _note_throttles(self, conn: sa.Connection, said: Sequence[Throttle | None], now: dt.datetime) -> None:
        throttles = [throttle for throttle in said if throttle is not None]
        if throttles:
            note_throttles(conn, spread(self.world.catalog.read(conn), throttles), now=now)

    def _mine(self, conn: sa.Connection, items: Sequence[Answer]) -> dict[AttemptId, str]:
        """For each attempt: `mine` (the claim lives), `recorded` (this very answer is stored), or `gone`."""
        held = attempts.lock_claims(conn, [(i.attempt.id, i.token) for i in items])
        # Every answer moves its attempt: one that stands where its flow had left it has none stored yet.
        others = [i for i, status in zip(items, held, strict=True) if status is not i.attempt.status]
        stored = responses.read_stored(conn, [(i.attempt.id, i.token, i.send_ordinal) for i in others])
        known = {i.attempt.id: "recorded" if is_known else "gone" for i, is_known in zip(others, stored, strict=True)}
        return {i.attempt.id: known.get(i.attempt.id, "mine") for i in items}

    def _finalize_links(self, conn: sa.Connection, items: Sequence[Answer], now: dt.datetime) -> dict[AttemptId, bool]:
        answers = lifecycle.insert_links(conn, [_new_link(i) for i in items if i.link is not None], now=now)
        return {i.attempt.id: answer for i, answer in zip(items, answers, strict=True)}

    def _suspend_links(self, conn: sa.Connection, items: Sequence[Suspension], now: dt.datetime) -> None:
        """Under the slot's lock; what an operator did meanwhile (retired, relocated) is not undone by old evidence."""
        there = links.read_links(conn, [i.link.link_key for i in items], lock=True)
        lifecycle.move_links(
            conn,
            [
                LinkMove(
                    link_id=link.id,
                    link_key=link.link_key,
                    tenant=link.tenant,
                    status=link.status,
                    row_version=link.row_version,
                    event=LinkEvent.SUSPEND,
                    actor=i.actor,
                    attempt_id=i.attempt_id,
                    reason_code=i.reason_code,
                    evidence=i.evidence,
                )
                for i, link in zip(items, there, strict=True)
                if link is not None and link.status in USABLE_LINKS
                if (link.id, link.remote_id) == (i.link.id, i.link.remote_id)
            ],
            now=now,
        )


def _seen_version(item: Answer) -> SeenVersion:
    return SeenVersion(link_key=item.attempt.link_key, version=item.remote_version)


def _suspension(item: Answer, link: LinkRow) -> Suspension:
    return Suspension(
        link=link, attempt_id=item.attempt.id, actor=item.actor, reason_code=item.reason_code, evidence=item.detail
    )


def _new_link(item: Answer | Adoption) -> NewLink:
    if item.link is None:
        msg = "A link is to be made of nothing."
        raise ProtocolViolation(msg, evidence={"attempt_id": item.attempt.id})
    return NewLink(row=item.link, attempt_id=item.attempt.id, actor=item.actor)


def _conflict(conn: sa.Connection, link: LinkRow) -> dict[str, object]:
    """Both owners of one remote record, for the person who will decide (LK-07)."""
    [owner] = links.read_locators(conn, [LocatorKey(link.locator_key or "")])
    return {
        "remote_id": link.remote_id,
        "owner_link_key": owner.link_key if owner else None,
        "claimed_by_link_key": link.link_key,
    }


def _answer_move(item: Answer, linked: bool | None, conflict: Mapping[str, object] | None, now: dt.datetime) -> Move:
    """The move that an answer makes; for a create with an id, the insert of the link has decided which one (D-15)."""
    is_taken = item.link is not None and not linked
    is_found = item.event is CreateEvent.STAMP_FOUND  # it waits for its mirror either way
    return Move(
        row=item.attempt,
        event=CreateEvent.LOCATOR_TAKEN if is_taken and not is_found else item.event,
        token=item.token,
        actor=item.actor,
        reason_code=Code.LOCATOR_CONFLICT if is_taken else item.reason_code,
        detail={**(item.detail or {}), **(conflict or {})} if is_taken else item.detail,
        hold=Hold.LOCATOR_CONFLICT if is_taken else item.hold,
        not_before=None if item.retry_after_ms is None else now + dt.timedelta(milliseconds=item.retry_after_ms),
        in_doubt=item.in_doubt if item.link is None else False,
        look_up_at=later(now, item.look_for_after_ms),
        remote_id=None if item.link is None else item.link.remote_id,
        retries=1 if item.counts_as_retry else 0,
    )


def _acknowledgement(item: Answer, linked: Mapping[AttemptId, bool]) -> Acknowledgement | None:
    if item.is_partial or item.called is not None:
        return None
    if linked.get(item.attempt.id) or item.event is UpdateEvent.APPLIED:
        return Acknowledgement(
            link_key=item.attempt.link_key, version=item.attempt.version, values_digest=item.values_digest
        )
    if item.event is UpdateEvent.REJECT:
        return Acknowledgement(
            link_key=item.attempt.link_key,
            version=item.attempt.version,
            values_digest=None,
            refused={"reason_code": item.reason_code, **(item.detail or {})},
        )
    return None


def _opens_the_way(item: Answer, linked: Mapping[AttemptId, bool]) -> bool:
    """Whether the next update of this link may be made now."""
    return linked.get(item.attempt.id, False) or item.event in (UpdateEvent.APPLIED, UpdateEvent.REJECT)


def _mirror_due(item: Answer) -> MirrorDue | None:
    if item.link is None or item.writeback is None or item.event is CreateEvent.STAMP_FOUND:
        return None  # what a look-up found is written back by a claim of its own
    return MirrorDue(
        attempt=replace(item.attempt, status=_status_with_mirror_due(item.attempt.status), retry_count=0),
        token=item.token,
        actor=item.actor,
        writeback=item.writeback,
        remote_id=item.link.remote_id,
    )


def _status_with_mirror_due(status: AttemptStatus) -> AttemptStatus:
    return status if status in CLAIMED_IN_PLACE else follow_create(status, CreateEvent.LINK_FINALIZED)
