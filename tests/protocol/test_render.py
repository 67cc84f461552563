from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.examples import action, profile, values
from pushlink.errors import Code
from pushlink.protocol import jsontext
from pushlink.protocol.body import target_problems
from pushlink.protocol.contracts import Condition
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.headers import FORBIDDEN, header_problem
from pushlink.protocol.render import applies, missing_fields, render_create, render_update, source_fields
from pushlink.protocol.snapshots import FrozenRequest, digest_bytes


def create(contract: Any, fields: Any, remote: Any = None) -> FrozenRequest:
    request = render_create(contract, remote or profile(), fields)
    assert isinstance(request, FrozenRequest), request
    return request


def refusal(contract: Any, fields: Any, remote: Any = None) -> RenderFailure:
    request = render_create(contract, remote or profile(), fields)
    assert isinstance(request, RenderFailure)
    return request


def test_a_create_is_rendered_byte_for_byte() -> None:
    """Method, path, headers, body in mapping order with exact digits, and the digest of the body."""
    contract = action(
        create={"path": "/things", "headers": {"X-Api-Version": "2"}},
        mappings=[
            {"source": "price", "target": "/price"},
            {"source": "name", "target": "/properties/name"},
            {"source": None, "constant": "crm", "target": "/properties/origin"},
        ],
    )
    request = create(contract, values(name="Zoë", price=Decimal("19.990")), profile(headers={"Accept": "*/*"}))
    assert request.method == "POST"
    assert request.path == "/things"
    assert request.headers == (("Accept", "*/*"), ("X-Api-Version", "2"), ("Content-Type", "application/json"))
    assert request.body == '{"price":19.990,"properties":{"name":"Zoë","origin":"crm"}}'.encode()
    assert request.body_digest == digest_bytes(request.body)


@pytest.mark.rule("PA-07")
def test_an_update_goes_to_the_durable_remote_id() -> None:
    """The route is made of the pack's template and the link's id, encoded once; no field has a say in it."""
    contract = action(mappings=[{"source": "name", "target": "/name"}, {"source": "id", "target": "/mirror"}])
    request = render_update(contract, profile(), values(name="n", id="999"), "a b")
    assert isinstance(request, FrozenRequest)
    assert (request.method, request.path) == ("PATCH", "/things/a%20b")
    refused = render_update(contract, profile(), values(name="n", id="1"), "../x")
    assert isinstance(refused, RenderFailure)
    assert refused.code is Code.ROUTE_UNSAFE


def test_an_action_without_an_update_path_refuses_updates() -> None:
    """Nothing is derived from the create path."""
    contract = action().model_copy(update={"update": None})
    refused = render_update(contract, profile(), values(name="n"), "1")
    assert isinstance(refused, RenderFailure)
    assert refused.code is Code.PATH_UNUSABLE


@pytest.mark.rule("GT-05")
@pytest.mark.parametrize(
    "mappings",
    [
        [],
        [{"source": "name", "target": "/name", "operations": ["update"]}],
        [{"source": "empty", "target": "/name", "clear": "omit"}],
        [{"source": "absent", "target": "/name"}],
        [{"source": "name", "target": "/name"}, {"source": "empty", "target": "/name"}],
        [{"source": "name", "target": "/a"}, {"source": "empty", "target": "/a/b"}],
        [{"source": "name", "target": "/a/b"}, {"source": "empty", "target": "/a"}],
        [{"source": "name", "target": ""}, {"source": "empty", "target": "/a"}],
        [{"source": "name", "target": "/name", "encode": {"string": True, "join": ","}}],
    ],
)
def test_mappings_that_are_absent_duplicated_or_produce_no_body_are_unusable(mappings: list[dict[str, Any]]) -> None:
    """An empty body is never sent, and two mappings never write one place."""
    assert refusal(action(mappings=mappings), values(name="n", empty=None)).code is Code.MAPPING_UNUSABLE


def test_a_linter_and_the_gate_see_the_same_overlap() -> None:
    """Overlaps are found whatever the values are, and only within one operation."""
    contract = action(
        mappings=[
            {"source": "a", "target": "/x", "operations": ["create"]},
            {"source": "b", "target": "/x", "operations": ["update"]},
            {"source": "c", "target": "/x/y", "operations": ["update"]},
        ]
    )
    assert target_problems(contract.mappings, "create") == ()
    assert len(target_problems(contract.mappings, "update")) == 1


