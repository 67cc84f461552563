"""The small languages inside a pack's texts: paths, extractors, patterns, headers, addresses, references.

Each function reads one text and yields a sentence for everything that is wrong with it; nothing is yielded for a good
one. They are no laxer than what renders and sends, so that a pack which passes here is not refused for its form later.
"""

from __future__ import annotations

import ipaddress
import re
import warnings
from collections.abc import Iterator
from typing import Final

from pushlink.protocol.extract import parse_place
from pushlink.protocol.headers import header_problem
from pushlink.protocol.paths import ROUTE_CHARACTERS, names_in_template, template_problem
from pushlink.protocol.patterns import pattern_problem

_ESCAPE_OR_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)

# What makes a request repeatable, or changes its method or target behind the back of the action.
_REPEATABLE: Final = frozenset({"idempotency-key", "x-idempotency-key", "repeatability-request-id"})
_CONDITIONAL: Final = frozenset(
    {"if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-none-exist", "if-range"}
)
_OVERRIDING: Final = frozenset(
    {
        "forwarded",
        "x-forwarded-host",
        "x-http-method",
        "x-http-method-override",
        "x-method-override",
        "x-original-url",
        "x-rewrite-url",
    }
)

_SECRET_NAME = re.compile(
    r"secret|passw(?:or)?d|api[-_]?key|access[-_]?key|private[-_]?key|auth[-_]?(?:key|token)|token|credential|signature"
    r"|session[-_]?id",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"(?:bearer|basic|token|digest) +\S{6,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*", re.IGNORECASE)

_BASE_URL = re.compile(
    r"https?://(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::(?P<port>[0-9]{1,5}))?(?P<path>/.*)?"
)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE)
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)

_ENV_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]{0,199}")
_FILE_REFERENCE = re.compile(r"file:(?:/(?!\.\.(?:/|$))[^\x00-\x1f\x7f/]*)+")

_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(?:; ?[A-Za-z0-9-]+=[A-Za-z0-9._-]+)*")


def path_problems(path: str, *, variables: frozenset[str], needed: frozenset[str] | None = None) -> Iterator[str]:
    """What is wrong with a path template that may have these variables, and must have the needed ones (or all)."""
    required = variables if needed is None else needed
    if "?" in path or "#" in path:
        yield "Remove the query or fragment: a path template is a path only, and parameters stand in `query`."
        return
    if problem := template_problem(path, allowed=variables):
        yield f"{sentence(problem)} Write a path below base_url, such as /records{''.join(_shown(required))}."
        return
    for name in sorted(required):
        if f"{{{name}}}" not in path:
            yield f"Write {{{name}}} where the id of the remote record stands: without it the path is another route."


def _shown(variables: frozenset[str]) -> Iterator[str]:
    return (f"/{{{name}}}" for name in sorted(variables))


def sentence(problem: str) -> str:
    """A problem that the protocol names in passing, as a sentence of its own."""
    return f"{problem[:1].upper()}{problem[1:].rstrip('.')}."


def path_characters_problem(characters: str) -> str | None:
    """What is wrong with the list of characters that an id may hold in a path."""
    if set(characters) <= ROUTE_CHARACTERS:
        return None
    return f"Write only those of {' '.join(sorted(ROUTE_CHARACTERS))} that ids hold; every other one is sent anyway."


def extractor_problem(source: str) -> str | None:
    """What is wrong with the source of an id."""
    place = parse_place(source)
    if place is not None and place.kind != "status":
        return None
    return "Write $response.body#/pointer/to/the/id or $response.header.Name."


def is_in_body(source: str) -> bool:
    """Whether a source of an id needs a body."""
    place = parse_place(source)
    return place is not None and place.kind == "body"


