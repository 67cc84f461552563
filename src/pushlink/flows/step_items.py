"""What steps take and what they answer: one frozen value for each flow that waits at a step."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from pushlink.errors import Code
from pushlink.flows.mirrors import MirrorDue
from pushlink.ports import RecordRef, StateSeen
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.snapshots import AttemptId, ClaimToken, Digest, Document, LinkKey, LocatorKey, WritebackSnapshot
from pushlink.protocol.states import CreateEvent, Hold, UpdateEvent
from pushlink.protocol.waiting import Target
from pushlink.store.attempts import Checkpoint
from pushlink.store.circuits import Health
from pushlink.store.credential_states import CredentialKey
from pushlink.store.lifecycle import Move
from pushlink.store.rows import AttemptRow, LinkRow, RequestRow
from pushlink.store.throttles import Throttle


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """A link to suspend in the transaction of what found the reason."""

    link: LinkRow  # as it was read; it is suspended only while it is usable and still has this remote record
    attempt_id: AttemptId
    actor: str
    reason_code: Code | None
    evidence: Mapping[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """An owner ends or gives back its claim without a reply."""

    move: Move
    judged: AttemptRow | None = None  # an update that ends here, with the version that it was judged by
    acknowledges: int | None = None  # an update whose values the remote has already
    outdates_wanted: bool = False  # the wanted version was frozen under a mapping that was revalidated away
    suspends: Suspension | None = None  # the link that this claim met lost its lineage
    throttle: Throttle | None = None  # what the read before an update says to everybody who would ask the remote next
    look_up_ms: int | None = None  # a create that ends in doubt: its record is looked for that much later
    awaits: tuple[LinkKey, ...] = ()  # records whose finalization ends the hold that this sets


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """Ask to send: the checkpoint, the request it names, and everything that must still be as it was validated."""

    attempt: AttemptRow
    token: ClaimToken
    actor: str
    checkpoint: Checkpoint
    request: RequestRow | None  # to be written now; None when the named freeze is there already
    documents: tuple[Document, ...] = ()  # the snapshots that a new request names
    source: RecordRef
    catalog_revision: int
    credential_ref: str | None
    credential_generation: str
    link_id: str | None = None
    link_version: int | None = None
    link_mapping: Digest | None = None
    replay_until: dt.datetime | None = None  # a create in doubt: when its replay contract ends
    look_up_ms: int | None = None  # where it ends instead: its record is looked for that much later
    targets: tuple[Target, ...] = ()  # records that the request names, by the remote ids that it names


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The checkpoint is durable: send now, once."""

    send_ordinal: int
    at: dt.datetime  # of the checkpoint, by the database
    first_at: dt.datetime  # of the attempt's first checkpoint
    start_by_s: float  # uptime of this machine after which the lease may not hold the whole call any more
    seen: StateSeen | None = None  # what the state directory is to keep before the send


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """Nothing may be sent. The claim was gone, or something changed and the attempt was given back."""

    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewId:
    """The id that an applied update gave its record, and the key under which the remote record is claimed by it."""

    remote_id: str
    canonical_id: str
    locator_key: LocatorKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One reply and what it means for a create or an update."""

    attempt: AttemptRow
    token: ClaimToken
    actor: str
    send_ordinal: int
    reply: StoredReply
    verdict: Mapping[str, object]
    candidate_id: str | None
    event: CreateEvent | UpdateEvent
    reason_code: Code | None
    detail: Mapping[str, object] | None = None
    hold: Hold | None = None
    retry_after_ms: int | None = None
    counts_as_retry: bool = False
    in_doubt: bool | None = None
    link: LinkRow | None = None  # a create: the link to insert; its `id` is fresh
    is_partial: bool = False  # a create that left something for an update to say
    called: str | None = None  # an association's call of its own: the local id of the record that it was about
    writeback: WritebackSnapshot | None = None
    values_digest: Digest | None = None
    suspends: bool = False  # an update: suspend the link in the same transaction
    link_before: LinkRow | None = None
    refused_credential: CredentialKey | None = None  # the remote does not take this credential any more
    look_up_after_ms: int | None = None  # a create: a look-up is due that much later
    look_for_after_ms: int | None = None  # a create that ends in doubt: its record is looked for that much later
    throttle: Throttle | None = None  # what this answer says to everybody who would ask the remote next
    health: Health | None = None  # whether it says that the remote fails; `None` when it says nothing about that
    remote_version: str | None = None  # the version that the answer shows of the record
    forgets_version: bool = False  # an update was applied, so the version that the link has is not the record's
    names: str | None = None  # an update was applied under these names, which are not those that the link shows
    new_id: NewId | None = None  # an update was applied, and its record has this id from now on


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A look-up that showed nothing yet: another one after `every_ms`, unless that is past the deadline."""

    answer: Answer  # its event ends the attempt where there is no time left
    every_ms: int
    deadline: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LooksNoMore:
    """A look-up by the stamp that nobody makes again by itself; the attempt stays parked and says why."""

    attempt: AttemptRow
    token: ClaimToken
    actor: str
    reason_code: Code
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class InVain:
    """A look-up by the stamp that did not show the one record: what follows, by the time at which it is written."""

    answer: Answer
    every_ms: int
    until: dt.datetime  # no look-up is made after this
    ends: bool  # asking again would not help
    proof_from: dt.datetime | None = None  # from when on this answer proves that nothing was made
    refused_from: dt.datetime | None = None  # from when on it shows that the record there is not ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The answer is durable. `mirror` is what is left to write, for a create whose link is finalized."""

    mirror: MirrorDue | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """A known remote id whose link is not there yet: adopted by an operator, or held back by another link."""

    attempt: AttemptRow
    token: ClaimToken
    actor: str
    link: LinkRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimGone:
    """The claim was gone when the answer came: keep it as late evidence."""
