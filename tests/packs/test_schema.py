from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import ValidationError
from ruamel.yaml import YAML

from packs.samples import GOOD
from pushlink.errors import PackError
from pushlink.packs.loader import read_pack_text
from pushlink.packs.model import Pack
from pushlink.packs.schema import DIALECT, pack_schema

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "packs").glob("*.yaml"))
Document = dict[str, Any]

LOOK_UP: Document = {
    "path": "/jobs/{job}",
    "query": {"a": "b"},
    "job": [{"from": "$response.body#/job"}],
    "status": [200],
    "done": [{"pointer": "/state", "equals": "done"}],
    "failed": [{"pointer": "/state", "equals": "failed"}],
    "id": [{"from": "$response.body#/id"}],
    "every": "5s",
}

RULE: Document = {
    "when": [{"status": [503], "pointer": "/code", "equals": "busy"}],
    "effect": "not_applied",
    "disposition": "retry_at",
    "wait": "30s",
    "because": "the remote's page on limits",
}


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    return Draft202012Validator(pack_schema())


def full(good: Document) -> Document:
    """The sample with every optional key written."""
    good["profiles"]["main"] |= {
        "endpoint_class": "live",
        "destination_scope": "one",
        "auth": {"kind": "bearer"},
        "headers": {"X-Version": "1"},
        "active": True,
        "path_characters": "/",
        "timeouts": {"connect": "500ms", "total": "1m"},
        "retry": {"attempts": 3, "backoff": {"base": "1s", "cap": "2h"}},
        "body_bytes_max": 1000,
        "reply_bytes_max": 1000,
        "remote_processing": "1d",
        "expires_after": "30d",
        "waives": {"credential_ref": True, "endpoint": False},
        "variables": {"realm": "r-1"},
        "session": {
            "prefetch": {
                "path": "/token",
                "query": {"a": "b"},
                "headers": {"X-Token": "Fetch"},
                "capture": "X-Token",
                "cookies": True,
                "expired": [{"status": [403], "header": "X-Token", "equals": "Required"}],
            }
        },
        "errors": [RULE],
        "sandbox": {"base_url": "https://sandbox.example.com", "credential_ref": "env:B", "variables": {"realm": "2"}},
        "rate_limit": {
            "detect": [{"status": [403], "header": "X-Left", "equals": "0"}],
            "wait": [{"header": "X-Reset", "unit": "epoch_s", "regex": "^(.+)$"}, {"fixed": "30s"}],
            "cap": "1h",
            "scope": "credential",
        },
        "limits": {"rate": "600/m", "burst": 20, "max_concurrency": 4},
        "circuit": {"failures": 5, "window": "10s", "pause": "1m"},
    }
    action = good["flows"][0]["actions"][0]
    action["when"] = [{"field": "a", "in": ["x", 1, True, None], "equals": "x", "present": True}]
    action["create"] |= {
        "method": "PUT",
        "headers": {"X-A": "b"},
        "body": {"encoding": "json", "media_type": "application/json", "envelope": {"a": [1, None, {"b": True}]}},
        "success": {"status": [200, 201], "assert": [{"pointer": "/ok", "in": [True, 1, "yes"], "present": True}]},
        "followup": LOOK_UP | {"key": "/email", "only": "/records"},
        "async": LOOK_UP | {"accepted": [202], "timeout": "1h"},
        "conflict": [
            {
                "when": [{"status": [409], "pointer": "/code", "regex": "^dup.*$"}],
                "existing_id": [{"from": "$response.body#/existing"}],
                "variant": "archived",
                "policy": "park",
            }
        ],
        "key_quoting": "odata_string",
        "query": {"v": "1"},
        "precondition": {"kind": "if_none_exist", "query": {"identifier": "{client_id}"}},
        "client_id": {"from": "field", "format": "token", "field": "a", "encode": {"md5_hex": True}},
        "prefer": ["return=representation"],
        "stamp": {"format": "token", "prefix": "ours-"},
        "idempotency": {
            "in": "header",
            "name": "Idempotency-Key",
            "format": "uuid_v4",
            "quoted": True,
            "first_sent": "Repeatability-First-Sent",
            "requires": ["return=representation"],
            "scope": "credential",
            "lifetime": "1d",
            "margin": "5m",
            "body_bytes_max": 9,
            "receipt": [{"header": "Replayed", "equals": "true"}],
            "stores": "2xx_4xx",
            "mismatch": [{"status": [422]}],
            "in_flight": [{"status": [409]}],
        },
        "repeat": {
            "kind": "conditional",
            "exists": [{"status": [412]}],
            "existing_id": [{"from": "$response.body#/id"}],
            "lifetime": "1d",
            "margin": "5m",
        },
        "lookup": {
            "path": "/things",
            "query": {"ref": "{stamp}"},
            "items": "/records",
            "match": "/ref",
            "id": [{"from": "$response.body#/id"}],
            "none": [{"status": [404]}],
            "consistency": "index",
            "lag": "1m",
            "absence_is_proof": True,
            "misses_min": 2,
            "every": "30s",
            "timeout": "2h",
        },
    }
    action["create"]["response"] = {
        "id": [{"from": "$response.header.Location", "regex": "^/(.+)$", "decode": "percent"}],
        "id_rule": {"canonical": "integer_v1", "pattern": "^[0-9]+$", "length_max": 9},
        "candidates": [{"from": "$response.body#/id"}],
        "composite": {"parts": [{"from": "$response.body#/a"}, {"from": "$response.body#/b"}], "separator": "/"},
        "created": [{"status": [201]}],
        "version": [{"from": "$response.header.ETag"}],
    }
    action["errors"] = [RULE | {"effect": "unknown", "disposition": "reconcile"}]
    action["update"] |= {
        "deleted": [{"status": [200], "pointer": "/deleted", "equals": True}, {"status": [404], "absent": False}],
        "merged": {"successor": [{"from": "$response.body#/merged_into"}]},
    }
    action["update"] |= {"semantics": "replace", "idempotent": True, "body": {"envelope": {"d": {}}, "insert_at": "/d"}}
    action["update"]["precondition"] = {
        "kind": "version_field",
        "pointer": "/v",
        "integer": True,
        "source": "fresh_get",
        "fetch": {"path": "/t", "query": {"a": "b"}, "version": [{"from": "$response.header.ETag"}]},
        "grows": True,
        "on_fail": [{"status": [412]}],
        "refetch_once": True,
    }
    action["update"]["body"] |= {
        "encoding": "form",
        "arrays": "indexed",
        "graphql": {"document": "mutation M { m }", "operation_name": "M"},
        "merge": {"/id": "{remote_id}", "/n": [1, {"a": None}]},
    }
    action["limits"] = {"body_bytes": 9, "field_chars": 9}
    action["ordering"] = {"serialize_per": "field", "field": "a"}
    action["mappings"] = [
        {"source": "a", "target": "/a", "encode": {"enum_map": {"x": 1, "y": None}}, "clear": "omit", "chars_max": 9},
        {"source": "b", "target": "/b", "encode": {"bool_map": {"true": "Y", "false": "N"}}, "operations": ["create"]},
        {"constant": 1, "target": "/c", "encode": {"epoch": "ms", "truncate": 1, "decimal_string": 2}},
    ]
    action["mirror"] = {"remote_id_field": "r", "provenance_field": "p", "provenance_value": "v"}
    return good


