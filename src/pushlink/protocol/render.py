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
from typing import Final

from pushlink.errors import Code
from pushlink.protocol.body import OperationName, build_body, mappings_for
from pushlink.protocol.contracts import (
    ActionContract,
    Condition,
    CreateContract,
    ProfileContract,
    Scalar,
    UpdateContract,
)
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.headers import render_headers
from pushlink.protocol.paths import render_path
from pushlink.protocol.snapshots import FrozenRequest, SourceValue, SourceValues, digest_bytes

#: The one variable that an update path may use.
REMOTE_ID: Final = "remote_id"

_NUMBER: Final = re.compile(r"-?[0-9]{1,100}(?:\.[0-9]{1,100})?")


def render_create(
    action: ActionContract, profile: ProfileContract, values: SourceValues
) -> FrozenRequest | RenderFailure:
    """The request that creates the remote record of these values."""
    path = render_path(action.create.path, {}, base_url=profile.base_url)
    return path if isinstance(path, RenderFailure) else _request(action, "create", action.create, profile, values, path)


def render_update(
    action: ActionContract, profile: ProfileContract, values: SourceValues, remote_id: str
) -> FrozenRequest | RenderFailure:
    """The request that brings the remote record `remote_id` (as received, not canonical) to these values."""
    if action.update is None:
        return RenderFailure(code=Code.PATH_UNUSABLE, message="The action declares no update path.")
    path = update_path(action.update, profile, remote_id)
    if isinstance(path, RenderFailure):
        return path
    if action.update.semantics == "replace" and (missing := missing_fields(action, "update", values)):
        return RenderFailure(
            code=Code.FREEZE_FAILED,
            message="A full replacement needs every mapped field, or it would clear the ones that are missing.",
            evidence={"fields": list(missing)},
        )
    return _request(action, "update", action.update, profile, values, path)


def update_path(update: UpdateContract, profile: ProfileContract, remote_id: str) -> str | RenderFailure:
    """The route of an update alone; a finalization checks with it that the new id can be updated at all."""
    return render_path(
        update.path, {REMOTE_ID: remote_id}, base_url=profile.base_url, path_characters=profile.path_characters
    )


def source_fields(action: ActionContract, operation: OperationName | None = None) -> tuple[str, ...]:
    """The source fields that mappings read, in order and once each; all operations when none is named."""
    chosen = action.mappings if operation is None else mappings_for(action.mappings, operation)
    return tuple(dict.fromkeys(mapping.source for mapping in chosen if mapping.source is not None))


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
    path: str,
) -> FrozenRequest | RenderFailure:
    headers = render_headers(profile.headers, contract.headers, contract.body)
    if isinstance(headers, RenderFailure):
        return headers
    data = build_body(action.mappings, operation, contract.body, values, bytes_max=profile.body_bytes_max)
    if isinstance(data, RenderFailure):
        return data
    return FrozenRequest(
        method=contract.method.value, path=path, headers=headers, body=data, body_digest=digest_bytes(data)
    )


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
            is_number = not isinstance(wanted, bool | None) and _NUMBER.fullmatch(str(wanted))
            return bool(is_number) and Decimal(str(wanted)) == found
        case dt.datetime() | dt.date() | dt.time():
            return isinstance(wanted, str) and found.isoformat() == wanted
        case _:
            return found == wanted
