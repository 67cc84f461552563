"""OAuth 2 access tokens: asked for once by all processes of a machine, and kept apart from the database.

The grant is what `credential_ref` names: a client's secret, or a refresh token. An access token lives for an hour and
is no part of the grant, so it changes no generation. To use a refresh token that rotates is a write that nobody may
repeat blindly: before it is used a mark is made durable beside it, and whoever finds that mark without an answer does
not know whether the token was burnt. Such a grant is parked until somebody brings another one, unless the profile says
that an old token stays good.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from pushlink.adapters.wire import RequestRefused
from pushlink.ports import WireError, WireReply
from pushlink.protocol.contracts import TokenRequest
from pushlink.protocol.criteria import all_hold

_FORMAT: Final = 1
_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
#: How often a lock that another process holds is tried, in seconds; the request's own deadline ends the wait.
_LOCK_PAUSE_S: Final = 0.05
#: How long a token is used whose answer does not say it.
_LIFETIME_S: Final = 300.0
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,8192}")
#: Answers that prove that the grant was not used; a refresh token is as good as before.
_NOT_USED: Final = frozenset({429, 503})

#: Sends one form to the token endpoint and answers with what came back.
Ask = Callable[[tuple[tuple[str, str], ...], bytes], Awaitable[WireReply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One grant of one tenant: what it is called in files, how it is used, and its secrets."""

    name: str
    contract: TokenRequest
    secret: str = field(repr=False)
    client_secret: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is known of a grant. `is_asking` stands while nobody knows what became of a request."""

    access_token: str | None = field(default=None, repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_at: float = 0.0  # seconds since 1970
    is_asking: bool = False

    def usable(self, now: float, margin_s: float) -> str | None:
        """The access token, while it lasts a little longer."""
        return self.access_token if self.expires_at - margin_s > now else None


def grant_name(contract: TokenRequest, reference: str, tenant: str, generation: str) -> str:
    """A name that says nothing, and differs wherever the grant or its use does.

    What an answer is held against is no part of it: a check that is added must not lose a token that has rotated.
    """
    parts = [reference, tenant, generation, contract.model_dump_json(by_alias=True, exclude={"same_account"})]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class TokenDirectory:
    """Tokens in files that belong to the worker's user alone, each replaced whole and durably."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """One process at a time for one grant; a process that dies gives its turn up."""
        self._path.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        descriptor = os.open(self._path / f"{name}.lock", os.O_RDWR | os.O_CREAT, _FILE_MODE)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(_LOCK_PAUSE_S)
            yield
        finally:
            os.close(descriptor)

    def read(self, name: str) -> Kept:
        """What is kept; raises `RequestRefused` for a file that somebody else may use or nobody can read."""
        path = self._path / f"{name}.json"
        try:
            if path.stat().st_mode & 0o077:
                msg = "a token file can be used by others than its owner"
                raise RequestRefused(msg)
            content = json.loads(path.read_text(encoding="utf-8"))
            if content.pop("format") != _FORMAT:
                msg = "a token file is of another release"
                raise RequestRefused(msg)
            return Kept(**content)
        except FileNotFoundError:
            return Kept()
        except (OSError, ValueError, TypeError, KeyError) as exc:
            msg = f"a token file cannot be read ({type(exc).__name__})"
            raise RequestRefused(msg) from None

    def write(self, name: str, kept: Kept) -> None:
        """Keep it durably; raises `RequestRefused` when the disk does not take it."""
        document = {"format": _FORMAT} | {part: getattr(kept, part) for part in Kept.__slots__}
        beside = self._path / f".{name}.{os.getpid()}"
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                os.fchmod(descriptor, _FILE_MODE)
                stream.write(json.dumps(document))
                stream.flush()
                os.fsync(descriptor)
            beside.replace(self._path / f"{name}.json")
            directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as exc:
            msg = f"a token file cannot be written ({type(exc).__name__})"
            raise RequestRefused(msg) from None


