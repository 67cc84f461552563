"""Semantic findings of a pack: what has the right shape and still cannot work, or is probably not meant."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pushlink.errors import Finding
from pushlink.packs.model import Pack
from pushlink.packs.tree import Node


class Severity(StrEnum):
    """An error stops `pack apply`; a warning is shown."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding(Finding):
    """A finding with the stable name of its rule."""

    rule: str
    severity: Severity

    def __str__(self) -> str:
        return f"{Finding.__str__(self)} [{self.rule}]"


def lint(pack: Pack, *, file: str = "<pack>", root: Node | None = None) -> tuple[LintFinding, ...]:
    """Everything that the rules find, in the order of the document."""
    del pack, file, root
    return ()
