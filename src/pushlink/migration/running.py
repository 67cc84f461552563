"""What every manifest's run shares: the clock, the verdict, and what is said when somebody holds a row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TypeAlias

from pushlink.errors import Contended
from pushlink.store.access import Connection

#: The time by the database, read inside a transaction.
Now: TypeAlias = Callable[[Connection], dt.datetime]

#: Told after each batch: members done so far.
OnProgress: TypeAlias = Callable[[int], None]


class Verdict(StrEnum):
    """What became of an operation, or would."""

    APPLICABLE = "applicable"  # a rehearsal found nothing in the way
    APPLIED = "applied"
    ALREADY_APPLIED = "already_applied"


@contextmanager
def contention() -> Iterator[None]:
    """Say of a lock that was held too long that the whole manifest can be run again."""
    try:
        yield
    except Contended as error:
        raise Contended(
            "Somebody else's transaction held a row of this manifest, or another manifest is being applied.",
            evidence=error.evidence,
            next_step="nothing was written; run it again, with workers stopped if it stays so",
        ) from error
