"""Look-ups, reads before an update and MERGE over real sockets: a whole runtime, and the faulty remote on loopback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from pushlink import Runtime
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.messages import creating, reading
from pushlink.testing.remote import FaultyRemote
from pushlink.testing.verbs import answer, close_after_read, store_then_answer

PACK = """
pack: people
version: 1.0.0
connector_owner_key: 11111111-1111-4111-8111-111111111111
namespace: people
profiles:
  main:
    base_url: https://people.example.com
    variables: {realm: eu}
    headers: {X-Realm: "{realm}"}
    credential_ref: env:NOBODY_SETS_THIS
    timeouts: {connect: 2s, total: 5s}
    retry: {attempts: 8, backoff: {base: 10ms, cap: 1s}}
destinations:
  - {destination_slot_id: 22222222-2222-4222-8222-222222222222, target_object: people, profile: main}
flows:
  - flow: People
    version: 1
    actions:
      - action: push_person
        action_slot_id: 33333333-3333-4333-8333-333333333333
        source_object: Person
        destination: 22222222-2222-4222-8222-222222222222
        create:
          path: /people
          success: {status: [200, 201]}
          response: {id: [{from: $response.body#/id, none: ["0"]}]}
          LOOK_UP
        update:
          method: MERGE
          path: /people/{remote_id}
          precondition: {kind: etag, source: fresh_get}
          success: {status: [200]}
        mappings:
          - {source: name, target: /name}
          - {source: email, target: /email}
"""
ASYNC = (
    "async: {path: '/people/{job}', job: [{from: $response.body#/job}], id: [{from: $response.body#/id}], "
    "every: 20ms, timeout: 30s}"
)
FOLLOWUP = (
    "followup: {path: /people, query: {email: '{key}'}, key: /email, only: /records, "
    "id: [{from: $response.body#/records/0/id}], every: 20ms, timeout: 30s}"
)
SEARCH = (
    "followup: {method: POST, path: /people/search, body: {mail: '{key}'}, key: /email, only: /found, "
    "id: [{from: $response.body#/found/0}], every: 20ms, timeout: 30s}"
)

Open = Callable[..., Runtime]


class Base(DeclarativeBase):
    pass


class Person(Base):
    __tablename__ = "person"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    email: Mapped[str]


def saved(runtime: Runtime, name: str) -> None:
    with Session(runtime.engine) as session:
        person = session.merge(Person(id=1, name=name, email="ada@example.org"))
        runtime.save(session, person, user=1)
        session.commit()


def opened(pushlink_runtime: Open, remote: FaultyRemote, look_up: str) -> Runtime:
    text = PACK.replace("LOOK_UP", look_up)
    return pushlink_runtime(
        text, base_url=remote.base_url, bind={"Person": Person}, metadata=Base.metadata, token="s3cret"
    )


@pytest.mark.rule("C-098")
@pytest.mark.parametrize("kind", ["async", "followup", "search"])
def test_a_create_whose_answer_names_nothing_is_found_over_the_wire(
    pushlink_runtime: Open, pushlink_drain: Any, kind: str
) -> None:
    """One POST that stores; then reads, one of which breaks, until the record is shown; then an update finds its id."""
    look_up = {"async": ASYNC, "followup": FOLLOWUP, "search": SEARCH}[kind]
    with FaultyRemote(RemoteOptions(etags="strong")) as remote:
        runtime = opened(pushlink_runtime, remote, look_up)
        status, said = (202, {"job": "1"}) if kind == "async" else (200, {"id": 0})
        remote.next(store_then_answer(status, said), when=creating)
        if kind == "search":
            remote.always(answer(200, {"found": ["1"]}), when=lambda asked: asked.path.endswith("/search"))
        else:
            remote.next(close_after_read(), answer(404, {}), when=reading)
        saved(runtime, "Ada")
        pushlink_drain(runtime)
        asked = [(entry.asked.method, entry.asked.path) for entry in remote.log]
        assert asked[0] == ("POST", "/people")
        where = {"async": ("GET", "/people/1"), "search": ("POST", "/people/search")}
        assert asked[-1] == where.get(kind, ("GET", "/people"))
        assert remote.creates == 1
        saved(runtime, "Ada L.")
        pushlink_drain(runtime)
        assert [entry.asked.method for entry in remote.log][-2:] == ["GET", "MERGE"]
        [record] = remote.records
        assert (record.id, record.document["name"]) == ("1", "Ada L.")
        assert {entry.asked.header("X-Realm") for entry in remote.log} == {"eu"}
        assert {entry.asked.header("Authorization") for entry in remote.log} == {"Bearer s3cret"}


@pytest.mark.rule("D-33")
def test_a_throttled_look_up_over_the_wire_is_made_again_when_the_remote_says(
    pushlink_runtime: Open, pushlink_drain: Any
) -> None:
    """A 429 with a moment to wait, then the record; nothing is created twice."""
    with FaultyRemote(RemoteOptions()) as remote:
        runtime = opened(pushlink_runtime, remote, ASYNC)
        remote.next(store_then_answer(202, {"job": "1"}), when=creating)
        remote.next(answer(429, {}, headers=[("Retry-After", "0")]), when=reading)
        saved(runtime, "Ada")
        pushlink_drain(runtime)
        assert [entry.status for entry in remote.log] == [202, 429, 200]
        assert remote.creates == 1
