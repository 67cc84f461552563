"""What a pack declares about references to other records: which action owns the other one, and where its id goes.

An association is named, and its name is a variable of the requests that it belongs to. Its place in the list is its
place in every vector that is frozen, so the list of an action only ever grows at its end.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from pushlink.protocol.declared import Contract, DurationMs, PlainJson, Pointer
from pushlink.protocol.request_contracts import Method
from pushlink.protocol.response_contracts import Success

Mode: TypeAlias = Literal["create_inline", "foreign_key", "update_only", "call_after"]

#: Which requests carry the other record's id, by mode. A call after the create is a request of its own.
CARRIED_BY: Final[dict[Mode, frozenset[str]]] = {
    "create_inline": frozenset({"create"}),
    "foreign_key": frozenset({"create", "update"}),
    "update_only": frozenset({"update"}),
    "call_after": frozenset(),
}


class AssociationCall(Contract):
    """The request that sets an association once both records are there: a second effect with a checkpoint of its own.

    `{remote_id}` is the record's own id, the association's name the other record's; both also in `body`.
    """

    method: Method = Method.PUT
    path: str
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: PlainJson = None
    success: Success = Success(status=(200, 201, 202, 204))


class Association(Contract):
    """A field of the record that refers to another record, and what becomes of that record's remote id."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
    source: str
    source_object: str
    action_slot_id: str
    mode: Mode
    target: Pointer | None = None
    value: PlainJson = None  # what stands at the target, with the association's name as a placeholder in it
    clear: Literal["null", "omit"] = "null"
    call: AssociationCall | None = None
    gives_up_after_ms: Annotated[DurationMs | None, Field(alias="gives_up_after")] = None
