"""What waits for a person, by the tables of `protocol/attention.py`: causes with counts, and rows a page at a time.

Every statement is built from the entries of those tables, so that what is counted, what is listed and what is said of
one record cannot differ. Nothing is locked and nothing is decided.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final, TypeAlias, cast

import sqlalchemy as sa

from pushlink.protocol import attention
from pushlink.protocol.attention import PATIENT, Entry, Fact, Kind
from pushlink.protocol.replies import FOR_PEOPLE
from pushlink.protocol.snapshots import Digest, LinkKey
from pushlink.protocol.states import KNOWN_LANES, UNSETTLED, Hold, LinkStatus, Operation
from pushlink.store.plans import LinkGroup, group_links
from pushlink.store.rows import AttemptRow, LinkRow, SlotRow, columns_of, read_row, read_rows
from pushlink.store.tables import push_attempt, push_request, push_slot, remote_link

#: Reasons of what is tried again by itself, and yet waits for somebody.
_IN_VAIN: Final = sorted(code.value for code in FOR_PEOPLE)

#: Where attempts that wait may be found, each by an index of its own; the millions that ended well are in none of them.
#: Literal, as the planner must see that a partial index covers it.
_PLACES: Final = (
    "(hold_code IS NOT NULL OR status IN ('ambiguous_remote_effect', 'terminal_failed'))",
    "status IN ('pending', 'writeback_pending') AND hold_code IS NULL",
    "status IN ('processing', 'post_sent', 'writeback_commit_pending') AND hold_code IS NULL",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """How many wait for one reason, and since when the first of them does."""

    kind: Kind
    code: str
    rows: int
    oldest: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRow:
    """One row that waits, and its record; `key` is where a page goes on. What is about an attempt has it."""

    kind: Kind
    code: str
    key: str
    link_key: LinkKey
    attempt: AttemptRow | None
    link: LinkRow | None
    source_object: str
    source_record_id: str
    since: dt.datetime


# ------------------------------------------------------------------------------------------------ what waits

_Condition: TypeAlias = sa.ColumnElement[bool]

_OF_TENANT: Final = sa.bindparam("of_tenant", type_=sa.Text())
_OF_KIND: Final = sa.bindparam("of_kind", type_=sa.Text())
_OF_CODE: Final = sa.bindparam("of_code", type_=sa.Text())
_AFTER: Final = sa.bindparam("after", type_=sa.Text())
_AT_MOST: Final = sa.bindparam("at_most", type_=sa.Integer())
_KEYS: Final = sa.bindparam("keys", expanding=True, type_=sa.Text())


def read_causes(conn: sa.Connection, *, tenant: str | None, kind: Kind | None = None) -> list[Cause]:
    """Every cause that rows tell of by themselves, or those of one kind, with its count: of one tenant, or of all."""
    found: dict[tuple[str, str], Cause] = {}
    for source in _sources(kind):
        statement = _counting(source, of_tenant=tenant is not None, of_kind=kind is not None)
        for word, code, count, oldest in conn.execute(statement, {"of_tenant": tenant, "of_kind": kind and kind.value}):
            known = found.get((word, code))
            found[word, code] = Cause(
                kind=Kind(word),
                code=code,
                rows=count + (known.rows if known else 0),
                oldest=min(oldest, known.oldest) if known else oldest,
            )
    return [found[cause] for cause in sorted(found)]


def read_waiting(
    conn: sa.Connection, kind: Kind, code: str, *, tenant: str, after: str = "", limit: int
) -> list[WaitingRow]:
    """Rows that wait for one reason, behind a key; those that were made first come first."""
    found = [
        row
        for source in _sources(kind)
        for row in source.read(
            conn,
            source.page,
            {"of_tenant": tenant, "of_kind": kind.value, "of_code": code, "after": after, "at_most": limit},
        )
    ]
    return sorted(found, key=lambda row: row.key)[:limit]


def read_waiting_of(conn: sa.Connection, keys: Sequence[LinkKey]) -> list[WaitingRow]:
    """Everything that waits under these keys, and that rows tell of by themselves."""
    asked = sorted(set(keys))
    return [row for source in _SOURCES for row in source.read(conn, source.of_keys, {"keys": asked})]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Source:
    """Where rows stand, which kinds they may be of, how they are judged and read; each statement is built once."""

    kinds: frozenset[Kind]
    table: sa.FromClause
    where: tuple[_Condition, ...]
    kind: sa.ColumnElement[Any]
    code: sa.ColumnElement[str]
    key: sa.Column[Any]
    link_key: sa.Column[Any]
    tenant: sa.Column[Any]
    since: sa.ColumnElement[Any]
    shape: type[AttemptRow | LinkRow]
    shaped: sa.Table

    @cached_property
    def page(self) -> sa.Select[Any]:
        """Rows of one cause behind a key."""
        where = [self.tenant == _OF_TENANT, self.kind == _OF_KIND, self.code == _OF_CODE, self.key > _AFTER]
        return self._rows(where).limit(_AT_MOST)

    @cached_property
    def of_keys(self) -> sa.Select[Any]:
        """Rows under some link keys."""
        return self._rows([self.link_key.in_(_KEYS)])

    def select(self, columns: Sequence[sa.ColumnElement[Any]], where: Sequence[_Condition]) -> sa.Select[Any]:
        named = (self.kind.label("kind"), self.code.label("code"))
        statement = sa.select(*columns, *named).select_from(self.table)
        return statement.where(*self.where, *where, self.kind.is_not(None))

    def _rows(self, where: Sequence[_Condition]) -> sa.Select[Any]:
        about = [push_slot.c.source_object, push_slot.c.source_record_id, self.since.label("waits_since")]
        return self.select([*columns_of(self.shape, self.shaped), *about], where).order_by(self.key)

    def read(self, conn: sa.Connection, statement: sa.Select[Any], bound: Mapping[str, object]) -> Iterator[WaitingRow]:
        """The rows of a `page`, or `of_keys`."""
        width = len(columns_of(self.shape, self.shaped))
        for row in conn.execute(statement, bound):
            item: Any = read_row(self.shape, cast("sa.Row[Any]", row[:width]))
            yield WaitingRow(
                kind=Kind(row.kind),
                code=row.code,
                key=item.id,
                link_key=item.link_key,
                attempt=item if isinstance(item, AttemptRow) else None,
                link=item if isinstance(item, LinkRow) else None,
                source_object=row.source_object,
                source_record_id=row.source_record_id,
                since=row.waits_since,
            )


@cache
def _counting(source: _Source, *, of_tenant: bool, of_kind: bool) -> sa.Select[Any]:
    """How many rows there are of each cause, and since when."""
    where = [source.tenant == _OF_TENANT] if of_tenant else []
    where += [source.kind == _OF_KIND] if of_kind else []
    rows = source.select([source.since.label("since")], where).subquery("rows")
    cause = (rows.c.kind, rows.c.code)
    return sa.select(*cause, sa.func.count(), sa.func.min(rows.c.since)).group_by(*cause)


def _word(condition: _Condition, then: str, otherwise: str) -> sa.ColumnElement[Any]:
    return sa.case((condition, then), else_=otherwise)


def _judged(table: Sequence[Entry], facts: Mapping[Fact, sa.ColumnElement[Any]]) -> sa.ColumnElement[Any]:
    """The kind of the first entry that a row fits, and null where nobody is needed."""
    fits = [
        (sa.and_(*(facts[fact].in_(sorted(words)) for fact, words in entry.where.items())), entry.kind.value)
        for entry in table
    ]
    return sa.case(*fits, else_=None)


def _attempt_facts() -> dict[Fact, sa.ColumnElement[Any]]:
    t, s = push_attempt, push_slot
    is_still_wanted = sa.and_(t.c.version == s.c.refused_version, s.c.wanted_version == s.c.refused_version)
    is_refused = sa.and_(sa.or_(t.c.association.is_not(None), is_still_wanted), _is_newest_of_its_kind())
    return {
        Fact.OPERATION: t.c.operation,
        Fact.STATUS: t.c.status,
        Fact.LANE: _word(t.c.dispatch_lane.in_(sorted(KNOWN_LANES)), "known", "unknown"),
        Fact.HOLD: sa.case(
            (t.c.hold_code.is_(None), "none"), (t.c.hold_code.in_(sorted(PATIENT)), "patient"), else_="waiting"
        ),
        Fact.REASON: _word(sa.func.coalesce(t.c.reason_code, "").in_(_IN_VAIN), "in_vain", "other"),
        Fact.VALUES: _word(is_refused, "refused", "other"),
    }


def _is_newest_of_its_kind() -> _Condition:
    """Whether no later update of the key is about the same: the values, or one association. Later ids sort after it."""
    later, t = push_attempt.alias("later"), push_attempt
    same = sa.and_(
        later.c.link_key == t.c.link_key,
        later.c.operation == Operation.UPDATE.value,
        later.c.association.is_not_distinct_from(t.c.association),
        later.c.id > t.c.id,
    )
    return ~sa.select(sa.literal(1)).where(same).exists()


def _attempts(place: str) -> _Source:
    t = push_attempt
    kind = _judged(attention.ATTEMPTS, _attempt_facts())
    code = sa.func.coalesce(t.c.hold_code, t.c.reason_code, sa.literal(""))
    return _Source(
        kinds=frozenset(entry.kind for entry in attention.ATTEMPTS),
        table=t.join(push_slot, push_slot.c.link_key == t.c.link_key),
        where=(sa.text(place),),  # type: ignore[arg-type]
        kind=kind,
        code=sa.case((kind == Kind.STRANDED.value, sa.literal("")), else_=code),
        key=t.c.id,
        link_key=t.c.link_key,
        tenant=t.c.tenant,
        since=t.c.updated_at,
        shape=AttemptRow,
        shaped=t,
    )


def _links(
    status: LinkStatus,
    *where: _Condition,
    kinds: frozenset[Kind],
    kind: sa.ColumnElement[Any],
    code: sa.ColumnElement[str],
    since: sa.ColumnElement[Any],
) -> _Source:
    t = remote_link
    return _Source(
        kinds=kinds,
        table=t.join(push_slot, push_slot.c.link_key == t.c.slot_key),
        where=(t.c.status == status.value, *where),
        kind=kind,
        code=code,
        key=t.c.id,
        link_key=t.c.link_key,
        tenant=t.c.tenant,
        since=since,
        shape=LinkRow,
        shaped=t,
    )


def _suspended() -> _Source:
    t = remote_link
    return _links(
        LinkStatus.SUSPENDED_DRIFT,
        kinds=frozenset({Kind.SUSPENDED}),
        kind=sa.literal(Kind.SUSPENDED.value),
        code=sa.func.coalesce(t.c.reason_code, sa.literal("")),
        since=t.c.updated_at,
    )


def _records() -> _Source:
    s = push_slot
    is_carried = sa.or_(
        s.c.wanted_version <= s.c.acknowledged_version,
        s.c.wanted_version <= s.c.refused_version,
        sa.and_(s.c.wanted_values_digest.is_not(None), s.c.wanted_values_digest == s.c.applied_values_digest),
    )
    facts = {
        Fact.MAPPING: _word(sa.func.coalesce(s.c.wanted_state, "") == "stale_mapping", "stale", "holds"),
        Fact.WANTED: _word(is_carried, "carried", "newer"),
    }
    open_update = sa.select(sa.literal(1)).where(push_attempt.c.update_key == s.c.link_key)
    kind = _judged(attention.RECORDS, facts)
    return _links(
        LinkStatus.FINALIZED,
        sa.or_(s.c.wanted_state.is_not(None), s.c.wanted_version > s.c.acknowledged_version),
        ~open_update.exists(),
        kinds=frozenset(entry.kind for entry in attention.RECORDS),
        kind=kind,
        code=_word(kind == Kind.STALE.value, "stale_mapping", ""),
        since=sa.func.coalesce(s.c.wanted_at, s.c.created_at),
    )


_SOURCES: Final = (*(_attempts(place) for place in _PLACES), _suspended(), _records())


def _sources(kind: Kind | None) -> list[_Source]:
    return [source for source in _SOURCES if kind is None or kind in source.kinds]


# ------------------------------------------------------------------------------------------------ by comparison


def group_finalized(conn: sa.Connection, *, tenant: str | None) -> list[LinkGroup]:
    """Finalized links by what a comparison looks at, without those whose update is held for drift and says so."""
    return group_links(conn, tenant=tenant, where=_untold())


def read_grouped(conn: sa.Connection, groups: Sequence[LinkGroup], *, after: str = "", limit: int) -> list[LinkRow]:
    """Links of these groups, behind a link's id."""
    if not groups:
        return []
    t = remote_link
    alike = [sa.and_(*(column.is_not_distinct_from(value) for column, value in group.shared)) for group in groups]
    statement = sa.select(*columns_of(LinkRow, t)).where(*_untold(), sa.or_(*alike), t.c.id > after)
    return read_rows(LinkRow, conn.execute(statement.order_by(t.c.id).limit(limit)))


