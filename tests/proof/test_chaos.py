"""A small stage of `make chaos` in every run of the tests, and the parts that a whole run relies on."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from proof.chaos.__main__ import section
from proof.chaos.proxy import CUTS, CutProxy
from proof.chaos.site import BEHAVIOURS, ODD_ONE_IN, key

TESTS = Path(__file__).resolve().parents[1]
RECORDS = 60


@pytest.mark.rule("AT-10", "DR-27")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_real_workers_that_are_killed_push_every_record_once(tmp_path: Path, dialect: str) -> None:
    """Sixty records, two `pushlink worker` processes, SIGKILL again and again; then all is drained and judged.

    How many are linked depends on what was on the wire at each kill. So each record is accounted for instead: linked,
    left to people because its remote is odd, or in doubt since the lease of whoever sent it ended.
    """
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = ["--only", "kill", "--dialect", dialect, "--records", str(RECORDS), "--seconds", "1", "--workers", "2"]
    command += ["--left", "1"]  # three kills are enough
    done = subprocess.run(
        [sys.executable, "-m", "proof.chaos", *command, "--raw", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / f"kill-{dialect}.json").read_text(encoding="utf-8"))
    assert found["problems"] == []
    assert found["struck"]["SIGKILL"] >= 3
    assert set(found["creates"]) == {"1"}
    parked = Counter({how: rows for how, rows in found["parked"].items() if how.startswith("create ")})
    doubtful = parked.pop("create ambiguous_remote_effect: lease_expired", 0)
    odd = sum(not key(number, faithful=False).startswith("plain.") for number in range(RECORDS))
    assert found["linked"] > 0
    assert found["linked"] + doubtful + parked.total() == RECORDS
    assert parked.total() <= odd, found["parked"]


def test_one_record_in_eight_meets_an_odd_remote_and_each_behaviour_is_met() -> None:
    keys = [key(number, faithful=False) for number in range(ODD_ONE_IN * len(BEHAVIOURS))]
    beginnings = [one.partition(".")[0] for one in keys]
    assert beginnings.count("plain") == (ODD_ONE_IN - 1) * len(BEHAVIOURS)
    assert set(beginnings) == {"plain", *BEHAVIOURS}
    assert key(0, faithful=True) == "plain.0"


def test_stages_that_ran_apart_are_one_report_which_names_those_that_did_not(tmp_path: Path) -> None:
    """Each stage leaves a file; the newest of each counts."""
    for dialect, seconds in (("sqlite", 1.5), ("postgresql", 2.5)):
        found = {
            "trouble": "kill",
            "dialect": dialect,
            "records": 1_000,
            "struck": {"SIGKILL": 7},
            "sends": 1_200,
            "creates": {"1": 990},
            "lost": [],
            "drain_s": seconds,
            "parked": {"create terminal_failed: remote_rejected": 3},
            "problems": [],
        }
        (tmp_path / f"kill-{dialect}.json").write_text(json.dumps(found), encoding="utf-8")
    text = section(tmp_path)
    assert "2 runs, 2,000 records: **no violations**." in text
    assert "| kill | postgresql | 1,000 | 7 SIGKILL | 1,200 | 1: 990 | 0 | 2.5 | 0 |" in text
    assert "| kill | sqlite | create terminal_failed: remote_rejected | 3 |" in text
    assert "Not run: pause, sqlite; pause, postgresql; " in text


# ------------------------------------------------------------------------------------------------ the proxy


@pytest.fixture
def echo() -> Iterator[tuple[Path, list[bytes]]]:
    """A server on a socket that keeps what it hears, and answers `ok`."""
    with tempfile.TemporaryDirectory(prefix="echo-") as home, socket.socket(socket.AF_UNIX) as listener:
        path, heard = Path(home) / "s", []
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):  # a cut may be a reset
                    while data := connection.recv(1024):
                        heard.append(data)
                        connection.sendall(b"ok")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield path, heard
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("cut", CUTS)
def test_the_proxy_cuts_before_after_or_during_a_commit(
    echo: tuple[Path, list[bytes]], cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no COMMIT passes; a COMMIT reaches the server or not, and its answer never comes back."""
    path, heard = echo
    with CutProxy(lambda: path, seed=1) as proxy:
        monkeypatch.setattr(proxy, "_cut", lambda data: cut if b"COMMIT" in data else None)
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
            client.sendall(b"SELECT 1")
            assert client.recv(10) == b"ok"
            client.sendall(b"COMMIT")
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(10) == b""
    if cut == "before the COMMIT":
        assert heard == [b"SELECT 1"]
    if cut == "after the COMMIT":
        assert heard == [b"SELECT 1", b"COMMIT"]
