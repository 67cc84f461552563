"""Adoption of many: processes that are killed, two that cross, hosts that hold a row, and memory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from flows.stage import Stage
from migration.adoptions import adopted, apply, entries, legacy, plan, results, roll_back
from pushlink.errors import Contended
from pushlink.migration import batches, spool
from support.memory import measured

TESTS = Path(__file__).resolve().parents[1]


def child(url: str, home: Path, verb: str, target: object, *, batch: int = 20) -> subprocess.Popen[str]:
    """A process of its own, with a directory of its own for its secret."""
    home.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, str(TESTS / "migration" / "adopt_child.py"), url, str(home), str(batch), verb, str(target)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        text=True,
    )


def killed_at(process: subprocess.Popen[str], line: str) -> None:
    """Read what it says up to a line, and kill it."""
    with process:
        assert process.stdout is not None
        for said in process.stdout:
            if said.strip() == line:
                process.kill()
                break
    assert process.returncode == -9


def ended(process: subprocess.Popen[str]) -> str:
    with process:
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return out.splitlines()[-1]


def assert_whole(stage: Stage) -> None:
    """Each link has its receipt, its event and its slot, and nothing of them stands alone."""
    live = {link["link_key"]: link["id"] for link in stage.links() if link["slot_key"]}
    receipts = stage.rows("adoption_receipt", "link_key,position")
    newest = {receipt["link_key"]: receipt for receipt in receipts}
    assert {key: one["link_id"] for key, one in newest.items() if one["deed"] == "adopt"} == live
    events = [event for event in stage.events() if event["event"] == "finalize"]
    assert sorted(event["link_key"] for event in events) == sorted(
        one["link_key"] for one in receipts if one["deed"] == "adopt"
    )


@pytest.mark.rule("MG-06")
@pytest.mark.parametrize("at", ["begun", "at 20", "at 60", "at 100"])
def test_an_apply_that_is_killed_goes_on(stage: Stage, database_url: str, tmp_path: Path, at: str) -> None:
    """SIGKILL at the beginning, between batches and behind the last: each batch is whole or not there at all."""
    legacy(stage, *range(1, 101))
    plan(stage, tmp_path)
    killed_at(child(database_url, tmp_path / "one", "apply", tmp_path / "op-1"), at)
    done = len(stage.links())
    assert done % 20 == 0
    assert done >= (0 if at == "begun" else int(at.split()[1]))
    assert_whole(stage)
    last = ended(child(database_url, tmp_path / "two", "apply", tmp_path / "op-1"))
    assert last == f"done {100 - done} {done} {{}}"
    assert len(stage.links()) == 100
    assert_whole(stage)
    linked = sum(
        int(row["after"].split('"links": ')[1].rstrip("}"))
        for row in stage.rows("operator_action", "id", verb="adopt_apply")
    )
    assert linked == 100


@pytest.mark.rule("MG-06")
@pytest.mark.parametrize("at", ["begun", "at 40"])
def test_a_rollback_that_is_killed_goes_on(stage: Stage, database_url: str, tmp_path: Path, at: str) -> None:
    """The same the other way round."""
    adopted(stage, tmp_path, *range(1, 81))
    killed_at(child(database_url, tmp_path / "one", "rollback", "op-1"), at)
    assert_whole(stage)
    retired = sum(link["status"] == "retired" for link in stage.links())
    assert retired % 20 == 0
    assert ended(child(database_url, tmp_path / "two", "rollback", "op-1")) == f"done {80 - retired} {retired} {{}}"
    assert {link["status"] for link in stage.links()} == {"retired"}
    assert_whole(stage)


@pytest.mark.rule("MG-06", "MG-04", "D-10")
@pytest.mark.timeout(400)
def test_two_operators_with_one_manifest_adopt_each_record_once(
    stage: Stage, database_url: str, tmp_path: Path
) -> None:
    """At once, batch against batch; together they have adopted everything."""
    legacy(stage, *range(1, 201))
    plan(stage, tmp_path)
    children = [child(database_url, tmp_path / str(n), "apply", tmp_path / "op-1", batch=10) for n in range(2)]
    ends = [ended(process).split() for process in children]
    assert sum(int(words[1]) for words in ends) == 200
    assert [int(words[1]) + int(words[2]) for words in ends] == [200, 200]
    assert_whole(stage)


@pytest.mark.rule("MG-06", "MG-04", "D-10")
@pytest.mark.timeout(400)
def test_two_operations_over_the_same_records_neither_wait_for_ever_nor_tear(
    stage: Stage, database_url: str, tmp_path: Path
) -> None:
    """Each record is adopted by one of the two, and refused to the other as linked."""
    legacy(stage, *range(1, 201))
    plan(stage, tmp_path, "op-1")
    plan(stage, tmp_path, "op-2")
    children = [child(database_url, tmp_path / str(n), "apply", tmp_path / f"op-{n}", batch=10) for n in (1, 2)]
    ends = [ended(process) for process in children]
    found = [int(line.split()[1]) for line in ends]
    assert sum(found) == 200, ends
    for line, count in zip(ends, found, strict=True):
        assert line == f"done {count} 0 " + (f"{{'already_linked': {200 - count}}}" if count < 200 else "{}")
    assert_whole(stage)


@pytest.mark.rule("MG-04", "D-44")
def test_a_save_and_an_apply_of_one_record_take_turns(stage: Stage, tmp_path: Path, dialect: str) -> None:
    """A host that has saved and not committed holds the slot: the apply waits, and then sees the create."""
    if dialect == "sqlite":
        pytest.skip("there one transaction writes at a time anyhow")
    legacy(stage, 1, 2)
    plan(stage, tmp_path)
    found: dict[str, str] = {}
    thread = threading.Thread(target=lambda: found.update(results(stage, tmp_path / "op-1")))
    with stage.engine.begin() as host:
        stage.runtime.save(host, "Person", 1, user="ann")
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join(30)
    assert found == {"1": "create_blocks", "2": "adopted"}


@pytest.mark.rule("MG-06", "D-44")
def test_a_host_that_holds_a_row_too_long_stops_the_run_and_loses_nothing(
    stage: Stage, tmp_path: Path, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed stays; the same call goes on afterwards."""
    if dialect == "sqlite":
        pytest.skip("there a host's transaction holds the whole file, and the wait is the busy timeout of ten seconds")
    monkeypatch.setattr(batches, "LOCK_WAIT_MS", 50)
    monkeypatch.setattr(batches, "SIZE", 1)
    stage.linked(9)  # the documents that all links share are kept already
    legacy(stage, 1, 2, 3)
    plan(stage, tmp_path)
    last = next(one for one in reversed(entries(tmp_path / "op-1")) if "because" not in one)["record_id"]
    with stage.engine.connect() as host, host.begin() as transaction:
        stage.runtime.save(host, "Person", int(last), user="ann")
        with pytest.raises(Contended) as caught:
            apply(stage, tmp_path / "op-1")
        transaction.rollback()
    assert "goes on" in str(caught.value.next_step)
    assert len(stage.links()) == 3
    done = apply(stage, tmp_path / "op-1")
    assert (done.adopted, done.already_adopted) == (1, 2)


