"""The operator's verbs for links: suspend, validate anew, point elsewhere, end, and free the record's place.

What ends with a link ends in the same transaction: its create's mirror and its unsettled update. Whoever waits for the
remote record that a link lets go of may go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from pushlink.errors import Code
from pushlink.flows.operating import Acting, Effects, insert_due_update, move_attempt, open_update, require_consent
from pushlink.flows.operating_again import show_create_paths
from pushlink.flows.operating_ids import unowned_record
from pushlink.protocol.drift import MAPPING_RULE
from pushlink.protocol.states import (
    KNOWN_LANES,
    LEASED,
    USABLE_LINKS,
    CreateEvent,
    Hold,
    LinkEvent,
    LinkStatus,
    MirrorStatus,
    UpdateEvent,
    follow_link,
    sources,
)
from pushlink.protocol.verbs import Verb
from pushlink.store import attempts, decisions, lifecycle, links, requests, slots
from pushlink.store.active import ActiveAction
from pushlink.store.dialect import is_unique_violation
from pushlink.store.earlier import read_last_creates
from pushlink.store.events import Event, insert_events
from pushlink.store.lifecycle import LinkMove
from pushlink.store.links import MirrorOutcome, Relocation, Validation
from pushlink.store.rows import AttemptRow, slots_of, write_names


def suspend(acting: Acting) -> Effects:
    """Stop the updates of a link; a person saw something that the runtime cannot see."""
    return _moved(acting, LinkEvent.SUSPEND, Code.OPERATOR_DECISION)


def revalidate(acting: Acting) -> Effects:
    """Accept the configuration of now: everything that drifts but the mapping, which manifests alone change (RV-01)."""
    link = acting.link
    action = acting.world.catalog.read(acting.conn).find(slots_of(link))
    if action is None or not action.profile.active:
        raise acting.refuse("No usable action of the catalogue has the slots of this link: rebind or retire it.")
    acting.world.thaw(acting.conn, [link.profile_digest], [link.action_digest])
    hits = acting.drifting.of_link(link, acting.world.catalog.read(acting.conn))
    ours = [hit for hit in hits if hit.rule != MAPPING_RULE]
    if not ours and link.status in USABLE_LINKS:
        raise acting.refuse(
            "Nothing that a revalidation accepts has drifted."
            if not hits
            else "Only the mapping has drifted, and that needs a mapping manifest."
        )
    acting.evidence["accepted"] = [
        {"rule": hit.rule, "surface": hit.surface.value, "old": hit.frozen, "new": hit.current} for hit in ours
    ]
    if len(ours) < len(hits):
        acting.notes.append("The mapping still differs: updates wait for a mapping manifest.")
    version = link.row_version
    if link.status not in USABLE_LINKS:
        version = _moved(acting, LinkEvent.REVALIDATE, None).row_version
    with _claiming_the_remote_record(acting):
        is_written = links.write_validation(acting.conn, _validation(acting, action, version), now=acting.now)
    if not is_written:
        raise acting.stale()
    if link.status in USABLE_LINKS:
        _tell(acting, LinkEvent.REVALIDATE, link.status, version + 1)
    return _reopened(acting, version + 1)


def relocate(acting: Acting) -> Effects:
    """Point the link to another remote record, with a receipt of both locators."""
    link, text = acting.link, acting.decision.argument or ""
    _, actions = acting.world.thaw(acting.conn, [], [link.action_digest])
    contract = actions[link.action_digest].contract
    found, key = unowned_record(acting, contract, text, scope=link.destination_scope, claimed_by=link)
    acting.evidence["locators"] = {
        "old": {"remote_id": link.remote_id, "locator_key": link.locator_key},
        "new": {"remote_id": text, "locator_key": key},
    }
    if key == link.locator_key:
        raise acting.refuse("The link points to that remote record already.", remote_id=link.remote_id)
    moved = _moved(acting, LinkEvent.RELOCATE, Code.OPERATOR_DECISION)
    item = Relocation(
        link_id=link.id,
        row_version=moved.row_version,
        remote_id=text,
        remote_id_canonical=found.canonical,
        locator_key=key,
    )
    with _claiming_the_remote_record(acting):
        [is_written] = links.write_relocations(acting.conn, [item], now=acting.now)
    if not is_written:
        raise acting.stale()
    slots.forget_applied(acting.conn, [link.link_key])
    _let_go(acting)
    effects = _reopened(acting, moved.row_version + 1)
    return Effects(status=effects.status, row_version=effects.row_version, remote_id=text, made=effects.made)


def retire(acting: Acting) -> Effects:
    """End the link and what stands on it; asked to, free the record's place as well (D-35)."""
    if acting.decision.release:
        _require_nothing_sent(acting)
        require_consent(acting, as_verb=Verb.RELEASE_SLOT)
    moved = _moved(acting, LinkEvent.RETIRE, Code.OPERATOR_DECISION)
    _end_attempts(acting)
    _let_go(acting)
    if not acting.decision.release:
        return moved
    return _release(acting, moved.row_version)


