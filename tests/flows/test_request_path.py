"""The request path: what a save does inside the host's own transaction, whatever kind of transaction that is."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Session

from flows.stage import PERSON, USER, MakeStage, Stage, action_of, pack_with
from pushlink.errors import CallerError, Code, Contended
from pushlink.flows.outcomes import Outcome, Queued, Refused, Reserved, Unchanged
from pushlink.store.dialect import is_serialization_failure

SAVERS = Path(__file__).with_name("savers.py")


class Base(DeclarativeBase):
    pass


class Person(Base):
    __table__ = PERSON


@pytest.fixture
def mapped(make_stage: MakeStage) -> Stage:
    """A stage whose person is a mapped class."""
    stage = make_stage()
    stage.runtime.bind(Person, "Person")
    return stage


# --------------------------------------------------------------------------------------- whose transaction


@pytest.mark.rule("RR-03", "D-44", "C-012")
@pytest.mark.parametrize("how", ["connection", "session", "savepoint"])
def test_a_rollback_of_the_host_leaves_nothing(mapped: Stage, how: str) -> None:
    """Slot, version, attempt, request and events go with the host's transaction, or with its savepoint."""
    before = mapped.census()
    with mapped.engine.connect() as conn, conn.begin() as transaction:
        inner = conn.begin_nested() if how == "savepoint" else None
        if how == "session":
            with Session(conn, join_transaction_mode="create_savepoint") as session:
                session.add(row := Person(id=1, name="Ada"))
                [outcome] = mapped.runtime.save(session, row, user=USER)
        else:
            mapped.put_in(conn, 1, name="Ada")
            [outcome] = mapped.runtime.save(conn, "Person", 1, user=USER)
        assert isinstance(outcome, Reserved)
        if inner is not None:
            inner.rollback()
            transaction.commit()
        else:
            transaction.rollback()
    assert mapped.census() == before
    mapped.drain()
    assert mapped.sends == 0


@pytest.mark.rule("D-44")
def test_a_session_is_flushed_and_never_committed(mapped: Stage) -> None:
    """A row that was only added is saved, by the class it is of; the commit stays the host's."""
    with Session(mapped.engine) as session:
        session.add(row := Person(id=1, name="Ada", email="ada@example.com"))
        [outcome] = mapped.runtime.save(session, row, user=USER)
        assert isinstance(outcome, Reserved)
        assert outcome.about.record_id == "1"
        assert session.in_transaction()
        session.commit()
    mapped.drain()
    assert mapped.link()["status"] == "finalized"


@pytest.mark.rule("D-44")
def test_an_async_session_saves_in_its_own_transaction(mapped: Stage, dialect: str) -> None:
    """`save_async` reserves, and its rollback leaves nothing."""
    pytest.importorskip("greenlet", reason="SQLAlchemy's asyncio needs greenlet")
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    url = mapped.engine.url.set(drivername="sqlite+aiosqlite") if dialect == "sqlite" else mapped.engine.url

    async def run() -> None:
        engine = create_async_engine(url)
        try:
            async with AsyncSession(engine) as session:
                session.add(row := Person(id=1, name="Ada"))
                [outcome] = await mapped.runtime.save_async(session, row, user=USER)
                assert isinstance(outcome, Reserved)
                await session.rollback()
            async with AsyncSession(engine) as session:
                session.add_all([first := Person(id=1, name="Ada"), second := Person(id=2, name="Bea")])
                outcomes = await mapped.runtime.save_many_async(session, [second, first], user=USER)
                assert [outcome.about.record_id for [outcome] in outcomes] == ["2", "1"]
                await session.commit()
        finally:
            await engine.dispose()

    asyncio.run(run())
    assert len(mapped.attempts()) == 2


@pytest.mark.rule("D-44")
def test_a_failure_of_a_save_does_not_poison_the_hosts_transaction(stage: Stage) -> None:
    """A save that raises (here: a table of pushlink's is gone) leaves the host its own work."""
    with stage.engine.begin() as conn:
        stage.put_in(conn, 1, name="Ada")
        conn.execute(sa.text("DROP TABLE pushlink_attempt_event"))
        with pytest.raises(sa.exc.DBAPIError, match="pushlink_attempt_event"):
            stage.runtime.save(conn, "Person", 1, user=USER)
        stage.put_in(conn, 2, name="Bea")
    assert stage.person(1)
    assert stage.person(2)
    assert stage.attempts() == []


