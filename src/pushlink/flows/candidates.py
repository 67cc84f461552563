"""The candidates of a save: one for each action that may concern each record, with what its gates need to know.

Everything here is read before a lock is taken; what decides about a create is read again under the slot's lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from pushlink.errors import CallerError, Code
from pushlink.flows.world import World
from pushlink.ports import AuthorityDecision, AuthorityRequest, RecordRef
from pushlink.protocol.associations import association_fields
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.identity import link_key
from pushlink.protocol.render import applies, source_fields
from pushlink.protocol.snapshots import LinkKey, SourceValue, SourceValues
from pushlink.store.active import ActiveAction, ActiveCatalog


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveItem:
    """One record that a user saved, in one tenant."""

    ref: RecordRef
    user_id: str
    tenant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One action for one record. `values` are the user's readable mapped values; `None` when the row is gone."""

    item: SaveItem
    position: int  # of the record in the save
    action: ActiveAction
    link_key: LinkKey
    decision: AuthorityDecision | None
    denied: tuple[str, ...]  # fields of mappings, references or conditions that the user may not read
    exists: bool
    values: SourceValues | None
    mirror: Mapping[str, str | None]  # what stands in the mirror fields now
    failure: RenderFailure | None = None  # the record cannot be read as the pack asks; a gate's business


def gather(world: World, conn: sa.Connection, items: Sequence[SaveItem], catalog: ActiveCatalog) -> list[Candidate]:
    """Every candidate whose conditions hold, or cannot be judged: a denied condition field is a gate's business."""
    pairs = [
        (position, item, action)
        for position, item in enumerate(items)
        for action in catalog.actions_for(item.tenant, item.ref.source_object)
    ]
    known = {name: world.records.known_fields(conn, name) for name in {item.ref.source_object for _, item, _ in pairs}}
    needed = [
        tuple(field for field in _needed(action) if field in known[item.ref.source_object]) for _, item, action in pairs
    ]
    decisions = world.authority.decide_reads(
        conn,
        [
            AuthorityRequest(user_id=item.user_id, ref=item.ref, fields=fields)
            for (_, item, _), fields in zip(pairs, needed, strict=True)
        ],
    )
    found = [
        Candidate(
            item=item,
            position=position,
            action=action,
            link_key=link_key(action.slots, item.ref.record_id),
            decision=decision,
            denied=tuple(field for field in fields if field not in _readable(decision, fields)),
            exists=True,
            values=None,
            mirror={},
            failure=_undeclared(action, known[item.ref.source_object]),
        )
        for (position, item, action), decision, fields in zip(pairs, decisions, needed, strict=True)
    ]
    return [candidate for candidate in _with_values(world, conn, found) if _concerns(candidate)]


def read_again(world: World, conn: sa.Connection, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The same candidates with the values of now; call it under their slots' locks."""
    return _with_values(world, conn, candidates)


def _with_values(world: World, conn: sa.Connection, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Read what each candidate's author may read; a value that cannot be said exactly fails its candidate alone."""
    sound = [candidate for candidate in candidates if candidate.failure is None]
    try:
        rows = iter(_read(world, conn, sound))
    except CallerError as error:
        if error.code is not Code.VALUE_UNSENDABLE:
            raise
        if len(candidates) == 1:
            failure = RenderFailure(code=error.code, message=error.message, evidence=error.evidence)
            return [replace(candidate, failure=failure) for candidate in candidates]
        return [candidate for one in candidates for candidate in _with_values(world, conn, [one])]
    return [
        candidate if candidate.failure is not None else _with_row(candidate, next(rows)) for candidate in candidates
    ]


def _read(world: World, conn: sa.Connection, candidates: Sequence[Candidate]) -> list[Mapping[str, SourceValue] | None]:
    fields = [(*_allowed(candidate), *_mirror_fields(candidate.action)) for candidate in candidates]
    return world.records.read_records(conn, [candidate.item.ref for candidate in candidates], fields)


def _with_row(candidate: Candidate, row: Mapping[str, SourceValue] | None) -> Candidate:
    if row is None:
        return replace(candidate, exists=False, values=None, mirror={})
    return replace(
        candidate,
        exists=True,
        values=SourceValues(values={field: row[field] for field in _allowed(candidate)}),
        mirror={field: _as_text(row[field]) for field in _mirror_fields(candidate.action)},
    )


def _allowed(candidate: Candidate) -> tuple[str, ...]:
    return _readable(candidate.decision, _needed(candidate.action))


def _undeclared(action: ActiveAction, known: frozenset[str]) -> RenderFailure | None:
    """A pack that names fields which the object does not have: the pack's mistake, told as a refusal."""
    unknown = sorted({*_needed(action), *_mirror_fields(action)} - known)
    if not unknown:
        return None
    return RenderFailure(
        code=Code.MAPPING_UNUSABLE,
        message=f"The pack names fields that {action.slots.source_object} does not have: {', '.join(unknown)}.",
        evidence={"unknown_fields": unknown},
    )


def mapped(candidate: Candidate) -> SourceValues:
    """The values that mappings read; fields of conditions and references are judged by, and never frozen here."""
    wanted = set(source_fields(candidate.action.contract))
    values = {} if candidate.values is None else candidate.values.values
    return SourceValues(values={name: value for name, value in values.items() if name in wanted})


def _concerns(candidate: Candidate) -> bool:
    conditions = candidate.action.conditions
    if not conditions or candidate.values is None:
        return True
    judged = {condition.field for condition in conditions}
    return bool(judged & set(candidate.denied)) or applies(conditions, candidate.values)


def _needed(action: ActiveAction) -> tuple[str, ...]:
    conditions = (condition.field for condition in action.conditions)
    return tuple(dict.fromkeys((*source_fields(action.contract), *association_fields(action.contract), *conditions)))


def _readable(decision: AuthorityDecision | None, needed: Sequence[str]) -> tuple[str, ...]:
    if decision is None or not decision.user_active or not decision.row_readable:
        return ()
    return tuple(field for field in needed if field in decision.allowed_fields)


def _mirror_fields(action: ActiveAction) -> tuple[str, ...]:
    mirror = action.contract.mirror
    if mirror is None:
        return ()
    return tuple(field for field in (mirror.remote_id_field, mirror.provenance_field) if field is not None)


def _as_text(value: SourceValue) -> str | None:
    return None if value is None else str(value)
