"""What a remote id is, and how two spellings of one id are told to be the same.

An id is opaque, case-sensitive text of any length, with the digits it came with. It is tested by presence and not by
truth: `0` is an id. An empty text, a sentence, and the collection's own name are not. A profile may narrow that by a
pattern and a length, and names one canonical form; the name carries a version, so that a change of form is drift.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from pushlink.protocol.contracts import ActionContract, Canonical
from pushlink.protocol.paths import last_literal
from pushlink.protocol.patterns import full_match


class Reason(StrEnum):
    """Why a reply or a person gave no usable remote id."""

    NO_EXTRACTOR = "no_extractor"  # the action declares none
    ABSENT = "absent"  # no extractor found anything
    BODY_INCOMPLETE = "body_incomplete"  # the body was cut short or not kept whole, so it is not parsed
    BODY_UNREADABLE = "body_unreadable"  # not strict JSON within its bounds
    WRONG_TYPE = "wrong_type"  # an object, a list, a boolean, a number with a fraction or an exponent
    NUMBER_TOO_LONG = "number_too_long"
    HEADER_REPEATED = "header_repeated"
    UNDECODABLE = "undecodable"  # percent-encoding or Unicode that does not decode
    RULE_UNUSABLE = "rule_unusable"  # the extractor or its pattern cannot be used
    SENTENCE = "sentence"  # white space or a control character inside
    COLLECTION_NAME = "collection_name"
    AGAINST_RULE = "against_rule"  # the profile's pattern or length
    NOT_CANONICAL = "not_canonical"  # the named canonical form cannot be made of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """A remote id as it was received, and the canonical text that the locator is made of."""

    remote_id: str
    canonical: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoId:
    """No usable id, and why; `candidate` is the whole text that was found instead, when it was text."""

    reason: Reason
    candidate: str | None = None


Found: TypeAlias = Extracted | NoId

_SPACE: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u200b\u2028\u2029\ufeff]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_INTEGER: Final = re.compile(r"(?P<minus>-?)0*(?P<digits>[0-9]+)", re.ASCII)
_UUID: Final = re.compile(
    r"(?P<open>\{)?(?P<digits>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32})(?(open)\})"
)
_CASE_15: Final = re.compile(r"[0-9A-Za-z]{15}")
_CASE_18: Final = re.compile(r"[0-9A-Za-z]{15}[0-5A-Za-z]{3}")
_CHECKSUM: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"


def read_remote_id(action: ActionContract, text: str) -> Found:
    """Judge one text as a remote id of this action's destination: from a reply, from a person, or from a record."""
    rule = action.create.response.id_rule
    if text == "":
        return NoId(reason=Reason.ABSENT)
    if _SURROGATE.search(text):
        return NoId(reason=Reason.UNDECODABLE)
    if _SPACE.search(text):
        return NoId(reason=Reason.SENTENCE, candidate=text)
    if text == last_literal(action.create.path):
        return NoId(reason=Reason.COLLECTION_NAME, candidate=text)
    if rule.length_max is not None and len(text) > rule.length_max:
        return NoId(reason=Reason.AGAINST_RULE, candidate=text)
    if rule.pattern is not None and full_match(rule.pattern, text) is None:
        return NoId(reason=Reason.AGAINST_RULE, candidate=text)
    canonical = canonical_id(rule.canonical, text)
    if canonical is None:
        return NoId(reason=Reason.NOT_CANONICAL, candidate=text)
    return Extracted(remote_id=text, canonical=canonical)


def canonical_id(form: Canonical, text: str) -> str | None:
    """`text` in the named canonical form, or `None` when it has none."""
    return _FORMS[form](text)


def _exact(text: str) -> str | None:
    return text


def _integer(text: str) -> str | None:
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    return "0" if match["digits"] == "0" else match["minus"] + match["digits"]


def _uuid_lower(text: str) -> str | None:
    match = _UUID.fullmatch(text)
    if match is None:
        return None
    digits = match["digits"].replace("-", "").lower()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _lower(text: str) -> str | None:
    return "".join(character.lower() if character.isascii() else character for character in text)


def _case_checksum(text: str) -> str | None:
    """The 18-character spelling: 15 characters, and one more for each 5 of them that says which are capitals.

    The n-th bit of a check character's value is set when the n-th of its five characters is a capital letter. A
    spelling of 18 survives a change of case: from all lower or all upper case, the capitals are restored from it.
    """
    if _CASE_15.fullmatch(text):
        return text + _check(text)
    if not _CASE_18.fullmatch(text):
        return None
    head, check = text[:15], text[15:].upper()
    if _check(head) == check:
        return head + check
    if head not in {head.lower(), head.upper()}:
        return None
    bits = "".join(f"{_CHECKSUM.index(character):05b}"[::-1] for character in check)
    restored = "".join(
        character.upper() if bit == "1" else character.lower() for character, bit in zip(head, bits, strict=True)
    )
    return restored + check if _check(restored) == check else None


def _check(head: str) -> str:
    groups = (head[:5], head[5:10], head[10:15])
    return "".join(_CHECKSUM[sum(character.isupper() << n for n, character in enumerate(group))] for group in groups)


_FORMS: Final[Mapping[Canonical, Callable[[str], str | None]]] = {
    Canonical.EXACT_V1: _exact,
    Canonical.INTEGER_V1: _integer,
    Canonical.UUID_LOWER_V1: _uuid_lower,
    Canonical.LOWER_V1: _lower,
    Canonical.CASE_CHECKSUM_18_V1: _case_checksum,
}
