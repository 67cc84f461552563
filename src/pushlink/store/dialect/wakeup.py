"""Waking a worker: a word sent with the transaction that made work due.

A wake-up is a hint and never a promise: workers poll as well, so one that is lost costs time only. PostgreSQL delivers
a NOTIFY when its transaction commits. SQLite has no such thing; there a listener is woken from its own process only.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from typing import Any, Self

import sqlalchemy as sa


def notify(conn: sa.Connection, channel: str) -> None:
    """Wake the listeners of `channel` once this transaction commits. Several wake-ups of one transaction are one."""
    if conn.dialect.name == "postgresql":
        conn.execute(sa.select(sa.func.pg_notify(channel, "")))


class Listener:
    """Waits for the next wake-up on a connection of its own. One thread waits; any thread may `wake` or `close`."""

    def __init__(self, engine: sa.Engine, channel: str) -> None:
        self._engine = engine
        self._channel = channel
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._waiting = threading.Lock()
        self._is_closed = False
        self._connection: Any = None
        self._hears_database = engine.dialect.name == "postgresql"
        self._reconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self, timeout_s: float) -> bool:
        """Block for `timeout_s` at most. True when there was a wake-up, or one may have been missed.

        A lost connection is made again by the next call, which then answers True at once; while the database does not
        answer, every call waits its time out and answers False.
        """
        with self._waiting:
            if self._is_closed:
                return False
            if self._hears_database and self._connection is None and self._reconnect():
                return True
            with selectors.DefaultSelector() as selector:
                selector.register(self._reader, selectors.EVENT_READ)
                if self._connection is not None:
                    selector.register(self._connection, selectors.EVENT_READ)
                ready = [key.fileobj for key, _ in selector.select(timeout_s)]
            woken = self._reader in ready and self._drain()
            notified = self._connection in ready and self._consume()
            return (woken or notified) and not self._is_closed

    def wake(self) -> None:
        """End the wait from inside this process."""
        with contextlib.suppress(BlockingIOError, OSError):  # full means that a wake-up is on its way already
            self._writer.send(b"w")

    def close(self) -> None:
        """End a wait that goes on, and give the connection back. May be called twice."""
        self._is_closed = True
        self.wake()
        with self._waiting:
            self._drop()
            self._reader.close()
            self._writer.close()

    def _reconnect(self) -> bool:
        if not self._hears_database:
            return False
        quoted = self._engine.dialect.identifier_preparer.quote_identifier(self._channel)
        try:
            pooled = self._engine.raw_connection()
            self._connection = pooled.driver_connection
            pooled.detach()
            self._connection.autocommit = True
            self._connection.execute("LISTEN " + quoted)
        except self._errors:
            self._drop()
            return False
        return True

    def _consume(self) -> bool:
        try:
            return len(list(self._connection.notifies(timeout=0))) > 0
        except self._errors:
            self._drop()
            return False

    def _drain(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass
        return True

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*self._errors):
                connection.close()

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        return (sa.exc.SQLAlchemyError, OSError, self._engine.dialect.loaded_dbapi.Error)


def listen(engine: sa.Engine, channel: str) -> Listener:
    """A listener on `channel`; close it when the worker stops."""
    return Listener(engine, channel)
