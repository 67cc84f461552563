"""`pack certify`: a claim is proved at a sandbox or refused, whatever the answers of a remote pretend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.stage import MakeStage, Stage, action_of, pack_with, profile_of
from flows.test_replays import CLASSES, creates
from flows.test_replays import creating as creates_of
from pushlink.errors import CallerError
from pushlink.operations.certify import Certified, keep_result, read_claim, try_claim
from pushlink.protocol.replay import contract_digest
from pushlink.store.certificates import read_trusted
from pushlink.testing import verbs
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.messages import creating, reading
from pushlink.testing.scripted import ScriptedTransport

PROBE: dict[str, Any] = {
    "values": {"name": "certify {nonce}", "email": "{nonce}@example.com"},
    "read": "/people/{remote_id}",
    "delete": "/people/{remote_id}",
    "count": {"path": "/people", "query": {"name": "{nonce}"}, "items": "/records"},
}
COUNTED = {**PROBE, "values": {"name": "{nonce}", "email": "{nonce}@example.com"}}
LOOKUP: dict[str, Any] = {
    "path": "/people",
    "query": {"ref": "{stamp}"},
    "items": "/records",
    "match": "/ref",
    "id": [{"from": "$response.body#/id"}],
}


def document(declare: Any, probe: dict[str, Any] | None = None) -> dict[str, Any]:
    """The pack of these tests with a claim, a sandbox and a probe."""

    def change(pack: dict[str, Any]) -> None:
        declare(pack)
        profile_of(pack)["sandbox"] = {"base_url": "https://sandbox.example.com/v2", "credential_ref": "env:SANDBOX"}
        action_of(pack)["probe"] = probe or COUNTED

    return pack_with(change)


def stamped(pack: dict[str, Any], **lookup: Any) -> None:
    action_of(pack)["create"] |= {
        "stamp": {"format": "token"},
        "body": {"merge": {"/ref": "{stamp}"}},
        "lookup": LOOKUP | lookup,
    }


def nothing(pack: dict[str, Any]) -> None:
    """No claim at all."""


def certified(
    stage: Stage,
    tmp_path: Path,
    pack: dict[str, Any],
    *,
    waits: list[float] | None = None,
    action: str = "push_person",
) -> Certified:
    """Try the pack's claim at the stage's remote, and keep the result."""
    file = tmp_path / "pack.yaml"
    file.write_text(json.dumps(pack))
    claim = read_claim(file, profile="main", action=action)
    waited = [] if waits is None else waits

    def wait(seconds: float) -> None:
        waited.append(seconds)
        stage.fixed.advance(seconds=seconds)

    now = stage.fixed.now(None)
    trial = try_claim(claim, stage.world, tenant="", send=stage.remote.send_now, at=now, wait=wait)
    with stage.engine.begin() as conn:
        return keep_result(conn, claim, trial, actor="olga", valid_for_ms=86_400_000, now=stage.clock.now(conn))


def trusted(stage: Stage, pack: dict[str, Any]) -> bool:
    """Whether the contract of a pack is relied on now."""
    stage.apply(pack)
    with stage.engine.begin() as conn:
        [action] = stage.world.catalog.read(conn).all_actions()
        digest = contract_digest(action.contract.create)
        return digest in read_trusted(conn, [digest], now=stage.clock.now(conn))


def at(make_stage: MakeStage, **options: Any) -> Stage:
    clock: list[Stage] = []
    remote = ScriptedTransport(
        RemoteOptions(prefix="/v2", clock=lambda: clock[0].fixed.now(None).timestamp() if clock else 0.0, **options)
    )
    stage = make_stage(remote=remote)
    clock.append(stage)
    return stage


@pytest.mark.rule("C-091", "C-092")
@pytest.mark.parametrize("name", CLASSES)
def test_a_remote_that_keeps_the_claim_is_certified_and_left_as_it_was(
    make_stage: MakeStage, tmp_path: Path, name: str
) -> None:
    """Sent twice, made once by the remote's own count, read back, taken away; the contract counts for a while."""
    declare, options = CLASSES[name]
    stage = at(make_stage, **options)
    pack = document(declare)
    done = certified(stage, tmp_path, pack)
    assert (done.problems, done.passed, done.left_over) == ((), True, ())
    assert creates(stage) == 1
    assert stage.remote.api.records == []
    assert {request.profile.base_url for request in stage.remote.sent} == {"https://sandbox.example.com/v2"}
    assert {request.profile.credential_ref for request in stage.remote.sent} == {"env:SANDBOX"}
    assert trusted(stage, pack)
    stage.clock_forward(days=2)
    assert not trusted(stage, pack)


