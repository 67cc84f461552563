from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from pushlink.adapters.objects import KeyColumn, ObjectDeclaration
from pushlink.adapters.records import SqlRecordStore
from pushlink.errors import CallerError, Code, ConfigurationError
from pushlink.ports import MirrorResult, MirrorWrite, RecordRef
from pushlink.protocol.identity import KeyType
from pushlink.store.dialect import is_connection_lost, is_lock_not_available
from pushlink.store.tables import PROTECTED_TABLES

UUID_1 = uuid.UUID("0F0E0D0C-0B0A-0908-0706-050403020100")
UUID_2 = uuid.UUID(int=2**128 - 1)


@pytest.fixture
def host(empty_database_url: str) -> Iterator[sa.Engine]:
    """An engine of the host's own making: nothing of pushlink's settings is on it."""
    engine = sa.create_engine(empty_database_url)
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", lambda connection, _record: setattr(connection, "isolation_level", None))
        sa.event.listen(engine, "begin", lambda conn: conn.exec_driver_sql("BEGIN"))
    yield engine
    engine.dispose()


def declare(name: str, table: str, *key: tuple[str, str], **more: Any) -> ObjectDeclaration:
    columns = [{"column": column, "type": key_type} for column, key_type in key]
    return ObjectDeclaration.model_validate({"name": name, "table": table, "key": columns, **more})


def ref(name: str, record_id: str) -> RecordRef:
    return RecordRef(source_object=name, record_id=record_id)


def run(engine: sa.Engine, *statements: str) -> None:
    with engine.begin() as conn:
        for statement in statements:
            conn.exec_driver_sql(statement)


def read(store: SqlRecordStore, engine: sa.Engine, record: RecordRef, *fields: str) -> Mapping[str, object] | None:
    with engine.connect() as conn:
        return store.read_records(conn, [record], [fields])[0]


def statements_of(engine: sa.Engine) -> list[str]:
    seen: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda _c, _cu, statement, *_rest: seen.append(statement))
    return seen


# --------------------------------------------------------------------------------------- keys


INTEGERS = declare("Item", "item", ("id", "integer"))
TEXTS = declare("Place", "place", ("code", "text"))
PAIRS = declare("Line", "line", ("order_no", "integer"), ("label", "text"), ("unit", "uuid"))


@pytest.mark.rule("D-42")
@pytest.mark.parametrize("column_type", ["integer", "bigint", "smallint", "numeric(20)"])
def test_an_integer_key_finds_its_row(host: sa.Engine, column_type: str) -> None:
    """Ids that no column of the type can hold are gone records, not errors."""
    run(host, f"CREATE TABLE item (id {column_type} PRIMARY KEY, name text)")
    run(host, "INSERT INTO item VALUES (7, 'seven'), (-8, 'minus eight')")
    store = SqlRecordStore([INTEGERS])
    ids = [store.canonical_id("Item", 7), store.canonical_id("Item", -8), "9", str(2**40), str(2**70)]
    with host.connect() as conn:
        rows = store.read_records(conn, [ref("Item", i) for i in ids], [["name"]] * 5)
        assert store.records_exist(conn, [ref("Item", i) for i in ids]) == [True, True, False, False, False]
    assert rows == [{"name": "seven"}, {"name": "minus eight"}, None, None, None]


@pytest.mark.rule("D-42")
@pytest.mark.parametrize("how", ["native", "text", "hex", "bytes"])
def test_a_uuid_key_is_found_however_the_table_keeps_it(host: sa.Engine, how: str) -> None:
    types = {"native": sa.Uuid(), "text": sa.String(36), "hex": sa.CHAR(32), "bytes": sa.LargeBinary(16)}
    stored = {"native": UUID_1, "text": str(UUID_1), "hex": UUID_1.hex, "bytes": UUID_1.bytes}
    table = sa.Table("thing", sa.MetaData(), sa.Column("id", types[how], primary_key=True), sa.Column("n", sa.Integer))
    with host.begin() as conn:
        table.create(conn)
        conn.execute(table.insert(), [{"id": stored[how], "n": 1}])
    reflected, bound = SqlRecordStore([declare("Thing", "thing", ("id", "uuid"))]), SqlRecordStore()
    bound.declare(declare("Thing", "thing", ("id", "uuid")))
    bound.bind(table, "Thing")
    for store in (reflected, bound):
        record = ref("Thing", store.canonical_id("Thing", UUID_1))
        assert record.record_id == "0f0e0d0c-0b0a-0908-0706-050403020100"
        assert read(store, host, record, "n") == {"n": 1}
        assert read(store, host, ref("Thing", store.canonical_id("Thing", UUID_2)), "n") is None
        write = MirrorWrite(ref=record, values={"n": "5"}, expected={"n": "1"})
        with host.connect() as conn:
            assert store.write_mirrors(conn, [write]) == [MirrorResult.WRITTEN]


