"""Associations with other records."""

from __future__ import annotations

from packs.changes import A, Case, Change, both, mappings, put, second_action


def refers(**changes: object) -> Change:
    """An association with another action of the pack that lint has nothing against, after `changes`."""
    association = {
        "name": "owner", "source": "owner_id", "source_object": "Thing", "action_slot_id": "act-2",
        "mode": "foreign_key", "target": "/owner",
    }  # fmt: skip
    return both(second_action(), put("associations", value=[association | changes]))


CALL = {"path": "/things/{remote_id}/owner/{owner}"}
IN_A_FORM = both(
    put("create", "body", "encoding", value="form"),
    mappings({"source": "name", "target": "/name", "clear": "omit"}),
)


def calls(**changes: object) -> Change:
    """The same, set by a call of its own."""
    return refers(mode="call_after", target=None, call=CALL | changes)


CASES = [
    *(
        Case(rule, bad, f"{A}.associations[0]{path}", good)
        for rule, bad, path, good in (
            ("association", refers(name="remote_id"), ".name", refers()),
            ("association", refers(action_slot_id="act-9"), ".action_slot_id", None),
            ("association", refers(source_object="Other"), ".source_object", None),
            ("association", refers(mode="call_after", target=None), ".mode", calls()),
            ("association", refers(value={"id": "{other}"}), ".value", refers(value={"id": "{owner:integer}"})),
            ("association", refers(mode="call_after", call=CALL), ".target", None),
            ("association", refers(target=None, mode="create_inline"), "", refers(mode="create_inline")),
            ("association", both(refers(mode="update_only"), put("update", value=None)), ".mode", None),
            ("association", calls(body={"x": "{other}"}), ".call.body", calls(body={"x": "{owner}"})),
            (
                "path",
                calls(path="/things/{remote_id}"),
                ".call.path",
                calls(path="/l", body=["{owner}", "{remote_id}"]),
            ),
            ("query", calls(query={"a": "x{b"}), ".call.query.a", calls(query={"a": "{owner}"})),
            ("header", calls(headers={"Host": "x"}), ".call.headers.Host", None),
            ("secret-literal", calls(headers={"X-Api-Key": "k"}), '.call.headers["X-Api-Key"]', None),
            ("success-empty", calls(success={"status": []}), ".call.success.status", None),
            ("overlapping-targets", refers(target="/name/id"), ".target", None),
            (
                "form-values",
                both(refers(), IN_A_FORM),
                ".clear",
                both(refers(clear="omit"), IN_A_FORM),
            ),
        )
    ),
    Case(
        "envelope",
        both(refers(target="/a/b"), put("create", "body", "envelope", value={"a": "taken"})),
        f"{A}.associations[0].target",
    ),
]
