"""What the two engines do alike through store/dialect: bound rows, clocks, errors, wake-ups, a host's transaction."""

from __future__ import annotations

import datetime as dt
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from pushlink.errors import CallerError, ConfigurationError, Contended
from pushlink.protocol.states import AttemptStatus
from pushlink.store import dialect
from pushlink.store.access import reading
from pushlink.store.tables import UtcTime, checkpoint_mark, operator_action

NOW = dt.datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=dt.UTC)
COLUMNS: dict[str, sa.types.TypeEngine[Any]] = {
    "words": sa.Text(),
    "big": sa.BigInteger(),
    "small": sa.Integer(),
    "truth": sa.Boolean(),
    "moment": UtcTime(),
    "octets": sa.LargeBinary(),
    "ratio": sa.Float(),
}
ROWS: list[tuple[Any, ...]] = [
    ("Grüße \U0001f600 'quote' \"double\" \\ {brace}, NULL", 2**63 - 1, -(2**31), True, NOW, bytes(range(256)), 0.1),
    (None, None, None, None, None, None, None),
    ("", 0, 0, False, NOW.replace(microsecond=0), b"", -1.5),
    ("NULL", -(2**63), 7, True, dt.datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC), b"\x00", 1e300),
    (" \t\n\u2028", 1, 1, False, NOW.astimezone(dt.timezone(dt.timedelta(hours=14))), b"{}", 0.0),
]