@pytest.mark.rule("D-42")
def test_a_text_key_is_taken_as_it_is(host: sa.Engine) -> None:
    """No trimming, no case folding, no Unicode normalisation, and quotes are only characters."""
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    keys = ["a", "A", " a", "a ", composed, decomposed, "'; DROP TABLE place; --", 'q"q', "%s", ":x", ""]
    run(host, "CREATE TABLE place (code text PRIMARY KEY, n integer)")
    with host.begin() as conn:
        table = sa.table("place", sa.column("code"), sa.column("n"))
        conn.execute(table.insert(), [{"code": key, "n": n} for n, key in enumerate(keys)])
    store = SqlRecordStore([TEXTS])
    refs = [ref("Place", store.canonical_id("Place", key)) for key in keys]
    with host.connect() as conn:
        rows = store.read_records(conn, refs, [["n"]] * len(keys))
    assert [row and row["n"] for row in rows] == list(range(len(keys)))


@pytest.mark.rule("D-42")
def test_a_composite_key_finds_its_row(host: sa.Engine) -> None:
    run(host, "CREATE TABLE line (order_no integer, label text, unit char(36), n integer)")
    with host.begin() as conn:
        table = sa.table("line", *(sa.column(name) for name in ("order_no", "label", "unit", "n")))
        rows = [(1, "a,b", UUID_1, 10), (1, "a", UUID_1, 11), (2, "a,b", UUID_2, 12)]
        conn.execute(table.insert(), [{"order_no": o, "label": x, "unit": str(u), "n": n} for o, x, u, n in rows])
    store = SqlRecordStore([PAIRS])
    refs = [ref("Line", store.canonical_id("Line", (o, x, u))) for o, x, u, _ in rows]
    refs.append(ref("Line", store.canonical_id("Line", (2, "a", UUID_2))))
    with host.connect() as conn:
        found = store.read_records(conn, refs, [["n"]] * 4)
        assert [row and row["n"] for row in found] == [10, 11, 12, None]
        writes = [MirrorWrite(ref=r, values={"n": "99"}, expected={"n": "11"}) for r in refs]
        results = store.write_mirrors(conn, writes)
    foreign, written, gone = MirrorResult.FOREIGN_VALUE, MirrorResult.WRITTEN, MirrorResult.SOURCE_GONE
    assert results == [foreign, written, foreign, gone]


@pytest.mark.rule("D-42")
def test_an_id_of_another_type_is_refused() -> None:
    store = SqlRecordStore([INTEGERS, TEXTS, PAIRS])
    for name, wrong in [("Item", "7"), ("Item", True), ("Place", 7), ("Line", (1, "a")), ("Line", 1)]:
        with pytest.raises(CallerError) as caught:
            store.canonical_id(name, wrong)
        assert caught.value.code is Code.RECORD_ID_UNUSABLE
    assert store.id_from_text("Item", "7") == store.canonical_id("Item", 7)
    line = store.canonical_id("Line", (1, "a", UUID_1))
    assert store.id_from_text("Line", line) == line


def test_a_declared_key_that_two_rows_share_is_refused(host: sa.Engine) -> None:
    run(host, "CREATE TABLE place (code text, n integer)", "INSERT INTO place VALUES ('a', 1), ('a', 2)")
    store = SqlRecordStore([TEXTS])
    with host.connect() as conn:
        with pytest.raises(ConfigurationError):
            store.records_exist(conn, [ref("Place", "a")])
        write = MirrorWrite(ref=ref("Place", "a"), values={"n": "3"}, expected={"n": "1"})
        assert store.write_mirrors(conn, [write]) == [MirrorResult.FAILED]


