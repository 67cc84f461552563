"""A PostgreSQL of one site: clients reach it by a link to whichever server is in charge, so that it can fail over."""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import psycopg

from plugins.postgres import Server, ServerFailed, as_server_account, new_home, own_by_server
from proof.chaos.site import wait_until

#: What a server needs to have replicas; nobody keeps old segments for them, so they are few and quick.
_REPLICATED: Final = {"wal_level": "replica", "max_wal_senders": "4", "wal_keep_size": "256MB"}

#: What it takes to keep little of its log, and to be in need of a new file of it often.
_SMALL: Final = {
    "wal_keep_size": "0",
    "wal_recycle": "off",
    "min_wal_size": "32MB",
    "max_wal_size": "64MB",
    "checkpoint_timeout": "30s",
}
_PROMOTED_S_MAX: Final = 60.0
_IN_CHARGE_S_MAX: Final = 60.0
_DATABASE: Final = "chaos"


class Replica(Server):
    """A server that follows another one from its base backup on."""

    def __init__(self, home: Path, primary: Server) -> None:
        super().__init__(home, _REPLICATED)
        self._primary = primary

    def _initialise(self) -> None:
        own_by_server(self.home)
        command = [str(self._binary("pg_basebackup")), "-D", str(self.data), "-h", str(self._primary.home)]
        command += ["-U", "postgres", "--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]
        done = subprocess.run(command, capture_output=True, check=False, cwd=self.home, **as_server_account())
        if done.returncode != 0:
            raise ServerFailed(f"pg_basebackup failed: {done.stderr.decode(errors='replace')}")

    def receiver(self) -> int:
        """The process that receives the write-ahead log: a child of this server's, found by its title."""
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                title = (entry / "cmdline").read_text()
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.pid and title.startswith("postgres: walreceiver"):
                    return int(entry.name)
        raise ServerFailed("the replica has no walreceiver")


class Cluster:
    """Use it in a `with`, and `remove` it. `url` stays the same, whoever answers. `small`: its disk will be."""

    def __init__(self, *, small: bool = False) -> None:
        self._homes: list[Path] = []
        self._place = new_home()
        self._current = self._place / "s"
        self.primary = Server(self._home(), _REPLICATED | (_SMALL if small else {}))
        self.replica: Replica | None = None

    def __enter__(self) -> Self:
        self.primary.start()
        self._lead_to(self.primary)
        with psycopg.connect(self.primary.dsn(), autocommit=True) as conn:
            conn.execute(f"CREATE DATABASE {_DATABASE}")
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self.replica, self.primary):
            if server is not None:
                with suppress(ServerFailed):
                    server.stop(signal.SIGQUIT)

    def remove(self) -> None:
        """Remove every file of it."""
        for home in [*self._homes, self._place]:
            shutil.rmtree(home, ignore_errors=True)

    @property
    def url(self) -> str:
        """Where clients find the database, before a failover and after it."""
        return f"postgresql+psycopg://postgres@/{_DATABASE}?host={self._current}"

    @property
    def socket(self) -> Path:
        """The server's socket, for a proxy."""
        return self._current / ".s.PGSQL.5432"

    def admin(self) -> psycopg.Connection[tuple[object, ...]]:
        """A connection of somebody who may do everything."""
        return psycopg.connect(self.primary.dsn(), autocommit=True)

    def has_ended(self) -> bool:
        """Whether the server in charge gave up; waits while it recovers by itself, and until it answers."""
        server = self.primary
        wait_until(lambda: server.has_ended() or _answers(server), _IN_CHARGE_S_MAX)
        return server.has_ended()

    def start_again(self) -> None:
        """Start the server in charge, which has ended. What it left holds its memory until that notices as well."""
        failed: list[ServerFailed] = []

        def starts() -> bool:
            try:
                self.primary.start()
            except ServerFailed as failure:
                failed.append(failure)
                return False
            return True

        if not wait_until(starts, _IN_CHARGE_S_MAX):
            raise failed[-1]

    # ------------------------------------------------------------------------------ replicas

    def follow(self, *, synchronous: bool) -> Replica:
        """Make a replica and let it follow; with `synchronous` no commit is reported that it does not have."""
        replica = Replica(self._home(), self.primary)
        replica.start()
        self.replica = replica
        with self.admin() as conn:
            conn.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{'*' if synchronous else ''}'")
            conn.execute("SELECT pg_reload_conf()")
            wanted = "sync" if synchronous else "async"
            query = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"
            if not wait_until(lambda: (wanted,) in conn.execute(query).fetchall(), _PROMOTED_S_MAX):
                raise ServerFailed(f"the replica never became {wanted}")
        return replica

    def fail_over(self) -> None:
        """Kill the primary at once, promote its replica, and lead the clients there. The old one never comes back."""
        replica = self.replica
        if replica is None:
            raise ServerFailed("there is no replica")
        self.primary.stop(signal.SIGKILL)
        wait_until(lambda: _is_promoted(replica), _PROMOTED_S_MAX)
        self.primary, self.replica = replica, None
        self._lead_to(replica)

    def _lead_to(self, server: Server) -> None:
        fresh = self._current.with_name("t")
        fresh.symlink_to(server.home)
        fresh.replace(self._current)

    def _home(self) -> Path:
        self._homes.append(new_home())
        return self._homes[-1]


def _answers(server: Server) -> bool:
    with suppress(psycopg.Error), psycopg.connect(server.dsn()):
        return True
    return False


def _is_promoted(replica: Replica) -> bool:
    with suppress(psycopg.Error), psycopg.connect(replica.dsn(), autocommit=True) as conn:
        if conn.execute("SELECT pg_is_in_recovery()").fetchone() == (False,):
            return True
        conn.execute("SELECT pg_promote(true)")
    return False
