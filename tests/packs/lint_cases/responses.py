"""Answers: success, ids and versions, declared errors, throttles, look-ups."""

from __future__ import annotations

from packs.changes import FRESH_TAG, PREFETCH, A, Case, Document, both, find_by_stamp, in_profile, put

CODE = {"pointer": "/error/code", "in": ["A1", "A2"]}
GRAPHQL = {"encoding": "graphql", "graphql": {"document": "mutation M($name: String) { make(name: $name) }"}}
COMPOSITE = {"parts": [{"from": "$response.body#/a"}, {"from": "$response.body#/b"}], "separator": "/"}


def look_up(**changes: object) -> Document:
    """A look-up that lint has nothing against."""
    place = {"from": "$response.body#/id"}
    return {"path": "/jobs/{job}", "job": [{"from": "$response.body#/job"}], "id": [place]} | changes


KEYED = put(
    "create",
    "followup",
    value=look_up(path="/things", job=[], key="/email", query={"email": "{key}"}, only="/records"),
)
SEARCHED = look_up(method="POST", path="/search", body={"where": {"job": "{job}"}})


def error_rule(**changes: object) -> Document:
    """A declared reading of an answer that lint has nothing against."""
    sound = {"when": [{"status": [400]}], "effect": "not_applied", "disposition": "retry_at", "because": "it says so"}
    return sound | changes


