from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proof.judge import Judge, judged
from support.bench import Bench

WRITE_EVENT = """
INSERT INTO pushlink_attempt_event
(attempt_id, link_key, tenant, at, subject, event, from_status, to_status, actor, row_version)
SELECT id, link_key, '', updated_at, 'create', 'x', {}, 'x', 9 FROM pushlink_push_attempt
"""


@pytest.fixture
def bench(sqlite_url: str, tmp_path: Path, open_engine: Callable[[str], sa.Engine]) -> Bench:
    """One record, finalized and mirrored, with nothing wrong."""
    directory = tmp_path / "bench"
    directory.mkdir()
    bench = Bench(open_engine(sqlite_url), directory, mirror=True)
    assert bench.linked_record() == "r1"
    bench.check("nothing", settled=True)
    return bench


def ask(bench: Bench, **told: Any) -> list[str]:
    remote = {"creates": {"r1": 1}, "sends": {"r1": 1}, "owners": {"rec_000001": "r1"}, "settled": True}
    return bench.judge.problems(**{**remote, **told})


def change(bench: Bench, statement: str) -> None:
    with bench.database.engine.begin() as conn:
        conn.exec_driver_sql(statement)


def test_an_honest_story_is_found_honest(bench: Bench) -> None:
    """Of one record and of all."""
    assert ask(bench) == []
    assert ask(bench, record="r1") == []


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ({"creates": {"r1": 2}}, "accepted 2 creates"),
        ({"sends": {"r1": 2}}, "2 requests for record r1 arrived, 1 were announced"),
        ({"owners": {"rec_000001": "r2"}}, "which belongs to r2"),
        ({"owners": {}}, "which belongs to None"),
    ],
)
def test_what_the_remote_knows_better_is_a_problem(bench: Bench, told: dict[str, Any], problem: str) -> None:
    """The remote's own counts are believed, not ours."""
    assert any(problem in found for found in ask(bench, **told))


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM pushlink_remote_link", "is finalized without its link"),
        ("DELETE FROM pushlink_remote_link", "its story ends at finalized, the row is []"),
        ("UPDATE pushlink_remote_link SET remote_id = 'rec_9'", "which belongs to None"),
        ("UPDATE pushlink_push_attempt SET remote_id = 'rec_9'", "is finalized without its link"),
        ("UPDATE pushlink_push_attempt SET create_key = NULL", "holds the key None"),
        ("UPDATE pushlink_push_attempt SET in_doubt = 1, send_count = 0", "nothing was ever sent"),
        ("UPDATE pushlink_push_attempt SET send_count = 0", "which was never announced"),
        ("UPDATE pushlink_push_attempt SET first_io_at = NULL", "without a first time"),
        ("UPDATE pushlink_push_attempt SET status = 'ambiguous_remote_effect'", "without a reason"),
        ("UPDATE pushlink_push_attempt SET status = 'ambiguous_remote_effect'", "its story ends at finalized"),
        (
            "UPDATE pushlink_push_attempt SET status = 'writeback_commit_pending', lease_until = NULL",
            "without an owner",
        ),
        ("UPDATE pushlink_push_attempt SET status = 'writeback_pending'", "although nobody has anything to do"),
        ("UPDATE pushlink_push_slot SET wanted_version = 5", "is wanted and nothing carries it"),
        (WRITE_EVENT.format("'finalized', 'pending'"), "goes from finalized to pending, which no arrow does"),
        (WRITE_EVENT.format("'pending', 'processing'"), "begins at pending, but it was finalized"),
    ],
)
def test_a_row_that_somebody_changed_is_a_problem(bench: Bench, statement: str, problem: str) -> None:
    """What no flow would leave behind is named."""
    change(bench, statement)
    found = ask(bench)
    assert any(problem in sentence for sentence in found), found


def test_what_was_written_once_is_remembered(bench: Bench) -> None:
    """A frozen request that changed, and a remote id that is nowhere any more, are found by the next look."""
    change(bench, "DROP TRIGGER " + trigger(bench, "pushlink_push_request", "UPDATE"))
    change(bench, "UPDATE pushlink_push_request SET body = 'another'")
    assert any("no longer what was written" in sentence for sentence in ask(bench, record="r1"))
    change(bench, "DELETE FROM pushlink_remote_link")
    change(bench, "UPDATE pushlink_push_attempt SET remote_id = NULL")
    assert any("is nowhere any more" in sentence for sentence in ask(bench))


def trigger(bench: Bench, table: str, what: str) -> str:
    """The trigger that protects a table."""
    with bench.database.engine.begin() as conn:
        names = conn.execute(
            sa.text("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = :t AND sql LIKE :s"),
            {"t": table, "s": f"%{what}%"},
        ).scalars()
        return str(next(iter(names)))


def test_a_verdict_fails_with_every_problem() -> None:
    """And passes without one."""
    judged([], "nothing")
    with pytest.raises(AssertionError, match=r"(?s)after this:\n  one\n  two"):
        judged(["one", "two"], "this")


def test_the_judge_knows_nothing_of_pushlink() -> None:
    """It would believe our mistakes otherwise."""
    source = Path(str(Judge.problems.__code__.co_filename)).read_text(encoding="utf-8")
    arrows = (Path(str(Judge.problems.__code__.co_filename)).parent / "arrows.py").read_text(encoding="utf-8")
    assert "import pushlink" not in source + arrows
    assert "from pushlink" not in source + arrows
