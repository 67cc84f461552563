"""Real input: the ISO 3166 countries and subdivisions of pycountry, in two tables with text keys.

Their names come in many scripts, with every diacritic there is, and some values are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import pycountry
import sqlalchemy as sa

METADATA = sa.MetaData()

COUNTRIES = sa.Table(
    "countries",
    METADATA,
    sa.Column("alpha_2", sa.String(2), primary_key=True),
    sa.Column("alpha_3", sa.String(3), nullable=False),
    sa.Column("numeric", sa.String(3), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("official_name", sa.Text),
    sa.Column("flag", sa.Text),
)

SUBDIVISIONS = sa.Table(
    "subdivisions",
    METADATA,
    sa.Column("code", sa.Text, primary_key=True),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("country_code", sa.String(2), nullable=False),
    sa.Column("parent_code", sa.Text),
)

#: Source object, as packs name it, to the table that holds its records.
TABLES: Mapping[str, sa.Table] = {"Country": COUNTRIES, "Subdivision": SUBDIVISIONS}
_LISTS: Mapping[str, Any] = {"Country": pycountry.countries, "Subdivision": pycountry.subdivisions}
_LAST = "Subdivision"


def fill(conn: sa.Connection, limit: int | None) -> None:
    """Make the tables and fill them with everything, or with `limit` records, evenly chosen from both lists."""
    METADATA.create_all(conn)
    total = sum(len(entries) for entries in _LISTS.values())
    left = wanted = total if limit is None else min(limit, total)
    for name, table in TABLES.items():
        entries = sorted(_LISTS[name], key=attrgetter(key_of(table)))
        share = left if name == _LAST else len(entries) * wanted // total
        left -= share
        chosen = [entries[index * len(entries) // share] for index in range(share)]
        if chosen:
            values = [{column.name: getattr(entry, column.name, None) for column in table.columns} for entry in chosen]
            conn.execute(table.insert(), values)


def key_of(table: sa.Table) -> str:
    """The name of a table's one key column."""
    [column] = table.primary_key.columns
    return str(column.name)


def rows(conn: sa.Connection) -> dict[tuple[str, str], dict[str, Any]]:
    """Every local record by source object and key."""
    return {
        (name, row[key_of(table)]): dict(row)
        for name, table in TABLES.items()
        for row in conn.execute(sa.select(table)).mappings()
    }


def edit(conn: sa.Connection, count: int) -> int:
    """Change the names of `count` records, from both tables; answers how many that were."""
    local = sorted(rows(conn))
    step = max(1, len(local) // count)
    chosen = local[::step][:count]
    for name, key in chosen:
        table = TABLES[name]
        change = sa.update(table).where(table.c[key_of(table)] == key)
        conn.execute(change.values(name=table.c.name + " · ž字"))
    return len(chosen)
