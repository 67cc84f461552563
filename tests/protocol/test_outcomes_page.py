from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from protocol.examples import action, answer, failure, profile
from protocol.test_docs import spans
from pushlink.packs.model import Action
from pushlink.packs.reference import MEANINGS
from pushlink.protocol import contracts
from pushlink.protocol.evidence import StoredReply, WireError
from pushlink.protocol.lookup_verdicts import interpret_lookup
from pushlink.protocol.lookups import Shown
from pushlink.protocol.outcome import History, interpret
from pushlink.protocol.replies import ROWS, Disposition, Effect, Meaning
from pushlink.protocol.states import Operation

PAGE = Path(__file__).parents[2] / "docs" / "outcomes.md"


def rows(heading: str) -> list[list[list[str]]]:
    """The tables below one heading, each a list of rows of cells."""
    [text] = re.findall(rf"^## {heading}$(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [[[cell.strip() for cell in line.strip("|").split("|")] for line in b.splitlines()[2:]] for b in blocks]


def words() -> tuple[dict[str, str], dict[str, str]]:
    effects, dispositions = rows("The words")
    return ({word.strip("`"): says for word, says in effects}, {word.strip("`"): says for word, says in dispositions})


def test_the_page_has_a_word_for_every_effect_and_for_everything_that_follows() -> None:
    effects, dispositions = words()
    assert list(effects) == [effect.value for effect in Effect]
    assert list(dispositions) == [disposition.value for disposition in Disposition]


@pytest.mark.rule("PO-07")
def test_the_page_has_the_whole_table_in_plain_words() -> None:
    """Row by row and in order, for a create and for an update."""
    effects, dispositions = words()

    def said(meaning: Meaning) -> str:
        return f"{effects[meaning.effect.value]}; {dispositions[meaning.disposition.value]}"

    [table] = rows("With an answer")
    assert [tuple(cells) for cells in table] == [
        (spans(row.statuses), row.name, said(row.create), said(row.update)) for row in ROWS
    ]


def test_the_page_explains_every_fact_of_the_evidence() -> None:
    """What any verdict may carry, and nothing that none does."""
    [table] = rows("How to read evidence")
    named = {cells[0].strip("`") for cells in table}
    made = action(
        create={"conflict": [{"when": [{"status": [409]}], "existing_id": [{"from": "$response.body#/id"}]}]},
        update={"merged": {"successor": [{"from": "$response.body#/into"}]}},
        errors=[{"when": [{"status": [400]}], "effect": "not_applied", "disposition": "terminal", "because": "so"}],
    )
    replies: list[StoredReply] = [answer(status, '{"id": 1, "into": 2}') for status in (200, 201, 400, 409)]
    replies += [answer(201, "{}"), failure(WireError.CONNECT)]
    found = {
        name
        for operation, reply in itertools.product(Operation, replies)
        for name in interpret(operation, made, profile(), reply, History(canonical_id="1")).evidence
    }
    looked_up = interpret_lookup(made, profile(), "async", answer(200, "{}"), send_ordinal=1).evidence
    assert named == found | looked_up.keys() | {"row", "candidates"}
    [says] = [cells[1] for cells in table if cells[0] == "`shown`"]
    assert set(re.findall("`(\\w+)`", says)) == {shown.value for shown in Shown}


def test_the_keys_that_the_page_names_are_keys_of_a_pack() -> None:
    [table] = rows("What a pack may say")
    owners = {
        "": Action,
        "success": contracts.Success,
        "create": contracts.CreateContract,
        "response": contracts.Response,
        "update": contracts.UpdateContract,
        "rate_limit": contracts.RateLimit,
    }
    for cells in table:
        owner, _, key = cells[0].strip("`").rpartition(".")
        assert key in MEANINGS[owners[owner]]
