"""Slots, destinations and profiles that do not fit together."""

from __future__ import annotations

from packs.changes import A, Case, Change, Document, put, second_action


def second_destination(**changes: object) -> Change:
    def change(document: Document) -> None:
        other = {"destination_slot_id": "dest-2", "target_object": "others", "profile": "main"}
        document["destinations"].append(other | changes)
        second_action(destination=(other | changes)["destination_slot_id"])(document)

    return change


CASES = [
    Case(
        "duplicate-slot", second_action(action_slot_id="act-1"), "flows[0].actions[1].action_slot_id", second_action()
    ),
    Case(
        "duplicate-slot",
        second_destination(destination_slot_id="dest-1"),
        "destinations[1].destination_slot_id",
        second_destination(),
    ),
    Case("unknown-destination", put("destination", value="dest-9"), f"{A}.destination"),
    Case("unknown-profile", put("destinations", 0, "profile", value="mian"), "destinations[0].profile"),
    Case(
        "unused-profile",
        put("profiles", "spare", value={"base_url": "https://b.example.com", "auth": {"kind": "none"}}),
        "profiles.spare",
    ),
    Case(
        "unused-destination",
        lambda document: document["destinations"].append(
            {"destination_slot_id": "dest-2", "target_object": "others", "profile": "main"}
        ),
        "destinations[1]",
    ),
    Case(
        "same-place", second_destination(target_object="things"), "destinations[1].target_object", second_destination()
    ),
]
