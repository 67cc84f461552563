"""The gates before a create and before an update, as ordered tables.

Each gate is a predicate over plain facts, gathered before and under the push slot's lock. The first that refuses
decides; it sends nothing and changes nothing. A refusal has a stable code, a sentence a person can act on, evidence
(keys, names and statuses, never a source value) and the verbs that may follow. It also says whether the save is kept
as the slot's wanted version: refusals by an attempt or a suspended link keep it, refusals of authority, mapping,
catalogue or lineage do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pushlink.errors import Code
from pushlink.protocol.drift import Hit
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.states import BLOCKING, AttemptStatus, LinkStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a gate may look at. No field holds a source value; an empty tuple or `None` means "nothing is wrong".

    `create_status` is the status of the create attempt that holds the key, if any; `drift` the hits that stop this
    operation (`drift.stops_update` for an update, `drift.blocks_new_create` for a create).
    """

    slot_resolved: bool  # a trusted pack owns this flow, action and slot
    owner_resolved: bool
    destination_resolved: bool
    authority_produced: bool
    row_readable: bool
    denied_fields: tuple[str, ...]  # names only
    usable_installs: int  # active incarnations that resolve to one usable profile
    mapping_problems: tuple[str, ...]  # absent, customized, duplicated
    path_problems: tuple[str, ...]  # a template that is missing or not the pack's own
    source_exists: bool
    link_status: LinkStatus | None
    slot_closed: bool  # the retired link keeps its slot
    create_status: AttemptStatus | None
    update_ambiguous: bool
    version_refused: bool  # the remote refused exactly these values before
    unresolved_slots: tuple[str, ...]  # old slots of this lineage that still own something (D-29)
    freeze_problems: tuple[str, ...]  # snapshots that cannot be made
    render_failure: RenderFailure | None
    drift: tuple[Hit, ...]
    missing_associations: tuple[str, ...] = ()
    missing_records: tuple[Mapping[str, object], ...] = ()  # which records those are, where they are any
    denied_associations: tuple[str, ...] = ()
    association_cycle: tuple[str, ...] = ()
    recovery_mode: bool = False


Evidence: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One row: when it refuses, what it says, what it shows, and what may follow."""

    rule: str
    code: Code
    refuses: Callable[[Facts], bool]
    message: str
    evidence: Callable[[Facts], Evidence]
    records_wanted: bool = False
    next_verbs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A gate's answer, in full."""

    rule: str
    code: Code
    message: str
    evidence: Evidence
    records_wanted: bool
    next_verbs: tuple[str, ...]


#: A create attempt in one of these has neither an unknown effect nor an end.
_ACTIVE: Final = BLOCKING - {AttemptStatus.AMBIGUOUS_REMOTE_EFFECT, AttemptStatus.TERMINAL_FAILED}

#: Once a link is finalized, a create that only waits for its mirror does not stop an update (D-21).
_BEFORE_FINALIZATION: Final = BLOCKING - {AttemptStatus.WRITEBACK_COMMIT_PENDING, AttemptStatus.WRITEBACK_PENDING}


def _nothing(_facts: Facts) -> Evidence:
    return {}


def _attempt(facts: Facts) -> Evidence:
    return {"create_status": facts.create_status}


def _link(facts: Facts) -> Evidence:
    return {"link_status": facts.link_status, "slot_closed": facts.slot_closed}


def _rendering(facts: Facts) -> Evidence:
    return facts.render_failure.evidence if facts.render_failure else {}


def _failed(code: Code) -> Callable[[Facts], bool]:
    return lambda facts: facts.render_failure is not None and facts.render_failure.code is code


def _drifted(facts: Facts) -> Evidence:
    return {
        "drift": [
            {"rule": hit.rule, "surface": hit.surface, "frozen": hit.frozen, "current": hit.current}
            for hit in facts.drift
        ]
    }


