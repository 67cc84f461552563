from __future__ import annotations

import itertools

import pytest

from pushlink.errors import ProtocolViolation
from pushlink.protocol.states import (
    BLOCKING,
    CREATE,
    HOLDS,
    LEASED,
    LINK,
    UPDATE,
    UPDATE_IN_FLIGHT,
    UPDATE_OPEN,
    AttemptStatus,
    CreateEvent,
    Hold,
    LinkEvent,
    LinkStatus,
    Operation,
    UpdateEvent,
    follow_create,
    follow_link,
    follow_update,
    sources,
    statuses,
)

ATTEMPT_STATUSES = (None, *AttemptStatus)
LINK_STATUSES = (None, *LinkStatus)


@pytest.mark.rule("AT-08")
@pytest.mark.parametrize(("status", "event"), list(itertools.product(ATTEMPT_STATUSES, CreateEvent)))
def test_a_create_attempt_moves_by_an_arrow_of_its_table_or_not_at_all(
    status: AttemptStatus | None, event: CreateEvent
) -> None:
    """Every status with every event: the table's target, or one named error that says both."""
    if (status, event) in CREATE:
        assert follow_create(status, event) is CREATE[status, event]
    else:
        with pytest.raises(ProtocolViolation) as caught:
            follow_create(status, event)
        assert caught.value.evidence == {"status": status, "event": event}


def test_an_arrow_that_is_missing_is_named_in_words() -> None:
    """What it is about, the status it has or that there is none yet, and the event."""
    with pytest.raises(ProtocolViolation, match="A create attempt that is not there has no arrow 'replay'"):
        follow_create(None, CreateEvent.REPLAY)
    with pytest.raises(ProtocolViolation, match="A link that is retired has no arrow 'finalize'"):
        follow_link(LinkStatus.RETIRED, LinkEvent.FINALIZE)


@pytest.mark.rule("D-03")
@pytest.mark.parametrize(("status", "event"), list(itertools.product(ATTEMPT_STATUSES, UpdateEvent)))
def test_an_update_attempt_moves_by_an_arrow_of_its_table_or_not_at_all(
    status: AttemptStatus | None, event: UpdateEvent
) -> None:
    """Every status with every event, as for creates."""
    if (status, event) in UPDATE:
        assert follow_update(status, event) is UPDATE[status, event]
    else:
        with pytest.raises(ProtocolViolation):
            follow_update(status, event)


@pytest.mark.rule("LK-05")
@pytest.mark.parametrize(("status", "event"), list(itertools.product(LINK_STATUSES, LinkEvent)))
def test_a_link_moves_by_an_arrow_of_its_table_or_not_at_all(status: LinkStatus | None, event: LinkEvent) -> None:
    """Every status with every event; there is no pending link, and nothing revives a retired one."""
    if (status, event) in LINK:
        assert follow_link(status, event) is LINK[status, event]
    else:
        with pytest.raises(ProtocolViolation):
            follow_link(status, event)


def test_the_two_operations_have_the_statuses_of_their_tables() -> None:
    """An update never waits for a mirror; every status is reached by some arrow."""
    assert statuses(Operation.CREATE) == frozenset(AttemptStatus)
    assert statuses(Operation.UPDATE) == frozenset(AttemptStatus) - {
        AttemptStatus.WRITEBACK_COMMIT_PENDING,
        AttemptStatus.WRITEBACK_PENDING,
    }


@pytest.mark.parametrize("event", [*CreateEvent, *UpdateEvent, *LinkEvent])
def test_a_compare_and_set_expects_exactly_the_sources_of_its_event(
    event: CreateEvent | UpdateEvent | LinkEvent,
) -> None:
    """Create and update events may share a word; each has its own sources."""
    table = CREATE if isinstance(event, CreateEvent) else UPDATE if isinstance(event, UpdateEvent) else LINK
    expected = {status for status, name in table if name is event and status is not None}
    assert sources(event) == expected


def reachable(start: AttemptStatus, *, without: frozenset[CreateEvent] = frozenset()) -> set[AttemptStatus]:
    found, waiting = {start}, [start]
    while waiting:
        status = waiting.pop()
        for (source, event), target in CREATE.items():
            if source is status and event not in without and target not in found:
                found.add(target)
                waiting.append(target)
    return found


#: The arrows that only a person or a declared contract takes.
EXPLICIT = frozenset(
    {
        CreateEvent.REPLAY,
        CreateEvent.REPLAY_EXPLICIT,
        CreateEvent.ADOPT,
        CreateEvent.STAMP_FOUND,
        CreateEvent.CONFIRM_ABSENT,
        CreateEvent.SUPERSEDE,
        CreateEvent.DISPOSE,
    }
)


def test_from_ambiguity_nothing_leads_on_by_itself() -> None:
    """Without a contract and without a person, an ambiguous and a terminal create stay what they are."""
    for status in (AttemptStatus.AMBIGUOUS_REMOTE_EFFECT, AttemptStatus.TERMINAL_FAILED):
        assert reachable(status, without=EXPLICIT) == {status}


def test_a_create_with_a_known_id_never_becomes_sendable_again_without_a_person() -> None:
    """From either write-back status no arrow leads to pending or processing but through an explicit dispose."""
    for status in (AttemptStatus.WRITEBACK_COMMIT_PENDING, AttemptStatus.WRITEBACK_PENDING):
        assert not reachable(status, without=EXPLICIT) & {AttemptStatus.PENDING, AttemptStatus.PROCESSING}


def test_only_supersede_frees_the_slot_of_a_create() -> None:
    """Superseded has one source, terminal failed; finalized and superseded have no way out."""
    assert {key for key, target in CREATE.items() if target is AttemptStatus.SUPERSEDED} == {
        (AttemptStatus.TERMINAL_FAILED, CreateEvent.SUPERSEDE)
    }
    assert not [key for key in CREATE if key[0] in {AttemptStatus.FINALIZED, AttemptStatus.SUPERSEDED}]
    assert not [key for key in UPDATE if key[0] in {AttemptStatus.FINALIZED, AttemptStatus.SUPERSEDED}]


def test_every_hold_stands_only_where_a_row_may_be_claimed() -> None:
    """A hold changes no status; it sits on rows that wait for a claim."""
    assert HOLDS.keys() == set(Hold)
    assert frozenset().union(*HOLDS.values()) == {AttemptStatus.PENDING, AttemptStatus.WRITEBACK_PENDING}


def test_the_named_sets_are_what_their_sentences_say() -> None:
    """Blocking is everything between reservation and end; open updates hold their key; leased rows have an owner."""
    ended = {AttemptStatus.FINALIZED, AttemptStatus.SUPERSEDED}
    assert frozenset(AttemptStatus) - ended == BLOCKING
    assert statuses(Operation.UPDATE) - ended - {AttemptStatus.TERMINAL_FAILED} == UPDATE_OPEN
    assert UPDATE_OPEN - {AttemptStatus.PENDING} == UPDATE_IN_FLIGHT
    assert LEASED < BLOCKING
