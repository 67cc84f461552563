"""Drivers for tests: run a flow and let it die, or fail, at its n-th effect; or weave several flows effect by effect.

Every `yield` of a flow is a point where the process may end. `every_death` counts them in a run that nobody disturbs,
and runs the scenario again and again, with the death one effect later each time. The flow runs on the
driver that the library itself uses for inline dispatch; only the database and the wire under it are told to fail.

    def scenario(death):
        record = make_a_fresh_record()
        run_dying(worker_pass(claims, steps), database, transport.send_now, death)
    for death in every_death(scenario):
        recover_until_idle(); check_every_invariant(death)
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from pushlink.errors import PushlinkError, Unavailable
from pushlink.flows.claim import ClaimOrder, ClaimSteps
from pushlink.flows.dispatch import flow_of
from pushlink.flows.drivers import Database, Failed, Patience, run_flow
from pushlink.flows.effects import Effect, Flow, Send, Step, Tx
from pushlink.flows.steps import Steps
from pushlink.ports import WireReply, WireRequest
from pushlink.store.claims import Turn

#: How a synchronous driver sends.
SendNow: TypeAlias = Callable[[WireRequest], WireReply]

#: No scenario has more effects than this; one that goes on is caught in a loop.
EFFECTS_MAX: Final = 500

#: How long a failing transaction is tried again, in seconds.
PATIENCE_S: Final = 5.0


class How(StrEnum):
    """What goes wrong at an effect. Only the deaths can strike a send: a transport answers, whatever happens."""

    DIES_BEFORE = "dies_before"  # the process ends, and the effect never happens
    DIES_AFTER = "dies_after"  # the effect happens, and the process ends before it hears of it
    ROLLS_BACK = "rolls_back"  # the connection goes before the commit
    COMMITS_UNHEARD = "commits_unheard"  # the connection goes after the commit: its outcome is unknown
    BREAKS = "breaks"  # the step raises something that will not pass


_DEATHS: Final = frozenset({How.DIES_BEFORE, How.DIES_AFTER})


class End(StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    KILLED = "killed"
    ABANDONED = "abandoned"  # the driver gave the flow up, as it does for an error that will not pass


class Killed(BaseException):
    """The process of the test dies here. Not an `Exception`: nothing may survive it."""


class SimulatedOutage(Unavailable):
    """The database went away."""


class SimulatedBug(PushlinkError):
    """An error that trying again does not cure."""


@dataclass(slots=True, kw_only=True)
class Death:
    """One appointment: at the `at`-th effect of a run, in this way. `struck` and `effects` tell what came of it."""

    at: int
    how: How
    struck: bool = False
    effects: list[str] = field(default_factory=list)

    @property
    def is_reached(self) -> bool:
        """Whether the run had that many effects."""
        return len(self.effects) >= self.at

    def meet(self, effect: str) -> How | None:
        """Count an effect; how to fail at it, or `None`."""
        self.effects.append(effect)
        if len(self.effects) != self.at or (effect == _SEND and self.how not in _DEATHS):
            return None
        self.struck = True
        return self.how

    def __str__(self) -> str:
        if not self.is_reached:
            return "undisturbed"
        return f"{self.how.value} at effect {self.at} ({self.effects[self.at - 1]})"


_SEND: Final = "send"


def label(effect: Effect) -> str:
    """What an effect is called in a trace: the name of its step, or `send`."""
    return _SEND if isinstance(effect, Send) else step_name(effect.step)


def step_name(step: Step) -> str:
    """The name of a step."""
    return str(getattr(step, "__name__", type(step).__name__))


@dataclass(frozen=True, slots=True, kw_only=True)
class DyingDatabase(Database):
    """A database under a death: it does what `inner` does, and fails once, at the appointed transaction."""

    inner: Database
    death: Death

    def commit(self, step: Step, txs: Sequence[Tx]) -> list[Any]:
        """Run the step as the library does, unless it is the appointed one."""
        match self.death.meet(step_name(step)):
            case How.DIES_BEFORE:
                raise Killed
            case How.DIES_AFTER:
                self.inner.commit(step, txs)
                raise Killed
            case How.ROLLS_BACK:
                return self.inner.commit(_failing(step, SimulatedOutage("the connection is gone")), txs)
            case How.BREAKS:
                return self.inner.commit(_failing(step, SimulatedBug("this step fails")), txs)
            case How.COMMITS_UNHEARD:
                self.inner.commit(step, txs)
                return [Failed(SimulatedOutage("the commit was not answered"), transient=True)] * len(txs)
            case _:
                return self.inner.commit(step, txs)


def _failing(step: Step, error: Exception) -> Step:
    def fail(*args: Any, **kwargs: Any) -> Sequence[Any]:
        step(*args, **kwargs)
        raise error

    return fail


def run_dying(flow: Flow, database: Database, send: SendNow, death: Death) -> End:
    """Run a flow on the synchronous driver, under a death; say how it ended."""

    def send_dying(request: WireRequest) -> WireReply:
        how = death.meet(_SEND)
        if how is How.DIES_BEFORE:
            raise Killed
        reply = send(request)
        if how is How.DIES_AFTER:
            raise Killed
        return reply

    dying = DyingDatabase(engine=database.engine, clock=database.clock, inner=database, death=death)
    try:
        run_flow(flow, dying, send_dying, until=time.monotonic() + PATIENCE_S)
    except Killed:
        return End.KILLED
    except (SimulatedBug, SimulatedOutage):
        return End.ABANDONED
    finally:
        flow.close()
    return End.FINISHED


def effects_of(flow: Flow, database: Database, send: SendNow) -> list[str]:
    """Run a flow to its end and name its effects, in order."""
    watch = Death(at=EFFECTS_MAX, how=How.DIES_BEFORE)
    run_dying(flow, database, send, watch)
    return watch.effects


def every_death(
    scenario: Callable[[Death], object], hows: Sequence[How] = tuple(How), *, first: int = 1
) -> Iterator[Death]:
    """Run the scenario once for each effect from the `first` one on, and each way to fail there; yields after each run.

    The scenario makes what it needs afresh, runs it under the death it is given, and returns. Before all others it is
    run untouched, which tells how many effects there are; that run is yielded first, with a death that is not struck.
    Raises `SimulatedBug` for a scenario that does not run twice alike, or has no end.
    """
    untouched = Death(at=EFFECTS_MAX, how=How.DIES_BEFORE)
    scenario(untouched)
    if untouched.is_reached:
        msg = "the scenario has no end"
        raise SimulatedBug(msg)
    yield untouched
    for how, at in itertools.product(hows, range(first, len(untouched.effects) + 1)):
        if untouched.effects[at - 1] == _SEND and how not in _DEATHS:
            continue
        death = Death(at=at, how=how)
        scenario(death)
        if not death.struck or death.effects[:at] != untouched.effects[:at]:
            msg = "the scenario does not run twice alike"
            raise SimulatedBug(msg, evidence={"untouched": untouched.effects, "then": death.effects})
        yield death


def worker_pass(claims: ClaimSteps, steps: Steps, *, limit: int = 64) -> Flow:
    """One round of a worker as one flow: claim what is due, then run each claimed attempt to its end."""
    claimed = yield Tx(step=claims.claim, item=ClaimOrder(limit=limit, turn=Turn()), key="")
    for item in claimed:
        yield from flow_of(item, steps)


class Interleaver:
    """Several flows, of which a test runs one effect at a time, in any order it likes.

    A transaction that failed for a moment is tried again by the next step of its flow; one that failed for good is
    replaced or abandoned as the library's drivers do it.
    """

    def __init__(self, database: Database, send: SendNow) -> None:
        self._database = database
        self._send = send
        self._flows: dict[str, Generator[Effect, Any, None]] = {}
        self._next: dict[str, Send | Patience] = {}
        self.trace: list[tuple[str, str]] = []
        self.abandoned: dict[str, Exception] = {}

    def add(self, name: str, flow: Flow) -> None:
        """Take a flow and bring it to its first effect, which is not run yet."""
        self._flows[name] = flow
        self._advance(name, None)

    @property
    def alive(self) -> tuple[str, ...]:
        """The flows that have an effect before them, in the order in which they were added."""
        return tuple(name for name in self._flows if name in self._next)

    def peek(self, name: str) -> str | None:
        """The effect that a flow would run next; `None` when it has ended."""
        waiting = self._next.get(name)
        return None if waiting is None else label(waiting.tx if isinstance(waiting, Patience) else waiting)

    def step(self, name: str) -> None:
        """Run the next effect of a flow, once."""
        waiting = self._next[name]
        self.trace.append((name, self.peek(name) or ""))
        if isinstance(waiting, Send):
            self._advance(name, self._send(waiting.request))
            return
        [value] = self._database.commit(waiting.tx.step, [waiting.tx])
        self._answer(name, value)

    def _answer(self, name: str, value: Any) -> None:
        waiting = self._next[name]
        if not isinstance(value, Failed) or isinstance(waiting, Send):
            self._advance(name, value)
            return
        match waiting.after(value):
            case float():
                pass  # the same effect is tried again by the next step
            case Tx() as instead:
                self._next[name] = Patience(instead)
            case _:
                self.abandoned[name] = value.error
                self.kill(name)

    def run(self, *names: str) -> None:
        """Run flows to their ends, one after the other; all of them when none is named."""
        for name in names or tuple(self._flows):
            while name in self._next:
                self.step(name)

    def kill(self, name: str) -> None:
        """End a flow where it stands, as a crash would."""
        self._next.pop(name, None)
        self._flows[name].close()

    def _advance(self, name: str, value: Any) -> None:
        try:
            effect = self._flows[name].send(value)
        except StopIteration:
            self._next.pop(name, None)
        else:
            self._next[name] = effect if isinstance(effect, Send) else Patience(effect)


def every_order(make: Callable[[], Interleaver]) -> Iterator[Interleaver]:
    """Run what `make` sets up afresh in every order of its flows' effects; yields after each run.

    Orders are found by running: whatever a flow does in an order decides how long that order is. Two flows of five
    effects have 252 orders, so keep them short.
    """
    prefix: list[int] = []
    while True:
        weave = make()
        taken: list[tuple[int, int]] = []  # which of how many
        while alive := weave.alive:
            choice = prefix[len(taken)] if len(taken) < len(prefix) else 0
            taken.append((choice, len(alive)))
            weave.step(alive[choice])
        yield weave
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return
        prefix = [choice for choice, _ in taken[:-1]] + [taken[-1][0] + 1]
