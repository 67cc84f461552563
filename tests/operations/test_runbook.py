"""docs/operations.md is complete, and its table of verbs is the one that decides."""

from __future__ import annotations

import re
from pathlib import Path

from pushlink.operations.reasons import PARKING
from pushlink.protocol.attention import KINDS
from pushlink.protocol.states import Hold, LinkStatus
from pushlink.protocol.verbs import VERBS, Rule, Verb

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def places_of(rule: Rule) -> str:
    """Where a verb may be done, as the page writes it."""
    said = []
    for place in rule.arrows:
        name = f"`{place.value}`" if isinstance(place, LinkStatus) else f"`{place[0].value}/{place[1].value}`"
        holds = rule.holds.get(place)
        only = f" under `{next(iter(holds)).value}`" if holds is not None and len(holds) == 1 else ""
        said.append(name + (only or (" held" if holds is not None else "")))
    return ("unknown lane: " if rule.needs_unknown_lane else "") + ", ".join(said)


def table() -> str:
    rows = [
        f"| `{verb.value}` | {rule.target.value} | {places_of(rule)} | {rule.says} |" for verb, rule in VERBS.items()
    ]
    return "\n".join(rows) + "\n"


def test_the_page_has_the_table_of_verbs() -> None:
    """Verb, target, states and what it does, in the order of the code."""
    assert table() in PAGE.read_text(encoding="utf-8")


def test_the_page_has_the_kinds_of_waiting() -> None:
    """Each with what it means and what is safe to type first."""
    rows = [
        f"| `{kind.value}` | {known.says} | {' or '.join(f'`{name}`' for name in known.first) or '`explain`'} |"
        for kind, known in KINDS.items()
    ]
    assert "\n".join(rows) + "\n" in PAGE.read_text(encoding="utf-8")


def test_every_reason_that_may_park_a_row_has_its_section() -> None:
    """And every section's code is one that a row can have."""
    headings = re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    codes = {code for heading in headings for code in re.findall(r"`([a-z_]+)`", heading)}
    assert codes == {code.value for code in PARKING} | {hold.value for hold in Hold}


def test_every_decision_is_typed_somewhere_on_the_page() -> None:
    """Each as it is typed."""
    text = PAGE.read_text(encoding="utf-8")
    for verb in Verb:
        name, _, how = verb.value.partition(" ")
        assert re.search(rf"\$ pushlink {name} \w+.*{f'--{how}' if how else ''}", text), verb
