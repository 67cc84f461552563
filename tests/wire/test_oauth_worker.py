"""An access token that ends, through a whole worker: real sockets, a real token endpoint, and a mended grant."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from flows.stage import HOST, PERSON, pack_with, profile_of
from pushlink.bootstrap import Parts
from pushlink.protocol.states import AttemptStatus, Hold
from pushlink.store.tables import credential_state, push_attempt, remote_link
from pushlink.testing.drain import drain, open_runtime
from wire.login import Login, Secrets, serving


def pack_for(login: Login) -> dict[str, Any]:
    """The pack of people, whose profile refreshes at this endpoint; another grant of the same account is waived."""
    token = {
        "url": f"{login.base}/oauth/token",
        "client_id": "us",
        "client_secret_ref": "env:CLIENT",
        "grant": "refresh_token",
    }
    return pack_with(
        lambda d: profile_of(d).update(
            base_url=login.base,
            credential_ref="env:GRANT",
            auth={"kind": "oauth2", "token": token},
            timeouts={"connect": "2s", "total": "5s"},
            retry={"backoff": {"base": "50ms", "cap": "100ms"}},
            waives={"credential_generation": True},
        )
    )


class Deployment:
    """A runtime with a directory of tokens, and what its tables say."""

    def __init__(self, engine: Engine, directory: Path, login: Login) -> None:
        self.engine, self.secrets = engine, Secrets()
        self.runtime = open_runtime(
            directory,
            pack=json.dumps(pack_for(login)),
            metadata=HOST,
            bind={"Person": PERSON},
            parts=Parts(engine=engine, credentials=self.secrets),
            token_directory=directory / "tokens",
        )

    def save(self, number: int, name: str) -> None:
        """A host's transaction."""
        with self.engine.begin() as conn:
            if conn.execute(sa.update(PERSON).where(PERSON.c.id == number).values(name=name)).rowcount == 0:
                conn.execute(PERSON.insert().values(id=number, name=name, email=f"p{number}@example.com"))
            self.runtime.save(conn, "Person", number, user="ann")

    async def work(self) -> None:
        """A whole worker, until nothing is due soon."""
        await asyncio.to_thread(drain, self.runtime)

    def rows(self, table: sa.Table, *columns: str) -> list[tuple[Any, ...]]:
        """These columns of every row, oldest first."""
        order = table.c.get("created_at", table.c.updated_at)
        with self.engine.connect() as conn:
            return [tuple(row) for row in conn.execute(sa.select(*(table.c[name] for name in columns)).order_by(order))]

    def states(self) -> list[tuple[Any, ...]]:
        """Status, hold, sends, retries and doubt of every attempt."""
        return self.rows(push_attempt, "status", "hold_code", "send_count", "retry_count", "in_doubt")


def run(engine: Engine, directory: Path, story: Callable[[Deployment, Login], Awaitable[None]]) -> None:
    """Run a story of one deployment and one remote."""

    async def told() -> None:
        async with serving(Login()) as login:
            deployment = Deployment(engine, directory, login)
            try:
                await story(deployment, login)
            finally:
                deployment.runtime.close()

    asyncio.run(told())


@pytest.mark.rule("C-067", "D-05", "DR-11")
@pytest.mark.timeout(60)
def test_a_token_that_ended_is_refreshed_once_and_the_same_create_goes_again(engine: Engine, tmp_path: Path) -> None:
    """401, one refresh, one resend, accepted; no retry is counted, no doubt, and no generation and no link drifts."""

    async def story(pl: Deployment, login: Login) -> None:
        pl.save(1, "Ann")
        await pl.work()
        login.access_token = "ended by the remote"
        pl.save(2, "Bob")
        pl.save(1, "Ann B.")
        await pl.work()
        creates = [(AttemptStatus.FINALIZED, None, sends, 0, False) for sends in (1, 2)]
        assert sorted(pl.states(), key=repr) == sorted([*creates, creates[-1]], key=repr)
        assert (login.served, login.updated, login.refused, len(login.asked)) == (2, 1, 2, 2)
        [first, second] = pl.rows(remote_link, "status", "profile_digest")  # which holds the generation
        assert first == second == ("finalized", first[1])
        assert pl.rows(credential_state, "generation") == []
        pl.save(2, "Bob C.")
        await pl.work()
        assert (login.updated, login.refused, len(login.asked)) == (2, 2, 2)

    run(engine, tmp_path, story)


@pytest.mark.rule("C-067", "D-05")
@pytest.mark.timeout(60)
def test_a_fresh_token_that_is_refused_too_holds_the_profile_until_the_grant_is_mended(
    engine: Engine, tmp_path: Path
) -> None:
    """Two 401, then nothing more for it or its neighbours; with another grant everything goes on, each sent once."""

    async def story(pl: Deployment, login: Login) -> None:
        login.locked = True
        pl.save(1, "Ann")
        await pl.work()
        assert pl.states() == [(AttemptStatus.PENDING, Hold.CREDENTIAL, 2, 0, False)]
        assert (login.refused, len(login.asked)) == (2, 2)
        pl.save(2, "Bob")
        await pl.work()
        assert [state[1] for state in pl.states()] == [Hold.CREDENTIAL] * 2
        assert (login.refused, len(login.asked)) == (2, 2)
        assert pl.rows(credential_state, "generation", "status") == [("generation-1", "refused")]
        login.locked = False
        pl.secrets.grant, pl.secrets.current = login.refresh_token, "generation-2"
        await pl.work()
        assert [state[:2] for state in pl.states()] == [(AttemptStatus.FINALIZED, None)] * 2
        assert (login.served, login.refused) == (2, 2)

    run(engine, tmp_path, story)
