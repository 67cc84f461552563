"""Mapping revalidation: make a manifest from a list of links, rehearse it, apply it, and make the way back.

`apply` is the only mutation: one transaction that moves every member's fingerprints, install and pointer and appends
its receipt, or leaves everything as it was. `validate` takes the same locks, asks the same questions, and rolls back. A
repeat of an applied operation only verifies (D-32). No remote, no record and no attempt can be reached from here
(RV-10); an import rule holds that.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, TypeAlias

from pushlink.errors import CallerError, Code
from pushlink.migration.batches import batches
from pushlink.migration.running import Now, OnProgress, Verdict, contention
from pushlink.protocol.manifest import (
    Approval,
    BoundRow,
    Manifest,
    MappingState,
    Member,
    new_manifest,
    row_digest,
    state_of,
)
from pushlink.protocol.receipts import (
    Conflict,
    Facts,
    InTheWay,
    Receipt,
    judge_member,
    judge_repeat,
    project,
    rollback_of,
)
from pushlink.protocol.snapshots import Digest, LinkKey, Slots
from pushlink.store import revalidation as rows
from pushlink.store.access import Connection, Engine, reading, writing
from pushlink.store.active import ActiveCatalog, CatalogReader
from pushlink.store.audit import OperatorAction, record_actions
from pushlink.store.chains import left_receipts
from pushlink.store.revalidation import MappingMove
from pushlink.store.rows import LinkRow

#: How long one lock is waited for. Workers hold theirs for milliseconds; whoever holds one longer is to go first.
LOCK_WAIT_MS: Final = 5_000

#: Conflicts that an error shows; it says how many there are.
CONFLICTS_SHOWN_MAX: Final = 50

#: A member that is or would be moved: its row under the lock, and its receipt.
_Moved: TypeAlias = tuple[Member, BoundRow, Receipt]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One run of a manifest. `superseded` counts members that a later operation has moved on since."""

    verdict: Verdict
    operation_id: str
    digest: Digest
    members: int
    superseded: int
    current: int  # members whose new state is that of the catalogue of now, so that their updates flow again


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """What a validation found, with the receipts that an apply would write (or has written, for a repeat)."""

    done: Done
    receipts: tuple[Receipt, ...]


# ------------------------------------------------------------------------------------------------ making


def make_manifest(
    engine: Engine,
    keys: Sequence[LinkKey],
    *,
    tenant: str,
    operation_id: str,
    reason: str,
    approval: Approval,
) -> Manifest:
    """The manifest that brings exactly these links to the catalogue of now; nothing is written.

    Raises `CallerError` with every link that is unknown, named twice, or has nothing to change.
    """
    said = [f"{key}: it is there twice" for key in _twice(keys)]
    members: list[Member] = []
    ordered = sorted(set(keys))
    with reading(engine) as conn:
        catalog = CatalogReader().read(conn)
        for batch in batches(ordered):
            found = rows.read_holders(conn, batch)
            for key in batch:
                made = _member(key, found.get(key), tenant, catalog)
                if isinstance(made, Member):
                    members.append(made)
                else:
                    said.append(f"{key}: {made}")
    if said or not members:
        raise CallerError(
            f"{len(said)} of {len(keys)} links cannot be in a manifest.",
            evidence={"links": said[:CONFLICTS_SHOWN_MAX], "count": len(said)},
            next_step="give the link keys of usable links that refuse updates because their mapping changed",
        )
    return new_manifest(operation_id=operation_id, tenant=tenant, reason=reason, approval=approval, members=members)


def make_rollback(
    engine: Engine, manifest: Manifest, *, operation_id: str, actor: str, now: Now, reason: str = ""
) -> Manifest:
    """The manifest that takes an operation back, before it is applied or after; nothing is written.

    Raises `CallerError` for a manifest that cannot be applied, or that a later operation was built on.
    """
    rehearsed = validate(engine, manifest, actor=actor, now=now)
    if rehearsed.done.superseded:
        raise CallerError(
            f"{rehearsed.done.superseded} links were moved on by a later operation.",
            code=Code.NOT_ALLOWED_NOW,
            next_step="take the later operation back first",
        )
    digests: dict[LinkKey, Digest] = {}
    if rehearsed.done.verdict is Verdict.ALREADY_APPLIED:
        with reading(engine) as conn:
            for batch in batches([member.link_key for member in manifest.members]):
                found = rows.read_holders(conn, batch)
                digests |= {key: row_digest(rows.row_of(link)) for key, link in found.items()}
    return rollback_of(
        manifest,
        rehearsed.receipts,
        operation_id=operation_id,
        reason=reason or f"takes back {manifest.operation_id}: {manifest.reason}",
        row_digests=digests,
    )