def read_back(conn: sa.Connection, rows: list[Any], columns: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    source = dialect.array_rows(conn, "given", columns or COLUMNS, rows)
    return [tuple(row) for row in conn.execute(sa.select(source).order_by(source.c.ordinality))]


# ------------------------------------------------------------------------------------------------ bound rows


def test_bound_rows_come_back_as_they_went_in(engine: sa.Engine) -> None:
    """Every type, every null and every position survives the way into the database and back."""
    with engine.begin() as conn:
        expected = [(*row, place) for place, row in enumerate(ROWS, start=1)]
        assert read_back(conn, ROWS) == expected
        assert read_back(conn, [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]) == expected


def test_bound_times_are_utc(engine: sa.Engine) -> None:
    """A time that was given in another zone is the same instant in UTC."""
    with engine.begin() as conn:
        moments = [row[4] for row in read_back(conn, ROWS) if row[4] is not None]
    assert {moment.utcoffset() for moment in moments} == {dt.timedelta(0)}


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_may_hold_nulls_alone(engine: sa.Engine, column: str) -> None:
    """A column without a single value keeps its type."""
    with engine.begin() as conn:
        assert read_back(conn, [(None,), (None,)], {column: COLUMNS[column]}) == [(None, 1), (None, 2)]


def test_no_rows_are_a_table_without_rows(engine: sa.Engine) -> None:
    """An empty list is no special case for the caller."""
    with engine.begin() as conn:
        assert read_back(conn, []) == []


def test_an_enum_is_bound_as_its_text(engine: sa.Engine) -> None:
    """Statuses may be bound as they are, beside plain texts."""
    with engine.begin() as conn:
        rows = [(AttemptStatus.PENDING,), ("other",)]
        assert read_back(conn, rows, {"status": sa.Text()}) == [("pending", 1), ("other", 2)]


def test_text_with_nul_is_refused_on_both_engines(engine: sa.Engine) -> None:
    """Neither engine keeps a NUL in a text: SQLite would cut the text there, so it is refused before."""
    with engine.begin() as conn, pytest.raises(CallerError, match=r"'words'.*NUL"):
        read_back(conn, [("be\0fore",)], {"words": sa.Text()})


def test_a_row_of_another_width_is_refused(engine: sa.Engine) -> None:
    """A value is never taken for another column's."""
    with engine.begin() as conn, pytest.raises(CallerError, match="2 values, but 1"):
        read_back(conn, [("a", "b")], {"words": sa.Text()})


def test_a_statement_over_bound_rows_is_compiled_once(engine: sa.Engine) -> None:
    """The number of rows and their values are parameters, so one row and a thousand share a compiled statement."""
    compiled: dict[Any, Any] = {}
    with engine.begin() as plain:
        conn = plain.execution_options(compiled_cache=compiled)
        for count in (1, 0, 3, 1000):
            assert len(read_back(conn, ROWS[:1] * count)) == count
        assert len(compiled) == 1
        read_back(conn, [("x",)], {"other": sa.Text()})
        assert len(compiled) == 2


def test_bound_rows_insert_and_update_in_one_statement(engine: sa.Engine) -> None:
    """INSERT ... SELECT leaves out what is there, UPDATE ... FROM touches the rows that match, both name them."""
    table = checkpoint_mark
    columns: dict[str, Any] = {"state_id": sa.Text(), "mark": sa.BigInteger(), "updated_at": UtcTime()}
    with engine.begin() as conn:
        for names, expected in ((["a", "b"], ["a", "b"]), (["b", "c"], ["c"])):
            rows = dialect.array_rows(conn, "fresh", columns, [(name, 1, NOW) for name in names])
            chosen = sa.select(*(rows.c[name] for name in columns))
            insert = dialect.insert_ignore(table).from_select(list(columns), chosen).returning(table.c.state_id)
            assert sorted(conn.execute(insert).scalars()) == expected
        rows = dialect.array_rows(conn, "moved", columns, [("a", 7, NOW), ("missing", 9, NOW)])
        update = (
            sa.update(table)
            .where(table.c.state_id == rows.c.state_id)
            .values(mark=table.c.mark + rows.c.mark)
            .returning(table.c.state_id, table.c.mark)
        )
        assert [tuple(row) for row in conn.execute(update)] == [("a", 8)]


def test_a_conflict_of_plain_rows_is_left_out(engine: sa.Engine) -> None:
    """The insert takes lists of rows as well."""
    rows = [{"state_id": name, "mark": 1, "updated_at": NOW} for name in ("a", "b", "a")]
    with engine.begin() as conn:
        conn.execute(dialect.insert_ignore(checkpoint_mark), rows)
        assert conn.execute(sa.select(sa.func.count()).select_from(checkpoint_mark)).scalar_one() == 2


# ------------------------------------------------------------------------------------------------ engines


def test_the_clock_is_the_database_s_and_moves_inside_a_transaction(engine: sa.Engine) -> None:
    """Two readings in one transaction differ: it is not the time at which the transaction began."""
    with engine.begin() as conn:
        first = dialect.current_time(conn)
        deadline = time.monotonic() + 5
        while (second := dialect.current_time(conn)) <= first and time.monotonic() < deadline:
            pass
    assert first < second
    assert first.utcoffset() == dt.timedelta(0)
    assert abs(first - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)


def test_the_timeline_stays_while_the_database_does(engine: sa.Engine) -> None:
    """The same server tells the same timeline on every connection."""
    with engine.begin() as one:
        first = dialect.timeline(one)
    engine.dispose()
    with engine.begin() as other:
        assert dialect.timeline(other) == first


def test_a_savepoint_rolls_back_alone(engine: sa.Engine) -> None:
    """What was done before a savepoint that failed is still there, and what is done after it too."""
    insert = checkpoint_mark.insert()
    with engine.begin() as conn:
        conn.execute(insert, {"state_id": "before", "mark": 1, "updated_at": NOW})
        with conn.begin_nested() as savepoint:
            conn.execute(insert, {"state_id": "inside", "mark": 1, "updated_at": NOW})
            savepoint.rollback()
        conn.execute(insert, {"state_id": "after", "mark": 1, "updated_at": NOW})
    with engine.begin() as conn:
        found = conn.execute(sa.select(checkpoint_mark.c.state_id).order_by(checkpoint_mark.c.state_id)).scalars()
        assert list(found) == ["after", "before"]


def test_an_error_shows_no_parameter(engine: sa.Engine) -> None:
    """A value that was bound appears in no message (S8)."""
    row = {"state_id": "hush-hush", "mark": 1, "updated_at": NOW}
    with engine.begin() as conn, pytest.raises(sa.exc.IntegrityError) as caught:
        conn.execute(checkpoint_mark.insert(), [row, row])
    assert "hush-hush" not in str(caught.value).replace(str(caught.value.orig), "")


def test_writers_of_a_file_take_turns_from_the_start(sqlite_url: str, open_engine: Callable[[str], sa.Engine]) -> None:
    """A transaction that only read so far keeps other writers out already, and readers never wait."""
    engine = open_engine(sqlite_url)
    impatient = dialect.create_engine(sqlite_url, connect_args={"timeout": 0.05})
    try:
        with engine.begin() as first:
            first.execute(sa.select(checkpoint_mark)).all()
            with pytest.raises(sa.exc.OperationalError) as caught, impatient.begin():
                pass
            assert dialect.is_busy(caught.value)
            with dialect.read_only(impatient).begin() as reader:
                assert reader.execute(sa.select(checkpoint_mark)).all() == []
    finally:
        impatient.dispose()


def test_a_reader_cannot_write(pg_url: str, open_engine: Callable[[str], sa.Engine]) -> None:
    """On PostgreSQL a reading transaction refuses to write."""
    with dialect.read_only(open_engine(pg_url)).begin() as conn, pytest.raises(sa.exc.InternalError):
        conn.execute(checkpoint_mark.delete())


def test_memory_is_one_database_for_all_threads() -> None:
    """What one thread commits to a database in memory the next one sees."""
    engine = dialect.create_engine("sqlite://")
    with engine.begin() as conn:
        checkpoint_mark.create(conn)
    seen: list[int] = []

    def write() -> None:
        with engine.begin() as conn:
            conn.execute(
                checkpoint_mark.insert(), {"state_id": threading.current_thread().name, "mark": 1, "updated_at": NOW}
            )

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with engine.begin() as conn:
        seen.append(conn.execute(sa.select(sa.func.count()).select_from(checkpoint_mark)).scalar_one())
    engine.dispose()
    assert seen == [8]


def test_another_database_is_refused() -> None:
    """There are two engines, and the message says so without the password."""
    with pytest.raises(ConfigurationError, match="mysql") as caught:
        dialect.create_engine("mysql://user:hush@host/db")
    assert "hush" not in str(caught.value.evidence)


@pytest.mark.parametrize("spelling", ["postgresql", "postgres", "postgresql+psycopg"])
def test_every_spelling_of_postgresql_means_psycopg_3(spelling: str) -> None:
    """An address as hosts write it is good enough."""
    engine = dialect.create_engine(f"{spelling}://host/db")
    assert engine.dialect.driver == "psycopg"


# ------------------------------------------------------------------------------------------------ errors


def refusal(engine: sa.Engine, table: sa.Table, *rows: dict[str, Any]) -> sa.exc.IntegrityError:
    *before, last = rows
    with engine.begin() as conn:
        for row in before:
            conn.execute(table.insert(), row)
    with pytest.raises(sa.exc.IntegrityError) as caught, engine.begin() as conn:
        conn.execute(table.insert(), last)
    return caught.value


def test_a_refused_key_is_named(engine: sa.Engine) -> None:
    """A unique key and a primary key are told by the names that the tables give them."""
    texts = ("tenant", "actor", "verb", "reason", "target_kind", "target_id", "previous_hash", "hash")
    action = {"at": NOW, **dict.fromkeys(texts, "same")}
    mark = {"state_id": "a", "mark": 1, "updated_at": NOW}
    unique = refusal(engine, operator_action, action, {**action, "id": 99})
    primary = refusal(engine, checkpoint_mark, mark, mark)
    null = refusal(engine, checkpoint_mark, {**mark, "mark": None})
    assert dialect.is_unique_violation(primary) == "pushlink_checkpoint_mark_pkey"
    assert dialect.is_unique_violation(null) is None
    assert dialect.is_unique_violation(ValueError("no")) is None
    assert dialect.is_unique_violation(unique) == "the_operator_chain_does_not_fork"


def test_a_locked_row_is_told_from_other_errors(pg_url: str, open_engine: Callable[[str], sa.Engine]) -> None:
    """NOWAIT says who holds the row; nothing else is taken for it."""
    engine = open_engine(pg_url)
    with engine.begin() as conn:
        conn.execute(checkpoint_mark.insert(), {"state_id": "a", "mark": 1, "updated_at": NOW})
    locked = sa.select(checkpoint_mark).with_for_update(nowait=True)
    with engine.begin() as one, engine.connect() as two:
        one.execute(locked)
        with pytest.raises(sa.exc.OperationalError) as caught:
            two.execute(locked)
    assert dialect.is_lock_not_available(caught.value)
    assert not dialect.is_serialization_failure(caught.value)
    assert not dialect.is_connection_lost(caught.value)
    assert not dialect.is_busy(caught.value)


def test_a_lost_race_is_told_from_other_errors(pg_url: str, open_engine: Callable[[str], sa.Engine]) -> None:
    """A REPEATABLE READ transaction that meets a newer row has lost, and only a new one can win."""
    engine = open_engine(pg_url)
    with engine.begin() as conn:
        conn.execute(checkpoint_mark.insert(), {"state_id": "a", "mark": 1, "updated_at": NOW})
    bump = sa.update(checkpoint_mark).values(mark=checkpoint_mark.c.mark + 1)
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as slow, slow.begin():
        slow.execute(sa.select(checkpoint_mark)).all()
        with engine.begin() as quick:
            quick.execute(bump)
        with pytest.raises(sa.exc.OperationalError) as caught:
            slow.execute(bump)
    assert dialect.is_serialization_failure(caught.value)
    assert not dialect.is_connection_lost(caught.value)


def test_a_lost_connection_is_told_from_other_errors(pg_url: str, open_engine: Callable[[str], sa.Engine]) -> None:
    """A connection that the server ended is lost, and so is one that cannot be made."""
    engine = open_engine(pg_url)
    with engine.connect() as conn:
        victim = conn.execute(sa.select(sa.func.pg_backend_pid())).scalar_one()
        with engine.connect() as other:
            other.execute(sa.select(sa.func.pg_terminate_backend(victim, 5000)))
        with pytest.raises(sa.exc.OperationalError) as caught:
            conn.execute(sa.select(1))
    assert dialect.is_connection_lost(caught.value)
    nowhere = dialect.create_engine("postgresql://postgres@/db?host=/nowhere")
    with pytest.raises(sa.exc.OperationalError) as refused:
        nowhere.connect()
    assert dialect.is_connection_lost(refused.value)
    nowhere.dispose()


# ------------------------------------------------------------------------------------------------ wake-ups


def test_a_commit_wakes_the_listener_and_a_rollback_does_not(
    pg_url: str, open_engine: Callable[[str], sa.Engine]
) -> None:
    """A wake-up travels with the transaction that sent it."""
    engine = open_engine(pg_url)
    with dialect.listen(engine, "Some Channel") as listener:
        with engine.connect() as conn:
            dialect.notify(conn, "Some Channel")
            conn.rollback()
        assert not listener.wait(0.05)
        with engine.begin() as conn:
            dialect.notify(conn, "Some Channel")
            dialect.notify(conn, "another")
        assert listener.wait(10)
        assert not listener.wait(0.05)


def test_a_listener_whose_connection_was_cut_says_that_it_may_have_missed_something(
    pg_url: str, open_engine: Callable[[str], sa.Engine]
) -> None:
    """After a loss it connects anew, answers True once, and hears again."""
    engine = open_engine(pg_url)
    with dialect.listen(engine, "wake") as listener:
        with engine.begin() as conn:
            conn.execute(
                sa.text(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                    " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
                )
            )
        answers = [listener.wait(0.5) for _ in range(3)]
        assert answers.count(True) == 1
        with engine.begin() as conn:
            dialect.notify(conn, "wake")
        assert listener.wait(10)


def test_a_listener_is_woken_and_closed_from_another_thread(engine: sa.Engine) -> None:
    """On either engine `wake` ends a wait, `close` ends the last one, and a closed listener never waits again."""
    listener = dialect.listen(engine, "wake")
    answers: queue.Queue[bool] = queue.Queue()

    def wait_twice() -> None:
        answers.put(listener.wait(60))
        answers.put(listener.wait(60))

    thread = threading.Thread(target=wait_twice)
    thread.start()
    listener.wake()
    assert answers.get(timeout=10)
    listener.close()
    assert not answers.get(timeout=10)
    thread.join(10)
    assert not listener.wait(60)
    listener.wake()
    listener.close()


def test_without_a_wake_up_a_wait_times_out(engine: sa.Engine) -> None:
    """Polling is the fallback, so a wait must end by itself."""
    with dialect.listen(engine, "wake") as listener:
        assert not listener.wait(0.01)


# ------------------------------------------------------------------------------------------------ a host's transaction


@pytest.fixture
def host_engine(sqlite_url: str) -> Any:
    """An engine as a host makes it who never heard of pushlink."""
    engine = sa.create_engine(sqlite_url, connect_args={"timeout": 0.05})
    yield engine
    engine.dispose()


@pytest.mark.rule("D-44")
def test_an_engine_of_pushlink_needs_no_advice(engine: sa.Engine) -> None:
    """Its transactions begin with the right to write."""
    with engine.begin() as conn:
        assert dialect.warn_host_transaction(conn) is None
        assert dialect.secure_host_transaction(conn) is None


@pytest.mark.rule("D-44")
def test_a_savepoint_never_commits_for_a_host_whose_driver_had_not_begun(host_engine: sa.Engine) -> None:
    """The driver takes the release of its first savepoint for a commit; after securing, a rollback leaves nothing."""
    mark = {"state_id": "a", "mark": 1, "updated_at": NOW}
    with host_engine.connect() as conn:
        warning = dialect.secure_host_transaction(conn)
        assert warning is not None
        assert "IMMEDIATE" in warning
        with conn.begin_nested():
            conn.execute(checkpoint_mark.insert(), mark)
        conn.rollback()
    with host_engine.connect() as conn:
        assert conn.execute(sa.select(checkpoint_mark)).all() == []
        dialect.secure_host_transaction(conn)
        with conn.begin_nested():
            conn.execute(checkpoint_mark.insert(), mark)
        conn.commit()
    with host_engine.connect() as conn:
        assert len(conn.execute(sa.select(checkpoint_mark)).all()) == 1


@pytest.mark.rule("D-44")
def test_a_host_that_read_before_another_wrote_is_told_to_run_again(
    sqlite_url: str, open_engine: Callable[[str], sa.Engine], host_engine: sa.Engine
) -> None:
    """Its transaction can never write, and it learns that before pushlink did anything."""
    ours = open_engine(sqlite_url)
    with host_engine.connect() as conn:
        conn.exec_driver_sql("BEGIN")
        conn.execute(sa.select(checkpoint_mark)).all()
        with ours.begin() as other:
            other.execute(checkpoint_mark.insert(), {"state_id": "x", "mark": 1, "updated_at": NOW})
        with pytest.raises(Contended, match="cannot write any more") as caught:
            dialect.secure_host_transaction(conn)
        assert dialect.is_serialization_failure(caught.value.__cause__ or ValueError())


@pytest.mark.rule("D-44")
def test_a_host_that_only_read_becomes_the_writer(
    sqlite_url: str, open_engine: Callable[[str], sa.Engine], host_engine: sa.Engine
) -> None:
    """A deferred transaction is given the right to write at once, so that no later statement of it can fail for it."""
    ours = dialect.create_engine(sqlite_url, connect_args={"timeout": 0.05})
    with host_engine.connect() as conn:
        conn.exec_driver_sql("BEGIN")
        conn.execute(sa.select(checkpoint_mark)).all()
        assert "may have begun" in str(dialect.secure_host_transaction(conn))
        with pytest.raises(sa.exc.OperationalError), ours.begin():
            pass
    ours.dispose()


@pytest.mark.rule("D-44")
def test_a_connection_that_commits_by_itself_is_refused(engine: sa.Engine) -> None:
    """Without a transaction of the host there is nothing that a save could be part of."""
    with (
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn,
        pytest.raises(CallerError, match="AUTOCOMMIT"),
    ):
        dialect.secure_host_transaction(conn)


def test_sqlite_functions_serve_a_host_s_engine_too(host_engine: sa.Engine) -> None:
    """Bound bytes need no engine of pushlink's."""
    with host_engine.connect() as conn:
        assert read_back(conn, ROWS[:1])[0][5] == bytes(range(256))


def test_a_file_is_in_write_ahead_mode_for_everybody(sqlite_url: str, tmp_path: Path) -> None:
    """The mode is the file's, so another program sees it too."""
    with sqlite3.connect(tmp_path / "pushlink.sqlite") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


# ------------------------------------------------------------------------------------------------ who stands still

IDLE_LIMIT = "SELECT current_setting('idle_in_transaction_session_timeout')"


@pytest.mark.parametrize("wakes", [lambda conn: conn.exec_driver_sql("SELECT 1"), sa.Connection.commit])
def test_whoever_stands_still_in_a_transaction_loses_it(
    pg_url: str, monkeypatch: pytest.MonkeyPatch, wakes: Callable[[sa.Connection], object]
) -> None:
    """The server ends the session and frees its row; the one who slept is told that the connection is lost."""
    monkeypatch.setattr("pushlink.store.dialect.engines.IDLE_TIMEOUT_MS", 200)
    engine = dialect.create_engine(pg_url)
    change = sa.text("UPDATE pushlink_deployment SET updated_at = updated_at")
    with engine.connect() as sleeper:
        sleeper.execute(change)
        with engine.begin() as other:  # waits for the sleeper's row
            other.exec_driver_sql("SET LOCAL lock_timeout = '10s'")
            assert other.execute(change).rowcount == 1
        with pytest.raises(sa.exc.DBAPIError) as caught:
            wakes(sleeper)
    assert dialect.is_connection_lost(caught.value)
    assert caught.value.connection_invalidated
    with engine.connect() as conn:
        assert conn.execute(sa.select(1)).scalar_one() == 1
    engine.dispose()


def test_only_own_transactions_are_limited_and_readers_are_not(pg_url: str) -> None:
    """It outlives a rollback, gives way to what was set for the address, and leaves a host's engine alone."""
    own, chosen, host = (
        dialect.create_engine(pg_url),
        dialect.create_engine(pg_url, connect_args={"options": "-c idle_in_transaction_session_timeout=5s"}),
        sa.create_engine(pg_url),
    )
    for _ in range(2):
        with own.connect() as conn:
            assert conn.exec_driver_sql(IDLE_LIMIT).scalar_one() == "1min"
            conn.rollback()
    with reading(own) as conn:
        assert conn.exec_driver_sql(IDLE_LIMIT).scalar_one() == "0"
    for engine, expected in ((own, "1min"), (chosen, "5s"), (host, "0")):
        with engine.begin() as conn:
            assert conn.exec_driver_sql(IDLE_LIMIT).scalar_one() == expected
        engine.dispose()
