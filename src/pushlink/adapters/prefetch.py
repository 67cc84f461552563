"""What one GET opens for the requests after it: a token from a header, and cookies. In memory only, and only here.

It is kept for each profile, tenant and credential generation, and forgotten when an answer says that it is over; the
next request opens another. Nothing of it is in a frozen request, an answer that is stored, or a message.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pushlink.adapters.wire import HEADER_VALUE_BYTES_MAX, RequestRefused
from pushlink.ports import WireReply, WireRequest
from pushlink.protocol.contracts import Prefetch
from pushlink.protocol.criteria import any_holds
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.headers import static_headers
from pushlink.protocol.paths import render_path

#: Sessions that are kept; a deployment has one for each profile and tenant.
SESSIONS_MAX: Final = 1_024

_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?", re.ASCII)
_COOKIE = re.compile(
    r"(?P<name>[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256})=(?P<value>[\x21-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*)", re.ASCII
)

#: Endpoint, path of the prefetch, credential reference, tenant, generation.
SessionKey: TypeAlias = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Opened:
    """The headers that a session adds to a request. Its `repr` shows nothing."""

    headers: tuple[tuple[str, str], ...] = field(repr=False)


class Sessions:
    """The sessions of one transport."""

    def __init__(self) -> None:
        self._kept: OrderedDict[SessionKey, Opened] = OrderedDict()
        self._opening: dict[SessionKey, asyncio.Lock] = {}

    def lock(self, key: SessionKey) -> asyncio.Lock:
        """Held while a session is opened, so that many requests at once open one."""
        return self._opening.setdefault(key, asyncio.Lock())

    def get(self, key: SessionKey) -> Opened | None:
        """The session, if one is open."""
        return self._kept.get(key)

    def put(self, key: SessionKey, opened: Opened) -> Opened:
        """Keep a session, and forget the oldest one when there are too many."""
        self._kept[key] = opened
        while len(self._kept) > SESSIONS_MAX:
            gone, _ = self._kept.popitem(last=False)
            self._opening.pop(gone, None)
        return opened

    def forget_if_over(self, prefetch: Prefetch, key: SessionKey, used: Opened, reply: WireReply) -> None:
        """Forget the session that was used when its answer says that it is over; a newer one stays."""
        if any_holds(prefetch.expired, reply) and self._kept.get(key) is used:
            del self._kept[key]


def session_key(request: WireRequest, prefetch: Prefetch, generation: str) -> SessionKey:
    """What a session belongs to: nothing that another tenant or credential could share."""
    profile = request.profile
    return (profile.base_url, prefetch.path, profile.credential_ref or "", request.tenant, generation)


def prefetch_request(request: WireRequest, prefetch: Prefetch) -> WireRequest:
    """The GET that opens a session; raises `RequestRefused` for a path that does not render."""
    profile = request.profile
    path = render_path(prefetch.path, profile.variables, base_url=profile.base_url, query=prefetch.query)
    if isinstance(path, RenderFailure):
        msg = f"the session cannot be opened: {path.message}"
        raise RequestRefused(msg)
    headers = static_headers(profile, prefetch.headers)
    if isinstance(headers, RenderFailure):
        msg = f"the session cannot be opened: {headers.message}"
        raise RequestRefused(msg)
    return WireRequest(
        profile=profile,
        tenant=request.tenant,
        method="GET",
        path=path,
        headers=headers,
        body=b"",
        fresh_connection=request.fresh_connection,
    )


def open_session(prefetch: Prefetch, status: int | None, raw: Iterable[tuple[bytes, bytes]]) -> Opened:
    """The session that an answer opens; raises `RequestRefused` when it opens none."""
    if status not in range(200, 300):
        msg = f"the session cannot be opened: its request was answered with {status or 'nothing'}"
        raise RequestRefused(msg)
    pairs = [(name.decode("latin-1").lower(), value.decode("latin-1").strip()) for name, value in raw]
    tokens = {value for name, value in pairs if name == prefetch.capture.lower()}
    if len(tokens) != 1 or not _is_sendable(token := tokens.pop()):
        msg = f"the session cannot be opened: the answer has no usable header {prefetch.capture}"
        raise RequestRefused(msg)
    headers = [(prefetch.capture, token)]
    if prefetch.cookies and (cookie := _cookies(value for name, value in pairs if name == "set-cookie")):
        headers.append(("Cookie", cookie))
    return Opened(tuple(headers))


def _cookies(values: Iterable[str]) -> str:
    """The cookies as one header; attributes are left out, for they go to the same endpoint and nowhere else."""
    jar: dict[str, str] = {}
    for value in values:
        match = _COOKIE.fullmatch(value.partition(";")[0].strip())
        if match is not None:
            jar[match["name"]] = match["value"]
    cookie = "; ".join(f"{name}={value}" for name, value in jar.items())
    return cookie if len(cookie) <= HEADER_VALUE_BYTES_MAX else ""


def _is_sendable(value: str) -> bool:
    return len(value) <= HEADER_VALUE_BYTES_MAX and _VALUE.fullmatch(value) is not None
