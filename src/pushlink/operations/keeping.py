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
from typing import Final, Protocol, TypeAlias

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
    vault, key = run.world.vault, run.world.vault.newest
    if key is None:
        raise ConfigurationError(
            "There is no key to seal with.", next_step="name keys and seal_with in [at_rest] of the settings"
        )
    counts: Counter[str] = Counter()
    unreadable: list[str] = []
    if not run.dry_run:
        for batch in (_requests, _replies, _wanted):
            for name, sealed, failed in batch(run, vault, key):
                counts[name] += sealed
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


_Delete: TypeAlias = Callable[[Connection, Sequence[str]], Mapping[str, int]]
_Batch: TypeAlias = tuple[str, int, list[str]]


def _requests(run: Run, vault: Vault, key: str) -> Iterator[_Batch]:
    after = ("", 0)

    def seal(conn: Connection) -> tuple[list[RequestRow], int, list[str]]:
        rows = upkeep.read_requests_of_other_keys(conn, key, after=after, limit=run.batch)
        opened = [(row, open_body(vault, row)) for row in rows]
        fit = [seal_request(vault, replace(row, body=body)) for row, body in opened if isinstance(body, bytes)]
        upkeep.write_request_bodies(conn, fit)
        failed = [f"request {r.attempt_id}/{r.freeze}: {UNREAD[b]}" for r, b in opened if isinstance(b, Unread)]
        return rows, len(fit), failed

    while (done := commit(run.engine, seal))[0]:
        rows, count, failed = done
        after = (rows[-1].attempt_id, rows[-1].freeze)
        yield "requests", count, failed


def _replies(run: Run, vault: Vault, key: str) -> Iterator[_Batch]:
    after = 0

    def seal(conn: Connection) -> tuple[list[ReplyBody], int, list[str]]:
        rows = upkeep.read_replies_of_other_keys(conn, key, after=after, limit=run.batch)
        opened = [(row, _open_reply(vault, row)) for row in rows]
        fit = [_sealed_reply(vault, row, body) for row, body in opened if isinstance(body, bytes)]
        upkeep.write_reply_bodies(conn, fit)
        return (
            rows,
            len(fit),
            [f"reply {r.id} of {r.attempt_id}: {UNREAD[b]}" for r, b in opened if isinstance(b, Unread)],
        )

    while (done := commit(run.engine, seal))[0]:
        rows, count, failed = done
        after = rows[-1].id
        yield "replies", count, failed


def _wanted(run: Run, vault: Vault, key: str) -> Iterator[_Batch]:
    after = ""

    def seal(conn: Connection) -> tuple[list[SlotRow], int, list[str]]:
        rows = upkeep.read_wanted_of_other_keys(conn, key, after=after, limit=run.batch)
        opened = [(row, open_values(vault, row)) for row in rows]
        fit = [(r, *_sealed_values(vault, r, text)) for r, text in opened if not isinstance(text, Unread)]
        upkeep.write_wanted_values(conn, fit)
        return (
            rows,
            len(fit),
            [f"values of {r.link_key}: {UNREAD[text]}" for r, text in opened if isinstance(text, Unread)],
        )

    while (done := commit(run.engine, seal))[0]:
        rows, count, failed = done
        after = rows[-1].link_key
        yield "wanted", count, failed


def _open_reply(vault: Vault, row: ReplyBody) -> bytes | Unread:
    return vault.open(row.body, row.sealed_by, reply_binding(row.attempt_id, row.claim_token, row.send_ordinal))


def _sealed_reply(vault: Vault, row: ReplyBody, body: bytes) -> ReplyBody:
    sealed = seal_reply(
        vault, body, attempt_id=row.attempt_id, claim_token=row.claim_token, send_ordinal=row.send_ordinal
    )
    return replace(row, body=sealed.content, sealed_by=sealed.key)


def _sealed_values(vault: Vault, row: SlotRow, text: str) -> tuple[str, str | None]:
    return seal_values(vault, text, row, row.wanted_mapping_fingerprint or "")


# ------------------------------------------------------------------------------------------------ erasing, pruning


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
