"""The one composition root: from `Settings` to a `Runtime`.

A runtime opens nothing until it is used and holds no global state; two of them in one process do not know each other.
It is what an application talks to: it binds mapped classes, saves records inside the application's own transactions,
and makes workers. Everything it composes is replaceable by keyword, which is how tests bring their own clock or wire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlalchemy as sa

from pushlink.adapters.aiohttp_transport import AiohttpTransport
from pushlink.adapters.anchor_keys import AnchorKeys, anchor_keys_of
from pushlink.adapters.clock_ids import DatabaseClock, RandomIds
from pushlink.adapters.credentials import EnvironmentFileCredentials
from pushlink.adapters.egress import EgressPolicy
from pushlink.adapters.oauth import TokenDirectory
from pushlink.adapters.policy import AllowAllAuthority, PolicyAuthority
from pushlink.adapters.records import SqlRecordStore
from pushlink.adapters.separate import SeparateRecordStore
from pushlink.adapters.state_directory import StateDirectory
from pushlink.adapters.vault import vault_of
from pushlink.errors import CallerError, Code, Contended
from pushlink.flows.candidates import SaveItem
from pushlink.flows.deleted import Deleted, mark_deleted
from pushlink.flows.guarding import check_in, database_of
from pushlink.flows.inline import Inline, dispatch_inline
from pushlink.flows.outcomes import Outcome
from pushlink.flows.reserve import Reservation
from pushlink.flows.world import Terms, World
from pushlink.operations import packs
from pushlink.operations.packs import AppliedView
from pushlink.packs.model import Pack
from pushlink.ports import Authority, Clock, Credentials, Ids, RecordRef, Transport, Vault, WireReply, WireRequest
from pushlink.protocol.sealing import Plain
from pushlink.settings import Settings
from pushlink.store.access import reading, translated
from pushlink.store.active import CatalogReader
from pushlink.store.dialect import (
    create_engine,
    is_busy,
    is_lock_not_available,
    is_serialization_failure,
    secure_host_transaction,
)
from pushlink.store.reads import read_record_slots
from pushlink.store.revision import require_current
from pushlink.worker import Tally, Worker, WorkerOptions

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

#: What a save may be called with: the host's connection or session, with its transaction open.
Host: TypeAlias = "sa.Connection | Session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Replacements for what a runtime would make itself; `None` means: as the settings say."""

    engine: sa.Engine | None = None
    authority: Authority | None = None
    credentials: Credentials | None = None
    clock: Clock | None = None
    ids: Ids | None = None
    transport: Callable[[], Transport] | None = None
    vault: Vault | None = None


