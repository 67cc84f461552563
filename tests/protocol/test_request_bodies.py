from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.examples import action, profile, values
from pushlink.errors import Code
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.forms import Unwritable, write_form
from pushlink.protocol.placeholders import Unfilled, fill, names_in
from pushlink.protocol.render import render_create, render_update
from pushlink.protocol.snapshots import FrozenRequest, SourceValues


def sent(contract: Any, fields: SourceValues, remote: Any = None) -> FrozenRequest:
    request = render_create(contract, remote or profile(), fields)
    assert isinstance(request, FrozenRequest), request
    return request


def refused(contract: Any, fields: SourceValues, remote: Any = None) -> RenderFailure:
    request = render_create(contract, remote or profile(), fields)
    assert isinstance(request, RenderFailure), request
    return request


def updated(contract: Any, fields: SourceValues, remote_id: str = "7", **more: Any) -> FrozenRequest | RenderFailure:
    return render_update(contract, more.pop("remote", None) or profile(), fields, remote_id, **more)


# --------------------------------------------------------------------------------------- forms


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        (
            "brackets",
            [("name", "Zoë & co"), ("meta[price]", "19.990"), ("meta[ok]", "true"), ("t[]", "a"), ("t[]", "")],
        ),
        (
            "indexed",
            [("name", "Zoë & co"), ("meta[price]", "19.990"), ("meta[ok]", "true"), ("t[0]", "a"), ("t[1]", "")],
        ),
        ("repeated", [("name", "Zoë & co"), ("meta[price]", "19.990"), ("meta[ok]", "true"), ("t", "a"), ("t", "")]),
    ],
)
def test_a_form_has_bracketed_names_and_exact_values(arrays: str, expected: list[tuple[str, str]]) -> None:
    """Nested members, the three styles of lists, decimals with their digits; the media type is the form's own."""
    contract = action(
        create={"body": {"encoding": "form", "arrays": arrays}},
        mappings=[
            {"source": "name", "target": "/name"},
            {"source": "price", "target": "/meta/price"},
            {"source": "ok", "target": "/meta/ok"},
            {"source": "tags", "target": "/t"},
        ],
    )
    request = sent(contract, values(name="Zoë & co", price=Decimal("19.990"), ok=True, tags=("a", "")))
    assert parse_qsl(request.body.decode(), keep_blank_values=True) == expected
    assert request.headers == (("Content-Type", "application/x-www-form-urlencoded"),)
    assert request.body.isascii()


@pytest.mark.parametrize(
    ("mapped", "fields"),
    [
        ({"source": "f", "target": "/f"}, {"f": None}),
        ({"source": "f", "target": "/f"}, {"f": ()}),
        ({"source": "f", "target": "/a[b]"}, {"f": "x"}),
    ],
)
def test_what_a_form_cannot_say_is_refused(mapped: dict[str, Any], fields: dict[str, Any]) -> None:
    """Null, an empty list, a name that would read as another place: nothing is guessed."""
    contract = action(create={"body": {"encoding": "form"}}, mappings=[mapped, {"constant": "c", "target": "/c"}])
    assert refused(contract, values(**fields)).code is Code.VALUE_UNSENDABLE


def test_an_empty_text_clears_a_field_of_a_form() -> None:
    """The mapping says how empty is said."""
    contract = action(
        create={"body": {"encoding": "form"}}, mappings=[{"source": "f", "target": "/f", "clear": "empty_string"}]
    )
    assert sent(contract, values(f=None)).body == b"f="


def test_a_list_of_objects_needs_numbers() -> None:
    """`a[][b]` would leave open which object a member belongs to."""
    value = {"a": [{"b": 1}, {"b": 2}]}
    assert parse_qsl(write_form(value, "indexed")) == [("a[0][b]", "1"), ("a[1][b]", "2")]
    for style in ("brackets", "repeated"):
        with pytest.raises(Unwritable):
            write_form(value, style)
    for bad in ([1], {"a": {}}, {"": 1}, "x"):
        with pytest.raises(Unwritable):
            write_form(bad, "indexed")


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="[]"), min_size=1, max_size=5)
LEAVES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.integers(-(10**9), 10**9)


@given(st.dictionaries(NAMES, LEAVES | st.dictionaries(NAMES, LEAVES, min_size=1, max_size=3), max_size=4))
def test_a_form_reads_back_as_the_same_texts(tree: dict[str, Any]) -> None:
    """Whatever the values hold, no value becomes a name or another pair."""
    flat = []
    for name, item in tree.items():
        flat += [(f"{name}[{k}]", str(v)) for k, v in item.items()] if isinstance(item, dict) else [(name, str(item))]
    assert parse_qsl(write_form(tree, "brackets"), keep_blank_values=True) == flat


# --------------------------------------------------------------------------------------- GraphQL

DOCUMENT = 'mutation Make($input: In!) { make(input: $input) { thing { id } errors { message } } } # "$name"'


def test_a_graphql_body_has_the_documents_text_and_the_values_as_variables() -> None:
    """The document is sent as it was declared; a value that looks like one stays a variable."""
    contract = action(
        create={
            "body": {
                "encoding": "graphql",
                "graphql": {"document": DOCUMENT, "operation_name": "Make"},
                "envelope": {"input": {"origin": "crm"}},
                "insert_at": "/input",
            }
        }
    )
    evil = '") { drop } } mutation X { #'
    assert json.loads(sent(contract, values(name=evil)).body) == {
        "query": DOCUMENT,
        "operationName": "Make",
        "variables": {"input": {"origin": "crm", "name": evil}},
    }


