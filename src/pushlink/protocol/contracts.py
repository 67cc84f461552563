"""What a pack declares about one remote: the closed vocabulary that rendering and interpretation understand.

These models are written in packs, frozen into snapshots and read back years later, so every one of them is immutable,
refuses unknown keys and has a default that means "as if it were not written". Nothing here has logic: a contract is
data, `render.py` and `outcome.py` say what it means. A new field needs a row in the drift map (`drift.py`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pushlink.protocol.association_contracts import Association, AssociationCall
from pushlink.protocol.declared import (
    DURATION_MS_MAX,
    DURATION_PATTERN,
    INTEGER_MAX,
    LATER,
    Contract,
    DurationMs,
    PlainJson,
    Pointer,
    Scalar,
)
from pushlink.protocol.limit_contracts import Circuit, Ordering, SendLimits
from pushlink.protocol.replay_contracts import Idempotency, Repeat, Sandbox, Stamp, StampLookUp
from pushlink.protocol.request_contracts import (
    Body,
    Clear,
    ClientId,
    CreatePrecondition,
    Encode,
    Fetch,
    GraphQl,
    KeyQuoting,
    Limits,
    Mapping,
    Method,
    Preference,
    Prefetch,
    Session,
    UpdatePrecondition,
)
from pushlink.protocol.response_contracts import (
    Asynchronous,
    Canonical,
    CompositeId,
    Conflict,
    Criterion,
    ErrorRule,
    IdExtractor,
    IdRule,
    LookUp,
    Merged,
    RateLimit,
    Response,
    Success,
    Wait,
)

__all__ = [
    "DURATION_MS_MAX",
    "DURATION_PATTERN",
    "INTEGER_MAX",
    "LATER",
    "ActionContract",
    "Association",
    "AssociationCall",
    "Asynchronous",
    "Auth",
    "Backoff",
    "Body",
    "Canonical",
    "Circuit",
    "Clear",
    "ClientId",
    "CompositeId",
    "Condition",
    "Conflict",
    "Contract",
    "CreateContract",
    "CreatePrecondition",
    "Criterion",
    "DurationMs",
    "Encode",
    "ErrorRule",
    "Fetch",
    "GraphQl",
    "IdExtractor",
    "IdRule",
    "Idempotency",
    "KeyQuoting",
    "Limits",
    "LookUp",
    "Mapping",
    "Merged",
    "Method",
    "Mirror",
    "Ordering",
    "PlainJson",
    "Pointer",
    "Preference",
    "Prefetch",
    "ProfileContract",
    "RateLimit",
    "Repeat",
    "Response",
    "Retry",
    "Sandbox",
    "Scalar",
    "SendLimits",
    "Session",
    "Stamp",
    "StampLookUp",
    "Success",
    "Timeouts",
    "TokenRequest",
    "UpdateContract",
    "UpdatePrecondition",
    "Wait",
    "Waivers",
]


class CreateContract(Contract):
    """The request that creates a remote record, and how its answer is read."""

    method: Method = Method.POST
    path: str
    key_quoting: Annotated[KeyQuoting, LATER] = "none"
    query: Annotated[dict[str, str], LATER] = {}
    client_id: Annotated[ClientId | None, LATER] = None
    stamp: Annotated[Stamp | None, LATER] = None
    idempotency: Annotated[Idempotency | None, LATER] = None
    headers: dict[str, str] = {}
    prefer: Annotated[tuple[Preference, ...], LATER] = ()
    precondition: Annotated[CreatePrecondition | None, LATER] = None
    body: Body = Body()
    success: Success = Success(status=(200, 201, 203))
    response: Response = Response()
    conflict: Annotated[tuple[Conflict, ...], LATER] = ()
    followup: Annotated[LookUp | None, LATER] = None
    asynchronous: Annotated[Asynchronous | None, Field(alias="async"), LATER] = None
    repeat: Annotated[Repeat | None, LATER] = None
    lookup: Annotated[StampLookUp | None, LATER] = None


class UpdateContract(Contract):
    """The request that updates a remote record; `{remote_id}` stands in its path, its query or its body."""

    method: Method = Method.PATCH
    path: str
    key_quoting: Annotated[KeyQuoting, LATER] = "none"
    query: Annotated[dict[str, str], LATER] = {}
    headers: dict[str, str] = {}
    prefer: Annotated[tuple[Preference, ...], LATER] = ()
    precondition: Annotated[UpdatePrecondition | None, LATER] = None
    body: Body = Body()
    semantics: Literal["merge", "replace", "sparse"] = "merge"
    idempotent: bool = False
    creates_if_missing: bool = False
    success: Success = Success(status=(200, 202, 204))
    deleted: Annotated[tuple[Criterion, ...], LATER] = ()
    merged: Annotated[Merged | None, LATER] = None


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


class TokenRequest(Contract):
    """How an OAuth 2 grant becomes an access token. The grant is what `credential_ref` names.

    With `client_credentials` that is the client's secret, with `refresh_token` the refresh token. `same_account` holds
    of an answer that still speaks of the remote account that the profile was written for.
    """

    url: str
    grant: Literal["client_credentials", "refresh_token"] = "client_credentials"
    client_id: Annotated[str, Field(min_length=1, max_length=1_000)]
    client_secret_ref: str | None = None
    client_auth: Literal["basic", "post"] = "basic"
    scope: str | None = None
    audience: str | None = None
    old_stays_good: bool = False
    same_account: Annotated[tuple[Criterion, ...], LATER] = ()
    early_ms: Annotated[DurationMs, Field(alias="early")] = 60_000


class Auth(Contract):
    """How the credential is put on a request. The secret itself is resolved inside the transport at send time.

    `prefix` belongs to `bearer`, `location` and `name` to `api_key`, `username` and `secret_is` to `basic`. With `mtls`
    the secret is a client certificate with its key, shown in the handshake.
    """

    kind: Literal["bearer", "basic", "api_key", "oauth2", "mtls", "none"] = "bearer"
    token: Annotated[TokenRequest | None, LATER] = None
    prefix: Annotated[str, LATER] = "Bearer"
    location: Annotated[Literal["header", "query"], LATER, Field(alias="in")] = "header"
    name: Annotated[str | None, LATER] = None
    username: Annotated[str | None, LATER] = None  # without one, the secret of `basic` is `user:password` as a whole
    secret_is: Annotated[Literal["password", "username"], LATER] = "password"  # noqa: S105 - which half it is


class Waivers(Contract):
    """Drift that a profile declares harmless; each is one row of the matrix, off unless it is written."""

    credential_ref: bool = False
    credential_generation: bool = False
    endpoint: bool = False
    update_path_same_route: bool = False


class ProfileContract(Contract):
    """One way to reach one remote tenant: endpoint, credential reference, limits, declared contracts."""

    base_url: str
    variables: Annotated[dict[str, str], LATER] = {}  # names in paths and queries: a realm, a version of an API
    endpoint_class: str = "default"
    destination_scope: str = ""
    credential_ref: str | None = None
    auth: Auth = Auth()
    session: Annotated[Session | None, LATER] = None
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
    errors: Annotated[tuple[ErrorRule, ...], LATER] = ()
    rate_limit: Annotated[RateLimit, LATER] = RateLimit()
    sandbox: Annotated[Sandbox | None, LATER] = None
    limits: Annotated[SendLimits, LATER] = SendLimits()
    circuit: Annotated[Circuit, LATER] = Circuit()


class ActionContract(Contract):
    """Everything of one action that rendering and interpretation need; the action config snapshot."""

    create: CreateContract
    update: UpdateContract | None = None
    mappings: tuple[Mapping, ...]
    associations: Annotated[tuple[Association, ...], LATER] = ()
    limits: Annotated[Limits, LATER] = Limits()
    ordering: Annotated[Ordering | None, LATER] = None
    mirror: Mirror | None = None
    errors: Annotated[tuple[ErrorRule, ...], LATER] = ()
