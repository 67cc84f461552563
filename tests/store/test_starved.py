"""A database without room for a moment: what it says is recognised, and an answer of a remote is not lost over it."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from flows.stage import PACK, Stage
from pushlink.adapters.memory import FixedClock
from pushlink.adapters.rows import database_errors
from pushlink.flows.drivers import Database, run_flow
from pushlink.flows.effects import Flow, Tx
from pushlink.store import dialect
from pushlink.store.tables import checkpoint_mark

NOW = dt.datetime(2024, 2, 29, tzinfo=dt.UTC)


def fill_the_disk(conn: sa.Connection) -> None:
    """Let the database say that its disk is full: a bound on the file's pages, or the server's own SQLSTATE."""
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql("DO $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END $$")
    conn.exec_driver_sql("PRAGMA max_page_count = 1")
    try:
        big = {"state_id": "x" * 1_000_000, "mark": 1, "updated_at": NOW}
        conn.execute(checkpoint_mark.insert(), big)
    finally:
        conn.exec_driver_sql("PRAGMA max_page_count = 1073741823")


def test_a_full_disk_is_told_from_other_errors(engine: sa.Engine) -> None:
    """It is no lost connection and no lost race, and another transaction may succeed."""
    with pytest.raises(sa.exc.OperationalError) as caught, engine.begin() as conn:
        fill_the_disk(conn)
    assert dialect.is_starved(caught.value)
    for other in (dialect.is_connection_lost, dialect.is_serialization_failure, dialect.is_busy):
        assert not other(caught.value)
    assert not dialect.is_starved(ValueError())


def test_a_full_disk_is_not_blamed_on_a_record(engine: sa.Engine) -> None:
    """The record store leaves it to whoever owns the transaction."""
    with pytest.raises(sa.exc.OperationalError), engine.begin() as conn, database_errors("Person"):
        fill_the_disk(conn)


@pytest.mark.rule("D-13")
@pytest.mark.parametrize("tries", [1, 8])
def test_what_follows_a_send_is_tried_until_there_is_room(engine: sa.Engine, tries: int) -> None:
    """More often than before a send: what the remote answered is known nowhere else."""
    done: list[int] = []

    def record(conn: sa.Connection, items: Sequence[int], *, now: dt.datetime) -> list[None]:
        if len(done) < tries:
            done.append(0)
            fill_the_disk(conn)
        done.append(1)
        return [None]

    def flow() -> Flow:
        yield Tx(step=record, item=0, key="", after_send=True)

    run_flow(flow(), Database(engine=engine, clock=FixedClock()), lambda _: pytest.fail("sent"), until=_soon())
    assert done == [0] * tries + [1]


def _soon() -> float:
    return time.monotonic() + 30


@pytest.mark.rule("D-13")
def test_a_remote_id_outlives_a_full_disk(engine: sa.Engine, tmp_path: Path) -> None:
    """The transaction that writes the answer fails once, and the create is finalized all the same."""
    stage = Stage(engine, tmp_path, pack=PACK)
    stage.save(1, name="Ada", email="ada@example.com")
    flow = stage.paused().to_send()
    flow.step()
    record, filled = flow.effect.step, []

    def full_once(conn: sa.Connection, items: Sequence[object], *, now: dt.datetime) -> Sequence[object]:
        answers = record(conn, items, now=now)
        if not filled:
            filled.append(True)
            fill_the_disk(conn)
        return answers

    rest = flow.effect

    def go_on() -> Flow:
        value = yield Tx(step=full_once, item=rest.item, key=rest.key, after_send=rest.after_send)
        flow._advance(value)
        while flow.effect is not None:
            flow._advance((yield flow.effect))

    run_flow(go_on(), stage.database, stage.remote.send_now, until=_soon())
    assert filled
    assert stage.attempt()["status"] == "finalized"
    assert stage.link()["remote_id"] == stage.attempt()["remote_id"]
