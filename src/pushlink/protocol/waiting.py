"""What a request waits for: the standing of a record that it refers to, and the hold that follows from it.

A reference is ready when the other record's link is finalized. Until then its create is under way (wait), cannot get a
remote record without somebody's doing (blocked), or had one and lost it (moved: nothing is sent to where it was).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pushlink.protocol.associations import Reference
from pushlink.protocol.states import AttemptStatus, Hold, LinkStatus


class Standing(StrEnum):
    """How it stands with one reference, from the best to the worst."""

    READY = "ready"
    WAITING = "waiting"
    BLOCKED = "blocked"
    MOVED = "moved"


#: The hold of a row by the worst standing among what it refers to.
HOLD_OF: Final = {
    Standing.WAITING: Hold.ASSOCIATION_WAITING,
    Standing.BLOCKED: Hold.ASSOCIATION_BLOCKED,
    Standing.MOVED: Hold.ASSOCIATION_MOVED,
}

#: The holds that are looked at again by themselves, each time after a longer pause.
ASSOCIATION_HOLDS: Final = frozenset(HOLD_OF.values())

#: The pause before a held row is looked at again: its age, within these bounds.
LOOK_PAUSE_MIN: Final = dt.timedelta(seconds=5)
LOOK_PAUSE_MAX: Final = dt.timedelta(hours=1)

#: A record that nobody saved for so long is somebody's business.
UNSAVED_FOR_MAX: Final = dt.timedelta(hours=1)

_STUCK: Final = frozenset({AttemptStatus.AMBIGUOUS_REMOTE_EFFECT, AttemptStatus.TERMINAL_FAILED})
_PATIENT: Final = frozenset({Hold.ASSOCIATION_WAITING.value, Hold.CREDENTIAL.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """What is known of the record that a reference means."""

    link_status: LinkStatus | None = None
    link_id: str | None = None
    remote_id: str | None = None
    create_status: AttemptStatus | None = None
    create_hold: str | None = None
    is_rebound: bool = False  # a rebind moved whatever it had to another key


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A reference with its standing, and why it stands so. A ready one knows its link and remote id."""

    reference: Reference
    standing: Standing
    because: str

    def evidence(self) -> dict[str, object]:
        """What a person needs to find the other record."""
        return {
            "association": self.reference.name,
            "record": f"{self.reference.source_object} {self.reference.record_id}",
            "link_key": self.reference.link_key,
            "because": self.because,
        }


def judge_target(reference: Reference, facts: TargetFacts, *, waited: dt.timedelta = dt.timedelta()) -> Target:
    """The standing of one reference after waiting for it so long."""
    if facts.link_status is LinkStatus.FINALIZED and facts.link_id is not None and facts.remote_id is not None:
        known = reference.resolved(link_id=facts.link_id, remote_id=facts.remote_id)
        return Target(reference=known, standing=Standing.READY, because="finalized")
    standing, because = _standing(facts, waited)
    return Target(reference=reference, standing=standing, because=because)


def _standing(facts: TargetFacts, waited: dt.timedelta) -> tuple[Standing, str]:
    if facts.link_status is LinkStatus.RETIRED:
        return Standing.MOVED, "link_retired"
    if facts.link_status is not None:
        return Standing.BLOCKED, "link_suspended"
    if facts.create_status in _STUCK:
        return Standing.BLOCKED, f"create_{facts.create_status}"
    if facts.create_status is not None and facts.create_hold is not None:
        is_patient = facts.create_hold in _PATIENT
        return Standing.WAITING if is_patient else Standing.BLOCKED, f"create_held_{facts.create_hold}"
    if facts.create_status is not None and facts.create_status is not AttemptStatus.FINALIZED:
        return Standing.WAITING, f"create_{facts.create_status}"
    if facts.is_rebound:
        return Standing.MOVED, "rebound"
    return Standing.WAITING if waited < UNSAVED_FOR_MAX else Standing.BLOCKED, "not_saved"


def worst(targets: Iterable[Target]) -> Target | None:
    """The target that decides about a hold: the first of the worst standing; `None` when all are ready."""
    order = list(Standing)
    stopping = [target for target in targets if target.standing is not Standing.READY]
    return max(stopping, key=lambda target: order.index(target.standing), default=None)


def look_pause(age: dt.timedelta) -> dt.timedelta:
    """How long a held row of this age is left alone."""
    return min(max(age, LOOK_PAUSE_MIN), LOOK_PAUSE_MAX)
