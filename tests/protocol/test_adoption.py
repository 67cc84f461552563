"""What the fields of an older integration prove, and what of our own rows speaks against it: every reason by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from protocol.examples import action, profile
from pushlink.protocol.adoption import (
    Because,
    Claim,
    HeldLink,
    Legacy,
    OurRows,
    Pair,
    Refusal,
    judge_rows,
    read_legacy,
    rows_digest,
)
from pushlink.protocol.contracts import ActionContract
from pushlink.protocol.states import AttemptStatus, LinkStatus

LEGACY = Legacy(
    current=Pair(remote_id="id", provenance="mark"),
    older=(Pair(remote_id="old_id", provenance="old_mark"),),
    markers=("sync", "sync-2"),
    elsewhere=("sync-eu",),
    destination_field="region",
    destination_value="north",
)
NOTHING: dict[str, Any] = dict.fromkeys(LEGACY.fields)
LINKED: dict[str, Any] = {**NOTHING, "id": "7001", "mark": "sync", "region": "north"}


def because(fields: dict[str, Any], legacy: Legacy = LEGACY, contract: ActionContract | None = None) -> Because:
    read = read_legacy({**LINKED, **fields}, legacy, contract or action(), profile())
    assert isinstance(read, Refusal)
    return read.because


def test_the_fields_that_are_read_are_named_once_and_the_destination_only_where_there_is_one() -> None:
    assert LEGACY.fields == ("id", "mark", "old_id", "old_mark", "region")
    assert replace(LEGACY, destination_field="", older=(Pair(remote_id="old_id", provenance="mark"),)).fields == (
        "id",
        "mark",
        "old_id",
    )


@pytest.mark.parametrize("record_id", ["7001", 7001])
@pytest.mark.parametrize("mark", ["sync", "sync-2"])
def test_one_id_with_the_mark_of_this_action_is_a_claim(record_id: object, mark: str) -> None:
    """As a text or as a number; the mark is compared whole."""
    found = read_legacy({**LINKED, "id": record_id, "mark": mark}, LEGACY, action(), profile())
    assert found == Claim(remote_id="7001", canonical="7001")


@pytest.mark.parametrize("empty", [None, ""])
def test_a_record_in_which_nothing_was_left_is_nobody_s(empty: str | None) -> None:
    """Whatever stands in the field of the destination."""
    fields = {**NOTHING, "id": empty, "mark": empty, "region": "south"}
    assert read_legacy(fields, LEGACY, action(), profile()) is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"old_id": "6001"}, Because.SEVERAL_IDS),
        ({"old_id": "7001", "old_mark": "sync"}, Because.SEVERAL_IDS),
        ({"old_mark": "sync"}, Because.PROVENANCE_WITHOUT_ID),
        ({"id": None}, Because.PROVENANCE_WITHOUT_ID),
        ({"id": ""}, Because.PROVENANCE_WITHOUT_ID),
        ({"id": None, "mark": None, "old_id": "6001", "old_mark": "sync"}, Because.OUTSIDE_PAIR),
        ({"id": None, "mark": None, "old_id": "6001"}, Because.OUTSIDE_PAIR),
        ({"mark": None}, Because.ID_WITHOUT_PROVENANCE),
        ({"mark": ""}, Because.ID_WITHOUT_PROVENANCE),
        ({"mark": "sync-eu"}, Because.DESTINATION_CHANGED),
        ({"mark": "sync-3"}, Because.ACTION_UNMAPPED),
        ({"mark": "sync-"}, Because.ACTION_UNMAPPED),
        ({"region": "south"}, Because.DESTINATION_CHANGED),
        ({"region": None}, Because.DESTINATION_CHANGED),
        ({"id": True}, Because.ID_UNUSABLE),
        ({"id": ("7001",)}, Because.ID_UNUSABLE),
        ({"id": "two words"}, Because.ID_UNUSABLE),
    ],
)
def test_everything_else_is_refused_for_one_reason(fields: dict[str, Any], reason: Because) -> None:
    """The most ambiguous finding decides; nothing is guessed."""
    assert because(fields) is reason


def test_a_destination_is_asked_for_only_where_a_field_says_it() -> None:
    """An empty field says nothing where nothing stands for the destination of now."""
    silent = replace(LEGACY, destination_field="")
    assert isinstance(read_legacy({**LINKED, "region": "south"}, silent, action(), profile()), Claim)
    unnamed = replace(LEGACY, destination_value="")
    assert isinstance(read_legacy({**LINKED, "region": None}, unnamed, action(), profile()), Claim)
    assert because({}, unnamed) is Because.DESTINATION_CHANGED


def test_an_id_that_no_update_could_name_is_not_adopted() -> None:
    """Where the action has updates at all."""
    assert because({"id": ".."}) is Because.ID_UNUSABLE
    creates_only = action().model_copy(update={"update": None})
    assert read_legacy({**LINKED, "id": ".."}, LEGACY, creates_only, profile()) == Claim(remote_id="..", canonical="..")


CLAIM = Claim(remote_id="7001", canonical="7001")
FREE = OurRows(versions=None, link=None, create=None, given_up=frozenset(), owner=None, claimant=None)
LIVE = HeldLink(status=LinkStatus.FINALIZED, remote_id="7001", canonical="7001", is_live=True)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({}, None),
        ({"versions": (1, 2, 0, 0)}, None),
        ({"given_up": frozenset({"7002"})}, None),
        ({"link": LIVE}, Because.ALREADY_LINKED),
        ({"link": replace(LIVE, canonical="7002")}, Because.LINK_DIFFERS),
        ({"link": replace(LIVE, is_live=False)}, Because.LINK_RETIRED),
        ({"link": replace(LIVE, is_live=False, canonical="7002")}, Because.LINK_RETIRED),
        ({"create": ("a1", AttemptStatus.PENDING)}, Because.CREATE_BLOCKS),
        ({"given_up": frozenset({"7001", "7002"})}, Because.LINK_RETIRED),
        ({"owner": "2"}, Because.OWNED_ELSEWHERE),
        ({"claimant": "a1"}, Because.CONFLICT_OPEN),
    ],
)
def test_what_of_our_own_disagrees_is_a_reason_too(rows: dict[str, Any], reason: Because | None) -> None:
    """A key that is free, of a remote record that is free, becomes a link."""
    found = judge_rows(CLAIM, replace(FREE, **rows))
    assert (found and found.because) == reason


@pytest.mark.rule("D-43")
def test_the_digest_of_the_rows_is_pinned_and_shows_every_version() -> None:
    """A push slot in which nothing was ever wanted says as much as none."""
    pinned = "sha256:bc1061f10cc55dbcab5ea7bcba6def29aba74e08096f15a42f0eab254151de88"
    assert rows_digest(FREE) == rows_digest(replace(FREE, versions=(0, 0, 0, 0))) == pinned
    each = [tuple(int(place == number) for place in range(4)) for number in range(4)]
    assert len({pinned, *(rows_digest(replace(FREE, versions=versions)) for versions in each)}) == 5  # type: ignore[arg-type]
