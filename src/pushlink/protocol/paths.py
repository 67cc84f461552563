r"""Routes: a pack's path template and a remote id become one path, or nothing is sent.

A template is RFC 6570 of level 1 and stays below the profile's endpoint: it starts with one slash and has no scheme, no
host, no empty or dot segment and no fragment. Each variable fills (part of) one segment and is percent-encoded once
with no safe characters. Encoding alone is not enough, since dots survive it and some servers decode before they route:
a value that is empty, a dot segment, or holds a control character or one of `/ \ ? # %` is refused, and the rendered
path must have the template's segments. A profile may declare that its ids hold some of those five characters. A query
is a map of names to literals and placeholders behind the path; keys may be written as OData literals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from pushlink.errors import Code
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.placeholders import CLIENT_ID, REMOTE_ID, STAMP, Unfilled, Variables, fill, name_of
from pushlink.protocol.request_contracts import KeyQuoting

#: Long enough for an id of 5,000 characters; servers refuse a request line that is much longer.
PATH_BYTES_MAX: Final = 16_384

#: The characters that may change a route once somebody decodes them.
ROUTE_CHARACTERS: Final = frozenset("/\\?#%")

_EXPRESSION: Final = re.compile(r"\{[^{}]+\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LITERAL: Final = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*")
_BASE: Final = re.compile(r"https?://[A-Za-z0-9._\-\[\]:]+(?:/[A-Za-z0-9\-._~!$&'()*+,;=:@%]+)*/?")
_SEPARATOR: Final = re.compile(r"[/\\]")
_DOTS: Final = frozenset({".", ".."})
_GUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

#: The variables that are keys of records, and so may need quotes.
_KEYS: Final = frozenset({REMOTE_ID, CLIENT_ID, STAMP})

_NO_QUERY: Final[Mapping[str, str]] = MappingProxyType({})


def template_problem(template: str, *, allowed: frozenset[str]) -> str | None:
    """What is wrong with a path template as written; a linter asks here, and so does `render_path`."""
    literal = _EXPRESSION.sub("x", template)
    route, _, query = template.partition("?")
    segments = [unquote(segment) for segment in _EXPRESSION.sub("x", route).split("/")]
    if not template.startswith("/"):
        return "a path is relative to the profile's base_url and starts with a slash"
    if "{" in literal or "}" in literal:
        return "its braces do not pair"
    if not _LITERAL.fullmatch(literal):
        return "it holds a character that a path cannot hold; a fragment has no place in it"
    if "" in segments[1:-1]:
        return "it has an empty segment"
    if any(segment in _DOTS or ROUTE_CHARACTERS & set(segment) for segment in segments):
        return "it has a dot segment or an encoded character that changes the route"
    if "{" in query:
        return "a variable stands in a path segment, never in the query"
    for name in names_in_template(template):
        if not _NAME.fullmatch(name):  # an operator, a modifier or a list of names is of another level
            return "only simple expressions such as {remote_id} are allowed"
        if name not in allowed:
            return f"the variable {name} is not known here"
    return None


def value_problem(value: str, *, path_characters: str = "") -> str | None:
    """Why `value` may not stand in a path segment, without the value itself."""
    if value == "":
        return "it is empty"
    if any(part in _DOTS for text in (value, unquote(value)) for part in _SEPARATOR.split(text)):
        return "it is a dot segment, or holds one"
    if any(character < " " or "\x7f" <= character <= "\x9f" for character in value):
        return "it holds a control character"
    if any("\ud800" <= character <= "\udfff" for character in value):
        return "it is not Unicode"
    if changing := ROUTE_CHARACTERS & set(value) - set(path_characters):
        return f"it holds {' '.join(sorted(changing))}, which may change the route"
    return None


def render_path(
    template: str,
    variables: Variables,
    *,
    base_url: str,
    path_characters: str = "",
    query: Mapping[str, str] = _NO_QUERY,
    quoting: KeyQuoting = "none",
) -> str | RenderFailure:
    """The path and query of one request, relative to `base_url` and percent-encoded.

    `quoting` is for the keys of records, `{remote_id}`, `{client_id}` and `{stamp}`; each value of `query` is a
    literal or one placeholder. What is not named in either is not looked at.
    """
    if problem := template_problem(template, allowed=frozenset(variables)):
        return _failure(Code.PATH_UNUSABLE, f"The path template cannot be used: {problem}.", template)
    spelled: dict[str, str] = {}
    for name in names_in_template(template):
        value = variables[name] or ""
        quotes = quoting if name in _KEYS else "none"
        if problem := value_problem(value, path_characters=path_characters) or _quoting_problem(value, quotes):
            return _failure(
                Code.ROUTE_UNSAFE, f"The value of {name} cannot stand in a path: {problem}.", template, name
            )
        spelled[name] = _QUOTE[quotes](value)
    path = _EXPRESSION.sub(lambda match: spelled[match[0][1:-1]], template)
    if not _keeps_route(template, path, spelled):
        return _failure(Code.ROUTE_UNSAFE, "The rendered path has other segments than its template.", template)
    rendered = _with_query(path, query, variables)
    if isinstance(rendered, RenderFailure):
        return rendered
    if len(rendered) > PATH_BYTES_MAX:
        return _failure(Code.ROUTE_UNSAFE, f"The rendered path is longer than {PATH_BYTES_MAX} bytes.", template)
    if problem := _join_problem(base_url, rendered):
        return _failure(Code.PATH_UNUSABLE, f"The path does not stay below the endpoint: {problem}.", template)
    return rendered


def names_in_template(template: str) -> tuple[str, ...]:
    """The variables of a template, in order and once each."""
    return tuple(dict.fromkeys(match[0][1:-1] for match in _EXPRESSION.finditer(template)))


def read_variable(template: str, path: str, name: str, variables: Variables, quoting: KeyQuoting) -> str | None:
    """The value that one variable has in a rendered path, given those of the others; `None` when the path is another.

    The inverse of `render_path`: what is frozen in a path need not be kept beside it.
    """
    parts = []
    for literal, expression in _pieces(template.partition("?")[0]):
        parts.append(re.escape(literal))
        if expression == name:
            parts.append("(?P=key)" if "(?P<key>" in "".join(parts) else "(?P<key>[^/?]+)")
        elif expression:
            parts.append(re.escape(quote(variables.get(expression) or "", safe="")))
    match = re.fullmatch("".join(parts), path.partition("?")[0])
    if match is None or "key" not in match.re.groupindex:
        return None
    key = match["key"]
    if quoting != "odata_string":
        return unquote(key)
    return unquote(key[1:-1]).replace("''", "'")


def _pieces(template: str) -> Iterator[tuple[str, str]]:
    """Literal text and the variable behind it; the last piece has none."""
    end = 0
    for match in _EXPRESSION.finditer(template):
        yield template[end : match.start()], match[0][1:-1]
        end = match.end()
    yield template[end:], ""


def query_problem(name: str, value: str, *, allowed: frozenset[str]) -> str | None:
    """What is wrong with one entry of a query as written; a linter asks here."""
    if not name or not name.isprintable() or not value.isprintable():
        return "a name or value is empty or holds a control character"
    variable = name_of(value)
    if variable is None:
        return "a value is a literal or one whole placeholder" if "{" in value or "}" in value else None
    return None if variable in allowed else f"the variable {variable} is not known here"


def _with_query(path: str, query: Mapping[str, str], variables: Variables) -> str | RenderFailure:
    pairs = []
    for name, literal in query.items():
        value = fill(literal, variables)
        if isinstance(value, Unfilled):
            return _failure(Code.FREEZE_FAILED, f"{value.name} cannot be sent: {value.problem}.", path, name)
        text = str(value)
        if not text or any("\ud800" <= character <= "\udfff" for character in text):
            return _failure(Code.ROUTE_UNSAFE, f"The value of {name} is empty or no Unicode.", path, name)
        pairs.append(f"{quote(name, safe='$')}={quote(text, safe='')}")
    if not pairs:
        return path
    return path + ("&" if "?" in path else "?") + "&".join(pairs)


def _quoting_problem(value: str, quoting: KeyQuoting) -> str | None:
    if quoting == "odata_guid" and not _GUID.fullmatch(value):
        return "it is no GUID"
    return None


def _quote_string(value: str) -> str:
    """An OData text literal: its quotes are doubled before anything is percent-encoded."""
    doubled = value.replace("'", "''")
    return f"'{quote(doubled, safe='')}'"


_QUOTE: Final[Mapping[KeyQuoting, Callable[[str], str]]] = {
    "none": lambda value: quote(value, safe=""),
    "odata_string": _quote_string,
    "odata_guid": lambda value: value,
}


def route_text(
    template: str, *, variables: Mapping[str, str], query: Mapping[str, str], quoting: KeyQuoting = "none"
) -> str:
    """A route as one text to compare: what the profile's variables say stands in it, the record's keys stay names."""
    known = _EXPRESSION.sub(lambda match: variables.get(match[0][1:-1], match[0]), template)
    asked = "".join(f"&{name}={variables.get(name_of(text) or '', text)}" for name, text in query.items())
    return known + asked + ("" if quoting == "none" else f"#{quoting}")


def same_route(frozen: tuple[str, str], current: tuple[str, str]) -> bool:
    """Whether two pairs of base_url and route render to the same address for every remote id (DR-16)."""
    return _address(*frozen) == _address(*current)


def last_literal(template: str) -> str | None:
    """The last literal segment of a path: the collection's own name, which is never a remote id (D-25)."""
    literals = [segment for segment in template.partition("?")[0].split("/") if segment and "{" not in segment]
    return unquote(literals[-1]) if literals else None


