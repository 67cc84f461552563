"""What is append-only is so for everybody who reaches the database, and also where SQLite would replace a row."""

from __future__ import annotations

import contextlib
import datetime as dt
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from pushlink.store import dialect
from pushlink.store.guarded import GUARDED
from pushlink.store.tables import (
    APPEND_ONLY,
    METADATA,
    attempt_event,
    frozen_document,
    operator_action,
    push_attempt,
    push_request,
    push_response,
)

NOW = dt.datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
#: What a CHECK asks of a column.
WORDS = {"deed": "adopt"}
TABLES = pytest.mark.parametrize("table", APPEND_ONLY, ids=lambda table: table.name)


def row_of(table: sa.Table, **given: Any) -> dict[str, Any]:
    """A row with something in every column."""
    values: dict[type, Any] = {int: 1, str: "x", bytes: b"x", bool: False, object: NOW}
    any_row = {column.name: values[column.type.python_type] for column in table.columns}
    return any_row | {name: word for name, word in WORDS.items() if name in any_row} | given


def insert(engine: sa.Engine, table: sa.Table, **given: Any) -> dict[str, Any]:
    row = row_of(table, **given)
    with engine.begin() as conn:
        conn.execute(table.insert(), row)
    return row


@pytest.fixture
def an_attempt(engine: sa.Engine) -> None:
    """The attempt that the rows of these tests are about."""
    add_attempt(engine, "x")


def add_attempt(engine: sa.Engine, number: str, **given: Any) -> None:
    values = {"id": number, "link_key": number, "tenant": "", "destination_slot_id": "d", "operation": "create"}
    values |= {"status": "pending", "not_before": NOW, "created_at": NOW, "updated_at": NOW, **given}
    with engine.begin() as conn:
        conn.execute(push_attempt.insert(), values)


def rows(engine: sa.Engine, table: sa.Table) -> list[dict[str, Any]]:
    with engine.begin() as conn:
        return [dict(row) for row in conn.execute(sa.select(table)).mappings()]


@pytest.mark.rule("RV-08", "AT-11")
@TABLES
@pytest.mark.parametrize("verb", ["UPDATE", "DELETE"])
def test_no_row_is_changed_or_deleted(engine: sa.Engine, an_attempt: None, table: sa.Table, verb: str) -> None:
    """The database refuses both, says which table it protects, and the row is as it was."""
    row = insert(engine, table)
    column = table.primary_key.columns[0]
    statement = table.delete() if verb == "DELETE" else table.update().values({column: column})
    message = f"{table.name} is append-only: {verb} is refused"
    with pytest.raises(sa.exc.IntegrityError, match=message), engine.begin() as conn:
        conn.execute(statement)
    assert rows(engine, table) == [row]


@pytest.mark.rule("RV-08")
@TABLES
def test_no_table_is_emptied(pg_url: str, open_engine: Any, table: sa.Table) -> None:
    """TRUNCATE passes no row to a row's trigger, so it has one of its own."""
    engine = open_engine(pg_url)
    insert(engine, table)
    with pytest.raises(sa.exc.IntegrityError, match="TRUNCATE is refused"), engine.begin() as conn:
        conn.execute(sa.DDL("TRUNCATE %(table)s CASCADE", context={"table": table.name}))
    assert len(rows(engine, table)) == 1


def other_text(table: sa.Table) -> dict[str, str]:
    """A change of the first text that belongs to no key."""
    keyed = {
        c.name
        for key in table.constraints
        if isinstance(key, sa.PrimaryKeyConstraint | sa.UniqueConstraint)
        for c in key.columns
    }
    return next({c.name: "other"} for c in table.columns if isinstance(c.type, sa.Text) and c.name not in keyed)


