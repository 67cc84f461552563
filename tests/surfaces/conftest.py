"""A directory with a deployment in it, a remote on loopback, and the command line, here or in a process of its own."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner

from pushlink.surfaces.cli import app
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.remote import FaultyRemote

TOKEN = "canary-token-of-the-remote"
VARIABLES = {"NOTES_TOKEN": TOKEN, "COLUMNS": "200", "NO_COLOR": "1"}


@dataclass(frozen=True)
class Answer:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@dataclass
class Shop:
    """One deployment: notes in a table, a pack for a remote on loopback."""

    home: Path
    database_url: str
    remote: FaultyRemote
    variables: dict[str, str] = field(default_factory=lambda: dict(VARIABLES))

    @property
    def config(self) -> Path:
        return self.home / "pushlink.toml"

    @property
    def pack(self) -> Path:
        return self.home / "packs" / "notes.yaml"

    def run(self, *words: object, config: bool = True) -> Answer:
        """Run a command in this process."""
        given = [str(word) for word in words]
        if (
            config
            and words[0] != "init"
            and list(words[:2]) not in (["pack", "check"], ["pack", "schema"], ["pack", "test"])
        ):
            given += ["--config", str(self.config)]
        result = CliRunner().invoke(app, given, env=self.variables)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    def json(self, *words: object, code: int = 0) -> Any:
        """Run a command for its document."""
        answer = self.run(*words, "--json")
        assert answer.code == code, answer
        return answer.document

    def start(self, *words: object, **more: Any) -> subprocess.Popen[str]:
        """Run a command in a process of its own, in the deployment's directory."""
        return subprocess.Popen(
            [Path(sys.executable).with_name("pushlink"), *map(str, words)],
            cwd=self.home,
            env={**os.environ, **self.variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )

    def process(self, *words: object) -> Answer:
        """The same, waited for."""
        with self.start(*words) as process:
            out, err = process.communicate(timeout=60)
        return Answer(process.returncode, out, err)

    def open(self) -> None:
        """Init, point the pack to the remote, make the table, apply."""
        written = self.run("init", self.home, "--authority", "allow_all", "--database-url", self.database_url)
        assert written.code == 0, written
        self.point()
        self.sql("CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT, body TEXT)")
        assert self.run("pack", "apply", self.pack).code == 0

    def point(self) -> None:
        """Let pack and settings speak to the remote on this machine."""
        pack = self.pack.read_text()
        self.pack.write_text(pack.replace("https://api.example.com/v1", self.remote.base_url))
        settings = self.config.read_text()
        self.config.write_text(settings.replace("# allow_loopback = true", "allow_loopback = true"))

    def sql(self, statement: str, **values: Any) -> None:
        """Change the database by hand."""
        import sqlalchemy as sa

        from pushlink.store.dialect import create_engine

        engine = create_engine(self.database_url)
        with engine.begin() as conn:
            conn.execute(sa.text(statement), values)
        engine.dispose()

    def note(self, number: int, title: str = "a title") -> None:
        """A local record."""
        self.sql("INSERT INTO note (id, title, body) VALUES (:id, :title, 'b')", id=number, title=title)

    def drain(self) -> None:
        """A worker until nothing is due, in this process."""
        assert self.run("worker", "--until-idle", "--json", "--log-level", "error").code == 0


@pytest.fixture
def remote() -> Iterator[FaultyRemote]:
    """A remote on loopback."""
    with FaultyRemote(RemoteOptions(token=TOKEN)) as remote:
        yield remote


@pytest.fixture
def shop(tmp_path: Path, database_url: str, remote: FaultyRemote) -> Shop:
    """A deployment that is ready, once for each dialect."""
    shop = Shop(tmp_path / "shop", database_url, remote)
    shop.open()
    return shop


@pytest.fixture
def local_shop(tmp_path: Path, sqlite_url: str, remote: FaultyRemote) -> Shop:
    """The same in a file: for what does not depend on the database."""
    shop = Shop(tmp_path / "shop", sqlite_url, remote)
    shop.open()
    return shop


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """A command sets this process's logs up; the next test finds them as they were."""
    logger = logging.getLogger("pushlink")
    kept: Mapping[str, Any] = {"level": logger.level, "propagate": logger.propagate, "handlers": list(logger.handlers)}
    yield
    logger.setLevel(kept["level"])
    logger.propagate = kept["propagate"]
    logger.handlers[:] = kept["handlers"]
    structlog.reset_defaults()
