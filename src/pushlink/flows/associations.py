"""References of records to other records: which ones a save means, and how it stands with each of them.

A save names the other record by the local id that stands in the source field, under the same user's authority. Whether
that record has its remote record is read from links and attempts, for many references at once.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from pushlink.errors import CallerError
from pushlink.flows.candidates import Candidate
from pushlink.flows.world import World
from pushlink.ports import AuthorityRequest, RecordRef
from pushlink.protocol.association_contracts import Association
from pushlink.protocol.associations import Reference, Vector
from pushlink.protocol.identity import link_key
from pushlink.protocol.snapshots import LinkKey, SourceValue
from pushlink.protocol.waiting import Target, TargetFacts, judge_target
from pushlink.store import attempts, links
from pushlink.store.active import ActiveCatalog
from pushlink.store.associations import read_left_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """What one candidate refers to, and the associations whose record is not there or may not be read."""

    vector: Vector = ()
    missing: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Meant:
    """One association of one candidate that is not blank: the record that it means, if it means one."""

    association: Association
    ref: RecordRef | None
    key: LinkKey | None


def refer(
    world: World, conn: sa.Connection, candidates: Sequence[Candidate], catalog: ActiveCatalog
) -> list[References]:
    """The references of each candidate, by the values that were read of it; targets are authorized here (AU-04)."""
    meant = [_meant(world, candidate, catalog) for candidate in candidates]
    asked = {
        (candidate.item.user_id, one.ref)
        for candidate, ones in zip(candidates, meant, strict=True)
        for one in ones
        if one is not None and one.ref is not None
    }
    ordered = sorted(asked, key=lambda pair: (pair[0], pair[1].source_object, pair[1].record_id))
    decisions = world.authority.decide_reads(
        conn, [AuthorityRequest(user_id=user, ref=ref, fields=()) for user, ref in ordered]
    )
    readable = {
        pair
        for pair, decision in zip(ordered, decisions, strict=True)
        if decision is not None and decision.user_active and decision.row_readable
    }
    refs = sorted({ref for _, ref in readable}, key=lambda ref: (ref.source_object, ref.record_id))
    there = {ref for ref, is_there in zip(refs, world.records.records_exist(conn, refs), strict=True) if is_there}
    return [
        _references(ones, candidate.item.user_id, readable, there)
        for candidate, ones in zip(candidates, meant, strict=True)
    ]


def _meant(world: World, candidate: Candidate, catalog: ActiveCatalog) -> list[_Meant | None]:
    values = {} if candidate.values is None else candidate.values.values
    return [
        None if _is_blank(value) else _one_meant(world, candidate, association, value, catalog)
        for association in candidate.action.contract.associations
        for value in [values.get(association.source)]
    ]


def _one_meant(
    world: World, candidate: Candidate, association: Association, value: SourceValue, catalog: ActiveCatalog
) -> _Meant:
    own = candidate.action.slots
    target = catalog.find_action(own.tenant, own.connector_owner_key, association.action_slot_id)
    try:
        record_id = world.records.canonical_id(association.source_object, value)
    except CallerError:
        return _Meant(association, None, None)  # no id of that object, so there is no such record
    ref = RecordRef(source_object=association.source_object, record_id=record_id)
    return _Meant(association, ref, None if target is None else link_key(target.slots, record_id))


def _references(
    ones: Sequence[_Meant | None], user_id: str, readable: set[tuple[str, RecordRef]], there: set[RecordRef]
) -> References:
    vector: list[Reference | None] = []
    missing, denied = [], []
    for one in ones:
        if one is None:
            vector.append(None)
            continue
        if one.ref is None or one.key is None:
            missing.append(one.association.name)
        elif (user_id, one.ref) not in readable:
            denied.append(one.association.name)
        elif one.ref not in there:
            missing.append(one.association.name)
        vector.append(
            Reference(
                name=one.association.name,
                mode=one.association.mode,
                source_object=one.association.source_object,
                record_id="" if one.ref is None else one.ref.record_id,
                action_slot_id=one.association.action_slot_id,
                link_key=one.key or LinkKey(""),
            )
        )
    return References(vector=tuple(vector), missing=tuple(missing), denied=tuple(denied))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Some references of one attempt or save, and how long it has waited for them."""

    tenant: str
    references: tuple[Reference, ...]
    waited: dt.timedelta = dt.timedelta()


def read_targets(conn: sa.Connection, questions: Sequence[Question]) -> list[tuple[Target, ...]]:
    """For each question the targets as they stand now, in its order: at most three statements for all of them."""
    keys = sorted({reference.link_key for question in questions for reference in question.references} - {""})
    found = {link.link_key: link for link in links.read_links(conn, keys) if link is not None}
    unlinked = [key for key in keys if key not in found]
    creates = {
        key: at.create
        for key, at in zip(unlinked, attempts.read_open_attempts(conn, unlinked), strict=True)
        if at.create is not None
    }
    nowhere = [
        (question.tenant, reference.source_object, reference.record_id, reference.link_key)
        for question in questions
        for reference in question.references
        if reference.link_key not in found and reference.link_key not in creates
    ]
    left = read_left_keys(conn, nowhere)

    def facts(reference: Reference) -> TargetFacts:
        link, create = found.get(reference.link_key), creates.get(reference.link_key)
        return TargetFacts(
            link_status=None if link is None else link.status,
            link_id=None if link is None else link.id,
            remote_id=None if link is None else link.remote_id,
            create_status=None if create is None else create.status,
            create_hold=None if create is None else create.hold_code,
            is_rebound=reference.link_key in left,
        )

    return [
        tuple(judge_target(reference, facts(reference), waited=question.waited) for reference in question.references)
        for question in questions
    ]


def with_targets(vector: Vector, targets: Iterable[Target]) -> Vector:
    """The vector with what is known of each target now, in its positions."""
    known = {target.reference.name: target.reference for target in targets}
    return tuple(None if entry is None else known.get(entry.name, entry) for entry in vector)


def _is_blank(value: SourceValue) -> bool:
    return value is None or value == ""
