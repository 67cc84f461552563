"""Many links in one transaction: ten thousand of them, a process that is killed, and two that cross."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from flows.stage import Stage
from migration.many import copies
from migration.moves import apply, linked, manifest_of, mapping_named, receipts, validate
from pushlink.errors import CallerError, Contended
from pushlink.migration import batches, revalidate
from pushlink.migration.revalidate import Verdict
from pushlink.protocol.manifest import Manifest, write_manifest
from pushlink.protocol.snapshots import LinkKey
from pushlink.store.dialect import Lock, take_lock
from support.memory import measured

TESTS = Path(__file__).resolve().parents[1]
MANY = 10_000


def drifted(stage: Stage, count: int) -> list[LinkKey]:
    """That many links under a pack that maps otherwise now."""
    linked(stage, 1)
    keys = copies(stage.engine, stage.link(1), count)
    stage.apply(mapping_named("/full_name"))
    return keys


def child(url: str, home: Path, *manifests: Manifest, batch: int = 50) -> subprocess.Popen[str]:
    """A process of its own that applies these manifests."""
    paths = []
    for manifest in manifests:
        paths.append(home / f"{manifest.operation_id}-{len(paths)}-{time.monotonic_ns()}.json")
        paths[-1].write_text(write_manifest(manifest), encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, str(TESTS / "migration" / "many.py"), url, str(batch), *map(str, paths)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        stdout=subprocess.PIPE,
        text=True,
    )


def pointers(stage: Stage) -> dict[str, str | None]:
    """Which operation each link names."""
    return {link["link_key"]: link["last_mapping_revalidation_operation_id"] for link in stage.links()}


def assert_whole(stage: Stage) -> None:
    """Every link and its newest receipt agree, and no receipt stands without its link's move."""
    newest: dict[str, dict[str, Any]] = {}
    for receipt in sorted(receipts(stage), key=lambda row: (row["applied_at"], row["operation_id"])):
        newest[receipt["link_key"]] = receipt
    for link in stage.links():
        receipt = newest.get(link["link_key"])
        assert link["last_mapping_revalidation_operation_id"] == (receipt and receipt["operation_id"])
        assert receipt is None or link["mapping_fingerprint"] == receipt["new_mapping_fingerprint"]


@pytest.mark.rule("RV-05")
@pytest.mark.timeout(600)
def test_ten_thousand_links_move_in_one_transaction(stage: Stage, dialect: str) -> None:
    """The manifest is made, rehearsed, applied and repeated; how long each took is printed."""
    keys = drifted(stage, MANY)
    manifest = manifest_of(stage, keys)
    for name, run in (("validate", validate), ("apply", apply), ("repeat", apply)):
        begun = time.monotonic()
        done = run(stage, manifest)
        sys.stderr.write(f"\n{dialect}: {name} of {MANY} links took {time.monotonic() - begun:.1f} s\n")
    assert done.verdict is Verdict.ALREADY_APPLIED
    assert done.current == MANY
    assert len(receipts(stage)) == MANY
    assert sum(1 for operation in pointers(stage).values() if operation == "op-1") == MANY


