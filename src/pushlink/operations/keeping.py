"""Keeping a deployment's database: `rekey`, `erase` and `prune`, batch by batch (S8, SY-05).

Each batch is a transaction of its own, so a run that is killed has done what it has done, and the same command goes on:
what is left to do is read from the rows, never remembered. A run that changed something is an action of its actor, with
reason and counts, in the audit's chain. A dry run counts, and changes nothing.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from pushlink.errors import CallerError, ConfigurationError
from pushlink.flows.world import World
from pushlink.ports import Clock, Vault
from pushlink.protocol.sealing import UNREAD, Unread, reply_binding
from pushlink.protocol.snapshots import write_time
from pushlink.store import upkeep
from pushlink.store.access import Connection, Engine, commit, reading
from pushlink.store.audit import OperatorAction, record_actions
from pushlink.store.rows import RequestRow, SlotRow
from pushlink.store.sealing import open_body, open_values, seal_reply, seal_request, seal_values
from pushlink.store.upkeep import ReplyBody

#: Rows of one transaction.
BATCH: Final = 500

#: Unreadable rows that an answer names; all of them are counted.
UNREADABLE_SHOWN_MAX: Final = 20

#: Called after each batch with how many rows of which kind were done so far.
OnProgress: TypeAlias = Callable[[Mapping[str, int]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rekeyed:
    """What a rekey came to. `keys` counts the contents that each key seals now; the empty key is of plain ones."""

    key: str
    sealed: Mapping[str, int]
    unreadable: int
    shown: tuple[str, ...]  # some of the unreadable rows, and why
    keys: Mapping[str, Mapping[str, int]]
    is_dry_run: bool

    @property
    def is_whole(self) -> bool:
        """Whether nothing is sealed with another key, or not at all."""
        return all(set(kind) <= {self.key} for kind in self.keys.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What an erasure or a pruning came to; with `is_dry_run` what it would come to."""

    before: dt.datetime
    counts: Mapping[str, int]
    is_dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Who keeps the database, why, and in which batches."""

    engine: Engine
    world: World
    actor: str
    reason: str
    batch: int = BATCH
    dry_run: bool = False
    on_progress: OnProgress | None = None

    def told(self, counts: Counter[str]) -> None:
        """Say how far it has come."""
        if self.on_progress is not None:
            self.on_progress(dict(counts))

    def audit(self, verb: str, kind: str, target: str, counts: Mapping[str, int], **evidence: object) -> None:
        """One action for the whole run, unless it changed nothing."""
        if self.dry_run or not any(counts.values()):
            return
        action = OperatorAction(
            tenant="",
            actor=self.actor,
            verb=verb,
            reason=self.reason,
            target_kind=kind,
            target_id=target,
            after=dict(counts),
            evidence=evidence,
        )
        commit(self.engine, lambda conn: record_actions(conn, [action], now=self.world.clock.now(conn)))


# ------------------------------------------------------------------------------------------------ sealing anew


def rekey(run: Run) -> Rekeyed:
    """Seal everything with the newest key that another key seals, or none; what cannot be opened is left and named."""
    key = run.world.vault.newest
    if key is None:
        raise ConfigurationError(
            "There is no key to seal with.", next_step="name keys and seal_with in [at_rest] of the settings"
        )
    counts: Counter[str] = Counter()
    unreadable: list[str] = []
    if not run.dry_run:
        for kind in _KINDS:
            for sealed, failed in _sealed_anew(run, key, kind):
                counts[kind.name] += sealed
                unreadable += failed
                run.told(counts)
    with reading(run.engine) as conn:
        keys = upkeep.count_keys(conn)
    run.audit("rekey", "key", key, counts, unreadable=len(unreadable), keys=keys)
    return Rekeyed(
        key=key,
        sealed=dict(counts),
        unreadable=len(unreadable),
        shown=tuple(unreadable[:UNREADABLE_SHOWN_MAX]),
        keys=keys,
        is_dry_run=run.dry_run,
    )


_Row = TypeVar("_Row")
_Written = TypeVar("_Written")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind(Generic[_Row, _Written]):
    """One kind of content that is kept sealed: how its rows are read in order, sealed anew, written back and named."""

    name: str
    first: object  # a key before all keys of rows
    key_of: Callable[[_Row], object]
    read: Callable[..., list[_Row]]
    seal: Callable[[Vault, _Row], _Written | Unread]
    write: Callable[[Connection, Sequence[_Written]], None]
    called: str  # how the list of unreadable rows calls one


def _seal_request(vault: Vault, row: RequestRow) -> RequestRow | Unread:
    body = open_body(vault, row)
    return body if isinstance(body, Unread) else seal_request(vault, replace(row, body=body))


def _seal_reply(vault: Vault, row: ReplyBody) -> ReplyBody | Unread:
    body = vault.open(row.body, row.sealed_by, reply_binding(row.attempt_id, row.claim_token, row.send_ordinal))
    if isinstance(body, Unread):
        return body
    sealed = seal_reply(
        vault, body, attempt_id=row.attempt_id, claim_token=row.claim_token, send_ordinal=row.send_ordinal
    )
    return replace(row, body=sealed.content, sealed_by=sealed.key)


def _seal_wanted(vault: Vault, row: SlotRow) -> tuple[SlotRow, str, str | None] | Unread:
    text = open_values(vault, row)
    if isinstance(text, Unread):
        return text
    return (row, *seal_values(vault, text, row, row.wanted_mapping_fingerprint or ""))


_KINDS: Final[tuple[_Kind[Any, Any], ...]] = (
    _Kind(
        name="requests",
        first=("", 0),
        key_of=attrgetter("attempt_id", "freeze"),
        read=upkeep.read_requests_of_other_keys,
        seal=_seal_request,
        write=upkeep.write_request_bodies,
        called="request {0.attempt_id}/{0.freeze}",
    ),
    _Kind(
        name="replies",
        first=0,
        key_of=attrgetter("id"),
        read=upkeep.read_replies_of_other_keys,
        seal=_seal_reply,
        write=upkeep.write_reply_bodies,
        called="reply {0.id} of {0.attempt_id}",
    ),
    _Kind(
        name="wanted",
        first="",
        key_of=attrgetter("link_key"),
        read=upkeep.read_wanted_of_other_keys,
        seal=_seal_wanted,
        write=upkeep.write_wanted_values,
        called="values of {0.link_key}",
    ),
)


def _sealed_anew(run: Run, key: str, kind: _Kind[Any, Any]) -> Iterator[tuple[int, list[str]]]:
    """How many rows each batch sealed, and which it could not open."""
    vault, after = run.world.vault, kind.first

    def seal(conn: Connection) -> tuple[list[Any], int, list[str]]:
        rows = kind.read(conn, key, after=after, limit=run.batch)
        sealed = [(row, kind.seal(vault, row)) for row in rows]
        written = [new for _, new in sealed if not isinstance(new, Unread)]
        kind.write(conn, written)
        failed = [f"{kind.called.format(row)}: {UNREAD[new]}" for row, new in sealed if isinstance(new, Unread)]
        return rows, len(written), failed

    while (batch := commit(run.engine, seal))[0]:
        rows, count, failed = batch
        after = kind.key_of(rows[-1])
        yield count, failed


# ------------------------------------------------------------------------------------------------ erasing, pruning


_Delete: TypeAlias = Callable[[Connection, Sequence[str]], Mapping[str, int]]


def erase(run: Run, *, days: int | None) -> Removed:
    """Erase the contents of what ended `days` ago or earlier; digests and sizes are kept, and so is every decision."""
    before = _cutoff(run, days, "erase_after_days")
    counts: Counter[str] = Counter()
    for ids in _batches(run, upkeep.read_erasable, before):
        counts["attempts"] += len(ids)
        if not run.dry_run:
            counts += commit(run.engine, partial(_erase, run.world.clock, ids))
        run.told(counts)
    for keys in _batches(run, upkeep.read_erasable_wanted, before):
        if run.dry_run:
            counts["wanted"] += len(keys)
        else:
            counts["wanted"] += commit(run.engine, partial(upkeep.erase_wanted, keys=keys))
        run.told(counts)
    run.audit("erase", "contents", write_time(before), counts)
    return Removed(before=before, counts=dict(counts), is_dry_run=run.dry_run)


def prune(run: Run, *, days: int | None) -> Removed:
    """Delete updates that ended `days` ago or earlier and decide nothing any more, with what told of them."""
    before = _cutoff(run, days, "prune_after_days")
    counts: Counter[str] = Counter()
    for read, delete, name in (
        (upkeep.read_prunable, upkeep.prune_updates, "updates"),
        (upkeep.read_prunable_backfills, upkeep.prune_backfills, "backfills"),
    ):
        for ids in _batches(run, read, before):
            if run.dry_run:
                counts[name] += len(ids)
            else:
                counts += commit(run.engine, partial(_delete, delete, ids))
            run.told(counts)
    run.audit("prune", "rows", write_time(before), counts)
    return Removed(before=before, counts=dict(counts), is_dry_run=run.dry_run)


def _erase(clock: Clock, ids: Sequence[str], conn: Connection) -> Counter[str]:
    requests, replies = upkeep.erase_contents(conn, ids, now=clock.now(conn))
    return Counter(requests=requests, replies=replies)


def _delete(delete: _Delete, ids: Sequence[str], conn: Connection) -> Counter[str]:
    return Counter(delete(conn, ids))


def _cutoff(run: Run, days: int | None, setting: str) -> dt.datetime:
    if days is None:
        raise CallerError(
            "Nothing says how old a row has to be.",
            next_step=f"add --after-days N, or write {setting} in [at_rest] of the settings",
        )
    with reading(run.engine) as conn:
        return run.world.clock.now(conn) - dt.timedelta(days=days)


class _Read(Protocol):
    def __call__(self, conn: Connection, *, before: dt.datetime, after: str, limit: int) -> list[str]:
        """Keys after `after`, in order."""


def _batches(run: Run, read: _Read, before: dt.datetime) -> Iterator[list[str]]:
    after = ""
    while True:
        with reading(run.engine) as conn:
            keys = read(conn, before=before, after=after, limit=run.batch)
        if not keys:
            return
        yield keys
        after = keys[-1]
