from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from pushlink.protocol.recovery import CREATE_RULES, UPDATE_RULES, RecoveryFacts, recover_create, recover_update
from pushlink.protocol.states import (
    LEASED,
    AttemptStatus,
    CreateEvent,
    Lane,
    UpdateEvent,
    follow_create,
    follow_update,
)

A = AttemptStatus
BOOLS = (False, True)


def every(lane: str | None = None) -> Iterator[RecoveryFacts]:
    lanes = [lane] if lane is not None else [*Lane, "lane_of_tomorrow", ""]
    for where, status, checkpoint, timeline, live, doubt, known, authority in itertools.product(
        lanes, AttemptStatus, BOOLS, BOOLS, BOOLS, BOOLS, BOOLS, BOOLS
    ):
        yield RecoveryFacts(
            lane=where,
            status=status,
            checkpoint_set=checkpoint,
            same_timeline=timeline,
            live_replay_contract=live,
            in_doubt=doubt,
            remote_id_known=known,
            replay_authority=authority,
        )


def test_every_recovery_is_an_arrow_of_its_machine() -> None:
    """All combinations of all facts: the event, if there is one, has an arrow from that status."""
    for facts in every():
        if (created := recover_create(facts)) is not None:
            follow_create(facts.status, created)
        if (updated := recover_update(facts)) is not None:
            follow_update(facts.status, updated)


@pytest.mark.rule("DL-09")
@pytest.mark.parametrize("lane", ["lane_of_tomorrow", "", "CONFIGURED"])
def test_a_row_of_an_unknown_lane_is_never_recovered(lane: str) -> None:
    """Whatever its status is, the pure table leaves it alone."""
    assert all(recover_create(facts) is None and recover_update(facts) is None for facts in every(lane))


def test_only_leased_rows_are_recovered() -> None:
    """Pending, ambiguous, finalized and ended rows have no claim that could be lost."""
    for facts in every():
        if facts.status not in LEASED:
            assert recover_create(facts) is None
        if facts.status not in {A.PROCESSING, A.POST_SENT}:
            assert recover_update(facts) is None


def test_only_an_unwritten_checkpoint_on_the_same_timeline_proves_that_nothing_was_sent() -> None:
    """Without that proof no create goes back to pending but by a contract, and no update at all."""
    for facts in every():
        proved = facts.status is A.PROCESSING and not facts.checkpoint_set and facts.same_timeline
        assert (recover_create(facts) is CreateEvent.RECOVER_UNSTARTED) is (proved and facts.lane in set(Lane))
        if recover_update(facts) is UpdateEvent.RECOVER_UNSTARTED:
            assert proved
            assert facts.replay_authority
            assert not facts.in_doubt


@pytest.mark.rule("DL-04")
@pytest.mark.parametrize(("status", "checkpoint"), [(A.PROCESSING, True), (A.POST_SENT, False), (A.POST_SENT, True)])
def test_an_expired_deferred_create_that_may_have_sent_is_ambiguous_and_never_replayed(
    status: AttemptStatus, checkpoint: bool
) -> None:
    """Not even under a live contract; without a checkpoint it goes back to pending."""
    for facts in every(Lane.DEFERRED_ASSOCIATION):
        if facts.status is status and facts.checkpoint_set is checkpoint:
            assert recover_create(facts) is CreateEvent.UNKNOWN
        assert recover_create(facts) is not CreateEvent.REPLAY


@pytest.mark.rule("RR-03", "RR-04")
@pytest.mark.parametrize(
    ("checkpoint", "timeline", "live", "event"),
    [
        (False, True, False, CreateEvent.RECOVER_UNSTARTED),
        (True, True, False, CreateEvent.UNKNOWN),
        (False, False, False, CreateEvent.UNKNOWN),
        (True, True, True, CreateEvent.REPLAY),
        (False, False, True, CreateEvent.REPLAY),
    ],
)
def test_an_expired_configured_create_is_replayed_only_under_its_contract(
    checkpoint: bool, timeline: bool, live: bool, event: CreateEvent
) -> None:
    """A crash before the POST is safe to retry; after the checkpoint, or on an older timeline, it is unknown."""
    facts = RecoveryFacts(
        lane=Lane.CONFIGURED,
        status=A.PROCESSING,
        checkpoint_set=checkpoint,
        same_timeline=timeline,
        live_replay_contract=live,
        in_doubt=False,
        remote_id_known=False,
        replay_authority=True,
    )
    assert recover_create(facts) is event


