"""A deployment in a directory, as people run one: settings, a pack, hosts and workers in processes of their own."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from proof.judge.tally import Tally, tally
from pushlink.bootstrap import Runtime
from pushlink.store.dialect import create_engine, read_only
from pushlink.testing.drain import apply
from support.bench import METADATA, MIRROR, PACK

TESTS: Final = Path(__file__).resolve().parents[2]

#: Seconds: a request's deadline, the margin beside it, and the lease that holds both. Where nobody dies they are
#: long, so that no slow machine outlasts them.
DEADLINE_S, MARGIN_S, LEASE_S = 2.0, 0.5, 6.0
FAITHFUL_S: Final = (30.0, 15.0, 300.0)

#: Seconds without any progress, once the trouble is over, after which a drain is stuck; and that is a defect.
STUCK_S: Final = 240.0
POLL_S: Final = 0.1

#: What a worker says when it begins to work.
_UP: Final = "the worker starts"

#: What becomes of a record's first create, and of its first update, by what its key begins with. The rest is plain.
BEHAVIOURS: Final[dict[str, dict[str, list[str]]]] = {
    "lost": {"POST": ["reply_lost"]},
    "never": {"POST": ["request_lost"]},
    "broken": {"POST": ["error_with_effect"]},
    "rejected": {"POST": ["reject"]},
    "busy": {"POST": ["throttle"]},
    "halved": {"PATCH": ["truncated"]},
}
#: One key in so many has one of these beginnings.
ODD_ONE_IN: Final = 8

PACK_TEXT: Final = (
    PACK.replace("total: 10s", f"total: {DEADLINE_S:g}s").replace("env:TOKEN", "env:CHAOS_TOKEN") + MIRROR
)

_SETTINGS: Final = """
database_url = "{url}"
secret_file = "secret"
state_directory = "state"
authority = {{ kind = "allow_all" }}
egress = {{ allow_loopback = true }}

[worker]
sends_max = 16
lease = "{lease}ms"
margin = "{margin}ms"
grace = "{grace}ms"
poll = "200ms"
claims_max = 1000

[objects.Person]
table = "person"
key = [{{column = "id", type = "text"}}]
"""

#: What a worker still has to do: claimed, or due and not held.
_WAITING: Final = sa.text(
    "SELECT count(*) FROM pushlink_push_attempt WHERE status IN ('processing', 'post_sent', 'writeback_commit_pending')"
    " OR (status IN ('pending', 'writeback_pending') AND hold_code IS NULL)"
)


def key(number: int, *, faithful: bool) -> str:
    """A record's key: plain, or (one in eight) with a beginning that the remote finds a behaviour by."""
    odd = list(BEHAVIOURS)
    if faithful or number % ODD_ONE_IN:
        return f"plain.{number}"
    return f"{odd[number // ODD_ONE_IN % len(odd)]}.{number}"


