"""The only room that names a dialect: everything that SQLite and PostgreSQL do each in their own way.

    engines.py   how pushlink opens a database, which of its settings it insists on, its clock and its timeline
    arrays.py    many rows bound as one source of a statement
    ddl.py       definitions: counted keys, partial indexes, append-only triggers
    guards.py    triggers of tables whose contents may be sealed anew or erased, and whose rows may be pruned
    faults.py    what a database error means
    library.py   faults of a database's own code, by its version
    host.py      what pushlink needs of a host's transaction before it writes there
    locks.py     locks that belong to no row
    moments.py   times of a host's table in one form, where the database has no type for them
    wakeup.py    NOTIFY and LISTEN

The rest of the store imports from here and never asks which engine it talks to.
"""

from pushlink.store.dialect.arrays import ORDINALITY, Batch, Prepared, array_rows
from pushlink.store.dialect.ddl import (
    append_only_ddl,
    insert_ignore,
    partial_index,
    serial_column,
)
from pushlink.store.dialect.engines import (
    check_durability,
    create_engine,
    current_time,
    lift_idle_limit,
    read_only,
    timeline,
    writers_at_once,
)
from pushlink.store.dialect.faults import (
    is_busy,
    is_connection_lost,
    is_lock_not_available,
    is_serialization_failure,
    is_starved,
    is_unique_violation,
)
from pushlink.store.dialect.guards import Guard, Leaves, guard_ddl, missing_triggers
from pushlink.store.dialect.host import secure_host_transaction, warn_host_transaction
from pushlink.store.dialect.library import LOSSY_FAULT, LOSSY_REMEDY, lossy_version
from pushlink.store.dialect.locks import Lock, bound_lock_waits, take_lock, take_tables
from pushlink.store.dialect.moments import (
    are_moments,
    are_plain,
    as_moment,
    has_typed_times,
    moment_text,
    teach_moments,
)
from pushlink.store.dialect.wakeup import Listener, listen, notify

__all__ = [
    "LOSSY_FAULT",
    "LOSSY_REMEDY",
    "ORDINALITY",
    "Batch",
    "Guard",
    "Leaves",
    "Listener",
    "Lock",
    "Prepared",
    "append_only_ddl",
    "are_moments",
    "are_plain",
    "array_rows",
    "as_moment",
    "bound_lock_waits",
    "check_durability",
    "create_engine",
    "current_time",
    "guard_ddl",
    "has_typed_times",
    "insert_ignore",
    "is_busy",
    "is_connection_lost",
    "is_lock_not_available",
    "is_serialization_failure",
    "is_starved",
    "is_unique_violation",
    "lift_idle_limit",
    "listen",
    "lossy_version",
    "missing_triggers",
    "moment_text",
    "notify",
    "partial_index",
    "read_only",
    "secure_host_transaction",
    "serial_column",
    "take_lock",
    "take_tables",
    "teach_moments",
    "timeline",
    "warn_host_transaction",
    "writers_at_once",
]
