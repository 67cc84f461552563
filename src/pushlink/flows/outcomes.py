"""What a save answers: one typed outcome for each action of each record, never an exception for a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pushlink.errors import Code
from pushlink.protocol.snapshots import AttemptId, LinkKey


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Which record and which action an outcome is about. Names are for people; the link key is the identity."""

    tenant: str
    source_object: str
    record_id: str
    action: str
    link_key: LinkKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """A create attempt is reserved; it commits with the host's transaction and is sent after that."""

    about: About
    attempt_id: AttemptId
    ordinal: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferred:
    """A create attempt is reserved and waits for an association's target to be finalized."""

    about: About
    attempt_id: AttemptId
    ordinal: int
    version: int
    waits_for: tuple[LinkKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """The values are the slot's wanted version.

    `attempt_id` is the update that carries it, or `None` while `waits_for` (a code such as `create_active`) stands in
    its way.
    """

    about: About
    version: int
    attempt_id: AttemptId | None
    waits_for: Code | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """Nothing to send: the remote has these values, or they are already wanted."""

    about: About
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A gate said no. Nothing was sent and nothing else changed; `wanted_version` is set where the values were kept."""

    about: About
    code: Code
    message: str
    evidence: Mapping[str, object] = field(default_factory=dict)
    next_verbs: tuple[str, ...] = ()
    wanted_version: int | None = None


Outcome: TypeAlias = Reserved | Deferred | Queued | Unchanged | Refused
