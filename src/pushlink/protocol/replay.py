"""Until when a create in doubt may be sent again, and with which key: the frozen contract, and what narrows it.

A create is repeated byte for byte or not at all. What allows that is one of three claims: a key that the remote
remembers for a while, a record whose id or stamp we made before the first send, or an upsert on that stamp. Each holds
for a lifetime that counts from the first send; where nobody knows it, for a quarter of an hour. A pack of now can make
it shorter or end it, never longer (DR-21). Everything here is pure: who calls brings the clock of the database.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import format_datetime
from enum import StrEnum
from typing import Final

from pushlink.protocol.contracts import CreateContract, Idempotency, Repeat, Stamp
from pushlink.protocol.placeholders import IDEMPOTENCY_KEY, STAMP
from pushlink.protocol.snapshots import Digest, digest

#: How long a contract holds whose lifetime nobody declared (D-07).
UNKNOWN_LIFETIME_MS: Final = 900_000

#: The version digit that some remotes insist on; the other digits of a derived key stay as they are.
_VERSION_AT: Final = 14


class Why(StrEnum):
    """Why a create in doubt is not sent again; the words stand in the evidence of a parked attempt."""

    NONE_DECLARED = "no replay contract was frozen with it"
    WITHDRAWN = "the pack of now declares no such contract any more"
    UNCERTIFIED = "the contract is not certified, and the settings use no uncertified one"
    NEVER_SENT = "nothing was ever sent"
    EXPIRED = "the contract's lifetime is over"
    BODY_TOO_LONG = "the body is longer than the remote remembers a key for"
    CREDENTIAL_CHANGED = "the key belongs to a credential that was changed"
    ERASED = "the frozen body was erased"
    LANE = "this lane never replays by itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFacts:
    """What a replay hangs on beside the frozen contract; `current` is the create of now, if there is one."""

    certified: bool
    current: CreateContract | None
    body_size: int | None  # None: the body was erased
    credential_changed: bool
    first_send: dt.datetime | None
    total_ms: int  # the request's whole deadline: an answer that late must still find the key


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """A replay may start until this moment, by the database's clock."""

    until: dt.datetime


def may_replay(create: CreateContract, facts: ReplayFacts) -> Allowed | Why:
    """Until when the frozen create may be sent again, or why not at all. The caller compares the moment itself."""
    frozen = terms_of(create)
    if frozen is None:
        return Why.NONE_DECLARED
    current = terms_of(facts.current) if facts.current is not None else None
    if current is None or current.kind != frozen.kind:
        return Why.WITHDRAWN
    if not facts.certified:
        return Why.UNCERTIFIED
    if facts.body_size is None:
        return Why.ERASED
    key = create.idempotency
    if key is not None and key.body_bytes_max is not None and facts.body_size > key.body_bytes_max:
        return Why.BODY_TOO_LONG
    if facts.credential_changed and frozen.hangs_on_credential:
        return Why.CREDENTIAL_CHANGED
    if facts.first_send is None:
        return Why.NEVER_SENT
    usable_ms = min(frozen.usable_ms, current.usable_ms) - facts.total_ms
    return Allowed(until=facts.first_send + dt.timedelta(milliseconds=max(usable_ms, 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a declared contract comes to: its kind, and for how long after the first send it is relied on."""

    kind: str
    usable_ms: int
    hangs_on_credential: bool


def terms_of(create: CreateContract) -> Terms | None:
    """The terms of the contract under which a create may be repeated; `None` where it declares none."""
    declared: Idempotency | Repeat | None = create.idempotency or create.repeat
    if declared is None:
        return None
    lifetime_ms = UNKNOWN_LIFETIME_MS if declared.lifetime_ms is None else declared.lifetime_ms
    is_key = isinstance(declared, Idempotency)
    return Terms(
        kind="key" if isinstance(declared, Idempotency) else declared.kind,
        usable_ms=lifetime_ms - declared.margin_ms,
        hangs_on_credential=is_key and create.idempotency is not None and create.idempotency.scope == "credential",
    )


def classes_of(create: CreateContract) -> tuple[str, ...]:
    """The recovery classes that a create declares, strongest first, for people."""
    found = []
    terms = terms_of(create)
    if terms is not None:
        found.append({"key": "R1 key", "conditional": "R2 conditional create", "upsert": "R3 upsert"}[terms.kind])
    if any(conflict.policy == "adopt_if_stamp" for conflict in create.conflict):
        found.append("R4 conflict that names the record")
    if create.lookup is not None:
        is_strong = create.lookup.consistency == "strong"
        found.append("R5 consistent look-up" if is_strong else "R6 lagging look-up")
    return tuple(found) or ("R7 none",)


def contract_digest(create: CreateContract) -> Digest:
    """What a certificate is about: all that a create says beyond its defaults, and so the bytes that it sends."""
    written = create.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return digest({"certifies": "create", "version": 1, "create": written})


def has_contract(create: CreateContract) -> bool:
    """Whether there is anything to certify: a way to repeat the create, or one to find it."""
    return terms_of(create) is not None or create.lookup is not None


def own_texts(create: CreateContract, idempotency_key: str | None) -> Mapping[str, str]:
    """The values of `{stamp}` and `{idempotency_key}` for one create; none without a key."""
    if not idempotency_key:
        return {}
    found = {}
    if create.stamp is not None:
        found[STAMP] = stamp_of(create.stamp, idempotency_key)
    if create.idempotency is not None:
        found[IDEMPOTENCY_KEY] = key_of(create.idempotency, idempotency_key)
    return found


def stamp_of(stamp: Stamp, idempotency_key: str) -> str:
    """The stamp of the create that has this key."""
    return stamp.prefix + (idempotency_key.replace("-", "") if stamp.format == "token" else idempotency_key)


def key_of(contract: Idempotency, idempotency_key: str) -> str:
    """The key as the remote wants it."""
    match contract.format:
        case "token":
            return idempotency_key.replace("-", "")
        case "uuid_v4":
            return f"{idempotency_key[:_VERSION_AT]}4{idempotency_key[_VERSION_AT + 1 :]}"
        case "uuid":
            return idempotency_key


def first_sent_header(create: CreateContract, first_send: dt.datetime) -> tuple[tuple[str, str], ...]:
    """The header that says when the first send was, for remotes that ask; the same in every repeat."""
    key = create.idempotency
    if key is None or key.first_sent is None:
        return ()
    return ((key.first_sent, format_datetime(first_send.astimezone(dt.UTC), usegmt=True)),)
