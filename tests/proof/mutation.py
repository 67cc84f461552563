# ruff: noqa: ARG005 - what is put in the place of a function takes what that took
"""The closing rules, each switched off from outside: what a mutant replaces, and the test that notices.

Nothing in `src` reads a switch. A mutant replaces a function, a table or a condition of a prepared statement in this
process, for good; whoever wants to go on without it starts another process. As a plugin of pytest (`-p proof.mutation`)
it takes the mutant that `PUSHLINK_MUTANT` names before any test is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.sql import visitors

import pushlink.bootstrap
import pushlink.worker  # noqa: F401 - every module that may hold a name that is replaced is there
from proof.simulation import surroundings, universe
from pushlink.flows import (
    awaiting,
    claim,
    create,
    cycles,
    drivers,
    followups,
    operating_creates,
    plans,
    rechecks,
    recover,
    sending,
    step_items,
    steps,
    update,
    world,
)
from pushlink.migration import batches, revalidate
from pushlink.protocol import gates, outcome, receipts, recovery, replies, states, verbs, waiting
from pushlink.store import attempts, restores, slots
from pushlink.store import revalidation as revalidation_rows
from pushlink.store.lifecycle import attempts as lifecycle
from pushlink.testing.driver import DyingDatabase

VARIABLE: Final = "PUSHLINK_MUTANT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One rule and how it is switched off.

    `test`: what fails then. `unseen`: why the simulation cannot notice; without it, the simulation has to.
    """

    name: str
    rule: str
    decision: str
    off: Callable[[], None]
    test: str
    unseen: str = ""


# ---------------------------------------------------------------------------------- how something is replaced


