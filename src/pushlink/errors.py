"""Every error pushlink raises and every stable code it answers with.

A *refusal* of a gate and an *outcome* of a remote are values, never exceptions; what is raised here is either a
caller's mistake, a broken configuration, a broken promise of the protocol, or a dependency that is not there:

    PushlinkError
    ├── CallerError            the call itself is wrong: unknown object, wrong key type, missing reason
    ├── ConfigurationError     settings, packs or a database that pushlink refuses to work with
    │   └── PackError          a pack document, with file, line and column of every finding
    ├── ProtocolViolation      a transition off the table, or an invariant that does not hold; a defect
    └── Unavailable            a database, file or network dependency did not answer
        └── Contended          the host's transaction lost a race; roll back and run it again
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Code(StrEnum):
    """Stable codes: the same word in Python, on the command line, in JSON and in the documentation."""

    # Gates before a create or an update, in the order of the gate tables.
    SLOT_UNRESOLVED = "slot_unresolved"
    OWNER_UNRESOLVED = "owner_unresolved"
    AUTHORITY_UNAVAILABLE = "authority_unavailable"
    INSTALL_UNUSABLE = "install_unusable"
    MAPPING_UNUSABLE = "mapping_unusable"
    PATH_UNUSABLE = "path_unusable"
    READ_DENIED = "read_denied"
    SOURCE_GONE = "source_gone"
    LINK_EXISTS = "link_exists"
    LINK_SUSPENDED = "link_suspended"
    LINK_RETIRED = "link_retired"
    LINK_MISSING = "link_missing"
    CREATE_ACTIVE = "create_active"
    CREATE_AMBIGUOUS = "create_ambiguous"
    CREATE_TERMINAL = "create_terminal"
    LINEAGE_UNRESOLVED = "lineage_unresolved"
    FREEZE_FAILED = "freeze_failed"
    ROUTE_UNSAFE = "route_unsafe"
    VALUE_UNSENDABLE = "value_unsendable"
    BODY_TOO_LARGE = "body_too_large"
    DRIFT = "drift"
    UPDATE_AMBIGUOUS = "update_ambiguous"
    VERSION_REFUSED = "version_refused"
    ASSOCIATION_MISSING = "association_missing"
    ASSOCIATION_DENIED = "association_denied"
    ASSOCIATION_CYCLE = "association_cycle"
    RECOVERY_MODE = "recovery_mode"

    # Why an attempt is parked, ended or put back (push_attempt.reason_code).
    EFFECT_UNKNOWN = "effect_unknown"
    APPLIED_UNIDENTIFIED = "applied_unidentified"
    ACCEPTED_PENDING = "accepted_pending"
    LEASE_EXPIRED = "lease_expired"
    TIMELINE_CHANGED = "timeline_changed"
    REPLAY_NOT_ALLOWED = "replay_not_allowed"
    REPLAY_EXPIRED = "replay_expired"
    KEY_MISMATCH = "key_mismatch"
    KEY_IN_FLIGHT = "key_in_flight"
    LOOKUP_SHOWS_SEVERAL = "lookup_shows_several"
    LOOKUP_IN_VAIN = "lookup_in_vain"
    REMOTE_REJECTED = "remote_rejected"
    REMOTE_CONFLICT = "remote_conflict"
    REMOTE_GONE = "remote_gone"
    REMOTE_CHANGED = "remote_changed"
    RETRIES_EXHAUSTED = "retries_exhausted"
    THROTTLED = "throttled"
    NOT_SENT = "not_sent"
    CERTIFICATE_UNTRUSTED = "certificate_untrusted"
    NOT_APPLIED = "not_applied"
    UNAUTHENTICATED = "unauthenticated"
    LOCATOR_CONFLICT = "locator_conflict"
    MIRROR_FAILED = "mirror_failed"
    ABANDONED = "abandoned"
    CONFIRMED_ABSENT = "confirmed_absent"
    DISPOSED = "disposed"
    OPERATOR_DECISION = "operator_decision"
    GIVEN_BACK = "given_back"
    OUTDATED = "outdated"
    STALE_MAPPING = "stale_mapping"
    SAME_AS_APPLIED = "same_as_applied"
    BODY_UNREADABLE = "body_unreadable"

    # Callers, configuration and dependencies.
    CALLER_MISTAKE = "caller_mistake"
    OBJECT_UNKNOWN = "object_unknown"
    RECORD_ID_UNUSABLE = "record_id_unusable"
    RECORD_UNKNOWN = "record_unknown"
    STALE_VERSION = "stale_version"
    NOT_ALLOWED_NOW = "not_allowed_now"
    TOKEN_REFUSED = "token_refused"  # noqa: S105 - a code, not a secret
    NOT_PERMITTED = "not_permitted"
    SETTINGS_INVALID = "settings_invalid"
    POLICY_INVALID = "policy_invalid"
    PACK_INVALID = "pack_invalid"
    TABLE_PROTECTED = "table_protected"
    SCHEMA_OUTDATED = "schema_outdated"
    DURABILITY_WEAKENED = "durability_weakened"
    CREDENTIAL_UNAVAILABLE = "credential_unavailable"
    TRANSPORT_UNSAFE = "transport_unsafe"
    PROTOCOL_VIOLATION = "protocol_violation"
    UNAVAILABLE = "unavailable"
    CONTENDED = "contended"


class PushlinkError(Exception):
    """Root of everything pushlink raises.

    `message` is one sentence a person can act on, `evidence` says which row, field, old and new value (never a secret
    and never a value its reader was denied), `next_step` names the command or call to try next.
    """

    code: Code = Code.PROTOCOL_VIOLATION

    def __init__(
        self,
        message: str,
        *,
        code: Code | None = None,
        evidence: Mapping[str, object] | None = None,
        next_step: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.evidence: dict[str, object] = dict(evidence or {})
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.message} Next: {self.next_step}" if self.next_step else self.message


class CallerError(PushlinkError):
    """The call is wrong, whatever the state of the database."""

    code = Code.CALLER_MISTAKE


class ConfigurationError(PushlinkError):
    """Settings, a policy, a pack or a database that pushlink refuses to start with."""

    code = Code.SETTINGS_INVALID


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing wrong with a document: where (1-based line and column, 0 when unknown), what, and how to mend it."""

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.path or '(document)'}: {self.message}"


class PackError(ConfigurationError):
    """A pack document that does not load; `findings` has one entry for each thing to mend."""

    code = Code.PACK_INVALID

    def __init__(self, message: str, *, findings: tuple[Finding, ...] = (), next_step: str | None = None) -> None:
        super().__init__(message, evidence={"findings": [str(f) for f in findings]}, next_step=next_step)
        self.findings = findings


class ProtocolViolation(PushlinkError):
    """A transition that is not in the machines, or an invariant that does not hold: a defect, never a refusal."""

    code = Code.PROTOCOL_VIOLATION


class Unavailable(PushlinkError):
    """A dependency did not answer; nothing was decided, the call may be made again."""

    code = Code.UNAVAILABLE


class Contended(Unavailable):
    """The host's transaction lost a race that only a new transaction can win: roll it back and run it again."""

    code = Code.CONTENDED


def invariant(holds: bool, message: str, **evidence: object) -> None:
    """Raise `ProtocolViolation` unless `holds`; used before a write and after a read, never as a gate."""
    if not holds:
        raise ProtocolViolation(message, evidence=evidence)
