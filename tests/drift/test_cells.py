"""Every row of the drift matrix, made real: links and creates become what the table says, on each database."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from drift.cells import ROWS, Row
from drift.changes import CASES
from drift.scene import CELLS, open_scene
from operations.agreement import require_agreement
from pushlink.protocol.drift import MATRIX

#: What needs a scene of its own to be seen, in another test: a field that no row of this release names.
_ELSEWHERE = {"DR-28"}


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.change, marks=pytest.mark.rule(row.rule, "D-11", "D-21")) for row in ROWS]
)
def test_a_change_does_what_its_row_says(row: Row, engine: sa.Engine, tmp_path: Path) -> None:
    """Eleven records, one change, and each ends as its cell says: by its rows and by the remote's log.

    Whatever waits for a person then, `explain` and `stuck` say so alike.
    """
    case = CASES[row.change]
    scene = open_scene(engine, tmp_path, pack=case.pack(), remote=case.remote)
    assert scene.observe(case.change) == row.cells()
    require_agreement(scene.stage, page=len(CELLS))


def test_every_rule_and_every_change_has_its_row() -> None:
    """Nothing of the matrix is left out, and no change is made without an expectation."""
    assert {row.rule for row in ROWS} == {row.rule for row in MATRIX} - _ELSEWHERE
    assert [row.rule for row in ROWS] == sorted(row.rule for row in ROWS)
    assert sorted(row.change for row in ROWS) == sorted(CASES)
    assert all(tuple(row.cells()) == tuple(CELLS) for row in ROWS)