def _member(key: LinkKey, link: LinkRow | None, tenant: str, catalog: ActiveCatalog) -> Member | str:
    if link is None or link.tenant != tenant:
        return "this tenant has no such link"
    row = rows.row_of(link)
    old, new = state_of(row), _state_now(row, catalog)
    if new is None:
        return "no usable action of the catalogue has its slots"
    if new == old:
        return "its mapping is the catalogue's already"
    return Member(link_key=key, row_digest=row_digest(row), old=old, new=new)


def _state_now(row: BoundRow, catalog: ActiveCatalog) -> MappingState | None:
    """What the catalogue of now would validate a link against; `None` when its slots resolve to no usable action."""
    action = catalog.find(Slots(**{field.name: str(row[field.name]) for field in fields(Slots)}))
    if action is None or not action.profile.active:
        return None
    return MappingState(
        mapping_fingerprint=action.mapping_fingerprint,
        body_fingerprint=action.body_fingerprint,
        install_id=action.install_id,
    )


# ------------------------------------------------------------------------------------------------ running


def validate(
    engine: Engine, manifest: Manifest, *, actor: str, now: Now, on_progress: OnProgress | None = None
) -> Rehearsed:
    """Take the locks of `apply`, ask what it asks, and roll back; raises what it raises."""
    kept: list[Receipt] = []
    with contention(), rows.rehearsing(engine) as conn:
        run = _Run(conn, manifest, actor=actor, now=now(conn), on_progress=on_progress)
        done = run.through(write=False, keep=kept)
    return Rehearsed(done=done, receipts=tuple(kept))


def apply(engine: Engine, manifest: Manifest, *, actor: str, now: Now, on_progress: OnProgress | None = None) -> Done:
    """Apply the manifest whole, in one transaction; applied already, only verify that.

    Raises `CallerError` (`not_allowed_now`) with what is in the way, and `Contended` when somebody held a row too long.
    Nothing is written then.
    """
    with contention(), writing(engine) as conn:
        run = _Run(conn, manifest, actor=actor, now=now(conn), on_progress=on_progress)
        return run.through(write=True, keep=None)


