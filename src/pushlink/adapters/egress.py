"""Egress: which addresses a request may reach, and what the base URL of a profile may look like.

A base URL is read here once, strictly, and refused where two parsers could disagree about it. Addresses are sorted
into four kinds by tables; the policy says which kinds are admitted. One refused address in the answer to a look-up
refuses the whole answer, and what the look-up returned is what gets connected: nobody asks twice (D-28, S4).
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

#: Turns a host name and a port into the texts of its addresses; raises `OSError` when there is no answer.
Lookup: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

#: A name that answers with more addresses than this is not a service somebody meant to push to.
ADDRESSES_MAX: Final = 64

PORT_MAX: Final = 65_535

#: How long one look-up may take. The thread that asks cannot be stopped; its caller can go on without it.
LOOKUP_S_MAX: Final = 5.0


class EgressRefused(Exception):
    """A target that must not be reached. The text names hosts and addresses, never a path, header or secret."""


class AddressKind(Enum):
    """What an address is for."""

    PUBLIC = "public"
    LOOPBACK = "loopback"
    PRIVATE = "private"
    SPECIAL = "special"  # link-local, metadata, multicast, translated, reserved: never reached


# Where cloud hosts answer for their own metadata outside the link-local ranges.
_METADATA: Final = frozenset(
    ipaddress.ip_address(text)
    for text in ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")
)
_LOOPBACK_V4: Final = IPv4Network("127.0.0.0/8")
_LOOPBACK_V6: Final = IPv6Address("::1")
_PRIVATE_V4: Final = tuple(
    IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)
_PRIVATE_V6: Final = IPv6Network("fc00::/7")
_SPECIAL_V4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "169.254.0.0/16",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
# Only this block is handed out to the public Internet; every form that carries an IPv4 address inside lies outside of
# it or in the table below, so no translated address is ever taken for a public one.
_PUBLIC_V6: Final = IPv6Network("2000::/3")
_SPECIAL_V6: Final = tuple(
    IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
)


@lru_cache(maxsize=4_096)
def address_kind(text: str) -> AddressKind:
    """The kind of one address; what is no canonical address is special."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return AddressKind.SPECIAL
    if address in _METADATA:
        return AddressKind.SPECIAL
    return _kind_v4(address) if isinstance(address, IPv4Address) else _kind_v6(address)


def _kind_v4(address: IPv4Address) -> AddressKind:
    if address in _LOOPBACK_V4:
        return AddressKind.LOOPBACK
    if any(address in network for network in _PRIVATE_V4):
        return AddressKind.PRIVATE
    if any(address in network for network in _SPECIAL_V4):
        return AddressKind.SPECIAL
    return AddressKind.PUBLIC


