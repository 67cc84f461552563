"""A process of its own that saves one record again and again: `python savers.py URL HOME COUNT`.

It waits for a line on its input, so that several of them begin at once, and prints one word for each save.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flows.stage import USER, Stage
from pushlink.adapters.clock_ids import DatabaseClock
from pushlink.errors import Contended
from pushlink.store.dialect import create_engine


def main(url: str, home: str, count: int) -> None:
    engine = create_engine(url)
    stage = Stage(engine, Path(home), clock=DatabaseClock())
    _say("ready")
    sys.stdin.readline()
    for _ in range(count):
        _say(_save(stage))
    engine.dispose()


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def _save(stage: Stage) -> str:
    while True:
        try:
            with stage.engine.begin() as conn:
                [outcome] = stage.runtime.save(conn, "Person", 1, user=USER)
            return type(outcome).__name__
        except Contended:
            continue  # what a host does: run the transaction again


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
