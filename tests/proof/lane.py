"""A lane: one scenario on one database, with a remote and a judge of its own, and the forks that run its cases.

The lane warms itself up with one undisturbed run, and forks a child for every case: the child prepares, arms the points
and acts, until it is killed, a point fails in it, or it ends. Another child recovers, as a fresh process. After each of
them the judge, which is a process that never loaded pushlink, looks at the rows and at the remote's log.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import sqlalchemy as sa

from proof.points import NOWHERE, SOCKETS, Point, Points
from proof.scenarios import CASE_S, EXPECTED, Hand, Scenario, Stand
from pushlink import worker
from support.bench import MIRROR, PACK

TESTS: Final = Path(__file__).resolve().parents[1]

#: No child takes longer; one that does hangs, and that is a defect.
CHILD_S_MAX: Final = 60.0

#: No scenario has more points.
POINTS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run: where it was struck, how, how it ended, and what the judge found."""

    scenario: str
    dialect: str
    point: int
    at: str | None  # what the point was
    fault: int | None  # which of its faults was asked for; `None` is death
    struck: str | None  # `death`, the name of a fault, or nothing
    faults: int  # how many ways there are to fail at this point
    error: str | None  # what the process ended with, unless it ended well or was killed
    end: str
    problems: tuple[str, ...]
    seconds: float


class Lane:
    """Use it in a `with`. `pack` is what its deployment pushes by, `margin` how late a send may begin."""

    pack = PACK + MIRROR
    margin = "5s"

    def __init__(self, scenario: Scenario, dialect: str, url: str, home: Path) -> None:
        self.scenario = scenario
        self.dialect = dialect
        self._url = url
        self._home = home
        self._number = 0
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        log = self._home / "remote.jsonl"
        log.touch()
        told = json.dumps({self.scenario.prefix: self.scenario.behaviours})
        dedupe = ["--dedupe"] if self.scenario.dedupe else []
        remote = self._start("proof.judge.remote", str(log), told, *dedupe)
        port = int(remote.stdout.readline())
        self._judge = self._start("proof.judge")
        address, pack = f"http://127.0.0.1:{port}", self.scenario.pack or self.pack
        self._stand = Stand(self._url, self._home, address, log, pack=pack, margin=self.margin)
        self._leave_one_in_an_unknown_lane()
        worker.OUTAGE_PAUSE_S = 0.02  # type: ignore[misc]
        self._hand_run()
        self._undisturbed = self._ask(self.scenario.records(self._last), settled=True)["end"]
        self._stand.engine.dispose()
        gc.collect()
        gc.freeze()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()
        self._stand.engine.dispose()

    def _start(self, *command: str) -> Any:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
        )

        def stop() -> None:
            process.stdin.close()
            process.wait()
            process.stdout.close()

        self._exits.callback(stop)
        return process

    def _leave_one_in_an_unknown_lane(self) -> None:
        """A row that nobody may ever touch; the judge remembers it."""
        Hand(self._stand, "elsewhere", 0.0).save("Nobody")
        with self._stand.engine.begin() as conn:
            conn.execute(sa.text("UPDATE pushlink_push_attempt SET dispatch_lane = 'tomorrow'"))
        self._ask(None, settled=True)

    def _hand_run(self) -> None:
        hand = self._hand()
        self.scenario.prepare(hand)
        self.scenario.act(hand)
        self.scenario.recover(hand)

    def _hand(self) -> Hand:
        self._number += 1
        return Hand(self._stand, self._last, self._number * CASE_S)

    @property
    def _last(self) -> str:
        """The record of the newest case."""
        return f"{self.scenario.prefix}.{self._number}"

    # ------------------------------------------------------------------------------ cases

    def deaths(self, *, first: int = 1, every: int = 1) -> Iterator[Case]:
        """Die at the first point, the second, the third, ... until a run completes."""
        for at in range(first, POINTS_MAX, every):
            case = self.run(at)
            yield case
            if case.struck is None:
                return
        msg = f"{self.scenario.name} has no end"
        raise RuntimeError(msg)

    def failures(self, *, first: int = 1, every: int = 1, turn: int = 0, full: bool = False) -> Iterator[Case]:
        """Fail at every point until a run completes.

        A commit and a step of a socket fail in every way that they have. A statement fails in one, which goes round
        (`turn` says where it starts, so that scenarios which run the same statements do not repeat each other), or with
        `full` in every one.
        """
        for at in range(first, POINTS_MAX, every):
            way = turn + at
            case = self.run(at, way)
            if case.at is None:
                return
            if case.struck is None:
                continue
            yield case
            if full or not case.at.startswith(Point.STATEMENT.value):
                for fault in range(way + 1, way + case.faults):
                    yield self.run(at, fault)
        msg = f"{self.scenario.name} has no end"
        raise RuntimeError(msg)

    def run(self, at: int = NOWHERE, fault: int | None = None) -> Case:
        """One case: act under the strike, judge, recover in a fresh process, judge."""
        began = time.monotonic()
        self._number += 1
        number = self._number
        record = self._last

        def act(report: int) -> None:
            hand = Hand(self._stand, record, number * CASE_S)
            points = Points(at=at, fault=fault, report=report, refuses=self.scenario.refuses)
            points.install(hand.engine)
            self.scenario.prepare(hand)
            self._act(points, lambda: self.scenario.act(hand))

        def recover(report: int) -> None:
            hand = Hand(self._stand, record, number * CASE_S + CASE_S / 2)
            points = Points(at=NOWHERE, report=report)
            points.install(hand.engine)
            points.armed = True
            self.scenario.recover(hand)
            points.tell()

        problems: list[str] = []
        told = self._child(act, problems, may_die=True)
        records = self.scenario.records(record)
        problems += [f"at the death: {p}" for p in self._ask(records, settled=False)["problems"]]
        after = self._child(recover, problems, may_die=False)
        judged = self._ask(records, settled=True)
        problems += judged["problems"] + told.get("broken", []) + after.get("broken", [])
        error = told.get("error")
        if error and error.startswith("unexpected"):
            problems.append(error)
        if judged["end"] not in self.scenario.ends:
            problems.append(f"it ended {judged['end']}, which is none of {', '.join(sorted(self.scenario.ends))}")
        if (
            told.get("struck") not in {None, "death"}
            and not _is_of_a_socket(told)
            and judged["end"] != self._undisturbed
        ):
            problems.append(f"a fault of the database cost something: {judged['end']} instead of {self._undisturbed}")
        return Case(
            scenario=self.scenario.name,
            dialect=self.dialect,
            point=at,
            at=told.get("at"),
            fault=fault,
            struck=told.get("struck"),
            faults=told.get("faults", 0),
            error=error,
            end=judged["end"],
            problems=tuple(problems),
            seconds=round(time.monotonic() - began, 4),
        )

    @staticmethod
    def _act(points: Points, what: Callable[[], object]) -> None:
        """Do it with the points armed, and report how it ended."""
        error = None
        points.armed = True
        try:
            what()
        except Exception as failure:  # noqa: BLE001 - told to the parent, which judges it
            error = f"{type(failure).__name__}: {failure}"
            error = error if isinstance(failure, EXPECTED) else f"unexpected {error}"
        points.armed = False
        points.tell(error=error)

    def everything(self) -> list[str]:
        """What the judge finds when it looks at all rows again."""
        return list(self._ask(None, settled=True)["problems"])

    def _ask(self, records: tuple[str, ...] | None, *, settled: bool) -> dict[str, Any]:
        asked = {"url": self._url, "log": str(self._home / "remote.jsonl"), "records": records, "settled": settled}
        if records is not None:
            asked |= {"together": self.scenario.together}
        self._judge.stdin.write(json.dumps(asked) + "\n")
        self._judge.stdin.flush()
        return json.loads(self._judge.stdout.readline())

    def _child(self, body: Callable[[int], None], problems: list[str], *, may_die: bool) -> dict[str, Any]:
        return Child(body).result(problems, may_die=may_die)