def release_slot(acting: Acting) -> Effects:
    """Free the place of a record whose link is retired: its next save may create another remote record (D-35)."""
    if acting.link.slot_key is None:
        raise acting.refuse("The slot of this link is released already.")
    _require_nothing_sent(acting)
    require_consent(acting)
    return _release(acting, acting.link.row_version)


#: The rows of the matrix that a mapping manifest heals, and nothing else.


def _validation(acting: Acting, action: ActiveAction, row_version: int) -> Validation:
    link = acting.link
    scope = action.profile.destination_scope
    found, key = unowned_record(acting, action.contract, link.remote_id, scope=scope, claimed_by=link)
    generation = acting.world.generation(action.profile, link.tenant)
    profile = acting.world.profile_document(action.profile, action.profile_digest, generation)
    requests.keep_documents(acting.conn, [profile, action.document], now=acting.now)
    return Validation(
        link_id=link.id,
        row_version=row_version,
        install_id=action.install_id,
        profile_digest=profile.digest,
        action_digest=action.document.digest,
        names=write_names(action.names),
        destination_scope=scope,
        remote_id_canonical=found.canonical,
        locator_key=key,
    )


@contextmanager
def _claiming_the_remote_record(acting: Acting) -> Iterator[None]:
    """Another link that got the remote record since it was looked for is told as a refusal; the index decides."""
    try:
        yield
    except sa.exc.IntegrityError as error:
        if not is_unique_violation(error):
            raise
        raise acting.refuse("Another link has just got that remote record.") from error


def _moved(acting: Acting, event: LinkEvent, code: Code | None) -> Effects:
    link = acting.link
    move = LinkMove(
        link_id=link.id,
        link_key=link.link_key,
        tenant=link.tenant,
        status=link.status,
        row_version=link.row_version,
        event=event,
        actor=acting.actor,
        reason_code=code,
        evidence={"said": acting.decision.reason, **_shown(acting)},
    )
    [is_done] = lifecycle.move_links(acting.conn, [move], now=acting.now)
    if not is_done:
        raise acting.stale()
    target = follow_link(link.status, event)
    return Effects(status=target.value, row_version=link.row_version + 1, remote_id=link.remote_id)


def _tell(acting: Acting, event: LinkEvent, status: LinkStatus, row_version: int) -> None:
    """A change of a link that keeps its status tells of itself all the same."""
    link = acting.link
    told = Event(
        attempt_id=None,
        link_key=link.link_key,
        tenant=link.tenant,
        subject="link",
        event=event.value,
        from_status=status.value,
        to_status=status.value,
        actor=acting.actor,
        evidence={"said": acting.decision.reason, **_shown(acting)},
        row_version=row_version,
    )
    insert_events(acting.conn, [told], now=acting.now)


def _shown(acting: Acting) -> dict[str, object]:
    return dict(acting.evidence)


