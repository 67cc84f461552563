"""`pack certify` against real servers: one that keeps what HTTP promises, and one that takes a key and ignores it."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pushlink.bootstrap import Parts, Runtime
from pushlink.operations.certify import Certified, keep_result, read_claim, try_claim
from pushlink.settings import AuthoritySettings, EgressSettings, Settings
from pushlink.store.access import writing

ROOT = Path(__file__).resolve().parents[2]
COUNTRIES = "/v1/buckets/geo/collections/countries/records"
VALUES = {"alpha_2": "XX", "alpha_3": "XXX", "numeric": "999", "name": "{nonce}", "official_name": "A trial"}


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch, package: str, folder: Path) -> Iterator[Any]:
    """A real server in a process of its own."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed (it is in requirements.lock)")
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "real"))
    remotes = importlib.import_module("remotes")
    run = importlib.import_module("run")
    server = remotes.REMOTES[package].make(folder, run.free_port())
    try:
        server.start()
        yield server
    finally:
        server.stop()
        for name in ("remotes", "run", "served", f"{package}_server"):
            sys.modules.pop(name, None)


def claiming(name: str, server: Any, **claim: Any) -> dict[str, Any]:
    """An example pack whose first action claims something, with the server as its sandbox."""
    text = (ROOT / "examples" / "packs" / f"{name}.yaml").read_text(encoding="utf-8")
    pack: dict[str, Any] = json.loads(json.dumps(YAML(typ="safe").load(text)))
    pack["profiles"]["local"]["sandbox"] = {"base_url": server.url}
    action = pack["flows"][0]["actions"][0]
    action["create"] |= claim["create"]
    action["probe"] = claim["probe"]
    action["mappings"] += claim.get("mappings", [])
    return pack


def certified(pack: dict[str, Any], folder: Path, sqlite_url: str) -> Certified:
    """Try the claim over the real transport, and keep the result."""
    file = folder / "claim.yaml"
    file.write_text(json.dumps(pack))
    secret = folder / "secret"
    secret.write_text("a deployment secret for tests, 32 bytes and more")
    settings = Settings(
        database_url=sqlite_url,
        authority=AuthoritySettings(kind="allow_all"),
        egress=EgressSettings(allow_loopback=True),
        secret_file=secret,
    )
    runtime = Runtime(settings, Parts())
    try:
        claim = read_claim(file, profile="local", action="push_country")
        with writing(runtime.engine) as conn:
            now = runtime.world.clock.now(conn)
        with runtime.sender() as send:
            trial = try_claim(claim, runtime.world, tenant="", send=send, at=now)
        with writing(runtime.engine) as conn:
            return keep_result(conn, claim, trial, actor="tester", valid_for_ms=60_000, now=now)
    finally:
        runtime.close()


@pytest.mark.timeout(200)
@pytest.mark.rule("C-091", "D-07")
def test_a_server_that_keeps_if_none_match_is_certified(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sqlite_url: str
) -> None:
    """kinto: a PUT to an id of our own with If-None-Match, twice: one record, found by its id, and gone again."""
    create = {
        "repeat": {"kind": "conditional", "exists": [{"status": [412]}], "lifetime": "1d"},
        "lookup": {
            "path": COUNTRIES + "/{client_id}",
            "match": "/data/id",
            "id": [{"from": "$response.body#/data/id"}],
            "none": [{"status": [404]}],
            "consistency": "strong",
            "absence_is_proof": True,
        },
    }
    probe = {
        "values": VALUES,
        "read": COUNTRIES + "/{remote_id}",
        "delete": COUNTRIES + "/{remote_id}",
        "count": {"path": COUNTRIES, "query": {"name": "{nonce}"}, "items": "/data"},
    }
    with served(monkeypatch, "kinto", tmp_path) as server:
        done = certified(claiming("real-kinto-ids", server, create=create, probe=probe), tmp_path, sqlite_url)
        assert (done.problems, done.passed, done.left_over) == ((), True, ())
        assert done.classes == ("R2 conditional create", "R5 consistent look-up")
        assert server.count("Country") == 0


@pytest.mark.timeout(200)
@pytest.mark.rule("C-091")
def test_a_server_that_ignores_its_key_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sqlite_url: str
) -> None:
    """Localstripe takes `Idempotency-Key` like the service that it stands for, and makes a second record."""
    create = {"idempotency": {"name": "Idempotency-Key", "lifetime": "24h"}}
    probe = {
        "values": VALUES | {"flag": "{nonce}"},
        "read": "/v1/customers/{remote_id}",
        "delete": "/v1/customers/{remote_id}",
        "count": {"path": "/v1/customers", "query": {"email": "{nonce}"}, "items": "/data"},
    }
    mappings = [{"source": "flag", "target": "/email", "clear": "omit"}]
    with served(monkeypatch, "localstripe", tmp_path) as server:
        monkeypatch.setenv("PUSHLINK_REAL_TOKEN", server.secret)
        pack = claiming("real-localstripe", server, create=create, probe=probe, mappings=mappings)
        pack["flows"][0]["actions"][0]["mappings"] = [
            entry for entry in pack["flows"][0]["actions"][0]["mappings"] if entry["target"] != "/metadata/flag"
        ]
        done = certified(pack, tmp_path, sqlite_url)
        assert not done.passed
        assert any("made a second record" in problem for problem in done.problems)
        assert done.left_over == ()
        assert server.count("Country") == 0