def swap(original: Any, other: Any) -> None:
    """Let every module that knows `original` by a name know `other` by it."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").partition(".")[0] in {"pushlink", "proof"}:
            for name, value in list(vars(module).items()):
                if value is original:
                    setattr(module, name, other)


def without(prepared: Any, *columns: str) -> None:
    """Take the conditions away from a prepared statement that speak of these columns of the table."""
    build = prepared._build

    def built(rows: Any) -> Any:
        statement = build(rows)
        kept = [one for one in statement._where_criteria if not _speaks_of(one, columns)]
        statement._where_criteria = tuple(kept)
        return statement

    prepared._build = built
    prepared._statements.clear()


def _speaks_of(condition: Any, columns: Sequence[str]) -> bool:
    return any(isinstance(one, sa.Column) and one.name in columns for one in visitors.iterate(condition))


def _remember(table: Any, changes: Mapping[Any, Any]) -> None:
    """Write into a table of the protocol, which is a dictionary that nobody else writes."""
    table.update(changes)


# ---------------------------------------------------------------------------------- creates and claims


def no_fence() -> None:
    without(lifecycle._MOVE, "claim_token")
    without(attempts._CHECKPOINT, "claim_token", "lease_until")

    def held(conn: Any, items: Sequence[Any]) -> list[Any]:
        rows = attempts.read_attempts(conn, [attempt for attempt, _ in items])
        return [None if row is None else row.status for row in rows]

    attempts.lock_claims = held


def no_late() -> None:
    steps.Steps.keep_late = _named("keep_late", lambda self, conn, items, *, now: [None] * len(items))  # type: ignore[method-assign]


def no_settle() -> None:
    swap(operating_creates.require_settled, lambda acting, profile: None)
    universe.Universe._may_still_send = lambda self, record: False  # type: ignore[method-assign]


def no_index() -> None:
    """A second create beside the first: the gates read no attempt, and the key guards nothing."""
    blind = {"create_active", "create_ambiguous", "create_terminal"}
    _gates("BEFORE_CREATE", lambda gate: None if gate.code.value in blind else gate)
    document = lifecycle._INSERTED.document
    place = list(lifecycle._INSERTED.columns).index("create_key")

    def unkeyed(conn: Any, rows: Sequence[Sequence[Any]]) -> str:
        return document(conn, [[None if at == place else value for at, value in enumerate(row)] for row in rows])

    lifecycle._INSERTED.document = unkeyed  # type: ignore[method-assign]


def _gates(name: str, change: Callable[[Any], Any]) -> None:
    table = getattr(gates, name)
    swap(table, tuple(gate for gate in map(change, table) if gate is not None))


def no_conflict() -> None:
    """The insert of the link decides about the whole transaction: the answer goes with it."""
    original = steps.Steps.record

    def record(self: Any, conn: Any, items: Sequence[Any], *, now: Any) -> list[Any]:
        keys = [item.link.locator_key if item.link is not None else "" for item in items]
        owners = steps.links.read_locators(conn, keys)
        is_taken = [bool(key) and owner is not None for key, owner in zip(keys, owners, strict=True)]
        fit = [item for item, taken in zip(items, is_taken, strict=True) if not taken]
        answers = iter(original(self, conn, fit, now=now))
        return [step_items.Recorded() if taken else next(answers) for taken in is_taken]

    steps.Steps.record = record  # type: ignore[method-assign]


def no_held_only() -> None:
    _remember(verbs.VERBS, {verbs.Verb.DISPOSE: replace(verbs.VERBS[verbs.Verb.DISPOSE], holds={})})


def no_proof() -> None:
    _remember(
        outcome._CREATE_EVENTS, {(replies.Effect.UNKNOWN, replies.Disposition.RECONCILE): states.CreateEvent.REJECT}
    )
    sending._doubt_after = lambda verdict: None if verdict.effect is replies.Effect.APPLIED else False


def no_reread() -> None:
    """A checkpoint whose commit failed is taken for written."""
    for kind in (drivers.Database, surroundings.FaultyDatabase, DyingDatabase):
        kind.commit = _trusting(kind.commit)  # type: ignore[method-assign]


def _trusting(commit: Any) -> Any:
    def trusting(self: Any, step: Any, txs: Sequence[Any]) -> list[Any]:
        answers = commit(self, step, txs)
        if getattr(step, "__name__", "") != "checkpoint":
            return list(answers)
        return [
            step_items.Granted(
                send_ordinal=tx.item.attempt.send_count + 1,
                at=tx.item.attempt.updated_at,
                first_at=tx.item.attempt.updated_at,
            )
            if isinstance(answer, drivers.Failed)
            else answer
            for tx, answer in zip(txs, answers, strict=True)
        ]

    return trusting


def no_timeline() -> None:
    recover.recovery_of.__globals__["RecoveryFacts"] = lambda **facts: recovery.RecoveryFacts(
        **{**facts, "same_timeline": True}
    )


def no_restored() -> None:
    restores.doubt_open_creates = lambda conn, *, actor, reason, now: 0
    without_doubt = recover.recovery_of

    def recovered(row: Any, prospect: Any, *, timeline: str, actor: str, now: Any) -> Any:
        return without_doubt(row, prospect, timeline=timeline or row.claim_timeline, actor=actor, now=now)

    swap(without_doubt, recovered)


def no_sticky() -> None:
    original = outcome._after_history
    outcome._after_history = lambda operation, meaning, profile, history: original(
        operation, meaning, profile, replace(history, in_doubt=False)
    )


def no_lifetime() -> None:
    original = rechecks.what_changed
    swap(original, lambda item, *rest: original(replace(item, replay_until=None), *rest))


def no_validation() -> None:
    original = create._stop

    def stop(claimed: Any, event: Any, *rest: Any, **more: Any) -> Any:
        if event is not states.CreateEvent.DOUBT:
            return original(claimed, event, *rest, **more)
        return replace(original(claimed, states.CreateEvent.FAIL_VALIDATION, *rest, **more), in_doubt=False)

    create._stop = stop


# ---------------------------------------------------------------------------------- updates


def no_sent() -> None:
    original = slots.acknowledge_versions

    def acknowledge(conn: Any, items: Sequence[Any]) -> None:
        now = slots.read_slots(conn, [item.link_key for item in items])
        original(
            conn,
            [
                item if slot is None or item.refused is not None else replace(item, version=slot.wanted_version)
                for item, slot in zip(items, now, strict=True)
            ],
        )

    slots.acknowledge_versions = acknowledge


def no_wanted() -> None:
    _gates("BEFORE_CREATE", lambda gate: replace(gate, records_wanted=False))
    _gates("BEFORE_UPDATE", lambda gate: replace(gate, records_wanted=False))


def no_one() -> None:
    """An update in flight stands in nobody's way: the next one does not wait for it, and takes its key."""
    swap(plans.waits_for_update, lambda locked: False)
    original = lifecycle.insert_attempts

    def insert(conn: Any, items: Sequence[Any], *, now: Any) -> Any:
        keys = [item.link_key for item in items if item.operation is states.Operation.UPDATE]
        conn.execute(
            sa.update(lifecycle.push_attempt)
            .where(lifecycle.push_attempt.c.update_key.in_(keys))
            .values(status="superseded", update_key=None, claim_token=None, lease_until=None)
        )
        return original(conn, items, now=now)

    swap(original, insert)
    lifecycle_room = sys.modules["pushlink.store.lifecycle"]
    lifecycle_room.insert_attempts = insert  # type: ignore[attr-defined]


