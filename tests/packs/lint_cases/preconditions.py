"""Preconditions of updates."""

from __future__ import annotations

from packs.changes import FRESH_TAG, A, Case, both, put

FRESH_FIELD = {
    "kind": "version_field",
    "pointer": "/version",
    "source": "fresh_get",
    "fetch": {"version": [{"from": "$response.body#/version"}]},
}


CASES = [
    Case(
        "update-guard",
        put("update", "creates_if_missing", value=True),
        f"{A}.update.creates_if_missing",
        both(
            put("update", "creates_if_missing", value=True),
            put("update", "precondition", value={"kind": "if_match_star"}),
        ),
    ),
    Case(
        "update-guard",
        both(put("update", "creates_if_missing", value=True), put("update", "precondition", value=FRESH_FIELD)),
        f"{A}.update.creates_if_missing",
        both(put("update", "creates_if_missing", value=True), put("update", "precondition", value=FRESH_TAG)),
    ),
    Case(
        "precondition",
        put("update", "precondition", value={"kind": "etag"}),
        f"{A}.update.precondition",
        both(
            put("update", "precondition", value={"kind": "etag"}),
            put("create", "response", "version", value=[{"from": "$response.header.ETag"}]),
        ),
    ),
    Case("precondition", put("update", "body", value={"merge": {"/v": "{link_version}"}}), f"{A}.update.body.merge"),
    Case(
        "precondition",
        put("update", "precondition", value={"kind": "version_field", "source": "fresh_get"}),
        "",
        put("update", "precondition", value=FRESH_FIELD),
    ),
    Case(
        "precondition",
        put("update", "precondition", value=FRESH_FIELD | {"fetch": {}}),
        f"{A}.update.precondition.fetch",
        put("update", "precondition", value=FRESH_TAG),
    ),
    Case("precondition", put("update", "precondition", value=FRESH_TAG | {"integer": True}), ""),
    Case("precondition", put("update", "precondition", value=FRESH_FIELD | {"pointer": "/name"}), ""),
    Case("precondition", put("update", "precondition", value={"kind": "if_match_star", "refetch_once": True}), ""),
    Case(
        "precondition",
        put("create", "precondition", value={"kind": "if_none_exist"}),
        f"{A}.create.precondition",
        put("create", "precondition", value={"kind": "if_none_exist", "query": {"identifier": "x|1"}}),
    ),
]
