"""The ground floor holds: the import rule, the lock file, the make targets, the record of rules, the shared server."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from plugins import postgres as postgres_plugin

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.!+]+)")
TARGETS_PROMISED = {
    "setup",
    "demo",
    "test",
    "real",
    "bench-small",
    "lint",
    "types",
    "imports",
    "check",
    "clean",
    "help",
}


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))


# --------------------------------------------------------------------------------------- the import rule


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter with the project's contracts over the `pushlink` under `root`/src."""
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        check=False,
        capture_output=True,
        text=True,
    )


def test_imports_go_one_way() -> None:
    """The contracts of pyproject.toml hold for the source as it is."""
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


#: Modules that a contract names one by one: a contract over a module that is not there would be no contract.
MODULES_OF_CONTRACTS = (
    "bootstrap.py",
    "migration/adopt.py",
    "migration/adopt_apply.py",
    "migration/adopt_rollback.py",
    "migration/adopt_verify.py",
    "migration/revalidate.py",
    "orm.py",
    "ports.py",
    "protocol/adoption.py",
    "protocol/adoption_manifest.py",
    "protocol/adoption_receipts.py",
    "store/adoption.py",
    "store/attempts.py",
    "store/claims.py",
    "store/events.py",
    "store/lifecycle.py",
    "store/requests.py",
    "store/responses.py",
    "store/slots.py",
    "testing/__init__.py",
    "worker.py",
)


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("protocol/bad.py", "import time"),
        ("protocol/bad.py", "from sqlalchemy import select"),
        ("protocol/bad.py", "from pushlink.store import bad"),
        ("store/bad.py", "from pushlink.flows import bad"),
        ("flows/bad.py", "from pushlink.adapters import bad"),
        ("adapters/bad.py", "from pushlink.operations import bad"),
        ("operations/bad.py", "from sqlalchemy import select"),
        ("surfaces/bad.py", "from sqlalchemy import select"),
        ("errors.py", "from pushlink.protocol import bad"),
        ("migration/revalidate.py", "from pushlink.flows import bad"),
        ("migration/revalidate.py", "from pushlink.store import attempts"),
        ("store/bad.py", "from pushlink.store import lifecycle"),
        ("flows/bad.py", "from pushlink.protocol import adoption"),
        ("worker.py", "from pushlink.store import adoption"),
        ("bootstrap.py", "from pushlink.migration import adopt"),
    ],
)
def test_an_import_the_other_way_is_caught(tmp_path: Path, module: str, statement: str) -> None:
    """In a house of empty rooms, one wrong import breaks a contract."""
    package = tmp_path / "src" / "pushlink"
    for room in ("adapters", "flows", "operations", "protocol", "store", "surfaces"):
        (package / room).mkdir(parents=True)
        (package / room / "__init__.py").touch()
        (package / room / "bad.py").touch()
    for named in MODULES_OF_CONTRACTS:
        (package / named).parent.mkdir(exist_ok=True)
        (package / named).touch()
    (package / "migration" / "__init__.py").touch()
    (package / "migration" / "revalidate.py").write_text("from pushlink.store import bad\n", encoding="utf-8")
    (package / "__init__.py").touch()
    (package / "errors.py").touch()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert lint_imports(tmp_path).returncode == 0
    (package / module).write_text(f"{statement}\n", encoding="utf-8")
    done = lint_imports(tmp_path)
    assert done.returncode != 0
    assert "BROKEN" in done.stdout


# --------------------------------------------------------------------------------------- packages


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [PIN.fullmatch(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin["name"]): pin["version"] for pin in pins if pin}


