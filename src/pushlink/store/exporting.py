"""Every row of a tenant, a page at a time, for an export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import sqlalchemy as sa

from pushlink.store.tables import attempt_event, push_attempt, remote_link

#: Rows read at a time by an export.
PAGE: Final = 500

#: What is exported, and without which columns: no token of a claim, no frozen values.
_EXPORTED: Final = {
    "link": (remote_link, frozenset[str]()),
    "attempt": (push_attempt, frozenset({"claim_token"})),
    "event": (attempt_event, frozenset[str]()),
}


def read_all(
    conn: sa.Connection, kind: str, *, tenant: str, after: str | int | None = None
) -> Iterator[dict[str, Any]]:
    """Every row of one kind, in the order of its key, beginning behind a key; read in pages, never by offset."""
    table, hidden = _EXPORTED[kind]
    columns: Sequence[sa.Column[Any]] = [column for column in table.columns if column.name not in hidden]
    while True:
        statement = sa.select(*columns).where(table.c.tenant == tenant)
        if after is not None:
            statement = statement.where(table.c.id > after)
        page = conn.execute(statement.order_by(table.c.id).limit(PAGE)).mappings().all()
        yield from (dict(row) for row in page)
        if len(page) < PAGE:
            return
        after = page[-1]["id"]
