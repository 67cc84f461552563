"""The grouping driver: what it owes to flows whatever their transactions do."""

from __future__ import annotations

import asyncio
import datetime as dt
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from pushlink.adapters.memory import FixedClock
from pushlink.errors import Unavailable
from pushlink.flows.drivers import TRIES_BEFORE_SEND, Database, Failed, GroupingDriver
from pushlink.flows.effects import Flow, Send, Tx
from pushlink.ports import WireReply, WireRequest
from pushlink.protocol.contracts import ProfileContract
from pushlink.protocol.evidence import WireTrace

REQUEST = WireRequest(
    profile=ProfileContract(base_url="http://127.0.0.1:1"),
    tenant="",
    method="POST",
    path="/things",
    headers=(),
    body=b"{}",
    fresh_connection=True,
)


class Gate:
    """A step that fails a few times for each item before it lets it through, as a locked slot does."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.tries: dict[int, int] = {}

    def __call__(self, conn: sa.Connection, items: Sequence[int], *, now: dt.datetime) -> list[bool]:
        for item in items:
            self.tries[item] = self.tries.get(item, 0) + 1
        if any(self.tries[item] <= self.failures for item in items):
            msg = "somebody holds the slot"
            raise Unavailable(msg)
        return [True for _ in items]


class Wire:
    """A transport that answers at once and counts."""

    def __init__(self) -> None:
        self.sent = 0

    async def send(self, request: WireRequest) -> WireReply:
        self.sent += 1
        return WireReply(trace=WireTrace(request_started=True))

    async def close(self) -> None:
        """Nothing is open."""


def run(gate: Gate, *, flows: int, sends_max: int) -> Wire:
    """Run flows of one gate and one send each, on a driver with few sends."""
    engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool, connect_args={"check_same_thread": False})

    def flow(number: int) -> Flow:
        let_through = yield Tx(step=gate, item=number, key=str(number))
        if let_through:
            yield Send(request=REQUEST)

    async def drive() -> Wire:
        wire = Wire()
        driver = GroupingDriver(
            Database(engine=engine, clock=FixedClock()), wire, gate=gate, threads=1, sends_max=sends_max
        )
        for number in range(flows):
            driver.start(flow(number))
        async with asyncio.timeout(30):
            await driver.wait_idle()
        await driver.close(grace_s=1)
        return wire

    try:
        return asyncio.run(drive())
    finally:
        engine.dispose()


@pytest.mark.rule("D-17")
@pytest.mark.parametrize("failures", [0, 1, TRIES_BEFORE_SEND - 1])
def test_a_gate_that_is_tried_again_keeps_no_send_for_itself(failures: int) -> None:
    """Every flow gets through with a single free send, however often its checkpoint had to be tried."""
    assert run(Gate(failures), flows=5, sends_max=1).sent == 5


@pytest.mark.rule("D-17")
def test_a_gate_that_never_opens_abandons_its_flows_and_sends_nothing() -> None:
    """Before a byte was sent patience ends; the rows are left to recovery."""
    gate: Any = Gate(1_000)
    assert run(gate, flows=3, sends_max=1).sent == 0


@pytest.mark.rule("D-12", "D-17")
def test_no_group_has_two_flows_of_one_key(tmp_path: Path) -> None:
    """Steps tell their items apart by what they are about; whoever asks for the same thing goes in a later group."""
    groups: list[list[int]] = []

    def step(conn: sa.Connection, items: Sequence[int], *, now: dt.datetime) -> list[None]:
        groups.append(list(items))
        return [None for _ in items]

    def flow(number: int) -> Flow:
        yield Tx(step=step, item=number, key=f"link {number % 3}")

    engine = sa.create_engine(f"sqlite:///{tmp_path / 'groups.sqlite'}")

    async def drive() -> None:
        database = Database(engine=engine, clock=FixedClock())
        driver = GroupingDriver(database, Wire(), gate=Gate(0), threads=3, group_max=4)
        for number in [0, 1, 3, 4, 2, 6]:
            driver.start(flow(number))
        async with asyncio.timeout(30):
            await driver.wait_idle()
        await driver.close(grace_s=1)

    try:
        asyncio.run(drive())
    finally:
        engine.dispose()
    assert groups == [[0, 1, 2], [3, 4], [6]]


def test_a_file_that_somebody_else_writes_to_is_waited_for_once_by_a_whole_group(tmp_path: Path) -> None:
    """Eight transactions of one group fail together: halves of them would wait for the busy timeout again and again."""
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'held.sqlite'}", connect_args={"timeout": 0.01})
    begun: list[str] = []

    @sa.event.listens_for(engine, "begin")
    def begin(conn: sa.Connection) -> None:
        begun.append("begin")
        conn.exec_driver_sql("BEGIN IMMEDIATE")

    holder = sqlite3.connect(tmp_path / "held.sqlite", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    gate = Gate(0)
    database = Database(engine=engine, clock=FixedClock())
    results = database.commit(gate, [Tx(step=gate, item=number, key=str(number)) for number in range(8)])
    holder.close()
    engine.dispose()
    assert [(type(result), result.transient) for result in results] == [(Failed, True)] * 8
    assert begun == ["begin"]
    assert gate.tries == {}
