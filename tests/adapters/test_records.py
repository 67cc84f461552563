"""Records of a host by declaration or class: found by their keys, read in sets, and never pushlink's own tables."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from adapters.hosts import INTEGERS, UUID_1, UUID_2, declare, read, ref, run, statements_of
from pushlink.adapters.objects import KeyColumn
from pushlink.adapters.records import SqlRecordStore
from pushlink.errors import CallerError, Code, ConfigurationError
from pushlink.ports import MirrorResult, MirrorWrite
from pushlink.protocol.identity import KeyType
from pushlink.store.tables import PROTECTED_TABLES

# --------------------------------------------------------------------------------------- keys


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
