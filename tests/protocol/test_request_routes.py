from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from protocol.examples import action, profile, values
from pushlink.adapters.egress import build_url, parse_origin
from pushlink.errors import Code
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.paths import query_problem, read_variable, render_path, same_route
from pushlink.protocol.render import render_create, update_route
from pushlink.protocol.snapshots import FrozenRequest

BASE = "https://api.example.com/v1"
GUID = "6F9619FF-8B86-d011-B42D-00C04FC964FF"


def test_a_key_is_written_as_the_remote_wants_it() -> None:
    """As it is, as an OData text with doubled quotes, or as a GUID without any."""

    def rendered(key: str, quoting: str) -> str | RenderFailure:
        return render_path("/Things({remote_id})", {"remote_id": key}, base_url=BASE, quoting=quoting)  # type: ignore[arg-type]

    assert rendered("o'x", "none") == "/Things(o%27x)"
    assert rendered("o'x", "odata_string") == "/Things('o%27%27x')"
    assert rendered(GUID, "odata_guid") == f"/Things({GUID})"
    for wrong in ("", "6f9619ff8b86d011b42d00c04fc964ff", "1) or (1", GUID + "'"):
        failure = rendered(wrong, "odata_guid")
        assert isinstance(failure, RenderFailure)
        assert failure.code is Code.ROUTE_UNSAFE


@given(
    key=st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\?#%"), min_size=1, max_size=20)
)
@example(key="'")
@example(key="a''b'")
@example(key="x') or ('1")
def test_a_quoted_key_is_one_literal_whatever_it_holds(key: str) -> None:
    """Decoded once, the segment is the quoted text with every inner quote doubled; it reads back as the key."""
    path = render_path("/Things({remote_id})", {"remote_id": key}, base_url=BASE, quoting="odata_string")
    assume(not isinstance(path, RenderFailure))
    assert isinstance(path, str)
    doubled = key.replace("'", "''")
    assert unquote(path) == f"/Things('{doubled}')"
    assert read_variable("/Things({remote_id})", path, "remote_id", {}, "odata_string") == key


@given(
    key=st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20),
    realm=st.sampled_from(["r", "a.b", "ä b", "(x)"]),
    template=st.sampled_from(["/{realm}/t/{key}", "/t({key})?a=b", "/{realm}-{key}/x", "/{key}"]),
)
def test_a_variable_reads_back_from_the_path_that_was_frozen(key: str, realm: str, template: str) -> None:
    """The path alone says which key is in it, given the profile's own variables."""
    variables = {"realm": realm, "key": key}
    path = render_path(template, variables, base_url=BASE, path_characters="/\\?#%", query={"q": "1"})
    assume(isinstance(path, str))
    assert isinstance(path, str)
    assert read_variable(template, path, "key", {"realm": realm}, "none") == key


def test_another_path_has_no_such_variable() -> None:
    """A template that did not make the path, or has no such variable, reads nothing."""
    assert read_variable("/t/{key}", "/u/1", "key", {}, "none") is None
    assert read_variable("/t", "/t", "key", {}, "none") is None


@given(value=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_a_parameter_is_one_pair_whatever_it_holds(value: str) -> None:
    """Names and values are percent-encoded; no value becomes another parameter or leaves the query."""
    path = render_path("/things", {"v": value}, base_url=BASE, query={"$select": "id,name", "a b": "{v}", "c": "x{y"})
    assert isinstance(path, str)
    url = urlsplit(str(build_url(parse_origin(BASE), path)))
    assert url.path == "/v1/things"
    assert parse_qsl(url.query, strict_parsing=True) == [("$select", "id,name"), ("a b", value), ("c", "x{y")]


def test_a_parameter_follows_a_query_that_the_template_has_already() -> None:
    """Frozen templates of the first release may have a literal one."""
    assert render_path("/t?a=1", {}, base_url=BASE, query={"b": "2"}) == "/t?a=1&b=2"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("a", "x", None),
        ("a", "", None),
        ("a", "{v}", None),
        ("$filter", "x y", None),
        ("", "x", "a name or value is empty or holds a control character"),
        ("a\n", "x", "a name or value is empty or holds a control character"),
        ("a", "x\x00", "a name or value is empty or holds a control character"),
        ("a", "x{v}", "a value is a literal or one whole placeholder"),
        ("a", "x{", "a value is a literal or one whole placeholder"),
        ("a", "x}", "a value is a literal or one whole placeholder"),
        ("a", "{other}", "the variable other is not known here"),
    ],
)
def test_a_parameter_is_a_literal_or_one_whole_placeholder(name: str, value: str, said: str | None) -> None:
    """What a linter says of it."""
    assert query_problem(name, value, allowed=frozenset({"v"})) == said


@pytest.mark.parametrize("text", ["{missing}", "{none}", "{empty}", "{low}", "{high}"])
def test_a_parameter_without_a_value_renders_nothing(text: str) -> None:
    """An empty parameter would ask for something else, and half a character for nothing."""
    variables = {"none": None, "empty": "", "low": "a\ud800", "high": "a\udfff"}
    failure = render_path("/t", variables, base_url=BASE, query={"a": text})
    assert isinstance(failure, RenderFailure)


def test_a_profiles_variables_fill_paths_and_what_is_not_named_does_not_matter() -> None:
    """The realm of a create's path is the profile's; it is bound by the endpoint's fingerprint."""
    contract = action(create={"path": "/v3/company/{realm}/things", "query": {"v": "{version}"}})
    remote = profile(variables={"realm": "9130", "version": "75", "other": "a"})
    request = render_create(contract, remote, values(name="n"))
    assert isinstance(request, FrozenRequest)
    assert request.path == "/v3/company/9130/things?v=75"
    unknown = render_create(contract, profile(), values(name="n"))
    assert isinstance(unknown, RenderFailure)
    assert unknown.code is Code.PATH_UNUSABLE


@pytest.mark.rule("DR-16")
def test_a_route_is_the_same_only_with_the_same_query_and_quoting() -> None:
    """What a profile may waive is another spelling, not another parameter."""
    remote = profile(variables={"realm": "9"})

    def route(**update: object) -> tuple[str, str]:
        return BASE, update_route(action(update=update), remote)

    plain = route(path="/{realm}/{remote_id}")
    assert plain == (BASE, "/9/{remote_id}")
    assert route(path="/{remote_id}", key_quoting="odata_guid") == (BASE, "/{remote_id}#odata_guid")
    assert same_route(plain, route(path="/9/{remote_id}"))
    assert not same_route(plain, route(path="/{realm}/{remote_id}", query={"v": "1"}))
    assert not same_route(plain, route(path="/{realm}/{remote_id}", key_quoting="odata_string"))
    assert same_route(route(path="/{remote_id}", query={"r": "{realm}"}), route(path="/{remote_id}", query={"r": "9"}))
