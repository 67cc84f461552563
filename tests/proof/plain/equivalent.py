"""The mutants that nobody can see, each with the reason why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from proof.plain.book import Entry


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A change of a line that changes nothing that anybody could observe."""

    module: str
    text: str  # of the line, without its indent
    change: str
    why: str


EQUIVALENT: Final[tuple[Equivalent, ...]] = (
    Equivalent(
        "body",
        "if not token.isdigit() or token != str(int(token[:9])) or int(token) >= len(node):",
        "9 -> 10",
        "a token of ten digits is beyond the end of every list, and refused for that",
    ),
    Equivalent(
        "body",
        "length = max((len(text) for text in _texts(value)), default=0)",
        "0 -> 1",
        "no bound is below one character, so no text at all and one character pass alike",
    ),
    Equivalent(
        "declared",
        "for item, part in zip(value, written, strict=True):",
        "True -> False",
        "pydantic writes a tuple as a list of as many items",
    ),
    Equivalent("documents", "elif key < before:", "< -> <=", "equal keys have been taken by the branch above"),
    Equivalent(
        "identity",
        "texts = [(part, _WRITERS[part](item)) for part, item in zip(parts, value, strict=True)]",
        "True -> False",
        "a tuple of another length has been refused two lines above",
    ),
    Equivalent(
        "jsontext",
        'if text.count("[") + text.count("{") <= READ_DEPTH_MAX:',
        "<= -> <",
        "a short cut: a text with as many brackets as the bound nests no deeper, and counting finds that too",
    ),
    Equivalent("jsontext", "return 0", "0 -> 1", "the depth of a text that cannot be too deep is never looked at"),
    Equivalent(
        "outcome",
        "delay = min(retry.backoff.cap_ms, retry.backoff.base_ms << min(count, 40))",
        "40 -> 41",
        "a duration has at most 366 days, which even a millisecond reaches before its fortieth doubling",
    ),
    Equivalent("patterns", "return None, 0", "0 -> 1", "the length goes with a pattern, and there is none"),
    Equivalent(
        "remoteids",
        'character.upper() if bit == "1" else character.lower() for character, bit in zip(head, bits, strict=True)',
        "True -> False",
        "three check characters have as many bits as the fifteen characters that they are about",
    ),
    Equivalent(
        "remoteids",
        "groups = (head[:5], head[5:10], head[10:15])",
        "15 -> 16",
        "a head has fifteen characters: both callers cut it so",
    ),
    Equivalent(
        "values",
        'result = hashlib.md5(_text(result, "md5_hex").encode(), usedforsecurity=False).hexdigest()',
        "False -> True",
        "it asks a FIPS build of OpenSSL to allow MD5; the digest is the same",
    ),
)


def reason(entry: Entry, known: Iterable[Equivalent] = EQUIVALENT) -> str | None:
    """Why this survivor cannot be seen, where somebody has said so."""
    return next((one.why for one in known if _is_about(one, entry)), None)


def stale(survivors: Iterable[Entry], known: Iterable[Equivalent] = EQUIVALENT) -> list[Equivalent]:
    """The explanations of mutants that do not survive, or are not there any more."""
    living = list(survivors)
    return [one for one in known if not any(_is_about(one, entry) for entry in living)]


def _is_about(one: Equivalent, entry: Entry) -> bool:
    return (one.module, one.text, one.change) == (entry.module, entry.text, entry.change)
