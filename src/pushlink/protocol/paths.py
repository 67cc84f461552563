r"""Routes: a pack's path template and a remote id become one path, or nothing is sent.

A template is RFC 6570 of level 1 and stays below the profile's endpoint: it starts with one slash and has no scheme, no
host, no empty or dot segment and no fragment. Each variable fills (part of) one segment and is percent-encoded once
with no safe characters. Encoding alone is not enough, since dots survive it and some servers decode before they route:
a value that is empty, a dot segment, or holds a control character or one of `/ \ ? # %` is refused, and the rendered
path must have the template's segments. A profile may declare that its ids hold some of those five characters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from uritemplate import URITemplate
from uritemplate.variable import Operator

from pushlink.errors import Code, ConfigurationError
from pushlink.protocol.failures import RenderFailure

#: Long enough for an id of 5,000 characters; servers refuse a request line that is much longer.
PATH_BYTES_MAX: Final = 16_384

#: The characters that may change a route once somebody decodes them.
ROUTE_CHARACTERS: Final = frozenset("/\\?#%")

_EXPRESSION: Final = re.compile(r"\{[^{}]*\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LITERAL: Final = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*")
_BASE: Final = re.compile(r"https?://[A-Za-z0-9._\-\[\]:]+(?:/[A-Za-z0-9\-._~!$&'()*+,;=:@%]+)*/?")
_SEPARATOR: Final = re.compile(r"[/\\]")
_DOTS: Final = frozenset({".", ".."})


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
    if not all(_NAME.fullmatch(expression[1:-1]) for expression in _EXPRESSION.findall(template)):
        return "only simple expressions such as {remote_id} are allowed"
    for variable in URITemplate(template).variables:
        plain = variable.operator is Operator.default and len(variable.variables) == 1 and not variable.defaults
        if not plain or variable.original not in variable.variable_names or not _NAME.fullmatch(variable.original):
            return "only simple expressions such as {remote_id} are allowed"
        if variable.original not in allowed:
            return f"the variable {variable.original} is not known here"
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
    template: str, variables: Mapping[str, str], *, base_url: str, path_characters: str = ""
) -> str | RenderFailure:
    """The path of one request, relative to `base_url` and percent-encoded; every variable must be declared and used."""
    if problem := template_problem(template, allowed=frozenset(variables)):
        return _failure(Code.PATH_UNUSABLE, f"The path template cannot be used: {problem}.", template)
    for name, value in variables.items():
        if problem := value_problem(value, path_characters=path_characters):
            return _failure(
                Code.ROUTE_UNSAFE, f"The value of {name} cannot stand in a path: {problem}.", template, name
            )
    path = URITemplate(template).expand({**variables})
    if len(path) > PATH_BYTES_MAX:
        return _failure(Code.ROUTE_UNSAFE, f"The rendered path is longer than {PATH_BYTES_MAX} bytes.", template)
    if not _keeps_route(template, path, variables):
        return _failure(Code.ROUTE_UNSAFE, "The rendered path has other segments than its template.", template)
    if problem := _join_problem(base_url, path):
        return _failure(Code.PATH_UNUSABLE, f"The path does not stay below the endpoint: {problem}.", template)
    return path


def join_url(base_url: str, path: str) -> str:
    """The URL of one request by strict concatenation; raises `ConfigurationError` if it leaves the endpoint."""
    if problem := _join_problem(base_url, path):
        raise ConfigurationError(
            f"This path may not be sent below the profile's endpoint: {problem}.",
            code=Code.TRANSPORT_UNSAFE,
            evidence={"base_url": base_url},
            next_step="mend base_url or the path template of the pack",
        )
    return base_url.removesuffix("/") + path


def same_route(frozen: tuple[str, str], current: tuple[str, str]) -> bool:
    """Whether two pairs of base_url and template render to the same address for every remote id (DR-16)."""
    return _address(*frozen) == _address(*current)


def last_literal(template: str) -> str | None:
    """The last literal segment of a path: the collection's own name, which is never a remote id (D-25)."""
    literals = [segment for segment in template.partition("?")[0].split("/") if segment and "{" not in segment]
    return unquote(literals[-1]) if literals else None


def _address(base_url: str, template: str) -> str:
    return _EXPRESSION.sub("{}", base_url.removesuffix("/") + template)


def _keeps_route(template: str, path: str, variables: Mapping[str, str]) -> bool:
    route, _, query = template.partition("?")
    rendered, _, rendered_query = path.partition("?")
    wanted = [
        _EXPRESSION.sub(lambda match: quote(variables[match[0][1:-1]], safe=""), segment)
        for segment in route.split("/")
    ]
    segments = rendered.split("/")
    return query == rendered_query and segments == wanted and not any(unquote(part) in _DOTS for part in segments)


def _join_problem(base_url: str, path: str) -> str | None:
    if not _BASE.fullmatch(base_url):
        return "base_url is not a plain http or https address without user, query, fragment and empty segments"
    base = urlsplit(base_url)
    if any(unquote(segment) in _DOTS for segment in base.path.split("/")):
        return "base_url has a dot segment"
    if not path.startswith("/") or path.startswith("//") or not _LITERAL.fullmatch(path):
        return "the path does not start with exactly one slash, or holds a character that a path cannot hold"
    if any(unquote(segment) in _DOTS for segment in path.partition("?")[0].split("/")):
        return "the path has a dot segment"
    joined = urlsplit(base_url.removesuffix("/") + path)
    wanted = (base.scheme, base.netloc, base.path.removesuffix("/") + path.partition("?")[0], "")
    if (joined.scheme, joined.netloc, joined.path, joined.fragment) != wanted:
        return "the joined address has another origin or route"
    return None


def _failure(code: Code, message: str, template: str, variable: str | None = None) -> RenderFailure:
    return RenderFailure(code=code, message=message, evidence={"template": template, "variable": variable})
