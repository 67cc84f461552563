"""The adoption commands as they are typed, over notes that an older integration has pushed."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

from surfaces.conftest import TOKEN, Shop

FIELDS = ("--fields", "remote_id:source", "--mark", "sync-1")
COLUMNS = ("remote_id", "source", "old_id", "old_source")


def widen(shop: Shop) -> None:
    """Give the notes the fields of older integrations."""
    for name in COLUMNS:
        shop.sql(f"ALTER TABLE note ADD COLUMN {name} TEXT")


def legacy(shop: Shop, number: int, remote_id: str | None = None, **more: str | None) -> str:
    """A note that was pushed by an older integration; answers with its remote id."""
    given = remote_id or remote_record(shop, number)
    values = {"remote_id": given, "source": "sync-1", "old_id": None, "old_source": None, **more}
    shop.note(number)
    for name, value in values.items():
        shop.sql(f"UPDATE note SET {name} = :value WHERE id = :number", value=value, number=number)
    return given


def remote_record(shop: Shop, number: int) -> str:
    """A record that stands at the remote already."""
    asked = Request(  # noqa: S310 - the remote of the test
        f"{shop.remote.base_url}/notes",
        data=json.dumps({"title": f"old {number}"}).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"},
        method="POST",
    )
    with urlopen(asked) as answer:  # noqa: S310 - the same
        return str(json.load(answer)["id"])


def slot(shop: Shop) -> str:
    """The id of the pack's one action slot."""
    line = next(line for line in shop.pack.read_text().splitlines() if "action_slot_id" in line)
    return line.split(":")[1].strip()


def planned(shop: Shop, name: str = "adopt.jsonl", *more: object, code: int = 0) -> Any:
    """A plan, as typed."""
    words = ("adopt", "plan", "Note", "--action", slot(shop), *FIELDS, "-o", shop.home / name, *more)
    return shop.json(*words, code=code)


def documents(shop: Shop) -> dict[str, Any]:
    """What each command answers."""
    widen(shop)
    legacy(shop, 401, "r401")
    legacy(shop, 402, "r402", source="unknown")
    plan = planned(shop, code=1)
    apply = shop.json("adopt", "apply", shop.home / "adopt.jsonl", "--reason", "r")
    shop.sql("UPDATE note SET source = NULL WHERE id IN (401, 402)")
    operation = plan["adoption_plan"]["operation_id"]
    return {
        "pushlink adopt plan": plan,
        "pushlink adopt apply": apply,
        "pushlink adopt rollback": shop.json("adopt", "rollback", operation, "--reason", "r"),
    }
