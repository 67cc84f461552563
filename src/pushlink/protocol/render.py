"""From a pack's action and the values of one save to the request that will be sent, byte for byte.

This is the whole of rendering: route, headers, body, in that order, each in its own module. It is a pure function, so
that the reservation freezes what a retry sends years later. A failure is a value with a stable code and without any
source value; a gate turns it into a refusal.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from pushlink.errors import Code
from pushlink.protocol.associations import RemoteIds, missing_in_route, placed_values, variables_of
from pushlink.protocol.body import OperationName, build_body, mappings_for
from pushlink.protocol.client_ids import make_client_id
from pushlink.protocol.contracts import (
    ActionContract,
    Condition,
    CreateContract,
    Fetch,
    ProfileContract,
    Scalar,
    UpdateContract,
)
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.headers import render_headers
from pushlink.protocol.keys import key_header, with_key
from pushlink.protocol.paths import names_in_template, render_path, route_text
from pushlink.protocol.placeholders import CLIENT_ID, LINK_VERSION, REMOTE_ID, Variables, name_of
from pushlink.protocol.preconditions import precondition_headers, with_version
from pushlink.protocol.replay import own_texts
from pushlink.protocol.snapshots import FrozenRequest, SourceValue, SourceValues, digest_bytes

_NO_IDS: Final[RemoteIds] = MappingProxyType({})
_NUMBER: Final = re.compile(r"-?[0-9]{1,100}(?:\.[0-9]{1,100})?")


def render_create(
    action: ActionContract,
    profile: ProfileContract,
    values: SourceValues,
    *,
    idempotency_key: str | None = None,
    associated: RemoteIds = _NO_IDS,
) -> FrozenRequest | RenderFailure:
    """The request that creates the remote record of these values; the key is needed where the record's id is made.

    `associated` has the remote ids of the records that this one refers to.
    """
    own = make_client_id(action, values, idempotency_key)
    if isinstance(own, RenderFailure):
        return own
    variables = {**profile.variables, **own_texts(action.create, idempotency_key)}
    if own is not None:
        variables[CLIENT_ID] = own
    return _request(action, "create", with_key(action.create), profile, values, variables, associated)


def render_update(
    action: ActionContract,
    profile: ProfileContract,
    values: SourceValues,
    remote_id: str,
    *,
    remote_version: str | None = None,
    associated: RemoteIds = _NO_IDS,
) -> FrozenRequest | RenderFailure:
    """The request that brings the remote record `remote_id` (as received, not canonical) to these values.

    `remote_version` is the token that the remote gave for the record as it was seen last, if it gave one.
    """
    if action.update is None:
        return RenderFailure(code=Code.PATH_UNUSABLE, message="The action declares no update path.")
    if action.update.semantics == "replace" and (missing := missing_fields(action, "update", values)):
        return RenderFailure(
            code=Code.FREEZE_FAILED,
            message="A full replacement needs every mapped field, or it would clear the ones that are missing.",
            evidence={"fields": list(missing)},
        )
    of_link = _of_link(profile, remote_id, remote_version)
    return _request(action, "update", action.update, profile, values, of_link, associated)


def update_path(
    update: UpdateContract, profile: ProfileContract, remote_id: str, *, remote_version: str | None = None
) -> str | RenderFailure:
    """The route of an update alone; a finalization checks with it that the new id can be updated at all."""
    return _path(update, profile, _of_link(profile, remote_id, remote_version))


def update_route(action: ActionContract, profile: ProfileContract) -> str:
    """The route of updates as one text to compare; empty for an action without updates."""
    update = action.update
    if update is None:
        return ""
    return route_text(update.path, variables=profile.variables, query=update.query, quoting=update.key_quoting)


def render_fetch(
    action: ActionContract, profile: ProfileContract, remote_id: str, *, associated: RemoteIds = _NO_IDS
) -> str | RenderFailure:
    """The route on which the linked record is read before an update: the update's own, unless the pack says another."""
    if action.update is None or action.update.precondition is None:
        return RenderFailure(code=Code.PATH_UNUSABLE, message="The action reads no record before an update.")
    return render_read(action, profile, remote_id, associated=associated)


def render_read(
    action: ActionContract, profile: ProfileContract, remote_id: str, *, associated: RemoteIds = _NO_IDS
) -> str | RenderFailure:
    """The route on which one remote record is read: as a precondition declares it, or else the update's own."""
    update = action.update
    condition = None if update is None else update.precondition
    fetch = Fetch() if condition is None else condition.fetch
    own = {} if update is None else {n: text for n, text in update.query.items() if name_of(text) != LINK_VERSION}
    query = fetch.query if fetch.query or fetch.path is not None else own
    path = fetch.path or (update.path if update is not None else "")
    is_named = f"{{{REMOTE_ID}}}" in path or any(name_of(text) == REMOTE_ID for text in query.values())
    if update is None or not is_named:
        return RenderFailure(
            code=Code.PATH_UNUSABLE, message="The action declares no route on which one record can be read."
        )
    return render_path(
        path,
        {**profile.variables, REMOTE_ID: remote_id, **variables_of(action, "update", associated)},
        base_url=profile.base_url,
        path_characters=profile.path_characters,
        query=query,
        quoting=update.key_quoting,
    )


