"""The reservation: what a save does inside the host's own transaction.

It reads under the saver's authority, asks the gates, and writes at most a wanted version, an attempt and its frozen
request. Slots are locked in link-key order and everything that decides is read again under them. It sends nothing,
commits nothing, and a refusal is a value; only a race that no statement can win is raised, as `Contended`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import sqlalchemy as sa

from pushlink.errors import Code, ConfigurationError
from pushlink.flows.again import drift_of_earlier
from pushlink.flows.associations import Question, References, read_targets, refer, with_targets
from pushlink.flows.candidates import Candidate, SaveItem, gather, mapped, read_again
from pushlink.flows.completing import unfinished_request
from pushlink.flows.cycles import found_cycles
from pushlink.flows.drifting import Drifting
from pushlink.flows.outcomes import Outcome, Unchanged
from pushlink.flows.plans import (
    Locked,
    Plan,
    about_of,
    early_facts,
    freeze_authority,
    freeze_writeback,
    is_carried,
    missing_associations,
    missing_evidence,
    outcome_of,
    refused,
    render_candidate,
    stop_of,
    unresolved,
    values_digest,
    waiting,
    waits_for_update,
    waits_of,
)
from pushlink.flows.touch import suspend_lost_links
from pushlink.flows.world import World
from pushlink.protocol.associations import write_vector
from pushlink.protocol.drift import blocks_new_create, stops_update
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.gates import BEFORE_CREATE, BEFORE_UPDATE, Facts, first_refusal
from pushlink.protocol.identity import create_idempotency_key
from pushlink.protocol.pacing import order_key
from pushlink.protocol.snapshots import (
    AttemptId,
    Document,
    FrozenRequest,
    LinkKey,
)
from pushlink.protocol.states import (
    UNSETTLED,
    USABLE_LINKS,
    AttemptStatus,
    Lane,
    Operation,
    UpdateEvent,
)
from pushlink.protocol.waiting import HOLD_OF, LOOK_PAUSE_MIN
from pushlink.store import associations, attempts, lifecycle, links, requests, slots
from pushlink.store.active import ActiveCatalog
from pushlink.store.catalog import Deployment, read_deployment, read_unresolved_slots
from pushlink.store.dialect import notify
from pushlink.store.lifecycle import Claims, Move, Moved, NewAttempt
from pushlink.store.rows import DueRow, LinkRow, RequestRow, SlotIdentity, SlotRow, write_headers, write_names
from pushlink.store.sealing import seal_request, seal_values
from pushlink.store.slots import Wanted, WantedVersion

#: The channel that wakes workers when the host's transaction commits.
WAKE_CHANNEL: Final = associations.WAKE_CHANNEL


class Reservation:
    """Saves of one process, each in a transaction of its host."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._drifting = Drifting(world)

    def save(
        self, conn: sa.Connection, items: Sequence[SaveItem], *, actor: str, now: dt.datetime
    ) -> list[list[Outcome]]:
        """For each record one outcome per action that concerns it, in the order of the pack."""
        deployment = read_deployment(conn)
        catalog = self._world.catalog.read(conn, deployment)
        suspend_lost_links(self._world, self._drifting, conn, items, catalog, actor=actor, now=now)
        found: list[tuple[int, Outcome]] = list(unresolved(items, catalog))
        survivors = []
        for candidate in gather(self._world, conn, items, catalog):
            refusal = first_refusal(BEFORE_CREATE, early_facts(candidate, recovering=deployment.mode != "running"))
            if refusal is None:
                survivors.append(candidate)
            else:
                found.append((candidate.position, refused(candidate, refusal, None)))
        for group in _rounds(survivors):
            found += self._save_group(conn, group, catalog, actor=actor, deployment=deployment, now=now)
        answers: list[list[Outcome]] = [[] for _ in items]
        for position, outcome in found:
            answers[position].append(outcome)
        return answers

    def _save_group(
        self,
        conn: sa.Connection,
        group: list[Candidate],
        catalog: ActiveCatalog,
        *,
        actor: str,
        deployment: Deployment,
        now: dt.datetime,
    ) -> list[tuple[int, Outcome]]:
        locked_rows = found_cycles(conn, list(self._lock(conn, group, catalog, deployment, now=now)))
        plans = [self._plan(locked) for locked in locked_rows]
        records = [plan for plan in plans if plan.outcome is None]
        versions = slots.record_wanted(conn, [self._wanted(plan, now) for plan in records], now=now)
        self._replace_open_updates(conn, records, actor=actor, now=now)
        reserved = self._insert(conn, records, versions, actor=actor, now=now)
        if reserved:
            notify(conn, WAKE_CHANNEL)
        done = {
            plan.locked.slot.link_key: outcome_of(plan, version, reserved.get(plan.locked.slot.link_key))
            for plan, version in zip(records, versions, strict=True)
        }
        return [(plan.locked.candidate.position, plan.outcome or done[plan.locked.slot.link_key]) for plan in plans]

    def _lock(
        self,
        conn: sa.Connection,
        group: list[Candidate],
        catalog: ActiveCatalog,
        deployment: Deployment,
        *,
        now: dt.datetime,
    ) -> Iterator[Locked]:
        keys = [candidate.link_key for candidate in group]
        rows = slots.open_slots(conn, [_identity(candidate) for candidate in group], now=now)
        by_key = {row.link_key: row for row in rows}
        there = links.read_links(conn, keys)
        open_attempts = attempts.read_open_attempts(conn, keys)
        unresolved = read_unresolved_slots(conn, [candidate.action.slots for candidate in group])
        again = read_again(self._world, conn, group)
        references = refer(self._world, conn, again, catalog)
        targets = read_targets(conn, [_question(c, r) for c, r in zip(again, references, strict=True)])
        known = [link for link in there if link is not None]
        self._world.thaw(conn, [link.profile_digest for link in known], [link.action_digest for link in known])
        free = {k: by_key[k] for k, link, at in zip(keys, there, open_attempts, strict=True) if not (link or at.create)}
        earlier = drift_of_earlier(self._world, self._drifting, conn, free, catalog)
        facts = zip(again, there, open_attempts, unresolved, references, targets, strict=True)
        for candidate, link, occupied, old, referred, found in facts:
            generation, problems = self._generation(candidate)
            yield Locked(
                candidate=candidate,
                slot=by_key[candidate.link_key],
                link=link,
                open=occupied,
                unresolved_slots=old,
                drift=earlier.get(candidate.link_key, ()) if link is None else self._drifting.of_link(link, catalog),
                values_digest=values_digest(candidate, referred),
                generation=generation,
                freeze_problems=problems,
                request=render_candidate(
                    candidate, link, referred, found, create_key=self._next_key(by_key[candidate.link_key])
                ),
                recovery_mode=_is_recovering(deployment, link),
                references=referred,
                targets=found,
            )

    def _next_key(self, slot: SlotRow) -> str:
        """The key of the create that may be reserved now, under the slot's lock: its ordinal is the next one."""
        return create_idempotency_key(self._world.secret, slot.link_key, slot.create_ordinal + 1)

    def _generation(self, candidate: Candidate) -> tuple[str, tuple[str, ...]]:
        try:
            return self._world.generation(candidate.action.profile, candidate.item.tenant), ()
        except ConfigurationError as error:
            return "", (error.message,)

    def _plan(self, locked: Locked) -> Plan:
        candidate, slot, link = locked.candidate, locked.slot, locked.link
        is_update = link is not None and link.status in USABLE_LINKS
        facts = self._facts(locked, is_update=is_update)
        refusal = first_refusal(BEFORE_UPDATE if is_update else BEFORE_CREATE, facts)
        is_wanted = (
            slot.wanted_values_digest == locked.values_digest
            and slot.wanted_associations == locked.wanted_associations
            and slot.wanted_state != "stale_mapping"
            and slot.wanted_version > 0
        )
        if refusal is None and is_update and not is_carried(locked):
            is_wanted = False  # its update ended unsent (a deleted source, say): the same values are wanted anew
        if refusal is not None and (is_wanted or not refusal.records_wanted):
            return Plan(
                locked=locked,
                outcome=waiting(locked, refusal) or refused(candidate, refusal, slot if is_wanted else None),
            )
        if refusal is None and is_wanted and is_update:
            return Plan(locked=locked, outcome=Unchanged(about=about_of(candidate), version=slot.wanted_version))
        return Plan(
            locked=locked,
            refusal=refusal,
            creates=refusal is None and not is_update,
            updates=is_update and (refusal is None or refusal.records_wanted) and not waits_for_update(locked),
        )

    def _facts(self, locked: Locked, *, is_update: bool) -> Facts:
        create, update = locked.open.create, locked.open.update
        slot = locked.slot
        return replace(
            early_facts(locked.candidate, recovering=locked.recovery_mode),
            link_status=locked.link.status if locked.link is not None else None,
            slot_closed=locked.link is not None and locked.link.slot_key is not None,
            create_status=create.status if create is not None else None,
            update_ambiguous=update is not None and update.status in UNSETTLED,
            version_refused=(
                slot.wanted_state == "refused_version" and slot.wanted_values_digest == locked.values_digest
            ),
            unresolved_slots=() if is_update else locked.unresolved_slots,
            freeze_problems=locked.freeze_problems,
            render_failure=locked.request if isinstance(locked.request, RenderFailure) else None,
            drift=stops_update(locked.drift) if is_update else blocks_new_create(locked.drift),
            missing_associations=missing_associations(locked),
            missing_records=missing_evidence(locked),
            denied_associations=locked.references.denied,
            association_cycle=() if is_update else locked.cycle,
        )

    def _wanted(self, plan: Plan, now: dt.datetime) -> Wanted:
        candidate, mapping = plan.locked.candidate, plan.locked.candidate.action.mapping_fingerprint
        values, sealed_by = seal_values(self._world.vault, mapped(candidate).document().text, plan.locked.slot, mapping)
        return Wanted(
            link_key=candidate.link_key,
            values=values,
            sealed_by=sealed_by,
            values_digest=plan.locked.values_digest,
            authority=freeze_authority(candidate, now).text,
            mapping_fingerprint=mapping,
            associations=plan.locked.wanted_associations,
            order_key=order_key(candidate.action.contract.ordering, mapped(candidate)),
            takes_ordinal=plan.creates,
        )

    def _replace_open_updates(
        self, conn: sa.Connection, plans: Sequence[Plan], *, actor: str, now: dt.datetime
    ) -> None:
        """An update that was rendered by an earlier claim and given back gives way whole to the newer version."""
        lifecycle.move_attempts(
            conn,
            [
                Move(
                    row=update,
                    event=UpdateEvent.REPLACE,
                    actor=actor,
                    reason_code=Code.OUTDATED,
                    claims=Claims.KEEP,
                )
                for plan in plans
                if plan.updates and (update := plan.locked.open.update) is not None
            ],
            now=now,
        )

    def _insert(
        self,
        conn: sa.Connection,
        plans: Sequence[Plan],
        versions: Sequence[WantedVersion],
        *,
        actor: str,
        now: dt.datetime,
    ) -> dict[LinkKey, AttemptId]:
        """Reserve what the plans call for; answers the attempt of each key that got one."""
        new: list[NewAttempt] = []
        frozen: list[RequestRow] = []
        documents: list[Document] = []
        reserving = [plan for plan in plans if plan.creates or plan.updates]
        for plan, version in zip(plans, versions, strict=True):
            if not (plan.creates or plan.updates):
                continue
            attempt = self._attempt(plan, version, actor=actor, now=now)
            new.append(attempt)
            if plan.creates:
                profile = self._profile(plan.locked)
                documents += [profile, plan.locked.candidate.action.document]
                frozen.append(seal_request(self._world.vault, self._request(plan, attempt, profile, now)))
        answers = lifecycle.insert_attempts(conn, new, now=now)
        won = {a.id for a, answer in zip(new, answers, strict=True) if isinstance(answer, Moved)}
        requests.keep_documents(conn, documents, now=now)
        requests.insert_requests(conn, [row for row in frozen if row.attempt_id in won])
        self._hold_deferred(conn, [(p, a) for p, a in zip(reserving, new, strict=True) if a.id in won], actor, now)
        return {attempt.link_key: attempt.id for attempt in new if attempt.id in won}

    def _attempt(self, plan: Plan, version: WantedVersion, *, actor: str, now: dt.datetime) -> NewAttempt:
        slot, profile = plan.locked.slot, plan.locked.candidate.action.profile
        replaced = plan.locked.open.update
        wait_ms = profile.expires_after_ms
        return NewAttempt(
            id=AttemptId(self._world.ids.fresh()),
            link_key=slot.link_key,
            tenant=slot.tenant,
            destination_slot_id=slot.destination_slot_id,
            operation=Operation.CREATE if plan.creates else Operation.UPDATE,
            lane=Lane.DEFERRED_ASSOCIATION if plan.defers else Lane.CONFIGURED,
            ordinal=version.ordinal if plan.creates else 0,
            version=version.version,
            freeze_count=1 if plan.creates else 0,
            not_before=_due_at(plan, now),
            expires_at=None if wait_ms is None else now + dt.timedelta(milliseconds=wait_ms),
            retry_count=0 if replaced is None else replaced.retry_count,
            actor=actor,
        )

    def _profile(self, locked: Locked) -> Document:
        action = locked.candidate.action
        return self._world.profile_document(action.profile, action.profile_digest, locked.generation)

    def _hold_deferred(
        self, conn: sa.Connection, items: Sequence[tuple[Plan, NewAttempt]], actor: str, now: dt.datetime
    ) -> None:
        """Keep each deferred create from being claimed until what it refers to has its remote record (DL-02)."""
        held = [(attempt, stop) for plan, attempt in items if plan.defers and (stop := stop_of(plan.locked))]
        attempts.set_holds(
            conn,
            [
                attempts.SetHold(
                    row=_as_due(attempt),
                    hold=HOLD_OF[stop.standing],
                    reason_code=Code.ASSOCIATION_MISSING,
                    detail=stop.evidence(),
                    actor=actor,
                )
                for attempt, stop in held
            ],
            now=now,
        )
        associations.insert_waits(
            conn,
            [
                associations.Wait(attempt_id=attempt.id, link_key=attempt.link_key, target_link_key=key)
                for plan, attempt in items
                if plan.defers
                for key in waits_of(plan.locked)
            ],
        )

    def _request(self, plan: Plan, attempt: NewAttempt, profile: Document, now: dt.datetime) -> RequestRow:
        """What a create is made of: its whole request or, while it waits, the values that it will be made of."""
        locked = plan.locked
        action, request = locked.candidate.action, locked.request
        if not isinstance(request, FrozenRequest):
            msg = "a create is reserved only after it was rendered"
            raise TypeError(msg)
        writeback = freeze_writeback(locked.candidate)
        vector = locked.references.vector
        if plan.defers:
            request = unfinished_request(request.method, mapped(locked.candidate))
        else:
            vector = with_targets(vector, locked.targets)
        return RequestRow(
            attempt_id=attempt.id,
            freeze=1,
            idempotency_key=create_idempotency_key(self._world.secret, attempt.link_key, attempt.ordinal),
            method=request.method,
            path=request.path,
            headers=write_headers(request.headers),
            body=request.body,
            body_digest=request.body_digest,
            values_digest=locked.values_digest,
            install_id=action.install_id,
            names=write_names(action.names),
            profile_digest=profile.digest,
            action_digest=action.document.digest,
            mapping_fingerprint=action.mapping_fingerprint,
            body_fingerprint=action.body_fingerprint,
            authority=freeze_authority(locked.candidate, now).text,
            association_vector=write_vector(vector),
            writeback=writeback.document().text if writeback is not None else None,
            created_at=now,
        )


