"""The verbs of a faulty remote: how far one request gets, whether it takes effect, and what comes back.

A verb is a value, so a script is a list of them. The same verb means the same to `FaultyRemote`, which plays it on a
socket, and to `ScriptedTransport`, which says at once what a transport would have seen; those that no server can play,
because the request never reaches it, are for the latter alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from pushlink.testing.messages import Asked, Told, When, anything, tell


class Reach(StrEnum):
    """How far a request gets."""

    NOT_STARTED = "not_started"  # refused in the own process
    REFUSED = "refused"  # nobody listens
    UNTRUSTED = "untrusted"  # its certificate is not trusted
    HALF_WRITTEN = "half_written"  # the connection breaks while the request is written
    UNREAD = "unread"  # connected, and closed before anything was read
    ARRIVES = "arrives"


class Ending(StrEnum):
    """How an answer ends."""

    WHOLE = "whole"
    SILENT = "silent"  # the connection closes without a byte
    SHORT = "short"  # fewer bytes of body than its length says
    CUT = "cut"  # closed in the middle
    BAD_ENCODING = "bad_encoding"  # says gzip and is not
    RAW = "raw"  # any bytes at all
    HANGING = "hanging"  # never answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One behaviour. `stores` False: the records stay as they are; the answer is then `answer`, or an empty object."""

    name: str
    reach: Reach = Reach.ARRIVES
    stores: bool = True
    answer: Told | None = None  # told instead of the true answer
    delay_s: float = 0.0  # between the effect and the answer
    ending: Ending = Ending.WHOLE
    cut_at: int | None = None  # for CUT: how many bytes of the response are sent; None: half of its body
    raw: bytes = b""  # for RAW


#: What is told about a request that took no effect, unless the verb says something else.
NOTHING_DONE: Final = tell(200, {})

#: How many bytes fewer than its length says a short body has.
MISSING_BYTES: Final = 10

#: The remote does what it is asked, and says so.
PLAINLY: Final = Verb(name="plainly")


def store_then_delay(seconds: float) -> Verb:
    """Take effect, wait, and only then answer."""
    return Verb(name="store_then_delay", delay_s=seconds)


def store_then_close() -> Verb:
    """Take effect and close without a byte of an answer."""
    return Verb(name="store_then_close", ending=Ending.SILENT)


def store_then_hang() -> Verb:
    """Take effect and never answer."""
    return Verb(name="store_then_hang", ending=Ending.HANGING)


def store_then_answer(
    status: int, document: Any = None, *, headers: Iterable[tuple[str, str]] = (), body: bytes = b""
) -> Verb:
    """Take effect and answer something else: a 5xx of a gateway, a 204, a page of HTML."""
    told = tell(status, document, headers=headers, body=body)
    return Verb(name=f"store_then_answer_{status}", answer=told)


def answer(status: int, document: Any = None, *, headers: Iterable[tuple[str, str]] = (), body: bytes = b"") -> Verb:
    """Take no effect and answer this."""
    told = tell(status, document, headers=headers, body=body)
    return Verb(name=f"answer_{status}", stores=False, answer=told)


def answer_raw(data: bytes, *, stores: bool = False) -> Verb:
    """Answer these bytes, HTTP or not, and close."""
    return Verb(name="answer_raw", stores=stores, ending=Ending.RAW, raw=data)


def hang() -> Verb:
    """Take no effect and never answer."""
    return Verb(name="hang", stores=False, ending=Ending.HANGING)


def close_before_read() -> Verb:
    """Accept the connection and close it before the request is read."""
    return Verb(name="close_before_read", reach=Reach.UNREAD, stores=False, ending=Ending.SILENT)


def close_after_read() -> Verb:
    """Read the whole request, take no effect, and close."""
    return Verb(name="close_after_read", stores=False, ending=Ending.SILENT)


def short_body(*, stores: bool = True) -> Verb:
    """Claim a longer body than is sent, and close."""
    return Verb(name="short_body", stores=stores, ending=Ending.SHORT)


def truncate(at: int | None = None, *, stores: bool = True) -> Verb:
    """Send only the first `at` bytes of the response, or half of its body, and close."""
    return Verb(name="truncate", stores=stores, ending=Ending.CUT, cut_at=at)


def bad_encoding(*, stores: bool = True) -> Verb:
    """Say that the body is compressed, and send one that is not."""
    return Verb(name="bad_encoding", stores=stores, ending=Ending.BAD_ENCODING)


def not_started() -> Verb:
    """For `ScriptedTransport`: the process itself refuses before it connects."""
    return Verb(name="not_started", reach=Reach.NOT_STARTED, stores=False)


def refuse_connection() -> Verb:
    """For `ScriptedTransport`: nobody listens. A `FaultyRemote` is taken `down()` for that."""
    return Verb(name="refuse_connection", reach=Reach.REFUSED, stores=False)


def untrusted_certificate() -> Verb:
    """For `ScriptedTransport`: the peer shows a certificate that is not trusted, so nothing is sent to it."""
    return Verb(name="untrusted_certificate", reach=Reach.UNTRUSTED, stores=False)


def break_while_writing(*, stores: bool = False) -> Verb:
    """For `ScriptedTransport`: the connection breaks while the request is written; a short one may have arrived."""
    return Verb(name="break_while_writing", reach=Reach.HALF_WRITTEN, stores=stores)


@dataclass(slots=True)
class Script:
    """Which verb the next request meets: lines that are played once, in order, then standing ones, else plainly."""

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _once: deque[tuple[Verb, When]] = field(default_factory=deque)
    _standing: list[tuple[Verb, When]] = field(default_factory=list)

    def next(self, *verbs: Verb, when: When = anything) -> None:
        """The next requests that fit `when` meet these verbs, one each."""
        with self._lock:
            self._once.extend((verb, when) for verb in verbs)

    def always(self, verb: Verb, *, when: When = anything) -> None:
        """Every request that fits, and that no single line is for, meets this verb; the newest rule wins."""
        with self._lock:
            self._standing.insert(0, (verb, when))

    def calm(self) -> None:
        """Forget every line."""
        with self._lock:
            self._once.clear()
            self._standing.clear()

    def choose(self, asked: Asked) -> Verb:
        """The verb for a request; takes the line away when it is played once."""
        with self._lock:
            for index, (verb, when) in enumerate(self._once):
                if when(asked):
                    del self._once[index]
                    return verb
            return next((verb for verb, when in self._standing if when(asked)), PLAINLY)
