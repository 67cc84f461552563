"""Many records in one rebind: thousands of them, a process that is killed, two at once, and hosts that hold a slot."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from flows.stage import Stage
from migration.many import copies
from migration.slots import OLD, apply, planned, receipts, renamed
from pushlink.errors import Contended
from pushlink.migration import batches, rebind
from pushlink.migration.rebind import Verdict
from pushlink.protocol.identity import link_key
from pushlink.protocol.rebinding import Rebind, write_rebind

TESTS = Path(__file__).resolve().parents[1]
NEW = replace(OLD, action_slot_id="act-2")
MANY = 2_500


def populated(stage: Stage, count: int) -> Rebind:
    """That many linked records and one more under a slot that its pack has given up, and the manifest over them."""
    stage.linked(1)
    copies(stage.engine, stage.link(1), count)
    stage.apply(renamed())
    return planned(stage)


def child(url: str, home: Path, manifest: Rebind, *, batch: int = 50) -> subprocess.Popen[str]:
    """A process of its own that applies the manifest."""
    path = home / f"{manifest.operation_id}-{time.monotonic_ns()}.json"
    path.write_text(write_rebind(manifest), encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, str(TESTS / "migration" / "many_rebinds.py"), url, str(batch), str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        text=True,
    )


def under(stage: Stage) -> set[str]:
    """The action slots under which rows stand, by both tables that say it."""
    return {row["action_slot_id"] for table in ("remote_link", "push_slot") for row in stage.rows(table)}


def assert_keys_agree(stage: Stage) -> None:
    """Every key is the one that the row's own slot and record give."""
    for table in ("remote_link", "push_slot"):
        for row in stage.rows(table):
            slots = replace(OLD, action_slot_id=row["action_slot_id"])
            assert row["link_key"] == link_key(slots, row["source_record_id"])
    keys = {row["link_key"] for row in stage.rows("push_slot")}
    assert {row["link_key"] for row in stage.attempts()} == keys
    assert {row["create_key"] for row in stage.attempts()} == keys


@pytest.mark.rule("MG-07")
@pytest.mark.timeout(600)
def test_thousands_of_records_move_in_one_transaction(stage: Stage, dialect: str) -> None:
    """Links, slots and attempts of each; how long it took is printed."""
    manifest = populated(stage, MANY)
    for verdict in (Verdict.APPLIED, Verdict.ALREADY_APPLIED):
        begun = time.monotonic()
        assert apply(stage, manifest).verdict is verdict
        sys.stderr.write(f"\n{dialect}: {verdict.value} over {MANY} records in {time.monotonic() - begun:.1f} s\n")
    assert under(stage) == {"act-2"}
    assert len(receipts(stage)) == MANY + 1
    assert_keys_agree(stage)


@pytest.mark.rule("MG-07")
@pytest.mark.parametrize("at", [0, 100, 401])
def test_a_rebind_that_is_killed_has_moved_everything_or_nothing(
    stage: Stage, database_url: str, tmp_path: Path, at: int
) -> None:
    """SIGKILL at the beginning, in the middle, and behind the last batch; the same command then goes through."""
    manifest = populated(stage, 400)
    untouched = {name: rows for name, rows in stage.census().items() if "event" not in name}
    with child(database_url, tmp_path, manifest) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == ("begun" if at == 0 else f"at {at}"):
                process.kill()
                break
    assert process.returncode == -9
    moved = under(stage)
    assert moved in ({"act-1"}, {"act-2"})
    if moved == {"act-1"}:
        assert {name: rows for name, rows in stage.census().items() if "event" not in name} == untouched
    with child(database_url, tmp_path, manifest) as process:
        out, _ = process.communicate(timeout=120)
    assert out.split()[-1] == ("already_applied" if moved == {"act-2"} else "applied")
    assert len(receipts(stage)) == 401
    assert_keys_agree(stage)


@pytest.mark.rule("MG-07")
def test_the_same_rebind_by_two_operators_at_once_is_applied_once(
    stage: Stage, database_url: str, tmp_path: Path
) -> None:
    """Both are told that it is applied."""
    manifest = populated(stage, 100)
    ends = []
    children = [child(database_url, tmp_path, manifest, batch=10) for _ in range(2)]
    for process in children:
        with process:
            out, _ = process.communicate(timeout=120)
        ends.append(out.splitlines()[-1])
    assert sorted(ends) == ["already_applied", "applied"]
    assert len(receipts(stage)) == 101
    assert_keys_agree(stage)


@pytest.mark.rule("MG-07", "D-10")
def test_locks_go_over_old_and_new_keys_in_one_order_and_slots_before_links_before_attempts(
    stage: Stage, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalogue first, then every slot in batches of one order, then link and attempt, batch by batch."""
    monkeypatch.setattr(batches, "SIZE", 2)
    manifest = populated(stage, 2)
    keys = sorted(key for member in manifest.members for key in (member.old_key, member.new_key))
    seen: list[tuple[str, tuple[int, ...]]] = []

    @event.listens_for(stage.engine, "before_cursor_execute")
    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "pg_advisory" in statement:
            seen.append(("catalog", ()))
        for table in ("push_slot", "remote_link", "push_attempt"):
            is_locking = dialect == "sqlite" or "FOR NO KEY UPDATE" in statement
            if f"FROM pushlink_{table} " in statement.replace("\n", " ") and "keys" in statement and is_locking:
                text = str(parameters)
                seen.append((table, tuple(place for place, key in enumerate(keys) if key in text)))

    apply(stage, manifest, dry_run=True)
    slots = [places for table, places in seen if table == "push_slot"][:3]
    assert slots == [(0, 1), (2, 3), (4, 5)]
    if dialect == "postgresql":
        assert [table for table, _ in seen][:6] == ["catalog", *["push_slot"] * 3, "remote_link", "push_attempt"]


@pytest.mark.rule("MG-07", "D-44")
def test_a_host_that_saves_under_the_new_slot_is_not_waited_for_without_end(
    stage: Stage, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its refused save holds the new key's slot: the rebind gives up and leaves nothing; afterwards it goes through."""
    if dialect == "sqlite":
        pytest.skip("there a host's transaction holds the whole file, and the wait is the busy timeout of ten seconds")
    monkeypatch.setattr(rebind, "LOCK_WAIT_MS", 100)
    manifest = populated(stage, 3)
    before = stage.links()
    with stage.engine.begin() as host:
        stage.runtime.save(host, "Person", 1, user="ann")
        with pytest.raises(Contended) as caught:
            apply(stage, manifest)
    assert "nothing was written" in str(caught.value.next_step)
    assert [link["link_key"] for link in stage.links()] == [link["link_key"] for link in before]
    apply(stage, planned(stage, operation_id="op-2"))
    assert_keys_agree(stage)