def no_block() -> None:
    """An update in doubt makes room for the next one."""
    swap(states.UPDATE_OPEN, states.UPDATE_OPEN - states.UNSETTLED)
    lifecycle._MOVE._statements.clear()
    _gates("BEFORE_UPDATE", lambda gate: None if gate.code.value == "update_ambiguous" else gate)


def no_again() -> None:
    swap(rechecks.what_changed, lambda *_: None)


def no_refused() -> None:
    original = followups.due_of
    swap(original, lambda slot, *, beyond: original(replace(slot, refused_version=0), beyond=beyond))


def no_echo() -> None:
    original = update.judge_update
    update.judge_update = lambda claimed, world: original(
        replace(claimed, slot=replace(claimed.slot, applied_values_digest=None)), world
    )


def no_gone() -> None:
    world.World.accepted = lambda self, tenant, profile: True  # type: ignore[method-assign]


# ---------------------------------------------------------------------------------- lanes, groups, other records


class _AnyLane(str):
    """A lane that this release does not know."""

    __slots__ = ()

    @property
    def value(self) -> str:
        return str(self)


def no_lanes() -> None:
    original = claim.lanes_of
    swap(original, lambda deployment: (*original(deployment), _AnyLane("lane of tomorrow")))


def no_target() -> None:
    swap(rechecks.moved_target, lambda targets, locked: None)


def no_blocked() -> None:
    waiting._STUCK = frozenset()  # type: ignore[misc]


def no_cycle() -> None:
    swap(cycles.found_cycles, lambda conn, items: list(items))
    awaiting._circles = lambda *_: {}


def no_split() -> None:
    def commit(self: Any, step: Any, txs: Sequence[Any]) -> list[Any]:
        try:
            with self.engine.begin() as conn:
                return list(step(conn, [tx.item for tx in txs], now=self.clock.now(conn)))
        except Exception as error:  # noqa: BLE001 - as the driver does it
            return [drivers.Failed(error, drivers.is_transient(error))] * len(txs)

    drivers.Database.commit = commit  # type: ignore[method-assign]


def no_poison() -> None:
    original = claim.ClaimSteps._set_aside

    def set_aside(self: Any, conn: Any, rows: Sequence[Any], now: Any) -> Any:
        counts = {row.id: row for row in rows}
        return [counts[row.id] for row in original(self, conn, [replace(row, claim_count=0) for row in rows], now)]

    claim.ClaimSteps._set_aside = set_aside  # type: ignore[method-assign]


def no_throttle() -> None:
    row = replies.BY_STATUS[429]
    burning = replace(replies.THROTTLE, burns_retry=True)
    _remember(replies.BY_STATUS, {429: replace(row, create=burning, update=burning)})


