"""Figures in a document: a command writes what it measured between two marks of its own, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / "build"
PAGE: Final = ROOT / "docs" / "reliability.md"


def write_section(name: str, text: str, page: Path = PAGE) -> None:
    """Replace what stands between `<!-- name:begin -->` and `<!-- name:end -->`; both must be there."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        msg = f"{page} has no section {name}"
        raise ValueError(msg)
    page.write_text(f"{before}{begin}\n{text.strip()}\n{end}{after}", encoding="utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown; numbers stand to the right."""
    lines = [list(map(str, row)) for row in rows]
    right = [all(line[column].replace(",", "").isdigit() for line in lines) for column in range(len(head))]
    rule = ["---:" if is_right else "---" for is_right in right]
    return "\n".join("| " + " | ".join(line) + " |" for line in [list(head), rule, *lines])
