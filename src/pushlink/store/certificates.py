"""Certificates of replay contracts: what a trial at a sandbox came to, for as long as it is believed."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from pushlink.protocol.snapshots import Digest
from pushlink.store.certificate_tables import contract_certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """One trial and its result; nothing of it says more than the sandbox showed that day."""

    contract_digest: Digest
    pack: str
    profile: str
    action: str
    classes: tuple[str, ...]
    remote: str
    passed: bool
    evidence: Mapping[str, object]
    actor: str
    certified_at: dt.datetime
    expires_at: dt.datetime


def insert_certificate(conn: sa.Connection, item: Certificate) -> None:
    """Keep the result of one trial, passed or not."""
    conn.execute(
        sa.insert(contract_certificate).values(
            contract_digest=item.contract_digest,
            pack=item.pack,
            profile=item.profile,
            action=item.action,
            classes=json.dumps(item.classes),
            remote=item.remote,
            passed=item.passed,
            evidence=json.dumps(item.evidence, sort_keys=True),
            actor=item.actor,
            certified_at=item.certified_at,
            expires_at=item.expires_at,
        )
    )


def read_certificates(conn: sa.Connection, digests: Sequence[Digest]) -> dict[Digest, Certificate]:
    """The newest certificate of each contract that has one."""
    if not digests:
        return {}
    t = contract_certificate
    newest = sa.select(sa.func.max(t.c.id)).where(t.c.contract_digest.in_(sorted(set(digests))))
    rows = conn.execute(sa.select(t).where(t.c.id.in_(newest.group_by(t.c.contract_digest))))
    return {Digest(row.contract_digest): _certificate(row) for row in rows}


def read_trusted(conn: sa.Connection, digests: Sequence[Digest], *, now: dt.datetime) -> frozenset[Digest]:
    """The contracts whose newest trial passed and is still believed."""
    found = read_certificates(conn, digests)
    return frozenset(digest for digest, kept in found.items() if kept.passed and kept.expires_at > now)


def _certificate(row: sa.Row[tuple[object, ...]]) -> Certificate:
    kept = row._mapping  # noqa: SLF001 - the public mapping view of a SQLAlchemy row
    return Certificate(
        contract_digest=Digest(kept["contract_digest"]),
        pack=kept["pack"],
        profile=kept["profile"],
        action=kept["action"],
        classes=tuple(json.loads(kept["classes"])),
        remote=kept["remote"],
        passed=kept["passed"],
        evidence=json.loads(kept["evidence"]),
        actor=kept["actor"],
        certified_at=kept["certified_at"],
        expires_at=kept["expires_at"],
    )
