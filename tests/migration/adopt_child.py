"""A process of its own that applies a manifest, or takes an operation back, and tells after each batch: to be killed.

`url home batch apply MANIFEST` or `url home batch rollback OPERATION`.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from flows.stage import Stage
from migration import adoptions
from pushlink.errors import PushlinkError
from pushlink.migration import batches
from pushlink.store.dialect import create_engine


def main() -> None:
    """Say `begun`, `at N` after each batch, and how it ended."""
    url, home, batch, verb, target = sys.argv[1:]
    batches.SIZE = int(batch)  # type: ignore[misc]
    signal.alarm(120)
    stage = Stage(create_engine(url), Path(home))
    say("begun")
    try:
        if verb == "apply":
            done = adoptions.apply(stage, Path(target), on_progress=lambda count: say(f"at {count}"))
            say(f"done {done.adopted} {done.already_adopted} {dict(done.refused)}")
        else:
            back = adoptions.roll_back(stage, target, on_progress=lambda count, _total: say(f"at {count}"))
            say(f"done {back.rolled_back} {back.already_rolled_back} {dict(back.refused)}")
    except PushlinkError as error:
        say(f"refused {error.code.value}")
    stage.engine.dispose()


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