def pattern_problems(pattern: str, *, groups: int | None = None) -> Iterator[str]:
    """What is wrong with a regular expression that must match a whole text, and capture so many groups."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            problem = pattern_problem(pattern, groups=groups)
        except Warning:
            problem = "it may mean something else in a later Python; put a backslash before the doubled [ | & ~ or -"
    if problem:
        yield f"{sentence(problem)} Write it with classes and simple repeats."
        return
    bare = _ESCAPE_OR_CLASS.sub("x", pattern)
    if not (bare.startswith("^") and bare.endswith("$")) or _has_open_alternative(bare):
        yield "Anchor the pattern: start it with ^ and end it with $, and put alternatives in a group (?:a|b)."


def _has_open_alternative(bare: str) -> bool:
    depth = 0
    for character in bare:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "|" and depth == 0:
            return True
    return False


#: Headers that a pack cannot write, and why.
_NOT_FOR_PACKS: Final = (
    (_REPEATABLE, "cannot be written in a pack: the key of a request is made for each attempt."),
    (_OVERRIDING, "cannot be written in a pack: method and target are the ones that the action says."),
    (_CONDITIONAL, "cannot be written as a header: write a `precondition`, which also reads its answer."),
)


def header_problems(name: str, value: str) -> Iterator[str]:
    """What is wrong with a header that a pack sends with every request."""
    if because := next((why for names, why in _NOT_FOR_PACKS if name.lower() in names), None):
        yield f"`{name}` {because}"
    elif problem := header_problem(name, value):
        yield f"`{name}` cannot be sent: {problem}. Remove or mend it."


def secret_suspected(name: str, value: str) -> bool:
    """Whether a name, or the form of a value, says that a secret is written here in the clear."""
    return bool(value) and bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


def base_url_problems(url: str) -> Iterator[str]:
    """What is wrong with the address of a remote."""
    scheme = _SCHEME.match(url)
    if scheme is None or scheme[1] not in {"http", "https"}:
        yield "Write the whole address: it starts with https:// (or http:// for a server on this machine)."
        return
    if unknown := names_in_template(url):
        yield f"The profile has no variable {unknown[0]}. Add it to `variables`, or write the address out."
        return
    authority = url.partition("://")[2].partition("/")[0]
    problems = False
    if "@" in authority:
        problems = True
        yield "Remove the user and the password before the @: a credential is named by `credential_ref`, never written."
    if "?" in url or "#" in url:
        problems = True
        yield "Remove the query or fragment: only scheme, host, port and a base path are kept."
    if problems:
        return
    match = _BASE_URL.fullmatch(url)
    if match is None or not _is_host(match["host"]):
        yield "Write a host name in ASCII (an international one in its xn-- form), or an address in its usual form."
        return
    port_max = 65_535
    if match["port"] and not 0 < int(match["port"]) <= port_max:
        yield f"{match['port']} is no port: write 1 to {port_max}, or nothing."
    path = (match["path"] or "").removesuffix("/")
    if path:
        yield from path_problems(path, variables=frozenset())


def is_loopback_or_private(url: str) -> bool:
    """Whether a sound address names this machine or a private network, by itself and without any look-up."""
    match = _BASE_URL.fullmatch(url)
    host = match["host"].strip("[]").lower() if match else ""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _is_host(host: str) -> bool:
    labels = host.strip("[]").split(".")
    if host.startswith("[") or _NUMERIC_LABEL.fullmatch(labels[-1]):
        try:
            address = ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            return False
        return (address.version == 6) is host.startswith("[")  # noqa: PLR2004  # the version of the protocol
    return all(_LABEL.fullmatch(label) for label in labels)


def credential_ref_problem(reference: str) -> str | None:
    """What is wrong with the name of a credential."""
    named = reference.replace("{tenant}", "x")
    if _ENV_REFERENCE.fullmatch(named) or _FILE_REFERENCE.fullmatch(named):
        return None
    return "Write env:NAME for an environment variable, or file:/path for an absolute path; never the secret itself."


def media_type_problem(media_type: str) -> str | None:
    """What is wrong with a media type."""
    return None if _MEDIA_TYPE.fullmatch(media_type) else "Write a media type such as application/json."
