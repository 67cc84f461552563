"""The servers that real data is pushed to: programs from the package index that know nothing of pushlink.

A server is a class that fits `Remote` and a line of `REMOTES`. What it tells is its own: its count, its records and its
log of requests, never what pushlink believes.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kinto_server import Kinto

PACKS = Path(__file__).resolve().parents[1] / "packs"


class Remote(Protocol):
    """One running server. Objects are named as in the pack; ids are text."""

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
    pack: Path
    pack_address: str  # in the pack's text; the run takes a free port instead
    created: str
    updated: str
    sends_max: int  # how many requests it is sent at once


REMOTES: Mapping[str, Entry] = {
    "kinto": Entry(
        make=Kinto,
        pack=PACKS / "geo-kinto.yaml",
        pack_address="http://127.0.0.1:8732",
        created="POST 201",
        updated="PATCH 200",
        sends_max=32,
    ),
}


def free_port() -> int:
    """A port of loopback that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
