"""The link, create and update machines and the holds, as tables.

This module owns every status, event, lane and hold code, and which arrow leads where. An arrow that is not in a table
does not exist: `follow` raises, and the compare-and-set of the store (`store/lifecycle.py`) writes nothing. CHECK
constraints, claim statements and documentation are built from these tables; no status is listed anywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

from pushlink.errors import ProtocolViolation

S = TypeVar("S", bound=StrEnum)


class Operation(StrEnum):
    """What an attempt does at the remote."""

    CREATE = "create"
    UPDATE = "update"


class Lane(StrEnum):
    """Who may dispatch an attempt. A row may hold another word; no process takes it (unknown lanes stay untouched)."""

    CONFIGURED = "configured"
    DEFERRED_ASSOCIATION = "deferred_association"


class LinkStatus(StrEnum):
    """State of the durable ownership of one remote record."""

    FINALIZED = "finalized"
    SUSPENDED_DRIFT = "suspended_drift"
    RETIRED = "retired"


class AttemptStatus(StrEnum):
    """State of one create or update attempt; which ones each operation may have follows from its table."""

    PENDING = "pending"
    PROCESSING = "processing"
    POST_SENT = "post_sent"
    AMBIGUOUS_REMOTE_EFFECT = "ambiguous_remote_effect"
    WRITEBACK_COMMIT_PENDING = "writeback_commit_pending"
    WRITEBACK_PENDING = "writeback_pending"
    FINALIZED = "finalized"
    TERMINAL_FAILED = "terminal_failed"
    SUPERSEDED = "superseded"


class MirrorStatus(StrEnum):
    """What became of the compatibility mirror of a link. Never authority."""

    NONE = "none"  # no mirror is configured
    PENDING = "pending"
    WRITTEN = "written"
    FAILED = "failed"
    SKIPPED_FOREIGN_VALUE = "skipped_foreign_value"
    SKIPPED_SOURCE_DELETED = "skipped_source_deleted"
    SKIPPED_LINK_RETIRED = "skipped_link_retired"
    GIVEN_UP = "given_up"


class Hold(StrEnum):
    """Why a row may not be claimed. A hold changes no status."""

    DRIFT = "drift"
    ASSOCIATION_WAITING = "association_waiting"
    ASSOCIATION_BLOCKED = "association_blocked"
    ASSOCIATION_MOVED = "association_moved"
    POISON = "poison"
    EXPIRED = "expired"
    USER_INACTIVE = "user_inactive"
    BODY_UNREADABLE = "body_unreadable"
    CREDENTIAL = "credential"
    LOCATOR_CONFLICT = "locator_conflict"


class LinkEvent(StrEnum):
    """What may happen to a link."""

    FINALIZE = "finalize"
    SUSPEND = "suspend"
    REVALIDATE = "revalidate"
    RETIRE = "retire"
    RELEASE_SLOT = "release_slot"
    RELOCATE = "relocate"


class CreateEvent(StrEnum):
    """What may happen to a create attempt."""

    RESERVE = "reserve"
    CLAIM = "claim"
    END_UNSENT = "end_unsent"
    DOUBT = "doubt"
    RECOVER_UNSTARTED = "recover_unstarted"
    GIVE_BACK = "give_back"
    FAIL_VALIDATION = "fail_validation"
    ANSWER_STORED = "answer_stored"
    NOT_APPLIED = "not_applied"
    REPLAY = "replay"
    REJECT = "reject"
    UNKNOWN = "unknown"
    LINK_FINALIZED = "link_finalized"
    LINK_FINALIZED_NO_MIRROR = "link_finalized_no_mirror"
    LOCATOR_TAKEN = "locator_taken"
    MIRROR_SETTLED = "mirror_settled"
    MIRROR_FAILED = "mirror_failed"
    PROMOTE = "promote"
    LINK_RETIRED = "link_retired"
    DISPOSE = "dispose"
    ADOPT = "adopt"
    STAMP_FOUND = "stamp_found"
    CONFIRM_ABSENT = "confirm_absent"
    REPLAY_EXPLICIT = "replay_explicit"
    SUPERSEDE = "supersede"


class UpdateEvent(StrEnum):
    """What may happen to an update attempt."""

    RESERVE = "reserve"
    CLAIM = "claim"
    REPLACE = "replace"
    OBSOLETE = "obsolete"
    RECOVER_UNSTARTED = "recover_unstarted"
    RECOVER_UNAUTHORISED = "recover_unauthorised"
    GIVE_BACK = "give_back"
    FAIL_VALIDATION = "fail_validation"
    ANSWER_STORED = "answer_stored"
    NOT_APPLIED = "not_applied"
    APPLIED = "applied"
    REJECT = "reject"
    REMOTE_GONE = "remote_gone"
    REMOTE_CONFLICT = "remote_conflict"
    UNKNOWN = "unknown"
    SETTLE_APPLIED = "settle_applied"
    RESEND = "resend"
    LINK_RETIRED = "link_retired"


_A = AttemptStatus
_C = CreateEvent
_U = UpdateEvent
_L = LinkStatus
_E = LinkEvent

LINK: Final[Mapping[tuple[LinkStatus | None, LinkEvent], LinkStatus]] = {
    (None, _E.FINALIZE): _L.FINALIZED,
    (_L.FINALIZED, _E.SUSPEND): _L.SUSPENDED_DRIFT,
    (_L.SUSPENDED_DRIFT, _E.REVALIDATE): _L.FINALIZED,
    (_L.FINALIZED, _E.RETIRE): _L.RETIRED,
    (_L.SUSPENDED_DRIFT, _E.RETIRE): _L.RETIRED,
    (_L.RETIRED, _E.RELEASE_SLOT): _L.RETIRED,
    (_L.FINALIZED, _E.RELOCATE): _L.FINALIZED,
    (_L.SUSPENDED_DRIFT, _E.RELOCATE): _L.FINALIZED,
}

CREATE: Final[Mapping[tuple[AttemptStatus | None, CreateEvent], AttemptStatus]] = {
    (None, _C.RESERVE): _A.PENDING,
    (_A.PENDING, _C.CLAIM): _A.PROCESSING,
    (_A.PENDING, _C.END_UNSENT): _A.TERMINAL_FAILED,
    (_A.PENDING, _C.DOUBT): _A.AMBIGUOUS_REMOTE_EFFECT,
    (_A.PROCESSING, _C.DOUBT): _A.AMBIGUOUS_REMOTE_EFFECT,
    (_A.PROCESSING, _C.RECOVER_UNSTARTED): _A.PENDING,
    (_A.PROCESSING, _C.GIVE_BACK): _A.PENDING,
    (_A.PROCESSING, _C.FAIL_VALIDATION): _A.TERMINAL_FAILED,
    (_A.PROCESSING, _C.ANSWER_STORED): _A.POST_SENT,
    (_A.PROCESSING, _C.NOT_APPLIED): _A.PENDING,
    (_A.POST_SENT, _C.NOT_APPLIED): _A.PENDING,
    (_A.PROCESSING, _C.REPLAY): _A.PENDING,
    (_A.POST_SENT, _C.REPLAY): _A.PENDING,
    (_A.PROCESSING, _C.REJECT): _A.TERMINAL_FAILED,
    (_A.POST_SENT, _C.REJECT): _A.TERMINAL_FAILED,
    (_A.PROCESSING, _C.UNKNOWN): _A.AMBIGUOUS_REMOTE_EFFECT,
    (_A.POST_SENT, _C.UNKNOWN): _A.AMBIGUOUS_REMOTE_EFFECT,
    (_A.PROCESSING, _C.LINK_FINALIZED): _A.WRITEBACK_COMMIT_PENDING,
    (_A.POST_SENT, _C.LINK_FINALIZED): _A.WRITEBACK_COMMIT_PENDING,
    (_A.PROCESSING, _C.LINK_FINALIZED_NO_MIRROR): _A.FINALIZED,
    (_A.POST_SENT, _C.LINK_FINALIZED_NO_MIRROR): _A.FINALIZED,
    (_A.PROCESSING, _C.LOCATOR_TAKEN): _A.WRITEBACK_PENDING,
    (_A.POST_SENT, _C.LOCATOR_TAKEN): _A.WRITEBACK_PENDING,
    (_A.WRITEBACK_COMMIT_PENDING, _C.MIRROR_SETTLED): _A.FINALIZED,
    (_A.WRITEBACK_COMMIT_PENDING, _C.MIRROR_FAILED): _A.WRITEBACK_PENDING,
    (_A.WRITEBACK_COMMIT_PENDING, _C.PROMOTE): _A.WRITEBACK_PENDING,
    (_A.WRITEBACK_COMMIT_PENDING, _C.LINK_RETIRED): _A.FINALIZED,
    (_A.WRITEBACK_PENDING, _C.MIRROR_SETTLED): _A.FINALIZED,
    (_A.WRITEBACK_PENDING, _C.LINK_RETIRED): _A.FINALIZED,
    (_A.WRITEBACK_PENDING, _C.DISPOSE): _A.TERMINAL_FAILED,
    (_A.AMBIGUOUS_REMOTE_EFFECT, _C.ADOPT): _A.WRITEBACK_PENDING,
    (_A.AMBIGUOUS_REMOTE_EFFECT, _C.STAMP_FOUND): _A.WRITEBACK_PENDING,
    (_A.AMBIGUOUS_REMOTE_EFFECT, _C.CONFIRM_ABSENT): _A.TERMINAL_FAILED,
    (_A.AMBIGUOUS_REMOTE_EFFECT, _C.REPLAY_EXPLICIT): _A.PENDING,
    (_A.TERMINAL_FAILED, _C.ADOPT): _A.WRITEBACK_PENDING,
    (_A.TERMINAL_FAILED, _C.SUPERSEDE): _A.SUPERSEDED,
}

UPDATE: Final[Mapping[tuple[AttemptStatus | None, UpdateEvent], AttemptStatus]] = {
    (None, _U.RESERVE): _A.PENDING,
    (_A.PENDING, _U.REPLACE): _A.SUPERSEDED,
    (_A.PENDING, _U.CLAIM): _A.PROCESSING,
    (_A.PENDING, _U.OBSOLETE): _A.SUPERSEDED,
    (_A.PROCESSING, _U.OBSOLETE): _A.SUPERSEDED,
    (_A.PROCESSING, _U.FAIL_VALIDATION): _A.TERMINAL_FAILED,
    (_A.PROCESSING, _U.RECOVER_UNSTARTED): _A.PENDING,
    (_A.PROCESSING, _U.GIVE_BACK): _A.PENDING,
    (_A.PROCESSING, _U.RECOVER_UNAUTHORISED): _A.AMBIGUOUS_REMOTE_EFFECT,
    (_A.PROCESSING, _U.ANSWER_STORED): _A.POST_SENT,
    (_A.PROCESSING, _U.NOT_APPLIED): _A.PENDING,
    (_A.POST_SENT, _U.NOT_APPLIED): _A.PENDING,
    (_A.PROCESSING, _U.APPLIED): _A.FINALIZED,
    (_A.POST_SENT, _U.APPLIED): _A.FINALIZED,
    (_A.PROCESSING, _U.REJECT): _A.TERMINAL_FAILED,
    (_A.POST_SENT, _U.REJECT): _A.TERMINAL_FAILED,
    (_A.PROCESSING, _U.REMOTE_GONE): _A.TERMINAL_FAILED,
    (_A.POST_SENT, _U.REMOTE_GONE): _A.TERMINAL_FAILED,
    (_A.PROCESSING, _U.REMOTE_CONFLICT): _A.TERMINAL_FAILED,
    (_A.POST_SENT, _U.REMOTE_CONFLICT): _A.TERMINAL_FAILED,
    (_A.PROCESSING, _U.UNKNOWN): _A.AMBIGUOUS_REMOTE_EFFECT,
    (_A.POST_SENT, _U.UNKNOWN): _A.AMBIGUOUS_REMOTE_EFFECT,
    (_A.AMBIGUOUS_REMOTE_EFFECT, _U.SETTLE_APPLIED): _A.FINALIZED,
    (_A.AMBIGUOUS_REMOTE_EFFECT, _U.RESEND): _A.SUPERSEDED,
    (_A.PENDING, _U.LINK_RETIRED): _A.SUPERSEDED,
    (_A.AMBIGUOUS_REMOTE_EFFECT, _U.LINK_RETIRED): _A.SUPERSEDED,
}

KNOWN_LANES: Final = frozenset(Lane)

#: A create attempt in one of these stops reservations, manifests, lineage changes and adoption.
BLOCKING: Final = frozenset(
    {
        _A.PENDING,
        _A.PROCESSING,
        _A.POST_SENT,
        _A.AMBIGUOUS_REMOTE_EFFECT,
        _A.WRITEBACK_COMMIT_PENDING,
        _A.WRITEBACK_PENDING,
        _A.TERMINAL_FAILED,
    }
)

#: An update attempt in one of these holds its link's `update_key`: there is one at most.
UPDATE_OPEN: Final = frozenset({_A.PENDING, _A.PROCESSING, _A.POST_SENT, _A.AMBIGUOUS_REMOTE_EFFECT})

#: An update attempt in one of these stops a mapping manifest (its bytes may be on the wire, or may have landed).
UPDATE_IN_FLIGHT: Final = frozenset({_A.PROCESSING, _A.POST_SENT, _A.AMBIGUOUS_REMOTE_EFFECT})

#: A claim with a lease is held in these, and ends by an owner's write or by recovery.
LEASED: Final = frozenset({_A.PROCESSING, _A.POST_SENT, _A.WRITEBACK_COMMIT_PENDING})

#: An attempt in one of these may have been applied; only evidence, a contract or an operator settles it.
UNSETTLED: Final = frozenset({_A.AMBIGUOUS_REMOTE_EFFECT})

#: An update in one of these gives way to a newer wanted version.
REPLACEABLE: Final = frozenset({_A.PENDING})

#: A link in one of these may be updated.
USABLE_LINKS: Final = frozenset({LinkStatus.FINALIZED})

#: A claim of these takes token and lease and leaves the status as it is.
CLAIMED_IN_PLACE: Final = frozenset({_A.WRITEBACK_PENDING})

#: Holds that a claim looks at again once the catalogue or the credential may have changed, and when a worker starts,
#: which may be the one that has the missing key. Those for another record are looked at when that record's link is
#: finalized, and after pauses of their own (`waiting.py`).
RECHECKED_HOLDS: Final = frozenset({Hold.DRIFT, Hold.CREDENTIAL, Hold.BODY_UNREADABLE})

#: Where each hold code may stand.
HOLDS: Final[Mapping[Hold, frozenset[AttemptStatus]]] = {
    Hold.DRIFT: frozenset({_A.PENDING}),
    Hold.ASSOCIATION_WAITING: frozenset({_A.PENDING}),
    Hold.ASSOCIATION_BLOCKED: frozenset({_A.PENDING}),
    Hold.ASSOCIATION_MOVED: frozenset({_A.PENDING}),
    Hold.POISON: frozenset({_A.PENDING, _A.WRITEBACK_PENDING}),
    Hold.EXPIRED: frozenset({_A.PENDING}),
    Hold.USER_INACTIVE: frozenset({_A.PENDING}),
    Hold.BODY_UNREADABLE: frozenset({_A.PENDING}),
    Hold.CREDENTIAL: frozenset({_A.PENDING}),
    Hold.LOCATOR_CONFLICT: frozenset({_A.WRITEBACK_PENDING}),
}


def statuses(operation: Operation) -> frozenset[AttemptStatus]:
    """Every status that an attempt of `operation` can ever have."""
    return frozenset((CREATE if operation is Operation.CREATE else UPDATE).values())


def sources(event: CreateEvent | UpdateEvent | LinkEvent) -> frozenset[AttemptStatus | LinkStatus]:
    """The statuses from which `event` may happen; what a compare-and-set puts into its WHERE."""
    keys: list[tuple[AttemptStatus | LinkStatus | None, StrEnum]] = [*CREATE, *UPDATE, *LINK]
    return frozenset(source for source, name in keys if name is event and source is not None)


def follow_create(status: AttemptStatus | None, event: CreateEvent) -> AttemptStatus:
    """The status a create attempt has after `event`; raises `ProtocolViolation` for an arrow off the table."""
    return _follow(CREATE.get((status, event)), "create attempt", status, event)


def follow_update(status: AttemptStatus | None, event: UpdateEvent) -> AttemptStatus:
    """The status an update attempt has after `event`; raises `ProtocolViolation` for an arrow off the table."""
    return _follow(UPDATE.get((status, event)), "update attempt", status, event)


def follow_link(status: LinkStatus | None, event: LinkEvent) -> LinkStatus:
    """The status a link has after `event`; raises `ProtocolViolation` for an arrow off the table."""
    return _follow(LINK.get((status, event)), "link", status, event)


def _follow(target: S | None, what: str, status: StrEnum | None, event: StrEnum) -> S:
    if target is None:
        raise ProtocolViolation(
            f"A {what} that is {status or 'not there'} has no arrow {event.value!r}.",
            evidence={"status": status, "event": event},
        )
    return target
