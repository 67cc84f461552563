"""The table of answers: what each status of a remote says about the effect of a request, and what follows.

Two verdicts, never one flag. The *effect* is what is known about the remote record; the *disposition* is what the
protocol does next. The rows are the built-in reading of HTTP; what is not in the table is unknown, since a guess here
is a duplicate there. `outcome.py` adds what the table cannot know: history, bodies, credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pushlink.errors import Code
from pushlink.protocol.states import Operation


class Effect(StrEnum):
    """What one send is known to have done at the remote."""

    NOT_SENT = "not_sent"  # no byte of the request left this process
    NOT_APPLIED = "not_applied"  # a peer told us, or the protocol guarantees, that nothing was done
    APPLIED = "applied"  # done; a create also has its id
    APPLIED_UNIDENTIFIED = "applied_unidentified"  # done, and no usable id
    ACCEPTED_PENDING = "accepted_pending"  # the remote may or may not do it later
    UNKNOWN = "unknown"  # everything else


class Disposition(StrEnum):
    """What follows. Which event of a machine that is stands in the tables of `outcome.py`."""

    FINALIZE = "finalize"
    RETRY_AT = "retry_at"  # the same frozen request again, not before a time
    REAUTH_ONCE = "reauth_once"  # the same, after the credential was refreshed
    TERMINAL = "terminal"  # a definite rejection
    RECONCILE = "reconcile"  # park until evidence, a look-up or an operator settles it
    LOOK_UP = "look_up"  # another call, that the pack declares, says more
    PARK = "park"  # nothing is learned by sending again: an operator or a credential is waited for
    GONE = "gone"  # an update's target is not there: its link suspends
    CONFLICT = "conflict"  # an update's target is another one, or was changed: its link suspends


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """One row's answer for one operation; `code` is `None` only for a success.

    `burns_retry` says that a retry counts against the budget: a throttle and a stale token do not. `replays` says
    whether an unknown effect may be repeated under a contract at all: not when the remote has another body for the key.
    """

    effect: Effect
    disposition: Disposition
    code: Code | None
    burns_retry: bool = True
    replays: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table: its name, the statuses it covers, and what they mean for either operation."""

    name: str
    statuses: frozenset[int]
    create: Meaning
    update: Meaning

    def meaning(self, operation: Operation) -> Meaning:
        """What the row means for `operation`."""
        return self.create if operation is Operation.CREATE else self.update


