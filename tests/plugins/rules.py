"""Writes build/rules.json: which rule of the contract did which test prove, and did it pass?

A test names its rules with `@pytest.mark.rule("AT-02", "D-13")`. Their ids travel in the report's user properties, so
that the process that gathers the reports (the only one, or xdist's controller) can write one row for each id and test.
Only a whole run writes: one in which every test of the project was collected and came to its end. What a run of a part
does not meet it has not disproved, so such a run leaves the last report alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

RULE_ID = re.compile(r"[A-Z]{1,2}-\d{2,3}")
PROPERTY = "rule"
REPORT = Path("build", "rules.json")
WORST_FIRST = ("failed", "skipped", "passed")
#: Options that hide files before anything of them is collected, and so before anything could be deselected.
HIDING = ("ignore", "ignore_glob")
#: What a worker of xdist says of itself when tests were deselected: its controller collects nothing and cannot see it.
DESELECTED = "pushlink_deselected"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Check every id as written, and hang it on the test's report."""
    for item in items:
        for rule_id in dict.fromkeys(_ids(item)):
            item.user_properties.append((PROPERTY, rule_id))


def _ids(item: pytest.Item) -> Iterator[str]:
    for mark in item.iter_markers("rule"):
        if not mark.args or mark.kwargs:
            raise pytest.UsageError(f"{item.nodeid}: a rule mark takes one id or more, and nothing else")
        for rule_id in mark.args:
            if not isinstance(rule_id, str) or not RULE_ID.fullmatch(rule_id):
                raise pytest.UsageError(f"{item.nodeid}: {rule_id!r} is no id such as AT-02, D-13 or C-026")
            yield rule_id


class Worker:
    """In a process of xdist: passes on what only the process that collects can see."""

    def __init__(self, config: Any) -> None:
        self.told: dict[str, Any] = config.workeroutput

    def pytest_deselected(self) -> None:
        self.told[DESELECTED] = True


class RulesReport:
    """Gathers outcomes by (rule, test), the worst phase of a test being its outcome, and whether the run is whole."""

    def __init__(self, config: pytest.Config) -> None:
        self.path = config.rootpath / REPORT
        self.outcomes: dict[tuple[str, str], str] = {}
        self.collected: set[str] = set()
        self.ended: set[str] = set()
        self.narrowed = config.args_source is not config.ArgsSource.TESTPATHS or any(map(config.getoption, HIDING))

    def pytest_deselected(self) -> None:
        self.narrowed = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.narrowed |= DESELECTED in getattr(node, "workeroutput", {})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.narrowed |= report.failed

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.collected.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self.collected.update(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A set-up that passed proves nothing yet: the test's body may still be cut off by a dying process.
        if report.when != "call" and report.passed:
            return
        self.ended.add(report.nodeid)
        for name, rule_id in report.user_properties:
            if name == PROPERTY:
                key = (str(rule_id), report.nodeid)
                known = self.outcomes.get(key, report.outcome)
                self.outcomes[key] = min(known, report.outcome, key=WORST_FIRST.index)

    def is_whole(self) -> bool:
        """Whether nothing was left out: by a path, an option, a failed import, or a run that ended too soon."""
        return bool(self.collected) and self.collected == self.ended and not self.narrowed

    def pytest_sessionfinish(self) -> None:
        if not self.is_whole():
            return
        rows = [
            {"rule": rule_id, "test": test, "outcome": outcome}
            for (rule_id, test), outcome in sorted(self.outcomes.items())
        ]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(".part")
        unfinished.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(self.path)


def pytest_configure(config: pytest.Config) -> None:
    """The process that sees all reports writes the file; xdist's others tell it what they leave out."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Worker(config), "pushlink-rules-worker")
    else:
        config.pluginmanager.register(RulesReport(config), "pushlink-rules-report")
