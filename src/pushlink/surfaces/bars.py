"""Bars of long commands: one for each kind of work, with counts, a rate and the time that is left."""
# ruff: noqa: PLC0415 - what is heavy is imported when a command runs, so that --help answers at once

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pushlink.surfaces.output import Output


@contextmanager
def progress_bars(output: Output) -> Iterator[Callable[[str, int, int], None]]:
    """A bar with counts and a rate; without a terminal nothing is drawn."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:>7.0f}/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=output.err, transient=True, disable=not output.err.is_terminal) as bar:
        tasks: dict[str, tuple[Any, float]] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total, rate=0.0), time.monotonic()
            task, begun = tasks[what]
            rate = done / max(time.monotonic() - begun, 0.001)
            bar.update(task, completed=done, total=total, rate=rate)

        yield tell