def test_an_overlap_names_both_targets_and_the_whole_body_in_words() -> None:
    """The empty pointer would read as nothing at all."""
    whole, part = {"source": "a", "target": ""}, {"source": "b", "target": "/x"}
    said = [target_problems(action(mappings=[*both]).mappings, "create") for both in ((whole, part), (part, whole))]
    assert said == [("/x and (all) write the same place",), ("(all) and /x write the same place",)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, b'{"name":"n"}'),
        ({"insert_at": "/data"}, b'{"data":{"name":"n"}}'),
        ({"envelope": {"data": None, "type": "t"}, "insert_at": "/data"}, b'{"data":{"name":"n"},"type":"t"}'),
        ({"envelope": {"type": "t"}}, b'{"type":"t","name":"n"}'),
        ({"envelope": {"items": [{"kind": "k"}]}, "insert_at": "/items/0"}, b'{"items":[{"kind":"k","name":"n"}]}'),
        ({"envelope": {"items": [None]}, "insert_at": "/items/0"}, b'{"items":[{"name":"n"}]}'),
        ({"insert_at": "/a~1b/c~0d"}, b'{"a/b":{"c~d":{"name":"n"}}}'),
    ],
)
def test_values_go_to_the_insertion_point_of_the_envelope(body: dict[str, Any], expected: bytes) -> None:
    """The skeleton is literal and stays as it is, also for the next record."""
    contract = action(create={"body": body})
    assert create(contract, values(name="n")).body == expected
    assert create(contract, values(name="n")).body == expected


@pytest.mark.parametrize(
    "body",
    [
        {"envelope": {"name": "literal"}},
        {"envelope": {"data": "literal"}, "insert_at": "/data"},
        {"envelope": {"items": []}, "insert_at": "/items/0"},
        {"envelope": {"items": [None]}, "insert_at": "/items/-"},
        {"envelope": {"items": [None]}, "insert_at": "/items/00"},
    ],
)
def test_a_mapping_never_overwrites_a_literal_of_the_envelope(body: dict[str, Any]) -> None:
    """What does not fit the skeleton is a fault of the pack, and the refusal names the target."""
    assert refusal(action(create={"body": body}), values(name="n")).evidence == {"target": "/name"}
    assert refusal(action(create={"body": body}), values(name="n")).code is Code.MAPPING_UNUSABLE


def test_a_whole_body_can_be_one_value() -> None:
    """The empty pointer is the document itself."""
    contract = action(mappings=[{"source": "tags", "target": ""}])
    assert create(contract, values(tags=("a", "b"))).body == b'["a","b"]'


@pytest.mark.rule("D-41")
def test_a_decimal_in_a_body_keeps_its_digits() -> None:
    """19.990 is not 19.99 and no floating-point number."""
    contract = action(mappings=[{"source": "price", "target": "/p"}])
    assert create(contract, values(price=Decimal("19.990"))).body == b'{"p":19.990}'


def test_a_body_over_the_profiles_bound_is_refused_before_anything_is_reserved() -> None:
    """The size is checked on the bytes that would be sent."""
    contract, fields = action(), values(name="ä" * 10)
    size = len(create(contract, fields).body)
    assert create(contract, fields, profile(body_bytes_max=size))
    refused = refusal(contract, fields, profile(body_bytes_max=size - 1))
    assert refused.code is Code.BODY_TOO_LARGE
    assert refused.evidence == {"body_bytes": size, "body_bytes_max": size - 1}


def test_a_body_that_nests_too_deep_is_refused() -> None:
    """The bound holds for what a pack's pointers build as well."""
    contract = action(mappings=[{"source": "name", "target": "/x" * 40}])
    assert refusal(contract, values(name="n")).code is Code.VALUE_UNSENDABLE


