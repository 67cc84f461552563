from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from pushlink import Runtime
from pushlink.flows.outcomes import Refused, Reserved
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.messages import creating
from pushlink.testing.remote import FaultyRemote
from pushlink.testing.verbs import answer, store_then_close

PACK = """
pack: people
version: 1.0.0
connector_owner_key: 11111111-1111-4111-8111-111111111111
namespace: people
profiles:
  main:
    base_url: https://people.example.com
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
        create: {method: POST, path: /people, success: {status: [201]}, response: {id: [{from: $response.body#/id}]}}
        update: {method: PATCH, path: "/people/{remote_id}", success: {status: [200]}}
        mappings:
          - {source: name, target: /name}
          - {source: email, target: /email}
        mirror: {remote_id_field: remote_id}
"""


class Base(DeclarativeBase):
    pass


class Person(Base):
    __tablename__ = "person"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    email: Mapped[str]
    remote_id: Mapped[str | None]


Open = Callable[..., Runtime]


def add(runtime: Runtime, name: str) -> Person:
    with Session(runtime.engine, expire_on_commit=False) as session:
        person = Person(name=name, email=f"{name}@example.org")
        session.add(person)
        [outcome] = runtime.save(session, person, user=1)
        session.commit()
    assert isinstance(outcome, Reserved)
    return person


def people(runtime: Runtime) -> list[Any]:
    with runtime.engine.begin() as conn:
        return [tuple(row) for row in conn.execute(sa.select(Person.name, Person.remote_id).order_by(Person.id))]


def test_a_saved_record_is_at_the_remote_and_shows_its_id(
    pushlink_remote: FaultyRemote, pushlink_runtime: Open, pushlink_drain: Any
) -> None:
    """The three fixtures together: save, drain, compare."""
    runtime = pushlink_runtime(PACK, bind={"Person": Person}, metadata=Base.metadata, token="s3cret")
    add(runtime, "ada")
    add(runtime, "grace")
    assert pushlink_drain(runtime).claimed >= 2
    assert sorted(record.document["name"] for record in pushlink_remote.records) == ["ada", "grace"]
    assert sorted(remote_id for _, remote_id in people(runtime)) == ["1", "2"]
    assert {entry.asked.header("Authorization") for entry in pushlink_remote.log} == {"Bearer s3cret"}


@pytest.mark.rule("PO-04", "PO-05", "C-007")
def test_a_lost_answer_never_makes_a_second_record(
    pushlink_remote: FaultyRemote, pushlink_runtime: Open, pushlink_drain: Any
) -> None:
    """What took effect and was not answered is parked: a later save is refused and sends nothing."""
    runtime = pushlink_runtime(PACK, bind={"Person": Person}, metadata=Base.metadata, token="s3cret")
    pushlink_remote.next(store_then_close(), when=creating)
    person = add(runtime, "ada")
    pushlink_drain(runtime)
    with Session(runtime.engine) as session:
        person = session.merge(person)
        person.name = "ada l."
        [outcome] = runtime.save(session, person, user=1)
        session.commit()
    assert isinstance(outcome, Refused)
    pushlink_drain(runtime)
    assert pushlink_remote.creates == 1
    assert len(pushlink_remote.log) == 1


def test_a_remote_that_is_slow_for_a_moment_is_asked_again(
    pushlink_remote: FaultyRemote, pushlink_runtime: Open, pushlink_drain: Any
) -> None:
    """The drain waits for what becomes due soon."""
    runtime = pushlink_runtime(PACK, bind={"Person": Person}, metadata=Base.metadata, token="s3cret")
    pushlink_remote.next(answer(429, headers=[("Retry-After", "0")]), when=creating)
    add(runtime, "ada")
    pushlink_drain(runtime)
    assert [entry.status for entry in pushlink_remote.log] == [429, 201]


def test_runtimes_do_not_know_each_other(pushlink_runtime: Open, pushlink_drain: Any) -> None:
    """Each has a database of its own; a remote with other options is opened by hand."""
    with FaultyRemote(RemoteOptions(ids="uuid", prefix="/v1")) as remote:
        one, two = (
            pushlink_runtime(PACK, base_url=remote.base_url, bind={"Person": Person}, metadata=Base.metadata, token="x")
            for _ in range(2)
        )
        add(one, "ada")
        pushlink_drain(one)
        pushlink_drain(two)
        assert [record.document["name"] for record in remote.records] == ["ada"]
        assert people(two) == []


def test_a_drain_works_inside_an_event_loop_too(pushlink_remote: FaultyRemote, pushlink_runtime: Open) -> None:
    """A test of an asynchronous application drains on another thread."""
    from pushlink.testing.drain import drain

    runtime = pushlink_runtime(PACK, bind={"Person": Person}, metadata=Base.metadata, token="x")
    add(runtime, "ada")

    async def test() -> None:
        drain(runtime)

    asyncio.run(test())
    assert pushlink_remote.creates == 1


def test_the_plugin_is_there_without_an_import(pytester: pytest.Pytester) -> None:
    """Whoever has pushlink installed has the fixtures, and pays for nothing but their names."""
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_open(request):
            assert "pushlink.testing.remote" not in sys.modules

        def test_remote(pushlink_remote):
            assert pushlink_remote.creates == 0
        """
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=pytester.path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
