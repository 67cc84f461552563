"""One record's timeline: transitions, replies, what people did, and the receipts of manifests, as one line of rows.

Every source has its place in the order and says how its rows are found, cut into pages and told. Ids are numbers where
a table counts, and texts where it does not; both together are a row's place among those of one moment.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from pushlink.errors import CallerError
from pushlink.protocol.snapshots import LinkKey, read_time, write_time
from pushlink.store.dialect import array_rows
from pushlink.store.reads import PAGE_MAX, REPLY_COLUMNS, Page, read_object, reply_of, row_limit
from pushlink.store.tables import (
    UtcTime,
    adoption_receipt,
    attempt_event,
    operator_action,
    push_attempt,
    push_response,
    rebind_receipt,
    remote_link,
    revalidation_receipt,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One entry of a timeline. `id` is the row's number, or the operation of the manifest that a receipt is of."""

    at: dt.datetime
    kind: str  # event, reply, action or receipt
    id: int | str
    link_key: LinkKey
    attempt_id: str | None = None
    subject: str
    event: str
    from_status: str | None = None
    to_status: str | None = None
    actor: str | None = None
    reason: str | None = None
    evidence: Mapping[str, object]


def read_timeline(
    conn: sa.Connection, keys: Sequence[LinkKey], *, page: str | None = None, limit: int = PAGE_MAX
) -> Page[Moment]:
    """What happened under these keys, oldest first; `limit` is at most `PAGE_MAX`."""
    if not keys:
        return Page(rows=(), next_page=None)
    wanted = sa.select(array_rows(conn, "keys", {"link_key": sa.Text()}, [(key,) for key in keys]).c.link_key)
    after = _read_position(page) if page is not None else None
    places = sa.union_all(*(_places(rank, wanted, after) for rank in range(len(_SOURCES)))).subquery("places")
    order = (places.c.moment, places.c.rank, places.c.number, places.c.name)
    found = conn.execute(sa.select(places).order_by(*order).limit(row_limit(limit) + 1)).all()
    moments: dict[tuple[int, int, str], Moment] = {}
    for rank, source in enumerate(_SOURCES):
        mine = [row for row in found if row.rank == rank]
        if mine:
            moments |= {(rank, *place): moment for place, moment in _read(conn, source, mine)}
    shown = found[:limit]
    return Page(
        rows=tuple(moments[row.rank, row.number, row.name] for row in shown),
        next_page=_position(shown[-1]) if len(found) > limit else None,
    )


# ------------------------------------------------------------------------------------------------ the sources


def _moment(row: sa.RowMapping, **told: Any) -> Moment:
    """A moment as `told`; what is not told is read from the row's columns of a moment's own names."""
    return Moment(**{name: row[name] for name in Moment.__slots__ if name in row} | told)


def _told_of_event(row: sa.RowMapping) -> Moment:
    evidence = {name: value for name, value in read_object(row["evidence"]).items() if name != "claim"}
    return _moment(row, kind="event", evidence=evidence)


def _told_of_reply(row: sa.RowMapping) -> Moment:
    reply = reply_of(row)
    return _moment(
        row,
        kind="reply",
        at=reply.received_at,
        subject="reply",
        event="late_reply" if reply.late else "reply" if reply.status is not None else "no_reply",
        evidence={
            "send_ordinal": reply.send_ordinal,
            "status": reply.status,
            "error": reply.error,
            "body_size": reply.body_size,
            **({"body_erased_at": write_time(reply.erased_at)} if reply.erased_at else {}),
            "candidate_id": reply.candidate_id,
            "verdict": reply.verdict,
        },
    )


def _told_of_action(row: sa.RowMapping) -> Moment:
    evidence = {name: read_object(row[name]) for name in ("before", "after")}
    return _moment(row, kind="action", subject=row["target_kind"], event=row["verb"], evidence=evidence)


def _told_of_receipt(
    subject: str, event: Callable[[sa.RowMapping], str], key: str, *evidence: str
) -> Callable[[sa.RowMapping], Moment]:
    def told(row: sa.RowMapping) -> Moment:
        return _moment(
            row,
            kind="receipt",
            at=row["applied_at"],
            id=row["operation_id"],
            link_key=row[key],
            subject=subject,
            event=event(row),
            evidence={name: row[name] for name in ("manifest_digest", *evidence)},
        )

    return told


