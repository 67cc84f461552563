"""The adoption steps of docs/migration.md are run as they stand, and its tables are the code's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from migration.test_runbook import at_home, commands, counts, section
from pushlink.migration.adopt_rollback import Stays
from pushlink.protocol.adoption import Because
from surfaces import adoptions
from surfaces.conftest import Shop

__all__ = ["at_home"]

REASON = ("--reason", "ticket 9")


def type_all(shop: Shop, title: str, *, code: int = 0, **names: str) -> list[str]:
    """Type the commands of a section; answers with what each wrote."""
    import shlex

    outputs = []
    for line in commands(title):
        words = [names.get(word, word) for word in shlex.split(line, comments=True)]
        answer = shop.run(*words[1:])
        assert answer.code == code, (line, answer)
        outputs.append(answer.out)
    return outputs


@pytest.mark.rule("MG-06", "MG-05", "MG-01", "MG-04")
def test_the_adoption_is_followed_from_decision_to_rollback(at_home: Shop) -> None:
    """Three notes of old are adopted, one is refused; a saved one is updated; the others are taken back."""
    shop = at_home
    adoptions.widen(shop)
    ids = {number: adoptions.legacy(shop, number) for number in (41, 42, 43)}
    adoptions.legacy(shop, 44, source="nobody")
    before = len(shop.remote.log)
    slot = adoptions.slot(shop)

    type_all(shop, "Adoption 1")
    [said] = type_all(shop, "Adoption 3", code=1, SLOT=slot)
    assert "44: action_unmapped" in said
    done = json.loads(type_all(shop, "Adoption 4")[0])["adoption"]
    assert (done["adopted"], done["refused"]) == (3, {})
    rows = [json.loads(line) for line in (shop.home / "rows.jsonl").read_text().splitlines()]
    assert sorted((row["record_id"], row["result"]) for row in rows) == [(str(n), "adopted") for n in (41, 42, 43)]
    operation = done["operation_id"]
    assert counts(shop, "Adoption 5", operation) == [3, 3, 0]
    assert len(shop.remote.log) == before

    readback = type_all(shop, "Adoption 5")
    assert json.loads(readback[0])["adoption"]["already_adopted"] == 3
    [sent] = [one.asked for one in shop.remote.log[before:]]
    assert (sent.method, sent.target.rpartition("/")[2]) == ("PATCH", ids[42])
    assert counts(shop, "Adoption 5", operation) == [3, 3, 0]
    assert shop.remote.creates == 4  # those of the older integration

    back = json.loads(type_all(shop, "Adoption 6", code=1, OPERATION=operation)[0])
    assert back["adoption_rollback"]["rolled_back"] == 2
    assert [(row["record_id"], row["because"]) for row in back["refused_rows"]] == [("42", "record_saved")]
    assert shop.json("verify")["is_whole"] is True


def test_the_page_has_every_reason_in_the_order_of_the_code() -> None:
    """And every word for a link that stays."""
    rows = [line.split(" | ")[0].strip("| `") for line in section("Adoption: what").splitlines() if line[:3] == "| `"]
    assert [row for row in rows if not row.startswith("--")] == [one.value for one in Because]
    assert all(f"`{one.value}`" in section("Adoption 6") for one in Stays)


@pytest.mark.rule("MG-06")
def test_refusals_have_the_exit_codes_of_the_page(local_shop: Shop) -> None:
    """2 for what is typed wrong or cannot be used, 1 for rows that were refused, 0 when there is nothing to say."""
    shop = local_shop
    adoptions.widen(shop)
    adoptions.legacy(shop, 1, "r1")
    adoptions.legacy(shop, 2, "r2")
    words = ("adopt", "plan", "Note", "--action", adoptions.slot(shop), "-o", shop.home / "x.jsonl")
    assert shop.json(*words, code=2)["error"]["message"].startswith("The action's mirror")
    assert shop.json(*words, "--fields", "remote_id", code=2)["error"]["next"].startswith("write ID:MARK")
    assert adoptions.planned(shop)["adoption_plan"]["adoptable"] == 2
    assert "there already" in adoptions.planned(shop, code=2)["error"]["message"]
    manifest = shop.home / "adopt.jsonl"
    spoiled = shop.home / "spoiled.jsonl"
    spoiled.write_text(manifest.read_text().replace('"remote_id":"r1"', '"remote_id":"r9"'))
    assert "digest" in shop.json("adopt", "apply", spoiled, *REASON, code=2)["error"]["message"]
    assert shop.json("adopt", "apply", shop.home / "none", *REASON, code=2)["error"]["code"] == "caller_mistake"
    shop.sql("UPDATE note SET remote_id = 'r7' WHERE id = 2")
    document = shop.json("adopt", "apply", manifest, *REASON, code=1)
    assert document["adoption"]["refused"] == {"record_changed": 1}
    assert document["refused_rows"][0]["record_id"] == "2"
    said = shop.run("adopt", "apply", manifest, *REASON)
    assert "0 adopted, 1 adopted before." in said.out
    assert "make a new plan" in said.out
    assert adoptions.planned(shop, "again.jsonl")["adoption_plan"]["refused"] == {"already_linked": 1}
    assert shop.json("adopt", "rollback", "nothing", *REASON, code=2)["error"]["code"] == "record_unknown"


@pytest.mark.rule("SY-03", "D-08")
def test_an_adoption_needs_an_operator_and_a_rollback_the_consent_that_the_settings_ask_for(local_shop: Shop) -> None:
    """No token, and a viewer's, are refused; a rollback frees slots, so a second principal agrees."""
    shop = local_shop
    adoptions.widen(shop)
    adoptions.legacy(shop, 1, "r1")
    plan = adoptions.planned(shop)["adoption_plan"]
    manifest = shop.home / "adopt.jsonl"
    tokens: dict[str, str] = {"ada": shop.json("principal", "add", "ada", "--role", "admin", "--reason", "r")["token"]}
    shop.variables["PUSHLINK_TOKEN"] = tokens["ada"]
    for name, role in (("vera", "viewer"), ("olga", "operator"), ("peter", "approver")):
        tokens[name] = shop.json("principal", "add", name, "--role", role, "--reason", "r")["token"]
        (shop.home / name).write_text(tokens[name])
    for token in ("", tokens["vera"]):
        shop.variables["PUSHLINK_TOKEN"] = token
        assert shop.run("adopt", "apply", manifest, *REASON).code == 1
        assert shop.run("adopt", "rollback", plan["operation_id"], *REASON).code == 1
    shop.variables["PUSHLINK_TOKEN"] = tokens["olga"]
    assert shop.json("adopt", "apply", manifest, *REASON)["adoption"]["adopted"] == 1
    shop.config.write_text(shop.config.read_text() + "\n[operators]\nsecond_principal = true\n")

    def back(*more: Any, code: int) -> Any:
        return shop.json("adopt", "rollback", plan["operation_id"], *REASON, *more, code=code)

    assert back(code=1)["error"]["evidence"] == {"needs": "approver"}
    assert back("--approver-token-file", shop.home / "olga", code=1)["error"]["code"] == "not_permitted"
    done = back("--approver-token-file", shop.home / "peter", code=0)
    assert done["adoption_rollback"]["rolled_back"] == 1


