"""The call that sets an association after the create: its request, and the contract that its answer is read by.

To the rest of the protocol it is an update of the record that has another request: it has a checkpoint of its own, an
unknown outcome parks it alone, and nothing of it ever reopens the create.
"""

from __future__ import annotations

from pushlink.errors import Code
from pushlink.protocol import jsontext
from pushlink.protocol.association_contracts import Association, AssociationCall
from pushlink.protocol.contracts import ActionContract, Body, ProfileContract, Response, UpdateContract
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.headers import render_headers
from pushlink.protocol.paths import render_path
from pushlink.protocol.placeholders import REMOTE_ID, Unfilled, fill
from pushlink.protocol.snapshots import FrozenRequest, digest_bytes


def find_call(action: ActionContract, name: str) -> AssociationCall | None:
    """The declared call of one association; `None` where the action declares none."""
    found: Association | None = next((each for each in action.associations if each.name == name), None)
    return None if found is None else found.call


def call_contract(action: ActionContract, name: str) -> ActionContract | None:
    """The action as its call is read: an update with the call's request, whose answer names no record."""
    call = find_call(action, name)
    if call is None:
        return None
    update = UpdateContract(
        method=call.method, path=call.path, query=call.query, headers=call.headers, success=call.success
    )
    create = action.create.model_copy(update={"response": Response()})
    return action.model_copy(update={"create": create, "update": update, "mappings": (), "associations": ()})


def render_call(
    action: ActionContract, profile: ProfileContract, name: str, remote_id: str, *, other_id: str | None
) -> FrozenRequest | RenderFailure:
    """The request that tells the remote that the record `remote_id` refers to `other_id`, by the named association."""
    call = find_call(action, name)
    if call is None or other_id is None:
        return RenderFailure(code=Code.PATH_UNUSABLE, message="The action declares no call for this association.")
    variables = {**profile.variables, REMOTE_ID: remote_id, name: other_id}
    path = render_path(
        call.path,
        variables,
        base_url=profile.base_url,
        path_characters=profile.path_characters,
        query=call.query,
    )
    if isinstance(path, RenderFailure):
        return path
    headers = render_headers(profile, call.headers, Body())
    if isinstance(headers, RenderFailure):
        return headers
    data = b""
    if call.body is not None:
        filled = fill(call.body, variables)
        if isinstance(filled, Unfilled):
            message = f"{filled.name} cannot be sent: {filled.problem}."
            return RenderFailure(code=Code.VALUE_UNSENDABLE, message=message)
        data = jsontext.write(filled).encode()
    else:
        headers = tuple(pair for pair in headers if pair[0] != "Content-Type")
    return FrozenRequest(
        method=call.method.value, path=path, headers=headers, body=data, body_digest=digest_bytes(data)
    )
