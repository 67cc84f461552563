from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.examples import action, profile, values
from pushlink.adapters.egress import EgressRefused, build_url, parse_origin
from pushlink.errors import Code
from pushlink.protocol import paths
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.paths import last_literal, render_path, same_route, template_problem
from pushlink.protocol.render import render_create, render_update, update_path

BASE = "https://api.example.com/v1"

TEMPLATES = (
    "/things/{remote_id}",
    "/{remote_id}",
    "/things/{remote_id}/details",
    "/things/id-{remote_id}",
    "/odata/Things({remote_id})?api-version=9.2",
)

HOSTILE = (
    "",
    ".",
    "..",
    "../admin",
    "..\\admin",
    "a/b",
    "a\\b",
    "a?b=c",
    "a#b",
    "a%2Fb",
    "%2e%2e",
    "%2e",
    "a\r\nHost: evil",
    "a\x00",
    "a\x7f",
    "a\x85",
    "a\x9f",
    "a\ud800",
    "a\udfff",
    "//evil.example/x",
    "https://evil.example/",
    "x" * 20_000,
)


@pytest.mark.rule("GT-14", "PA-07", "D-25")
@given(remote_id=st.text(max_size=40), template=st.sampled_from(TEMPLATES))
@example(remote_id="ä b+c&d=e;f,g@h:i!$'()*~", template=TEMPLATES[0])
@example(remote_id="..", template=TEMPLATES[3])
def test_an_id_fills_one_segment_or_nothing_is_rendered(remote_id: str, template: str) -> None:
    """The rendered route has the template's segments, the id encoded exactly once, or the gate refuses."""
    path = render_path(template, {"remote_id": remote_id}, base_url=BASE)
    if isinstance(path, RenderFailure):
        assert path.code is Code.ROUTE_UNSAFE
        return
    url = urlsplit(str(build_url(parse_origin(BASE), path)))
    route = template.partition("?")[0]
    assert (url.scheme, url.netloc, url.fragment) == ("https", "api.example.com", "")
    assert [unquote(part) for part in url.path.split("/")] == [
        part.replace("{remote_id}", remote_id) for part in f"/v1{route}".split("/")
    ]
    assert path.isascii()
    assert url.query == template.partition("?")[2]


@pytest.mark.rule("GT-14")
@pytest.mark.parametrize("remote_id", HOSTILE)
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_value_that_would_change_the_route_is_refused(remote_id: str, template: str) -> None:
    """Slash, dot segment, query, CR and LF, percent and control characters never reach a request line."""
    path = render_path(template, {"remote_id": remote_id}, base_url=BASE)
    assert isinstance(path, RenderFailure)
    assert path.code is Code.ROUTE_UNSAFE
    if len(remote_id) > 3:
        assert remote_id not in f"{path.message} {dict(path.evidence)}"


@pytest.mark.rule("GT-14")
@pytest.mark.parametrize("remote_id", ["..", "a/../b", "%2e%2e", "a/..", "..\\x", "./x"])
def test_a_dot_segment_is_refused_even_where_ids_may_hold_slashes(remote_id: str) -> None:
    """A profile may allow route characters; it cannot allow a way up."""
    path = render_path(TEMPLATES[0], {"remote_id": remote_id}, base_url=BASE, path_characters="/\\%")
    assert isinstance(path, RenderFailure)


@pytest.mark.rule("GT-14", "D-25", "C-018")
def test_a_declared_route_character_is_sent_encoded_once_in_its_one_segment() -> None:
    """The id `abc/1` of a Location header makes one segment where the profile says that ids hold slashes."""
    made = action(update={"path": "/things/{remote_id}"})
    assert made.update is not None
    assert update_path(made.update, profile(path_characters="/"), "abc/1") == "/things/abc%2F1"
    assert isinstance(update_path(made.update, profile(), "abc/1"), RenderFailure)


@pytest.mark.rule("C-039")
def test_an_id_of_5000_characters_still_has_a_route() -> None:
    """Length alone is no reason; the bound is that of a request line."""
    path = render_path("/things/{remote_id}", {"remote_id": "x" * 5000}, base_url=BASE)
    assert path == "/things/" + "x" * 5000


@pytest.mark.rule("GT-06", "GT-14", "SY-02")
@pytest.mark.parametrize(
    "template",
    [
        "",
        "things",
        "https://evil.example/things",
        "//evil.example/things",
        "/things//x",
        "/./things",
        "/things/..",
        "/%2e%2e/admin",
        "/a%2Fb",
        "/a%5Cb",
        "/things#x",
        "/things x",
        "/thingsä",
        "/things/{",
        "/things/}",
        "/things/{{remote_id}}",
        "/things/{+remote_id}",
        "/things/{#remote_id}",
        "/things{/remote_id}",
        "/things/{remote_id*}",
        "/things/{remote_id:3}",
        "/things/{remote_id,other}",
        "/things/{remote_id=x}",
        "/things/{}",
        "/things/{remote id}",
        "/things/{name}",
        "/things?id={remote_id}",
        "/things{?remote_id}",
    ],
)
def test_a_template_that_could_leave_the_endpoint_is_refused(template: str) -> None:
    """Only simple expressions of known variables, in path segments, below the profile's endpoint."""
    assert template_problem(template, allowed=frozenset({"remote_id"}))
    path = render_path(template, {"remote_id": "1"}, base_url=BASE)
    assert isinstance(path, RenderFailure)
    assert path.code is Code.PATH_UNUSABLE