@pytest.mark.parametrize("digits", ["1" * 32, "1e5" + "0" * 29])
def test_no_remote_takes_what_a_trial_is_named_by_for_a_number(
    make_stage: MakeStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits: str
) -> None:
    """One that guesses the types of a query's values would look for a number, and count none of the records."""
    declare, options = next(iter(CLASSES.values()))
    stage = at(make_stage, **options)
    monkeypatch.setattr(type(stage.world.ids), "token", lambda _: digits)
    certified(stage, tmp_path, document(declare))
    names = {json.loads(request.body)["name"] for request in stage.remote.sent if request.body}
    assert f"n{digits[:15]}" in names
    assert digits[:16] not in names


@pytest.mark.rule("C-091")
@pytest.mark.parametrize("name", ["key", "unique"])
def test_a_remote_that_ignores_the_claim_is_found_out(make_stage: MakeStage, tmp_path: Path, name: str) -> None:
    """Two records for two sends: refused, both taken away, and the refusal is what counts from now on."""
    stage = at(make_stage)
    pack = document(CLASSES[name][0])
    done = certified(stage, tmp_path, pack)
    assert not done.passed
    assert "The repeat made a second record: 1 and 2." in done.problems
    assert creates(stage) >= 2
    assert (stage.remote.api.records, done.left_over) == ([], ())
    assert not trusted(stage, pack)


@pytest.mark.rule("C-091")
def test_the_same_answer_twice_is_not_believed_against_the_remotes_own_count(
    make_stage: MakeStage, tmp_path: Path
) -> None:
    """It makes a second record and answers with the first one's id."""
    stage = at(make_stage)
    first = {"id": 1}
    lie = verbs.store_then_answer(201, first, headers=[("Idempotent-Replayed", "true")])
    stage.remote.script.next(lie, lie, verbs.answer(422, {}), when=creates_of)
    done = certified(stage, tmp_path, document(CLASSES["key"][0]))
    assert done.problems == ("The remote counts 2, wanted 1.",)


@pytest.mark.rule("C-088", "C-092")
def test_a_remote_that_takes_another_body_under_the_key_is_refused(make_stage: MakeStage, tmp_path: Path) -> None:
    """The pack says how a mismatch is answered; this remote gives the old answer without a word."""
    declare, options = CLASSES["key"]
    stage = at(make_stage, **options)
    silent = verbs.answer(201, {"id": 1}, headers=[("Idempotent-Replayed", "true")])
    stage.remote.script.next(verbs.store_then_answer(201, {"id": 1}), silent, silent, when=creates_of)
    done = certified(stage, tmp_path, document(declare))
    assert done.problems == ("Another body under the same key was not refused as the pack says: declared success.",)


def test_a_receipt_that_does_not_come_is_a_problem(make_stage: MakeStage, tmp_path: Path) -> None:
    """The claim says how a repeat is known; it is not."""
    declare, options = CLASSES["key"]
    stage = at(make_stage, **options)
    stage.remote.script.next(verbs.store_then_answer(201, {"id": 1}), verbs.answer(201, {"id": 1}), when=creates_of)
    done = certified(stage, tmp_path, document(declare))
    assert done.problems == ("The answer to the repeat has no receipt, which the pack says that it has.",)


