"""The audit of what people do: one append-only chain of operator actions, each sealed with the hash of the one before.

It is slow on purpose (one writer at a time) and never on the path of a push; what workers do is in `events.py`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa

from pushlink.errors import CallerError
from pushlink.protocol.snapshots import canonical_texts, write_time
from pushlink.store.dialect import Lock, take_lock
from pushlink.store.tables import operator_action

#: What the first action of a database names as the one before it.
GENESIS: Final = "sha256:" + "0" * 64

_SEALED: Final = tuple(c.name for c in operator_action.columns if c.name not in {"id", "hash"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAction:
    """One thing that somebody did, with reason. `before` and `after` hold what changed, never a secret."""

    tenant: str
    actor: str
    verb: str
    reason: str
    target_kind: str
    target_id: str
    approver: str | None = None
    link_key: str | None = None
    before: Mapping[str, object] = field(default_factory=dict)
    after: Mapping[str, object] = field(default_factory=dict)
    evidence: Mapping[str, object] = field(default_factory=dict)


def record_actions(conn: sa.Connection, items: Sequence[OperatorAction], *, now: dt.datetime) -> None:
    """Append each action to the chain, in order. Raises `CallerError` for one without an actor or a reason (SY-03)."""
    if not items:
        return
    for item in items:
        if not item.actor.strip() or not item.reason.strip():
            msg = f"{item.verb!r} needs an actor and a reason."
            raise CallerError(msg, next_step="say who does it and why")
    take_lock(conn, Lock.AUDIT)
    newest = sa.select(operator_action.c.hash).order_by(operator_action.c.id.desc()).limit(1)
    previous = conn.execute(newest).scalar_one_or_none() or GENESIS
    rows = []
    for item in items:
        row = _row(item, now, previous)
        previous = row["hash"] = _seal(row)
        rows.append(row)
    conn.execute(operator_action.insert(), rows)


def is_sealed(row: Mapping[str, Any] | sa.RowMapping) -> bool:
    """Whether an action is as it was written; its place in the chain is another question (`chains.py`)."""
    return bool(row["hash"] == _seal(row))


def _row(item: OperatorAction, now: dt.datetime, previous: str) -> dict[str, Any]:
    return {
        "at": now,
        "tenant": item.tenant,
        "actor": item.actor,
        "approver": item.approver,
        "verb": item.verb,
        "reason": item.reason,
        "target_kind": item.target_kind,
        "target_id": item.target_id,
        "link_key": item.link_key,
        "before": _written(item.before),
        "after": _written(item.after),
        "evidence": _written(item.evidence),
        "previous_hash": previous,
    }


def _written(document: Mapping[str, object]) -> str | None:
    return json.dumps(document, sort_keys=True, ensure_ascii=False) if document else None


def _seal(row: Mapping[str, Any] | sa.RowMapping) -> str:
    sealed = {name: row[name] for name in _SEALED} | {"at": write_time(row["at"])}
    return "sha256:" + hashlib.sha256(canonical_texts(sealed)).hexdigest()