def test_the_lock_file_holds_exact_versions_and_nothing_else() -> None:
    """No address, no option, no path: where packages come from is decided by the machine's own pip."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    odd = [line for line in lines if not line.startswith("#") and not PIN.fullmatch(line)]
    assert not odd
    assert not [line for line in lines if "://" in line]


def test_every_declared_dependency_is_locked_within_its_bounds() -> None:
    """What pyproject.toml asks for, in every extra, is what requirements.lock pins."""
    declared = project()["project"]
    extras = itertools.chain.from_iterable(declared["optional-dependencies"].values())
    pins = locked()
    for requirement in map(Requirement, [*declared["dependencies"], *extras, *project()["build-system"]["requires"]]):
        version = pins.get(canonicalize_name(requirement.name))
        assert version, f"{requirement.name} is not locked"
        assert requirement.specifier.contains(version), f"{requirement} is locked at {version}"


def test_the_tests_run_with_the_locked_versions() -> None:
    """The environment is the lock file's, so that a green run means the same everywhere."""
    installed = {canonicalize_name(found.name): found.version for found in metadata.distributions()}
    differing = {name: installed.get(name) for name, version in locked().items() if installed.get(name) != version}
    assert not differing, "run `make setup`"


# --------------------------------------------------------------------------------------- make


def test_make_has_every_promised_target_with_a_line_of_help() -> None:
    """`make help` prints each target and what it does."""
    done = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    explained = set(re.findall(r"^  make ([a-z-]+) +\S", done.stdout, re.MULTILINE))
    assert explained >= TARGETS_PROMISED
    assert explained == make_targets()


def test_every_make_target_runs_whatever_files_there_are() -> None:
    """One line of the Makefile says that none is a file, in their order: a folder `demo` does not make `demo` done."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    (phony,) = re.findall(r"^\.PHONY:(.*)$", makefile, re.MULTILINE)
    assert phony.split() == re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE)


def test_every_make_target_of_the_readme_exists() -> None:
    """What the README tells a newcomer to type is there."""
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("there is no README yet")
    named = set(re.findall(r"(?:^|`|\$ |&& )make ([a-z][a-z-]*)", readme.read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test"} <= named <= make_targets()


# --------------------------------------------------------------------------------------- build/rules.json


@pytest.fixture
def run_marked(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """A function that runs a test file with the rules plugin in a project of its own and reads the report."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # their imports cost more than all that is tested here
    pytester.makeini("[pytest]\ntestpaths = .\nmarkers =\n    rule(*ids): ids\naddopts = --strict-markers\n")

    def run(text: str, *arguments: str) -> tuple[pytest.RunResult, list[tuple[str, str, str]] | None]:
        pytester.makepyfile(test_sample=text)
        result = pytester.runpytest_subprocess("-p", "plugins.rules", *arguments)
        report = pytester.path / "build" / "rules.json"
        if not report.exists():
            return result, None
        return result, [(row["rule"], row["test"], row["outcome"]) for row in json.loads(report.read_text())]

    return run


SAMPLE = """
    import pytest

    @pytest.mark.rule("AT-02", "D-13")
    @pytest.mark.parametrize("number", [1, 2])
    def test_each(number):
        assert number == 1

    @pytest.mark.rule("C-026")
    def test_skipped():
        pytest.skip("for now")

    @pytest.fixture
    def breaks_at_the_end():
        yield
        raise ValueError

    @pytest.mark.rule("LK-01")
    def test_that_breaks_at_the_end(breaks_at_the_end):
        pass

    @pytest.mark.rule("LK-02")
    @pytest.mark.xfail(reason="known")
    def test_that_is_expected_to_fail():
        assert False

    def test_without_a_rule():
        pass
"""


each_number_of_processes = pytest.mark.parametrize(
    "processes", [(), ("-p", "xdist", "-n", "2", "--dist", "loadgroup")], ids=["one", "two"]
)


@each_number_of_processes
def test_every_rule_of_every_test_gets_a_row_with_its_outcome(run_marked, processes: tuple[str, ...]) -> None:
    """The report is the same with and without worker processes; a test is as good as its worst phase."""
    _, rows = run_marked(SAMPLE, *processes)
    assert rows == [
        ("AT-02", "test_sample.py::test_each[1]", "passed"),
        ("AT-02", "test_sample.py::test_each[2]", "failed"),
        ("C-026", "test_sample.py::test_skipped", "skipped"),
        ("D-13", "test_sample.py::test_each[1]", "passed"),
        ("D-13", "test_sample.py::test_each[2]", "failed"),
        ("LK-01", "test_sample.py::test_that_breaks_at_the_end", "failed"),
        ("LK-02", "test_sample.py::test_that_is_expected_to_fail", "skipped"),
    ]