def _rounds(candidates: Sequence[Candidate]) -> Iterator[list[Candidate]]:
    """Groups in which each link key stands once, sorted: a record that is saved twice is saved in its order."""
    waiting = list(candidates)
    while waiting:
        taken: dict[LinkKey, Candidate] = {}
        rest: list[Candidate] = []
        for candidate in waiting:
            if candidate.link_key in taken:
                rest.append(candidate)
            else:
                taken[candidate.link_key] = candidate
        yield [taken[key] for key in sorted(taken)]
        waiting = rest


def _question(candidate: Candidate, references: References) -> Question:
    return Question(
        tenant=candidate.item.tenant,
        references=tuple(entry for entry in references.vector if entry is not None),
    )


def _due_at(plan: Plan, now: dt.datetime) -> dt.datetime:
    replaced = plan.locked.open.update
    if plan.defers:
        return now + LOOK_PAUSE_MIN
    return now if replaced is None else max(now, replaced.not_before)


def _as_due(attempt: NewAttempt) -> DueRow:
    """A create that this transaction has just inserted, as what a hold is set on."""
    return DueRow(
        id=attempt.id,
        link_key=attempt.link_key,
        tenant=attempt.tenant,
        operation=attempt.operation,
        status=AttemptStatus.PENDING,
        hold_code=None,
        claim_count=0,
        expires_at=attempt.expires_at,
        row_version=1,
    )


def _is_recovering(deployment: Deployment, link: LinkRow | None) -> bool:
    """Whether nobody vouched for this database yet; after a confirmation that matters only where a create follows."""
    has_link = link is not None and link.status in USABLE_LINKS
    return deployment.mode != "running" or (deployment.uncleared_since is not None and not has_link)


def _identity(candidate: Candidate) -> SlotIdentity:
    owner = candidate.action.slots
    return SlotIdentity(
        link_key=candidate.link_key,
        tenant=owner.tenant,
        connector_owner_key=owner.connector_owner_key,
        action_slot_id=owner.action_slot_id,
        destination_slot_id=owner.destination_slot_id,
        source_object=owner.source_object,
        source_record_id=candidate.item.ref.record_id,
    )
