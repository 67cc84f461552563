"""What goes out and what is kept of what comes back, independent of the HTTP library.

Outgoing headers are checked before anything is connected, so that a bad one is proved not sent. Of a reply only
allow-listed headers are kept, the body is hashed whole and kept up to a bound, and a body counts as complete only when
its own framing says so (S6, S10).
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from pushlink.protocol.contracts import Auth
from pushlink.protocol.evidence import WireError

#: Bounds of one header, and of all headers of a reply together (S6, S10).
HEADER_VALUE_BYTES_MAX: Final = 8_192
REPLY_HEADERS_MAX: Final = 100
REPLY_HEADER_BYTES_MAX: Final = 65_536

#: A body longer than its bound is read and hashed up to this many times the bound, then the connection is cut.
READ_MULTIPLE: Final = 4

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}", re.ASCII)
_VALUE = re.compile(r"[\x20-\x7e\t]*", re.ASCII)
_SECRET = re.compile(r"[\x21-\x7e]{1,8000}", re.ASCII)
_METHOD = re.compile(r"[A-Z]{1,16}", re.ASCII)

# What frames a message, names its target or authenticates it is the transport's own.
_OWN_HEADERS: Final = frozenset(
    (
        *("accept-encoding", "authorization", "connection", "content-length", "cookie", "cookie2", "expect", "host"),
        *("keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "via", "x-forwarded-host"),
    )
)

_KEPT_HEADERS: Final = frozenset(
    (
        *("content-type", "content-length", "content-encoding", "location", "etag", "last-modified", "retry-after"),
        *("date", "x-request-id", "request-id", "www-authenticate"),
    )
)
_KEPT_PREFIXES: Final = ("ratelimit", "x-ratelimit", "x-rate-limit")
# No contract can ask for these: they are credentials of somebody.
_NEVER_KEPT: Final = frozenset(["set-cookie", "set-cookie2", "authorization", "proxy-authorization", "cookie"])

_BODILESS: Final = frozenset([204, 205, 304])


class RequestRefused(Exception):
    """A request that must not be sent as it is. The text names a header or reference, never a value."""

    def __init__(self, message: str, *, error: WireError = WireError.BEFORE_CONNECT) -> None:
        super().__init__(message)
        self.error = error


def check_request(method: str, headers: Sequence[tuple[str, str]]) -> None:
    """Raise `RequestRefused` for a method or header that could change the framing, the target or the credential."""
    if not _METHOD.fullmatch(method):
        msg = "the method is no token in capitals"
        raise RequestRefused(msg)
    seen: set[str] = set()
    for name, value in headers:
        lower = name.lower()
        if not _TOKEN.fullmatch(name):
            msg = "a header's name is no token"
            raise RequestRefused(msg)
        if lower in _OWN_HEADERS or lower.startswith("proxy-"):
            msg = f"the header {lower} is the transport's own"
            raise RequestRefused(msg)
        if lower in seen:
            msg = f"the header {lower} is there twice"
            raise RequestRefused(msg)
        seen.add(lower)
        if len(value) > HEADER_VALUE_BYTES_MAX or not _VALUE.fullmatch(value) or value != value.strip():
            msg = f"the value of the header {lower} is too long, or has characters that a header cannot carry"
            raise RequestRefused(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A secret as it goes onto one request: a header, or a parameter of the query. Its `repr` shows nothing."""

    header: tuple[str, str] | None = field(default=None, repr=False)
    query: str = field(default="", repr=False)


def present_credential(auth: Auth, secret: str, reference: str) -> Credential:
    """The secret as the profile's `auth` presents it; raises `RequestRefused` for one that cannot be carried so."""
    if auth.kind == "basic":
        return Credential(header=("Authorization", "Basic " + _basic(auth, secret, reference)))
    if not _SECRET.fullmatch(secret):
        msg = f"the credential {reference} is empty, too long, or has characters that a header cannot carry"
        raise RequestRefused(msg)
    if auth.kind in ("bearer", "oauth2"):
        return Credential(header=("Authorization", f"{auth.prefix} {secret}" if auth.prefix else secret))
    if auth.name is None:
        msg = "the profile asks for an API key and does not say where it goes"
        raise RequestRefused(msg)
    if auth.location == "header":
        return Credential(header=(auth.name, secret))
    return Credential(query=f"{quote(auth.name, safe='')}={quote(secret, safe='')}")


