"""What an operator may decide about a record as it stands: the table of verbs, less what the evidence forbids.

The table says what a state allows. Some of it needs more than a state: an answer to read again, an id that a late
answer named, a difference to accept. What is sure to be refused for such a reason is not offered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pushlink.flows.operating import standing_of_attempt
from pushlink.flows.operating_creates import late_ids
from pushlink.flows.world import World
from pushlink.operations.contract_states import ContractState
from pushlink.operations.verbs import Verb as Offered
from pushlink.operations.verbs import decisions
from pushlink.protocol.drift import MAPPING_RULE, UNRESOLVED, Hit
from pushlink.protocol.sealing import Plain, Unread
from pushlink.protocol.snapshots import LinkKey
from pushlink.protocol.states import USABLE_LINKS, Hold, Operation
from pushlink.protocol.verbs import Standing, Verb, allowed_verbs
from pushlink.store import links
from pushlink.store.access import Connection
from pushlink.store.decisions import read_disposed
from pushlink.store.reads import read_object
from pushlink.store.requests import read_requests
from pushlink.store.responses import StoredAnswer, read_answers
from pushlink.store.rows import AttemptRow, LinkRow, SlotRow


def decidable(
    conn: Connection,
    slot: SlotRow,
    link: LinkRow | None,
    attempt: AttemptRow | None,
    *,
    drift: Sequence[Hit],
    contract: ContractState | None = None,
    world: World | None = None,
) -> tuple[Offered, ...]:
    """Decisions about the attempt that a state is about, then about the record's link, then about a link in its way.

    `contract` is what the frozen contract of a create in doubt allows; without it neither is offered. Without a `World`
    no stored answer is read, and only the ids that were kept beside one are known.
    """
    found: list[Offered] = []
    if attempt is not None:
        found += _about(conn, slot, attempt, contract, world)
    if link is not None:
        offered = tuple(_of_link(link, drift))
        found += decisions(offered, target_id=link.id, row_version=link.row_version, tenant=slot.tenant)
    if attempt is not None and attempt.hold_code == Hold.LOCATOR_CONFLICT.value:
        found += _of_owner(conn, attempt)
    return tuple(found)


def _about(
    conn: Connection, slot: SlotRow, attempt: AttemptRow, contract: ContractState | None, world: World | None
) -> tuple[Offered, ...]:
    """Decisions about one attempt; where one remote id is known for it, the commands name it."""
    allowed = allowed_verbs(standing_of_attempt(attempt))
    if not allowed:
        return ()
    answers = read_answers(conn, Plain() if world is None else world.vault, attempt.id)
    named = _named(conn, attempt, answers, world)
    known = (attempt.remote_id,) if attempt.remote_id is not None else named
    is_offered = {
        Verb.LOOKUP: contract is not None and contract.is_looked_up,
        Verb.REPLAY: contract is not None and contract.is_replayed and not named,
        Verb.SUPERSEDE: not named,
        Verb.ABSENT: not named,
        Verb.REINTERPRET: any(answer.unread is not Unread.ERASED for answer in answers),
        Verb.DISPOSE: bool(known),
        Verb.UNHOLD: attempt.hold_code != Hold.LOCATOR_CONFLICT.value,
        Verb.RELEASE_VERSION: attempt.association is not None
        or slot.wanted_version == slot.refused_version == attempt.version,
    }
    return decisions(
        [verb for verb in allowed if is_offered.get(verb, True)],
        target_id=attempt.id,
        row_version=attempt.row_version,
        tenant=slot.tenant,
        remote_id=known[0] if len(known) == 1 else None,
    )


def _named(
    conn: Connection, attempt: AttemptRow, answers: Sequence[StoredAnswer], world: World | None
) -> tuple[str, ...]:
    """The ids that late answers named and nobody set aside, as a decision about them finds them."""
    if not any(answer.late for answer in answers):
        return ()
    [request] = read_requests(conn, [attempt.id])
    if world is not None and request is not None and attempt.operation is Operation.CREATE:
        _, actions = world.thaw(conn, [], [request.action_digest])
        return late_ids(conn, attempt.id, actions[request.action_digest].contract, answers)
    found = dict.fromkeys(answer.candidate_id for answer in answers if answer.late and answer.candidate_id is not None)
    return tuple(text for text in found if text not in read_disposed(conn, attempt.id))


def _of_link(link: LinkRow, drift: Sequence[Hit]) -> Iterator[Verb]:
    for verb in allowed_verbs(Standing(place=link.status)):
        if verb is Verb.RELEASE_SLOT and link.slot_key is None:
            continue
        if verb is Verb.REVALIDATE and not _is_accepted(link, drift):
            continue
        yield verb


def _is_accepted(link: LinkRow, drift: Sequence[Hit]) -> bool:
    """Whether a revalidation would find an action, and something to accept that is not the mapping's (RV-01)."""
    if any(hit.surface in UNRESOLVED for hit in drift):
        return False
    return link.status not in USABLE_LINKS or any(hit.rule != MAPPING_RULE for hit in drift)


def _of_owner(conn: Connection, attempt: AttemptRow) -> tuple[Offered, ...]:
    """The link that has the remote record which this attempt was given may be retired instead."""
    key = read_object(attempt.detail).get("owner_link_key")
    owners = links.read_links(conn, [LinkKey(str(key))]) if key else []
    return tuple(
        offer
        for owner in owners
        if owner is not None
        for offer in decisions([Verb.RETIRE], target_id=owner.id, row_version=owner.row_version, tenant=owner.tenant)
    )