class Runtime:
    """One deployment in one process."""

    def __init__(self, settings: Settings, parts: Parts | None = None) -> None:
        self.settings = settings
        self._parts = parts or Parts()
        self._tables_seen = False
        self._checked_in = False
        self.records = _record_store(settings)

    @classmethod
    def from_settings(cls, path: str | Path | None = None, *, parts: Parts | None = None, **overrides: Any) -> Runtime:
        """Read settings from the file and the environment; raises `ConfigurationError` with every mistake."""
        return cls(Settings.load(path, **overrides), parts)

    def bind(self, source: object, name: str, *, zone: str = "UTC") -> None:
        """Tie a mapped class or a `Table` to a source object; `save` then takes its rows."""
        self.records.bind(source, name, zone=zone)

    @cached_property
    def engine(self) -> sa.Engine:
        """Pushlink's own engine, made on first use; its transactions are not the host's."""
        return self._parts.engine or create_engine(self.settings.database_url)

    @cached_property
    def world(self) -> World:
        """The ports and terms that flows work with, made on first use."""
        worker = self.settings.worker
        secret = self.settings.secret()
        return World(
            records=self.records,
            authority=self._parts.authority or self._authority(),
            credentials=self._parts.credentials or EnvironmentFileCredentials(secret),
            clock=self._parts.clock or DatabaseClock(),
            ids=self._parts.ids or RandomIds(),
            catalog=CatalogReader(),
            secret=secret,
            vault=self._parts.vault or self._vault(secret),
            deployment_id=self.settings.deployment_id,
            state=self.state,
            terms=Terms(
                lease_ms=worker.lease_ms,
                margin_ms=worker.margin_ms,
                claims_max=worker.claims_max,
                mirror_tries_max=worker.mirror_tries_max,
                pause_max_ms=self.settings.operators.pause_max_ms,
                trusts_uncertified=self.settings.contracts.trust_uncertified,
            ),
        )

    @cached_property
    def state(self) -> StateDirectory | None:
        """What this machine remembers of the database, where the settings name a place for it."""
        place = self.settings.state_directory
        return None if place is None else StateDirectory(self.settings.resolve(place))

    def upgrade(self) -> None:
        """Bring the database's tables to this release (`pushlink db upgrade`)."""
        from pushlink.store.schema import upgrade  # noqa: PLC0415 - Alembic is loaded only by who migrates

        upgrade(self.engine)

    def apply_pack(self, pack: Pack | str | Path, *, tenant: str = "", actor: str, reason: str) -> AppliedView:
        """Install a pack (or a pack file's), or its newer version, for a tenant (`pushlink pack apply`).

        Raises `PackError` with every finding of the file, or `ConfigurationError` when the slot registry refuses it.
        """
        with self.engine.begin() as conn:
            require_current(conn)
            return packs.apply(
                conn,
                pack,
                tenant=tenant,
                install_ids=self.world.ids.fresh,
                reason=reason,
                actor=actor,
                now=self.world.clock.now(conn),
            )

    def save(
        self,
        host: Host,
        record: object,
        record_id: object = None,
        *,
        user: object,
        tenant: str = "",
    ) -> list[Outcome]:
        """Reserve the pushes of one record in the host's transaction: a row of a bound class, or (object name, id).

        Flushes a session first. Never commits; a refusal is an outcome. Raises `CallerError` for a record or id that is
        not of a declared object, and `Contended` when the host's transaction has lost a race and must be run again.
        """
        [outcomes] = self.save_many(
            host, [record if record_id is None else (record, record_id)], user=user, tenant=tenant
        )
        return outcomes

    def save_many(
        self, host: Host, records: Iterable[object], *, user: object, tenant: str = ""
    ) -> list[list[Outcome]]:
        """`save` for many records: rows of bound classes, or (object name, id) pairs; outcomes in their order."""
        conn = _connection_of(host)
        items = [SaveItem(ref=self._ref(record), user_id=str(user), tenant=tenant) for record in records]
        secure_host_transaction(conn)
        self._require_tables(conn)
        with _races_are_contended(), conn.begin_nested():
            return self._reservation.save(conn, items, actor=f"user:{user}", now=self.world.clock.now(conn))

    def deleted(
        self, host: Host, record: object, record_id: object = None, *, user: object, tenant: str = ""
    ) -> list[Deleted]:
        """Tell that a record was deleted, in the host's transaction; nothing is ever deleted remotely.

        What was never sent of it ends, what is linked or in doubt is marked. Takes a row of a bound class (its key must
        still be set) or (object name, id); answers with one entry for each action that ever knew the record.
        """
        conn = _connection_of(host)
        ref = self._ref(record if record_id is None else (record, record_id))
        secure_host_transaction(conn)
        with _races_are_contended(), conn.begin_nested():
            now = self.world.clock.now(conn)
            return mark_deleted(conn, ref, tenant=tenant, actor=f"user:{user}", now=now)

    async def save_async(
        self,
        session: AsyncSession,
        record: object,
        record_id: object = None,
        *,
        user: object,
        tenant: str = "",
    ) -> list[Outcome]:
        """`save` for an `AsyncSession`, in its transaction."""
        return await session.run_sync(lambda sync: self.save(sync, record, record_id, user=user, tenant=tenant))

    async def save_many_async(
        self, session: AsyncSession, records: Sequence[object], *, user: object, tenant: str = ""
    ) -> list[list[Outcome]]:
        """`save_many` for an `AsyncSession`, in its transaction."""
        return await session.run_sync(lambda sync: self.save_many(sync, records, user=user, tenant=tenant))

    def push(self, record: object, record_id: object = None, *, tenant: str = "") -> list[Inline]:
        """Dispatch what is due of one record now, on this thread: a row of a bound class, or (object name, id).

        Call it with no transaction open. Answers with the record's attempts as they stand afterwards; none when nothing
        was ever reserved. Raises `CallerError` on the thread of a running event loop.
        """
        ref = self._ref(record if record_id is None else (record, record_id))
        with reading(self.engine) as conn:
            found = read_record_slots(conn, tenant=tenant, source_object=ref.source_object, record_id=ref.record_id)
        if not found:
            return []
        database = database_of(self.world, self.engine)
        with translated():
            if not self._checked_in:
                self._checked_in = check_in(self.world, database, actor=self.world.ids.token())
            return dispatch_inline(self.world, database, self.transport(), [slot.link_key for slot in found])

    def worker(
        self, *, options: WorkerOptions | None = None, on_progress: Callable[[Tally], None] | None = None
    ) -> Worker:
        """A worker over this runtime's database; run it in an event loop of its own."""
        return Worker(
            world=self.world,
            engine=self.engine,
            transport=self.transport(),
            options=options or self.worker_options(),
            on_progress=on_progress,
        )

    def worker_options(self) -> WorkerOptions:
        """The options that the settings declare."""
        worker = self.settings.worker
        return WorkerOptions(
            sends_max=worker.sends_max,
            threads=worker.threads,
            poll_s=worker.poll_ms / 1_000,
            grace_s=worker.grace_ms / 1_000,
            claim_max=worker.sends_max,
        )

    def drain(self) -> Tally:
        """Work until nothing is due, on this thread; for scripts and tests."""
        return asyncio.run(self.worker().run(until_idle=True))

    @contextmanager
    def sender(self) -> Iterator[Callable[[WireRequest], WireReply]]:
        """A function that sends one request at once, on this thread, for as long as the block lasts.

        No transaction may be open beside it. Raises `CallerError` on the thread of a running event loop.
        """
        transport = self.transport()
        with asyncio.Runner() as runner:
            try:
                yield lambda request: runner.run(transport.send(request))
            finally:
                runner.run(transport.close())

    def transport(self) -> Transport:
        """A fresh transport, as the settings allow it to reach."""
        if self._parts.transport is not None:
            return self._parts.transport()
        egress, tokens = self.settings.egress, self.settings.token_directory
        return AiohttpTransport(
            self.world.credentials,
            egress=EgressPolicy(allow_loopback=egress.allow_loopback, allow_private=egress.allow_private),
            ca_file=self.settings.resolve(egress.ca_file) if egress.ca_file else None,
            tokens=TokenDirectory(self.settings.resolve(tokens)) if tokens else None,
        )

    def close(self) -> None:
        """Give back the connections of pushlink's own engine."""
        if "engine" in self.__dict__ and self._parts.engine is None:
            self.engine.dispose()
        if isinstance(self.records, SeparateRecordStore):
            self.records.close()

    def _require_tables(self, conn: sa.Connection) -> None:
        """Once in a runtime's life: a missing table says which command to run, instead of a driver's error."""
        if not self._tables_seen:
            require_current(conn)
            self._tables_seen = True

    @cached_property
    def _reservation(self) -> Reservation:
        return Reservation(self.world)

    def anchor_keys(self) -> AnchorKeys:
        """The keys that sign and check anchors of the audit; none where the settings name none."""
        declared = self.settings.audit
        places = EnvironmentFileCredentials(b"audit")  # keys no generation here: who verifies need not have the secret
        return anchor_keys_of(declared.keys, places, newest=declared.sign_with)

    def _vault(self, secret: bytes) -> Vault:
        declared = self.settings.at_rest
        if declared.seal_with is None:
            return Plain()
        return vault_of(
            declared.keys,
            EnvironmentFileCredentials(secret),
            newest=declared.seal_with,
            required=declared.require_sealed,
        )

    def _authority(self) -> Authority:
        declared = self.settings.authority
        if declared.kind == "allow_all" or declared.file is None:
            return AllowAllAuthority()
        return PolicyAuthority.from_file(self.settings.resolve(declared.file), self.records)

    def _ref(self, record: object) -> RecordRef:
        match record:
            case RecordRef():
                return record
            case (str(name), identity):
                return RecordRef(source_object=name, record_id=self.records.canonical_id(name, identity))
            case _:
                return self.records.ref_of(record)


