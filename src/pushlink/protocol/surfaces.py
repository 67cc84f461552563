"""The surfaces that may drift, and which one every field of a pack belongs to.

The map is total: a test walks the contracts and fails on a field without a row, and at run time such a field is the
surface `unmapped`, which refuses. The same map says what each fingerprint covers, so that a field cannot drift without
a verdict. Fields are written as packs spell them; `[]` stands for every element of a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, get_args, get_origin

from pydantic import BaseModel

from pushlink.protocol.contracts import ActionContract, Condition, Contract, Encode, ProfileContract


class Surface(StrEnum):
    """What may differ between the time of a snapshot and now, in the order of the drift matrix."""

    FLOW_VERSION = "flow_version"
    FLOW_ACTION_NAME = "flow_action_name"
    ACTION_SLOT = "action_slot"
    NAMESPACE = "namespace"
    NAMESPACE_AND_MORE = "namespace_and_more"
    OWNER_MISSING = "owner_missing"
    OWNER_CHANGED = "owner_changed"
    PACK_INSTALL = "pack_install"
    PROFILE_NAME = "profile_name"
    PROFILE_INACTIVE = "profile_inactive"
    PROFILE_RECREATED = "profile_recreated"
    CREDENTIAL_REF = "credential_ref"
    ENDPOINT = "endpoint"
    CREDENTIAL_GENERATION = "credential_generation"
    RETRY_POLICY = "retry_policy"
    MAPPING = "mapping"
    BODY = "body"
    PERMISSION = "permission"
    USER_DEACTIVATED = "user_deactivated"
    CREATE_PATH = "create_path"
    UPDATE_PATH = "update_path"
    RESPONSE = "response"
    MIRROR = "mirror"
    TARGET_OBJECT_NAME = "target_object_name"
    DESTINATION = "destination"
    DESTINATION_SLOT = "destination_slot"
    IDEMPOTENCY = "idempotency"
    SOURCE_GONE_UNSENT = "source_gone_unsent"
    SOURCE_GONE_KNOWN = "source_gone_known"
    REMOTE_GONE = "remote_gone"
    REMOTE_CHANGED = "remote_changed"
    LOCATOR_CONFLICT = "locator_conflict"
    ORPHANED = "orphaned"
    UNMAPPED = "unmapped"


_S = Surface

#: Where a pack tests answers; each test there has the same parts, and a change of one is a change of how answers are
#: read. Of a throttle it is one of when something is sent again.
_CRITERIA: Final[Mapping[str, Surface]] = {
    "action.create.success.assert[]": _S.RESPONSE,
    "action.create.response.created[]": _S.RESPONSE,
    "action.create.conflict[].when[]": _S.RESPONSE,
    "action.create.followup.done[]": _S.RESPONSE,
    "action.create.followup.failed[]": _S.RESPONSE,
    "action.create.async.done[]": _S.RESPONSE,
    "action.create.async.failed[]": _S.RESPONSE,
    "action.create.idempotency.receipt[]": _S.IDEMPOTENCY,
    "action.create.idempotency.mismatch[]": _S.IDEMPOTENCY,
    "action.create.idempotency.in_flight[]": _S.IDEMPOTENCY,
    "action.create.repeat.exists[]": _S.IDEMPOTENCY,
    "action.create.lookup.done[]": _S.IDEMPOTENCY,
    "action.create.lookup.failed[]": _S.IDEMPOTENCY,
    "action.create.lookup.none[]": _S.IDEMPOTENCY,
    "action.update.success.assert[]": _S.RESPONSE,
    "action.associations[].call.success.assert[]": _S.RESPONSE,
    "action.update.precondition.on_fail[]": _S.RESPONSE,
    "action.update.deleted[]": _S.RESPONSE,
    "action.errors[].when[]": _S.RESPONSE,
    "profile.errors[].when[]": _S.RESPONSE,
    "profile.session.prefetch.expired[]": _S.RESPONSE,
    "profile.auth.token.same_account[]": _S.CREDENTIAL_REF,
    "profile.rate_limit.detect[]": _S.RETRY_POLICY,
    "profile.rate_limit.wait[].when[]": _S.RETRY_POLICY,
}
_CRITERION_PARTS: Final = ("status", "header", "pointer", "equals", "in", "regex", "absent", "present")

#: Where a pack says at which places of an answer something stands.
_EXTRACTORS: Final = (
    "action.create.response.id[]",
    "action.create.response.composite.parts[]",
    "action.create.response.candidates[]",
    "action.create.response.version[]",
    "action.create.conflict[].existing_id[]",
    "action.update.precondition.fetch.version[]",
    "action.create.followup.job[]",
    "action.create.followup.id[]",
    "action.create.async.job[]",
    "action.create.async.id[]",
    "action.update.merged.successor[]",
)
_OF_REPEATS: Final = ("repeat.existing_id[]", "lookup.job[]", "lookup.id[]")
_EXTRACTOR_PARTS: Final = ("from", "regex", "decode", "none")

#: Every field of a pack and the surface that its change is.
FIELD_ROWS: Final[Mapping[str, Surface]] = {
    **{f"{place}.{part}": surface for place, surface in _CRITERIA.items() for part in _CRITERION_PARTS},
    **{f"{place}.{part}": _S.RESPONSE for place in _EXTRACTORS for part in _EXTRACTOR_PARTS},
    **{f"action.create.{place}.{part}": _S.IDEMPOTENCY for place in _OF_REPEATS for part in _EXTRACTOR_PARTS},
    "profile.base_url": _S.ENDPOINT,
    "profile.variables": _S.ENDPOINT,
    "profile.endpoint_class": _S.ENDPOINT,
    "profile.destination_scope": _S.DESTINATION,
    "profile.credential_ref": _S.CREDENTIAL_REF,
    "profile.auth.kind": _S.CREDENTIAL_REF,
    "profile.auth.prefix": _S.CREDENTIAL_REF,
    **{
        f"profile.auth.token.{part}": _S.CREDENTIAL_REF
        for part in ("url", "grant", "client_id", "client_secret_ref", "client_auth", "scope", "audience")
    },
    "profile.auth.token.old_stays_good": _S.CREDENTIAL_REF,
    "profile.auth.token.early": _S.CREDENTIAL_REF,
    "profile.auth.in": _S.CREDENTIAL_REF,
    "profile.auth.name": _S.CREDENTIAL_REF,
    "profile.auth.username": _S.CREDENTIAL_REF,
    "profile.auth.secret_is": _S.CREDENTIAL_REF,
    "profile.headers": _S.BODY,
    **{f"profile.session.prefetch.{part}": _S.BODY for part in ("path", "query", "headers", "capture", "cookies")},
    "profile.active": _S.PROFILE_INACTIVE,
    "profile.path_characters": _S.UPDATE_PATH,
    "profile.timeouts.connect": _S.RETRY_POLICY,
    "profile.timeouts.total": _S.RETRY_POLICY,
    "profile.retry.attempts": _S.RETRY_POLICY,
    "profile.retry.backoff.base": _S.RETRY_POLICY,
    "profile.retry.backoff.cap": _S.RETRY_POLICY,
    "profile.body_bytes_max": _S.RETRY_POLICY,
    "profile.reply_bytes_max": _S.RETRY_POLICY,
    "profile.remote_processing": _S.RETRY_POLICY,
    "profile.expires_after": _S.RETRY_POLICY,
    "profile.waives.credential_ref": _S.RETRY_POLICY,
    "profile.waives.credential_generation": _S.RETRY_POLICY,
    "profile.waives.endpoint": _S.RETRY_POLICY,
    "profile.waives.update_path_same_route": _S.RETRY_POLICY,
    "action.create.method": _S.BODY,
    "action.create.path": _S.CREATE_PATH,
    "action.create.key_quoting": _S.CREATE_PATH,
    "action.create.query": _S.CREATE_PATH,
    "action.create.client_id.from": _S.CREATE_PATH,
    "action.create.client_id.format": _S.CREATE_PATH,
    "action.create.client_id.field": _S.CREATE_PATH,
    "action.create.stamp.format": _S.IDEMPOTENCY,
    "action.create.stamp.prefix": _S.IDEMPOTENCY,
    **{
        f"action.create.idempotency.{part}": _S.IDEMPOTENCY
        for part in (
            *("in", "name", "format", "quoted", "first_sent", "requires", "scope"),
            *("lifetime", "margin", "body_bytes_max", "stores"),
        )
    },
    **{f"action.create.repeat.{part}": _S.IDEMPOTENCY for part in ("kind", "lifetime", "margin")},
    **{
        f"action.create.lookup.{part}": _S.IDEMPOTENCY
        for part in (
            *("method", "path", "query", "body", "key", "status", "only", "every", "timeout", "items", "match"),
            *("consistency", "lag", "absence_is_proof", "misses_min"),
        )
    },
    **{f"profile.sandbox.{part}": _S.RETRY_POLICY for part in ("base_url", "credential_ref", "variables")},
    **{f"action.create.client_id.encode.{part}": _S.CREATE_PATH for part in Encode.model_fields},
    "action.create.headers": _S.BODY,
    "action.create.prefer": _S.BODY,
    "action.create.precondition.kind": _S.BODY,
    "action.create.precondition.query": _S.BODY,
    "action.create.body.encoding": _S.BODY,
    "action.create.body.media_type": _S.BODY,
    "action.create.body.envelope": _S.BODY,
    "action.create.body.insert_at": _S.BODY,
    "action.create.body.arrays": _S.BODY,
    "action.create.body.graphql.document": _S.BODY,
    "action.create.body.graphql.operation_name": _S.BODY,
    "action.create.body.merge": _S.BODY,
    "action.create.success.status": _S.RESPONSE,
    "action.create.response.composite.separator": _S.RESPONSE,
    "action.create.response.id_rule.canonical": _S.DESTINATION,
    "action.create.response.id_rule.pattern": _S.RESPONSE,
    "action.create.response.id_rule.length_max": _S.RESPONSE,
    "action.create.response.id_rule.mutable": _S.RESPONSE,
    "action.create.conflict[].variant": _S.RESPONSE,
    **{
        f"action.create.{name}.{part}": _S.RESPONSE
        for name in ("followup", "async")
        for part in ("method", "path", "query", "body", "key", "status", "only", "every", "timeout")
    },
    "action.create.async.accepted": _S.RESPONSE,
    "action.create.conflict[].policy": _S.RESPONSE,
    "action.update.method": _S.BODY,
    "action.update.path": _S.UPDATE_PATH,
    "action.update.key_quoting": _S.UPDATE_PATH,
    "action.update.query": _S.UPDATE_PATH,
    "action.update.headers": _S.BODY,
    "action.update.prefer": _S.BODY,
    **{
        f"action.update.precondition.{part}": _S.BODY
        for part in ("kind", "pointer", "integer", "source", "fetch.path", "fetch.query", "grows", "refetch_once")
    },
    "action.update.body.encoding": _S.BODY,
    "action.update.body.media_type": _S.BODY,
    "action.update.body.envelope": _S.BODY,
    "action.update.body.insert_at": _S.BODY,
    "action.update.body.arrays": _S.BODY,
    "action.update.body.graphql.document": _S.BODY,
    "action.update.body.graphql.operation_name": _S.BODY,
    "action.update.body.merge": _S.BODY,
    "action.update.semantics": _S.BODY,
    "action.update.idempotent": _S.IDEMPOTENCY,
    "action.update.creates_if_missing": _S.BODY,
    "action.update.success.status": _S.RESPONSE,
    "action.mappings[].source": _S.MAPPING,
    "action.mappings[].constant": _S.MAPPING,
    "action.mappings[].target": _S.MAPPING,
    "action.mappings[].encode.string": _S.MAPPING,
    "action.mappings[].encode.decimal_string": _S.MAPPING,
    "action.mappings[].encode.minor_units": _S.MAPPING,
    "action.mappings[].encode.date": _S.MAPPING,
    "action.mappings[].encode.datetime": _S.MAPPING,
    "action.mappings[].encode.zone": _S.MAPPING,
    "action.mappings[].encode.epoch": _S.MAPPING,
    "action.mappings[].encode.ms_date": _S.MAPPING,
    "action.mappings[].encode.enum_map": _S.MAPPING,
    "action.mappings[].encode.bool_map": _S.MAPPING,
    "action.mappings[].encode.join": _S.MAPPING,
    "action.mappings[].encode.json_string": _S.MAPPING,
    "action.mappings[].encode.wrap": _S.MAPPING,
    "action.mappings[].encode.lower_trim": _S.MAPPING,
    "action.mappings[].encode.md5_hex": _S.MAPPING,
    "action.mappings[].encode.truncate": _S.MAPPING,
    "action.mappings[].clear": _S.MAPPING,
    "action.mappings[].sentinel": _S.MAPPING,
    "action.mappings[].operations": _S.MAPPING,
    "action.mappings[].chars_max": _S.MAPPING,
    **{
        f"action.associations[].{part}": _S.DESTINATION
        for part in ("name", "source", "source_object", "action_slot_id", "mode", "target", "value", "clear")
    },
    **{f"action.associations[].call.{part}": _S.DESTINATION for part in ("method", "path", "query", "headers", "body")},
    "action.associations[].call.success.status": _S.RESPONSE,
    "action.associations[].gives_up_after": _S.RETRY_POLICY,
    "action.limits.body_bytes": _S.RETRY_POLICY,
    "action.limits.field_chars": _S.RETRY_POLICY,
    **{
        f"{holder}.errors[].{part}": _S.RESPONSE
        for holder in ("action", "profile")
        for part in ("on", "effect", "disposition", "wait", "because")
    },
    "profile.rate_limit.cap": _S.RETRY_POLICY,
    "profile.rate_limit.scope": _S.RETRY_POLICY,
    **{f"profile.limits.{part}": _S.RETRY_POLICY for part in ("rate", "burst", "max_concurrency")},
    **{f"profile.circuit.{part}": _S.RETRY_POLICY for part in ("failures", "window", "pause")},
    **{f"action.ordering.{part}": _S.RETRY_POLICY for part in ("serialize_per", "field")},
    **{
        f"profile.rate_limit.wait[].{part}": _S.RETRY_POLICY
        for part in ("header", "pointer", "regex", "unit", "fixed", "until")
    },
    "action.mirror.remote_id_field": _S.MIRROR,
    "action.mirror.provenance_field": _S.MIRROR,
    "action.mirror.provenance_value": _S.MIRROR,
    "when.field": _S.FLOW_VERSION,
    "when.equals": _S.FLOW_VERSION,
    "when.in": _S.FLOW_VERSION,
    "when.present": _S.FLOW_VERSION,
}

#: Where a walk of the contracts starts; each field path begins with one of these names.
ROOTS: Final[Mapping[str, type[Contract]]] = {
    "profile": ProfileContract,
    "action": ActionContract,
    "when": Condition,
}


def surface_of(path: str) -> Surface:
    """The surface of one field path; a field that no row names fails closed."""
    return FIELD_ROWS.get(path, Surface.UNMAPPED)


def field_paths(root: str, model: type[BaseModel]) -> Iterator[str]:
    """Every field of a contract and of the contracts in it, as packs spell them."""
    for name, field in model.model_fields.items():
        path = f"{root}.{field.alias or name}"
        inner = tuple(_models(field.annotation))
        for part in inner:
            yield from field_paths(path + "[]" if get_origin(field.annotation) is tuple else path, part)
        if not inner:
            yield path


def written_fields(root: str, contract: BaseModel) -> Iterator[tuple[str, str, object]]:
    """What a contract says beyond its defaults: (field path, place in this contract, JSON value).

    A default means "as if it were not written", so a field that a later release adds changes no older document.
    """
    yield from _written(root, "", contract)


def _written(path: str, place: str, contract: BaseModel) -> Iterator[tuple[str, str, object]]:
    for name, field in type(contract).model_fields.items():
        value = getattr(contract, name)
        spelling = field.alias or name
        if value == field.default:  # compared, not handed out, so it needs no copy
            continue
        if isinstance(value, BaseModel):
            yield from _written(f"{path}.{spelling}", f"{place}/{spelling}", value)
        elif isinstance(value, tuple) and any(isinstance(item, BaseModel) for item in value):
            for index, item in enumerate(value):
                yield from _written(f"{path}.{spelling}[]", f"{place}/{spelling}/{index}", item)
        else:
            dumped = contract.model_dump(mode="json", include={name})
            yield f"{path}.{spelling}", f"{place}/{spelling}", dumped[name]


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
