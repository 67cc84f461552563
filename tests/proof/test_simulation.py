"""Fifty seeds of the simulation in every run of the tests, and those that failed once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from proof.databases import Databases
from proof.simulate import kept_seeds
from proof.simulation.coverage import EXPECTED, missing
from proof.simulation.places import FilePlace
from proof.simulation.seeds import run

SEEDS = 50
GROUPS = 5


@pytest.fixture
def place(tmp_path: Path):
    with Databases(("sqlite",)) as databases:
        _, directory = databases.fresh("sqlite")
        yield FilePlace(databases.home / "template.sqlite", directory)


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.timeout(600)
def test_a_deployment_in_which_everything_fails_breaks_no_invariant_and_converges(place: FilePlace, group: int) -> None:
    seeds = range(1 + group, 1 + SEEDS, GROUPS)
    results = [run(seed, place) for seed in seeds]
    assert {result.seed: result.problems for result in results if result.problems} == {}
    faults = sum((result.faults for result in results), Counter())
    assert sum(faults.values()) > 5 * len(results), "a run in which little fails proves little"


@pytest.mark.timeout(600)
def test_what_failed_once_does_not_fail_again(place: FilePlace) -> None:
    assert {seed: problems for seed in kept_seeds() if (problems := run(seed, place).problems)} == {}


def test_the_same_seed_tells_the_same_story(place: FilePlace) -> None:
    first, second, other = run(3, place), run(3, place), run(4, place)
    assert first.trace == second.trace
    assert first.digest == second.digest != other.digest


def test_a_run_that_meets_too_little_is_no_proof() -> None:
    assert missing(Counter(), Counter(), seeds=100)
    assert "create processing unknown ambiguous_remote_effect" in EXPECTED
    assert missing(Counter(), Counter(), seeds=10) == []


def test_some_seeds_have_records_that_refer_to_others_and_processes_that_commit_in_groups(place: FilePlace) -> None:
    plain, referring, grouping = (run(seed, place).trace for seed in (1, 3, 8))
    assert any(" under " in said for said in referring)
    assert any(len(said.split()) > 2 and said.endswith(" settle") for said in grouping)
    assert not any(" under " in said or (said.startswith("w") and len(said.split()) > 2) for said in plain)