@pytest.mark.rule("GT-05")
def test_a_pack_that_names_a_field_which_the_object_lacks_is_refused_not_raised(make_stage: MakeStage) -> None:
    """The pack's mistake never costs the host its transaction; the refusal names the field."""
    stage = make_stage(pack=pack_with(lambda d: action_of(d)["mappings"].append({"source": "wings", "target": "/w"})))
    with stage.engine.begin() as conn:
        stage.put_in(conn, 1, name="Ada")
        [outcome] = stage.runtime.save(conn, "Person", 1, user=USER)
    assert isinstance(outcome, Refused)
    assert outcome.code is Code.MAPPING_UNUSABLE
    assert "wings" in outcome.message
    assert stage.person(1)
    assert stage.attempts() == []


@pytest.mark.rule("GT-01")
def test_an_object_that_nobody_declared_is_the_callers_mistake(stage: Stage) -> None:
    """A wrong name is raised, not refused: it is no state of the database."""
    with stage.engine.begin() as conn, pytest.raises(CallerError, match="Nobody"):
        stage.runtime.save(conn, "Nobody", 1, user=USER)


@pytest.mark.rule("D-42")
@pytest.mark.parametrize("record_id", ["1", 1.0, True, None, (1,)])
def test_a_record_id_of_another_type_is_refused(stage: Stage, record_id: object) -> None:
    """The object's key is an integer: nothing else is turned into one."""
    stage.put(1, name="Ada")
    with stage.engine.begin() as conn, pytest.raises(CallerError):
        stage.runtime.save_many(conn, [("Person", record_id)], user=USER)
    assert stage.rows("push_slot") == []


@pytest.mark.rule("RR-02", "AT-07")
def test_save_many_answers_in_its_order_and_a_record_twice_is_saved_in_its_order(stage: Stage) -> None:
    """One list of outcomes a record; the second save of the same values finds them wanted already."""
    for number in (1, 2, 3):
        stage.put(number, name=f"Person {number}")
    with stage.engine.begin() as conn:
        outcomes = stage.runtime.save_many(conn, [("Person", n) for n in (3, 1, 3, 2)], user=USER)
    assert [outcome.about.record_id for [outcome] in outcomes] == ["3", "1", "3", "2"]
    assert [type(outcome) for [outcome] in outcomes] == [Reserved, Reserved, Unchanged, Reserved]
    assert len(stage.attempts()) == 3


# --------------------------------------------------------------------------------------- several at once


