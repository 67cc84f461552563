"""What may happen to rows that are not strictly kept as they are; the database refuses everything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import sqlalchemy as sa

from pushlink.store.dialect import Guard, Leaves
from pushlink.store.tables import APPEND_ONLY, attempt_event, push_attempt, push_request, push_response

GUARDS: Final[Mapping[sa.Table, Guard]] = {
    push_request: Guard(leaves=Leaves.WITH_ITS_ATTEMPT, content="body", sized=True),
    push_response: Guard(leaves=Leaves.WITH_ITS_ATTEMPT, content="body"),
    attempt_event: Guard(leaves=Leaves.WITH_ITS_ATTEMPT),
    push_attempt: Guard(leaves=Leaves.AS_ENDED_UPDATE, changes=True),
}

#: Every table that has triggers, and its guard; `None` for a table whose rows neither change nor leave.
GUARDED: Final[Mapping[sa.Table, Guard | None]] = {**dict.fromkeys(APPEND_ONLY), **GUARDS}