@dataclass(frozen=True, slots=True)
class _Source:
    """One table of the timeline. `names` are the texts that identify a row of a table without numbers."""

    table: sa.Table
    moment: str
    told: Callable[[sa.RowMapping], Moment]
    key: str = "link_key"
    parent: sa.Table | None = None  # of this table `key` holds ids: by those there is an index
    columns: tuple[sa.Column[Any], ...] = ()  # all, unless these are named
    names: tuple[str, ...] = ()

    @property
    def number(self) -> sa.ColumnElement[int]:
        return sa.literal(0, sa.BigInteger()) if self.names else self.table.c.id

    @property
    def name(self) -> sa.ColumnElement[str]:
        text: sa.ColumnElement[str] = sa.literal("", sa.Text())
        for name in self.names:
            text = text + self.table.c[name] + sa.literal("/", sa.Text())
        return text

    def concerns(self, wanted: sa.Select[tuple[Any]]) -> sa.ColumnElement[bool]:
        """Whose rows: of these link keys, or of the links or attempts that stand under them."""
        if self.parent is None:
            return self.table.c[self.key].in_(wanted)
        ids = sa.select(self.parent.c.id).where(self.parent.c.link_key.in_(wanted))
        return self.table.c[self.key].in_(ids)


#: In the order of what happened in one moment. A page's word holds the number of a source: new ones go to the end.
_SOURCES: Final = (
    _Source(attempt_event, "at", _told_of_event),
    _Source(
        push_response,
        "received_at",
        _told_of_reply,
        key="attempt_id",
        parent=push_attempt,
        columns=(*REPLY_COLUMNS, push_response.c.link_key),
    ),
    _Source(operator_action, "at", _told_of_action),
    _Source(
        revalidation_receipt,
        "applied_at",
        _told_of_receipt(
            "mapping",
            lambda _: "revalidate",
            "link_key",
            "link_id",
            "prior_operation_id",
            "old_mapping_fingerprint",
            "new_mapping_fingerprint",
            "old_install_id",
            "new_install_id",
        ),
        key="link_id",
        parent=remote_link,
        names=("operation_id", "link_id"),
    ),
    _Source(
        adoption_receipt,
        "applied_at",
        _told_of_receipt("adoption", lambda row: str(row["deed"]), "link_key", "link_id", "remote_id"),
        names=("operation_id", "link_key", "deed"),
    ),
    _Source(
        rebind_receipt,
        "applied_at",
        _told_of_receipt(
            "slot", lambda _: "rebind", "new_link_key", "old_link_key", "old_slots", "new_slots", "approval_digest"
        ),
        key="new_link_key",
        names=("operation_id", "old_link_key"),
    ),
)


def _read(
    conn: sa.Connection, source: _Source, places: Sequence[sa.Row[Any]]
) -> Iterator[tuple[tuple[int, str], Moment]]:
    """The rows at these places, each with its place."""
    if source.names:
        at_place = source.name.in_([row.name for row in places])
    else:
        at_place = source.table.c.id.in_([row.number for row in places])
    columns = source.columns or tuple(source.table.columns)
    statement = sa.select(*columns, source.number.label("number_"), source.name.label("name_")).where(at_place)
    for row in conn.execute(statement).mappings():
        yield (row["number_"], row["name_"]), source.told(row)


def _places(
    rank: int, wanted: sa.Select[tuple[Any]], after: tuple[dt.datetime, int, int, str] | None
) -> sa.Select[Any]:
    source = _SOURCES[rank]
    moment = source.table.c[source.moment]
    own = sa.literal(rank, sa.Integer())
    statement = sa.select(
        moment.label("moment"), own.label("rank"), source.number.label("number"), source.name.label("name")
    ).where(source.concerns(wanted))
    if after is None:
        return statement
    at, last, number, name = after
    here = sa.literal(at, UtcTime())
    behind = sa.or_(source.number > number, sa.and_(source.number == number, source.name > name))
    is_later_here = sa.literal(rank > last) if rank != last else behind
    return statement.where(sa.or_(moment > here, sa.and_(moment == here, is_later_here)))


def _position(row: sa.Row[Any]) -> str:
    return f"{write_time(row.moment)}~{row.rank}~{row.number}~{row.name}"


def _read_position(page: str) -> tuple[dt.datetime, int, int, str]:
    try:
        at, rank, number, name = page.split("~", 3)
        return read_time(at), int(rank), int(number), name
    except ValueError:
        msg = "This is no page of a timeline."
        raise CallerError(msg, evidence={"page": page}, next_step="give the page that the last answer named") from None