@pytest.mark.rule("AT-01", "C-093", "RR-02")
def test_fifty_savers_on_four_processes_leave_one_attempt(stage: Stage, tmp_path: Path, database_url: str) -> None:
    """One reservation, 49 observers, and in the end one POST."""
    stage.put(1, name="Ada", email="ada@example.com")
    counts = (13, 13, 12, 12)
    environment = {**os.environ, "PYTHONPATH": str(SAVERS.parent.parent)}
    children = [
        subprocess.Popen(
            [sys.executable, str(SAVERS), database_url, str(_home(tmp_path, n)), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for n, count in enumerate(counts)
    ]
    for child in children:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.flush()
    words = [word for child in children for word in child.communicate(timeout=120)[0].split()]
    assert [child.returncode for child in children] == [0, 0, 0, 0]
    assert Counter(words) == {"Reserved": 1, "Unchanged": 49}
    assert len(stage.attempts()) == 1
    stage.clock_forward(days=3_650)  # their clock is the database's
    stage.drain()
    assert stage.remote.api.creates == 1


def _home(tmp_path: Path, number: int) -> Path:
    home = tmp_path / f"saver-{number}"
    home.mkdir()
    return home


@pytest.fixture
def in_threads() -> Callable[..., list[BaseException]]:
    """A function that runs others at once and answers with what they raised."""
    raised: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told to the test
            raised.append(error)

    def run(*works: Callable[[], None]) -> list[BaseException]:
        threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return raised

    return run


@pytest.mark.rule("D-44", "D-10")
def test_hosts_that_save_the_same_records_in_other_orders_never_wait_in_a_circle(
    stage: Stage, in_threads: Callable[..., list[BaseException]]
) -> None:
    """What one call reserves is locked in link-key order, whatever the order it was asked in."""
    numbers = list(range(1, 9))
    for number in numbers:
        stage.put(number, name=f"Person {number}")
    start = threading.Barrier(2)

    def host(order: list[int]) -> Callable[[], None]:
        def run() -> None:
            start.wait(30)
            done = 0
            while done < 6:
                try:
                    with stage.engine.begin() as conn:
                        level = conn.get_isolation_level()
                        stage.runtime.save_many(conn, [("Person", n) for n in order], user=USER)
                except Contended:  # run it again: what a host at a level of its own choice is told (`make isolation`)
                    assert conn.dialect.name == "postgresql"
                    assert level in {"REPEATABLE READ", "SERIALIZABLE"}
                else:
                    done += 1

        return run

    assert in_threads(host(numbers), host(numbers[::-1])) == []
    assert len(stage.attempts()) == len(numbers)


@pytest.mark.rule("D-44", "AT-01", "D-10")
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("meanwhile", ["reserved", "finalized"])
def test_a_host_with_an_old_snapshot_never_makes_a_second_create(
    make_stage: MakeStage,
    pg_url: str,
    tmp_path: Path,
    open_engine: Callable[[str], sa.Engine],
    level: str,
    meanwhile: str,
) -> None:
    """Whoever reserved, or finished, after the host's snapshot is seen, or the host is told to run again."""
    stage = Stage(open_engine(pg_url), tmp_path, pack=pack_with())
    stage.put(1, name="Ada")
    with stage.engine.connect().execution_options(isolation_level=level) as conn:
        with conn.begin() as transaction:
            conn.execute(sa.select(PERSON)).all()  # the snapshot is taken here
            stage.save(1)
            if meanwhile == "finalized":
                stage.drain()
            if level == "READ COMMITTED":
                [outcome] = stage.runtime.save(conn, "Person", 1, user=USER)
                assert isinstance(outcome, Unchanged)
                transaction.commit()
            else:
                with pytest.raises(Contended, match="race") as caught:
                    stage.runtime.save(conn, "Person", 1, user=USER)
                assert caught.value.next_step
                transaction.rollback()
        with conn.begin():
            [again] = stage.runtime.save(conn, "Person", 1, user=USER)
    assert isinstance(again, Unchanged)
    stage.drain()
    assert len(stage.attempts()) == 1
    assert stage.remote.api.creates == 1


@pytest.mark.rule("D-44", "AT-01")
def test_a_host_whose_commit_is_refused_gets_its_drivers_error_and_runs_again(
    pg_url: str, tmp_path: Path, open_engine: Callable[[str], sa.Engine]
) -> None:
    """Two hosts at SERIALIZABLE name each a person after the other one: the server lets one of them commit."""
    stage = Stage(open_engine(pg_url), tmp_path, pack=pack_with())
    stage.save(3, name="Cid")  # what saves share is there: two hosts that write it first wait for each other
    stage.put(1, name="Ada")
    stage.put(2, name="Bea")
    engine = stage.engine.execution_options(isolation_level="SERIALIZABLE")

    def name_after(conn: sa.Connection, number: int, other: int) -> Outcome:
        name = conn.execute(sa.select(PERSON.c.name).where(PERSON.c.id == other)).scalar_one()
        stage.put_in(conn, number, name=f"{name}'s friend")
        [outcome] = stage.runtime.save(conn, "Person", number, user=USER)
        return outcome

    with engine.connect() as one, engine.connect() as two:
        name_after(one, 1, 2)
        assert isinstance(name_after(two, 2, 1), Reserved)
        one.commit()
        with pytest.raises(sa.exc.OperationalError) as caught:
            two.commit()
        assert is_serialization_failure(caught.value)
        two.rollback()
        assert len(stage.attempts()) == 2
        assert isinstance(name_after(two, 2, 1), Reserved)
        two.commit()
    stage.drain()
    assert stage.remote.api.creates == 3
    names = {stage.remote.api.record("people", stage.link(number)["remote_id"]).document["name"] for number in (1, 2)}
    assert names == {"Bea's friend", "Bea's friend's friend"}


@pytest.mark.rule("D-44", "D-17")
def test_a_slow_host_that_holds_a_slot_does_not_stop_a_group(
    pg_url: str, tmp_path: Path, open_engine: Callable[[str], sa.Engine]
) -> None:
    """The held row's answer is tried again; its neighbour's is recorded at once; nothing waits, and nothing is lost."""
    from pushlink.flows.drivers import Failed
    from pushlink.flows.step_items import Recorded

    stage = Stage(open_engine(pg_url), tmp_path, pack=pack_with())
    for number in (1, 2):
        stage.save(number, name=f"Person {number}")
    flows = [stage.paused_of(claimed).to_send() for claimed in stage.claim()]
    for flow in flows:
        flow.step()
    held, free = sorted(flows, key=lambda flow: flow.claimed.source.record_id)

    def change(conn: sa.Connection) -> None:
        stage.put_in(conn, 1, name="Changed")
        [outcome] = stage.runtime.save(conn, "Person", 1, user=USER)
        assert isinstance(outcome, Queued)

    try:
        with stage.engine.begin() as conn:
            level = conn.get_isolation_level()
            change(conn)
            results = stage.database.commit(held.effect.step, [held.effect, free.effect])
            assert isinstance(results[0], Failed)
            assert results[0].transient
            assert isinstance(results[1], Recorded)
    except sa.exc.OperationalError as refused:  # its commit, where workers are at that level too (`make isolation`)
        if level != "SERIALIZABLE" or not is_serialization_failure(refused):
            raise
        with stage.engine.begin() as conn:
            change(conn)
    held.finish()
    stage.drain()
    assert {link["status"] for link in stage.links()} == {"finalized"}
    assert stage.remote.api.record("people", stage.link(1)["remote_id"]).document["name"] == "Changed"


@pytest.mark.rule("D-44")
def test_a_sqlite_host_that_read_before_is_brought_to_write_or_told_to_run_again(
    sqlite_url: str, tmp_path: Path, open_engine: Callable[[str], sa.Engine]
) -> None:
    """An engine of the host's own does not begin IMMEDIATE: its save works, or it is `Contended`; never a lost row."""
    stage = Stage(open_engine(sqlite_url), tmp_path, pack=pack_with())
    stage.put(1, name="Ada")
    plain = sa.create_engine(sqlite_url)
    with plain.connect() as conn, conn.begin():
        [outcome] = stage.runtime.save(conn, "Person", 1, user=USER)
        assert isinstance(outcome, Reserved)
    stale = sa.create_engine(sqlite_url)
    sa.event.listen(stale, "connect", lambda dbapi, _: setattr(dbapi, "isolation_level", None))
    sa.event.listen(stale, "begin", lambda conn: conn.exec_driver_sql("BEGIN"))
    with stale.connect() as conn, conn.begin() as transaction:
        conn.execute(sa.select(PERSON)).all()
        stage.put(1, name="Changed meanwhile")
        with pytest.raises(Contended):
            stage.runtime.save(conn, "Person", 1, user=USER)
        transaction.rollback()
    plain.dispose()
    stale.dispose()
    assert len(stage.attempts()) == 1


@pytest.mark.rule("D-44")
def test_a_connection_that_commits_by_itself_is_refused(stage: Stage) -> None:
    """Without a transaction there is nothing that record and reservation could share."""
    stage.put(1, name="Ada")
    auto = stage.engine.execution_options(isolation_level="AUTOCOMMIT")
    with auto.connect() as conn, pytest.raises(CallerError, match="commits"):
        stage.runtime.save(conn, "Person", 1, user=USER)
    assert stage.attempts() == []


@pytest.mark.rule("GT-10", "RR-02")
def test_a_refusal_is_an_outcome_and_the_host_commits_its_own_work(stage: Stage) -> None:
    """Nothing is raised; what the host wrote beside it stays."""
    with stage.engine.begin() as conn:
        stage.put_in(conn, 2, name="Bea")
        [outcome] = stage.runtime.save(conn, "Person", 1, user=USER)
    assert isinstance(outcome, Refused)
    assert outcome.message
    assert stage.person(2)