class AccessTokens:
    """The access tokens of one transport."""

    def __init__(self, directory: TokenDirectory | None, *, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._clock = clock
        self._kept: dict[str, Kept] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def get(self, grant: Grant, ask: Ask) -> str:
        """A token that lasts a little longer; raises `RequestRefused`, with an error of its own for a lost grant."""
        margin_s = grant.contract.early_ms / 1_000
        if (known := self._kept.get(grant.name, Kept()).usable(self._clock(), margin_s)) is not None:
            return known
        async with self._turns.setdefault(grant.name, asyncio.Lock()):
            if self._directory is None:
                if grant.contract.grant == "refresh_token" and not grant.contract.old_stays_good:
                    msg = "a refresh token that rotates needs token_directory in the settings"
                    raise RequestRefused(msg)
                return await self._get(grant, ask, margin_s)
            async with self._directory.turn(grant.name):
                return await self._get(grant, ask, margin_s)

    def forget(self, grant: Grant, token: str) -> None:
        """Use this token no more: the remote refused it. A newer one stays."""
        kept = self._read(grant.name)
        if kept.access_token == token:
            self._write(grant.name, replace(kept, access_token=None, expires_at=0.0))
        elif self._kept.get(grant.name, Kept()).access_token == token:
            self._kept.pop(grant.name)

    async def _get(self, grant: Grant, ask: Ask, margin_s: float) -> str:
        kept = self._read(grant.name)
        if (known := kept.usable(self._clock(), margin_s)) is not None:
            self._kept[grant.name] = kept
            return known
        burns = grant.contract.grant == "refresh_token" and not grant.contract.old_stays_good
        if burns and kept.is_asking:
            raise _lost("nobody knows whether its last use was answered")
        if burns:
            self._write(grant.name, replace(kept, is_asking=True))
        reply = await ask(*_form(grant, kept.refresh_token or grant.secret))
        answer = _answer(reply)
        if answer is not None:
            fresh = Kept(
                access_token=answer["access_token"],
                refresh_token=answer.get("refresh_token") or kept.refresh_token,
                expires_at=self._clock() + answer["expires_in"],
            )
            if not all_hold(grant.contract.same_account, reply):
                # The refresh token has rotated all the same; what is not used is the access to somebody else's account.
                self._write(grant.name, replace(fresh, access_token=None, expires_at=0.0))
                raise _lost("its token is for another account than the profile's `same_account` names")
            self._write(grant.name, fresh)
            return str(fresh.access_token)
        if not reply.trace.request_started or reply.status in _NOT_USED:
            self._write(grant.name, kept)
            msg = f"no access token could be had: {reply.status or reply.error}"
            raise RequestRefused(msg)
        if reply.status in range(400, 500):
            self._write(grant.name, kept)
            raise _lost(f"the token endpoint refused it with {reply.status}")
        if burns:
            raise _lost(f"its last use was answered with {reply.status or reply.error}")
        msg = f"no access token could be had: {reply.status or reply.error}"
        raise RequestRefused(msg)

    def _read(self, name: str) -> Kept:
        return self._kept.get(name, Kept()) if self._directory is None else self._directory.read(name)

    def _write(self, name: str, kept: Kept) -> None:
        if self._directory is not None:
            self._directory.write(name, kept)
        self._kept[name] = kept


def _lost(why: str) -> RequestRefused:
    return RequestRefused(f"the grant cannot be used: {why}", error=WireError.CREDENTIAL)


def _form(grant: Grant, secret: str) -> tuple[tuple[tuple[str, str], ...], bytes]:
    """Headers and body of the request (RFC 6749, sections 2.3.1, 4.4.2 and 6)."""
    contract = grant.contract
    is_refresh = contract.grant == "refresh_token"
    client_secret = grant.client_secret if is_refresh else secret
    fields: dict[str, str] = {"grant_type": contract.grant}
    if is_refresh:
        fields["refresh_token"] = secret
    fields |= {name: value for name, value in (("scope", contract.scope), ("audience", contract.audience)) if value}
    headers = [("Content-Type", "application/x-www-form-urlencoded"), ("Accept", "application/json")]
    if contract.client_auth == "post":
        fields["client_id"] = contract.client_id
        if client_secret is not None:
            fields["client_secret"] = client_secret
    else:
        pair = f"{quote(contract.client_id, safe='')}:{quote(client_secret or '', safe='')}"
        headers.append(("Authorization", "Basic " + base64.b64encode(pair.encode()).decode("ascii")))
    return tuple(headers), urlencode(fields).encode()


def _answer(reply: WireReply) -> dict[str, Any] | None:
    """The token of a whole 200, with its lifetime in seconds; `None` for anything else."""
    if reply.status != 200 or not reply.body_complete:  # noqa: PLR2004 - RFC 6749, section 5.1
        return None
    try:
        answer = json.loads(reply.body)
    except ValueError:
        return None
    if not isinstance(answer, dict):
        return None
    token, lifetime, rotated = answer.get("access_token"), answer.get("expires_in"), answer.get("refresh_token")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        return None
    if rotated is not None and (not isinstance(rotated, str) or not _TOKEN.fullmatch(rotated)):
        return None
    lasts_s = float(lifetime) if isinstance(lifetime, int) and not isinstance(lifetime, bool) else _LIFETIME_S
    return {"access_token": token, "refresh_token": rotated, "expires_in": lasts_s}
