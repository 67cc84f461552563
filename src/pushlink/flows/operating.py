"""What every operator's verb shares: the decision, the locks, the checks before it, and the audit after it.

A verb runs in one transaction that its caller commits. It locks slot, link and attempt in that order, is refused when
the row is not the version that the operator saw or its state does not allow the verb, sends nothing, and writes the
operator's name and reason into the audit chain beside the transition. A refusal is an error: it leaves nothing behind.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import sqlalchemy as sa

from pushlink.errors import CallerError, Code
from pushlink.flows.drifting import Drifting
from pushlink.flows.followups import due_of
from pushlink.flows.reserve import WAKE_CHANNEL
from pushlink.flows.world import World
from pushlink.protocol.snapshots import AttemptId, LinkKey
from pushlink.protocol.states import (
    UPDATE_OPEN,
    CreateEvent,
    Lane,
    Operation,
    UpdateEvent,
)
from pushlink.protocol.verbs import VERBS, Consent, Standing, Target, Verb, allowed_verbs, may_act
from pushlink.store import attempts, lifecycle, links, slots
from pushlink.store.audit import OperatorAction, record_actions
from pushlink.store.dialect import notify
from pushlink.store.lifecycle import Move, Moved, NewAttempt
from pushlink.store.rows import AttemptRow, LinkRow, SlotRow

#: A reason is a sentence or two; a longer text belongs where the evidence is.
REASON_LENGTH_MAX: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTerms:
    """What a deployment asks of its operators."""

    pause_max_ms: int = 600_000  # the longest that a process may stand still between its checkpoint and its send
    second_principal: bool = False  # supersede, release-slot and absent need somebody else who agrees


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision: who, why, about which row as it was seen. `argument` is what the verb has to be told."""

    verb: Verb
    target_id: str
    row_version: int
    actor: str
    reason: str
    tenant: str = ""
    argument: str | None = None
    approver: str | None = None  # another principal who agrees
    reserve: bool = False  # supersede: reserve the newest wanted version at once
    release: bool = False  # retire: release the slot as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a decision changed. `made` is the attempt that became due with it, if any."""

    verb: str
    target: str
    target_id: str
    link_key: LinkKey
    source_object: str
    record_id: str
    before: str
    after: str
    row_version: int
    remote_id: str | None = None
    made: AttemptId | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What a verb came to: the row as it stands now, and what became due with it."""

    status: str
    row_version: int
    remote_id: str | None = None
    made: AttemptId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The rows that a decision is about, under their locks. `attempt` is `None` for a decision about a link."""

    slot: SlotRow
    link: LinkRow | None
    attempt: AttemptRow | None


@dataclass(slots=True, kw_only=True)
class Acting:
    """One verb on its way: what its function needs, and what it leaves for the audit."""

    conn: sa.Connection
    world: World
    decision: Decision
    terms: OperatorTerms
    now: dt.datetime
    subject: Subject
    evidence: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def drifting(self) -> Drifting:
        """Comparisons of snapshots with the catalogue of now."""
        return Drifting(self.world)

    @property
    def actor(self) -> str:
        """The name that events carry."""
        return f"operator:{self.decision.actor}"

    @property
    def attempt(self) -> AttemptRow:
        """The attempt that the decision names."""
        found = self.subject.attempt
        if found is None:
            msg = f"{self.decision.verb} is about a link"
            raise TypeError(msg)
        return found

    @property
    def link(self) -> LinkRow:
        """The link that the decision names."""
        found = self.subject.link
        if found is None:
            msg = f"{self.decision.verb} is about an attempt"
            raise TypeError(msg)
        return found

    def refuse(self, message: str, **evidence: object) -> CallerError:
        """The state allows the verb, and something else does not."""
        return _refused(self.subject, message, evidence)

    def stale(self) -> CallerError:
        """Somebody was quicker."""
        return stale(self.decision, None, self.subject.slot)


def refusal_of_words(decision: Decision) -> CallerError | None:
    """What is wrong with an decision before anything is read."""
    rule = VERBS[decision.verb]
    if not decision.actor.strip() or not decision.reason.strip():
        return CallerError(f"{decision.verb} needs an actor and a reason.", next_step="say who does it and why")
    if len(decision.reason) > REASON_LENGTH_MAX:
        return CallerError(f"A reason has {REASON_LENGTH_MAX} characters at most.", next_step="name the evidence")
    if rule.argument is not None and not decision.argument:
        return CallerError(f"{decision.verb} needs {rule.argument}.", next_step=f"name the {rule.argument}")
    if decision.approver is not None and decision.approver == decision.actor:
        return CallerError(
            "The one who agrees is the one who asks.",
            code=Code.NOT_PERMITTED,
            evidence={"principal": decision.actor, "needs": "another principal"},
            next_step="let another principal agree",
        )
    return None


