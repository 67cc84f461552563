"""Mappings and mirrors."""

from __future__ import annotations

from packs.changes import A, Case, both, mappings, put, second_action

PUT_ONLY_ON_CREATE = {"source": "note", "target": "/note", "operations": ["create"]}
MIRROR = {"remote_id_field": "remote_id", "provenance_field": "remote_source", "provenance_value": "sample"}


CASES = [
    Case("no-body", mappings(), f"{A}.mappings"),
    Case("no-body", mappings({"source": "a", "target": "/a", "operations": ["update"]}), f"{A}.mappings"),
    Case("mapping-value", mappings({"target": "/a"}), f"{A}.mappings[0]", mappings({"constant": None, "target": "/a"})),
    Case("mapping-value", mappings({"source": "a", "constant": 1, "target": "/a"}), f"{A}.mappings[0]"),
    Case("mapping-value", mappings({"source": "", "target": "/a"}), f"{A}.mappings[0]"),
    Case(
        "mapping-operations",
        mappings({"source": "a", "target": "/a"}, {"source": "b", "target": "/b", "operations": []}),
        f"{A}.mappings[1].operations",
    ),
    Case(
        "mapping-operations",
        mappings({"source": "a", "target": "/a", "operations": ["create", "update", "create"]}),
        f"{A}.mappings[0].operations",
    ),
    Case(
        "overlapping-targets",
        mappings({"source": "a", "target": "/a"}, {"source": "b", "target": "/a"}),
        f"{A}.mappings[1].target",
        mappings(
            {"source": "a", "target": "/a", "operations": ["create"]},
            {"source": "b", "target": "/a", "operations": ["update"]},
        ),
    ),
    Case(
        "overlapping-targets",
        mappings({"source": "a", "target": "/a"}, {"source": "b", "target": "/a/b"}),
        f"{A}.mappings[1].target",
        mappings({"source": "a", "target": "/a"}, {"source": "b", "target": "/ab"}),
    ),
    Case(
        "overlapping-targets",
        mappings({"source": "a", "target": "/a/b/c"}, {"source": "b", "target": "/a"}),
        f"{A}.mappings[1].target",
        mappings({"source": "a", "target": "/a/b/c"}, {"source": "b", "target": "/a/b/d"}),
    ),
    Case(
        "overlapping-targets",
        mappings({"source": "a", "target": ""}, {"source": "b", "target": "/b"}),
        f"{A}.mappings[1].target",
    ),
    Case(
        "encode",
        mappings({"source": "a", "target": "/a", "encode": {"string": True, "minor_units": 2}}),
        f"{A}.mappings[0].encode",
        mappings({"source": "a", "target": "/a", "encode": {"lower_trim": True, "string": True, "truncate": 9}}),
    ),
    Case("encode", mappings({"source": "a", "target": "/a", "encode": {"date": "%d %B"}}), f"{A}.mappings[0].encode"),
    Case(
        "encode",
        mappings({"source": "a", "target": "/a", "encode": {"datetime": "rfc3339", "zone": "Mars/Base"}}),
        f"{A}.mappings[0].encode",
        mappings({"source": "a", "target": "/a", "encode": {"datetime": "rfc3339", "zone": "Europe/Paris"}}),
    ),
    Case(
        "mirror",
        put("mirror", value=MIRROR | {"provenance_field": "remote_id"}),
        f"{A}.mirror.provenance_field",
        put("mirror", value=MIRROR),
    ),
    Case(
        "mirror",
        put("mirror", value={"remote_id_field": "remote_id", "provenance_field": "remote_source"}),
        f"{A}.mirror",
        put("mirror", value={"remote_id_field": "remote_id"}),
    ),
    Case("mirror", put("mirror", value={"remote_id_field": "name"}), f"{A}.mirror.remote_id_field"),
    Case("mirror", put("mirror", value=MIRROR | {"provenance_field": "name"}), f"{A}.mirror.provenance_field"),
    Case(
        "empty-test",
        put("when", value=[{"field": "a"}]),
        f"{A}.when[0]",
        put("when", value=[{"field": "a", "present": False}]),
    ),
    Case(
        "empty-test",
        put("when", value=[{"field": "a", "equals": None}]),
        f"{A}.when[0]",
        put("when", value=[{"field": "a", "equals": 0}]),
    ),
    Case(
        "empty-test",
        put("when", value=[{"field": "a", "in": []}]),
        f"{A}.when[0].in",
        put("when", value=[{"field": "a", "in": [None]}]),
    ),
    Case(
        "shared-mirror",
        both(put("mirror", value=MIRROR), second_action(mirror=MIRROR)),
        "flows[0].actions[1].mirror.remote_id_field",
        both(put("mirror", value=MIRROR), second_action(mirror=MIRROR, source_object="Other")),
    ),
    Case(
        "replace-erases",
        both(
            put("update", "semantics", value="replace"), mappings({"source": "a", "target": "/a"}, PUT_ONLY_ON_CREATE)
        ),
        f"{A}.mappings[1].operations",
        mappings({"source": "a", "target": "/a"}, PUT_ONLY_ON_CREATE),
    ),
    Case(
        "unused-mapping",
        both(
            put("update", value=None),
            mappings({"source": "a", "target": "/a"}, PUT_ONLY_ON_CREATE | {"operations": ["update"]}),
        ),
        f"{A}.mappings[1].operations",
        both(put("update", value=None), mappings({"source": "a", "target": "/a"}, PUT_ONLY_ON_CREATE)),
    ),
    Case(
        "sentinel",
        mappings({"source": "a", "target": "/a", "clear": "sentinel"}),
        f"{A}.mappings[0].clear",
        mappings({"source": "a", "target": "/a", "clear": "sentinel", "sentinel": "#N/A"}),
    ),
    Case("sentinel", mappings({"source": "a", "target": "/a", "sentinel": 0}), f"{A}.mappings[0].clear"),
    Case("empty-test", put("update", "deleted", value=[{"equals": "x"}]), f"{A}.update.deleted[0]"),
]
