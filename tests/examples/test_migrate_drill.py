"""`make migrate-drill` on a few records: what is planted is found, one by one, and the server's log has no surprise."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

KINTO = importlib.util.find_spec("kinto") is not None


@pytest.mark.rule("MG-02", "MG-03", "MG-06", "MG-09", "RV-14")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_small_drill_comes_out_as_expected(database: str, tmp_path: Path) -> None:
    """A process of its own, judged by its exit code, its verdict and its table."""
    command = [sys.executable, str(ROOT / "examples" / "real" / "migrate_drill.py"), "--database", database]
    links = "20" if KINTO else "0"
    done = subprocess.run(
        [*command, "--records", "600", "--links", links, "--folder", str(tmp_path / "drill")],
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"VERDICT: AS EXPECTED: {database}: 0 differences" in done.stdout
    assert "DIFFERENT" not in done.stdout.replace("VERDICT: AS EXPECTED", "")
    found = {tuple(line.split()[:2]): line.split()[-2:] for line in done.stdout.splitlines() if line.endswith("= ")}
    assert found["plan", "claimed_twice"] == ["12", "="]
    assert found["apply", "record_gone"][0] != "0"
    assert (("upgrade", "updates") in found) is KINTO
