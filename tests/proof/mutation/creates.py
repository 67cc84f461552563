# ruff: noqa: ARG005 - what is put in the place of a function takes what that took
"""The rules of creates and of claims, and how each is switched off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from proof.mutation.means import change_gates, mutant, swap, without
from proof.simulation import operator, surroundings
from pushlink.flows import create, drivers, operating_creates, rechecks, recover, sending, step_items, steps
from pushlink.flows.uptime import uptime_s
from pushlink.protocol import outcome, recovery, replies, states, verbs
from pushlink.store import attempts, restores
from pushlink.store.lifecycle import attempts as lifecycle
from pushlink.testing.driver import DyingDatabase


@mutant("FENCE", "D-12", "flows/test_orders.py::test_a_worker_that_wakes_after_its_lease_changes_and_sends_nothing")
def no_fence() -> None:
    """An owner writes only while its token stands."""
    without(lifecycle._MOVE, "claim_token")
    without(attempts._CHECKPOINT, "lease_until")
    original = attempts.write_checkpoints

    def write(conn: Any, items: Sequence[Any], *, now: Any) -> list[Any]:
        rows = attempts.read_attempts(conn, [item.attempt_id for item in items])
        tokens = [None if row is None else row.claim_token for row in rows]
        return original(conn, [replace(i, token=t or i.token) for i, t in zip(items, tokens, strict=True)], now=now)

    attempts.write_checkpoints = write

    def held(conn: Any, items: Sequence[Any]) -> list[Any]:
        rows = attempts.read_attempts(conn, [attempt for attempt, _ in items])
        return [None if row is None else row.status for row in rows]

    attempts.lock_claims = held


@mutant(
    "LATE",
    "D-14",
    "flows/test_worker.py::test_an_answer_after_the_claim_was_lost_is_evidence_and_moves_nothing",
)
def no_late() -> None:
    """An answer that comes too late is kept."""

    def keep_late(self: Any, conn: Any, items: Sequence[Any], *, now: Any) -> list[Any]:
        return [None] * len(items)

    steps.Steps.keep_late = keep_late  # type: ignore[method-assign]


@mutant("SETTLE", "D-08", "operations/test_actions_creates.py::test_absence_is_confirmed_only_after_the_settle_time")
def no_settle() -> None:
    """Nothing is called absent before all of it has settled."""
    swap(operating_creates.require_settled, lambda acting, profile: None)
    operator.Operator._may_still_send = lambda self, record: False  # type: ignore[method-assign]


@mutant(
    "INDEX",
    "D-10",
    "flows/test_update.py::test_saves_while_the_create_is_in_flight_become_one_update_of_the_finalizing_transaction",
)
def no_index() -> None:
    """One create occupies a key."""
    # The gates read no attempt, and whoever reserves takes the key from whoever has it.
    blind = {"create_active", "create_ambiguous", "create_terminal"}
    change_gates("BEFORE_CREATE", lambda gate: None if gate.code.value in blind else gate)
    original, rows = lifecycle.insert_attempts, lifecycle.push_attempt

    def insert(conn: Any, items: Sequence[Any], *, now: Any) -> Any:
        keys = [item.link_key for item in items if item.operation is states.Operation.CREATE]
        conn.execute(sa.update(rows).where(rows.c.create_key.in_(keys)).values(create_key=None))
        return original(conn, items, now=now)

    swap(original, insert)


@mutant("CONFLICT", "D-15", "flows/test_worker.py::test_a_remote_id_that_another_link_owns_is_kept_and_held")
def no_conflict() -> None:
    """A taken locator costs no id."""
    # The insert of the link decides about the whole transaction: the answer goes with it.
    original = steps.Steps.record

    def record(self: Any, conn: Any, items: Sequence[Any], *, now: Any) -> list[Any]:
        keys = [item.link.locator_key if item.link is not None else "" for item in items]
        owners = steps.links.read_locators(conn, keys)
        is_taken = [bool(key) and owner is not None for key, owner in zip(keys, owners, strict=True)]
        fit = [item for item, taken in zip(items, is_taken, strict=True) if not taken]
        answers = iter(original(self, conn, fit, now=now))
        return [step_items.Recorded() if taken else next(answers) for taken in is_taken]

    steps.Steps.record = record  # type: ignore[method-assign]


@mutant(
    "HELDONLY",
    "D-09",
    "operations/test_actions_creates.py::test_the_id_of_a_mirror_that_only_waits_is_not_disposed_of",
    unseen="its operator takes what is on the list of what is stuck, and a mirror that waits is not",
)
def no_held_only() -> None:
    """An id is disposed of in a conflict alone."""
    verbs.VERBS[verbs.Verb.DISPOSE] = replace(verbs.VERBS[verbs.Verb.DISPOSE], holds={})  # type: ignore[index]


@mutant("PROOF", "D-09", "flows/test_create.py::test_what_may_have_happened_is_parked_and_never_sent_again")
def no_proof() -> None:
    """What is unknown is never terminal."""
    unknown = (replies.Effect.UNKNOWN, replies.Disposition.RECONCILE)
    outcome._CREATE_EVENTS[unknown] = states.CreateEvent.REJECT  # type: ignore[index]
    sending._doubt_after = lambda verdict: None if verdict.effect is replies.Effect.APPLIED else False


@mutant(
    "REREAD",
    "D-13",
    "flows/test_deaths.py::test_a_create_that_dies_anywhere_is_in_doubt_or_as_if_nothing_had_happened",
)
def no_reread() -> None:
    """A checkpoint that nobody heard of is read again."""
    # One whose commit failed is taken for written.
    for kind in (drivers.Database, surroundings.FaultyDatabase, DyingDatabase):
        kind.commit = _trusting(kind.commit)  # type: ignore[method-assign]


def _trusting(commit: Any) -> Any:
    def trusting(self: Any, step: Any, txs: Sequence[Any]) -> list[Any]:
        return [
            _granted(tx.item) if isinstance(answer, drivers.Failed) and tx.step.__name__ == "checkpoint" else answer
            for tx, answer in zip(txs, commit(self, step, txs), strict=True)
        ]

    return trusting


def _granted(item: Any) -> step_items.Granted:
    at, count = item.attempt.updated_at, item.attempt.send_count
    return step_items.Granted(send_ordinal=count + 1, at=at, first_at=at, start_by_s=uptime_s() + 60)


@mutant(
    "TIMELINE",
    "D-36",
    "restores/test_guard.py::test_a_claim_of_an_older_timeline_is_in_doubt",
    unseen="its database never fails over to a replica",
)
def no_timeline() -> None:
    """A claim of an older timeline is in doubt."""
    recover.recovery_of.__globals__["RecoveryFacts"] = lambda **facts: recovery.RecoveryFacts(
        **{**facts, "same_timeline": True}
    )


@mutant("RESTORED", "D-36", "restores/test_guard.py::test_what_was_in_work_is_ended_as_of_an_older_timeline")
def no_restored() -> None:
    """A restored database doubts its open creates."""
    restores.doubt_open_creates = lambda conn, *, actor, reason, now: 0
    without_doubt = recover.recovery_of

    def recovered(row: Any, prospect: Any, *, timeline: str, **more: Any) -> Any:
        return without_doubt(row, prospect, timeline=timeline or row.claim_timeline, **more)

    swap(without_doubt, recovered)


@mutant("STICKY", "D-06", "protocol/test_outcome.py::test_unknown_is_sticky")
def no_sticky() -> None:
    """Unknown stays unknown, whatever a later answer says."""
    original = outcome._after_history
    outcome._after_history = lambda operation, meaning, profile, history: original(
        operation, meaning, profile, replace(history, in_doubt=False)
    )
    doubt = sending._doubt_after

    def cleared(verdict: Any) -> bool | None:
        return False if verdict.effect in {replies.Effect.NOT_SENT, replies.Effect.NOT_APPLIED} else doubt(verdict)

    swap(doubt, cleared)


@mutant(
    "LIFETIME",
    "D-07",
    "flows/test_replays.py::test_the_lifetime_is_checked_again_in_the_checkpoint_by_the_clock_of_the_database",
)
def no_lifetime() -> None:
    """A contract's end is checked in the checkpoint."""
    original = rechecks.what_changed
    swap(original, lambda item, *rest: original(replace(item, replay_until=None), *rest))


