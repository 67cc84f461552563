"""Troubles: what is done to a deployment at work, one blow after the other, and what must hold afterwards.

A trouble is an entry of `TROUBLES`. `strike` deals one blow and says what it was; `heal` ends
what blows left behind.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from proof.chaos.cluster import Cluster
from proof.chaos.disks import fill, own_file_system, shrink
from proof.chaos.proxy import CutProxy
from proof.chaos.site import LEASE_S, Site, send_signal, wait_until
from proof.databases import DIALECTS

#: Megabytes that a database has on the file system that is filled up: so many (a server keeps more of its log), and one
#: more for so many records.
_SMALL_MB: Final = {"sqlite": 24, "postgresql": 160}
_RECORDS_OF_A_MB: Final = 64  # with their requests, answers and events, and what the write-ahead log needs beside

#: Blows that a run has at least.
BLOWS_MIN: Final = 3

#: Where a clock may jump to, in seconds from the true time. What one day's clock put off is due on that day only, so a
#: clock that wandered on and on would soon stand where nothing is.
_SHIFTS_S: Final = (0, 3_600, -3_600, 86_400, -86_400)


@dataclass(slots=True, kw_only=True)
class Scene:
    """A site in trouble. `disk` is where its database is; `cluster` and `proxy` are there where they are needed."""

    site: Site
    random: random.Random
    disk: Path
    cluster: Cluster | None = None
    proxy: CutProxy | None = None
    struck: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    stopped: set[int] = field(default_factory=set)  # processes
    _later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do it in so many seconds, between two blows."""
        self._later.append((time.monotonic() + seconds, action))

    def tick(self, *, at_once: bool = False) -> None:
        """Do what has become due, or everything."""
        due = [item for item in self._later if at_once or item[0] <= time.monotonic()]
        self._later = [item for item in self._later if item not in due]
        for _, action in due:
            action()

    @property
    def postgres(self) -> Cluster:
        """The cluster of a trouble that needs one."""
        assert self.cluster is not None
        return self.cluster

    def a_worker(self) -> subprocess.Popen[str] | None:
        """Any of those that work and were not asked to stop, if there is one."""
        working = [one for one in self.site.working() if one.pid not in self.stopped]
        return self.random.choice(working) if working else None


Blow = Callable[[Scene], str]


