"""Creates in doubt under a frozen replay contract: sent again with the same bytes, or parked; never two records."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest

from flows.stage import MakeStage, Stage, action_of, pack_with, profile_of
from pushlink.errors import Code
from pushlink.flows.step_items import Withheld
from pushlink.protocol.replay import contract_digest
from pushlink.protocol.snapshots import ActionSnapshot
from pushlink.store.certificates import Certificate, insert_certificate
from pushlink.testing import verbs
from pushlink.testing.collection import Dedupe, RemoteOptions
from pushlink.testing.messages import Asked
from pushlink.testing.scripted import ScriptedTransport

ADA = {"name": "Ada", "email": "ada@example.com"}

#: A remote that answers a repeat within its lifetime with what it said first, and shows that it did.
KEY: dict[str, Any] = {
    "in": "header",
    "name": "Idempotency-Key",
    "lifetime": "1h",
    "margin": "1m",
    "receipt": [{"header": "Idempotent-Replayed", "equals": "true"}],
    "mismatch": [{"status": [422]}],
    "in_flight": [{"status": [409]}],
}
STAMPED = {"stamp": {"format": "token"}, "body": {"merge": {"/ref": "{stamp}"}}}


def by_key(document: dict[str, Any]) -> None:
    action_of(document)["create"]["idempotency"] = dict(KEY)


def conditional(document: dict[str, Any]) -> None:
    """The record's own id in its path, and nothing may be there yet."""
    action_of(document)["create"] |= {
        "method": "PUT",
        "path": "/people/{client_id}",
        "client_id": {"from": "idempotency_key"},
        "precondition": {"kind": "if_none_match_star"},
        "repeat": {"kind": "conditional", "exists": [{"status": [412]}], "lifetime": "1h"},
    }


def unique(document: dict[str, Any]) -> None:
    """The remote lets one record only have our stamp, and names it when another create comes."""
    action_of(document)["create"] |= STAMPED | {
        "repeat": {
            "kind": "conditional",
            "exists": [{"status": [409], "pointer": "/error", "equals": "duplicate"}],
            "existing_id": [{"from": "$response.body#/existing_id"}],
            "lifetime": "1h",
        }
    }


def upsert(document: dict[str, Any]) -> None:
    """A PUT to our own stamp makes the record or writes the same values again."""
    action_of(document)["create"] |= {
        "method": "PUT",
        "path": "/people/{stamp}",
        "stamp": {"format": "token"},
        "repeat": {"kind": "upsert", "lifetime": "1h"},
        "response": {"id": [{"from": "$response.body#/id"}]},
    }


CLASSES: dict[str, tuple[Callable[[dict[str, Any]], None], dict[str, Any]]] = {
    "key": (by_key, {"dedupe": Dedupe(seconds=3_600)}),
    "conditional": (conditional, {"put_creates": True}),
    "unique": (unique, {"unique_fields": ("ref",)}),
    "upsert": (upsert, {"put_creates": True}),
}


def staged(make_stage: MakeStage, name: str, *, trusted: bool = True, more: Any = None, **profile: Any) -> Stage:
    """A stage whose pack has one class of contract, and whose remote keeps it by the stage's own clock."""
    declare, options = CLASSES[name]

    def change(document: dict[str, Any]) -> None:
        declare(document)
        profile_of(document).update(profile)
        if more is not None:
            more(document)

    clock: list[Stage] = []
    remote = ScriptedTransport(
        RemoteOptions(prefix="/v2", clock=lambda: clock[0].fixed.now(None).timestamp() if clock else 0.0, **options)
    )
    stage = make_stage(pack=pack_with(change), remote=remote)
    clock.append(stage)
    if trusted:
        certify(stage)
    return stage


def certify(stage: Stage, *, passed: bool = True, days: int = 90) -> None:
    """What `pack certify` would have written for the stage's contract."""
    with stage.engine.begin() as conn:
        now = stage.clock.now(conn)
        [action] = stage.world.catalog.read(conn).all_actions()
        insert_certificate(
            conn,
            Certificate(
                contract_digest=contract_digest(action.contract.create),
                pack="people",
                profile="main",
                action="push_person",
                classes=("R1 key",),
                remote="http://127.0.0.1:1",
                passed=passed,
                evidence={},
                actor="tester",
                certified_at=now,
                expires_at=now + dt.timedelta(days=days),
            ),
        )


