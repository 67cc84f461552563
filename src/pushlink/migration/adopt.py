"""Adoption, planned: read what an older integration left in the host's records, and say of each what becomes of it.

A plan changes nothing. It walks through the host's table by key, judges every record by `protocol/adoption.py`, looks
for records that claim one remote record, asks our own rows, and (where it is told to) the remote; then it writes the
manifest in link-key order. All of it is read in one transaction, and none is open while the remote is asked. Memory
holds a batch: what has to be sorted lies in files.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from pushlink.errors import CallerError, Code
from pushlink.flows.world import World
from pushlink.migration import batches
from pushlink.migration.spool import Spool
from pushlink.ports import RecordRef, RecordScan, ScannedRow
from pushlink.protocol.adoption import (
    Because,
    Claim,
    Legacy,
    Pair,
    Refusal,
    judge_rows,
    read_legacy,
    record_digest,
    rows_digest,
)
from pushlink.protocol.adoption_manifest import Adoptable, Binding, Entry, Header, Refused, Totals, write_lines
from pushlink.protocol.identity import link_key, locator_key
from pushlink.protocol.remoteids import Extracted, read_remote_id
from pushlink.protocol.snapshots import LinkKey, LocatorKey, SourceValue
from pushlink.store import adoption as rows
from pushlink.store.access import Connection, Engine, reading
from pushlink.store.active import ActiveAction
from pushlink.store.catalog import read_unresolved_slots
from pushlink.store.registry import former_names, read_registry

#: Told after each batch: which part of the work, how much of it is done, and of how much (0: not known).
OnProgress: TypeAlias = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody wants to adopt. The current pair and its marks are the mirror's unless they are said."""

    source_object: str
    action_slot_id: str
    operation_id: str
    tenant: str = ""
    current: Pair | None = None
    older: tuple[Pair, ...] = ()
    markers: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    destination_field: str = ""
    destination_value: str = ""


class Verification(Protocol):
    """Asks the remote for records, with no transaction open anywhere."""

    def prove(self, action: ActiveAction, claims: Iterable[Claim]) -> None:
        """Ask for one after the other until an answer proves the credential."""

    def ask(self, action: ActiveAction, claim: Claim) -> Refusal | None:
        """What the remote says against a claim; `None` when it shows the record."""


def plan(
    engine: Engine,
    world: World,
    scan: RecordScan,
    asked: Asked,
    out: Path,
    *,
    verification: Verification | None = None,
    on_progress: OnProgress | None = None,
) -> Totals:
    """Write the manifest to a file that must not exist, and answer with its totals; no database is changed.

    Raises `CallerError` for an action, a field or a declaration that cannot be used, and while an older slot of the
    object owns something (ID-04): what stands in a record may be of that one.
    """
    if out.exists():
        raise _taken(out)
    tell = on_progress or (lambda _what, _done, _of: None)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".pushlink-adopt-") as home:
        folder = Path(home)
        with reading(engine) as conn:
            action = find_action(conn, world, asked.tenant, asked.source_object, asked.action_slot_id)
            legacy = _legacy(conn, world, asked, action)
            planning = _Planning(conn, world, scan, action, legacy, folder, tell)
            planning.read(asked.source_object)
            planning.judge()
        header = Header(
            operation_id=asked.operation_id,
            tenant=asked.tenant,
            source_object=asked.source_object,
            action=binding_of(action),
            legacy=legacy,
            remote_verified=verification is not None,
        )
        entries = planning.entries()
        if verification is not None:
            verification.prove(action, _claims(planning.entries(), action))
            entries = _verified(entries, action, verification, planning.judged.count, tell)
        return _write(folder / "manifest", out, header, entries, empty=planning.empty)


def find_action(conn: Connection, world: World, tenant: str, source_object: str, action_slot_id: str) -> ActiveAction:
    """The usable action of a slot, whose lineage is clear; raises `CallerError` otherwise."""
    usable = world.catalog.read(conn).actions_for(tenant, source_object)
    found = [action for action in usable if action.slots.action_slot_id == action_slot_id]
    if not found:
        raise CallerError(
            f"No usable action of {source_object} has the slot {action_slot_id!r}.",
            evidence={"tenant": tenant, "usable": [action.slots.action_slot_id for action in usable]},
            next_step="name the action_slot_id of an action of an installed pack: pushlink pack list",
        )
    [action] = found
    [unresolved] = read_unresolved_slots(conn, [action.slots])
    if unresolved:
        raise CallerError(
            "Older slots of this owner and object still own links or attempts; what stands in a record may be theirs.",
            code=Code.NOT_ALLOWED_NOW,
            evidence={"unresolved_slots": list(unresolved)},
            next_step="rebind or retire what they own, or declare the new slot independent",
        )
    return action


def binding_of(action: ActiveAction) -> Binding:
    """What a manifest holds an action of the catalogue by."""
    return Binding(
        connector_owner_key=action.slots.connector_owner_key,
        action_slot_id=action.slots.action_slot_id,
        destination_slot_id=action.slots.destination_slot_id,
        destination_scope=action.profile.destination_scope,
        install_id=action.install_id,
        action_digest=action.document.digest,
        profile_digest=action.profile_digest,
        mapping_fingerprint=action.mapping_fingerprint,
        body_fingerprint=action.body_fingerprint,
    )


