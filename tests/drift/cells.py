"""What each change does, cell by cell: the contract's matrix as it can be observed, in the order of its rows.

A row names its rule, its change (what is done is in `changes.py`), and what comes of the eleven records of a scene. The
first four are of links: saved after the change (*save*), with an update that waited (*update*), the same claimed and
judged before the change and at its checkpoint after it (*checked*), or on the wire during it (*sent*). Creates are the
same: never sent, checked, sent, and further *doubt* (an answer was lost before) and *mirror* (the id is known, and its
mirror is due). *New* is a record that was never pushed, *again* one whose earlier create was superseded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What comes of links: of the next save, and of an update at each of its moments."""

    save: str
    update: str
    checked: str
    sent: str = "sent"  # what was on the wire is acknowledged, whatever changed meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Creates:
    """What comes of creates."""

    unsent: str
    checked: str
    sent: str = "created, mirror written"
    doubt: str = "in doubt"  # no change ever sends it again
    mirror: str = "created, mirror written"  # the pair that was frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row. `again` is `None` where it is as `new`."""

    rule: str
    change: str
    links: Links
    creates: Creates
    new: str = "created, mirror written"
    again: str | None = None

    def cells(self) -> Mapping[str, str]:
        """By the names of `scene.CELLS`."""
        return {
            "save": self.links.save,
            "update": self.links.update,
            "update checked": self.links.checked,
            "update sent": self.links.sent,
            "create": self.creates.unsent,
            "create checked": self.creates.checked,
            "create sent": self.creates.sent,
            "doubt": self.creates.doubt,
            "mirror": self.creates.mirror,
            "new": self.new,
            "again": self.new if self.again is None else self.again,
        }


# ------------------------------------------------------------------------------------------------ verdicts, as observed

_CREATED = "created, mirror written"
_SUSPENDED = "ended link_suspended, link suspended"

#: A change of the catalogue is noticed at the checkpoint: the claim is given back and judged anew.
USABLE = Links(save="sent", update="sent", checked="given back, then sent")
RENAMED = Links(save="sent, names refreshed", update="sent, names refreshed", checked="given back, then sent")
REFUSED = Links(save="refused drift", update="held drift", checked="given back, then held drift")
FROZEN = Creates(unsent=_CREATED, checked=f"given back, then {_CREATED}")
HELD = Creates(unsent="held drift", checked="given back, then held drift")

#: What is no business of the catalogue's is noticed by nobody before the send.
UNTOUCHED = Links(save="sent", update="sent", checked="sent")
UNTOUCHED_CREATES = Creates(unsent=_CREATED, checked=_CREATED)


def suspended(code: str) -> Links:
    """The first touch writes it; the save itself is refused for its own reason."""
    return Links(save=f"refused {code}, link suspended", update=_SUSPENDED, checked=f"given back, then {_SUSPENDED}")


def saying(code: str, links: Links) -> Links:
    """The same, where an earlier gate than that of the drift answers the save."""
    return replace(links, save=f"refused {code}")


def failing(reason: str) -> Links:
    """The remote's answer to whatever is sent: the update ends, and the link is suspended with it."""
    fate = f"failed {reason}, link suspended"
    return Links(save=fate, update=fate, checked=fate)


GONE = Links(save="refused source_gone", update="ended source_gone", checked="ended source_gone")
GONE_CREATES = Creates(
    unsent="failed source_gone",
    checked="failed source_gone",
    sent="created, mirror skipped_source_deleted",
    mirror="created, mirror skipped_source_deleted",
)
REFETCHED = Links(save="sent, sent 2 times", update="sent, sent 2 times", checked="given back, then sent, sent 2 times")
LEFT = Links(save="refused authority_unavailable", update="held user_inactive", checked="sent")
LEFT_CREATES = Creates(unsent="held user_inactive", checked=_CREATED)
TAKEN_CREATES = Creates(unsent="held locator_conflict", checked="held locator_conflict")
ORPHANED = Links(save="sent", update="sent", checked="sent", sent="in doubt")
ORPHANED_CREATES = Creates(unsent=_CREATED, checked=_CREATED, sent="in doubt")

# ------------------------------------------------------------------------------------------------ the rows

_NO_INSTALL = "refused install_unusable"
_LINEAGE = "refused lineage_unresolved"

