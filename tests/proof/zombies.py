"""Zombies: real workers that are stopped with SIGSTOP at a chosen step, outlive their lease, and go on with SIGCONT.

A schedule says what is pushed, where the first worker falls asleep, what happens meanwhile, and whether a second one
falls asleep as well; then in which order they wake. Leases end by the shared clock of the stand; `OVERSLEPT` also
stands still for longer, in real time, than a request may take.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from typing import Any, Final

from proof.lane import Child, Lane
from proof.points import Point, Points
from proof.scenarios import CASE_S, PAST_THE_LEASE_S, Hand, Scenario
from pushlink.protocol.verbs import Verb
from support.bench import MIRROR, PACK

#: Longer than a request of the zombies' pack may take.
OVERSLEPT_S: Final = 1.2


#: How long a worker that may wait for a sleeper's lock is waited for.
BLOCKED_S: Final = 20.0

#: How long the first of two that wake is waited for.
WAITS_S: Final = 5.0


class Stop(StrEnum):
    """Where a worker falls asleep."""

    CLAIMED = "claimed"
    CHECKPOINTED = "checkpointed"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    HALF_SENT = "half sent"
    SENT = "sent"
    REPLIED = "replied"
    RECORDED = "recorded"


class Meanwhile(StrEnum):
    """What happens while it sleeps."""

    NOTHING = "its lease lasts"
    EXPIRED = "its lease ends"
    SUCCESSOR = "its lease ends, and another worker goes on"
    OPERATOR = "its lease ends, another worker goes on, and an operator says that nothing is there"
    OVERSLEPT = "its lease and its request's deadline end, and another worker goes on"


_CLAIM: Final = "UPDATE pushlink_push_attempt SET status=claims"
_CHECKPOINT: Final = "UPDATE pushlink_push_attempt SET version=checkpoints"
_RECORD: Final = "INSERT INTO pushlink_push_response"

#: Who oversleeps here has lost its turn.
_BEFORE_THE_FIRST_BYTE: Final = frozenset({Stop.CHECKPOINTED, Stop.CONNECTING})

#: Each stop: the statement that has to come first, if any, and the point.
_STOPS: Final[dict[Stop, tuple[str | None, Point]]] = {
    Stop.CLAIMED: (_CLAIM, Point.COMMITTED),
    Stop.CHECKPOINTED: (_CHECKPOINT, Point.COMMITTED),
    Stop.CONNECTING: (None, Point.CONNECT),
    Stop.CONNECTED: (None, Point.SEND),
    Stop.HALF_SENT: (None, Point.HALF),
    Stop.SENT: (None, Point.SENT),
    Stop.REPLIED: (None, Point.RECEIVED),
    Stop.RECORDED: (_RECORD, Point.COMMITTED),
}


@dataclass(slots=True, kw_only=True)
class Sleepy(Points):
    """Falls asleep once, at its stop."""

    stop: Stop
    _seen: bool = field(default=False, init=False)
    _slept: bool = field(default=False, init=False)

    def meet(self, point: Point, label: str = "") -> None:
        """Fall asleep where it was said."""
        Points.meet(self, point, label)
        statement, wanted = _STOPS[self.stop]
        self._seen = self._seen or statement is None or statement in label
        if self.armed and self._seen and point is wanted and not self._slept:
            self._slept = True
            os.kill(os.getpid(), signal.SIGSTOP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One story of sleepers."""

    operation: str
    stop: Stop
    meanwhile: Meanwhile
    second: Stop | None = None  # another one that falls asleep, after the first one's lease ended
    first_wakes_first: bool = True

    def __str__(self) -> str:
        text = f"{self.operation}: asleep when {self.stop.value}, {self.meanwhile.value}"
        if self.second is None:
            return text
        order = "in their order" if self.first_wakes_first else "the other way round"
        return f"{text}; a second one asleep when {self.second.value}, they wake {order}"


def _happens(schedule: Schedule) -> str:
    """What happens while they sleep, for a table."""
    if schedule.second is None:
        return f"one sleeps, {schedule.meanwhile.value}"
    return f"two sleep, and wake {'in their order' if schedule.first_wakes_first else 'the other way round'}"


#: One sleeper at every stop; two of them where the second one finds anything to do.
SCHEDULES: Final = (
    *(
        Schedule(operation=operation, stop=stop, meanwhile=meanwhile)
        for operation, stop, meanwhile in product(("create", "update"), Stop, Meanwhile)
    ),
    *(
        Schedule(
            operation=operation, stop=Stop.CLAIMED, meanwhile=Meanwhile.EXPIRED, second=second, first_wakes_first=order
        )
        for operation, second, order in product(("create", "update"), Stop, (True, False))
    ),
)


def _prepare_create(hand: Hand) -> None:
    hand.save("Ada")


def _prepare_update(hand: Hand) -> None:
    hand.save("Ada")
    hand.work_once()
    hand.later(1)
    hand.save("Grace")


_PREPARE: Final[dict[str, Callable[[Hand], None]]] = {"create": _prepare_create, "update": _prepare_update}

