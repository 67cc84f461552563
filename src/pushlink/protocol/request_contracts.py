"""What a pack declares about the requests of an action: methods, bodies, encodings and mappings.

The other half, how answers are read, stands in `contracts.py` beside the operations that put both together.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from pushlink.protocol.declared import LATER, Contract, PlainJson, Pointer, Scalar
from pushlink.protocol.response_contracts import Criterion, IdExtractor


class Method(StrEnum):
    """HTTP methods a pack may use; the verb carries no meaning, the operation does."""

    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    MERGE = "MERGE"  # of OData 2: a PATCH by another name


class GraphQl(Contract):
    """A fixed GraphQL document. Mapped values are its variables; nothing is ever put into its text."""

    document: str
    operation_name: str | None = None


class Body(Contract):
    """How a body is built: an encoding, a media type, and a literal skeleton with one insertion point.

    `merge` adds values that no record holds, by their place in the whole body: literals and placeholders. In a
    `graphql` body the skeleton and all places are those of its variables.
    """

    encoding: Literal["json", "form", "graphql"] = "json"
    media_type: str = "application/json"
    envelope: dict[str, PlainJson] | None = None
    insert_at: Pointer = ""
    arrays: Annotated[Literal["brackets", "indexed", "repeated"], LATER] = "brackets"
    graphql: Annotated[GraphQl | None, LATER] = None
    merge: Annotated[dict[Pointer, PlainJson], LATER] = {}


#: How a key is written in a path: as it is, as an OData text in quotes, or as an OData GUID.
KeyQuoting: TypeAlias = Literal["none", "odata_string", "odata_guid"]

#: A preference of RFC 7240 that changes what is answered, and so where an id is found.
Preference: TypeAlias = Literal["return=representation", "return=minimal", "respond-async"]


class Limits(Contract):
    """What the remote takes of one action; checked before anything is reserved."""

    body_bytes: Annotated[int, Field(ge=1)] | None = None
    field_chars: Annotated[int, Field(ge=1)] | None = None  # of every mapped text


class Encode(Contract):
    """One closed, versioned transform of a source value: normalise, convert, digest, shorten, wrap, in this order.

    At most one of the ten conversions is written (`string` to `join`; `zone` belongs to the four that write moments);
    `values.encode_problems` says what is wrong with an encoding, whatever the value.
    """

    string: bool | None = None
    decimal_string: Annotated[int, Field(ge=0, le=18)] | None = None  # digits after the point
    minor_units: Annotated[int, Field(ge=0, le=6)] | None = None  # 19.99 with 2 becomes 1999
    date: str | None = None  # a pattern of %Y %m %d and the like for a calendar date
    datetime: str | None = None  # a pattern of %Y %m %d %H %M %S and the like, or "rfc3339"
    zone: str | None = None  # IANA zone in which a moment is written; default UTC
    epoch: Literal["s", "ms"] | None = None
    ms_date: Annotated[bool | None, LATER] = None  # /Date(1767225600000)/
    enum_map: dict[str, Scalar] | None = None
    bool_map: dict[Literal["true", "false"], Scalar] | None = None
    join: str | None = None
    json_string: bool | None = None
    wrap: str | None = None
    lower_trim: bool | None = None
    md5_hex: Annotated[bool | None, LATER] = None  # a name that a remote computes too, never a protection
    truncate: Annotated[int, Field(ge=1)] | None = None


class ClientId(Contract):
    """The id that a create gives its record itself: `{client_id}` in its path, its query and its merged values."""

    source: Annotated[Literal["idempotency_key", "field"], Field(alias="from")] = "idempotency_key"
    format: Literal["uuid", "token"] = "uuid"  # of a key; a token is its 32 hexadecimal digits
    field: str | None = None
    encode: Encode = Encode()


class CreatePrecondition(Contract):
    """What must hold at the remote for a create to take effect: nothing is at its address, or nothing matches."""

    kind: Literal["if_none_match_star", "if_none_exist"]
    query: dict[str, str] = {}  # of if_none_exist


class Fetch(Contract):
    """Where the current version of a record is read before an update, and where it stands in that answer."""

    path: str | None = None  # the update's own route, unless it says another
    query: dict[str, str] = {}
    version: tuple[IdExtractor, ...] = ()


class UpdatePrecondition(Contract):
    """What must hold at the remote for an update to take effect: the record is there, or has the version that we know.

    The version is the link's own, or one that is read just before the send. Without a precondition the last writer
    wins.
    """

    kind: Literal["if_match_star", "etag", "version_field", "if_unmodified_since"]
    pointer: Pointer | None = None  # of version_field: its place in the body
    integer: bool = False  # the version is a JSON number there
    source: Literal["link_version", "fresh_get"] = "link_version"
    fetch: Fetch = Fetch()
    grows: bool = False  # versions are whole numbers that only grow
    on_fail: tuple[Criterion, ...] = ()  # beside 412 (and 428 for a version): what says that it did not hold
    refetch_once: bool = False


class Prefetch(Contract):
    """One GET whose answer every request of a profile must carry: a token in a header, and cookies.

    Both stay in the transport's memory. `expired` says which answers mean that they are over and that nothing was done.
    """

    path: str
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    capture: str  # the header that is read from the answer and sent with each request
    cookies: bool = True
    expired: Annotated[tuple[Criterion, ...], Field(min_length=1)]


class Session(Contract):
    """What has to be opened before a remote takes requests."""

    prefetch: Prefetch


class Clear(StrEnum):
    """How "empty here" is said to the remote when a mapped source value is null."""

    NULL = "null"
    EMPTY_STRING = "empty_string"
    OMIT = "omit"
    FALSE = "false"
    SENTINEL = "sentinel"  # the mapping's own `sentinel`, a value that the remote reads as "empty"


class Mapping(Contract):
    """One outbound value: a source field, or a constant, and where it stands in the body."""

    source: str | None = None
    constant: Scalar = None
    target: Pointer
    encode: Encode = Encode()
    clear: Clear = Clear.NULL
    sentinel: Annotated[Scalar, LATER] = None
    operations: tuple[Literal["create", "update"], ...] = ("create", "update")
    chars_max: Annotated[Annotated[int, Field(ge=1)] | None, LATER] = None
