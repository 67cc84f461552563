"""`make real` on a few records: a process of its own against each real server, judged by its verdict and its exit code.

Then what a real server makes of preconditions, when somebody else was there in between.
"""

import importlib.util
import io
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
REAL = ROOT / "examples" / "real"

needs_kinto = pytest.mark.skipif(
    importlib.util.find_spec("kinto") is None, reason="kinto is not installed (it is in requirements.lock)"
)

KINTO_RECORDS = "/v1/buckets/geo/collections/subdivisions/records/"

#: Every server of the table, by the package that it comes in.
SERVERS = {
    "kinto": "kinto",
    "kinto-ids": "kinto",
    "localstripe": "localstripe",
    "datasette": "datasette",
    "roundup": "roundup",
    "eve": "eve",
}


@pytest.mark.timeout(200)
@pytest.mark.parametrize("server", SERVERS)
def test_a_few_records_reach_a_real_server_and_are_equal(server: str, tmp_path: Path) -> None:
    """Creates, nothing the second time, and an update for each edit, in a database that the environment cannot move."""
    if importlib.util.find_spec(SERVERS[server]) is None:
        pytest.skip(f"{SERVERS[server]} is not installed (it is in requirements.lock)")
    environment = {**os.environ, "PUSHLINK_DATABASE_URL": f"sqlite:///{tmp_path / 'somebody.db'}"}
    command = [sys.executable, str(REAL / "run.py"), "--part", "records", "--limit", "20"]
    command += ["--database", "sqlite", "--server", server]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path / "real")],
        capture_output=True,
        encoding="utf-8",
        env=environment,
        check=False,
        timeout=190,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"VERDICT: EQUAL: sqlite to {server}: 20 of 20 records equal" in done.stdout
    [row] = [line.split() for line in done.stdout.splitlines() if line.startswith(" sqlite ")]
    assert [*row[:2], *row[3:8]] == ["sqlite", server, "20", "20", "0", "20", "20"]
    assert not (tmp_path / "somebody.db").exists()


@pytest.fixture
def run_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, its own folder on the path as when it is run."""
    monkeypatch.syspath_prepend(REAL)
    spec = importlib.util.spec_from_file_location("pushlink_example_real", REAL / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


class Odd:
    """A server whose records are not what was sent."""

    def __init__(self, held: dict[str, dict[str, dict[str, Any]]]) -> None:
        self.held = held

    def count(self, source_object: str) -> int:
        return len(self.held[source_object]) + 1

    def records(self, source_object: str) -> dict[str, dict[str, Any]]:
        return self.held[source_object]


def test_a_difference_is_a_problem_and_an_exit_code(
    run_module: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A changed field, a lost record, one that nobody owns and a count that is off are told, and the run fails."""
    here = {("Country", "AF"): {"name": "A"}, ("Country", "AX"): {"name": "Å"}, ("Country", "AL"): {"name": "B"}}
    monkeypatch.setattr(run_module, "local_rows", lambda _runtime: here)
    monkeypatch.setattr(
        run_module, "links", lambda _runtime: {("Country", "AF"): "1", ("Country", "AX"): "2", ("Country", "AL"): "3"}
    )
    held = {"Country": {"1": {"name": "A"}, "2": {"name": "A"}, "9": {"name": "Z"}}, "Subdivision": {}}
    result = run_module.Result(database="sqlite", server="odd")
    assert run_module.compare(None, Odd(held), result, "now") == 1
    assert result.problems == [
        "the server's own count of Country now: 4 instead of 3",
        "Country AX now: {'name': 'Å'} here, {'name': 'A'} there",
        "Country AL now: {'name': 'B'} here, None there",
        "remote records of Country that nobody owns now: 1 instead of 0",
        "the server's own count of Subdivision now: 1 instead of 0",
    ]
    monkeypatch.setattr(run_module, "run", lambda *_: result)
    monkeypatch.setattr(sys, "argv", ["run.py", "--part", "records", "--database", "sqlite", "--folder", str(tmp_path)])
    assert run_module.main() == 1


def test_the_tested_servers_are_those_of_the_table(run_module: ModuleType) -> None:
    """A server that joins the table is tested, and each pack is there with the address that the run replaces."""
    assert {name: entry.package for name, entry in run_module.REMOTES.items()} == SERVERS
    for entry in run_module.REMOTES.values():
        assert entry.pack_address in entry.pack.read_text(encoding="utf-8")
        assert (entry.limit is None) is not bool(entry.because)


