"""What is frozen stays frozen: a retry sends the very same bytes, whatever became of record, pack and permissions."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa

from flows.stage import USER, MakeStage, Stage, action_of, pack_with, profile_of
from pushlink.adapters.policy import CallableAuthority, HostAnswer
from pushlink.testing import verbs

ADA = {"name": "Ada", "email": "ada@example.com"}
FROZEN = ("push_request", "frozen_document", "push_response")


def frozen(stage: Stage) -> dict[str, list[Any]]:
    return {name: [tuple(row.values()) for row in stage.rows(name)] for name in FROZEN}


@pytest.mark.rule("AT-06", "RR-01", "AT-07", "DR-02", "DR-13", "DR-15", "DR-17", "DR-12")
def test_a_retry_sends_the_same_bytes_under_the_same_key(stage: Stage) -> None:
    """Record, mapping, paths, retry policy and names all change between two sends: not one byte of the second does."""
    stage.remote.script.next(verbs.refuse_connection())
    stage.save(1, **ADA)
    before = frozen(stage)
    stage.drain()
    stage.save(1, name="Changed", email="changed@example.com")

    def change(document: dict[str, Any]) -> None:
        document["flows"][0].update(flow="Renamed", version=9)
        action_of(document)["mappings"].append({"source": "owner", "target": "/owner"})
        action_of(document)["create"].update(path="/humans", response={"id": [{"from": "$response.body#/uuid"}]})
        profile_of(document).update(retry={"attempts": 3})

    stage.apply(pack_with(change))
    stage.clock_forward()
    stage.drain()
    first, second = stage.remote.sent[:2]
    assert (first.method, first.path, first.headers, first.body) == (
        second.method,
        second.path,
        second.headers,
        second.body,
    )
    assert json.loads(second.body) == ADA
    assert stage.link()["remote_id"] == "1"  # by the frozen rule
    [request] = stage.rows("push_request", attempt_id=stage.attempts()[0]["id"])
    assert tuple(request.values()) == before["push_request"][0]


@pytest.mark.rule("AT-06", "D-37")
def test_each_attempt_has_a_key_of_its_own_and_keeps_it(stage: Stage) -> None:
    """Creates and updates, each with one key from before its first send to its end."""
    stage.remote.script.next(verbs.refuse_connection())
    stage.save(1, **ADA)
    key = stage.rows("push_request")[0]["idempotency_key"]
    for _ in range(2):
        stage.drain()
        stage.clock_forward()
    stage.save(1, name="second")
    stage.drain()
    stage.save(1, name="third")
    stage.drain()
    keys = [row["idempotency_key"] for row in stage.rows("push_request", "created_at,attempt_id")]
    assert keys[0] == key
    assert len(set(keys)) == len(keys) == 3


@pytest.mark.rule("AT-05", "AT-07", "RR-01", "RR-02")
def test_no_snapshot_changes_after_it_was_reserved(stage: Stage) -> None:
    """Through retries, later saves, an update and a rename, every frozen row of before is there as it was."""
    stage.remote.script.next(verbs.answer(429))
    stage.save(1, **ADA)
    seen = frozen(stage)
    for step in range(4):
        if step == 2:
            stage.apply(pack_with(lambda d: d["flows"][0].update(flow="Renamed")))
        stage.save(1, name=f"Ada {step}")
        stage.clock_forward()
        stage.drain()
        now = frozen(stage)
        for name in FROZEN:
            assert set(map(repr, seen[name])) <= set(map(repr, now[name])), name
        seen = now


@pytest.mark.rule("AT-05", "RR-01")
@pytest.mark.parametrize("table", FROZEN)
def test_the_database_itself_refuses_to_change_what_is_frozen(stage: Stage, table: str) -> None:
    """No code path, and no person with SQL, rewrites a request, a snapshot or an answer."""
    stage.linked(1)
    column = next(iter(stage.rows(table)[0]))
    for statement in (f"UPDATE pushlink_{table} SET {column} = {column}", f"DELETE FROM pushlink_{table}"):
        with pytest.raises(sa.exc.DBAPIError, match="append-only"):
            stage.sql(statement)


@pytest.mark.rule("AU-02", "DR-14", "RR-01")
@pytest.mark.parametrize("change", ["revoked", "granted"])
def test_permissions_that_change_later_change_nothing_that_a_retry_sends(make_stage: MakeStage, change: str) -> None:
    """The create goes out as it was authorised at its save: no field is dropped and none is added."""
    fields: list[str] = ["name", "email"]
    authority = CallableAuthority(
        lambda _, asked: [HostAnswer(active=True, readable=True, fields=tuple(fields)) for _ in asked],
        lambda _, users: [True for _ in users],
        version="1",
    )
    stage = make_stage(authority=authority)
    stage.remote.script.next(verbs.refuse_connection())
    stage.save(1, **ADA, salary="100")
    stage.drain()
    snapshot = stage.rows("push_request")[0]["authority"]
    fields[:] = [] if change == "revoked" else ["name", "email", "salary"]
    stage.clock_forward()
    stage.drain()
    assert stage.remote.api.records[0].document == {"id": 1, **ADA}
    assert stage.rows("push_request")[0]["authority"] == snapshot


@pytest.mark.rule("D-19", "RR-01")
def test_an_update_is_rendered_once_and_sent_again_as_it_was(stage: Stage) -> None:
    """Its request is written at the first claim; a throttled one goes out again byte by byte."""
    stage.linked(1, **ADA)
    stage.save(1, name="second")
    stage.remote.script.next(verbs.answer(429))
    stage.drain()
    stage.put(1, name="changed without a save")
    stage.clock_forward()
    stage.drain()
    _, first, second = stage.remote.sent
    assert (first.path, first.headers, first.body) == (second.path, second.headers, second.body)
    assert len(stage.rows("push_request", attempt_id=stage.attempt(operation="update")["id"])) == 1


@pytest.mark.rule("RR-02", "AT-07")
def test_an_unknown_commit_of_the_reservation_leaves_one_attempt(stage: Stage) -> None:
    """A host that does not know whether it committed saves again: the values are wanted already."""
    stage.put(1, **ADA)
    for _ in range(2):
        with stage.engine.begin() as conn:
            stage.runtime.save(conn, "Person", 1, user=USER)
    assert len(stage.attempts()) == len(stage.rows("push_request")) == 1
