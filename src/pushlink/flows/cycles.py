"""Circles of records that would wait for each other, found where they would be made: at the save (D-30, DL-17)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

import sqlalchemy as sa

from pushlink.flows.plans import Locked, waits_of
from pushlink.protocol.associations import find_cycle
from pushlink.protocol.snapshots import LinkKey
from pushlink.store import slots
from pushlink.store.associations import read_edges


def found_cycles(conn: sa.Connection, items: Sequence[Locked]) -> list[Locked]:
    """The same records, those with their circle that would wait for themselves; a usual save reads nothing here."""
    own = {item.slot.link_key: waits_of(item) for item in items if _is_new(item) and item.awaited}
    if not own:
        return list(items)
    targets = sorted({key for keys in own.values() for key in keys})
    edges = {**read_edges(conn, targets), **own}
    if not has_cycle(edges):
        return list(items)
    found = {key: cycle for key in own if (cycle := find_cycle(edges, key)) is not None}
    words = describe(conn, {key for cycle in found.values() for key in cycle})
    return [
        replace(item, cycle=tuple(words[key] for key in found[item.slot.link_key]))
        if item.slot.link_key in found
        else item
        for item in items
    ]


def has_cycle(edges: Mapping[LinkKey, Sequence[LinkKey]]) -> bool:
    """Whether anybody waits for himself."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError:
        return True
    return False


def describe(conn: sa.Connection, keys: set[LinkKey]) -> dict[LinkKey, str]:
    """Each key as its record, for people; a key that nobody has saved yet stands for itself."""
    ordered = sorted(keys)
    known = dict(zip(ordered, slots.read_identities(conn, ordered), strict=True))
    return {
        key: key if slot is None else f"{slot.source_object} {slot.source_record_id}" for key, slot in known.items()
    }


def _is_new(item: Locked) -> bool:
    """Whether a create of this record may be reserved now; one that is there already stands among the edges."""
    return item.link is None and item.open.create is None
