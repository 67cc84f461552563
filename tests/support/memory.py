"""The most memory that Python's objects took while something was done."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def measured(work: Callable[[], T]) -> tuple[T, int]:
    """What it answered, and the peak of what was allocated since it began, in bytes.

    What is only waiting for the collector must not count, or the figure hangs on when it happens to come: cycles are
    collected often, and the objects of the rest of the run, which would make it come less often, are set aside.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(500, 3, 3)
    tracemalloc.start()
    try:
        answer = work()
        return answer, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.set_threshold(*thresholds)
        gc.unfreeze()
