"""What a pack says by leaving a key out. Frozen documents leave it out as well, so no release may change it."""

from __future__ import annotations

from typing import Any

import pytest

from pushlink.protocol import (
    association_contracts,
    contracts,
    limit_contracts,
    replay_contracts,
    request_contracts,
    response_contracts,
)
from pushlink.protocol.declared import Contract

MODULES = (
    association_contracts,
    contracts,
    limit_contracts,
    replay_contracts,
    request_contracts,
    response_contracts,
)

#: Every default that is not "nothing", as a pack would write it. A later key adds a line here; no line ever changes.
DEFAULTS: dict[str, dict[str, object]] = {
    "Association": {"clear": "null"},
    "AssociationCall": {"method": "PUT", "success": {"status": [200, 201, 202, 204]}},
    "Asynchronous": {"method": "GET", "status": [200], "every": "10000ms", "timeout": "600000ms", "accepted": [202]},
    "Auth": {"kind": "bearer", "prefix": "Bearer", "in": "header", "secret_is": "password"},
    "Backoff": {"base": "2000ms", "cap": "600000ms"},
    "Body": {"encoding": "json", "media_type": "application/json", "arrays": "brackets"},
    "Circuit": {"failures": 10, "window": "60000ms", "pause": "30000ms"},
    "ClientId": {"from": "idempotency_key", "format": "uuid"},
    "Conflict": {"variant": "live", "policy": "park"},
    "CreateContract": {"method": "POST", "key_quoting": "none", "success": {"status": [200, 201, 203]}},
    "IdExtractor": {"decode": "none"},
    "IdRule": {"canonical": "exact_v1", "mutable": False},
    "Idempotency": {
        "in": "header",
        "format": "uuid",
        "quoted": False,
        "scope": "tenant",
        "margin": "60000ms",
        "stores": "all",
    },
    "LookUp": {"method": "GET", "status": [200], "every": "10000ms", "timeout": "0ms"},
    "Mapping": {"clear": "null", "operations": ["create", "update"]},
    "Prefetch": {"cookies": True},
    "ProfileContract": {
        "endpoint_class": "default",
        "active": True,
        "body_bytes_max": 1048576,
        "reply_bytes_max": 1048576,
        "remote_processing": "600000ms",
    },
    "RateLimit": {"cap": "86400000ms", "scope": "destination"},
    "Repeat": {"margin": "60000ms"},
    "Retry": {"attempts": 8},
    "SendLimits": {"burst": 1},
    "Stamp": {"format": "uuid"},
    "StampLookUp": {
        "method": "GET",
        "status": [200],
        "every": "60000ms",
        "timeout": "3600000ms",
        "consistency": "index",
        "lag": "0ms",
        "absence_is_proof": False,
        "misses_min": 1,
    },
    "Timeouts": {"connect": "5000ms", "total": "30000ms"},
    "TokenRequest": {
        "grant": "client_credentials",
        "client_auth": "basic",
        "old_stays_good": False,
        "early": "60000ms",
    },
    "UpdateContract": {
        "method": "PATCH",
        "key_quoting": "none",
        "semantics": "merge",
        "idempotent": False,
        "creates_if_missing": False,
        "success": {"status": [200, 202, 204]},
    },
    "UpdatePrecondition": {"integer": False, "source": "link_version", "grows": False, "refetch_once": False},
    "Waivers": {
        "credential_ref": False,
        "credential_generation": False,
        "endpoint": False,
        "update_path_same_route": False,
    },
}


def said_by_default(contract: type[Contract]) -> dict[str, object]:
    defaults = {name: info.get_default() for name, info in contract.model_fields.items() if not info.is_required()}
    empty = contract.model_construct(**defaults)
    written: dict[str, Any] = empty.model_dump(mode="json", by_alias=True, include=set(defaults))
    for name, default in defaults.items():
        if isinstance(default, Contract):  # of a contract in a contract, what it says beyond its own defaults
            written[name] = default.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {name: value for name, value in written.items() if value not in (None, "", [], {})}


@pytest.mark.rule("D-43")
def test_what_is_not_written_means_what_it_always_meant() -> None:
    """What was frozen without a key by an earlier release is read with the default of this one."""
    found = {value for module in MODULES for value in vars(module).values() if isinstance(value, type)}
    said = {one.__name__: said_by_default(one) for one in found if issubclass(one, Contract)}
    assert {name: defaults for name, defaults in sorted(said.items()) if defaults} == DEFAULTS
