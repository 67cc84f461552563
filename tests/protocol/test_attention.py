"""What waits for a person, in which way, and what is safe to type first."""

from __future__ import annotations

import pytest

from pushlink.errors import Code
from pushlink.protocol.attention import ATTEMPTS, KINDS, RECORDS, Fact, Kind, first_of, kind_of, next_step_of
from pushlink.protocol.states import AttemptStatus, Hold, Operation
from pushlink.protocol.surfaces import Surface
from pushlink.protocol.verbs import Verb

CREATE, UPDATE = Operation.CREATE.value, Operation.UPDATE.value

#: A create that is tried by itself: nobody is needed.
QUIET = {
    Fact.OPERATION: CREATE,
    Fact.STATUS: AttemptStatus.PENDING.value,
    Fact.LANE: "known",
    Fact.HOLD: "none",
    Fact.REASON: "other",
    Fact.VALUES: "other",
}


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({}, None),
        ({Fact.LANE: "unknown"}, Kind.STRANDED),
        ({Fact.LANE: "unknown", Fact.OPERATION: UPDATE}, Kind.STRANDED),
        ({Fact.LANE: "unknown", Fact.STATUS: "finalized"}, None),
        ({Fact.LANE: "unknown", Fact.OPERATION: UPDATE, Fact.STATUS: "superseded"}, None),
        ({Fact.LANE: "unknown", Fact.HOLD: "waiting"}, Kind.STRANDED),
        ({Fact.HOLD: "waiting"}, Kind.HELD),
        ({Fact.HOLD: "patient"}, None),
        ({Fact.HOLD: "waiting", Fact.STATUS: "ambiguous_remote_effect"}, Kind.HELD),
        ({Fact.STATUS: "ambiguous_remote_effect"}, Kind.DOUBTFUL),
        ({Fact.REASON: "in_vain"}, Kind.RETRIED),
        ({Fact.REASON: "in_vain", Fact.STATUS: "processing"}, None),
        ({Fact.STATUS: "terminal_failed"}, Kind.FAILED),
        ({Fact.STATUS: "terminal_failed", Fact.OPERATION: UPDATE}, None),
        ({Fact.STATUS: "terminal_failed", Fact.OPERATION: UPDATE, Fact.VALUES: "refused"}, Kind.REFUSED),
    ],
)
def test_an_attempt_waits_in_the_first_way_that_all_its_facts_fit(facts: dict[Fact, str], kind: Kind | None) -> None:
    """One way at a time; what goes on by itself, or is over, needs nobody."""
    assert kind_of(ATTEMPTS, {**QUIET, **facts}) is kind


@pytest.mark.parametrize(
    ("mapping", "wanted", "kind"),
    [
        ("holds", "carried", None),
        ("holds", "newer", Kind.BEHIND),
        ("stale", "newer", Kind.STALE),
        ("stale", "carried", Kind.STALE),
    ],
)
def test_a_linked_record_waits_for_a_mapping_before_it_waits_for_a_save(
    mapping: str, wanted: str, kind: Kind | None
) -> None:
    assert kind_of(RECORDS, {Fact.MAPPING: mapping, Fact.WANTED: wanted}) is kind


@pytest.mark.parametrize(
    ("kind", "code", "about", "first"),
    [
        (Kind.DRIFTED, Code.DRIFT, Surface.MAPPING, ("mapping manifest",)),
        (Kind.DRIFTED, Code.DRIFT, Surface.ACTION_SLOT, ("slot list",)),
        (Kind.DRIFTED, Code.DRIFT, Surface.ENDPOINT, KINDS[Kind.DRIFTED].first),
        (Kind.SUSPENDED, Code.DRIFT, "", (Verb.REVALIDATE, "slot list")),
        (Kind.SUSPENDED, Code.REMOTE_GONE, "", KINDS[Kind.SUSPENDED].first),
        (Kind.HELD, Hold.LOCATOR_CONFLICT, "", (Verb.DISPOSE,)),
        (Kind.HELD, Code.DRIFT, Hold.DRIFT, (Verb.REVALIDATE, Verb.ABANDON, "pack apply")),
        (Kind.RETRIED, Code.NOT_SENT, "", ()),
    ],
)
def test_what_is_typed_first_goes_by_what_drifted_then_by_the_code_then_by_the_kind(
    kind: Kind, code: str, about: str, first: tuple[str, ...]
) -> None:
    """A mapping is never revalidated, and an id that is in conflict is never let go."""
    assert first_of(kind, code, about) == first


@pytest.mark.parametrize(
    ("kind", "code", "about", "says"),
    [
        (Kind.DRIFTED, Code.DRIFT, Surface.OWNER_MISSING, "Install the pack again."),
        (Kind.DRIFTED, Code.DRIFT, Surface.ENDPOINT, None),
        (Kind.BLOCKED, Code.DRIFT, "", "Undo the change, or look at both create paths and validate the new one."),
        (
            Kind.BLOCKED,
            Code.DRIFT,
            Surface.CREATE_PATH,
            "Undo the change, or look at both create paths and validate the new one.",
        ),
        (Kind.FAILED, Code.REMOTE_REJECTED, "", None),
    ],
)
def test_what_follows_is_said_where_the_code_of_a_row_does_not(
    kind: Kind, code: str, about: str, says: str | None
) -> None:
    assert next_step_of(kind, code, about) == says