def _kind_v6(address: IPv6Address) -> AddressKind:
    if address.scope_id is not None:
        return AddressKind.SPECIAL
    if address == _LOOPBACK_V6:
        return AddressKind.LOOPBACK
    if address in _PRIVATE_V6:
        return AddressKind.PRIVATE
    if address not in _PUBLIC_V6 or any(address in network for network in _SPECIAL_V6):
        return AddressKind.SPECIAL
    return AddressKind.PUBLIC


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPolicy:
    """Which kinds of addresses a deployment may reach. The default reaches public addresses over TLS only.

    Plain HTTP is spoken to loopback and private addresses that are admitted; to public ones only when the deployment
    says so, because a credential would cross the network in the clear.
    """

    allow_loopback: bool = False
    allow_private: bool = False
    allow_plain_http: bool = False

    def check(self, address: str, *, scheme: str | None = None) -> None:
        """Raise `EgressRefused` unless this address may be reached, and with this scheme when one is given."""
        kind = address_kind(address)
        admitted = (
            kind is AddressKind.PUBLIC
            or (kind is AddressKind.LOOPBACK and self.allow_loopback)
            or (kind is AddressKind.PRIVATE and self.allow_private)
        )
        if not admitted:
            msg = f"{address} is a {kind.value} address, which this deployment does not reach"
            raise EgressRefused(msg)
        if scheme == "http" and kind is AddressKind.PUBLIC and not self.allow_plain_http:
            msg = f"plain HTTP to the public address {address} would show the credential to the network"
            raise EgressRefused(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A base URL that was read strictly: what a request's URL must still say after it was built."""

    scheme: str
    host: str  # lower case, no brackets
    port: int
    path: str  # prefix of every request path; empty, or it starts with a slash and does not end with one
    text: str  # the base URL, without a trailing slash
    is_address: bool


_DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_BASE_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?",
    re.ASCII,
)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)+(\?[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_DOT_SEGMENT = re.compile(r"/(\.|%2e){1,2}(?=/|$)", re.IGNORECASE)


@lru_cache(maxsize=1_024)
def parse_origin(base_url: str) -> Origin:
    """Read a base URL; raises `EgressRefused` for everything that is not plainly scheme, host, port and path."""
    match = _BASE_URL.fullmatch(base_url)
    if match is None:
        msg = (
            "a base URL is https://host, optionally with a port and a path: no user, no query, no fragment, and a host "
            "name in ASCII (an international name in its xn-- form)"
        )
        raise EgressRefused(msg)
    scheme, host = match["scheme"], match["host"].lower().strip("[]")
    port = int(match["port"]) if match["port"] else _DEFAULT_PORTS[scheme]
    if not 0 < port <= PORT_MAX:
        msg = f"{port} is no port"
        raise EgressRefused(msg)
    path = (match["path"] or "").removesuffix("/")
    _check_path(path or "/")
    return Origin(
        scheme=scheme,
        host=host,
        port=port,
        path=path,
        text=base_url.removesuffix("/") if match["path"] else base_url,
        is_address=_is_address(host, bracketed=match["host"].startswith("[")),
    )


def _is_address(host: str, *, bracketed: bool) -> bool:
    labels = host.split(".")
    if bracketed or _NUMERIC_LABEL.fullmatch(labels[-1]):
        # Resolvers read 127.1, 0x7f.1 and 2130706433 as addresses too; only the one canonical form is taken for one.
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            address = None
        if address is None or isinstance(address, IPv6Address) is not bracketed:
            msg = f"{host} is neither a host name nor an address in its canonical form"
            raise EgressRefused(msg)
        return True
    if not all(_LABEL.fullmatch(label) for label in labels):
        msg = f"{host} is no host name (no empty label, no trailing dot)"
        raise EgressRefused(msg)
    return False


def _check_path(path: str) -> None:
    if not _PATH.fullmatch(path) or _BAD_ESCAPE.search(path):
        msg = "a path starts with a slash and is percent-encoded already"
        raise EgressRefused(msg)
    hierarchy = path.partition("?")[0]
    if _DOT_SEGMENT.search(hierarchy) or "//" in hierarchy:
        msg = "a path has no empty and no dot segments"
        raise EgressRefused(msg)


@lru_cache(maxsize=1_024)
def split_url(url: str) -> tuple[str, str]:
    """A whole URL as a base and a path below it; both are checked where they are used."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}", slash + path or "/"


def build_url(origin: Origin, path: str) -> URL:
    """Concatenate, re-parse, and require the same origin and path, byte by byte; raises `EgressRefused` otherwise."""
    _check_path(path)
    url = URL(origin.text + path, encoded=True)
    same = (
        url.scheme == origin.scheme
        and (url.raw_host or "").lower() == origin.host
        and url.port == origin.port
        and url.raw_user is None
        and url.raw_password is None
        and url.raw_path_qs == origin.path + path
    )
    if not same:
        msg = f"the URL that was built does not stay within {origin.scheme}://{origin.host}:{origin.port}"
        raise EgressRefused(msg)
    return url


async def system_lookup(host: str, port: int) -> Sequence[str]:
    """Ask the operating system's resolver, in a thread."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class CheckedResolver(AbstractResolver):
    """The connector's only look-up: its answer is checked as a whole, and is what gets connected."""

    def __init__(self, policy: EgressPolicy, lookup: Lookup = system_lookup) -> None:
        self._policy = policy
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host, every one of them admitted; raises `OSError` or `EgressRefused`."""
        async with asyncio.timeout(LOOKUP_S_MAX):
            addresses = list(dict.fromkeys(await self._lookup(host, port)))
        if not addresses:
            msg = "the name has no address"
            raise socket.gaierror(socket.EAI_NONAME, msg)
        if len(addresses) > ADDRESSES_MAX:
            msg = f"{host} answers with {len(addresses)} addresses"
            raise EgressRefused(msg)
        for address in addresses:
            self._policy.check(address)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in addresses
            if family in (socket.AF_UNSPEC, socket.AF_INET6 if ":" in address else socket.AF_INET)
        ]

    async def close(self) -> None:
        """Nothing is held between look-ups."""
