"""The real clock and the real ids: the database's time, and identities out of the machine's randomness.

Leases of several hosts are compared, so the only clock that counts is the one of the database they share (D-12); this
process's own clock orders fresh identities and decides nothing.
"""

from __future__ import annotations

import datetime as dt
import os
import secrets
import threading
import time
from typing import Final

from sqlalchemy import Connection

from pushlink.store.dialect import current_time

#: Half of an identity tells when it was made, the other half is random: 2**64 values within one nanosecond.
_RANDOM_BYTES: Final = 8
_TIME_MASK: Final = 2**64 - 1


class DatabaseClock:
    """The clock of the database behind the connection."""

    def now(self, conn: Connection) -> dt.datetime:
        """The current time in UTC, read within the transaction and not frozen at its start."""
        return current_time(conn)


class RandomIds:
    """Identities that sort by the time they were made, and tokens that nobody can guess.

    The leading 16 digits count nanoseconds and never stand still or go back within one instance, whatever the
    machine's clock does; the trailing 16 are random, so that processes and hosts do not meet.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_ns = 0

    def fresh(self) -> str:
        """A new identity of 32 hexadecimal digits that sorts after all earlier ones of this instance."""
        with self._lock:
            self._last_ns = max(time.time_ns(), self._last_ns + 1)
            moment_ns = self._last_ns
        return f"{moment_ns & _TIME_MASK:016x}{os.urandom(_RANDOM_BYTES).hex()}"

    def token(self) -> str:
        """A new unguessable token of 32 hexadecimal digits."""
        return secrets.token_hex(16)
