from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import pytest

from pushlink.protocol import outcome
from pushlink.protocol.drift import MATRIX
from pushlink.protocol.gates import BEFORE_CREATE, BEFORE_UPDATE, Gate
from pushlink.protocol.recovery import CREATE_RULES, UPDATE_RULES, Rule
from pushlink.protocol.replies import ROWS, Meaning
from pushlink.protocol.states import CREATE, HOLDS, LINK, UPDATE
from pushlink.protocol.surfaces import FIELD_ROWS
from pushlink.protocol.values import CONVERSIONS

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"


def tables(heading: str) -> list[list[list[str]]]:
    """The tables below one heading of the page: rows of cells, without the header and without code marks."""
    section = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (text,) = [part for part in section if part.startswith(f"{heading}\n")]
    found: list[list[list[str]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        lines = [line.strip().strip("|").split("|") for line in block.splitlines()]
        found.append([[cell.strip().replace("`", "") for cell in cells] for cells in lines[2:]])
    return found


def arrows(table: Mapping[tuple[StrEnum | None, StrEnum], StrEnum]) -> list[tuple[str, str, str]]:
    return [
        (status.value if status else "none", event.value, target.value) for (status, event), target in table.items()
    ]


@pytest.mark.rule("AT-08", "LK-05", "D-03")
@pytest.mark.parametrize(
    ("heading", "table"),
    [("The link", LINK), ("The create attempt", CREATE), ("The update attempt", UPDATE)],
)
def test_the_page_and_the_code_have_the_same_arrows_in_the_same_order(
    heading: str, table: Mapping[tuple[StrEnum | None, StrEnum], StrEnum]
) -> None:
    """Every arrow of the machine is on the page and every arrow on the page is in the machine."""
    (rows,) = tables(heading)
    assert [tuple(cells[:3]) for cells in rows] == arrows(table)
    assert all(cells[3] for cells in rows)


def test_the_page_lists_every_hold_and_where_it_may_stand() -> None:
    """Holds and their statuses, both ways."""
    (rows,) = tables("Holds")
    assert {cells[0]: set(cells[1].split(", ")) for cells in rows} == {
        hold.value: {status.value for status in statuses} for hold, statuses in HOLDS.items()
    }


@pytest.mark.parametrize(
    ("heading", "gates"), [("Gates before a create", BEFORE_CREATE), ("Gates before an update", BEFORE_UPDATE)]
)
def test_the_page_lists_the_gates_in_their_order(heading: str, gates: tuple[Gate, ...]) -> None:
    """Rule, code and whether the save is kept, in the order in which they are asked."""
    (rows,) = tables(heading)
    assert [tuple(cells[:3]) for cells in rows] == [
        (gate.rule, gate.code.value, "yes" if gate.records_wanted else "no") for gate in gates
    ]


def spans(statuses: frozenset[int]) -> str:
    """Statuses as the page writes them: numbers, and spans of neighbours."""
    ordered = sorted(statuses)
    parts: list[list[int]] = []
    for status in ordered:
        if parts and parts[-1][-1] == status - 1:
            parts[-1].append(status)
        else:
            parts.append([status])
    return " ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


@pytest.mark.rule("PO-07")
def test_the_page_has_the_table_of_answers() -> None:
    """Row by row: name, statuses, and what they mean for a create and for an update."""

    def said(meaning: Meaning) -> str:
        return f"{meaning.effect.value}, {meaning.disposition.value}"

    answers, *_ = tables("Answers")
    assert [tuple(cells) for cells in answers] == [
        (row.name, spans(row.statuses), said(row.create), said(row.update)) for row in ROWS
    ]


def test_the_page_says_which_event_follows_from_which_verdict() -> None:
    """The two tables from verdicts to events."""
    _, creates, updates = tables("Answers")
    for rows, table in ((creates, outcome._CREATE_EVENTS), (updates, outcome._UPDATE_EVENTS)):
        assert {tuple(cells) for cells in rows} == {
            (f"{effect.value}, {disposition.value}", event.value) for (effect, disposition), event in table.items()
        }


@pytest.mark.rule("DR-28")
def test_the_page_has_the_drift_matrix() -> None:
    """All rows in order, both verdicts, what goes on, what waits and what a profile may waive."""
    matrix, _ = tables("Drift")
    assert [tuple(cells) for cells in matrix] == [
        (
            row.rule,
            row.surface.value,
            row.link.value,
            row.create.value,
            "yes" if row.writes_back else "",
            "waits" if row.blocks_new_create else "",
            row.waiver or "",
        )
        for row in MATRIX
    ]


@pytest.mark.rule("DR-28")
def test_the_page_says_which_field_is_which_surface() -> None:
    """Every field matches one entry of the page, and every entry some field."""
    _, fields = tables("Drift")
    entries = [(pattern, cells[0]) for cells in fields for pattern in cells[1].split(", ")]
    for path, surface in FIELD_ROWS.items():
        names = [
            name
            for pattern, name in entries
            if fnmatch.fnmatchcase(path.replace("[]", "@"), pattern.replace("[]", "@"))
        ]
        assert names == [surface.value], path
    for pattern, _ in entries:
        assert any(fnmatch.fnmatchcase(path.replace("[]", "@"), pattern.replace("[]", "@")) for path in FIELD_ROWS), (
            pattern
        )


def test_the_page_lists_every_conversion() -> None:
    """In the order in which the contract declares them."""
    (rows,) = tables("Rendering")
    assert [cells[0] for cells in rows] == ["none", *CONVERSIONS]


#: How the page writes what a rule asks for.
WORDS = {
    "checkpoint_set": {None: "any", True: "set", False: "unset"},
    "same_timeline": {None: "any", True: "same", False: "older"},
    "live_replay_contract": {None: "any", True: "live", False: "none"},
    "in_doubt": {None: "any", True: "yes", False: "no"},
    "remote_id_known": {None: "any", True: "yes", False: "no"},
    "replay_authority": {None: "any", True: "yes", False: "no"},
}


def recovery(operation: str, rule: Rule[object]) -> tuple[str, ...]:  # type: ignore[type-var]
    asked = (words[getattr(rule, name)] for name, words in WORDS.items())
    return (operation, rule.status.value, rule.lane.value if rule.lane else "any", *asked, str(rule.event))


def test_the_page_has_the_recovery_tables() -> None:
    """Create and update rules in the order in which they are tried."""
    (rows,) = tables("Recovery")
    assert [tuple(cells) for cells in rows] == [
        *(recovery("create", rule) for rule in CREATE_RULES),  # type: ignore[arg-type]
        *(recovery("update", rule) for rule in UPDATE_RULES),  # type: ignore[arg-type]
    ]