def test_a_graphql_body_without_its_document_is_unusable() -> None:
    """A frozen contract that lost it sends nothing."""
    assert refused(action(create={"body": {"encoding": "graphql"}}), values(name="n")).code is Code.MAPPING_UNUSABLE


# --------------------------------------------------------------------------------------- merged values


def test_an_update_may_name_its_record_and_its_version_in_the_body() -> None:
    """Id and token in the body, a literal beside them, and the path of the create."""
    contract = action(
        update={
            "method": "POST",
            "path": "/v3/{realm}/things",
            "query": {"minorversion": "75"},
            "body": {"merge": {"/Id": "{remote_id}", "/SyncToken": "{link_version}", "/sparse": True}},
        },
    )
    request = updated(contract, values(name="n"), "145", remote_version="3", remote=profile(variables={"realm": "9"}))
    assert isinstance(request, FrozenRequest)
    assert (request.method, request.path) == ("POST", "/v3/9/things?minorversion=75")
    assert request.body == b'{"name":"n","Id":"145","SyncToken":"3","sparse":true}'


def test_a_placeholder_may_be_a_number_and_stand_in_a_list() -> None:
    """`{remote_id:integer}` sends the digits; an id that is no whole number is refused, and not repeated."""
    contract = action(
        update={
            "method": "POST",
            "path": "/json/2/thing/write",
            "body": {
                "envelope": {"ids": [None], "vals": {}},
                "insert_at": "/vals",
                "merge": {"/ids/0": "{remote_id:integer}"},
            },
        },
    )
    request = updated(contract, values(name="n"), "17")
    assert isinstance(request, FrozenRequest)
    assert request.body == b'{"ids":[17],"vals":{"name":"n"}}'
    failure = updated(contract, values(name="n"), "abc")
    assert isinstance(failure, RenderFailure)
    assert failure.code is Code.FREEZE_FAILED
    assert "abc" not in str(failure)


@pytest.mark.rule("C-048")
def test_an_update_that_needs_a_version_is_not_sent_without_one() -> None:
    """A link that never got a token has none; nothing is made up."""
    contract = action(update={"body": {"merge": {"/version": "{link_version}"}}})
    failure = updated(contract, values(name="n"))
    assert isinstance(failure, RenderFailure)
    assert failure.code is Code.FREEZE_FAILED
    assert "link_version" in failure.message


def test_merged_values_never_overwrite_and_never_come_from_a_record() -> None:
    """A mapped value that looks like a placeholder is a text; a place is written once."""
    contract = action(update={"body": {"merge": {"/name": "x"}}})
    failure = updated(contract, values(name="n"))
    assert isinstance(failure, RenderFailure)
    assert failure.code is Code.MAPPING_UNUSABLE
    plain = updated(action(), values(name="{remote_id}"))
    assert isinstance(plain, FrozenRequest)
    assert plain.body == b'{"name":"{remote_id}"}'


def test_placeholders_are_whole_texts() -> None:
    """Nothing is put into the middle of a text, and braces alone mean nothing."""
    known = {"a": "1", "b": None}
    assert fill({"x": ["{a}", "{a:integer}", "a {a}", "{a} ", {"y": None}]}, known) == {
        "x": ["1", 1, "a {a}", "{a} ", {"y": None}]
    }
    assert isinstance(fill(["{b}"], known), Unfilled)
    assert isinstance(fill({"k": "{c}"}, known), Unfilled)
    assert list(names_in({"x": ["{a}", {"y": "{b:integer}"}], "z": "{c} "})) == ["a", "b"]


# --------------------------------------------------------------------------------------- limits


@pytest.mark.rule("C-058")
def test_the_limits_of_an_action_are_checked_on_what_would_be_sent() -> None:
    """Bytes of the whole body and characters of each text; a mapping's own bound wins over the action's."""
    contract = action(limits={"body_bytes": 20})
    assert sent(contract, values(name="x" * 9)).body == b'{"name":"xxxxxxxxx"}'
    assert refused(contract, values(name="x" * 10)).code is Code.BODY_TOO_LARGE
    short = action(
        limits={"field_chars": 3},
        mappings=[{"source": "name", "target": "/name"}, {"source": "note", "target": "/note", "chars_max": 5}],
    )
    assert sent(short, values(name="äöü", note="12345"))
    for fields in (values(name="abcd", note=""), values(name="", note="123456")):
        failure = refused(short, fields)
        assert failure.code is Code.VALUE_UNSENDABLE
        assert {"chars", "chars_max", "field"} <= failure.evidence.keys()
        assert "abcd" not in str(failure)
    assert "The text for /name has 4 characters; 3 are allowed." in refused(short, values(name="abcd", note="")).message
    bare = action(limits={"field_chars": 3}, mappings=[{"source": "name", "target": ""}])
    assert "The text for the whole body has 4 characters" in refused(bare, values(name="abcd")).message
    assert refused(short, values(name=("ok", "long"), note=None)).evidence["chars"] == 4


# --------------------------------------------------------------------------------------- headers


def test_preferences_are_one_header_and_none_is_sent_twice() -> None:
    """`prefer` is written as RFC 7240 says; a pack that declares the header as well freezes nothing."""
    prefers = {"prefer": ["return=representation", "respond-async"]}
    assert sent(action(create=prefers), values(name="n")).headers == (
        ("Prefer", "return=representation, respond-async"),
        ("Content-Type", "application/json"),
    )
    assert refused(action(create={**prefers, "headers": {"prefer": "x"}}), values(name="n")).code is Code.FREEZE_FAILED