@pytest.mark.rule("D-07", "D-02")
def test_a_create_that_may_have_been_sent_is_replayed_unknown_or_promoted() -> None:
    """All facts of the configured lane: a live contract replays what has no id yet, a committed result goes on."""
    for facts in every(Lane.CONFIGURED):
        is_proved = not facts.checkpoint_set and facts.same_timeline
        if facts.status is A.POST_SENT or (facts.status is A.PROCESSING and not is_proved):
            may_replay = facts.live_replay_contract and not facts.remote_id_known
            assert recover_create(facts) is (CreateEvent.REPLAY if may_replay else CreateEvent.UNKNOWN)
        if facts.status is A.WRITEBACK_COMMIT_PENDING:
            is_committed = facts.checkpoint_set and facts.remote_id_known
            assert recover_create(facts) is (CreateEvent.PROMOTE if is_committed else None)


@pytest.mark.parametrize("lane", list(Lane))
def test_an_update_goes_back_only_unsent_authorised_and_without_a_doubt(lane: Lane) -> None:
    """All facts of every lane that is known; no contract replays an update."""
    for facts in every(lane):
        is_proved = not facts.checkpoint_set and facts.same_timeline
        expected = UpdateEvent.UNKNOWN
        if facts.status is A.PROCESSING and is_proved and not facts.replay_authority:
            expected = UpdateEvent.RECOVER_UNAUTHORISED
        elif facts.status is A.PROCESSING and is_proved and not facts.in_doubt:
            expected = UpdateEvent.RECOVER_UNSTARTED
        if facts.status in {A.PROCESSING, A.POST_SENT}:
            assert recover_update(facts) is expected


@pytest.mark.rule("RR-05")
def test_a_known_remote_id_is_never_followed_by_another_post() -> None:
    """With an id no recovery leads to pending once anything may have been sent."""
    for facts in every():
        if facts.remote_id_known and facts.checkpoint_set:
            assert recover_create(facts) not in {CreateEvent.REPLAY, CreateEvent.RECOVER_UNSTARTED}


def test_a_committed_result_is_promoted_only_with_checkpoint_and_id() -> None:
    """What lacks one of the two is a broken promise that a person looks at, not a write-back."""
    for facts in every():
        promoted = recover_create(facts) is CreateEvent.PROMOTE
        assert promoted is (
            facts.status is A.WRITEBACK_COMMIT_PENDING
            and facts.checkpoint_set
            and facts.remote_id_known
            and facts.lane in set(Lane)
        )


@pytest.mark.rule("DL-06")
@pytest.mark.parametrize(
    ("status", "checkpoint", "authority", "event"),
    [
        (A.PROCESSING, False, True, UpdateEvent.RECOVER_UNSTARTED),
        (A.PROCESSING, False, False, UpdateEvent.RECOVER_UNAUTHORISED),
        (A.PROCESSING, True, True, UpdateEvent.UNKNOWN),
        (A.PROCESSING, True, False, UpdateEvent.UNKNOWN),
        (A.POST_SENT, False, True, UpdateEvent.UNKNOWN),
        (A.POST_SENT, True, True, UpdateEvent.UNKNOWN),
    ],
)
@pytest.mark.parametrize("lane", list(Lane))
def test_an_expired_update_goes_back_only_before_its_checkpoint_and_with_authority(
    lane: Lane, status: AttemptStatus, checkpoint: bool, authority: bool, event: UpdateEvent
) -> None:
    """Checkpoint set, no authority to replay, or sent: ambiguous, in either lane; contracts are for creates."""
    for live in BOOLS:
        facts = RecoveryFacts(
            lane=lane,
            status=status,
            checkpoint_set=checkpoint,
            same_timeline=True,
            live_replay_contract=live,
            in_doubt=False,
            remote_id_known=False,
            replay_authority=authority,
        )
        assert recover_update(facts) is event


def test_every_rule_is_reached() -> None:
    """No row of either table is dead."""
    for rules, recover in ((CREATE_RULES, recover_create), (UPDATE_RULES, recover_update)):
        reached = {(facts.status, recover(facts)) for facts in every()}
        assert {(rule.status, rule.event) for rule in rules} <= reached
