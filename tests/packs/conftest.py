from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pushlink.packs.loader import PackDocument, read_pack_text

GOOD: dict[str, Any] = {
    "pack": "sample",
    "version": "1.0.0",
    "connector_owner_key": "owner-1",
    "namespace": "sample",
    "profiles": {"main": {"base_url": "https://api.example.com/v2", "credential_ref": "env:SAMPLE_TOKEN"}},
    "destinations": [{"destination_slot_id": "dest-1", "target_object": "things", "profile": "main"}],
    "flows": [
        {
            "flow": "Things",
            "version": 1,
            "actions": [
                {
                    "action": "push_thing",
                    "action_slot_id": "act-1",
                    "source_object": "Thing",
                    "destination": "dest-1",
                    "create": {"path": "/things", "response": {"id": [{"from": "$response.body#/id"}]}},
                    "update": {"path": "/things/{remote_id}"},
                    "mappings": [{"source": "name", "target": "/name"}],
                }
            ],
        }
    ],
}


@pytest.fixture
def good() -> dict[str, Any]:
    """A fresh copy of a small pack without a finding."""
    return json.loads(json.dumps(GOOD))


@pytest.fixture
def read() -> Callable[[dict[str, Any]], PackDocument]:
    """Reads a document from its JSON, which is YAML too."""
    return lambda document: read_pack_text(json.dumps(document, indent=1), file="sample.yaml")