def locator_of(action: ActiveAction, claim: Claim) -> LocatorKey:
    """The key under which a claimed remote record can be owned once."""
    return locator_key(action.slots, scope=action.profile.destination_scope, canonical_id=claim.canonical)


def claimants_of(conn: Connection, action: ActiveAction) -> dict[LocatorKey, str]:
    """The attempts that were given a remote record of the action's destination and have no link for it yet."""
    slots = action.slots
    waiting = rows.read_claimants(conn, tenant=slots.tenant, destination_slot_id=slots.destination_slot_id)
    found = {attempt_id: read_remote_id(action.contract, remote_id) for attempt_id, remote_id in waiting}
    return {
        locator_of(action, Claim(remote_id=one.remote_id, canonical=one.canonical)): f"create {attempt_id}"
        for attempt_id, one in found.items()
        if isinstance(one, Extracted)
    }


# ------------------------------------------------------------------------------------------------ what is read


def _legacy(conn: Connection, world: World, asked: Asked, action: ActiveAction) -> Legacy:
    mirror = action.contract.mirror
    current = asked.current
    if current is None and mirror is not None and mirror.provenance_field is not None:
        current = Pair(remote_id=mirror.remote_id_field, provenance=mirror.provenance_field)
    if current is None:
        raise CallerError(
            "The action's mirror names no provenance field, and an id without a mark of its origin proves nothing.",
            evidence={"mirror": None if mirror is None else mirror.remote_id_field},
            next_step="say which two fields hold the id and its mark: --fields ID:MARK",
        )
    own = (mirror.provenance_value if mirror is not None else None) or action.names.namespace
    led_here = former_names(action.slots, read_registry(conn, tenant=asked.tenant))
    legacy = Legacy(
        current=current,
        older=asked.older,
        markers=tuple(sorted({*(asked.markers or (own,)), *led_here})),
        elsewhere=tuple(sorted(set(asked.elsewhere))),
        destination_field=asked.destination_field,
        destination_value=asked.destination_value,
    )
    both = sorted(set(legacy.markers) & set(legacy.elsewhere))
    if both or "" in (*legacy.markers, *legacy.elsewhere):
        raise CallerError(
            "A mark means one destination, and an empty one means nothing.", evidence={"marks": both or [""]}
        )
    ids = [pair.remote_id for pair in legacy.pairs]
    if len(set(ids)) != len(ids):
        raise CallerError("A field of ids stands in two pairs.", evidence={"fields": ids})
    unknown = sorted(set(legacy.fields) - world.records.known_fields(conn, asked.source_object))
    if unknown:
        raise CallerError(
            f"{asked.source_object} has no field {', '.join(unknown)}.",
            evidence={"fields": unknown},
            next_step="name fields as the settings declare them, or the columns of the table",
        )
    return legacy


