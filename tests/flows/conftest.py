"""Stages on each database, with one object or with several that refer to each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flows.family import Family, MakeFamily
from flows.stage import PACK, MakeStage, Stage


@pytest.fixture
def make_stage(engine: sa.Engine, tmp_path: Path) -> MakeStage:
    """A function that opens a stage with a pack, an authority or a clock of its own."""

    def make(**options: Any) -> Stage:
        return Stage(engine, tmp_path, **{"pack": PACK, **options})

    return make


@pytest.fixture
def stage(make_stage: MakeStage) -> Stage:
    """A stage with the plain pack."""
    return make_stage()


@pytest.fixture
def make_family(engine: sa.Engine, tmp_path: Path) -> MakeFamily:
    """A function that opens a stage of countries and places, with the associations that it is given."""

    def make(*associations: Any, **options: Any) -> Family:
        return Family(engine, tmp_path, *associations, **options)

    return make


@pytest.fixture
def places(make_family: MakeFamily) -> Family:
    """Places with a parent place and a country, both as foreign keys."""
    return make_family()
