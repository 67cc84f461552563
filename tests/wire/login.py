"""A token endpoint that rotates, an API behind it, and who brings the grant: for tests of OAuth 2."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from pushlink.ports import Secret

SEED, CLIENT_SECRET = "canary-refresh-token-0", "canary-client-secret"


@dataclass
class Login:
    """A token endpoint that rotates, and an API behind it. It counts, and can lose an answer or refuse."""

    refresh_token: str = SEED
    access_token: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    served: int = 0
    updated: int = 0
    refused: int = 0
    loses: bool = False
    locked: bool = False  # refuse every access token
    answers: int = 200
    lifetime: int = 3600
    account: str = "ours"
    base: str = ""

    async def token(self, request: web.Request) -> web.StreamResponse:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.asked.append(form)
        self.headers.append(request.headers.get("Authorization", ""))
        if self.answers != 200:
            return web.json_response({"error": "invalid_grant"}, status=self.answers)
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] != self.refresh_token:
                return web.json_response({"error": "invalid_grant"}, status=400)
            self.refresh_token = f"canary-refresh-token-{len(self.asked)}"
        self.access_token = f"canary-access-token-{len(self.asked)}"
        await asyncio.sleep(0.05)  # long enough for many to ask at once
        if self.loses and request.transport is not None:
            request.transport.abort()
        rotated = {"refresh_token": self.refresh_token} if form["grant_type"] == "refresh_token" else {}
        answer = {"access_token": self.access_token, "expires_in": self.lifetime, "account": {"id": self.account}}
        return web.json_response(answer | rotated)

    async def create(self, request: web.Request) -> web.StreamResponse:
        if not self._knows(request):
            return self._refuse()
        self.served += 1
        return web.json_response({"id": self.served}, status=201)

    async def update(self, request: web.Request) -> web.StreamResponse:
        if not self._knows(request):
            return self._refuse()
        self.updated += 1
        return web.json_response({"id": int(request.match_info["id"])})

    def _knows(self, request: web.Request) -> bool:
        return not self.locked and request.headers.get("Authorization") == f"Bearer {self.access_token}"

    def _refuse(self) -> web.StreamResponse:
        self.refused += 1
        return web.json_response({}, status=401, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})


@asynccontextmanager
async def serving(login: Login) -> AsyncIterator[Login]:
    """The server on loopback."""
    app = web.Application()
    app.router.add_post("/oauth/token", login.token)
    app.router.add_post("/people", login.create)
    app.router.add_patch("/people/{id}", login.update)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    login.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield login
    finally:
        await runner.cleanup()


class Secrets:
    """The grant and the client's secret, under a generation that only somebody who brings another grant changes."""

    def __init__(self, grant: str = SEED, generation: str = "generation-1") -> None:
        self.grant, self.current = grant, generation

    def generation(self, reference: str, *, tenant: str) -> str:
        return self.current

    def resolve(self, reference: str, *, tenant: str) -> Secret:
        value = CLIENT_SECRET if reference == "env:CLIENT" else self.grant
        return Secret(value=value, generation=self.current)
