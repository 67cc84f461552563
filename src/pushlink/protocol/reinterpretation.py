"""The stored verdict of one answer, and how it is reached again without the wire.

What a verdict hangs on is the frozen contracts, the stored answer, and a few facts of the attempt that no later reader
could know: those are written beside the verdict. So the same release gives the same verdict for ever, and a later one
that reads better can show the difference.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from pushlink.protocol.contracts import ActionContract, ProfileContract
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.lookup_verdicts import interpret_lookup
from pushlink.protocol.outcome import History, Verdict, interpret
from pushlink.protocol.states import Operation

_UNKNOWN_PAST: Final = History()


def write_verdict(
    verdict: Verdict,
    history: History,
    *,
    asked_at: dt.datetime | None,
    look_up: str | None = None,
    mark: str | None = None,
) -> dict[str, object]:
    """What is stored beside an answer. A fact of the history that is the usual one is not written."""
    past = {
        field.name: value
        for field in fields(History)
        if (value := getattr(history, field.name)) != getattr(_UNKNOWN_PAST, field.name)
    }
    return {
        "effect": verdict.effect,
        "disposition": verdict.disposition,
        "code": verdict.code,
        "row": verdict.row,
        "candidates": list(verdict.candidates),
        "history": past,
        **({} if verdict.retry_after_ms is None else {"wait_ms": verdict.retry_after_ms}),
        **({} if look_up is None else {"look_up": look_up}),
        **({} if mark is None else {"mark": mark}),
        **({} if asked_at is None else {"asked_at": asked_at.isoformat()}),
    }


def reinterpret(
    operation: Operation,
    action: ActionContract,
    profile: ProfileContract,
    reply: StoredReply,
    kept: Mapping[str, object],
) -> Verdict:
    """The verdict on a stored answer, from what is stored alone; `kept` is the document that `write_verdict` made."""
    history = _history(kept)
    asked_at = kept.get("asked_at")
    received_at = dt.datetime.fromisoformat(asked_at) if isinstance(asked_at, str) else None
    name = kept.get("look_up")
    if isinstance(name, str):
        mark = kept.get("mark")
        return interpret_lookup(
            action,
            profile,
            name,
            reply,
            send_ordinal=history.send_ordinal,
            received_at=received_at,
            mark=mark if isinstance(mark, str) else None,
        )
    return interpret(operation, action, profile, reply, history, received_at=received_at)


def is_same(verdict: Verdict, kept: Mapping[str, object]) -> bool:
    """Whether a verdict says what the stored one says."""
    again = write_verdict(verdict, _history(kept), asked_at=None)
    return all(kept.get(name) == value for name, value in again.items() if name != "history")


def _history(kept: Mapping[str, object]) -> History:
    past = kept.get("history")
    known = {field.name for field in fields(History)}
    return History(**{name: value for name, value in past.items() if name in known} if isinstance(past, dict) else {})
