"""A host's process, of either release: `python -m proof.upgrade.host SETTINGS TURN OF RATE`, until SIGTERM.

It writes records of its own and saves them in groups, so many records a second, and a moment later changes and saves
those that the host beside it wrote, so that each release updates what the other one created. At the end it says, in one
line of JSON, how many it wrote, which errors it met (a transaction that failed is run again), and how long its slowest
transaction took, in seconds.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections import Counter
from typing import Final

import sqlalchemy as sa

from pushlink.bootstrap import Runtime

#: Records to a transaction, and how many transactions later the host beside changes them.
TOGETHER: Final = 3
BEHIND: Final = 4

#: The pause after a transaction that failed, in seconds, and how often in all one may fail before the host gives up.
REST_S: Final = 0.05
FAILURES_MAX: Final = 200

_PERSON: Final = sa.table("person", sa.column("id"), sa.column("name"))


class Host:
    """The process: a runtime, and what it has met."""

    def __init__(self, settings: str, turn: int, of: int) -> None:
        self._runtime = Runtime.from_settings(settings)
        self._turn, self._of = turn, of
        self._errors: Counter[str] = Counter()
        self._slowest_s = 0.0

    def run(self, rate: float) -> None:
        """Save at this rate until somebody asks to stop, then say what happened."""
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        pause_s, groups = TOGETHER / rate, 0
        while not stop.wait(pause_s):
            self._patiently(self._keys(groups, self._turn), is_mine=True)
            if groups >= BEHIND:
                self._patiently(self._keys(groups - BEHIND, (self._turn + 1) % self._of), is_mine=False)
            groups += 1
        self._runtime.close()
        told = {"records": groups * TOGETHER, "errors": self._errors, "slowest_s": round(self._slowest_s, 3)}
        sys.stdout.write(json.dumps(told) + "\n")

    def _keys(self, group: int, turn: int) -> list[str]:
        """The keys of one transaction: every host has its own."""
        return [f"plain.{(group * TOGETHER + one) * self._of + turn}" for one in range(TOGETHER)]

    def _patiently(self, keys: list[str], *, is_mine: bool) -> None:
        while True:
            began = time.monotonic()
            try:
                self._save(keys, is_mine=is_mine)
            except Exception as error:
                told = str(getattr(error.__cause__, "orig", error)).partition("\n")[0]
                self._errors[f"{type(error).__name__}: {told}"] += 1
                if self._errors.total() > FAILURES_MAX:
                    raise
                time.sleep(REST_S)
            else:
                self._slowest_s = max(self._slowest_s, time.monotonic() - began)
                return

    def _save(self, keys: list[str], *, is_mine: bool) -> None:
        """Write records of this host, or change those that the other one has written by now."""
        name = "Ada" if is_mine else "Grace"
        with self._runtime.engine.begin() as conn:
            there = set(conn.execute(sa.select(_PERSON.c.id).where(_PERSON.c.id.in_(keys))).scalars())
            if there:
                conn.execute(sa.update(_PERSON).where(_PERSON.c.id.in_(there)).values(name=name))
            if new := [{"id": key, "name": name} for key in keys if is_mine and key not in there]:
                conn.execute(sa.insert(_PERSON), new)
            if wanted := keys if is_mine else sorted(there):
                self._runtime.save_many(conn, [("Person", key) for key in wanted], user="upgrade")


if __name__ == "__main__":
    _, settings, turn, of, rate = sys.argv
    Host(settings, int(turn), int(of)).run(float(rate))
