"""What came of a whole run, in figures: out of the tables and the remote's log, nothing of pushlink."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from proof.judge.court import RemoteLog

_KNOWN: Final = sa.text(
    "SELECT remote_id FROM pushlink_push_attempt WHERE remote_id IS NOT NULL"
    " UNION SELECT remote_id FROM pushlink_remote_link"
    " UNION SELECT candidate_id FROM pushlink_push_response WHERE candidate_id IS NOT NULL"
)
_DOUBTED: Final = sa.text(
    "SELECT s.source_record_id FROM pushlink_push_attempt a JOIN pushlink_push_slot s ON s.link_key = a.link_key"
    " WHERE a.operation = 'create' AND a.send_count > 0"
    " AND a.status IN ('processing', 'post_sent', 'ambiguous_remote_effect')"
)
_PARKED: Final = sa.text(
    "SELECT operation, coalesce(hold_code, status) AS how, reason_code, count(*) AS count FROM pushlink_push_attempt"
    " WHERE hold_code IS NOT NULL OR status IN ('ambiguous_remote_effect', 'terminal_failed')"
    " GROUP BY operation, coalesce(hold_code, status), reason_code ORDER BY 4 DESC"
)
_FINISHED: Final = sa.text("SELECT count(*) FROM pushlink_remote_link WHERE status = 'finalized'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Figures of one run. `creates`: how many keys have how many accepted creates."""

    sends: int
    creates: dict[int, int]
    linked: int
    unknown_in_doubt: int  # ids that the remote gave and nobody here knows, of creates that are known to be in doubt
    lost: tuple[str, ...]  # ids that nothing here explains
    parked: dict[str, int]  # operation, how and why: rows

    @property
    def twice(self) -> int:
        """Keys with more than one accepted create."""
        return sum(count for creates, count in self.creates.items() if creates > 1)


def tally(engine: sa.Engine, path: Path) -> Tally:
    """Read both."""
    log = RemoteLog(path)
    log.refresh()
    with engine.connect() as conn:
        known = set(conn.execute(_KNOWN).scalars())
        doubted = set(conn.execute(_DOUBTED).scalars())
        parked = {f"{row.operation} {row.how}: {row.reason_code}": row.count for row in conn.execute(_PARKED)}
        linked = conn.execute(_FINISHED).scalar_one()
    unknown = {remote_id: record for remote_id, record in log.owners.items() if remote_id not in known}
    return Tally(
        sends=sum(log.sends.values()),
        creates=dict(sorted(Counter(log.creates.values()).items())),
        linked=linked,
        unknown_in_doubt=sum(1 for record in unknown.values() if record in doubted),
        lost=tuple(sorted(remote_id for remote_id, record in unknown.items() if record not in doubted)),
        parked=parked,
    )
