"""The tables of what remotes take: who wants to be left alone, who fails, and how much of a limit is used up.

They stand apart from `tables.py` for its length only; import from there.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from pushlink.store.columns import count, table, text, time

remote_throttle: Final = table(
    "remote_throttle",
    text("tenant", key=True),
    text("destination_slot_id", key=True),
    text("credential_ref", key=True),
    time("not_before"),
    text("reason"),
    count("hits"),
    time("updated_at"),
)

remote_circuit: Final = table(
    "remote_circuit",
    text("tenant", key=True),
    text("destination_slot_id", key=True),
    count("failures"),
    count("successes"),
    time("window_started_at", null=True),
    time("open_until", null=True),  # null while closed; once past, one request at a time finds out
    count("opened"),  # times in a row
    text("reason"),
    time("updated_at"),
    sa.CheckConstraint("failures >= 0 AND successes >= 0", name="a_circuit_counts_upwards"),
    sa.CheckConstraint("open_until IS NULL OR opened > 0", name="an_open_circuit_was_opened"),
)

remote_pace: Final = table(
    "remote_pace",
    text("tenant", key=True),
    text("share", key=True),  # whom a limit is counted over
    time("paced_until", null=True),
    time("updated_at"),
)