def no_duplicate() -> None:
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


# ---------------------------------------------------------------------------------- manifests


def no_order() -> None:
    for name in ("_LOCK_SLOTS", "_LOCK_LINKS", "_LOCK_ATTEMPTS"):
        prepared = getattr(revalidation_rows, name)
        prepared._build = _unordered(prepared._build)
        prepared._statements.clear()
    swap(revalidate.batches, lambda items: iter([list(reversed(list(items)))]))


def _unordered(build: Any) -> Any:
    return lambda rows: build(rows).order_by(None).order_by(sa.text("1 DESC"))


def no_atomic() -> None:
    """What was moved stays moved, whatever comes after it."""
    batches.SIZE = 1  # type: ignore[misc]
    original = revalidate._Run._write

    def write(self: Any, *rest: Any) -> None:
        original(self, *rest)
        self._conn.connection.driver_connection.commit()

    revalidate._Run._write = write  # type: ignore[method-assign]


def no_tuple() -> None:
    original = receipts.judge_repeat

    def strict(manifest: Any, member: Any, row: Any, history: Any) -> Any:
        judged = original(manifest, member, row, history)
        mine = next((one for one in history.values() if one.operation_id == manifest.operation_id), None)
        if row is None or mine is None or isinstance(judged, receipts.Conflict):
            return judged
        if receipts.row_digest(row) != mine.row_digest_after:
            return receipts._conflict(member.link_key, receipts.InTheWay.DIVERGED, "the row has changed")
        return judged

    swap(original, strict)


def no_chain() -> None:
    original = receipts.judge_repeat

    def newest_only(manifest: Any, member: Any, row: Any, history: Any) -> Any:
        judged = original(manifest, member, row, history)
        if isinstance(judged, receipts.Conflict) or not judged:
            return judged
        return receipts._conflict(member.link_key, receipts.InTheWay.DIVERGED, "another operation came after it")

    swap(original, newest_only)


def no_underlock() -> None:
    """What stands in the way was read before anything was locked, when nothing stood there."""
    revalidation_rows.lock_attempts = lambda conn, keys: {}


def no_stands() -> None:
    receipts.UPDATE_IN_FLIGHT = frozenset()  # type: ignore[misc]


def _named(name: str, function: Any) -> Any:
    function.__name__ = name
    return function


_NO_CONTRACT: Final = "its packs declare no replay contract"
_NO_RELATION: Final = "its records refer to no others"
_ONE_MANIFEST: Final = "manifests are applied one after the other there"


