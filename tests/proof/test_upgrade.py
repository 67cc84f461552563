"""A short `make upgrade` in every run of the tests: two releases side by side, the schema upgraded under their load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proof.upgrade.releases import previous, revision_of, unpack
from pushlink.store.revision import known_revisions

TESTS = Path(__file__).resolve().parents[1]


def test_the_kept_release_is_the_one_before_this_one(tmp_path: Path) -> None:
    """Whoever adds a revision keeps the last commit before it: python -m proof.upgrade.releases COMMIT."""
    archive = previous()
    assert revision_of(archive) == known_revisions()[-2]
    assert archive.name == f"{revision_of(archive)}.tar.xz"
    assert (unpack(archive, tmp_path) / "pushlink" / "worker.py").is_file()


@pytest.mark.rule("D-43")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_two_releases_push_side_by_side_while_the_schema_is_upgraded(tmp_path: Path, dialect: str) -> None:
    """Real hosts and workers of both: no record is created twice, none is lost, no save fails, no row is parked."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    few = ["--sends", "12", "--rate", "20", "--rounds", "1", "--few"]
    done = subprocess.run(
        [sys.executable, "-m", "proof.upgrade", "--dialect", dialect, *few, "--raw", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / f"{dialect}-0" / "result.json").read_text(encoding="utf-8"))
    assert found["problems"] == []
    assert set(found["creates"]) == {"1"}
    assert found["sent"]["previous"] > 0
    assert found["sent"]["this"] > 0
    assert found["sends_mixed"] >= 12
