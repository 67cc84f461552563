"""The operator's verbs: every (verb, state) is an arrow of the machines, a change without one, or refused."""

from __future__ import annotations

import datetime as dt
import itertools

import pytest

from pushlink.protocol.states import (
    CREATE,
    KNOWN_LANES,
    LINK,
    UPDATE,
    AttemptStatus,
    CreateEvent,
    Hold,
    Lane,
    LinkEvent,
    LinkStatus,
    Operation,
    UpdateEvent,
    statuses,
)
from pushlink.protocol.verbs import VERBS, Place, Standing, Target, Verb, allowed_verbs, may_act, settles_at

PLACES: list[Place] = [
    *((operation, status) for operation in Operation for status in sorted(statuses(operation))),
    *LinkStatus,
]


def standing_at(place: Place, hold: Hold | None = None, lane: str = Lane.CONFIGURED) -> Standing:
    return Standing(place=place, hold=hold, lane=None if isinstance(place, LinkStatus) else lane)


@pytest.mark.rule("AT-08", "LK-06", "LK-05")
@pytest.mark.parametrize(("verb", "place"), list(itertools.product(Verb, PLACES)))
def test_each_verb_is_an_arrow_of_the_machine_or_refused(verb: Verb, place: Place) -> None:
    """An entry names arrows that exist from its state; without an entry nothing, no hold either, allows the verb."""
    arrows = VERBS[verb].arrows.get(place)
    if arrows is None:
        assert not any(may_act(verb, standing_at(place, hold)) for hold in (None, *Hold))
        assert not may_act(verb, standing_at(place, lane="of_tomorrow"))
        return
    for event in arrows:
        match place, event:
            case LinkStatus(), LinkEvent():
                assert (place, event) in LINK
            case (Operation.CREATE, AttemptStatus() as status), CreateEvent():
                assert (status, event) in CREATE
            case (Operation.UPDATE, AttemptStatus() as status), UpdateEvent():
                assert (status, event) in UPDATE
            case _:
                pytest.fail(f"{verb} has an arrow of another machine at {place}")


@pytest.mark.rule("D-08")
def test_what_a_verb_waits_for_and_hangs_on_stands_in_its_rule() -> None:
    """Absence waits for the settle time, as does sending after an update in doubt; a repeat needs its contract."""

    def verbs_that(fact: str) -> set[Verb]:
        return {verb for verb, rule in VERBS.items() if getattr(rule, fact)}

    assert verbs_that("settles") == {Verb.ABSENT, Verb.RESEND}
    assert verbs_that("needs_contract") == {Verb.REPLAY, Verb.LOOKUP}
    assert verbs_that("needs_unknown_lane") == {Verb.REPAIR_LANE}


def test_every_verb_has_a_rule_and_acts_on_rows_of_one_kind() -> None:
    """The table is total; a verb of links acts on no attempt and the other way round."""
    assert set(VERBS) == set(Verb)
    for rule in VERBS.values():
        assert {isinstance(place, LinkStatus) for place in rule.arrows} == {rule.target is Target.LINK}


@pytest.mark.rule("SY-05", "DL-09")
def test_a_row_of_an_unknown_lane_has_one_verb_and_a_known_lane_never_has_it() -> None:
    """Nothing but the repair may touch it, and the repair touches nothing else."""
    for place in PLACES:
        if isinstance(place, LinkStatus):
            continue
        stranded = allowed_verbs(standing_at(place, lane="of_tomorrow"))
        assert set(stranded) <= {Verb.REPAIR_LANE}
        assert all(Verb.REPAIR_LANE not in allowed_verbs(standing_at(place, lane=lane)) for lane in KNOWN_LANES)


@pytest.mark.rule("D-04", "D-08")
def test_everything_that_waits_for_a_person_has_a_verb() -> None:
    """A parked, ended or held row is never a dead end."""
    for place in PLACES:
        match place:
            case (Operation.CREATE, AttemptStatus.AMBIGUOUS_REMOTE_EFFECT | AttemptStatus.TERMINAL_FAILED):
                assert Verb.ADOPT in allowed_verbs(standing_at(place))
            case (Operation.UPDATE, AttemptStatus.AMBIGUOUS_REMOTE_EFFECT):
                assert {Verb.APPLIED, Verb.RESEND} <= set(allowed_verbs(standing_at(place)))
            case (Operation(), AttemptStatus.PENDING):
                assert all(
                    Verb.UNHOLD in allowed_verbs(standing_at(place, hold))
                    for hold in Hold
                    if hold != "locator_conflict"
                )
            case _:
                continue


@pytest.mark.rule("D-09", "AT-03")
def test_only_a_terminal_create_is_superseded() -> None:
    """No other state leads to a second POST of a key."""
    assert list(VERBS[Verb.SUPERSEDE].arrows) == [(Operation.CREATE, AttemptStatus.TERMINAL_FAILED)]


@pytest.mark.rule("D-08")
def test_the_settle_time_is_the_sum_of_what_may_delay_a_send() -> None:
    """Deadline, declared pause and declared processing, from the checkpoint on."""
    sent = dt.datetime(2025, 1, 15, 12, tzinfo=dt.UTC)
    found = settles_at(sent, total_ms=30_000, pause_ms=600_000, processing_ms=120_000)
    assert found - sent == dt.timedelta(minutes=12, seconds=30)
