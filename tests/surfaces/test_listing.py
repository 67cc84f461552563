"""A scan finds every record of an object, whatever its key is made of."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import sqlalchemy as sa

from pushlink.adapters.records import SqlRecordStore

METADATA = sa.MetaData()
TEXTS = sa.Table("texts", METADATA, sa.Column("code", sa.Text, primary_key=True))
UUIDS = sa.Table("uuids", METADATA, sa.Column("id", sa.Uuid, primary_key=True))
PAIRS = sa.Table(
    "pairs",
    METADATA,
    sa.Column("country", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
)
NUMBERS = sa.Table("numbers", METADATA, sa.Column("id", sa.Integer, primary_key=True))

CODES = ["", "a", "B", "ä", "z z", "quote's", "Z", "10", "9"]
KEYS: dict[str, tuple[sa.Table, list[dict[str, Any]], set[str]]] = {
    "Text": (TEXTS, [{"code": code} for code in CODES], set(CODES)),
    "Uuid": (
        UUIDS,
        [{"id": uuid.UUID(int=number * 7**40)} for number in range(1, 9)],
        {str(uuid.UUID(int=number * 7**40)) for number in range(1, 9)},
    ),
    "Pair": (
        PAIRS,
        [{"country": country, "number": number} for country in ("de", "fr") for number in (2, 10, 1)],
        {f"t2:{country},i{len(str(number))}:{number}" for country in ("de", "fr") for number in (2, 10, 1)},
    ),
    "Number": (NUMBERS, [{"id": number} for number in (10, -3, 2, 2**40)], {"10", "-3", "2", str(2**40)}),
}


@pytest.mark.rule("D-42")
@pytest.mark.parametrize("limit", [1, 2, 100])
@pytest.mark.parametrize("name", KEYS)
def test_batches_join_for_every_type_of_key(engine: sa.Engine, name: str, limit: int) -> None:
    """Each record once, by its canonical id, in batches of any size."""
    table, rows, expected = KEYS[name]
    wide = name == "Number" and engine.dialect.name != "sqlite"
    rows, expected = (rows[:3], expected - {str(2**40)}) if wide else (rows, expected)
    table.create(engine)
    records = SqlRecordStore()
    records.bind(table, name)
    found: list[str] = []
    after: str | None = None
    with engine.begin() as conn:
        conn.execute(sa.insert(table), rows)
        assert records.count_records(conn, name, window=None).rows == len(rows)
        while batch := records.scan_records(conn, name, window=None, after=after, limit=limit):
            assert len(batch) <= limit
            found += [row.shown for row in batch if row.ref is not None]
            after = batch[-1].place
    assert len(found) == len(set(found))
    assert set(found) == expected


def test_a_row_whose_key_is_no_id_is_counted_and_left_out(sqlite_url: str, open_engine: Any) -> None:
    """A loose database may hold anything in a key column."""
    engine = open_engine(sqlite_url)
    with engine.begin() as conn:
        conn.execute(sa.text("CREATE TABLE loose (id INTEGER, name TEXT)"))
        conn.execute(sa.text("INSERT INTO loose VALUES (1, 'a'), ('x', 'b'), (2, 'c')"))
        table = sa.Table(
            "loose", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text)
        )
        records = SqlRecordStore()
        records.bind(table, "Loose")
        batch = records.scan_records(conn, "Loose", window=None, after=None, limit=10)
    assert [(row.ref is not None, row.shown) for row in batch] == [(True, "1"), (True, "2"), (False, "'x'")]
