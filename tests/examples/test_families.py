"""The example of records that refer to each other runs, and the remote gets what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "families.py"


def test_a_member_that_is_saved_before_its_team_is_pushed_after_it() -> None:
    """Deferred, and then sent with the ids of the very records that it refers to; the mentor by a call of its own."""
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["Member 1: Deferred", "Member 2: Deferred", "Team 1: Reserved"]
    [team] = [line for line in lines if line.startswith("teams")]
    members = [line for line in lines if line.startswith("members")]
    [tie] = [line for line in lines if line.startswith("mentorships")]
    assert "'Engines'" in team
    assert len(members) == 2
    assert all("'team': '1'" in line for line in members)
    ids = {name: _id_of(next(line for line in members if name in line)) for name in ("Ada", "Charles")}
    assert f"'member': '{ids['Ada']}', 'mentor': '{ids['Charles']}'" in tie


def _id_of(line: str) -> str:
    return line.rsplit("'id': ", 1)[1].rstrip("}")
