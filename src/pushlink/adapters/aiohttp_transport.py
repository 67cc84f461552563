"""The transport over aiohttp: one request on the wire at most once, and the truth about it.

Whatever could hide a second request is off: redirects, cookies, proxies and netrc of the environment, authentication
middlewares, decompression, and the library's own re-send of idempotent methods on a stale connection (each call runs
inside a guard that lets one dispatch through and turns every error into one the library does not retry). A request
that must not reuse a connection goes through a connector that keeps none.

`request_started` is false only when the flow of control never came to the point just before the first write; the
point is `OnceRequest.send`, one step earlier than the library's own `on_request_headers_sent`, so it errs towards
"started" (D-05). One deadline covers everything from the look-up to the last byte, and ends in a closed socket.
"""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from http import HTTPStatus
from inspect import iscoroutinefunction
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from yarl import URL

from pushlink.adapters.egress import (
    CheckedResolver,
    EgressPolicy,
    EgressRefused,
    Lookup,
    build_url,
    parse_origin,
    split_url,
    system_lookup,
)
from pushlink.adapters.oauth import AccessTokens, Grant, TokenDirectory, grant_name
from pushlink.adapters.prefetch import (
    Opened,
    SessionKey,
    Sessions,
    open_session,
    prefetch_request,
    session_key,
)
from pushlink.adapters.tls import TlsContexts
from pushlink.adapters.wire import (
    REPLY_HEADERS_MAX,
    Credential,
    RequestRefused,
    check_request,
    headers_in_bounds,
    is_framed,
    keep_headers,
    present_credential,
)
from pushlink.adapters.wire_evidence import Exchange, NotWritten, Once, OnceConnector, OnceRequest
from pushlink.errors import CallerError, Code, ConfigurationError
from pushlink.flows.uptime import uptime_s
from pushlink.ports import Credentials, WireError, WireReply, WireRequest
from pushlink.protocol.contracts import Auth, Prefetch, ProfileContract

#: Bodies above this are handed over as a file, because the library warns of long byte strings.
BODY_BYTES_AT_ONCE: Final = 1_000_000

#: A token endpoint answers with a token, not with a document.
TOKEN_REPLY_BYTES_MAX: Final = 65_536

