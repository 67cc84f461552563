"""Creates in doubt over real sockets: each class of contract against a server that counts what it made."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flows.stage import MemoryCredentials, Stage, pack_with, profile_of
from flows.test_replays import CLASSES, certify, creating
from flows.test_stamp_lookups import LOOKUP
from pushlink.adapters.aiohttp_transport import AiohttpTransport
from pushlink.adapters.egress import EgressPolicy
from pushlink.ports import WireReply, WireRequest
from pushlink.testing import verbs
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.remote import FaultyRemote

ADA = {"name": "Ada", "email": "ada@example.com"}


class OnTheWire:
    """What a stage sends with: the real transport, one request after another on this thread."""

    def __init__(self, credentials: MemoryCredentials) -> None:
        self.sent: list[WireRequest] = []
        self._runner = asyncio.Runner()
        self._transport = AiohttpTransport(credentials=credentials, egress=EgressPolicy(allow_loopback=True))

    def send_now(self, request: WireRequest) -> WireReply:
        self.sent.append(request)
        reply: WireReply = self._runner.run(self._transport.send(request))
        return reply

    def close(self) -> None:
        self._runner.run(self._transport.close())
        self._runner.close()


def by_stamp(document: dict[str, Any]) -> None:
    """No contract for repeats: the record is looked for by its stamp."""
    document["flows"][0]["actions"][0]["create"] |= {
        "stamp": {"format": "token"},
        "body": {"merge": {"/ref": "{stamp}"}},
        "lookup": LOOKUP,
    }


ALL: dict[str, tuple[Any, dict[str, Any]]] = {**CLASSES, "look-up": (by_stamp, {})}


@pytest.fixture(params=sorted(ALL))
def staged(request: pytest.FixtureRequest, engine: sa.Engine, tmp_path: Path) -> Iterator[tuple[Stage, FaultyRemote]]:
    """A stage whose pack has one class of contract, and the server that keeps it."""
    declare, options = ALL[request.param]
    credentials = MemoryCredentials()
    wire = OnTheWire(credentials)
    with FaultyRemote(RemoteOptions(prefix="/v2", token=credentials.value, **options)) as remote:

        def change(document: dict[str, Any]) -> None:
            declare(document)
            profile_of(document)["base_url"] = remote.base_url

        stage = Stage(engine, tmp_path, pack=pack_with(change), remote=wire, credentials=credentials)  # type: ignore[arg-type]
        certify(stage)
        yield stage, remote
    wire.close()


@pytest.mark.rule("PO-04", "RR-04", "D-07", "D-08")
@pytest.mark.parametrize("fault", ["answer lost", "answer cut", "connection closed unread"])
def test_a_lost_answer_over_a_socket_is_one_record(staged: tuple[Stage, FaultyRemote], fault: str) -> None:
    """Whatever became of the first answer: in the end one record by the server's own count, and its link."""
    stage, remote = staged
    verb = {
        "answer lost": verbs.store_then_close(),
        "answer cut": verbs.truncate(40),
        "connection closed unread": verbs.close_before_read(),
    }[fault]
    if fault == "connection closed unread":
        remote.next(verb)
    else:
        remote.next(verb, when=creating)
    stage.save(1, **ADA)
    for _ in range(4):
        stage.drain()
        stage.clock_forward(minutes=2)
    attempt = stage.attempt()
    if remote.creates == 0:  # only a look-up sends nothing again, and finding nothing proves nothing in this pack
        assert {asked.method for asked in stage.remote.sent} == {"POST", "GET"}
        assert (fault, attempt["status"]) == ("connection closed unread", "ambiguous_remote_effect")
        return
    assert (attempt["status"], remote.creates, len(stage.links())) == ("finalized", 1, 1)
    assert stage.link()["remote_id"] == remote.records[0].id
