"""What is sent one after the other: one request under way of each ordering, in the order of saves, by any worker."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from flows.stage import MakeStage, Stage, action_of, pack_with
from pushlink.testing import verbs

BY_OWNER = {"serialize_per": "field", "field": "owner"}


def ordered(ordering: dict[str, Any]) -> dict[str, Any]:
    """The pack with this ordering, and without a mirror."""
    document = pack_with(lambda d: action_of(d).update(ordering=ordering))
    action_of(document).pop("mirror")
    return document


def saved(stage: Stage, *owners: str | None) -> None:
    """A person for each owner, in this order."""
    for number, owner in enumerate(owners, 1):
        stage.save(number, name=f"Person {number}", email=f"p{number}@example.com", owner=owner)
        stage.clock_forward(milliseconds=1)


def sources(claimed: Any) -> list[str]:
    """The records that were claimed."""
    return [item.source.record_id for item in claimed]


def test_a_destination_takes_its_records_one_after_the_other(make_stage: MakeStage) -> None:
    """Two workers: the second gets nothing while the first one's request is under way, and then the next save's."""
    stage = make_stage(pack=ordered({"serialize_per": "destination"}))
    saved(stage, "a", "b", "c")
    other = stage.worker()
    first = stage.claim()
    assert sources(first) == ["1"]
    assert stage.claim(by=other) == stage.claim() == []
    stage.run(first)
    assert sources(stage.claim(by=other)) == ["2"]
    assert stage.claim() == []


def test_a_field_puts_only_those_in_order_that_share_its_value(make_stage: MakeStage) -> None:
    """One request for each owner, the oldest first; records without one are in order with each other."""
    stage = make_stage(pack=ordered(BY_OWNER))
    saved(stage, "a", "a", "b", None, "b", None)
    other = stage.worker()
    first = stage.claim()
    assert sources(first) == ["1", "3", "4"]
    assert stage.claim(by=other) == []
    stage.run(first[:1])
    assert sources(stage.claim(by=other)) == ["2"]


def test_what_waits_for_its_next_try_keeps_its_place(make_stage: MakeStage) -> None:
    """A throttled or locked first one is not overtaken."""
    stage = make_stage(pack=ordered(BY_OWNER))
    saved(stage, "a", "a", "b")
    stage.remote.script.next(verbs.answer(423))
    stage.run(stage.claim(1))
    stage.clock_forward(milliseconds=1)
    third = stage.claim()
    assert sources(third) == ["3"]
    stage.run(third)
    stage.clock_forward(hours=1)
    assert sources(stage.claim()) == ["1"]


@pytest.mark.parametrize(
    "verb", [pytest.param(verbs.store_then_close(), id="in doubt"), pytest.param(verbs.answer(422), id="refused")]
)
def test_what_waits_for_a_person_gives_its_place_up(make_stage: MakeStage, verb: verbs.Verb) -> None:
    """A parked or refused first one does not stop the others for ever."""
    stage = make_stage(pack=ordered(BY_OWNER))
    saved(stage, "a", "a")
    stage.remote.script.next(verb)
    stage.run(stage.claim())
    assert sources(stage.claim()) == ["2"]


def test_updates_stand_in_the_order_of_their_saves_too(make_stage: MakeStage) -> None:
    """An update follows the ordering of the values that it carries."""
    stage = make_stage(pack=ordered(BY_OWNER))
    saved(stage, "a", "b")
    stage.drain()
    stage.save(2, name="Moved", owner="a")
    stage.clock_forward(milliseconds=1)
    stage.save(1, name="Changed", owner="a")
    first = stage.claim()
    assert sources(first) == ["2"]
    stage.run(first)
    assert sources(stage.claim()) == ["1"]


def test_an_inline_dispatch_waits_for_its_turn(make_stage: MakeStage) -> None:
    """A host that dispatches a record itself overtakes nobody."""
    stage = make_stage(pack=ordered(BY_OWNER))
    saved(stage, "a", "a")
    stage.runtime.push("Person", 2)
    assert stage.sends == 0
    stage.runtime.push("Person", 1)
    stage.runtime.push("Person", 2)
    assert stage.sends == 2


def test_many_workers_at_once_never_have_two_requests_of_one_ordering_under_way(make_stage: MakeStage) -> None:
    """Six threads that claim and record as fast as they can: the remote sees each owner's records one by one."""
    stage = make_stage(pack=ordered(BY_OWNER))
    saved(stage, *("a", "b") * 8)
    under_way: dict[str, set[str]] = {"a": set(), "b": set()}
    seen: dict[str, list[str]] = {"a": [], "b": []}
    overlaps: list[str] = []
    lock = threading.Lock()

    def work() -> None:
        claims = stage.worker()
        for _ in range(60):
            for item in stage.claim(by=claims):
                owner = "ab"[(int(item.source.record_id) + 1) % 2]
                with lock:
                    if under_way[owner]:
                        overlaps.append(item.source.record_id)
                    under_way[owner].add(item.source.record_id)
                    seen[owner].append(item.source.record_id)
                paused = stage.paused_of(item).to_send()
                with lock:
                    under_way[owner].discard(item.source.record_id)
                paused.finish()

    workers = [threading.Thread(target=work) for _ in range(6)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert overlaps == []
    assert seen == {"a": [str(n) for n in range(1, 17, 2)], "b": [str(n) for n in range(2, 17, 2)]}


def test_the_value_of_a_field_stands_in_no_key(make_stage: MakeStage) -> None:
    """Only its digest, of attempts and slots alike (AU-05)."""
    stage = make_stage(pack=ordered(BY_OWNER))
    saved(stage, "secret-owner")
    assert "secret-owner" not in (stage.attempt()["order_key"], stage.slot()["order_key"])
    assert stage.attempt()["order_key"] == stage.slot()["order_key"]
