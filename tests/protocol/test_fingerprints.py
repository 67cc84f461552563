from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.examples import action, later_fingerprints, profile
from pushlink.protocol import (
    association_contracts,
    limit_contracts,
    replay_contracts,
    request_contracts,
    response_contracts,
)
from pushlink.protocol import contracts as contracts_module
from pushlink.protocol.contracts import Contract
from pushlink.protocol.fingerprints import (
    FINGERPRINTED,
    body_fingerprint,
    fingerprints,
    is_same_mapping,
    mapping_fingerprint,
    profile_hash,
)
from pushlink.protocol.surfaces import FIELD_ROWS, ROOTS, Surface, field_paths, surface_of, written_fields

#: Where a test on an answer stands, and where a place of an answer is named.
CRITERIA = (
    "action.create.success.assert[]",
    "action.create.response.created[]",
    "action.create.conflict[].when[]",
    "action.create.followup.done[]",
    "action.create.followup.failed[]",
    "action.create.async.done[]",
    "action.create.async.failed[]",
    "action.create.idempotency.receipt[]",
    "action.create.idempotency.mismatch[]",
    "action.create.idempotency.in_flight[]",
    "action.create.repeat.exists[]",
    "action.create.lookup.done[]",
    "action.create.lookup.failed[]",
    "action.create.lookup.none[]",
    "action.update.success.assert[]",
    "action.associations[].call.success.assert[]",
    "action.update.deleted[]",
    "action.update.precondition.on_fail[]",
    "profile.session.prefetch.expired[]",
    "profile.auth.token.same_account[]",
    "action.errors[].when[]",
    "profile.errors[].when[]",
    "profile.rate_limit.detect[]",
    "profile.rate_limit.wait[].when[]",
)
EXTRACTORS = (
    "action.create.response.id[]",
    "action.create.response.composite.parts[]",
    "action.create.response.candidates[]",
    "action.create.response.version[]",
    "action.create.conflict[].existing_id[]",
    "action.create.followup.job[]",
    "action.create.followup.id[]",
    "action.create.async.job[]",
    "action.create.async.id[]",
    "action.create.repeat.existing_id[]",
    "action.create.lookup.job[]",
    "action.create.lookup.id[]",
    "action.update.merged.successor[]",
    "action.update.precondition.fetch.version[]",
)
CRITERION = {
    "status": [409],
    "header": "X-Code",
    "pointer": "/code",
    "equals": "taken",
    "in": ["taken", 7],
    "regex": "^a$",
    "absent": True,
    "present": True,
}
EXTRACTOR = {"from": "$response.body#/other", "regex": "(.*)", "decode": "percent", "none": ["0"]}