@mutant(
    "VALIDATION", "D-07", "flows/test_create.py::test_an_attempt_in_doubt_without_a_contract_is_parked_before_any_byte"
)
def no_validation() -> None:
    """A repeat that may not be sent is in doubt, not over."""
    original = create._stop

    def stop(claimed: Any, event: Any, *rest: Any, **more: Any) -> Any:
        if event is not states.CreateEvent.DOUBT:
            return original(claimed, event, *rest, **more)
        return replace(original(claimed, states.CreateEvent.FAIL_VALIDATION, *rest, **more), in_doubt=False)

    create._stop = stop


@mutant(
    "DUPLICATE",
    "D-27",
    "flows/test_create.py::test_a_duplicate_answer_names_a_candidate_and_adopts_nothing",
)
def no_duplicate() -> None:
    """An answer that names a duplicate adopts nothing."""
    original = outcome.interpret

    def adopting(operation: Any, *rest: Any, **more: Any) -> Any:
        verdict = original(operation, *rest, **more)
        is_known = operation is states.Operation.CREATE and len(verdict.candidates) == 1
        if not is_known or verdict.effect is not replies.Effect.NOT_APPLIED:
            return verdict
        [named] = verdict.candidates
        return replace(
            verdict,
            effect=replies.Effect.APPLIED,
            disposition=replies.Disposition.FINALIZE,
            code=None,
            remote_id=named,
            canonical_id=named,
        )

    swap(original, adopting)


@mutant("THROTTLE", "D-05", "flows/test_create.py::test_a_throttle_waits_as_long_as_it_was_asked_to_and_burns_no_retry")
def no_throttle() -> None:
    """A throttle burns no retry."""
    burning = replace(replies.THROTTLE, burns_retry=True)
    row = replies.BY_STATUS[429]
    replies.BY_STATUS[429] = replace(row, create=burning, update=burning)  # type: ignore[index]
