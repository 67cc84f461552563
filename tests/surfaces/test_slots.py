"""The commands about slots, as they are typed and as the pages say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pushlink.protocol.rebind_receipts import InTheWay
from surfaces import decisions, slots
from surfaces.conftest import Shop

DOCS = Path(__file__).resolve().parents[2] / "docs"
NEW = "another-action-slot"


def commands(page: str, heading: str, block: int = 0) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    [section] = [part for part in text.split("\n## ") if part.startswith(heading)]
    found = re.findall(r"```console\n(.*?)```", section, re.DOTALL)[block]
    return [line.removeprefix("$ ") for line in found.splitlines()]


def type_all(shop: Shop, lines: list[str], **names: object) -> None:
    """Type the page's commands, with the words of now in place of the page's."""
    for line in lines:
        words = [str(names.get(word.replace(".", "_").replace("-", "_"), word)) for word in shlex.split(line)]
        answer = shop.run(*words[1:])
        assert answer.code == 0, (line, answer)


@pytest.mark.rule("MG-07", "SY-03")
def test_the_commands_of_the_page_move_a_slot(local_shop: Shop) -> None:
    """From a pack that lost its slot to a record that is updated under the new one."""
    shop = local_shop
    decisions.linked(shop, 1)
    old = slots.renamed(shop, NEW)
    names = {
        "act_1": old,
        "act_2": NEW,
        "approval_md": slots.approval(shop),
        "rebind_json": shop.home / "rebind.json",
    }
    type_all(shop, commands("migration.md", "Slots"), **names)
    decisions.changed(shop, 1, "another title")
    shop.drain()
    assert (
        next(row["status"] for row in shop.json("attempts", "--id", 1, "--object", "Note")["attempts"]) == "finalized"
    )
    assert len(shop.remote.records) == 1
    done = shop.json("slot", "rebind", "apply", shop.home / "rebind.json")
    assert done["rebind"]["verdict"] == "already_applied"


def test_the_page_has_every_reason_that_a_rebind_may_meet() -> None:
    """In the order of the code."""
    text = (DOCS / "migration.md").read_text(encoding="utf-8").split("## Slots")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [one.value for one in InTheWay]


def test_what_is_in_the_way_is_named_and_no_manifest_is_written(local_shop: Shop) -> None:
    """Exit code 1, each record with its reason; a file that is there is not written over."""
    shop = local_shop
    decisions.linked(shop, 1)
    shop.sql("UPDATE pushlink_push_attempt SET claim_token = 'x', lease_until = '2999-01-01 00:00:00+00:00'")
    old = slots.renamed(shop, NEW)
    error = slots.planned(shop, old, NEW, code=1)["error"]
    assert error["evidence"]["kinds"] == {"in_work": 1}
    assert error["evidence"]["conflicts"][0].startswith("1 (lk1_")
    assert not (shop.home / "rebind.json").exists()
    shop.sql("UPDATE pushlink_push_attempt SET claim_token = NULL, lease_until = NULL")
    slots.planned(shop, old, NEW)
    assert slots.planned(shop, old, NEW, code=2)["error"]["code"] == "caller_mistake"


@pytest.mark.rule("SY-03")
def test_a_rebind_and_a_retired_slot_need_an_operator(local_shop: Shop) -> None:
    """Without a token nothing is moved and nothing retired, once principals are defined."""
    shop = local_shop
    decisions.linked(shop, 1)
    old = slots.renamed(shop, NEW)
    slots.planned(shop, old, NEW)
    shop.json("principal", "add", "root", "--role", "admin")
    for words in (
        ("slot", "rebind", "apply", shop.home / "rebind.json"),
        ("retire", "--slot", old, "--links", 9, "--reason", "r"),
        ("declare-independent", NEW, "--catalog-revision", 2, "--reason", "r"),
    ):
        assert shop.json(*words, code=1)["error"]["code"] == "token_refused"
    assert decisions.link_of(shop, 1)["status"] == "finalized"


@pytest.mark.rule("D-29", "SY-03")
def test_the_commands_of_the_runbook_end_a_slot(local_shop: Shop) -> None:
    """A dry run, the run with the number that it named, and the successor creates."""
    shop = local_shop
    decisions.linked(shop, 1)
    old = slots.renamed(shop, NEW)
    count = shop.json("retire", "--slot", old, "--dry-run", "--reason", "r")["links"]
    type_all(shop, commands("operations.md", "`lineage_unresolved`"), SLOT=old, COUNT=count)
    listed = {slot["slot_id"]: slot["status"] for slot in shop.json("slot", "list")["slots"]}
    assert listed[old] == "retired"
    decisions.linked(shop, 2)


@pytest.mark.rule("D-29", "SY-03")
def test_the_commands_of_the_runbook_make_a_slot_independent(local_shop: Shop) -> None:
    """At the revision that was looked at."""
    shop = local_shop
    decisions.linked(shop, 1)
    slots.renamed(shop, NEW)
    seen = shop.json("slot", "list")["catalog_revision"]
    type_all(shop, commands("operations.md", "`lineage_unresolved`", 1), SLOT=NEW, N=seen)
    assert len(decisions.linked(shop, 2)) > 0


def test_retiring_names_one_link_or_one_slot(local_shop: Shop) -> None:
    """Both, neither, or a slot without the number of links: a mistake, and nothing happens."""
    shop = local_shop
    decisions.linked(shop, 1)
    slot = slots.action_slot(shop)
    for words in (
        ("retire",),
        ("retire", "LINK"),
        ("retire", "LINK", "--slot", slot),
        ("retire", "LINK", "--row-version", 1, "--dry-run"),
        ("retire", "--slot", slot),
    ):
        assert shop.json(*words, "--reason", "r", code=2)["error"]["code"] == "caller_mistake"
    assert shop.run("slot", "list").code == 0
