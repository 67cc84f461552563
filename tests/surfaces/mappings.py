"""Links under a pack whose mapping changes, over a shop, and the manifest commands as they are typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surfaces.conftest import Shop

WHO = ("--approved-by", "Olga Owner")


def remap(shop: Shop, target: str = "/headline") -> None:
    """Apply the pack with another target of its first mapping."""
    text = shop.pack.read_text()
    [line] = [line for line in text.splitlines() if "{source: title, " in line]
    shop.pack.write_text(text.replace(line, line.split("{")[0] + "{source: title, target: " + target + "}"))
    assert shop.run("pack", "apply", shop.pack).code == 0


def drifted(shop: Shop, *numbers: int) -> list[str]:
    """Notes with remote records, under a pack that maps otherwise now; their link keys."""
    for number in numbers:
        shop.note(number)
        assert shop.run("save", "Note", number, "--user", "ann").code == 0
    shop.drain()
    remap(shop)
    found = [shop.json("links", "--object", "Note", "--id", number)["links"][0] for number in numbers]
    return [link["link_key"] for link in found]


def files(shop: Shop, keys: list[str]) -> tuple[Path, Path]:
    """The list of links and the approval."""
    links, approval = shop.home / "keys.txt", shop.home / "approval.md"
    links.write_text("# as the owner listed them\n" + "\n".join(keys) + "\n")
    approval.write_text("The headline is the title by another name. Olga Owner, ticket 71.\n")
    return links, approval


def made(shop: Shop, keys: list[str], name: str = "move.json", **more: Any) -> Any:
    """A manifest over these links, as typed."""
    links, approval = files(shop, keys)
    words = ("--links", links, "--approval", approval, *WHO, "--reason", "the field was renamed")
    return shop.json("mapping", "manifest", *words, "-o", shop.home / name, **more)


def documents(shop: Shop) -> dict[str, Any]:
    """What each command answers."""
    manifest = shop.home / "move.json"
    return {
        "pushlink mapping manifest": made(shop, drifted(shop, 301, 302)),
        "pushlink mapping validate": shop.json("mapping", "validate", manifest),
        "pushlink mapping apply": shop.json("mapping", "apply", manifest),
        "pushlink mapping rollback-manifest": shop.json(
            "mapping", "rollback-manifest", manifest, "-o", shop.home / "back.json"
        ),
    }
