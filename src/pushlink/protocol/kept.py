"""Which headers of an answer are kept: those that interpretation reads by itself, and those that the contracts name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from pushlink.protocol.contracts import ActionContract, Contract, Criterion, IdExtractor, ProfileContract, Wait
from pushlink.protocol.extract import parse_place
from pushlink.protocol.preconditions import version_places

#: Reply headers that interpretation reads by itself, whatever the contracts name.
ALWAYS_KEPT: Final = ("retry-after", "date", "content-type", "location")


def kept_headers(action: ActionContract, profile: ProfileContract) -> tuple[str, ...]:
    """The names, in lower case. Nothing else of an answer's headers is stored."""
    create, update = action.create, action.update
    parts: list[object] = [create.success, create.response, create.conflict, action.errors]
    parts += [(c.job, c.done, c.failed, c.id) for c in (create.followup, create.asynchronous) if c is not None]
    parts += [create.idempotency, create.repeat]
    if create.lookup is not None:
        parts.append((create.lookup.done, create.lookup.failed, create.lookup.none, create.lookup.id))
    if update is not None:
        parts += [update.success, update.deleted, update.merged]
        if update.precondition is not None:
            parts += [update.precondition.on_fail, version_places(update, create)]
    if profile.session is not None:
        parts.append(profile.session.prefetch.expired)
    return _named((*parts, profile.errors, profile.rate_limit))


@lru_cache(maxsize=1_024)
def _named(parts: tuple[object, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*ALWAYS_KEPT, *(name.lower() for name in _names_in(parts)))))


def _names_in(value: object) -> Iterator[str]:
    match value:
        case Criterion(header=str() as name):
            yield name
        case Wait():
            yield from () if value.header is None else (value.header,)
            yield from _names_in(value.when)
        case IdExtractor():
            place = parse_place(value.source)
            if place is not None and place.kind == "header":
                yield place.name
        case Contract():
            for field in type(value).model_fields:
                yield from _names_in(getattr(value, field))
        case tuple():
            for item in value:
                yield from _names_in(item)
