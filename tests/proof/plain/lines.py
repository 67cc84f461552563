"""Which test executes which line of the protocol, and how long it takes: every test runs once under a tracer."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import _lru_cache_wrapper
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, TypeAlias

Line: TypeAlias = tuple[str, int]  # the module of the protocol, the number of the line

#: A test that needs more CPU than this under the tracer is stopped, and meets no mutant: a few such tests would take
#: most of the time, for hardly a mutant.
SECONDS_MAX: Final = 2.0


class TooSlowError(BaseException):
    """Stops a test, whatever it catches."""


@dataclass(slots=True)
class Lines:
    """What the tracer saw.

    `of_import` is what runs while modules are imported and tests collected; `tests` are the numbers of the tests by
    the line that they execute; `seconds` of CPU and `width` (how many lines) by the number of the test.
    """

    of_import: set[Line] = field(default_factory=set)
    tests: dict[Line, set[int]] = field(default_factory=lambda: defaultdict(set))
    seconds: dict[int, float] = field(default_factory=dict)
    width: dict[int, int] = field(default_factory=dict)
    slow: set[int] = field(default_factory=set)
    failed: list[int] = field(default_factory=list)


def trace_tests(lines: Lines, count: int, home: Path, run: Callable[[int], tuple[bool, bool]]) -> None:
    """Run every test under the tracer; `run` says whether the test of a number passed, and whether it is too slow."""
    caches = [one for one in gc.get_objects() if isinstance(one, _lru_cache_wrapper)]
    for number in range(count):
        for one in caches:
            one.cache_clear()  # what an earlier test has left there would not be executed again
        seen: set[Line] = set()
        began = time.process_time()
        with traced(home, seen):
            passed, is_slow = run(number)
        lines.seconds[number] = time.process_time() - began
        lines.width[number] = len(seen)
        if is_slow:
            lines.slow.add(number)
        elif not passed:
            lines.failed.append(number)
        for line in seen:
            lines.tests[line].add(number)


@contextmanager
def in_time() -> Iterator[list[bool]]:
    """Ends what takes too long; the list is not empty then."""
    is_slow: list[bool] = []

    def stop(*_: object) -> None:
        is_slow.append(True)
        raise TooSlowError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS_MAX)
    try:
        yield is_slow
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def traced(home: Path, seen: set[Line]) -> Iterator[None]:
    """Note the lines of the files in `home` that this process executes."""
    unseen: dict[CodeType, set[int]] = {}

    def of_call(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if (left := unseen.get(code)) is None:
            is_ours = code.co_filename.startswith(str(home))
            left = unseen[code] = {line for *_, line in code.co_lines() if line} if is_ours else set()
        return of_line(frame, event, None) if left else None

    def of_line(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_lineno in (left := unseen[frame.f_code]):
            left.discard(frame.f_lineno)
            seen.add((Path(frame.f_code.co_filename).stem, frame.f_lineno))
        return of_line

    threading.settrace(of_call)
    sys.settrace(of_call)
    try:
        yield
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
