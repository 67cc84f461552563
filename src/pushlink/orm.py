"""The ORM hook, for those who want it: what a session flushed is saved when it commits, without a call for each record.

    hook = pushlink.orm.install(runtime, SessionLocal, user=lambda session: session.info["user"])

New and changed rows of bound classes are collected as they are flushed, and saved in the same transaction just before
the commit: each record once, in order. A change of mirror fields alone is none (D-22). What a savepoint rolled back is
forgotten with it, and a deleted row is told as deleted. A refusal is handed to a callback and never stops a commit; a
lost race (`Contended`) does, since the transaction has to be run again anyway. Nothing is global: the hook hangs on
the sessions it was installed on, and its notes about a transaction are in that session's `info` until it ends.

It sees what the unit of work sees. `session.execute(update(...))`, bulk methods, raw SQL and what the database does by
itself pass it by; call `Runtime.save_many` for these.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import InstanceState, Mapper, Session, SessionTransaction

from pushlink.errors import CallerError
from pushlink.flows.apart import save_apart
from pushlink.flows.outcomes import Outcome, Refused
from pushlink.ports import RecordRef
from pushlink.protocol.associations import association_fields
from pushlink.protocol.render import source_fields

if TYPE_CHECKING:
    from pushlink.bootstrap import Runtime
    from pushlink.store.active import ActiveAction

log: Final = logging.getLogger("pushlink.orm")

#: Answers for a session: who saves, in which tenant.
OfSession: TypeAlias = Callable[[Session], object]
OnRefused: TypeAlias = Callable[[Session, Refused], object]


def install(
    runtime: Runtime,
    target: Any,
    *,
    user: OfSession,
    tenant: OfSession | None = None,
    on_refused: OnRefused | None = None,
) -> Hook:
    """Save what sessions commit from now on; `uninstall` of the answer ends it.

    `target` is a session, a sessionmaker, a scoped session or a subclass of `Session`; of an asynchronous session it is
    the session itself, or a maker or class with a `sync_session_class` of its own. `user` and `tenant` are asked at
    each commit that has something to save. Without `on_refused` a refusal is a warning in the log `pushlink.orm`.
    """
    if runtime.settings.records_database_url is not None:
        raise CallerError(
            "The records are in another database, where a commit of theirs cannot hold a save (D-45).",
            next_step="save on a connection of runtime.engine after the commit, and run pushlink backfill --since",
        )
    return Hook(runtime, _sessions_of(target), user=user, tenant=tenant, on_refused=on_refused)


@dataclass(slots=True)
class _Change:
    """What one transaction did to one record. `columns` is `None` where the whole row is new."""

    mapper: Mapper[Any]
    columns: set[str] | None
    is_deleted: bool = False

    def followed_by(self, later: _Change) -> _Change:
        """Both as one: a deletion is the last word, and a row that came back is a new one."""
        if later.is_deleted:
            return later
        if self.is_deleted or self.columns is None or later.columns is None:
            return _Change(later.mapper, None)
        return _Change(later.mapper, self.columns | later.columns)


_Changes: TypeAlias = dict[RecordRef, _Change]


@dataclass(slots=True)
class _Notes:
    """What is known of a session's open transaction: changes for each of its savepoints, and for itself."""

    changes: defaultdict[SessionTransaction, _Changes] = field(default_factory=lambda: defaultdict(dict))
    released: set[SessionTransaction] = field(default_factory=set)
    commits: int = 0  # commits that were announced while a savepoint was open
    is_committing: bool = False


