"""`make isolation`: the behaviour tests on PostgreSQL at every isolation level; 1 when one failed.

    python -m proof.isolation [--level SERIALIZABLE] [TESTS ...]

Every engine of the suite opens its transactions at the level: those of hosts, which may be at any of them, and those of
workers and operators, which in a deployment are always at READ COMMITTED. A test whose subject is a level sets its own.
The figures go into `docs/reliability.md`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from plugins.databases import ISOLATION, LEVELS
from proof.figures import ROOT, table, write_section

#: Where hosts save, workers work and operators decide.
TESTS: Final = ("tests/flows", "tests/operations", "tests/migration", "tests/restores", "tests/test_orm_hook.py")
_COUNT: Final = re.compile(r"(\d+) (passed|failed|error)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them level by level; 0 when all passed."""
    parser = argparse.ArgumentParser(prog="python -m proof.isolation", description=main.__doc__)
    parser.add_argument("--level", choices=LEVELS, help="one level alone")
    parser.add_argument("tests", nargs="*", default=TESTS, help="files or directories of tests")
    options = parser.parse_args(arguments)
    levels = [level for level in LEVELS if options.level in {None, level}]
    rows = [_run(level, list(options.tests)) for level in levels]
    if len(levels) == len(LEVELS):
        what = ", ".join(f"`{path}`" for path in options.tests)
        head = ["isolation level on PostgreSQL", "passed", "failed", "seconds"]
        write_section("isolation", f"{what}:\n\n{table(head, rows)}")
    return 1 if any(row[2] for row in rows) else 0


def _run(level: str, tests: list[str]) -> tuple[str, int, int, int]:
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-k", "not sqlite", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, ISOLATION: level}, stdout=subprocess.PIPE, text=True, check=False
    )
    counts = {word: int(count) for count, word in _COUNT.findall(done.stdout.rpartition("\n=")[2] or done.stdout)}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    if done.returncode and not failed:
        failed = 1
    sys.stdout.write(f"{level}: {counts}\n" if not failed else done.stdout)
    sys.stdout.flush()
    return level, counts.get("passed", 0), failed, round(time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
