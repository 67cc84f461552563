"""The databases of a run: a SQLite file, or a PostgreSQL server of its own that ends with the run."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType

#: The same server that the tests run on; it starts from a package, and needs no account and no port.
_SERVER = Path(__file__).resolve().parents[2] / "tests" / "plugins" / "postgres.py"


@contextmanager
def sqlite(folder: Path) -> Iterator[str]:
    """The address of a new SQLite file."""
    yield f"sqlite:///{folder / 'geo.db'}"


@contextmanager
def postgresql(_folder: Path) -> Iterator[str]:
    """The address of an empty database of a new server, whose guard ends it however this process dies."""
    module = _load()
    server = module.SharedServer(module.new_home())
    server.hold()
    try:
        yield server.ensure_started().url()
    finally:
        server.release()


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pushlink_example_postgres", _SERVER)
    if spec is None or spec.loader is None:
        msg = f"{_SERVER} is not there"
        raise RuntimeError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


DATABASES: Mapping[str, Callable[[Path], AbstractContextManager[str]]] = {"sqlite": sqlite, "postgresql": postgresql}