def _untold() -> tuple[_Condition, ...]:
    t, a = remote_link, push_attempt
    held = sa.select(sa.literal(1)).where(a.c.update_key == t.c.slot_key, a.c.hold_code == Hold.DRIFT.value)
    return t.c.status == LinkStatus.FINALIZED.value, ~held.exists()


def read_freed(conn: sa.Connection, *, tenant: str | None, after: str = "", limit: int) -> list[SlotRow]:
    """Slots that had a create and have none now, nor a link: whose next save may create again. By link key."""
    s = push_slot
    holds_link = sa.select(sa.literal(1)).where(remote_link.c.slot_key == s.c.link_key)
    holds_create = sa.select(sa.literal(1)).where(push_attempt.c.create_key == s.c.link_key)
    statement = sa.select(*columns_of(SlotRow, s)).where(
        s.c.create_ordinal > 0, s.c.link_key > after, ~holds_link.exists(), ~holds_create.exists()
    )
    if tenant is not None:
        statement = statement.where(s.c.tenant == tenant)
    return read_rows(SlotRow, conn.execute(statement.order_by(s.c.link_key).limit(limit)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtfulGroup:
    """Creates in doubt that froze one action."""

    action_digest: Digest
    rows: int
    oldest: dt.datetime


def group_doubtful(conn: sa.Connection, *, tenant: str | None) -> list[DoubtfulGroup]:
    """Every create in doubt, by the action that it froze."""
    t, r = push_attempt, push_request
    statement = sa.select(r.c.action_digest, sa.func.count(), sa.func.min(t.c.updated_at))
    statement = _of_doubtful(statement, tenant).group_by(r.c.action_digest).order_by(r.c.action_digest)
    return [
        DoubtfulGroup(action_digest=Digest(digest), rows=rows, oldest=oldest)
        for digest, rows, oldest in conn.execute(statement)
    ]


def read_doubtful(
    conn: sa.Connection, actions: Sequence[Digest], *, tenant: str, after: str = "", limit: int
) -> list[AttemptRow]:
    """Creates in doubt that froze one of these actions, behind an attempt's id."""
    t = push_attempt
    statement = _of_doubtful(sa.select(*columns_of(AttemptRow, t)), tenant)
    statement = statement.where(push_request.c.action_digest.in_(sorted(actions)), t.c.id > after)
    return read_rows(AttemptRow, conn.execute(statement.order_by(t.c.id).limit(limit)))


def _of_doubtful(statement: sa.Select[Any], tenant: str | None) -> sa.Select[Any]:
    t, r = push_attempt, push_request
    joined = t.join(r, sa.and_(r.c.attempt_id == t.c.id, r.c.freeze == t.c.freeze_count))
    statement = statement.select_from(joined).where(
        t.c.operation == Operation.CREATE.value, t.c.status.in_(sorted(status.value for status in UNSETTLED))
    )
    return statement if tenant is None else statement.where(t.c.tenant == tenant)
