"""Slot rebinding: make a manifest that moves all rows of one slot to another, rehearse it, and apply it (MG-07).

`apply` is the only mutation: one transaction that moves every row of the old slot with its new key, appends a receipt
for each record, and enters the successor in the registry, so that the old slot cannot be used again; or it leaves
everything as it was. What a move may meet is locked before anything is judged. A repeat only verifies. Statuses stay:
a link that is suspended is revalidated afterwards, by its own verb.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pushlink.errors import CallerError, Code
from pushlink.migration.batches import batches
from pushlink.migration.running import Now, OnProgress, Verdict, contention
from pushlink.protocol.documents import Approval
from pushlink.protocol.identity import link_key
from pushlink.protocol.rebind_receipts import (
    Conflict,
    Facts,
    InTheWay,
    conflict,
    judge_member,
    judge_repeat,
    receipt_of,
)
from pushlink.protocol.rebinding import Member, Rebind, Standing, member_of, moved, new_rebind, parts_of
from pushlink.protocol.snapshots import Digest, LinkKey, Slots
from pushlink.store import rebinds as rows
from pushlink.store.access import Connection, Engine, reading, writing
from pushlink.store.active import ActiveAction, CatalogReader
from pushlink.store.audit import OperatorAction, record_actions
from pushlink.store.chains import left_receipts
from pushlink.store.registry import SlotKind
from pushlink.store.revalidation import announce, lock_catalog, rehearsing

#: How long one lock is waited for. Workers hold theirs for milliseconds; whoever holds one longer is to go first.
LOCK_WAIT_MS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Which slot is to move where. What is left out of the old one is filled in when only one thing can be meant."""

    tenant: str
    from_action: str
    to_action: str
    from_destination: str | None = None
    from_owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One run of a manifest. `links` and `attempts` are rows that moved, or would; a repeat counts none."""

    verdict: Verdict
    operation_id: str
    digest: Digest
    members: int
    links: int
    attempts: int
    old: Slots
    new: Slots
    old_status: str | None  # of the old action slot in the registry, once it is applied


# ------------------------------------------------------------------------------------------------ making


def plan(
    engine: Engine, ask: Ask, *, operation_id: str, reason: str, approval: Approval, now: Now
) -> tuple[Rebind, Done]:
    """The manifest that moves everything of one slot to another, and what it would move; nothing is written.

    Raises `CallerError` with every record that is in the way.
    """
    with reading(engine) as conn:
        at = now(conn)
        old, new = _identities(conn, ask)
        members: list[Member] = []
        for batch in batches(list(rows.read_population(conn, old).items())):
            standing = rows.read_standing(conn, [key for key, _ in batch], now=at)
            members += [member_of(new, record, key, standing[key]) for key, record in batch]
    manifest = new_rebind(
        operation_id=operation_id, reason=reason, approval=approval, old=old, new=new, members=members
    )
    return manifest, apply(engine, manifest, actor=approval.who, now=now, dry_run=True)


def _identities(conn: Connection, ask: Ask) -> tuple[Slots, Slots]:
    """The old and the new identity; raises `CallerError` where more than one thing could be meant."""
    catalog = CatalogReader().read(conn)
    target = next((a for a in catalog.all_actions() if _is_of(a, ask.tenant, ask.to_action)), None)
    if target is None:
        raise _refused(f"No action of an installed pack has the slot {ask.to_action!r}.", "pushlink pack list")
    new = target.slots
    found = [
        slots
        for slots in rows.read_identities(conn, tenant=ask.tenant, action_slot_id=ask.from_action)
        if slots != new
        and ask.from_destination in {None, slots.destination_slot_id}
        and ask.from_owner in {None, slots.connector_owner_key}
    ]
    if len(found) > 1:
        places = ", ".join(f"{s.connector_owner_key}: {s.destination_slot_id}" for s in found)
        raise _refused(
            f"Rows of {ask.from_action!r} stand under several identities ({places}).",
            "name one with --from-destination (and --from-owner), one manifest for each",
        )
    if found:
        return found[0], new
    known = catalog.registered(ask.tenant, SlotKind.ACTION, ask.from_action)
    if known is not None:
        raise _refused(f"Nothing stands under the slot {ask.from_action!r}.", "pushlink slot list")
    # An action of before there were slots: nothing stands under its name here, and its name becomes lineage.
    old = Slots(
        tenant=ask.tenant,
        connector_owner_key=ask.from_owner or new.connector_owner_key,
        action_slot_id=ask.from_action,
        destination_slot_id=ask.from_destination or new.destination_slot_id,
        source_object=new.source_object,
    )
    return old, new


def _is_of(action: ActiveAction, tenant: str, action_slot_id: str) -> bool:
    return (action.slots.tenant, action.slots.action_slot_id) == (tenant, action_slot_id)


def _refused(message: str, next_step: str) -> CallerError:
    return CallerError(message, code=Code.NOT_ALLOWED_NOW, next_step=next_step)


# ------------------------------------------------------------------------------------------------ running


def apply(
    engine: Engine,
    manifest: Rebind,
    *,
    actor: str,
    now: Now,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> Done:
    """Apply the manifest whole, in one transaction; applied already, only verify that. A dry run rolls back.

    Raises `CallerError` (`not_allowed_now`) with every record that is in the way, and `Contended` when somebody held a
    row too long. Nothing is written then.
    """
    transaction = rehearsing(engine) if dry_run else writing(engine)
    with contention(), transaction as conn:
        run = _Run(conn=conn, manifest=manifest, actor=actor, now=now(conn), on_progress=on_progress)
        return run.through(write=not dry_run)


@dataclass(slots=True, kw_only=True)
class _Run:
    """One manifest in one transaction."""

    conn: Connection
    manifest: Rebind
    actor: str
    now: dt.datetime
    on_progress: OnProgress | None
    conflicts: list[Conflict] = field(default_factory=list)
    links: int = 0
    attempts: int = 0

    def through(self, *, write: bool) -> Done:
        """Lock, judge every member, and only then write, unless one is in the way."""
        manifest = self.manifest
        lock_catalog(self.conn, wait_ms=LOCK_WAIT_MS)
        applied = rows.read_operation(self.conn, manifest.operation_id)
        if applied is not None:
            self._verify(applied)
            return self._done(Verdict.ALREADY_APPLIED, None)
        target = self._require_slots()
        self._lock_slots()
        self._require_all_listed()
        for batch in batches(manifest.members):
            self._judge(batch)
        self._refuse_conflicts()
        if not write:
            return self._done(Verdict.APPLICABLE, None)
        done = 0
        for batch in batches(manifest.members):
            self._move(batch)
            done += len(batch)
            if self.on_progress is not None:
                self.on_progress(done)
        self._refuse_conflicts()
        return self._done(Verdict.APPLIED, self._conclude(target))

    def _require_slots(self) -> ActiveAction:
        """The new slot is one of the catalogue, and the old one is none any more."""
        catalog, manifest = CatalogReader().read(self.conn), self.manifest
        target = catalog.find(manifest.new)
        if target is None:
            raise self._refusal(f"no action of an installed pack has the slot {_shown(manifest.new)}")
        if catalog.find(manifest.old) is not None:
            raise self._refusal(f"the slot {_shown(manifest.old)} is in use: take it out of its pack first")
        known = catalog.registered(manifest.tenant, SlotKind.ACTION, manifest.old.action_slot_id)
        if known is not None and known.source_object != manifest.old.source_object:
            raise self._refusal(f"the slot {manifest.old.action_slot_id} is the one of {known.source_object}")
        return target

    def _lock_slots(self) -> None:
        """Every old and every new key, in one order, so that no two manifests and no save wait for each other."""
        keys = {key for member in self.manifest.members for key in (member.old_key, member.new_key)}
        for batch in batches(sorted(keys)):
            rows.lock_slots(self.conn, batch)

    def _require_all_listed(self) -> None:
        listed = {member.old_key for member in self.manifest.members}
        for key, record_id in rows.read_population(self.conn, self.manifest.old).items():
            if key not in listed:
                unlisted = Member(
                    record_id=record_id,
                    old_key=key,
                    new_key=link_key(self.manifest.new, record_id),
                    rows_digest=Digest(""),
                )
                detail = "the record came to the old slot after the manifest was made"
                self.conflicts.append(conflict(unlisted, InTheWay.NOT_LISTED, detail))

    def _standing(self, members: Sequence[Member]) -> Mapping[LinkKey, Standing]:
        keys = sorted(key for member in members for key in (member.old_key, member.new_key))
        return rows.lock_standing(self.conn, keys, now=self.now)

    def _judge(self, members: Sequence[Member]) -> None:
        standing, new = self._standing(members), self.manifest.new
        arrivals = rows.read_arrivals(self.conn, [member.old_key for member in members])
        locators = {
            str(after["locator_key"])
            for member in members
            for before, after in zip(
                standing[member.old_key].links,
                moved(standing[member.old_key], new, member.new_key).links,
                strict=True,
            )
            if after["locator_key"] not in {None, before["locator_key"]}
        }
        owners = rows.read_owners(self.conn, locators)
        for member in members:
            old = standing[member.old_key]
            facts = Facts(old=old, new=standing[member.new_key], owners=owners, prior=arrivals.get(member.old_key))
            found = judge_member(self.manifest, member, facts)
            if found is not None:
                self.conflicts.append(found)
            self.links += len(old.links)
            self.attempts += len(old.attempts)

    def _move(self, members: Sequence[Member]) -> None:
        standing, new = self._standing(members), self.manifest.new
        arrivals = rows.read_arrivals(self.conn, [member.old_key for member in members])
        before = {member.old_key: standing[member.old_key] for member in members}
        after = {member.old_key: moved(standing[member.old_key], new, member.new_key) for member in members}
        rows.drop_bare_slots(self.conn, [member.new_key for member in members])
        lost = rows.move_rows(self.conn, before, after)
        for member in members:
            if member.old_key in lost:
                self.conflicts.append(conflict(member, InTheWay.ROWS_CHANGED, "a row was not written"))
        receipts = [
            receipt_of(
                self.manifest,
                member,
                before[member.old_key],
                arrivals.get(member.old_key),
                actor=self.actor,
                now=self.now,
            )
            for member in members
        ]
        rows.insert_receipts(self.conn, receipts)

    def _verify(self, digest: str) -> None:
        """A repeat: the operation was this very manifest's, and every receipt says so."""
        if digest != self.manifest.digest:
            raise self._refusal("another manifest was applied under this operation's id")
        if rows.count_receipts(self.conn, self.manifest.operation_id) != len(self.manifest.members):
            raise self._refusal("its receipts are not as many as its members")
        for batch in batches(self.manifest.members):
            found = rows.read_receipts(self.conn, self.manifest.operation_id, [member.old_key for member in batch])
            judged = [judge_repeat(self.manifest, member, found.get(member.old_key)) for member in batch]
            self.conflicts += [one for one in judged if one is not None]
        self._refuse_conflicts()

    def _conclude(self, target: ActiveAction) -> str:
        manifest = self.manifest
        rows.readdress_holds(
            self.conn, manifest.tenant, {member.old_key: member.new_key for member in manifest.members}
        )
        status = rows.record_lineage(self.conn, manifest.old, manifest.new, install_id=target.install_id, now=self.now)
        announce(self.conn, now=self.now)
        action = OperatorAction(
            tenant=manifest.tenant,
            actor=self.actor,
            approver=manifest.approval.who,
            verb=rows.AUDITED_AS,
            reason=manifest.reason,
            target_kind="manifest",
            target_id=manifest.operation_id,
            before={"slot": parts_of(manifest.old)},
            after={"slot": parts_of(manifest.new), "records": len(manifest.members), "old_status": status.value},
            evidence={"manifest_digest": manifest.digest, "approval_digest": manifest.approval.digest},
        )
        record_actions(self.conn, [left_receipts(self.conn, action, now=self.now)], now=self.now)
        return status.value

    def _done(self, verdict: Verdict, old_status: str | None) -> Done:
        return Done(
            verdict=verdict,
            operation_id=self.manifest.operation_id,
            digest=self.manifest.digest,
            members=len(self.manifest.members),
            links=self.links,
            attempts=self.attempts,
            old=self.manifest.old,
            new=self.manifest.new,
            old_status=old_status,
        )

    def _refuse_conflicts(self) -> None:
        if self.conflicts:
            raise self._refusal(f"{len(self.conflicts)} records are in the way")

    def _refusal(self, said: str) -> CallerError:
        """Every record that is in the way is named, however many they are: somebody has to settle each of them."""
        evidence: dict[str, object] = {}
        if self.conflicts:
            evidence = {
                "conflicts": [
                    f"{one.record_id} ({one.link_key}): {one.because.value}: {one.detail}" for one in self.conflicts
                ],
                "count": len(self.conflicts),
                "kinds": dict(Counter(one.because.value for one in self.conflicts)),
            }
        return CallerError(
            f"The rebind {self.manifest.operation_id} is not applied: {said}.",
            code=Code.NOT_ALLOWED_NOW,
            evidence=evidence,
            next_step="settle what is in the way, then plan it anew; nothing was written",
        )


def _shown(slots: Slots) -> str:
    return f"{slots.action_slot_id} -> {slots.destination_slot_id}"
