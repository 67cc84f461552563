"""The schema's life: bringing a database to this release's tables, and saying how far it is from them.

Alembic keeps its own version table, so that pushlink's revisions never meet the host's, and needs no alembic.ini.
Every revision keeps old rows valid and the release before it working, so that workers of two neighbouring releases may
run side by side (D-43). There is no downgrade: the way back is a backup, taken before.

An upgrade runs while hosts save and workers push. It asks for all tables before it changes the first: for the one that
most transactions come to first, then, when those inside have left, for the others. It gives up when it does not have
them within a moment, less than PostgreSQL takes to look for a deadlock, and tries again: so nobody's transaction is
ended in its favour, and one that does not end holds up the upgrade alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from pushlink.errors import Contended
from pushlink.store.columns import METADATA, PREFIX
from pushlink.store.dialect import (
    Lock,
    bound_lock_waits,
    is_busy,
    is_lock_not_available,
    is_serialization_failure,
    missing_triggers,
    take_lock,
    take_tables,
)
from pushlink.store.guarded import GUARDED
from pushlink.store.revision import VERSION_TABLE, current_revision, head, is_newer, known_revisions
from pushlink.store.tables import (
    PROTECTED_TABLES,
    attempt_event,
    deployment,
    push_attempt,
    push_response,
    push_slot,
    remote_link,
)

log = logging.getLogger("pushlink.schema")

#: How long an upgrade waits for the first table, and for all the others, in milliseconds; after its first try twice as
#: long. With the pause in between it is less than PostgreSQL's `deadlock_timeout` of a second.
WAIT_MS: Final = 200

#: How long those who are inside of a transaction get to end it, once nobody begins one any more, in seconds.
LEAVE_S: Final = 0.05

#: The pause between two tries of an upgrade, and how long it goes on trying, in seconds.
PAUSE_S: Final = 0.2
PATIENCE_S: Final = 120.0

_IN_ORDER: Final = (deployment, push_slot, push_attempt, push_response, remote_link, attempt_event)

#: Alembic's `op` and `context` are one for the process; two upgrades of two databases take turns.
_ALEMBIC: Final = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaState:
    """How a database compares with this release. `pending` are revisions still to run, oldest first."""

    current: str | None  # None: no revision ever ran here
    head: str
    pending: tuple[str, ...]
    differences: tuple[
        str, ...
    ]  # sentences; empty when tables, constraints, indexes and triggers are as they should be

    @property
    def is_current(self) -> bool:
        """Whether nothing is to be done."""
        return self.current == self.head and not self.differences


def upgrade(engine: sa.Engine, revision: str = "head", *, patience_s: float = PATIENCE_S) -> None:
    """Run the revisions up to `revision`, all of them or none; a second process waits and then finds nothing to do.

    Raises `Contended` when others held the tables, each time it asked, for `patience_s` seconds.
    """
    with _ALEMBIC:
        end, tries = time.monotonic() + patience_s, 0
        while not _is_upgraded(engine, revision, wait_ms=WAIT_MS << bool(tries), end=end):
            tries += 1
            log.info("pushlink's tables are in use; the upgrade tries again")
            time.sleep(PAUSE_S)


def _is_upgraded(engine: sa.Engine, revision: str, *, wait_ms: int, end: float) -> bool:
    try:
        with engine.begin() as conn:
            bound_lock_waits(conn, wait_ms)
            take_lock(conn, Lock.SCHEMA)
            if is_newer(current := current_revision(conn)):
                return True
            if current != (head() if revision == "head" else revision):
                _take_tables(conn, wait_ms)
            _run(conn, revision)
    except sa.exc.DBAPIError as error:
        if not (is_lock_not_available(error) or is_serialization_failure(error) or is_busy(error)):
            raise
        if time.monotonic() >= end:
            msg = "The tables could not be upgraded: somebody's transaction holds one of them, and does not end."
            raise Contended(msg, next_step="end that transaction (pg_stat_activity shows it), and try again") from error
        return False
    return True


def _take_tables(conn: sa.Connection, wait_ms: int) -> None:
    """Have every table alone, asked for in the order in which pushlink's transactions come to them."""
    there = set(sa.inspect(conn).get_table_names())
    wanted = dict.fromkeys([*(table.name for table in _IN_ORDER), *METADATA.tables])
    names = [name for name in wanted if name in there]
    take_tables(conn, names[:1], wait_ms=wait_ms)
    time.sleep(LEAVE_S)
    take_tables(conn, names[1:], wait_ms=wait_ms)


def _run(conn: sa.Connection, revision: str) -> None:
    config = _config()
    config.attributes["connection"] = conn
    config.attributes["options"] = _options()
    command.upgrade(config, revision)


def check(engine: sa.Engine) -> SchemaState:
    """Compare the database with this release, without changing it."""
    with engine.connect() as conn:
        current = current_revision(conn)
        return SchemaState(
            current=current,
            head=head(),
            pending=_pending(current),
            differences=tuple(_differences(conn)) if current is not None else (),
        )


def _pending(current: str | None) -> tuple[str, ...]:
    known = known_revisions()
    if current is None:
        return known
    return known[known.index(current) + 1 :] if current in known else ()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _options() -> dict[str, Any]:
    return {"version_table": VERSION_TABLE, "transactional_ddl": True, "target_metadata": METADATA}


# ------------------------------------------------------------------------------------------------ differences


def _differences(conn: sa.Connection) -> Iterator[str]:
    options = _options() | {"compare_type": True, "include_name": _is_ours, "include_object": _is_compared}
    context = MigrationContext.configure(conn, opts=options)
    for entry in compare_metadata(context, METADATA):
        for change in entry if isinstance(entry, list) else [entry]:
            yield _sentence(change)
    yield from _missing_checks(conn)
    for trigger in missing_triggers(conn, GUARDED):
        yield f"trigger {trigger} is missing or switched off"


def _is_ours(name: str | None, kind: str, _parents: object) -> bool:
    return kind != "table" or (name in PROTECTED_TABLES and name != VERSION_TABLE)


def _is_compared(item: Any, _name: str | None, kind: str, _reflected: object, _other: object) -> bool:
    return kind != "table" or item.name.startswith(PREFIX)


def _missing_checks(conn: sa.Connection) -> Iterator[str]:
    inspector = sa.inspect(conn)
    for table in METADATA.sorted_tables:
        if not inspector.has_table(table.name):
            continue
        existing = {check["name"] for check in inspector.get_check_constraints(table.name)}
        declared = {str(c.name) for c in table.constraints if isinstance(c, sa.CheckConstraint)}
        for name in sorted(declared - existing):
            yield f"check {name} of {table.name} is missing"
        for name in sorted(str(name) for name in existing - declared):
            yield f"check {name} of {table.name} is not of this release"


def _sentence(change: Any) -> str:
    kind, *parts = change
    names = [getattr(part, "fullname", None) or getattr(part, "name", None) or part for part in parts]
    said = ", ".join(str(name) for name in names if isinstance(name, str))
    return f"{str(kind).replace('_', ' ')}: {said}"
