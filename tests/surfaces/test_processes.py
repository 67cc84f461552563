"""The command as a process: a whole run from an empty folder, signals, standard output and error, and its start."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pushlink.testing import verbs
from pushlink.testing.messages import creating
from pushlink.testing.remote import FaultyRemote
from surfaces.conftest import Shop

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(300)
@pytest.mark.rule("PO-01", "SY-03")
def test_from_an_empty_folder_to_a_linked_record(tmp_path: Path, remote: FaultyRemote) -> None:
    """init, db upgrade, pack check and apply, save, worker: one remote record for each local one, each step exits 0."""
    shop = Shop(tmp_path / "shop", f"sqlite:///{tmp_path / 'shop' / 'pushlink.db'}", remote)
    shop.home.mkdir()
    assert shop.process("init", "--authority", "allow_all").code == 0
    shop.point()
    assert shop.process("db", "upgrade").code == 0
    with sqlite3.connect(shop.home / "pushlink.db") as conn:
        conn.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT, body TEXT)")
        conn.executemany("INSERT INTO note VALUES (?, ?, '')", [(number, f"note {number}") for number in (1, 2, 3)])
    conn.close()
    assert shop.process("pack", "check", "packs/notes.yaml").code == 0
    assert shop.process("pack", "apply", "packs/notes.yaml").code == 0
    assert shop.process("doctor").code == 0
    assert shop.process("backfill", "Note", "--user", "me").code == 0
    worked = shop.process("worker", "--until-idle", "--json", "--log-format", "json")
    assert worked.code == 0
    assert (worked.document["claimed"], worked.document["sent"]) == (3, 3)
    assert all(json.loads(line)["event"] for line in worked.err.splitlines())
    assert remote.creates_by(lambda record: record.document["title"]) == {f"note {n}": 1 for n in (1, 2, 3)}
    listed = shop.process("links", "--json").document["links"]
    assert {row["record_id"] for row in listed} == {"1", "2", "3"}
    assert "synced" in shop.process("explain", "Note", "2").out
    assert {row["status"] for row in shop.process("attempts", "--json").document["attempts"]} == {"finalized"}


def wait_for(shop: Shop, process: subprocess.Popen[str], holds: Callable[[], bool]) -> None:
    """Wait for what the remote sees; a worker that never came so far is ended and tells why."""
    if not shop.remote.wait_until(holds, seconds=60):
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"the remote saw nothing of the worker, which said:\n{out}\n{err}")


@pytest.mark.timeout(120)
@pytest.mark.rule("D-18")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_stops_gracefully_and_records_what_was_in_flight(local_shop: Shop, number: signal.Signals) -> None:
    """The signal comes while the remote takes its time: the answer is still recorded, and the exit code is 0."""
    shop = local_shop
    shop.remote.next(verbs.store_then_delay(1.0), when=creating)
    shop.note(1)
    shop.run("save", "Note", 1, "--user", "ann")
    with shop.start("worker", "--json") as process:
        wait_for(shop, process, lambda: shop.remote.creates == 1)
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(out)["stopped_by"] == number.name
    [row] = shop.json("attempts")["attempts"]
    assert row["status"] == "finalized"


@pytest.mark.timeout(120)
@pytest.mark.rule("D-18", "RR-04")
def test_a_second_signal_ends_a_worker_at_once(local_shop: Shop) -> None:
    """The remote never answers: the first signal waits for it, the second does not; the row keeps its lease."""
    shop = local_shop
    shop.remote.next(verbs.hang(), when=creating)
    shop.note(1)
    shop.run("save", "Note", 1, "--user", "ann")
    with shop.start("worker", "--log-format", "json") as process:
        wait_for(shop, process, lambda: len(shop.remote.log) == 1)
        process.send_signal(signal.SIGTERM)
        for line in process.stderr:
            if "stopping" in line:
                break
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    [row] = shop.json("attempts")["attempts"]
    assert (row["status"], row["send_count"]) == ("processing", 1)


LIGHT = """
import sys, types
package = types.ModuleType("pushlink")
package.__path__ = [sys.argv[1]]
sys.modules["pushlink"] = package
from pushlink.surfaces.cli import app
heavy = {"sqlalchemy", "aiohttp", "alembic", "pydantic", "cryptography", "pushlink.bootstrap"} & set(sys.modules)
print(sorted(heavy))
"""


def test_help_needs_nothing_heavy() -> None:
    """The surfaces import databases, HTTP and models only when a command runs, so that --help answers at once."""
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, ROOT / "src" / "pushlink"], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"


def test_the_package_runs_as_a_module() -> None:
    """`python -m pushlink` is the command, where its script is not on the path."""
    done = subprocess.run([sys.executable, "-m", "pushlink", "--help"], check=True, capture_output=True, text=True)
    assert "pushlink init && pushlink doctor" in done.stdout
