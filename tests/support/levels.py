"""Isolation levels, where a test must not run at the one that the run was asked for (`make isolation`)."""

from __future__ import annotations

import sqlalchemy as sa


def as_operators(engine: sa.Engine) -> sa.Engine:
    """An engine whose transactions run as those of commands do: on PostgreSQL at READ COMMITTED.

    For tests of a wait at a lock. The next statement has to see what came before the wait ended; at a stricter level
    it fails instead, and whoever runs there begins again, which is not what such a test is about.
    """
    return engine.execution_options(isolation_level="READ COMMITTED") if engine.dialect.name == "postgresql" else engine
