"""The small benchmark runs to its end and counts right; how fast anything is, is nobody's business here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COUNT = 50


@pytest.mark.timeout(300)
def test_every_variant_sends_each_record_once(tmp_path: Path) -> None:
    """Each contender's stub accepts exactly one create for each record; a run that loses or doubles one fails."""
    output = tmp_path / "figures.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.small",
        "--count",
        str(COUNT),
        "--rounds",
        "1",
        "--output",
        str(output),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    creates = {figure["variant"]: figure["creates"] for figure in json.loads(output.read_text(encoding="utf-8"))}
    assert creates == {
        "pushlink on PostgreSQL": COUNT,
        "pushlink on PostgreSQL, with mirror": COUNT,
        "PgQueuer": COUNT,
        "pushlink on SQLite": COUNT,
    }
