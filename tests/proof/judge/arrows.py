"""The arrows between statuses, written down once more by hand from the contract, so that a judge needs no code of ours.

Each line is `from -> to to to`. `-` is "not there". A claim writes no event, so its arrow joins two events silently.
"""

from __future__ import annotations

from typing import Final

_CREATE = """
- -> pending
pending -> processing terminal_failed ambiguous_remote_effect
processing -> pending terminal_failed post_sent ambiguous_remote_effect
processing -> writeback_commit_pending finalized writeback_pending
post_sent -> pending terminal_failed ambiguous_remote_effect writeback_commit_pending finalized writeback_pending
writeback_commit_pending -> finalized writeback_pending
writeback_pending -> finalized terminal_failed
ambiguous_remote_effect -> writeback_pending terminal_failed pending
terminal_failed -> writeback_pending superseded
"""

_UPDATE = """
- -> pending
pending -> processing superseded
processing -> pending superseded terminal_failed post_sent finalized ambiguous_remote_effect
post_sent -> pending finalized terminal_failed ambiguous_remote_effect
ambiguous_remote_effect -> finalized superseded
"""

_LINK = """
- -> finalized
finalized -> suspended_drift retired finalized
suspended_drift -> finalized retired suspended_drift
retired -> retired
"""


def _pairs(text: str) -> frozenset[tuple[str, str]]:
    lines = [line.split(" -> ") for line in text.strip().splitlines()]
    return frozenset((source.strip(), target) for source, targets in lines for target in targets.split())


ARROWS: Final = {"create": _pairs(_CREATE), "update": _pairs(_UPDATE), "link": _pairs(_LINK)}

#: What an event may leave out: the claim, which writes none.
SILENT: Final = frozenset({("pending", "processing")})
