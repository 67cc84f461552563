"""Two of everything, in every order of their effects: workers, a saving request, a lease that ends, a late waker."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from pushlink.flows.effects import Flow, Tx
from pushlink.flows.steps import Steps
from pushlink.flows.world import Remembered
from pushlink.testing.drain import claims_of
from pushlink.testing.driver import Death, How, Interleaver, every_death, every_order, worker_pass
from support.bench import PAST_THE_LEASE_S, PERSON, Bench

DEATHS = (How.DIES_BEFORE, How.DIES_AFTER)


@pytest.fixture
def bench(engine: sa.Engine, tmp_path: Path) -> Bench:
    """On each database; its workers have met the remote before."""
    return _bench(engine, tmp_path)


@pytest.fixture
def light_bench(sqlite_url: str, open_engine: Callable[[str], sa.Engine], tmp_path: Path) -> Bench:
    """On one database: every effect is a transaction of its own, so long orders need no second one."""
    return _bench(open_engine(sqlite_url), tmp_path)


def _bench(engine: sa.Engine, tmp_path: Path) -> Bench:
    directory = tmp_path / "bench"
    directory.mkdir()
    bench = Bench(engine, directory, mirror=True)
    bench.accepted = Remembered(8)
    return bench


def worker(bench: Bench) -> Flow:
    world = bench.world
    return worker_pass(claims_of(world), Steps(world))


def saves(bench: Bench, record: str, *names: str) -> Flow:
    """A request that changes a record and saves it, once for each name."""

    def save(conn: sa.Connection, items: Sequence[str], *, now: dt.datetime) -> list[Any]:
        for name in items:
            conn.execute(PERSON.update().where(PERSON.c.id == record).values(name=name))
        return [bench.runtime.save(conn, "Person", record, user="u1") for _ in items]

    for name in names:
        yield Tx(step=save, item=name, key=record)


def time_passes(bench: Bench) -> Flow:
    """The moment in which every lease ends."""

    def pass_by(conn: sa.Connection, items: Sequence[None], *, now: dt.datetime) -> list[None]:
        bench.clock.advance(seconds=PAST_THE_LEASE_S)
        return [None] * len(items)

    yield Tx(step=pass_by, item=None, key="")


def in_every_order(bench: Bench, make: Callable[[], tuple[str, dict[str, Flow]]]) -> int:
    """Run flows in every order, judge after each, recover and judge again; answers with the number of orders."""
    record, count = "", 0

    def set_up() -> Interleaver:
        nonlocal record
        record, flows = make()
        weave = Interleaver(bench.database, bench.wire.send_now)
        for name, flow in flows.items():
            weave.add(name, flow)
        return weave

    for weave in every_order(set_up):
        count += 1
        assert not weave.abandoned, weave.trace
        bench.check(weave.trace, settled=False, record=record)
        bench.recover()
        bench.check(weave.trace, settled=True, record=record)
        if "ambiguous_remote_effect" not in bench.statuses(record) + bench.statuses(record, "update"):
            assert remote_name(bench, record) == local_name(bench, record), weave.trace
    bench.check("every order", settled=True)
    return count


def remote_name(bench: Bench, record: str) -> str:
    [name] = [r.document["name"] for r in bench.wire.api.records if r.document["key"] == record]
    return str(name)


def local_name(bench: Bench, record: str) -> str:
    with bench.database.engine.begin() as conn:
        return str(conn.execute(sa.select(PERSON.c.name).where(PERSON.c.id == record)).scalar_one())


@pytest.mark.rule("AT-09", "C-078", "D-12")
def test_two_workers_in_any_order_send_once(bench: Bench) -> None:
    """The claim is the only owner."""

    def make() -> tuple[str, dict[str, Flow]]:
        return bench.new_record(), {"one": worker(bench), "two": worker(bench)}

    assert in_every_order(bench, make) > 1
    assert set(bench.wire.api.creates_by(lambda record: record.document["key"]).values()) == {1}


@pytest.mark.rule("PA-10", "RR-02", "C-082", "D-19")
def test_saves_in_any_order_around_a_create_are_all_honoured(bench: Bench) -> None:
    """One create, and the last wanted version is what the remote has in the end."""

    def make() -> tuple[str, dict[str, Flow]]:
        record = bench.new_record(name="Ada")
        return record, {"worker": worker(bench), "request": saves(bench, record, "Bea", "Cee")}

    assert in_every_order(bench, make) > 1


@pytest.mark.rule("PA-11", "D-19")
def test_saves_in_any_order_around_an_update_are_all_honoured(light_bench: Bench) -> None:
    """Updates of one link neither overlap nor overtake, whoever works on them."""
    bench = light_bench

    def make() -> tuple[str, dict[str, Flow]]:
        record = bench.linked_record()
        bench.save(record, name="Zoe")
        flows = {"one": worker(bench), "request": saves(bench, record, "Bea"), "two": worker(bench)}
        return record, flows

    assert in_every_order(bench, make) > 1


@pytest.mark.rule("AT-09", "D-12", "D-14")
@pytest.mark.parametrize("operation", ["create", "update"])
def test_a_worker_that_wakes_after_its_lease_changes_and_sends_nothing(light_bench: Bench, operation: str) -> None:
    """Its checkpoint is refused, and an answer that comes too late is kept as evidence, without a transition."""
    bench = light_bench

    def make() -> tuple[str, dict[str, Flow]]:
        record = bench.new_record() if operation == "create" else bench.linked_record()
        if operation == "update":
            bench.save(record, name="Zoe")
        return record, {"sleeper": worker(bench), "time": time_passes(bench), "successor": worker(bench)}

    assert in_every_order(bench, make) > 1
    with bench.database.engine.begin() as conn:
        late = conn.execute(sa.text("SELECT count(*) FROM pushlink_push_response WHERE late")).scalar_one()
    assert late > 0


@pytest.mark.rule("DR-27", "RR-04", "RR-05")
def test_a_recovery_that_dies_as_well_is_recovered(light_bench: Bench) -> None:
    """The first worker dies anywhere, its successor dies anywhere, and a third one finds all in order."""
    bench = light_bench
    record = ""

    def first(death: Death) -> None:
        nonlocal record
        record = bench.new_record()
        bench.work(death)

    for before in list(every_death(first, DEATHS)):
        bench.recover()
        if not before.struck:
            continue

        def both(death: Death, at: int = before.at, how: How = before.how) -> None:
            first(Death(at=at, how=how))
            bench.clock.advance(seconds=PAST_THE_LEASE_S)
            bench.work(death)

        for after in every_death(both, DEATHS):
            bench.recover()
            bench.check(f"{before}, then {after}", settled=True, record=record)
    bench.check("everything", settled=True)
