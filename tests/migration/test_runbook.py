"""docs/migration.md is true: its commands are run as they stand there, in their order, and its table is the code's."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from pushlink.protocol.receipts import InTheWay
from pushlink.store.dialect import create_engine
from surfaces import mappings
from surfaces.conftest import Shop

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "migration.md").read_text(encoding="utf-8")
NOTES = (41, 42, 43)


@pytest.fixture
def at_home(shop: Shop) -> Iterator[Shop]:
    """In the deployment's directory, as somebody who reads the page is."""
    before = Path.cwd()
    os.chdir(shop.home)
    yield shop
    os.chdir(before)


def section(title: str) -> str:
    [found] = [part for part in PAGE.split("\n## ") if part.startswith(title)]
    return found


def commands(title: str) -> list[str]:
    found = re.findall(r"```console\n(.*?)```", section(title), re.DOTALL)
    return [line.removeprefix("$ ") for block in found for line in block.splitlines()]


def type_all(shop: Shop, title: str) -> list[str]:
    """Type the commands of a section; answers with what each wrote."""
    outputs = []
    for line in commands(title):
        words = shlex.split(line, comments=True)
        assert words[0] == "pushlink"
        answer = shop.run(*words[1:])
        assert answer.code == 0, (line, answer)
        outputs.append(answer.out)
    return outputs


def counts(shop: Shop, title: str, operation: str) -> list[int]:
    """What the page's statements answer."""
    block = "".join(re.findall(r"```sql\n(.*?)```", section(title), re.DOTALL))
    assert block
    engine = create_engine(shop.database_url)
    with engine.connect() as conn:
        found = [
            int(conn.execute(sa.text(statement), {"operation": operation}).scalar_one())
            for statement in block.split(";")
            if statement.strip()
        ]
    engine.dispose()
    return found


@pytest.mark.rule("RV-14", "RV-12", "RV-10")
def test_the_runbook_is_followed_from_decision_to_rollback(at_home: Shop) -> None:
    """Three links refuse, follow the mapping, send an update each, and go back; the remote sees no other request."""
    shop = at_home
    for number in NOTES:
        shop.note(number)
        assert shop.run("save", "Note", number, "--user", "ann").code == 0
    shop.drain()
    old_pack = shop.pack.read_text()
    line = next(line for line in old_pack.splitlines() if "source: title" in line)
    shop.pack.write_text(old_pack.replace(line, line.replace("target: /title", "target: /headline")))
    creates = len(shop.remote.log)

    type_all(shop, "1.")
    [listed] = type_all(shop, "2.")
    mappings.files(shop, [row["link_key"] for row in json.loads(listed)["links"]])
    type_all(shop, "4.")
    assert shop.run("save", "Note", 42, "--user", "ann").code == 1
    [rehearsed] = type_all(shop, "5.")
    assert json.loads(rehearsed)["mapping"]["verdict"] == "applicable"
    assert len(json.loads(rehearsed)["receipts"]) == 3
    done = json.loads(type_all(shop, "6.")[0])["mapping"]
    assert (done["verdict"], done["members"], done["current"]) == ("applied", 3, 3)
    assert counts(shop, "7.", done["operation_id"]) == [3, 3]
    assert counts(shop, "8.", done["operation_id"]) == [0]
    assert len(shop.remote.log) == creates
    shop.sql("UPDATE note SET title = 'changed' WHERE id = 42")
    readback = type_all(shop, "7.")
    assert json.loads(readback[0])["mapping"]["verdict"] == "already_applied"
    sent = [one.asked for one in shop.remote.log[creates:]]
    assert [one.method for one in sent] == ["PATCH"] * 3
    assert sorted(one.json()["headline"] for one in sent) == ["a title", "a title", "changed"]
    assert counts(shop, "8.", done["operation_id"]) == [0]

    type_all(shop, "Rollback")
    assert shop.run("save", "Note", 43, "--user", "ann").code == 1
    shop.pack.write_text(old_pack)
    assert shop.run("pack", "apply", shop.pack).code == 0
    shop.sql("UPDATE note SET title = 'back' WHERE id = 43")
    assert shop.run("save", "Note", 43, "--user", "ann").code == 0
    shop.drain()
    [last] = [one.asked for one in shop.remote.log[creates + 3 :]]
    assert (last.method, last.json()["title"]) == ("PATCH", "back")
    assert shop.remote.creates == 3
    assert shop.json("verify")["is_whole"] is True


