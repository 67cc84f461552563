"""What one pack document says, as typed, frozen values: names for people, slots for identity, contracts for the wire.

A pack describes one connector: the remote it speaks to (profiles), the places records go to (destinations) and what is
pushed there (flows of actions). The slot ids and the owner key are identity and never change; every name beside them is
only shown. This module knows shapes; `lint.py` knows what makes sense, `loader.py` where a value stands in the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from pushlink.protocol.contracts import ActionContract, Condition, Contract, ProfileContract
from pushlink.protocol.declared import LATER, Pointer, Scalar, write_whole
from pushlink.protocol.snapshots import Document, Names, Slots, freeze, thaw

#: A stable id: it may be any token, but a UUID is what nobody else has chosen already.
SlotId: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,128}$")]

#: A name that people read: one line of text without control characters.
Name: TypeAlias = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,200}$")]

#: Three numbers, as in 1.4.0, and optionally a suffix such as -rc.1.
PackVersion: TypeAlias = Annotated[str, Field(pattern=r"^([0-9]{1,9}\.){2}[0-9]{1,9}([-+][0-9A-Za-z.-]{1,64})?$")]


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


#: A flow's version for people: `3`, or any one line of text. It is kept as text.
FlowVersion: TypeAlias = Annotated[Name, BeforeValidator(_as_text, json_schema_input_type=Name | int)]


class Destination(Contract):
    """A place at the remote that records go to; its slot id is part of every link's identity."""

    destination_slot_id: SlotId
    target_object: Name
    profile: Name


class ProbeCount(Contract):
    """A GET that lists what a trial made: exactly one record, however often its create was sent."""

    path: str
    query: Mapping[str, str] = {}
    items: Pointer


class Probe(Contract):
    """How a trial at a sandbox makes a record, reads it, counts it and takes it away again.

    A text of `values` holds `{nonce}` where no two trials may have the same. The requests name the record as
    `{remote_id}`, and `{stamp}` and `{nonce}` besides.
    """

    values: Mapping[str, Scalar] = {}
    read: str
    delete: str
    delete_method: Literal["DELETE", "POST"] = "DELETE"
    count: ProbeCount | None = None


class Action(ActionContract):
    """One kind of local record that owns one remote record each: the requests, the mapping, the mirror."""

    action: Name
    action_slot_id: SlotId
    source_object: Name
    destination: SlotId
    when: tuple[Condition, ...] = ()
    probe: Annotated[Probe | None, LATER] = None

    def contract(self) -> ActionContract:
        """What is frozen of an action: everything but its names, its slots and its conditions."""
        return ActionContract(**{name: getattr(self, name) for name in ActionContract.model_fields})


class Flow(Contract):
    """Actions that people see together, under one name and version."""

    flow: Name
    version: FlowVersion
    actions: Annotated[tuple[Action, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSlots:
    """The stable identity of an action at its destination, before it is installed for a tenant."""

    connector_owner_key: str
    action_slot_id: str
    destination_slot_id: str
    source_object: str

    def in_tenant(self, tenant: str) -> Slots:
        """The same slots as one tenant's install has them."""
        return Slots(
            tenant=tenant,
            connector_owner_key=self.connector_owner_key,
            action_slot_id=self.action_slot_id,
            destination_slot_id=self.destination_slot_id,
            source_object=self.source_object,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PackAction:
    """One action with all that a runtime needs of its pack: identity, names, contracts, conditions."""

    slots: ActionSlots
    names: Names
    contract: ActionContract
    profile: ProfileContract
    when: tuple[Condition, ...]
    probe: Probe | None = None


class Pack(Contract):
    """A connector as data: profiles, destinations and flows of one owner."""

    pack: Name
    version: PackVersion
    connector_owner_key: SlotId
    namespace: Name
    profiles: Annotated[dict[Name, ProfileContract], Field(min_length=1)]
    destinations: Annotated[tuple[Destination, ...], Field(min_length=1)]
    flows: Annotated[tuple[Flow, ...], Field(min_length=1)]

    def actions(self) -> tuple[PackAction, ...]:
        """All actions in the order of the document.

        Raises `KeyError` when an action names a destination, or a destination a profile, that the pack does not have:
        lint refuses such a pack before anything asks it for its actions.
        """
        destinations = {destination.destination_slot_id: destination for destination in self.destinations}
        return tuple(
            self._flatten(flow, action, destinations[action.destination])
            for flow in self.flows
            for action in flow.actions
        )

    def _flatten(self, flow: Flow, action: Action, destination: Destination) -> PackAction:
        return PackAction(
            slots=ActionSlots(
                connector_owner_key=self.connector_owner_key,
                action_slot_id=action.action_slot_id,
                destination_slot_id=destination.destination_slot_id,
                source_object=action.source_object,
            ),
            names=Names(
                namespace=self.namespace,
                flow=flow.flow,
                flow_version=flow.version,
                action=action.action,
                target_object=destination.target_object,
                profile=destination.profile,
            ),
            contract=action.contract(),
            profile=self.profiles[destination.profile],
            when=action.when,
            probe=action.probe,
        )

    def document(self) -> Document:
        """The frozen form, kind `pack`: comments, quotes and the order of keys in the file leave no trace in it."""
        return freeze("pack", write_whole(self))

    @classmethod
    def read(cls, text: str) -> Pack:
        """Read a frozen `pack` of any format up to this release's."""
        return cls.model_validate_json(json.dumps(thaw("pack", text)), by_alias=True, by_name=False)
