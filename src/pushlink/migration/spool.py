"""Rows put in another order on disk: what a plan sorts is as long as the host's table, and memory is not.

Runs of rows are sorted in memory, written as JSON lines, and merged when they are read.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

#: Rows sorted in memory at once.
RUN: Final = 50_000

#: What a row is ordered by, and the row itself.
Row: TypeAlias = tuple[tuple[str, ...], dict[str, Any]]


class Spool:
    """Rows that come out sorted. `name` is what its files in `folder` begin with."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._rows: list[Row] = []
        self._runs: list[Path] = []
        self.count = 0

    def add(self, key: Sequence[str], row: dict[str, Any]) -> None:
        """Take one row of JSON values."""
        self._rows.append((tuple(key), row))
        self.count += 1
        if len(self._rows) >= RUN:
            self._spill()

    def __iter__(self) -> Iterator[Row]:
        """All rows by key; it may be asked for more than once."""
        self._rows.sort(key=_key)
        return heapq.merge(*map(_read, self._runs), self._rows, key=_key)

    def _spill(self) -> None:
        path = self._folder / f"{self._name}-{len(self._runs)}.jsonl"
        self._rows.sort(key=_key)
        with path.open("x", encoding="utf-8") as file:
            file.writelines(json.dumps([key, row], ensure_ascii=False) + "\n" for key, row in self._rows)
        self._runs.append(path)
        self._rows = []


def _key(row: Row) -> tuple[str, ...]:
    return row[0]


def _read(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            key, row = json.loads(line)
            yield tuple(key), row