class _Run:
    """One manifest in one transaction."""

    def __init__(
        self,
        conn: Connection,
        manifest: Manifest,
        *,
        actor: str,
        now: dt.datetime,
        on_progress: OnProgress | None,
    ) -> None:
        self._conn = conn
        self._manifest = manifest
        self._actor = actor
        self._now = now
        self._on_progress = on_progress
        self._conflicts: list[Conflict] = []
        self._owners: dict[str, tuple[str, str]] = {}
        self._superseded = 0
        self._current = 0

    def through(self, *, write: bool, keep: list[Receipt] | None) -> Done:
        """Lock, judge every member, and write unless one is in the way; `keep` gets the receipts."""
        manifest = self._manifest
        rows.lock_catalog(self._conn, wait_ms=LOCK_WAIT_MS)
        catalog = CatalogReader().read(self._conn)
        slots: set[LinkKey] = set()
        for keys in batches([member.link_key for member in manifest.members]):
            slots |= rows.lock_keys(self._conn, keys)
        moved = rows.count_receipts(self._conn, manifest.operation_id)
        if moved not in {0, len(manifest.members)}:
            raise self._refusal(f"{moved} links have a receipt of this operation, {len(manifest.members)} should")
        done = 0
        for members in batches(manifest.members):
            found = self._verify(members) if moved else self._move(members, slots, write=write)
            self._current += sum(_state_now(row, catalog) == member.new for member, row, _ in found)
            if keep is not None:
                keep += (receipt for _, _, receipt in found)
            done += len(members)
            if self._on_progress is not None:
                self._on_progress(done)
        if self._conflicts:
            raise self._refusal(f"{len(self._conflicts)} of its {len(manifest.members)} links are in the way")
        if write and not moved:
            self._conclude()
        fresh = Verdict.APPLIED if write else Verdict.APPLICABLE
        return Done(
            verdict=Verdict.ALREADY_APPLIED if moved else fresh,
            operation_id=manifest.operation_id,
            digest=manifest.digest,
            members=len(manifest.members),
            superseded=self._superseded,
            current=self._current,
        )

    def _move(self, members: Sequence[Member], slots: Collection[LinkKey], *, write: bool) -> list[_Moved]:
        """Judge a batch of a new operation under its locks, and move it unless anything was in the way so far."""
        conn, manifest = self._conn, self._manifest
        keys = [member.link_key for member in members]
        held = rows.lock_holders(conn, keys)
        standing = rows.lock_attempts(conn, keys)
        histories = rows.read_histories(conn, [str(link.row["id"]) for link in held.values()])
        self._learn_owners(members)
        found: list[_Moved] = []
        for member in members:
            link = held.get(member.link_key)
            row = None if link is None else link.row
            facts = Facts(
                row=row,
                has_slot=member.link_key in slots,
                attempts=standing.get(member.link_key, ()),
                receipts={} if row is None else histories.get(str(row["id"]), {}),
                install_known=row is not None and self._owners.get(member.new.install_id) == _owner_of(row),
            )
            judged = judge_member(manifest, member, facts)
            if isinstance(judged, Conflict):
                self._conflicts.append(judged)
            elif row is not None:
                prior = judged[0] if judged else None
                found.append((member, row, project(manifest, member, row, prior, actor=self._actor, now=self._now)))
        if write and not self._conflicts:
            self._write(found, held)
        return found

    def _write(self, found: Sequence[_Moved], held: Mapping[LinkKey, rows.HeldLink]) -> None:
        moves = [
            MappingMove(
                link_id=receipt.link_id,
                row_version=held[member.link_key].row_version,
                pointer=receipt.prior_operation_id,
                old=member.old,
                new=member.new,
            )
            for member, _, receipt in found
        ]
        written = rows.move_mappings(self._conn, moves, self._manifest.operation_id, now=self._now)
        for (member, _, _), is_written in zip(found, written, strict=True):
            if not is_written:
                self._conflicts.append(
                    Conflict(link_key=member.link_key, because=InTheWay.ROW_CHANGED, detail="the row was not written")
                )
        rows.insert_receipts(self._conn, [receipt for _, _, receipt in found])

    def _verify(self, members: Sequence[Member]) -> list[_Moved]:
        """A repeat: every receipt must be this manifest's, and its link's pointer must lead to it."""
        conn, manifest = self._conn, self._manifest
        receipts = rows.read_receipts_of(conn, manifest.operation_id, [member.link_key for member in members])
        ids = [receipt.link_id for receipt in receipts.values()]
        links, histories = rows.read_by_id(conn, ids), rows.read_histories(conn, ids)
        found: list[_Moved] = []
        for member in members:
            receipt = receipts.get(member.link_key)
            if receipt is None:
                detail = "it has no receipt of this operation, and others have"
                self._conflicts.append(Conflict(link_key=member.link_key, because=InTheWay.DIVERGED, detail=detail))
                continue
            link = links.get(receipt.link_id)
            row = None if link is None else link.row
            judged = judge_repeat(manifest, member, row, histories.get(receipt.link_id, {}))
            if isinstance(judged, Conflict):
                self._conflicts.append(judged)
            elif row is not None:
                self._superseded += bool(judged)
                found.append((member, row, receipt))
        return found

    def _learn_owners(self, members: Sequence[Member]) -> None:
        unknown = {member.new.install_id for member in members} - self._owners.keys()
        if unknown:
            self._owners |= rows.read_owners(self._conn, sorted(unknown))

    def _conclude(self) -> None:
        manifest = self._manifest
        rows.announce(self._conn, now=self._now)
        action = OperatorAction(
            tenant=manifest.tenant,
            actor=self._actor,
            approver=manifest.approval.who,
            verb="mapping_apply",
            reason=manifest.reason,
            target_kind="manifest",
            target_id=manifest.operation_id,
            after={"links": len(manifest.members)},
            evidence={"manifest_digest": manifest.digest, "approval_digest": manifest.approval.digest},
        )
        record_actions(self._conn, [left_receipts(self._conn, action, now=self._now)], now=self._now)

    def _refusal(self, said: str) -> CallerError:
        shown = self._conflicts[:CONFLICTS_SHOWN_MAX]
        return CallerError(
            f"The manifest {self._manifest.operation_id} is not applied: {said}.",
            code=Code.NOT_ALLOWED_NOW,
            evidence={
                "conflicts": [f"{one.link_key}: {one.because.value}: {one.detail}" for one in shown],
                "count": len(self._conflicts),
                "kinds": dict(Counter(one.because.value for one in self._conflicts)),
            },
            next_step="settle what is in the way, or make a manifest without it; nothing was written",
        )


def _owner_of(row: BoundRow) -> tuple[str, str]:
    return str(row["tenant"]), str(row["connector_owner_key"])


def _twice(keys: Sequence[LinkKey]) -> list[LinkKey]:
    return [key for key, count in Counter(keys).items() if count > 1]
