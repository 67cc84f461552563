"""The lifecycle: nothing else in pushlink writes a status.

`attempts.py` moves attempts, `links.py` moves links; both take the arrow from `protocol/states.py` and write it only
where the row is still what its mover had read.
"""

from pushlink.store.lifecycle.attempts import (
    Claim,
    Claims,
    Lost,
    Move,
    Moved,
    NewAttempt,
    Occupied,
    claim_attempts,
    insert_attempts,
    move_attempts,
)
from pushlink.store.lifecycle.links import LinkMove, NewLink, insert_links, move_links

__all__ = [
    "Claim",
    "Claims",
    "LinkMove",
    "Lost",
    "Move",
    "Moved",
    "NewAttempt",
    "NewLink",
    "Occupied",
    "claim_attempts",
    "insert_attempts",
    "insert_links",
    "move_attempts",
    "move_links",
]
