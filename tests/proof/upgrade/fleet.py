"""A deployment whose processes are of two releases: the kept one made its tables, this one upgrades them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from proof.chaos.site import Site, environment
from pushlink.store.schema import check
from support.bench import METADATA

#: Requests of a worker at once.
SENDS_MAX: Final = 2

#: No process takes longer to end that was asked to.
END_S_MAX: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Code: `source` is where Python imports it from, `None` for this one."""

    name: str
    source: Path | None = None

    def command(self, run: str) -> list[str]:
        """A Python that runs this text with this code, and no other."""
        first = "" if self.source is None else f"import sys; sys.path.insert(0, {str(self.source)!r})\n"
        return [sys.executable, "-c", first + run]


#: What a process runs.
BEGIN: Final = """
import sys; from pushlink.bootstrap import Runtime
runtime = Runtime.from_settings(sys.argv[1])
runtime.upgrade(); runtime.apply_pack(sys.argv[2], actor="upgrade", reason="begin")
"""
UPGRADE: Final = """
import sys; from pushlink.store import dialect, schema
engine = dialect.create_engine(sys.argv[1]); print(flush=True); schema.upgrade(engine)
"""
PUSHLINK: Final = "from pushlink.surfaces.cli import main; main()"
HOST: Final = "import runpy; runpy.run_module('proof.upgrade.host', run_name='__main__', alter_sys=True)"

#: What a worker calls itself in its log, and in the events of what it did.
_NAMED: Final = re.compile(r"\bworker=(\w+)")
_DONE: Final = sa.text("SELECT count(DISTINCT attempt_id) FROM pushlink_attempt_event WHERE actor = :worker")


@dataclass(slots=True, kw_only=True)
class Running:
    """A process, its release, and the file that it says its last word to."""

    process: subprocess.Popen[str]
    release: str
    kind: str
    said: Path
    told: dict[str, Any] = field(default_factory=dict)


class Fleet(Site):
    """A site on tables of the older release, which can run processes of both."""

    def __init__(self, url: str, home: Path, logs: Path, older: Release) -> None:
        self.older = older
        self.newer = Release(name="this")
        self.fleet: list[Running] = []
        super().__init__(url, home, logs, faithful=True, grace_s=5.0)

    def _set_up(self) -> None:
        """Make the tables and apply the pack, as the older release does it.

        A worker has few requests at once, so that none takes all that is due from the others.
        """
        text = self.settings.read_text(encoding="utf-8")
        self.settings.write_text(text.replace("sends_max = 16", f"sends_max = {SENDS_MAX}"), encoding="utf-8")
        pack = self.home / "pack.yaml"
        pack.write_text(self.pack.replace("http://127.0.0.1:9\n", f"{self.address}\n"), encoding="utf-8")
        METADATA.create_all(self.engine)
        self._finish(self.older.command(BEGIN), str(self.settings), str(pack))

    def run(self, release: Release, *words: str) -> str:
        """Run one command of a release to its end; what it said. Raises `RuntimeError` when that was a refusal."""
        return self._finish(release.command(PUSHLINK), *words, "--config", str(self.settings))

    def kill_upgrade(self, seconds: float) -> bool:
        """Begin an upgrade and kill it so many seconds later; whether it had not ended by then."""
        command = [*self.newer.command(UPGRADE), self.url]
        with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
            process.stdout.readline()  # type: ignore[union-attr]
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            process.kill()
        return process.returncode == -signal.SIGKILL

    def _finish(self, command: list[str], *words: str) -> str:
        done = subprocess.run(
            [*command, *words], env=environment(), capture_output=True, text=True, check=False, cwd=self.home
        )
        if done.returncode:
            raise RuntimeError(f"{words} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self, release: Release, kind: str, *words: str) -> Running:
        """Start a worker or a host of a release."""
        number = len(self.fleet)
        said = self.logs / f"{number}-{release.name}-{kind}.json"
        run = release.command(HOST) if kind == "host" else [*release.command(PUSHLINK), "worker", "--json", "--config"]
        with said.open("w") as out, said.with_suffix(".log").open("w") as log:
            command = [*run, str(self.settings), *words]
            process = subprocess.Popen(
                command, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=log, text=True, cwd=self.home
            )
        running = Running(process=process, release=release.name, kind=kind, said=said)
        self.fleet.append(running)
        (self.hosts if kind == "host" else self.workers).append(process)
        return running

    def start_worker(self) -> subprocess.Popen[str]:
        """One more worker, of this release."""
        return self.start(self.newer, "worker").process

    def done(self, worker: Running) -> int:
        """How many attempts a worker has done something about."""
        named = _NAMED.search(self._log_of(worker))
        with self.reader.connect() as conn:
            return 0 if named is None else int(conn.execute(_DONE, {"worker": named[1]}).scalar_one())

    def end(self, running: Running) -> list[str]:
        """Ask it to stop, and wait for it; what was wrong with that."""
        process = running.process
        died = process.poll()
        process.send_signal(signal.SIGTERM)
        code = process.wait(END_S_MAX)
        text = running.said.read_text(encoding="utf-8")
        if died is not None or code or not text:
            return [
                f"a {running.kind} of the {running.release} release ended with {code}: {text}{self._log_of(running)}"
            ]
        running.told = json.loads(text)
        return []

    @staticmethod
    def _log_of(running: Running) -> str:
        return running.said.with_suffix(".log").read_text(encoding="utf-8")[-4_000:]

    def is_upgraded(self) -> bool:
        """Whether the tables are those of this release."""
        return check(self.engine).is_current