def test_a_key_column_that_cannot_hold_the_declared_type_is_refused(host: sa.Engine) -> None:
    run(host, "CREATE TABLE place (code date PRIMARY KEY, n integer)")
    with host.connect() as conn, pytest.raises(ConfigurationError, match="code"):
        SqlRecordStore([TEXTS]).reflect(conn)
    with pytest.raises(ValueError, match="composite"):
        KeyColumn(column="id", type=KeyType.COMPOSITE)


# --------------------------------------------------------------------------------------- values


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


# --------------------------------------------------------------------------------------- reading in sets


def test_records_of_one_object_are_one_statement_and_answers_keep_their_order(host: sa.Engine) -> None:
    run(host, "CREATE TABLE item (id integer PRIMARY KEY, a text, b text)", "CREATE TABLE place (code text, a text)")
    run(host, "INSERT INTO place VALUES ('x', 'px')")
    with host.begin() as conn:
        table = sa.table("item", sa.column("id"), sa.column("a"), sa.column("b"))
        conn.execute(table.insert(), [{"id": n, "a": f"a{n}", "b": f"b{n}"} for n in range(300)])
    store = SqlRecordStore([INTEGERS, TEXTS])
    refs = [ref("Item", str(n)) for n in reversed(range(301))] + [ref("Place", "x"), ref("Item", "5")]
    fields = [["a"]] * 301 + [["a"], ["b", "a"]]
    with host.connect() as conn:
        store.reflect(conn)
        seen = statements_of(host)
        rows = store.read_records(conn, refs, fields)
    assert rows[0] is None
    assert rows[1:301] == [{"a": f"a{n}"} for n in reversed(range(300))]
    assert rows[301:] == [{"a": "px"}, {"a": "a5", "b": "b5"}]
    assert len(seen) == 3


def test_the_hosts_own_transaction_is_what_is_read(host: sa.Engine) -> None:
    """What the host has written and not committed is seen, and nothing is committed here."""
    run(host, "CREATE TABLE item (id integer PRIMARY KEY, a text)")
    store = SqlRecordStore([INTEGERS])
    with host.connect() as conn:
        conn.exec_driver_sql("INSERT INTO item VALUES (1, 'new')")
        assert store.read_records(conn, [ref("Item", "1")], [["a"]]) == [{"a": "new"}]
        write = MirrorWrite(ref=ref("Item", "1"), values={"a": "r-1"}, expected={"a": "new"})
        assert store.write_mirrors(conn, [write]) == [MirrorResult.WRITTEN]
        conn.rollback()
    assert read(store, host, ref("Item", "1"), "a") is None


def test_names_are_quoted_and_fields_are_declared(host: sa.Engine) -> None:
    run(host, 'CREATE TABLE "od""d; select" ("Order" integer PRIMARY KEY, "a b" text, "nothing" text, "select" text)')
    run(host, """INSERT INTO "od""d; select" VALUES (1, 'x', 'y', 'z')""")
    store = SqlRecordStore([declare("Odd", 'od"d; select', ("Order", "integer"), fields={"ab": "a b"})])
    assert read(store, host, ref("Odd", "1"), "ab") == {"ab": "x"}
    assert store.fields("Odd") == {"ab"}
    every = SqlRecordStore([declare("Odd", 'od"d; select', ("Order", "integer"))])
    assert read(every, host, ref("Odd", "1"), "nothing", "select") == {"nothing": "y", "select": "z"}
    assert every.fields("Odd") == {"Order", "nothing", "select"}
    write = MirrorWrite(ref=ref("Odd", "1"), values={"nothing": "n"}, expected={"nothing": "y"})
    with host.begin() as conn:
        assert every.write_mirrors(conn, [write]) == [MirrorResult.WRITTEN]
    for unknown in ("a b", "Order", "missing", 'x"; --'):
        with pytest.raises(CallerError):
            read(store, host, ref("Odd", "1"), unknown)
    for bad in ("a b", "", "1a", "x" * 64, "a\n", "a-b", "\u00e4"):
        with pytest.raises(ValueError, match="fields"):
            declare("Odd", "odd", ("id", "integer"), fields={bad: "column"})


