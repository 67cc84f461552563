"""Reading a reply: where an id may stand, and what counts as one.

An extractor names a place by a runtime expression (`$statusCode`, `$response.header.Name`, `$response.body#/pointer`).
The first extractor that finds something decides, even when what it found is no id. A body that is not there whole is
never parsed, since half of a number is a number; a header is whole by itself. A reply is hostile until read: bounds and
strictness are in `jsontext.py` and `patterns.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote_to_bytes

from pushlink.protocol import jsontext
from pushlink.protocol.contracts import ActionContract, CompositeId, IdExtractor
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.jsontext import Number, Parsed
from pushlink.protocol.patterns import full_match, pattern_problem
from pushlink.protocol.remoteids import Extracted, Found, NoId, Reason, read_remote_id

#: An id that is a number has a column somewhere; none has more digits.
ID_DIGITS_MAX: Final = 64

#: What a duplicate answer names are a few records; a longer list is not evidence for a person any more.
CANDIDATES_MAX: Final = 20

_EXPRESSION: Final = re.compile(
    r"\$statusCode|\$response\.header\.(?P<header>[!#$%&'*+\-.^_`|~0-9A-Za-z]+)"
    r"|\$response\.body(?:#(?P<pointer>(?:/(?:[^~/]|~[01])*)*))?"
)
#: Why an answer names no record at all, which is not the same as naming one in a form that is none.
_SAYS_NOTHING: Final = frozenset({Reason.NO_EXTRACTOR, Reason.ABSENT, Reason.BODY_INCOMPLETE, Reason.BODY_UNREADABLE})

_ESCAPES: Final = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an extractor looks: one header, one pointer into the body, or the status."""

    kind: Literal["status", "header", "body"]
    name: str = ""  # the header in lower case, or the JSON Pointer


#: Something found at a place, before it is judged: texts, or why there is none although something stands there.
_Texts: TypeAlias = tuple[str, ...] | NoId


def parse_place(source: str) -> Place | None:
    """Read a runtime expression; `None` when it is none of the three kinds."""
    match = _EXPRESSION.fullmatch(source)
    if match is None:
        return None
    if match["header"] is not None:
        return Place(kind="header", name=match["header"].lower())
    if source == "$statusCode":
        return Place(kind="status")
    return Place(kind="body", name=match["pointer"] or "")


def extractor_problem(extractor: IdExtractor) -> str | None:
    """Why a pack may not use this extractor; a linter asks here, and so does `extract_id`."""
    if parse_place(extractor.source) is None:
        return "from is $response.body#/pointer, $response.header.Name or $statusCode"
    if extractor.regex is not None and (problem := pattern_problem(extractor.regex, groups=1)):
        return f"regex: {problem}"
    return None


def extract_id(action: ActionContract, reply: StoredReply, *, headers: bool = True) -> Found:
    """The remote id that a success answered with, or why there is none; without `headers` only the body may say it."""
    composite = action.create.response.composite
    if composite is not None:
        return _join(action, composite, reply, headers=headers)
    extractors = [extractor for extractor in action.create.response.id if headers or _is_in_body(extractor)]
    if not extractors:
        return NoId(reason=Reason.NO_EXTRACTOR)
    found = _first(extractors, reply)
    return found if isinstance(found, NoId) else read_remote_id(action, found)


def extract_version(action: ActionContract, reply: StoredReply) -> str | None:
    """The version of the record that an answer shows, as it stands there; `None` when it shows none."""
    found = _first(action.create.response.version, reply)
    return None if isinstance(found, NoId) else found


def extract_named(action: ActionContract, extractors: Iterable[IdExtractor], reply: StoredReply) -> tuple[str, ...]:
    """Every remote id that these places of an answer name: evidence for a person."""
    texts: list[str] = []
    for found in _look(extractors, reply, with_lists=True):
        if isinstance(found, tuple):
            texts.extend(text for text in found if isinstance(read_remote_id(action, text), Extracted))
    return tuple(dict.fromkeys(texts))[:CANDIDATES_MAX]


def extract_first(extractors: Iterable[IdExtractor], reply: StoredReply) -> str | None:
    """What the first of these places that holds something says; `None` when there is nothing."""
    found = _first(extractors, reply)
    return None if isinstance(found, NoId) else found


def _join(action: ActionContract, composite: CompositeId, reply: StoredReply, *, headers: bool) -> Found:
    """An id of several parts; a part that holds the separator would make two ids of one spelling."""
    if not headers and not all(_is_in_body(part) for part in composite.parts):
        return NoId(reason=Reason.NO_EXTRACTOR)
    texts: list[str] = []
    for part in composite.parts:
        found = _first((part,), reply)
        if isinstance(found, NoId):
            return found
        if composite.separator in found:
            return NoId(reason=Reason.NOT_CANONICAL, candidate=found)
        texts.append(found)
    return read_remote_id(action, composite.separator.join(texts))


def _first(extractors: Iterable[IdExtractor], reply: StoredReply) -> str | NoId:
    """What the first extractor that finds something found, or the best reason why there is nothing."""
    missing = NoId(reason=Reason.ABSENT)
    for found in _look(extractors, reply):
        match found:
            case NoId(reason=Reason.BODY_INCOMPLETE | Reason.BODY_UNREADABLE):
                missing = found
            case NoId(reason=Reason.ABSENT):
                continue
            case NoId():
                return found
            case (text, *_):
                return text
    return missing


