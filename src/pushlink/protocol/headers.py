"""The headers of a frozen request: static, visible, and never one that the transport or the credential owns.

A header is checked when it is frozen, because a library that refuses it later does so after the checkpoint. Values are
visible ASCII with blanks inside at most, so that nothing can start a new header line. No header comes from a record; it
is a literal or a variable of the profile, and a computed one says a preference or a precondition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pushlink.errors import Code
from pushlink.protocol.body import media_type_of
from pushlink.protocol.contracts import Body, ProfileContract
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.placeholders import Unfilled, fill

#: Longer values are refused by common servers.
VALUE_BYTES_MAX: Final = 8_192

#: Framing and hop-by-hop headers are the transport's, credentials the provider's, the media type the body's.
FORBIDDEN: Final = frozenset(
    {
        "accept-encoding",
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "date",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
    }
)
_NONE: Final[Mapping[str, str]] = MappingProxyType({})

_FORBIDDEN_PREFIXES: Final = ("proxy-", "sec-")

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


def header_problem(name: str, value: str) -> str | None:
    """Why a pack may not declare this header; a linter asks here, and so does `render_headers`."""
    lowered = name.lower()
    if not _NAME.fullmatch(name):
        return "its name is no header name"
    if lowered in FORBIDDEN or lowered.startswith(_FORBIDDEN_PREFIXES):
        return "it belongs to the transport, the credential or the body"
    if not _VALUE.fullmatch(value) or len(value) > VALUE_BYTES_MAX:
        return f"its value is not 1 to {VALUE_BYTES_MAX} visible ASCII characters"
    return None


def render_headers(
    profile: ProfileContract, operation: Mapping[str, str], body: Body, computed: Mapping[str, str] = _NONE
) -> tuple[tuple[str, str], ...] | RenderFailure:
    """Profile headers, the operation's own (which win over one of the same name), computed ones, the media type."""
    static = static_headers(profile, operation)
    if isinstance(static, RenderFailure):
        return static
    chosen = {name.lower(): (name, value) for name, value in static}
    for name, value in computed.items():
        if name.lower() in chosen:
            return _failure("A header is declared and computed.", name)
        if problem := header_problem(name, value):
            return _failure(f"The header {name!r} cannot be sent: {problem}.", name)
        chosen[name.lower()] = (name, value)
    if not _VALUE.fullmatch(body.media_type):
        return _failure("The body's media type cannot be sent as a header.", "Content-Type")
    return (*chosen.values(), ("Content-Type", media_type_of(body)))


def static_headers(
    profile: ProfileContract, operation: Mapping[str, str] = _NONE
) -> tuple[tuple[str, str], ...] | RenderFailure:
    """The headers of a request that is only read with: the profile's, and the operation's own, which win.

    A value is a literal, or the name of one of the profile's variables as a whole placeholder.
    """
    chosen: dict[str, tuple[str, str]] = {}
    for declared in (profile.headers, operation):
        names = [name.lower() for name in declared]
        if len(set(names)) != len(names):
            return _failure("A header is declared twice.", None)
        for name, literal in declared.items():
            value = fill(literal, profile.variables)
            if isinstance(value, Unfilled):
                return _failure(f"The header {name!r} cannot be sent: {value.name}: {value.problem}.", name)
            if problem := header_problem(name, str(value)):
                return _failure(f"The header {name!r} cannot be sent: {problem}.", name)
            chosen[name.lower()] = (name, str(value))
    return tuple(chosen.values())


def _failure(message: str, name: str | None) -> RenderFailure:
    return RenderFailure(code=Code.FREEZE_FAILED, message=message, evidence={"header": name})