@pytest.mark.rule("GT-06", "SY-02")
@pytest.mark.parametrize("field", ["name", "remote_id", "acme_route"])
def test_a_record_field_can_never_set_a_route(field: str) -> None:
    """A create path takes no variable at all, an update path only the durable remote id."""
    template = f"/things/{{{field}}}"
    created = render_create(action(create={"path": template}), profile(), values(name="n", acme_route="x"))
    assert isinstance(created, RenderFailure)
    if field != "remote_id":
        updated = render_update(action(update={"path": template}), profile(), values(name="n"), "1")
        assert isinstance(updated, RenderFailure)
        assert updated.code is Code.PATH_UNUSABLE


@pytest.mark.parametrize("template", ["/things/{", "/things/}", "/things/{}", "/{{remote_id}}"])
def test_braces_that_do_not_pair_are_called_so(template: str) -> None:
    """Either of them alone, or none of the two around a name."""
    assert template_problem(template, allowed=frozenset({"remote_id"})) == "its braces do not pair"


def test_a_path_may_be_as_long_as_its_bound() -> None:
    """And not a byte longer."""
    template, room = "/things/{remote_id}", paths.PATH_BYTES_MAX - len("/things/")
    assert isinstance(render_path(template, {"remote_id": "x" * room}, base_url=BASE), str)
    assert isinstance(render_path(template, {"remote_id": "x" * (room + 1)}, base_url=BASE), RenderFailure)


def test_a_variable_may_have_one_letter() -> None:
    """An association, or a variable of a profile, is called what its pack calls it."""
    assert template_problem("/{t}/things", allowed=frozenset("t")) is None
    assert render_path("/{t}/things", {"t": "9"}, base_url=BASE) == "/9/things"


@pytest.mark.rule("GT-14")
@pytest.mark.parametrize(
    ("template", "path", "keeps"),
    [
        ("/a/{x}", "/a/b", True),
        ("/a/{x}?q=1", "/a/b?q=1", True),
        ("/a/{x}", "/a/b/c", False),
        ("/a/{x}", "/b/b", False),
        ("/a/..", "/a/..", False),
        ("/a/%2e", "/a/%2e", False),
    ],
)
def test_a_rendered_path_is_compared_with_its_template_whatever_was_refused_before(
    template: str, path: str, keeps: bool
) -> None:
    """A second look behind the checks of the template and of each value, for the day on which one of them errs."""
    assert paths._keeps_route(template, path, {"x": "b"}) is keeps


@pytest.mark.parametrize("template", ["/", "/things", "/things/", "/a/b-c_d.~e!$&'()*+,;=:@", "/x?y=1&z=%20", "/a%20b"])
def test_an_honest_template_is_let_through(template: str) -> None:
    """What RFC 3986 allows in a path or a fixed query stays allowed."""
    assert template_problem(template, allowed=frozenset()) is None
    assert render_path(template, {}, base_url=BASE) == template


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "api.example.com",
        "ftp://api.example.com",
        "https://user@api.example.com",
        "https://api.example.com@evil.example",
        "https://api.example.com?x=1",
        "https://api.example.com#x",
        "https://api.example.com/a//b",
        "https://api.example.com/a/..",
        "https://api.example.com/%2e%2e",
        "https://api.example.com\\evil",
        "https://api.example.com\n",
        "https:///x",
    ],
)
def test_a_base_url_is_a_plain_address(base_url: str) -> None:
    """No user, query, fragment, empty or dot segment; the transport refuses it as the renderer does."""
    with pytest.raises(EgressRefused):
        parse_origin(base_url)
    assert isinstance(render_path("/things", {}, base_url=base_url), RenderFailure)


@pytest.mark.rule("GT-14")
@pytest.mark.parametrize(
    "path", ["", "x", "//evil.example", "/../x", "/a b", "/a#b", "/a\r\nb", "https://evil.example"]
)
def test_a_path_never_moves_the_origin(path: str) -> None:
    """The address is concatenated, never resolved, and checked again."""
    with pytest.raises(EgressRefused):
        build_url(parse_origin(BASE), path)


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.example.com", "https://api.example.com/things"),
        ("https://api.example.com/", "https://api.example.com/things"),
        ("http://127.0.0.1:8888/v1/", "http://127.0.0.1:8888/v1/things"),
        ("http://[::1]:8888", "http://[::1]:8888/things"),
    ],
)
def test_an_address_is_base_and_path(base_url: str, url: str) -> None:
    """One slash between them, whether the base ends with one or not."""
    assert str(build_url(parse_origin(base_url), "/things")) == url


def test_two_spellings_of_one_route_are_the_same_route() -> None:
    """A path segment may move between endpoint and template; another segment is another route."""
    assert same_route((BASE, "/things/{remote_id}"), ("https://api.example.com/", "/v1/things/{remote_id}"))
    assert not same_route((BASE, "/things/{remote_id}"), (BASE, "/other/{remote_id}"))


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("/things", "things"),
        ("/v1/things/", "things"),
        ("/a/{remote_id}?x=y", "a"),
        ("/{remote_id}", None),
        ("/", None),
    ],
)
def test_the_last_literal_segment_is_the_collections_name(template: str, name: str | None) -> None:
    """That name is never a remote id."""
    assert last_literal(template) == name
