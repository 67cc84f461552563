"""Principals: rows of who may decide, by the digest of a token; no token is ever stored."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from pushlink.store.audit import OperatorAction, record_actions
from pushlink.store.dialect import Lock, take_lock
from pushlink.store.rows import columns_of, read_row, read_rows, values_of
from pushlink.store.tables import UtcTime, principal


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalRow:
    """One `principal`. `tenant` is `None` for one of every tenant."""

    id: str
    name: str
    role: str
    token_sha256: str
    tenant: str | None
    created_at: dt.datetime
    expires_at: dt.datetime | None
    revoked_at: dt.datetime | None
    refusals: int = 0
    refusals_since: dt.datetime | None = None


def read_principals(conn: sa.Connection) -> list[PrincipalRow]:
    """All of them, revoked ones too, by name."""
    return read_rows(PrincipalRow, conn.execute(_SELECT.order_by(principal.c.name)))


def read_principal(conn: sa.Connection, principal_id: str) -> PrincipalRow | None:
    """One by its id."""
    row = conn.execute(_SELECT.where(principal.c.id == principal_id)).one_or_none()
    return None if row is None else read_row(PrincipalRow, row)


def has_principals(conn: sa.Connection) -> bool:
    """Whether anybody was ever defined; from then on a decision needs a token."""
    return conn.execute(sa.select(principal.c.id).limit(1)).first() is not None


def lock_principals(conn: sa.Connection) -> Sequence[PrincipalRow]:
    """All of them, while nobody else changes them."""
    take_lock(conn, Lock.AUDIT)
    return read_principals(conn)


def insert_principal(conn: sa.Connection, row: PrincipalRow, *, actor: str, reason: str, now: dt.datetime) -> None:
    """Add one, with its line in the audit."""
    conn.execute(principal.insert().values(values_of(row)))
    shown: dict[str, object] = {"name": row.name, "role": row.role, "tenant": row.tenant}
    _audit(conn, "principal add", row, {}, shown, actor=actor, reason=reason, now=now)


def revoke_principal(conn: sa.Connection, row: PrincipalRow, *, actor: str, reason: str, now: dt.datetime) -> None:
    """End one, for good; its row and its name stay."""
    conn.execute(sa.update(principal).where(principal.c.id == row.id).values(revoked_at=now))
    _audit(conn, "principal revoke", row, {"revoked": False}, {"revoked": True}, actor=actor, reason=reason, now=now)


def count_refusal(conn: sa.Connection, principal_id: str, *, window: dt.timedelta, now: dt.datetime) -> None:
    """Count one refused token of a principal; a count older than the window begins anew."""
    t = principal
    is_over = sa.or_(t.c.refusals_since.is_(None), t.c.refusals_since <= now - window)
    conn.execute(
        sa.update(t)
        .where(t.c.id == principal_id)
        .values(
            refusals=sa.case((is_over, 1), else_=t.c.refusals + 1),
            refusals_since=sa.case((is_over, sa.literal(now, UtcTime())), else_=t.c.refusals_since),
        )
    )


def record_refusal(conn: sa.Connection, principal_id: str, *, because: str, actor: str, now: dt.datetime) -> None:
    """Write a refused token into the audit: whose it would have been, and who came with it. Never the token."""
    action = OperatorAction(
        tenant="",
        actor=actor,
        verb="token refused",
        reason=f"the token was refused: {because}",
        target_kind="principal",
        target_id=principal_id,
    )
    record_actions(conn, [action], now=now)


def record_not_permitted(
    conn: sa.Connection, name: str, *, because: str, evidence: Mapping[str, object], now: dt.datetime
) -> None:
    """Write into the audit what a principal asked for and may not do; its name is the actor's."""
    known = conn.execute(sa.select(principal.c.id).where(principal.c.name == name)).scalar_one_or_none()
    action = OperatorAction(
        tenant="",
        actor=name,
        verb="not permitted",
        reason=because,
        target_kind="principal",
        target_id=known or "",
        evidence=evidence,
    )
    record_actions(conn, [action], now=now)


def _audit(
    conn: sa.Connection,
    verb: str,
    row: PrincipalRow,
    before: dict[str, object],
    after: dict[str, object],
    *,
    actor: str,
    reason: str,
    now: dt.datetime,
) -> None:
    action = OperatorAction(
        tenant=row.tenant or "",
        actor=actor,
        verb=verb,
        reason=reason,
        target_kind="principal",
        target_id=row.id,
        before=before,
        after=after,
    )
    record_actions(conn, [action], now=now)


_SELECT: Final = sa.select(*columns_of(PrincipalRow, principal))
