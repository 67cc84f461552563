"""Where one seed after the other is simulated: one database, one engine, so that statements are compiled once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import psycopg
import sqlalchemy as sa

from proof.databases import TEMPLATE
from pushlink.store.dialect import create_engine


class Place(Protocol):
    """A database that can be made afresh, kept as it is, and put back."""

    engine: sa.Engine
    directory: Path

    def renew(self) -> None:
        """Put a fresh copy of the migrated template in the database's place."""

    def keep(self) -> Callable[[], None]:
        """Make a backup; what is answered puts it back."""


class FilePlace:
    """A file of SQLite."""

    def __init__(self, template: Path, directory: Path) -> None:
        self._template = template
        self.directory = directory
        self._file = directory / "pushlink.sqlite"
        self.engine = create_engine(f"sqlite:///{self._file}")

    def renew(self) -> None:
        self._write(self._template.read_bytes())

    def keep(self) -> Callable[[], None]:
        self.engine.dispose()  # the last connection that closes folds the write-ahead log into the file
        kept = self._file.read_bytes()
        return lambda: self._write(kept)

    def _write(self, content: bytes) -> None:
        self.engine.dispose()
        for stale in self.directory.glob("pushlink.sqlite*"):
            stale.unlink()
        self._file.write_bytes(content)


class ServerPlace:
    """A database of a PostgreSQL server that has the migrated template; `url` is of any database there."""

    def __init__(self, url: str, directory: Path) -> None:
        self.directory = directory
        self._name = f"simulation_{os.getpid()}"
        address = sa.make_url(url)
        self.engine = create_engine(address.set(database=self._name).render_as_string(hide_password=False))
        self._admin = f"host={address.query['host']} user={address.username} dbname=postgres"

    def renew(self) -> None:
        self._copy(TEMPLATE, self._name)

    def keep(self) -> Callable[[], None]:
        kept = f"{self._name}_kept"
        self._copy(self._name, kept)
        return lambda: self._copy(kept, self._name)

    def _copy(self, source: str, target: str) -> None:
        self.engine.dispose()
        with psycopg.connect(self._admin, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {target} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {target} TEMPLATE {source}")
