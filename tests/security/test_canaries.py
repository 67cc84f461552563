"""Secrets of many shapes are put where a deployment has secrets, and looked for everywhere else (C-059, S8).

Each tenant of one deployment has a credential of its own shape, in a variable or in a file, and meets a remote that
says the tenant's reply canaries wherever an answer can say something. After saves, workers, a defective transport and
the command line at DEBUG, nothing but `push_response.body` may hold a reply canary, and nothing at all a credential.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from pushlink.adapters.credentials import EnvironmentFileCredentials
from pushlink.bootstrap import Parts, Runtime
from pushlink.errors import ConfigurationError, PushlinkError
from pushlink.flows.outcomes import Refused
from pushlink.flows.telling import told
from pushlink.ports import Transport, WireReply, WireRequest
from pushlink.settings import Settings
from pushlink.store.tables import METADATA
from pushlink.surfaces.cli import app
from pushlink.testing import verbs
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.messages import Asked
from pushlink.testing.remote import FaultyRemote

#: What stands inside of every canary, and survives quoting, escaping and percent-encoding.
CORE = re.compile(r"[0-9A-Za-z]{14,}")


def forms(kind: str) -> list[str]:
    """Twenty secrets; none shares fourteen characters in a row with another."""

    def core(number: int) -> str:
        return f"{kind}{number:02d}Qz{(number + 7) * 7_919_317_211:x}"

    c = [core(number) for number in range(20)]
    pem = base64.b64encode(f"{c[9]} a private key of {c[9]}".encode()).decode()
    return [
        c[0],
        f"{c[1]}.{c[1][::-1]}.signature",
        f'pass"{c[2]}"word',
        f"it's\\{c[3]}\\",
        base64.b64encode(f"user:{c[4]}:{c[4]}".encode()).decode(),
        base64.urlsafe_b64encode(f"{c[5]}??>>{c[5]}".encode()).decode(),
        c[6].encode().hex(),
        f"https://user:{c[7]}@example.com/?key={c[7]}",
        urllib.parse.quote(f"{c[8]} & more/{c[8]}", safe=""),
        f"-----BEGIN PRIVATE KEY-----\n{pem}\n-----END PRIVATE KEY-----",
        f"Authorization: Bearer {c[10]}",
        f"session={c[11]}; Path=/; HttpOnly",
        json.dumps({"token": c[12], "scope": ["a", "b"]}),
        f"{c[13]}-über-geheim-{c[13]}",
        f"{c[14]}\U0001f511{c[14]}",
        f"{c[15]}" + "x" * 3_000 + f"{c[15]}",
        f"first {c[16]}\nsecond {c[16]}",
        f"  {c[17]}\t",
        f"<key>{c[18]}</key>&amp;",
        f"%s{{{c[19]}}}$(x)",
    ]


def needles(secret: str) -> set[str]:
    """Pieces of a secret that are its own, as they are and in the codes that somebody might write them in."""
    pieces = {piece for piece in CORE.findall(secret) if len(set(piece)) > 4 and "PRIVATE" not in piece}
    coded = {base64.b64encode(piece.encode()).decode().rstrip("=")[:-1] for piece in pieces}
    return pieces | coded | {piece.encode().hex() for piece in pieces}


CREDENTIALS = forms("Cred")
REPLIES = forms("Reply")
DENIED = forms("Hide")
SECRET = "DeploymentSecret00Qz6b1f4c0a9d3e"
CARRIED = [number for number, secret in enumerate(CREDENTIALS) if re.fullmatch(r"[\x21-\x7e]{1,8000}", secret)]

PACK = """
pack: canaries
version: 1.0.0
connector_owner_key: owner-canary
namespace: canaries
profiles:
  main:
    base_url: {base_url}
    credential_ref: "{reference}"
    timeouts: {{connect: 4s, total: 4s}}
    retry: {{attempts: 2, backoff: {{base: 1h, cap: 1h}}}}
destinations:
  - {{destination_slot_id: dest-canary, target_object: notes, profile: main}}