def lock_subject(conn: sa.Connection, decision: Decision) -> Subject:
    """Lock slot, link and attempt, in this order, and hold the version that the operator saw against them."""
    is_link = VERBS[decision.verb].target is Target.LINK
    key = _key_of(conn, decision, is_link=is_link)
    [slot] = slots.lock_slots(conn, [key], nowait=False)
    if slot is None or slot.tenant != decision.tenant:
        raise unknown(decision)
    attempt: AttemptRow | None = None
    if is_link:
        link = links.lock_link(conn, decision.target_id)
        seen = link.row_version if link is not None else None
    else:
        [link] = links.read_links(conn, [key], lock=True)
        [attempt] = attempts.read_attempts(conn, [AttemptId(decision.target_id)])
        seen = attempt.row_version if attempt is not None else None
    if seen != decision.row_version:
        raise stale(decision, seen, slot)
    return Subject(slot=slot, link=link, attempt=attempt)


def require_allowed(decision: Decision, subject: Subject) -> None:
    """Refuse a verb that the state does not allow, and name those that it does."""
    if not may_act(decision.verb, standing_of(subject)):
        raise _refused(subject, f"{decision.verb} cannot be done in the state that the row is in.", {})


def require_consent(acting: Acting, *, speaks_against: str | None = None, as_verb: Verb | None = None) -> None:
    """Refuse a verb that needs somebody else's consent and has none; `as_verb` is what it does beside its own."""
    consent = VERBS[as_verb or acting.decision.verb].consent
    is_asked = acting.terms.second_principal and consent is not Consent.NONE
    if acting.decision.approver is not None or not (is_asked or speaks_against):
        return
    because = speaks_against or "the settings ask for a second principal"
    raise acting.refuse(
        f"{acting.decision.verb} needs a second principal who agrees: {because}.", needs="approver", because=because
    )


def standing_of(subject: Subject) -> Standing:
    """Where the named row stands."""
    if subject.attempt is not None:
        return standing_of_attempt(subject.attempt)
    if subject.link is None:
        msg = "a decision is about an attempt or a link"
        raise TypeError(msg)
    return Standing(place=subject.link.status)


def standing_of_attempt(row: AttemptRow) -> Standing:
    """Where an attempt stands."""
    return Standing(place=(row.operation, row.status), hold=row.hold_code, lane=row.dispatch_lane)


def unknown(decision: Decision) -> CallerError:
    """No row of this tenant has the id."""
    kind = VERBS[decision.verb].target.value
    return CallerError(
        f"There is no {kind} {decision.target_id!r} for this tenant.",
        code=Code.RECORD_UNKNOWN,
        evidence={"tenant": decision.tenant},
        next_step=f"pushlink {kind}s",
    )


def stale(decision: Decision, current: int | None, slot: SlotRow) -> CallerError:
    """The row is not the one that the operator looked at."""
    return CallerError(
        "The row has changed since it was looked at; nothing was done.",
        code=Code.STALE_VERSION,
        evidence={"target_id": decision.target_id, "seen": decision.row_version, "current": current},
        next_step=f"look at it again: pushlink explain {slot.source_object} {slot.source_record_id}",
    )


def _key_of(conn: sa.Connection, decision: Decision, *, is_link: bool) -> LinkKey:
    if is_link:
        link = links.read_link(conn, decision.target_id)
        found, tenant = (link.link_key, link.tenant) if link is not None else (None, "")
    else:
        [attempt] = attempts.read_attempts(conn, [AttemptId(decision.target_id)])
        found, tenant = (attempt.link_key, attempt.tenant) if attempt is not None else (None, "")
    if found is None or tenant != decision.tenant:
        raise unknown(decision)
    return found


def _refused(subject: Subject, message: str, evidence: Mapping[str, object]) -> CallerError:
    standing = standing_of(subject)
    allowed = [verb.value for verb in allowed_verbs(standing) if not VERBS[verb].needs_contract]
    state = {"status": _status_of(subject), "hold": standing.hold, "lane": standing.lane}
    shown = {name: value for name, value in state.items() if value is not None}
    record = f"{subject.slot.source_object} {subject.slot.source_record_id}"
    return CallerError(
        message,
        code=Code.NOT_ALLOWED_NOW,
        evidence={**shown, **evidence, "allowed": allowed},
        next_step=f"see what may be done: pushlink explain {record}",
    )


