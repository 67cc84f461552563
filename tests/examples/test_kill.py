"""`make kill` on a few records: real processes, a real remote, `kill -9`, judged by its verdict and its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IN_FLIGHT, WAITING = 6, 4


@pytest.mark.timeout(200)
@pytest.mark.rule("RR-03", "RR-04", "DL-04", "DR-27", "D-12")
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_killed_worker_sends_nothing_twice_and_parks_what_it_had_in_flight(database: str, tmp_path: Path) -> None:
    """What was in flight is parked with evidence, what was not started is finished, and the remote counts no second."""
    words = ["--database", database, "--in-flight", str(IN_FLIGHT), "--waiting", str(WAITING)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "kill" / "run.py"), *words, "--folder", str(tmp_path / "kill")],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PUSHLINK_DATABASE_URL": f"sqlite:///{tmp_path / 'somebody.db'}"},
        check=False,
        timeout=190,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"VERDICT: HELD: none sent twice, the rest finished, {IN_FLIGHT} parked with evidence" in done.stdout
    [row] = [line.split() for line in done.stdout.splitlines() if line.startswith(f" {database} ")]
    assert row[1:8] == [str(n) for n in (IN_FLIGHT + WAITING, IN_FLIGHT, WAITING, 0, WAITING, IN_FLIGHT, IN_FLIGHT)]
    assert not (tmp_path / "somebody.db").exists()
