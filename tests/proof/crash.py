"""`make crash`: real processes die, or fail, at every SQL statement, commit and socket step; 1 when anything is wrong.

    python -m proof.crash [--only TEXT] [--dialect sqlite] [--full] [--jobs 2] [--write]
    python -m proof.crash [--deaths] [--failures] [--every 16]                                  a sample
    python -m proof.crash --only "create accepted" --dialect sqlite --point 94 [--fault 2]      one case again

Every scenario of `proof.stories` runs on both databases, in a lane of its own (`proof.lane`). Each case is a line of
`build/crash/SCENARIO-DIALECT.jsonl`, which stands there once its lane has run to its end; a sample goes into a
directory beside it. `--write` puts the newest lanes of every scenario into `docs/reliability.md`, and leaves the line
of a scenario that has none there as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeAlias

from proof.databases import DIALECTS, Databases
from proof.figures import BUILD, PAGE, table, write_section
from proof.lane import Case, Lane
from proof.scenarios import Scenario
from proof.stories import SCENARIOS

#: How a case may end, as the page counts it.
ENDS: Final = ("finalized", "in doubt", "refused", "nothing")

Job: TypeAlias = tuple[int, Scenario, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 when nothing was found."""
    options = _options(arguments)
    jobs = [
        (turn, scenario, dialect)
        for turn, scenario in enumerate(SCENARIOS)
        if options.only in scenario.name
        for dialect in DIALECTS
        if options.dialect in {None, dialect}
    ]
    if _is_sample(options):
        options.raw = options.raw / "samples"
    options.raw.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with Databases(tuple({dialect for _, _, dialect in jobs})) as databases:
        failed = _run_lanes(jobs, databases, options)
    found = _summaries(options.raw, jobs)
    wrong = failed + sum(one["violations"] for one in found)
    deaths, failures = (sum(one[what] for one in found) for what in ("deaths", "failures"))
    seconds = time.monotonic() - began
    _say(f"{deaths:,} deaths and {failures:,} failures in {seconds:.0f} s: {wrong or 'no'} violations")
    if options.write and not _is_sample(options):
        write_section("crash", report(options.raw, PAGE.read_text(encoding="utf-8")))
    return 1 if wrong else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof.crash", description=main.__doc__)
    parser.add_argument("--only", default="", help="scenarios whose name has this in it")
    parser.add_argument("--dialect", choices=DIALECTS, help="one database alone")
    parser.add_argument("--deaths", action="store_true", help="deaths alone")
    parser.add_argument("--failures", action="store_true", help="failures alone")
    parser.add_argument("--full", action="store_true", help="let every statement fail in every way that it has")
    parser.add_argument("--every", type=int, default=1, help="a sample: every so many points")
    parser.add_argument("--write", action="store_true", help="write the newest lane of every scenario into the page")
    parser.add_argument("--raw", type=Path, default=BUILD / "crash", help="where the raw results go")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="lanes at a time")
    parser.add_argument("--point", type=int, help="one case alone: its point ...")
    parser.add_argument("--fault", type=int, help="... and its fault, where it is no death")
    return parser.parse_args(arguments)


def _run_lanes(jobs: Sequence[Job], databases: Databases, options: argparse.Namespace) -> int:
    """Run lanes in processes of their own, some at a time; how many could not be run."""
    running: dict[int, Job] = {}
    waiting, failed = list(jobs), 0
    while waiting or running:
        while waiting and len(running) < options.jobs:
            job = waiting.pop(0)
            url, home = databases.fresh(job[2])
            running[_fork(job, url, home, options)] = job
        pid, status = os.wait()
        if (job := running.pop(pid, None)) is None:
            continue
        if status == 0:
            raw = _raw(options.raw, job[1], job[2])
            _say(_line(_summary(raw)))
            for case in (line for line in _lines(raw) if line["problems"]):
                _say(_replay(case))
        else:
            failed += 1
            _say(f"!! {job[1].name}, {job[2]}: the lane could not be run")
    return failed


def _fork(job: Job, url: str, home: Path, options: argparse.Namespace) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _lane(job, url, home, options)
        status = 0
    except BaseException:  # noqa: BLE001 - a fork must never return into its parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _lane(job: Job, url: str, home: Path, options: argparse.Namespace) -> None:
    turn, scenario, dialect = job
    raw = _raw(options.raw, scenario, dialect)
    part = raw.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file, Lane(scenario, dialect, url, home) as lane:
        for case in _cases(lane, turn, options):
            file.write(json.dumps(asdict(case)) + "\n")
            file.flush()
        for problem in lane.everything():
            file.write(json.dumps({"scenario": scenario.name, "dialect": dialect, "problems": [problem]}) + "\n")
    part.replace(raw)


