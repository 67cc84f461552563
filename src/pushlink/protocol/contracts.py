"""What a pack declares about one remote: the closed vocabulary that rendering and interpretation understand.

These models are written in packs, frozen into snapshots and read back years later, so every one of them is immutable,
refuses unknown keys and has a default that means "as if it were not written". Nothing here has logic: a contract is
data, `render.py` and `outcome.py` say what it means. A new field needs a row in the drift map (`drift.py`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, PlainSerializer

#: A JSON Pointer (RFC 6901): empty for the whole document, else it starts with a slash.
Pointer: TypeAlias = Annotated[str, Field(pattern=r"^(/([^~/]|~[01])*)*$")]

#: The integers that every JSON reader keeps exact, RFC 8785 among them; a larger constant is written as text.
INTEGER_MAX = 2**53 - 1

#: A JSON scalar of a criterion or a constant. Numbers with a fraction are written as text: equality is exact.
Scalar: TypeAlias = str | Annotated[int, Field(ge=-INTEGER_MAX, le=INTEGER_MAX)] | bool | None

#: Wide enough that a duration frozen in milliseconds is read back.
DURATION_PATTERN = r"^[0-9]{1,12}(ms|s|m|h|d)$"

#: A year is longer than anything a pack waits for.
DURATION_MS_MAX = 366 * 86_400_000

_DURATION = re.compile(r"(?P<count>[0-9]{1,12})(?P<unit>ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration_ms(value: object) -> object:
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        duration_ms = int(match["count"]) * _UNIT_MS[match["unit"]]
        if duration_ms <= DURATION_MS_MAX:
            return duration_ms
        msg = "write a duration of at most 366 days"
        raise ValueError(msg)
    msg = "write a duration as a whole number and a unit, such as 500ms, 5s, 10m, 2h or 1d"
    raise ValueError(msg)


#: A duration in milliseconds; written as `500ms`, `5s`, `10m`, `2h` or `1d`.
DurationMs: TypeAlias = Annotated[
    int,
    BeforeValidator(_duration_ms, json_schema_input_type=Annotated[str, Field(pattern=DURATION_PATTERN)]),
    PlainSerializer(lambda ms: f"{ms}ms", return_type=str),
]


def _plain_json(value: JsonValue) -> JsonValue:
    if isinstance(value, float) or (isinstance(value, int) and abs(value) > INTEGER_MAX):
        msg = "write a number with a fraction, or one beyond 2^53, as text"
        raise ValueError(msg)
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _plain_json(item)
    return value


#: A literal JSON value of a pack: text, integers, booleans, null, lists and objects.
PlainJson: TypeAlias = Annotated[JsonValue, AfterValidator(_plain_json)]


class Contract(BaseModel):
    """Base of every declared value: immutable, no unknown keys, no silent conversion between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)


class Method(StrEnum):
    """HTTP methods a pack may use; the verb carries no meaning, the operation does."""

    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"


class Criterion(Contract):
    """A closed test on a response: every part that is written must hold. Lint refuses a criterion without a part."""

    status: tuple[int, ...] | None = None
    header: str | None = None
    pointer: Pointer | None = None
    equals: Scalar = None
    one_of: Annotated[tuple[Scalar, ...] | None, Field(alias="in")] = None
    regex: str | None = None
    absent: bool | None = None
    present: bool | None = None


class Canonical(StrEnum):
    """Named, versioned ways to write one remote id; the version is part of the name so that a change is drift."""

    EXACT_V1 = "exact_v1"  # opaque text, as received
    INTEGER_V1 = "integer_v1"  # decimal digits of a JSON integer or of text
    UUID_LOWER_V1 = "uuid_lower_v1"  # 8-4-4-4-12 hexadecimal digits in lower case
    LOWER_V1 = "lower_v1"  # text in lower case (ASCII letters only)
    CASE_CHECKSUM_18_V1 = "case_checksum_18_v1"  # 15 case-sensitive characters plus 3 that spell out their case


class IdExtractor(Contract):
    """Where an id stands: `$response.body#/pointer` or `$response.header.Name`, optionally one group of a regex."""

    source: Annotated[str, Field(alias="from")]
    regex: str | None = None
    decode: Literal["none", "percent"] = "none"


class IdRule(Contract):
    """Which texts are remote ids at this destination, and how they are written for comparison."""

    canonical: Canonical = Canonical.EXACT_V1
    pattern: str | None = None
    length_max: Annotated[int, Field(ge=1)] | None = None


class Success(Contract):
    """Statuses that mean "done" for one operation. Any other 2xx is applied, but not identified."""

    status: tuple[Annotated[int, Field(ge=200, le=299)], ...]


class Response(Contract):
    """What to read from a response. The first id extractor with a non-empty result decides on a success.

    `candidates` read any other answer (a duplicate that names the existing record, say); what they find is evidence for
    a person and is never adopted by itself.
    """

    id: tuple[IdExtractor, ...] = ()
    id_rule: IdRule = IdRule()
    candidates: tuple[IdExtractor, ...] = ()


class Body(Contract):
    """How a body is built: an encoding, a media type, and a literal skeleton with one insertion point."""

    encoding: Literal["json"] = "json"
    media_type: str = "application/json"
    envelope: dict[str, PlainJson] | None = None
    insert_at: Pointer = ""


