"""The only room that names a dialect: everything that SQLite and PostgreSQL do each in their own way.

    engines.py   how pushlink opens a database, which of its settings it insists on, its clock and its timeline
    arrays.py    many rows bound as one source of a statement
    ddl.py       definitions: counted keys, partial indexes, append-only triggers, the lock around a schema change

The rest of the store imports from here and never asks which engine it talks to.
"""

from pushlink.store.dialect.arrays import ORDINALITY, array_rows
from pushlink.store.dialect.ddl import (
    append_only_ddl,
    insert_ignore,
    lock_schema,
    missing_triggers,
    partial_index,
    serial_column,
)
from pushlink.store.dialect.engines import create_engine, current_time, read_only, timeline

__all__ = [
    "ORDINALITY",
    "append_only_ddl",
    "array_rows",
    "create_engine",
    "current_time",
    "insert_ignore",
    "lock_schema",
    "missing_triggers",
    "partial_index",
    "read_only",
    "serial_column",
    "timeline",
]