def _status_of(subject: Subject) -> str:
    if subject.attempt is not None:
        return f"{subject.attempt.operation.value}/{subject.attempt.status.value}"
    return subject.link.status.value if subject.link is not None else ""


# ------------------------------------------------------------------------------------------------ moves


def move_attempt(
    acting: Acting,
    event: CreateEvent | UpdateEvent,
    *,
    row: AttemptRow | None = None,
    reason_code: Code | None = None,
    remote_id: str | None = None,
    in_doubt: bool | None = None,
    detail: Mapping[str, object] | None = None,
    due: bool = False,
) -> Moved:
    """Make one transition on the row version that was locked; raises when a worker was quicker."""
    moved = row or acting.attempt
    move = Move(
        row=moved,
        event=event,
        actor=acting.actor,
        reason_code=reason_code,
        detail={"said": acting.decision.reason, **(detail or {})},
        not_before=acting.now if due else None,
        in_doubt=in_doubt,
        remote_id=remote_id,
    )
    [result] = lifecycle.move_attempts(acting.conn, [move], now=acting.now)
    if not isinstance(result, Moved):
        raise acting.stale()
    if due:
        notify(acting.conn, WAKE_CHANNEL)
    return result


def insert_due_update(acting: Acting, *, beyond: int) -> AttemptId | None:
    """Reserve the update, or the call of an association, that is due beyond this version; `None` when nothing is."""
    key = acting.subject.slot.link_key
    [slot] = slots.read_slots(acting.conn, [key])
    due = None if slot is None else due_of(slot, beyond=beyond)
    if slot is None or due is None:
        return None
    new = NewAttempt(
        id=AttemptId(acting.world.ids.fresh()),
        link_key=key,
        tenant=slot.tenant,
        destination_slot_id=slot.destination_slot_id,
        operation=Operation.UPDATE,
        lane=Lane.CONFIGURED,
        ordinal=0,
        version=due.version,
        association=due.association,
        freeze_count=0,
        not_before=acting.now,
        expires_at=None,
        actor=acting.actor,
        detail={"because": acting.decision.verb.value},
    )
    [made] = lifecycle.insert_attempts(acting.conn, [new], now=acting.now)
    if not isinstance(made, Moved):
        return None  # an update of this link is open already, and takes the newest version when it is claimed
    notify(acting.conn, WAKE_CHANNEL)
    return new.id


def open_update(acting: Acting) -> AttemptRow | None:
    """The open update of the key, if there is one."""
    [standing] = attempts.read_open_attempts(acting.conn, [acting.subject.slot.link_key])
    update = standing.update
    return update if update is not None and update.status in UPDATE_OPEN else None


# ------------------------------------------------------------------------------------------------ the end of it


def finish(acting: Acting, effects: Effects) -> Done:
    """Write the audit and answer."""
    decision, subject = acting.decision, acting.subject
    remote_id, made = effects.remote_id, effects.made
    slot = subject.slot
    before: dict[str, object] = {"status": _status_of(subject), "row_version": decision.row_version}
    if subject.attempt is not None:
        before |= {"reason_code": subject.attempt.reason_code, "hold": subject.attempt.hold_code}
    kind = VERBS[decision.verb].target.value
    after_shown: dict[str, object] = {"status": effects.status, "row_version": effects.row_version}
    after_shown |= {"remote_id": remote_id} if remote_id is not None else {}
    after_shown |= {"made": made} if made is not None else {}
    action = OperatorAction(
        tenant=slot.tenant,
        actor=decision.actor,
        approver=decision.approver,
        verb=decision.verb.value,
        reason=decision.reason,
        target_kind=kind,
        target_id=decision.target_id,
        link_key=slot.link_key,
        before=before,
        after=after_shown,
        evidence=acting.evidence,
    )
    record_actions(acting.conn, [action], now=acting.now)
    return Done(
        verb=decision.verb.value,
        target=kind,
        target_id=decision.target_id,
        link_key=slot.link_key,
        source_object=slot.source_object,
        record_id=slot.source_record_id,
        before=_status_of(subject),
        after=effects.status,
        row_version=effects.row_version,
        remote_id=remote_id,
        made=made,
        notes=tuple(acting.notes),
    )


def named(ids: Sequence[str]) -> str:
    """Ids in a sentence."""
    return ", ".join(repr(one) for one in ids)
