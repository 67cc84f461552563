"""The general worker on the command line: who switches it, and what workers take meanwhile."""

from __future__ import annotations

import pytest

from surfaces.conftest import Shop

OFF = ("deployment", "general-worker", "off", "--reason", "the host dispatches by itself")
ON = ("deployment", "general-worker", "on", "--reason", "workers again")


@pytest.mark.rule("DL-03")
def test_with_the_general_worker_off_a_record_is_pushed_by_hand(local_shop: Shop) -> None:
    """A worker leaves configured work alone, `push` sends it, and everybody is told who switched what."""
    shop = local_shop
    shop.note(1)
    shop.note(2)
    assert shop.json(*OFF) == {"is_changed": True}
    assert shop.json(*OFF) == {"is_changed": False}
    assert shop.json("save", "Note", 1, "--user", "ann")
    assert shop.json("save", "Note", 2, "--user", "ann")
    shop.drain()
    assert shop.json("links")["links"] == []
    assert "general worker is off" in shop.run("deployment", "show").out
    assert "deployment general-worker on" in shop.run("doctor").out
    assert "general worker is off" in shop.run("explain", "Note", 1).out
    assert shop.run("push", "Note", 1).code == 0
    assert [link["record_id"] for link in shop.json("links")["links"]] == ["1"]
    assert "is on." in shop.run(*ON).out
    shop.drain()
    assert {link["record_id"] for link in shop.json("links")["links"]} == {"1", "2"}


def test_an_administrator_switches_the_general_worker(local_shop: Shop) -> None:
    """As everything that is about a whole deployment; a reason is needed."""
    shop = local_shop
    assert shop.run("deployment", "general-worker", "off").code == 2
    root, olga = shop.home / "root.token", shop.home / "olga.token"
    root.write_text(shop.json("principal", "add", "root", "--role", "admin")["token"])
    added = shop.json("principal", "add", "olga", "--role", "operator", "--token-file", root)
    olga.write_text(added["token"])
    assert shop.json(*OFF, "--token-file", olga, code=1)["error"]["code"] == "not_permitted"
    assert shop.json(*OFF, "--token-file", root) == {"is_changed": True}