def creating(asked: Asked) -> bool:
    """A create of any of these classes."""
    return asked.method in {"POST", "PUT"}


def creates(stage: Stage) -> int:
    """How many records the remote ever made, by its own count."""
    return len(stage.remote.api.created)


def sent_creates(stage: Stage) -> list[Any]:
    return [request for request in stage.remote.sent if request.method in {"POST", "PUT"}]


@pytest.mark.rule("PO-04", "RR-04", "D-07", "D-37", "RR-01", "C-088")
@pytest.mark.parametrize("name", CLASSES)
def test_a_lost_answer_is_asked_for_again_with_the_same_bytes(make_stage: MakeStage, name: str) -> None:
    """The record was made, nobody heard of it: one repeat, byte for byte, one record, and its link."""
    stage = staged(make_stage, name)
    stage.remote.script.next(verbs.store_then_close(), when=creating)
    stage.save(1, **ADA)
    stage.run(stage.claim())
    waiting = stage.attempt()
    assert (waiting["status"], waiting["in_doubt"], waiting["remote_io_started_at"]) == ("pending", True, None)
    stage.save(1, name="Ada changed since", email="other@example.com")
    stage.clock_forward(minutes=1)
    stage.drain()
    first, second = sent_creates(stage)[:2]
    assert (first.method, first.path, first.headers, first.body) == (
        second.method,
        second.path,
        second.headers,
        second.body,
    )
    attempt = stage.attempt(operation="create")
    assert (attempt["status"], attempt["in_doubt"], attempt["send_count"]) == ("finalized", False, 2)
    assert creates(stage) == 1
    assert stage.link()["remote_id"] == stage.remote.api.records[0].id
    assert stage.link()["mirror_status"] == "written"


@pytest.mark.rule("AT-10", "RR-04", "D-07", "D-13")
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("dies_after", range(4))
def test_a_death_at_every_effect_of_the_first_send_leaves_one_record(
    make_stage: MakeStage, name: str, dies_after: int
) -> None:
    """Before the checkpoint, after it, after the send, after the result: the next worker ends with one record."""
    stage = staged(make_stage, name)
    stage.save(1, **ADA)
    flow = stage.paused()
    for _ in range(dies_after):
        if flow.effect is None:
            break
        flow.step()
    flow.flow.close()  # the process is gone
    stage.clock_forward(minutes=5)
    for _ in range(3):
        stage.drain()
        stage.clock_forward(minutes=5)
    assert creates(stage) == 1
    assert stage.attempt()["status"] == "finalized"
    assert len(stage.links()) == 1


@pytest.mark.rule("D-07", "PO-05")
@pytest.mark.parametrize("name", CLASSES)
def test_the_lifetime_is_over_before_the_repeat_is_claimed(make_stage: MakeStage, name: str) -> None:
    """A worker that comes back after the lifetime sends nothing; the attempt is parked and says why."""
    stage = staged(make_stage, name)
    stage.remote.script.next(verbs.store_then_close(), when=creating)
    stage.save(1, **ADA)
    stage.run(stage.claim())
    stage.clock_forward(hours=1)
    stage.drain()
    attempt = stage.attempt()
    assert (attempt["status"], attempt["reason_code"]) == ("ambiguous_remote_effect", Code.REPLAY_EXPIRED)
    assert (len(sent_creates(stage)), creates(stage)) == (1, 1)


def nearly_over(make_stage: MakeStage, *, left_s: float) -> Stage:
    """A create whose answer was lost, so long ago that its key may be repeated for `left_s` seconds only."""
    stage = staged(make_stage, "key")
    stage.remote.script.next(verbs.store_then_close(), when=creating)
    stage.save(1, **ADA)
    stage.run(stage.claim())
    usable = dt.timedelta(hours=1) - dt.timedelta(minutes=1) - dt.timedelta(seconds=30)  # its margin and one whole call
    start = stage.attempt()["first_io_at"]
    with stage.engine.begin() as conn:
        stage.fixed.advance(seconds=(start + usable - stage.clock.now(conn)).total_seconds() - left_s)
    return stage