@contextmanager
def _races_are_contended() -> Iterator[None]:
    """A race that the host's transaction lost, or a wait that it bounded, is told as `Contended`."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        if not (is_serialization_failure(error) or is_busy(error) or is_lock_not_available(error)):
            raise
        msg = "The host's transaction lost a race for a record's slot."
        raise Contended(msg, next_step="roll back and run the transaction again") from error


def _record_store(settings: Settings) -> SqlRecordStore:
    url = settings.records_database_url
    if url is None:
        return SqlRecordStore(settings.objects.values())
    return SeparateRecordStore(settings.objects.values(), lambda: create_engine(url))


def _connection_of(host: Host) -> sa.Connection:
    """The host's connection with its transaction; a session is flushed first, so that its rows can be read."""
    if isinstance(host, sa.Connection):
        return host
    flush = getattr(host, "flush", None)
    connection = getattr(host, "connection", None)
    if flush is None or connection is None:
        raise CallerError(
            f"A save needs a SQLAlchemy Connection or Session, not {type(host).__name__}.",
            code=Code.CALLER_MISTAKE,
            next_step="for an AsyncSession call save_async",
        )
    flush()
    found = connection()
    if not isinstance(found, sa.Connection):
        raise CallerError("The session is asynchronous.", next_step="call save_async")
    return found