#: What the lane of all zombies warms itself up with.
WARM_UP: Final = Scenario(name="zombies", prepare=_prepare_update, act=Hand.work, ends=frozenset({"finalized"}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slept:
    """What came of a schedule."""

    schedule: str
    meanwhile: str
    dialect: str
    slept: int  # how many workers really fell asleep
    blocked: bool  # whether somebody waited for a lock of a sleeper, and was killed over it
    end: str
    problems: tuple[str, ...]


class Dormitory(Lane):
    """A lane that runs schedules instead of cases. Its requests may take a second, so that one can be overslept."""

    pack = PACK.replace("total: 10s", "total: 1s") + MIRROR
    margin = "1s"

    def schedules(self, only: str = "") -> Iterator[Slept]:
        """All of them, or those whose description has `only` in it."""
        for schedule in SCHEDULES:
            if only in str(schedule):
                yield self.sleep(schedule)

    def sleep(self, schedule: Schedule) -> Slept:
        """One story: prepare, fall asleep, what happens meanwhile, wake, recover; the judge looks after each part."""
        self._number += 1
        begun_s, problems = self._number * CASE_S, []
        self._blocked = False
        self._run(_PREPARE[schedule.operation], begun_s, problems)
        sleepers = [self._sleeper(schedule.stop)]
        slept = int(sleepers[0].sleeps())
        self._let_happen(schedule.meanwhile, schedule.operation, problems)
        if schedule.second is not None:
            sleepers.append(self._sleeper(schedule.second))
            slept += int(sleepers[1].sleeps())
            self._stand.clock.shift_s += PAST_THE_LEASE_S
        problems += self._look(settled=False)
        for sleeper in sleepers if schedule.first_wakes_first else reversed(sleepers):
            sleeper.wake()
            # Whoever wakes may wait for what the next one holds: on SQLite the one write lock.
            if schedule.second is not None and not sleeper.ends_within(WAITS_S):
                for other in sleepers:
                    other.wake()
            told = sleeper.result(problems, may_die=False)
            problems += [told["error"]] if str(told.get("error")).startswith("unexpected") else []
            problems += self._look(settled=False)
        if (
            schedule.meanwhile is Meanwhile.OVERSLEPT
            and schedule.stop in _BEFORE_THE_FIRST_BYTE
            and self._sent(schedule)
        ):
            problems.append("a worker that overslept its deadline began to send")
        self._run(Hand.recover, begun_s + CASE_S / 2, problems)
        problems += self._look(settled=True)
        if slept != len(sleepers):
            problems.append("a worker that should have fallen asleep did not")
        return Slept(
            schedule=str(schedule),
            meanwhile=_happens(schedule),
            dialect=self.dialect,
            slept=slept,
            blocked=self._blocked,
            end=self._ask((self._last,), settled=True)["end"],
            problems=tuple(problems),
        )

    def _sent(self, schedule: Schedule) -> int:
        """How many requests of the operation the remote has heard of."""
        method = {"create": "POST", "update": "PATCH"}[schedule.operation]
        lines = [json.loads(line) for line in self._stand.log.read_text(encoding="utf-8").splitlines()]
        return sum(1 for line in lines if line.get("key") == self._last and line["method"] == method)

    def _look(self, *, settled: bool) -> list[str]:
        return list(self._ask((self._last,), settled=settled)["problems"])

    def _sleeper(self, stop: Stop) -> Child:
        def work(report: int) -> None:
            points = Sleepy(at=0, report=report, stop=stop)
            hand = Hand(self._stand, self._last, self._stand.clock.shift_s)
            points.install(hand.engine)
            self._act(points, hand.work)

        return Child(work)

    def _let_happen(self, meanwhile: Meanwhile, operation: str, problems: list[str]) -> None:
        clock = self._stand.clock
        if meanwhile is not Meanwhile.NOTHING:
            clock.shift_s += PAST_THE_LEASE_S
        if meanwhile in {Meanwhile.SUCCESSOR, Meanwhile.OPERATOR, Meanwhile.OVERSLEPT}:
            self._run(Hand.work, clock.shift_s, problems)
        if meanwhile is Meanwhile.OPERATOR:
            verb = {"create": Verb.ABSENT, "update": Verb.RESEND}[operation]
            self._run(lambda hand: hand.decide(verb, operation=operation), clock.shift_s, problems)
        if meanwhile is Meanwhile.OVERSLEPT:
            threading.Event().wait(OVERSLEPT_S)

    def _run(self, what: Callable[[Hand], None], shift_s: float, problems: list[str]) -> None:
        """One more process, which nobody disturbs."""

        def body(report: int) -> None:
            hand = Hand(self._stand, self._last, shift_s)
            self._act(Points(at=0, report=report), lambda: what(hand))

        child = Child(body)
        if not child.ends_within(BLOCKED_S):
            # It waits for a row that a sleeper has locked, in a transaction of another thread: nothing but time helps.
            child.end()
            self._blocked = True
            return
        told: dict[str, Any] = child.result(problems, may_die=False)
        # A sleeper may hold the one write lock of a SQLite file: then nobody goes on, and that is an outage, no defect.
        problems += [told["error"]] if str(told.get("error")).startswith("unexpected") else []
