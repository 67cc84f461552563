"""A sample of `make crash` in every test run, and the court's own honesty: what it must find, it finds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from plugins.databases import REFUSALS
from proof import crash, figures, isolation
from proof.judge.court import Court
from proof.points import FAULTS, Point
from support.bench import Bench

TESTS = Path(__file__).resolve().parents[1]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.rule("AT-10", "PO-07", "DR-27", "D-13")
@pytest.mark.timeout(600)
def test_processes_that_die_or_fail_lose_nothing(tmp_path: Path) -> None:
    """A sample of real deaths and failures on both databases; each was struck, recovered and judged."""
    done = command("proof.crash", "--only", "create accepted", "--every", "16", "--raw", str(tmp_path), "--jobs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    for dialect in ("sqlite", "postgresql"):
        lines = (tmp_path / "samples" / f"create-accepted-{dialect}.jsonl").read_text(encoding="utf-8").splitlines()
        struck = [json.loads(line)["struck"] for line in lines]
        assert struck.count("death") >= 8
        assert len([name for name in struck if name not in {"death", None}]) >= 8


@pytest.mark.rule("AT-09", "C-078", "D-12", "D-14")
@pytest.mark.timeout(600)
def test_orders_and_sleepers_are_judged(tmp_path: Path) -> None:
    """Some seeded orders with deaths in them, and workers that oversleep their lease at every step of a create."""
    only = ("--few", "--dialect", "sqlite", "--raw", str(tmp_path))
    done = command("proof.interleave", *only, "--orders", "--only", "an operator, saves")
    assert done.returncode == 0, done.stdout + done.stderr
    done = command("proof.interleave", *only, "--zombies", "--only", "create: asleep when checkpointed")
    assert done.returncode == 0, done.stdout + done.stderr
    orders, sleepers = (
        [json.loads(one) for one in (tmp_path / f"{kind}-sqlite.jsonl").read_text(encoding="utf-8").splitlines()]
        for kind in ("orders", "zombies")
    )
    assert len(orders) == 10
    assert any("dies" in step for order in orders for step in order["trace"])
    assert [sleeper["slept"] for sleeper in sleepers] == [1] * 5


def test_every_point_but_a_rollback_and_a_kept_mark_can_fail() -> None:
    """What is counted can also go wrong, on each database."""
    of_the_database = {Point.DIAL, Point.STATEMENT, Point.COMMIT, Point.COMMITTED}
    for dialect in ("sqlite", "postgresql"):
        assert {point for name, point in FAULTS if name == dialect} == of_the_database
    assert set(Point) - {point for _, point in FAULTS} == {Point.ROLLBACK, Point.KEPT}


def test_figures_are_written_between_their_marks_alone(tmp_path: Path) -> None:
    """The rest of the page stays as people wrote it."""
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- a:begin -->\nold\n<!-- a:end -->\nbelow\n", encoding="utf-8")
    figures.write_section("a", figures.table(["what", "times"], [["x", "1,000"]]), page)
    assert page.read_text(encoding="utf-8") == (
        "above\n<!-- a:begin -->\n| what | times |\n| --- | ---: |\n| x | 1,000 |\n<!-- a:end -->\nbelow\n"
    )
    with pytest.raises(ValueError, match="no section b"):
        figures.write_section("b", "", page)


def test_lanes_that_ran_one_by_one_make_one_table(tmp_path: Path) -> None:
    """Whichever ran, whenever; a story without lanes keeps its line, and one that has none either is named."""
    died = {"struck": "death", "end": "finalized", "problems": [], "seconds": 30.0, "scenario": "update accepted"}
    failed = {**died, "struck": "busy", "end": "in doubt"}
    for dialect, cases in {"sqlite": [died, died, failed], "postgresql": [died]}.items():
        lines = [json.dumps({**case, "dialect": dialect}) for case in [*cases, {**died, "struck": None}]]
        (tmp_path / f"update-accepted-{dialect}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    before = "| update accepted | 9 + 9 | 9 + 9 | 9 | 9 | 9 | 9 | 9 |"
    kept = "| create, rejected | 47 + 46 | 51 + 50 | 0 | 43 | 151 | 0 | 0 |"
    text = crash.report(tmp_path, f"{before}\n{kept}\n")
    assert "96 deaths and 102 failures on SQLite and PostgreSQL: **no violations**" in text
    assert "| update accepted | 2 + 1 | 1 + 0 | 3 | 1 | 0 | 0 | 0 |" in text
    assert kept in text
    assert "| death | 3 |" in text
    assert "Not run whole: `create accepted`, `create, reply lost`," in text
    assert "`create, rejected`" not in text


def test_levels_that_ran_one_by_one_make_one_table(tmp_path: Path) -> None:
    """Of each test the newest result counts; a directory whose log has no end is named."""
    lines = [
        "tests/flows/test_a.py::test_x[a b-postgresql] PASSED          [ 50%]",
        "tests/flows/test_a.py::test_y[postgresql] SKIPPED (needs FAILED) [ 75%]",
        "tests/flows/test_a.py::test_z FAILED                          [100%]",
        REFUSALS.format(7),
        "============ 1 failed, 1 passed, 1 skipped in 12.50s (0:00:12) ============",
    ]
    again = [lines[2].replace("FAILED", "PASSED"), REFUSALS.format(1), "====== 1 passed in 2.00s ======"]
    for age, (name, text) in enumerate(
        {"store": ["tests/store/test_b.py::test_x PASSED [ 10%]"], "flows-test_a": again, "flows": lines}.items()
    ):
        path = tmp_path / f"serializable-{name}.log"
        path.write_text("\n".join(text), encoding="utf-8")
        os.utime(path, (1_000 - age, 1_000 - age))
    text = isolation.report(tmp_path)
    assert re.search(r"\| SERIALIZABLE \| 3 \| 3 \| 0 \| 8 \| 14 \|", text), text
    assert "SERIALIZABLE: `tests/operations`, `tests/migration`, `tests/restores`, `tests/store`," in text


# --------------------------------------------------------------------------------------- the court


@pytest.fixture
def bench(sqlite_url: str, tmp_path: Path, open_engine: Callable[[str], sa.Engine]) -> Bench:
    """One record, finalized and mirrored, with nothing wrong."""
    directory = tmp_path / "bench"
    directory.mkdir()
    bench = Bench(open_engine(sqlite_url), directory, mirror=True)
    assert bench.linked_record() == "r1"
    return bench


def line(**more: Any) -> dict[str, Any]:
    """The create of the one record, as the remote's log has it."""
    made = {"method": "POST", "key": "r1", "id": "rec_000001", "applied": True, "digest": "a", "idempotency_key": "k"}
    return {**made, "document": {"key": "r1", "name": "Ada"}, **more}


