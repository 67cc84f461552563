"""The points of a process: every SQL statement, commit, rollback and socket step, counted, and a strike at one of them.

`Points.install` puts counters around an engine and around the sockets that are opened afterwards, from the outside:
events of SQLAlchemy, the dialect's own commit, and a subclass of `socket.socket`. Nothing in `src` knows of it. At the
appointed point the process kills itself (`Strike.DIE`), or the point fails in one of the ways that `FAULTS` lists for
it, which are real wherever the database lets itself be asked: PostgreSQL raises the SQLSTATE itself, or ends the
session. Reports go through a file descriptor, because a process that was killed cannot say where.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import sqlite3
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NoReturn

import psycopg
import sqlalchemy as sa
from sqlalchemy import event

from pushlink.adapters.state_directory import StateDirectory
from pushlink.errors import Unavailable
from pushlink.ports import StateSeen

#: Never reached: the run that nobody disturbs.
NOWHERE: Final = 0


class Point(StrEnum):
    """What a process was about to do, or had just done."""

    DIAL = "dial"  # a connection to the database is about to be opened
    STATEMENT = "statement"  # is about to run
    COMMIT = "commit"  # is about to be asked for
    COMMITTED = "committed"  # has happened, and nobody was told yet
    KEEP = "keep"  # the state directory is about to be told
    KEPT = "kept"  # it knows
    ROLLBACK = "rollback"  # is about to be asked for
    CONNECT = "connect"  # a socket is about to connect
    SEND = "send"  # bytes are about to leave
    HALF = "half sent"  # half of them have left
    SENT = "sent"  # all of them have left
    RECEIVED = "received"  # bytes have come and nobody has seen them


#: What may leave a process in doubt although it lives: nobody knows what the remote has got.
SOCKETS: Final = frozenset({Point.CONNECT, Point.SEND, Point.HALF, Point.SENT, Point.RECEIVED})


@dataclass(slots=True, kw_only=True)
class Points:
    """Counts points and strikes at the `at`-th: by death, or with the `fault`-th of its faults (they go round)."""

    at: int
    fault: int | None = None
    report: int = -1  # a file descriptor
    refuses: int = 0  # connections that nobody listens to, whatever else happens
    count: int = 0
    armed: bool = False
    trace: list[str] = field(default_factory=list)
    faults: int = 0  # how many faults the appointed point has
    struck: str | None = None
    broken: list[str] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.Lock)
    _open: set[int] = field(default_factory=set)  # threads with a transaction

    def install(self, engine: sa.Engine) -> None:
        """Count what this engine does, and all sockets that are opened from now on."""
        _count_statements(engine, self)
        _count_commits(engine, self)
        _count_keeps(self)
        _Counted.points = self
        socket.socket = _Counted  # type: ignore[misc]

    def meet(self, point: Point, label: str = "") -> Callable[..., NoReturn] | None:
        """Count a point. Does not return from a death; answers with the fault that is to happen, or `None`."""
        with self._lock:
            if not self.armed:
                return None
            self.count += 1
            self.trace.append(f"{point.value} {label}".rstrip())
            if self.count != self.at:
                return None
            if self.fault is None:
                self.struck = "death"
                self.tell()
                os.kill(os.getpid(), signal.SIGKILL)
            found = FAULTS.get((_dialect(label), point), {}) or FAULTS.get(("", point), {})
            self.faults = len(found)
            if not found:
                return None
            self.struck, fault = list(found.items())[self.fault % len(found)]
            return fault

    def tell(self, **more: Any) -> None:
        """Write down where the process stands."""
        told = {
            "count": self.count,
            "at": self.trace[self.at - 1] if 0 < self.at <= len(self.trace) else None,
            "struck": self.struck,
            "faults": self.faults,
            "broken": self.broken,
            **more,
        }
        os.write(self.report, json.dumps(told).encode())

    def begun(self) -> None:
        """Note that this thread has a transaction open."""
        self._open.add(threading.get_ident())

    def ended(self) -> None:
        """Note that this thread has none any more."""
        self._open.discard(threading.get_ident())

    def sends(self) -> None:
        """No thread sends while it holds a transaction (I13)."""
        if self.armed and threading.get_ident() in self._open:
            self.broken.append("bytes left while a transaction was open on the same thread")


# ------------------------------------------------------------------------------------------------ the database


def _count_statements(engine: sa.Engine, points: Points) -> None:
    dialect = engine.dialect.name

    @event.listens_for(engine, "do_connect")
    def dial(_dialect: Any, _record: Any, _args: Any, _kwargs: Any) -> None:
        if fault := points.meet(Point.DIAL, dialect):
            fault(None)

    def statement(cursor: Any, sql: str, *_: Any) -> None:
        points.begun()
        if fault := points.meet(Point.STATEMENT, f"{dialect} {' '.join(sql.split())[:60]}"):
            fault(cursor.connection)

    for name in ("do_execute", "do_executemany", "do_execute_no_params"):
        event.listen(engine, name, statement)


def _count_commits(engine: sa.Engine, points: Points) -> None:
    dialect: Any = engine.dialect
    commit, rollback = dialect.do_commit, dialect.do_rollback

    def do_commit(connection: Any) -> None:
        points.ended()
        if fault := points.meet(Point.COMMIT, dialect.name):
            fault(_driver(connection))
        commit(connection)
        if fault := points.meet(Point.COMMITTED, dialect.name):
            fault(_driver(connection))

    def do_rollback(connection: Any) -> None:
        points.ended()
        points.meet(Point.ROLLBACK, dialect.name)
        rollback(connection)

    dialect.do_commit, dialect.do_rollback = do_commit, do_rollback


def _count_keeps(points: Points) -> None:
    keep = StateDirectory.keep

    def counted(self: StateDirectory, seen: StateSeen) -> None:
        if fault := points.meet(Point.KEEP):
            fault()
        keep(self, seen)
        points.meet(Point.KEPT)

    StateDirectory.keep = counted  # type: ignore[method-assign]


def _driver(connection: Any) -> Any:
    return getattr(connection, "driver_connection", connection)


def _dialect(label: str) -> str:
    return label.partition(" ")[0]


def _postgres_raises(sqlstate: str) -> Callable[[Any], NoReturn]:
    """The server raises it itself, and the transaction is in the state that such an error leaves."""

    def fault(connection: psycopg.Connection[Any]) -> NoReturn:
        connection.execute(f"DO $$ BEGIN RAISE EXCEPTION 'a fault' USING ERRCODE = '{sqlstate}'; END $$")
        raise AssertionError(sqlstate)

    return fault


def _postgres_hangs_up(connection: psycopg.Connection[Any]) -> NoReturn:
    """The server ends the session: whatever was not committed is gone."""
    connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    raise AssertionError


def _postgres_is_away(_connection: None) -> NoReturn:
    raise psycopg.OperationalError("connection failed: the server does not answer")


def _sqlite_raises(name: str, message: str, *, rolls_back: bool) -> Callable[[sqlite3.Connection], NoReturn]:
    """As the library raises it; some errors roll the transaction back, a busy one leaves it as it is."""

    def fault(connection: sqlite3.Connection | None) -> NoReturn:
        if rolls_back and connection is not None and connection.in_transaction:
            connection.execute("ROLLBACK")
        error = sqlite3.OperationalError(message)
        error.sqlite_errorname = name  # type: ignore[misc]
        error.sqlite_errorcode = getattr(sqlite3, name)  # type: ignore[misc]
        raise error

    return fault


_SQLITE_BUSY: Final = _sqlite_raises("SQLITE_BUSY", "database is locked", rolls_back=False)
_SQLITE_SNAPSHOT: Final = _sqlite_raises("SQLITE_BUSY_SNAPSHOT", "database is locked", rolls_back=False)
_SQLITE_FULL: Final = _sqlite_raises("SQLITE_FULL", "database or disk is full", rolls_back=True)
_SQLITE_IO: Final = _sqlite_raises("SQLITE_IOERR", "disk I/O error", rolls_back=True)


def _state_directory_is_full() -> NoReturn:
    raise Unavailable("The state directory does not take a file: No space left on device.")


def _socket_raises(number: int) -> Callable[[], NoReturn]:
    def fault() -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fault


#: Every way in which a point can fail, by dialect ("" is a socket's) and point; each is one run.
FAULTS: Final[Mapping[tuple[str, Point], Mapping[str, Callable[..., NoReturn]]]] = {
    ("postgresql", Point.DIAL): {"no connection": _postgres_is_away},
    ("postgresql", Point.STATEMENT): {
        "connection lost": _postgres_hangs_up,
        "serialization failure": _postgres_raises("40001"),
        "deadlock": _postgres_raises("40P01"),
        "disk full": _postgres_raises("53100"),
    },
    ("postgresql", Point.COMMIT): {
        "connection lost": _postgres_hangs_up,
        "serialization failure": _postgres_raises("40001"),
        "disk full": _postgres_raises("53100"),
    },
    ("postgresql", Point.COMMITTED): {"commit done, reported failed": _postgres_hangs_up},
    ("sqlite", Point.DIAL): {"no file": _sqlite_raises("SQLITE_CANTOPEN", "cannot open", rolls_back=False)},
    ("sqlite", Point.STATEMENT): {
        "busy": _SQLITE_BUSY,
        "busy snapshot": _SQLITE_SNAPSHOT,
        "disk full": _SQLITE_FULL,
        "I/O error": _SQLITE_IO,
    },
    ("sqlite", Point.COMMIT): {"busy": _SQLITE_BUSY, "disk full": _SQLITE_FULL, "I/O error": _SQLITE_IO},
    ("sqlite", Point.COMMITTED): {"commit done, reported failed": _SQLITE_IO},
    ("", Point.KEEP): {"disk full": _state_directory_is_full},
    ("", Point.CONNECT): {
        "refused": _socket_raises(errno.ECONNREFUSED),
        "unreachable": _socket_raises(errno.ENETUNREACH),
    },
    ("", Point.SEND): {"broken pipe": _socket_raises(errno.EPIPE)},
    ("", Point.HALF): {"reset half way": _socket_raises(errno.ECONNRESET)},
    ("", Point.SENT): {"reset after the last byte": _socket_raises(errno.ECONNRESET)},
    ("", Point.RECEIVED): {
        "reset before the answer": _socket_raises(errno.ECONNRESET),
        "timed out": _socket_raises(errno.ETIMEDOUT),
    },
}


# ------------------------------------------------------------------------------------------------ sockets


class _Counted(socket.socket):
    """A socket whose steps to a remote are points; sockets of the event loop itself are not."""

    points: Points | None = None

    def connect(self, address: Any) -> None:
        if (points := self._mine()) is not None:
            if points.armed and points.refuses > 0:
                points.refuses -= 1
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            self._meet(points, Point.CONNECT)
        super().connect(address)

    def send(self, data: Any, *flags: int) -> int:
        if (points := self._mine()) is None:
            return super().send(data, *flags)
        points.sends()
        self._meet(points, Point.SEND)
        view = memoryview(data)
        count = super().send(view[: len(view) // 2], *flags)
        self._meet(points, Point.HALF)
        count += super().send(view[count:], *flags)
        self._meet(points, Point.SENT)
        return count

    def recv(self, *args: Any) -> bytes:
        received = super().recv(*args)
        if received and (points := self._mine()) is not None:
            self._meet(points, Point.RECEIVED)
        return received

    def _mine(self) -> Points | None:
        return self.points if self.family == socket.AF_INET else None

    @staticmethod
    def _meet(points: Points, point: Point) -> None:
        if fault := points.meet(point):
            fault()