def extract_known(action: ActionContract, reply: StoredReply, client_id: str | None) -> Found:
    """The id that a success answered with or, where it says nothing, the one that the request gave its record."""
    found = extract_id(action, reply)
    if client_id is None or not isinstance(found, NoId) or found.reason not in _SAYS_NOTHING:
        return found
    return read_remote_id(action, client_id)


def extract_again(action: ActionContract, reply: StoredReply, canonical_id: str) -> Extracted | NoId | None:
    """Another id than `canonical_id` in the answer to an update; `None` where it shows that one, or none at all.

    Where the pack says that ids change, it stands wherever the create's answers have it, and one that cannot be used
    is told as such. Elsewhere only a body speaks of the record itself: a header may name another resource.
    """
    is_mutable = action.create.response.id_rule.mutable
    found = extract_id(action, reply, headers=is_mutable)
    if isinstance(found, NoId):
        return found if is_mutable and found.reason not in _SAYS_NOTHING else None
    return None if found.canonical == canonical_id else found


def extract_candidates(action: ActionContract, reply: StoredReply) -> tuple[str, ...]:
    """Every id that an answer names without being a success: evidence for a person, adopted by nobody (D-27)."""
    response = action.create.response
    named = extract_named(action, (*response.candidates, *response.id), reply)
    if response.composite is None:
        return named
    joined = _join(action, response.composite, reply, headers=True)
    texts = (*named, joined.remote_id) if isinstance(joined, Extracted) else named
    return tuple(dict.fromkeys(texts))[:CANDIDATES_MAX]


def _is_in_body(extractor: IdExtractor) -> bool:
    place = parse_place(extractor.source)
    return place is not None and place.kind == "body"


def _look(extractors: Iterable[IdExtractor], reply: StoredReply, *, with_lists: bool = False) -> Iterator[_Texts]:
    """What each extractor finds; a body is read only if it is there whole. An id is never a list."""
    for extractor in extractors:
        place = parse_place(extractor.source)
        if place is None or extractor_problem(extractor):
            yield NoId(reason=Reason.RULE_UNUSABLE)
        elif place.kind == "body":
            body = read_body(reply)
            if isinstance(body, NoId):
                yield body
            else:
                yield _narrow(extractor, _body_texts(jsontext.resolve(body, place.name), with_lists=with_lists))
        elif place.kind == "header":
            yield _narrow(extractor, _header_texts(reply, place.name))
        else:
            yield _narrow(extractor, (str(reply.status),) if reply.status is not None else NoId(reason=Reason.ABSENT))


def read_body(reply: StoredReply) -> Parsed | NoId:
    """The body as JSON, `None` for an empty one; no value at all unless it is there whole and strict."""
    if not reply.body_complete or reply.body_size != len(reply.body):
        return NoId(reason=Reason.BODY_INCOMPLETE)
    return _parsed(reply.body) if reply.body else None


@lru_cache(maxsize=4)
def _parsed(body: bytes) -> Parsed | NoId:
    """One answer is asked many questions; whoever gets the value only reads it."""
    try:
        return jsontext.read(body)
    except ValueError:
        return NoId(reason=Reason.BODY_UNREADABLE)


def _header_texts(reply: StoredReply, name: str) -> _Texts:
    values = {value for header, value in reply.headers if header.lower() == name}
    if len(values) > 1:
        return NoId(reason=Reason.HEADER_REPEATED)
    return tuple(values) if values and values != {""} else NoId(reason=Reason.ABSENT)


def _body_texts(value: Parsed, *, with_lists: bool) -> _Texts:
    match value:
        case None | "":
            return NoId(reason=Reason.ABSENT)
        case str():
            return (value,)
        case Number() if not value.is_integer:
            return NoId(reason=Reason.WRONG_TYPE, candidate=value.text)
        case Number():
            too_long = len(value.text.lstrip("-")) > ID_DIGITS_MAX
            return NoId(reason=Reason.NUMBER_TOO_LONG) if too_long else (value.text,)
        case list() if with_lists:
            items = [_body_texts(item, with_lists=False) for item in value[:CANDIDATES_MAX]]
            return tuple(text for item in items if isinstance(item, tuple) for text in item)
        case _:
            return NoId(reason=Reason.WRONG_TYPE)


def _narrow(extractor: IdExtractor, found: _Texts) -> _Texts:
    """Apply the extractor's regex and decoding; what does not match, or means "none", is as good as absent."""
    if isinstance(found, NoId):
        return found
    texts = found
    if extractor.regex is not None:
        matches = [full_match(extractor.regex, text) for text in texts]
        texts = tuple(match[1] for match in matches if match is not None and match[1])
        if not texts:
            return NoId(reason=Reason.ABSENT)
    if extractor.decode == "percent":
        decoded = [_decode(text) for text in texts]
        if None in decoded:
            return NoId(reason=Reason.UNDECODABLE, candidate=texts[0])
        texts = tuple(text for text in decoded if text is not None)
    if extractor.nothing:
        texts = tuple(text for text in texts if text not in extractor.nothing)
    return texts or NoId(reason=Reason.ABSENT)


def _decode(text: str) -> str | None:
    """Percent-decode once; `None` for a stray percent sign or bytes that are no UTF-8."""
    if not _ESCAPES.fullmatch(text):
        return None
    try:
        return unquote_to_bytes(text).decode("utf-8", "strict")
    except UnicodeDecodeError:
        return None
