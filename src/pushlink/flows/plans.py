"""What a save decides with: a candidate under its slot's lock, the facts for its gates, and the outcome it comes to.

Everything here is computed from what was read; nothing is read or written. `reserve.py` gathers and writes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pushlink.errors import Code
from pushlink.flows.associations import References, with_targets
from pushlink.flows.candidates import Candidate, SaveItem, mapped
from pushlink.flows.outcomes import About, Deferred, Outcome, Queued, Refused, Reserved, Unchanged
from pushlink.protocol.associations import STAND_IN, Reference, carried_by, remote_ids, write_vector
from pushlink.protocol.drift import Hit
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.gates import BEFORE_CREATE, Facts, Refusal, first_refusal
from pushlink.protocol.preconditions import version_to_check
from pushlink.protocol.render import render_create, render_update
from pushlink.protocol.snapshots import (
    AttemptId,
    AuthoritySnapshot,
    Digest,
    Document,
    FrozenRequest,
    LinkKey,
    WritebackSnapshot,
    digest,
)
from pushlink.protocol.states import KNOWN_LANES, REPLACEABLE, USABLE_LINKS
from pushlink.protocol.waiting import Standing, Target, worst
from pushlink.store.active import ActiveCatalog, Problem
from pushlink.store.attempts import OpenAttempts
from pushlink.store.rows import LinkRow, SlotRow
from pushlink.store.slots import WantedVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """A candidate under its slot's lock, with everything that decides about it."""

    candidate: Candidate
    slot: SlotRow
    link: LinkRow | None
    open: OpenAttempts
    unresolved_slots: tuple[str, ...]
    drift: tuple[Hit, ...]
    values_digest: Digest
    generation: str
    freeze_problems: tuple[str, ...]
    request: FrozenRequest | RenderFailure | None
    recovery_mode: bool
    references: References
    targets: tuple[Target, ...]  # of all references, as they stand now
    cycle: tuple[str, ...] = ()  # records that would wait for each other, this one first

    @property
    def is_usable(self) -> bool:
        """Whether the record has a link that may be updated."""
        return self.link is not None and self.link.status in USABLE_LINKS

    @property
    def awaited(self) -> tuple[Target, ...]:
        """What a create of this record would have to wait for."""
        carried = {reference.name for reference in carried_by(self.references.vector, "create")}
        return tuple(t for t in self.targets if t.reference.name in carried and t.standing is not Standing.READY)

    @property
    def wanted_associations(self) -> str | None:
        """The vector as the slot keeps it: local ids alone."""
        return write_vector(self.references.vector) if self.references.vector else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one candidate comes to: an outcome that is final, or a version to record and what carries it."""

    locked: Locked
    outcome: Outcome | None = None
    refusal: Refusal | None = None
    creates: bool = False
    updates: bool = False

    @property
    def defers(self) -> bool:
        """Whether the create waits for another record first."""
        return self.creates and bool(self.locked.awaited)


def unresolved(items: Sequence[SaveItem], catalog: ActiveCatalog) -> Iterator[tuple[int, Outcome]]:
    """A refusal for each record that no usable action of the catalogue is for."""
    for position, item in enumerate(items):
        for problem in catalog.problems_for(item.tenant, item.ref.source_object):
            facts = _catalog_facts(problem)
            refusal = first_refusal(BEFORE_CREATE, facts)
            about = About(
                tenant=item.tenant,
                source_object=item.ref.source_object,
                record_id=item.ref.record_id,
                action=problem.action,
            )
            if refusal is not None:
                yield position, _refusal(about, refusal, None)


def _catalog_facts(problem: Problem) -> Facts:
    return replace(
        _CLEAR,
        slot_resolved=problem.slot_resolved,
        owner_resolved=problem.owner_resolved,
        destination_resolved=problem.destination_resolved,
        usable_installs=problem.usable_installs,
        mapping_problems=problem.mapping_problems,
    )


#: Facts under which every gate lets a save through; each candidate replaces what is known of it.
_CLEAR: Final = Facts(
    slot_resolved=True,
    owner_resolved=True,
    destination_resolved=True,
    authority_produced=True,
    row_readable=True,
    denied_fields=(),
    usable_installs=1,
    mapping_problems=(),
    path_problems=(),
    source_exists=True,
    link_status=None,
    slot_closed=False,
    create_status=None,
    update_ambiguous=False,
    version_refused=False,
    unresolved_slots=(),
    freeze_problems=(),
    render_failure=None,
    drift=(),
)


def early_facts(candidate: Candidate, *, recovering: bool) -> Facts:
    """What is known before any lock: authority, fields, and whether the record is there."""
    decision, action = candidate.decision, candidate.action
    return replace(
        _CLEAR,
        authority_produced=decision is not None and decision.user_active,
        row_readable=decision is not None and decision.row_readable,
        denied_fields=candidate.denied,
        usable_installs=1 if action.profile.active else 0,
        mapping_problems=() if action.contract.mappings else ("absent",),
        source_exists=candidate.exists,
        render_failure=candidate.failure,
        recovery_mode=recovering,
    )


def values_digest(candidate: Candidate, references: References) -> Digest:
    """What "the same values" means: the mapped values, exactly, under the same mapping, and whom an update names."""
    content: dict[str, object] = {
        "values": mapped(candidate).document().digest,
        "mapping": candidate.action.mapping_fingerprint,
    }
    if references.vector:
        content["associations"] = [[one.name, one.record_id] for one in carried_by(references.vector, "update")]
    return digest(content)


def render_candidate(
    candidate: Candidate,
    link: LinkRow | None,
    references: References,
    targets: Sequence[Target],
    *,
    create_key: str,
) -> FrozenRequest | RenderFailure | None:
    """The request that this save makes, an update where the link is usable; `None` when an earlier gate refuses.

    `create_key` is the idempotency key that a create reserved now would get. A remote id that is not known yet has a
    stand-in here: that request is judged, and another one is made when the id is known.
    """
    if candidate.values is None or candidate.denied:
        return None  # an earlier gate refuses
    action = candidate.action
    ids = remote_ids(with_targets(references.vector, targets), action.contract, stand_in=STAND_IN)
    if link is not None and link.status in USABLE_LINKS:
        update = action.contract.update
        version = None if update is None else version_to_check(update, link.remote_version)
        return render_update(
            action.contract,
            action.profile,
            mapped(candidate),
            link.remote_id,
            remote_version=version,
            associated=ids,
        )
    return render_create(action.contract, action.profile, mapped(candidate), idempotency_key=create_key, associated=ids)


def missing_associations(locked: Locked) -> tuple[str, ...]:
    """References without a record, without a remote record for good, or without one where only updates carry it."""
    found = [target for target in locked.targets if target.standing is not Standing.READY]
    lost = [target.reference.name for target in found if target.standing is Standing.MOVED]
    late = [target.reference.name for target in found if target.reference.mode == "update_only"]
    return tuple(dict.fromkeys((*locked.references.missing, *lost, *late)))


def missing_evidence(locked: Locked) -> tuple[dict[str, object], ...]:
    """The same for people, with the record that is meant where there is one."""
    names = set(missing_associations(locked))
    return tuple(target.evidence() for target in locked.targets if target.reference.name in names)


def waits_of(locked: Locked) -> list[LinkKey]:
    """Whom a create of this record would wait for."""
    return [target.reference.link_key for target in locked.awaited]


def named(references: Sequence[Reference | None], key: LinkKey) -> str:
    """The record that a key stands for, in words, as far as the references tell."""
    found = next((one for one in references if one is not None and one.link_key == key), None)
    return key if found is None else f"{found.source_object} {found.record_id}"


def stop_of(locked: Locked) -> Target | None:
    """The target that decides how a deferred create is held."""
    return worst(locked.awaited)


def freeze_authority(candidate: Candidate, now: dt.datetime) -> Document:
    """The author's authority as it was decided, frozen."""
    decision = candidate.decision
    return AuthoritySnapshot(
        user_id=candidate.item.user_id,
        source_object=candidate.item.ref.source_object,
        source_record_id=candidate.item.ref.record_id,
        allowed_fields=decision.allowed_fields if decision is not None else (),
        decided_at=now,
        policy_digest=decision.policy_digest if decision is not None else "",
        mapping_fingerprint=candidate.action.mapping_fingerprint,
    ).document()