class Site:
    """One deployment. Close it to end everything that it started."""

    def __init__(self, url: str, home: Path, logs: Path, *, grace_s: float = 0.3, faithful: bool = False) -> None:
        self.url = url
        self.home = home
        self.logs = logs
        self.faithful = faithful
        self.log = logs / "remote.jsonl"
        self.log.touch()
        self.workers: list[subprocess.Popen[str]] = []
        self._started = 0
        self._read = self._sends = 0
        self._logs: dict[int, Path] = {}
        self.hosts: list[subprocess.Popen[str]] = []
        self.program = ["-c", "from pushlink.surfaces.cli import main; main()"]
        self.host = ["-m", "proof.chaos.host"]
        self._remote = self._start_remote()
        self.address = f"http://127.0.0.1:{int(self._line(self._remote))}"
        self.settings = home / "pushlink.toml"
        (home / "secret").write_text(secrets.token_hex(32), encoding="ascii")
        deadline_s, *times_s = FAITHFUL_S if faithful else (DEADLINE_S, MARGIN_S, LEASE_S)
        margin, lease, grace = (int(seconds * 1000) for seconds in (*times_s, grace_s))
        text = _SETTINGS.format(url=url, lease=lease, margin=margin, grace=grace)
        self.pack = PACK_TEXT.replace(f"total: {DEADLINE_S:g}s", f"total: {deadline_s:g}s")
        self.settings.write_text(text, encoding="utf-8")
        self.engine = create_engine(url, pool_pre_ping=True)
        self.reader = read_only(self.engine)  # waits for no writer, and keeps none waiting
        self._set_up()

    def _set_up(self) -> None:
        """Make the tables, the host's too, and apply the pack."""
        runtime = Runtime.from_settings(self.settings)
        try:
            runtime.upgrade()
            METADATA.create_all(runtime.engine)
            apply(runtime, self.pack, base_url=self.address)
        finally:
            runtime.close()

    # ------------------------------------------------------------------------------ processes

    def start_worker(self) -> subprocess.Popen[str]:
        """One more `pushlink worker`, with a log of its own."""
        self._started += 1
        log = f"worker-{self._started:04d}.log"
        worker = self._process(log, *self.program, "worker", "--config", str(self.settings), "--json")
        self.workers.append(worker)
        self._logs[worker.pid] = self.logs / log
        return worker

    def working(self) -> list[subprocess.Popen[str]]:
        """The workers that have begun to work: who strikes those that still import themselves never lets any work."""
        return [one for one in self.workers if one.poll() is None and _UP in self._logs[one.pid].read_text()]

    def run_command(self, *words: str) -> str:
        """Run a `pushlink` command to its end, and give what it said."""
        command = [sys.executable, *self.program, *words, "--config", str(self.settings)]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"pushlink {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def start_hosts(self, records: int, *, seconds: float, count: int = 2) -> None:
        """Host processes, each with its share of the records, spread over so many seconds."""
        for turn in range(count):
            told = [str(self.settings), str(records), str(turn), str(count), str(seconds)]
            self.hosts.append(self._process("host.log", *self.host, *told, *(["--faithful"] * self.faithful)))

    def keep_alive(self, count: int) -> None:
        """Start workers in place of those that ended."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < count:
            self.start_worker()

    def stop_workers(self, patience_s: float = 30.0) -> None:
        """Ask all of them to stop, and wait for it."""
        for worker in self.workers:
            send_signal(worker, signal.SIGCONT)
            send_signal(worker, signal.SIGTERM)
        for worker in self.workers:
            try:
                worker.wait(patience_s)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self.workers = []

    def close(self) -> None:
        """End every process of this site."""
        for process in [*self.workers, *self.hosts]:
            process.kill()
            process.wait()
        if self._remote.stdin is not None:
            self._remote.stdin.close()
        self._remote.wait()
        self.engine.dispose()

    # ------------------------------------------------------------------------------ what is there

    def are_saving(self) -> bool:
        """Whether a host is at work; raises when one ended badly."""
        ends = [host.poll() for host in self.hosts]
        if any(ends):
            raise RuntimeError(f"a host ended with {ends}: {(self.logs / 'host.log').read_text()[-2000:]}")
        return None in ends

    def waiting(self) -> int | None:
        """How many attempts still need a worker; `None` while the database does not answer."""
        try:
            with self.reader.connect() as conn:
                return int(conn.execute(_WAITING).scalar_one())
        except sa.exc.SQLAlchemyError:
            return None

    def sends(self) -> int:
        """How many requests the remote has written down; reads what is new."""
        with self.log.open("rb") as file:
            file.seek(self._read)
            found = file.read()
        self._read += len(found)
        self._sends += found.count(b"\n")
        return self._sends

    def drain(self, workers: int) -> float:
        """Let workers work until nothing waits; the seconds it took. Raises `RuntimeError` when nothing goes on."""
        began = moved = time.monotonic()
        before: tuple[object, ...] = ()
        while True:
            self.keep_alive(workers)
            is_saving, left = self.are_saving(), self.waiting()
            if not is_saving and left == 0:
                return time.monotonic() - began
            at = (is_saving, left, self.sends())
            if at != before:
                before, moved = at, time.monotonic()
            if time.monotonic() - moved > STUCK_S:
                raise RuntimeError(f"{left} attempts wait, and nothing happened for {STUCK_S:.0f} s")
            time.sleep(POLL_S)

    def problems(self, records: list[str], **more: Any) -> list[str]:
        """What the judge finds, who is a process that never loaded pushlink."""
        asked = {"url": self.url, "log": str(self.log), "records": records, "settled": True, "whole": True, **more}
        done = subprocess.run(
            [sys.executable, "-m", "proof.judge"],
            input=json.dumps(asked) + "\n",
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        found: list[str] = json.loads(done.stdout)["problems"]
        return found

    def tally(self) -> Tally:
        """The figures, out of the tables and the remote's log."""
        return tally(self.engine, self.log)

    def records(self) -> list[str]:
        """The keys of all records that the host's table has."""
        with self.engine.connect() as conn:
            return list(conn.execute(sa.text("SELECT id FROM person ORDER BY id")).scalars())

    def _start_remote(self) -> subprocess.Popen[str]:
        return self._process("remote.log", "-m", "proof.judge.remote", str(self.log), json.dumps(BEHAVIOURS))

    def _process(self, log: str, *words: str) -> subprocess.Popen[str]:
        with (self.logs / log).open("a", encoding="utf-8") as file:
            return subprocess.Popen(
                [sys.executable, *words],
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if "proof.judge.remote" in words else file,
                stderr=file,
                text=True,
            )

    @staticmethod
    def _line(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline()


def send_signal(process: subprocess.Popen[str], what: signal.Signals) -> None:
    """To a process that may have ended."""
    if process.poll() is None:
        process.send_signal(what)


def wait_until(is_so: Callable[[], bool], seconds: float, poll_s: float = POLL_S) -> bool:
    """Ask again and again; whether it became so in time."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(poll_s)
    return True


def environment() -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PUSHLINK_")}
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**plain, "PYTHONPATH": path, "CHAOS_TOKEN": "any-token"}
