"""What associations put into requests, what a vector keeps, and what a circle of waiting records is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.examples import action, profile, values
from pushlink.errors import Code
from pushlink.protocol.association_calls import call_contract, render_call
from pushlink.protocol.associations import (
    NO_VECTOR,
    STAND_IN,
    Reference,
    association_fields,
    carried_by,
    due_call,
    find_cycle,
    is_only_updated,
    read_called,
    read_vector,
    remote_ids,
    vector_document,
    write_called,
    write_vector,
)
from pushlink.protocol.body import complete_json
from pushlink.protocol.contracts import Body
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.render import render_create, render_fetch, render_update
from pushlink.protocol.snapshots import FrozenRequest, LinkKey


def association(mode: str, name: str = "parent", **more: Any) -> dict[str, Any]:
    """One association of the action in `examples.py`."""
    own = {} if mode == "call_after" or "value" in more else {"target": f"/{name}"}
    document = {"name": name, "source": f"{name}_id", "source_object": "Thing", "action_slot_id": "a", "mode": mode}
    return document | own | more


def reference(name: str = "parent", mode: str = "foreign_key", **more: Any) -> Reference:
    """One entry of a vector."""
    document = {"name": name, "mode": mode, "source_object": "Thing", "record_id": "7"}
    document |= {"action_slot_id": "a", "link_key": LinkKey("k7")}
    return Reference(**(document | more))


def body_of(request: FrozenRequest | RenderFailure) -> Any:
    assert isinstance(request, FrozenRequest), request
    return json.loads(request.body)


@pytest.mark.parametrize(
    ("mode", "in_create", "in_update"),
    [
        ("create_inline", True, False),
        ("foreign_key", True, True),
        ("update_only", False, True),
        ("call_after", False, False),
    ],
)
def test_each_mode_stands_in_its_requests_and_in_no_other(mode: str, in_create: bool, in_update: bool) -> None:
    contract = action(
        associations=[
            association(mode, **({"call": {"path": "/l/{remote_id}/{parent}"}} if mode == "call_after" else {}))
        ]
    )
    created = body_of(render_create(contract, profile(), values(name="n"), associated={"parent": "8"}))
    updated = body_of(render_update(contract, profile(), values(name="n"), "1", associated={"parent": "8"}))
    assert created == ({"name": "n", "parent": "8"} if in_create else {"name": "n"})
    assert updated == ({"name": "n", "parent": "8"} if in_update else {"name": "n"})


@pytest.mark.parametrize(
    ("declared", "remote_id", "expected"),
    [
        ({}, "8", {"parent": "8"}),
        ({}, None, {"parent": None}),
        ({"clear": "omit"}, None, {}),
        ({"value": "{parent:integer}", "target": "/parent"}, "9007199254740993", {"parent": 9007199254740993}),
        (
            {"value": [{"to": {"id": "{parent}"}, "type": 3}], "target": "/associations", "clear": "omit"},
            "8",
            {"associations": [{"to": {"id": "8"}, "type": 3}]},
        ),
    ],
)
def test_an_id_stands_in_its_shape_and_a_blank_is_said_or_left_out(
    declared: dict[str, Any], remote_id: str | None, expected: dict[str, Any]
) -> None:
    contract = action(associations=[association("foreign_key", **declared)])
    request = render_create(contract, profile(), values(name="n"), associated={"parent": remote_id})
    assert body_of(request) == {"name": "n", **expected}


def test_an_id_that_is_no_number_is_not_sent_as_one() -> None:
    contract = action(associations=[association("foreign_key", value="{parent:integer}", target="/parent")])
    failure = render_create(contract, profile(), values(name="n"), associated={"parent": "a-1"})
    assert isinstance(failure, RenderFailure)
    assert failure.code is Code.VALUE_UNSENDABLE
    assert "a-1" not in failure.message + str(failure.evidence)


def test_a_nested_resource_has_the_other_records_id_in_its_route() -> None:
    contract = action(
        create={"path": "/owners/{parent}/things"},
        update={"path": "/owners/{parent}/things/{remote_id}", "query": {"owner": "{parent}"}},
        associations=[association("foreign_key", target=None)],
    )
    ids = {"parent": "a b"}
    created = render_create(contract, profile(), values(name="n"), associated=ids)
    updated = render_update(contract, profile(), values(name="n"), "1", associated=ids)
    assert isinstance(created, FrozenRequest)
    assert isinstance(updated, FrozenRequest)
    assert (created.path, updated.path) == ("/owners/a%20b/things", "/owners/a%20b/things/1?owner=a%20b")
    blank = render_create(contract, profile(), values(name="n"), associated={"parent": None})
    assert isinstance(blank, RenderFailure)
    assert (blank.code, blank.evidence) == (Code.FREEZE_FAILED, {"association": "parent"})


def test_what_is_read_before_an_update_has_the_same_route() -> None:
    contract = action(
        update={"path": "/owners/{parent}/things/{remote_id}", "precondition": {"kind": "etag", "source": "fresh_get"}},
        associations=[association("foreign_key", target=None)],
    )
    assert render_fetch(contract, profile(), "1", associated={"parent": "8"}) == "/owners/8/things/1"


def test_an_association_never_writes_over_what_stands_there() -> None:
    contract = action(associations=[association("foreign_key", target="/name")])
    failure = render_create(contract, profile(), values(name="n"), associated={"parent": "8"})
    assert isinstance(failure, RenderFailure)
    assert failure.code is Code.MAPPING_UNUSABLE


# ------------------------------------------------------------------------------------------------ vectors


@pytest.mark.rule("AT-05", "D-43")
def test_a_vector_keeps_its_positions_blanks_among_them() -> None:
    vector = (reference("a"), None, reference("b").resolved(link_id="l1", remote_id="8"))
    text = write_vector(vector)
    assert read_vector(text) == vector
    assert json.loads(text)["kind"] == "associations"
    assert vector_document(vector).text == text


def test_an_action_without_associations_and_a_row_of_before_them_have_an_empty_vector() -> None:
    assert write_vector(()) == NO_VECTOR == "[]"
    assert read_vector("[]") == read_vector(None) == ()


def test_names_stand_for_remote_ids_and_what_is_not_known_for_a_stand_in() -> None:
    contract = action(associations=[association("foreign_key", name) for name in ("a", "b", "c")])
    vector = (reference("a").resolved(link_id="l", remote_id="8"), None, reference("c"))
    assert remote_ids(vector, contract) == {"a": "8", "b": None, "c": None}
    assert remote_ids(vector, contract, stand_in=STAND_IN) == {"a": "8", "b": None, "c": STAND_IN}
    assert association_fields(contract) == ("a_id", "b_id", "c_id")


def test_a_request_waits_only_for_what_it_carries() -> None:
    modes = ("create_inline", "foreign_key", "update_only", "call_after")
    vector = (*(reference(mode, mode) for mode in modes), None)
    assert [each.name for each in carried_by(vector, "create")] == ["create_inline", "foreign_key"]
    assert [each.name for each in carried_by(vector, "update")] == ["foreign_key", "update_only"]


# ------------------------------------------------------------------------------------------------ calls

CALL = {"path": "/things/{remote_id}/parent", "body": {"to": "{parent:integer}", "own": "{remote_id}"}}


def test_a_call_of_its_own_has_its_own_request_and_is_read_as_an_update_that_names_nothing() -> None:
    contract = action(associations=[association("call_after", call=CALL)])
    request = render_call(contract, profile(), "parent", "1", other_id="8")
    assert isinstance(request, FrozenRequest)
    assert (request.method, request.path) == ("PUT", "/things/1/parent")
    assert json.loads(request.body) == {"to": 8, "own": "1"}
    read = call_contract(contract, "parent")
    assert read is not None
    assert read.update is not None
    assert read.update.path == CALL["path"]
    assert (read.create.response.id, read.mappings, read.associations) == ((), (), ())
    assert call_contract(contract, "other") is None


def test_a_call_without_a_body_has_no_media_type() -> None:
    contract = action(associations=[association("call_after", call={"path": "/things/{remote_id}/to/{parent}"})])
    request = render_call(contract, profile(), "parent", "1", other_id="8")
    assert isinstance(request, FrozenRequest)
    assert (request.body, request.headers) == (b"", ())
    for name, other_id in (("parent", None), ("other", "8"), ("other", None)):
        unknown = render_call(contract, profile(), name, "1", other_id=other_id)
        assert isinstance(unknown, RenderFailure)
        assert unknown.message == "The action declares no call for this association."


def test_a_call_is_due_until_it_was_made_for_this_very_record() -> None:
    """In the order of the vector; only what is said by a call of its own, and not what the record lacks."""
    inline = reference("owner", "create_inline")
    first, second = reference("parent", "call_after"), reference("friend", "call_after", record_id="8")
    vector = (None, inline, first, second)
    assert due_call(vector, {}) is first
    assert due_call(vector, {"parent": "7"}) is second
    assert due_call(vector, {"parent": "6"}) is first
    assert due_call(vector, {"parent": "7", "friend": "8"}) is None
    assert due_call((None, inline), {}) is None


def test_what_was_called_reads_back_and_a_row_of_before_has_none() -> None:
    called = {"parent": "7", "friend": "8"}
    assert read_called(write_called(called)) == called
    assert read_called(None) == {}


@pytest.mark.parametrize(
    ("modes", "leaves"),
    [
        (["update_only"], True),
        (["create_inline", "update_only"], True),
        (["create_inline", "call_after"], False),
        ([], False),
    ],
)
def test_a_create_leaves_to_an_update_what_only_an_update_says(modes: list[str], leaves: bool) -> None:
    vector = (None, *(reference(f"r{at}", mode) for at, mode in enumerate(modes)))
    assert is_only_updated(vector) is leaves


def test_a_body_that_was_written_before_takes_more_values_at_its_insertion_point() -> None:
    """Its digits stay as they were; what stands there already, and what is no JSON, is left alone."""
    body = Body.model_validate_json('{"insert_at": "/data"}')
    before = b'{"data":{"price":19.90}}'
    assert complete_json(body, before, [("/parent", "8")]) == b'{"data":{"price":19.90,"parent":"8"}}'
    taken = complete_json(body, before, [("/price", "8")])
    assert isinstance(taken, RenderFailure)
    assert (taken.code, taken.evidence) == (Code.FREEZE_FAILED, {"target": "/price"})
    form = Body.model_validate_json('{"encoding": "form"}')
    refused = complete_json(form, b"a=1", [("/parent", "8")])
    assert isinstance(refused, RenderFailure)
    assert refused.evidence == {}


# ------------------------------------------------------------------------------------------------ circles


@pytest.mark.parametrize(
    ("edges", "start", "found"),
    [
        ({"a": ["a"]}, "a", ("a",)),
        ({"a": ["b"], "b": ["a"]}, "a", ("a", "b")),
        ({"a": ["x", "b"], "b": ["c"], "c": ["a"], "x": ["y"]}, "a", ("a", "b", "c")),
        ({"a": ["b"], "b": ["c"], "c": ["b"]}, "a", None),
        ({"a": ["b"]}, "a", None),
        ({}, "a", None),
    ],
)
def test_a_circle_is_the_way_from_a_record_back_to_itself(edges: Any, start: Any, found: Any) -> None:
    assert find_cycle(edges, start) == found