class CreateContract(Contract):
    """The request that creates a remote record, and how its answer is read."""

    method: Method = Method.POST
    path: str
    headers: dict[str, str] = {}
    body: Body = Body()
    success: Success = Success(status=(200, 201, 203))
    response: Response = Response()


class UpdateContract(Contract):
    """The request that updates a remote record; `{remote_id}` is the one variable of its path."""

    method: Method = Method.PATCH
    path: str
    headers: dict[str, str] = {}
    body: Body = Body()
    semantics: Literal["merge", "replace", "sparse"] = "merge"
    idempotent: bool = False
    creates_if_missing: bool = False
    success: Success = Success(status=(200, 202, 204))


class Encode(Contract):
    """One closed, versioned transform of a source value: normalise, convert, shorten, wrap, in this order.

    At most one of the nine conversions is written (`string` to `join`; `zone` belongs to the three that write moments);
    `values.encode_problems` says what is wrong with an encoding, whatever the value.
    """

    string: bool | None = None
    decimal_string: Annotated[int, Field(ge=0, le=18)] | None = None  # digits after the point
    minor_units: Annotated[int, Field(ge=0, le=6)] | None = None  # 19.99 with 2 becomes 1999
    date: str | None = None  # a pattern of %Y %m %d and the like for a calendar date
    datetime: str | None = None  # a pattern of %Y %m %d %H %M %S and the like, or "rfc3339"
    zone: str | None = None  # IANA zone in which a moment is written; default UTC
    epoch: Literal["s", "ms"] | None = None
    enum_map: dict[str, Scalar] | None = None
    bool_map: dict[Literal["true", "false"], Scalar] | None = None
    join: str | None = None
    json_string: bool | None = None
    wrap: str | None = None
    lower_trim: bool | None = None
    truncate: Annotated[int, Field(ge=1)] | None = None


class Clear(StrEnum):
    """How "empty here" is said to the remote when a mapped source value is null."""

    NULL = "null"
    EMPTY_STRING = "empty_string"
    OMIT = "omit"
    FALSE = "false"


class Mapping(Contract):
    """One outbound value: a source field, or a constant, and where it stands in the body."""

    source: str | None = None
    constant: Scalar = None
    target: Pointer
    encode: Encode = Encode()
    clear: Clear = Clear.NULL
    operations: tuple[Literal["create", "update"], ...] = ("create", "update")


class Mirror(Contract):
    """Local fields that show the remote id and its provenance for people and older code. Never authority."""

    remote_id_field: str
    provenance_field: str | None = None
    provenance_value: str | None = None


class Condition(Contract):
    """A closed condition on one source field; an action is for a record only when all of its conditions hold."""

    field: str
    equals: Scalar = None
    one_of: Annotated[tuple[Scalar, ...] | None, Field(alias="in")] = None
    present: bool | None = None


class Timeouts(Contract):
    """`connect` bounds the connection, `total` the whole call; the socket is closed at `total`."""

    connect_ms: Annotated[DurationMs, Field(alias="connect")] = 5_000
    total_ms: Annotated[DurationMs, Field(alias="total")] = 30_000


class Backoff(Contract):
    """Exponential delay between tries that were proved not applied."""

    base_ms: Annotated[DurationMs, Field(alias="base")] = 2_000
    cap_ms: Annotated[DurationMs, Field(alias="cap")] = 600_000


class Retry(Contract):
    """How often, and how far apart, a request that was proved not applied is sent again."""

    attempts: Annotated[int, Field(ge=1, le=1_000)] = 8
    backoff: Backoff = Backoff()


class Auth(Contract):
    """How the credential is put on a request. The secret itself is resolved inside the transport at send time."""

    kind: Literal["bearer", "none"] = "bearer"


class Waivers(Contract):
    """Drift that a profile declares harmless; each is one row of the matrix, off unless it is written."""

    credential_ref: bool = False
    credential_generation: bool = False
    endpoint: bool = False
    update_path_same_route: bool = False


class ProfileContract(Contract):
    """One way to reach one remote tenant: endpoint, credential reference, limits, declared contracts."""

    base_url: str
    endpoint_class: str = "default"
    destination_scope: str = ""
    credential_ref: str | None = None
    auth: Auth = Auth()
    headers: dict[str, str] = {}
    active: bool = True
    path_characters: str = ""  # which of / \ ? # % a remote id may hold in a path; they are sent percent-encoded
    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()
    body_bytes_max: Annotated[int, Field(ge=1)] = 1_048_576
    reply_bytes_max: Annotated[int, Field(ge=1)] = 1_048_576
    remote_processing_ms: Annotated[DurationMs, Field(alias="remote_processing")] = 600_000
    expires_after_ms: Annotated[DurationMs | None, Field(alias="expires_after")] = None
    waives: Waivers = Waivers()


class ActionContract(Contract):
    """Everything of one action that rendering and interpretation need; the action config snapshot."""

    create: CreateContract
    update: UpdateContract | None = None
    mappings: tuple[Mapping, ...]
    mirror: Mirror | None = None