#: Another value than the default for each field, by its path; only paths below `action` and `profile` have digests.
CHANGED: dict[str, Any] = {
    **{f"{place}.{part}": value for place in CRITERIA for part, value in CRITERION.items()},
    **{f"{place}.{part}": value for place in EXTRACTORS for part, value in EXTRACTOR.items()},
    **{
        f"{holder}.errors[].{part}": value
        for holder in ("action", "profile")
        for part, value in {
            "on": ["lookup"],
            "effect": "unknown",
            "disposition": "reconcile",
            "wait": "1m",
            "because": "another page says so",
        }.items()
    },
    "action.create.response.composite.separator": "|",
    **{
        f"action.create.{name}.{part}": value
        for name in ("followup", "async", "lookup")
        for part, value in {
            "method": "POST",
            "path": "/others",
            "query": {"a": "b"},
            "body": {"a": "b"},
            "key": "/name",
            "status": [203],
            "only": "/records",
            "every": "1m",
            "timeout": "2m",
        }.items()
    },
    "action.create.async.accepted": [200],
    "action.create.conflict[].variant": "archived",
    "action.create.conflict[].policy": "adopt_if_stamp",
    "action.create.stamp.format": "token",
    "action.create.stamp.prefix": "ours-",
    **{
        f"action.create.idempotency.{part}": value
        for part, value in {
            "in": "query",
            "name": "Request-Id",
            "format": "token",
            "quoted": True,
            "first_sent": "First-Sent",
            "requires": ["respond-async"],
            "scope": "credential",
            "lifetime": "1h",
            "margin": "2m",
            "body_bytes_max": 9,
            "stores": "2xx",
        }.items()
    },
    "action.create.repeat.kind": "upsert",
    "action.create.repeat.lifetime": "1h",
    "action.create.repeat.margin": "2m",
    **{
        f"action.create.lookup.{part}": value
        for part, value in {
            "items": "/records",
            "match": "/other",
            "consistency": "strong",
            "lag": "1m",
            "absence_is_proof": True,
            "misses_min": 2,
            "every": "2m",
        }.items()
    },
    "profile.sandbox.base_url": "https://other.example.com",
    "profile.sandbox.credential_ref": "env:OTHER",
    "profile.sandbox.variables": {"realm": "1"},
    "profile.rate_limit.cap": "1h",
    "profile.rate_limit.scope": "remote_account",
    "profile.auth.token.url": "https://other.example.com/token",
    "profile.auth.token.grant": "refresh_token",
    "profile.auth.token.client_id": "another",
    "profile.auth.token.client_secret_ref": "env:ANOTHER",
    "profile.auth.token.client_auth": "post",
    "profile.auth.token.scope": "write",
    "profile.auth.token.audience": "api",
    "profile.auth.token.old_stays_good": True,
    "profile.auth.token.early": "2m",
    "profile.limits.rate": "10/s",
    "profile.limits.burst": 5,
    "profile.limits.max_concurrency": 2,
    "profile.circuit.failures": 3,
    "profile.circuit.window": "2m",
    "profile.circuit.pause": "2m",
    "action.ordering.serialize_per": "destination",
    "action.ordering.field": "board",
    "profile.rate_limit.wait[].header": "X-Wait",
    "profile.rate_limit.wait[].pointer": "/wait",
    "profile.rate_limit.wait[].regex": "(.*)",
    "profile.rate_limit.wait[].unit": "epoch_ms",
    "profile.rate_limit.wait[].fixed": "30s",
    "profile.rate_limit.wait[].until": "utc_midnight",
    "profile.base_url": "https://other.example.com",
    "profile.variables": {"realm": "1"},
    "profile.session.prefetch.path": "/other",
    "profile.session.prefetch.query": {"a": "b"},
    "profile.session.prefetch.headers": {"X-A": "1"},
    "profile.session.prefetch.capture": "X-Other",
    "profile.session.prefetch.cookies": False,
    "profile.endpoint_class": "eu",
    "profile.destination_scope": "tenant-43",
    "profile.credential_ref": "env:OTHER",
    "profile.auth.kind": "none",
    "profile.auth.prefix": "Token",
    "profile.auth.in": "query",
    "profile.auth.name": "api-key",
    "profile.auth.username": "ada",
    "profile.auth.secret_is": "username",
    "profile.headers": {"X-A": "1"},
    "profile.active": False,
    "profile.path_characters": "/",
    "profile.timeouts.connect": "6s",
    "profile.timeouts.total": "31s",
    "profile.retry.attempts": 9,
    "profile.retry.backoff.base": "3s",
    "profile.retry.backoff.cap": "11m",
    "profile.body_bytes_max": 5,
    "profile.reply_bytes_max": 5,
    "profile.remote_processing": "1m",
    "profile.expires_after": "1d",
    "profile.waives.credential_ref": True,
    "profile.waives.credential_generation": True,
    "profile.waives.endpoint": True,
    "profile.waives.update_path_same_route": True,
    "action.create.method": "PUT",
    "action.create.path": "/others",
    "action.create.headers": {"X-A": "1"},
    "action.create.key_quoting": "odata_guid",
    "action.create.query": {"minorversion": "75"},
    "action.create.precondition.kind": "if_none_exist",
    "action.create.precondition.query": {"a": "b"},
    "action.update.precondition.kind": "version_field",
    "action.update.precondition.pointer": "/v",
    "action.update.precondition.integer": True,
    "action.update.precondition.source": "fresh_get",
    "action.update.precondition.fetch.path": "/t",
    "action.update.precondition.fetch.query": {"a": "b"},
    "action.update.precondition.grows": True,
    "action.update.precondition.refetch_once": True,
    "action.create.client_id.from": "field",
    "action.create.client_id.format": "token",
    "action.create.client_id.field": "email",
    "action.create.prefer": ["return=minimal"],
    "action.create.body.encoding": "form",
    "action.create.body.arrays": "indexed",
    "action.create.body.graphql.document": "mutation B { b }",
    "action.create.body.graphql.operation_name": "A",
    "action.create.body.merge": {"/sparse": True},
    "action.create.body.media_type": "application/vnd.api+json",
    "action.create.body.envelope": {"data": None},
    "action.create.body.insert_at": "/data",
    "action.create.success.status": [201],
    "action.create.response.id_rule.canonical": "integer_v1",
    "action.create.response.id_rule.pattern": "[0-9]+",
    "action.create.response.id_rule.length_max": 9,
    "action.create.response.id_rule.mutable": True,
    "action.update.method": "PUT",
    "action.update.path": "/others/{remote_id}",
    "action.update.headers": {"X-A": "1"},
    "action.update.key_quoting": "odata_guid",
    "action.update.query": {"minorversion": "75"},
    "action.update.prefer": ["return=minimal"],
    "action.update.body.encoding": "form",
    "action.update.body.arrays": "indexed",
    "action.update.body.graphql.document": "mutation B { b }",
    "action.update.body.graphql.operation_name": "A",
    "action.update.body.merge": {"/sparse": True},
    "action.update.body.media_type": "application/vnd.api+json",
    "action.update.body.envelope": {"data": None},
    "action.update.body.insert_at": "/data",
    "action.update.semantics": "replace",
    "action.update.idempotent": True,
    "action.update.creates_if_missing": True,
    "action.update.success.status": [200],
    "action.mappings[].source": "other",
    "action.mappings[].constant": "x",
    "action.mappings[].target": "/other",
    "action.mappings[].encode.string": True,
    "action.mappings[].encode.decimal_string": 2,
    "action.mappings[].encode.minor_units": 2,
    "action.mappings[].encode.date": "%Y",
    "action.mappings[].encode.datetime": "rfc3339",
    "action.mappings[].encode.zone": "UTC",
    "action.mappings[].encode.epoch": "s",
    "action.mappings[].encode.ms_date": True,
    "action.mappings[].encode.md5_hex": True,
    "action.mappings[].sentinel": "none",
    "action.mappings[].encode.enum_map": {"a": "b"},
    "action.mappings[].encode.bool_map": {"true": "b"},
    "action.mappings[].encode.join": ",",
    "action.mappings[].encode.json_string": True,
    "action.mappings[].encode.wrap": "v",
    "action.mappings[].encode.lower_trim": True,
    "action.mappings[].encode.truncate": 3,
    "action.mappings[].clear": "omit",
    "action.mappings[].operations": ["create"],
    "action.mappings[].chars_max": 9,
    "action.associations[].name": "other",
    "action.associations[].source": "other_id",
    "action.associations[].source_object": "Other",
    "action.associations[].action_slot_id": "slot-3",
    "action.associations[].mode": "foreign_key",
    "action.associations[].target": "/other",
    "action.associations[].value": {"id": "{parent}"},
    "action.associations[].clear": "omit",
    "action.associations[].gives_up_after": "7d",
    "action.associations[].call.method": "POST",
    "action.associations[].call.path": "/others/{remote_id}",
    "action.associations[].call.query": {"a": "b"},
    "action.associations[].call.headers": {"X-A": "1"},
    "action.associations[].call.body": {"to": "{parent}"},
    "action.associations[].call.success.status": [200],
    "action.limits.body_bytes": 9,
    "action.limits.field_chars": 9,
    "action.mirror.remote_id_field": "other_id",
    "action.mirror.provenance_field": "other",
    "action.mirror.provenance_value": "other",
}

