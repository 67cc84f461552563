"""The states that people see, as tables: one word, one sentence, and which verbs may follow.

Every status of an attempt, every hold and every status of a link has its row; what `explain` says is looked up here and
decided nowhere else. What an operator may decide is not here but in `protocol/verbs.py`, and what waits for a person in
`protocol/attention.py`. Texts may hold `{...}` places, which `explain` fills with times and names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pushlink.protocol.states import AttemptStatus, Hold, LinkStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One state: `says` is the cause when the row itself names no reason."""

    state: str
    says: str
    waits_for: str
    verbs: tuple[str, ...] = ()


_A = AttemptStatus
_LOOK: Final = ("history",)

UNSAVED: Final = Word(
    state="unsaved",
    says="No save of this record has been let through for this action; a refused save leaves nothing behind.",
    waits_for="a save",
    verbs=("save",),
)
SYNCED: Final = Word(
    state="synced", says="The remote has the newest values that were saved.", waits_for="nothing", verbs=_LOOK
)
ADOPTED: Final = Word(
    state="adopted",
    says="The remote record was taken over, and nothing was saved since: whether it has these values is not known.",
    waits_for="a save",
    verbs=("save", "history"),
)
DRIFTED: Final = Word(
    state="drifted",
    says="The configuration differs from the one that the link was validated with; no update is sent.",
    waits_for="the change to be undone, or a revalidation",
    verbs=("pack apply",),
)
REJECTED: Final = Word(
    state="rejected",
    says="The newest values were refused, or their tries are used up; they are not sent again by themselves.",
    waits_for="other values, or the release of this version",
    verbs=("save",),
)
STALE: Final = Word(
    state="stale",
    says="The newest values were frozen under a mapping that does not hold any more.",
    waits_for="another save",
    verbs=("save",),
)
BEHIND: Final = Word(
    state="behind",
    says="Newer values are wanted, and nothing carries them at the moment.",
    waits_for="another save",
    verbs=("save", "history"),
)
STRANDED: Final = Word(
    state="stranded",
    says="The attempt is of the lane {lane!r}, which this release does not know; nobody touches it.",
    waits_for="somebody who moves it to a known lane, or a release that knows the lane",
    verbs=_LOOK,
)
OVERDUE: Final = Word(
    state="overdue",
    says="The worker that had this attempt did not come back in time, and nobody has recovered it yet.",
    waits_for="a worker, which recovers it",
    verbs=("worker", "push"),
)
FREED: Final = Word(
    state="freed",
    says="Nothing stands under this record any more; a save makes another create.",
    waits_for="a save",
    verbs=("save", "history"),
)
BLOCKED: Final = Word(
    state="blocked",
    says="Its place is free, and the pack creates otherwise than the create before; a save creates nothing.",
    waits_for="the change to be undone, or a validation of the create path",
    verbs=("pack apply",),
)

CREATES: Final[Mapping[AttemptStatus, Word]] = {
    _A.PENDING: Word(
        state="waiting",
        says="The create is reserved and was not sent yet.",
        waits_for="a worker, from {not_before} on",
        verbs=("push", "worker"),
    ),
    _A.PROCESSING: Word(
        state="sending",
        says="A worker has the create in its hands.",
        waits_for="the worker {claimed_by}, until {lease_until}",
        verbs=_LOOK,
    ),
    _A.POST_SENT: Word(
        state="sending",
        says="The create was answered, and its record is looked up: the answer alone does not name it.",
        waits_for="a worker, which asks the remote again from {lease_until} on",
        verbs=("push", "worker"),
    ),
    _A.AMBIGUOUS_REMOTE_EFFECT: Word(
        state="doubtful",
        says="The create may have been applied, and nobody can prove it either way.",
        waits_for="somebody who looks the record up at the remote",
        verbs=_LOOK,
    ),
    _A.WRITEBACK_COMMIT_PENDING: Word(
        state="mirroring",
        says="The remote record exists and is linked; its id is being written into the record.",
        waits_for="the worker {claimed_by}, until {lease_until}",
        verbs=_LOOK,
    ),
    _A.WRITEBACK_PENDING: Word(
        state="mirroring",
        says="The remote id is known and safe; it waits to be written into the record.",
        waits_for="a worker, from {not_before} on",
        verbs=("push", "worker"),
    ),
    _A.FINALIZED: SYNCED,
    _A.TERMINAL_FAILED: Word(
        state="failed",
        says="The create ended without a remote record, and holds the record's place.",
        waits_for="somebody who mends the cause and supersedes the attempt",
        verbs=_LOOK,
    ),
    _A.SUPERSEDED: FREED,
}

