"""What one send left behind: the evidence that interpretation works on, and nothing else.

A transport makes these values, the store keeps them append-only, and `outcome.py` reads them, so that a verdict can be
reached again years later without the wire. They hold no secret: headers are allow-listed by the transport, the body is
a bounded prefix, and the error text names a class and a cause only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WireError(StrEnum):
    """How a call failed when there is no complete response."""

    BEFORE_CONNECT = "before_connect"  # refused locally: cancelled, pool, unsafe target, missing credential
    STOOD_STILL = "stood_still"  # refused locally: the process came too late to begin it under its claim
    RESOLVE = "resolve"
    CONNECT = "connect"
    TLS = "tls"
    CREDENTIAL = "credential"  # the grant is lost or refused; nothing was sent
    CERTIFICATE = "certificate"  # the peer's certificate is not trusted
    WRITE = "write"
    READ = "read"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    MALFORMED = "malformed"  # not HTTP, bad framing, headers over a bound


@dataclass(frozen=True, slots=True, kw_only=True)
class WireTrace:
    """What the transport can prove. `request_started` False means: no byte of the HTTP request left this process."""

    connected: bool = False
    request_started: bool = False
    request_sent: bool = False
    response_started: bool = False
    response_complete: bool = False
    reused_connection: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReply:
    """What came back from one send: a response, or an error, always with the trace.

    `body` holds at most `reply_bytes_max` bytes; `body_size` and `body_digest` are of everything that was read, and
    `body_complete` says whether that is the whole message by its own framing. The parts are complete in themselves: a
    reply that was read from the store interprets exactly as it did when it came from the wire.
    """

    trace: WireTrace
    error: WireError | None = None
    error_text: str = ""  # class and short cause; never a header, body or secret
    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()  # allow-listed, lower-case names
    body: bytes = b""
    body_complete: bool = False
    body_size: int = 0
    body_digest: str = ""
