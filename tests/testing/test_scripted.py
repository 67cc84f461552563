from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pushlink.adapters.aiohttp_transport import AiohttpTransport
from pushlink.adapters.egress import EgressPolicy
from pushlink.ports import WireError, WireReply, WireRequest
from pushlink.protocol.contracts import ProfileContract, Timeouts
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.drain import OneToken
from pushlink.testing.messages import creating
from pushlink.testing.remote import FaultyRemote
from pushlink.testing.scripted import ScriptedTransport
from pushlink.testing.verbs import (
    PLAINLY,
    Verb,
    answer,
    answer_raw,
    bad_encoding,
    break_while_writing,
    close_after_read,
    hang,
    not_started,
    refuse_connection,
    short_body,
    store_then_answer,
    store_then_close,
    store_then_delay,
    store_then_hang,
    truncate,
    untrusted_certificate,
)

OPTIONS = RemoteOptions(prefix="/v1", ids="big_integer", etags="strong", token="s3cret", location=True)


def request_to(base_url: str, *, total_ms: int = 5_000) -> WireRequest:
    return WireRequest(
        profile=ProfileContract(
            base_url=base_url,
            credential_ref="env:TOKEN",
            timeouts=Timeouts(connect_ms="1s", total_ms=f"{total_ms}ms"),
        ),
        tenant="",
        method="POST",
        path="/people",
        headers=(("Content-Type", "application/json"), ("Idempotency-Key", "k1")),
        body=b'{"name":"Ada"}',
        fresh_connection=True,
        keep_headers=("location",),
    )


def over_the_wire(verb: Verb, total_ms: int) -> tuple[WireReply, int, int]:
    """The reply of the real transport, how many requests arrived, how many creates took effect."""
    with FaultyRemote(OPTIONS) as remote:
        remote.next(verb, when=creating)

        async def send() -> WireReply:
            transport = AiohttpTransport(OneToken("s3cret"), egress=EgressPolicy(allow_loopback=True))
            async with transport:
                return await transport.send(request_to(remote.base_url, total_ms=total_ms))

        reply = asyncio.run(send())
        return reply, len(remote.log), remote.creates


BOTH = [
    PLAINLY,
    answer(422, {"error": "no"}),
    answer(401, headers=[("WWW-Authenticate", "Bearer realm=x")]),
    answer(429, headers=[("Retry-After", "7")]),
    store_then_answer(503, body=b"<html>", headers=[("Retry-After", "30")]),
    store_then_answer(204),
    store_then_close(),
    close_after_read(),
    short_body(),
    truncate(),
    truncate(4),
    bad_encoding(),
    answer_raw(b"this is no HTTP\r\n\r\n"),
    hang(),
    store_then_hang(),
    store_then_delay(3),
]


@pytest.mark.parametrize("verb", BOTH, ids=[f"{number}-{verb.name}" for number, verb in enumerate(BOTH)])
def test_a_verb_means_the_same_with_and_without_a_socket(verb: Verb) -> None:
    """What the scripted transport says is what the real one saw of the same verb: the whole reply, word for word."""
    waits = verb.delay_s or verb.ending.value == "hanging"
    total_ms = 150 if waits else 5_000
    real, arrived, creates = over_the_wire(verb, total_ms)
    scripted = ScriptedTransport(OPTIONS, credentials=OneToken("s3cret"))
    scripted.script.next(verb, when=creating)
    said = asyncio.run(scripted.send(request_to("http://127.0.0.1:9/v1", total_ms=total_ms)))
    assert replace(said, error_text="") == replace(real, error_text="")
    assert (len(scripted.log), scripted.api.creates) == (arrived, creates)


@pytest.mark.parametrize(
    ("verb", "error", "started", "sent"),
    [
        (not_started(), WireError.BEFORE_CONNECT, False, False),
        (refuse_connection(), WireError.CONNECT, False, False),
        (untrusted_certificate(), WireError.CERTIFICATE, False, False),
        (break_while_writing(), WireError.WRITE, True, False),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_does_not_arrive_is_told_as_a_transport_would(
    verb: Verb, error: WireError, started: bool, sent: bool
) -> None:
    """Only where no byte of the request can have left is it said that none has."""
    scripted = ScriptedTransport(OPTIONS, credentials=OneToken("s3cret"))
    scripted.script.next(verb)
    reply = scripted.send_now(request_to("http://127.0.0.1:9/v1"))
    assert (reply.error, reply.trace.request_started, reply.trace.request_sent) == (error, started, sent)
    assert reply.status is None
    assert scripted.api.creates == 0


def test_a_body_beyond_its_bound_is_not_complete() -> None:
    """The prefix is kept and the reply says that it is one."""
    scripted = ScriptedTransport()
    scripted.script.next(answer(200, body=b"x" * 50))
    request = request_to("http://127.0.0.1:9")
    bounded = replace(request, profile=request.profile.model_copy(update={"reply_bytes_max": 10}))
    reply = scripted.send_now(bounded)
    assert (reply.body, reply.body_complete, reply.body_size) == (b"x" * 10, False, 50)


def test_a_wrong_token_is_refused_without_a_socket_too() -> None:
    """The credential is resolved when it is sent."""
    credentials = OneToken("old")
    scripted = ScriptedTransport(OPTIONS, credentials=credentials)
    assert scripted.send_now(request_to("http://127.0.0.1:9/v1")).status == 401
    credentials.change("s3cret")
    assert scripted.send_now(request_to("http://127.0.0.1:9/v1")).status == 201
    assert credentials.generation("env:TOKEN", tenant="") == "generation-2"
