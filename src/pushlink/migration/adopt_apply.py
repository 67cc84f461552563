"""Adoption, applied: a manifest's records become links, batch by batch, each batch whole or not at all.

The manifest is read through once before anything is written. A batch takes the push slots' locks in link-key order,
asks again all that the plan asked, and refuses what has changed since, row by row; receipts, events and the audit are
of the same transaction as the links. Who is killed types the same command: what has its receipt is not done twice.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from pushlink.errors import CallerError, Code
from pushlink.flows.new_links import new_link
from pushlink.flows.reserve import WAKE_CHANNEL
from pushlink.flows.world import World
from pushlink.migration.adopt import binding_of, claimants_of, find_action, locator_of, read_apart
from pushlink.migration.batches import batches, commit
from pushlink.ports import RecordRef
from pushlink.protocol.adoption import (
    Because,
    Claim,
    OurRows,
    Refusal,
    judge_rows,
    read_legacy,
    record_digest,
    rows_digest,
)
from pushlink.protocol.adoption_manifest import Adoptable, Binding, Header, Refused, Totals, read_lines, read_planned
from pushlink.protocol.adoption_receipts import AdoptionReceipt, Deed, newest, seal
from pushlink.protocol.manifest import row_digest
from pushlink.protocol.snapshots import AttemptId, Digest, Document, LinkKey, SourceValue
from pushlink.protocol.states import Lane, MirrorStatus, Operation
from pushlink.store import adoption as rows
from pushlink.store import lifecycle, requests, slots
from pushlink.store.access import Connection, Engine, reading
from pushlink.store.active import ActiveAction
from pushlink.store.audit import OperatorAction, record_actions
from pushlink.store.chains import left_receipts
from pushlink.store.dialect import notify
from pushlink.store.lifecycle import NewAttempt, NewLink
from pushlink.store.revalidation import row_of
from pushlink.store.rows import LinkRow, SlotIdentity, SlotRow, write_names

#: What became of a row: adopted now, adopted before, or refused with a reason.
Result: TypeAlias = str
ADOPTED: Final[Result] = "adopted"
ALREADY: Final[Result] = "already_adopted"

#: Told of each planned row, in the manifest's order: what became of it, and a detail for people.
OnResult: TypeAlias = Callable[[Adoptable, Result, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadManifest:
    """A manifest on disk that was read to its end, so that its digest is known to hold."""

    path: Path
    header: Header
    totals: Totals

    def planned(self) -> Iterator[Adoptable]:
        """The rows to adopt, read from the file again."""
        with self.path.open("rb") as file:
            yield from read_planned(file)

    def refused(self, count: int) -> Iterator[Refused]:
        """The first rows that are not adopted."""
        with self.path.open("rb") as file:
            yield from itertools.islice((part for part in read_lines(file) if isinstance(part, Refused)), count)


@dataclass(slots=True, kw_only=True)
class Applied:
    """What one run came to; `refused` counts rows that changed since the plan, by reason."""

    operation_id: str
    digest: Digest
    adopted: int = 0
    already_adopted: int = 0
    refused: Counter[str] = field(default_factory=Counter)


def read_manifest(path: Path) -> ReadManifest:
    """Read a manifest through; raises `CallerError` for a file that is none, is not whole, or was changed."""
    try:
        with path.open("rb") as file:
            header = totals = None
            for part in read_lines(file):
                if isinstance(part, Header):
                    header = part
                elif isinstance(part, Totals):
                    totals = part
    except OSError as error:
        raise CallerError(f"The file {str(path)!r} cannot be read: {error}.") from error
    if header is None or totals is None:
        msg = "a manifest has a first line and a last one"
        raise TypeError(msg)
    return ReadManifest(path=path, header=header, totals=totals)


def apply(
    engine: Engine,
    world: World,
    manifest: ReadManifest,
    *,
    actor: str,
    reason: str,
    on_progress: Callable[[int], None] | None = None,
    on_result: OnResult | None = None,
) -> Applied:
    """Adopt what was planned; rows that are not as they were planned are refused one by one, and stay as they are.

    Raises `CallerError` (`not_allowed_now`) when the action is not the planned one any more or another manifest was
    applied under the operation's id, and `Contended` when somebody held a row too long; what was committed stays.
    """
    header = manifest.header
    with reading(engine) as conn:
        others = rows.read_manifest_digests(conn, header.operation_id) - {manifest.totals.digest}
    if others:
        raise CallerError(
            f"Another manifest was applied under the operation id {header.operation_id!r}.",
            code=Code.NOT_ALLOWED_NOW,
            evidence={"digest": manifest.totals.digest, "applied": sorted(others)},
            next_step="make a new plan, with an operation id of its own",
        )
    done = Applied(operation_id=header.operation_id, digest=manifest.totals.digest)

    def judge_and_write(batch: Sequence[Adoptable], conn: Connection) -> list[tuple[Result, str]]:
        return _Batch(conn, world, manifest, batch, actor=actor, reason=reason).through()

    count = 0
    for batch in batches(manifest.planned()):
        for entry, (result, detail) in zip(batch, commit(engine, partial(judge_and_write, batch)), strict=True):
            match result:
                case "adopted":
                    done.adopted += 1
                case "already_adopted":
                    done.already_adopted += 1
                case _:
                    done.refused[result] += 1
            if on_result is not None:
                on_result(entry, result, detail)
        count += len(batch)
        if on_progress is not None:
            on_progress(count)
    return done


class _Batch:
    """One batch in one transaction."""

    def __init__(
        self,
        conn: Connection,
        world: World,
        manifest: ReadManifest,
        batch: Sequence[Adoptable],
        *,
        actor: str,
        reason: str,
    ) -> None:
        self._conn = conn
        self._world = world
        self._header = manifest.header
        self._digest = manifest.totals.digest
        self._batch = batch
        self._actor = actor
        self._reason = reason
        self._now = world.clock.now(conn)

    def through(self) -> list[tuple[Result, str]]:
        """Judge the records, lock, judge our rows, write; one result for each row."""
        keys = [entry.link_key for entry in self._batch]
        self._world.catalog.share_revision(self._conn)
        action = _planned_action(self._conn, self._world, self._header)
        judged = self._judge_records(action)
        claims = {key: claim for key, claim in judged.items() if isinstance(claim, Claim)}
        held = self._open([entry for entry in self._batch if entry.link_key in claims])
        histories = rows.read_histories(self._conn, keys)
        last = {key: newest(histories.get(key, ())) for key in keys}
        said = {key: self._said_before(histories.get(key, ()), last[key]) for key in keys}
        fresh = [entry for entry in self._batch if said[entry.link_key] is None]
        judged |= self._judge_rows(action, [entry for entry in fresh if entry.link_key in claims], claims)
        chosen = [entry for entry in fresh if isinstance(judged[entry.link_key], Claim)]
        made = self._insert(action, chosen, claims)
        self._conclude([entry for entry in chosen if entry.link_key in made], made, held, last)
        return [said[key] or _answer(judged[key], is_written=key in made) for key in keys]

    def _said_before(
        self, history: Sequence[AdoptionReceipt], last: AdoptionReceipt | str | None
    ) -> tuple[Result, str] | None:
        """What this operation made of a key before, or why nobody may go on with it."""
        if isinstance(last, str):
            return Because.RECEIPTS_BROKEN.value, last
        deeds = {receipt.deed for receipt in history if receipt.operation_id == self._header.operation_id}
        if Deed.ROLL_BACK.value in deeds:
            return Because.ROLLED_BACK.value, "this operation adopted it, and was rolled back; make a new plan"
        return (ALREADY, "") if deeds else None

    def _judge_records(self, action: ActiveAction) -> dict[LinkKey, Claim | Refusal]:
        """Whether each record is as it was planned."""
        refs = [RecordRef(source_object=self._header.source_object, record_id=one.record_id) for one in self._batch]
        found = read_apart(self._conn, self._world, refs, self._header.legacy)
        return {
            entry.link_key: self._judge_record(action, entry, values)
            for entry, values in zip(self._batch, found, strict=True)
        }

    def _judge_record(
        self, action: ActiveAction, entry: Adoptable, values: Mapping[str, SourceValue] | Refusal | None
    ) -> Claim | Refusal:
        if values is None:
            return Refusal(because=Because.RECORD_GONE, detail="there is no such record any more")
        if isinstance(values, Refusal) or record_digest(values) != entry.record_digest:
            return Refusal(because=Because.RECORD_CHANGED, detail="its fields are not as they were planned")
        read = read_legacy(values, self._header.legacy, action.contract, action.profile)
        if not isinstance(read, Claim) or read.remote_id != entry.remote_id:
            return Refusal(because=Because.RECORD_CHANGED, detail="its fields do not prove the planned id")
        return read

    def _open(self, entries: Sequence[Adoptable]) -> dict[LinkKey, SlotRow]:
        """The push slots, made where there are none, locked in link-key order."""
        header = self._header
        wanted = [
            SlotIdentity(
                link_key=entry.link_key,
                tenant=header.tenant,
                connector_owner_key=header.action.connector_owner_key,
                action_slot_id=header.action.action_slot_id,
                destination_slot_id=header.action.destination_slot_id,
                source_object=header.source_object,
                source_record_id=entry.record_id,
            )
            for entry in entries
        ]
        return {slot.link_key: slot for slot in slots.open_slots(self._conn, wanted, now=self._now)}

    def _judge_rows(
        self, action: ActiveAction, entries: Sequence[Adoptable], claims: Mapping[LinkKey, Claim]
    ) -> dict[LinkKey, Claim | Refusal]:
        """What our own rows say, under the locks."""
        wanted = {entry.link_key: locator_of(action, claims[entry.link_key]) for entry in entries}
        ours = rows.read_our_rows(self._conn, wanted, claimants_of(self._conn, action), lock=True) if wanted else {}
        return {entry.link_key: _judge_ours(claims[entry.link_key], ours[entry.link_key], entry) for entry in entries}

    def _insert(
        self, action: ActiveAction, entries: Sequence[Adoptable], claims: Mapping[LinkKey, Claim]
    ) -> dict[LinkKey, LinkRow]:
        """Make the links; the unique keys have the last word, and who lost there has none."""
        if not entries:
            return {}
        profile = self._profile(action)
        requests.keep_documents(self._conn, [profile, action.document], now=self._now)
        links = [self._link(action, profile, entry, claims[entry.link_key]) for entry in entries]
        new = [NewLink(row=link, attempt_id=None, actor=self._name, reason=Code.OPERATOR_DECISION) for link in links]
        written = lifecycle.insert_links(self._conn, new, now=self._now)
        return {link.link_key: link for link, is_written in zip(links, written, strict=True) if is_written}

    def _profile(self, action: ActiveAction) -> Document:
        generation = self._world.generation(action.profile, self._header.tenant)
        return self._world.profile_document(action.profile, action.profile_digest, generation)

    def _link(self, action: ActiveAction, profile: Document, entry: Adoptable, claim: Claim) -> LinkRow:
        """The row that a finished create would have made of the same id, under the configuration of now."""
        mirror = action.contract.mirror
        is_mirror = mirror is not None and mirror.remote_id_field == self._header.legacy.current.remote_id
        return new_link(
            link_id=self._world.ids.fresh(),
            link_key=entry.link_key,
            slots=action.slots,
            record_id=entry.record_id,
            names=write_names(action.names),
            install_id=action.install_id,
            profile_digest=profile.digest,
            action_digest=action.document.digest,
            mapping_fingerprint=action.mapping_fingerprint,
            body_fingerprint=action.body_fingerprint,
            destination_scope=action.profile.destination_scope,
            remote_id=claim.remote_id,
            canonical_id=claim.canonical,
            remote_version=None,
            mirror_fields=(mirror.remote_id_field, mirror.provenance_field) if mirror else None,
            mirror_status=MirrorStatus.WRITTEN if is_mirror else MirrorStatus.NONE,
            at=self._now,
        )

    def _conclude(
        self,
        entries: Sequence[Adoptable],
        made: Mapping[LinkKey, LinkRow],
        held: Mapping[LinkKey, SlotRow],
        last: Mapping[LinkKey, AdoptionReceipt | str | None],
    ) -> None:
        """Receipts, what became due, and the audit."""
        if not entries:
            return
        receipts = []
        for entry in entries:
            before = last[entry.link_key]
            draft = self._draft(entry, made[entry.link_key], held[entry.link_key])
            receipts.append(seal(draft, before if isinstance(before, AdoptionReceipt) else None))
        rows.insert_receipts(self._conn, receipts)
        self._make_due([held[entry.link_key] for entry in entries])
        action = OperatorAction(
            tenant=self._header.tenant,
            actor=self._actor,
            verb="adopt_apply",
            reason=self._reason,
            target_kind="manifest",
            target_id=self._header.operation_id,
            after={"links": len(entries), "first": entries[0].link_key, "last": entries[-1].link_key},
            evidence={"manifest_digest": self._digest},
        )
        record_actions(self._conn, [left_receipts(self._conn, action, now=self._now)], now=self._now)

    def _draft(self, entry: Adoptable, link: LinkRow, slot: SlotRow) -> dict[str, object]:
        return {
            "operation_id": self._header.operation_id,
            "link_key": entry.link_key,
            "deed": Deed.ADOPT.value,
            "tenant": self._header.tenant,
            "link_id": link.id,
            "source_object": self._header.source_object,
            "source_record_id": entry.record_id,
            "remote_id": link.remote_id,
            "manifest_digest": self._digest,
            "record_digest": entry.record_digest,
            "row_digest": row_digest(row_of(link)),
            "slot_version": slot.row_version,
            "actor": self._actor,
            "reason": self._reason,
            "applied_at": self._now,
        }

    def _make_due(self, opened: Sequence[SlotRow]) -> None:
        """What a record wanted before it had a link is sent now: an adopted id acknowledges no version."""
        due = [slot for slot in opened if slot.wanted_version > max(slot.acknowledged_version, slot.refused_version)]
        new = [
            NewAttempt(
                id=AttemptId(self._world.ids.fresh()),
                link_key=slot.link_key,
                tenant=slot.tenant,
                destination_slot_id=slot.destination_slot_id,
                operation=Operation.UPDATE,
                lane=Lane.CONFIGURED,
                ordinal=0,
                version=slot.wanted_version,
                freeze_count=0,
                not_before=self._now,
                expires_at=None,
                actor=self._name,
                detail={"because": "adopt_apply"},
            )
            for slot in due
        ]
        lifecycle.insert_attempts(self._conn, new, now=self._now)
        if new:
            notify(self._conn, WAKE_CHANNEL)

    @property
    def _name(self) -> str:
        return f"operator:{self._actor}"


def _planned_action(conn: Connection, world: World, header: Header) -> ActiveAction:
    """The action of now, which must be the planned one in everything that a link is validated against."""
    action = find_action(conn, world, header.tenant, header.source_object, header.action.action_slot_id)
    now = binding_of(action)
    changed = [one.name for one in fields(Binding) if getattr(now, one.name) != getattr(header.action, one.name)]
    if changed:
        raise CallerError(
            "The installed pack is not the one that the adoption was planned with.",
            code=Code.NOT_ALLOWED_NOW,
            evidence={"changed": changed},
            next_step="make a new plan; what was adopted so far stays",
        )
    return action


def _judge_ours(claim: Claim, ours: OurRows, entry: Adoptable) -> Claim | Refusal:
    refusal = judge_rows(claim, ours)
    if refusal is None and rows_digest(ours) != entry.rows_digest:
        refusal = Refusal(because=Because.ROWS_CHANGED, detail="something was saved of the record since the plan")
    return refusal or claim


def _answer(judged: Claim | Refusal, *, is_written: bool) -> tuple[Result, str]:
    if isinstance(judged, Refusal):
        return judged.because.value, judged.detail
    return (ADOPTED, "") if is_written else (Because.OWNED_ELSEWHERE.value, "another link has just got it")