def _table() -> Iterator[Mutant]:
    def mutant(name: str, decision: str, rule: str, off: Callable[[], None], test: str, unseen: str = "") -> Mutant:
        return Mutant(name=name, rule=rule, decision=decision, off=off, test=f"tests/{test}", unseen=unseen)

    updates, creates, worker = "flows/test_update.py::", "flows/test_create.py::", "flows/test_worker.py::"
    manifests, acts = "migration/test_revalidate.py::", "operations/test_actions_"
    families, replays = "flows/test_associations.py::", "flows/test_replays.py::"
    yield mutant(
        "FENCE",
        "D-12",
        "an owner writes only while its token stands",
        no_fence,
        "flows/test_orders.py::test_a_worker_that_wakes_after_its_lease_changes_and_sends_nothing",
    )
    yield mutant(
        "LATE",
        "D-14",
        "an answer that comes too late is kept",
        no_late,
        worker + "test_an_answer_after_the_claim_was_lost_is_evidence_and_moves_nothing",
    )
    yield mutant(
        "SETTLE",
        "D-08",
        "nothing is called absent before all of it has settled",
        no_settle,
        acts + "creates.py::test_absence_is_confirmed_only_after_the_settle_time",
    )
    yield mutant(
        "INDEX",
        "D-10",
        "one create occupies a key",
        no_index,
        "flows/test_update.py::test_saves_while_the_create_is_in_flight_become_one_update_of_the_finalizing_transaction",
    )
    yield mutant(
        "CONFLICT",
        "D-15",
        "a taken locator costs no id",
        no_conflict,
        worker + "test_a_remote_id_that_another_link_owns_is_kept_and_held",
    )
    yield mutant(
        "HELDONLY",
        "D-09",
        "an id is disposed of in a conflict alone",
        no_held_only,
        acts + "creates.py::test_the_id_of_a_mirror_that_only_waits_is_not_disposed_of",
        "its operator takes what is on the list of what is stuck, and a mirror that waits is not",
    )
    yield mutant(
        "PROOF",
        "D-09",
        "what is unknown is never terminal",
        no_proof,
        creates + "test_what_may_have_happened_is_parked_and_never_sent_again",
    )
    yield mutant(
        "REREAD",
        "D-13",
        "a checkpoint that nobody heard of is read again",
        no_reread,
        "flows/test_deaths.py::test_a_create_that_dies_anywhere_is_in_doubt_or_as_if_nothing_had_happened",
    )
    yield mutant(
        "TIMELINE",
        "D-36",
        "a claim of an older timeline is in doubt",
        no_timeline,
        "restores/test_guard.py::test_a_claim_of_an_older_timeline_is_in_doubt",
        "its database never fails over to a replica",
    )
    yield mutant(
        "RESTORED",
        "D-36",
        "a restored database doubts its open creates",
        no_restored,
        "restores/test_guard.py::test_what_was_in_work_is_ended_as_of_an_older_timeline",
    )
    yield mutant(
        "STICKY",
        "D-06",
        "unknown stays unknown, whatever a later answer says",
        no_sticky,
        "protocol/test_outcome.py::test_unknown_is_sticky",
        _NO_CONTRACT,
    )
    yield mutant(
        "LIFETIME",
        "D-07",
        "a contract's end is checked in the checkpoint",
        no_lifetime,
        replays + "test_the_lifetime_is_checked_again_in_the_checkpoint_by_the_clock_of_the_database",
        _NO_CONTRACT,
    )
    yield mutant(
        "VALIDATION",
        "D-07",
        "a repeat that may not be sent is in doubt, not over",
        no_validation,
        creates + "test_an_attempt_in_doubt_without_a_contract_is_parked_before_any_byte",
    )
    yield mutant(
        "SENT",
        "D-19",
        "the version that was sent is acknowledged",
        no_sent,
        updates + "test_saves_while_the_create_is_in_flight_become_one_update_of_the_finalizing_transaction",
    )
    yield mutant(
        "WANTED",
        "D-19",
        "a save that has to wait is written down",
        no_wanted,
        updates + "test_saves_while_the_create_is_in_flight_become_one_update_of_the_finalizing_transaction",
    )
    yield mutant(
        "ONE",
        "D-19",
        "one update of a link is open",
        no_one,
        updates + "test_updates_of_one_link_never_overlap_and_never_overtake",
    )
    yield mutant(
        "BLOCK",
        "D-20",
        "an update in doubt stops the next one",
        no_block,
        updates + "test_an_ambiguous_update_blocks_later_ones_until_it_is_settled",
    )
    yield mutant(
        "AGAIN",
        "D-21",
        "the checkpoint looks again at what was validated",
        no_again,
        updates + "test_the_checkpoint_sees_a_link_that_was_suspended_after_the_claim",
    )
    yield mutant(
        "STANDS",
        "D-21",
        "an update in flight stops a manifest",
        no_stands,
        manifests + "test_an_update_that_may_have_been_sent_keeps_the_whole_manifest_out",
        "everything is saved once more at its end, and so sent under the new mapping",
    )
    yield mutant(
        "REFUSED",
        "D-19",
        "a refused version is not sent again by itself",
        no_refused,
        updates + "test_a_refused_version_is_remembered_and_not_sent_again_by_itself",
    )
    yield mutant(
        "LANES",
        "D-39",
        "a row of an unknown lane is nobody's",
        no_lanes,
        worker + "test_a_row_of_an_unknown_lane_is_never_touched_and_starves_nobody",
    )
    yield mutant(
        "TARGET",
        "D-31",
        "a record that moved is not named in a request",
        no_target,
        families + "test_a_target_retired_between_freeze_and_checkpoint_sends_nothing",
        _NO_RELATION,
    )
    yield mutant(
        "BLOCKED",
        "D-30",
        "waiting for what cannot come is a reason",
        no_blocked,
        families + "test_a_parent_that_is_parked_or_failed_is_the_childs_blocking_reason",
        _NO_RELATION,
    )
    yield mutant(
        "CYCLE",
        "D-30",
        "records that wait for each other are told so",
        no_cycle,
        families + "test_a_circle_over_several_saves_is_refused_where_it_would_close",
        _NO_RELATION,
    )
    yield mutant(
        "SPLIT",
        "D-17",
        "one bad row costs its neighbours nothing",
        no_split,
        worker + "test_a_group_with_one_bad_row_commits_the_others",
        "its effects are committed one by one",
    )
    yield mutant(
        "ORDER",
        "D-10",
        "locks are taken by link key",
        no_order,
        manifests + "test_locks_go_from_the_catalogue_to_slots_links_and_attempts_in_link_key_order",
        _ONE_MANIFEST,
    )
    yield mutant(
        "ATOMIC",
        "RV-05",
        "a manifest is applied whole or not at all",
        no_atomic,
        manifests + "test_one_wrong_member_keeps_the_whole_manifest_out",
        _ONE_MANIFEST,
    )
    yield mutant(
        "TUPLE",
        "D-32",
        "a repeat verifies the mapping, not the whole row",
        no_tuple,
        manifests + "test_a_repeat_after_later_legitimate_changes_is_already_applied",
        "nobody repeats a manifest there",
    )
    yield mutant(
        "CHAIN",
        "D-32",
        "a repeat follows the receipts that came after it",
        no_chain,
        manifests + "test_a_repeat_after_later_legitimate_changes_is_already_applied",
        "nobody repeats a manifest there",
    )
    yield mutant(
        "UNDERLOCK",
        "D-10",
        "what stands in a manifest's way is read under its locks",
        no_underlock,
        manifests + "test_an_update_in_doubt_blocks_until_an_operator_settles_it",
        _ONE_MANIFEST,
    )
    yield mutant(
        "GONE",
        "D-23",
        "gone needs a credential that was accepted",
        no_gone,
        updates + "test_gone_needs_a_proven_credential",
        "its remote answers 404 only for what was deleted",
    )
    yield mutant(
        "DUPLICATE",
        "D-27",
        "an answer that names a duplicate adopts nothing",
        no_duplicate,
        creates + "test_a_duplicate_answer_names_a_candidate_and_adopts_nothing",
        "its remote names no duplicates",
    )
    yield mutant(
        "ECHO",
        "D-22",
        "what the remote has is not sent again",
        no_echo,
        updates + "test_what_the_remote_has_already_is_not_sent_again",
        "a request too many breaks no invariant",
    )
    yield mutant(
        "POISON",
        "D-16",
        "a row that kills its workers is held",
        no_poison,
        worker + "test_a_row_that_kills_its_workers_is_held_before_any_request",
        "a row that is claimed for ever breaks no invariant while processes are started anew",
    )
    yield mutant(
        "THROTTLE",
        "D-05",
        "a throttle burns no retry",
        no_throttle,
        creates + "test_a_throttle_waits_as_long_as_it_was_asked_to_and_burns_no_retry",
        "a create that gives up too early is on the list of what is stuck",
    )


MUTANTS: Final[Mapping[str, Mutant]] = {mutant.name: mutant for mutant in _table()}


def pytest_configure() -> None:
    """Switch off what the environment names."""
    name = os.environ.get(VARIABLE)
    if name:
        MUTANTS[name].off()