def _address(base_url: str, template: str) -> str:
    return base_url.removesuffix("/") + template


def _keeps_route(template: str, path: str, spelled: Mapping[str, str]) -> bool:
    """Whether the path has the template's segments, each with its own values in it, and none of them leads up."""
    wanted = [
        _EXPRESSION.sub(lambda match: spelled[match[0][1:-1]], segment)
        for segment in template.partition("?")[0].split("/")
    ]
    segments = path.partition("?")[0].split("/")
    return segments == wanted and not any(unquote(part) in _DOTS for part in segments)


def _join_problem(base_url: str, path: str) -> str | None:
    """Why a rendered path, which keeps the route of its template, is not below the base all the same."""
    if not _BASE.fullmatch(base_url):
        return "base_url is not a plain http or https address without user, query, fragment and empty segments"
    base = urlsplit(base_url)
    if any(unquote(segment) in _DOTS for segment in base.path.split("/")):
        return "base_url has a dot segment"
    joined = urlsplit(base_url.removesuffix("/") + path)
    wanted = (base.scheme, base.netloc, base.path.removesuffix("/") + path.partition("?")[0], "")
    if (joined.scheme, joined.netloc, joined.path, joined.fragment) != wanted:
        return "the joined address has another origin or route"
    return None


def _failure(code: Code, message: str, template: str, variable: str | None = None) -> RenderFailure:
    return RenderFailure(code=code, message=message, evidence={"template": template, "variable": variable})