TEST = {"status": [400]}
PLACE = {"from": "$response.body#/id"}
LOOK_UP = {"path": "/jobs", "job": [PLACE], "done": [TEST], "failed": [TEST], "id": [PLACE]}
RULE = {"when": [TEST], "effect": "not_applied", "disposition": "terminal", "because": "the remote says so"}

BASE: dict[str, Any] = {
    "profile": {
        "base_url": "https://api.example.com",
        "errors": [RULE],
        "auth": {"token": {"url": "https://login.example.com/token", "client_id": "us", "same_account": [TEST]}},
        "session": {"prefetch": {"path": "/token", "capture": "X-Token", "expired": [TEST]}},
        "rate_limit": {"detect": [TEST], "wait": [{"when": [TEST]}]},
        "sandbox": {"base_url": "https://sandbox.example.com"},
    },
    "action": {
        "ordering": {"serialize_per": "field"},
        "create": {
            "path": "/things",
            "client_id": {},
            "precondition": {"kind": "if_none_match_star"},
            "body": {"graphql": {"document": "mutation A { a }"}},
            "success": {"status": [200], "assert": [TEST]},
            "response": {
                "id": [PLACE],
                "composite": {"parts": [PLACE, PLACE], "separator": "/"},
                "candidates": [{"from": "$statusCode"}],
                "created": [TEST],
                "version": [PLACE],
            },
            "conflict": [{"when": [TEST], "existing_id": [PLACE]}],
            "followup": LOOK_UP,
            "async": LOOK_UP,
            "stamp": {},
            "idempotency": {"name": "Key", "receipt": [TEST], "mismatch": [TEST], "in_flight": [TEST]},
            "repeat": {"kind": "conditional", "exists": [TEST], "existing_id": [PLACE]},
            "lookup": LOOK_UP | {"match": "/ref", "none": [TEST]},
        },
        "update": {
            "path": "/things/{remote_id}",
            "body": {"graphql": {"document": "mutation A { a }"}},
            "success": {"status": [204], "assert": [TEST]},
            "deleted": [TEST],
            "merged": {"successor": [PLACE]},
            "precondition": {"kind": "etag", "on_fail": [TEST], "fetch": {"version": [PLACE]}},
        },
        "errors": [RULE],
        "mappings": [{"source": "name", "target": "/name"}],
        "associations": [
            {
                "name": "parent",
                "source": "parent_id",
                "source_object": "Thing",
                "action_slot_id": "slot-2",
                "mode": "call_after",
                "call": {"path": "/things/{remote_id}/parent", "success": {"status": [204], "assert": [TEST]}},
            }
        ],
        "mirror": {"remote_id_field": "acme_id"},
    },
}