def freeze_writeback(candidate: Candidate) -> WritebackSnapshot | None:
    """The mirror of a create, with what stands in its fields now; `None` without a mirror."""
    mirror = candidate.action.contract.mirror
    if mirror is None:
        return None
    field = mirror.provenance_field
    return WritebackSnapshot(
        source_object=candidate.item.ref.source_object,
        source_record_id=candidate.item.ref.record_id,
        remote_id_field=mirror.remote_id_field,
        provenance_field=field,
        provenance_value=mirror.provenance_value or candidate.action.names.namespace,
        expected_remote_id=candidate.mirror.get(mirror.remote_id_field),
        expected_provenance=candidate.mirror.get(field) if field is not None else None,
    )


def is_carried(locked: Locked) -> bool:
    """Whether the wanted version was acknowledged, or an open update brings it; a call of its own brings nothing."""
    slot, update = locked.slot, locked.open.update
    brings = update is not None and update.association is None
    return brings or slot.acknowledged_version >= slot.wanted_version


def waiting(locked: Locked, refusal: Refusal) -> Outcome | None:
    """The same values are wanted already and an unfinished create will bring them: that is no refusal."""
    if refusal.code is not Code.CREATE_ACTIVE:
        return None
    return Unchanged(about=about_of(locked.candidate), version=locked.slot.wanted_version)


