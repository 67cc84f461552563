"""Start-up refuses a database that would forget in a crash what it said was committed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from pushlink.errors import Code, ConfigurationError, Unavailable
from pushlink.store.dialect import check_durability, create_engine
from pushlink.store.dialect.library import has_wal_reset_bug


@pytest.mark.rule("D-36")
def test_databases_as_pushlink_opens_them_are_durable(engine: sa.Engine) -> None:
    """Its own engine never needs to be told."""
    with engine.begin() as conn:
        check_durability(conn)


@pytest.mark.rule("D-36")
def test_a_commit_that_does_not_wait_for_the_disk_is_refused(pg_url: str) -> None:
    """`synchronous_commit` off, wherever it was set, names itself, its value and what is wanted."""
    engine = create_engine(pg_url, connect_args={"options": "-c synchronous_commit=off"})
    with engine.begin() as conn, pytest.raises(ConfigurationError, match="synchronous_commit is off") as caught:
        check_durability(conn)
    engine.dispose()
    assert caught.value.code is Code.DURABILITY_WEAKENED
    assert caught.value.evidence == {"setting": "synchronous_commit", "value": "off", "wanted": "on"}
    assert caught.value.next_step


@pytest.mark.rule("D-36")
@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_does_not_reach_the_disk_is_refused(setting: str) -> None:
    """A server with `fsync` or `full_page_writes` off is refused, whatever its commits wait for."""
    from plugins import postgres as servers

    home = servers.new_home()
    server = servers.Server(home, settings={setting: "off"})
    server.start()
    try:
        engine = create_engine(server.url())
        with engine.begin() as conn, pytest.raises(ConfigurationError, match=f"{setting} is off"):
            check_durability(conn)
        engine.dispose()
    finally:
        server.stop()


@pytest.mark.rule("D-36")
@pytest.mark.parametrize(("level", "accepted"), [("OFF", False), ("NORMAL", False), ("FULL", True), ("EXTRA", True)])
def test_a_file_is_synchronous_in_full(
    sqlite_url: str, open_engine: Callable[[str], sa.Engine], level: str, accepted: bool
) -> None:
    """A write-ahead log that is not flushed at each commit may lose the newest ones."""
    with open_engine(sqlite_url).connect() as conn:
        conn.connection.driver_connection.execute(f"PRAGMA synchronous={level}")  # type: ignore[union-attr]
        if accepted:
            check_durability(conn)
        else:
            with pytest.raises(ConfigurationError, match=f"synchronous is {level.lower()}"):
                check_durability(conn)


@pytest.mark.rule("D-36")
def test_a_file_without_a_write_ahead_log_is_refused(tmp_path: object) -> None:
    """A host's own engine leaves a new file in another mode."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/plain.sqlite")
    with engine.begin() as conn, pytest.raises(ConfigurationError, match="journal_mode is delete"):
        check_durability(conn)
    engine.dispose()


@pytest.mark.rule("D-44")
def test_no_statement_runs_outside_of_a_transaction_that_could_not_begin(sqlite_url: str) -> None:
    """The file is locked for too long, and whoever waited tries again on the same connection: it is closed.

    SQLAlchemy takes a connection whose `begin` event raised for one that is beginning, and begins nothing on it again.
    """
    engine = create_engine(sqlite_url, connect_args={"timeout": 0.01})
    with engine.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE thing (id INTEGER PRIMARY KEY)")
    with engine.connect() as conn:
        with engine.begin(), pytest.raises(sa.exc.OperationalError, match="database is locked"):
            conn.exec_driver_sql("INSERT INTO thing VALUES (1)")
        with pytest.raises(sa.exc.ResourceClosedError):
            conn.exec_driver_sql("INSERT INTO thing VALUES (2)")
    with engine.begin() as conn:
        assert conn.exec_driver_sql("SELECT count(*) FROM thing").scalar_one() == 0
    engine.dispose()


@pytest.mark.rule("D-13")
def test_a_transaction_that_sqlite_ended_by_itself_is_not_taken_for_committed(sqlite_url: str) -> None:
    """After a full disk or a failed read the driver's commit finds nothing open, and says that all is well."""
    engine = create_engine(sqlite_url)
    with engine.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE thing (id INTEGER PRIMARY KEY)")
    with engine.connect() as conn:
        conn.exec_driver_sql("INSERT INTO thing VALUES (1)")
        conn.connection.driver_connection.rollback()  # type: ignore[union-attr]
        with pytest.raises(Unavailable, match="ended the transaction"):
            conn.commit()
    with engine.begin() as conn:
        assert conn.exec_driver_sql("SELECT count(*) FROM thing").scalar_one() == 0
    engine.dispose()


@pytest.mark.rule("D-36")
@pytest.mark.parametrize(
    ("version", "has_it"),
    [
        ("3.6.23", False),
        ("3.7.0", True),
        ("3.40.1", True),
        ("3.44.5", True),
        ("3.44.6", False),
        ("3.45.0", True),
        ("3.50.6", True),
        ("3.50.7", False),
        ("3.51.2", True),
        ("3.51.3", False),
        ("3.52.0", False),
        ("4.0.0", False),
    ],
)
def test_releases_of_sqlite_with_the_wal_reset_bug_are_known(version: str, has_it: bool) -> None:
    """From 3.7.0 on, mended in 3.51.3 and in two older branches."""
    assert has_wal_reset_bug(version) is has_it


@pytest.mark.rule("D-36")
def test_a_database_in_memory_is_for_tests(tmp_path: object) -> None:
    """It survives no crash at all, so it must be asked for."""
    engine = create_engine("sqlite://")
    with engine.begin() as conn:
        check_durability(conn, allow_memory=True)
        with pytest.raises(ConfigurationError, match="journal_mode is memory"):
            check_durability(conn)
    engine.dispose()
