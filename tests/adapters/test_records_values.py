"""Values of a host's columns: exact, in the declared zone, or named as unsendable."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
import sqlalchemy as sa

from adapters.hosts import INTEGERS, UUID_1, declare, read, ref, run
from pushlink.adapters.records import SqlRecordStore
from pushlink.errors import CallerError, Code


@pytest.mark.rule("D-41")
def test_values_are_exact(host: sa.Engine) -> None:
    """Decimals digit for digit, times to the microsecond and in UTC, null apart from empty, on both databases alike."""
    table = sa.Table(
        "item",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text),
        sa.Column("note", sa.Text),
        sa.Column("price", sa.Numeric(12, 2)),
        sa.Column("ratio", sa.Float(53)),
        sa.Column("count", sa.BigInteger),
        sa.Column("on", sa.Boolean),
        sa.Column("day", sa.Date),
        sa.Column("at", sa.DateTime),
        sa.Column("clock", sa.Time),
        sa.Column("owner", sa.Uuid),
        sa.Column("tags", sa.JSON),
    )
    with host.begin() as conn:
        table.create(conn)
        insert = sa.text(
            'INSERT INTO item (id, name, note, price, ratio, count, "on", day, at, clock, owner, tags) VALUES '
            "(1, '', NULL, 19.90, 0.1, 9007199254740993, :yes, '2024-02-29', '2024-06-01 12:00:00.000001', "
            "'23:59:59.5', :owner, :tags)"
        )
        owner = UUID_1.hex
        conn.execute(insert, {"yes": True, "owner": owner, "tags": '["a", "\u00e9"]'})
    bound, reflected = SqlRecordStore(), SqlRecordStore([declare("Item", "item", ("id", "integer"))])
    bound.bind(table, "Item")
    expected: dict[str, object] = {
        "name": "",
        "note": None,
        "price": Decimal("19.90"),
        "ratio": Decimal("0.1"),
        "count": 9007199254740993,
        "on": True,
        "day": dt.date(2024, 2, 29),
        "at": dt.datetime(2024, 6, 1, 12, 0, 0, 1, tzinfo=dt.UTC),
        "clock": dt.time(23, 59, 59, 500_000),
        "owner": str(UUID_1),
        "tags": ("a", "\u00e9"),
    }
    row = read(bound, host, ref("Item", "1"), *expected)
    assert row == expected
    assert {type(value) for value in expected.values()} == {type(value) for value in row.values()}
    assert str(row["price"]) == "19.90"
    alike = [name for name in expected if name != "owner"]  # SQLite keeps no type that says "UUID"
    assert read(reflected, host, ref("Item", "1"), *alike) == {name: expected[name] for name in alike}


@pytest.mark.rule("D-41")
def test_a_decimal_is_never_rounded(sqlite_host: sa.Engine) -> None:
    """Where the database keeps decimals as text or binary fractions, every digit that it holds comes out."""
    run(sqlite_host, "CREATE TABLE item (id integer PRIMARY KEY, price numeric(40, 20), free decimal)")
    run(sqlite_host, "INSERT INTO item VALUES (1, 0.30000000000000004, 1e-20), (2, 12345678901234567, 2)")
    store = SqlRecordStore([INTEGERS])
    first = read(store, sqlite_host, ref("Item", "1"), "price", "free")
    assert first == {"price": Decimal("0.30000000000000004"), "free": Decimal("1e-20")}
    second = read(store, sqlite_host, ref("Item", "2"), "price", "free")
    assert second == {"price": Decimal(12345678901234567), "free": Decimal(2)}


@pytest.mark.rule("D-41")
def test_decimals_of_the_database_come_out_whole(pg_host: sa.Engine) -> None:
    run(pg_host, "CREATE TABLE item (id integer PRIMARY KEY, price numeric, small real, many text[])")
    digits = "123456789012345678901234567890.123456789012345678901234567890"
    run(pg_host, f"INSERT INTO item VALUES (1, {digits}, 0.1, ARRAY['x', 'y'])")
    row = read(SqlRecordStore([INTEGERS]), pg_host, ref("Item", "1"), "price", "small", "many")
    assert row == {"price": Decimal(digits), "small": Decimal("0.1"), "many": ("x", "y")}


@pytest.mark.rule("D-41")
@pytest.mark.parametrize(
    ("zone", "stored", "utc"),
    [
        ("UTC", "2024-07-01 12:00:00", "2024-07-01T12:00:00+00:00"),
        ("Europe/Berlin", "2024-07-01 12:00:00", "2024-07-01T10:00:00+00:00"),
        ("Europe/Berlin", "2024-01-01 12:00:00", "2024-01-01T11:00:00+00:00"),
        ("Europe/Berlin", "2024-10-27 02:30:00.123456", "2024-10-27T00:30:00.123456+00:00"),  # the first of two
        ("America/St_Johns", "2024-01-01 00:00:00", "2024-01-01T03:30:00+00:00"),
    ],
)
def test_a_time_without_a_zone_is_in_the_declared_one(
    host: sa.Engine, monkeypatch: pytest.MonkeyPatch, zone: str, stored: str, utc: str
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    run(host, "CREATE TABLE item (id integer PRIMARY KEY, at timestamp)", f"INSERT INTO item VALUES (1, '{stored}')")
    store = SqlRecordStore([declare("Item", "item", ("id", "integer"), zone=zone)])
    row = read(store, host, ref("Item", "1"), "at")
    assert row == {"at": dt.datetime.fromisoformat(utc)}
    assert row["at"].tzinfo is dt.UTC


@pytest.mark.rule("D-41")
def test_a_time_with_a_zone_ignores_the_declared_one(pg_host: sa.Engine) -> None:
    run(pg_host, "CREATE TABLE item (id integer PRIMARY KEY, at timestamptz)")
    run(pg_host, "INSERT INTO item VALUES (1, '2024-07-01 12:00:00+05:30')")
    store = SqlRecordStore([declare("Item", "item", ("id", "integer"), zone="Europe/Berlin")])
    with pg_host.connect() as conn:
        conn.exec_driver_sql("SET TIME ZONE 'Asia/Tokyo'")
        row = store.read_records(conn, [ref("Item", "1")], [["at"]])[0]
    assert row == {"at": dt.datetime(2024, 7, 1, 6, 30, tzinfo=dt.UTC)}


UNSENDABLE = [
    ("float", "sqlite", "'canary-4711'"),
    ("timestamp", "sqlite", "'canary-4711'"),
    ("blob", "sqlite", "x'63616e617279'"),
    ("json", "sqlite", "'{\"canary-4711\": 1}'"),
    ("boolean", "sqlite", "4711"),
    ("bytea", "postgresql", "'canary-4711'"),
    ("jsonb", "postgresql", "'{\"canary-4711\": 1}'"),
    ("numeric", "postgresql", "'NaN'"),
    ("interval", "postgresql", "'4711 seconds'"),
    ("timestamp", "postgresql", "'infinity'"),
    ("int4range", "postgresql", "'[4710,4711]'"),
]


@pytest.mark.rule("AU-05")
@pytest.mark.parametrize(("column", "on", "literal"), UNSENDABLE, ids=lambda part: part if part.isalnum() else "value")
def test_an_unsendable_value_is_named_by_field_and_type_and_never_shown(
    request: pytest.FixtureRequest, column: str, on: str, literal: str
) -> None:
    engine = request.getfixturevalue("sqlite_host" if on == "sqlite" else "pg_host")
    run(engine, f"CREATE TABLE item (id integer PRIMARY KEY, odd {column})", f"INSERT INTO item VALUES (1, {literal})")
    with pytest.raises(CallerError) as caught:
        read(SqlRecordStore([INTEGERS]), engine, ref("Item", "1"), "odd")
    error = caught.value
    assert error.code is Code.VALUE_UNSENDABLE
    assert "Item" in error.message
    assert not any(secret in f"{error} {error.evidence}" for secret in ("canary", "4711", "infinity", "NaN"))
    assert error.__cause__ is None
    assert error.__suppress_context__
