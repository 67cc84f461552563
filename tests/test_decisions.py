"""The decision records: each is in the index, and each has its three parts."""

from __future__ import annotations

import re
from pathlib import Path

RECORDS = Path(__file__).resolve().parent.parent / "docs" / "decisions"


def test_every_record_is_in_the_index_and_the_index_names_nothing_else() -> None:
    """A newcomer finds every decision from one page."""
    named = set(re.findall(r"\]\(([^)/]+\.md)\)", (RECORDS / "README.md").read_text(encoding="utf-8")))
    assert named == {path.name for path in RECORDS.glob("*.md")} - {"README.md"}


def test_every_record_has_context_decision_and_consequence() -> None:
    """A record without one of the three cannot be weighed again later."""
    for path in RECORDS.glob("d-*.md"):
        text = path.read_text(encoding="utf-8")
        missing = [part for part in ("**Context.**", "**Decision.**", "**Consequence.**") if part not in text]
        assert not missing, f"{path.name} lacks {missing}"