CHANGED |= {
    path.replace("mappings[]", "create.client_id"): value
    for path, value in CHANGED.items()
    if path.startswith("action.mappings[].encode.")
}


def contracts(document: dict[str, Any]) -> tuple[Any, Any]:
    return (
        ROOTS["action"].model_validate_json(json.dumps(document["action"])),
        ROOTS["profile"].model_validate_json(json.dumps(document["profile"])),
    )


def with_change(path: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(BASE))
    node: Any = document
    *parents, last = path.replace("[]", ".0").split(".")
    for part in parents:
        node = node[int(part)] if part == "0" else node.setdefault(part, {})
    node[last] = CHANGED[path]
    return document


@pytest.mark.rule("DR-28")
def test_every_field_of_a_pack_has_a_row_and_every_row_a_field() -> None:
    """A new field without a row fails here; a row of a field that went is noticed as well."""
    paths = {path for root, model in ROOTS.items() for path in field_paths(root, model)}
    assert paths == FIELD_ROWS.keys()


def test_every_contract_is_reached_from_a_root() -> None:
    """No declared value hides from the walk."""
    known = (
        contracts_module,
        association_contracts,
        limit_contracts,
        replay_contracts,
        request_contracts,
        response_contracts,
    )
    modules = {module.__name__ for module in known}

    def subclasses(model: type[Contract]) -> set[type[Contract]]:
        return {
            each
            for child in model.__subclasses__()
            if child.__module__ in modules
            for each in (child, *subclasses(child))
        }

    def reached(model: type[Any]) -> set[type[Any]]:
        from pushlink.protocol.surfaces import _models

        inner = {part for field in model.model_fields.values() for part in _models(field.annotation)}
        return {model}.union(*(reached(part) for part in inner))

    assert set().union(*(reached(root) for root in ROOTS.values())) == subclasses(Contract)


@pytest.mark.rule("DR-28")
def test_a_field_without_a_row_fails_closed() -> None:
    """At run time an unknown field is the surface that refuses."""
    assert surface_of("profile.field_of_tomorrow") is Surface.UNMAPPED


