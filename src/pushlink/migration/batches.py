"""Batches of a migration. An adoption commits each one for itself and runs it again when it lost a race."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from pushlink.errors import Contended
from pushlink.store import access
from pushlink.store.access import Connection, Engine
from pushlink.store.dialect import bound_lock_waits

#: Rows of one statement, or of one transaction where each batch has its own: large enough that neither counts, small
#: enough that memory does not, and that nobody waits long for a batch's locks.
SIZE: Final = 500

#: How long one lock is waited for. Saves and workers hold theirs for milliseconds.
LOCK_WAIT_MS: Final = 2_000

T = TypeVar("T")


def batches(items: Iterable[T]) -> Iterator[list[T]]:
    """Lists of at most a batch of items, in order."""
    left = iter(items)
    while batch := list(itertools.islice(left, SIZE)):
        yield batch


def commit(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Run `work` in a transaction of its own whose waits are bounded; raises `Contended` when no try found room."""

    def bounded(conn: Connection) -> T:
        bound_lock_waits(conn, LOCK_WAIT_MS)
        return work(conn)

    try:
        return access.commit(engine, bounded)
    except Contended as error:
        raise Contended(
            "Somebody else's transaction holds a row of this operation.",
            evidence=error.evidence,
            next_step="what was committed so far stays; the same command goes on",
        ) from error
