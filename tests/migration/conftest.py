"""A stage on each database, and the command line's shop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flows.stage import PACK, MakeStage, Stage
from surfaces.conftest import _logs_as_they_were, local_shop, remote, shop

__all__ = ["_logs_as_they_were", "local_shop", "make_stage", "remote", "shop", "stage"]


@pytest.fixture
def make_stage(engine: sa.Engine, tmp_path: Path) -> MakeStage:
    """A function that opens a stage with a pack of its own."""

    def make(**options: Any) -> Stage:
        return Stage(engine, tmp_path, **{"pack": PACK, **options})

    return make


@pytest.fixture
def stage(make_stage: MakeStage) -> Stage:
    """A stage with the plain pack."""
    return make_stage()
