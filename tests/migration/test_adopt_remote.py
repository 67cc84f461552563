"""Adoption that asks the remote first: slowly, with no transaction open, and believing nothing but a record shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from flows.stage import MakeStage, Stage, action_of, pack_with
from migration.adoptions import apply, legacy, plan, reasons, remote_record
from pushlink.errors import CallerError
from pushlink.migration.adopt_verify import RemoteVerification
from pushlink.testing import verbs
from pushlink.testing.messages import Asked


def reading(asked: Asked) -> bool:
    return asked.method == "GET"


@pytest.fixture
def pauses() -> list[float]:
    """How long the verification slept, each time."""
    return []


@pytest.fixture
def verification(stage: Stage, pauses: list[float]) -> Iterator[RemoteVerification]:
    """Four requests a second on a clock that stands."""
    found = RemoteVerification(stage.world, stage.remote, rate=4, sleep=pauses.append, clock=lambda: 0.0)
    yield found
    found.close()


@pytest.mark.rule("MG-06", "MG-01")
def test_only_records_that_the_remote_shows_are_adopted(
    stage: Stage, tmp_path: Path, verification: RemoteVerification
) -> None:
    """There, not there, merged away, another one's: each has its reason, and no request changes anything."""
    there = remote_record(stage, name="Ada")
    gone = remote_record(stage, name="Bob")
    other = remote_record(stage, name="Cy")
    stage.remote.api.delete("people", gone)
    legacy(stage, 1, remote_id=there)
    legacy(stage, 2, remote_id=gone)
    legacy(stage, 3, remote_id="r-never")
    legacy(stage, 4, remote_id=other)
    stage.remote.script.always(
        verbs.answer(200, {"id": "r-another"}), when=lambda asked: asked.target.endswith(f"/{other}")
    )
    plan(stage, tmp_path, verification=verification)
    assert reasons(tmp_path / "op-1") == {
        "1": "adopt",
        "2": "remote_missing",
        "3": "remote_missing",
        "4": "remote_mismatch",
    }
    assert {request.method for request in stage.remote.sent} == {"GET"}
    assert json.loads((tmp_path / "op-1").read_text().splitlines()[0])["remote_verified"] is True
    assert apply(stage, tmp_path / "op-1").adopted == 1


@pytest.mark.rule("MG-06")
@pytest.mark.parametrize(
    "verb",
    [verbs.answer(500), verbs.answer(403), verbs.close_after_read(), verbs.answer(301)],
    ids=["an error", "forbidden", "no answer", "moved"],
)
def test_an_answer_that_shows_no_record_adopts_none(
    stage: Stage, tmp_path: Path, verification: RemoteVerification, verb: Any
) -> None:
    """Whatever it was: nobody knows, and the record is left alone."""
    legacy(stage, 1, remote_id=remote_record(stage, name="Ada"))
    stage.remote.script.always(verb, when=reading)
    plan(stage, tmp_path, verification=verification)
    assert reasons(tmp_path / "op-1")["1"] in {"remote_unknown", "remote_mismatch"}


@pytest.mark.rule("D-23", "MG-06")
def test_not_there_says_nothing_before_the_credential_was_accepted(
    stage: Stage, tmp_path: Path, verification: RemoteVerification
) -> None:
    """With no record shown, a 404 may be a remote that does not know us; with one, the others are missing."""
    legacy(stage, 1, 2)
    plan(stage, tmp_path, "op-1", verification=verification)
    assert set(reasons(tmp_path / "op-1").values()) == {"remote_unknown"}
    legacy(stage, 3, remote_id=remote_record(stage, name="Ada"))
    plan(stage, tmp_path, "op-2", verification=verification)
    assert reasons(tmp_path / "op-2") == {"1": "remote_missing", "2": "remote_missing", "3": "adopt"}


def test_requests_are_paced_and_a_throttle_is_obeyed(
    stage: Stage, tmp_path: Path, verification: RemoteVerification, pauses: list[float]
) -> None:
    """A quarter of a second apart; after a 429 as long as the remote says, and then the same record again."""
    legacy(stage, 1, remote_id=remote_record(stage, name="Ada"))
    legacy(stage, 2, remote_id=remote_record(stage, name="Bob"))
    plan(stage, tmp_path, "op-1", verification=verification)
    assert pauses == [0.25, 0.5]  # the proof, and each of the two; the clock stands
    stage.remote.script.next(verbs.answer(429, headers=(("Retry-After", "7"),)), when=reading)
    plan(stage, tmp_path, "op-2", verification=verification)
    assert 7.0 in pauses
    assert set(reasons(tmp_path / "op-2").values()) == {"adopt"}


@pytest.mark.rule("MG-06")
def test_no_transaction_is_open_while_the_remote_is_asked(
    stage: Stage, tmp_path: Path, verification: RemoteVerification, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that were taken are given back before the first request."""
    taken: set[int] = set()
    at_sends: list[int] = []
    event.listen(stage.engine, "checkout", lambda conn, *_: taken.add(id(conn)))
    event.listen(stage.engine, "checkin", lambda conn, *_: taken.discard(id(conn)))
    legacy(stage, 1, remote_id=remote_record(stage, name="Ada"))
    send = stage.remote.send

    async def watched(request: Any) -> Any:
        at_sends.append(len(taken))
        return await send(request)

    monkeypatch.setattr(stage.remote, "send", watched)
    plan(stage, tmp_path, verification=verification)
    assert at_sends == [0, 0]


def test_an_action_that_reads_no_single_record_cannot_be_verified(make_stage: MakeStage, tmp_path: Path) -> None:
    """Its updates name the record in their bodies: nothing is guessed, and no file is left."""

    def in_the_body(document: dict[str, Any]) -> None:
        update = {"method": "POST", "path": "/people/change", "body": {"merge": {"/id": "{remote_id}"}}}
        action_of(document)["update"] = update

    stage = make_stage(pack=pack_with(in_the_body))
    legacy(stage, 1)
    verification = RemoteVerification(stage.world, stage.remote, rate=1_000)
    with pytest.raises(CallerError, match="no route on which one record can be read"):
        plan(stage, tmp_path, verification=verification)
    verification.close()
    assert not (tmp_path / "op-1").exists()
    assert stage.sends == 0
    with stage.engine.begin() as conn:
        assert conn.execute(sa.text("SELECT count(*) FROM pushlink_push_slot")).scalar_one() == 0
