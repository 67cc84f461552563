"""OAuth 2 against a real token server: one refresher, rotation, lost answers, refusals, and where tokens are kept."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import stat
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pushlink.adapters.aiohttp_transport import AiohttpTransport
from pushlink.adapters.egress import EgressPolicy
from pushlink.adapters.oauth import TokenDirectory
from pushlink.ports import WireError, WireReply, WireRequest
from pushlink.protocol.contracts import ActionContract, CreateContract, Mapping, ProfileContract
from pushlink.protocol.outcome import History, create_event, interpret
from pushlink.protocol.replies import Disposition, Effect
from pushlink.protocol.states import CreateEvent, Hold, Operation
from wire.login import CLIENT_SECRET, SEED, Login, Secrets, serving


def profile(login: Login, **token: Any) -> ProfileContract:
    """A profile of the API; a rotating refresh token unless it is said otherwise."""
    chosen = {"grant": "refresh_token", "client_secret_ref": "env:CLIENT", **token}
    document = {
        "base_url": login.base,
        "credential_ref": "env:GRANT",
        "auth": {"kind": "oauth2", "token": {"url": f"{login.base}/oauth/token", "client_id": "us", **chosen}},
        "timeouts": {"connect": "2s", "total": "5s"},
    }
    return ProfileContract.model_validate_json(json.dumps(document))


def transport(tokens: Path | None, secrets: Secrets | None = None) -> AiohttpTransport:
    """A transport of one process."""
    directory = None if tokens is None else TokenDirectory(tokens)
    return AiohttpTransport(secrets or Secrets(), egress=EgressPolicy(allow_loopback=True), tokens=directory)


def request(contract: ProfileContract) -> WireRequest:
    """One create."""
    return WireRequest(
        profile=contract,
        tenant="",
        method="POST",
        path="/people",
        headers=(("Content-Type", "application/json"),),
        body=b"{}",
        fresh_connection=True,
    )


def run(work: Callable[[Login], Awaitable[None]], **login: Any) -> None:
    """Run a story against a server of its own."""

    async def told() -> None:
        async with serving(Login(**login)) as server:
            await work(server)

    asyncio.run(told())


async def send(wire: AiohttpTransport, contract: ProfileContract, count: int = 1) -> list[WireReply]:
    """So many creates at once."""
    return list(await asyncio.gather(*(wire.send(request(contract)) for _ in range(count))))


def test_many_requests_ask_for_one_token_and_the_next_refresh_uses_the_rotated_one(tmp_path: Path) -> None:
    """Twenty at once make one refresh; when its token ends, the token that came with it is used, not the old one."""

    async def story(login: Login) -> None:
        contract = profile(login)
        async with transport(tmp_path / "tokens") as wire:
            assert {reply.status for reply in await send(wire, contract, 20)} == {201}
            assert [form["refresh_token"] for form in login.asked] == [SEED]
            login.access_token = "ended"
            assert [reply.status for reply in await send(wire, contract)] == [401]
            assert [reply.status for reply in await send(wire, contract)] == [201]
        assert [form["refresh_token"] for form in login.asked] == [SEED, "canary-refresh-token-1"]
        assert login.headers[0] == "Basic " + b64encode(f"us:{CLIENT_SECRET}".encode()).decode()

    run(story)


def test_a_process_that_starts_later_uses_what_another_one_has_kept(tmp_path: Path) -> None:
    """Neither the access token nor the burnt refresh token is asked for again."""

    async def story(login: Login) -> None:
        for _ in range(2):
            async with transport(tmp_path / "tokens") as wire:
                assert [reply.status for reply in await send(wire, profile(login))] == [201]
        assert len(login.asked) == 1

    run(story)


def push_from_a_process(base: str, tokens: str, statuses: Any) -> None:
    """Three creates from a process of its own."""

    async def push() -> list[int | None]:
        async with transport(Path(tokens)) as wire:
            return [reply.status for reply in await send(wire, profile(Login(base=base)), 3)]

    statuses.put(asyncio.run(push()))


@pytest.mark.timeout(60)
def test_two_processes_make_one_refresh(tmp_path: Path) -> None:
    """The second one waits for the first one's answer and uses it."""

    async def story(login: Login) -> None:
        context = multiprocessing.get_context("spawn")
        statuses = context.Queue()
        given = (login.base, str(tmp_path / "tokens"), statuses)
        processes = [context.Process(target=push_from_a_process, args=given) for _ in range(2)]
        for process in processes:
            process.start()
        found = [await asyncio.to_thread(statuses.get, True, 40) for _ in processes]
        for process in processes:
            process.join()
        assert found == [[201, 201, 201]] * 2
        assert len(login.asked) == 1

    run(story)