_SLOT = Gate(
    rule="GT-01",
    code=Code.SLOT_UNRESOLVED,
    refuses=lambda facts: not facts.slot_resolved,
    message="No installed pack owns an action for this object.",
    evidence=_nothing,
    next_verbs=("pack apply",),
)
_OWNER = Gate(
    rule="GT-02",
    code=Code.OWNER_UNRESOLVED,
    refuses=lambda facts: not (facts.owner_resolved and facts.destination_resolved),
    message="The owner key or the destination slot cannot be resolved from the pack; a name never takes its place.",
    evidence=lambda facts: {
        "owner_resolved": facts.owner_resolved,
        "destination_resolved": facts.destination_resolved,
    },
    next_verbs=("pack apply", "slot rebind plan"),
)
_AUTHORITY = Gate(
    rule="GT-03",
    code=Code.AUTHORITY_UNAVAILABLE,
    refuses=lambda facts: not facts.authority_produced,
    message="No authority of the originating user can be established.",
    evidence=_nothing,
)
_INSTALL = Gate(
    rule="GT-04",
    code=Code.INSTALL_UNUSABLE,
    refuses=lambda facts: facts.usable_installs != 1,
    message="The active pack and profile do not resolve to exactly one usable install.",
    evidence=lambda facts: {"usable_installs": facts.usable_installs},
    next_verbs=("pack apply",),
)
_MAPPING = Gate(
    rule="GT-05",
    code=Code.MAPPING_UNUSABLE,
    refuses=lambda facts: bool(facts.mapping_problems) or _failed(Code.MAPPING_UNUSABLE)(facts),
    message="The outbound mappings are absent, customized or duplicated, or they produce no body.",
    evidence=lambda facts: {"problems": list(facts.mapping_problems), **_rendering(facts)},
    next_verbs=("pack check", "pack apply"),
)
_PATH = Gate(
    rule="GT-06",
    code=Code.PATH_UNUSABLE,
    refuses=lambda facts: bool(facts.path_problems) or _failed(Code.PATH_UNUSABLE)(facts),
    message="A path template is missing from the pack's own action configuration, or cannot be used.",
    evidence=lambda facts: {"problems": list(facts.path_problems), **_rendering(facts)},
    next_verbs=("pack check", "pack apply"),
)
_READ = Gate(
    rule="GT-07",
    code=Code.READ_DENIED,
    refuses=lambda facts: not facts.row_readable or bool(facts.denied_fields),
    message="The originating user may not read the record, or a field that the mappings need.",
    evidence=lambda facts: {"row_readable": facts.row_readable, "denied_fields": sorted(facts.denied_fields)},
)
_SOURCE = Gate(
    rule="GT-08",
    code=Code.SOURCE_GONE,
    refuses=lambda facts: not facts.source_exists,
    message="The source record does not exist any more.",
    evidence=_nothing,
)
_FINALIZED = Gate(
    rule="GT-09",
    code=Code.LINK_EXISTS,
    refuses=lambda facts: facts.link_status is LinkStatus.FINALIZED,
    message="This record is linked already; it is updated, never created again.",
    evidence=_link,
    records_wanted=True,
)
_SUSPENDED = Gate(
    rule="GT-09",
    code=Code.LINK_SUSPENDED,
    refuses=lambda facts: facts.link_status is LinkStatus.SUSPENDED_DRIFT,
    message="The record's link is suspended; nothing is sent until it is revalidated or retired.",
    evidence=_link,
    records_wanted=True,
    next_verbs=("revalidate", "relocate", "retire"),
)
_RETIRED = Gate(
    rule="GT-15",
    code=Code.LINK_RETIRED,
    refuses=lambda facts: facts.link_status is LinkStatus.RETIRED and facts.slot_closed,
    message="The record's link is retired and its slot is closed.",
    evidence=_link,
    next_verbs=("release-slot",),
)
_ACTIVE_CREATE = Gate(
    rule="GT-10",
    code=Code.CREATE_ACTIVE,
    refuses=lambda facts: facts.create_status in _ACTIVE,
    message="A create attempt of this record is under way.",
    evidence=_attempt,
    records_wanted=True,
    next_verbs=("explain",),
)
_AMBIGUOUS_CREATE = Gate(
    rule="GT-10",
    code=Code.CREATE_AMBIGUOUS,
    refuses=lambda facts: facts.create_status is AttemptStatus.AMBIGUOUS_REMOTE_EFFECT,
    message="A create attempt of this record may have succeeded at the remote; somebody has to find out.",
    evidence=_attempt,
    records_wanted=True,
    next_verbs=("reconcile adopt", "reconcile absent", "reconcile reinterpret"),
)
_TERMINAL_CREATE = Gate(
    rule="GT-11",
    code=Code.CREATE_TERMINAL,
    refuses=lambda facts: facts.create_status is AttemptStatus.TERMINAL_FAILED,
    message="A create attempt of this record failed for good and was not superseded.",
    evidence=_attempt,
    records_wanted=True,
    next_verbs=("supersede", "reconcile adopt"),
)
_LINEAGE = Gate(
    rule="GT-12",
    code=Code.LINEAGE_UNRESOLVED,
    refuses=lambda facts: bool(facts.unresolved_slots),
    message="Older slots of this owner and object still own links or attempts; nobody has resolved them.",
    evidence=lambda facts: {"unresolved_slots": list(facts.unresolved_slots)},
    next_verbs=("slot rebind plan", "retire", "supersede", "declare-independent"),
)
_FREEZE = Gate(
    rule="GT-13",
    code=Code.FREEZE_FAILED,
    refuses=lambda facts: bool(facts.freeze_problems) or _failed(Code.FREEZE_FAILED)(facts),
    message="A snapshot that the request needs cannot be frozen.",
    evidence=lambda facts: {"problems": list(facts.freeze_problems), **_rendering(facts)},
    next_verbs=("pack check", "doctor"),
)
_ROUTE = Gate(
    rule="GT-14",
    code=Code.ROUTE_UNSAFE,
    refuses=_failed(Code.ROUTE_UNSAFE),
    message="A rendered value would change the route.",
    evidence=_rendering,
)
_VALUE = Gate(
    rule="GT-05",
    code=Code.VALUE_UNSENDABLE,
    refuses=_failed(Code.VALUE_UNSENDABLE),
    message="A value cannot be said exactly as its mapping asks.",
    evidence=_rendering,
)
_SIZE = Gate(
    rule="GT-13",
    code=Code.BODY_TOO_LARGE,
    refuses=_failed(Code.BODY_TOO_LARGE),
    message="The body is larger than the profile allows.",
    evidence=_rendering,
)
_CREATE_DRIFT = Gate(
    rule="DR-15",
    code=Code.DRIFT,
    refuses=lambda facts: bool(facts.drift),
    message="The pack differs from the one that this key had before; a new create waits for a validation.",
    evidence=_drifted,
    next_verbs=("validate-create",),
)
_ASSOCIATION_MISSING = Gate(
    rule="DL-16",
    code=Code.ASSOCIATION_MISSING,
    refuses=lambda facts: bool(facts.missing_associations),
    message="A record that this one refers to has no remote record to refer to.",
    evidence=lambda facts: {
        "associations": list(facts.missing_associations),
        "records": [dict(record) for record in facts.missing_records],
    },
)
_ASSOCIATION_DENIED = Gate(
    rule="AU-04",
    code=Code.ASSOCIATION_DENIED,
    refuses=lambda facts: bool(facts.denied_associations),
    message="The originating user may not read a record that this one refers to.",
    evidence=lambda facts: {"associations": list(facts.denied_associations)},
)
_ASSOCIATION_CYCLE = Gate(
    rule="DL-17",
    code=Code.ASSOCIATION_CYCLE,
    refuses=lambda facts: bool(facts.association_cycle),
    message="Records that are to be created wait for each other in a circle.",
    evidence=lambda facts: {"cycle": list(facts.association_cycle)},
)
_RECOVERY = Gate(
    rule="D-36",
    code=Code.RECOVERY_MODE,
    refuses=lambda facts: facts.recovery_mode,
    message="The database may be an older copy of itself, and nobody has confirmed it, or cleared it for new records.",
    evidence=_nothing,
    next_verbs=("deployment confirm", "deployment clear"),
)
_NO_LINK = Gate(
    rule="PA-02",
    code=Code.LINK_MISSING,
    refuses=lambda facts: facts.link_status is None,
    message="The record has no link to update.",
    evidence=_link,
    next_verbs=("save",),
)
_UNFINISHED_CREATE = Gate(
    rule="PA-03",
    code=Code.CREATE_ACTIVE,
    refuses=lambda facts: facts.create_status in _BEFORE_FINALIZATION,
    message="A create attempt of this record is not finished.",
    evidence=_attempt,
    records_wanted=True,
    next_verbs=("explain",),
)
_UPDATE_DRIFT = Gate(
    rule="PA-04",
    code=Code.DRIFT,
    refuses=lambda facts: bool(facts.drift),
    message="The pack, profile or credential differs from the one that the link was validated with.",
    evidence=_drifted,
    next_verbs=("revalidate", "pack apply"),
)
_AMBIGUOUS_UPDATE = Gate(
    rule="D-20",
    code=Code.UPDATE_AMBIGUOUS,
    refuses=lambda facts: facts.update_ambiguous,
    message="An earlier update of this record may have been applied; it has to be settled first.",
    evidence=_nothing,
    records_wanted=True,
    next_verbs=("reconcile applied", "reconcile resend"),
)
_REFUSED_VERSION = Gate(
    rule="D-19",
    code=Code.VERSION_REFUSED,
    refuses=lambda facts: facts.version_refused,
    message="The remote refused exactly these values before.",
    evidence=_nothing,
    next_verbs=("release-version",),
)