@pytest.mark.parametrize("path", sorted(path for path in FIELD_ROWS if not path.startswith("when.")))
def test_a_changed_field_changes_the_fingerprint_of_its_surface_and_no_other(path: str) -> None:
    """The map says which row a field is; its fingerprint moves, all others stay."""
    before, after = fingerprints(*contracts(BASE)), fingerprints(*contracts(with_change(path)))
    assert {surface for surface in before if before[surface] != after[surface]} == {FIELD_ROWS[path]}


@pytest.mark.rule("D-43")
def test_a_default_that_is_written_out_is_the_same_fingerprint() -> None:
    """A default means "as if it were not written", so a field that a later release adds refuses no existing link."""
    made, remote = contracts(BASE)
    spelled = json.loads(json.dumps(BASE))
    spelled["profile"]["retry"] = {"attempts": 8}
    spelled["action"]["create"]["method"] = "POST"
    spelled["action"]["mappings"][0]["encode"] = {}
    assert fingerprints(*contracts(spelled)) == fingerprints(made, remote)


@pytest.mark.rule("D-43")
def test_an_older_fingerprint_is_compared_by_the_rule_of_its_own_version() -> None:
    """Version 1 holds for ever; a version that this release does not know never holds."""
    made, remote = contracts(BASE)
    frozen = mapping_fingerprint(made)
    assert frozen.startswith("mapping1:")
    assert is_same_mapping(frozen, made)
    assert not is_same_mapping(frozen.replace("mapping1", "mapping2"), made)
    assert not is_same_mapping(frozen.replace("mapping1", "body1"), made)
    assert not is_same_mapping("", made)
    assert not is_same_mapping(frozen, contracts(with_change("action.mappings[].clear"))[0])
    assert fingerprints(made, remote, like={Surface.MAPPING: frozen})[Surface.MAPPING] == frozen


@pytest.mark.rule("D-43")
def test_a_later_rule_computes_an_older_fingerprint_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what has no older counterpart gets the new version; what is compared keeps the version that was stored."""
    made, remote = contracts(BASE)
    frozen = fingerprints(made, remote)
    later_fingerprints(monkeypatch)
    assert mapping_fingerprint(made).startswith("mapping2:")
    assert is_same_mapping(frozen[Surface.MAPPING], made)
    assert is_same_mapping(mapping_fingerprint(made), made)
    assert not is_same_mapping(frozen[Surface.MAPPING], contracts(with_change("action.mappings[].clear"))[0])
    assert fingerprints(made, remote, like=frozen) == frozen
    assert all(f"{surface}2:" in digest for surface, digest in fingerprints(made, remote).items())


def test_the_order_of_keys_and_the_spelling_of_a_duration_change_nothing() -> None:
    """Fingerprints are over canonical documents; the order of mappings is theirs and counts."""
    two = [{"source": "a", "target": "/a"}, {"source": "b", "target": "/b"}]
    assert fingerprints(action(), profile(retry={"backoff": {"base": "2s"}})) == fingerprints(
        action(), profile(retry={"backoff": {"base": "2000ms"}})
    )
    assert body_fingerprint(action(create={"headers": {"A": "1", "B": "2"}}), profile()) == body_fingerprint(
        action(create={"headers": {"B": "2", "A": "1"}}), profile()
    )
    assert mapping_fingerprint(action(mappings=two)) != mapping_fingerprint(action(mappings=two[::-1]))


def test_the_named_fingerprints_are_those_of_their_surfaces() -> None:
    """One way to compute each."""
    made, remote = contracts(BASE)
    both = fingerprints(made, remote)
    assert mapping_fingerprint(made) == both[Surface.MAPPING]
    assert body_fingerprint(made, remote) == both[Surface.BODY]
    assert tuple(both) == FINGERPRINTED
    assert profile_hash(remote) != profile_hash(contracts(with_change("profile.expires_after"))[1])


def test_a_contract_says_only_what_is_not_default() -> None:
    """The walk gives field path, place and JSON value of what is written."""
    made, _ = contracts(BASE)
    assert ("action.mappings[].source", "/mappings/0/source", "name") in list(written_fields("action", made))
    assert not [path for path, _, _ in written_fields("action", made) if path.endswith(".encode.string")]
