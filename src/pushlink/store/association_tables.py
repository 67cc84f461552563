"""Who waits for whom: one row for each record that a held attempt waits for, and the links that were just finalized.

Both are work lists, not evidence: rows go when there is nothing left to do for them.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from pushlink.store.columns import table, text, time

association_wait: Final = table(
    "association_wait",
    text("attempt_id", key=True),
    text("target_link_key", key=True),
    text("link_key"),
    sa.Index("pushlink_wait_by_target", "target_link_key"),
    sa.Index("pushlink_wait_by_link_key", "link_key"),
)

#: Links that were finalized while somebody waited for them; a claim lets a bounded number go on and takes the row away.
association_wake: Final = table(
    "association_wake",
    text("target_link_key", key=True),
    time("finalized_at"),
)