def _nothing(scene: Scene) -> None:
    del scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One kind of trouble. `every_s`: the shortest and longest time between two blows, in seconds.

    `strike` says what it did, or nothing where there was nobody to strike.
    """

    name: str
    strike: Blow
    every_s: tuple[float, float]
    blows_min: int = BLOWS_MIN  # however soon the work is done
    dialects: tuple[str, ...] = DIALECTS
    heal: Callable[[Scene], None] = _nothing
    grace_s: float = 0.3
    faithful: bool = False  # the remote does everything that it is asked
    proxied: bool = False
    small: bool = False  # its database is on a file system of a few megabytes
    late: bool = False  # with clocks that jump
    loses: bool = (
        False  # commits may be lost, so the tables may know less than the remote, and nothing new is sent then
    )


# ------------------------------------------------------------------------------------------------ processes


def _kill(scene: Scene) -> str:
    if (worker := scene.a_worker()) is None:
        return ""
    send_signal(worker, signal.SIGKILL)
    return "SIGKILL"


def _pause(scene: Scene) -> str:
    if (worker := scene.a_worker()) is None:
        return ""
    send_signal(worker, signal.SIGSTOP)
    is_long = scene.random.random() < 0.5
    seconds = scene.random.uniform(1.2, 1.8) * LEASE_S if is_long else scene.random.uniform(0.1, 0.8) * LEASE_S
    scene.after(seconds, lambda: send_signal(worker, signal.SIGCONT))
    return "SIGSTOP past the lease" if is_long else "SIGSTOP within the lease"


def _stop_short(scene: Scene) -> str:
    if (worker := scene.a_worker()) is None:
        return ""
    send_signal(worker, signal.SIGTERM)
    scene.after(0.5, lambda: send_signal(worker, signal.SIGKILL))
    return "SIGTERM, SIGKILL after 0.5 s"


def _stop(scene: Scene) -> str:
    """Once for each: a second signal ends a worker at once."""
    if (worker := scene.a_worker()) is None:
        return ""
    scene.stopped.add(worker.pid)
    send_signal(worker, signal.SIGTERM)
    return "SIGTERM"


# ------------------------------------------------------------------------------------------------ PostgreSQL


def _crash(scene: Scene) -> str:
    how = scene.random.choice([signal.SIGKILL, signal.SIGQUIT])
    scene.postgres.primary.stop(how)
    scene.postgres.start_again()
    return "postmaster SIGKILL" if how is signal.SIGKILL else "immediate stop"


def _terminate(scene: Scene) -> str:
    which = scene.random.choice(["ORDER BY random() LIMIT 1", ""])
    with scene.postgres.admin() as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity"
            f" WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() {which}) AS sessions"  # type: ignore[arg-type]
        )
    return "one session terminated" if which else "all sessions terminated"


def _fail_over(scene: Scene) -> str:
    scene.postgres.follow(synchronous=True)
    _let_work(scene)
    scene.postgres.fail_over()
    return "failover, synchronous"


def _fail_over_behind(scene: Scene) -> str:
    """Stop the replica's receiver, let the primary go on for a while, and lose what only the primary had.

    From the loss on nothing may be sent until a person confirms; whoever confirms does it by the command.
    """
    site, cluster = scene.site, scene.postgres
    if scene.struck:
        return ""
    replica = cluster.follow(synchronous=False)
    _let_work(scene)
    receiver = replica.receiver()
    os.kill(receiver, signal.SIGSTOP)
    _let_work(scene)
    timelines = {_timeline(cluster)}
    cluster.primary.process.send_signal(signal.SIGKILL)  # type: ignore[union-attr]
    os.kill(receiver, signal.SIGKILL)
    cluster.fail_over()
    timelines.add(_timeline(cluster))
    if len(timelines) != 2:
        scene.problems.append(f"the timeline did not change: {timelines}")
    if not wait_until(lambda: _mode(site) == "recovery", 20):
        scene.problems.append("nobody noticed that the database is behind")
        return "failover, asynchronous and behind"
    sends = site.sends()
    time.sleep(2 * LEASE_S)
    if site.sends() != sends:
        scene.problems.append(f"{site.sends() - sends} requests were sent before anybody confirmed the database")
    site.run_command("deployment", "confirm", "--reason", "a failover to a replica that was behind")
    return "failover, asynchronous and behind"


def _let_work(scene: Scene) -> None:
    """Wait until the remote has been asked some more, or there is nothing to ask."""
    site, before = scene.site, scene.site.sends()
    wait_until(lambda: site.sends() >= before + 40 or not (site.are_saving() or site.waiting()), 10)


def _timeline(cluster: Cluster) -> str:
    with cluster.admin() as conn:
        [name] = conn.execute("SELECT pg_walfile_name(pg_current_wal_insert_lsn())").fetchone() or ("",)
    return str(name)[:8]


def _mode(site: Site) -> str | None:
    with suppress(sa.exc.SQLAlchemyError), site.engine.connect() as conn:
        return str(conn.execute(sa.text("SELECT mode FROM pushlink_deployment")).scalar_one())
    return None


def _cut(scene: Scene) -> str:
    """The proxy cuts by itself; what it did is counted when it is healed."""
    assert scene.proxy is not None
    scene.proxy.rate = 0.03
    return ""


def _heal_cuts(scene: Scene) -> None:
    assert scene.proxy is not None
    scene.proxy.rate = 0.0
    scene.struck += Counter({f"cut {cut}": count for cut, count in scene.proxy.cuts.items()})


# ------------------------------------------------------------------------------------------------ files


def _fill(scene: Scene) -> str:
    """Fill the disk for a moment. A server that cannot go on with its log ends, and is started by whoever made room."""
    filler = fill(scene.disk)
    scene.after(scene.random.uniform(0.3, 1.5), lambda: _make_room(scene, filler))
    return "disk full"


def _make_room(scene: Scene, filler: Path) -> None:
    filler.unlink(missing_ok=True)
    if scene.cluster is not None and scene.cluster.has_ended():
        scene.cluster.start_again()
        scene.struck["the server ended and was started"] += 1


def _lock(scene: Scene) -> str:
    """Hold the file against every writer; the longest of these outlasts the patience of a statement and every lease."""
    seconds = scene.random.choice([0.5, 1.5, 4.0, 11.0])
    path = scene.site.url.removeprefix("sqlite:///")

    def hold() -> None:
        with suppress(sqlite3.OperationalError):
            connection = sqlite3.connect(path, isolation_level=None, timeout=20)
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    scene.after(0, thread.join)
    return f"locked for {seconds:g} s"


# ------------------------------------------------------------------------------------------------ clocks


def _jump(scene: Scene) -> str:
    before = float(_shift_file(scene.site).read_text())
    to = scene.random.choice([shift for shift in _SHIFTS_S if shift != before])
    _set_shift(scene.site, to)
    return "forward" if to > before else "back"


def _heal_clock(scene: Scene) -> None:
    """Later than any time that it ever was: what was leased or put off in the future has to become due."""
    _set_shift(scene.site, 2.0 * max(_SHIFTS_S))


def _shift_file(site: Site) -> Path:
    return site.home / "shift"


def _set_shift(site: Site, seconds: float) -> None:
    fresh = site.home / "shift.new"
    fresh.write_text(str(seconds))
    fresh.replace(_shift_file(site))


# ------------------------------------------------------------------------------------------------ surroundings


@contextmanager
def opened_scene(trouble: Trouble, dialect: str, home: Path, logs: Path, *, records: int, seed: int) -> Iterator[Scene]:
    """Everything that a trouble needs around it. Raises `PermissionError` where it may not be made."""
    with ExitStack() as exits:
        cluster, disk = None, home
        if dialect == "postgresql":
            cluster = Cluster(small=trouble.small)
            exits.callback(cluster.remove)
            disk = cluster.primary.home
        if trouble.small:
            exits.enter_context(own_file_system(disk))
        if cluster is not None:
            exits.enter_context(cluster)
        url = f"sqlite:///{home / 'db.sqlite'}" if cluster is None else cluster.url
        proxy = None
        if trouble.proxied and cluster is not None:
            proxy = exits.enter_context(CutProxy(lambda: cluster.socket, seed=seed))
            url = f"postgresql+psycopg://postgres@127.0.0.1:{proxy.port}/{sa.make_url(cluster.url).database}"
        site = Site(url, home, logs, grace_s=trouble.grace_s, faithful=trouble.faithful)
        exits.callback(site.close)
        if trouble.late:
            _set_shift(site, 0.0)
            site.program = ["-m", "proof.chaos.late", str(_shift_file(site))]
            site.host = [*site.program, "host"]
        if trouble.small:
            shrink(disk, _SMALL_MB[dialect] + records // _RECORDS_OF_A_MB)
        yield Scene(site=site, random=random.Random(seed), cluster=cluster, proxy=proxy, disk=disk)


TROUBLES: Final = (
    Trouble(name="kill", strike=_kill, every_s=(0.3, 1.5)),
    Trouble(name="pause", strike=_pause, every_s=(0.5, 2.0)),
    Trouble(name="stop, short grace", strike=_stop_short, every_s=(0.5, 2.0)),
    Trouble(name="stop, orderly", strike=_stop, every_s=(0.5, 2.0), grace_s=60.0, faithful=True),
    Trouble(name="clock", strike=_jump, every_s=(1.0, 4.0), late=True, heal=_heal_clock),
    Trouble(name="server crash", strike=_crash, every_s=(1.0, 3.0), dialects=("postgresql",)),
    Trouble(name="session", strike=_terminate, every_s=(0.3, 1.0), dialects=("postgresql",)),
    Trouble(name="failover", strike=_fail_over, every_s=(0.5, 1.0), dialects=("postgresql",)),
    Trouble(
        name="lost commits",
        strike=_fail_over_behind,
        every_s=(1.0, 2.0),
        blows_min=1,
        dialects=("postgresql",),
        loses=True,
    ),
    Trouble(
        name="commit cut",
        strike=_cut,
        every_s=(0.5, 1.0),
        blows_min=0,  # the proxy cuts by itself
        dialects=("postgresql",),
        heal=_heal_cuts,
        proxied=True,
    ),
    Trouble(name="disk full", strike=_fill, every_s=(1.0, 3.0), small=True),
    Trouble(name="file locked", strike=_lock, every_s=(0.5, 2.0), dialects=("sqlite",)),
)