@pytest.mark.parametrize("mark", ['"AT-2"', '"at-02"', '"ABC-02"', '"AT-02 "', "2", ""])
def test_a_mark_that_names_no_id_stops_the_run(run_marked, mark: str) -> None:
    """A slip in an id is an error at collection, not a rule that silently lacks its test."""
    result, rows = run_marked(f"import pytest\n\n@pytest.mark.rule({mark})\ndef test(): pass\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert not rows


WHOLE_RUN = [{"rule": "AT-01", "test": "test_before.py::test_all", "outcome": "passed"}]
BESIDE = "def test_beside(): pass"
PARTS = {
    "a path": (BESIDE, ["test_sample.py"]),
    "a keyword": (BESIDE, ["-k", "sample"]),
    "a mark": (BESIDE, ["-m", "rule"]),
    "a test deselected": (BESIDE, ["--deselect", "test_beside.py::test_beside"]),
    "a file ignored": (BESIDE, ["--ignore", "test_beside.py"]),
    "what failed last": (BESIDE, ["--lf"]),
    "up to the first failure": (BESIDE, ["-x"]),
    "set-ups alone": (BESIDE, ["--setup-only"]),
    "a list": (BESIDE, ["--collect-only"]),
    "a file that cannot be imported": ("import nothing_of_this_name", ["--continue-on-collection-errors"]),
    "a run that was interrupted": ("def test_beside(): raise KeyboardInterrupt", []),
}


@each_number_of_processes
@pytest.mark.parametrize(("beside", "arguments"), PARTS.values(), ids=PARTS)
def test_a_run_of_a_part_leaves_the_last_report_alone(
    run_marked, pytester: pytest.Pytester, processes: tuple[str, ...], beside: str, arguments: list[str]
) -> None:
    """What a part does not meet it has not disproved: only a whole run tells which rules are proved."""
    report = pytester.path / "build" / "rules.json"
    report.parent.mkdir()
    report.write_text(json.dumps(WHOLE_RUN))
    failed = pytester.path / ".pytest_cache" / "v" / "cache" / "lastfailed"
    failed.parent.mkdir(parents=True)
    failed.write_text(json.dumps({"test_sample.py::test_each[2]": True}))
    pytester.makepyfile(test_beside=beside)
    run_marked(SAMPLE, *processes, *arguments)
    assert json.loads(report.read_text()) == WHOLE_RUN


# --------------------------------------------------------------------------------------- PostgreSQL


def test_the_shared_server_is_durable(empty_pg_url: str) -> None:
    """Tests run on the settings that pushlink insists on."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(empty_pg_url)
    with engine.connect() as connection:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            asked = sqlalchemy.select(sqlalchemy.func.current_setting(setting))
            assert connection.execute(asked).scalar_one() == "on"
    engine.dispose()


def test_two_databases_of_one_test_are_two(new_postgres_database) -> None:
    """Each call makes a database of its own."""
    assert new_postgres_database("template0") != new_postgres_database("template0")


HOLDER = """
import sys
from pathlib import Path
from plugins.postgres import SharedServer

shared = SharedServer(Path(sys.argv[1]))
shared.hold()
shared.ensure_started()
print("started", flush=True)
sys.stdin.read()
"""


def test_the_shared_server_ends_with_a_run_that_was_killed() -> None:
    """However the run's first process dies, neither the server nor its files stay behind."""
    home = postgres_plugin.new_home()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout.readline() == b"started\n"
        assert (home / "data" / "postmaster.pid").exists()
        holder.send_signal(signal.SIGKILL)
    # Releasing a lease that this process never held only waits for the guard.
    postgres_plugin.SharedServer(home).release()
    assert not home.exists()


def test_a_server_of_a_test_keeps_its_data_over_a_crash() -> None:
    """A test that needs to kill or restart a server starts one for itself."""
    import psycopg

    home = postgres_plugin.new_home()
    server = postgres_plugin.Server(home)
    try:
        server.start()
        with psycopg.connect(server.dsn()) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
        server.restart(signal.SIGQUIT)
        with psycopg.connect(server.dsn()) as connection:
            assert connection.execute("SELECT one FROM kept").fetchone() == (1,)
    finally:
        server.stop()
        shutil.rmtree(home)
