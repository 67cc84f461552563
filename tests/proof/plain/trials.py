"""One mutant against the tests that execute its line, in a process of its own.

A mutant inside a function costs a fork of a process that has collected every test already: there the code of that
function is exchanged, and the tests run, those first that killed its neighbours, then the most specific, until one
fails. A mutant that acts while its module is imported needs a process that has imported nothing of pushlink yet. A
process that uses up its time, or more memory than any test needs, has noticed something as well.
"""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import importlib.util
import os
import pickle
import resource
import signal
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import _lru_cache_wrapper
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, Phase, settings

from proof.figures import ROOT
from proof.plain.changes import Change, changed, compiled, functions_changed
from proof.plain.lines import Line, Lines, in_time, trace_tests, traced


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of modules, what the package is called, and what every one of its tests imports as well."""

    folder: Path
    package: str
    beside: tuple[str, ...] = ()

    def path(self, module: str) -> Path:
        """The file of a module."""
        return self.folder / f"{module}.py"


PROTOCOL: Final = Place(
    ROOT / "src" / "pushlink" / "protocol", "pushlink.protocol", ("pushlink.bootstrap", "typer.testing")
)

#: A mutant may take so much longer than its tests take without it, and no memory beyond this.
SLOWER: Final = 3
SPARE_S: Final = 3
MEMORY_BYTES_MAX: Final = 4 << 30

#: What a mutant may take that is imported with its tests, and what a whole run may.
IMPORT_S: Final = 120
FOR_EVER_S: Final = 1_000_000

QUICK: Final = (
    *("--hypothesis-profile", "mutants"),
    *("-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-k", "not postgresql"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # what is warm already is not rewritten
)

#: Hypothesis draws the same few examples each time, and looks for no smaller ones; nothing is measured by the clock.
settings.register_profile(
    "mutants",
    max_examples=50,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What killed a mutant, or nothing; and how many tests had their say."""

    killed_by: str | None
    tests: int


@dataclass(frozen=True, slots=True)
class Known:
    """What one run has found out: the tests that are left out, and the files whose tests run a module."""

    slow: frozenset[str]
    files: dict[str, list[str]]