def test_unknown_objects_tables_and_columns_are_named(host: sa.Engine) -> None:
    store = SqlRecordStore([INTEGERS, declare("Bad", "place", ("code", "text"), fields={"a": "nope"})])
    run(host, "CREATE TABLE place (code text PRIMARY KEY)")
    with pytest.raises(CallerError) as caught:
        store.fields("Nobody")
    assert caught.value.code is Code.OBJECT_UNKNOWN
    with host.connect() as conn:
        with pytest.raises(ConfigurationError, match="item"):
            store.records_exist(conn, [ref("Item", "1")])
        with pytest.raises(ConfigurationError, match="nope"):
            store.records_exist(conn, [ref("Bad", "1")])
    with pytest.raises(ConfigurationError, match="not looked at"):
        store.fields("Item")


# --------------------------------------------------------------------------------------- mapped classes


class Base(DeclarativeBase):
    pass


class Contact(Base):
    __tablename__ = "contact"
    contact_id: Mapped[int] = mapped_column("id", primary_key=True)
    full_name: Mapped[str] = mapped_column("name")
    remote_id: Mapped[str | None]
    touched: Mapped[int] = mapped_column(default=0, onupdate=1)


def test_a_mapped_class_is_bound_under_its_attribute_names(host: sa.Engine) -> None:
    Base.metadata.create_all(host)
    store = SqlRecordStore()
    store.bind(Contact, "Contact")
    assert store.fields("Contact") == {"contact_id", "full_name", "remote_id", "touched"}
    with Session(host) as session:
        row = Contact(contact_id=3, full_name="Ana", remote_id=None)
        session.add(row)
        session.flush()
        record = store.ref_of(row)
        assert record == ref("Contact", "3")
        assert store.read_records(session.connection(), [record], [["full_name"]]) == [{"full_name": "Ana"}]
        write = MirrorWrite(ref=record, values={"remote_id": "r-1"}, expected={"remote_id": None})
        assert store.write_mirrors(session.connection(), [write]) == [MirrorResult.WRITTEN]
        values = store.read_records(session.connection(), [record], [["remote_id", "touched"]])
        assert values == [{"remote_id": "r-1", "touched": 0}], "a mirror writes its own fields and no other"
    with pytest.raises(CallerError):
        store.ref_of(object())
    with pytest.raises(ConfigurationError):
        store.bind(Contact, "Contact" + "2" * 80)


def test_a_class_and_a_declaration_must_name_one_table() -> None:
    store = SqlRecordStore([INTEGERS])
    with pytest.raises(ConfigurationError):
        store.bind(Contact, "Item")
    with pytest.raises(ConfigurationError):
        store.bind("contact", "Other")
    with pytest.raises(ConfigurationError):
        store.declare(INTEGERS)


# --------------------------------------------------------------------------------------- pushlink's own tables


@pytest.mark.rule("SY-01")
@pytest.mark.parametrize("table", sorted(PROTECTED_TABLES))
def test_the_protocols_tables_are_no_source_object(table: str) -> None:
    """Refused as a declaration in any case and schema, and as a bound table; a mirror needs an object, so it is too."""
    for name in (table, table.upper()):
        for schema in (None, "main", "elsewhere"):
            with pytest.raises(ConfigurationError) as caught:
                SqlRecordStore([declare("Sneaky", name, ("id", "text"), schema=schema)])
            assert caught.value.code is Code.TABLE_PROTECTED
    own = sa.Table(table, sa.MetaData(), sa.Column("id", sa.Text, primary_key=True))
    store = SqlRecordStore()
    with pytest.raises(ConfigurationError) as caught:
        store.bind(own, "Sneaky")
    assert caught.value.code is Code.TABLE_PROTECTED
    assert store.objects() == ()


# --------------------------------------------------------------------------------------- mirrors


@pytest.fixture
def sqlite_host(empty_sqlite_url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(empty_sqlite_url)
    yield engine
    engine.dispose()


@pytest.fixture
def pg_host(empty_pg_url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(empty_pg_url)
    yield engine
    engine.dispose()


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