def test_a_header_may_say_a_variable_of_the_profile() -> None:
    """As a whole text; braces inside of another text are that text, and a name that nobody knows is refused."""
    contract = action(create={"headers": {"X-Realm": "{realm}", "X-Text": "a {realm}"}})
    request = create(contract, values(name="n"), profile(variables={"realm": "eu 1"}, headers={"X-Db": "{realm}"}))
    assert request.headers[:3] == (("X-Db", "eu 1"), ("X-Realm", "eu 1"), ("X-Text", "a {realm}"))
    for variables in ({}, {"realm": "ü"}, {"realm": "a\r\nX-B: 1"}):
        refused = refusal(contract, values(name="n"), profile(variables=variables))
        assert refused.code is Code.FREEZE_FAILED
        assert refused.evidence == {"header": "X-Realm"}
    assert refusal(action(create={"headers": {"X-A": "{name}"}}), values(name="n")).code is Code.FREEZE_FAILED


def test_a_full_replacement_needs_every_mapped_field() -> None:
    """A PUT that lacks a field would clear it; a merge leaves it alone."""
    mappings = [{"source": "name", "target": "/n"}, {"source": "mail", "target": "/m"}]
    replacing = action(update={"semantics": "replace", "method": "PUT"}, mappings=mappings)
    refused = render_update(replacing, profile(), values(name="n"), "1")
    assert isinstance(refused, RenderFailure)
    assert refused.code is Code.FREEZE_FAILED
    assert refused.evidence == {"fields": ["mail"]}
    merged = render_update(action(mappings=mappings), profile(), values(name="n"), "1")
    assert isinstance(merged, FrozenRequest)
    assert merged.body == b'{"n":"n"}'
    assert missing_fields(replacing, "update", values(name=None)) == ("mail",)
    assert source_fields(replacing) == ("name", "mail")


@pytest.mark.parametrize(
    ("ordering", "read"),
    [
        ({"serialize_per": "destination"}, ("name",)),
        ({"serialize_per": "field", "field": "owner"}, ("name", "owner")),
    ],
)
def test_the_field_that_sends_are_ordered_by_is_read_as_well(ordering: dict[str, str], read: tuple[str, ...]) -> None:
    """It is mapped to nothing; a whole destination is one order and needs no field."""
    assert source_fields(action(ordering=ordering)) == read


@pytest.mark.parametrize(
    "name", [*sorted(FORBIDDEN), "Proxy-Authorization", "AUTHORIZATION", "Sec-Fetch-Mode", "a b", "", "ä"]
)
def test_a_header_of_the_transport_the_credential_or_the_body_cannot_be_declared(name: str) -> None:
    """Credentials are put on at send time only; framing is the transport's."""
    assert header_problem(name, "x")
    assert refusal(action(create={"headers": {name: "x"}}), values(name="n")).code is Code.FREEZE_FAILED
    assert refusal(action(), values(name="n"), profile(headers={name: "x"})).code is Code.FREEZE_FAILED


@pytest.mark.parametrize("value", ["", " x", "x ", "a\r\nX: y", "a\nb", "a\x00", "ä", "a\tb", "x" * 8_193])
def test_a_header_value_is_visible_ascii_or_nothing_is_frozen(value: str) -> None:
    """A value that a library would refuse after the checkpoint is refused before the reservation."""
    assert header_problem("X-A", "x" * 8_192) is None
    assert refusal(action(create={"headers": {"X-A": value}}), values(name="n")).code is Code.FREEZE_FAILED


def test_an_operations_header_wins_over_the_profiles_and_none_is_sent_twice() -> None:
    """Names are compared without case; two spellings in one place are refused."""
    contract = action(create={"headers": {"x-version": "2"}, "body": {"media_type": "application/vnd.api+json"}})
    request = create(contract, values(name="n"), profile(headers={"X-Version": "1"}))
    assert request.headers == (("x-version", "2"), ("Content-Type", "application/vnd.api+json"))
    assert refusal(action(create={"headers": {"A": "1", "a": "2"}}), values(name="n")).code is Code.FREEZE_FAILED
    bad = action(create={"body": {"media_type": "application/json\r\nX: y"}})
    assert refusal(bad, values(name="n")).code is Code.FREEZE_FAILED