UPDATES: Final[Mapping[AttemptStatus, Word]] = {
    _A.PENDING: Word(
        state="waiting",
        says="An update is due and was not sent yet.",
        waits_for="a worker, from {not_before} on",
        verbs=("push", "worker"),
    ),
    _A.PROCESSING: Word(
        state="sending",
        says="A worker has the update in its hands.",
        waits_for="the worker {claimed_by}, until {lease_until}",
        verbs=_LOOK,
    ),
    _A.POST_SENT: Word(
        state="sending",
        says="The update was answered, and the answer needs another look.",
        waits_for="the worker {claimed_by}, until {lease_until}",
        verbs=_LOOK,
    ),
    _A.AMBIGUOUS_REMOTE_EFFECT: Word(
        state="doubtful",
        says="An update may have been applied, and nobody can prove it either way.",
        waits_for="somebody who compares with the remote record",
        verbs=_LOOK,
    ),
    _A.FINALIZED: SYNCED,
    _A.TERMINAL_FAILED: BEHIND,
    _A.SUPERSEDED: BEHIND,
}

HOLDS: Final[Mapping[Hold, Word]] = {
    Hold.DRIFT: Word(
        state="held",
        says="The configuration differs from the one that the attempt was made with.",
        waits_for="the change to be undone, or somebody who decides",
        verbs=("pack apply",),
    ),
    Hold.ASSOCIATION_WAITING: Word(
        state="held",
        says="A record that this one refers to has no remote record yet.",
        waits_for="the other record",
        verbs=("worker",),
    ),
    Hold.ASSOCIATION_BLOCKED: Word(
        state="held",
        says="A record that this one refers to cannot get a remote record.",
        waits_for="somebody who settles the other record",
        verbs=_LOOK,
    ),
    Hold.ASSOCIATION_MOVED: Word(
        state="held",
        says="The link of a record that this one refers to was retired or moved.",
        waits_for="somebody who decides",
        verbs=_LOOK,
    ),
    Hold.POISON: Word(
        state="held",
        says="It was claimed several times and never came to an outcome.",
        waits_for="somebody who finds out what kills its workers",
        verbs=_LOOK,
    ),
    Hold.EXPIRED: Word(
        state="held",
        says="It waited longer than its profile allows and is not sent unseen.",
        waits_for="somebody who decides whether it is still wanted",
        verbs=_LOOK,
    ),
    Hold.USER_INACTIVE: Word(
        state="held",
        says="The user who saved it is not active any more.",
        waits_for="somebody who decides whether it is still wanted",
        verbs=_LOOK,
    ),
    Hold.BODY_UNREADABLE: Word(
        state="held",
        says="What is to be sent cannot be read.",
        waits_for="a worker that has the key, or somebody who ends it and saves the record again",
        verbs=_LOOK,
    ),
    Hold.CREDENTIAL: Word(
        state="held",
        says="The remote does not accept the credential.",
        waits_for="a credential that works",
        verbs=("doctor", "push"),
    ),
    Hold.LOCATOR_CONFLICT: Word(
        state="conflict",
        says="Another link owns the remote record that the answer named.",
        waits_for="somebody who retires the other link, or disposes of the id",
        verbs=_LOOK,
    ),
}

UNKNOWN_HOLD: Final = Word(
    state="held",
    says="It is held for a reason of a later release: {hold}.",
    waits_for="a release that knows this hold",
    verbs=_LOOK,
)

#: What a link says by itself; a finalized one leaves the word to its versions and its open update.
LINKS: Final[Mapping[LinkStatus, Word | None]] = {
    LinkStatus.FINALIZED: None,
    LinkStatus.SUSPENDED_DRIFT: Word(
        state="suspended",
        says="The link is suspended; nothing is sent.",
        waits_for="somebody who looks at the remote record and decides",
        verbs=_LOOK,
    ),
    LinkStatus.RETIRED: Word(
        state="retired",
        says="The link is retired and its slot is closed; this record is not pushed any more.",
        waits_for="nothing",
        verbs=_LOOK,
    ),
}
