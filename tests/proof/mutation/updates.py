# ruff: noqa: ARG005 - what is put in the place of a function takes what that took
"""The rules of updates, and how each is switched off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from proof.mutation.means import change_gates, mutant, swap
from pushlink.flows import followups, plans, rechecks, update, world
from pushlink.protocol import states
from pushlink.store import slots

_UPDATES = "flows/test_update.py::test_"
_ONE_UPDATE = _UPDATES + "saves_while_the_create_is_in_flight_become_one_update_of_the_finalizing_transaction"


@mutant("SENT", "D-19", _ONE_UPDATE)
def no_sent() -> None:
    """The version that was sent is acknowledged."""
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


@mutant("WANTED", "D-19", _ONE_UPDATE)
def no_wanted() -> None:
    """A save that has to wait is written down."""
    for name in ("BEFORE_CREATE", "BEFORE_UPDATE"):
        change_gates(name, lambda gate: replace(gate, records_wanted=False))


@mutant("ONE", "D-19", _UPDATES + "updates_of_one_link_never_overlap_and_never_overtake")
def no_one() -> None:
    """One update of a link is open."""
    # One in flight stands in nobody's way: the next one does not wait for it, and takes its place.
    original = plans.waits_for_update
    swap(original, lambda locked: original(locked) and locked.open.update.status is states.AttemptStatus.PENDING)
    for status in states.UPDATE_OPEN:
        states.UPDATE[status, states.UpdateEvent.REPLACE] = states.AttemptStatus.SUPERSEDED  # type: ignore[index]


@mutant("BLOCK", "D-20", _UPDATES + "an_ambiguous_update_blocks_later_ones_until_it_is_settled")
def no_block() -> None:
    """An update in doubt stops the next one."""
    # It gives up its place, as if somebody had let the newest version be sent again at once.
    for arrow, target in states.UPDATE.items():
        if target is states.AttemptStatus.AMBIGUOUS_REMOTE_EFFECT:
            states.UPDATE[arrow] = states.AttemptStatus.SUPERSEDED  # type: ignore[index]


@mutant("AGAIN", "D-21", _UPDATES + "the_checkpoint_sees_a_link_that_was_suspended_after_the_claim")
def no_again() -> None:
    """The checkpoint looks again at what was validated."""
    swap(rechecks.what_changed, lambda *_: None)


@mutant(
    "REFUSED",
    "D-19",
    "operations/test_actions_links.py::test_revalidation_sends_no_refused_version_again",
    unseen="a link is hardly ever stopped and revalidated there while a version of it stands refused",
)
def no_refused() -> None:
    """A refused version is not sent again by itself."""
    original = followups.due_of
    swap(original, lambda slot, *, beyond: original(replace(slot, refused_version=0), beyond=beyond))


@mutant(
    "ECHO",
    "D-22",
    _UPDATES + "a_change_that_is_taken_back_before_it_was_sent_sends_nothing",
    unseen="a request too many breaks no invariant",
)
def no_echo() -> None:
    """What the remote has is not sent again."""
    original = update.judge_update
    update.judge_update = lambda claimed, world: original(
        replace(claimed, slot=replace(claimed.slot, applied_values_digest=None)), world
    )


@mutant(
    "GONE",
    "D-23",
    _UPDATES + "gone_needs_a_proven_credential",
    unseen="its remote answers 404 only for what was deleted",
)
def no_gone() -> None:
    """Gone needs a credential that was accepted."""
    world.World.accepted = lambda self, tenant, profile: True  # type: ignore[method-assign]
