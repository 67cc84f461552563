"""Which credentials a remote has refused, for all workers of a deployment.

A second 401 says that a generation is not taken any more: until there is another one, or an operator vouches for this
one after the remote was mended, nothing that needs it is sent.
Rows name references and generations; the secret itself never comes near the database.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from pushlink.store.dialect import array_rows, insert_ignore
from pushlink.store.tables import UtcTime, credential_state


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CredentialKey:
    """One generation of one credential of one tenant."""

    tenant: str
    reference: str
    generation: str


def refuse_credentials(conn: sa.Connection, items: Sequence[CredentialKey], *, now: dt.datetime) -> None:
    """Remember that the remote refused each generation; it takes the place of what was known of an earlier one."""
    if not items:
        return
    distinct = {(i.tenant, i.reference): i for i in sorted(items)}
    rows = array_rows(
        conn,
        "refused",
        {"tenant": sa.Text(), "credential_ref": sa.Text(), "new_generation": sa.Text(), "at": UtcTime()},
        [(i.tenant, i.reference, i.generation, now) for i in distinct.values()],
    )
    t, r = credential_state, rows.c
    chosen = sa.select(r.tenant, r.credential_ref, r.new_generation, sa.literal("refused"), r.at).where(sa.true())
    columns = ["tenant", "credential_ref", "generation", "status", "updated_at"]
    conn.execute(insert_ignore(t).from_select(columns, chosen.order_by(r.tenant, r.credential_ref)))
    conn.execute(
        sa.update(t)
        .where(t.c.tenant == r.tenant, t.c.credential_ref == r.credential_ref)
        .values(generation=r.new_generation, status="refused", updated_at=r.at)
    )


def allow_credentials(conn: sa.Connection, items: Sequence[CredentialKey], *, now: dt.datetime) -> list[bool]:
    """Forget that each generation was refused, because somebody vouches for it; False where it was not."""
    t = credential_state
    return [
        conn.execute(
            sa.update(t)
            .where(
                t.c.tenant == item.tenant,
                t.c.credential_ref == item.reference,
                t.c.generation == item.generation,
                t.c.status == "refused",
            )
            .values(status="usable", updated_at=now)
        ).rowcount
        == 1
        for item in items
    ]


def read_refused(conn: sa.Connection) -> frozenset[CredentialKey]:
    """Every generation that stands as refused; a deployment has a handful of credentials."""
    return frozenset(
        CredentialKey(tenant=row.tenant, reference=row.credential_ref, generation=row.generation)
        for row in conn.execute(_REFUSED)
    )


#: Read by every save and every claim, so it is built once.
_REFUSED: Final = sa.select(
    credential_state.c.tenant, credential_state.c.credential_ref, credential_state.c.generation
).where(credential_state.c.status == "refused")
