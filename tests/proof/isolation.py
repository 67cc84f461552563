"""`make isolation`: the behaviour tests on PostgreSQL at every isolation level; 1 when one failed.

    python -m proof.isolation [--level SERIALIZABLE] [--write] [TESTS ...]

Every engine of the suite opens its transactions at the level: those of hosts, which may be at any of them, and those of
workers and operators, which in a deployment are always at READ COMMITTED. A test whose subject is a level sets its own.
Each level and directory is a run of pytest, and its log a file of `build/isolation`; `--write` puts what is in these
into `docs/reliability.md`, so that parts may be run one by one: of each test the newest result counts.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plugins.databases import ISOLATION, LEVELS, REFUSALS
from proof.figures import BUILD, ROOT, table, write_section

#: Where hosts save, workers work, operators decide, and statements are tried alone.
TESTS: Final = (
    "tests/flows",
    "tests/operations",
    "tests/migration",
    "tests/restores",
    "tests/store",
    "tests/drift",
    "tests/test_orm_hook.py",
)
_RESULT: Final = re.compile(
    r"^(tests/\S+::.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\s+(?:\(.*\) )?\[", re.MULTILINE
)
_END: Final = re.compile(r"^=+ .* in ([\d.]+)s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One run, as its log tells it: results by test. `refused`: transactions that lost to another one."""

    ended: bool
    results: Mapping[str, str]
    refused: int
    seconds: float

    @property
    def counts(self) -> Counter[str]:
        """How often each result came."""
        return Counter(self.results.values())

    @property
    def failed(self) -> int:
        """Tests that failed, and a run that did not end."""
        return self.counts["FAILED"] + self.counts["ERROR"] + (not self.ended)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 when all passed."""
    parser = argparse.ArgumentParser(prog="python -m proof.isolation", description=main.__doc__)
    parser.add_argument("--level", choices=LEVELS, help="one level alone")
    parser.add_argument("--raw", type=Path, default=BUILD / "isolation", help="where the logs go")
    parser.add_argument("--write", action="store_true", help="write what is in the logs into the page")
    parser.add_argument("tests", nargs="*", default=TESTS, help="directories or files of tests")
    options = parser.parse_args(arguments)
    options.raw.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for level in LEVELS:
        for tests in options.tests:
            if options.level in {None, level}:
                found = _run(level, tests, options.raw)
                wrong += found.failed
                told = f"{dict(found.counts)}, {found.refused} refused, {found.seconds:.0f} s"
                sys.stdout.write(f"{level}, {tests}: {told}\n")
                sys.stdout.flush()
    if options.write:
        write_section("isolation", report(options.raw))
    return 1 if wrong else 0


def _log(raw: Path, level: str, tests: str) -> Path:
    return raw / f"{_named(level)}-{_named(str(Path(tests).relative_to('tests').with_suffix('')))}.log"


def _named(text: str) -> str:
    return re.sub(r"[^a-z_]+", "-", text.lower())


def _run(level: str, tests: str, raw: Path) -> Part:
    """One run of pytest, to its end."""
    command = [sys.executable, "-m", "pytest", "-v", "-n", "0", "-p", "no:cacheprovider", tests]
    with _log(raw, level, tests).open("w", encoding="utf-8") as log:
        subprocess.run(command, cwd=ROOT, env={**os.environ, ISOLATION: level}, stdout=log, stderr=log, check=False)
    return _part(_log(raw, level, tests))


def _part(log: Path) -> Part:
    """What a log tells; of a run that nobody has made yet, that it has not ended."""
    text = log.read_text(encoding="utf-8") if log.exists() else ""
    end = _END.search(text.rstrip().rpartition("\n")[2])
    refused = re.search(REFUSALS.format(r"(\d+)"), text)
    return Part(
        ended=end is not None and refused is not None,
        results=dict(_RESULT.findall(text)),
        refused=int(refused[1]) if refused else 0,
        seconds=float(end[1]) if end else 0.0,
    )


def report(raw: Path) -> str:
    """The section of the page: every level, and what of it was not run."""
    rows, missing = [], []
    for level in LEVELS:
        logs = sorted(raw.glob(f"{_named(level)}-*.log"), key=lambda log: log.stat().st_mtime)
        parts = [_part(log) for log in logs]
        results: dict[str, str] = {}
        for part in parts:
            results |= part.results
        part_run = [f"`{tests}`" for tests in TESTS if not _part(_log(raw, level, tests)).ended]
        missing += [f"{level}: {', '.join(part_run)}"] * bool(part_run)
        counts = Counter(results.values())
        rows.append(
            [
                level,
                f"{counts.total() - counts['SKIPPED']:,}",
                f"{counts['PASSED']:,}",
                counts["FAILED"] + counts["ERROR"],
                f"{sum(part.refused for part in parts):,}",
                f"{sum(part.seconds for part in parts):,.0f}",
            ]
        )
    head = ["isolation level on PostgreSQL", "tests", "passed", "failed", "transactions refused", "seconds"]
    text = f"{', '.join(f'`{path}`' for path in TESTS)}:\n\n{table(head, rows)}"
    return text + (f"\n\nNot run whole: {'; '.join(missing)}." if missing else "")


if __name__ == "__main__":
    sys.exit(main())
