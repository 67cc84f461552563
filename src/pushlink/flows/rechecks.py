"""What the checkpoint's transaction checks again, and what becomes of an attempt that may not be sent any more (D-21).

Between the claim that validated a row and its checkpoint the world may have moved: the catalogue, the record, the
credential, the link, or the clock past the end of a replay contract.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final

import sqlalchemy as sa

from pushlink.errors import Code
from pushlink.flows.replaying import later
from pushlink.flows.step_items import Permission
from pushlink.protocol.snapshots import ClaimToken, LinkKey
from pushlink.protocol.states import USABLE_LINKS, CreateEvent, Operation, UpdateEvent
from pushlink.protocol.waiting import Target
from pushlink.store import attempts
from pushlink.store.lifecycle import Claims, Move
from pushlink.store.rows import LinkRow

_SOURCE_GONE: Final = "the source record is gone"
_EXPIRED: Final = "the replay contract's lifetime is over"
_TOO_LATE: Final = "what is left of the lease is too short for the request"

#: What has no way back: the attempt ends, or is parked when it is in doubt.
_ENDS: Final[Mapping[str, Code]] = {_SOURCE_GONE: Code.SOURCE_GONE, _EXPIRED: Code.REPLAY_EXPIRED}


def what_changed(
    item: Permission,
    revision: int,
    exists: bool,
    link: LinkRow | None,
    generations: Mapping[tuple[str, str], str],
    now: dt.datetime,
) -> str | None:
    """What is no longer as it was validated, in words; `None` when the send may go on."""
    if item.replay_until is not None and now >= item.replay_until:
        return _EXPIRED
    if revision != item.catalog_revision:
        return "the catalogue changed"
    if not exists:
        return _SOURCE_GONE
    if item.credential_ref is not None:
        generation = generations[item.credential_ref, item.attempt.tenant]
        if generation != item.credential_generation:
            return "the credential changed"
    if item.link_id is None:
        return None
    if link is None or link.id != item.link_id or link.row_version != item.link_version:
        return "the link changed"
    return "the mapping was revalidated" if link.mapping_fingerprint != item.link_mapping else None


def moved_target(targets: Sequence[Target], locked: Mapping[LinkKey, LinkRow]) -> str | None:
    """Whether a record that the request names has another remote record by now, or none (D-31)."""
    for reference in (target.reference for target in targets):
        link = locked.get(reference.link_key)
        is_same = link is not None and (link.id, link.remote_id) == (reference.link_id, reference.remote_id)
        if link is None or not is_same or link.status not in USABLE_LINKS:
            return f"the remote record of {reference.source_object} {reference.record_id} is another one"
    return None


def out_of_time(conn: sa.Connection, refused: Sequence[Permission]) -> dict[ClaimToken, str]:
    """Of the claims that were refused their checkpoints, those that live and never had one: nobody else has the row.

    Their time went by in a queue or in a slow database, which says nothing about the row; so they give it back, and
    the claim does not count. One that may have had its checkpoint (a commit of unknown outcome) is left to recovery.
    """
    rows = attempts.read_attempts(conn, [item.attempt.id for item in refused])
    return {
        item.token: _TOO_LATE
        for item, row in zip(refused, rows, strict=True)
        if row is not None and row.claim_token == item.token and row.remote_io_started_at is None
    }


def withdrawal(item: Permission, change: str, now: dt.datetime) -> Move:
    """The move of an attempt that may not be sent: given back, or ended when there is nothing left to send."""
    attempt = item.attempt
    is_create, is_over = attempt.operation is Operation.CREATE, change in _ENDS
    event: CreateEvent | UpdateEvent
    if not is_over:
        event = CreateEvent.GIVE_BACK if is_create else UpdateEvent.GIVE_BACK
    elif is_create:
        event = CreateEvent.DOUBT if attempt.in_doubt else CreateEvent.FAIL_VALIDATION
    else:
        event = UpdateEvent.OBSOLETE
    return Move(
        row=attempt,
        event=event,
        token=item.token,
        actor=item.actor,
        reason_code=_ENDS.get(change, Code.GIVEN_BACK),
        detail={"source_object": item.source.source_object} if change == _SOURCE_GONE else {"because": change},
        look_up_at=later(now, item.look_up_ms),
        claims=Claims.RESET if is_over else Claims.FORGIVE,
    )
