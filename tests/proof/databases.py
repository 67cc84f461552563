"""Databases for proofs: a migrated template of each dialect, and fresh copies of it, without pytest."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

import psycopg
import sqlalchemy as sa

from plugins.postgres import Server, new_home
from pushlink.store.dialect import create_engine
from pushlink.store.schema import upgrade

DIALECTS: Final = ("sqlite", "postgresql")
TEMPLATE: Final = "proof_template"


class Databases:
    """Use it in a `with`; the server, the files and everything in them are gone afterwards.

    `prepare` makes of an empty database what copies are made of.
    """

    def __init__(
        self, dialects: tuple[str, ...] = DIALECTS, *, prepare: Callable[[sa.Engine], object] = upgrade
    ) -> None:
        self._dialects = dialects
        self._prepare = prepare
        self._server: Server | None = None
        self._made = 0

    def __enter__(self) -> Self:
        memory = Path("/dev/shm")
        self.home = Path(tempfile.mkdtemp(prefix="pushlink-proof-", dir=memory if memory.is_dir() else None))
        if "sqlite" in self._dialects:
            self._make(f"sqlite:///{self.home / 'template.sqlite'}")
        if "postgresql" in self._dialects:
            self._server = Server(new_home())
            self._server.start()
            self._admin(f"CREATE DATABASE {TEMPLATE}")
            self._make(self._server.url(TEMPLATE))
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.stop()
            shutil.rmtree(self._server.home, ignore_errors=True)
        shutil.rmtree(self.home, ignore_errors=True)

    def fresh(self, dialect: str) -> tuple[str, Path]:
        """The address of a migrated database, and a directory of its own beside it."""
        self._made += 1
        home = self.home / f"{dialect}-{self._made}"
        home.mkdir()
        if dialect == "sqlite":
            shutil.copyfile(self.home / "template.sqlite", home / "db.sqlite")
            return f"sqlite:///{home / 'db.sqlite'}", home
        if self._server is None:
            msg = "no server was started"
            raise RuntimeError(msg)
        name = f"proof_{self._made}"
        self._admin(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        return self._server.url(name), home

    def _admin(self, statement: Any) -> None:
        if self._server is not None:
            with psycopg.connect(self._server.dsn(), autocommit=True) as connection:
                connection.execute(statement)

    def _make(self, url: str) -> None:
        engine = create_engine(url)
        try:
            self._prepare(engine)
        finally:
            engine.dispose()
