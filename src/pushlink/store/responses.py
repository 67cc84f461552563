"""Replies, append-only: the raw evidence that interpretation can be run on again without the wire."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final

import sqlalchemy as sa

from pushlink.ports import Vault
from pushlink.protocol.evidence import StoredReply, WireError, WireTrace
from pushlink.protocol.sealing import Sealed, Unread, reply_binding
from pushlink.protocol.snapshots import AttemptId, ClaimToken, LinkKey
from pushlink.store.dialect import ORDINALITY, Batch
from pushlink.store.events import write_json
from pushlink.store.rows import read_headers, write_headers
from pushlink.store.tables import UtcTime, push_response


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One reply, or the trace of a send that got none, and what was made of it."""

    attempt_id: AttemptId
    link_key: LinkKey
    token: ClaimToken
    send_ordinal: int
    reply: StoredReply
    body: Sealed  # of the reply, as the row keeps it
    verdict: Mapping[str, object]
    candidate_id: str | None
    late: bool


def insert_responses(conn: sa.Connection, items: Sequence[Received], *, now: dt.datetime) -> None:
    """Store each reply before its interpretation takes effect, in the same transaction."""
    if not items:
        return
    rows = [
        (
            i.attempt_id,
            i.link_key,
            i.token,
            i.send_ordinal,
            i.reply.status,
            write_headers(i.reply.headers),
            i.body.content,
            i.body.key,
            None,
            i.reply.body_complete,
            i.reply.body_size,
            i.reply.body_digest or None,
            _write_trace(i.reply.trace, i.reply.error, i.reply.error_text),
            write_json(i.verdict),
            i.candidate_id,
            i.late,
        )
        for i in items
    ]
    _INSERT(conn, rows, received=now)


def read_stored(
    conn: sa.Connection, sends: Sequence[tuple[AttemptId, ClaimToken, int]], *, late: bool = False
) -> list[bool]:
    """Whether the reply of each send (attempt, claim, ordinal) is stored: settles a commit of unknown outcome.

    `late` asks for one that was kept as late evidence; else any reply counts.
    """
    if not sends:
        return []
    rows = _READ_STORED(conn, sends)
    found = {(row.attempt_id, row.token, row.send_ordinal) for row in rows if row.late or not late}
    return [send in found for send in sends]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """One reply as it is kept, with what was made of it. `candidate_id` is the first id that it named, if any."""

    id: int
    send_ordinal: int
    received_at: dt.datetime
    reply: StoredReply
    unread: Unread | None  # why its body cannot be read, if so
    verdict: Mapping[str, object]
    candidate_id: str | None
    late: bool

    @property
    def effect(self) -> str:
        """What it was said to have done."""
        return str(self.verdict.get("effect", ""))


def read_answers(conn: sa.Connection, vault: Vault, attempt_id: AttemptId) -> list[StoredAnswer]:
    """Every reply to an attempt, oldest first."""
    t = push_response
    rows = conn.execute(sa.select(t).where(t.c.attempt_id == attempt_id).order_by(t.c.id)).all()
    opened = [_open_reply(vault, row) for row in rows]
    return [
        StoredAnswer(
            id=row.id,
            send_ordinal=row.send_ordinal,
            received_at=row.received_at,
            reply=_read_reply(row, body),
            unread=body if isinstance(body, Unread) else None,
            verdict=json.loads(row.verdict),
            candidate_id=row.candidate_id,
            late=row.late,
        )
        for row, body in zip(rows, opened, strict=True)
    ]


def _open_reply(vault: Vault, row: sa.Row[Any]) -> bytes | Unread:
    """The body of a `push_response` row."""
    if row.erased_at is not None:
        return Unread.ERASED
    if not row.body:
        return b""
    binding = reply_binding(row.attempt_id, row.claim_token, row.send_ordinal)
    return vault.open(bytes(row.body), row.sealed_by, binding)


def _read_reply(row: sa.Row[Any], body: bytes | Unread) -> StoredReply:
    """The reply of a `push_response` row, exactly as it came from the wire.

    A body that cannot be read is not whole, and of a body that is not whole nothing is ever read.
    """
    kept = row._mapping  # noqa: SLF001 - the public mapping view of a SQLAlchemy row
    trace = json.loads(kept["trace"])
    error = trace.pop("error")
    text = trace.pop("error_text")
    return StoredReply(
        trace=WireTrace(**trace),
        error=WireError(error) if error else None,
        error_text=text,
        status=kept["status"],
        headers=read_headers(kept["headers"]),
        body=b"" if isinstance(body, Unread) else body,
        body_complete=kept["body_complete"] and not isinstance(body, Unread),
        body_size=kept["body_size"],
        body_digest=kept["body_digest"] or "",
    )


@lru_cache(maxsize=256)
def _write_trace(trace: WireTrace, error: WireError | None, error_text: str) -> str:
    """Thousands of replies share a handful of traces."""
    facts = {field: getattr(trace, field) for field in _TRACE_FIELDS}
    return json.dumps({**facts, "error": error, "error_text": error_text})


def _insert_statement(rows: sa.FromClause) -> sa.Executable:
    instant = sa.bindparam("received", type_=UtcTime())
    chosen = sa.select(*(rows.c[name] for name in _COLUMNS), instant).order_by(rows.c[ORDINALITY])
    return sa.insert(push_response).from_select([*_COLUMNS, "received_at"], chosen)


def _stored_statement(rows: sa.FromClause) -> sa.Executable:
    t, s = push_response, rows.c
    return sa.select(s.attempt_id, s.token, s.send_ordinal, t.c.late).join_from(
        rows,
        t,
        sa.and_(t.c.attempt_id == s.attempt_id, t.c.claim_token == s.token, t.c.send_ordinal == s.send_ordinal),
    )


_TRACE_FIELDS: Final = tuple(field.name for field in fields(WireTrace))
_COLUMNS: Final[Mapping[str, sa.types.TypeEngine[Any]]] = {
    column.name: column.type for column in push_response.columns if column.name not in {"id", "received_at"}
}
_INSERT: Final = Batch("received", _COLUMNS).prepare(_insert_statement)
_READ_STORED: Final = Batch(
    "sends", {"attempt_id": sa.Text(), "token": sa.Text(), "send_ordinal": sa.BigInteger()}
).prepare(_stored_statement)
