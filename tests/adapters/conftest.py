"""Databases of a host, without pushlink's tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa


@pytest.fixture
def host(empty_database_url: str) -> Iterator[sa.Engine]:
    """An engine of the host's own making: nothing of pushlink's settings is on it."""
    engine = sa.create_engine(empty_database_url)
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", lambda connection, _record: setattr(connection, "isolation_level", None))
        sa.event.listen(engine, "begin", lambda conn: conn.exec_driver_sql("BEGIN"))
    yield engine
    engine.dispose()


@pytest.fixture
def sqlite_host(empty_sqlite_url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(empty_sqlite_url)
    yield engine
    engine.dispose()


@pytest.fixture
def pg_host(empty_pg_url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(empty_pg_url)
    yield engine
    engine.dispose()
