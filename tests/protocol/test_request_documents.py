from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from protocol.examples import action, profile, values
from pushlink.protocol.fingerprints import fingerprints
from pushlink.protocol.render import render_create, render_update
from pushlink.protocol.snapshots import ActionSnapshot, FrozenRequest, ProfileSnapshot

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "requests_v1.json").read_text(encoding="utf-8"))
KEY = "0b4c6f0e-7c5d-8a3b-9e21-3f1d2c4b5a69"

PROFILE = profile(
    variables={"realm": "9130", "api": "v9.2"},
    session={
        "prefetch": {
            "path": "/{realm}/session",
            "query": {"v": "{api}"},
            "headers": {"X-CSRF-Token": "Fetch"},
            "capture": "X-CSRF-Token",
            "expired": [{"status": [403], "header": "X-CSRF-Token", "equals": "Required"}],
        }
    },
)

#: One contract for each way in which a request can be described beyond the first release.
ACTIONS: dict[str, Any] = {
    "own id and a star": action(
        create={
            "method": "PATCH",
            "path": "/{realm}/things({client_id})",
            "key_quoting": "odata_guid",
            "query": {"api-version": "{api}", "$select": "id"},
            "client_id": {"format": "uuid"},
            "prefer": ["return=minimal"],
            "precondition": {"kind": "if_none_match_star"},
            "response": {},
        },
        update={
            "path": "/{realm}/things({remote_id})",
            "key_quoting": "odata_string",
            "creates_if_missing": True,
            "precondition": {"kind": "if_match_star"},
        },
        limits={"body_bytes": 1000, "field_chars": 100},
    ),
    "form and a version in the body": action(
        create={"body": {"encoding": "form", "arrays": "indexed"}, "client_id": {"from": "field", "field": "name"}},
        update={
            "method": "POST",
            "path": "/things",
            "body": {"merge": {"/Id": "{remote_id}", "/sparse": True}},
            "precondition": {
                "kind": "version_field",
                "pointer": "/SyncToken",
                "source": "fresh_get",
                "grows": True,
                "refetch_once": True,
                "fetch": {"path": "/things/{remote_id}", "version": [{"from": "$response.body#/SyncToken"}]},
                "on_fail": [{"status": [400], "pointer": "/code", "equals": "5010"}],
            },
        },
        mappings=[
            {"source": "name", "target": "/name", "clear": "sentinel", "sentinel": "-", "chars_max": 40},
            {"source": "born", "target": "/born", "encode": {"ms_date": True}, "clear": "omit"},
            {"source": "mail", "target": "/hash", "encode": {"lower_trim": True, "md5_hex": True}, "clear": "omit"},
        ],
    ),
    "graphql and nothing like it": action(
        create={
            "body": {
                "encoding": "graphql",
                "graphql": {"document": "mutation M($in: T) { m(in: $in) { id } }", "operation_name": "M"},
                "insert_at": "/in",
            },
            "precondition": {"kind": "if_none_exist", "query": {"identifier": "sys|1"}},
        },
        update={"precondition": {"kind": "etag", "source": "fresh_get"}},
    ),
}


def written(name: str) -> dict[str, Any]:
    """What this release makes of one contract: the document, its fingerprints, and both requests."""
    contract = ACTIONS[name]
    document = ActionSnapshot(contract=contract).document()
    fields = values(name="Zoë", mail=" A@b ", born=None)
    requests = (
        render_create(contract, PROFILE, fields, idempotency_key=KEY),
        render_update(contract, PROFILE, fields, "o'x", remote_version='"v7"'),
    )
    return {
        "text": document.text,
        "digest": document.digest,
        "fingerprints": {surface.value: digest for surface, digest in fingerprints(contract, PROFILE).items()},
        "requests": [
            {"method": one.method, "path": one.path, "headers": list(map(list, one.headers)), "body": one.body.decode()}
            for one in requests
            if isinstance(one, FrozenRequest)
        ],
    }


@pytest.mark.rule("D-43", "RR-01")
@pytest.mark.parametrize("name", ACTIONS)
def test_what_was_frozen_of_a_request_is_read_and_rendered_as_it_was(name: str) -> None:
    """Golden: the same contract, the same text and digests, the same bytes on the wire, now and in later releases."""
    golden = GOLDEN["actions"][name]
    assert written(name) == golden
    assert len(golden["requests"]) == 2
    assert ActionSnapshot.read(golden["text"]).contract == ACTIONS[name]
    assert golden["digest"] == "sha256:" + hashlib.sha256(golden["text"].encode()).hexdigest()


@pytest.mark.rule("D-43")
def test_a_frozen_profile_with_variables_and_a_session_is_read_as_it_was() -> None:
    """The token and the cookies are nowhere in it."""
    document = ProfileSnapshot(contract=PROFILE, credential_generation="g-1").document()
    assert (document.text, document.digest) == (GOLDEN["profile"]["text"], GOLDEN["profile"]["digest"])
    assert ProfileSnapshot.read(document.text).contract == PROFILE
