"""A pack whose action gets another slot, over a shop, and the commands about slots as they are typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surfaces.conftest import Shop

WHO = ("--approved-by", "Olga Owner")


def action_slot(shop: Shop) -> str:
    """The action slot that the pack has now."""
    listed = shop.json("slot", "list")["slots"]
    in_use = {"active", "independent"}
    [slot] = [slot["slot_id"] for slot in listed if slot["kind"] == "action" and slot["status"] in in_use]
    return str(slot)


def renamed(shop: Shop, slot: str) -> str:
    """Apply the pack with another slot for its action; answers with the one that it had."""
    old = action_slot(shop)
    shop.pack.write_text(shop.pack.read_text().replace(old, slot))
    assert shop.run("pack", "apply", shop.pack).code == 0
    return old


def approval(shop: Shop) -> Path:
    """The text in which somebody said that the two are one."""
    path = shop.home / "approval.md"
    path.write_text("The new slot is the old one under another id. Olga Owner, ticket 72.\n")
    return path


def planned(shop: Shop, old: str, new: str, name: str = "rebind.json", **more: Any) -> Any:
    """A manifest from one slot to another, as typed."""
    words = ("--from", old, "--to", new, "--approval", approval(shop), *WHO, "--reason", "the slot got another id")
    return shop.json("slot", "rebind", "plan", *words, "-o", shop.home / name, **more)


def documents(shop: Shop) -> dict[str, Any]:
    """What each command answers."""
    old = renamed(shop, "another-action-slot")
    return {
        "pushlink slot list": shop.json("slot", "list"),
        "pushlink slot rebind plan": planned(shop, old, "another-action-slot"),
        "pushlink slot rebind apply": shop.json("slot", "rebind", "apply", shop.home / "rebind.json"),
        "pushlink retire --slot": shop.json(
            "retire", "--slot", "another-action-slot", "--dry-run", "--reason", "r", code=1
        ),
    }
