"""Records in states that wait for a person, made over a shop, and the decisions about them as they are typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pushlink.testing import verbs
from pushlink.testing.messages import creating, updating
from surfaces.conftest import Shop

WHY = ("--reason", "looked at the remote, ticket 17")


def attempt_of(shop: Shop, number: int) -> dict[str, Any]:
    """The newest attempt of a note."""
    found = shop.json("attempts", "--object", "Note", "--id", number)["attempts"]
    return dict(found[0])


def link_of(shop: Shop, number: int) -> dict[str, Any]:
    """The newest link of a note."""
    return dict(shop.json("links", "--object", "Note", "--id", number)["links"][0])


def decided(shop: Shop, verb: str, row: dict[str, Any], *words: object, code: int = 0) -> Any:
    """Type one decision about a row as it is now."""
    return shop.json(verb, row["id"], "--row-version", row["row_version"], *words, *WHY, code=code)


def saved(shop: Shop, number: int, title: str = "a title") -> None:
    """A note that was saved, and not sent."""
    shop.note(number, title)
    assert shop.run("save", "Note", number, "--user", "ann").code == 0


def changed(shop: Shop, number: int, title: str) -> None:
    """A note that was changed and saved again."""
    shop.sql("UPDATE note SET title = :title WHERE id = :id", title=title, id=number)
    shop.run("save", "Note", number, "--user", "ann")


def linked(shop: Shop, number: int) -> dict[str, Any]:
    """A note with its remote record."""
    saved(shop, number)
    shop.drain()
    return link_of(shop, number)


def doubtful(shop: Shop, number: int) -> dict[str, Any]:
    """A create that was applied, and whose answer never came."""
    shop.remote.next(verbs.store_then_close(), when=creating)
    saved(shop, number)
    shop.drain()
    return attempt_of(shop, number)


def failed(shop: Shop, number: int, answer: verbs.Verb | None = None) -> dict[str, Any]:
    """A create that the remote refused."""
    shop.remote.next(answer or verbs.answer(422), when=creating)
    saved(shop, number)
    shop.drain()
    return attempt_of(shop, number)


def refused_update(shop: Shop, number: int) -> dict[str, Any]:
    """An update whose values the remote refused."""
    linked(shop, number)
    shop.remote.next(verbs.answer(422), when=updating)
    changed(shop, number, "refused")
    shop.drain()
    return attempt_of(shop, number)


def held(shop: Shop, number: int, hold: str = "poison") -> dict[str, Any]:
    """A create that may not be claimed."""
    saved(shop, number)
    attempt = attempt_of(shop, number)
    shop.sql("UPDATE pushlink_push_attempt SET hold_code = :hold WHERE id = :id", hold=hold, id=attempt["id"])
    return attempt_of(shop, number)


def conflict(shop: Shop, number: int, owner: dict[str, Any]) -> dict[str, Any]:
    """A create whose remote id another link has."""
    saved(shop, number)
    attempt = attempt_of(shop, number)
    shop.sql(
        "UPDATE pushlink_push_attempt SET status = 'writeback_pending', hold_code = 'locator_conflict',"
        " reason_code = 'locator_conflict', remote_id = :remote_id, detail = :detail WHERE id = :id",
        remote_id=owner["remote_id"],
        detail=json.dumps({"remote_id": owner["remote_id"], "owner_link_key": owner["link_key"]}),
        id=attempt["id"],
    )
    return attempt_of(shop, number)


def blocked(shop: Shop, number: int) -> dict[str, Any]:
    """The create of before of a note whose place is free, under a pack that creates by another path."""
    decided(shop, "retire", linked(shop, number), "--release")
    shop.pack.write_text(shop.pack.read_text().replace("path: /notes\n", "path: /letters\n"))
    assert shop.json("pack", "apply", shop.pack)["applied"]["is_changed"]
    return attempt_of(shop, number)


def documents(shop: Shop) -> dict[str, Any]:
    """Every command of an operator, run once on a row that allows it, with its document."""
    found: dict[str, Any] = {}
    parked = doubtful(shop, 101)
    found["pushlink stuck"] = shop.json("stuck")
    found["pushlink reconcile"] = decided(shop, "reconcile", parked, "--adopt", "9101")
    parked = doubtful(shop, 102)
    table = shop.home / "decisions.csv"
    table.write_text(
        "attempt_id,row_version,verb,argument,reason\n" + f"{parked['id']},{parked['row_version']},adopt,9102,found\n"
    )
    found["pushlink reconcile --csv"] = shop.json("reconcile", "--csv", table)
    found["pushlink supersede"] = decided(shop, "supersede", failed(shop, 103), "--reserve")
    found["pushlink unhold"] = decided(shop, "unhold", held(shop, 104))
    found["pushlink abandon"] = decided(shop, "abandon", held(shop, 105))
    owner = linked(shop, 106)
    other = conflict(shop, 107, owner)
    found["pushlink dispose"] = decided(shop, "dispose", other, "--id", owner["remote_id"])
    saved(shop, 108)
    shop.sql("UPDATE pushlink_push_attempt SET dispatch_lane = 'x' WHERE id = :id", id=attempt_of(shop, 108)["id"])
    found["pushlink repair-lane"] = decided(shop, "repair-lane", attempt_of(shop, 108), "--lane", "configured")
    found["pushlink release-version"] = decided(shop, "release-version", refused_update(shop, 109))
    found["pushlink suspend"] = decided(shop, "suspend", owner)
    found["pushlink revalidate"] = decided(shop, "revalidate", link_of(shop, 106))
    found["pushlink relocate"] = decided(shop, "relocate", link_of(shop, 106), "--to", "9106")
    found["pushlink retire"] = decided(shop, "retire", link_of(shop, 106))
    found["pushlink release-slot"] = decided(shop, "release-slot", link_of(shop, 106))
    slot = shop.json("explain", "Note", 106)["actions"][0]["action_slot_id"]
    found["pushlink validate-create"] = decided(shop, "validate-create", blocked(shop, 110))
    seen = ("--catalog-revision", shop.json("slot", "list")["catalog_revision"])
    found["pushlink declare-independent"] = shop.json("declare-independent", slot, *seen, *WHY)
    found["pushlink export"] = shop.json("export", shop.home / "all.jsonl")
    found["pushlink verify"] = shop.json("verify")
    found["pushlink principal add"] = root = shop.json("principal", "add", "root", "--role", "admin")
    token = Path(shop.home / "token")
    token.write_text(root["token"])
    shop.json("principal", "add", "olga", "--role", "operator", "--token-file", token)
    found["pushlink principal revoke"] = shop.json("principal", "revoke", "olga", *WHY, "--token-file", token)
    found["pushlink principal list"] = shop.json("principal", "list")
    shop.variables["PUSHLINK_TOKEN"] = root["token"]  # whoever comes next decides as root
    return found