flows:
  - flow: Canaries
    version: 1
    actions:
      - action: push_note
        action_slot_id: act-note
        source_object: Note
        destination: dest-canary
        create: {{path: /notes, response: {{id: [{{from: $response.body#/id}}]}}}}
        update: {{path: "/notes/{{remote_id}}"}}
        mappings: [{{source: title, target: /title}}]
      - action: push_vault
        action_slot_id: act-vault
        source_object: Vault
        destination: dest-canary
        create: {{path: /vaults, response: {{id: [{{from: $response.body#/id}}]}}}}
        mappings: [{{source: title, target: /title}}, {{source: hidden, target: /hidden}}]
"""

SETTINGS = """
database_url = "{database_url}"
secret_file = "secret"
[authority]
kind = "policy"
file = "policy.yaml"
[objects.Note]
table = "note"
key = [{{column = "id", type = "integer"}}]
[objects.Vault]
table = "vault"
key = [{{column = "id", type = "integer"}}]
[egress]
allow_loopback = true
"""

POLICY = """
policy: 1
roles:
  writer:
    objects:
      Note: {fields: all, rows: all}
      Vault: {fields: [title], rows: all}
users:
  ann: {roles: [writer]}
"""

#: Notes of every tenant: what the remote does with each.
NOTES = {1: "ok", 2: "unauthorized", 3: "broken", 4: "hangs", 5: "rejected"}
CRASHES = 6


class Defective(Transport):
    """A transport that breaks its promise and raises, with all that it knows in the text."""

    def __init__(self, credentials: EnvironmentFileCredentials) -> None:
        self._credentials = credentials
        self.sent = 0

    async def send(self, request: WireRequest) -> WireReply:
        secret = self._credentials.resolve(request.profile.credential_ref or "", tenant=request.tenant)
        self.sent += 1
        msg = f"could not send with {secret.value}"
        raise RuntimeError(msg) from ValueError(secret.value, request.body)

    async def close(self) -> None:
        """There is nothing to release."""


@dataclass
class Scene:
    """One deployment with everything that it wrote."""

    home: Path
    database_url: str
    remote: FaultyRemote
    variables: dict[str, str]
    said: list[str] = field(default_factory=list)

    @property
    def config(self) -> Path:
        return self.home / "pushlink.toml"

    def run(self, *words: object) -> None:
        """A command in this process; what it writes is kept, whatever its end."""
        result = CliRunner().invoke(app, [*map(str, words), "--config", str(self.config)], env=self.variables)
        self.said += [result.stdout, result.stderr, repr(result.exception)]
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception

    def keep(self, *things: object) -> None:
        """What an error or an object says of itself."""
        for thing in things:
            self.said += [repr(thing), str(thing)]
            if isinstance(thing, PushlinkError):
                self.said += [repr(thing.evidence), str(thing.next_step)]
            if isinstance(thing, BaseException):
                self.said.append(told(thing))


def tenant(number: int) -> str:
    return f"t{number}"


def is_note(number: int, what: str) -> Any:
    def fits(asked: Asked) -> bool:
        return bool(asked.body) and asked.json().get("title") == f"{tenant(number)}-{what}"

    return fits


def echo(number: int) -> dict[str, Any]:
    """An answer's body and headers that say a reply canary wherever they can."""
    secret = REPLIES[number]
    word = CORE.findall(secret)[0]
    headers = [("Set-Cookie", f"s={word}"), ("WWW-Authenticate", f'Bearer realm="{word}"'), ("X-Echo", word)]
    return {"document": {"id": number + 1, "error": secret, word: [secret]}, "headers": headers}


def play(remote: FaultyRemote, number: int) -> None:
    """How the remote meets the notes of one tenant."""
    told_back = echo(number)
    remote.always(verbs.store_then_answer(201, **told_back), when=is_note(number, "ok"))
    remote.always(verbs.answer(401, **told_back), when=is_note(number, "unauthorized"))
    remote.always(verbs.store_then_answer(500, **told_back), when=is_note(number, "broken"))
    remote.always(verbs.hang(), when=is_note(number, "hangs"))
    remote.always(verbs.answer(422, **told_back), when=is_note(number, "rejected"))


@pytest.fixture
def log_records() -> Iterator[list[str]]:
    """Everything that any logger of this process says, from DEBUG on, with tracebacks."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(logging.Formatter("%(name)s %(message)s").format(record))

    handler, root = Keep(), logging.getLogger()
    names = ["pushlink", "sqlalchemy.engine", "sqlalchemy.pool", "asyncio", "aiohttp", "alembic"]
    loggers = [root, *map(logging.getLogger, names)]
    levels = [(logger, logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
    root.addHandler(handler)
    yield lines
    root.removeHandler(handler)
    for logger, level, propagates, handlers in levels:
        logger.setLevel(level)
        logger.propagate = propagates
        logger.handlers[:] = handlers


@pytest.fixture
def scene(tmp_path: Path, database_url: str, log_records: list[str]) -> Iterator[Scene]:
    """A deployment with a tenant for each shape of a secret; credentials in variables and in files by turns."""
    variables = {"COLUMNS": "200", "NO_COLOR": "1", "CANARY_TOKEN": "unused"}
    for number, secret in enumerate(CREDENTIALS):
        if number % 2 == 0:
            variables[f"CANARY_TOKEN__{tenant(number)}"] = secret
        else:
            path = tmp_path / f"credential.{tenant(number)}"
            path.write_text(secret, encoding="utf-8")
            path.chmod(0o600)
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "pushlink.toml").write_text(SETTINGS.format(database_url=database_url))
    (tmp_path / "policy.yaml").write_text(POLICY)
    with FaultyRemote(RemoteOptions()) as remote, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        for name, reference in (("env", "env:CANARY_TOKEN"), ("file", f"file:{tmp_path}/credential")):
            text = PACK.format(base_url=remote.base_url, reference=reference)
            (tmp_path / f"{name}.yaml").write_text(text)
        yield Scene(tmp_path, database_url, remote, variables)


def prepare(scene: Scene, runtime: Runtime) -> None:
    """Tables, records, packs and saves, the ones that are refused too."""
    with runtime.engine.begin() as conn:
        conn.execute(sa.text("CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT)"))
        conn.execute(sa.text("CREATE TABLE vault (id INTEGER PRIMARY KEY, title TEXT, hidden TEXT)"))
        for number, hidden in enumerate(DENIED):
            vault = {"id": number, "title": "a vault", "hidden": hidden}
            conn.execute(sa.text("INSERT INTO vault (id, title, hidden) VALUES (:id, :title, :hidden)"), vault)
            for note, what in [*NOTES.items(), (CRASHES, "crashes")]:
                row = {"id": number * 10 + note, "title": f"{tenant(number)}-{what}"}
                conn.execute(sa.text("INSERT INTO note (id, title) VALUES (:id, :title)"), row)
    for number in range(len(CREDENTIALS)):
        pack = scene.home / ("env.yaml" if number % 2 == 0 else "file.yaml")
        runtime.apply_pack(pack, tenant=tenant(number), actor="tester", reason="a test")
        play(scene.remote, number)
        with runtime.engine.begin() as conn:
            records = [("Note", number * 10 + note) for note in NOTES]
            outcomes = runtime.save_many(conn, [*records, ("Vault", number)], user="ann", tenant=tenant(number))
            scene.keep(outcomes)
            assert isinstance(outcomes[-1][0], Refused)
        with runtime.engine.begin() as conn:
            runtime.save(conn, "Note", number * 10 + 1, user="ann", tenant=tenant(number))


def crash(scene: Scene, runtime: Runtime) -> None:
    """A worker over a transport that raises with everything in the text; the worker lives."""
    credentials = EnvironmentFileCredentials(SECRET.encode())
    defective = Defective(credentials)
    broken = Runtime(
        Settings.load(scene.config), Parts(engine=runtime.engine, credentials=credentials, transport=lambda: defective)
    )
    for number in range(len(CREDENTIALS)):
        with runtime.engine.begin() as conn:
            broken.save(conn, "Note", number * 10 + CRASHES, user="ann", tenant=tenant(number))
    tally = asyncio.run(broken.worker().run(until_idle=True))
    assert tally.abandoned == defective.sent == len(CREDENTIALS)
    request = next(iter(scene.remote.log))
    scene.keep(broken, broken.world, broken.settings, credentials, tally, request.verb)


def mistakes(scene: Scene) -> None:
    """Errors about settings, credentials and databases that cannot be reached."""
    for number, secret in enumerate(CREDENTIALS):
        url = f"postgresql://user:{urllib.parse.quote(secret, safe='')}@127.0.0.1:1/nothing"
        settings = Settings.load(scene.config, database_url=url)
        runtime = Runtime(settings)
        with pytest.raises(Exception) as caught, runtime.engine.connect():  # noqa: PT011 - whatever it is
            pass
        scene.keep(settings, runtime, caught.value)
        world = Runtime(Settings.load(scene.config)).world
        scene.keep(world.credentials.resolve("env:CANARY_TOKEN", tenant=tenant(number)) if number % 2 == 0 else world)
        runtime.close()
    with pytest.raises(ConfigurationError) as refused:
        Settings.load(scene.config, worker={"lease": CREDENTIALS[0]}, database_url=CREDENTIALS[2])
    scene.keep(refused.value)
    broken = Settings.load(scene.config)
    scene.keep(broken, broken.model_dump_json(exclude={"database_url"}))


def commands(scene: Scene) -> None:
    """What people type when something is wrong."""
    for number in range(len(CREDENTIALS)):
        of = ["--tenant", tenant(number)]
        scene.run("attempts", *of, "--json")
        scene.run("history", "Note", number * 10 + 2, *of)
        scene.run("explain", "Note", number * 10 + 1 + number % 5, *of)
    for of in (["--tenant", tenant(0)], ["--tenant", tenant(2), "--json"]):
        scene.run("links", *of)
        scene.run("history", "Note", 3, *of)
        scene.run("pack", "list", *of)
        scene.run("pack", "plan", scene.home / "env.yaml", *of)
        scene.run("save", "Vault", 2, "--user", "ann", *of)
        scene.run("push", "Note", 1, *of)
    scene.run("doctor")
    scene.run("doctor", "--json")


def stored(engine: sa.Engine) -> dict[str, str]:
    """Every text and every byte of pushlink's tables, by `table.column`."""
    found: dict[str, list[str]] = {}
    with engine.begin() as conn:
        for table in METADATA.sorted_tables:
            for row in conn.execute(sa.select(table)).mappings():
                for name, value in row.items():
                    text = bytes(value).decode("utf-8", "replace") if isinstance(value, bytes | memoryview) else value
                    found.setdefault(f"{table.name}.{name}", []).append(str(text))
    return {place: "\n".join(texts) for place, texts in found.items()}


def files(scene: Scene) -> dict[str, str]:
    """The bytes of the database, its write-ahead log among them, where it is a file."""
    path = sa.make_url(scene.database_url).database or ""
    found = (
        [Path(path + ending) for ending in ("", "-wal", "-shm", "-journal")] if "sqlite" in scene.database_url else []
    )
    return {file.name: file.read_bytes().decode("latin-1") for file in found if file.exists()}


def hits(secrets: list[str], places: dict[str, str]) -> list[tuple[int, str]]:
    """Which secret is found in which place."""
    wanted = [(number, needles(secret)) for number, secret in enumerate(secrets)]
    return [
        (number, place)
        for place, text in places.items()
        for number, pieces in wanted
        if any(piece in text for piece in pieces)
    ]


def lines_with(secrets: list[str], places: dict[str, str]) -> list[str]:
    """For each hit its place and what stands around it, for whoever has to find the leak."""
    found = []
    for number, place in hits(secrets, places):
        text = places[place]
        at = min(text.index(piece) for piece in needles(secrets[number]) if piece in text)
        found.append(f"{number} in {place}: {text[max(at - 200, 0) : at + 40]!r}")
    return found


@pytest.mark.rule("C-059", "D-34")
def test_no_canary_leaves_its_place(scene: Scene, log_records: list[str]) -> None:
    """Credentials are nowhere but in their variables and files; a reply's text is in its stored body alone."""
    runtime = Runtime.from_settings(scene.config)
    prepare(scene, runtime)
    scene.run("worker", "--until-idle", "--log-level", "debug", "--log-format", "json")
    scene.run("worker", "--until-idle", "--log-level", "debug")
    logging.getLogger("pushlink").propagate = True
    crash(scene, runtime)
    mistakes(scene)
    commands(scene)
    logs = list(log_records)  # what is read for the search below is not said by pushlink
    tables = stored(runtime.engine)
    open_files = files(scene)
    runtime.close()
    closed_files = {f"closed {name}": text for name, text in files(scene).items()}

    # The canaries were there to be found: on the wire, in the stored bodies, and among the records.
    sent = {header for one in scene.remote.log if (header := one.asked.header("Authorization"))}
    assert {f"Bearer {CREDENTIALS[number]}" for number in CARRIED} == sent
    bodies = {"push_response.body": tables["pushlink_push_response.body"]}
    assert {number for number, _ in hits(REPLIES, bodies)} == set(CARRIED)
    assert len(CARRIED) >= 10
    assert any("a transport raised" in line for line in logs)

    spoken = {f"output {number}": text for number, text in enumerate(scene.said)} | {"logs": "\n".join(logs)}
    assert lines_with([*CREDENTIALS, SECRET], {**tables, **open_files, **closed_files, **spoken}) == []
    allowed = {place: text for place, text in tables.items() if place != "pushlink_push_response.body"}
    assert lines_with(REPLIES, {**allowed, **spoken}) == []
    assert lines_with(DENIED, {**tables, **spoken}) == []


def test_every_canary_can_be_found() -> None:
    """Each shape has pieces of its own that stand in it, in no other one, and survive being quoted."""
    for family in (CREDENTIALS, REPLIES, DENIED):
        assert len(family) == 20
        for number, secret in enumerate(family):
            assert needles(secret)
            for written in (secret, repr(secret), json.dumps(secret), urllib.parse.quote(secret), str([secret])):
                assert hits(family, {"x": written}) == [(number, "x")], secret
    everything = {"x": "\n".join([*CREDENTIALS, SECRET, *REPLIES])}
    assert hits(DENIED, everything) == []


def test_an_unexpected_error_is_told_by_type_and_place() -> None:
    """What it says is not told, nor what its causes say."""
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError(CREDENTIALS[1]) from KeyError(CREDENTIALS[0])
    text = told(caught.value)
    assert text.startswith("RuntimeError from KeyError at ")
    assert "test_canaries.py" in text
    assert hits(CREDENTIALS, {"text": text}) == []
    assert told(ValueError(CREDENTIALS[0])) == "ValueError at an unknown place"