@pytest.mark.rule("D-07", "AT-07")
def test_the_lifetime_is_checked_again_in_the_checkpoint_by_the_clock_of_the_database(make_stage: MakeStage) -> None:
    """A repeat that was claimed in time and comes to its checkpoint a moment too late is not sent."""
    stage = nearly_over(make_stage, left_s=10)
    repeat = stage.paused()
    stage.clock_forward(seconds=10)  # exactly the end: not before it any more
    answer = repeat.step()
    repeat.finish()
    attempt = stage.attempt()
    assert isinstance(answer, Withheld)
    assert answer.because == "the replay contract's lifetime is over"
    assert (attempt["status"], attempt["reason_code"]) == ("ambiguous_remote_effect", Code.REPLAY_EXPIRED)
    assert len(sent_creates(stage)) == 1


def test_a_moment_earlier_the_same_repeat_is_sent(make_stage: MakeStage) -> None:
    """The end of the lifetime is where it is said to be."""
    stage = nearly_over(make_stage, left_s=0.001)
    stage.drain()
    assert (stage.attempt()["status"], creates(stage)) == ("finalized", 1)


@pytest.mark.rule("D-07")
def test_an_unknown_lifetime_is_a_quarter_of_an_hour(make_stage: MakeStage) -> None:
    """Nobody declared one: ten minutes later the create is repeated, twenty minutes later it is parked."""
    for minutes, status in ((10, "finalized"), (20, "ambiguous_remote_effect")):
        stage = staged(
            make_stage,
            "key",
            more=lambda document: action_of(document)["create"]["idempotency"].pop("lifetime"),
        )
        stage.remote.script.next(verbs.store_then_close(), when=creating)
        stage.save(minutes, **ADA)
        stage.run(stage.claim())
        stage.clock_forward(minutes=minutes)
        stage.drain()
        assert stage.attempts()[-1]["status"] == status


@pytest.mark.rule("C-088", "D-06", "PO-05")
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (verbs.answer(422, {"error": "another body"}), Code.KEY_MISMATCH),
        (verbs.answer(400, {"error": "no"}), Code.EFFECT_UNKNOWN),
        (verbs.answer(404, {}), Code.EFFECT_UNKNOWN),
        (verbs.answer(500, {}), Code.EFFECT_UNKNOWN),
    ],
    ids=["mismatch", "refusal", "not found", "stored failure"],
)
def test_what_a_repeat_is_answered_settles_nothing_without_a_receipt(
    make_stage: MakeStage, answer: verbs.Verb, code: Code
) -> None:
    """Another body under the key, an echo of a refusal, a stored failure: parked, and never under a new key."""
    stage = staged(make_stage, "key")
    stage.remote.script.next(verbs.store_then_close(), answer, when=creating)
    stage.save(1, **ADA)
    for _ in range(4):
        stage.drain()
        stage.clock_forward(minutes=2)
    attempt = stage.attempt()
    assert (attempt["status"], attempt["reason_code"], attempt["in_doubt"]) == ("ambiguous_remote_effect", code, True)
    keys = {dict(request.headers)["Idempotency-Key"] for request in sent_creates(stage)}
    assert (len(keys), len(sent_creates(stage)), creates(stage)) == (1, 2, 1)


@pytest.mark.rule("D-06")
def test_a_receipt_settles_the_doubt_with_a_refusal(make_stage: MakeStage) -> None:
    """The remote says that it gave this refusal before: the first send was refused too, and the create ends."""
    stage = staged(make_stage, "key")
    refusal = verbs.answer(400, {"error": "no"}, headers=[("Idempotent-Replayed", "true")])
    stage.remote.script.next(verbs.close_after_read(), refusal, when=creating)
    stage.save(1, **ADA)
    for _ in range(3):
        stage.drain()
        stage.clock_forward(minutes=2)
    attempt = stage.attempt()
    assert (attempt["status"], attempt["reason_code"], attempt["in_doubt"]) == (
        "terminal_failed",
        Code.REMOTE_REJECTED,
        False,
    )
    assert creates(stage) == 0


def test_a_key_that_is_still_in_use_is_asked_for_again(make_stage: MakeStage) -> None:
    """The first send is still at work there: the repeat waits, is sent again, and gets the first answer."""
    stage = staged(make_stage, "key")
    stage.remote.script.next(
        verbs.store_then_close(), verbs.answer(409, {}, headers=[("Retry-After", "30")]), when=creating
    )
    stage.save(1, **ADA)
    stage.run(stage.claim())
    stage.clock_forward(minutes=1)
    stage.run(stage.claim())
    waiting = stage.attempt()
    assert (waiting["status"], waiting["reason_code"]) == ("pending", Code.KEY_IN_FLIGHT)
    assert stage.drain() == 0
    stage.clock_forward(minutes=1)
    stage.drain()
    assert (stage.attempt()["status"], creates(stage)) == ("finalized", 1)


