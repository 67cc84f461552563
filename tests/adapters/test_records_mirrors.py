"""Mirror fields in a host's tables: over nothing foreign, each by itself; errors of the database pass as they are."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from adapters.hosts import declare, ref, run, statements_of
from pushlink.adapters.records import SqlRecordStore
from pushlink.errors import ConfigurationError
from pushlink.ports import MirrorResult, MirrorWrite
from pushlink.store.dialect import is_connection_lost, is_lock_not_available

# --------------------------------------------------------------------------------------- mirrors


MIRRORED = declare("Item", "item", ("id", "integer"))


def mirrored(engine: sa.Engine, *rows: tuple[int, str | None, str | None]) -> SqlRecordStore:
    run(engine, "CREATE TABLE item (id integer PRIMARY KEY, remote_id text, source text)")
    with engine.begin() as conn:
        table = sa.table("item", sa.column("id"), sa.column("remote_id"), sa.column("source"))
        conn.execute(table.insert(), [{"id": i, "remote_id": r, "source": s} for i, r, s in rows])
    return SqlRecordStore([MIRRORED])


def mirror(
    record_id: int,
    new: str | None,
    source: str | None = "crm",
    *,
    was: str | None = None,
    was_source: str | None = None,
) -> MirrorWrite:
    values = {"remote_id": new, "source": source}
    return MirrorWrite(
        ref=ref("Item", str(record_id)), values=values, expected={"remote_id": was, "source": was_source}
    )


def stored(engine: sa.Engine) -> list[tuple[object, ...]]:
    with engine.connect() as conn:
        return [tuple(row) for row in conn.exec_driver_sql("SELECT id, remote_id, source FROM item ORDER BY id")]


@pytest.mark.rule("PO-06")
def test_a_mirror_never_overwrites_a_foreign_value(host: sa.Engine) -> None:
    """Expected and new values may stand there; anything else stays, in whichever field, and the status says so."""
    rows = [
        (1, None, None),
        (2, "r-2", "crm"),
        (3, "theirs", None),
        (4, None, "theirs"),
        (5, "old", "crm"),
        (6, "", None),
    ]
    store = mirrored(host, *rows)
    writes = [mirror(n, f"r-{n}") for n in (1, 2, 3, 4)] + [
        mirror(5, "r-5", was="old"),
        mirror(6, "r-6"),
        mirror(7, "r-7"),
    ]
    with host.begin() as conn:
        results = store.write_mirrors(conn, writes)
    written, foreign = MirrorResult.WRITTEN, MirrorResult.FOREIGN_VALUE
    assert results == [written, written, foreign, foreign, written, foreign, MirrorResult.SOURCE_GONE]
    assert stored(host) == [
        (1, "r-1", "crm"),
        (2, "r-2", "crm"),
        (3, "theirs", None),
        (4, None, "theirs"),
        (5, "r-5", "crm"),
        (6, "", None),
    ]


@pytest.mark.rule("PO-06")
def test_a_mirror_is_idempotent(host: sa.Engine) -> None:
    store = mirrored(host, (1, None, None))
    with host.begin() as conn:
        assert store.write_mirrors(conn, [mirror(1, "r-1")]) == [MirrorResult.WRITTEN]
    seen = statements_of(host)
    with host.begin() as conn:
        assert store.write_mirrors(conn, [mirror(1, "r-1")] * 3) == [MirrorResult.WRITTEN] * 3
    assert not [statement for statement in seen if statement.startswith("UPDATE")]


@pytest.mark.rule("PO-06")
def test_writes_of_one_record_see_each_other(host: sa.Engine) -> None:
    store = mirrored(host, (1, None, None))
    with host.begin() as conn:
        results = store.write_mirrors(conn, [mirror(1, "a"), mirror(1, "b"), mirror(1, "c", was="a", was_source="crm")])
    assert results == [MirrorResult.WRITTEN, MirrorResult.FOREIGN_VALUE, MirrorResult.WRITTEN]
    assert stored(host) == [(1, "c", "crm")]


@pytest.mark.rule("PO-03")
def test_a_deleted_row_is_not_written_anew(host: sa.Engine) -> None:
    store = mirrored(host, (1, None, None))
    with host.begin() as conn:
        assert store.write_mirrors(conn, [mirror(2, "r-2")]) == [MirrorResult.SOURCE_GONE]
    assert stored(host) == [(1, None, None)]


def test_a_mirror_that_is_no_longer_declared_fails_and_its_neighbours_are_written(host: sa.Engine) -> None:
    """Frozen long ago, it may name an object or a field that the settings have dropped since."""
    store = mirrored(host, (1, None, None))
    field = MirrorWrite(ref=ref("Item", "1"), values={"dropped": "r-1"}, expected={"dropped": None})
    unknown = MirrorWrite(ref=ref("Dropped", "1"), values={"remote_id": "r-1"}, expected={"remote_id": None})
    with host.begin() as conn:
        results = store.write_mirrors(conn, [field, mirror(1, "r-1"), unknown])
    assert results == [MirrorResult.FAILED, MirrorResult.WRITTEN, MirrorResult.FAILED]


def test_a_hundred_mirrors_are_a_handful_of_statements(host: sa.Engine) -> None:
    store = mirrored(host, *((n, None, None) for n in range(100)))
    with host.begin() as conn:
        store.reflect(conn)
        seen = statements_of(host)
        assert (
            store.write_mirrors(conn, [mirror(n, f"r-{n}") for n in reversed(range(100))])
            == [MirrorResult.WRITTEN] * 100
        )
    assert [statement.split()[0] for statement in seen] == ["SAVEPOINT", "SELECT", "UPDATE", "RELEASE"]
    assert stored(host) == [(n, f"r-{n}", "crm") for n in range(100)]


def test_an_integer_mirror_takes_digits_only(host: sa.Engine) -> None:
    run(host, "CREATE TABLE item (id integer PRIMARY KEY, remote_id integer, day date)")
    run(host, "INSERT INTO item VALUES (1, NULL, NULL), (2, NULL, NULL), (3, 30, NULL), (4, 40, NULL), (5, NULL, NULL)")
    store = SqlRecordStore([MIRRORED])

    def write(n: int, new: str | None, was: str | None = None) -> MirrorWrite:
        return MirrorWrite(ref=ref("Item", str(n)), values={"remote_id": new}, expected={"remote_id": was})

    writes = [write(1, "17"), write(2, "0x11"), write(3, "30"), write(4, None, was="40"), write(5, "007")]
    writes.append(MirrorWrite(ref=ref("Item", "1"), values={"day": "2024-01-01"}, expected={"day": None}))
    writes.append(MirrorWrite(ref=ref("Item", "1"), values={"id": "9"}, expected={"id": "1"}))
    written, failed = MirrorResult.WRITTEN, MirrorResult.FAILED
    with host.begin() as conn:
        assert store.write_mirrors(conn, writes) == [written, failed, written, written, failed, failed, failed]
        rows = conn.exec_driver_sql("SELECT id, remote_id, day FROM item ORDER BY id")
        assert [tuple(row) for row in rows] == [
            (1, 17, None),
            (2, None, None),
            (3, 30, None),
            (4, None, None),
            (5, None, None),
        ]


@pytest.mark.rule("D-17")
def test_a_row_that_the_database_refuses_fails_alone(host: sa.Engine) -> None:
    run(
        host,
        "CREATE TABLE item (id integer PRIMARY KEY, remote_id text UNIQUE CHECK (remote_id <> 'bad'), source text)",
    )
    run(
        host,
        "INSERT INTO item VALUES (1, NULL, NULL), (2, NULL, NULL), (3, NULL, NULL), (4, 'taken', NULL), (5, NULL, '')",
    )
    store = SqlRecordStore([MIRRORED])
    writes = [mirror(1, "r-1"), mirror(2, "bad"), mirror(3, "taken"), mirror(5, "r-5", was_source="")]
    written, failed = MirrorResult.WRITTEN, MirrorResult.FAILED
    with host.begin() as conn:
        assert store.write_mirrors(conn, writes) == [written, failed, failed, written]
    expected = [(1, "r-1", "crm"), (2, None, None), (3, None, None), (4, "taken", None), (5, "r-5", "crm")]
    assert stored(host) == expected


def test_what_does_not_fit_a_column_fails_alone(pg_host: sa.Engine) -> None:
    run(pg_host, "CREATE TABLE item (id integer PRIMARY KEY, remote_id varchar(5), source char(5))")
    run(pg_host, "INSERT INTO item SELECT n FROM generate_series(1, 4) n")
    store = SqlRecordStore([MIRRORED])
    writes = [mirror(1, "r-1"), mirror(2, "too long"), mirror(3, "n\x00l"), mirror(4, "r-4")]
    written, failed = MirrorResult.WRITTEN, MirrorResult.FAILED
    for _ in range(2):  # the second time over blank-padded text
        with pg_host.begin() as conn:
            assert store.write_mirrors(conn, writes) == [written, failed, failed, written]


def test_an_update_that_the_database_swallows_is_not_called_written(pg_host: sa.Engine) -> None:
    store = mirrored(pg_host, (1, None, None), (2, None, None))
    run(
        pg_host,
        "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN IF NEW.id = 1 THEN RETURN NULL; END IF; RETURN NEW; END'",
        "CREATE TRIGGER swallow BEFORE UPDATE ON item FOR EACH ROW EXECUTE FUNCTION swallow()",
    )
    with pg_host.begin() as conn:
        results = store.write_mirrors(conn, [mirror(1, "r-1"), mirror(2, "r-2")])
    assert results == [MirrorResult.FOREIGN_VALUE, MirrorResult.WRITTEN]
    assert stored(pg_host) == [(1, None, None), (2, "r-2", "crm")]


@pytest.mark.parametrize(
    "how", ["SELECT * FROM item WHERE id = 2 FOR UPDATE", "UPDATE item SET source = 'theirs' WHERE id = 2"]
)
def test_a_row_that_the_host_holds_is_skipped_and_its_neighbours_are_written(pg_host: sa.Engine, how: str) -> None:
    store = mirrored(pg_host, (1, None, None), (2, None, None), (3, None, None))
    with pg_host.connect() as slow:
        slow.exec_driver_sql(how)
        with pg_host.begin() as conn:
            conn.exec_driver_sql("SET LOCAL statement_timeout = '10s'")
            results = store.write_mirrors(conn, [mirror(n, f"r-{n}") for n in (3, 2, 1, 4)])
        slow.rollback()
    written = MirrorResult.WRITTEN
    assert results == [written, MirrorResult.LOCKED, written, MirrorResult.SOURCE_GONE]
    with pg_host.begin() as conn:
        assert store.write_mirrors(conn, [mirror(2, "r-2")]) == [written]
    assert stored(pg_host) == [(n, f"r-{n}", "crm") for n in (1, 2, 3)]


def test_a_foreign_key_that_points_at_the_row_does_not_hold_a_mirror_up(pg_host: sa.Engine) -> None:
    """Others that insert a row which references ours hold a key share lock; a mirror goes along with it."""
    store = mirrored(pg_host, (1, None, None))
    run(pg_host, "CREATE TABLE child (item_id integer REFERENCES item)")
    with pg_host.connect() as other:
        other.exec_driver_sql("INSERT INTO child VALUES (1)")
        with pg_host.begin() as conn:
            assert store.write_mirrors(conn, [mirror(1, "r-1")]) == [MirrorResult.WRITTEN]


def test_a_table_that_somebody_holds_counts_as_locked(pg_host: sa.Engine) -> None:
    store = mirrored(pg_host, (1, None, None))
    with pg_host.connect() as warm:
        store.reflect(warm)
    with pg_host.connect() as migration:
        migration.exec_driver_sql("LOCK TABLE item IN ACCESS EXCLUSIVE MODE")
        with pg_host.begin() as conn:
            conn.exec_driver_sql("SET LOCAL lock_timeout = '50ms'")
            assert store.write_mirrors(conn, [mirror(1, "r-1")]) == [MirrorResult.LOCKED]
            assert conn.exec_driver_sql("SELECT 1").scalar() == 1


# --------------------------------------------------------------------------------------- errors of the database


def test_a_lost_connection_passes_as_it_is(pg_host: sa.Engine) -> None:
    """Whoever owns the transaction knows it by its state and may run it again; nothing is called refused or locked."""
    store = mirrored(pg_host, (1, None, None))
    for call in (
        lambda conn: store.records_exist(conn, [ref("Item", "1")]),
        lambda conn: store.write_mirrors(conn, [mirror(1, "r-1"), mirror(2, "r-2")]),
    ):
        with pg_host.connect() as warm:
            store.reflect(warm)
        with pg_host.connect() as conn, pg_host.connect() as other:
            victim = conn.exec_driver_sql("SELECT pg_backend_pid()").scalar()
            other.exec_driver_sql("SELECT pg_terminate_backend(%s)", (victim,))
            with pytest.raises(sa.exc.DBAPIError) as caught:
                call(conn)
            assert is_connection_lost(caught.value)
            conn.invalidate()
    assert stored(pg_host) == [(1, None, None)]


def test_a_race_that_was_lost_passes_as_it_is(pg_host: sa.Engine) -> None:
    store = mirrored(pg_host, (1, None, None))
    with pg_host.connect() as warm:
        store.reflect(warm)
    with pg_host.connect() as migration, pg_host.connect() as conn:
        migration.exec_driver_sql("LOCK TABLE item IN ACCESS EXCLUSIVE MODE")
        conn.exec_driver_sql("SET lock_timeout = '50ms'")
        with pytest.raises(sa.exc.DBAPIError) as caught:
            store.records_exist(conn, [ref("Item", "1")])
        assert is_lock_not_available(caught.value)


def test_a_table_that_may_not_be_read_is_a_matter_of_settings(pg_host: sa.Engine) -> None:
    store = mirrored(pg_host, (1, None, None))
    run(pg_host, "CREATE ROLE narrow")
    try:
        with pg_host.connect() as conn:
            store.reflect(conn)
            conn.exec_driver_sql("SET LOCAL ROLE narrow")
            with pytest.raises(ConfigurationError, match="refused"):
                store.records_exist(conn, [ref("Item", "1")])
    finally:
        run(pg_host, "DROP ROLE narrow")