def source_fields(action: ActionContract, operation: OperationName | None = None) -> tuple[str, ...]:
    """The source fields that a request reads, in order and once each; all operations when none is named."""
    chosen = action.mappings if operation is None else mappings_for(action.mappings, operation)
    read = [mapping.source for mapping in chosen if mapping.source is not None]
    own = action.create.client_id
    if own is not None and own.field is not None and operation != "update":
        read.append(own.field)
    if action.ordering is not None and action.ordering.field is not None:
        read.append(action.ordering.field)
    return tuple(dict.fromkeys(read))


def missing_fields(action: ActionContract, operation: OperationName, values: SourceValues) -> tuple[str, ...]:
    """The mapped fields that were not read; null is read, absent is not."""
    return tuple(field for field in source_fields(action, operation) if field not in values.values)


def applies(conditions: Iterable[Condition], values: SourceValues) -> bool:
    """Whether an action is for a record: all of its conditions hold. One without a written part never holds."""
    return all(_holds(condition, values) for condition in conditions)


def _request(
    action: ActionContract,
    operation: OperationName,
    contract: CreateContract | UpdateContract,
    profile: ProfileContract,
    values: SourceValues,
    own: Variables,
    associated: RemoteIds,
) -> FrozenRequest | RenderFailure:
    named = (*names_in_template(contract.path), *map(name_of, contract.query.values()))
    if missing := missing_in_route(action, operation, (name for name in named if name is not None), associated):
        return RenderFailure(
            code=Code.FREEZE_FAILED,
            message=f"The route needs the remote id of {missing}, and the record refers to none.",
            evidence={"association": missing},
        )
    variables = {**own, **variables_of(action, operation, associated)}
    path = _path(contract, profile, variables)
    if isinstance(path, RenderFailure):
        return path
    computed = _computed(contract, variables)
    if isinstance(computed, RenderFailure):
        return computed
    headers = render_headers(profile, contract.headers, contract.body, computed)
    if isinstance(headers, RenderFailure):
        return headers
    placed = placed_values(action, operation, associated)
    if isinstance(placed, RenderFailure):
        return placed
    data = build_body(
        action.mappings,
        operation,
        with_version(contract),
        values,
        bytes_max=profile.body_bytes_max,
        limits=action.limits,
        variables=variables,
        placed=placed,
    )
    if isinstance(data, RenderFailure):
        return data
    return FrozenRequest(
        method=contract.method.value, path=path, headers=headers, body=data, body_digest=digest_bytes(data)
    )


def _path(
    contract: CreateContract | UpdateContract, profile: ProfileContract, variables: Variables
) -> str | RenderFailure:
    return render_path(
        contract.path,
        variables,
        base_url=profile.base_url,
        path_characters=profile.path_characters,
        query=contract.query,
        quoting=contract.key_quoting,
    )


def _computed(contract: CreateContract | UpdateContract, variables: Variables) -> dict[str, str] | RenderFailure:
    """The headers that are made of other declarations."""
    prefer = {"Prefer": ", ".join(contract.prefer)} if contract.prefer else {}
    condition = precondition_headers(contract, variables)
    key = key_header(contract, variables)
    return condition if isinstance(condition, RenderFailure) else {**prefer, **key, **condition}


def _of_link(profile: ProfileContract, remote_id: str, remote_version: str | None) -> Variables:
    return {**profile.variables, REMOTE_ID: remote_id, LINK_VERSION: remote_version}


def _holds(condition: Condition, values: SourceValues) -> bool:
    found = values.values.get(condition.field)
    parts = []
    if condition.present is not None:
        parts.append((found is not None) is condition.present)
    if condition.equals is not None:
        parts.append(_equals(found, condition.equals))
    if condition.one_of is not None:
        is_read = condition.field in values.values
        parts.append(is_read and any(_equals(found, wanted) for wanted in condition.one_of))
    return bool(parts) and all(parts)


def _equals(found: SourceValue, wanted: Scalar) -> bool:
    """Exact equality: a number with a number or its digits, a time with its ISO text, a text with a text."""
    match found:
        case bool() | None:
            return found is wanted
        case Decimal() if not found.is_finite():
            return False
        case int() | Decimal():
            return _NUMBER.fullmatch(str(wanted)) is not None and Decimal(str(wanted)) == found
        case dt.datetime() | dt.date() | dt.time():
            return found.isoformat() == wanted
        case _:
            return found == wanted