@pytest.mark.rule("RR-06", "D-09")
def test_a_repeat_has_the_budget_of_every_retry(make_stage: MakeStage) -> None:
    """A remote that never answers is asked as often as the profile says, then a person decides."""
    stage = staged(make_stage, "key", retry={"attempts": 3})
    stage.remote.script.always(verbs.close_after_read(), when=creating)
    stage.save(1, **ADA)
    for _ in range(6):
        stage.drain()
        stage.clock_forward(minutes=5)
    attempt = stage.attempt()
    assert (attempt["status"], len(sent_creates(stage))) == ("ambiguous_remote_effect", 3)


@pytest.mark.rule("C-091", "D-07")
@pytest.mark.parametrize("certificate", ["none", "failed", "expired", "failed later"])
def test_a_contract_that_nobody_proved_is_not_relied_on(make_stage: MakeStage, certificate: str) -> None:
    """Without a certificate that passed and still counts the attempt parks as if there were no contract."""
    stage = staged(make_stage, "key", trusted=False)
    if certificate == "failed":
        certify(stage, passed=False)
    elif certificate == "expired":
        certify(stage, days=1)
        stage.clock_forward(days=2)
    elif certificate == "failed later":
        certify(stage)
        certify(stage, passed=False)
    stage.remote.script.next(verbs.store_then_close(), when=creating)
    stage.save(1, **ADA)
    for _ in range(3):
        stage.drain()
        stage.clock_forward(minutes=2)
    attempt = stage.attempt()
    assert (attempt["status"], attempt["reason_code"]) == ("ambiguous_remote_effect", Code.EFFECT_UNKNOWN)
    assert len(sent_creates(stage)) == 1


def test_the_settings_may_trust_what_was_not_proved(make_stage: MakeStage) -> None:
    """`contracts.trust_uncertified` is the deployment's own decision."""
    stage = staged(make_stage, "key", trusted=False)
    stage.world = stage.runtime.world
    object.__setattr__(stage.world.terms, "trusts_uncertified", True)
    stage.remote.script.next(verbs.store_then_close(), when=creating)
    stage.save(1, **ADA)
    stage.drain()
    stage.clock_forward(minutes=2)
    stage.drain()
    assert (stage.attempt()["status"], creates(stage)) == ("finalized", 1)


@pytest.mark.rule("DR-21", "D-07")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("withdrawn", "the pack of now declares no such contract any more"),
        ("narrowed", "the replay contract's lifetime is over"),
        ("widened", "the replay contract's lifetime is over"),
    ],
)
def test_a_later_pack_narrows_the_contract_and_never_widens_it(make_stage: MakeStage, change: str, says: str) -> None:
    """Withdrawn or shortened it ends at once; a longer lifetime is not that of an attempt that froze a shorter one."""
    stage = staged(make_stage, "key")
    stage.remote.script.next(verbs.store_then_close(), when=creating)
    stage.save(1, **ADA)
    stage.run(stage.claim())

    def later(document: dict[str, Any]) -> None:
        by_key(document)
        key = action_of(document)["create"]["idempotency"]
        if change == "withdrawn":
            del action_of(document)["create"]["idempotency"]
        else:
            key["lifetime"] = {"narrowed": "2m", "widened": "9h"}[change]

    stage.apply(pack_with(later) | {"version": "1.1.0"})
    if change != "withdrawn":
        certify(stage)
    stage.clock_forward(**{"withdrawn": {"minutes": 2}, "narrowed": {"minutes": 5}, "widened": {"hours": 2}}[change])
    stage.drain()
    attempt = stage.attempt()
    assert attempt["status"] == "ambiguous_remote_effect"
    assert json.loads(attempt["detail"])["because"] == says
    assert len(sent_creates(stage)) == 1


