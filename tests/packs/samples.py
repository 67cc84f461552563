"""Documents that several tests change."""

from __future__ import annotations

from typing import Any

#: A small pack without a finding.
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
