"""The rules of lanes, of records that wait for others, of groups and of manifests, and how each is switched off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from proof.mutation.means import mutant, swap
from pushlink.flows import awaiting, claim, cycles, drivers, rechecks
from pushlink.migration import batches, revalidate
from pushlink.protocol import receipts, waiting
from pushlink.store import revalidation as revalidation_rows

_WORKER = "flows/test_worker.py::test_"
_MANIFESTS = "migration/test_revalidate.py::test_"

_ONE_MANIFEST = "manifests are applied one after the other there"
_NOT_REPEATED = "nobody repeats a manifest there"


class _AnyLane(str):
    """A lane that this release does not know."""

    __slots__ = ()

    @property
    def value(self) -> str:
        return str(self)


@mutant("LANES", "D-39", _WORKER + "a_row_of_an_unknown_lane_is_never_touched_and_starves_nobody")
def no_lanes() -> None:
    """A row of an unknown lane is nobody's."""
    original = claim.lanes_of
    swap(original, lambda deployment: (*original(deployment), _AnyLane("lane of tomorrow")))


@mutant(
    "TARGET",
    "D-31",
    "flows/test_associations_moved.py::test_a_target_retired_between_freeze_and_checkpoint_sends_nothing",
)
def no_target() -> None:
    """A record that moved is not named in a request."""
    swap(rechecks.moved_target, lambda targets, locked: None)  # noqa: ARG005


@mutant(
    "BLOCKED",
    "D-30",
    "flows/test_associations.py::test_a_parent_that_is_parked_or_failed_is_the_childs_blocking_reason",
)
def no_blocked() -> None:
    """Waiting for what cannot come is a reason."""
    waiting._STUCK = frozenset()  # type: ignore[misc]


@mutant(
    "CYCLE",
    "D-30",
    "flows/test_associations_circles.py::test_a_circle_over_several_saves_is_refused_where_it_would_close",
)
def no_cycle() -> None:
    """Records that wait for each other are told so."""
    swap(cycles.found_cycles, lambda conn, items: list(items))  # noqa: ARG005
    awaiting._circles = lambda *_: {}


@mutant(
    "SPLIT",
    "D-17",
    _WORKER + "a_group_with_one_bad_row_commits_the_others",
)
def no_split() -> None:
    """One bad row costs its neighbours nothing."""

    def commit(self: Any, step: Any, txs: Sequence[Any]) -> list[Any]:
        try:
            with self.engine.begin() as conn:
                return list(step(conn, [tx.item for tx in txs], now=self.clock.now(conn)))
        except Exception as error:  # noqa: BLE001 - as the driver does it
            return [drivers.Failed(error, drivers.is_transient(error))] * len(txs)

    drivers.Database.commit = commit  # type: ignore[method-assign]


@mutant(
    "POISON",
    "D-16",
    _WORKER + "a_row_that_kills_its_workers_is_held_before_any_request",
    unseen="a row that is claimed for ever breaks no invariant while processes are started anew",
)
def no_poison() -> None:
    """A row that kills its workers is held."""
    original = claim.ClaimSteps._set_aside

    def set_aside(self: Any, conn: Any, rows: Sequence[Any], now: Any) -> Any:
        counts = {row.id: row for row in rows}
        return [counts[row.id] for row in original(self, conn, [replace(row, claim_count=0) for row in rows], now)]

    claim.ClaimSteps._set_aside = set_aside  # type: ignore[method-assign]


# ---------------------------------------------------------------------------------- manifests


@mutant("STANDS", "D-21", _MANIFESTS + "an_update_that_may_have_been_sent_keeps_the_whole_manifest_out")
def no_stands() -> None:
    """An update in flight stops a manifest."""
    receipts.UPDATE_IN_FLIGHT = frozenset()  # type: ignore[misc]


@mutant(
    "ORDER",
    "D-10",
    _MANIFESTS + "locks_go_from_the_catalogue_to_slots_links_and_attempts_in_link_key_order",
    unseen=_ONE_MANIFEST,
)
def no_order() -> None:
    """Locks are taken by link key."""
    original = batches.batches
    swap(original, lambda items: reversed(list(original(items))))


@mutant("ATOMIC", "RV-05", _MANIFESTS + "one_wrong_member_keeps_the_whole_manifest_out", unseen=_ONE_MANIFEST)
def no_atomic() -> None:
    """A manifest is applied whole or not at all."""
    # What was moved stays moved, whatever comes after it.
    batches.SIZE = 1  # type: ignore[misc]
    original = revalidate._Run._write

    def write(self: Any, *rest: Any) -> None:
        original(self, *rest)
        self._conn.connection.driver_connection.commit()

    revalidate._Run._write = write  # type: ignore[method-assign]


@mutant(
    "TUPLE",
    "D-32",
    "migration/test_revalidate_repeats.py::test_a_repeat_after_later_legitimate_changes_is_already_applied",
    unseen=_NOT_REPEATED,
)
def no_tuple() -> None:
    """A repeat verifies the mapping, not the whole row."""
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


@mutant(
    "CHAIN",
    "D-32",
    "migration/test_revalidate_repeats.py::test_a_repeat_after_later_legitimate_changes_is_already_applied",
    unseen=_NOT_REPEATED,
)
def no_chain() -> None:
    """A repeat follows the receipts that came after it."""
    original = receipts.judge_repeat

    def newest_only(manifest: Any, member: Any, row: Any, history: Any) -> Any:
        judged = original(manifest, member, row, history)
        if isinstance(judged, receipts.Conflict) or not judged:
            return judged
        return receipts._conflict(member.link_key, receipts.InTheWay.DIVERGED, "another operation came after it")

    swap(original, newest_only)


@mutant(
    "UNDERLOCK",
    "D-10",
    _MANIFESTS + "an_update_in_doubt_blocks_until_an_operator_settles_it",
    unseen=_ONE_MANIFEST,
)
def no_underlock() -> None:
    """What stands in a manifest's way is read under its locks."""
    # It was read before anything was locked, when nothing stood there.
    revalidation_rows.lock_attempts = lambda conn, keys: {}  # noqa: ARG005
