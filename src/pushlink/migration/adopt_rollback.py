"""Adoption, taken back: the links of one operation that nothing has touched since are retired, and their slots freed.

A link that was changed, a record that was saved, an update that was made: each keeps its link, and is named. Nothing
in the host's records changes, and nothing is sent; another plan may adopt the same records again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final, TypeAlias

from pushlink.errors import CallerError, Code, Contended
from pushlink.flows.world import World
from pushlink.migration import batches
from pushlink.protocol.adoption_receipts import AdoptionReceipt, Deed, newest, seal
from pushlink.protocol.manifest import row_digest
from pushlink.protocol.snapshots import LinkKey
from pushlink.protocol.states import LinkEvent, LinkStatus, follow_link
from pushlink.store import adoption as rows
from pushlink.store import attempts, decisions, lifecycle, slots
from pushlink.store.access import Connection, Engine, reading
from pushlink.store.attempts import OpenAttempts
from pushlink.store.audit import OperatorAction, record_actions
from pushlink.store.chains import left_receipts
from pushlink.store.lifecycle import LinkMove
from pushlink.store.revalidation import HeldLink, lock_holders
from pushlink.store.rows import SlotRow

#: The version of a link's row that nobody has changed since it was made.
_UNTOUCHED: Final = 1


class Stays(StrEnum):
    """Why an adopted link is not taken back."""

    LINK_CHANGED = "link_changed"  # suspended, retired, relocated, revalidated, or moved by a manifest
    RECORD_SAVED = "record_saved"  # something was wanted of the record since, or its deletion was told
    UPDATE_MADE = "update_made"  # an update of the link is open
    RECEIPTS_BROKEN = "receipts_broken"


#: Told of each adoption of the operation: its receipt, what became of it, and a detail for people.
OnResult: TypeAlias = Callable[[AdoptionReceipt, str, str], None]

ROLLED_BACK: Final = "rolled_back"
ALREADY: Final = "already_rolled_back"


@dataclass(slots=True, kw_only=True)
class RolledBack:
    """What one run came to; `refused` counts links that stay, by reason."""

    operation_id: str
    links: int
    rolled_back: int = 0
    already_rolled_back: int = 0
    refused: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """Who takes an operation back, and why. `approver` is another principal who agrees."""

    operation_id: str
    tenant: str
    actor: str
    reason: str
    approver: str | None = None


def roll_back(
    engine: Engine,
    world: World,
    ordered: Ordered,
    *,
    on_progress: Callable[[int, int], None] | None = None,
    on_result: OnResult | None = None,
) -> RolledBack:
    """Take back what an operation adopted, batch by batch; a run that was killed goes on by the same call.

    Raises `CallerError` for an operation that adopted nothing for this tenant, `Contended` as an apply does.
    """
    with reading(engine) as conn:
        total = rows.count_adopted(conn, ordered.operation_id, tenant=ordered.tenant)
    if not total:
        raise CallerError(
            f"No operation {ordered.operation_id!r} has adopted anything for this tenant.",
            code=Code.RECORD_UNKNOWN,
            evidence={"tenant": ordered.tenant},
            next_step="the operation id stands in the first line of the manifest",
        )
    done = RolledBack(operation_id=ordered.operation_id, links=total)
    place: LinkKey | None = None
    count = 0
    while found := batches.commit(engine, partial(_take_back, world, ordered, place)):
        for receipt, result, detail in found:
            match result:
                case "rolled_back":
                    done.rolled_back += 1
                case "already_rolled_back":
                    done.already_rolled_back += 1
                case _:
                    done.refused[result] += 1
            if on_result is not None:
                on_result(receipt, result, detail)
        place = found[-1][0].link_key
        count += len(found)
        if on_progress is not None:
            on_progress(count, total)
    return done


def _take_back(
    world: World, ordered: Ordered, place: LinkKey | None, conn: Connection
) -> list[tuple[AdoptionReceipt, str, str]]:
    return _Batch(conn, world, ordered).through(place)


class _Batch:
    """One batch in one transaction."""

    def __init__(self, conn: Connection, world: World, ordered: Ordered) -> None:
        self._conn = conn
        self._world = world
        self._ordered = ordered
        self._now = world.clock.now(conn)

    def through(self, place: LinkKey | None) -> list[tuple[AdoptionReceipt, str, str]]:
        """Lock, judge, write; each adoption with its result."""
        conn, ordered = self._conn, self._ordered
        adopted = rows.read_adopted(conn, ordered.operation_id, tenant=ordered.tenant, after=place, limit=batches.SIZE)
        keys = [receipt.link_key for receipt in adopted]
        opened = dict(zip(keys, slots.lock_slots(conn, keys, nowait=False), strict=True))
        held = lock_holders(conn, keys)
        standing = dict(zip(keys, attempts.read_open_attempts(conn, keys), strict=True))
        histories = rows.read_histories(conn, keys)
        answers: list[tuple[AdoptionReceipt, str, str]] = []
        free: list[tuple[AdoptionReceipt, HeldLink, SlotRow, AdoptionReceipt]] = []
        for receipt in adopted:
            key = receipt.link_key
            last, slot, link = newest(histories[key]), opened[key], held.get(key)
            deeds = {one.deed for one in histories[key] if one.operation_id == ordered.operation_id}
            if isinstance(last, str):
                answers.append((receipt, Stays.RECEIPTS_BROKEN.value, last))
            elif Deed.ROLL_BACK.value in deeds:
                answers.append((receipt, ALREADY, ""))
            elif (stays := _stays(receipt, link, slot, standing[key])) is not None:
                answers.append((receipt, stays[0].value, stays[1]))
            elif link is not None and slot is not None and last is not None:
                answers.append((receipt, ROLLED_BACK, ""))
                free.append((receipt, link, slot, last))
        if free:
            self._release(free)
        return answers

    def _release(self, free: Sequence[tuple[AdoptionReceipt, HeldLink, SlotRow, AdoptionReceipt]]) -> None:
        """Retire and release each link, as an operator's verbs would, with receipts and audit."""
        finalized = follow_link(None, LinkEvent.FINALIZE)
        self._move([receipt for receipt, _, _, _ in free], LinkEvent.RETIRE, finalized, _UNTOUCHED)
        retired = follow_link(finalized, LinkEvent.RETIRE)
        self._move([receipt for receipt, _, _, _ in free], LinkEvent.RELEASE_SLOT, retired, _UNTOUCHED + 1)
        for _, _, slot, _ in free:
            if slot.wanted_version:
                slots.reset_versions(self._conn, slot.link_key)
        self._let_go({receipt.link_key for receipt, _, _, _ in free})
        rows.insert_receipts(self._conn, [self._receipt(*one) for one in free])
        keys = [receipt.link_key for receipt, _, _, _ in free]
        action = OperatorAction(
            tenant=self._ordered.tenant,
            actor=self._ordered.actor,
            approver=self._ordered.approver,
            verb="adopt_rollback",
            reason=self._ordered.reason,
            target_kind="manifest",
            target_id=self._ordered.operation_id,
            after={"links": len(keys), "first": keys[0], "last": keys[-1]},
        )
        record_actions(self._conn, [left_receipts(self._conn, action, now=self._now)], now=self._now)

    def _move(
        self, receipts: Sequence[AdoptionReceipt], event: LinkEvent, status: LinkStatus, row_version: int
    ) -> None:
        moves = [
            LinkMove(
                link_id=receipt.link_id,
                link_key=receipt.link_key,
                tenant=receipt.tenant,
                status=status,
                row_version=row_version,
                event=event,
                actor=f"operator:{self._ordered.actor}",
                reason_code=Code.OPERATOR_DECISION,
                evidence={"said": self._ordered.reason, "operation_id": receipt.operation_id},
            )
            for receipt in receipts
        ]
        if not all(lifecycle.move_links(self._conn, moves, now=self._now)):
            raise Contended("A link was changed under its lock.", next_step="run it again")

    def _let_go(self, keys: set[LinkKey]) -> None:
        """Attempts that waited for a remote record which these links have given up may go on."""
        for row in rows.read_waiting_for(self._conn, self._ordered.tenant):
            owner = json.loads(row.detail).get("owner_link_key") if row.detail else None
            if owner in keys:
                detail = {"said": self._ordered.reason}
                decisions.clear_hold(
                    self._conn, row, detail=detail, actor=f"operator:{self._ordered.actor}", now=self._now
                )

    def _receipt(
        self, adopted: AdoptionReceipt, link: HeldLink, slot: SlotRow, last: AdoptionReceipt
    ) -> AdoptionReceipt:
        after = {**link.row, "status": "retired", "locator_key": None, "slot_key": None}
        draft = {
            "operation_id": adopted.operation_id,
            "link_key": adopted.link_key,
            "deed": Deed.ROLL_BACK.value,
            "tenant": adopted.tenant,
            "link_id": adopted.link_id,
            "source_object": adopted.source_object,
            "source_record_id": adopted.source_record_id,
            "remote_id": adopted.remote_id,
            "manifest_digest": adopted.manifest_digest,
            "record_digest": adopted.record_digest,
            "row_digest": row_digest(after),
            "slot_version": slot.row_version + bool(slot.wanted_version),
            "actor": self._ordered.actor,
            "reason": self._ordered.reason,
            "applied_at": self._now,
        }
        return seal(draft, last)


def _stays(
    receipt: AdoptionReceipt, link: HeldLink | None, slot: SlotRow | None, standing: OpenAttempts
) -> tuple[Stays, str] | None:
    """What was done since, if anything was."""
    if link is None or link.row["id"] != receipt.link_id:
        return Stays.LINK_CHANGED, "the link has given up its slot"
    if link.row_version != _UNTOUCHED or row_digest(link.row) != receipt.row_digest:
        return Stays.LINK_CHANGED, f"the link is {link.row['status']} and not as the adoption left it"
    if slot is None or slot.row_version != receipt.slot_version:
        return Stays.RECORD_SAVED, "the record was saved, or its deletion was told, since the adoption"
    update = standing.update or standing.create
    if update is not None:
        return Stays.UPDATE_MADE, f"{update.operation.value} {update.id} is {update.status.value}"
    return None
