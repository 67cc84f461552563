"""What a key had before: its newest create, and what somebody decided about its create path since (DR-15).

A second create of a key follows only from a decision (a supersede, a released slot), which shows the create path of now
beside the old one and takes it as validated. What a pack changes afterwards nobody has looked at.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from pushlink.protocol.snapshots import AttemptId, Digest, LinkKey
from pushlink.protocol.states import Operation
from pushlink.protocol.verbs import Verb
from pushlink.store.rebinds import read_former_keys
from pushlink.store.requests import read_requests
from pushlink.store.rows import RequestRow
from pushlink.store.tables import operator_action, push_attempt

#: The decisions after which a key may have another create, and the one about its create path alone.
_FREEING: Final = (
    Verb.SUPERSEDE.value,
    Verb.RELEASE_SLOT.value,
    Verb.RETIRE.value,
    Verb.VALIDATE_CREATE.value,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """The newest decision that freed a key: when, and the create path that it showed, by its fingerprint."""

    at: dt.datetime
    fingerprint: Digest | None


def read_last_creates(conn: sa.Connection, keys: Sequence[LinkKey]) -> dict[LinkKey, RequestRow]:
    """The frozen request of the newest create of each key that ever had one; few keys at a time come here."""
    if not keys:
        return {}
    t = push_attempt
    statement = (
        sa.select(t.c.link_key, t.c.id)
        .where(t.c.link_key.in_(sorted(keys)), t.c.operation == Operation.CREATE.value)
        .order_by(t.c.link_key, t.c.ordinal)
    )
    newest = {LinkKey(row.link_key): AttemptId(row.id) for row in conn.execute(statement)}
    found = read_requests(conn, list(newest.values()))
    return {key: request for key, request in zip(newest, found, strict=True) if request is not None}


def read_validations(conn: sa.Connection, keys: Sequence[LinkKey]) -> dict[LinkKey, Validated]:
    """The newest decision that freed each key, or a key that its rows had before their slot was rebound."""
    if not keys:
        return {}
    known_as = {key: key for key in keys}
    known_as |= {old: key for key, former in read_former_keys(conn, keys).items() for old in former}
    t = operator_action
    statement = (
        sa.select(t.c.link_key, t.c.at, t.c.evidence)
        .where(t.c.link_key.in_(sorted(known_as)), t.c.verb.in_(_FREEING))
        .order_by(t.c.id)
    )
    return {
        known_as[LinkKey(row.link_key)]: Validated(at=row.at, fingerprint=_shown(row.evidence))
        for row in conn.execute(statement)
    }


def _shown(evidence: str | None) -> Digest | None:
    shown: dict[str, Digest | None] = (json.loads(evidence) if evidence else {}).get("create_path", {})
    return shown.get("fingerprint")