@pytest.mark.rule("RV-08")
@TABLES
@pytest.mark.parametrize("recursive_triggers", [True, False], ids=["own connection", "any connection"])
def test_no_row_is_replaced(
    sqlite_url: str, open_engine: Any, tmp_path: Path, table: sa.Table, recursive_triggers: bool
) -> None:
    """INSERT OR REPLACE and its like are refused, whether or not the connection has recursive triggers."""
    engine = open_engine(sqlite_url)
    row = insert(engine, table)
    changed = row | other_text(table)
    values = [str(value)[:26] if isinstance(value, dt.datetime) else value for value in changed.values()]
    into = f"INTO {table.name} ({', '.join(changed)}) VALUES ({', '.join('?' * len(values))})"
    with contextlib.closing(sqlite3.connect(tmp_path / "pushlink.sqlite")) as connection:
        connection.execute(f"PRAGMA recursive_triggers={recursive_triggers}")
        for verb in ("INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE", "INSERT"):
            with pytest.raises(sqlite3.IntegrityError, match=f"{table.name} is append-only"):
                connection.execute(f"{verb} {into}", values)
        connection.rollback()
    assert rows(engine, table) == [row]


@pytest.mark.rule("RV-08")
def test_a_unique_key_is_no_way_around_the_primary_key(sqlite_url: str, open_engine: Any) -> None:
    """A replacing insert with a fresh id would delete the row that holds its unique key; it is refused as well."""
    engine = open_engine(sqlite_url)
    row = insert(engine, operator_action)
    replace = operator_action.insert().prefix_with("OR REPLACE")
    for change in ({"id": 2}, {"id": None}):
        message = "the_operator_chain_does_not_fork is not replaced"
        with pytest.raises(sa.exc.IntegrityError, match=message), engine.begin() as conn:
            conn.execute(replace, {**row, "hash": "forged", **change})
    assert rows(engine, operator_action) == [row]


def test_an_upsert_is_an_update(engine: sa.Engine) -> None:
    """ON CONFLICT DO UPDATE changes a row, so it is refused."""
    insert(engine, frozen_document)
    with pytest.raises(sa.exc.IntegrityError, match="append-only"), engine.begin() as conn:
        conn.exec_driver_sql(
            "INSERT INTO pushlink_frozen_document (digest, kind, document, created_at)"
            " VALUES ('x', 'x', 'other', '2024-01-01 00:00:00.000000')"
            " ON CONFLICT (digest) DO UPDATE SET document = excluded.document"
        )


def test_the_same_document_may_be_frozen_again(engine: sa.Engine) -> None:
    """Writing what is there already, at a later time, changes nothing and is no error; its neighbours go in."""
    first = insert(engine, frozen_document, digest="a")
    later = NOW + dt.timedelta(days=1)
    with engine.begin() as conn:
        conn.execute(
            dialect.insert_ignore(frozen_document),
            [row_of(frozen_document, digest=digest, created_at=later) for digest in ("a", "b")],
        )
    assert sorted(row["digest"] for row in rows(engine, frozen_document)) == ["a", "b"]
    assert first in rows(engine, frozen_document)


def test_rows_beside_a_row_may_be_added(engine: sa.Engine) -> None:
    """Append-only tables still grow."""
    for table in APPEND_ONLY:
        for number in (1, 2):
            keys = {key.name: number if isinstance(key.type, sa.Integer) else str(number) for key in table.primary_key}
            keys |= {name: word for name, word in WORDS.items() if name in keys}
            unique = {"previous_hash": str(number)} if table is operator_action else {}
            insert(engine, table, **keys, **unique)
        assert len(rows(engine, table)) == 2


def test_every_other_table_may_change(engine: sa.Engine) -> None:
    """Nothing but what is listed is protected: the triggers stand on these tables alone."""
    with engine.begin() as conn:
        tables = {table: GUARDED.get(table) for table in METADATA.sorted_tables}
        protected = {t.name for t, guard in tables.items() if not dialect.missing_triggers(conn, {t: guard})}
    assert protected == {table.name for table in GUARDED}


# ------------------------------------------------------------------------------------------------ what is left open

SEALED = pytest.mark.parametrize("table", [push_request, push_response], ids=lambda table: table.name)
ANEW = {"body": b"sealed", "sealed_by": "k2"}
ERASED = {"body": None, "sealed_by": None, "erased_at": NOW}


