"""What a pack declares about answers: what proves that a request was done, and what says that it was not.

The other half, what is sent, stands in `request_contracts.py`. A rule here may only move a verdict along the edges that
`declarations.py` allows: nothing becomes "applied" without an id, and what is unknown by its status becomes "not
applied" only by a status together with something that stands in the body.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from pushlink.protocol.declared import LATER, Contract, DurationMs, PlainJson, Pointer, Scalar


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
    nothing: Annotated[tuple[str, ...], Field(alias="none"), LATER] = ()  # what stands there when there is no id


class IdRule(Contract):
    """Which texts are remote ids at this destination, and how they are written for comparison."""

    canonical: Canonical = Canonical.EXACT_V1
    pattern: str | None = None
    length_max: Annotated[int, Field(ge=1)] | None = None
    mutable: Annotated[bool, LATER] = False  # an update may give the record another id, and its answer shows it


class CompositeId(Contract):
    """An id of several parts: all are found, none is empty, and none holds the separator between them."""

    parts: Annotated[tuple[IdExtractor, ...], Field(min_length=2)]
    separator: Annotated[str, Field(min_length=1)]


class Success(Contract):
    """Statuses that mean "done" for one operation. Any other 2xx is applied, but not identified.

    Where `assert` is written, the status alone proves nothing: all of its criteria must hold as well.
    """

    status: tuple[Annotated[int, Field(ge=200, le=299)], ...]
    asserts: Annotated[tuple[Criterion, ...], Field(alias="assert"), LATER] = ()


class Response(Contract):
    """What to read from a response. The first id extractor with a non-empty result decides on a success.

    `candidates` read any other answer (a duplicate that names the existing record, say); what they find is evidence for
    a person and is never adopted by itself.
    """

    id: tuple[IdExtractor, ...] = ()
    composite: Annotated[CompositeId | None, LATER] = None
    id_rule: IdRule = IdRule()
    candidates: tuple[IdExtractor, ...] = ()
    created: Annotated[tuple[Criterion, ...], LATER] = ()
    version: Annotated[tuple[IdExtractor, ...], LATER] = ()


class Conflict(Contract):
    """An answer to a create that says "this exists already", and where it names the existing record."""

    when: Annotated[tuple[Criterion, ...], Field(min_length=1)]
    existing_id: tuple[IdExtractor, ...] = ()
    variant: Literal["live", "archived"] = "live"
    policy: Literal["park", "adopt_if_stamp"] = "park"  # the latter asks the create's look-up whose record it is


class Merged(Contract):
    """Where an answer to an update names the record that the linked one was merged into."""

    successor: Annotated[tuple[IdExtractor, ...], Field(min_length=1)]


class LookUp(Contract):
    """A request that only reads, and says more about a create whose own answer did not name its record.

    It is made again, `every` so often, until it shows the record, says that it failed, or `timeout` is over. A remote
    whose search takes a body is asked by POST.
    """

    method: Annotated[Literal["GET", "POST"], LATER] = "GET"
    path: str
    query: dict[str, str] = {}
    body: Annotated[dict[str, PlainJson] | None, LATER] = None  # JSON, with the names of the path and query in it
    job: tuple[IdExtractor, ...] = ()  # of the create's answer; fills {job}
    key: Pointer | None = None  # of the create's own body; fills {key}
    status: tuple[Annotated[int, Field(ge=200, le=299)], ...] = (200,)
    done: tuple[Criterion, ...] = ()
    failed: tuple[Criterion, ...] = ()
    only: Pointer | None = None  # a list that has exactly one item when the record is found
    id: Annotated[tuple[IdExtractor, ...], Field(min_length=1)]
    every_ms: Annotated[DurationMs, Field(alias="every")] = 10_000
    timeout_ms: Annotated[DurationMs, Field(alias="timeout")] = 0


class Asynchronous(LookUp):
    """The same for a create that is only accepted: which statuses say so, and the job that is asked about."""

    accepted: tuple[Annotated[int, Field(ge=200, le=299)], ...] = (202,)
    timeout_ms: Annotated[DurationMs, Field(alias="timeout")] = 600_000


class ErrorRule(Contract):
    """One declared reading of an answer, for a person who reads it later as much as for the runtime.

    A rule is for creates and updates, unless it says what it is `on`. On a look-up `retry_at` asks again later, and
    every other disposition ends the asking.
    """

    on: Annotated[tuple[Literal["create", "update", "lookup"], ...], LATER] = ()
    when: Annotated[tuple[Criterion, ...], Field(min_length=1)]
    effect: Literal["not_applied", "unknown"]
    disposition: Literal["retry_at", "terminal", "conflict", "gone", "reconcile"]
    wait_ms: Annotated[DurationMs | None, Field(alias="wait")] = None
    because: Annotated[str, Field(min_length=1, max_length=500)]


class Wait(Contract):
    """One place where a throttled answer may say how long to wait, or a wait that is known without it.

    It is looked at only when all criteria of `when` hold.
    """

    when: Annotated[tuple[Criterion, ...], LATER] = ()
    header: str | None = None
    pointer: Pointer | None = None
    regex: str | None = None
    unit: Literal["seconds", "milliseconds", "http_date", "epoch_s", "epoch_ms", "iso8601"] | None = None
    fixed_ms: Annotated[DurationMs | None, Field(alias="fixed")] = None
    until: Literal["utc_midnight"] | None = None


#: Whom a limit of a remote is about, from one record to everything at an address.
LimitScope: TypeAlias = Literal["record", "destination", "credential", "remote_account", "endpoint"]


class RateLimit(Contract):
    """How a remote says "too many", how long it wants to be left alone then, and whom else that is about.

    `scope` also says what the profile's own `limits` are counted over.
    """

    detect: tuple[Criterion, ...] = ()
    wait: tuple[Wait, ...] = ()
    cap_ms: Annotated[DurationMs, Field(alias="cap")] = 86_400_000
    scope: Annotated[LimitScope, LATER] = "destination"