def test_the_schema_is_a_schema_and_the_same_every_time() -> None:
    Draft202012Validator.check_schema(pack_schema())
    assert pack_schema()["$schema"] == DIALECT
    assert json.dumps(pack_schema()) == json.dumps(pack_schema())


def test_every_definition_and_every_key_is_described_in_the_schema() -> None:
    schema = pack_schema()
    for name, definition in {"Pack": schema, **schema["$defs"]}.items():
        assert definition.get("description"), name
        for key, rule in definition.get("properties", {}).items():
            assert rule.get("description"), f"{name}.{key}"


def test_defaults_are_shown_as_they_are_written(validator: Draft202012Validator) -> None:
    definitions = pack_schema()["$defs"]
    assert definitions["Timeouts"]["properties"]["total"]["default"] == "30s"
    assert definitions["ProfileContract"]["properties"]["remote_processing"]["default"] == "10m"
    assert "connect_ms" not in json.dumps(definitions["Timeouts"])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_valid(path: Path, validator: Draft202012Validator) -> None:
    validator.validate(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")))


def test_a_pack_with_every_key_is_valid_and_loads(good: Document, validator: Draft202012Validator) -> None:
    document = full(good)
    validator.validate(document)
    read_pack_text(json.dumps(document))


def accepted(document: object) -> bool:
    try:
        read_pack_text(json.dumps(document))
    except PackError:
        return False
    return True


def has_shape(document: object) -> bool:
    """What the loader asks once the text is a tree; no value below is one that the tree refuses."""
    try:
        Pack.model_validate_json(json.dumps(document), by_alias=True, by_name=False)
    except ValidationError:
        return False
    return True


#: Values that stand where another kind is wanted.
ODD: tuple[object, ...] = (None, True, 0, -1, 299, "", "x", "5s", "/a", [], [1], ["x"], {}, {"x": 1}, "a\nb", 2**53 - 1)


def places(document: object, steps: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every key and index of a document."""
    found = [steps] if steps else []
    if isinstance(document, dict):
        for key, below in document.items():
            found += places(below, (*steps, key))
    elif isinstance(document, list):
        for index, below in enumerate(document):
            found += places(below, (*steps, index))
    return found


#: Parts of a pack whose keys know nothing of each other's shape: a profile, an operation, the rest of an action.
PARTS = (
    ("profiles", "main"),
    ("flows", 0, "actions", 0, "create"),
    ("flows", 0, "actions", 0, "update"),
    ("flows", 0, "actions", 0),
)


def around(steps: tuple[str | int, ...], whole: Document, small: Document) -> Document:
    """A small pack with the part of the whole one that a place is in; the whole one where it is in none."""
    for part in PARTS:
        if steps[: len(part)] == part and len(steps) > len(part):
            document, key = copy.deepcopy(small), (*part, steps[len(part)])
            parent(document, key)[key[-1]] = copy.deepcopy(parent(whole, key)[key[-1]])
            return document
    return whole


def test_loader_and_schema_agree_on_every_single_odd_value(good: Document, validator: Draft202012Validator) -> None:
    """Each place of a whole pack is removed, renamed, and replaced by values of every kind; both say the same."""
    small, whole = copy.deepcopy(good), full(good)
    disagreements: list[object] = []
    for steps in places(whole):
        kept = around(steps, whole, small)
        assert validator.is_valid(kept), steps
        variants: list[Document] = []
        for value in ODD:
            variants.append(variant := copy.deepcopy(kept))
            parent(variant, steps)[steps[-1]] = value
        variants.append(variant := copy.deepcopy(kept))
        del parent(variant, steps)[steps[-1]]
        if isinstance(steps[-1], str):
            variants.append(variant := copy.deepcopy(kept))
            parent(variant, steps)[steps[-1] + "_"] = parent(variant, steps).pop(steps[-1])
        disagreements.extend(
            (steps, json.dumps(parent(variant, steps)))
            for variant in variants
            if has_shape(variant) is not validator.is_valid(variant)
        )
    assert disagreements == []


def parent(document: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps[:-1]:
        document = document[step]
    return document


VALIDATOR = Draft202012Validator(pack_schema())
WHOLE = full(copy.deepcopy(GOOD))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(st.characters(exclude_categories=["C"])),
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.text("abc/_", min_size=1, max_size=4), below, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(value=JSON, data=st.data())
def test_loader_and_schema_agree_on_anything_anywhere(value: object, data: st.DataObject) -> None:
    document = copy.deepcopy(WHOLE)
    steps = data.draw(st.sampled_from(places(document)))
    parent(document, steps)[steps[-1]] = value
    assert accepted(document) is VALIDATOR.is_valid(document)


@pytest.mark.parametrize(
    ("steps", "value"),
    [
        (("profiles", "main", "retries"), 3),
        (("profiles", "main", "follow_redirects"), True),
        (("flows", 0, "actions", 0, "creates"), []),
        (("flows", 0, "actions", 0, "create"), [{"path": "/a"}, {"path": "/b"}]),
        (("flows", 0, "actions", 0, "create", "one_of"), 1),
        (("profiles", "main", "timeouts"), {"connect_ms": "5s"}),
        (("profiles", "a\nb"), {"base_url": "https://b.example.com"}),
        (("flows", 0, "version"), 1.5),
        (("flows", 0, "actions", 0, "mappings", 0, "encode"), {"bool_map": {"yes": 1}}),
        (("flows", 0, "actions", 0, "create", "body"), {"envelope": {"a": [{"b": 1.5}]}}),
        (("flows", 0, "actions", 0, "create", "body"), {"envelope": {"a": 2**53}}),
        (("flows", 0, "actions", 0, "mappings", 0, "constant"), 2**53),
    ],
)
def test_what_the_loader_refuses_for_its_shape_the_schema_refuses(
    steps: tuple[str | int, ...], value: object, good: Document, validator: Draft202012Validator
) -> None:
    parent(good, steps)[steps[-1]] = value
    assert not accepted(good)
    assert not validator.is_valid(good)
