"""Two processes that claim from one file at the same time: no error, and no row that both have."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
import sqlalchemy as sa

from flows.stage import PACK, Stage
from pushlink.store.dialect import create_engine

CYCLES = 60
ROWS = 90


def claim_cycles(url: str, home: str) -> tuple[list[str], list[str]]:
    """What one process claims in so many cycles of one row each, and every error that it met."""
    engine = create_engine(url)
    stage = Stage(engine, Path(home))
    claimed: list[str] = []
    errors: list[str] = []
    for _ in range(CYCLES):
        try:
            claimed += [item.attempt.id for item in stage.claim(1)]
        except Exception as error:  # noqa: BLE001 - any error at all is what the test is about
            errors.append(f"{type(error).__name__}: {error}")
    engine.dispose()
    return claimed, errors


@pytest.mark.rule("C-074")
@pytest.mark.timeout(300)
def test_two_processes_claim_from_one_file_without_an_error_or_a_double(sqlite_url: str, tmp_path: Path) -> None:
    """Write transactions begin IMMEDIATE on a write-ahead log and wait for each other within a bound."""
    engine = create_engine(sqlite_url)
    stage = Stage(engine, tmp_path)
    stage.apply(PACK)
    for record_id in range(1, ROWS + 1):
        stage.save(record_id, name=f"Person {record_id}", email=f"p{record_id}@example.com")
    with engine.begin() as conn:
        assert conn.execute(sa.text("PRAGMA journal_mode")).scalar() == "wal"
    homes = [tmp_path / name for name in ("one", "two")]
    for home in homes:
        home.mkdir()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        results = pool.starmap(claim_cycles, [(sqlite_url, str(home)) for home in homes])
    engine.dispose()
    assert [errors for _, errors in results] == [[], []]
    one, two = (claimed for claimed, _ in results)
    assert one
    assert two
    assert len(one) + len(two) == len(set(one) | set(two)) == ROWS
