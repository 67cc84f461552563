"""How a precondition is said, where its version comes from, and when the record is read before a send."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.examples import action, profile, values
from pushlink.protocol.contracts import ActionContract, UpdateContract
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.preconditions import (
    TO_BE_FETCHED,
    is_older,
    needs_fetch,
    precondition_headers,
    version_places,
    version_to_check,
    with_version,
)
from pushlink.protocol.render import render_create, render_fetch, render_read, render_update
from pushlink.protocol.snapshots import FrozenRequest


def updating(precondition: dict[str, Any] | None, **create: Any) -> tuple[ActionContract, UpdateContract]:
    made = action(create=create, update={} if precondition is None else {"precondition": precondition})
    assert made.update is not None
    return made, made.update


@pytest.mark.rule("D-24", "C-047")
@pytest.mark.parametrize(
    ("precondition", "headers"),
    [
        (None, {}),
        ({"kind": "if_match_star"}, {"If-Match": "*"}),
        ({"kind": "etag"}, {"If-Match": '"v1"'}),
        ({"kind": "if_unmodified_since"}, {"If-Unmodified-Since": '"v1"'}),
        ({"kind": "version_field", "pointer": "/version"}, {}),
    ],
)
def test_a_precondition_of_an_update_is_a_header_or_a_place_in_the_body(
    precondition: dict[str, Any] | None, headers: dict[str, str]
) -> None:
    """And nothing is sent without the version that it needs."""
    made, update = updating(precondition)
    assert precondition_headers(update, {"link_version": '"v1"'}) == headers
    needs_version = '"v1"' in headers.values()
    for variables in ({}, {"link_version": None}, {"link_version": ""}):
        refused = isinstance(precondition_headers(update, variables), RenderFailure)
        assert refused is needs_version
    request = render_update(made, profile(), values(name="n"), "7", remote_version='"v1"')
    assert isinstance(request, FrozenRequest)
    assert set(headers.items()) <= set(request.headers)


def test_a_version_in_the_body_is_a_text_or_a_number() -> None:
    """At its pointer, beside what the pack merges there; other kinds leave the body alone."""
    for integer, body in ((False, b'{"name":"n","version":"3"}'), (True, b'{"name":"n","version":3}')):
        made, _ = updating({"kind": "version_field", "pointer": "/version", "integer": integer})
        request = render_update(made, profile(), values(name="n"), "7", remote_version="3")
        assert isinstance(request, FrozenRequest)
        assert request.body == body
    for other in (None, {"kind": "etag"}, {"kind": "etag", "pointer": "/version"}, {"kind": "version_field"}):
        _, update = updating(other)
        assert with_version(update) == update.body


def test_a_create_may_ask_that_nothing_is_there() -> None:
    """By any id, or by a query of its own, percent-encoded but for what FHIR writes in it."""
    star = action(create={"precondition": {"kind": "if_none_match_star"}})
    request = render_create(star, profile(), values(name="n"))
    assert isinstance(request, FrozenRequest)
    assert ("If-None-Match", "*") in request.headers
    asked = action(create={"precondition": {"kind": "if_none_exist", "query": {"a b": "{realm}", "c": "d|e:f"}}}).create
    assert precondition_headers(asked, {"realm": "r 1"}) == {"If-None-Exist": "a%20b=r%201&c=d|e:f"}
    assert isinstance(precondition_headers(asked, {}), RenderFailure)


@pytest.mark.rule("C-047")
@pytest.mark.parametrize(
    ("precondition", "version", "is_refused", "expected"),
    [
        (None, None, False, False),
        ({"kind": "if_match_star", "source": "fresh_get"}, None, True, False),
        ({"kind": "etag", "source": "fresh_get"}, "v", False, True),
        ({"kind": "etag"}, None, False, False),
        ({"kind": "etag"}, "v", True, False),
        ({"kind": "etag", "refetch_once": True}, "v", False, False),
        ({"kind": "etag", "refetch_once": True}, "v", True, True),
        ({"kind": "etag", "refetch_once": True}, None, False, True),
        ({"kind": "etag", "refetch_once": True}, "", False, True),
    ],
)
def test_a_record_is_read_before_a_send_where_its_version_is_not_known(
    precondition: dict[str, Any] | None, version: str | None, is_refused: bool, expected: bool
) -> None:
    """Always where the pack says so, and once where the version was stale; a star asks for none."""
    _, update = updating(precondition)
    assert needs_fetch(update, link_version=version, is_refused=is_refused) is expected
    if not is_refused:
        assert version_to_check(update, version) == (TO_BE_FETCHED if expected else version)


@pytest.mark.parametrize(
    ("grows", "version", "known", "expected"),
    [
        (True, "4", "5", True),
        (True, "5", "5", False),
        (True, "6", "5", False),
        (True, "10", "9", False),
        (True, "9", "10", True),
        (True, "4", None, False),
        (False, "4", "5", False),
        (True, "a", "5", False),
        (True, "4", "b", False),
    ],
)
def test_a_version_that_was_seen_before_is_an_older_one_where_they_only_grow(
    grows: bool, version: str, known: str | None, expected: bool
) -> None:
    """As numbers, not as texts."""
    _, update = updating({"kind": "etag", "grows": grows})
    assert update.precondition is not None
    assert is_older(update.precondition, version, known) is expected


def test_the_version_stands_where_the_read_the_create_or_the_kind_says() -> None:
    """In this order."""

    def places(precondition: dict[str, Any] | None, **create: Any) -> list[str]:
        made, update = updating(precondition, **create)
        return [place.source for place in version_places(update, made.create)]

    own = {"version": [{"from": "$response.body#/v"}]}
    answers = {"response": {"id": [{"from": "$response.body#/id"}], "version": [{"from": "$response.header.X-V"}]}}
    assert places(None, **answers) == []
    assert places({"kind": "etag", "fetch": own}, **answers) == ["$response.body#/v"]
    assert places({"kind": "etag"}, **answers) == ["$response.header.X-V"]
    assert places({"kind": "etag"}) == ["$response.header.ETag"]
    assert places({"kind": "if_unmodified_since"}) == ["$response.header.Last-Modified"]
    assert places({"kind": "version_field", "pointer": "/v"}) == []


@pytest.mark.parametrize(
    ("update", "path"),
    [
        ({"precondition": {"kind": "etag"}}, "/things/7"),
        ({"precondition": {"kind": "etag"}, "query": {"a": "1", "v": "{link_version}"}}, "/things/7?a=1"),
        ({"precondition": {"kind": "etag", "fetch": {"query": {"b": "2"}}}, "query": {"a": "1"}}, "/things/7?b=2"),
        ({"precondition": {"kind": "etag", "fetch": {"path": "/t/{remote_id}"}}, "query": {"a": "1"}}, "/t/7"),
        (
            {"precondition": {"kind": "etag", "fetch": {"path": "/t", "query": {"id": "{remote_id}"}}}},
            "/t?id=7",
        ),
        ({"precondition": {"kind": "etag", "fetch": {"path": "/t"}}}, None),
        ({"path": "/things", "precondition": {"kind": "etag"}}, None),
        ({"path": "/things", "query": {"id": "{remote_id}"}, "precondition": {"kind": "etag"}}, "/things?id=7"),
    ],
)
def test_a_record_is_read_by_the_update_s_own_route_or_by_another_that_names_it(
    update: dict[str, Any], path: str | None
) -> None:
    """A read that names no record would read the collection."""
    made = action(update=update)
    for render in (render_fetch, render_read):
        route = render(made, profile(), "7")
        assert route == path or (path is None and isinstance(route, RenderFailure))


def test_without_a_precondition_nothing_is_fetched_and_a_record_can_still_be_read() -> None:
    assert isinstance(render_fetch(action(), profile(), "7"), RenderFailure)
    assert render_read(action(), profile(), "7") == "/things/7"
    bare = action().model_copy(update={"update": None})
    assert isinstance(render_fetch(bare, profile(), "7"), RenderFailure)
    assert isinstance(render_read(bare, profile(), "7"), RenderFailure)
