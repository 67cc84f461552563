"""Hostile replies through a whole worker: each parks its create with evidence, and the next record goes as ever."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from flows.stage import HOST, PERSON, pack_with, profile_of
from pushlink import Runtime
from pushlink.bootstrap import Parts
from pushlink.protocol.states import AttemptStatus
from pushlink.store.tables import push_attempt, push_response, remote_link
from pushlink.testing.conformance import BODY
from pushlink.testing.conformance_cases import BOUND, CASES, OK, answers
from pushlink.testing.drain import drain, open_runtime
from pushlink.testing.wire import FaultyServer, Peer, Script, http_reply
from wire.login import Secrets

#: Whole answers in which no usable id stands.
ODD: Final = ("a page of HTML", "a key twice", "deep JSON", "a huge number", "no UTF-8", "no content")

#: Faults after the request has begun, of which none shows a record: what S10 of the security model lists, and more.
FAULTS: Final = [
    case.script
    for case in CASES
    if case.started and case.request_body == BODY and "http" in case.schemes and (not case.whole or case.name in ODD)
]

#: Bodies of a success whose id is none.
NO_IDS: Final = (
    *(b'{"id":true}', b'{"id":null}', b'{"id":{}}', b'{"id":[1]}', b'{"id":1.5}', b'{"id":NaN}', b'{"id":""}', b"[]"),
    *(b"[" * 60_000, b'{"id":1e400}', b'{"id":"a\x00b"}', b'{"other":1}', b"1", b"", b'{"id":"r-1"'),
)
HOSTILE: Final = [*FAULTS, *(answers(http_reply(201, body)) for body in NO_IDS)]
DEADLINE_S: Final = 1.0
MEBIBYTE: Final = 1_024  # in the unit of `ru_maxrss`


class Remote:
    """Answers each connection by the next script, and every later one well."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self.scripts = list(scripts)

    def __call__(self, peer: Peer) -> None:
        if self.scripts:
            self.scripts.pop()(peer)
            return
        peer.read_request()
        peer.send(OK)
        peer.close()


def pushed(engine: Engine, directory: Path, server: FaultyServer) -> Runtime:
    """A runtime whose remote is that server."""
    document = pack_with(
        lambda d: profile_of(d).update(
            base_url=server.base_url,
            credential_ref="env:GRANT",
            timeouts={"connect": "1s", "total": f"{int(DEADLINE_S * 1_000)}ms"},
            reply_bytes_max=BOUND,
            circuit={"failures": 0},
        )
    )
    return open_runtime(
        directory,
        pack=json.dumps(document),
        metadata=HOST,
        bind={"Person": PERSON},
        parts=Parts(engine=engine, credentials=Secrets()),
    )


def save(runtime: Runtime, *numbers: int) -> None:
    """People, each in a transaction of its own."""
    for number in numbers:
        with runtime.engine.begin() as conn:
            conn.execute(PERSON.insert().values(id=number, name=f"Person {number}", email=f"p{number}@example.com"))
            runtime.save(conn, "Person", number, user="ann")


def rows(engine: Engine, table: sa.Table, *columns: str) -> list[tuple[Any, ...]]:
    """These columns of every row."""
    with engine.connect() as conn:
        return [tuple(row) for row in conn.execute(sa.select(*(table.c[name] for name in columns)))]


@pytest.mark.rule("D-05", "D-14")
@pytest.mark.timeout(180)
def test_every_hostile_reply_parks_its_create_and_the_worker_lives(engine: Engine, tmp_path: Path) -> None:
    """In doubt with a stored answer, one request each, within the deadline, in bounded memory; then a good one."""
    assert len(HOSTILE) >= 40
    with FaultyServer(Remote(HOSTILE)) as server:
        runtime = pushed(engine, tmp_path, server)
        try:
            save(runtime, *range(1, len(HOSTILE) + 1))
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            drain(runtime)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            found = rows(engine, push_attempt, "status", "in_doubt", "send_count")
            assert set(found) == {(AttemptStatus.AMBIGUOUS_REMOTE_EFFECT, True, 1)}
            evidence = rows(engine, push_response, "attempt_id", "received_at")
            assert len({attempt for attempt, _ in evidence}) == len(HOSTILE)
            assert rows(engine, remote_link, "id") == []
            assert len(server.connections) == len(HOSTILE)  # none was sent twice
            assert grown <= 64 * MEBIBYTE
            begun = time.monotonic()
            save(runtime, 1_000)
            drain(runtime)
            assert [status for (status,) in rows(engine, remote_link, "status")] == ["finalized"]
            assert time.monotonic() - begun < 30
        finally:
            runtime.close()
