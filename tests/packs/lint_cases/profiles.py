"""Profiles: addresses, credentials, times and limits."""

from __future__ import annotations

from packs.changes import PREFETCH, A, Case, both, in_profile, mappings, put

TOKEN = {"url": "https://login.example.com/token", "client_id": "us"}


CASES = [
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
    Case(
        "plain-http",
        in_profile("base_url", "http://api.example.com"),
        "profiles.main.base_url",
        in_profile("base_url", "http://127.0.0.1:8731"),
    ),
    Case("credential-unused", in_profile("auth", {"kind": "none"}), "profiles.main.credential_ref"),
    Case(
        "variables",
        in_profile("variables", {"remote_id": "x"}),
        "profiles.main.variables.remote_id",
        in_profile("variables", {"realm": "x"}),
    ),
    Case("variables", in_profile("variables", {"realm": "a/b"}), "profiles.main.variables.realm"),
    Case(
        "session",
        in_profile("session", {"prefetch": PREFETCH | {"capture": "Authorization"}}),
        "profiles.main.session.prefetch.capture",
        in_profile("session", {"prefetch": PREFETCH}),
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
]
