"""Keys of a shop, and what the commands that keep its database answer."""

from __future__ import annotations

from typing import Any

from surfaces.conftest import Shop


def keyed(shop: Shop, *key_ids: str) -> None:
    """Settings with these keys, the last of which seals."""
    plain = shop.config.read_text().split("\n[at_rest]")[0]
    keys = "".join(f'{key_id} = "env:KEY_{key_id}"\n' for key_id in key_ids)
    shop.config.write_text(f'{plain}\n[at_rest]\nseal_with = "{key_ids[-1]}"\n[at_rest.keys]\n{keys}')
    for number, key_id in enumerate(("k1", "k2")):
        shop.variables[f"KEY_{key_id}"] = bytes([number] * 32).hex()


def documents(shop: Shop) -> dict[str, Any]:
    """Each command's document: everything is sealed, and nothing is old enough to go."""
    keyed(shop, "k1")
    old = ("--after-days", 1, "--reason", "r")
    return {
        "pushlink rekey": shop.json("rekey", "--reason", "r"),
        "pushlink erase": shop.json("erase", *old),
        "pushlink prune": shop.json("prune", *old),
    }
