"""Requests: routes, queries, headers, bodies, ids that a create makes itself."""

from __future__ import annotations

from packs.changes import FRESH_TAG, PREFETCH, A, Case, both, in_profile, mappings, put

CASES = [
    *(
        Case("header", in_profile("headers", {name: "x"}), "profiles.main.headers." + name if name.isalpha() else "")
        for name in ("Host", "Connection", "Authorization", "Cookie", "TE", "Upgrade", "Expect", "Via")
    ),
    *(
        Case("header", put("update", "headers", value={name: "x"}), f'{A}.update.headers["{name}"]')
        for name in (
            "Content-Length",
            "transfer-encoding",
            "Proxy-Authorization",
            "Proxy-Connection",
            "Idempotency-Key",
            "X-HTTP-Method-Override",
            "Content-Type",
            "X-Forwarded-Host",
            "Accept-Encoding",
            "bad name",
        )
    ),
    Case("header", in_profile("headers", {"X-A": "line\r\nX-B: 1"}), 'profiles.main.headers["X-A"]'),
    Case("header", in_profile("headers", {"X-A": "é"}), 'profiles.main.headers["X-A"]'),
    Case("header", in_profile("headers", {"X-A": ""}), 'profiles.main.headers["X-A"]'),
    Case("header", in_profile("headers", {"X-A": " x"}), 'profiles.main.headers["X-A"]'),
    Case(
        "header",
        both(in_profile("variables", {"realm": "eu"}), in_profile("headers", {"X-A": "{reaml}"})),
        'profiles.main.headers["X-A"]',
        both(in_profile("variables", {"realm": "eu"}), in_profile("headers", {"X-A": "{realm}", "X-B": "a {b}"})),
    ),
    Case(
        "header",
        both(in_profile("variables", {"realm": "ü"}), put("update", "headers", value={"X-A": "{realm}"})),
        f'{A}.update.headers["X-A"]',
        both(in_profile("variables", {"realm": "eu"}), put("update", "headers", value={"X-A": "{realm}"})),
    ),
    Case(
        "header",
        in_profile("headers", {"X-Version": "1", "x-version": "2"}),
        'profiles.main.headers["x-version"]',
        both(in_profile("headers", {"X-Version": "1"}), put("create", "headers", value={"x-version": "2"})),
    ),
    *(
        Case("path", put("create", "path", value=path), f"{A}.create.path")
        for path in (
            "things",
            "",
            "//evil.example.com/things",
            "https://evil.example.com/things",
            "/things/../admin",
            "/things/%2e%2E/admin",
            "/./things",
            "/a//b",
            "/things?x=1",
            "/things#top",
            "/things/{remote_id}",
            "/things/{name}",
            "/a b",
            "/ä",
            "/a%2Fb",
            "/a%",
            "/things/{",
            "/things\\x",
        )
    ),
    *(
        Case("path", put("update", "path", value=path), f"{A}.update.path")
        for path in (
            "/things",
            "/things/{remote_id}/{name}",
            "/things/{+remote_id}",
            "/things/{#remote_id}",
            "/things{/remote_id}",
            "/things{.remote_id}",
            "/things{?remote_id}",
            "/things{;remote_id}",
            "/things/{remote_id:3}",
            "/things/{remote_id:x}",
            "/things/{}",
            "/things/{remote_id*}",
            "/things/{remote_id,other}",
            "/things/{{remote_id}}",
            "/things/{ remote_id }",
            "/things?id={remote_id}",
        )
    ),
    Case("query", put("create", "precondition", value={"kind": "if_none_exist", "query": {"a": "{remote_id}"}}), ""),
    Case("path", put("update", "precondition", value=FRESH_TAG | {"fetch": {"path": "/t/{other}"}}), ""),
    Case(
        "header",
        put("update", "headers", value={"If-Match": "*"}),
        f'{A}.update.headers["If-Match"]',
        put("update", "precondition", value={"kind": "if_match_star"}),
    ),
    Case(
        "media-type",
        put("create", "body", value={"media_type": "json"}),
        f"{A}.create.body.media_type",
        put("create", "body", value={"media_type": "application/vnd.api+json; charset=utf-8"}),
    ),
    Case(
        "envelope",
        put("create", "body", value={"envelope": {"name": "x"}}),
        f"{A}.mappings[0].target",
        put("create", "body", value={"envelope": {"name": None}}),
    ),
    Case(
        "envelope",
        put("update", "body", value={"envelope": {"data": "x"}, "insert_at": "/data"}),
        f"{A}.mappings[0].target",
        put("update", "body", value={"envelope": {"data": {}}, "insert_at": "/data"}),
    ),
    Case(
        "envelope",
        put("create", "body", value={"envelope": {"list": [{}]}, "insert_at": "/list/1"}),
        f"{A}.mappings[0].target",
        put("create", "body", value={"envelope": {"list": [{}]}, "insert_at": "/list/0"}),
    ),
    Case(
        "query",
        put("create", "query", value={"v": "{realm}"}),
        f"{A}.create.query.v",
        both(put("create", "query", value={"v": "{realm}"}), in_profile("variables", {"realm": "r-1"})),
    ),
    Case(
        "query",
        put("create", "query", value={"v": "a{b"}),
        f"{A}.create.query.v",
        put("create", "query", value={"minorversion": "75", "$select": "id,name"}),
    ),
    Case("query", put("create", "query", value={"v": "{remote_id}"}), f"{A}.create.query.v"),
    Case(
        "path",
        put("update", "path", value="/things"),
        f"{A}.update.path",
        both(put("update", "path", value="/things"), put("update", "body", value={"merge": {"/Id": "{remote_id}"}})),
    ),
    Case(
        "path",
        put("create", "path", value="/{realm}/things"),
        f"{A}.create.path",
        both(put("create", "path", value="/{realm}/things"), in_profile("variables", {"realm": "r-1"})),
    ),
    Case(
        "path",
        put("update", "path", value="/things"),
        f"{A}.update.path",
        both(put("update", "path", value="/things"), put("update", "query", value={"id": "{remote_id}"})),
    ),
    Case("path", put("update", "path", value="/things/{link_version}/{remote_id}"), f"{A}.update.path"),
    Case(
        "prefer",
        put("create", "prefer", value=["return=minimal"]),
        f"{A}.create.prefer",
        both(
            put("create", "prefer", value=["return=minimal"]),
            put("create", "response", "id", value=[{"from": "$response.header.Location", "regex": "^/things/(.+)$"}]),
        ),
    ),
    Case(
        "prefer",
        both(
            put("create", "headers", value={"Prefer": "return=representation"}),
            put("create", "response", "id", value=[{"from": "$response.header.Location", "regex": "^/things/(.+)$"}]),
        ),
        f"{A}.create.headers",
        put("create", "headers", value={"Prefer": "return=representation"}),
    ),
    Case(
        "prefer",
        put("update", "prefer", value=["return=minimal", "return=representation"]),
        f"{A}.update.prefer",
        put("update", "prefer", value=["respond-async", "return=representation"]),
    ),
    Case(
        "merge",
        put("create", "body", value={"merge": {"/id": "{remote_id}"}}),
        f'{A}.create.body.merge["/id"]',
        put("update", "body", value={"merge": {"/id": "{remote_id}", "/v": "{link_version:integer}", "/s": True}}),
    ),
    Case("merge", put("update", "body", value={"merge": {"/name": "x"}}), f"{A}.update.body.merge"),
    Case(
        "graphql",
        put("create", "body", value={"encoding": "graphql"}),
        f"{A}.create.body.graphql",
        put(
            "create",
            "body",
            value={"encoding": "graphql", "graphql": {"document": "mutation M($name: String) { make(name: $name) }"}},
        ),
    ),
    Case("graphql", put("create", "body", value={"graphql": {"document": "{ a }"}}), f"{A}.create.body.graphql"),
    Case(
        "graphql",
        put("create", "body", value={"encoding": "graphql", "graphql": {"document": "mutation M { make }"}}),
        f"{A}.create.body.graphql.document",
    ),
    Case(
        "graphql",
        put(
            "create",
            "body",
            value={
                "encoding": "graphql",
                "graphql": {"document": "mutation M($name: String) { m(n: $name) }", "operation_name": "N"},
            },
        ),
        f"{A}.create.body.graphql.operation_name",
    ),
    Case("graphql", put("create", "body", value={"encoding": "graphql", "graphql": {"document": "mutation {"}}), ""),
    Case(
        "form-values",
        put("create", "body", value={"encoding": "form"}),
        f"{A}.mappings[0]",
        both(
            put("create", "body", value={"encoding": "form"}),
            mappings({"source": "a", "target": "/a", "clear": "empty_string"}, {"constant": "x", "target": "/b"}),
        ),
    ),
    Case(
        "form-values",
        both(
            put("create", "body", value={"encoding": "form", "envelope": {"a": {"b": None}}}),
            mappings({"source": "a", "target": "/c", "clear": "omit"}),
        ),
        f"{A}.create.body.envelope",
    ),
    Case("media-type", put("create", "body", value={"encoding": "form", "media_type": "text/plain"}), ""),
    Case(
        "client-id",
        both(put("create", "client_id", value={"from": "field"}), put("create", "path", value="/t/{client_id}")),
        f"{A}.create.client_id",
        both(
            put("create", "client_id", value={"from": "field", "field": "name", "encode": {"md5_hex": True}}),
            put("create", "path", value="/t/{client_id}"),
        ),
    ),
    Case(
        "client-id",
        both(
            put("create", "client_id", value={"from": "field", "field": "name"}),
            put("create", "query", value={"id": "{client_id}"}),
        ),
        f"{A}.create.client_id",
        both(put("create", "client_id", value={}), put("create", "query", value={"id": "{client_id}"})),
    ),
    Case(
        "client-id",
        both(
            put("create", "client_id", value={"encode": {"string": True, "join": ","}}),
            put("create", "path", value="/t/{client_id}"),
        ),
        f"{A}.create.client_id.encode",
    ),
    Case(
        "path",
        put("create", "client_id", value={"format": "token"}),
        f"{A}.create.path",
        both(
            put("create", "client_id", value={}),
            put("create", "path", value="/t({client_id})"),
            put("create", "key_quoting", value="odata_guid"),
            put("create", "response", value={}),
        ),
    ),
    Case("path", in_profile("session", {"prefetch": PREFETCH | {"path": "/t?x=1"}}), ""),
    Case(
        "key-quoting",
        put("create", "key_quoting", value="odata_guid"),
        f"{A}.create.key_quoting",
        put("update", "key_quoting", value="odata_string"),
    ),
]
