"""The ports: what pushlink needs from the outside, as small protocols with plain values.

Record stores and authorities are called inside the host's transaction (or the worker's own) and therefore take its
`Connection`; they are set-oriented, answer in the order they were asked, and never commit. A transport is called with
no transaction open anywhere. Adapters translate third-party exceptions at this border.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias

from sqlalchemy import Connection

from pushlink.protocol.contracts import ProfileContract
from pushlink.protocol.evidence import StoredReply, WireError, WireTrace
from pushlink.protocol.sealing import Sealed, Unread
from pushlink.protocol.snapshots import SourceValue

__all__ = [
    "Authority",
    "AuthorityDecision",
    "AuthorityRequest",
    "Clock",
    "Credentials",
    "Ids",
    "MirrorResult",
    "MirrorWrite",
    "RecordRef",
    "RecordScan",
    "RecordStore",
    "ScanSize",
    "ScannedRow",
    "Secret",
    "StateKeeper",
    "StateSeen",
    "Transport",
    "Vault",
    "WireError",
    "WireReply",
    "WireRequest",
    "WireTrace",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRef:
    """One local record: the source object's API name and the canonical text of its id (D-42)."""

    source_object: str
    record_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorWrite:
    """One compatibility mirror to write, and the values that may stand there now."""

    ref: RecordRef
    values: Mapping[str, str | None]  # field -> new text
    expected: Mapping[str, str | None]  # field -> text that may be overwritten; the new text is always accepted


class MirrorResult(StrEnum):
    """What happened to one mirror write."""

    WRITTEN = "written"  # also when the fields held the new values already
    FOREIGN_VALUE = "foreign_value"  # another value stands there; nothing was changed
    SOURCE_GONE = "source_gone"
    LOCKED = "locked"  # the host holds the row; try again later
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedRow:
    """One row of a scan: its record, and the place to go on after it. `ref` is `None` when its key is no record id."""

    ref: RecordRef | None
    place: str
    shown: str  # the record id, or what stands in the key


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSize:
    """How many rows a scan hands out, and how many it cannot because they have no key or no time of their change."""

    rows: int
    unplaced: int


class RecordStore(Protocol):
    """Local records over the host's tables."""

    def canonical_id(self, source_object: str, record_id: object) -> str:
        """The one text of a record id of the object's declared key type; raises `CallerError` for another type."""

    def fields(self, source_object: str) -> frozenset[str]:
        """The declared field names of an object; raises `CallerError` for an unknown object."""

    def known_fields(self, conn: Connection, source_object: str) -> frozenset[str]:
        """The same, after looking at the object's table if that is needed."""

    def read_records(
        self, conn: Connection, refs: Sequence[RecordRef], fields: Sequence[Sequence[str]]
    ) -> list[Mapping[str, SourceValue] | None]:
        """For each record its values of the asked fields (exact, times in UTC), or `None` when the row is gone."""

    def records_exist(self, conn: Connection, refs: Sequence[RecordRef]) -> list[bool]:
        """Whether each record's row is there."""

    def write_mirrors(self, conn: Connection, writes: Sequence[MirrorWrite]) -> list[MirrorResult]:
        """Write compare-and-set mirrors in record order, skipping rows that somebody else has locked."""


