"""Small contracts, values and replies that the tests of the protocol start from; each takes what a test changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from pushlink.protocol import fingerprints
from pushlink.protocol.contracts import ActionContract, ProfileContract
from pushlink.protocol.contracts import Mapping as MappingContract
from pushlink.protocol.evidence import StoredReply, WireError, WireTrace
from pushlink.protocol.snapshots import Names, Slots, SourceValue, SourceValues, digest_bytes

SENT = WireTrace(connected=True, request_started=True, request_sent=True, response_started=True, response_complete=True)
NOTHING_SENT = WireTrace()

SLOTS = Slots(
    tenant="",
    connector_owner_key="owner-1",
    action_slot_id="action-1",
    destination_slot_id="destination-1",
    source_object="Thing",
)

NAMES = Names(
    namespace="acme", flow="Sync", flow_version="1", action="push_thing", target_object="things", profile="main"
)


def action(
    *,
    create: Mapping[str, Any] | None = None,
    update: Mapping[str, Any] | None = None,
    mappings: list[dict[str, Any]] | None = None,
    **more: Any,
) -> ActionContract:
    """A contract with one mapping, an id in the body and an update path; a pack's own spelling in, a model out."""
    document = {
        "create": {"path": "/things", "response": {"id": [{"from": "$response.body#/id"}]}, **(create or {})},
        "update": {"path": "/things/{remote_id}", **(update or {})},
        "mappings": mappings if mappings is not None else [{"source": "name", "target": "/name"}],
        **more,
    }
    return ActionContract.model_validate_json(json.dumps(document))


def profile(**more: Any) -> ProfileContract:
    """A profile of a remote on this machine."""
    return ProfileContract.model_validate_json(json.dumps({"base_url": "https://api.example.com/v1", **more}))


def mapping(**more: Any) -> MappingContract:
    """One mapping of field `f` to `/f`."""
    return MappingContract.model_validate_json(json.dumps({"source": "f", "target": "/f", **more}))


def values(**fields: SourceValue) -> SourceValues:
    """The values of one save."""
    return SourceValues(values=fields)


def answer(status: int, body: bytes | str = b"", **more: Any) -> StoredReply:
    """A whole answer to a request that was sent."""
    data = body.encode() if isinstance(body, str) else body
    facts: dict[str, Any] = {"body_complete": True, "body_size": len(data), "body_digest": digest_bytes(data)}
    return StoredReply(**{"trace": SENT, "status": status, "body": data, **facts, **more})


def failure(error: WireError, trace: WireTrace = NOTHING_SENT) -> StoredReply:
    """A call without an answer."""
    return StoredReply(trace=trace, error=error, error_text="Error")


def later_fingerprints(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a later release computes them: by a second rule, which is everything that gets a new fingerprint."""
    second = {2: lambda surface, fields: fingerprints._digest(surface, 2, fields)}
    monkeypatch.setattr(fingerprints, "VERSION", 2)
    monkeypatch.setattr(fingerprints, "_RULES", {**fingerprints._RULES, **second})
