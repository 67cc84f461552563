"""The command: `python -m proof.plain MINUTES [MODULE ...]`, which `make mutants MUTANTS="--plain"` starts.

Every mutant meets `tests/protocol` first, and what survives that the tests elsewhere that execute its line. A run
goes on where the last one stopped. It fails on a survivor that nobody has explained, and on an explanation of none.
"""

from __future__ import annotations

import importlib
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from proof.figures import ROOT, table, write_section
from proof.plain.book import FIGURES, Book, digest_of, files_in
from proof.plain.changes import Change, changes_of
from proof.plain.equivalent import reason, stale
from proof.plain.trials import PROTOCOL, Known, Outcome, Place, Session, collect, try_import

#: Whose business the protocol is: these are quick, and the rest of a mutant's life is short.
NEAR: Final = ("tests/protocol",)

#: The tests of what is built on it.
FAR: Final = ("tests/packs", "tests/drift", "tests/migration", "tests/operations", "tests/flows")

#: What every test imports and no mutant changes: loaded once, before the processes are forked.
WARM: Final = ("sqlalchemy", "pydantic", "aiohttp", "cryptography", "hypothesis", "jsonpath", "typer")

#: Mutants are taken in one shuffled order, so that what a run had time for is a fair sample of everything.
SHUFFLED: Final = 7

#: What a run that is stopped may lose.
SAVED_EVERY: Final = 20


class Run:
    """The mutants that were asked for, against near tests and far ones, until the time is over."""

    def __init__(
        self,
        minutes: float,
        names: Sequence[str] = (),
        *,
        place: Place = PROTOCOL,
        near: Sequence[str] = NEAR,
        far: Sequence[str] = FAR,
        figures: Path = FIGURES,
    ) -> None:
        self._until = time.monotonic() + 60 * minutes
        self._place, self._near, self._far, self._figures = place, near, far, figures
        self._all = [change for path in sorted(place.folder.glob("*.py")) for change in changes_of(path)]
        self._wanted = [change for change in self._all if not names or change.module in names]
        random.Random(SHUFFLED).shuffle(self._wanted)
        self._every_digest = digest_of((*near, *far))

    def go_on(self) -> None:
        """What is inside functions meets all tests; what acts while modules are imported meets the near ones alone."""
        self._meet_near(self.book())
        self._meet_far(Book(self._all, self._every_digest, path=self._figures))

    def book(self) -> Book:
        """What is known now; a mutant that survived all tests has survived the near ones."""
        return Book(self._all, digest_of(self._near), self._every_digest, path=self._figures)

    def _meet_near(self, book: Book) -> None:
        todo = self._todo(book)
        if not todo:
            return
        inside = [change for change in todo if not change.is_static]
        known = collect(self._place, self._near, lambda session: self._try_all(session, book, inside))
        self._import_all(self.book(), known)

    def _meet_far(self, book: Book) -> None:
        todo = [change for change in self._todo(book) if not change.is_static]
        if todo and self._far:
            collect(self._place, self._far, lambda session: self._try_all(session, book, todo))

    def _try_all(self, session: Session, book: Book, todo: Sequence[Change]) -> None:
        for change in self._in_time(todo):
            if outcome := session.try_change(change):
                self._write(book, change, outcome)
        book.save()

    def _import_all(self, book: Book, known: Known) -> None:
        for change in self._in_time(self._todo(book)):
            outcome = Outcome(None, 0)
            for tests in (self._killers_of(change.module, book), self._tests_of(change.module, known)):
                if tests and outcome.killed_by is None:
                    outcome = try_import(self._place, change, tests, known.slow)
            self._write(book, change, outcome)
        book.save()

    def _killers_of(self, module: str, book: Book) -> list[str]:
        """The two files that killed most of a module's mutants."""
        killers = [entry.killed_by or "" for entry in book.entries.values() if entry.module == module]
        files = Counter(killer.partition("::")[0] for killer in killers if "::" in killer)
        return [file for file, _ in files.most_common(2)]

    def _tests_of(self, module: str, known: Known) -> list[str]:
        """The files of near tests that run or import a module; all of them where there are none."""
        asks = re.compile(rf"{re.escape(self._place.package)}(\.| import (\([^)]*\b|.*, )?){module}\b")
        files = [file for place in self._near for file in files_in(place)]
        tests = [file for file in files if file.name.startswith("test_")]
        naming = {file.as_posix() for file in tests if asks.search(file.read_text(encoding="utf-8"))}
        return sorted({*known.files.get(module, ()), *naming}) or list(self._near)

    def _todo(self, book: Book) -> list[Change]:
        untried = {change.key for change in book.untried()}
        return [change for change in self._wanted if change.key in untried]

    def _in_time(self, todo: Sequence[Change]) -> Iterator[Change]:
        for at, change in enumerate(todo):
            if time.monotonic() > self._until:
                sys.stderr.write(f"out of time: {len(todo) - at} mutants are left\n")
                return
            yield change

    def _write(self, book: Book, change: Change, outcome: Outcome) -> None:
        book.write(change, outcome.killed_by, outcome.tests)
        if len(book.entries) % SAVED_EVERY == 0:
            book.save()
        if outcome.killed_by is None:
            sys.stderr.write(
                f"{change.module}.py:{change.line} survived {outcome.tests} tests: {change.change}: {change.text}\n"
            )


def main(minutes: float, names: Sequence[str]) -> int:
    """Try what is untried, and write down what came of everything."""
    for name in WARM:
        importlib.import_module(name)
    sys.dont_write_bytecode = True
    os.chdir(ROOT)
    run = Run(minutes, names)
    run.go_on()
    return report(run.book())


def report(book: Book) -> int:
    """Write and print what is known; 1 where a survivor is unexplained, or an explanation is of nothing."""
    survivors = book.survivors()
    unexplained = [entry for entry in survivors if reason(entry) is None]
    is_whole = len(book.killed()) + len(survivors) == len(book.changes)
    outdated = stale(survivors) if is_whole else []
    write_section("plain", summary(book))
    sys.stdout.write(summary(book) + "\n")
    for one in outdated:
        sys.stderr.write(f"explained, and no survivor: {one.module}: {one.text}: {one.change}\n")
    return 1 if unexplained or outdated else 0


def summary(book: Book) -> str:
    """The figures as the page shows them."""
    killed, survivors = len(book.killed()), book.survivors()
    tried, count = killed + len(survivors), len(book.changes)
    modules = len({one.module for one in book.changes})
    explained = [entry for entry in survivors if reason(entry) is not None]
    head = (
        f"{tried:,} of {count:,} mutants of {modules} modules have a verdict: {killed:,} were killed, "
        f"{len(survivors)} survived, {len(explained)} of those for a reason."
    )
    if tried < count:
        known = {entry.key for entry in (*book.killed(), *survivors)}
        left = Counter(change.module for change in book.changes if change.key not in known)
        head += f" {count - tried:,} are left: {', '.join(f'{name} {one}' for name, one in left.most_common())}."
    rows = [
        (
            f"`{entry.module}.py:{entry.line}`",
            _code(entry.text),
            _code(entry.change),
            reason(entry) or "**nobody has said**",
        )
        for entry in survivors
    ]
    return f"{head}\n\n{table(('survived', 'line', 'change', 'why it cannot be seen'), rows)}" if rows else head


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
