"""Requests and answers as a remote of the tests sees them: plain values, whatever carried them.

`FaultyRemote` makes them from sockets, `ScriptedTransport` from calls; the collection API and the verbs know nothing
else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from pushlink.testing.wire import http_reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request that arrived whole. `raw` is every byte of it as it came; a call without a wire has none."""

    number: int  # 1 for the first request of a remote
    method: str
    target: str  # path and query as they were written
    headers: tuple[tuple[str, str], ...]
    body: bytes
    raw: bytes = b""
    prefix: str = ""  # where the remote's collections begin, as in /api/v1

    @property
    def path(self) -> str:
        """The path as it was written, without the query."""
        return urlsplit(self.target).path

    @property
    def segments(self) -> tuple[str, ...]:
        """The parts of the path behind the prefix, each percent-decoded once."""
        return tuple(unquote(part) for part in self.path.removeprefix(self.prefix).split("/") if part)

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the query; of a repeated one the last value."""
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    def header(self, name: str) -> str | None:
        """The first value of a header; `None` when it is not there."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def json(self) -> Any:
        """The body as JSON; raises `ValueError` when it is none."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One answer: status, headers and body. The Content-Length is added when it is written to a wire."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def to_bytes(self, *, claimed_length: int | None = -1) -> bytes:
        """The bytes of the response; another length than the true one may be claimed."""
        return http_reply(self.status, self.body, headers=self.headers, length=claimed_length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """What became of one request: the verb that was played, the status that was told, whether a record changed."""

    asked: Asked
    verb: str
    status: int | None  # None when no answer was begun
    changed: bool


#: Which requests a script line is for.
When: TypeAlias = Callable[[Asked], bool]


def anything(asked: Asked) -> bool:
    """Every request."""
    del asked
    return True


def creating(asked: Asked) -> bool:
    """A POST to a collection."""
    return asked.method == "POST" and len(asked.segments) == 1


def updating(asked: Asked) -> bool:
    """A PATCH, MERGE or PUT, or a POST to one record."""
    return asked.method in {"PATCH", "MERGE", "PUT"} or (asked.method == "POST" and len(asked.segments) > 1)


def reading(asked: Asked) -> bool:
    """A GET of a record or a list."""
    return asked.method == "GET"


def tell(status: int, document: Any = None, *, headers: Iterable[tuple[str, str]] = (), body: bytes = b"") -> Told:
    """An answer with a JSON document, or with any bytes."""
    if document is None:
        return Told(status=status, headers=tuple(headers), body=body)
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return Told(status=status, headers=(("Content-Type", "application/json"), *headers), body=text.encode())
