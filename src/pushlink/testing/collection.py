"""A small JSON collection API in memory: what a well-behaved remote is, and the ways in which real ones differ.

    POST   /{collection}         creates          GET  /{collection}?field=value   lists
    PATCH  /{collection}/{id}    merges           GET  /{collection}/{id}          reads
    POST   /{collection}/{id}    merges           DELETE ...                       deletes
    PUT    /{collection}/{id}    replaces

How it names records, what it answers, whether it wants a token, an ETag or a slower client is in `RemoteOptions`.
It counts what it accepted, so that a test can compare its count with what pushlink believes. Every call is locked.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, quote

from pushlink.testing.messages import Asked, Told, tell

#: A number that JSON readers with doubles round: its successor is the first id of the scheme `big_integer`.
_BIG: Final = 653_247_040_368_672_767

_UUID_SPACE: Final = uuid.UUID(int=0)

#: An id as it stands in a body; a function makes the n-th one.
IdScheme: TypeAlias = Literal["integer", "big_integer", "uuid", "text"] | Callable[[int], str | int]


class State(StrEnum):
    """What has become of a record."""

    LIVE = "live"
    ARCHIVED = "archived"
    MERGED = "merged"
    DELETED = "deleted"


@dataclass(slots=True, kw_only=True)
class Record:
    """One remote record. `id` is its text in a path; `document` is what it holds, the id included."""

    collection: str
    id: str
    document: dict[str, Any]
    created_by: Asked
    version: int = 1
    state: State = State.LIVE
    merged_into: str | None = None
    created_at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateWindow:
    """So many requests in a window of so many seconds; the others are answered 429 with Retry-After."""

    requests: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedupe:
    """A create whose key was seen less than `seconds` ago gets the first answer again, if its body is the same."""

    header: str = "Idempotency-Key"
    seconds: float = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions:
    """How a remote behaves when nothing goes wrong."""

    prefix: str = ""  # of every path, as in /api/v1
    ids: IdScheme = "integer"
    id_field: str = "id"
    answers: Literal["record", "id", "nothing"] = "record"  # what the body of a created or updated answer holds
    location: bool = False  # whether a created answer names the record in a Location header
    created_status: int = 201
    updated_status: int = 200
    put_creates: bool = False  # a PUT to an id that is not there creates it, as `If-None-Match: *` asks for
    unique_fields: tuple[str, ...] = ()  # a second live record with the same value is answered 409 naming the first
    etags: Literal["none", "strong", "weak", "stale"] = "none"  # `stale` shows the version before
    requires_if_match: bool = False  # an update without If-Match is answered 428
    token: str | None = None  # the bearer token that every request must carry
    token_seconds: float | None = None  # how long a token is accepted after the start or a renewal
    rate: RateWindow | None = None
    dedupe: Dedupe | None = None
    search_lag_seconds: float = 0.0  # how long a list does not show a new record
    archived_status: int = 404
    merged_answers: Literal["gone", "redirect", "survivor"] = "gone"
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)  # seconds; tests may bring their own


class Collections:
    """The records of a remote and everything it has done to them."""

    def __init__(self, options: RemoteOptions | None = None) -> None:
        self.options = options or RemoteOptions()
        self._lock = threading.RLock()
        self._records: dict[tuple[str, str], Record] = {}
        self._created: list[Record] = []
        self._numbers = itertools.count(1)
        self._keys: dict[str, tuple[float, bytes, Told]] = {}
        self._window: tuple[float, int] = (-math.inf, 0)
        self._token = self.options.token
        self._token_since_s = self.options.clock()

    # ---------------------------------------------------------------------------------- what tests look at

    @property
    def records(self) -> list[Record]:
        """Every live record, oldest first, as copies."""
        with self._lock:
            return [copy.deepcopy(r) for r in self._records.values() if r.state is State.LIVE]

    def record(self, collection: str, record_id: object) -> Record:
        """One record in whatever state, as a copy; raises `KeyError` when it never was there."""
        with self._lock:
            return copy.deepcopy(self._records[collection, str(record_id)])

    @property
    def created(self) -> list[Record]:
        """Each record as it was when it was created, in order; nothing is ever taken off this list."""
        with self._lock:
            return copy.deepcopy(self._created)

    @property
    def creates(self) -> int:
        """How many creates took effect."""
        with self._lock:
            return len(self._created)

    def creates_by(self, key: Callable[[Record], Hashable]) -> Counter[Hashable]:
        """How many creates took effect for each key, by a function of the record as it was created."""
        with self._lock:
            return Counter(key(record) for record in self._created)

    # ---------------------------------------------------------------------------------- what people do there

    def edit(self, collection: str, record_id: object, **fields: Any) -> None:
        """Change a record out of band, as a person at the remote would."""
        with self._lock:
            record = self._records[collection, str(record_id)]
            record.document |= fields
            record.version += 1

    def archive(self, collection: str, record_id: object) -> None:
        """Archive a record: it is neither read nor updated until it is restored."""
        self._set_state(collection, record_id, State.ARCHIVED)

    def restore(self, collection: str, record_id: object) -> None:
        """Bring an archived, merged or deleted record back."""
        self._set_state(collection, record_id, State.LIVE)

    def delete(self, collection: str, record_id: object) -> None:
        """Delete a record; it is answered 404 from now on."""
        self._set_state(collection, record_id, State.DELETED)

    def merge(self, collection: str, record_id: object, *, into: object) -> None:
        """Merge a record into another one; what its id answers afterwards is an option."""
        with self._lock:
            _ = self._records[collection, str(into)]
            self._set_state(collection, record_id, State.MERGED, merged_into=str(into))

    def expire_token(self) -> None:
        """Accept no token until a new one is given."""
        with self._lock:
            self._token = None

    def renew_token(self, token: str) -> None:
        """Accept this token from now on."""
        with self._lock:
            self._token, self._token_since_s = token, self.options.clock()

    def _set_state(self, collection: str, record_id: object, state: State, *, merged_into: str | None = None) -> None:
        with self._lock:
            record = self._records[collection, str(record_id)]
            record.state, record.merged_into = state, merged_into
            record.version += 1

    # ---------------------------------------------------------------------------------- the API

    def handle(self, asked: Asked) -> tuple[Told, bool]:
        """Do what a request asks for; the answer, and whether a record changed."""
        with self._lock:
            versions = {key: record.version for key, record in self._records.items()}
            told = self._refusal(asked) or self._route(asked)
            changed = versions != {key: record.version for key, record in self._records.items()}
            return told, changed

    def _refusal(self, asked: Asked) -> Told | None:
        now = self.options.clock()
        if self.options.token is not None:
            limit = self.options.token_seconds
            expired = self._token is None or (limit is not None and now - self._token_since_s >= limit)
            if expired or asked.header("Authorization") != f"Bearer {self._token}":
                challenge = ("WWW-Authenticate", 'Bearer error="invalid_token"')
                return tell(401, {"error": "unauthorized"}, headers=[challenge])
        if (rate := self.options.rate) is not None:
            start, count = self._window
            if now - start >= rate.seconds:
                start, count = now, 0
            if count >= rate.requests:
                wait_s = max(1, math.ceil(start + rate.seconds - now))
                return tell(429, {"error": "slow down"}, headers=[("Retry-After", str(wait_s))])
            self._window = (start, count + 1)
        return None

    def _route(self, asked: Asked) -> Told:
        match asked.method, asked.segments:
            case "POST", (collection,):
                return self._deduped(asked, collection)
            case "GET", (collection,):
                return self._list(asked, collection)
            case "PUT", (collection, record_id) if self._may_be_put(collection, record_id):
                return self._put_new(asked, collection, record_id)
            case (("GET" | "PATCH" | "MERGE" | "PUT" | "POST" | "DELETE"), (collection, record_id)):
                return self._touch(asked, collection, record_id)
            case _, () | (_,) | (_, _):
                return tell(405, {"error": "method not allowed"})
            case _:
                return tell(404, {"error": "no such resource"})

    def _deduped(self, asked: Asked, collection: str) -> Told:
        dedupe = self.options.dedupe
        key = asked.header(dedupe.header) if dedupe else None
        if dedupe is None or key is None:
            return self._create(asked, collection)
        now = self.options.clock()
        seen = self._keys.get(key)
        if seen is not None and now - seen[0] < dedupe.seconds:
            if seen[1] != asked.body:
                return tell(422, {"error": "this key came with another body"})
            return replace(seen[2], headers=(*seen[2].headers, ("Idempotent-Replayed", "true")))
        told = self._create(asked, collection)
        self._keys[key] = (now, asked.body, told)
        return told

    def _create(self, asked: Asked, collection: str, record_id: str | int | None = None) -> Told:
        document = _document(asked)
        if document is None:
            return tell(400, {"error": "the body is no object"})
        if (existing := self._duplicate(collection, document)) is not None:
            message = f"It exists already. Existing ID: {existing.id}"
            return tell(409, {"error": "duplicate", "message": message, "existing_id": existing.id})
        made = _make_id(self.options.ids, next(self._numbers)) if record_id is None else record_id
        record = Record(
            collection=collection,
            id=str(made),
            document={**document, self.options.id_field: made},
            created_by=asked,
            created_at_s=self.options.clock(),
        )
        self._records[collection, record.id] = record
        self._created.append(copy.deepcopy(record))
        headers = [("Location", f"{self.options.prefix}/{collection}/{quote(record.id, safe='')}")]
        return self._tell(self.options.created_status, record, headers if self.options.location else [])

    def _duplicate(self, collection: str, document: dict[str, Any]) -> Record | None:
        for record in self._records.values():
            if record.collection == collection and record.state is State.LIVE:
                for name in self.options.unique_fields:
                    if document.get(name) is not None and record.document.get(name) == document[name]:
                        return record
        return None

    def _may_be_put(self, collection: str, record_id: str) -> bool:
        return self.options.put_creates and (collection, record_id) not in self._records

    def _put_new(self, asked: Asked, collection: str, record_id: str) -> Told:
        if asked.header("If-Match") is not None:
            return tell(412, {"error": "there is nothing to match"})
        return self._create(asked, collection, record_id)

    def _touch(self, asked: Asked, collection: str, record_id: str) -> Told:
        record = self._records.get((collection, record_id))
        if record is None or record.state is State.DELETED:
            return tell(404, {"error": "not found"})
        if record.state is State.ARCHIVED:
            return tell(self.options.archived_status, {"error": "archived"})
        if record.state is State.MERGED:
            survivor = f"{self.options.prefix}/{collection}/{quote(record.merged_into or '', safe='')}"
            if self.options.merged_answers == "redirect":
                return tell(301, headers=[("Location", survivor)])
            if self.options.merged_answers == "gone":
                return tell(404, {"error": "merged", "merged_into": record.merged_into})
            record = self._records[collection, record.merged_into or ""]
        if asked.method == "GET":
            return self._tell(200, record, [], whole=True)
        return self._precondition(asked, record) or self._change(asked, record)

    def _precondition(self, asked: Asked, record: Record) -> Told | None:
        if asked.header("If-None-Match") == "*":
            return tell(412, {"error": "it exists"})
        wanted = asked.header("If-Match")
        if wanted is None:
            needed = self.options.requires_if_match
            return tell(428, {"error": "an If-Match is needed"}) if needed else None
        # A weak tag never matches here, as RFC 9110 says.
        tags = {tag.strip() for tag in wanted.split(",")}
        return None if tags & {"*", f'"v{record.version}"'} else tell(412, {"error": "it has changed"})

    def _change(self, asked: Asked, record: Record) -> Told:
        if asked.method == "DELETE":
            record.state = State.DELETED
            record.version += 1
            return Told(status=204)
        document = _document(asked)
        if document is None:
            return tell(400, {"error": "the body is no object"})
        identity = {self.options.id_field: record.document[self.options.id_field]}
        kept = {} if asked.method == "PUT" else record.document
        record.document = {**kept, **document, **identity}
        record.version += 1
        return self._tell(self.options.updated_status, record, [])

    def _list(self, asked: Asked, collection: str) -> Told:
        shown_since = self.options.clock() - self.options.search_lag_seconds
        query = asked.query
        found = [
            record.document
            for record in self._records.values()
            if record.collection == collection and record.state is State.LIVE and record.created_at_s <= shown_since
            if all(_as_text(record.document.get(name)) == value for name, value in query.items())
        ]
        return tell(200, {"records": found})

    def _tell(self, status: int, record: Record, headers: list[tuple[str, str]], *, whole: bool = False) -> Told:
        if self.options.etags != "none":
            shown = record.version - 1 if self.options.etags == "stale" else record.version
            headers = [*headers, ("ETag", f'W/"v{shown}"' if self.options.etags == "weak" else f'"v{shown}"')]
        if self.options.answers == "nothing" and not whole:
            return tell(status, headers=headers)
        if self.options.answers == "id" and not whole:
            return tell(status, {self.options.id_field: record.document[self.options.id_field]}, headers=headers)
        return tell(status, record.document, headers=headers)


def _make_id(scheme: IdScheme, number: int) -> str | int:
    match scheme:
        case "integer":
            return number
        case "big_integer":
            return _BIG + number
        case "uuid":
            return str(uuid.uuid5(_UUID_SPACE, str(number)))
        case "text":
            return f"rec_{number:06d}"
        case _:
            return scheme(number)


def _document(asked: Asked) -> dict[str, Any] | None:
    """The object of a JSON or form body; `None` when it is none."""
    if (asked.header("Content-Type") or "").startswith("application/x-www-form-urlencoded"):
        return dict(parse_qsl(asked.body.decode("utf-8", "replace"), keep_blank_values=True))
    try:
        document = asked.json() if asked.body else {}
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
