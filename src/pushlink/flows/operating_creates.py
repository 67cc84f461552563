"""The operator's verbs for creates: settle what is in doubt, end what failed, let go on what is held.

Nothing here sends. A create leaves doubt only by an id, by a stored answer that settles every send of it, or by
somebody who looked after the settle time. Only `supersede` frees the key, and only where no remote id is known
or named.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from pushlink.errors import CallerError, Code
from pushlink.flows.looking import SAYS_DONE
from pushlink.flows.operating import Acting, Effects, move_attempt, named, require_consent
from pushlink.flows.operating_again import show_create_paths
from pushlink.flows.operating_ids import unowned_record
from pushlink.flows.operating_reserve import reserve_wanted
from pushlink.flows.replaying import Prospect, prospects
from pushlink.flows.reserve import WAKE_CHANNEL
from pushlink.protocol import reinterpretation
from pushlink.protocol.contracts import ActionContract
from pushlink.protocol.drift import holds_create, stops_update
from pushlink.protocol.extract import extract_id
from pushlink.protocol.outcome import Verdict
from pushlink.protocol.remoteids import Extracted
from pushlink.protocol.replay import Why
from pushlink.protocol.replies import Effect
from pushlink.protocol.sealing import UNREAD
from pushlink.protocol.snapshots import ActionSnapshot, AttemptId, ProfileSnapshot, write_time
from pushlink.protocol.states import KNOWN_LANES, CreateEvent, Hold, Lane, Operation
from pushlink.protocol.verbs import settles_at
from pushlink.store import attempts, decisions, requests, responses, slots
from pushlink.store.credential_states import CredentialKey, allow_credentials
from pushlink.store.dialect import notify
from pushlink.store.lifecycle import Moved
from pushlink.store.responses import StoredAnswer
from pushlink.store.rows import AttemptRow, RequestRow, slots_of

_UNCERTIFIED: Final = (
    "The contract is not certified. Prove it with `pushlink pack certify`, or let the settings trust uncertified ones."
)

#: What a stored history knows of other sends of the attempt.
_OF_OTHERS: Final = frozenset({"in_doubt", "live_replay_contract", "retry_count"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """What an attempt froze."""

    request: RequestRow
    profile: ProfileSnapshot
    action: ActionSnapshot


def frozen_of(acting: Acting) -> Frozen:
    """The newest freeze of the attempt, with its snapshots."""
    [request] = requests.read_requests(acting.conn, [acting.attempt.id])
    if request is None:
        raise acting.refuse("The attempt has no frozen request to judge by.")
    profiles, actions = acting.world.thaw(acting.conn, [request.profile_digest], [request.action_digest])
    return Frozen(request=request, profile=profiles[request.profile_digest], action=actions[request.action_digest])


def adopt(acting: Acting) -> Effects:
    """Take a named remote record over: the attempt knows its id from here on and goes on to write back (D-08)."""
    frozen = frozen_of(acting)
    remote_id = _free_id(acting, frozen, acting.decision.argument or "")
    return _known(
        acting,
        move_attempt(
            acting, CreateEvent.ADOPT, remote_id=remote_id, in_doubt=False, detail={"adopted": remote_id}, due=True
        ),
        remote_id,
    )


def absent(acting: Acting) -> Effects:
    """Somebody looked and there is no such record: the attempt ends, and may be superseded then (D-08)."""
    frozen = frozen_of(acting)
    require_settled(acting, frozen.profile)
    answers = responses.read_answers(acting.conn, acting.world.vault, acting.attempt.id)
    refuse_named_ids(acting, frozen, answers)
    done = next((answer for answer in answers if answer.effect in SAYS_DONE), None)
    against = None if done is None else f"an answer of {write_time(done.received_at)} says that the record was made"
    require_consent(acting, speaks_against=against)
    acting.evidence["answers"] = len(answers)
    moved = move_attempt(acting, CreateEvent.CONFIRM_ABSENT, reason_code=Code.CONFIRMED_ABSENT, in_doubt=False)
    return _moved(moved)


def look_up(acting: Acting) -> Effects:
    """Let the record be looked for by its stamp now, as the frozen contract says; whoever asks next does it (D-08)."""
    prospect = _prospect(acting)
    if prospect is None or prospect.create.lookup is None:
        raise acting.refuse(
            "The contract that was frozen with this create declares no look-up by a stamp.",
            because="no look-up is declared",
        )
    if not prospect.facts.certified:
        raise acting.refuse(_UNCERTIFIED, because=Why.UNCERTIFIED.value)
    acting.evidence["look_up"] = prospect.create.lookup.path
    acting.notes.append(
        "The record is looked for by the next worker or push; the attempt stays parked until it is found."
    )
    [written] = attempts.schedule_lookups(acting.conn, [acting.attempt], acting.now)
    notify(acting.conn, WAKE_CHANNEL)
    return _unmoved(acting, written)


def replay(acting: Acting) -> Effects:
    """Let the same bytes be sent once more under the frozen contract, in any lane; its end is checked again (D-08)."""
    prospect = _prospect(acting)
    allowed = Why.NONE_DECLARED if prospect is None else prospect.ordered_until(acting.attempt)
    if isinstance(allowed, Why):
        message = _UNCERTIFIED if allowed is Why.UNCERTIFIED else f"It cannot be sent again: {allowed.value}."
        raise acting.refuse(message, because=allowed.value)
    acting.evidence["replay_until"] = write_time(allowed.until)
    if acting.now >= allowed.until:
        message = f"It cannot be sent again: the contract's lifetime was over at {write_time(allowed.until)}."
        raise acting.refuse(message, because=Why.EXPIRED.value, replay_until=write_time(allowed.until))
    refuse_named_ids(
        acting, frozen_of(acting), responses.read_answers(acting.conn, acting.world.vault, acting.attempt.id)
    )
    acting.notes.append(f"The same bytes are sent once more, before {write_time(allowed.until)} or not at all.")
    return _moved(move_attempt(acting, CreateEvent.REPLAY_EXPLICIT, reason_code=Code.OPERATOR_DECISION, due=True))


def _prospect(acting: Acting) -> Prospect | None:
    """What the frozen contract of this create allows now; `None` where it declares nothing."""
    return prospects(acting.world, acting.conn, [acting.attempt], now=acting.now).get(acting.attempt.id)


def reinterpret(acting: Acting) -> Effects:
    """Read the stored answers again by the frozen contract: only when together they settle every send is it moved."""
    frozen = frozen_of(acting)
    answers = responses.read_answers(acting.conn, acting.world.vault, acting.attempt.id)
    if unread := [answer for answer in answers if answer.unread is not None]:
        raise unreadable(acting, unread)
    verdicts = [read_again(Operation.CREATE, frozen, answer) for answer in answers]
    applied = next((v for v in verdicts if v.effect is Effect.APPLIED and v.remote_id is not None), None)
    acting.evidence["read_again"] = [answer.id for answer in answers]
    if applied is not None and applied.remote_id is not None:
        remote_id = _free_id(acting, frozen, applied.remote_id)
        moved = move_attempt(
            acting, CreateEvent.ADOPT, remote_id=remote_id, in_doubt=False, detail={"adopted": remote_id}, due=True
        )
        return _known(acting, moved, remote_id)
    sends = {answer.send_ordinal for answer in answers}
    disproved = [v for v in verdicts if v.effect in {Effect.NOT_SENT, Effect.NOT_APPLIED}]
    is_whole = not decisions.forgot_sends(acting.conn, acting.attempt)
    is_settled = is_whole and len(disproved) == len(verdicts) and sends == set(range(1, acting.attempt.send_count + 1))
    if not verdicts or not is_settled:
        raise acting.refuse(
            "The stored answers, read again, do not settle what became of every send.",
            sends=acting.attempt.send_count,
            answers=[{"id": a.id, "effect": v.effect.value} for a, v in zip(answers, verdicts, strict=True)],
        )
    refuse_named_ids(acting, frozen, answers)
    code = disproved[-1].code or Code.REMOTE_REJECTED
    return _moved(move_attempt(acting, CreateEvent.CONFIRM_ABSENT, reason_code=code, in_doubt=False))


def supersede(acting: Acting) -> Effects:
    """Free the key of a create that ended; with `reserve` the newest wanted version is reserved at once (AT-03)."""
    frozen = frozen_of(acting)
    refuse_named_ids(acting, frozen, responses.read_answers(acting.conn, acting.world.vault, acting.attempt.id))
    require_consent(acting)
    current = show_create_paths(acting, frozen.request)
    moved = move_attempt(acting, CreateEvent.SUPERSEDE)
    made = reserve_wanted(acting, current) if acting.decision.reserve else None
    return Effects(status=moved.status.value, row_version=moved.row_version, made=made)


def unhold(acting: Acting) -> Effects:
    """Let a held attempt be claimed again. What still holds it would hold it again, so that is refused and named."""
    row = acting.attempt
    if row.hold_code == Hold.DRIFT.value:
        _refuse_standing_drift(acting)
    elif row.hold_code == Hold.LOCATOR_CONFLICT.value:
        _free_id(acting, frozen_of(acting), row.remote_id or "")
    elif row.hold_code == Hold.CREDENTIAL.value:
        _vouch_for_credential(acting)
    acting.evidence["hold"] = row.hold_code
    return _unmoved(
        acting,
        decisions.clear_hold(
            acting.conn, row, detail={"said": acting.decision.reason}, actor=acting.actor, now=acting.now
        ),
    )


def _vouch_for_credential(acting: Acting) -> None:
    """Let the generation of now be tried again, for every attempt that needs it: the remote may have been mended.

    It is refused again by the next 401 that says so twice.
    """
    row, world = acting.attempt, acting.world
    if row.operation is Operation.CREATE:
        reference = frozen_of(acting).profile.contract.credential_ref
    else:
        current = world.catalog.read(acting.conn).find(slots_of(acting.subject.slot))
        reference = None if current is None else current.profile.credential_ref
    if reference is None:
        return
    generation = world.generation_of(reference, row.tenant)
    key = CredentialKey(tenant=row.tenant, reference=reference, generation=generation)
    [was_refused] = allow_credentials(acting.conn, [key], now=acting.now)
    acting.evidence["credential"] = {"reference": reference, "was_refused": was_refused}
    if was_refused:
        acting.notes.append(f"Everything else that waits for {reference} is tried again as well.")


def abandon(acting: Acting) -> Effects:
    """End a held create that was never sent; one that may have been sent becomes doubtful, never terminal."""
    row = acting.attempt
    acting.evidence["hold"] = row.hold_code
    event = CreateEvent.DOUBT if row.in_doubt else CreateEvent.END_UNSENT
    return _moved(move_attempt(acting, event, reason_code=Code.ABANDONED, detail={"hold": row.hold_code}))


def dispose(acting: Acting) -> Effects:
    """Set an id aside as evidence: the one that another link owns, or one that a late answer named (D-15)."""
    row, named_id = acting.attempt, acting.decision.argument or ""
    if row.remote_id is not None:
        if named_id != row.remote_id:
            raise acting.refuse("The attempt knows another id than the one that is named.", remote_id=row.remote_id)
        acting.evidence["remote_id"] = named_id
        return _moved(
            move_attempt(
                acting, CreateEvent.DISPOSE, reason_code=Code.DISPOSED, in_doubt=False, detail={"remote_id": named_id}
            )
        )
    undisposed = named_ids(acting, frozen_of(acting), responses.read_answers(acting.conn, acting.world.vault, row.id))
    if named_id not in undisposed:
        raise acting.refuse("No late answer of this attempt names that id.", named=list(undisposed))
    acting.evidence["remote_id"] = named_id
    return _unmoved(
        acting,
        decisions.set_aside(
            acting.conn, row, named_id, detail={"said": acting.decision.reason}, actor=acting.actor, now=acting.now
        ),
    )


def repair_lane(acting: Acting) -> Effects:
    """Move a row of a lane that this release does not know to one that it does (SY-05)."""
    wanted = next((lane for lane in KNOWN_LANES if lane.value == acting.decision.argument), None)
    if wanted is None:
        known = ", ".join(sorted(KNOWN_LANES))
        raise CallerError(f"{acting.decision.argument!r} is no lane of this release: {known}.", next_step="name a lane")
    acting.evidence["lane"] = {"old": acting.attempt.dispatch_lane, "new": wanted.value}
    return _unmoved(
        acting,
        decisions.set_lane(
            acting.conn,
            acting.attempt,
            Lane(wanted),
            detail={"said": acting.decision.reason},
            actor=acting.actor,
            now=acting.now,
        ),
    )


# ------------------------------------------------------------------------------------------------ what stops a verb


def require_settled(acting: Acting, profile: ProfileSnapshot) -> None:
    """Refuse while something of the last send may still turn up."""
    last, settled = settle_time(acting.conn, acting.attempt, profile, pause_max_ms=acting.terms.pause_max_ms)
    acting.evidence["settled_at"] = write_time(settled)
    if acting.now < settled:
        raise acting.refuse(
            f"Something of the last send may still turn up until {write_time(settled)}.",
            last_send=write_time(last),
            settles_at=write_time(settled),
        )


def settle_time(
    conn: sa.Connection, row: AttemptRow, profile: ProfileSnapshot, *, pause_max_ms: int
) -> tuple[dt.datetime, dt.datetime]:
    """The last send that is known of, and from when on nothing of it can still turn up (D-08)."""
    is_known = row.last_checkpoint_at is not None and not decisions.forgot_sends(conn, row)
    last = row.last_checkpoint_at if is_known and row.last_checkpoint_at is not None else row.updated_at
    contract = profile.contract
    settled = settles_at(
        last,
        total_ms=contract.timeouts.total_ms,
        pause_ms=pause_max_ms,
        processing_ms=contract.remote_processing_ms,
    )
    return last, settled


def named_ids(acting: Acting, frozen: Frozen, answers: Sequence[StoredAnswer]) -> tuple[str, ...]:
    """The ids that late answers named and nobody has set aside."""
    return late_ids(acting.conn, acting.attempt.id, frozen.action.contract, answers)


def late_ids(
    conn: sa.Connection, attempt_id: AttemptId, contract: ActionContract, answers: Sequence[StoredAnswer]
) -> tuple[str, ...]:
    """The same of any attempt, by the contract that it froze."""
    found = [text for answer in answers if answer.late for text in _ids_of(contract, answer)]
    disposed = decisions.read_disposed(conn, attempt_id)
    return tuple(text for text in dict.fromkeys(found) if text not in disposed)


def refuse_named_ids(acting: Acting, frozen: Frozen, answers: Sequence[StoredAnswer]) -> None:
    """Refuse while a late answer names an id: the record is there, whatever the attempt knew (D-09)."""
    ids = named_ids(acting, frozen, answers)
    silent = [a for a in answers if a.late and a.unread and a.effect == Effect.APPLIED.value and not a.candidate_id]
    if silent:
        raise unreadable(acting, silent)
    if ids:
        raise acting.refuse(
            f"A late answer names the remote id {named(ids)}: adopt it, or dispose of it first.", named=list(ids)
        )


def unreadable(acting: Acting, answers: Sequence[StoredAnswer]) -> CallerError:
    """The refusal of a decision that hangs on answers which nobody can read: what they said is not known."""
    why = {answer.id: UNREAD[answer.unread] for answer in answers if answer.unread is not None}
    return acting.refuse(
        f"{len(why)} stored answers cannot be read: {'; '.join(dict.fromkeys(why.values()))}.",
        code=Code.BODY_UNREADABLE.value,
        answers=[{"id": number, "because": because} for number, because in why.items()],
    )


def _ids_of(contract: ActionContract, answer: StoredAnswer) -> list[str]:
    ids = [answer.candidate_id] if answer.candidate_id is not None else []
    found = extract_id(contract, answer.reply) if answer.effect == Effect.APPLIED.value else None
    return [*ids, found.remote_id] if isinstance(found, Extracted) else ids


def _free_id(acting: Acting, frozen: Frozen, text: str) -> str:
    """The id, if it is one at this remote and no other live link has it; refused otherwise."""
    scope = frozen.profile.contract.destination_scope
    found, _ = unowned_record(acting, frozen.action.contract, text, scope=scope, claimed_by=acting.subject.slot)
    return found.remote_id


def read_again(operation: Operation, frozen: Frozen, answer: StoredAnswer) -> Verdict:
    """The verdict on one stored answer alone: what it says of its own send does not depend on the other ones."""
    past = answer.verdict.get("history")
    alone = {name: value for name, value in past.items() if name not in _OF_OTHERS} if isinstance(past, dict) else {}
    kept = {**answer.verdict, "history": alone}
    return reinterpretation.reinterpret(operation, frozen.action.contract, frozen.profile.contract, answer.reply, kept)


def _refuse_standing_drift(acting: Acting) -> None:
    drifting = acting.drifting
    catalog = acting.world.catalog.read(acting.conn)
    if acting.attempt.operation is Operation.CREATE:
        frozen = frozen_of(acting)
        [identity] = slots.read_identities(acting.conn, [acting.attempt.link_key])
        if identity is None:
            raise acting.stale()
        hits = holds_create(drifting.of_request(frozen.request, identity, catalog))
        way = "undo the change, or abandon the attempt and supersede it with --reserve"
    else:
        link = acting.subject.link
        if link is None:
            return
        acting.world.thaw(acting.conn, [link.profile_digest], [link.action_digest])
        hits = stops_update(drifting.of_link(link, catalog))
        way = "undo the change, or revalidate the link"
    if hits:
        raise acting.refuse(
            f"What it is held for is still there; {way}.",
            drift=[{"rule": hit.rule, "surface": hit.surface.value, "says": hit.row.words} for hit in hits],
        )


# ------------------------------------------------------------------------------------------------ answers


def _moved(moved: Moved) -> Effects:
    return Effects(status=moved.status.value, row_version=moved.row_version)


def _known(acting: Acting, moved: Moved, remote_id: str) -> Effects:
    acting.evidence["remote_id"] = remote_id
    return Effects(status=moved.status.value, row_version=moved.row_version, remote_id=remote_id)


def _unmoved(acting: Acting, is_written: bool) -> Effects:
    row: AttemptRow = acting.attempt
    if not is_written:
        raise acting.stale()
    return Effects(status=row.status.value, row_version=row.row_version + 1)