@pytest.mark.rule("D-34")
def test_tokens_are_kept_in_files_of_their_owner_alone(tmp_path: Path) -> None:
    """Mode 0600 in a directory of mode 0700, whatever the umask; names that say nothing."""

    async def story(login: Login) -> None:
        before = os.umask(0)
        try:
            async with transport(tmp_path / "tokens") as wire:
                await send(wire, profile(login))
        finally:
            os.umask(before)

    run(story)
    assert stat.S_IMODE((tmp_path / "tokens").stat().st_mode) == 0o700
    files = list((tmp_path / "tokens").iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert not [file for file in files if "GRANT" in file.name]


def judged(reply: WireReply, contract: ProfileContract) -> Any:
    """The verdict on a create."""
    action = ActionContract(create=CreateContract(path="/people"), mappings=(Mapping(source="a", target="/a"),))
    return interpret(Operation.CREATE, action, contract, reply, History())


def test_a_lost_answer_parks_a_rotating_grant_and_nothing_burns_it_again(tmp_path: Path) -> None:
    """Nobody knows whether the token was used: no process asks again until somebody brings another grant."""

    async def story(login: Login) -> None:
        contract = profile(login)
        login.loses = True
        async with transport(tmp_path / "tokens") as wire:
            [reply] = await send(wire, contract)
        login.loses = False
        assert (reply.error, reply.trace.request_started) == (WireError.CREDENTIAL, False)
        verdict = judged(reply, contract)
        assert (verdict.effect, verdict.disposition, verdict.hold) == (
            Effect.NOT_SENT,
            Disposition.PARK,
            Hold.CREDENTIAL,
        )
        assert create_event(verdict, has_mirror=False) is CreateEvent.NOT_APPLIED
        assert not verdict.burns_retry
        async with transport(tmp_path / "tokens") as other:
            assert [r.error for r in await send(other, contract, 3)] == [WireError.CREDENTIAL] * 3
        assert (len(login.asked), login.served) == (1, 0)
        async with transport(tmp_path / "tokens", Secrets(login.refresh_token, "generation-2")) as mended:
            assert [r.status for r in await send(mended, contract)] == [201]

    run(story)


def test_a_grant_whose_old_token_stays_good_is_used_again(tmp_path: Path) -> None:
    """The profile says so; then a lost answer is only a retry."""

    async def story(login: Login) -> None:
        contract = profile(login, old_stays_good=True)
        login.loses = True
        async with transport(tmp_path / "tokens") as wire:
            assert [r.error for r in await send(wire, contract)] == [WireError.BEFORE_CONNECT]
            login.loses, login.refresh_token = False, SEED
            assert [r.status for r in await send(wire, contract)] == [201]

    run(story)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, WireError.CREDENTIAL),
        (401, WireError.CREDENTIAL),
        (429, WireError.BEFORE_CONNECT),
        (503, WireError.BEFORE_CONNECT),
    ],
)
def test_a_refused_grant_is_parked_and_a_busy_endpoint_is_asked_again(
    tmp_path: Path, status: int, error: WireError
) -> None:
    """Nothing of the request itself was sent in either case."""

    async def story(login: Login) -> None:
        async with transport(tmp_path / "tokens") as wire:
            [reply] = await send(wire, profile(login))
            assert (reply.error, reply.trace.request_started) == (error, False)
            login.answers = 200
            assert [r.status for r in await send(wire, profile(login))] == [201]

    run(story, answers=status)


