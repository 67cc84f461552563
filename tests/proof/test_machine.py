"""Model = SQLite = PostgreSQL, whatever is done to them in whatever order."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from proof.machine.machine import Machine
from support.bench import Bench

#: Examples of each run of the tests; PUSHLINK_EXAMPLES asks for more.
EXAMPLES = 5


@pytest.mark.timeout(900)
def test_model_sqlite_and_postgresql_tell_one_story(
    sqlite_url: str, pg_url: str, tmp_path: Path, open_engine: Callable[[str], sa.Engine]
) -> None:
    benches = []
    for url in (sqlite_url, pg_url):
        home = tmp_path / sa.make_url(url).get_backend_name()
        home.mkdir()
        benches.append(Bench(open_engine(url), home, mirror=True))
    machine = type("Told", (Machine,), {"benches": tuple(benches)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=int(os.environ.get("PUSHLINK_EXAMPLES", EXAMPLES)),
            stateful_step_count=20,
            deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