# Nothing is put on the wire that was not frozen, but for what the library must add to frame the message.
_NO_AUTOMATIC_HEADERS: Final = ("Content-Type", "User-Agent")
_OWN_HEADERS: Final = (("Accept-Encoding", "identity"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    method: str
    url: URL
    headers: list[tuple[str, str]]
    scheme: str
    tls: ssl.SSLContext


class AiohttpTransport:
    """The `Transport` of the worker. Opens its sockets on first use, in the event loop that uses it; close it there.

    `ca_file` replaces the system's certificate authorities. Certificates are always verified, from TLS 1.2 on.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        egress: EgressPolicy | None = None,
        ca_file: str | Path | None = None,
        connections_max: int = 512,
        connections_per_host_max: int = 128,
        keepalive_s: float = 10.0,
        lookup: Lookup = system_lookup,
        tokens: TokenDirectory | None = None,
        session_factory: Callable[..., aiohttp.ClientSession] = aiohttp.ClientSession,
    ) -> None:
        check_library()
        self._credentials = credentials
        self._egress = egress or EgressPolicy()
        self._tls = TlsContexts(ca_file)
        self._limits = (connections_max, connections_per_host_max)
        self._keepalive_s = keepalive_s
        self._resolver = CheckedResolver(self._egress, lookup)
        self._session_factory = session_factory
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._opened_sessions = Sessions()
        self._tokens = AccessTokens(tokens)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Open both sessions in the running loop, so that an unsafe wiring is refused before the first claim."""
        for fresh in (False, True):
            self._session(fresh=fresh)

    async def send(self, request: WireRequest) -> WireReply:
        """Send once, and say what is known. A cancellation closes the socket and is answered, not raised.

        A process that stood still is stopped twice: before anything is begun, when its checkpoint is too old, and
        before the first byte, when the call's deadline is over (timers alone would fire a moment too late).
        """
        scheme = "https"
        begun_s = uptime_s()
        exchange = Exchange(
            bound=request.profile.reply_bytes_max,
            peer_check=lambda peer: self._egress.check(peer, scheme=scheme),
            until_s=begun_s + request.profile.timeouts.total_ms / 1_000,
        )
        clean = False
        opened: tuple[SessionKey, Opened] | None = None
        used: tuple[Grant, str] | None = None
        try:
            async with asyncio.timeout(request.profile.timeouts.total_ms / 1_000):
                _refuse_late(request, begun_s)
                session = self._session(fresh=request.fresh_connection)
                used = await self._access(session, request)
                prepared = self._prepare(request, used[1] if used else None)
                scheme = prepared.scheme
                if request.profile.session is not None:
                    opened = await self._opened(session, request, request.profile.session.prefetch)
                    prepared.headers.extend(opened[1].headers)
                error, text = await self._exchange(session, prepared, request, exchange)
            clean = exchange.whole and exchange.written and not request.fresh_connection
        except RequestRefused as exc:
            error, text = exc.error, str(exc)
        except EgressRefused as exc:
            error, text = WireError.BEFORE_CONNECT, str(exc)
        except TimeoutError:
            error, text = WireError.DEADLINE, f"no complete response within {request.profile.timeouts.total_ms} ms"
        except asyncio.CancelledError:
            error, text = WireError.CANCELLED, "the call was cancelled"
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
        finally:
            if not clean:
                exchange.abort()
        reply = exchange.reply(error, text)
        if used is not None and reply.status == HTTPStatus.UNAUTHORIZED:
            self._tokens.forget(*used)
        if opened is not None and request.profile.session is not None:
            self._opened_sessions.forget_if_over(request.profile.session.prefetch, *opened, reply)
        return reply

    async def _opened(
        self, session: aiohttp.ClientSession, request: WireRequest, prefetch: Prefetch
    ) -> tuple[SessionKey, Opened]:
        """The session that the request is to carry, opened by a GET of its own where there is none.

        It ends before the first byte of the request itself, so whatever fails here is proved not sent.
        """
        key = session_key(request, prefetch, self._generation(request))
        async with self._opened_sessions.lock(key):
            known = self._opened_sessions.get(key)
            if known is not None:
                return key, known
            asked = prefetch_request(request, prefetch)
            used = await self._access(session, asked)
            prepared = self._prepare(asked, used[1] if used else None)
            exchange = Exchange(
                bound=request.profile.reply_bytes_max,
                peer_check=lambda peer: self._egress.check(peer, scheme=prepared.scheme),
            )
            try:
                error, text = await self._exchange(session, prepared, asked, exchange)
            finally:
                if not exchange.whole:
                    exchange.abort()
            if error is WireError.CERTIFICATE:
                raise RequestRefused(text, error=error)
            return key, self._opened_sessions.put(key, open_session(prefetch, exchange.status, exchange.raw))

    async def _access(self, session: aiohttp.ClientSession, request: WireRequest) -> tuple[Grant, str] | None:
        """The grant of an OAuth profile and its access token, which is asked for here where there is none.

        It ends before the first byte of the request itself, so whatever fails here is proved not sent.
        """
        profile, contract = request.profile, request.profile.auth.token
        if profile.auth.kind != "oauth2" or contract is None:
            return None
        reference, tenant = profile.credential_ref or "", request.tenant
        grant = Grant(
            name=grant_name(contract, reference, tenant, self._generation(request)),
            contract=contract,
            secret=self._secret(reference, tenant),
            client_secret=self._secret(contract.client_secret_ref, tenant) if contract.client_secret_ref else None,
        )

        async def ask(headers: tuple[tuple[str, str], ...], body: bytes) -> WireReply:
            origin, path = split_url(contract.url)
            plain = profile.model_copy(update={"base_url": origin, "auth": Auth(kind="none"), "session": None})
            asked = replace(
                request, profile=plain, method="POST", path=path, headers=(), body=body, fresh_connection=True
            )
            prepared = self._prepare(asked, None)
            prepared.headers.extend(headers)
            exchange = Exchange(
                bound=TOKEN_REPLY_BYTES_MAX,
                peer_check=lambda peer: self._egress.check(peer, scheme=prepared.scheme),
            )
            try:
                error, text = await self._exchange(self._session(fresh=True), prepared, asked, exchange)
            finally:
                if not exchange.whole:
                    exchange.abort()
            return exchange.reply(error, text)

        del session
        return grant, await self._tokens.get(grant, ask)

    def _secret(self, reference: str, tenant: str) -> str:
        try:
            return self._credentials.resolve(reference, tenant=tenant).value
        except Exception as exc:  # noqa: BLE001 - a provider may raise anything, and nothing has been sent yet
            # Only the type is told: a provider's own message may quote what it read.
            msg = f"the credential {reference} is not available ({type(exc).__name__})"
            raise RequestRefused(msg) from None

    def _generation(self, request: WireRequest) -> str:
        reference = request.profile.credential_ref
        if reference is None:
            return ""
        try:
            return self._credentials.generation(reference, tenant=request.tenant)
        except Exception as exc:  # noqa: BLE001 - a provider may raise anything, and nothing has been sent yet
            msg = f"the credential {reference} is not available ({type(exc).__name__})"
            raise RequestRefused(msg) from None

    async def close(self) -> None:
        """Release every socket; what is in flight ends without a response."""
        self._closed = True
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()
        # Sockets are closed by callbacks that the loop has yet to run.
        await asyncio.sleep(0)

    def _session(self, *, fresh: bool) -> aiohttp.ClientSession:
        if self._closed:
            msg = "the transport is closed"
            raise RequestRefused(msg)
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                msg = "a transport belongs to the event loop that used it first; make one for each loop"
                raise CallerError(msg)
            self._loop = loop
        session = self._sessions.get(fresh)
        if session is None:
            session = self._sessions[fresh] = self._open(fresh=fresh)
        return session

    def _open(self, *, fresh: bool) -> aiohttp.ClientSession:
        limit, per_host = self._limits
        connector = OnceConnector(
            ssl=self._tls.plain,
            resolver=self._resolver,
            force_close=fresh,
            keepalive_timeout=None if fresh else self._keepalive_s,
            limit=limit,
            limit_per_host=per_host,
        )
        session = self._session_factory(
            connector=connector,
            request_class=OnceRequest,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            raise_for_status=False,
            skip_auto_headers=_NO_AUTOMATIC_HEADERS,
            max_headers=REPLY_HEADERS_MAX,
        )
        refuse_unsafe(session, connector)
        return session

    def _prepare(self, request: WireRequest, access: str | None) -> _Prepared:
        profile = request.profile
        origin = parse_origin(profile.base_url)
        if origin.is_address:
            # An address never passes the resolver, so it is checked here.
            self._egress.check(origin.host, scheme=origin.scheme)
        check_request(request.method, request.headers)
        headers = [*_OWN_HEADERS, *request.headers]
        path = request.path
        tls = self._tls.plain
        if profile.auth.kind == "mtls":
            if origin.scheme != "https":
                msg = "a client certificate can be shown over https only"
                raise RequestRefused(msg)
            tls = self._tls.presenting(*self._referred(profile, request.tenant))
        elif profile.auth.kind != "none":
            credential = self._credential(profile, request.tenant, access)
            if credential.header is not None:
                if credential.header[0].lower() in {name.lower() for name, _ in headers}:
                    msg = f"the header {credential.header[0].lower()} is the credential's own"
                    raise RequestRefused(msg)
                headers.append(credential.header)
            if credential.query:
                path += ("&" if "?" in path else "?") + credential.query
        url = build_url(origin, path)
        return _Prepared(method=request.method, url=url, headers=headers, scheme=origin.scheme, tls=tls)

    def _credential(self, profile: ProfileContract, tenant: str, access: str | None) -> Credential:
        secret, reference = self._referred(profile, tenant, access)
        return present_credential(profile.auth, secret, reference)

    def _referred(self, profile: ProfileContract, tenant: str, access: str | None = None) -> tuple[str, str]:
        """The secret that a profile sends, an access token if there is one, and its reference."""
        reference = profile.credential_ref
        if reference is None:
            msg = f"the profile asks for a {profile.auth.kind} credential and names none"
            raise RequestRefused(msg)
        return access or self._secret(reference, tenant), reference

    async def _exchange(
        self, session: aiohttp.ClientSession, prepared: _Prepared, request: WireRequest, exchange: Exchange
    ) -> tuple[WireError | None, str]:
        data = io.BytesIO(request.body) if len(request.body) > BODY_BYTES_AT_ONCE else request.body or None
        response: aiohttp.ClientResponse | None = None
        try:
            response = await session.request(
                prepared.method,
                prepared.url,
                data=data,
                headers=prepared.headers,
                allow_redirects=False,
                ssl=prepared.tls,
                timeout=_client_timeout(request.profile.timeouts.connect_ms),
                middlewares=(exchange.guard,),
            )
            return await _read(response, request, exchange)
        except (EgressRefused, RequestRefused):
            raise
        except Exception as exc:  # noqa: BLE001 - whatever went wrong, the evidence of it must come back
            cause = exc.__cause__ if isinstance(exc, Once) and exc.__cause__ is not None else exc
            return _explain(cause, prepared, exchange)
        finally:
            if response is not None and not exchange.whole:
                response.close()


def _refuse_late(request: WireRequest, now_s: float) -> None:
    """Refuse a request whose permission was given too long ago: its claim may be somebody else's by now (D-12)."""
    if request.start_by_s is not None and now_s > request.start_by_s:
        msg = f"the process stood still after its checkpoint, {now_s - request.start_by_s:.1f} s longer than it may"
        raise RequestRefused(msg, error=WireError.STOOD_STILL)


async def _read(
    response: aiohttp.ClientResponse, request: WireRequest, exchange: Exchange
) -> tuple[WireError | None, str]:
    raw = response.raw_headers
    if not headers_in_bounds(raw) or response.status < HTTPStatus.OK:
        return WireError.MALFORMED, "the response has more headers than are read, or no final status"
    exchange.framed = is_framed(response.status, request.method, raw)
    exchange.headers = keep_headers(raw, request.keep_headers)
    exchange.raw = tuple(raw)
    exchange.status = response.status
    content, keeper = response.content, exchange.keeper
    while chunk := await content.readany():
        if not keeper.add(chunk):
            return None, "the body is longer than its bound"
    exchange.whole = True
    return None, ""


def _explain(cause: BaseException, prepared: _Prepared, exchange: Exchange) -> tuple[WireError, str]:
    """Where a call failed, in the words of the port. The library's messages are not used: they quote what they read."""
    name = type(cause).__name__
    match cause:
        case EgressRefused():
            return WireError.BEFORE_CONNECT, str(cause)
        case NotWritten():
            return WireError.CONNECT, str(cause)
        case aiohttp.ClientConnectorDNSError():
            return WireError.RESOLVE, f"{name}: the host name has no address"
        case aiohttp.ClientConnectorCertificateError():
            return WireError.CERTIFICATE, f"the certificate of {cause.host} is not trusted: {_mistrust(cause)}"
        case aiohttp.ClientSSLError():
            reason = getattr(cause.os_error, "reason", None)
            return WireError.TLS, f"{name}: {reason or type(cause.os_error).__name__}"
        case aiohttp.ClientConnectorError():
            os_error = cause.os_error
            where = (
                WireError.TLS
                if prepared.scheme == "https" and isinstance(os_error, ConnectionResetError | ConnectionAbortedError)
                else WireError.CONNECT
            )
            return where, f"{name}: {type(os_error).__name__}"
        case aiohttp.ConnectionTimeoutError():
            return WireError.CONNECT, f"{name}: no connection in time"
        case aiohttp.ClientResponseError():
            return WireError.MALFORMED, f"{name}: the peer did not speak HTTP as it should"
        case aiohttp.ClientPayloadError():
            return WireError.READ, f"{name}: the body ended early or was framed wrongly"
    if not exchange.started:
        return WireError.BEFORE_CONNECT, f"{name}: not sent"
    where = WireError.READ if exchange.written else WireError.WRITE
    return where, f"{name}: the connection was lost"


def _mistrust(cause: aiohttp.ClientConnectorCertificateError) -> str:
    """The verifier's own words, which come from a fixed list and quote nothing but the host that was asked for."""
    error = cause.certificate_error
    return error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else type(error).__name__


@lru_cache(maxsize=256)
def _client_timeout(connect_ms: int) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, connect=None, sock_connect=connect_ms / 1_000, sock_read=None)


def check_library() -> None:
    """Raise unless the installed HTTP library still has the two places where evidence is taken (C-002)."""
    places = (aiohttp.ClientRequest.send, aiohttp.ClientRequest.write_bytes)
    if not all(iscoroutinefunction(place) for place in places) or not aiohttp.__version__.startswith("3."):
        msg = f"aiohttp {aiohttp.__version__} gives no proof of what was sent"
        raise ConfigurationError(msg, code=Code.TRANSPORT_UNSAFE, next_step="install aiohttp 3")


#: How a session is told that is not used for sending, and when; the first that holds, later ones ask more of it.
_UNSAFE_SESSIONS: Final[tuple[tuple[str, Callable[[Any, aiohttp.TCPConnector], bool]], ...]] = (
    ("is no plain session", lambda session, _: type(session) is not aiohttp.ClientSession),
    ("uses another connector", lambda session, connector: session.connector is not connector),
    (
        "has middlewares of its own, which may send again",
        lambda session, _: bool(tuple(getattr(session, "_middlewares", ()))),
    ),
    (
        "obeys the environment, inflates bodies or raises for a status",
        lambda session, _: bool(session.trust_env or session.auto_decompress or session.raise_for_status),
    ),
    (
        "keeps cookies or credentials",
        lambda session, _: not isinstance(session.cookie_jar, aiohttp.DummyCookieJar) or session.auth is not None,
    ),
)


def refuse_unsafe(session: object, connector: aiohttp.TCPConnector) -> None:
    """Raise unless this is a plain session over our own connector: no subclass, no wrapper, no middlewares (C-002).

    A client that retries looks like a session and sends twice; nothing of the kind can be configured.
    """
    problem = next((words for words, holds in _UNSAFE_SESSIONS if holds(session, connector)), None)
    if problem:
        msg = f"the HTTP session {problem}, so it is not used for sending"
        raise ConfigurationError(
            msg, code=Code.TRANSPORT_UNSAFE, next_step="remove what wraps or configures the HTTP session"
        )