@pytest.mark.rule("RV-05")
def test_memory_grows_with_a_batch_and_not_with_the_manifest(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the manifest itself, four times the links need no more than a batch does."""
    monkeypatch.setattr(batches, "SIZE", 25)
    keys = drifted(stage, 525)
    peaks = []
    for operation, some in (("op-0", keys[:25]), ("op-1", keys[25:125]), ("op-2", keys[125:])):
        manifest = manifest_of(stage, some, operation)
        peaks.append(measured(lambda manifest=manifest: apply(stage, manifest))[1])
    assert peaks[2] < peaks[1] * 2, peaks


@pytest.mark.rule("RV-05")
@pytest.mark.parametrize("at", [0, 100, 400])
def test_a_process_that_is_killed_has_done_all_or_nothing(
    stage: Stage, database_url: str, tmp_path: Path, at: int
) -> None:
    """SIGKILL at the beginning, in the middle, and behind the last batch; the same command then goes through."""
    keys = drifted(stage, 400)
    manifest = manifest_of(stage, keys)
    untouched = stage.links()
    with child(database_url, tmp_path, manifest) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == ("begun" if at == 0 else f"at {at}"):
                process.kill()
                break
    assert process.returncode == -9
    moved = {operation for key, operation in pointers(stage).items() if key in set(keys)}
    assert moved in ({None}, {"op-1"})
    if moved == {None}:
        assert stage.links() == untouched
        assert not receipts(stage)
    assert_whole(stage)
    with child(database_url, tmp_path, manifest) as process:
        out, _ = process.communicate(timeout=120)
    assert out.split()[-1] == ("already_applied" if moved == {"op-1"} else "applied")
    assert len(receipts(stage)) == 400
    assert_whole(stage)


@pytest.mark.rule("RV-04", "RV-05")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("tries", range(3))
def test_crossing_manifests_of_two_operators_neither_wait_for_ever_nor_tear(
    stage: Stage, database_url: str, tmp_path: Path, tries: int
) -> None:
    """Each lists half of the other's links: one is applied whole, the other is refused whole, or told to come again."""
    keys = drifted(stage, 300)
    one = manifest_of(stage, keys[:200], "op-1")
    two = manifest_of(stage, list(reversed(keys[100:])), "op-2")
    children = [child(database_url, tmp_path, manifest, manifest, batch=10) for manifest in (one, two)]
    ends = []
    for process in children:
        with process:
            out, _ = process.communicate(timeout=180)
        assert process.returncode == 0
        ends.append([line for line in out.splitlines() if not line.startswith(("at ", "begun"))])
    found = pointers(stage)
    moved = {operation: {k for k in keys if found[k] == operation} for operation in ("op-1", "op-2")}
    assert sorted(map(len, moved.values())) == [0, 200], ends
    assert moved in (
        {"op-1": set(keys[:200]), "op-2": set()},
        {"op-1": set(), "op-2": set(keys[100:])},
    )
    allowed = {"applied", "already_applied", "refused not_allowed_now", "refused contended"}
    assert allowed.issuperset(end for run in ends for end in run)
    assert len(receipts(stage)) == 200
    assert_whole(stage)


@pytest.mark.rule("RV-06")
def test_the_same_manifest_by_two_operators_at_once_is_applied_once(
    stage: Stage, database_url: str, tmp_path: Path
) -> None:
    """Both are told that it is applied."""
    keys = drifted(stage, 100)
    manifest = manifest_of(stage, keys)
    ends = []
    children = [child(database_url, tmp_path, manifest, batch=10) for _ in range(2)]
    for process in children:
        with process:
            out, _ = process.communicate(timeout=120)
        ends.append(out.splitlines()[-1])
    assert sorted(ends) == ["already_applied", "applied"]
    assert len(receipts(stage)) == 100


@pytest.mark.rule("RV-04", "D-44")
def test_a_host_that_holds_a_slot_is_not_waited_for_without_end(
    stage: Stage, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest gives up with `contended` and leaves nothing; afterwards it goes through."""
    if dialect == "sqlite":
        pytest.skip("there a host's transaction holds the whole file, and the wait is the busy timeout of ten seconds")
    monkeypatch.setattr(revalidate, "LOCK_WAIT_MS", 100)
    keys = drifted(stage, 5)
    manifest = manifest_of(stage, keys)
    before = stage.links()
    with stage.engine.begin() as host:
        stage.runtime.save(host, "Person", 1, user="ann")
        assert apply(stage, manifest).verdict is Verdict.APPLIED  # another record's slot is in nobody's way
    stage.apply(mapping_named("/title"))
    again = manifest_of(stage, [*keys, LinkKey(stage.link(1)["link_key"])], "op-2")
    before = stage.links()
    with stage.engine.begin() as host:
        stage.runtime.save(host, "Person", 1, user="ann")
        with pytest.raises(Contended) as caught:
            apply(stage, again)
    assert "nothing was written" in str(caught.value.next_step)
    assert stage.links() == before
    assert apply(stage, again).verdict is Verdict.APPLIED


@pytest.mark.rule("RV-04", "D-21")
def test_a_send_and_a_manifest_take_turns(stage: Stage, dialect: str) -> None:
    """Whoever holds the catalogue goes first: a checkpoint waits for the manifest, and then sees what it changed."""
    if dialect == "sqlite":
        pytest.skip("there one transaction writes at a time anyhow")
    keys = linked(stage, 1)
    stage.save(1, name="Ada L.")
    [claimed] = stage.claim()
    paused = stage.paused_of(claimed)
    stage.apply(mapping_named("/full_name"))
    results: list[Any] = []

    def go() -> None:
        try:
            results.append(apply(stage, manifest_of(stage, keys)))
        except CallerError as error:
            results.append(error.evidence["kinds"])

    with stage.engine.begin() as other:
        take_lock(other, Lock.CATALOG, shared=True)  # as a checkpoint does
        thread = threading.Thread(target=go)
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join(30)
    assert results == [{"update_in_flight": 1}]
    sends = stage.sends
    paused.finish()
    assert stage.sends == sends
