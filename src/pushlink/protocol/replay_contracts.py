"""What a pack declares about sending one create again, and about finding it when nobody knows what became of it.

All of it is a claim of the pack's author: a remote that ignores it makes a second record. So it is frozen with each
create, used by the runtime only where it was proved (`pushlink pack certify`) or where the settings trust it, and never
wider than it was frozen. `replay.py` says until when it holds, `repeats.py` what an answer under it means.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pushlink.protocol.declared import Contract, DurationMs, Pointer
from pushlink.protocol.request_contracts import Preference
from pushlink.protocol.response_contracts import Criterion, IdExtractor, LookUp


class Stamp(Contract):
    """A text that stands in one create alone, made of its key: `{stamp}` in its path, query, body and look-up.

    What carries it at the remote was made by this very create, whoever asks and whenever.
    """

    format: Literal["uuid", "token"] = "uuid"  # a token is the key's 32 hexadecimal digits
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,32}$")] = ""


class Idempotency(Contract):
    """A key with which the remote answers a repeat of the same bytes as it answered the first of them.

    An unknown `lifetime` is taken as a short one. It counts from the first send, and ends `margin` early.
    """

    location: Annotated[Literal["header", "query", "body"], Field(alias="in")] = "header"
    name: Annotated[str, Field(min_length=1, max_length=256)]  # in a body, the pointer to its place
    format: Literal["uuid", "uuid_v4", "token"] = "uuid"
    quoted: bool = False  # a header of RFC 8941 is a text in quotes
    first_sent: str | None = None  # the header that says when the first send was (OASIS repeatable requests)
    requires: tuple[Preference, ...] = ()  # the preferences without which the key is not looked at
    scope: Literal["tenant", "credential", "endpoint"] = "tenant"
    lifetime_ms: Annotated[DurationMs | None, Field(alias="lifetime")] = None
    margin_ms: Annotated[DurationMs, Field(alias="margin")] = 60_000
    body_bytes_max: Annotated[int, Field(ge=1)] | None = None  # a longer body is not remembered
    receipt: tuple[Criterion, ...] = ()  # all hold for an answer that was given before
    stores: Literal["all", "2xx", "2xx_4xx"] = "all"
    mismatch: tuple[Criterion, ...] = ()
    in_flight: tuple[Criterion, ...] = ()


class Repeat(Contract):
    """A create that a repeat cannot make twice: its record is named by our own stamp or id before it is sent.

    `conditional`: a repeat of one that took effect is answered as `exists` says. `upsert`: it converges on one record.
    """

    kind: Literal["conditional", "upsert"]
    exists: tuple[Criterion, ...] = ()
    existing_id: tuple[IdExtractor, ...] = ()
    lifetime_ms: Annotated[DurationMs | None, Field(alias="lifetime")] = None
    margin_ms: Annotated[DurationMs, Field(alias="margin")] = 60_000


class StampLookUp(LookUp):
    """The look-up of a create in doubt: what carries its stamp is its record, and only one may.

    Each item of `items` (or the whole answer) is read for itself: its `match` is the stamp, its `id` the record's.
    `index` answers lag behind by `lag`, `strong` ones do not. Finding nothing proves something only where it is said.
    """

    items: Pointer | None = None
    match: Pointer
    none: tuple[Criterion, ...] = ()  # what says that nothing was found, beside an empty list
    consistency: Literal["strong", "index"] = "index"
    lag_ms: Annotated[DurationMs, Field(alias="lag")] = 0
    absence_is_proof: bool = False
    misses_min: Annotated[int, Field(ge=1, le=100)] = 1
    every_ms: Annotated[DurationMs, Field(alias="every")] = 60_000
    timeout_ms: Annotated[DurationMs, Field(alias="timeout")] = 3_600_000


class Sandbox(Contract):
    """Where a profile's claims may be tried: another tenant of the same remote, with a credential of its own."""

    base_url: str
    credential_ref: str | None = None
    variables: dict[str, str] = {}
