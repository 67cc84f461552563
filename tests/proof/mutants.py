"""`make mutants`: every closing rule switched off, one at a time; what the simulation and a named test find then.

    python -m proof.mutants                     every rule, at most 500 seeds each
    python -m proof.mutants --rules FENCE LATE  these alone; the figures of the others stay
    python -m proof.mutants --plain recovery gates --minutes 10  plain mutation testing of these modules (`proof.plain`)

Each mutant runs in processes of its own: one that simulates seed after seed until an invariant breaks, one that runs
the test that names the rule. A broken invariant counts, and an assertion of that test. An error that nobody expects
counts for nothing: then the mutant is broken, and the run fails and says so. It fails as well where the named test
passes, and where the simulation should have noticed and did not (`mutation` says what it cannot, and why).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from proof.databases import Databases
from proof.figures import BUILD, ROOT, table, write_section
from proof.model.runs import FAILS
from proof.mutation import MUTANTS, Mutant
from proof.mutation.plugin import CRASHED, NOTICED, VARIABLE
from proof.simulation.places import FilePlace
from proof.simulation.seeds import calm, run

SEEDS: Final = 500
PYTEST: Final = ("-q", "-x", "-p", "proof.mutation.plugin", "-p", "no:cacheprovider", "-n", "0", "-k", "not postgresql")
FIGURES: Final = BUILD / "mutants.json"

#: Identities of rows, which say nothing to a reader.
_IDS: Final = re.compile(r"\b(lk1_)?[0-9a-f]{32,}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """What came of one mutant. `seed` is `None` where no seed found it, `broke` is what the first one broke."""

    rule: str
    seed: int | None
    seeds: int  # how many were tried
    broke: str
    crashed: str  # what the simulation or the test stumbled over; nothing is proved then
    failed: str  # how the named test failed; empty when it passed

    @property
    def is_caught(self) -> bool:
        """Whether everybody who should notice did, and for the right reason."""
        return bool(self.failed) and not self.crashed and (self.seed is not None or bool(MUTANTS[self.rule].unseen))


def hunt(mutant: Mutant, template: Path, home: Path, seeds: int) -> dict[str, Any]:
    """Simulate with this rule off until something breaks; for a process of its own."""
    mutant.off()
    place = FilePlace(template, home)
    calm()
    for seed in range(1, seeds + 1):
        result = run(seed, place)
        if result.crashed:
            return {"seed": None, "seeds": seed, "broke": "", "crashed": f"seed {seed}: {result.problems[-2]}"}
        if result.problems:
            return {"seed": seed, "seeds": seed, "broke": result.problems[0].splitlines()[0], "crashed": ""}
    return {"seed": None, "seeds": seeds, "broke": "", "crashed": ""}


def examine(name: str, *, databases: Databases, seeds: int) -> Caught:
    """One rule: the simulation and the named test, each in a process."""
    mutant = MUTANTS[name]
    _, home = databases.fresh("sqlite")
    found: dict[str, Any] = {"seed": None, "seeds": 0, "broke": "", "crashed": ""}
    if not mutant.unseen:
        template = databases.home / "template.sqlite"
        asked = [sys.executable, "-m", "proof.mutants", "--hunt", name, str(template), str(home), str(seeds)]
        found = json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    failed, crashed = try_test(mutant)
    return Caught(rule=name, failed=failed, **{**found, "crashed": found["crashed"] or crashed})


def try_test(mutant: Mutant) -> tuple[str, str]:
    """Run the named test without its rule: how it failed, or what it stumbled over."""
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", *PYTEST, mutant.test],
        cwd=ROOT,
        env={**os.environ, VARIABLE: mutant.name},
        capture_output=True,
        text=True,
        check=False,
    )
    if tested.returncode not in {0, 1}:
        said = f"{tested.stdout[-2_000:]}{tested.stderr[-2_000:]}"
        raise RuntimeError(f"{mutant.test} did not run under {mutant.name}:\n{said}")
    told = {
        mark: line.removeprefix(mark)
        for line in tested.stdout.splitlines()
        for mark in (NOTICED, CRASHED)
        if line.startswith(mark)
    }
    return told.get(NOTICED, ""), told.get(CRASHED, "")


def examine_all(names: Sequence[str], *, seeds: int, jobs: int) -> Iterator[Caught]:
    """These rules, side by side, as they come to an end."""
    started = time.monotonic()
    with Databases(("sqlite",)) as databases, ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(examine, name, databases=databases, seeds=seeds) for name in names]):
            caught = done.result()
            says = "" if caught.is_caught else "  NOT CAUGHT"
            seed = f"seed {caught.seed}" if caught.seed else f"no seed of {caught.seeds}"
            test = "fails" if caught.failed else "PASSES"
            sys.stderr.write(f"{time.monotonic() - started:5.0f} s  {caught.rule:10} {seed}, its test {test}{says}\n")
            for what, how in (("broke", caught.broke), ("failed", caught.failed), ("CRASHED", caught.crashed)):
                sys.stderr.write(f"          {what}: {how[:150]}\n" if how else "")
            yield caught


def summary(found: Sequence[dict[str, Any]]) -> str:
    """The table of the page."""
    seen = [one["seed"] for one in found if one["seed"] is not None]
    failed = sum(bool(one["failed"]) for one in found)
    models = {run.says: run.file for run in FAILS}
    head = (
        f"{len(found)} rules switched off. An invariant of the simulation broke for {len(seen)} of them, within "
        f"{max(seen, default=0)} seeds; an assertion of the named test failed for {failed}."
    )
    untried = sorted(MUTANTS.keys() - {one["rule"] for one in found})
    head += f" Not tried to the end yet: {', '.join(untried)}." if untried else ""
    rows = []
    for one in found:
        mutant = MUTANTS[one["rule"]]
        unseen = f"not seen: {mutant.unseen or 'in ' + str(one['seeds']) + ' seeds'}"
        test = mutant.test.rpartition("::")[2] if one["failed"] else "(none)"
        broke = _IDS.sub("...", one["broke"].removeprefix("AssertionError: ").replace("|", "/"))[:120] or unseen
        rule = (mutant.name, mutant.decision, mutant.rule)
        rows.append((*rule, broke, one["seed"] or "-", f"`{test}`", models.get(mutant.name, "-")))
    names = (
        "rule",
        "decision",
        "what it says",
        "what broke",
        "first seed",
        "test that failed",
        "model that refutes it",
    )
    return f"{head}\n\n{table(names, rows)}"


def main() -> int:
    if sys.argv[1:2] == ["--hunt"]:
        name, template, home, seeds = sys.argv[2:]
        sys.stdout.write(json.dumps(hunt(MUTANTS[name], Path(template), Path(home), int(seeds))) + "\n")
        return 0
    parser = argparse.ArgumentParser(prog="make mutants", description="Switch every closing rule off, one at a time.")
    parser.add_argument("--rules", nargs="+", choices=[*MUTANTS], default=[*MUTANTS])
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many seeds each rule is given at most")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--plain", nargs="*", metavar="MODULE", help="mutate these modules of protocol/ line by line")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long plain mutation testing may take")
    asked = parser.parse_args()
    if asked.plain is not None:
        # A process of its own: modules of pushlink are there already, and mutants are to be loaded afresh.
        return subprocess.call([sys.executable, "-m", "proof.plain", str(asked.minutes), *asked.plain])
    found = []
    for caught in examine_all(asked.rules, seeds=asked.seeds, jobs=asked.jobs):
        found.append(caught)
        figures = record(caught)
    write_section("mutants", summary(figures))
    sys.stdout.write(summary(figures) + "\n")
    return 0 if all(one.is_caught for one in found) else 1


def record(caught: Caught) -> list[dict[str, Any]]:
    """Keep what came of one rule beside what is known of the others; all of it, in the order of the table."""
    known = {one["rule"]: one for one in json.loads(FIGURES.read_text("utf-8"))} if FIGURES.exists() else {}
    known[caught.rule] = asdict(caught)
    figures = [known[name] for name in MUTANTS if name in known]
    BUILD.mkdir(exist_ok=True)
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return figures


if __name__ == "__main__":
    sys.exit(main())