def test_an_endpoint_that_is_not_there_burns_nothing(tmp_path: Path) -> None:
    """No byte left: the grant is as good as before."""

    async def story(login: Login) -> None:
        contract = profile(login)
        dead = profile(login, url="http://127.0.0.1:9/token")
        async with transport(tmp_path / "tokens") as wire:
            assert [r.error for r in await send(wire, dead)] == [WireError.BEFORE_CONNECT]
            assert [r.error for r in await send(wire, dead)] == [WireError.BEFORE_CONNECT]
            assert [r.status for r in await send(wire, contract)] == [201]

    run(story)


@pytest.mark.parametrize("client_auth", ["basic", "post"])
def test_client_credentials_need_no_directory(client_auth: str) -> None:
    """The grant is the client's secret; scope and audience are sent where they are declared."""

    async def story(login: Login) -> None:
        asked = {"grant": "client_credentials", "client_secret_ref": None, "scope": "read write", "audience": "api"}
        contract = profile(login, **asked, client_auth=client_auth)
        async with transport(None, Secrets("canary/secret")) as wire:
            assert {r.status for r in await send(wire, contract, 5)} == {201}
        [form] = login.asked
        assert (form["grant_type"], form["scope"], form["audience"]) == ("client_credentials", "read write", "api")
        in_form = {"client_id": "us", "client_secret": "canary/secret"}
        assert (in_form.items() <= form.items()) is (client_auth == "post")
        assert bool(login.headers[0]) is (client_auth == "basic")

    run(story)


OURS = {"same_account": [{"pointer": "/account/id", "equals": "ours"}]}


@pytest.mark.rule("D-26")
def test_a_token_for_another_account_is_never_used(tmp_path: Path) -> None:
    """Nothing reaches the API with it, the profile is held, and the refresh token that came with it is not lost."""

    async def story(login: Login) -> None:
        contract = profile(login, **OURS)
        async with transport(tmp_path / "tokens") as wire:
            [reply] = await send(wire, contract)
            assert (reply.error, reply.trace.request_started) == (WireError.CREDENTIAL, False)
            assert "same_account" in reply.error_text
            assert (judged(reply, contract).effect, login.served, login.refused) == (Effect.NOT_SENT, 0, 0)
            login.account = "ours"
            assert [r.status for r in await send(wire, contract)] == [201]
        assert [form["refresh_token"] for form in login.asked] == [SEED, "canary-refresh-token-1"]

    run(story, account="theirs")


def test_a_check_that_is_added_finds_the_token_that_was_kept_before(tmp_path: Path) -> None:
    """A rotated refresh token belongs to the grant, not to what its answers are held against."""

    async def story(login: Login) -> None:
        async with transport(tmp_path / "tokens") as wire:
            assert [r.status for r in await send(wire, profile(login))] == [201]
            assert [r.status for r in await send(wire, profile(login, **OURS))] == [201]
        assert len(login.asked) == 1

    run(story)


def test_a_rotating_token_without_a_directory_is_refused() -> None:
    """It would be lost with the process."""

    async def story(login: Login) -> None:
        async with transport(None) as wire:
            [reply] = await send(wire, profile(login))
        assert (reply.error, "token_directory" in reply.error_text, login.asked) == (
            WireError.BEFORE_CONNECT,
            True,
            [],
        )

    run(story)


def test_a_token_endpoint_obeys_the_rules_of_egress(tmp_path: Path) -> None:
    """A private address that the settings do not allow is not asked, and no message names a secret."""

    async def story(login: Login) -> None:
        contract = profile(login, url="http://10.0.0.1/token")
        async with transport(tmp_path / "tokens") as wire:
            [reply] = await send(wire, contract)
        assert (reply.status, reply.trace.request_started) == (None, False)
        assert "canary" not in reply.error_text

    run(story)