def found(bench: Bench, tmp_path: Path, *lines: dict[str, Any], settled: bool = True, **more: Any) -> list[str]:
    log = tmp_path / "remote.jsonl"
    log.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    return Court(bench.database.engine, log).problems(["r1"], settled=settled, **more)


def test_an_honest_log_is_found_honest(bench: Bench, tmp_path: Path) -> None:
    """And so is one that ends in the middle of a line."""
    assert found(bench, tmp_path, line()) == []
    with (tmp_path / "remote.jsonl").open("a", encoding="utf-8") as log:
        log.write('{"method": "POST", "ke')
    court = Court(bench.database.engine, tmp_path / "remote.jsonl")
    assert court.problems(["r1"], settled=True) == []
    assert court.problems(None, settled=True) == []
    assert court.end("r1") == "finalized"
    assert court.end("nobody") == "nothing"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([line(), line(id="rec_000002")], "accepted 2 creates"),
        ([line(), line(id="rec_000002")], "the remote made rec_000002 for r1, and nothing here knows of it"),
        ([line(), line(applied=False, digest="b")], "2 bodies under the key k"),
        ([line(), line(method="PATCH", applied=False)], "2 requests for record r1 arrived, 1 were announced"),
        ([line(document={"key": "r1", "name": "Bea"})], "is 'Ada' here and ['Bea'] there"),
        ([line(document={"key": "r1", "name": "Ada", "boss": "rec_000001"})], "r1 refers to None here"),
        ([line(older=True, id="rec_000007"), line()], "accepted 2 creates"),
        ([line(id="rec_000009")], "which belongs to None"),
    ],
)
def test_what_the_remote_knows_better_is_found(
    bench: Bench, tmp_path: Path, lines: list[dict[str, Any]], problem: str
) -> None:
    """A second create, a lost id, a changed replay, a send without a checkpoint, a value that did not arrive."""
    problems = found(bench, tmp_path, *lines)
    assert any(problem in one for one in problems), problems
    assert sorted(found(bench, tmp_path, *lines, whole=True)) == sorted(problems)  # as when all are read at once


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM person", "r1 and its reservation are not one"),
        ("UPDATE person SET remote_id = 'rec_000007'", "the mirror of r1 shows rec_000007"),
        ("UPDATE person SET remote_id = NULL", "said to be written and shows nothing"),
        (
            "UPDATE pushlink_remote_link SET last_mapping_revalidation_operation_id = 'op'",
            "the link of r1 names the operation op, its receipts []",
        ),
        (
            "UPDATE pushlink_push_attempt SET status = 'ambiguous_remote_effect', reason_code = 'x'",
            "is ambiguous without evidence",
        ),
    ],
)
def test_what_the_rows_and_the_host_say_is_compared(bench: Bench, tmp_path: Path, statement: str, problem: str) -> None:
    """Neither is believed alone."""
    with bench.database.engine.begin() as conn:
        conn.exec_driver_sql(statement)
    problems = found(bench, tmp_path, line(), settled=False)
    assert any(problem in one for one in problems), problems


@pytest.mark.parametrize(("reason", "is_explained"), [("timeline_changed", True), ("lease_expired", False)])
def test_doubt_without_a_send_is_explained_by_another_timeline_alone(
    bench: Bench, tmp_path: Path, reason: str, is_explained: bool
) -> None:
    """A failover may have lost the checkpoint; nothing else puts what was never sent in doubt."""
    with bench.database.engine.begin() as conn:
        statement = (
            "UPDATE pushlink_push_attempt SET status = 'ambiguous_remote_effect', in_doubt = 1, remote_id = NULL,"
            " send_count = 0, first_io_at = NULL, last_checkpoint_at = NULL, reason_code = :reason"
        )
        conn.execute(sa.text(statement), {"reason": reason})
    told = [one for one in found(bench, tmp_path, settled=False) if "ever sent" in one or "evidence" in one]
    assert told == [] if is_explained else len(told) == 2, told


def test_a_row_of_an_unknown_lane_is_watched(bench: Bench, tmp_path: Path) -> None:
    """Whoever touches it is found out."""
    with bench.database.engine.begin() as conn:
        conn.exec_driver_sql("UPDATE pushlink_push_attempt SET dispatch_lane = 'tomorrow'")
    log = tmp_path / "remote.jsonl"
    log.write_text(json.dumps(line()) + "\n", encoding="utf-8")
    court = Court(bench.database.engine, log)
    assert court.problems(None, settled=True) == []
    with bench.database.engine.begin() as conn:
        conn.exec_driver_sql("UPDATE pushlink_push_attempt SET row_version = row_version + 1")
    assert any("of the lane tomorrow was touched" in one for one in court.problems(None, settled=True))
