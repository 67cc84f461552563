from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pushlink.adapters.egress import EgressRefused, parse_origin
from pushlink.errors import PackError
from pushlink.packs import grammar
from pushlink.packs.lint import RULES, Severity, lint
from pushlink.packs.loader import PackDocument, load_pack_text, read_pack_text
from pushlink.protocol.association_calls import render_call
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.render import render_create, render_update
from pushlink.protocol.snapshots import SourceValues

Document = dict[str, Any]
Reader = Callable[[Document], PackDocument]
Change = Callable[[Document], None]


def action(document: Document) -> Document:
    return document["flows"][0]["actions"][0]


def profile(document: Document) -> Document:
    return document["profiles"]["main"]


def put(*steps: str | int, value: object) -> Change:
    """A change that sets one value below the action, or below `profiles` and `destinations`."""

    def change(document: Document) -> None:
        target: Any = document if steps[0] in {"profiles", "destinations"} else action(document)
        for step in steps[:-1]:
            target = target.setdefault(step, {}) if isinstance(target, dict) else target[step]
        target[steps[-1]] = value

    return change


def in_profile(key: str, value: object) -> Change:
    return put("profiles", "main", key, value=value)


def mappings(*entries: Document) -> Change:
    return put("mappings", value=list(entries))


def second_action(**changes: object) -> Change:
    def change(document: Document) -> None:
        other = copy.deepcopy(action(document)) | {"action": "push_other", "action_slot_id": "act-2"}
        document["flows"][0]["actions"].append(other | changes)

    return change


def second_destination(**changes: object) -> Change:
    def change(document: Document) -> None:
        other = {"destination_slot_id": "dest-2", "target_object": "others", "profile": "main"}
        document["destinations"].append(other | changes)
        second_action(destination=(other | changes)["destination_slot_id"])(document)

    return change


def both(*changes: Change) -> Change:
    def change(document: Document) -> None:
        for one in changes:
            one(document)

    return change


@dataclass(frozen=True)
class Case:
    """A change that breaks a rule at a path, and a near one that does not."""

    rule: str
    bad: Change
    path: str
    good: Change | None = None


A = "flows[0].actions[0]"
PUT_ONLY_ON_CREATE = {"source": "note", "target": "/note", "operations": ["create"]}
MIRROR = {"remote_id_field": "remote_id", "provenance_field": "remote_source", "provenance_value": "sample"}

PREFETCH = {"path": "/token", "capture": "X-Token", "expired": [{"status": [403]}]}
FRESH_TAG = {"kind": "etag", "source": "fresh_get"}
FRESH_FIELD = {
    "kind": "version_field",
    "pointer": "/version",
    "source": "fresh_get",
    "fetch": {"version": [{"from": "$response.body#/version"}]},
}
CODE = {"pointer": "/error/code", "in": ["A1", "A2"]}
GRAPHQL = {"encoding": "graphql", "graphql": {"document": "mutation M($name: String) { make(name: $name) }"}}
COMPOSITE = {"parts": [{"from": "$response.body#/a"}, {"from": "$response.body#/b"}], "separator": "/"}


def refers(**changes: object) -> Change:
    """An association with another action of the pack that lint has nothing against, after `changes`."""
    association = {
        "name": "owner", "source": "owner_id", "source_object": "Thing", "action_slot_id": "act-2",
        "mode": "foreign_key", "target": "/owner",
    }  # fmt: skip
    return both(second_action(), put("associations", value=[association | changes]))


CALL = {"path": "/things/{remote_id}/owner/{owner}"}
BOTH_IDS = ["{owner}", "{remote_id}"]


IN_A_FORM = both(
    put("create", "body", "encoding", value="form"),
    mappings({"source": "name", "target": "/name", "clear": "omit"}),
)


def calls(**changes: object) -> Change:
    """The same, set by a call of its own."""
    return refers(mode="call_after", target=None, call=CALL | changes)


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
PLACE = {"from": "$response.body#/id"}


def create_with(**parts: object) -> Change:
    """A create with a stamp in its body, and more of what a create in doubt is settled by."""

    def change(document: Document) -> None:
        action(document)["create"] |= {"stamp": {}, "body": {"merge": {"/ref": "{stamp}"}}} | parts

    return change