class Hook:
    """One installed hook."""

    def __init__(
        self,
        runtime: Runtime,
        sessions: Any,
        *,
        user: OfSession,
        tenant: OfSession | None,
        on_refused: OnRefused | None,
    ) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._user = user
        self._tenant = tenant
        self._on_refused = on_refused or _log_refusal
        self._listeners: Mapping[str, Callable[..., None]] = {
            "after_flush": self._after_flush,
            "persistent_to_deleted": self._after_delete,
            "after_flush_postexec": self._after_flush_postexec,
            "before_commit": self._before_commit,
            "after_commit": self._after_commit,
            "after_transaction_end": self._after_transaction_end,
        }
        for name, listener in self._listeners.items():
            event.listen(sessions, name, listener)

    def uninstall(self) -> None:
        """Listen no more; what an open transaction has not committed yet is not saved. May be called twice."""
        for name, listener in self._listeners.items():
            if event.contains(self._sessions, name, listener):
                event.remove(self._sessions, name, listener)

    # ---------------------------------------------------------------------------------- collecting

    def _after_flush(self, session: Session, _context: object) -> None:
        for row in session.new:
            self._note(session, row, columns=None)
        for row in session.dirty:
            columns = _changed_columns(sa.inspect(row))
            if columns:
                self._note(session, row, columns=columns)

    def _after_delete(self, session: Session, row: object) -> None:
        self._note(session, row, columns=None, is_deleted=True)

    def _note(self, session: Session, row: object, *, columns: set[str] | None, is_deleted: bool = False) -> None:
        if self._runtime.records.object_of(row) is None:
            return
        transaction = session.get_nested_transaction() or session.get_transaction()
        if transaction is None:  # a flush is always inside one
            return
        ref = self._runtime.records.ref_of(row)
        change = _Change(sa.inspect(row).mapper, columns, is_deleted)
        noted = self._notes(session).changes[transaction]
        noted[ref] = noted[ref].followed_by(change) if ref in noted else change

    def _notes(self, session: Session) -> _Notes:
        notes: _Notes = session.info.setdefault(self, _Notes())
        return notes

    # ---------------------------------------------------------------------------------- transactions

    def _before_commit(self, session: Session) -> None:
        if session.in_nested_transaction():
            # A savepoint's release, or a commit with savepoints left open: these are released first, see below.
            self._notes(session).commits += 1
            return
        session.flush()
        if self in session.info:
            self._notes(session).is_committing = True
            self._save(session)

    def _after_flush_postexec(self, session: Session, _context: object) -> None:
        # Somebody else's listener changed something in the middle of the commit.
        notes = session.info.get(self)
        if notes is not None and notes.is_committing:
            self._save(session)

    def _after_commit(self, session: Session) -> None:
        savepoint = session.get_nested_transaction()
        if savepoint is not None:
            self._notes(session).released.add(savepoint)

    def _after_transaction_end(self, session: Session, transaction: SessionTransaction) -> None:
        notes: _Notes | None = session.info.get(self)
        if notes is None:
            return
        if transaction.parent is None:
            del session.info[self]
        elif transaction.nested:
            announced = notes.commits
            notes.commits = max(announced - 1, 0)
            changes = notes.changes.pop(transaction, {})
            if transaction not in notes.released:
                return  # rolled back, and what it did with it
            notes.released.discard(transaction)
            outer = notes.changes[_boundary(transaction.parent)]
            for ref, change in changes.items():
                outer[ref] = outer[ref].followed_by(change) if ref in outer else change
            if notes.commits and not session.in_nested_transaction():
                # One more commit was announced than savepoints were released: the transaction itself is ending.
                notes.is_committing = True
                self._save(session)

    # ---------------------------------------------------------------------------------- saving

    def _save(self, session: Session) -> None:
        """Save what was noted and not saved yet; called with no savepoint of the session open."""
        notes = self._notes(session)
        pending: _Changes = {}
        for changes in notes.changes.values():
            pending |= changes
        notes.changes.clear()
        if not pending:
            return
        user, tenant = self._author(session)
        by_connection: defaultdict[sa.Connection, _Changes] = defaultdict(dict)
        for ref in sorted(pending, key=lambda ref: (ref.source_object, ref.record_id)):
            conn = session.connection(bind_arguments={"mapper": pending[ref].mapper})
            by_connection[conn][ref] = pending[ref]
        for conn, changes in by_connection.items():
            for ref in [ref for ref, change in changes.items() if change.is_deleted]:
                self._runtime.deleted(conn, ref, user=user, tenant=tenant)
            self._save_all(session, conn, self._to_save(conn, changes, tenant), user=user, tenant=tenant)

    def _save_all(
        self, session: Session, conn: sa.Connection, refs: Sequence[RecordRef], *, user: object, tenant: str
    ) -> None:
        def save(group: Sequence[RecordRef]) -> list[list[Outcome]]:
            return self._runtime.save_many(conn, group, user=user, tenant=tenant)

        for outcomes in save_apart(save, refs, tenant=tenant):
            for outcome in outcomes:
                if isinstance(outcome, Refused):
                    self._on_refused(session, outcome)

    def _to_save(self, conn: sa.Connection, changes: _Changes, tenant: str) -> list[RecordRef]:
        """The records that have more than their mirror fields changed."""
        kept = {ref: change for ref, change in changes.items() if not change.is_deleted}
        if all(change.columns is None for change in kept.values()):
            return list(kept)
        catalog = self._runtime.world.catalog.read(conn)
        shown: dict[str, frozenset[str]] = {}
        for name in {ref.source_object for ref in kept}:
            shown[name] = self._only_shown(name, catalog.actions_for(tenant, name))
        return [
            ref for ref, change in kept.items() if change.columns is None or change.columns - shown[ref.source_object]
        ]

    def _only_shown(self, source_object: str, actions: Iterable[ActiveAction]) -> frozenset[str]:
        """The columns that show a remote id to people and that nothing is made of."""
        mirrors: set[str] = set()
        used: set[str] = set()
        for action in actions:
            mirror = action.contract.mirror
            if mirror is not None:
                mirrors |= {name for name in (mirror.remote_id_field, mirror.provenance_field) if name is not None}
            used |= {*source_fields(action.contract), *association_fields(action.contract)}
            used |= {condition.field for condition in action.conditions}
        return self._runtime.records.columns_of(source_object, mirrors - used)

    def _author(self, session: Session) -> tuple[object, str]:
        user = self._user(session)
        if user is None:
            raise CallerError(
                "The ORM hook was told no user for this session, and a save reads on somebody's authority.",
                next_step="let `user` answer for every session that commits rows of bound classes",
            )
        return user, "" if self._tenant is None else str(self._tenant(session))


