"""What waits for a person, as tables: which rows do, what each kind means, and what to type first.

An attempt, or a linked record with nothing under way, is described by a few facts; the first entry of a table that they
fit says for what it waits. The store builds its statements from these entries, `explain` and `stuck` read those
statements and nothing else. What waits through a comparison with the catalogue of now (drift, a changed create path, an
uncertified contract, slots that ended) or as a whole (a deployment, an action) has its kind here and no facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from pushlink.errors import Code
from pushlink.protocol.states import BLOCKING, UPDATE_OPEN, AttemptStatus, Hold, Operation
from pushlink.protocol.surfaces import Surface
from pushlink.protocol.verbs import Verb


class Kind(StrEnum):
    """How something waits for a person."""

    STRANDED = "stranded"
    HELD = "held"
    DOUBTFUL = "doubtful"
    RETRIED = "retried"
    FAILED = "failed"
    REFUSED = "refused"
    SUSPENDED = "suspended"
    DRIFTED = "drifted"
    STALE = "stale"
    BEHIND = "behind"
    BLOCKED = "blocked"
    UNCERTIFIED = "uncertified"
    REPLACED = "replaced"
    UNUSABLE = "unusable"
    RECOVERING = "recovering"
    UNCLEARED = "uncleared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a kind says, and what is safe to type first, by preference: decisions, or other commands."""

    says: str
    first: tuple[str, ...]


KINDS: Final[Mapping[Kind, Meaning]] = {
    Kind.STRANDED: Meaning(says="It is of a lane that this release does not know.", first=(Verb.REPAIR_LANE,)),
    Kind.HELD: Meaning(
        says="It may not be claimed until somebody decides, or the cause is gone.", first=(Verb.UNHOLD, Verb.ABANDON)
    ),
    Kind.DOUBTFUL: Meaning(
        says="It may have been applied, and nobody can prove it either way.",
        first=(Verb.LOOKUP, Verb.ADOPT, Verb.APPLIED),
    ),
    Kind.RETRIED: Meaning(says="It is tried again by itself, and in vain until somebody mends the cause.", first=()),
    Kind.FAILED: Meaning(
        says="The create ended without a remote record, and holds the record's place.",
        first=(Verb.SUPERSEDE, Verb.ADOPT),
    ),
    Kind.REFUSED: Meaning(
        says="The newest values of a linked record were refused, or could not be brought to the remote.",
        first=(Verb.RELEASE_VERSION, "save"),
    ),
    Kind.SUSPENDED: Meaning(says="The link is suspended; nothing is sent.", first=(Verb.REVALIDATE, Verb.RETIRE)),
    Kind.DRIFTED: Meaning(
        says="The configuration differs from the one that the link was validated with; no update is sent.",
        first=(Verb.REVALIDATE, "pack apply"),
    ),
    Kind.STALE: Meaning(
        says="The newest values were frozen under a mapping that does not hold any more.", first=("save",)
    ),
    Kind.BEHIND: Meaning(says="Newer values are wanted, and nothing carries them.", first=("save",)),
    Kind.BLOCKED: Meaning(
        says="Its place is free, and the pack creates otherwise than the create before; a save creates nothing.",
        first=(Verb.VALIDATE_CREATE,),
    ),
    Kind.UNCERTIFIED: Meaning(
        says="It would be sent again or looked for by itself, but its contract is not certified, or not any more.",
        first=("pack certify",),
    ),
    Kind.REPLACED: Meaning(
        says="Older slots still own links or creates, so a newer one of the same object creates nothing.",
        first=("slot list",),
    ),
    Kind.UNUSABLE: Meaning(says="An action cannot be used, so its saves are refused.", first=("pack list",)),
    Kind.RECOVERING: Meaning(
        says="The deployment is in recovery mode: nothing is sent, and saves are refused.",
        first=("deployment confirm",),
    ),
    Kind.UNCLEARED: Meaning(
        says="The database was confirmed after a restore; records without a link are not created yet.",
        first=("deployment clear",),
    ),
}

#: Drift by which a link's slot is not what it was: somebody says what became of it.
_REPLACED: Final = (Surface.ACTION_SLOT, Surface.DESTINATION_SLOT, Surface.PROFILE_RECREATED, Surface.OWNER_CHANGED)

