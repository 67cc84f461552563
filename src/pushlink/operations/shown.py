"""Rows as evidence: times, digests, verdicts and ids, and nothing of what a record holds."""

from __future__ import annotations

from pushlink.protocol.snapshots import write_time
from pushlink.store.reads import ErasedRow, ReplyRow
from pushlink.store.rows import AttemptRow


def window_of(attempt: AttemptRow) -> str | None:
    """Between which moments the remote may have taken a doubtful request: where to look for it there."""
    if attempt.first_io_at is None or not attempt.in_doubt:
        return None
    last = attempt.last_checkpoint_at or attempt.first_io_at
    return f"{write_time(attempt.first_io_at)} and {write_time(max(last, attempt.updated_at))}"


def reply_shown(reply: ReplyRow) -> dict[str, object]:
    """One answer: when, to which send, and what was made of it; never its body."""
    return {
        "received_at": write_time(reply.received_at),
        "send_ordinal": reply.send_ordinal,
        "status": reply.status,
        "error": reply.error,
        "effect": reply.verdict.get("effect"),
        "row": reply.verdict.get("row"),
        "candidates": reply.verdict.get("candidates", []),
        "late": reply.late,
    } | ({"body_size": reply.body_size, "body_erased_at": write_time(reply.erased_at)} if reply.erased_at else {})


def erased_shown(row: ErasedRow) -> dict[str, object]:
    """What is left of a body whose time was over."""
    return {
        "attempt_id": row.attempt_id,
        "freeze": row.freeze,
        "body_digest": row.body_digest,
        "body_size": row.body_size,
        "body_erased_at": write_time(row.erased_at),
    }