def _changed_columns(state: InstanceState[Any]) -> set[str]:
    """Columns of a flushed row that were set to another value."""
    return {
        column.name
        for attribute in state.mapper.column_attrs
        if state.attrs[attribute.key].history.has_changes()
        for column in attribute.columns
        if isinstance(column, sa.Column)
    }


def _boundary(transaction: SessionTransaction) -> SessionTransaction:
    """The savepoint or the transaction that a part of it belongs to."""
    while transaction.parent is not None and not transaction.nested:
        transaction = transaction.parent
    return transaction


def _log_refusal(_session: Session, refused: Refused) -> None:
    log.warning("a record of %s was refused at its commit: %s", refused.about.source_object, refused.code.value)


def _sessions_of(target: Any) -> Any:
    """What SQLAlchemy can hang a listener on; raises `CallerError` for anything else."""
    if isinstance(sync_session := getattr(target, "sync_session", None), Session):
        return sync_session
    made = getattr(target, "class_", target)
    if isinstance(made, type) and not issubclass(made, Session) and hasattr(made, "sync_session_class"):
        chosen = getattr(target, "kw", {}).get("sync_session_class") or made.sync_session_class
        if chosen is Session:
            raise CallerError(
                "These asynchronous sessions share SQLAlchemy's own Session class with everybody else.",
                next_step="give the maker sync_session_class=AppSession, where AppSession is a subclass of Session",
            )
        return chosen
    is_session = isinstance(target, Session) or (isinstance(target, type) and issubclass(target, Session))
    if is_session or hasattr(target, "session_factory") or hasattr(target, "class_"):
        return target
    raise CallerError(
        f"The ORM hook is installed on sessions, not on {type(target).__name__}.",
        next_step="pass a Session, a subclass of it, a sessionmaker or an AsyncSession",
    )
