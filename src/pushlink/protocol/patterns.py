"""Regular expressions of packs, kept small enough that no reply can make them run for long.

A pattern matches a whole text, never a part of it. It may not repeat a group, look around or refer back, which are the
ways to exponential time; what is left is bounded by the length of pattern and text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

#: Longer patterns are programs.
PATTERN_LENGTH_MAX: Final = 500

#: The longest text that is matched, by the pattern's number of open repeats: each one multiplies the time by the
#: length. An id hides in a link or a sentence, not in a page. More repeats than these are refused.
TEXT_LENGTH_MAX: Final = (8_192, 8_192, 8_192, 512)

_ESCAPE_OR_CLASS: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_BACK_REFERENCE: Final = re.compile(r"\\[1-9gkz]|\(\?P=")
_GROUP_REPEAT: Final = re.compile(r"\)[*+{]")
_OPEN_REPEAT: Final = re.compile(r"[*+]|\{[0-9]*,[0-9]*\}")


@lru_cache(maxsize=256)
def pattern_problem(pattern: str, *, groups: int | None = None) -> str | None:
    """Why a pack may not use this pattern; `groups` is how many it must capture, `None` for any number."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        return f"it is longer than {PATTERN_LENGTH_MAX} characters"
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return "it is no regular expression"
    if groups is not None and compiled.groups != groups:
        return f"it captures {compiled.groups} groups, not {groups}"
    bare = _bare(pattern)
    if _BACK_REFERENCE.search(pattern) or re.search(r"\(\?(?!:|P<)", bare):
        return "it looks around, refers back or sets flags"
    if _GROUP_REPEAT.search(bare):
        return "it repeats a group"
    if _open_repeats(pattern) >= len(TEXT_LENGTH_MAX):
        return f"it has more than {len(TEXT_LENGTH_MAX) - 1} open repeats"
    return None


def full_match(pattern: str, text: str) -> re.Match[str] | None:
    """Match all of `text`; `None` also for a text over the bound and for a pattern that may not be used."""
    compiled, length_max = _compiled(pattern)
    if compiled is None or len(text) > length_max:
        return None
    return compiled.fullmatch(text)


def _bare(pattern: str) -> str:
    return _ESCAPE_OR_CLASS.sub("x", pattern)


def _open_repeats(pattern: str) -> int:
    return len(_OPEN_REPEAT.findall(_bare(pattern)))


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> tuple[re.Pattern[str] | None, int]:
    if pattern_problem(pattern):
        return None, 0
    return re.compile(pattern), TEXT_LENGTH_MAX[_open_repeats(pattern)]