def test_the_page_has_every_reason_that_may_be_in_the_way() -> None:
    """In the order of the code."""
    rows = [line.split(" | ")[0].strip("| `") for line in section("5.").splitlines() if line.startswith("| `")]
    assert rows == [one.value for one in InTheWay]


# ------------------------------------------------------------------------------------------------ the commands


@pytest.mark.rule("RV-02", "RV-05")
def test_refusals_have_the_exit_codes_of_the_page(local_shop: Shop) -> None:
    """2 for a document that cannot be used, 1 for links that are in the way; nothing is written in either case."""
    shop = local_shop
    keys = mappings.drifted(shop, 1, 2)
    mappings.made(shop, keys)
    manifest = shop.home / "move.json"
    spoiled = shop.home / "spoiled.json"
    spoiled.write_text(manifest.read_text().replace("renamed", "Renamed"))
    for verb in ("validate", "apply"):
        error = shop.json("mapping", verb, spoiled, code=2)["error"]
        assert error["evidence"]["findings"] == ["the digest is not that of the manifest"]
        assert shop.json("mapping", verb, shop.home / "none.json", code=2)["error"]["code"] == "caller_mistake"
    assert shop.json("mapping", "rollback-manifest", spoiled, "-o", shop.home / "x.json", code=2)["error"]
    link = shop.json("links", "--object", "Note", "--id", 1)["links"][0]
    shop.json("suspend", link["id"], "--row-version", link["row_version"], "--reason", "looked at it")
    error = shop.json("mapping", "apply", manifest, code=1)["error"]
    assert error["evidence"]["kinds"] == {"link_unusable": 1}
    said = shop.run("mapping", "apply", manifest)
    assert said.code == 1
    assert f"{link['link_key']}: link_unusable" in said.err


def test_a_manifest_is_never_written_over(local_shop: Shop) -> None:
    """Another file is asked for; and an approval that says nothing makes none."""
    shop = local_shop
    keys = mappings.drifted(shop, 1)
    mappings.made(shop, keys)
    before = (shop.home / "move.json").read_bytes()
    assert "is there already" in mappings.made(shop, keys, code=2)["error"]["message"]
    assert (shop.home / "move.json").read_bytes() == before
    links, approval = mappings.files(shop, keys)
    approval.write_text(" \n")
    words: list[Any] = ["--links", links, "--approval", approval, *mappings.WHO, "--reason", "r"]
    assert shop.json("mapping", "manifest", *words, "-o", shop.home / "b.json", code=2)["error"]
    assert not (shop.home / "b.json").exists()


def test_people_read_sentences(local_shop: Shop) -> None:
    """What happened, to how many links, and what to type next."""
    shop = local_shop
    keys = mappings.drifted(shop, 1, 2)
    mappings.made(shop, keys)
    manifest = shop.home / "move.json"
    assert "Nothing is in the way" in shop.run("mapping", "validate", manifest).out
    assert "is applied." in shop.run("mapping", "apply", manifest).out
    assert "was applied before, exactly so." in shop.run("mapping", "apply", manifest).out
    back = shop.run("mapping", "rollback-manifest", manifest, "-o", shop.home / "back.json")
    assert "over 2 links" in back.out
    assert "not the catalogue's of now" in shop.run("mapping", "apply", shop.home / "back.json").out
    assert "moved on by a later operation" in shop.run("mapping", "validate", manifest).out


@pytest.mark.rule("SY-03")
def test_a_manifest_needs_an_operator_of_its_tenant(local_shop: Shop) -> None:
    """Once principals are defined: no token, and a viewer's, are refused, and nothing is written."""
    shop = local_shop
    mappings.made(shop, mappings.drifted(shop, 1))
    manifest = shop.home / "move.json"
    admin = shop.json("principal", "add", "ada", "--role", "admin", "--reason", "r")["token"]
    shop.variables["PUSHLINK_TOKEN"] = admin
    viewer = shop.json("principal", "add", "vera", "--role", "viewer", "--reason", "r")["token"]
    for token in (viewer, None):
        shop.variables["PUSHLINK_TOKEN"] = token or ""
        for verb in ("validate", "apply"):
            assert shop.run("mapping", verb, manifest).code == 1
    shop.variables["PUSHLINK_TOKEN"] = admin
    assert shop.json("mapping", "apply", manifest)["mapping"]["verdict"] == "applied"
