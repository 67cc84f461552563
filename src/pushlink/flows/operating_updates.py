"""The operator's verbs for updates: settle one that may have been applied, or let a refused version go once more."""

from __future__ import annotations

from dataclasses import replace

from pushlink.errors import Code
from pushlink.flows.operating import Acting, Effects, insert_due_update, move_attempt
from pushlink.flows.operating_creates import frozen_of, read_again, require_settled, unreadable
from pushlink.protocol.association_calls import call_contract
from pushlink.protocol.associations import read_called, read_vector, write_called
from pushlink.protocol.replies import Disposition
from pushlink.protocol.snapshots import ActionSnapshot, ProfileSnapshot
from pushlink.protocol.states import USABLE_LINKS, Operation, UpdateEvent
from pushlink.store import requests, responses, slots
from pushlink.store.slots import Acknowledgement


def applied(acting: Acting) -> Effects:
    """The update was applied: its version is acknowledged, and a newer one becomes due (D-20)."""
    return _settled(acting, Code.OPERATOR_DECISION)


def reinterpret(acting: Acting) -> Effects:
    """Read the stored answers again; one of them has to say that the update was applied, as it was asked for."""
    frozen = frozen_of(acting)
    answers = responses.read_answers(acting.conn, acting.world.vault, acting.attempt.id)
    if unread := [answer for answer in answers if answer.unread is not None]:
        raise unreadable(acting, unread)
    if acting.attempt.association is not None:
        contract = call_contract(frozen.action.contract, acting.attempt.association)
        frozen = replace(frozen, action=ActionSnapshot(contract=contract or frozen.action.contract))
    verdicts = [read_again(Operation.UPDATE, frozen, answer) for answer in answers]
    acting.evidence["read_again"] = [answer.id for answer in answers]
    if not any(verdict.disposition is Disposition.FINALIZE for verdict in verdicts):
        raise acting.refuse(
            "No stored answer, read again, says that the update was applied.",
            answers=[{"id": a.id, "effect": v.effect.value} for a, v in zip(answers, verdicts, strict=True)],
        )
    return _settled(acting, None)


def resend(acting: Acting) -> Effects:
    """Give the doubtful update up and make one of the newest version; the remote may get the same values twice."""
    link = acting.subject.link
    if link is None or link.status not in USABLE_LINKS:
        raise acting.refuse("The link of this update is not usable: revalidate or retire it first.")
    require_settled(acting, _profile(acting))
    slots.forget_applied(acting.conn, [acting.subject.slot.link_key])
    moved = move_attempt(acting, UpdateEvent.RESEND, reason_code=Code.OPERATOR_DECISION, in_doubt=False)
    made = insert_due_update(acting, beyond=acting.subject.slot.acknowledged_version)
    if made is None:
        acting.notes.append("Nothing newer than what the remote acknowledged or refused is wanted.")
    return Effects(status=moved.status.value, row_version=moved.row_version, made=made)


def release_version(acting: Acting) -> Effects:
    """Let the version that the remote refused be sent once more, as an update that is due now (D-19)."""
    slot, link, row = acting.subject.slot, acting.subject.link, acting.attempt
    if row.association is not None:
        return _call_again(acting, row.association)
    if slot.refused_version != row.version or slot.wanted_version != row.version:
        raise acting.refuse(
            "That version is not the refused one any more.",
            version=row.version,
            wanted_version=slot.wanted_version,
            refused_version=slot.refused_version,
        )
    if link is None or link.status not in USABLE_LINKS:
        raise acting.refuse("The link of this update is not usable: revalidate or retire it first.")
    slots.release_refused(acting.conn, slot.link_key)
    made = insert_due_update(acting, beyond=slot.acknowledged_version)
    acting.evidence["version"] = row.version
    return Effects(status=row.status.value, row_version=row.row_version, made=made)


def _settled(acting: Acting, code: Code | None) -> Effects:
    row, slot = acting.attempt, acting.subject.slot
    if row.association is not None:
        return _call_settled(acting, row.association, code)
    [request] = requests.read_requests(acting.conn, [row.id])
    digest = request.values_digest if request is not None else None
    moved = move_attempt(acting, UpdateEvent.SETTLE_APPLIED, reason_code=code, in_doubt=False)
    said = Acknowledgement(link_key=slot.link_key, version=row.version, values_digest=digest)
    slots.acknowledge_versions(acting.conn, [said])
    acting.evidence["acknowledged_version"] = row.version
    link = acting.subject.link
    is_usable = link is not None and link.status in USABLE_LINKS
    made = insert_due_update(acting, beyond=row.version) if is_usable else None
    return Effects(status=moved.status.value, row_version=moved.row_version, made=made)


def _call_settled(acting: Acting, association: str, code: Code | None) -> Effects:
    """An association's call was applied: nothing of the record's versions is said by that."""
    slot, link = acting.subject.slot, acting.subject.link
    moved = move_attempt(acting, UpdateEvent.SETTLE_APPLIED, reason_code=code, in_doubt=False)
    _write_called(acting, association, told=True)
    acting.evidence["association"] = association
    is_usable = link is not None and link.status in USABLE_LINKS
    made = insert_due_update(acting, beyond=slot.acknowledged_version) if is_usable else None
    return Effects(status=moved.status.value, row_version=moved.row_version, made=made)


def _call_again(acting: Acting, association: str) -> Effects:
    """Let an association's call that the remote refused be made once more."""
    slot, link, row = acting.subject.slot, acting.subject.link, acting.attempt
    if link is None or link.status not in USABLE_LINKS:
        raise acting.refuse("The link of this call is not usable: revalidate or retire it first.")
    _write_called(acting, association, told=False)
    acting.evidence["association"] = association
    made = insert_due_update(acting, beyond=slot.acknowledged_version)
    return Effects(status=row.status.value, row_version=row.row_version, made=made)


def _write_called(acting: Acting, association: str, *, told: bool) -> None:
    slot = acting.subject.slot
    called = read_called(slot.called_associations)
    [request] = requests.read_requests(acting.conn, [acting.attempt.id])
    vector = () if request is None else read_vector(request.association_vector)
    entry = next((each for each in vector if each is not None and each.name == association), None)
    if told and entry is not None:
        called[association] = entry.record_id
    elif not told:
        called.pop(association, None)
    slots.write_called(acting.conn, [(slot.link_key, write_called(called))])


def _profile(acting: Acting) -> ProfileSnapshot:
    """What the update spoke to; one that was never rendered speaks to what its link was validated with."""
    [request] = requests.read_requests(acting.conn, [acting.attempt.id])
    link = acting.subject.link
    wanted = request.profile_digest if request is not None else link.profile_digest if link is not None else None
    if wanted is None:
        raise acting.refuse("Nothing says which profile this update speaks to.")
    profiles, _ = acting.world.thaw(acting.conn, [wanted], [])
    return profiles[wanted]