def _cases(lane: Lane, turn: int, options: argparse.Namespace) -> Iterator[Case]:
    if options.point is not None:
        yield lane.run(options.point, options.fault)
        return
    some = {"first": 1 + turn % options.every, "every": options.every}
    if not options.failures:
        yield from lane.deaths(**some)
    if not options.deaths:
        yield from lane.failures(**some, turn=turn, full=options.full)


# ------------------------------------------------------------------------------------------------ what came of it


def _is_sample(options: argparse.Namespace) -> bool:
    """Whether lanes do not run whole: their figures say nothing about their scenarios then."""
    return any((options.deaths, options.failures, options.point is not None, options.every != 1))


def _raw(raw: Path, scenario: Scenario, dialect: str) -> Path:
    return raw / f"{scenario.prefix}-{dialect}.jsonl"


def _summaries(raw: Path, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """What came of these lanes, as far as there is anything."""
    paths = [_raw(raw, scenario, dialect) for _, scenario, dialect in jobs]
    return [_summary(path) for path in paths if path.exists() and path.stat().st_size]


def _lines(raw: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in raw.read_text(encoding="utf-8").splitlines()]


def _summary(raw: Path) -> dict[str, Any]:
    lines = _lines(raw)
    cases = [line for line in lines if line.get("struck")]
    deaths = [line for line in cases if line["struck"] == "death"]
    return {
        "scenario": lines[0]["scenario"],
        "dialect": lines[0]["dialect"],
        "deaths": len(deaths),
        "failures": len(cases) - len(deaths),
        "ends": Counter(line["end"] for line in cases),
        "struck": Counter(line["struck"] for line in cases),
        "violations": sum(1 for line in lines if line["problems"]),
        "seconds": sum(line.get("seconds", 0.0) for line in lines),
    }


def _line(one: dict[str, Any]) -> str:
    ends = ", ".join(f"{count} {end}" for end, count in one["ends"].most_common())
    mark = "   " if not one["violations"] else "!! "
    name = f"{one['scenario']}, {one['dialect']}"
    return f"{mark}{name:<45} {one['deaths']:>4} deaths {one['failures']:>4} failures  {one['seconds']:>4.0f} s  {ends}"


def _replay(case: dict[str, Any]) -> str:
    problems = "\n".join(f"      {problem}" for problem in case["problems"])
    where = f'--only "{case["scenario"]}" --dialect {case["dialect"]} --point {case.get("point")}'
    fault = "" if case.get("fault") is None else f" --fault {case['fault']}"
    return f"   {case.get('struck')} at {case.get('at')}\n{problems}\n      again: python -m proof.crash {where}{fault}"


def report(raw: Path, page: str) -> str:
    """The section of the page: how each story ended, and how often each fault struck.

    A story whose lanes are not both in `raw` stays as the page has it, or is named as missing.
    """
    lanes = [[(0, scenario, dialect) for dialect in DIALECTS] for scenario in SCENARIOS]
    both = [found for jobs in lanes if len(found := _summaries(raw, jobs)) == len(DIALECTS)]
    rows = {found[0]["scenario"]: _row(found) for found in both}
    told = {line.split(" | ")[0][2:]: line[2:-2].split(" | ") for line in page.splitlines() if line.startswith("| ")}
    names = [scenario.name for scenario in SCENARIOS]
    shown = [rows.get(name) or told[name] for name in names if name in {*rows, *told}]
    missing = [f"`{name}`" for name in names if name not in {*rows, *told}]
    deaths, failures = (sum(int(n) for row in shown for n in row[column].split(" + ")) for column in (1, 2))
    violations = sum(int(row[-1]) for row in shown)
    struck: Counter[str] = sum((one["struck"] for found in both for one in found), Counter())
    head = ["scenario", "deaths (SQLite + PostgreSQL)", "failures", *ENDS, "violations"]
    text = [
        f"{deaths:,} deaths and {failures:,} failures on SQLite and PostgreSQL: **{violations or 'no'} violations**.",
        table(head, shown),
        f"What struck in the {len(both)} stories that ran last:",
        table(["what struck", "times"], [[name, f"{count:,}"] for name, count in struck.most_common()]),
    ]
    return "\n\n".join(text + [f"Not run whole: {', '.join(missing)}."] * bool(missing))


def _row(found: Sequence[dict[str, Any]]) -> list[str]:
    """A story's line, out of its lanes."""
    ends: Counter[str] = sum((one["ends"] for one in found), Counter())
    counts = (" + ".join(str(one[what]) for one in found) for what in ("deaths", "failures"))
    violations = sum(one["violations"] for one in found)
    return [found[0]["scenario"], *counts, *(str(ends[word]) for word in ENDS), str(violations)]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