class _Planning:
    """One plan in one transaction that only reads."""

    def __init__(
        self,
        conn: Connection,
        world: World,
        scan: RecordScan,
        action: ActiveAction,
        legacy: Legacy,
        folder: Path,
        tell: OnProgress,
    ) -> None:
        self._conn = conn
        self._world = world
        self._scan = scan
        self._action = action
        self._legacy = legacy
        self._tell = tell
        self._claims = Spool(folder, "claims")  # by remote record
        self.judged = Spool(folder, "judged")  # by link key
        self.empty = 0

    def read(self, source_object: str) -> None:
        """Judge every record by its fields."""
        total = self._scan.count_records(self._conn, source_object, window=None).rows
        place: str | None = None
        done = 0
        while found := self._scan.scan_records(self._conn, source_object, window=None, after=place, limit=batches.SIZE):
            refs = [row.ref for row in found if row.ref is not None]
            for ref, values in zip(refs, read_apart(self._conn, self._world, refs, self._legacy), strict=True):
                self._take(ref, values)
            for row in found:
                if row.ref is None:
                    self._take_unusable(row)
            place = found[-1].place
            done += len(found)
            self._tell("records", done, total)

    def judge(self) -> None:
        """Refuse what is claimed twice, and ask our own rows about the rest."""
        claimants = claimants_of(self._conn, self._action)
        done = 0
        for batch in batches.batches(self._single_claims()):
            self._judge_batch(batch, claimants)
            done += len(batch)
            self._tell("claims", done, self._claims.count)

    def entries(self) -> Iterator[Entry]:
        """What became of every record with a legacy link, in link-key order."""
        for (key, record_id), row in self.judged:
            about: dict[str, Any] = {"link_key": LinkKey(key), "record_id": record_id}
            yield Refused(**about | row) if "because" in row else Adoptable(**about | row)

    def _take(self, ref: RecordRef, values: Mapping[str, SourceValue] | Refusal | None) -> None:
        if values is None:
            return  # deleted between two statements of a database that does not show one moment
        key = link_key(self._action.slots, ref.record_id)
        read = values if isinstance(values, Refusal) else self._read(values)
        if read is None:
            self.empty += 1
        elif isinstance(read, Refusal):
            self._refuse(key, ref.record_id, read)
        elif not isinstance(values, Refusal):
            of_record = record_digest(values)
            about = {"link_key": key, "record_id": ref.record_id, "record_digest": of_record}
            claim = {"remote_id": read.remote_id, "canonical": read.canonical}
            self._claims.add((locator_of(self._action, read), key), about | claim)

    def _read(self, values: Mapping[str, SourceValue]) -> Claim | Refusal | None:
        return read_legacy(values, self._legacy, self._action.contract, self._action.profile)

    def _take_unusable(self, row: ScannedRow) -> None:
        refusal = Refusal(because=Because.RECORD_UNUSABLE, detail="its key is no id of the declared type")
        self._refuse(LinkKey(""), row.shown, refusal)

    def _refuse(self, key: LinkKey, record_id: str, refusal: Refusal) -> None:
        self.judged.add((key, record_id), {"because": refusal.because.value, "detail": refusal.detail})

    def _single_claims(self) -> Iterator[dict[str, Any]]:
        """The claims that no other record makes as well; the others are refused on the way, all of them."""
        last: tuple[str, dict[str, Any]] | None = None
        twin: dict[str, Any] | None = None  # a record that claims what the last one does
        for (locator, _), row in self._claims:
            is_twin = last is not None and last[0] == locator
            if last is not None:
                yield from self._unless_twin(last[1], row if is_twin else twin)
            twin = last[1] if last is not None and is_twin else None
            last = locator, row
        if last is not None:
            yield from self._unless_twin(last[1], twin)

    def _unless_twin(self, row: dict[str, Any], twin: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
        if twin is None:
            yield row
            return
        detail = f"record {twin['record_id']} claims {twin['remote_id']!r} as well"
        self._refuse(row["link_key"], row["record_id"], Refusal(because=Because.CLAIMED_TWICE, detail=detail))

    def _judge_batch(self, batch: Sequence[dict[str, Any]], claimants: Mapping[LocatorKey, str]) -> None:
        claims = {row["link_key"]: Claim(remote_id=row["remote_id"], canonical=row["canonical"]) for row in batch}
        wanted = {key: locator_of(self._action, claim) for key, claim in claims.items()}
        ours = rows.read_our_rows(self._conn, wanted, claimants, lock=False)
        for row in batch:
            key, record_id = row["link_key"], row["record_id"]
            refusal = judge_rows(claims[key], ours[key])
            if refusal is not None:
                self._refuse(key, record_id, refusal)
                continue
            planned = {name: row[name] for name in ("remote_id", "record_digest")}
            self.judged.add((key, record_id), planned | {"rows_digest": rows_digest(ours[key])})


def read_apart(
    conn: Connection, world: World, refs: Sequence[RecordRef], legacy: Legacy
) -> list[Mapping[str, SourceValue] | Refusal | None]:
    """The legacy fields of each record; a value that cannot be kept exact costs its own record only (D-17)."""
    try:
        return list(world.records.read_records(conn, refs, [legacy.fields] * len(refs)))
    except CallerError as error:
        if error.code is not Code.VALUE_UNSENDABLE:
            raise
        if len(refs) == 1:
            return [Refusal(because=Because.RECORD_UNUSABLE, detail=error.message)]
        return [found for ref in refs for found in read_apart(conn, world, [ref], legacy)]


# ------------------------------------------------------------------------------------------------ what is written


def _verified(
    entries: Iterable[Entry], action: ActiveAction, verification: Verification, total: int, tell: OnProgress
) -> Iterator[Entry]:
    """The entries after the remote was asked about each that would be adopted."""
    for done, entry in enumerate(entries, 1):
        refusals = [verification.ask(action, claim) for claim in _claims([entry], action)]
        tell("remote", done, total)
        yield from (entry if refusal is None else _refused(entry, refusal) for refusal in refusals or [None])


def _claims(entries: Iterable[Entry], action: ActiveAction) -> Iterator[Claim]:
    """What the entries that would be adopted claim."""
    for entry in entries:
        found = read_remote_id(action.contract, entry.remote_id) if isinstance(entry, Adoptable) else None
        if isinstance(found, Extracted):
            yield Claim(remote_id=found.remote_id, canonical=found.canonical)


def _refused(entry: Entry, refusal: Refusal) -> Refused:
    return Refused(
        link_key=entry.link_key, record_id=entry.record_id, because=refusal.because.value, detail=refusal.detail
    )


def _write(draft: Path, out: Path, header: Header, entries: Iterable[Entry], *, empty: int) -> Totals:
    totals: Totals | None = None
    with draft.open("xb") as file:
        for line, said in write_lines(header, entries, empty=empty):
            file.write(line)
            totals = said
    try:
        os.link(draft, out)  # unlike a rename, it never takes the place of another file
    except FileExistsError as error:
        raise _taken(out) from error
    if totals is None:
        msg = "a manifest ends with its totals"
        raise TypeError(msg)
    return totals


def _taken(out: Path) -> CallerError:
    said = f"The file {str(out)!r} is there already; a manifest is never written over."
    return CallerError(said, next_step="name another file")
