"""The id that a create gives its record itself: made before anything is sent, and read back from what was frozen.

It is made of the attempt's idempotency key, so that a repeat names the same record, or of one field, as at
remotes that name a record by a digest of its natural key. It stands in the frozen path (or is the frozen key itself),
so a verdict can be reached again from the frozen request and the stored answer alone.
"""

from __future__ import annotations

from pushlink.errors import Code
from pushlink.protocol.contracts import ActionContract, ClientId, ProfileContract
from pushlink.protocol.contracts import Mapping as MappingContract
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.paths import names_in_template, read_variable
from pushlink.protocol.placeholders import CLIENT_ID
from pushlink.protocol.remoteids import NoId, read_remote_id
from pushlink.protocol.replay import own_texts
from pushlink.protocol.snapshots import SourceValues
from pushlink.protocol.values import encode_value


def make_client_id(
    action: ActionContract, values: SourceValues, idempotency_key: str | None
) -> str | RenderFailure | None:
    """The id of the record that this create will make; `None` for an action whose remote gives the id."""
    rule = action.create.client_id
    if rule is None:
        return None
    made = _of_field(rule, values) if rule.source == "field" else _of_key(rule, idempotency_key)
    if isinstance(made, RenderFailure):
        return made
    found = read_remote_id(action, made)
    if isinstance(found, NoId):
        return _failure(rule, f"it is no id at this remote ({found.reason})")
    return made


def read_client_id(
    action: ActionContract, profile: ProfileContract, *, path: str, idempotency_key: str | None
) -> str | None:
    """The same id from the frozen request; `None` for an action whose remote gives the id."""
    create = action.create
    if create.client_id is None:
        return None
    if CLIENT_ID in names_in_template(create.path):
        known = {**profile.variables, **own_texts(create, idempotency_key)}
        return read_variable(create.path, path, CLIENT_ID, known, create.key_quoting)
    made = _of_key(create.client_id, idempotency_key) if create.client_id.source != "field" else None
    return made if isinstance(made, str) else None


def _of_key(rule: ClientId, idempotency_key: str | None) -> str | RenderFailure:
    if not idempotency_key:
        return _failure(rule, "the attempt has no key yet")
    return idempotency_key if rule.format == "uuid" else idempotency_key.replace("-", "")


def _of_field(rule: ClientId, values: SourceValues) -> str | RenderFailure:
    value = encode_value(MappingContract(source=rule.field, target="", encode=rule.encode), values)
    if isinstance(value, RenderFailure):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else _failure(rule, "the field is empty, or no text")


def _failure(rule: ClientId, problem: str) -> RenderFailure:
    return RenderFailure(
        code=Code.VALUE_UNSENDABLE,
        message=f"The record's own id cannot be made: {problem}.",
        evidence={"field": rule.field, "from": rule.source},
    )