class Child:
    """A process that is forked from this one, runs `body` with a pipe to report to, and ends."""

    _pause = threading.Event()

    def __init__(self, body: Callable[[int], None]) -> None:
        self._read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _be_a_child(body, write)
        os.close(write)

    def result(self, problems: list[str], *, may_die: bool) -> dict[str, Any]:
        """What it reported; waits for its end, and adds a problem when that was none that was asked for."""
        text = _read(self._read, self.pid, problems)
        _, status = os.waitpid(self.pid, 0)
        told: dict[str, Any] = json.loads(text) if text else {}
        is_killed = os.WIFSIGNALED(status) and told.get("struck") == "death"
        if not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0) and not (may_die and is_killed):
            problems.append(f"a process ended with {status}: {told.get('error', text)}")
        return told

    def sleeps(self) -> bool:
        """Wait until it has put itself to sleep; false when it ended instead, which `result` goes into."""
        info = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return info is not None and info.si_code == os.CLD_STOPPED

    def ends_within(self, seconds: float) -> bool:
        """Wait for its end, which `result` goes into, for so long."""
        deadline = time.monotonic() + seconds
        while os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if time.monotonic() > deadline:
                return False
            self._pause.wait(0.01)
        return True

    def end(self) -> None:
        """Kill it, whatever it does."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._read)

    def wake(self) -> None:
        """Let it go on where it stood, if it is still there."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)


def _is_of_a_socket(told: dict[str, Any]) -> bool:
    return str(told["at"]) in SOCKETS


def _be_a_child(body: Callable[[int], None], report: int) -> None:
    """Run and end at once, whatever happens: nothing of the parent's may be closed or flushed here."""
    status = 1
    try:
        logging.disable(logging.CRITICAL)
        body(report)
        status = 0
    except BaseException as error:  # noqa: BLE001 - a fork must never return into its parent's code
        os.write(report, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
    finally:
        os._exit(status)


def _read(pipe: int, pid: int, problems: list[str]) -> str:
    chunks: list[bytes] = []
    deadline = time.monotonic() + CHILD_S_MAX
    try:
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                problems.append("a process hung")
                os.kill(pid, signal.SIGKILL)
                return ""
            chunk = os.read(pipe, 65_536)
            if not chunk:
                return b"".join(chunks).decode()
            chunks.append(chunk)
    finally:
        os.close(pipe)
