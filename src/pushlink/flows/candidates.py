"""The candidates of a save: one for each action that may concern each record, with what its gates need to know.

Everything here is read before a lock is taken; what decides about a create is read again under the slot's lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from pushlink.flows.world import World
from pushlink.ports import AuthorityDecision, AuthorityRequest, RecordRef
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
    denied: tuple[str, ...]  # mapped or condition fields that the user may not read
    exists: bool
    values: SourceValues | None
    mirror: Mapping[str, str | None]  # what stands in the mirror fields now


def gather(world: World, conn: sa.Connection, items: Sequence[SaveItem], catalog: ActiveCatalog) -> list[Candidate]:
    """Every candidate whose conditions hold, or cannot be judged: a denied condition field is a gate's business."""
    pairs = [
        (position, item, action)
        for position, item in enumerate(items)
        for action in catalog.actions_for(item.tenant, item.ref.source_object)
    ]
    needed = [_needed(action) for _, _, action in pairs]
    decisions = world.authority.decide_reads(
        conn,
        [
            AuthorityRequest(user_id=item.user_id, ref=item.ref, fields=fields)
            for (_, item, _), fields in zip(pairs, needed, strict=True)
        ],
    )
    readable = [_readable(decision, fields) for decision, fields in zip(decisions, needed, strict=True)]
    rows = world.records.read_records(
        conn,
        [item.ref for _, item, _ in pairs],
        [(*fields, *_mirror_fields(action)) for fields, (_, _, action) in zip(readable, pairs, strict=True)],
    )
    found = [
        _candidate(position, item, action, decision, fields, row)
        for (position, item, action), decision, fields, row in zip(pairs, decisions, needed, rows, strict=True)
    ]
    return [candidate for candidate in found if _concerns(candidate)]


def read_again(world: World, conn: sa.Connection, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The same candidates with the values of now; call it under their slots' locks."""
    needed = [_needed(c.action) for c in candidates]
    rows = world.records.read_records(
        conn,
        [c.item.ref for c in candidates],
        [(*fields, *_mirror_fields(c.action)) for c, fields in zip(candidates, needed, strict=True)],
    )
    return [
        _candidate(c.position, c.item, c.action, c.decision, fields, row)
        for c, fields, row in zip(candidates, needed, rows, strict=True)
    ]


def _candidate(
    position: int,
    item: SaveItem,
    action: ActiveAction,
    decision: AuthorityDecision | None,
    needed: tuple[str, ...],
    row: Mapping[str, SourceValue] | None,
) -> Candidate:
    readable = _readable(decision, needed)
    return Candidate(
        item=item,
        position=position,
        action=action,
        link_key=link_key(action.slots, item.ref.record_id),
        decision=decision,
        denied=tuple(field for field in needed if field not in readable),
        exists=row is not None,
        values=None if row is None else SourceValues(values={field: row[field] for field in readable}),
        mirror={} if row is None else {field: _as_text(row[field]) for field in _mirror_fields(action)},
    )


def mapped(candidate: Candidate) -> SourceValues:
    """The values that mappings read; condition fields are judged by, and never frozen."""
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
    return tuple(dict.fromkeys((*source_fields(action.contract), *conditions)))


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
