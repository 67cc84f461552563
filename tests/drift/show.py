"""`make drift`: every cell of the drift matrix, what was observed beside what is expected; 1 when one of them differs.

Each row is staged on a SQLite database of its own; the same rows run on PostgreSQL in the tests.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from drift.cells import ROWS, Row
from drift.changes import CASES
from drift.scene import open_scene
from pushlink.store.dialect import create_engine
from pushlink.store.schema import upgrade


def main() -> int:
    """Show all rows; the number of cells that differ decides."""
    with tempfile.TemporaryDirectory(prefix="pushlink-drift-") as folder:
        template = Path(folder) / "template.db"
        engine = create_engine(f"sqlite:///{template}")
        upgrade(engine)
        engine.dispose()
        different = sum(_show(row, Path(folder) / f"{number}", template) for number, row in enumerate(ROWS))
    cells = sum(len(row.cells()) for row in ROWS)
    _say(f"{cells} cells in {len(ROWS)} rows, {different or 'none'} of them not as expected")
    return 1 if different else 0


def _show(row: Row, home: Path, template: Path) -> int:
    home.mkdir()
    shutil.copy(template, home / "rows.db")
    engine = create_engine(f"sqlite:///{home / 'rows.db'}")
    case = CASES[row.change]
    try:
        observed = open_scene(engine, home, pack=case.pack(), remote=case.remote).observe(case.change)
    finally:
        engine.dispose()
    _say(f"{row.rule}  {row.change}")
    different = 0
    for line, is_same in _lines(row, observed):
        different += not is_same
        _say(line)
    return different


def _lines(row: Row, observed: dict[str, str]) -> Iterator[tuple[str, bool]]:
    for cell, expected in row.cells().items():
        is_same = observed[cell] == expected
        mark = "   " if is_same else "!! "
        yield f"  {mark}{cell:<15} {observed[cell]:<58} {expected}", is_same


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