class Session:
    """A pytest run that collects once, and then tries mutants instead of running its tests."""

    def __init__(self, place: Place, work: Callable[[Session], None]) -> None:
        self._place, self._work = place, work
        self.lines = Lines()
        self._killers: Counter[tuple[str, str]] = Counter()
        self._is_slow: bool | None = None  # known while tests are traced

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Trace every test once, then do the work that was asked for."""
        sys.settrace(None)
        self.items = session.items
        for name in self._place.beside:
            importlib.import_module(name)
        self._set_up_shared()
        self._functions = _functions_in(self._place.folder)
        gc.freeze()
        _, said = forked(self._trace, cpu_s=36_000)
        self.lines = pickle.loads(said)  # noqa: S301  what our own child wrote
        if self.lines.failed:
            names = [self.items[number].nodeid for number in self.lines.failed]
            msg = f"these tests fail before anything was changed: {names}"
            raise RuntimeError(msg)
        sys.stderr.write(f"{len(self.items)} tests traced, {len(self.lines.slow)} of them are too slow\n")
        self._work(self)
        return True

    def _set_up_shared(self) -> None:
        """Run a test for every fixture of the whole session, such as a migrated database: each child has it then."""
        seen: set[str] = set()
        for item in self.items:
            fixtures = item._fixtureinfo.name2fixturedefs
            shared = {name for name, found in fixtures.items() if found[-1].scope == "session"}
            elsewhere = next((one for one in self.items if one.path != item.path), None)
            if shared - seen and elsewhere is not None:
                seen |= shared
                runtestprotocol(item, log=False, nextitem=elsewhere)

    def _trace(self) -> bytes:
        trace_tests(self.lines, len(self.items), self._place.folder, self._runs)
        return pickle.dumps(self.lines)

    def _runs(self, number: int) -> tuple[bool, bool]:
        self._is_slow = False
        return self._passes(number, None), bool(self._is_slow)

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self) -> Generator[None, object, object]:
        """While tests are traced, end the one that takes too long: the test alone, and nothing of pytest around it."""
        if self._is_slow is None:
            return (yield)
        with in_time() as is_slow:
            try:
                return (yield)
            finally:
                self._is_slow = bool(is_slow)

    def _passes(self, number: int, following: int | None) -> bool:
        after = self.items[following] if following is not None else None
        reports = runtestprotocol(self.items[number], log=False, nextitem=after)
        return not any(report.failed for report in reports)

    def _leave_for(self, number: int) -> None:
        """Tear down what was set up for tests of other directories: pytest refuses a test on top of it."""
        item = self.items[number]
        item.session._setupstate.teardown_exact(item)

    def known(self) -> Known:
        """What a process needs to know that cannot see this one."""
        files: defaultdict[str, set[str]] = defaultdict(set)
        for (module, _), numbers in self.lines.tests.items():
            files[module].update(self.items[number].nodeid.partition("::")[0] for number in numbers)
        slow = frozenset(self.items[number].nodeid for number in self.lines.slow)
        return Known(slow, {module: sorted(found) for module, found in files.items()})

    def tests_of(self, change: Change) -> list[int]:
        """The tests that execute a line of this mutant, in the order in which it meets them."""
        lines = self.lines
        reached = (lines.tests.get(line, set()) for line in _lines_of(change))
        quick = set().union(*reached) - lines.slow
        turns: Counter[str] = Counter()
        ordered = []
        for number in sorted(quick, key=lambda number: (lines.width[number], number)):
            name = _function_of(self.items[number])
            turns[name] += 1  # the first of every function's parameters comes before the second of any
            ordered.append((-self._killers[change.module, name], turns[name], number))
        return [number for *_, number in sorted(ordered)]

    def try_change(self, change: Change) -> Outcome | None:
        """Try a mutant inside a function; `None` where it has to be imported instead."""
        path = self._place.path(change.module)
        pairs = functions_changed(path.read_text(encoding="utf-8"), str(path), change.at)
        live = [(one, new) for old, new in pairs for one in self._functions[_name(old)] if one.__code__ == old]
        if not live:  # its function was over when the tests were collected, or none of them imports its module
            return None if f"{self._place.package}.{change.module}" in sys.modules else Outcome(None, 0)
        tests = self.tests_of(change)
        has_run = bool(self.lines.of_import & _lines_of(change))  # what it did then has happened already
        if not tests:
            return None if has_run else Outcome(None, 0)

        def trial() -> bytes:
            for function, new in live:
                function.__code__ = new
            for cache in _caches(self._place.package):
                cache.cache_clear()
            self._leave_for(tests[0])
            for number, following in zip(tests, [*tests[1:], None], strict=True):
                if not self._passes(number, following):
                    return str(number).encode()
            return b""

        killed, said = forked(trial, cpu_s=SPARE_S + SLOWER * sum(self.lines.seconds[number] for number in tests))
        if said:
            self._killers[change.module, _function_of(self.items[int(said)])] += 1
            killed = self.items[int(said)].nodeid
        return None if has_run and not killed else Outcome(killed or None, len(tests))


def collect(place: Place, tests: Sequence[str], work: Callable[[Session], None]) -> Known:
    """Collect these tests in a process of its own, and do the work there."""
    session = Session(place, work)

    def run() -> bytes:
        with traced(place.folder, session.lines.of_import):
            code = pytest.main([*QUICK, *tests], plugins=[session])
        return pickle.dumps((int(code), session.known()))

    _, said = forked(run, cpu_s=FOR_EVER_S)
    code, known = pickle.loads(said)  # noqa: S301  what our own child wrote
    if code:
        msg = f"the tests could not be collected, or fail before anything was changed: pytest ended with {code}"
        raise RuntimeError(msg)
    return known


def try_import(place: Place, change: Change, tests: Sequence[str], left_out: frozenset[str]) -> Outcome:
    """Try a mutant from the import of its module on, with these files of tests."""
    killer = _Killer(left_out)

    def trial() -> bytes:
        path = place.path(change.module)
        code = compiled(changed(path.read_text(encoding="utf-8"), change.at), str(path))
        try:  # before pytest is there, whose own importer would look for the file
            _Importer(f"{place.package}.{change.module}", path, code).import_module()
        except Exception:  # noqa: BLE001  whatever it is, it has been noticed
            return b"1 0 "
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        done = pytest.main([*QUICK, *tests], plugins=[killer])
        return f"{int(done)} {killer.passed} {killer.killed_by}".encode()

    killed, said = forked(trial, cpu_s=IMPORT_S)
    if killed:
        return Outcome(killed, 0)
    done, passed, name = said.decode().split(" ", 2)
    return Outcome(None if done == "0" else name or "the import of its module", int(passed))


def forked(work: Callable[[], bytes], *, cpu_s: float) -> tuple[str, bytes]:
    """What a child process answers, and how the machine ended it if it did not."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 2))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(work())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(1)  # whatever was raised, this process goes no further
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code > 0:
        msg = "a trial ended in the middle; that is the fault of whoever wrote it, not of a mutant"
        raise RuntimeError(msg)
    if code in {-signal.SIGXCPU, -signal.SIGKILL}:
        return "the end of its time", b""
    return ("" if code == 0 else f"the end of its process: {signal.Signals(-code).name}"), said


class _Killer:
    """Notes the first test that fails, and how many passed before it."""

    def __init__(self, left_out: frozenset[str]) -> None:
        self._left_out = left_out
        self.passed = 0
        self.killed_by = ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.killed_by = self.killed_by or report.nodeid

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid not in self._left_out]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.killed_by = self.killed_by or report.nodeid
        self.passed += report.when == "call" and report.passed


class _Importer(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from the code that it was given."""

    def __init__(self, name: str, path: Path, code: CodeType) -> None:
        self._name, self._path, self._code = name, path, code

    def import_module(self) -> None:
        sys.meta_path.insert(0, self)
        importlib.import_module(self._name)
        sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)  # type: ignore[arg-type]

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)  # noqa: S102


def _functions_in(folder: Path) -> defaultdict[str, list[FunctionType]]:
    """Every function of these modules that is there, by the name and the first line of its code."""
    found = defaultdict(list)
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename.startswith(str(folder)):
            found[_name(one.__code__)].append(one)
    return found


def _name(code: CodeType) -> str:
    return f"{Path(code.co_filename).stem}:{code.co_qualname}:{code.co_firstlineno}"


def _caches(package: str) -> list[Any]:
    """What a mutant must not find: answers that were remembered before it was there."""
    root = package.partition(".")[0]
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == root]
    return [value for module in modules for value in vars(module).values() if isinstance(value, _lru_cache_wrapper)]


def _function_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _lines_of(change: Change) -> set[Line]:
    return {(change.module, line) for line in range(change.line, change.last_line + 1)}