@pytest.mark.rule("MG-06")
def test_a_plan_may_ask_the_remote_from_the_command_line(local_shop: Shop) -> None:
    """Through the ordinary transport, with the credential of the profile; nothing but GETs."""
    shop = local_shop
    adoptions.widen(shop)
    adoptions.legacy(shop, 1)
    adoptions.legacy(shop, 2, "r-never")
    before = len(shop.remote.log)
    document = adoptions.planned(shop, "adopt.jsonl", "--verify-remote", "--rate", "500", code=1)
    assert document["adoption_plan"]["refused"] == {"remote_missing": 1}
    assert {one.asked.method for one in shop.remote.log[before:]} == {"GET"}


@pytest.mark.rule("SY-01")
def test_a_table_of_pushlink_is_no_source_of_an_adoption(local_shop: Shop) -> None:
    """Settings that declare one are refused before anything is read."""
    shop = local_shop
    shop.config.write_text(
        shop.config.read_text()
        + '\n[objects.Link]\ntable = "pushlink_remote_link"\nkey = [{column = "id", type = "text"}]\n'
    )
    words = ("adopt", "plan", "Link", "--action", "a", "--fields", "remote_id:names", "-o", shop.home / "x")
    assert shop.json(*words, code=3)["error"]["code"] == "table_protected"
