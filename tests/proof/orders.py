"""Orders: workers, saves, the end of a lease, the settle time and an operator, one effect at a time.

A `Cast` names the players of a story. Where their effects have few orders, all are run (`pushlink.testing.driver` finds
them by running); where there are many, seeds draw the orders, and workers die in them as well. A send is two effects
here: the request leaves, and later it arrives and is answered; whoever dies in between leaves a request on the way,
which still arrives or is lost. Everything happens in one process: the remote is the judge's own, without its sockets.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import sqlalchemy as sa

from proof.judge.court import Court
from proof.judge.remote import State
from proof.scenarios import CASE_S, PAST_THE_LEASE_S, SETTLED_S, Hand, Stand
from pushlink.errors import CallerError
from pushlink.flows.effects import Flow, Send, Tx
from pushlink.flows.guarding import database_of
from pushlink.flows.steps import Steps
from pushlink.operations.actions import Decision, OperatorTerms, act
from pushlink.ports import WireError, WireReply, WireRequest, WireTrace
from pushlink.protocol.verbs import Verb
from pushlink.testing.drain import claims_of
from pushlink.testing.driver import Interleaver, every_order, worker_pass
from support.bench import PERSON

_SENT: Final = WireTrace(connected=True, request_started=True, request_sent=True)
_ANSWERED: Final = WireTrace(
    connected=True, request_started=True, request_sent=True, response_started=True, response_complete=True
)

#: Of a hundred effects of a seeded order, this many are the death of a worker instead.
DEATHS_PERCENT: Final = 4


class Way:
    """The way to the judge's remote without sockets: what is sent is logged and answered, or not answered."""

    def __init__(self, log: Path, behaviours: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
        told = {story: {method: list(some) for method, some in each.items()} for story, each in behaviours.items()}
        self.remote = State(str(log), told, dedupe=False)

    def send(self, request: WireRequest) -> WireReply:
        """One request and its reply."""
        key = {name.lower(): value for name, value in request.headers}.get("idempotency-key")
        _, status, document = self.remote.serve(request.method, request.path, request.body, key)
        if status == 0:
            return WireReply(trace=_SENT, error=WireError.READ, error_text="closed without an answer")
        body = json.dumps(document).encode()
        return WireReply(
            trace=_ANSWERED,
            status=status,
            headers=(("content-type", "application/json"), ("content-length", str(len(body)))),
            body=body,
            body_complete=True,
            body_size=len(body),
            body_digest=hashlib.sha256(body).hexdigest(),
        )

    def holds(self, key: str) -> str | None:
        """What an operator finds at the remote under a record's key."""
        return next((made for made, document in self.remote.records.items() if document.get("key") == key), None)


class Weave(Interleaver):
    """Flows woven effect by effect; a send takes two, and what is on the way outlives its sender."""

    def __init__(self, hand: Hand, way: Way) -> None:
        super().__init__(database_of(hand.runtime.world, hand.engine), way.send)
        self._way = way
        self._flying: dict[str, WireRequest] = {}

    def step(self, name: str) -> None:
        """Run the next effect of a flow; the first one of a send lets it leave."""
        waiting = self._next[name]
        if isinstance(waiting, Send) and name not in self._flying:
            self.trace.append((name, "leaves"))
            self._flying[name] = waiting.request
            return
        self._flying.pop(name, None)
        super().step(name)

    def die(self, name: str, *, arrives: bool) -> None:
        """End a flow where it stands; what it had on the way arrives, or is lost."""
        self.trace.append((name, f"dies{', its request arrives' if arrives else ''}"))
        request = self._flying.pop(name, None)
        if request is not None and arrives:
            self._way.send(request)
        self.kill(name)

    def settle(self) -> None:
        """Longer than anything stands still, or is on the way: whoever was about to send is dead by then."""
        for name in self.alive:
            if isinstance(self._next[name], Send):
                self.die(name, arrives=True)


Player: TypeAlias = "Callable[[Story], Flow]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One run of a cast: its record, and what the players need."""

    hand: Hand
    way: Way
    weave: list[Weave] = field(default_factory=list)  # the one, once it is there


def worker(story: Story) -> Flow:
    """A worker that has just started: one round."""
    world = story.hand.stand.open().world
    return worker_pass(claims_of(world), Steps(world))


def saver(*names: str) -> Player:
    """A request that changes the record and saves it, once for each name."""

    def player(story: Story) -> Flow:
        def save(conn: sa.Connection, items: Sequence[str], *, now: dt.datetime) -> list[None]:
            for name in items:
                conn.execute(PERSON.update().where(PERSON.c.id == story.hand.record).values(name=name))
                story.hand.runtime.save(conn, "Person", story.hand.record, user="u1")
            return [None for _ in items]

        for name in names:
            yield Tx(step=save, item=name, key=story.hand.record)

    return player


def time(seconds: float) -> Player:
    """A moment in which time passes; a long one settles what is on the way."""

    def player(story: Story) -> Flow:
        def pass_by(conn: sa.Connection, items: Sequence[None], *, now: dt.datetime) -> list[None]:
            if seconds >= SETTLED_S:
                story.weave[0].settle()
            story.hand.later(seconds)
            return [None for _ in items]

        yield Tx(step=pass_by, item=None, key="")

    return player


def operator(story: Story) -> Flow:
    """Somebody who looks at the remote and settles whatever waits for a decision, twice; what is refused is refused."""

    def decide(conn: sa.Connection, items: Sequence[str], *, now: dt.datetime) -> list[None]:
        for operation in items:
            row = story.hand.attempt(operation, conn=conn)
            verb = None if row is None else _VERBS.get((operation, row.status))
            if row is None or verb is None:
                continue
            there = story.way.holds(story.hand.record)
            if verb is Verb.ADOPT and there is None:
                verb = Verb.ABSENT
            decision = Decision(
                verb=verb,
                target_id=row.id,
                row_version=row.row_version,
                actor="olga",
                reason="looked at the remote",
                argument=there if verb is Verb.ADOPT else None,
                reserve=verb is Verb.SUPERSEDE,
            )
            try:
                with conn.begin_nested():
                    act(conn, story.hand.runtime.world, decision, terms=OperatorTerms(), now=now)
            except CallerError:
                continue
        return [None for _ in items]

    for operation in ("create", "create", "update"):
        yield Tx(step=decide, item=operation, key=story.hand.record)


_VERBS: Final = {
    ("create", "ambiguous_remote_effect"): Verb.ADOPT,
    ("create", "terminal_failed"): Verb.SUPERSEDE,
    ("update", "ambiguous_remote_effect"): Verb.RESEND,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """A story: what is prepared, who plays, and in how many orders (0: in every one)."""

    name: str
    players: Mapping[str, Player]
    linked: bool = False
    orders: int = 0
    behaviours: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """What the keys of its records begin with."""
        return self.name.replace(" ", "-").replace(",", "")


LEASE: Final = time(PAST_THE_LEASE_S)
SETTLE: Final = time(SETTLED_S)
SEEDS: Final = 100

CASTS: Final = (
    Cast(name="two workers, one create", players={"one": worker, "two": worker}),
    Cast(name="a create, two saves", players={"worker": worker, "request": saver("Bea", "Cee")}),
    Cast(name="an update, a save", linked=True, players={"worker": worker, "request": saver("Cee")}),
    Cast(name="two workers, two requests", players={"one": worker, "request": saver("Bea"), "another": saver("Cee")}),
    Cast(name="a create, its lease ends, a successor", players={"sleeper": worker, "time": LEASE, "successor": worker}),
    Cast(
        name="an update, its lease ends, a successor",
        linked=True,
        players={"sleeper": worker, "time": LEASE, "successor": worker},
    ),
    Cast(
        name="two sleepers, two leases, a successor",
        players={"one": worker, "first": LEASE, "two": worker, "second": LEASE, "three": worker},
        orders=SEEDS,
    ),
    Cast(
        name="two sleepers, two leases, saves, an update",
        linked=True,
        players={"one": worker, "first": LEASE, "request": saver("Cee", "Dee"), "two": worker, "second": LEASE},
        orders=SEEDS,
    ),
    Cast(
        name="a lost reply, an operator, saves, workers",
        players={
            "one": worker,
            "request": saver("Bea"),
            "time": SETTLE,
            "operator": operator,
            "two": worker,
            "later": SETTLE,
            "three": worker,
        },
        behaviours={"POST": ["reply_lost"]},
        orders=SEEDS,
    ),
    Cast(
        name="a lost request, an operator, saves, workers",
        players={
            "one": worker,
            "request": saver("Bea"),
            "time": SETTLE,
            "operator": operator,
            "two": worker,
            "later": SETTLE,
            "three": worker,
        },
        behaviours={"POST": ["request_lost"]},
        orders=SEEDS,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One order: who did what, how it ended, and what was found."""

    cast: str
    dialect: str
    seed: int | None
    trace: tuple[str, ...]
    end: str
    problems: tuple[str, ...]


class Stage:
    """All casts on one database."""

    def __init__(self, dialect: str, url: str, home: Path) -> None:
        self._dialect = dialect
        log = home / "remote.jsonl"
        log.touch()
        self._way = Way(log, {cast.prefix: cast.behaviours for cast in CASTS})
        self._stand = Stand(url, home, "http://127.0.0.1:9", log)
        self._court = Court(self._stand.engine, log)
        self._number = 0

    def close(self) -> None:
        """Give the connections back."""
        self._stand.engine.dispose()

    def play(self, cast: Cast, *, seeds: Sequence[int] | None = None) -> Iterator[Played]:
        """Every order of a cast, or one for each seed; judged when its players are done, and when all is recovered."""
        story: Story | None = None

        def make() -> Weave:
            nonlocal story
            story = self._begin(cast)
            weave = Weave(story.hand, self._way)
            story.weave.append(weave)
            for name, player in cast.players.items():
                weave.add(name, player(story))
            return weave

        if cast.orders:
            for seed in range(1, cast.orders + 1) if seeds is None else seeds:
                weave = make()
                _draw(weave, random.Random(seed))
                yield self._end(cast, story, weave, seed)
            return
        for weave in every_order(make):  # type: ignore[arg-type]
            yield self._end(cast, story, weave, None)

    def everything(self) -> list[str]:
        """What the judge finds when it looks at all rows again."""
        return self._court.problems(None, settled=True)

    def _begin(self, cast: Cast) -> Story:
        self._number += 1
        hand = Hand(self._stand, f"{cast.prefix}.{self._number}", self._number * CASE_S, send=self._way.send)
        hand.save("Ada")
        if cast.linked:
            # What the remote does to the first create is for the stories that begin with one.
            hand.work_once()
            hand.later(1)
            hand.save("Bea")
        return Story(hand=hand, way=self._way)

    def _end(self, cast: Cast, story: Story | None, weave: Weave, seed: int | None) -> Played:
        if story is None:
            msg = "nothing was played"
            raise RuntimeError(msg)
        record = story.hand.record
        problems = [f"{name} was abandoned: {error!r}" for name, error in weave.abandoned.items()]
        problems += self._court.problems([record], settled=False)
        story.hand.clock.shift_s = self._number * CASE_S + CASE_S / 2
        story.hand.recover()
        problems += self._court.problems([record], settled=True)
        return Played(
            cast=cast.name,
            dialect=self._dialect,
            seed=seed,
            trace=tuple(f"{name}: {what}" for name, what in weave.trace),
            end=self._court.end(record),
            problems=tuple(problems),
        )


def _draw(weave: Weave, rng: random.Random) -> None:
    """Run to the end in an order that a seed draws: half of them at random, half by priorities that change thrice."""
    names = list(weave.alive)
    priorities = rng.sample(names, len(names))
    changes = set(rng.sample(range(40), 3))
    by_priority = rng.random() < 0.5
    steps = 0
    while alive := weave.alive:
        name = min(alive, key=priorities.index) if by_priority else rng.choice(alive)
        if steps in changes:
            priorities.remove(name)
            priorities.append(name)
        steps += 1
        is_worker = name in {"one", "two", "three"}
        if is_worker and rng.randrange(100) < DEATHS_PERCENT:
            weave.die(name, arrives=rng.random() < 0.5)
        else:
            weave.step(name)


def told(played: Played) -> dict[str, Any]:
    """A line of the raw results."""
    return {
        "cast": played.cast,
        "dialect": played.dialect,
        "seed": played.seed,
        "end": played.end,
        "trace": list(played.trace),
        "problems": list(played.problems),
    }
