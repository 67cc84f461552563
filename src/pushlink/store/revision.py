"""Which revision a database is at, and whether this release can work with it; cheap enough for every start.

Bringing a database to a revision is `schema.py`'s; nothing here loads Alembic.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from pushlink.errors import Code, ConfigurationError
from pushlink.store.columns import PREFIX

VERSION_TABLE: Final = PREFIX + "schema_version"
UPGRADE_COMMAND: Final = "pushlink db upgrade"

_VERSIONS: Final = Path(__file__).with_name("migrations") / "versions"


def require_current(conn: sa.Connection) -> None:
    """Raise `ConfigurationError` unless this release can work with the database.

    A database that is one revision ahead is accepted: the neighbouring release migrated it during an upgrade.
    """
    current = current_revision(conn)
    if current in {head(), _next(head())}:
        return
    evidence = {"current": current, "head": head()}
    if is_newer(current):
        raise ConfigurationError(
            f"The database has revision {current} of pushlink's tables; this release knows {head()}.",
            code=Code.SCHEMA_OUTDATED,
            evidence=evidence,
            next_step="run the release of pushlink that the database was upgraded with",
        )
    raise ConfigurationError(
        f"pushlink's tables have revision {current} in this database; this release needs {head()}."
        if current
        else "This database does not have pushlink's tables yet.",
        code=Code.SCHEMA_OUTDATED,
        evidence=evidence,
        next_step=UPGRADE_COMMAND,
    )


def current_revision(conn: sa.Connection) -> str | None:
    """The revision a database is at, `None` if there is none."""
    if not sa.inspect(conn).has_table(VERSION_TABLE):
        return None
    version = sa.table(VERSION_TABLE, sa.column("version_num"))
    found = conn.execute(sa.select(version.c.version_num)).scalar_one_or_none()
    return None if found is None else str(found)


def head() -> str:
    """The newest revision that this release knows."""
    return known_revisions()[-1]


@cache
def known_revisions() -> tuple[str, ...]:
    """Every revision of this release, oldest first: numbered 0001, 0002, ... in one line."""
    return tuple(sorted(path.stem.partition("_")[0] for path in _VERSIONS.glob("[0-9]*.py")))


def is_newer(current: str | None) -> bool:
    """Whether a later release made this database."""
    return current is not None and current not in known_revisions()


def _next(revision: str) -> str:
    return f"{int(revision) + 1:04d}"
