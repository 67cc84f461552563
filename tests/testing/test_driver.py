from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
import sqlalchemy as sa

from pushlink.adapters.memory import FixedClock
from pushlink.flows.drivers import Database
from pushlink.flows.effects import Flow, Send, Step, Tx
from pushlink.ports import WireReply, WireRequest, WireTrace
from pushlink.protocol.contracts import ProfileContract
from pushlink.testing.driver import (
    Death,
    End,
    How,
    Interleaver,
    SimulatedBug,
    effects_of,
    every_death,
    every_order,
    run_dying,
    step_name,
)

NOTES = sa.table("notes", sa.column("who"), sa.column("what"))
REQUEST = WireRequest(
    profile=ProfileContract(base_url="http://127.0.0.1:1"),
    tenant="",
    method="POST",
    path="/x",
    headers=(),
    body=b"",
    fresh_connection=True,
)


class Desk:
    """A table that steps write to, and a wire that counts."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.sent = 0

    def send(self, request: WireRequest) -> WireReply:
        self.sent += 1
        return WireReply(trace=WireTrace(), status=self.sent)

    def notes(self, who: str) -> list[str]:
        with self.database.engine.begin() as conn:
            return list(conn.execute(sa.select(NOTES.c.what).where(NOTES.c.who == who)).scalars())


def begin(conn: sa.Connection, items: Sequence[Any], *, now: dt.datetime) -> list[str]:
    conn.execute(NOTES.insert(), [{"who": who, "what": "begin"} for who in items])
    return [f"begun {who}" for who in items]


def end(conn: sa.Connection, items: Sequence[Any], *, now: dt.datetime) -> list[None]:
    conn.execute(NOTES.insert(), [{"who": who, "what": "end"} for who in items])
    return [None] * len(items)


def instead(conn: sa.Connection, items: Sequence[Any], *, now: dt.datetime) -> list[None]:
    conn.execute(NOTES.insert(), [{"who": who, "what": "instead"} for who in items])
    return [None] * len(items)


def story(who: str) -> Flow:
    """Two transactions around a send; the second one has a substitute."""
    told = yield Tx(step=begin, item=who, key=who)
    assert told == f"begun {who}"
    reply = yield Send(request=REQUEST)
    assert isinstance(reply, WireReply)
    yield Tx(step=end, item=who, key=who, after_send=True, on_failure=Tx(step=instead, item=who, key=who))


@pytest.fixture
def desk(tmp_path: Any, open_engine: Callable[[str], sa.Engine]) -> Desk:
    engine = open_engine(f"sqlite:///{tmp_path}/notes.sqlite")
    with engine.begin() as conn:
        conn.execute(sa.text("CREATE TABLE notes (who TEXT, what TEXT)"))
    return Desk(Database(engine=engine, clock=FixedClock()))


def test_the_effects_of_a_flow_are_named(desk: Desk) -> None:
    """Steps by their names, sends as sends."""
    assert effects_of(story("a"), desk.database, desk.send) == ["begin", "send", "end"]
    assert desk.notes("a") == ["begin", "end"]


@pytest.mark.parametrize(
    ("at", "how", "ended", "notes", "sent"),
    [
        (1, How.DIES_BEFORE, End.KILLED, [], 0),
        (1, How.DIES_AFTER, End.KILLED, ["begin"], 0),
        (2, How.DIES_BEFORE, End.KILLED, ["begin"], 0),
        (2, How.DIES_AFTER, End.KILLED, ["begin"], 1),
        (3, How.DIES_BEFORE, End.KILLED, ["begin"], 1),
        (3, How.DIES_AFTER, End.KILLED, ["begin", "end"], 1),
        (1, How.ROLLS_BACK, End.FINISHED, ["begin", "end"], 1),
        (1, How.COMMITS_UNHEARD, End.FINISHED, ["begin", "begin", "end"], 1),
        (3, How.COMMITS_UNHEARD, End.FINISHED, ["begin", "end", "end"], 1),
        (1, How.BREAKS, End.ABANDONED, [], 0),
        (3, How.BREAKS, End.FINISHED, ["begin", "instead"], 1),
        (4, How.DIES_BEFORE, End.FINISHED, ["begin", "end"], 1),
    ],
)
def test_a_death_is_exactly_where_and_how_it_was_appointed(
    desk: Desk, at: int, how: How, ended: End, notes: list[str], sent: int
) -> None:
    """Before: nothing of the effect. After: all of it, and the flow never hears. Failures follow the drivers' rules."""
    death = Death(at=at, how=how)
    assert run_dying(story("a"), desk.database, desk.send, death) is ended
    assert desk.notes("a") == notes
    assert desk.sent == sent
    assert death.struck is (at < 4)


class Guard(Database):
    """A database that does something of its own after each commit, as a guarded one does."""

    guarded: ClassVar[list[str]] = []

    def commit(self, step: Step, txs: Sequence[Tx]) -> list[Any]:
        results = super().commit(step, txs)
        self.guarded.append(step_name(step))
        return results


