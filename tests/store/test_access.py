"""Transactions of commands: one that loses to somebody else's is begun again, whenever it is told so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from pushlink.errors import Contended
from pushlink.store import access

PLACES = sa.table("places", sa.column("id"), sa.column("count"))


@pytest.fixture
def at(pg_url: str, open_engine: Callable[[str], sa.Engine]) -> Callable[[str], sa.Engine]:
    """A function from an isolation level to an engine; the database has two places that count."""
    engine = open_engine(pg_url)
    with engine.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE places (id integer PRIMARY KEY, count integer NOT NULL)")
        conn.execute(sa.insert(PLACES), [{"id": 1, "count": 0}, {"id": 2, "count": 0}])
    return lambda level: engine.execution_options(isolation_level=level)


def count(conn: sa.Connection, place: int) -> int:
    return int(conn.execute(sa.select(PLACES.c.count).where(PLACES.c.id == place)).scalar_one())


def add(conn: sa.Connection, place: int, more: int = 1) -> None:
    conn.execute(sa.update(PLACES).where(PLACES.c.id == place).values(count=PLACES.c.count + more))


def test_a_statement_that_lost_is_run_again_in_a_new_transaction(at: Callable[[str], sa.Engine]) -> None:
    """Another transaction changes the row between the look and the change, once."""
    engine, others = at("REPEATABLE READ"), [1]

    def work(conn: sa.Connection) -> int:
        seen = count(conn, 1)
        while others:
            with engine.begin() as other:
                add(other, 1, others.pop())
        add(conn, 1, 10)
        return seen

    assert access.commit(engine, work) == 1
    with engine.begin() as conn:
        assert count(conn, 1) == 11


def test_a_commit_that_lost_is_run_again_as_well(at: Callable[[str], sa.Engine]) -> None:
    """Each of two transactions reads what the other one writes: the server refuses one of them when it commits."""
    engine, seen = at("SERIALIZABLE"), []

    def work(conn: sa.Connection) -> None:
        seen.append(count(conn, 1))
        if len(seen) == 1:
            with engine.begin() as other:
                count(other, 2)
                add(other, 1)
        add(conn, 2)

    access.commit(engine, work)
    assert seen == [0, 1]
    with engine.begin() as conn:
        assert (count(conn, 1), count(conn, 2)) == (1, 1)


def test_one_that_loses_each_time_says_so(at: Callable[[str], sa.Engine]) -> None:
    """And leaves nothing of its own."""
    engine = at("REPEATABLE READ")

    def work(conn: sa.Connection) -> None:
        add(conn, 2)
        with engine.begin() as other:
            add(other, 1)
        add(conn, 1)

    with pytest.raises(Contended, match="busy") as caught:
        access.commit(engine, work, tries=3)
    assert caught.value.next_step == "try again"
    with engine.begin() as conn:
        assert (count(conn, 1), count(conn, 2)) == (3, 0)
