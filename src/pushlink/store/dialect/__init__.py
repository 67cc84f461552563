"""The only room that names a dialect: everything that SQLite and PostgreSQL do each in their own way.

    engines.py   how pushlink opens a database, and which of its settings it insists on
    ddl.py       definitions: counted keys, partial indexes, append-only triggers, the lock around a schema change

The rest of the store imports from here and never asks which engine it talks to.
"""

from pushlink.store.dialect.ddl import partial_index, serial_column
from pushlink.store.dialect.engines import create_engine, read_only

__all__ = ["create_engine", "partial_index", "read_only", "serial_column"]
