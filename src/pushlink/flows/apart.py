"""Saving many records so that one that cannot be read never takes the others with it.

A save raises for a record whose value cannot be kept exact, or whose id is no id. Where nobody waits for an exception,
in a backfill or in a commit, that is one more refusal: the group is halved until the record stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from pushlink.errors import CallerError
from pushlink.flows.outcomes import About, Outcome, Refused
from pushlink.ports import RecordRef

#: A save of some records, in a savepoint of its own: it raises, and then has changed nothing, or answers for each.
SaveGroup: TypeAlias = Callable[[Sequence[RecordRef]], list[list[Outcome]]]


def save_apart(save: SaveGroup, refs: Sequence[RecordRef], *, tenant: str) -> list[list[Outcome]]:
    """The outcomes of each record, in order; a `CallerError` about one of them is its refusal, with the same code."""
    if not refs:
        return []
    try:
        return save(refs)
    except CallerError as error:
        if len(refs) == 1:
            return [[_refused(refs[0], error, tenant)]]
    middle = len(refs) // 2
    return save_apart(save, refs[:middle], tenant=tenant) + save_apart(save, refs[middle:], tenant=tenant)


def _refused(ref: RecordRef, error: CallerError, tenant: str) -> Refused:
    return Refused(
        about=About(tenant=tenant, source_object=ref.source_object, record_id=ref.record_id, action=""),
        code=error.code,
        message=error.message,
        evidence=error.evidence,
        next_verbs=("save",),
    )