def test_a_slow_server_gets_fewer_records_and_says_why(run_module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of an entry is used where nobody says another, and its reason is shown; 0 is all of them."""
    screen = io.StringIO()
    monkeypatch.setattr(run_module, "console", Console(file=screen, width=100))
    slow = run_module.REMOTES["roundup"]
    assert (run_module.chosen_limit(slow, 20), run_module.chosen_limit(slow, 0)) == (20, None)
    assert not screen.getvalue()
    assert run_module.chosen_limit(slow, None) == 300
    assert "300 records, because each request of roundup opens the whole tracker" in screen.getvalue()


def test_bars_are_drawn_before_there_is_a_rate(run_module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar on a terminal shows its count from the first moment, and a rate later."""
    screen = io.StringIO()
    monkeypatch.setattr(run_module, "console", Console(file=screen, force_terminal=True, width=100))
    with run_module.bar() as progress:
        task = progress.add_task("creating", total=3)
        progress.refresh()
        assert "0/3" in screen.getvalue()
        progress.advance(task, 2)
        progress.advance(task, 1)
        progress.refresh()
    assert "3/3" in screen.getvalue()


@needs_kinto
def test_the_servers_log_is_counted_by_method_and_status(run_module: ModuleType, tmp_path: Path) -> None:
    """What pushlink believes is in no count: kinto's own lines are, and reads are left out."""
    del run_module
    from kinto_server import Kinto

    server = Kinto(tmp_path, 1)
    line = '{{"Fields": {{"method": "{}", "code": {}}}}}\n'
    (tmp_path / "kinto-requests.jsonl").write_text(
        line.format("POST", 201) * 2 + line.format("GET", 200) + line.format("PATCH", 404), encoding="utf-8"
    )
    assert server.requests() == Counter({"POST 201": 2, "PATCH 404": 1})


def test_writes_are_counted_in_a_common_log(run_module: ModuleType, tmp_path: Path) -> None:
    """Reads, other lines and colours of a terminal do not matter."""
    del run_module
    from served import Served

    server = Served(tmp_path, 1)
    server.log.write_text(
        '127.0.0.1 - - [x] "POST /a HTTP/1.1" 201 -\n'
        'INFO:     127.0.0.1:5 - "POST /a/-/insert HTTP/1.1" 201 Created\n'
        '127.0.0.1 - - [x] "\x1b[31mPUT /a/1 HTTP/1.1\x1b[0m" 412 -\n'
        '127.0.0.1 - - [x] "GET /a/1 HTTP/1.1" 200 -\nWARNING POST\n',
        encoding="utf-8",
    )
    assert server.requests() == Counter({"POST 201": 2, "PUT 412": 1})


@contextmanager
def three_pushed(module: ModuleType, server: str, folder: Path) -> Iterator[tuple[Any, Any, Any]]:
    """Three subdivisions at a real server: the runtime that pushed them, the server and its entry."""
    entry = module.REMOTES[server]
    if not entry.is_there:
        pytest.skip(f"{entry.package} is not installed (it is in requirements.lock)")
    remote = entry.make(folder, module.free_port())
    try:
        address = remote.start()
        pl = module.open_runtime(f"sqlite:///{folder / 'geo.db'}", folder)
        try:
            module.prepare(pl, entry, address, 3)
            module.save_all(pl, "saving")
            module.work(pl, entry, "creating", 3)
            assert remote.requests() == Counter({entry.created: 3})
            yield pl, remote, entry
        finally:
            pl.close()
    finally:
        remote.stop()


def edit_one(module: ModuleType, pl: Any, entry: Any) -> None:
    """Change the first record here, save everything and push."""
    with pl.engine.begin() as conn:
        assert module.geo.edit(conn, 1) == 1
    module.save_all(pl, "saving edits")
    module.work(pl, entry, "updating", 1)


def first(module: ModuleType, pl: Any) -> str:
    """The remote id of the record that `edit_one` changes; it has to be asked for before."""
    return str(module.links(pl)[min(module.local_rows(pl))])


@pytest.mark.timeout(120)
def test_a_real_server_refuses_a_version_that_somebody_moved_on(run_module: ModuleType, tmp_path: Path) -> None:
    """The update names the version of the last answer; theirs stays, and the link waits for a person."""
    with three_pushed(run_module, "kinto-ids", tmp_path) as (pl, remote, entry):
        place = first(run_module, pl)
        remote.ask("PATCH", KINTO_RECORDS + place, {"data": {"name": "theirs"}})
        before = remote.requests()
        edit_one(run_module, pl, entry)
        assert remote.requests() - before == Counter({"PATCH 412": 1})
        assert remote.records("Subdivision")[place]["name"] == "theirs"
        assert place not in run_module.links(pl).values(), "a suspended link is not in order"
        assert remote.count("Subdivision") == 3


@pytest.mark.timeout(120)
def test_a_stale_version_is_read_once_more_where_the_pack_says_so(run_module: ModuleType, tmp_path: Path) -> None:
    """The refusal is seen by the server's own log, and the second send names the version that was read."""
    with three_pushed(run_module, "eve", tmp_path) as (pl, remote, entry):
        place = first(run_module, pl)
        theirs = {"If-Match": remote.marks("Subdivision")[place]}
        remote.ask("PATCH", f"/subdivisions/{place}", {"name": "theirs", "type": "theirs"}, theirs)
        before = remote.requests()
        edit_one(run_module, pl, entry)
        assert remote.requests() - before == Counter({"PATCH 412": 1, "PATCH 200": 1})
        assert remote.records("Subdivision")[place] == run_module.local_rows(pl)[min(run_module.local_rows(pl))]
        assert place in run_module.links(pl).values()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("server", ["kinto", "kinto-ids"])
def test_a_record_that_is_gone_at_a_real_server_is_not_made_again(
    run_module: ModuleType, tmp_path: Path, server: str
) -> None:
    """The update is refused, nothing is created in its place, and the link waits for a person."""
    with three_pushed(run_module, server, tmp_path) as (pl, remote, entry):
        place = first(run_module, pl)
        remote.ask("DELETE", KINTO_RECORDS + place)
        before = remote.requests()
        edit_one(run_module, pl, entry)
        assert (remote.requests() - before).total() == 1
        assert entry.updated not in remote.requests()
        assert remote.count("Subdivision") == 2
        assert place not in run_module.links(pl).values()
