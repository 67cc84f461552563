"""`make model`: run SPIN over every run of the table, print and keep what it found.

Needs `spin` and `gcc`. A run that must hold is searched to the end, depth first; one that must fail, or must reach a
state, is searched breadth first, so that its trace is a shortest one. Traces and figures go to `build/model/`, the
tables to docs/reliability.md. Exit code 1 when a run did not end as expected, 2 when it could not be asked.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from proof.figures import BUILD, table, write_section
from proof.model.runs import FAILS, HOLDS, REACHED, Run

HERE: Final = Path(__file__).resolve().parent
OUT: Final = BUILD / "model"
EVERY: Final = tuple(
    (kind, run) for kind, runs in (("holds", HOLDS), ("fails", FAILS), ("reached", REACHED)) for run in runs
)
TOOLS: Final = ("spin", "gcc")
SECONDS_MAX: Final = 1_800
MEGABYTES_MAX: Final = 12_000
CHECKER: Final = ("gcc", "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=2048", f"-DMEMLIM={MEGABYTES_MAX}")
SHORTEST: Final = ("-DBFS", "-DNOREDUCE")
NO_VERDICT: Final = ("max search depth too small", "out of memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the checker said of one run: whether it found a violation, after how many states, and the shortest way."""

    kind: str
    run: Run
    violated: bool
    expected: bool
    states: int
    seconds: float
    trace: tuple[str, ...]


def search(kind: str, run: Run) -> Found:
    """Build the checker for one run and let it search; raises `RuntimeError` where it did not come to a verdict."""
    shortest = kind != "holds"
    with tempfile.TemporaryDirectory(prefix="pushlink-model-") as name:
        folder = Path(name)
        (folder / "m.pml").write_text(defined(run, shortest=shortest) + (HERE / run.file).read_text("utf-8"), "utf-8")
        output(folder, "spin", "-a", "m.pml")
        output(folder, *CHECKER, *(SHORTEST if shortest else ()), "-o", "pan", "pan.c")
        started = time.monotonic()
        told = output(folder, "./pan", "-E", "-m400000", "-w25")
        seconds = time.monotonic() - started
        errors, states = re.search(r"errors: ([0-9]+)", told), re.search(r"([0-9.e+]+) states, stored", told)
        if errors is None or states is None or any(words in told for words in NO_VERDICT):
            raise RuntimeError(f"{run.file} {' '.join(run.flags)} came to no verdict:\n{told}")
        violated = errors[1] != "0"
        return Found(
            kind=kind,
            run=run,
            violated=violated,
            expected=violated is shortest,
            states=int(float(states[1])),
            seconds=round(seconds, 2),
            trace=trail(folder) if violated else (),
        )


def defined(run: Run, *, shortest: bool) -> str:
    """The switches of a run, as lines before the model: a shell would read `&&` in an option."""
    switches = (*run.flags, *(("TRACE",) if shortest else ()))
    return "".join(f"#define {name} {value or 1}\n" for name, _, value in (flag.partition("=") for flag in switches))


def trail(folder: Path) -> tuple[str, ...]:
    """The way to what was found, in the words that the model prints."""
    lines = (line.strip() for line in output(folder, "spin", "-t", "m.pml").splitlines())
    return tuple(line[1:].strip() for line in lines if line.startswith("@"))


def output(folder: Path, *command: str) -> str:
    """What a command prints; it ends with 0 whatever it finds."""
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=SECONDS_MAX)
    return done.stdout


def main() -> int:
    """Run everything, or the runs whose file or purpose holds a word of the command line."""
    parser = argparse.ArgumentParser(prog="make model", description="Check the model of the protocol with SPIN.")
    parser.add_argument("words", nargs="*", help="only runs whose file or purpose holds one of these")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON Lines")
    asked = parser.parse_args()
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    chosen = [
        (kind, run) for kind, run in EVERY if not asked.words or any(w in run.file + run.says for w in asked.words)
    ]
    if missing or not chosen:
        need = f"{' and '.join(missing)} not found; on Debian: apt-get install spin gcc"
        sys.stderr.write(f"{need if missing else 'No run is named by ' + ' '.join(asked.words)}\n")
        return 2
    OUT.mkdir(parents=True, exist_ok=True)
    findings = []
    for number, (kind, run) in enumerate(chosen, 1):
        found = search(kind, run)
        findings.append(found)
        say = json.dumps(asdict(found)) if asked.json else f"{number:3}/{len(chosen)}  {line(found)}"
        sys.stdout.write(f"{say}\n")
        sys.stdout.flush()
    (OUT / "findings.json").write_text(json.dumps([asdict(found) for found in findings], indent=1) + "\n", "utf-8")
    if len(chosen) == len(EVERY):
        write_section("model", summary(findings))
    return 0 if all(found.expected for found in findings) else 1


def line(found: Found) -> str:
    verdict = "as expected" if found.expected else "NOT AS EXPECTED"
    what = f"{found.kind:8} {found.run.file:13} {found.run.says:48}"
    return f"{what} {found.states:>11,} states {found.seconds:7.2f} s  {verdict}"


def summary(findings: Sequence[Found]) -> str:
    """The three tables of docs/reliability.md."""
    of = {kind: [found for found in findings if found.kind == kind] for kind in ("holds", "fails", "reached")}
    states = sum(found.states for found in of["holds"])
    return "\n\n".join(
        (
            f"{states:,} states with every rule in force; {len(of['fails'])} rules switched off one by one.",
            table(
                ("model", "every rule in force", "states", "seconds", "violations"),
                [
                    (f.run.file, f.run.says, f"{f.states:,}", f.seconds, "FOUND" if f.violated else "none")
                    for f in of["holds"]
                ],
            ),
            table(
                ("model", "rule switched off", "steps to the violation", "violation"),
                [(f.run.file, f.run.says, len(f.trace), "found" if f.violated else "NOT FOUND") for f in of["fails"]],
            ),
            table(
                ("model", "state that must be reached", "reached"),
                [(f.run.file, f.run.says, "yes" if f.violated else "NO") for f in of["reached"]],
            ),
        )
    )


if __name__ == "__main__":
    sys.exit(main())
