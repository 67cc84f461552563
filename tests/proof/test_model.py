"""The model that `make model` checks takes the arrows that the code has, and no others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from proof.model.runs import FAILS, HOLDS, REACHED
from pushlink.protocol.states import CREATE, LINK, UPDATE

HERE: Final = Path(__file__).parent / "model"
ARROW: Final = re.compile(
    r"\b(?P<inline>go|move)\((?:[\w\[\]]+, )?(?P<source>[A-Z_]+), (?P<event>[A-Z_]+), (?P<target>[A-Z_]+)\)"
)

#: Arrows that no model takes, and why it may do without.
BESIDE: Final[Mapping[str, frozenset[tuple[str, str, str]]]] = {
    "create": frozenset(
        {
            # A retired link ends its create's mirror: nothing of the remote is decided by it.
            ("WRITEBACK_COMMIT_PENDING", "LINK_RETIRED", "FINALIZED"),
            ("WRITEBACK_PENDING", "LINK_RETIRED", "FINALIZED"),
        }
    ),
    "update": frozenset(),
    "link": frozenset(
        {
            ("NONE", "FINALIZE", "FINALIZED"),  # a field of create.pml, not a status there
            ("RETIRED", "RELEASE_SLOT", "RETIRED"),  # allows a second record on purpose, with evidence
            ("FINALIZED", "RELOCATE", "FINALIZED"),  # the same link under another id: one lock, one row
            ("SUSPENDED_DRIFT", "RELOCATE", "FINALIZED"),
        }
    ),
}


def taken(file: str, inline: str = "go") -> set[tuple[str, str, str]]:
    """The arrows that one model takes; the definitions of the inlines have lower-case parameters and are not found."""
    text = (HERE / file).read_text(encoding="utf-8")
    return {(m["source"], m["event"], m["target"]) for m in ARROW.finditer(text) if m["inline"] == inline}


def table(arrows: Mapping[tuple[object, object], object]) -> set[tuple[str, str, str]]:
    """The arrows of one machine of the code, by the names of their members."""
    return {
        (getattr(source, "name", "NONE"), getattr(event, "name", ""), getattr(target, "name", ""))
        for (source, event), target in arrows.items()
    }


@pytest.mark.parametrize(
    ("machine", "arrows", "found"),
    [
        ("create", CREATE, lambda: taken("create.pml")),
        ("update", UPDATE, lambda: taken("update.pml")),
        ("link", LINK, lambda: taken("update.pml", "move")),
    ],
)
def test_model_and_code_have_the_same_arrows(machine, arrows, found):
    assert found() | BESIDE[machine] == table(arrows)
    assert not found() & BESIDE[machine], "an arrow that the model takes needs no excuse"


@pytest.mark.parametrize("file", ["lanes.pml"])
def test_a_model_of_rows_takes_only_arrows_of_creates(file):
    assert taken(file) <= table(CREATE)


@pytest.mark.parametrize("file", ["create.pml", "update.pml", "lanes.pml", "manifest.pml"])
def test_every_rule_of_a_model_is_described_switchable_and_switched_off_by_a_run(file):
    text = (HERE / file).read_text(encoding="utf-8")
    switches = set(re.findall(r"#ifn?def NO_([A-Z]+)", text))
    described = set(re.findall(r"^ \*   ([A-Z]+) +\S", text.partition("*/")[0], re.MULTILINE))
    run = {run.says for run in FAILS if run.file == file}
    assert switches == described == run
    assert all(f"NO_{run.says}" in run.flags for run in FAILS)


def test_every_model_is_run_with_all_rules_and_shown_not_to_be_empty():
    files = {path.name for path in HERE.glob("*.pml")}
    assert {run.file for run in HOLDS} == {run.file for run in FAILS} == {run.file for run in REACHED} == files
    assert not [run for run in (*HOLDS, *REACHED) if any(flag.startswith("NO_") for flag in run.flags)]
