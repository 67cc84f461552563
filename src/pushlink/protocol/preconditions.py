"""Preconditions: what a request asks to hold at the remote, and which version of a record it names for that.

A version is an opaque text of the remote. It comes from the link, as the last answer showed it, or from a read just
before the send; it is put into a header, or at its place in the body. Which of the two an update needs is decided here,
from what its pack declares and what is known of its link.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from pushlink.errors import Code
from pushlink.protocol.contracts import Body, CreateContract, IdExtractor, UpdateContract, UpdatePrecondition
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.placeholders import LINK_VERSION, Unfilled, Variables, fill

#: Stands for a version that will be read later, where only the form of a request is checked.
TO_BE_FETCHED: Final = "0"

#: The header that says each kind.
_HEADERS: Final[Mapping[str, str]] = {"etag": "If-Match", "if_unmodified_since": "If-Unmodified-Since"}

#: Where a read record says its version, for the kinds that have a header of their own.
_DEFAULT_PLACES: Final[Mapping[str, tuple[IdExtractor, ...]]] = {
    "etag": (IdExtractor(source="$response.header.ETag"),),
    "if_unmodified_since": (IdExtractor(source="$response.header.Last-Modified"),),
}

_NUMBER: Final = re.compile(r"[0-9]{1,30}")


def precondition_headers(
    contract: CreateContract | UpdateContract, variables: Variables
) -> dict[str, str] | RenderFailure:
    """The header that says a precondition, or why it cannot be said; none where the body says it."""
    condition = contract.precondition
    match None if condition is None else condition.kind:
        case "if_none_match_star":
            return {"If-None-Match": "*"}
        case "if_match_star":
            return {"If-Match": "*"}
        case "if_none_exist":
            return _if_none_exist(contract, variables)
        case ("etag" | "if_unmodified_since") as kind:
            version = variables.get(LINK_VERSION)
            return {_HEADERS[kind]: version} if version else _no_version()
        case _:
            return {}


def with_version(contract: CreateContract | UpdateContract) -> Body:
    """The body with the version at its place, for a precondition that stands there."""
    condition = contract.precondition
    if not isinstance(condition, UpdatePrecondition) or condition.kind != "version_field" or condition.pointer is None:
        return contract.body
    placeholder = f"{{{LINK_VERSION}:integer}}" if condition.integer else f"{{{LINK_VERSION}}}"
    return contract.body.model_copy(update={"merge": {**contract.body.merge, condition.pointer: placeholder}})


def needs_fetch(update: UpdateContract, *, link_version: str | None, is_refused: bool) -> bool:
    """Whether the record is read before this send; `is_refused` says that the version of the last send was stale."""
    condition = update.precondition
    if condition is None or condition.kind == "if_match_star":
        return False
    return condition.source == "fresh_get" or (condition.refetch_once and (is_refused or not link_version))


def version_to_check(update: UpdateContract, link_version: str | None) -> str | None:
    """The version that a save is checked with, before anything is read: one that will be read is taken as there."""
    return TO_BE_FETCHED if needs_fetch(update, link_version=link_version, is_refused=False) else link_version


def version_places(update: UpdateContract, create: CreateContract) -> tuple[IdExtractor, ...]:
    """Where the answer to a read says the version of the record."""
    condition = update.precondition
    if condition is None:
        return ()
    return condition.fetch.version or create.response.version or _DEFAULT_PLACES.get(condition.kind, ())


def is_older(condition: UpdatePrecondition, version: str, link_version: str | None) -> bool:
    """Whether a version that was read is one that the link has seen a later one of, where versions only grow."""
    if not condition.grows or link_version is None:
        return False
    if not _NUMBER.fullmatch(version) or not _NUMBER.fullmatch(link_version):
        return False
    return int(version) < int(link_version)


def _if_none_exist(contract: CreateContract | UpdateContract, variables: Variables) -> dict[str, str] | RenderFailure:
    query = getattr(contract.precondition, "query", {})
    pairs = []
    for name, literal in query.items():
        value = fill(literal, variables)
        if isinstance(value, Unfilled):
            return RenderFailure(
                code=Code.FREEZE_FAILED,
                message=f"{value.name} cannot be sent in a precondition: {value.problem}.",
                evidence={"parameter": name},
            )
        pairs.append(f"{quote(name, safe='')}={quote(str(value), safe='|:')}")
    return {"If-None-Exist": "&".join(pairs)}


def _no_version() -> RenderFailure:
    return RenderFailure(
        code=Code.FREEZE_FAILED,
        message="The link has no version for the update's precondition. Read it before each send, or revalidate.",
        evidence={"variable": LINK_VERSION},
    )
