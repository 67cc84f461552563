"""Slots for people: what there is and what stands under it, what replaces nothing, and the end of a whole slot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from pushlink.errors import CallerError, Code, PushlinkError
from pushlink.flows.operating import REASON_LENGTH_MAX
from pushlink.flows.world import World
from pushlink.operations.actions import Decision, OperatorTerms, act
from pushlink.protocol.snapshots import LinkKey
from pushlink.protocol.verbs import Verb
from pushlink.store import catalog, ownership
from pushlink.store.access import Connection
from pushlink.store.ownership import Owned
from pushlink.store.registry import read_registry
from pushlink.store.rows import LinkRow

#: Links that are read at a time; each is retired in a transaction of its own.
PAGE: Final = 200

#: Creates that are named when they keep a slot from being over.
LEFT_SHOWN_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotView:
    """One slot that was ever seen. Links and creates are those that still own something, of an action slot."""

    kind: str
    slot_id: str
    name: str
    source_object: str | None
    connector_owner_key: str
    status: str
    destination_slot_id: str | None  # where an action pushes to now
    former_destinations: tuple[str, ...]
    successor: str | None
    links: int
    creates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotList:
    """Every slot of a tenant, and the revision of the catalogue that it was read at."""

    catalog_revision: int
    slots: tuple[SlotView, ...]


def list_slots(conn: Connection, *, tenant: str = "") -> SlotList:
    """Every slot of a tenant, those that are gone too."""
    owned = ownership.count_owned(conn, tenant=tenant)
    views = []
    for slot in read_registry(conn, tenant=tenant):
        of = owned.get(slot.slot_id, Owned()) if slot.kind.value == "action" else Owned()
        former = [stay.destination_slot_id for stay in slot.stays if stay.until is not None]
        views.append(
            SlotView(
                kind=slot.kind.value,
                slot_id=slot.slot_id,
                name=slot.display_name,
                source_object=slot.source_object,
                connector_owner_key=slot.connector_owner_key,
                status=slot.status.value,
                destination_slot_id=slot.destination_slot_id,
                former_destinations=tuple(dict.fromkeys(former)),
                successor=slot.successor_slot_id,
                links=of.links,
                creates=of.creates,
            )
        )
    return SlotList(catalog_revision=catalog.catalog_revision(conn), slots=tuple(views))


# ------------------------------------------------------------------------------------------------ independence


@dataclass(frozen=True, slots=True, kw_only=True)
class Independent:
    """What a declaration came to: the slots beside which new records are created from now on."""

    slot: str
    status: str
    beside: tuple[str, ...]


def declare_independent(
    conn: Connection, world: World, slot: str, *, tenant: str, actor: str, reason: str, catalog_revision: int
) -> Independent:
    """Say that an action slot replaces none of those that ended until now (D-29)."""
    _require_words("declare-independent", actor, reason)
    beside = catalog.declare_independent(
        conn,
        tenant=tenant,
        action_slot_id=slot,
        reason=reason,
        actor=actor,
        now=world.clock.now(conn),
        seen_revision=catalog_revision,
    )
    return Independent(slot=slot, status="independent", beside=beside)


# ------------------------------------------------------------------------------------------------ the end of a slot


@dataclass(frozen=True, slots=True, kw_only=True)
class RetireSlot:
    """Which slot to retire, and what the operator saw: no more links than the dry run counted."""

    tenant: str
    slot: str
    links: int | None  # None for a dry run, which counts them
    actor: str
    reason: str
    approver: str | None = None
    release: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RetiredRow:
    """What became of one link, or one create that stands in the way."""

    kind: str  # link or create
    id: str
    source_object: str
    record_id: str
    remote_id: str | None
    outcome: str  # done, refused or left
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRetired:
    """What became of a slot. `status` is the one that it has in the registry afterwards."""

    slot: str
    applied: bool
    links: int
    done: int
    refused: int
    left: int
    status: str
    retired: tuple[RetiredRow, ...]


Transaction = Callable[[], AbstractContextManager[Connection]]

#: Told after each link: how many are done with.
OnProgress = Callable[[int], None]


def retire_slot(
    transaction: Transaction,
    world: World,
    asked: RetireSlot,
    *,
    terms: OperatorTerms,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> SlotRetired:
    """Retire every link of a slot, each in a transaction of its own, and end the slot when nothing is left of it.

    A dry run makes each decision and takes it back. The same call after a kill goes on with what is left; a link that
    changes in between is refused in its own row and costs the others nothing. Creates that are not over are named:
    what became of their requests is for `reconcile`, `abandon` and `supersede` to say.
    """
    _require_words("retire", asked.actor, asked.reason)
    with transaction() as conn:
        found = ownership.count_owned(conn, tenant=asked.tenant).get(asked.slot, Owned())
        _require_known(conn, asked)
    if not dry_run and found.links > (asked.links or 0):
        raise CallerError(
            "The slot has more links than were looked at; nothing was done.",
            code=Code.STALE_VERSION,
            evidence={"seen": asked.links, "current": found.links},
            next_step=f"look at it again: pushlink retire --slot {asked.slot} --dry-run",
        )
    rows: list[RetiredRow] = []
    after: LinkKey | None = None
    while page := _page(transaction, asked, after):
        for link in page:
            rows.append(_retire(transaction, world, asked, link, terms, dry_run=dry_run))
            if on_progress is not None:
                on_progress(len(rows))
        after = page[-1].link_key
    done, refused = (sum(row.outcome == outcome for row in rows) for outcome in ("done", "refused"))
    with transaction() as conn:
        left = ownership.read_open_creates(conn, tenant=asked.tenant, action_slot_id=asked.slot, limit=LEFT_SHOWN_MAX)
        rows += [
            RetiredRow(
                kind="create",
                id=one.attempt.id,
                source_object=one.source_object,
                record_id=one.source_record_id,
                remote_id=one.attempt.remote_id,
                outcome="left",
                code=one.attempt.hold_code or one.attempt.reason_code,
                message=f"The create is {one.attempt.status.value}; it has to be settled by itself.",
            )
            for one in left
        ]
        status = _end(conn, world, asked, dry_run=dry_run)
    return SlotRetired(
        slot=asked.slot,
        applied=not dry_run,
        links=found.links,
        done=done,
        refused=refused,
        left=len(left),
        status=status,
        retired=tuple(rows),
    )


def _page(transaction: Transaction, asked: RetireSlot, after: LinkKey | None) -> list[LinkRow]:
    with transaction() as conn:
        return ownership.read_live_links(conn, tenant=asked.tenant, action_slot_id=asked.slot, after=after, limit=PAGE)


def _retire(
    transaction: Transaction, world: World, asked: RetireSlot, link: LinkRow, terms: OperatorTerms, *, dry_run: bool
) -> RetiredRow:
    decision = Decision(
        verb=Verb.RETIRE,
        target_id=link.id,
        row_version=link.row_version,
        actor=asked.actor,
        reason=asked.reason,
        tenant=asked.tenant,
        approver=asked.approver,
        release=asked.release,
    )
    code: str | None = None
    message: str | None = None
    try:
        with transaction() as conn:
            alone = conn.begin_nested()
            act(conn, world, decision, terms=terms, now=world.clock.now(conn))
            if dry_run:
                alone.rollback()
    except PushlinkError as error:
        code, message = error.code.value, error.message
    return RetiredRow(
        kind="link",
        id=link.id,
        source_object=link.source_object,
        record_id=link.source_record_id,
        remote_id=link.remote_id,
        outcome="done" if code is None else "refused",
        code=code,
        message=message,
    )


def _require_known(conn: Connection, asked: RetireSlot) -> None:
    if not any(slot.slot_id == asked.slot for slot in list_slots(conn, tenant=asked.tenant).slots):
        raise CallerError(
            f"There is no slot {asked.slot!r} for this tenant.",
            code=Code.RECORD_UNKNOWN,
            evidence={"tenant": asked.tenant},
            next_step="pushlink slot list",
        )


def _end(conn: Connection, world: World, asked: RetireSlot, *, dry_run: bool) -> str:
    if dry_run:
        found = list_slots(conn, tenant=asked.tenant).slots
        return next(slot.status for slot in found if slot.slot_id == asked.slot)
    return catalog.retire_slot(
        conn,
        tenant=asked.tenant,
        action_slot_id=asked.slot,
        reason=asked.reason,
        actor=asked.actor,
        now=world.clock.now(conn),
    )


def _require_words(verb: str, actor: str, reason: str) -> None:
    if not actor.strip() or not reason.strip():
        raise CallerError(f"{verb} needs an actor and a reason.", next_step="say who does it and why")
    if len(reason) > REASON_LENGTH_MAX:
        raise CallerError(f"A reason has {REASON_LENGTH_MAX} characters at most.", next_step="name the evidence")
