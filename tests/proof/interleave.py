"""`make interleave`: orders of effects, all or seeded, and workers that are put to sleep; 1 when anything is wrong.

    python -m proof.interleave [--dialect sqlite] [--orders] [--zombies] [--only TEXT] [--seed 17]

Each order and each schedule is a line in `build/interleave/`; a whole run writes its figures to `docs/reliability.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from proof.databases import DIALECTS, Databases
from proof.figures import BUILD, table, write_section
from proof.orders import CASTS, Stage, told
from proof.zombies import WARM_UP, Dormitory

Job: TypeAlias = tuple[str, str]  # what, dialect


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 when nothing was found."""
    options = _options(arguments)
    kinds = [
        kind for kind in ("orders", "zombies") if getattr(options, kind) or not (options.orders or options.zombies)
    ]
    jobs = [(kind, dialect) for kind in kinds for dialect in DIALECTS if options.dialect in {None, dialect}]
    options.raw.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with Databases(tuple({dialect for _, dialect in jobs})) as databases:
        pids = {_fork(job, databases, options): job for job in jobs}
        failed = 0
        for _ in jobs:
            pid, status = os.wait()
            failed += bool(status)
            for line in _wrong(options, pids[pid]):
                _say(json.dumps(line))
    found = [line for job in jobs for line in _lines(options, job)]
    wrong = sum(1 for line in found if line["problems"]) + failed
    seconds = time.monotonic() - began
    _say(f"{len(found):,} orders and schedules in {seconds:.0f} s: {wrong or 'no'} violations")
    is_whole = len(jobs) == 2 * len(DIALECTS) and not options.only and options.seed is None and not options.few
    if is_whole and not failed:
        write_section("interleave", _report(found, seconds))
    return 1 if wrong else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof.interleave", description=main.__doc__)
    parser.add_argument("--dialect", choices=DIALECTS, help="one database alone")
    parser.add_argument("--orders", action="store_true", help="orders of effects alone")
    parser.add_argument("--zombies", action="store_true", help="sleepers alone")
    parser.add_argument("--only", default="", help="casts and schedules whose name has this in it")
    parser.add_argument("--seed", type=int, help="one seed alone, of the casts that have any")
    parser.add_argument("--few", action="store_true", help="a few seeds of each cast")
    parser.add_argument("--raw", type=Path, default=BUILD / "interleave", help="where the raw results go")
    return parser.parse_args(arguments)


def _fork(job: Job, databases: Databases, options: argparse.Namespace) -> int:
    url, home = databases.fresh(job[1])
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        with _raw(options, job).open("w", encoding="utf-8") as file:
            for line in _RUN[job[0]](job[1], url, home, options):
                file.write(json.dumps(line) + "\n")
                file.flush()
        status = 0
    except BaseException:  # noqa: BLE001 - a fork must never return into its parent's code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _orders(dialect: str, url: str, home: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    stage = Stage(dialect, url, home)
    seeds = [options.seed] if options.seed is not None else range(1, 6) if options.few else None
    for cast in (cast for cast in CASTS if options.only in cast.name):
        ends: Counter[str] = Counter()
        for played in stage.play(cast, seeds=seeds):
            ends[played.end] += 1
            yield told(played)
        _say(f"   {cast.name}, {dialect}: {_in_words(ends)}")
    yield from _everything(dialect, stage.everything())
    stage.close()


def _zombies(dialect: str, url: str, home: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with Dormitory(WARM_UP, dialect, url, home) as dormitory:
        ends: Counter[str] = Counter()
        for slept in dormitory.schedules(options.only):
            ends[slept.end] += 1
            yield asdict(slept)
        _say(f"   sleepers, {dialect}: {_in_words(ends)}")
        yield from _everything(dialect, dormitory.everything())


_RUN: dict[str, Callable[[str, str, Path, argparse.Namespace], Iterator[dict[str, Any]]]] = {
    "orders": _orders,
    "zombies": _zombies,
}


def _everything(dialect: str, problems: Sequence[str]) -> Iterator[dict[str, Any]]:
    for problem in problems:
        yield {"dialect": dialect, "problems": [f"in the end: {problem}"]}


# ------------------------------------------------------------------------------------------------ what came of it


def _raw(options: argparse.Namespace, job: Job) -> Path:
    return Path(options.raw) / f"{job[0]}-{job[1]}.jsonl"


def _lines(options: argparse.Namespace, job: Job) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _raw(options, job).read_text(encoding="utf-8").splitlines()]


def _wrong(options: argparse.Namespace, job: Job) -> Iterator[dict[str, Any]]:
    yield from (line for line in _lines(options, job) if line["problems"])


def _report(found: Sequence[dict[str, Any]], seconds: float) -> str:
    rows = []
    for cast in CASTS:
        lines = [line for line in found if line.get("cast") == cast.name]
        how = "seeded" if cast.orders else "every one"
        rows.append([cast.name, how, len(lines), _in_words(Counter(line["end"] for line in lines)), _violations(lines)])
    sleepers = [line for line in found if "schedule" in line]
    slept = sum(line["slept"] for line in sleepers)
    orders = len(found) - len(sleepers)
    wrong = _violations(found)
    counted = f"{orders:,} orders, and {len(sleepers)} schedules in which {slept} workers were stopped and woken again"
    where = f"on SQLite and PostgreSQL in {seconds / 60:.0f} minutes"
    return "\n\n".join(
        [
            f"{counted}, {where}: **{wrong or 'no'} violations**.",
            table(["who plays", "orders", "run", "ended", "violations"], rows),
            table(["sleepers", "schedules", "blocked", "ended", "violations"], _by_what_happened(sleepers)),
        ]
    )


def _by_what_happened(sleepers: Sequence[dict[str, Any]]) -> Iterator[list[object]]:
    for happened in dict.fromkeys(line["meanwhile"] for line in sleepers):
        lines = [line for line in sleepers if line["meanwhile"] == happened]
        blocked = sum(line["blocked"] for line in lines)
        ends = _in_words(Counter(line["end"] for line in lines))
        yield [happened, len(lines), blocked, ends, _violations(lines)]


def _violations(lines: Sequence[dict[str, Any]]) -> int:
    return sum(1 for line in lines if line["problems"])


def _in_words(ends: Counter[str]) -> str:
    return ", ".join(f"{count:,} {end}" for end, count in ends.most_common())


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
