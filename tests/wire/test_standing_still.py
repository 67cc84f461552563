"""A process that stood still between its checkpoint and its first byte: it has lost its turn, and can prove it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from flows.stage import PACK, Stage
from pushlink.adapters.aiohttp_transport import AiohttpTransport
from pushlink.adapters.egress import EgressPolicy, Lookup, system_lookup
from pushlink.flows.uptime import uptime_s
from pushlink.ports import WireError, WireReply, WireRequest
from pushlink.protocol.contracts import ProfileContract, Timeouts
from pushlink.testing.conformance import CanaryCredentials
from pushlink.testing.conformance_cases import OK, answers
from pushlink.testing.wire import FaultyServer


def request(base_url: str, *, start_by_s: float | None, total_ms: int = 2_000) -> WireRequest:
    return WireRequest(
        profile=ProfileContract(
            base_url=base_url,
            credential_ref="canary:secret",
            timeouts=Timeouts.model_construct(connect_ms=total_ms, total_ms=total_ms),
        ),
        tenant="",
        method="POST",
        path="/things",
        headers=(("Content-Type", "application/json"),),
        body=b"{}",
        fresh_connection=True,
        start_by_s=start_by_s,
    )


def send(wanted: WireRequest, lookup: Lookup = system_lookup) -> WireReply:
    async def call() -> WireReply:
        egress = EgressPolicy(allow_loopback=True)
        async with AiohttpTransport(CanaryCredentials(), egress=egress, lookup=lookup) as one:
            return await one.send(wanted)

    return asyncio.run(call())


@pytest.mark.rule("D-12", "D-05")
def test_a_send_that_begins_too_late_is_not_begun() -> None:
    """The remote never hears of it, and the trace proves that no byte left."""
    with FaultyServer(answers(OK)) as server:
        late = send(request(server.base_url, start_by_s=uptime_s() - 0.1))
        assert server.requests() == []
        in_time = send(request(server.base_url, start_by_s=uptime_s() + 60))
        assert len(server.requests()) == 1
    assert late.error is WireError.STOOD_STILL
    assert "stood still after its checkpoint" in late.error_text
    assert not late.trace.connected
    assert not late.trace.request_started
    assert in_time.trace.request_started


@pytest.mark.rule("D-12", "D-05")
def test_a_call_that_stands_still_past_its_deadline_writes_nothing() -> None:
    """Between the beginning and the first byte the whole process stops for longer than the call may take."""

    async def stop_the_process(host: str, port: int) -> Sequence[str]:
        threading.Event().wait(0.5)
        return ["127.0.0.1"]

    with FaultyServer(answers(OK)) as server:
        url = server.base_url.replace("127.0.0.1", "service.test")
        reply = send(request(url, start_by_s=uptime_s() + 60, total_ms=300), stop_the_process)
        assert server.requests() == []
    assert not reply.trace.request_started


@pytest.mark.rule("D-12")
def test_a_send_must_begin_within_the_margin_of_its_checkpoint(engine: sa.Engine, tmp_path: Path) -> None:
    """The lease holds the deadline and the margin; so it holds every call that begins in time."""
    stage = Stage(engine, tmp_path, pack=PACK)
    stage.save(1, name="Ada", email="ada@example.com")
    before = uptime_s()
    sending = stage.paused().to_send()
    margin_s = stage.world.terms.margin_ms / 1_000
    assert before + margin_s <= sending.effect.request.start_by_s <= uptime_s() + margin_s


@pytest.mark.rule("D-05", "D-14")
def test_what_was_not_sent_in_time_is_sent_by_the_next_claim(engine: sa.Engine, tmp_path: Path) -> None:
    """Its owner gives it back; the remote gets one create."""
    stage = Stage(engine, tmp_path, pack=PACK)
    stage.save(1, name="Ada", email="ada@example.com")
    sleeper = stage.paused().to_send()
    late = replace(sleeper.effect.request, start_by_s=uptime_s() - 1)
    sleeper._advance(send(late))
    sleeper.finish()
    assert stage.attempt()["status"] == "pending"
    assert not stage.attempt()["in_doubt"]
    stage.clock_forward()
    stage.drain()
    assert stage.attempt()["status"] == "finalized"
    assert stage.remote.api.creates == 1