def write(engine: sa.Engine, table: sa.Table, values: dict[str, Any]) -> None:
    with engine.begin() as conn:
        conn.execute(table.update().values(values))


@SEALED
def test_a_content_may_be_sealed_anew_and_erased_and_nothing_else(engine: sa.Engine, table: sa.Table) -> None:
    """Its key and body move together; with any other column at their side, each alone, the database refuses."""
    row = insert(engine, table, erased_at=None, sealed_by=None)
    others = {"body", "sealed_by", "erased_at"}
    for column in [c for c in table.columns if c.name not in others]:
        other = {int: 2, str: "other", bool: True, object: NOW + dt.timedelta(days=1)}[column.type.python_type]
        for change in (ANEW, ERASED):
            with pytest.raises(sa.exc.IntegrityError, match="UPDATE is refused"):
                write(engine, table, change | {column.name: other})
    for change in ({"body": b"other"}, {"body": None}, {"sealed_by": "k1", "body": None}, {"erased_at": NOW}):
        with pytest.raises(sa.exc.IntegrityError, match="UPDATE is refused"):
            write(engine, table, change)
    write(engine, table, ANEW)
    assert rows(engine, table) == [row | ANEW]
    with pytest.raises(sa.exc.IntegrityError, match="UPDATE is refused"):
        write(engine, table, {"body": b"plain again", "sealed_by": None})
    write(engine, table, ERASED)
    assert rows(engine, table) == [row | ERASED]
    for change in (ANEW, ERASED, {"erased_at": None}):
        with pytest.raises(sa.exc.IntegrityError, match="UPDATE is refused"):
            write(engine, table, change)
    assert rows(engine, table) == [row | ERASED]


def test_a_size_is_noted_once(engine: sa.Engine) -> None:
    """A row of before gets its size when it is first sealed; a size that is there stays."""
    insert(engine, push_request, erased_at=None, sealed_by=None, body_size=None)
    write(engine, push_request, ANEW | {"body_size": 7})
    with pytest.raises(sa.exc.IntegrityError, match="UPDATE is refused"):
        write(engine, push_request, ANEW | {"body_size": 8})


@pytest.mark.rule("SY-05")
@pytest.mark.parametrize(
    ("given", "leaves"),
    [
        ({"operation": "create", "status": "superseded"}, False),
        ({"operation": "create", "status": "finalized", "create_key": "a"}, False),
        ({"operation": "update", "status": "pending", "update_key": "a"}, False),
        ({"operation": "update", "status": "ambiguous_remote_effect", "update_key": "a"}, False),
        ({"operation": "update", "status": "finalized"}, True),
        ({"operation": "update", "status": "superseded"}, True),
        ({"operation": "update", "status": "terminal_failed"}, True),
    ],
)
def test_an_ended_update_alone_may_leave_and_its_rows_after_it(
    engine: sa.Engine, given: dict[str, Any], leaves: bool
) -> None:
    """Creates and open updates decide for ever; what tells of an attempt is kept as long as the attempt is."""
    add_attempt(engine, "a", **given)
    told = (push_request, push_response, attempt_event)
    for table in told:
        insert(engine, table, attempt_id="a")
        with pytest.raises(sa.exc.IntegrityError, match="DELETE is refused"), engine.begin() as conn:
            conn.execute(table.delete())
    if not leaves:
        with pytest.raises(sa.exc.IntegrityError, match="DELETE is refused"), engine.begin() as conn:
            conn.execute(push_attempt.delete())
        return
    with engine.begin() as conn:
        conn.execute(push_attempt.delete())
        for table in told:
            conn.execute(table.delete())
    assert not any(rows(engine, table) for table in (push_attempt, *told))


def test_an_event_of_no_attempt_stays(engine: sa.Engine) -> None:
    """What happened to a link or a slot is told for ever."""
    insert(engine, attempt_event, attempt_id=None)
    with pytest.raises(sa.exc.IntegrityError, match="DELETE is refused"), engine.begin() as conn:
        conn.execute(attempt_event.delete())