ROWS: Final[tuple[Row, ...]] = (
    Row(rule="DR-01", change="flow version", links=RENAMED, creates=FROZEN),
    Row(rule="DR-01", change="condition", links=USABLE, creates=FROZEN),
    Row(rule="DR-02", change="flow renamed", links=RENAMED, creates=FROZEN),
    Row(rule="DR-02", change="action renamed", links=RENAMED, creates=FROZEN),
    Row(
        rule="DR-03",
        change="action slot gone",
        links=suspended("slot_unresolved"),
        creates=HELD,
        new="refused slot_unresolved",
    ),
    Row(
        rule="DR-03",
        change="action slot recreated",
        links=suspended("lineage_unresolved"),
        creates=HELD,
        new=_LINEAGE,
    ),
    Row(rule="DR-04", change="namespace renamed", links=RENAMED, creates=FROZEN),
    Row(rule="DR-04", change="pack renamed", links=USABLE, creates=FROZEN),
    Row(rule="DR-04", change="namespace and more", links=REFUSED, creates=FROZEN),
    Row(
        rule="DR-05",
        change="owner missing",
        links=saying("install_unusable", REFUSED),
        creates=HELD,
        new=_NO_INSTALL,
    ),
    Row(rule="DR-05", change="owner changed", links=suspended("lineage_unresolved"), creates=HELD, new=_LINEAGE),
    Row(rule="DR-06", change="pack installed again", links=REFUSED, creates=HELD),
    Row(rule="DR-07", change="profile renamed", links=RENAMED, creates=FROZEN),
    Row(
        rule="DR-08",
        change="profile inactive",
        links=saying("install_unusable", REFUSED),
        creates=HELD,
        new=_NO_INSTALL,
    ),
    Row(
        rule="DR-08",
        change="profile recreated",
        links=suspended("lineage_unresolved"),
        creates=HELD,
        new=_LINEAGE,
    ),
    Row(rule="DR-09", change="credential reference", links=REFUSED, creates=HELD),
    Row(rule="DR-09", change="credential reference, waived", links=USABLE, creates=HELD),
    Row(rule="DR-10", change="endpoint", links=REFUSED, creates=HELD),
    Row(rule="DR-10", change="endpoint class", links=REFUSED, creates=HELD),
    Row(rule="DR-10", change="endpoint, waived", links=USABLE, creates=HELD),
    Row(rule="DR-11", change="credential rotated", links=REFUSED, creates=HELD),
    Row(
        rule="DR-11",
        change="credential taken away",
        links=saying("freeze_failed", REFUSED),
        creates=HELD,
        new="refused freeze_failed",
    ),
    Row(rule="DR-11", change="credential rotated, waived", links=USABLE, creates=FROZEN),
    Row(rule="DR-12", change="retry policy", links=USABLE, creates=FROZEN),
    Row(rule="DR-13", change="mapping", links=REFUSED, creates=FROZEN),
    Row(rule="DR-13", change="headers", links=REFUSED, creates=FROZEN),
    Row(
        rule="DR-14",
        change="field denied",
        links=saying("read_denied", UNTOUCHED),
        creates=UNTOUCHED_CREATES,
        new="refused read_denied",
    ),
    Row(
        rule="DR-14",
        change="row denied",
        links=saying("read_denied", UNTOUCHED),
        creates=UNTOUCHED_CREATES,
        new="refused read_denied",
    ),
    Row(
        rule="DR-14",
        change="user deactivated",
        links=LEFT,
        creates=LEFT_CREATES,
        new="refused authority_unavailable",
    ),
    Row(rule="DR-15", change="create path", links=USABLE, creates=FROZEN, again="refused drift"),
    Row(rule="DR-16", change="update path", links=REFUSED, creates=FROZEN),
    Row(rule="DR-16", change="update path, waived", links=USABLE, creates=HELD, again="refused drift"),
    Row(rule="DR-17", change="response id path", links=USABLE, creates=FROZEN),
    Row(rule="DR-18", change="mirror", links=USABLE, creates=FROZEN),
    Row(rule="DR-19", change="target renamed", links=REFUSED, creates=FROZEN),
    Row(rule="DR-19", change="destination scope", links=REFUSED, creates=FROZEN),
    Row(rule="DR-19", change="canonical id", links=REFUSED, creates=FROZEN),
    Row(
        rule="DR-20",
        change="destination slot",
        links=suspended("lineage_unresolved"),
        creates=HELD,
        new=_LINEAGE,
    ),
    Row(rule="DR-21", change="idempotency", links=USABLE, creates=FROZEN),
    Row(rule="DR-22", change="source deleted, told", links=GONE, creates=GONE_CREATES, new="refused source_gone"),
    Row(rule="DR-23", change="source deleted", links=GONE, creates=GONE_CREATES, new="refused source_gone"),
    Row(rule="DR-24", change="remote deleted", links=failing("remote_gone"), creates=UNTOUCHED_CREATES),
    Row(rule="DR-24", change="answer 410", links=failing("remote_gone"), creates=UNTOUCHED_CREATES),
    Row(rule="DR-25", change="remote edited", links=failing("remote_changed"), creates=UNTOUCHED_CREATES),
    Row(rule="DR-25", change="remote edited, refetched", links=REFETCHED, creates=UNTOUCHED_CREATES),
    Row(rule="DR-25", change="answer 409", links=failing("remote_conflict"), creates=UNTOUCHED_CREATES),
    Row(rule="DR-25", change="answer 412", links=failing("remote_conflict"), creates=UNTOUCHED_CREATES),
    Row(
        rule="DR-26",
        change="locator conflict",
        links=UNTOUCHED,
        creates=TAKEN_CREATES,
        new="held locator_conflict",
    ),
    Row(rule="DR-27", change="worker died", links=ORPHANED, creates=ORPHANED_CREATES),
)