def key(**changes: object) -> Change:
    """A key that lint has nothing against."""
    return put("create", "idempotency", value={"name": "Idempotency-Key", "lifetime": "1h"} | changes)


def repeat(*, without: tuple[str, ...] = (), **changes: object) -> Change:
    """A repeat that lint has nothing against, or one that lacks something beside it."""
    sound = {"kind": "conditional", "exists": [{"status": [409]}], "existing_id": [PLACE]} | changes
    parts: dict[str, object] = {"repeat": {name: value for name, value in sound.items() if name not in without}}
    return create_with(**parts, **({"stamp": None, "body": {}} if "stamp" in without else {}))


def find_by_stamp(**changes: object) -> Change:
    """A look-up by the stamp that lint has nothing against."""
    sound = {"path": "/things", "query": {"ref": "{stamp}"}, "items": "/records", "match": "/ref", "id": [PLACE]}
    return create_with(lookup=sound | changes)


def error_rule(**changes: object) -> Document:
    """A declared reading of an answer that lint has nothing against."""
    sound = {"when": [{"status": [400]}], "effect": "not_applied", "disposition": "retry_at", "because": "it says so"}
    return sound | changes


TOKEN = {"url": "https://login.example.com/token", "client_id": "us"}

CASES = [
    Case(
        "duplicate-slot", second_action(action_slot_id="act-1"), "flows[0].actions[1].action_slot_id", second_action()
    ),
    Case(
        "duplicate-slot",
        second_destination(destination_slot_id="dest-1"),
        "destinations[1].destination_slot_id",
        second_destination(),
    ),
    Case("unknown-destination", put("destination", value="dest-9"), f"{A}.destination"),
    Case("unknown-profile", put("destinations", 0, "profile", value="mian"), "destinations[0].profile"),
    Case("base-url", in_profile("base_url", "ftp://api.example.com"), "profiles.main.base_url"),
    Case("base-url", in_profile("base_url", "/v2"), "profiles.main.base_url"),
    Case("base-url", in_profile("base_url", "https://user:pass@api.example.com"), "profiles.main.base_url"),
    Case("base-url", in_profile("base_url", "https://api.example.com/v2?key=1"), "profiles.main.base_url"),
    Case("base-url", in_profile("base_url", "https://api.example.com/v2#top"), "profiles.main.base_url"),
    Case("base-url", in_profile("base_url", "https://api.example.com:99999"), "profiles.main.base_url"),
    Case("base-url", in_profile("base_url", "https://"), "profiles.main.base_url"),
    Case(
        "base-url",
        in_profile("base_url", "https://{region}.api.example.com"),
        "profiles.main.base_url",
        both(
            in_profile("base_url", "https://{region}.api.example.com/{realm}"),
            in_profile("variables", {"region": "eu", "realm": "r1"}),
        ),
    ),
    Case(
        "base-url",
        both(
            in_profile("base_url", "https://{region}.example.com"),
            in_profile("variables", {"region": "us@evil.example.com"}),
        ),
        "profiles.main.base_url",
    ),
    Case("base-url", in_profile("base_url", "https://api.example.com/a/../b"), "profiles.main.base_url"),
    Case(
        "base-url",
        in_profile("base_url", "https://api.example.com/{version}"),
        "profiles.main.base_url",
        in_profile("base_url", "https://api.example.com:8443/v2/"),
    ),
    Case("base-url", in_profile("base_url", "https://exämple.com"), "profiles.main.base_url"),
    Case(
        "base-url",
        in_profile("base_url", "https://2130706433/"),
        "profiles.main.base_url",
        in_profile("base_url", "https://[2001:db8::1]:8443"),
    ),
    Case("credential-ref", in_profile("credential_ref", "vault:kv/token"), "profiles.main.credential_ref"),
    Case("credential-ref", in_profile("credential_ref", "env:TO KEN"), "profiles.main.credential_ref"),
    Case(
        "credential-ref",
        in_profile("credential_ref", "file:secrets/token"),
        "profiles.main.credential_ref",
        in_profile("credential_ref", "file:/run/secrets/{tenant}/token"),
    ),
    Case(
        "credential-ref",
        in_profile("credential_ref", "file:/run/../etc/token"),
        "profiles.main.credential_ref",
        in_profile("credential_ref", "env:TOKEN_{tenant}"),
    ),
    Case(
        "credential-missing",
        in_profile("credential_ref", None),
        "profiles.main",
        both(in_profile("credential_ref", None), in_profile("auth", {"kind": "none"})),
    ),
    Case(
        "auth",
        in_profile("auth", {"kind": "bearer", "name": "x-key"}),
        "profiles.main.auth.name",
        in_profile("auth", {"kind": "api_key", "name": "x-key"}),
    ),
    Case("auth", in_profile("auth", {"kind": "api_key"}), "profiles.main.auth"),
    Case(
        "auth",
        both(in_profile("auth", {"kind": "mtls"}), in_profile("base_url", "http://127.0.0.1:8000")),
        "profiles.main.auth.kind",
        in_profile("auth", {"kind": "mtls"}),
    ),
    Case(
        "auth",
        in_profile("auth", {"kind": "oauth2"}),
        "profiles.main.auth",
        in_profile("auth", {"kind": "oauth2", "token": TOKEN | {"same_account": [{"pointer": "/a", "equals": "us"}]}}),
    ),
    Case(
        "auth",
        in_profile("auth", {"token": {"url": "https://a.example.com/t", "client_id": "us"}}),
        "profiles.main.auth.token",
    ),
    *(
        Case(
            rule,
            in_profile(
                "auth", {"kind": "oauth2", "token": {"url": "https://a.example.com/t", "client_id": "us"} | bad}
            ),
            f"profiles.main.auth.token.{key}",
        )
        for rule, key, bad in (
            ("base-url", "url", {"url": "ftp://a.example.com/t"}),
            ("plain-http", "url", {"url": "http://a.example.com/t"}),
            ("auth", "client_secret_ref", {"client_secret_ref": "env:A"}),
            ("auth", "same_account[0]", {"same_account": [{"status": [200]}]}),
            ("auth", "same_account[0]", {"same_account": [{"pointer": "/account", "absent": True}]}),
            ("credential-ref", "client_secret_ref", {"client_secret_ref": "hunter2", "grant": "refresh_token"}),
        )
    ),
    Case(
        "auth",
        in_profile("auth", {"kind": "api_key", "name": "Host"}),
        "profiles.main.auth.name",
        in_profile("auth", {"kind": "api_key", "name": "Host", "in": "query"}),
    ),
    Case(
        "auth",
        in_profile("auth", {"kind": "basic", "username": "ada", "secret_is": "username"}),
        "profiles.main.auth.username",
        in_profile("auth", {"kind": "basic", "username": "ada"}),
    ),
    Case("secret-literal", in_profile("headers", {"X-Api-Key": "k"}), 'profiles.main.headers["X-Api-Key"]'),
    Case(
        "secret-literal",
        put("create", "headers", value={"X-Client": "Bearer abcdefgh"}),
        f'{A}.create.headers["X-Client"]',
        put("create", "headers", value={"Prefer": "return=representation, wait=5"}),
    ),
    Case(
        "secret-literal",
        mappings({"source": "name", "target": "/name"}, {"constant": "x1", "target": "/auth/api_key"}),
        f"{A}.mappings[1].constant",
        mappings({"source": "name", "target": "/name"}, {"constant": "x1", "target": "/kind"}),
    ),
    Case(
        "secret-literal",
        put("create", "body", value={"envelope": {"meta": [{"password": "x"}]}}),
        f"{A}.create.body.envelope.meta[0].password",
        put("create", "body", value={"envelope": {"meta": [{"password": ""}]}}),
    ),
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
    Case(
        "timeouts",
        in_profile("timeouts", {"connect": "31s", "total": "30s"}),
        "profiles.main.timeouts",
        in_profile("timeouts", {"connect": "30s", "total": "30s"}),
    ),
    Case("timeouts", in_profile("timeouts", {"connect": "0s"}), "profiles.main.timeouts"),
    Case(
        "backoff",
        in_profile("retry", {"backoff": {"base": "2m", "cap": "1m"}}),
        "profiles.main.retry.backoff",
        in_profile("retry", {"backoff": {"base": "1m", "cap": "1m"}}),
    ),
    Case(
        "path-characters",
        in_profile("path_characters", "/x"),
        "profiles.main.path_characters",
        in_profile("path_characters", "/%"),
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
    Case("query", put("create", "precondition", value={"kind": "if_none_exist", "query": {"a": "{remote_id}"}}), ""),
    Case("path", put("update", "precondition", value=FRESH_TAG | {"fetch": {"path": "/t/{other}"}}), ""),
    Case(
        "override",
        put("update", "precondition", value=FRESH_TAG | {"on_fail": [{"status": [500]}]}),
        f"{A}.update.precondition.on_fail[0]",
        put("update", "precondition", value=FRESH_TAG | {"on_fail": [{"status": [400], **CODE}]}),
    ),
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
        "plain-http",
        in_profile("base_url", "http://api.example.com"),
        "profiles.main.base_url",
        in_profile("base_url", "http://127.0.0.1:8731"),
    ),
    Case("credential-unused", in_profile("auth", {"kind": "none"}), "profiles.main.credential_ref"),
    Case(
        "unused-profile",
        put("profiles", "spare", value={"base_url": "https://b.example.com", "auth": {"kind": "none"}}),
        "profiles.spare",
    ),
    Case(
        "unused-destination",
        lambda document: document["destinations"].append(
            {"destination_slot_id": "dest-2", "target_object": "others", "profile": "main"}
        ),
        "destinations[1]",
    ),
    Case(
        "same-place", second_destination(target_object="things"), "destinations[1].target_object", second_destination()
    ),
    Case(
        "shared-mirror",
        both(put("mirror", value=MIRROR), second_action(mirror=MIRROR)),
        "flows[0].actions[1].mirror.remote_id_field",
        both(put("mirror", value=MIRROR), second_action(mirror=MIRROR, source_object="Other")),
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
        "variables",
        in_profile("variables", {"remote_id": "x"}),
        "profiles.main.variables.remote_id",
        in_profile("variables", {"realm": "x"}),
    ),
    Case("variables", in_profile("variables", {"realm": "a/b"}), "profiles.main.variables.realm"),
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
        "sentinel",
        mappings({"source": "a", "target": "/a", "clear": "sentinel"}),
        f"{A}.mappings[0].clear",
        mappings({"source": "a", "target": "/a", "clear": "sentinel", "sentinel": "#N/A"}),
    ),
    Case("sentinel", mappings({"source": "a", "target": "/a", "sentinel": 0}), f"{A}.mappings[0].clear"),
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
    Case(
        "session",
        in_profile("session", {"prefetch": PREFETCH | {"capture": "Authorization"}}),
        "profiles.main.session.prefetch.capture",
        in_profile("session", {"prefetch": PREFETCH}),
    ),
    Case(
        "override",
        in_profile("session", {"prefetch": PREFETCH | {"expired": [{"status": [502]}]}}),
        "profiles.main.session.prefetch.expired[0]",
        in_profile("session", {"prefetch": PREFETCH}),
    ),
    Case("path", in_profile("session", {"prefetch": PREFETCH | {"path": "/t?x=1"}}), ""),
    Case(
        "key-quoting",
        put("create", "key_quoting", value="odata_guid"),
        f"{A}.create.key_quoting",
        put("update", "key_quoting", value="odata_string"),
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
    Case("empty-test", put("update", "deleted", value=[{"equals": "x"}]), f"{A}.update.deleted[0]"),
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
        "limits",
        in_profile("limits", {"burst": 5}),
        "profiles.main.limits.burst",
        in_profile("limits", {"burst": 5, "rate": "10/s"}),
    ),
    Case(
        "limits",
        in_profile("circuit", {"window": "0s"}),
        "profiles.main.circuit",
        in_profile("circuit", {"window": "0s", "failures": 0}),
    ),
    Case(
        "ordering",
        put("ordering", value={"serialize_per": "field"}),
        f"{A}.ordering",
        put("ordering", value={"serialize_per": "field", "field": "email"}),
    ),
    Case("ordering", put("ordering", value={"serialize_per": "destination", "field": "email"}), f"{A}.ordering"),
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
        Case(rule, bad, f"{A}.associations[0]{path}", good)
        for rule, bad, path, good in (
            ("association", refers(name="remote_id"), ".name", refers()),
            ("association", refers(action_slot_id="act-9"), ".action_slot_id", None),
            ("association", refers(source_object="Other"), ".source_object", None),
            ("association", refers(mode="call_after", target=None), ".mode", calls()),
            ("association", refers(value={"id": "{other}"}), ".value", refers(value={"id": "{owner:integer}"})),
            ("association", refers(mode="call_after", call=CALL), ".target", None),
            ("association", refers(target=None, mode="create_inline"), "", refers(mode="create_inline")),
            ("association", both(refers(mode="update_only"), put("update", value=None)), ".mode", None),
            ("association", calls(body={"x": "{other}"}), ".call.body", calls(body={"x": "{owner}"})),
            (
                "path",
                calls(path="/things/{remote_id}"),
                ".call.path",
                calls(path="/l", body=["{owner}", "{remote_id}"]),
            ),
            ("query", calls(query={"a": "x{b"}), ".call.query.a", calls(query={"a": "{owner}"})),
            ("header", calls(headers={"Host": "x"}), ".call.headers.Host", None),
            ("secret-literal", calls(headers={"X-Api-Key": "k"}), '.call.headers["X-Api-Key"]', None),
            ("success-empty", calls(success={"status": []}), ".call.success.status", None),
            ("overlapping-targets", refers(target="/name/id"), ".target", None),
            (
                "form-values",
                both(refers(), IN_A_FORM),
                ".clear",
                both(refers(clear="omit"), IN_A_FORM),
            ),
        )
    ),
    Case(
        "envelope",
        both(refers(target="/a/b"), put("create", "body", "envelope", value={"a": "taken"})),
        f"{A}.associations[0].target",
    ),
    *(
        Case("idempotency", key(**bad), f"{A}.create.idempotency{path}", key(**good))
        for bad, path, good in (
            ({"name": "Content-Length"}, ".name", {"in": "query", "name": "requestid"}),
            ({"first_sent": "Date"}, ".first_sent", {"first_sent": "Repeatability-First-Sent"}),
            ({"in": "body", "name": "request_id"}, ".name", {"in": "body", "name": "/request_id", "format": "token"}),
            ({"in": "body", "name": "/name"}, ".name", {"in": "body", "name": "/request_id"}),
            ({"in": "query", "name": "id", "quoted": True}, ".quoted", {"quoted": True}),
            ({"requires": ["respond-async"]}, ".requires", {"scope": "credential"}),
        )
    ),
    *(
        Case("repeat", bad, f"{A}.create.repeat{path}", good)
        for bad, path, good in (
            (repeat(without=("stamp",)), "", repeat()),
            (repeat(without=("exists",)), ".exists", repeat(kind="upsert", exists=[], existing_id=[])),
            (repeat(without=("existing_id",)), ".existing_id", repeat()),
            (repeat(kind="upsert"), ".exists", repeat()),
            (create_with(idempotency={"name": "Key"}, repeat={"kind": "upsert"}), "", repeat()),
        )
    ),
    Case(
        "repeat",
        create_with(precondition={"kind": "if_none_exist", "query": {"email": "a"}}, repeat={"kind": "conditional"}),
        f"{A}.create.repeat.kind",
        create_with(
            precondition={"kind": "if_none_exist", "query": {"ref": "{stamp}"}}, repeat={"kind": "conditional"}
        ),
    ),
    Case(
        "stamp",
        put(
            "create",
            "conflict",
            value=[{"when": [{"status": [409]}], "existing_id": [PLACE], "policy": "adopt_if_stamp"}],
        ),
        f"{A}.create.conflict[0].policy",
        find_by_stamp(),
    ),
    Case("lifetime", key(lifetime="1m"), f"{A}.create.idempotency", key(lifetime="1m", margin="10s")),
    Case("lifetime-unknown", key(lifetime=None), f"{A}.create.idempotency", key()),
    Case("lifetime", key(lifetime=None, margin="20m"), f"{A}.create.idempotency", key(lifetime=None)),
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
        Case("sandbox", in_profile("sandbox", bad), f"profiles.main.sandbox{path}", in_profile("sandbox", good))
        for bad, path, good in (
            ({"base_url": "api.example.com"}, ".base_url", {"base_url": "https://sandbox.example.com"}),
            (
                {"base_url": "https://sandbox.example.com", "credential_ref": "secret"},
                ".credential_ref",
                {"base_url": "https://sandbox.example.com", "credential_ref": "env:SANDBOX"},
            ),
            (
                {"base_url": "https://sandbox.example.com", "variables": {"realm": "2"}},
                ".variables.realm",
                {"base_url": "https://sandbox.example.com"},
            ),
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


KEY = "0b4c6f0e-7c5d-8a3b-9e21-3f1d2c4b5a69"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{CASES.index(case)}")
def test_a_rule_finds_what_breaks_it_and_nothing_near_it(case: Case, good: Document, read: Reader) -> None:
    bad = copy.deepcopy(good)
    case.bad(bad)
    found = [finding for finding in read(bad).findings if finding.rule == case.rule]
    assert found, [str(finding) for finding in read(bad).findings]
    assert {finding.path for finding in found} == {case.path} or not case.path
    assert all(finding.line and finding.column for finding in found)
    if case.good:
        case.good(good)
        assert case.rule not in {finding.rule for finding in read(good).findings}


def test_every_rule_is_broken_by_a_case_and_every_case_names_a_rule() -> None:
    assert {case.rule for case in CASES} == {rule.name for rule in RULES}
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_a_sound_pack_has_no_finding(good: Document, read: Reader) -> None:
    assert read(good).findings == ()


def test_an_error_stops_a_pack_and_a_warning_does_not(good: Document, read: Reader) -> None:
    profile(good)["base_url"] = "http://api.example.com"
    document = read(good)
    assert document.errors == ()
    assert [finding.severity for finding in document.warnings] == [Severity.WARNING]
    load_pack_text(json.dumps(good))
    action(good)["update"]["path"] = "/things"
    with pytest.raises(PackError) as caught:
        load_pack_text(json.dumps(good), file="sample.yaml")
    (finding,) = caught.value.findings
    assert str(finding).startswith("sample.yaml:1:")
    assert str(finding).endswith("[path]")


def test_what_is_wrong_for_both_operations_is_said_once(good: Document, read: Reader) -> None:
    """One mapping of two forms is one finding."""
    for operation in ("create", "update"):
        put(operation, "body", value={"encoding": "form"})(good)
    mappings({"source": "a", "target": "/a"})(good)
    assert [finding.rule for finding in read(good).findings].count("form-values") == 1


def test_a_finding_points_into_the_file(good: Document) -> None:
    text = json.dumps(good, indent=1).replace('"/things/{remote_id}"', '"/things"')
    (finding,) = read_pack_text(text).findings
    line = text.splitlines()[finding.line - 1]
    assert line[finding.column - 1 :] == '"/things"'


def test_a_pack_without_a_file_is_linted_too(good: Document, read: Reader) -> None:
    action(good)["mappings"] = []
    (first, second) = lint(read(good).pack)
    assert (first.rule, first.line, first.column, first.path) == ("no-body", 0, 0, f"{A}.mappings")
    assert second.rule == "no-body"


@pytest.mark.rule("D-24")
def test_an_update_that_may_create_a_missing_record_is_refused(good: Document) -> None:
    """Its remote would bring a deleted record back under a new identity, unless the request asks that it is there."""
    update = action(good)["update"]
    update["creates_if_missing"] = True
    with pytest.raises(PackError, match="would create a record that was deleted"):
        load_pack_text(json.dumps(good))
    update["precondition"] = {"kind": "if_match_star"}
    (guarded,) = load_pack_text(json.dumps(good)).actions()
    values = SourceValues(values={"name": "n"})
    request = render_update(guarded.contract, guarded.profile, values, "r1")
    assert not isinstance(request, RenderFailure)
    assert ("If-Match", "*") in request.headers


@pytest.mark.rule("GT-06", "SY-02")
@pytest.mark.parametrize("name", ["name", "Thing.name", "record.url", "source", "base_url", "tenant"])
@pytest.mark.parametrize("operation", ["create", "update"])
def test_no_field_of_a_record_can_stand_in_a_route(good: Document, operation: str, name: str) -> None:
    action(good)[operation]["path"] = f"/things/{{{name}}}/{{remote_id}}"
    with pytest.raises(PackError) as caught:
        load_pack_text(json.dumps(good))
    assert f"{A}.{operation}.path" in {finding.path for finding in caught.value.findings}


@pytest.mark.rule("GT-06")
@pytest.mark.parametrize("operation", ["create", "update"])
def test_a_pack_without_a_path_does_not_load(good: Document, operation: str) -> None:
    """The template is missing from the action: there is no default, and no other place to take one from."""
    del action(good)[operation]["path"]
    with pytest.raises(PackError, match="`path` is missing"):
        load_pack_text(json.dumps(good))


@pytest.mark.rule("GT-05")
@pytest.mark.parametrize("rule", ["no-body", "overlapping-targets"])
def test_mappings_that_are_absent_or_doubled_are_refused(rule: str, good: Document) -> None:
    action(good)["mappings"] = [] if rule == "no-body" else [*action(good)["mappings"]] * 2
    with pytest.raises(PackError) as caught:
        load_pack_text(json.dumps(good))
    assert {finding.rule for finding in caught.value.findings} == {rule}


# What passes here is not refused for its form by what sends.


def test_what_lint_takes_renders(good: Document, read: Reader) -> None:
    """Every good neighbour of the cases renders, create and update."""
    for case in CASES:
        document = copy.deepcopy(good)
        (case.good or (lambda _: None))(document)
        for entry in read(document).pack.actions():
            values = SourceValues(values={"name": "x", "a": None, "b": None, "note": None})
            ids = {association.name: "8" for association in entry.contract.associations}
            rendered = [
                render_create(entry.contract, entry.profile, values, idempotency_key=KEY, associated=ids),
                *(
                    render_call(entry.contract, entry.profile, each.name, "r1", other_id="8")
                    for each in entry.contract.associations
                    if each.call is not None
                ),
            ]
            if entry.contract.update is not None:
                rendered.append(
                    render_update(entry.contract, entry.profile, values, "r1", remote_version="7", associated=ids)
                )
            failures = [one for one in rendered if isinstance(one, RenderFailure) and one.code != "value_unsendable"]
            assert not failures, case


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com",
        "https://api.example.com/",
        "https://api.example.com/v2",
        "https://api.example.com:8443/v2/",
        "http://127.0.0.1:8731",
        "http://localhost:8731",
        "https://[::1]:8443",
        "https://xn--exmple-cua.com",
        "https://api_1.example.com/a;b=1",
    ],
)
def test_a_base_url_that_lint_takes_is_one_for_the_transport(url: str) -> None:
    assert list(grammar.base_url_problems(url)) == []
    parse_origin(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com@evil.example.net",
        "https://user@api.example.com",
        "HTTPS://api.example.com",
        "https:/api.example.com",
        "https://api.example.com.",
        "https://127.1",
        "https://0x7f.1",
        "https://[127.0.0.1]",
        "https://api.example.com:0",
        "https://api.example.com:65536",
        "https://api.example.com//a",
        "https://api.example.com/%2e%2e/a",
        "https://api.example.com\\evil",
        "https://api.example.com/a b",
        " https://api.example.com",
        "https://api.example.com\n",
        "javascript:alert(1)",
        "",
    ],
)
def test_a_base_url_that_the_transport_refuses_is_refused_by_lint(url: str) -> None:
    with pytest.raises(EgressRefused):
        parse_origin(url)
    assert list(grammar.base_url_problems(url))
