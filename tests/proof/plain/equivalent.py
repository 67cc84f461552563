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


EQUIVALENT: Final[tuple[Equivalent, ...]] = ()


def reason(entry: Entry, known: Iterable[Equivalent] = EQUIVALENT) -> str | None:
    """Why this survivor cannot be seen, where somebody has said so."""
    return next((one.why for one in known if _is_about(one, entry)), None)


def stale(survivors: Iterable[Entry], known: Iterable[Equivalent] = EQUIVALENT) -> list[Equivalent]:
    """The explanations of mutants that do not survive, or are not there any more."""
    living = list(survivors)
    return [one for one in known if not any(_is_about(one, entry) for entry in living)]


def _is_about(one: Equivalent, entry: Entry) -> bool:
    return (one.module, one.text, one.change) == (entry.module, entry.text, entry.change)
