"""What a run of the simulation has to reach to be called a proof: every kind of fault, and every arrow it can take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from proof.simulation.faults import Fault
from pushlink.protocol.states import CREATE, LINK, UPDATE, CreateEvent, LinkEvent, UpdateEvent

#: Met at least this often in a hundred seeds.
PER_HUNDRED_SEEDS: Final = 1

#: Arrows that take a rare story, met at least this often in a thousand seeds, and where each is told on purpose.
PER_THOUSAND_SEEDS: Final = 1
RARE: Final[Mapping[str, str]] = {
    "create pending doubt ambiguous_remote_effect": "its record is deleted: tests/flows/test_deleted.py",
    "update ambiguous_remote_effect link_retired superseded": "tests/store/test_rules_of_rows.py",
}

#: Arrows that this world cannot take, or takes too seldom to count on, and what proves them instead.
ELSEWHERE: Final[Mapping[tuple[str, str], str]] = {
    ("create", CreateEvent.CLAIM): "writes no event",
    ("update", UpdateEvent.CLAIM): "writes no event",
    ("create", CreateEvent.STAMP_FOUND): "needs a look-up by a stamp: tests/flows/test_replays.py",
    ("create", CreateEvent.ANSWER_STORED): "needs an answer that is looked up: tests/flows/test_answers_looked_up.py",
    ("update", UpdateEvent.ANSWER_STORED): "the same",
    ("update", UpdateEvent.REMOTE_CONFLICT): "needs a precondition: tests/flows/test_requests_preconditions.py",
    ("update", UpdateEvent.RECOVER_UNAUTHORISED): "needs an author who is nowhere any more: tests/flows/test_update.py",
    ("update", UpdateEvent.FAIL_VALIDATION): "needs a value that does not render: tests/flows/test_update.py",
    ("create", CreateEvent.LINK_RETIRED): "needs a retired link whose mirror waits: tests/operations",
    ("create", CreateEvent.MIRROR_FAILED): "needs a host's table that is locked: tests/flows/test_writeback.py",
    ("link", LinkEvent.RELEASE_SLOT): "allows a second record on purpose: tests/operations",
    ("link", LinkEvent.RELOCATE): "needs a record that was merged: tests/operations",
}


def _arrows() -> list[str]:
    machines = (("create", CREATE), ("update", UPDATE), ("link", LINK))
    return [
        f"{subject} {source or '-'} {event} {target}"
        for subject, arrows in machines
        for (source, event), target in arrows.items()
        if (subject, event) not in ELSEWHERE and source != "post_sent"
    ]


#: The arrows that every long enough run takes; those from `post_sent` need an answer that is looked up.
EXPECTED: Final = tuple(_arrows())


def missing(faults: Counter[str], arrows: Counter[str], *, seeds: int) -> list[str]:
    """What was met too seldom for so many seeds."""
    often, rarely = seeds * PER_HUNDRED_SEEDS // 100, seeds * PER_THOUSAND_SEEDS // 1_000
    met = {**{fault.value: faults[fault.value] for fault in Fault}, **{arrow: arrows[arrow] for arrow in EXPECTED}}
    least = {name: rarely if name in RARE else often for name in met}
    return [f"{name}: {count} of {least[name]}" for name, count in met.items() if count < least[name]]
