"""The read before an update: one GET for the record's current version, under the update's own claim.

It happens before the checkpoint, changes nothing at the remote, and is judged by the same rules as an answer to the
update itself. What it shows becomes part of the request that is frozen next; whatever stops it gives the update back,
or ends it as the same answer to the update would.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pushlink.errors import Code
from pushlink.flows.associations import with_targets
from pushlink.flows.claimed import ClaimedUpdate
from pushlink.flows.sending import history_of, throttle_of
from pushlink.flows.step_items import Settle, Suspension
from pushlink.flows.world import World
from pushlink.ports import WireRequest
from pushlink.protocol.associations import RemoteIds, read_vector, remote_ids
from pushlink.protocol.contracts import ActionContract, Success, UpdateContract
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.extract import extract_first
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.headers import static_headers
from pushlink.protocol.kept import kept_headers
from pushlink.protocol.outcome import Verdict, backoff_ms, interpret, update_event
from pushlink.protocol.preconditions import is_older, needs_fetch, version_places
from pushlink.protocol.render import render_fetch
from pushlink.protocol.replies import Disposition, Effect
from pushlink.protocol.snapshots import ProfileSnapshot
from pushlink.protocol.states import Hold, Operation, UpdateEvent
from pushlink.store.active import ActiveAction
from pushlink.store.lifecycle import Claims
from pushlink.store.rows import LinkRow

#: A read is given at least this long, whatever the lease leaves.
FETCH_MS_MIN: Final = 1_000

#: What a record that is read answers with; other successes carry no representation of it.
_READ: Final = Success(status=(200,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfetched:
    """An update that may be sent once its record's version was read."""

    link: LinkRow
    current: ActiveAction
    version: int  # the wanted version that it will carry


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The version that was read."""

    remote_version: str


def associated_ids(claimed: ClaimedUpdate, current: ActiveAction) -> RemoteIds:
    """The remote ids of what the wanted version refers to, as far as an update carries them."""
    return remote_ids(with_targets(read_vector(claimed.slot.wanted_associations), claimed.targets), current.contract)


def is_unfetched(claimed: ClaimedUpdate, update: UpdateContract | None, link: LinkRow) -> bool:
    """Whether the record is read before this send."""
    if update is None:
        return False
    is_refused = claimed.attempt.reason_code == Code.REMOTE_CHANGED
    return needs_fetch(update, link_version=link.remote_version, is_refused=is_refused)


def fetch_request(claimed: ClaimedUpdate, unfetched: Unfetched, world: World) -> WireRequest | RenderFailure:
    """The read, bounded so that what is left of the lease still holds the update."""
    current, terms = unfetched.current, world.terms
    path = render_fetch(
        current.contract, current.profile, unfetched.link.remote_id, associated=associated_ids(claimed, current)
    )
    headers = static_headers(current.profile)
    if isinstance(path, RenderFailure):
        return path
    if isinstance(headers, RenderFailure):
        return headers
    timeouts = current.profile.timeouts
    left_ms = terms.lease_ms - timeouts.total_ms - 2 * terms.margin_ms
    bound_ms = min(timeouts.total_ms, max(FETCH_MS_MIN, left_ms))
    return WireRequest(
        profile=current.profile.model_copy(update={"timeouts": timeouts.model_copy(update={"total_ms": bound_ms})}),
        tenant=claimed.attempt.tenant,
        method="GET",
        path=path,
        headers=headers,
        body=b"",
        fresh_connection=False,
        keep_headers=kept_headers(current.contract, current.profile),
    )


def judge_fetched(claimed: ClaimedUpdate, unfetched: Unfetched, reply: StoredReply, world: World) -> Fetched | Settle:
    """The version that the answer shows, or what becomes of the update without one."""
    current, link = unfetched.current, unfetched.link
    profile = ProfileSnapshot(contract=current.profile, credential_generation=claimed.generation)
    reading = contract_of_read(current.contract)
    history = history_of(
        claimed,
        world,
        profile,
        send_ordinal=claimed.attempt.send_count,
        canonical_id=link.remote_id_canonical,
    )
    verdict = interpret(Operation.UPDATE, reading, current.profile, reply, replace(history, in_doubt=False))
    if verdict.effect is Effect.APPLIED and verdict.disposition is Disposition.FINALIZE:
        world.note_accepted(claimed.attempt.tenant, profile)
        return _version(claimed, unfetched, reply, world)
    if verdict.disposition in (Disposition.GONE, Disposition.CONFLICT):
        return _lost(claimed, unfetched, verdict)
    if verdict.disposition is Disposition.TERMINAL and verdict.effect is Effect.NOT_APPLIED:
        return _end(claimed, unfetched, verdict.code or Code.REMOTE_REJECTED, _evidence(verdict))
    return _again(claimed, unfetched, verdict, world)


def contract_of_read(contract: ActionContract) -> ActionContract:
    """The action with a read in the update's place: a 200 is done, and there is nothing to assert or to hold.

    A read gives no record another id, so one that differs is another record's.
    """
    update = contract.update
    if update is None:
        return contract
    response = contract.create.response
    fixed = response.model_copy(update={"id_rule": response.id_rule.model_copy(update={"mutable": False})})
    return contract.model_copy(
        update={
            "create": contract.create.model_copy(update={"response": fixed}),
            "update": update.model_copy(update={"success": _READ, "precondition": None}),
        }
    )


def _version(claimed: ClaimedUpdate, unfetched: Unfetched, reply: StoredReply, world: World) -> Fetched | Settle:
    update = unfetched.current.contract.update
    condition = update.precondition if update is not None else None
    if update is None or condition is None:
        return _end(claimed, unfetched, Code.FREEZE_FAILED, {"because": "the update has no precondition"})
    found = extract_first(version_places(update, unfetched.current.contract.create), reply)
    if found is None:
        return _end(claimed, unfetched, Code.FREEZE_FAILED, {"because": "the answer shows no version"})
    if is_older(condition, found, unfetched.link.remote_version):
        because = {"because": "the version that was read is older than the link's"}
        return _retry(claimed, unfetched, Code.NOT_APPLIED, because, world, burns=True)
    return Fetched(remote_version=found)


def _again(claimed: ClaimedUpdate, unfetched: Unfetched, verdict: Verdict, world: World) -> Settle:
    """Nothing was read: whatever happened to a read, the record is as it was."""
    is_unknown = verdict.effect not in (Effect.NOT_SENT, Effect.NOT_APPLIED)
    code = Code.NOT_APPLIED if is_unknown else (verdict.code or Code.NOT_APPLIED)
    profile = ProfileSnapshot(contract=unfetched.current.profile, credential_generation=claimed.generation)
    again = _retry(
        claimed,
        unfetched,
        code,
        _evidence(verdict),
        world,
        burns=is_unknown or verdict.burns_retry,
        wait_ms=verdict.retry_after_ms,
        hold=verdict.hold,
    )
    return replace(again, throttle=throttle_of(claimed, profile, verdict))


def _retry(
    claimed: ClaimedUpdate,
    unfetched: Unfetched,
    code: Code,
    detail: Mapping[str, object],
    world: World,
    *,
    burns: bool,
    wait_ms: int | None = None,
    hold: Hold | None = None,
) -> Settle:
    attempt, retry = claimed.attempt, unfetched.current.profile.retry
    if burns and attempt.retry_count + 1 >= retry.attempts:
        return _end(claimed, unfetched, Code.RETRIES_EXHAUSTED, detail)
    waits_ms = max(wait_ms or 0, backoff_ms(retry, attempt.retry_count, world.jitter_permille()))
    move = claimed.move(UpdateEvent.NOT_APPLIED, _kept_reason(claimed, code), detail)
    due = attempt.updated_at + dt.timedelta(milliseconds=waits_ms)
    return Settle(move=replace(move, hold=hold, not_before=due, retries=int(burns), claims=Claims.FORGIVE))


def _kept_reason(claimed: ClaimedUpdate, code: Code) -> Code:
    """A stale update that waits for its one more try still does, whatever kept the read from answering."""
    waits = claimed.attempt.reason_code == Code.REMOTE_CHANGED and code is not Code.UNAUTHENTICATED
    return Code.REMOTE_CHANGED if waits else code


def _lost(claimed: ClaimedUpdate, unfetched: Unfetched, verdict: Verdict) -> Settle:
    """The record that was read is gone, or is another one: its link is suspended, as after an update."""
    detail = _evidence(verdict)
    suspension = Suspension(
        link=unfetched.link,
        attempt_id=claimed.attempt.id,
        actor=claimed.incarnation,
        reason_code=verdict.code,
        evidence=detail,
    )
    ended = _ended(claimed, unfetched, update_event(verdict), verdict.code or Code.REMOTE_CHANGED, detail)
    return replace(ended, suspends=suspension)


def _end(claimed: ClaimedUpdate, unfetched: Unfetched, code: Code, detail: Mapping[str, object]) -> Settle:
    return _ended(claimed, unfetched, UpdateEvent.FAIL_VALIDATION, code, detail)


def _ended(
    claimed: ClaimedUpdate, unfetched: Unfetched, event: UpdateEvent, code: Code, detail: Mapping[str, object]
) -> Settle:
    judged = replace(claimed.attempt, version=unfetched.version)
    return Settle(move=claimed.move(event, code, detail), judged=judged)


def _evidence(verdict: Verdict) -> dict[str, object]:
    return {**verdict.evidence, "row": verdict.row, "candidates": list(verdict.candidates), "read": True}
