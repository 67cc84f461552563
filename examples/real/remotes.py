"""The servers that real data is pushed to: programs from the package index that know nothing of pushlink.

A server is a class that fits `Remote` and a line of `REMOTES`. What it tells is its own: its count, its records and its
log of requests, never what pushlink believes.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from datasette_server import Datasette
from eve_server import EveServer
from kinto_server import Kinto
from localstripe_server import Localstripe
from roundup_server import Roundup

PACKS = Path(__file__).resolve().parents[1] / "packs"


class Remote(Protocol):
    """One running server. Objects are named as in the pack; ids are text."""

    @property
    def secret(self) -> str:
        """The bearer token that it takes, or an empty text."""

    def start(self) -> str:
        """Start it in a process of its own, with empty collections; answers with its address."""

    def count(self, source_object: str) -> int:
        """How many records the server itself counts."""

    def records(self, source_object: str) -> Mapping[str, Mapping[str, Any]]:
        """Every record by remote id, without what the server adds of its own."""

    def marks(self, source_object: str) -> Mapping[str, object]:
        """What changes of a record whenever it is written, by remote id, and of the collection under an empty id."""

    def requests(self) -> Counter[str]:
        """The writing requests that the server's own log has, by method and status: `POST 201`."""

    def stop(self) -> float:
        """End the process; answers with the seconds of CPU that it took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A server of the table: how it is made in a directory at a port, its pack, and how it answers a write."""

    make: Callable[[Path, int], Remote]
    package: str  # what is installed and imported
    pack: Path
    pack_address: str  # in the pack's text; the run takes a free port instead
    created: str
    updated: str
    sends_max: int  # how many requests it is sent at once
    limit: int | None = None  # how many records it is sent where nobody says; all of them without one
    because: str = ""  # why it has a limit

    @property
    def is_there(self) -> bool:
        """Whether its package is installed."""
        return find_spec(self.package) is not None

    @property
    def version(self) -> str:
        """The release that is installed."""
        return version(self.package)


REMOTES: Mapping[str, Entry] = {
    "kinto": Entry(
        make=Kinto,
        package="kinto",
        pack=PACKS / "geo-kinto.yaml",
        pack_address="http://127.0.0.1:8732",
        created="POST 201",
        updated="PATCH 200",
        sends_max=32,
    ),
    "kinto-ids": Entry(
        make=Kinto,
        package="kinto",
        pack=PACKS / "real-kinto-ids.yaml",
        pack_address="http://127.0.0.1:8733",
        created="PUT 201",
        updated="PATCH 200",
        sends_max=32,
    ),
    "localstripe": Entry(
        make=Localstripe,
        package="localstripe",
        pack=PACKS / "real-localstripe.yaml",
        pack_address="http://127.0.0.1:8734",
        created="POST 200",
        updated="POST 200",
        sends_max=32,
    ),
    "datasette": Entry(
        make=Datasette,
        package="datasette",
        pack=PACKS / "real-datasette.yaml",
        pack_address="http://127.0.0.1:8735",
        created="POST 201",
        updated="POST 200",
        sends_max=16,
    ),
    "roundup": Entry(
        make=Roundup,
        package="roundup",
        pack=PACKS / "real-roundup.yaml",
        pack_address="http://127.0.0.1:8736",
        created="POST 201",
        updated="PUT 200",
        sends_max=4,
        limit=300,
        because="each request of roundup opens the whole tracker",
    ),
    "eve": Entry(
        make=EveServer,
        package="eve",
        pack=PACKS / "real-eve.yaml",
        pack_address="http://127.0.0.1:8737",
        created="POST 201",
        updated="PATCH 200",
        sends_max=8,
    ),
}


def free_port() -> int:
    """A port of loopback that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