def test_what_a_database_does_around_a_commit_is_done_under_a_death_too(desk: Desk) -> None:
    """A state directory that is new and was not told of the first send would be refused at the second."""
    guard = Guard(engine=desk.database.engine, clock=desk.database.clock)
    run_dying(story("a"), guard, desk.send, Death(at=3, how=How.COMMITS_UNHEARD))
    assert guard.guarded == ["begin", "end", "end"]
    run_dying(story("b"), guard, desk.send, Death(at=3, how=How.DIES_BEFORE))
    assert guard.guarded == ["begin", "end", "end", "begin"]


def test_a_failure_never_strikes_a_send(desk: Desk) -> None:
    """A transport answers, whatever happens: only a death can fall on it."""
    death = Death(at=2, how=How.ROLLS_BACK)
    assert run_dying(story("a"), desk.database, desk.send, death) is End.FINISHED
    assert death.is_reached
    assert not death.struck


def test_every_death_comes_once_and_no_other(desk: Desk) -> None:
    """Three effects: both deaths at each, the failures at the two transactions."""
    runs = iter(range(100))

    def scenario(death: Death) -> None:
        run_dying(story(f"run {next(runs)}"), desk.database, desk.send, death)

    met = [(death.at, death.how) for death in every_death(scenario) if death.struck]
    deaths = [(at, how) for how in (How.DIES_BEFORE, How.DIES_AFTER) for at in (1, 2, 3)]
    failures = [(at, how) for how in (How.ROLLS_BACK, How.COMMITS_UNHEARD, How.BREAKS) for at in (1, 3)]
    assert met == deaths + failures


def test_a_death_tells_where_it_was() -> None:
    """For the message of a test that fails."""
    death = Death(at=2, how=How.DIES_AFTER)
    assert str(death) == "undisturbed"
    assert death.meet("begin") is None
    assert death.meet("send") is How.DIES_AFTER
    assert str(death) == "dies_after at effect 2 (send)"


def test_a_scenario_without_an_end_is_told() -> None:
    """A count that never ends is a mistake of the scenario."""

    def scenario(death: Death) -> None:
        death.effects += ["begin"] * death.at

    with pytest.raises(SimulatedBug, match="no end"):
        list(every_death(scenario))


def test_a_scenario_that_changes_between_its_runs_is_told(desk: Desk) -> None:
    """Deaths are counted in one run and met in others, so all must be alike."""
    flows = iter([story("a"), (effect for effect in ())])

    def scenario(death: Death) -> None:
        run_dying(next(flows), desk.database, desk.send, death)

    with pytest.raises(SimulatedBug, match="twice alike"):
        list(every_death(scenario))


def test_the_first_effects_may_be_left_alone(desk: Desk) -> None:
    """For stories that begin alike."""
    runs = iter(range(100))

    def scenario(death: Death) -> None:
        run_dying(story(f"run {next(runs)}"), desk.database, desk.send, death)

    assert {death.at for death in every_death(scenario, [How.DIES_AFTER], first=3) if death.struck} == {3}


def test_flows_are_woven_one_effect_at_a_time(desk: Desk) -> None:
    """A test decides who is next, and sees what would come."""
    weave = Interleaver(desk.database, desk.send)
    weave.add("a", story("a"))
    weave.add("b", story("b"))
    assert (weave.alive, weave.peek("a")) == (("a", "b"), "begin")
    weave.step("a")
    weave.step("b")
    weave.step("a")
    weave.kill("b")
    weave.run()
    assert weave.trace == [("a", "begin"), ("b", "begin"), ("a", "send"), ("a", "end")]
    assert (weave.alive, weave.peek("a"), desk.notes("b")) == ((), None, ["begin"])


def test_a_woven_flow_fails_as_the_drivers_say(desk: Desk) -> None:
    """What fails for good is replaced where the flow says by what, else abandoned."""

    def broken(conn: sa.Connection, items: Sequence[Any], *, now: dt.datetime) -> list[None]:
        raise SimulatedBug("never")

    def one() -> Flow:
        yield Tx(step=broken, item="a", key="a", on_failure=Tx(step=instead, item="a", key="a"))

    def two() -> Flow:
        yield Tx(step=broken, item="b", key="b")
        yield Tx(step=begin, item="b", key="b")

    weave = Interleaver(desk.database, desk.send)
    weave.add("one", one())
    weave.add("two", two())
    weave.run()
    assert desk.notes("a") == ["instead"]
    assert desk.notes("b") == []
    assert list(weave.abandoned) == ["two"]


def test_every_order_of_two_flows_is_run_once(desk: Desk) -> None:
    """Two flows of three effects: 20 orders, all different."""

    def make() -> Interleaver:
        weave = Interleaver(desk.database, desk.send)
        weave.add("a", story("a"))
        weave.add("b", story("b"))
        return weave

    orders = [tuple(name for name, _ in weave.trace) for weave in every_order(make)]
    assert len(orders) == len(set(orders)) == 20