def outcome_of(plan: Plan, version: WantedVersion, attempt: AttemptId | None) -> Outcome:
    """What a recorded version came to."""
    about = about_of(plan.locked.candidate)
    refusal = plan.refusal
    if plan.defers and attempt is not None:
        return Deferred(
            about=about,
            attempt_id=attempt,
            ordinal=version.ordinal,
            version=version.version,
            waits_for=tuple(waits_of(plan.locked)),
        )
    if plan.creates and attempt is not None:
        return Reserved(about=about, attempt_id=attempt, ordinal=version.ordinal, version=version.version)
    if refusal is None or refusal.code in (Code.CREATE_ACTIVE, Code.UPDATE_AMBIGUOUS):
        open_update = plan.locked.open.update
        carrier = attempt or (open_update.id if open_update is not None else None)
        return Queued(
            about=about,
            version=version.version,
            attempt_id=carrier,
            waits_for=refusal.code if refusal is not None else Code.CREATE_ACTIVE if plan.creates else None,
        )
    return replace(_refusal(about, refusal, None), wanted_version=version.version)


def about_of(candidate: Candidate) -> About:
    """Which record and action a candidate is."""
    return About(
        tenant=candidate.item.tenant,
        source_object=candidate.item.ref.source_object,
        record_id=candidate.item.ref.record_id,
        action=candidate.action.names.action,
        link_key=candidate.link_key,
    )


def refused(candidate: Candidate, refusal: Refusal, slot: SlotRow | None) -> Refused:
    """A gate's refusal, told for this candidate."""
    return _refusal(about_of(candidate), refusal, slot)


def _refusal(about: About, refusal: Refusal, slot: SlotRow | None) -> Refused:
    return Refused(
        about=about,
        code=refusal.code,
        message=refusal.message,
        evidence=refusal.evidence,
        next_verbs=refusal.next_verbs,
        wanted_version=slot.wanted_version if slot is not None else None,
    )


def waits_for_update(locked: Locked) -> bool:
    """Whether the open update will carry the newer version by itself, or has to be settled before another is made."""
    update = locked.open.update
    if update is None:
        return False
    never_rendered = update.freeze_count == 0 and update.association is None
    is_stranded = update.dispatch_lane not in KNOWN_LANES  # of a newer release; nothing here touches it (D-39)
    return never_rendered or is_stranded or update.in_doubt or update.status not in REPLACEABLE
