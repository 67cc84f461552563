"""What an action's associations put into its requests, and the vector that says what they referred to.

A vector has one entry for each association of the action, in the order of the pack, and `None` where the record refers
to nothing. It is frozen at save with the other records' local ids; the claim that completes a request freezes it again
with their remote ids. Everything here is computed; nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from pushlink.errors import Code
from pushlink.protocol.association_contracts import CARRIED_BY, Association, Mode
from pushlink.protocol.contracts import ActionContract
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.jsontext import Json
from pushlink.protocol.placeholders import Unfilled, Variables, fill
from pushlink.protocol.snapshots import Document, LinkKey, freeze, thaw

Carrier: TypeAlias = Literal["create", "update"]

#: The remote id of the other record by the association's name; `None` where the record refers to nothing.
RemoteIds: TypeAlias = Mapping[str, str | None]

#: What stands for a remote id while nobody knows it: a request that is rendered with it is judged, never sent.
STAND_IN: Final = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One entry of a vector: which record is meant and, once that is known, its link and remote id."""

    name: str
    mode: Mode
    source_object: str
    record_id: str
    action_slot_id: str
    link_key: LinkKey
    link_id: str | None = None
    remote_id: str | None = None

    def resolved(self, *, link_id: str, remote_id: str) -> Reference:
        """The same reference with the remote record that it was found to mean."""
        return replace(self, link_id=link_id, remote_id=remote_id)


#: One entry for each association of the action, in its order.
Vector: TypeAlias = tuple[Reference | None, ...]


def vector_document(vector: Vector) -> Document:
    """The frozen form, kind `associations`."""
    return freeze("associations", {"entries": [None if entry is None else _written(entry) for entry in vector]})


def read_vector(text: str | None) -> Vector:
    """Read a frozen vector; an attempt of before associations, or of an action without any, has an empty one."""
    if text is None or text == NO_VECTOR:
        return ()
    entries = thaw("associations", text)["entries"]
    if not isinstance(entries, list):
        msg = "a frozen vector has entries"
        raise TypeError(msg)
    return tuple(None if entry is None else Reference(**entry) for entry in entries)


#: How a request says that its action has no associations.
NO_VECTOR: Final = "[]"


def write_vector(vector: Vector) -> str:
    """What a row keeps of a vector."""
    return vector_document(vector).text if vector else NO_VECTOR


def association_fields(action: ActionContract) -> tuple[str, ...]:
    """The source fields that hold references, once each."""
    return tuple(dict.fromkeys(association.source for association in action.associations))


def carried_by(vector: Iterable[Reference | None], carrier: Carrier) -> Iterator[Reference]:
    """The references whose remote id one request carries."""
    return (entry for entry in vector if entry is not None and carrier in CARRIED_BY[entry.mode])


def remote_ids(vector: Iterable[Reference | None], action: ActionContract, *, stand_in: str | None = None) -> RemoteIds:
    """Names and remote ids of everything that a vector refers to; what is not known yet is the stand-in."""
    known = {entry.name: entry.remote_id or stand_in for entry in vector if entry is not None}
    return {association.name: known.get(association.name) for association in action.associations}


def variables_of(action: ActionContract, carrier: Carrier, ids: RemoteIds) -> Variables:
    """The variables that one request's path, query and merged values may name."""
    return {each.name: ids.get(each.name) for each in _carried(action, carrier)}


def placed_values(action: ActionContract, carrier: Carrier, ids: RemoteIds) -> list[tuple[str, Json]] | RenderFailure:
    """Where in the body the other records' ids stand, and as what."""
    placed: list[tuple[str, Json]] = []
    for association in _carried(action, carrier):
        if association.target is None:
            continue
        text = ids.get(association.name)
        if text is None:
            if association.clear == "null":
                placed.append((association.target, None))
            continue
        value = _shaped(association, text)
        if isinstance(value, Unfilled):
            return RenderFailure(
                code=Code.VALUE_UNSENDABLE,
                message=f"The remote id of {association.name} cannot be sent: {value.problem}.",
                evidence={"association": association.name},
            )
        placed.append((association.target, value))
    return placed


def missing_in_route(action: ActionContract, carrier: Carrier, names: Iterable[str], ids: RemoteIds) -> str | None:
    """The first association that a route names and the record does not have."""
    own = {association.name for association in _carried(action, carrier)}
    return next((name for name in names if name in own and ids.get(name) is None), None)


def _carried(action: ActionContract, carrier: Carrier) -> list[Association]:
    return [association for association in action.associations if carrier in CARRIED_BY[association.mode]]


def _shaped(association: Association, text: str) -> Json | Unfilled:
    if association.value is None:
        return text
    return fill(association.value, {association.name: text})


def _written(entry: Reference) -> dict[str, object]:
    return {name: getattr(entry, name) for name in entry.__slots__ if getattr(entry, name) is not None}


def find_cycle(edges: Mapping[LinkKey, Sequence[LinkKey]], start: LinkKey) -> tuple[LinkKey, ...] | None:
    """The way from a key back to itself along `edges` (who waits for whom), the shortest one; `None` without one."""
    came_from: dict[LinkKey, LinkKey] = {}
    waiting = [start]
    for key in waiting:
        for target in edges.get(key, ()):
            if target == start:
                way = [key]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return tuple(reversed(way))
            if target not in came_from:
                came_from[target] = key
                waiting.append(target)
    return None


def read_called(text: str | None) -> dict[str, str]:
    """What calls of their own have told the remote, or had refused: the other record's local id by association."""
    if text is None:
        return {}
    return {str(name): str(record_id) for name, record_id in thaw("called", text).items()}


def write_called(called: Mapping[str, str]) -> str:
    """The inverse of `read_called`."""
    return freeze("called", dict(called)).text


def due_call(vector: Iterable[Reference | None], called: Mapping[str, str]) -> Reference | None:
    """The first reference whose call of its own was not made yet, or was made for another record."""
    return next(
        (
            entry
            for entry in vector
            if entry is not None and entry.mode == "call_after" and called.get(entry.name) != entry.record_id
        ),
        None,
    )


def is_only_updated(vector: Iterable[Reference | None]) -> bool:
    """Whether a create leaves something for an update to say."""
    return any(entry is not None and entry.mode == "update_only" for entry in vector)