CASES = [
    Case(
        "success-empty",
        put("create", "success", value={"status": []}),
        f"{A}.create.success.status",
        put("create", "success", value={"status": [201]}),
    ),
    Case("success-empty", put("update", "success", value={"status": []}), f"{A}.update.success.status"),
    Case("id-missing", put("create", "response", value={}), f"{A}.create.response.id"),
    *(
        Case("id-source", put("create", "response", "id", value=[{"from": source}]), f"{A}.create.response.id[0].from")
        for source in (
            "/id",
            "$statusCode",
            "",
            "$response.body#id",
            "$response.body#/a~2",
            "$response.header.",
            "$response.header.Bad Name",
            "$request.body#/id",
            "$response.query.id",
            "$.id",
        )
    ),
    Case(
        "id-source",
        put("create", "response", "candidates", value=[{"from": "id"}]),
        f"{A}.create.response.candidates[0].from",
        put("create", "response", "candidates", value=[{"from": "$response.body#/existing/0/id"}]),
    ),
    *(
        Case(
            "id-pattern",
            put("create", "response", "id", value=[{"from": "$response.header.Location", "regex": regex}]),
            f"{A}.create.response.id[0].regex",
        )
        for regex in (
            "/things/([0-9]+)",
            "^/things/([0-9]+)",
            "/things/([0-9]+)$",
            r"^/things/([0-9]+)\$",
            "^[$]([0-9]+)[$]",
            "^/a/([0-9]+)|/b/[0-9]+$",
            "^/things/[0-9]+$",
            "^/(things|items)/([0-9]+)$",
            "^/things/([0-9]+$",
            "^((a+)+)$",
            "^(?:a+)*([0-9])$",
            "^(?:a|b){1,40}([0-9])$",
            r"^(a)\1$",
            "^(?=a)(a)$",
            "^(" + "a" * 500 + ")$",
            "^([[a]b])$",
            "^(.*)-.*-.*-.*$",
        )
    ),
    Case(
        "id-pattern",
        put("create", "response", "id_rule", value={"pattern": "[0-9]+"}),
        f"{A}.create.response.id_rule.pattern",
        put("create", "response", "id_rule", value={"pattern": "^[0-9a-f]{8}-[0-9a-f]{4}$"}),
    ),
    Case(
        "override",
        put("update", "precondition", value=FRESH_TAG | {"on_fail": [{"status": [500]}]}),
        f"{A}.update.precondition.on_fail[0]",
        put("update", "precondition", value=FRESH_TAG | {"on_fail": [{"status": [400], **CODE}]}),
    ),
    Case(
        "bodiless-success",
        put("create", "success", value={"status": [204]}),
        f"{A}.create.success.status",
        both(
            put("create", "success", value={"status": [204]}),
            put("create", "response", "id", value=[{"from": "$response.header.Location", "regex": "^/things/(.+)$"}]),
        ),
    ),
    Case(
        "override",
        in_profile("session", {"prefetch": PREFETCH | {"expired": [{"status": [502]}]}}),
        "profiles.main.session.prefetch.expired[0]",
        in_profile("session", {"prefetch": PREFETCH}),
    ),
    Case(
        "graphql-assert",
        put("create", "body", value=GRAPHQL),
        f"{A}.create.success",
        both(
            put("create", "body", value=GRAPHQL),
            put("create", "success", value={"status": [200], "assert": [{"pointer": "/errors", "absent": True}]}),
        ),
    ),
    Case(
        "composite-id",
        put("create", "response", "composite", value=COMPOSITE),
        f"{A}.create.response.composite",
        put("create", "response", value={"composite": COMPOSITE}),
    ),
    Case(
        "criterion",
        put("create", "success", value={"status": [200], "assert": [{"status": [200]}]}),
        f"{A}.create.success.assert[0].status",
        put("create", "success", value={"status": [200], "assert": [{"pointer": "/ok", "equals": True}]}),
    ),
    *(
        Case("criterion", put("update", "deleted", value=[{"status": [404]} | bad]), path)
        for bad, path in (
            ({"equals": "x"}, f"{A}.update.deleted[0]"),
            ({"header": "A", "pointer": "/a"}, f"{A}.update.deleted[0]"),
            ({"pointer": "/a", "absent": True, "present": True}, f"{A}.update.deleted[0]"),
            ({"pointer": "/a", "regex": "^(a+)+$"}, f"{A}.update.deleted[0].regex"),
            ({"pointer": "/a", "regex": "a"}, f"{A}.update.deleted[0].regex"),
        )
    ),
    *(
        Case("override", put("errors", value=[error_rule(**bad)]), f"{A}.errors[0]", put("errors", value=[good]))
        for bad, good in (
            ({"when": [{"status": [500]}]}, error_rule(when=[{"status": [500]}, CODE])),
            ({"when": [{"status": [502, 504]}]}, error_rule(when=[{"status": [502, 504]} | CODE])),
            ({"when": [{"status": [503]}, {"header": "Retry-After"}]}, error_rule(when=[{"status": [423]}])),
            ({"when": [{"status": [500]}, {"pointer": "/e", "absent": True}]}, error_rule(when=[{"status": [400]}])),
            ({"when": [CODE]}, error_rule(when=[CODE], effect="unknown", disposition="reconcile")),
            ({"when": [{"status": list(range(500, 600))}, CODE]}, error_rule(when=[{"status": [500, 503]}, CODE])),
            ({"when": [{"status": [401]}, CODE]}, error_rule(when=[{"status": [403]}, CODE])),
            (
                {"when": [{"status": [401]}], "effect": "unknown", "disposition": "reconcile"},
                error_rule(when=[{"status": [400]}], effect="unknown", disposition="reconcile"),
            ),
            (
                {"effect": "unknown", "disposition": "retry_at"},
                error_rule(effect="unknown", disposition="reconcile"),
            ),
            ({"disposition": "reconcile"}, error_rule(disposition="conflict")),
            ({"disposition": "terminal", "wait": "1m"}, error_rule(disposition="retry_at", wait="1m")),
        )
    ),
    Case(
        "override",
        in_profile("errors", [error_rule(when=[{"status": [504]}])]),
        "profiles.main.errors[0]",
        in_profile("errors", [error_rule()]),
    ),
    Case(
        "override",
        put("create", "conflict", value=[{"when": [{"status": [500]}]}]),
        f"{A}.create.conflict[0].when",
        put("create", "conflict", value=[{"when": [{"status": [409, 400]}, CODE]}]),
    ),
    Case(
        "override",
        put("update", "deleted", value=[{"status": [200]}]),
        f"{A}.update.deleted[0]",
        put("update", "deleted", value=[{"status": [404, 410]}, {"status": [200], "pointer": "/d", "equals": True}]),
    ),
    Case(
        "override",
        in_profile("rate_limit", {"detect": [{"status": [503]}]}),
        "profiles.main.rate_limit.detect[0]",
        in_profile("rate_limit", {"detect": [{"status": [403], "header": "X-Left", "equals": "0"}]}),
    ),
    *(
        Case("wait", in_profile("rate_limit", {"wait": [bad]}), "profiles.main.rate_limit.wait[0]")
        for bad in (
            {},
            {"header": "A"},
            {"header": "A", "pointer": "/a", "unit": "seconds"},
            {"fixed": "30s", "unit": "seconds"},
            {"header": "A", "unit": "seconds", "regex": "^a$"},
        )
    ),
    Case(
        "wait",
        in_profile("rate_limit", {"cap": "0s"}),
        "profiles.main.rate_limit.cap",
        in_profile(
            "rate_limit",
            {"cap": "1h", "wait": [{"header": "A", "unit": "iso8601"}, {"fixed": "30s"}, {"until": "utc_midnight"}]},
        ),
    ),
    Case(
        "id-source",
        put("create", "response", "version", value=[{"from": "etag"}]),
        f"{A}.create.response.version[0].from",
        put("create", "response", "version", value=[{"from": "$response.header.ETag"}]),
    ),
    Case(
        "id-pattern",
        put("update", "merged", value={"successor": [{"from": "$response.header.Location", "regex": "x"}]}),
        f"{A}.update.merged.successor[0].regex",
    ),
    *(
        Case("look-up", find_by_stamp(**bad), f"{A}.create.lookup{path}", find_by_stamp(**good))
        for bad, path, good in (
            ({"path": "/things/{other}"}, ".path", {"path": "/things/{stamp}", "query": {}}),
            ({"query": {"q": "x{y"}}, ".query.q", {"query": {"q": "{stamp}"}}),
            ({"only": "/records"}, ".only", {}),
            (
                {"absence_is_proof": True, "query": {}, "consistency": "strong"},
                ".absence_is_proof",
                {"absence_is_proof": True, "consistency": "strong"},
            ),
            ({"absence_is_proof": True}, ".lag", {"absence_is_proof": True, "lag": "60s"}),
            ({"consistency": "strong", "lag": "1m"}, ".lag", {"lag": "1m"}),
            ({"every": "0s"}, ".every", {"every": "5s"}),
            ({"id": [{"from": "$response.header.Location"}]}, ".id[0]", {}),
        )
    ),
    *(
        Case("look-up", put("create", "followup", value=look_up(**bad)), f"{A}.create.followup{path}", good)
        for bad, path, good in (
            ({"path": "/jobs/{job}/{other}"}, ".path", put("create", "followup", value=look_up())),
            ({"path": "/jobs?x={job}"}, ".path", None),
            ({"path": "/jobs"}, ".job", put("create", "followup", value=look_up(path="/q", query={"id": "{job}"}))),
            ({"query": {"a": "x{b"}}, ".query.a", None),
            ({"path": "/jobs", "job": []}, "", None),
            ({"path": "/jobs", "job": [], "key": "/email", "query": {"q": "{key}"}}, ".key", KEYED),
            ({"body": {"id": "{job}"}}, ".body", put("create", "followup", value=SEARCHED)),
            ({"method": "POST", "body": {"a": ["{job}", "{other}"]}}, ".body", None),
            ({"every": "0s"}, ".every", put("create", "async", value=look_up(accepted=[202], timeout="1h"))),
        )
    ),
]