@given(
    name=st.text(st.characters(exclude_categories=["Cs"])),
    price=st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=3),
)
def test_a_source_value_is_only_ever_data(name: str, price: Decimal) -> None:
    """Whatever a record holds, the body has exactly the mapped members, and reads back as the same values."""
    contract = action(
        mappings=[{"source": "name", "target": "/a/name"}, {"source": "price", "target": "/price"}],
        create={"body": {"envelope": {"type": "t"}}},
    )
    request = create(contract, values(name=name, price=price))
    assert jsontext.read(request.body) == {
        "type": "t",
        "a": {"name": name},
        "price": jsontext.Number(format(price, "f")),
    }
    again = create(contract, values(price=price, name=name))
    assert again == request


MARKED = "Do not tell anybody 4711"


@pytest.mark.parametrize(
    "mappings",
    [
        [{"source": "name", "target": "/n", "encode": {"epoch": "s"}}],
        [{"source": "name", "target": "/a"}, {"source": "name", "target": "/a/b"}],
        [{"source": "name", "target": "/x" * 40}],
        [{"source": "name", "target": "/n", "encode": {"enum_map": {"a": "b"}}}],
    ],
)
def test_a_rendering_failure_never_shows_a_source_value(mappings: list[dict[str, Any]]) -> None:
    """Failures become refusals, log lines and pages; they name fields and targets."""
    failure = refusal(action(mappings=mappings), values(name=MARKED))
    assert MARKED not in f"{failure}"
    too_large = refusal(action(), values(name=MARKED), profile(body_bytes_max=5))
    assert MARKED not in f"{too_large}"


def test_a_remote_id_that_is_refused_is_not_repeated_either() -> None:
    """An id may be personal data at some remotes."""
    failure = render_update(action(), profile(), values(name="n"), f"{MARKED}/..")
    assert MARKED not in f"{failure}"


def condition(**parts: Any) -> Condition:
    return Condition.model_validate({"field": "f", **parts})


@pytest.mark.parametrize(
    ("parts", "value", "holds"),
    [
        ({"present": True}, "x", True),
        ({"present": True}, "", True),
        ({"present": True}, None, False),
        ({"present": False}, None, True),
        ({"present": False}, 0, False),
        ({"equals": "x"}, "x", True),
        ({"equals": "x"}, "X", False),
        ({"equals": True}, True, True),
        ({"equals": True}, 1, False),
        ({"equals": 1}, True, False),
        ({"equals": 1}, 1, True),
        ({"equals": 5}, Decimal("5.00"), True),
        ({"equals": "19.90"}, Decimal("19.9"), True),
        ({"equals": "19.91"}, Decimal("19.9"), False),
        ({"equals": 1}, Decimal("NaN"), False),
        ({"equals": 1}, Decimal("sNaN"), False),
        ({"equals": 1}, "1", False),
        ({"equals": "many"}, 5, False),
        ({"equals": None}, 0, False),
        ({"equals": "2026-03-01"}, dt.date(2026, 3, 1), True),
        ({"equals": "2026-03-02"}, dt.date(2026, 3, 1), False),
        ({"equals": 20260301}, dt.date(2026, 3, 1), False),
        ({"equals": "a"}, ("a",), False),
        ({"one_of": ("a", "b")}, "b", True),
        ({"one_of": ("a", None)}, None, True),
        ({"one_of": ("a",)}, None, False),
        ({"one_of": ()}, "a", False),
        ({"equals": "a", "present": True}, "a", True),
        ({"equals": "a", "one_of": ("b",)}, "a", False),
        ({}, "a", False),
    ],
)
def test_a_condition_holds_when_each_written_part_holds(parts: dict[str, Any], value: Any, holds: bool) -> None:
    """Equality is exact within a kind of value; a condition that says nothing holds for nobody."""
    assert applies([condition(**parts)], values(f=value)) is holds


def test_an_action_is_for_a_record_when_all_conditions_hold() -> None:
    """No condition is no restriction; an absent field equals nothing."""
    assert applies([], values())
    assert not applies([condition(one_of=(None,))], values())
    assert applies([condition(present=False)], values())
    assert not applies([condition(equals="a"), condition(equals="b")], values(f="a"))
