"""SECURITY.md is true: each threat has a test that exists, and no number of the list is left out in silence."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")

#: The threats of the model, S1 to S17.
NUMBERS = {f"S{number}" for number in range(1, 18)}


def rows() -> dict[str, list[str]]:
    """The table of threats: number, and the files that are named as its tests."""
    table = PAGE.split("## Threats, controls, tests")[1].split("\n## ")[0]
    found = re.findall(r"^\| (S\d+) \| (.+?) \| (.+?) \| (.+?) \|$", table, re.MULTILINE)
    files: dict[str, list[str]] = {}
    for number, _, _, tests in found:
        files.setdefault(number, []).extend(re.findall(r"`(tests/[\w/]+\.py)`", tests))
    return files


def test_every_threat_names_tests_that_exist() -> None:
    """One file at least for each row, and each of them holds a test."""
    assert rows()
    for number, files in rows().items():
        assert files, number
        for file in files:
            assert "def test_" in (ROOT / file).read_text(encoding="utf-8"), (number, file)


def test_no_threat_is_left_out_in_silence() -> None:
    """What has no row is said to be undefended."""
    undefended = set(re.findall(r"\*\*(S\d+)\b", PAGE.split("## What is not defended")[1]))
    assert rows().keys() <= NUMBERS
    assert rows().keys() | undefended == NUMBERS


def test_a_report_has_a_way() -> None:
    """The page says how, and asks for no real secret."""
    assert "## Reporting" in PAGE
    assert "do not send real credentials" in PAGE
