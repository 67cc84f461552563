"""What is known of every mutant, kept over runs, so that one may go on where the last one stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from proof.figures import BUILD
from proof.plain.changes import Change

FIGURES: Final = BUILD / "plain_mutants.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of one mutant. `killed_by` is `None` when it survived all that `tests` holds."""

    module: str
    digest: str  # of the module's source
    at: int
    line: int
    text: str
    change: str
    killed_by: str | None
    ran: int  # how many tests had their say
    tests: str  # the digest of all tests that it could have met

    @property
    def key(self) -> str:
        return f"{self.module}:{self.digest}:{self.at}"


class Book:
    """The entries of the mutants that there are: those of a source that has changed since are forgotten.

    A mutant that survived other tests than those of today is untried again; one that was killed stays dead.
    """

    def __init__(self, changes: Iterable[Change], tests: str, more: str = "", path: Path = FIGURES) -> None:
        """`tests` is the digest of those that are met now, `more` that of a larger number which counts as well."""
        self.changes: Final = tuple(changes)
        self._tests, self._more, self._path = tests, more or tests, path
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        entries = [Entry(**one) for one in known]
        keys = {change.key for change in self.changes}
        self.entries: Final = {entry.key: entry for entry in entries if entry.key in keys}

    def untried(self) -> list[Change]:
        """The mutants that today's tests have not met yet."""
        return [change for change in self.changes if not self._is_known(change)]

    def killed(self) -> list[Entry]:
        """Those that some test noticed."""
        return [entry for entry in self.entries.values() if entry.killed_by is not None]

    def survivors(self) -> list[Entry]:
        """Those that have met every test that they can meet, in the order of the sources."""
        found = [(change, self.entries[change.key]) for change in self.changes if change.key in self.entries]
        return [entry for change, entry in found if entry.killed_by is None and self._has_met_all(change, entry)]

    def write(self, change: Change, killed_by: str | None, ran: int) -> Entry:
        """Note what became of a mutant, on the disk as well."""
        entry = Entry(
            module=change.module,
            digest=change.digest,
            at=change.at,
            line=change.line,
            text=change.text,
            change=change.change,
            killed_by=killed_by,
            ran=ran,
            tests=self._tests,
        )
        self.entries[entry.key] = entry
        return entry

    def save(self) -> None:
        """Write all of it down, a mutant a line."""
        lines = [json.dumps(asdict(self.entries[c.key])) for c in self.changes if c.key in self.entries]
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")

    def _has_met_all(self, change: Change, entry: Entry) -> bool:
        return entry.tests == self._more or (change.is_static and entry.tests == self._tests)

    def _is_known(self, change: Change) -> bool:
        entry = self.entries.get(change.key)
        return entry is not None and (entry.killed_by is not None or entry.tests in {self._tests, self._more})


def files_in(place: str) -> list[Path]:
    """The test files of one place, which is a file or a folder."""
    return [Path(place)] if Path(place).is_file() else sorted(Path(place).rglob("*.py"))


def digest_of(paths: Sequence[str]) -> str:
    """One digest of all test files in these places, which are named from the root of the project."""
    total = hashlib.sha256()
    for place in paths:
        for file in files_in(place):
            total.update(file.as_posix().encode() + b"\0" + file.read_bytes())
    return total.hexdigest()[:16]