#: The same for one code of a kind, or for one surface that drifted. What may have lost its use is not let go, a mapping
#: is accepted by manifests alone, and what the catalogue does not resolve is brought back or rebound.
FIRST: Final[Mapping[tuple[Kind, str], tuple[str, ...]]] = {
    (Kind.HELD, Hold.DRIFT): (Verb.REVALIDATE, Verb.ABANDON, "pack apply"),
    (Kind.HELD, Hold.EXPIRED): (Verb.ABANDON, Verb.UNHOLD),
    (Kind.HELD, Hold.USER_INACTIVE): (Verb.ABANDON, Verb.UNHOLD),
    (Kind.HELD, Hold.LOCATOR_CONFLICT): (Verb.DISPOSE,),
    (Kind.SUSPENDED, Code.DRIFT): (Verb.REVALIDATE, "slot list"),
    (Kind.DRIFTED, Surface.MAPPING): ("mapping manifest",),
    (Kind.DRIFTED, Surface.BODY): ("mapping manifest",),
    **{(Kind.DRIFTED, surface): ("slot list",) for surface in _REPLACED},
}

#: What follows where it is not what the code of a row says by itself.
NEXT_STEPS: Final[Mapping[tuple[Kind, str], str]] = {
    (Kind.DRIFTED, Surface.MAPPING): "Undo the change, or let the links follow it by a mapping manifest.",
    (Kind.DRIFTED, Surface.BODY): "Undo the change, or let the links follow it by a mapping manifest.",
    **{
        (Kind.DRIFTED, surface): "Bring the slot back, rebind it to its successor, or retire its links."
        for surface in _REPLACED
    },
    (Kind.DRIFTED, Surface.OWNER_MISSING): "Install the pack again.",
    (Kind.DRIFTED, Surface.PROFILE_INACTIVE): "Let the pack activate the profile again.",
    (Kind.BLOCKED, Code.DRIFT): "Undo the change, or look at both create paths and validate the new one.",
}


def first_of(kind: Kind, code: str, about: str = "") -> tuple[str, ...]:
    """What to type first, by preference; the first that is offered counts, and looking where none is."""
    return FIRST.get((kind, about)) or FIRST.get((kind, code)) or KINDS[kind].first


def next_step_of(kind: Kind, code: str, about: str = "") -> str | None:
    """What usually follows, where the code alone does not say it."""
    return NEXT_STEPS.get((kind, about)) or NEXT_STEPS.get((kind, code))


# ------------------------------------------------------------------------------------------------ facts


class Fact(StrEnum):
    """What is asked about a row."""

    OPERATION = "operation"
    STATUS = "status"
    LANE = "lane"  # known, unknown
    HOLD = "hold"  # none, patient, waiting
    REASON = "reason"  # in_vain, other
    VALUES = "values"  # of an ended update: refused (and still what is wanted), other
    MAPPING = "mapping"  # of wanted values: holds, stale
    WANTED = "wanted"  # of wanted values: carried (the remote has or refused them, or equal ones), newer


#: Everything that a row's facts may be, and the answer of an entry that does not ask.
Facts: TypeAlias = Mapping[Fact, str]

#: Holds that end by themselves: the row that they wait for is at work.
PATIENT: Final = frozenset({Hold.ASSOCIATION_WAITING.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Rows whose facts are all among these wait in this way."""

    kind: Kind
    where: Mapping[Fact, frozenset[str]]


def _entry(kind: Kind, **where: Sequence[str] | frozenset[AttemptStatus] | str) -> Entry:
    found = {Fact(n): frozenset({v} if isinstance(v, str) else {str(x) for x in v}) for n, v in where.items()}
    return Entry(kind=kind, where=found)


_A = AttemptStatus

#: Of attempts, in the order in which an entry decides.
ATTEMPTS: Final[tuple[Entry, ...]] = (
    _entry(Kind.STRANDED, lane="unknown", operation=Operation.CREATE.value, status=BLOCKING),
    _entry(Kind.STRANDED, lane="unknown", operation=Operation.UPDATE.value, status=UPDATE_OPEN),
    _entry(Kind.HELD, hold="waiting"),
    _entry(Kind.DOUBTFUL, status=_A.AMBIGUOUS_REMOTE_EFFECT.value),
    _entry(Kind.RETRIED, status=_A.PENDING.value, hold="none", reason="in_vain"),
    _entry(Kind.FAILED, operation=Operation.CREATE.value, status=_A.TERMINAL_FAILED.value),
    _entry(Kind.REFUSED, operation=Operation.UPDATE.value, status=_A.TERMINAL_FAILED.value, values="refused"),
)

#: Of records whose link is finalized and that have no open update.
RECORDS: Final[tuple[Entry, ...]] = (
    _entry(Kind.STALE, mapping="stale"),
    _entry(Kind.BEHIND, wanted="newer"),
)


def kind_of(table: Sequence[Entry], facts: Facts) -> Kind | None:
    """For what a row with these facts waits; `None` where nobody is needed."""
    fits = (entry.kind for entry in table if all(facts[fact] in words for fact, words in entry.where.items()))
    return next(fits, None)