@pytest.mark.rule("D-11", "D-06", "D-07")
@pytest.mark.parametrize("is_doubtful", [False, True], ids=["never sent", "in doubt"])
def test_a_create_that_drifts_is_held_and_one_in_doubt_is_parked(make_stage: MakeStage, is_doubtful: bool) -> None:
    """Also where its contract is live and would send it once more: what may have been applied is never held."""
    stage = staged(make_stage, "key")
    stage.save(1, **ADA)
    if is_doubtful:
        stage.remote.script.next(verbs.store_then_close(), when=creating)
        stage.run(stage.claim())
        assert (stage.attempt()["status"], stage.attempt()["in_doubt"]) == ("pending", True)

    def moved(document: dict[str, Any]) -> None:
        by_key(document)
        profile_of(document).update(endpoint_class="sandbox")

    sends = stage.sends
    stage.apply(pack_with(moved))
    stage.clock_forward(minutes=1)
    stage.drain()
    row = stage.attempt()
    expected = ("ambiguous_remote_effect", None, "drift") if is_doubtful else ("pending", "drift", "drift")
    assert (row["status"], row["hold_code"], row["reason_code"]) == expected
    assert stage.sends == sends


@pytest.mark.rule("DL-04", "D-07")
def test_the_lane_of_deferred_associations_never_replays_by_itself(make_stage: MakeStage) -> None:
    """The same lost answer in that lane is parked, contract or not."""
    stage = staged(make_stage, "key")
    stage.remote.script.next(verbs.store_then_close(), when=creating)
    stage.save(1, **ADA)
    stage.sql("UPDATE pushlink_push_attempt SET dispatch_lane = 'deferred_association'")
    for _ in range(3):
        stage.drain()
        stage.clock_forward(minutes=2)
    assert (stage.attempt()["status"], len(sent_creates(stage))) == ("ambiguous_remote_effect", 1)


@pytest.mark.rule("DR-11")
@pytest.mark.parametrize(("scope", "status"), [("tenant", "finalized"), ("credential", "ambiguous_remote_effect")])
def test_a_key_of_a_credential_ends_with_it(make_stage: MakeStage, scope: str, status: str) -> None:
    """The profile says that a rotated secret reaches the same tenant; a key that hangs on it is gone."""
    stage = staged(
        make_stage,
        "key",
        more=lambda document: action_of(document)["create"]["idempotency"].update(scope=scope),
        waives={"credential_generation": True},
    )
    stage.remote.script.next(verbs.store_then_close(), when=creating)
    stage.save(1, **ADA)
    stage.run(stage.claim())
    stage.credentials.current = "generation-2"
    stage.clock_forward(minutes=2)
    stage.drain()
    assert (stage.attempt()["status"], creates(stage)) == (status, 1)


def test_the_first_send_is_told_in_every_repeat_alike(make_stage: MakeStage) -> None:
    """Remotes of repeatable requests want the moment of the first send, the same one each time."""

    def first_sent(document: dict[str, Any]) -> None:
        action_of(document)["create"]["idempotency"]["first_sent"] = "Repeatability-First-Sent"

    stage = staged(make_stage, "key", more=first_sent)
    stage.remote.script.next(verbs.store_then_close(), when=creating)
    stage.save(1, **ADA)
    stage.drain()
    stage.clock_forward(minutes=3)
    stage.drain()
    told = [dict(request.headers)["Repeatability-First-Sent"] for request in sent_creates(stage)]
    first = stage.attempt()["first_io_at"].replace(microsecond=0)
    assert told == [first.strftime("%a, %d %b %Y %H:%M:%S GMT")] * 2


@pytest.mark.rule("C-092")
@pytest.mark.parametrize(("place", "name"), [("query", "requestid"), ("body", "/idempotency_key")])
def test_a_key_stands_in_the_query_or_in_the_body(make_stage: MakeStage, place: str, name: str) -> None:
    """Frozen with the request, so that a repeat has it too."""

    def elsewhere(document: dict[str, Any]) -> None:
        action_of(document)["create"]["idempotency"] |= {"in": place, "name": name, "format": "token"}

    stage = staged(make_stage, "key", more=elsewhere)
    stage.save(1, **ADA)
    [request] = stage.rows("push_request")
    key = request["idempotency_key"].replace("-", "")
    if place == "query":
        assert request["path"] == f"/people?requestid={key}"
    else:
        assert json.loads(request["body"])["idempotency_key"] == key


def test_contracts_are_frozen_with_the_attempt(make_stage: MakeStage) -> None:
    """What decides later stands in the snapshot of the save."""
    stage = staged(make_stage, "key")
    stage.save(1, **ADA)
    [request] = stage.rows("push_request")
    with stage.engine.begin() as conn:
        _, actions = stage.world.thaw(conn, [], [request["action_digest"]])
    [action] = actions.values()
    assert isinstance(action, ActionSnapshot)
    assert action.contract.create.idempotency is not None
    assert action.contract.create.idempotency.lifetime_ms == 3_600_000