#: The gates of the pack, which a create and an update share.
_CATALOGUE: Final = (_SLOT, _OWNER, _AUTHORITY, _INSTALL, _MAPPING, _PATH)

#: Before a create is reserved, in the order of the contract.
BEFORE_CREATE: Final[tuple[Gate, ...]] = (
    *_CATALOGUE,
    _READ,
    _SOURCE,
    _FINALIZED,
    _SUSPENDED,
    _RETIRED,
    _ACTIVE_CREATE,
    _AMBIGUOUS_CREATE,
    _TERMINAL_CREATE,
    _LINEAGE,
    _FREEZE,
    _ROUTE,
    _VALUE,
    _SIZE,
    _CREATE_DRIFT,
    _ASSOCIATION_DENIED,
    _ASSOCIATION_MISSING,
    _ASSOCIATION_CYCLE,
    _RECOVERY,
)

#: Before an update is wanted, in the order of the contract.
BEFORE_UPDATE: Final[tuple[Gate, ...]] = (
    *_CATALOGUE,
    replace(_READ, rule="PA-06"),
    _SOURCE,
    _NO_LINK,
    replace(_SUSPENDED, rule="PA-05"),
    replace(_RETIRED, rule="PA-05", refuses=lambda facts: facts.link_status is LinkStatus.RETIRED),
    _UNFINISHED_CREATE,
    _FREEZE,
    replace(_ROUTE, rule="PA-07"),
    _VALUE,
    _SIZE,
    _UPDATE_DRIFT,
    _ASSOCIATION_DENIED,
    _ASSOCIATION_MISSING,
    _AMBIGUOUS_UPDATE,
    _REFUSED_VERSION,
    _RECOVERY,
)


def first_refusal(gates: tuple[Gate, ...], facts: Facts) -> Refusal | None:
    """The answer of the first gate that refuses, or `None` when all let the save through.

    A rendering failure speaks for itself: its own sentence is more precise than the gate's.
    """
    gate = next((gate for gate in gates if gate.refuses(facts)), None)
    if gate is None:
        return None
    failure = facts.render_failure
    return Refusal(
        rule=gate.rule,
        code=gate.code,
        message=failure.message if failure is not None and failure.code is gate.code else gate.message,
        evidence=gate.evidence(facts),
        records_wanted=gate.records_wanted,
        next_verbs=gate.next_verbs,
    )
