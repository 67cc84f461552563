"""Links follow the ids of their records: what an applied update does to a link whose remote record has a new id.

It happens in the transaction that stores the answer and acknowledges the version, under the slot's lock. A remote
record that another live link owns is never taken over: the update parks as a conflict, its link is suspended, and a
person relocates or retires one of the two.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

import sqlalchemy as sa

from pushlink.errors import Code, Contended
from pushlink.flows.step_items import Answer, NewId
from pushlink.protocol.states import USABLE_LINKS, LinkEvent, UpdateEvent
from pushlink.store import lifecycle, links
from pushlink.store.dialect import is_unique_violation
from pushlink.store.lifecycle import LinkMove
from pushlink.store.links import Relocation
from pushlink.store.rows import LinkRow

_MEANWHILE: Final = {"because": "the link was changed while its update was on the wire"}


def relocate_links(conn: sa.Connection, items: Sequence[Answer], *, now: dt.datetime) -> list[Answer]:
    """The same answers, each with its new id written on its link, or turned into the conflict that it is."""
    moving = sorted((item for item in items if item.new_id is not None), key=attrgetter("attempt.link_key"))
    if not moving:
        return list(items)
    there = links.read_links(conn, [item.attempt.link_key for item in moving], lock=True)
    owners = links.read_locators(conn, [item.new_id.locator_key for item in moving if item.new_id is not None])
    parked: dict[str, Answer] = {}
    fit: list[tuple[Answer, NewId, LinkRow]] = []
    claimed: dict[str, LinkRow] = {}  # within this very group, where no statement has written yet
    for item, link, other in zip(moving, there, owners, strict=True):
        new_id = item.new_id
        if new_id is None:
            continue
        owner = other or claimed.get(new_id.locator_key)
        if link is None or not _is_as_judged(item, link):
            parked[item.attempt.id] = _conflict(item, Code.REMOTE_CHANGED, _MEANWHILE)
        elif owner is not None and owner.id != link.id:
            parked[item.attempt.id] = _conflict(item, Code.LOCATOR_CONFLICT, _both(new_id, link, owner))
        else:
            claimed[new_id.locator_key] = link
            fit.append((item, new_id, link))
    _write(conn, fit, now)
    return [parked.get(item.attempt.id, item) for item in items]


def _is_as_judged(item: Answer, link: LinkRow) -> bool:
    """Whether nobody suspended, retired or relocated the link while its update was on the wire."""
    before = item.link_before
    return link.status in USABLE_LINKS and before is not None and before.remote_id == link.remote_id


def _conflict(item: Answer, code: Code, facts: Mapping[str, object]) -> Answer:
    """The update was applied, and its record is not the link's to update any more: a person decides."""
    named = {"candidates": [item.new_id.remote_id]} if item.new_id is not None else {}
    return replace(
        item,
        event=UpdateEvent.REMOTE_CONFLICT,
        reason_code=code,
        detail={**(item.detail or {}), **named, **facts},
        suspends=True,
        forgets_version=False,
        names=None,
    )


def _both(new_id: NewId, link: LinkRow, owner: LinkRow) -> dict[str, object]:
    """Both owners of one remote record (LK-07)."""
    return {
        "remote_id": new_id.remote_id,
        "owner_link_key": owner.link_key,
        "owner_record": f"{owner.source_object} {owner.source_record_id}",
        "claimed_by_link_key": link.link_key,
    }


def _write(conn: sa.Connection, fit: Sequence[tuple[Answer, NewId, LinkRow]], now: dt.datetime) -> None:
    moved = lifecycle.move_links(conn, [_move(*each) for each in fit], now=now)
    try:
        written = links.write_relocations(conn, [_relocation(new_id, link) for _, new_id, link in fit], now=now)
    except sa.exc.IntegrityError as error:
        if not is_unique_violation(error):
            raise
        msg = "Another link got the remote record while an answer was written."
        raise Contended(msg) from error  # the next try reads whose it is
    if not all(moved) or not all(written):
        msg = "A link was changed while an answer was written."
        raise Contended(msg)


def _move(item: Answer, new_id: NewId, link: LinkRow) -> LinkMove:
    return LinkMove(
        link_id=link.id,
        link_key=link.link_key,
        tenant=link.tenant,
        status=link.status,
        row_version=link.row_version,
        event=LinkEvent.RELOCATE,
        actor=item.actor,
        attempt_id=item.attempt.id,
        evidence={
            "because": "the answer to an update shows the record under another id",
            "locators": {
                "old": {"remote_id": link.remote_id, "locator_key": link.locator_key},
                "new": {"remote_id": new_id.remote_id, "locator_key": new_id.locator_key},
            },
        },
    )


def _relocation(new_id: NewId, link: LinkRow) -> Relocation:
    return Relocation(
        link_id=link.id,
        row_version=link.row_version + 1,  # after the move
        remote_id=new_id.remote_id,
        remote_id_canonical=new_id.canonical_id,
        locator_key=new_id.locator_key,
    )
