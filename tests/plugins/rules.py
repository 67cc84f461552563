"""Writes build/rules.json: which rule of the contract did which test prove, and did it pass?

A test names its rules with `@pytest.mark.rule("AT-02", "D-13")`. Their ids travel in the report's user properties, so
that the process that gathers the reports (the only one, or xdist's controller) can write one row for each id and test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

RULE_ID = re.compile(r"[A-Z]{1,2}-\d{2,3}")
PROPERTY = "rule"
REPORT = Path("build", "rules.json")
WORST_FIRST = ("failed", "skipped", "passed")


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


class RulesReport:
    """Gathers outcomes by (rule, test); the worst phase of a test is its outcome."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: dict[tuple[str, str], str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A set-up that passed proves nothing yet: the test's body may still be cut off by a dying process.
        if report.when != "call" and report.passed:
            return
        for name, rule_id in report.user_properties:
            if name == PROPERTY:
                key = (str(rule_id), report.nodeid)
                known = self.outcomes.get(key, report.outcome)
                self.outcomes[key] = min(known, report.outcome, key=WORST_FIRST.index)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.config.option.collectonly:
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
    """Only the process that sees all reports writes the file."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(RulesReport(config.rootpath / REPORT), "pushlink-rules-report")
