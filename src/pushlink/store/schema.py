"""The schema's life: bringing a database to this release's tables, and saying how far it is from them.

Alembic keeps its own version table, so that pushlink's revisions never meet the host's, and needs no alembic.ini.
Every revision keeps old rows valid and the release before it working, so that workers of two neighbouring releases may
run side by side (D-43). There is no downgrade: the way back is a backup, taken before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from pushlink.store.columns import METADATA, PREFIX
from pushlink.store.dialect import Lock, missing_triggers, take_lock
from pushlink.store.guarded import GUARDED
from pushlink.store.revision import VERSION_TABLE, current_revision, head, is_newer, known_revisions
from pushlink.store.tables import PROTECTED_TABLES

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


def upgrade(engine: sa.Engine, revision: str = "head") -> None:
    """Run the revisions up to `revision`, all of them or none; a second process waits and then finds nothing to do."""
    with _ALEMBIC, engine.begin() as conn:
        take_lock(conn, Lock.SCHEMA)
        if is_newer(current_revision(conn)):
            return
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