@pytest.mark.rule("C-054")
@pytest.mark.parametrize(("lag_s", "passes"), [(0.0, True), (20.0, True), (40.0, False)])
def test_a_look_up_has_to_show_the_record_within_its_lag(
    make_stage: MakeStage, tmp_path: Path, lag_s: float, passes: bool
) -> None:
    """The declared lag is measured, second by second; a stamp of nobody finds nothing."""
    stage = at(make_stage, search_lag_seconds=lag_s)
    waits: list[float] = []
    pack = document(lambda pack: stamped(pack, lag="30s"), {n: v for n, v in PROBE.items() if n != "count"})
    done = certified(stage, tmp_path, pack, waits=waits)
    assert done.passed is passes
    assert sum(waits) == (lag_s if passes else 30.0)
    assert stage.remote.api.records == []


@pytest.mark.rule("C-091")
def test_a_look_up_that_ignores_the_question_is_refused(make_stage: MakeStage, tmp_path: Path) -> None:
    """Asked for a stamp of nobody it fails, so an empty answer of it would prove nothing."""
    stage = at(make_stage)
    stage.remote.script.always(verbs.answer(500, {}), when=lambda asked: reading(asked) and bool(asked.query))
    pack = document(stamped, {n: v for n, v in PROBE.items() if n != "count"})
    done = certified(stage, tmp_path, pack)
    assert "The look-up did not show the one record at once: not_yet." in done.problems


def test_what_cannot_be_taken_away_is_named(make_stage: MakeStage, tmp_path: Path) -> None:
    """The result stands, and somebody cleans up."""
    declare, options = CLASSES["key"]
    stage = at(make_stage, **options)
    stage.remote.script.always(verbs.answer(403, {}), when=lambda asked: asked.method == "DELETE")
    done = certified(stage, tmp_path, document(declare))
    assert (done.passed, done.left_over) == (True, ("1",))


def test_an_answer_that_is_lost_is_told_with_its_reason(make_stage: MakeStage, tmp_path: Path) -> None:
    """Whoever certifies reads why there was no answer, and no status that does not exist."""
    declare, options = CLASSES["key"]
    stage = at(make_stage, **options)
    stage.remote.script.always(verbs.store_then_close(), when=creating)
    done = certified(stage, tmp_path, document(declare))
    [problem] = done.problems
    assert problem.startswith("The create was not answered with a record: no answer (")
    assert "None" not in problem + "".join(done.steps)


def test_a_changed_create_is_another_contract(make_stage: MakeStage, tmp_path: Path) -> None:
    """A certificate is about what was tried."""
    declare, options = CLASSES["key"]
    stage = at(make_stage, **options)
    pack = document(declare)
    assert certified(stage, tmp_path, pack).passed
    changed = json.loads(json.dumps(pack))
    changed["version"] = "1.1.0"
    action_of(changed)["create"]["idempotency"]["lifetime"] = "2h"
    assert not trusted(stage, changed)
    mapped = json.loads(json.dumps(pack)) | {"version": "1.2.0"}
    action_of(mapped)["mappings"].append({"source": "salary", "target": "/salary"})
    assert trusted(stage, mapped)


@pytest.mark.parametrize("missing", ["sandbox", "probe", "count", "claim", "action"])
def test_what_is_missing_is_named_and_nothing_is_sent(make_stage: MakeStage, tmp_path: Path, missing: str) -> None:
    """A claim is never tried at the real place, and never without a way to count and to clean up."""
    stage = at(make_stage)
    pack = document(nothing if missing == "claim" else CLASSES["key"][0])
    if missing == "sandbox":
        del profile_of(pack)["sandbox"]
    elif missing == "probe":
        del action_of(pack)["probe"]
    elif missing == "count":
        action_of(pack)["probe"] = {n: v for n, v in PROBE.items() if n != "count"}
    says = {
        "sandbox": "names no sandbox",
        "probe": "no `probe`",
        "count": "nobody could count",
        "claim": "nothing to certify",
        "action": "no action",
    }[missing]
    with pytest.raises(CallerError, match=says):
        certified(stage, tmp_path, pack, action="other" if missing == "action" else "push_person")
    assert stage.remote.sent == []