def _reopened(acting: Acting, row_version: int) -> Effects:
    """The link is usable: a held update may go on, or the update that is due is made."""
    slot = acting.subject.slot
    waiting = open_update(acting)
    if waiting is not None and waiting.hold_code == Hold.DRIFT.value:
        detail = {"said": acting.decision.reason}
        decisions.clear_hold(acting.conn, waiting, detail=detail, actor=acting.actor, now=acting.now)
    made = insert_due_update(acting, beyond=slot.acknowledged_version) if waiting is None else None
    usable = follow_link(None, LinkEvent.FINALIZE)
    return Effects(status=usable.value, row_version=row_version, remote_id=acting.link.remote_id, made=made)


def _end_attempts(acting: Acting) -> None:
    """A mirror that was still due is skipped, and an update that is not on the wire ends (MACHINES, Link)."""
    key = acting.subject.slot.link_key
    [standing] = attempts.read_open_attempts(acting.conn, [key])
    ended: list[str] = []
    create, update = standing.create, standing.update
    if create is not None and create.status in sources(CreateEvent.LINK_RETIRED):
        _require_known_lane(acting, create)
        move_attempt(acting, CreateEvent.LINK_RETIRED, row=create, reason_code=Code.LINK_RETIRED, in_doubt=False)
        outcome = MirrorOutcome(link_key=key, status=MirrorStatus.SKIPPED_LINK_RETIRED)
        links.set_mirror_status(acting.conn, [outcome], now=acting.now)
        ended.append(create.id)
    if update is not None and update.status in sources(UpdateEvent.LINK_RETIRED):
        _require_known_lane(acting, update)
        move_attempt(acting, UpdateEvent.LINK_RETIRED, row=update, reason_code=Code.LINK_RETIRED)
        ended.append(update.id)
    acting.evidence["ended_attempts"] = ended


def _require_known_lane(acting: Acting, row: AttemptRow) -> None:
    """What waits in a lane of a newer release is touched by nothing but a repair of its lane (D-39)."""
    if row.dispatch_lane not in KNOWN_LANES:
        raise acting.refuse(
            "An attempt of this link is of a lane that this release does not know: repair its lane first.",
            attempt_id=row.id,
            lane=row.dispatch_lane,
        )


def _require_nothing_sent(acting: Acting) -> None:
    """A released slot forgets its versions, so an answer that still comes would have nothing to belong to."""
    update = open_update(acting)
    if update is not None and update.status in LEASED:
        raise acting.refuse("An update of this link is in work: wait until it has ended.", attempt_id=update.id)


def _release(acting: Acting, row_version: int) -> Effects:
    link = acting.link
    move = LinkMove(
        link_id=link.id,
        link_key=link.link_key,
        tenant=link.tenant,
        status=LinkStatus.RETIRED,
        row_version=row_version,
        event=LinkEvent.RELEASE_SLOT,
        actor=acting.actor,
        reason_code=Code.OPERATOR_DECISION,
        evidence={"said": acting.decision.reason},
    )
    [is_done] = lifecycle.move_links(acting.conn, [move], now=acting.now)
    if not is_done:
        raise acting.stale()
    slot = acting.subject.slot
    show_create_paths(acting, read_last_creates(acting.conn, [slot.link_key]).get(slot.link_key))
    acting.evidence["forgotten"] = {
        "wanted_version": slot.wanted_version,
        "acknowledged_version": slot.acknowledged_version,
        "refused_version": slot.refused_version,
    }
    decisions.free_create_keys(acting.conn, link.link_key)
    slots.reset_versions(acting.conn, link.link_key)
    return Effects(status=move.status.value, row_version=row_version + 1, remote_id=link.remote_id)


def _let_go(acting: Acting) -> None:
    """Attempts that waited for the remote record which this link has given up may go on."""
    link = acting.link
    waiting = decisions.read_conflicts(acting.conn, tenant=link.tenant, owner=link.link_key)
    freed = [
        row.id
        for row in waiting
        if decisions.clear_hold(
            acting.conn, row, detail={"said": acting.decision.reason}, actor=acting.actor, now=acting.now
        )
    ]
    if freed:
        acting.evidence["freed_attempts"] = freed
