"""Criteria: closed tests on an answer, as packs write them.

A criterion asks about the status, and about one place: a header, or a pointer into the body. Nothing in a body is ever
there, or absent, unless the body is whole and strict JSON; so a cut answer fails every test about it, whichever way the
test is written. "Nothing" means not there, null, or an empty text, list or object.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pushlink.protocol import jsontext
from pushlink.protocol.contracts import Criterion, Scalar
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.extract import read_body
from pushlink.protocol.jsontext import Number, Parsed
from pushlink.protocol.patterns import full_match, pattern_problem
from pushlink.protocol.remoteids import NoId

_NOTHING: Final[tuple[Parsed, ...]] = (None, "", [], {})


def all_hold(criteria: Iterable[Criterion], reply: StoredReply) -> bool:
    """Whether every one of these holds for a reply; none of them is a test that always holds."""
    return all(holds(criterion, reply) for criterion in criteria)


def any_holds(criteria: Iterable[Criterion], reply: StoredReply) -> bool:
    """Whether at least one of these holds for a reply."""
    return any(holds(criterion, reply) for criterion in criteria)


def holds(criterion: Criterion, reply: StoredReply) -> bool:
    """Whether every part that is written holds; a criterion that cannot be used never does."""
    if criterion_problem(criterion) is not None:
        return False
    if criterion.status is not None and reply.status not in criterion.status:
        return False
    if criterion.header is not None:
        name = criterion.header.lower()
        return _any_passes(criterion, [value for header, value in reply.headers if header.lower() == name])
    if criterion.pointer is not None:
        body = read_body(reply)
        return not isinstance(body, NoId) and _passes(criterion, jsontext.resolve(body, criterion.pointer))
    return True


def criterion_problem(criterion: Criterion) -> str | None:
    """Why a pack may not use this criterion; a linter asks here, and so does `holds`."""
    tests = (criterion.equals, criterion.one_of, criterion.regex, criterion.absent, criterion.present)
    has_test = any(test is not None for test in tests)
    if criterion.header is not None and criterion.pointer is not None:
        return "it looks at a header and at the body; write two"
    if criterion.header is None and criterion.pointer is None:
        if has_test:
            return "it tests something, and does not say where that stands"
        return None if criterion.status else "it tests nothing"
    if criterion.absent is not None and criterion.present is not None:
        return "absent and present are one test"
    if criterion.regex is not None and (problem := pattern_problem(criterion.regex)):
        return f"regex: {problem}"
    return None


def shows_something_in_the_body(criterion: Criterion) -> bool:
    """Whether this criterion holds only when something particular stands in a whole body."""
    if criterion.pointer is None or criterion.absent is True or criterion.present is False:
        return False
    return any(test is not None for test in (criterion.equals, criterion.one_of, criterion.regex, criterion.present))


def is_nothing(value: Parsed) -> bool:
    """Whether what was found counts as nothing: null, or an empty text, list or object."""
    return value in _NOTHING


def _any_passes(criterion: Criterion, values: list[str]) -> bool:
    return any(_passes(criterion, value) for value in values) if values else _passes(criterion, None)


def _passes(criterion: Criterion, value: Parsed) -> bool:
    if criterion.absent is not None or criterion.present is not None:
        wants_nothing = criterion.absent is True or criterion.present is False
        if is_nothing(value) is not wants_nothing:
            return False
    if criterion.equals is not None and not _is(value, criterion.equals):
        return False
    if criterion.one_of is not None and not any(_is(value, scalar) for scalar in criterion.one_of):
        return False
    if criterion.regex is not None:
        text = _text(value)
        return text is not None and full_match(criterion.regex, text) is not None
    tests = (criterion.absent, criterion.present, criterion.equals, criterion.one_of)
    return not is_nothing(value) if all(test is None for test in tests) else True


def _is(value: Parsed, scalar: Scalar) -> bool:
    """Exact equality: a number is compared by its digits, and `"5"` is not 5 unless the pack writes it as text."""
    match scalar:
        case bool() | None:
            return value is scalar
        case int():
            return isinstance(value, Number) and value.text == str(scalar)
        case str():
            return _text(value) == scalar


def _text(value: Parsed) -> str | None:
    match value:
        case str():
            return value
        case Number():
            return value.text
        case _:
            return None