def _basic(auth: Auth, secret: str, reference: str) -> str:
    """User and password of RFC 7617, encoded. A user with a colon could not be told from its password."""
    if auth.secret_is == "username":  # noqa: S105 - which half of the pair the secret is
        user, password = secret, ""
    elif auth.username is not None:
        user, password = auth.username, secret
    else:
        user, _, password = secret.partition(":")
    if not user or ":" in user or any(ord(character) < 32 for character in user + password):  # noqa: PLR2004 - controls
        msg = f"the credential {reference} is no user and password that a header can carry"
        raise RequestRefused(msg)
    return base64.b64encode(f"{user}:{password}".encode()).decode("ascii")


def keep_headers(raw: Iterable[tuple[bytes, bytes]], also: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The allow-listed headers of a reply in their order, names in lower case, values as text."""
    wanted = _wanted_headers(tuple(also))
    kept: list[tuple[str, str]] = []
    for raw_name, raw_value in raw:
        name = raw_name.decode("latin-1").lower()
        if name in wanted or name.startswith(_KEPT_PREFIXES):
            value = _header_text(raw_value)
            # A challenge may repeat what was sent; its scheme is all that anybody needs.
            kept.append((name, value.split(" ", 1)[0] if name == "www-authenticate" else value))
    return tuple(kept)


@lru_cache(maxsize=256)
def _wanted_headers(also: tuple[str, ...]) -> frozenset[str]:
    return _KEPT_HEADERS.union(name.lower() for name in also) - _NEVER_KEPT


def _header_text(raw: bytes) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return text.replace("\x00", "").strip(" \t")


def headers_in_bounds(raw: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether a reply's headers are few and short enough to be read."""
    return (
        len(raw) <= REPLY_HEADERS_MAX
        and sum(len(name) + len(value) + 4 for name, value in raw) <= REPLY_HEADER_BYTES_MAX
    )


def is_framed(status: int, method: str, raw: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the end of the body can be told from a lost connection: a length, chunks, or no body at all."""
    if method == "HEAD" or status in _BODILESS:
        return True
    lengths: set[bytes] = set()
    codings: list[bytes] = []
    for raw_name, value in raw:
        name = raw_name.lower()
        if name == b"content-length":
            lengths.add(value.strip())
        elif name == b"transfer-encoding":
            codings.append(value.strip().lower())
    if codings:
        return codings == [b"chunked"] and not lengths
    return len(lengths) == 1


class BodyKeeper:
    """Collects a body: hashes all of it, keeps a prefix, and says when enough was read."""

    __slots__ = ("_chunks", "_hash", "_kept", "bound", "size")

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self._chunks: list[bytes] = []
        self._kept = 0
        self._hash = hashlib.sha256()
        self.size = 0

    def add(self, chunk: bytes) -> bool:
        """Take a chunk; `False` when no more should be read."""
        self._hash.update(chunk)
        self.size += len(chunk)
        if (room := self.bound - self._kept) > 0:
            self._chunks.append(chunk[:room] if len(chunk) > room else chunk)
            self._kept += len(self._chunks[-1])
        return self.size <= self.bound * READ_MULTIPLE

    @property
    def prefix(self) -> bytes:
        """What is kept."""
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    @property
    def digest(self) -> str:
        """SHA-256 of everything that was read, in hexadecimal."""
        return self._hash.hexdigest() if self.size else ""

    @property
    def is_whole(self) -> bool:
        """Whether everything that was read is kept."""
        return self.size == self._kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A body without its content coding; `problem` says why it is not complete, or is empty."""

    body: bytes
    problem: str = ""


def decode_body(body: bytes, codings: Sequence[str], bound: int) -> Decoded:
    """Undo a content coding that nobody asked for, up to a bound. What cannot be undone is kept as it came."""
    names = [name for coding in codings for part in coding.split(",") if (name := part.strip().lower())]
    if not names or names == ["identity"] or not body:
        return Decoded(body=body)
    match names:
        case ["gzip" | "x-gzip"]:
            return _inflate(body, zlib.MAX_WBITS | 16, bound)
        case ["deflate"]:
            wrapped = body[0] & 0x0F == zlib.DEFLATED  # written with and without the wrapper of RFC 1950
            return _inflate(body, zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS, bound)
    return Decoded(body=body, problem="the body has a content coding that was not asked for")


def _inflate(body: bytes, window_bits: int, bound: int) -> Decoded:
    inflater = zlib.decompressobj(window_bits)
    try:
        inflated = inflater.decompress(body, bound + 1)
    except zlib.error:
        return Decoded(body=body, problem="the compressed body is damaged")
    if len(inflated) > bound:
        return Decoded(body=inflated[:bound], problem="the inflated body is longer than its bound")
    if not inflater.eof or inflater.unused_data:
        return Decoded(body=inflated, problem="the compressed body does not end where it should")
    return Decoded(body=inflated)
