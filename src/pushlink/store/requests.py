"""Frozen requests and frozen documents: written once, read by claims and by people."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from pushlink.protocol.snapshots import AttemptId, Digest, Document
from pushlink.store.dialect import Batch, insert_ignore
from pushlink.store.rows import RequestRow, columns_of, read_rows, values_of
from pushlink.store.tables import UtcTime, frozen_document, push_request


def insert_requests(conn: sa.Connection, items: Sequence[RequestRow]) -> None:
    """Write each freeze. A freeze that is there already was written by this same claim; it is left as it is."""
    if not items:
        return
    ordered = sorted(items, key=lambda i: (i.attempt_id, i.freeze))
    conn.execute(insert_ignore(push_request), [values_of(item) for item in ordered])


def read_requests(conn: sa.Connection, ids: Sequence[AttemptId]) -> list[RequestRow | None]:
    """The newest freeze of each attempt; `None` for an update that was never claimed."""
    if not ids:
        return []
    found = {row.attempt_id: row for row in read_rows(RequestRow, _READ(conn, [(i,) for i in ids]))}
    return [found.get(i) for i in ids]


def read_first_requests(conn: sa.Connection, ids: Sequence[AttemptId]) -> list[RequestRow | None]:
    """The first freeze of each attempt: what a save left of a create that waits for another record."""
    if not ids:
        return []
    found = {row.attempt_id: row for row in read_rows(RequestRow, _READ_FIRST(conn, [(i,) for i in ids]))}
    return [found.get(i) for i in ids]


def keep_documents(conn: sa.Connection, documents: Sequence[Document], *, now: dt.datetime) -> None:
    """Keep each document under its digest, once; in digest order, so that two writers never wait for each other."""
    distinct = {document.digest: document for document in documents}
    if not distinct:
        return
    _KEEP(conn, [(d.digest, d.kind, d.text, now) for _, d in sorted(distinct.items())])


def read_documents(conn: sa.Connection, digests: Sequence[Digest]) -> dict[Digest, str]:
    """The text of each frozen document that is there."""
    if not digests:
        return {}
    found = _READ_DOCUMENTS(conn, [(d,) for d in sorted(set(digests))])
    return {Digest(row.digest): row.document for row in found}


def _read_statement(rows: sa.FromClause) -> sa.Executable:
    t = push_request
    columns = columns_of(RequestRow, t)
    return sa.select(*columns).join_from(rows, t, t.c.attempt_id == rows.c.id).order_by(t.c.freeze)


def _read_first_statement(rows: sa.FromClause) -> sa.Executable:
    t = push_request
    return sa.select(*columns_of(RequestRow, t)).join_from(
        rows, t, sa.and_(t.c.attempt_id == rows.c.id, t.c.freeze == 1)
    )


def _keep_statement(rows: sa.FromClause) -> sa.Executable:
    known = sa.select(frozen_document.c.digest).where(frozen_document.c.digest == rows.c.digest)
    chosen = sa.select(*(rows.c[name] for name in _DOCUMENT)).where(~known.exists())
    return insert_ignore(frozen_document).from_select([*_DOCUMENT], chosen.order_by(rows.c.digest))


def _read_documents_statement(rows: sa.FromClause) -> sa.Executable:
    t = frozen_document
    return sa.select(t.c.digest, t.c.document).join_from(rows, t, t.c.digest == rows.c.digest)


_DOCUMENT: Final[dict[str, sa.types.TypeEngine[Any]]] = {
    "digest": sa.Text(),
    "kind": sa.Text(),
    "document": sa.Text(),
    "created_at": UtcTime(),
}
_KEEP: Final = Batch("documents", _DOCUMENT).prepare(_keep_statement)
_READ_DOCUMENTS: Final = Batch("digests", {"digest": sa.Text()}).prepare(_read_documents_statement)
_IDS: Final = Batch("ids", {"id": sa.Text()})
_READ: Final = _IDS.prepare(_read_statement)
_READ_FIRST: Final = _IDS.prepare(_read_first_statement)
