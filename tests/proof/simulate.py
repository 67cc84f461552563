"""`make simulate`: many seeds of the simulation, on all cores; what each found, what was reached, and how to replay it.

    python -m proof.simulate            2,000 seeds
    python -m proof.simulate 50         as many as said
    python -m proof.simulate --seed 7   one, with its whole story

A run fails when a seed breaks an invariant, when one of the seeds that are run twice (one in nineteen; one in 47 on
PostgreSQL) tells two stories, or when a kind of fault or an arrow of the protocol was met too seldom to call the run a
proof. Seeds that failed are kept in `simulation/kept.txt` and run for ever after.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from proof.databases import Databases
from proof.figures import BUILD, table, write_section
from proof.simulation.coverage import EXPECTED, missing
from proof.simulation.faults import Fault
from proof.simulation.places import FilePlace, Place, ServerPlace
from proof.simulation.seeds import Result, calm, run

KEPT: Final = Path(__file__).parent / "simulation" / "kept.txt"
SEEDS: Final = 2_000

#: One seed in so many is run twice, and one in so many on PostgreSQL as well. Primes: a seed's last digit says which
#: world it has, and every world has its turn.
TWICE: Final = 19
ON_POSTGRESQL: Final = 47

_places: list[Place] = []  # of a process of the pool: a file, and a database of the server where there is one


def kept_seeds() -> list[int]:
    """Seeds that failed once."""
    return [int(line.split()[0]) for line in KEPT.read_text("utf-8").splitlines() if line and line[0].isdigit()]


def _start(template: Path, home: Path, server: str | None = None) -> None:
    own = home / f"simulation-{os.getpid()}"
    own.mkdir()
    _places.append(FilePlace(template, own))
    if server is not None:
        _places.append(ServerPlace(server, own))
    calm()


def simulate(seed: int) -> Result:
    """One seed; some are run again, in the same place or on a server, and must tell the same story."""
    place, *servers = _places
    result = run(seed, place)
    again = [place] if seed % TWICE == 0 else []
    again += servers if seed % ON_POSTGRESQL == 0 else []
    for other in again:
        if not result.problems and (told := run(seed, other)).digest != result.digest:
            result.problems += told.problems or [f"it tells another story on {other.engine.dialect.name}"]
    return result


def simulate_all(seeds: Sequence[int], *, jobs: int) -> Generator[Result, None, None]:
    """All of these, in no order that matters."""
    on_server = any(seed % ON_POSTGRESQL == 0 for seed in seeds)
    with Databases(("sqlite", "postgresql") if on_server else ("sqlite",)) as databases:
        _, home = databases.fresh("sqlite")
        given = (databases.home / "template.sqlite", home, databases.fresh("postgresql")[0] if on_server else None)
        if jobs == 1:
            _start(*given)
            yield from map(simulate, seeds)
            return
        pool = ProcessPoolExecutor(jobs, initializer=_start, initargs=given)
        try:
            yield from pool.map(simulate, seeds, chunksize=4)
        finally:
            pool.shutdown(cancel_futures=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description="Simulate deployments out of seeds.")
    parser.add_argument("seeds", nargs="?", type=int, default=SEEDS, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one alone and tell its story")
    parser.add_argument("--minutes", type=float, default=math.inf, help="how long to go on at most")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    asked = parser.parse_args()
    if asked.seed is not None:
        [result] = simulate_all([asked.seed], jobs=1)
        sys.stdout.write("\n".join([*result.trace, *result.problems, result.digest]) + "\n")
        return 1 if result.problems else 0
    return many(asked.first, asked.seeds, jobs=asked.jobs, minutes=asked.minutes, as_json=asked.json)


def many(first: int, count: int, *, jobs: int, minutes: float, as_json: bool) -> int:
    """A run of many seeds, with the kept ones before them; whatever was begun when the time is over is finished."""
    started = time.monotonic()
    seeds = [*kept_seeds(), *range(first, first + count)]
    faults: Counter[str] = Counter()
    arrows: Counter[str] = Counter()
    failed: list[Result] = []
    happened = number = 0
    results = simulate_all(seeds, jobs=jobs)
    for number, result in enumerate(results, 1):
        faults += result.faults
        arrows += result.arrows
        happened += len(result.trace)
        if result.problems:
            failed.append(result)
            sys.stderr.write(
                f"\nseed {result.seed}: {'; '.join(result.problems)[:600]}\n  replay: {replay(result.seed)}\n"
            )
        if number % 20 == 0 or number == len(seeds):
            rate = number / (time.monotonic() - started)
            sys.stderr.write(f"\r{number:,}/{len(seeds):,} seeds, {rate:.1f}/s, {len(failed)} failed")
        if time.monotonic() - started > 60 * minutes:
            break
    results.close()
    seconds = time.monotonic() - started
    spent = os.times()
    seldom = missing(faults, arrows, seeds=number)
    figures = {
        "seeds": number,
        "asked": len(seeds),
        "seconds": round(seconds),
        "processor_seconds": round(spent.user + spent.system + spent.children_user + spent.children_system),
        "happened": happened,
        "failed": [result.seed for result in failed],
        "too_seldom": seldom,
        "faults": dict(sorted(faults.items())),
        "arrows": dict(sorted(arrows.items())),
    }
    BUILD.mkdir(exist_ok=True)
    (BUILD / "simulation.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"\n{json.dumps(figures) if as_json else summary(figures)}\n")
    keep(failed)
    if count >= SEEDS:
        write_section("simulate", summary(figures))
    return 1 if failed or seldom else 0


def replay(seed: int) -> str:
    """The command that runs a seed again."""
    return f"make simulate SEEDS='--seed {seed}'"


def keep(failed: Sequence[Result]) -> None:
    """A seed that failed is run first from now on."""
    known = set(kept_seeds())
    with KEPT.open("a", encoding="utf-8") as page:
        page.writelines(f"{r.seed} {r.problems[0].splitlines()[0][:100]}\n" for r in failed if r.seed not in known)


def summary(figures: dict[str, object]) -> str:
    """What a run came to, as the page shows it."""
    faults, arrows = figures["faults"], figures["arrows"]
    assert isinstance(faults, dict)
    assert isinstance(arrows, dict)
    head = (
        f"{figures['seeds']:,} of {figures['asked']:,} seeds in {figures['seconds']:,} s, with "
        f"{figures['processor_seconds']:,} s of processor time: {figures['happened']:,} things happened, "
        f"{len(figures['failed'])} seeds failed, {len(figures['too_seldom'])} faults or arrows were met too seldom."  # type: ignore[arg-type]
    )
    return "\n\n".join(
        (
            head,
            table(("fault", "times"), [(fault.value, f"{faults.get(fault.value, 0):,}") for fault in Fault]),
            table(("arrow", "times"), [(arrow, f"{arrows.get(arrow, 0):,}") for arrow in EXPECTED]),
        )
    )


if __name__ == "__main__":
    sys.exit(main())
