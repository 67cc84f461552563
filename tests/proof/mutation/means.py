"""How a rule is switched off from outside, and the table of what is. Nothing in `src` reads a switch.

A mutant replaces a function, a table or a condition of a prepared statement in this process, for good; whoever wants to
go on without it starts another process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.sql import visitors

from pushlink.protocol import gates


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One rule and how it is switched off.

    `test`: what fails then. `unseen`: why the simulation cannot notice; without it, the simulation has to.
    """

    name: str
    decision: str
    rule: str
    off: Callable[[], None]
    test: str
    unseen: str


MUTANTS: Final[dict[str, Mutant]] = {}


def mutant(
    name: str, decision: str, test: str, *, unseen: str = ""
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Put what follows into the table: its docstring says the rule, and calling it switches the rule off."""

    def enter(off: Callable[[], None]) -> Callable[[], None]:
        rule = (off.__doc__ or "").strip().rstrip(".")
        MUTANTS[name] = Mutant(name=name, decision=decision, rule=rule, off=off, test=f"tests/{test}", unseen=unseen)
        return off

    return enter


def swap(original: Any, other: Any) -> None:
    """Let every module that knows `original` by a name know `other` by it."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").partition(".")[0] in {"pushlink", "proof"}:
            for name, value in list(vars(module).items()):
                if value is original:
                    setattr(module, name, other)


def without(prepared: Any, *columns: str) -> None:
    """Take the conditions away from a prepared statement that speak of these columns of the table."""
    build = prepared._build

    def built(rows: Any) -> Any:
        statement = build(rows)
        kept = [one for one in statement._where_criteria if not _speaks_of(one, columns)]
        statement._where_criteria = tuple(kept)
        return statement

    prepared._build = built
    prepared._statements.clear()


def _speaks_of(condition: Any, columns: Sequence[str]) -> bool:
    return any(isinstance(one, sa.Column) and one.name in columns for one in visitors.iterate(condition))


def change_gates(name: str, change: Callable[[Any], Any]) -> None:
    """Change each gate of a table, or take it out by answering `None`."""
    table = getattr(gates, name)
    swap(table, tuple(gate for gate in map(change, table) if gate is not None))
