"""Changes of a pack document by which cases break a rule, or come near it; the pack is the one of `samples.py`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
Change = Callable[[Document], None]

#: Where the sample's action stands.
A = "flows[0].actions[0]"
PREFETCH = {"path": "/token", "capture": "X-Token", "expired": [{"status": [403]}]}
FRESH_TAG = {"kind": "etag", "source": "fresh_get"}
PLACE = {"from": "$response.body#/id"}


@dataclass(frozen=True)
class Case:
    """A change that breaks a rule at a path, and a near one that does not."""

    rule: str
    bad: Change
    path: str
    good: Change | None = None


def action(document: Document) -> Document:
    return document["flows"][0]["actions"][0]


def profile(document: Document) -> Document:
    return document["profiles"]["main"]


def put(*steps: str | int, value: object) -> Change:
    """A change that sets one value below the action, or below `profiles` and `destinations`."""

    def change(document: Document) -> None:
        target: Any = document if steps[0] in {"profiles", "destinations"} else action(document)
        for step in steps[:-1]:
            target = target.setdefault(step, {}) if isinstance(target, dict) else target[step]
        target[steps[-1]] = value

    return change


def in_profile(key: str, value: object) -> Change:
    return put("profiles", "main", key, value=value)


def mappings(*entries: Document) -> Change:
    return put("mappings", value=list(entries))


def second_action(**changes: object) -> Change:
    def change(document: Document) -> None:
        other = copy.deepcopy(action(document)) | {"action": "push_other", "action_slot_id": "act-2"}
        document["flows"][0]["actions"].append(other | changes)

    return change


def both(*changes: Change) -> Change:
    def change(document: Document) -> None:
        for one in changes:
            one(document)

    return change


def create_with(**parts: object) -> Change:
    """A create with a stamp in its body, and more of what a create in doubt is settled by."""

    def change(document: Document) -> None:
        action(document)["create"] |= {"stamp": {}, "body": {"merge": {"/ref": "{stamp}"}}} | parts

    return change


def find_by_stamp(**changes: object) -> Change:
    """A look-up by the stamp that lint has nothing against."""
    sound = {"path": "/things", "query": {"ref": "{stamp}"}, "items": "/records", "match": "/ref", "id": [PLACE]}
    return create_with(lookup=sound | changes)