UNKNOWN: Final = Meaning(effect=Effect.UNKNOWN, disposition=Disposition.RECONCILE, code=Code.EFFECT_UNKNOWN)
MISMATCH: Final = Meaning(
    effect=Effect.UNKNOWN, disposition=Disposition.RECONCILE, code=Code.KEY_MISMATCH, replays=False
)
IN_FLIGHT: Final = Meaning(effect=Effect.UNKNOWN, disposition=Disposition.RECONCILE, code=Code.KEY_IN_FLIGHT)
REJECTED: Final = Meaning(effect=Effect.NOT_APPLIED, disposition=Disposition.TERMINAL, code=Code.REMOTE_REJECTED)
RETRY: Final = Meaning(effect=Effect.NOT_APPLIED, disposition=Disposition.RETRY_AT, code=Code.NOT_APPLIED)
THROTTLE: Final = Meaning(
    effect=Effect.NOT_APPLIED, disposition=Disposition.RETRY_AT, code=Code.THROTTLED, burns_retry=False
)
REAUTHENTICATE: Final = Meaning(
    effect=Effect.NOT_APPLIED, disposition=Disposition.REAUTH_ONCE, code=Code.UNAUTHENTICATED, burns_retry=False
)
UNAUTHENTICATED: Final = Meaning(
    effect=Effect.NOT_APPLIED, disposition=Disposition.PARK, code=Code.UNAUTHENTICATED, burns_retry=False
)
NOT_SENT: Final = Meaning(effect=Effect.NOT_SENT, disposition=Disposition.RETRY_AT, code=Code.NOT_SENT)
#: A slow machine says nothing about the row, as a throttle says nothing: it is tried again as often as it takes.
TOO_LATE: Final = Meaning(
    effect=Effect.NOT_SENT, disposition=Disposition.RETRY_AT, code=Code.NOT_SENT, burns_retry=False
)
UNTRUSTED: Final = Meaning(
    effect=Effect.NOT_SENT, disposition=Disposition.RETRY_AT, code=Code.CERTIFICATE_UNTRUSTED, burns_retry=False
)
CREDENTIAL_LOST: Final = Meaning(
    effect=Effect.NOT_SENT, disposition=Disposition.PARK, code=Code.UNAUTHENTICATED, burns_retry=False
)
#: Codes of what is tried again by itself, and in vain until a person mends the cause.
FOR_PEOPLE: Final = frozenset({Code.CERTIFICATE_UNTRUSTED})
DUPLICATE: Final = Meaning(effect=Effect.NOT_APPLIED, disposition=Disposition.TERMINAL, code=Code.REMOTE_CONFLICT)
GONE: Final = Meaning(effect=Effect.NOT_APPLIED, disposition=Disposition.GONE, code=Code.REMOTE_GONE)
DELETED: Final = Meaning(effect=Effect.APPLIED, disposition=Disposition.GONE, code=Code.REMOTE_GONE)
CONFLICT: Final = Meaning(effect=Effect.NOT_APPLIED, disposition=Disposition.CONFLICT, code=Code.REMOTE_CONFLICT)
MOVED: Final = Meaning(effect=Effect.NOT_APPLIED, disposition=Disposition.CONFLICT, code=Code.REMOTE_CHANGED)
STALE: Final = Meaning(effect=Effect.NOT_APPLIED, disposition=Disposition.CONFLICT, code=Code.REMOTE_CHANGED)
REFETCH: Final = Meaning(effect=Effect.NOT_APPLIED, disposition=Disposition.RETRY_AT, code=Code.REMOTE_CHANGED)
APPLIED: Final = Meaning(effect=Effect.APPLIED, disposition=Disposition.FINALIZE, code=None)
OURS: Final = Meaning(effect=Effect.APPLIED, disposition=Disposition.FINALIZE, code=None)
UNIDENTIFIED: Final = Meaning(
    effect=Effect.APPLIED_UNIDENTIFIED, disposition=Disposition.PARK, code=Code.APPLIED_UNIDENTIFIED
)
MATCHED: Final = Meaning(effect=Effect.APPLIED_UNIDENTIFIED, disposition=Disposition.PARK, code=Code.REMOTE_CONFLICT)
ASK_WHOSE: Final = Meaning(effect=Effect.NOT_APPLIED, disposition=Disposition.LOOK_UP, code=Code.REMOTE_CONFLICT)
LOOK_FOR_ID: Final = Meaning(
    effect=Effect.APPLIED_UNIDENTIFIED, disposition=Disposition.LOOK_UP, code=Code.APPLIED_UNIDENTIFIED
)
WAIT_FOR_JOB: Final = Meaning(
    effect=Effect.ACCEPTED_PENDING, disposition=Disposition.LOOK_UP, code=Code.ACCEPTED_PENDING
)
ACCEPTED: Final = Meaning(effect=Effect.ACCEPTED_PENDING, disposition=Disposition.PARK, code=Code.ACCEPTED_PENDING)


def _row(name: str, *statuses: int, create: Meaning, update: Meaning | None = None) -> Row:
    return Row(name=name, statuses=frozenset(statuses), create=create, update=update or create)


#: The whole table for final answers that are not a declared success. Each status stands in one row at most; the last
#: three rows cover ranges, and anything that no row names is unknown.
ROWS: Final[tuple[Row, ...]] = (
    _row("accepted for later", 202, create=ACCEPTED),
    _row("success of another kind", *(set(range(200, 300)) - {202}), create=UNIDENTIFIED),
    _row("moved for good", 301, create=UNKNOWN, update=MOVED),
    _row("moved, method may change", 302, 303, create=UNKNOWN),
    _row("moved for now, method stays", 307, create=REJECTED),
    _row("moved for good, method stays", 308, create=REJECTED, update=MOVED),
    _row("refused as invalid", 400, 422, create=REJECTED),
    _row("unauthenticated", 401, create=REAUTHENTICATE),
    _row("forbidden", 403, create=REJECTED, update=GONE),
    _row("not found", 404, 410, create=REJECTED, update=GONE),
    _row("refused before execution", 405, 411, 413, 414, 415, 417, 431, 451, create=REJECTED),
    _row("refused by a proxy", 407, create=REJECTED),
    _row("conflict", 409, create=DUPLICATE, update=CONFLICT),
    _row("precondition failed", 412, create=DUPLICATE, update=CONFLICT),
    _row("misdirected or too early", 421, 425, create=RETRY),
    _row("locked", 423, create=RETRY),
    _row("dependency failed or precondition required", 424, 428, create=REJECTED),
    _row("throttled", 429, create=THROTTLE),
    _row("not supported at all", 501, 505, create=REJECTED),
    _row("network wants a login", 511, create=RETRY),
    _row("not acceptable or timed out", 406, 408, create=UNKNOWN),
    _row("any other redirect", *(set(range(300, 400)) - {301, 302, 303, 307, 308}), create=UNKNOWN),
    _row("server or gateway error", *(set(range(500, 600)) - {501, 505, 511}), create=UNKNOWN),
)

#: The row of a status that no row names: informational, unlisted 4xx, and numbers that are no status.
UNLISTED: Final = _row("anything else", create=UNKNOWN)

BY_STATUS: Final[Mapping[int, Row]] = {status: row for row in ROWS for status in row.statuses}