@pytest.mark.rule("MG-06")
def test_memory_grows_with_a_batch_and_not_with_the_table(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times the records need no more than a batch does: planned, applied and taken back."""
    monkeypatch.setattr(batches, "SIZE", 25)
    monkeypatch.setattr(spool, "RUN", 100)  # each run that is merged has a file open, and a buffer
    peaks: list[list[int]] = []
    for name, numbers in (("op-0", range(25)), ("op-1", range(1_000, 1_100)), ("op-2", range(2_000, 2_400))):
        legacy(stage, *numbers)
        peaks.append(
            [
                measured(lambda name=name: plan(stage, tmp_path, name))[1],
                measured(lambda name=name: apply(stage, tmp_path / name))[1],
                measured(lambda name=name: roll_back(stage, name))[1],
            ]
        )
        stage.sql("UPDATE person SET remote_id = NULL, remote_source = NULL")
    _, some, many = peaks
    assert all(large < 2 * small for small, large in zip(some, many, strict=True)), peaks


@pytest.mark.rule("MG-06")
def test_rows_that_are_sorted_on_disk_come_out_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever order they came in, and as often as it is asked."""
    monkeypatch.setattr(spool, "RUN", 3)
    rows = spool.Spool(tmp_path, "rows")
    given: list[tuple[tuple[str, ...], dict[str, Any]]] = [
        ((f"k{n % 7}", str(n)), {"n": n, "é": "☃"}) for n in range(20)
    ]
    for key, row in given:
        rows.add(key, row)
    for _ in range(2):
        assert list(rows) == sorted(given, key=lambda one: one[0])
    assert rows.count == 20
