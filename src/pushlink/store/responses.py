"""Replies, append-only: the raw evidence that interpretation can be run on again without the wire."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import sqlalchemy as sa

from pushlink.protocol.evidence import StoredReply, WireError, WireTrace
from pushlink.protocol.snapshots import AttemptId, ClaimToken, LinkKey
from pushlink.store.dialect import array_rows
from pushlink.store.events import write_json
from pushlink.store.rows import read_headers, write_headers
from pushlink.store.tables import push_response


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One reply, or the trace of a send that got none, and what was made of it."""

    attempt_id: AttemptId
    link_key: LinkKey
    token: ClaimToken
    send_ordinal: int
    reply: StoredReply
    verdict: Mapping[str, object]
    candidate_id: str | None
    late: bool


def insert_responses(conn: sa.Connection, items: Sequence[Received], *, now: dt.datetime) -> None:
    """Store each reply before its interpretation takes effect, in the same transaction."""
    if not items:
        return
    conn.execute(
        sa.insert(push_response),
        [
            {
                "attempt_id": i.attempt_id,
                "link_key": i.link_key,
                "claim_token": i.token,
                "send_ordinal": i.send_ordinal,
                "received_at": now,
                "status": i.reply.status,
                "headers": write_headers(i.reply.headers),
                "body": i.reply.body,
                "body_complete": i.reply.body_complete,
                "body_size": i.reply.body_size,
                "body_digest": i.reply.body_digest or None,
                "trace": json.dumps(
                    {**asdict(i.reply.trace), "error": i.reply.error, "error_text": i.reply.error_text}
                ),
                "verdict": write_json(i.verdict),
                "candidate_id": i.candidate_id,
                "late": i.late,
            }
            for i in items
        ],
    )


def read_stored(conn: sa.Connection, sends: Sequence[tuple[AttemptId, ClaimToken, int]]) -> list[bool]:
    """Whether the reply of each send (attempt, claim, ordinal) is stored: settles a commit of unknown outcome."""
    if not sends:
        return []
    rows = array_rows(
        conn,
        "sends",
        {"attempt_id": sa.Text(), "token": sa.Text(), "ordinal": sa.BigInteger()},
        list(sends),
    )
    t, s = push_response, rows.c
    statement = sa.select(s.attempt_id, s.token, s.ordinal).join_from(
        rows, t, sa.and_(t.c.attempt_id == s.attempt_id, t.c.claim_token == s.token, t.c.send_ordinal == s.ordinal)
    )
    found = {tuple(row) for row in conn.execute(statement)}
    return [send in found for send in sends]


def read_reply(row: sa.Row[tuple[object, ...]]) -> StoredReply:
    """The reply of a `push_response` row, exactly as it came from the wire."""
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
        body=bytes(kept["body"] or b""),
        body_complete=kept["body_complete"],
        body_size=kept["body_size"],
        body_digest=kept["body_digest"] or "",
    )