class RecordScan(Protocol):
    """Walking through all records of an object, or those that changed lately. Places and windows are opaque texts."""

    def open_window(
        self, conn: Connection, source_object: str, *, updated: str | None, since: str, now: dt.datetime
    ) -> tuple[str, str]:
        """The column (the declared one unless named) and the window of what changed at `since` or later, until now."""

    def count_records(self, conn: Connection, source_object: str, *, window: str | None) -> ScanSize:
        """How many rows a scan has; without a window it is about the whole table."""

    def scan_records(
        self, conn: Connection, source_object: str, *, window: str | None, after: str | None, limit: int
    ) -> list[ScannedRow]:
        """The next rows after a place, in key order or in the order of their change; none at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorityRequest:
    """May this user read these fields of this record?"""

    user_id: str
    ref: RecordRef
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorityDecision:
    """The answer. `denied_fields` names fields only; no value of a denied field or row is ever in a decision."""

    user_active: bool
    row_readable: bool
    allowed_fields: tuple[str, ...]
    denied_fields: tuple[str, ...]
    policy_digest: str


class Authority(Protocol):
    """Who may read what. The runtime never widens an answer."""

    def decide_reads(self, conn: Connection, requests: Sequence[AuthorityRequest]) -> list[AuthorityDecision | None]:
        """One decision for each request; `None` when no snapshot of this user can be produced (GT-03)."""

    def users_active(self, conn: Connection, user_ids: Sequence[str]) -> list[bool]:
        """Whether each originating user is still active (D-38: this only ever narrows)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A resolved credential. Its `repr` shows nothing; it lives in a provider and in a transport only."""

    value: str = field(repr=False)
    generation: str


class Credentials(Protocol):
    """References to secrets. A generation means the grant, never an hourly token."""

    def generation(self, reference: str, *, tenant: str) -> str:
        """The current generation of a credential, without its value; raises `ConfigurationError` if there is none."""

    def resolve(self, reference: str, *, tenant: str) -> Secret:
        """The secret itself; called by a transport at send time only."""


class Vault(Protocol):
    """Seals what rows keep of records, and opens it again. It holds the keys; the database never does."""

    @property
    def newest(self) -> str | None:
        """The id of the key that seals; `None` where nothing is sealed."""

    def seal(self, content: bytes, binding: bytes) -> Sealed:
        """The content as a row may keep it, bound to that row (`protocol/sealing.py`)."""

    def open(self, content: bytes, key: str | None, binding: bytes) -> bytes | Unread:
        """What was sealed, or why it cannot be read; it never raises for what stands in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRequest:
    """One request to put on the wire, once."""

    profile: ProfileContract
    tenant: str
    method: str
    path: str  # relative to profile.base_url, already percent-encoded
    headers: tuple[tuple[str, str], ...]
    body: bytes
    fresh_connection: bool  # a create without a replay contract never uses a pooled connection
    keep_headers: tuple[str, ...] = ()  # reply headers to keep beside the usual ones: what extractors and rules name
    start_by_s: float | None = None  # uptime of this machine (flows/uptime.py) after which no byte of it may leave


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSeen:
    """What a machine remembers of the database that it works on (D-36)."""

    state_id: str  # of the place where it is remembered; the database keeps a mark for each
    deployment_id: str | None  # `None` until the first worker has started
    mark: int  # checkpoint groups seen
    confirmations: int  # of the deployment by operators


class StateKeeper(Protocol):
    """Remembers outside of the database; what it answers is as durable as what it was given."""

    def seen(self) -> StateSeen:
        """What is remembered now, by all processes that share the place."""

    def keep(self, seen: StateSeen) -> None:
        """Remember `seen` durably; raises `Unavailable` when that cannot be done. A mark is never lowered."""


#: What comes back from one send; the store keeps it as it is, and `protocol.outcome` interprets it.
WireReply: TypeAlias = StoredReply


class Transport(Protocol):
    """Puts one request on the wire at most once, and tells the truth about it. It never raises for a remote's doing."""

    async def send(self, request: WireRequest) -> WireReply:
        """Send, wait at most `profile.timeouts.total_ms`, close the socket, and say what is known.

        Nothing is begun after `request.start_by_s`: a process that stood still since its checkpoint has lost its turn.
        """

    async def close(self) -> None:
        """Release every socket."""


class Clock(Protocol):
    """The database's clock at the store's edge; tests put their own in its place."""

    def now(self, conn: Connection) -> dt.datetime:
        """The current time of the database in UTC, read inside the transaction (not its start)."""


class Ids(Protocol):
    """Fresh identities: attempt ids, claim tokens, incarnations. Random, never derived from a name."""

    def fresh(self) -> str:
        """A new identity of 32 hexadecimal digits; later ones sort after earlier ones."""

    def token(self) -> str:
        """A new unguessable token of 32 hexadecimal digits."""
