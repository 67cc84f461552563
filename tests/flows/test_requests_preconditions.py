"""Preconditions end to end: what is asked of the remote before a request takes effect, and what its refusal means."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from flows.stage import MakeStage, Stage, action_of, pack_with, step_of
from pushlink.flows.outcomes import Refused
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.messages import reading, updating
from pushlink.testing.scripted import ScriptedTransport
from pushlink.testing.verbs import answer, not_started, store_then_close

ETAG = [{"from": "$response.header.ETag"}]
FRESH = {"kind": "etag", "source": "fresh_get"}


def remote(**options: Any) -> ScriptedTransport:
    return ScriptedTransport(RemoteOptions(prefix="/v2", etags="strong", **options))


def guarded(update: dict[str, Any], **response: Any) -> dict[str, Any]:
    """The pack with a precondition on its update."""

    def change(document: dict[str, Any]) -> None:
        action_of(document)["update"]["precondition"] = update
        action_of(document)["create"]["response"] |= response

    return pack_with(change)


def tags(stage: Stage) -> list[str | None]:
    """The If-Match of each request that was sent."""
    return [logged.asked.header("If-Match") for logged in stage.remote.log]


def methods(stage: Stage) -> list[str]:
    return [logged.asked.method for logged in stage.remote.log]


# --------------------------------------------------------------------------------------- the link's own version


@pytest.mark.rule("C-050")
def test_an_update_names_the_version_that_the_link_was_last_seen_with(make_stage: MakeStage) -> None:
    """The tag of the create's answer goes with the first update, the one of that update's answer with the second."""
    stage = make_stage(pack=guarded({"kind": "etag"}, version=ETAG), remote=remote())
    stage.linked(1, name="Ada")
    for name in ("Ada L.", "Ada Lovelace"):
        stage.save(1, name=name)
        stage.drain()
    assert tags(stage) == [None, '"v1"', '"v2"']
    assert stage.link()["remote_version"] == '"v3"'
    assert stage.attempts()[-1]["status"] == "finalized"


@pytest.mark.rule("C-050", "C-047", "DR-25")
def test_an_edit_at_the_remote_is_not_overwritten(make_stage: MakeStage) -> None:
    """The tag is stale: 412, the link is suspended with evidence, nothing was changed, and nothing more is sent."""
    stage = make_stage(pack=guarded({"kind": "etag"}, version=ETAG), remote=remote())
    link = stage.linked(1, name="Ada")
    stage.remote.api.edit("people", link["remote_id"], name="Somebody else's")
    stage.save(1, name="Ours")
    stage.drain()
    assert stage.link()["status"] == "suspended_drift"
    assert stage.link()["reason_code"] == "remote_changed"
    assert stage.attempts()[-1]["status"] == "terminal_failed"
    assert stage.remote.api.record("people", link["remote_id"]).document["name"] == "Somebody else's"
    sent = stage.sends
    stage.save(1, name="Ours again")
    stage.drain()
    assert stage.sends == sent


@pytest.mark.rule("C-047")
def test_a_stale_token_in_a_body_is_what_the_pack_says_it_is(make_stage: MakeStage) -> None:
    """A 400 with the declared code means changed by somebody else; the version is a number in the body."""
    condition = {
        "kind": "version_field",
        "pointer": "/SyncToken",
        "integer": True,
        "on_fail": [{"status": [400], "pointer": "/code", "equals": "5010"}],
    }
    stage = make_stage(pack=guarded(condition, version=[{"from": "$response.body#/SyncToken"}]), remote=remote())
    stage.remote.script.next(answer(201, {"id": 7, "SyncToken": 3}))
    stage.linked(1, name="Ada")
    stage.remote.script.next(answer(400, {"code": "5010"}))
    stage.save(1, name="Ada L.")
    stage.drain()
    assert stage.remote.log[-1].asked.json()["SyncToken"] == 3
    assert stage.link()["status"] == "suspended_drift"
    assert stage.link()["reason_code"] == "remote_changed"


@pytest.mark.rule("D-06", "C-050")
def test_a_refused_precondition_after_an_unknown_send_proves_nothing(make_stage: MakeStage) -> None:
    """The first send may have changed the version itself: the update stays ambiguous, and is not sent again."""
    stage = make_stage(pack=guarded({"kind": "etag"}, version=ETAG), remote=remote())
    stage.linked(1, name="Ada")
    stage.remote.script.next(store_then_close(), when=updating)
    stage.save(1, name="Ada L.")
    stage.drain()
    stage.clock_forward()
    stage.drain()
    assert stage.attempts()[-1]["status"] == "ambiguous_remote_effect"
    assert methods(stage) == ["POST", "PATCH"]


# --------------------------------------------------------------------------------------- one refetch, one retry


@pytest.mark.rule("C-047", "RR-01")
def test_a_profile_may_read_the_version_once_and_try_once_more(make_stage: MakeStage) -> None:
    """One GET, one more PATCH with its tag, as a freeze of its own; what was sent is what was frozen."""
    stage = make_stage(pack=guarded({"kind": "etag", "refetch_once": True}, version=ETAG), remote=remote())
    link = stage.linked(1, name="Ada", email="a@example.com")
    stage.remote.api.edit("people", link["remote_id"], email="other@example.com")
    stage.save(1, name="Ada L.")
    stage.drain()
    stage.clock_forward(minutes=10)
    stage.drain()
    assert methods(stage) == ["POST", "PATCH", "GET", "PATCH"]
    assert tags(stage) == [None, '"v1"', None, '"v2"']
    assert stage.link()["status"] == "finalized"
    assert stage.attempts()[-1]["status"] == "finalized"
    frozen = stage.rows("push_request", "freeze", attempt_id=stage.attempts()[-1]["id"])
    assert [row["freeze"] for row in frozen] == [1, 2]
    assert ['"v1"' in row["headers"].replace("\\", "") for row in frozen] == [True, False]
    assert frozen[0]["body"] == frozen[1]["body"]


@pytest.mark.rule("C-047")
def test_a_second_stale_version_suspends_the_link(make_stage: MakeStage) -> None:
    """Once is once: whoever changes the record again and again is not raced."""
    stage = make_stage(pack=guarded({"kind": "etag", "refetch_once": True}, version=ETAG), remote=remote())
    stage.linked(1, name="Ada")
    stage.remote.script.always(answer(412), when=updating)
    stage.save(1, name="Ada L.")
    for _ in range(4):
        stage.drain()
        stage.clock_forward(minutes=10)
    assert methods(stage) == ["POST", "PATCH", "GET", "PATCH"]
    assert stage.link()["status"] == "suspended_drift"


# --------------------------------------------------------------------------------------- a fresh read


@pytest.mark.rule("C-048", "D-21")
def test_a_fresh_version_is_read_before_each_send_and_frozen_with_it(make_stage: MakeStage) -> None:
    """The remote insists on a tag; it is read under the claim, before the checkpoint, and again for a retry."""
    stage = make_stage(pack=guarded(FRESH), remote=remote(requires_if_match=True))
    link = stage.linked(1, name="Ada")
    stage.remote.api.edit("people", link["remote_id"], email="x")
    stage.remote.script.next(answer(429), when=updating)
    stage.save(1, name="Ada L.")
    stage.drain()
    stage.remote.api.edit("people", link["remote_id"], email="y")
    stage.clock_forward()
    stage.drain()
    assert methods(stage) == ["POST", "GET", "PATCH", "GET", "PATCH"]
    assert tags(stage) == [None, None, '"v2"', None, '"v3"']
    assert stage.attempts()[-1]["status"] == "finalized"
    assert stage.attempts()[-1]["send_count"] == 2


def test_the_read_comes_before_the_checkpoint(make_stage: MakeStage) -> None:
    """A crash in it leaves an attempt that never started; the next claim reads again."""
    stage = make_stage(pack=guarded(FRESH), remote=remote())
    stage.linked(1, name="Ada")
    stage.save(1, name="Ada L.")
    paused = stage.paused().to_send()
    assert paused.effect.request.method == "GET"
    assert not paused.effect.gated
    assert stage.attempts()[-1]["remote_io_started_at"] is None
    stage.clock_forward()
    stage.drain()
    assert stage.attempts()[-1]["status"] == "finalized"
    paused.step()
    assert step_of(paused.effect) == "checkpoint"
    paused.step()
    assert paused.effect is None  # its claim was gone, so nothing more is sent
    assert methods(stage).count("PATCH") == 1


@pytest.mark.rule("DR-24", "D-23", "C-044")
def test_a_record_that_the_read_does_not_find_suspends_its_link(make_stage: MakeStage) -> None:
    """Gone, by a credential that the remote has accepted: nothing is patched, and nothing is created anew."""
    stage = make_stage(pack=guarded(FRESH), remote=remote())
    link = stage.linked(1, name="Ada")
    stage.remote.api.delete("people", link["remote_id"])
    stage.save(1, name="Ada L.")
    stage.drain()
    assert methods(stage) == ["POST", "GET"]
    assert stage.link()["status"] == "suspended_drift"
    assert stage.link()["reason_code"] == "remote_gone"
    assert stage.attempts()[-1]["status"] == "terminal_failed"
    assert stage.remote.api.creates == 1


@pytest.mark.rule("C-043", "C-048")
def test_a_read_that_shows_another_record_suspends_its_link(make_stage: MakeStage) -> None:
    """Merged into a survivor: the tag of the survivor is not used."""
    stage = make_stage(pack=guarded(FRESH), remote=remote(merged_answers="survivor"))
    link = stage.linked(1, name="Ada")
    other = stage.linked(2, name="Bea")
    stage.remote.api.merge("people", link["remote_id"], into=other["remote_id"])
    stage.save(1, name="Ada L.")
    stage.drain()
    assert stage.link()["status"] == "suspended_drift"
    assert methods(stage)[-1] == "GET"


@pytest.mark.parametrize("verb", [answer(500), answer(503), not_started(), answer(429)], ids=lambda verb: verb.name)
def test_a_read_that_fails_is_made_again(make_stage: MakeStage, verb: Any) -> None:
    """A read changes nothing, so whatever became of it, nothing is in doubt."""
    stage = make_stage(pack=guarded(FRESH), remote=remote())
    stage.linked(1, name="Ada")
    stage.remote.script.next(verb, when=reading)
    stage.save(1, name="Ada L.")
    stage.drain()
    waiting = stage.attempts()[-1]
    assert (waiting["status"], waiting["in_doubt"], waiting["send_count"]) == ("pending", False, 0)
    stage.clock_forward()
    stage.drain()
    assert stage.attempts()[-1]["status"] == "finalized"


def test_a_read_that_never_succeeds_ends(make_stage: MakeStage) -> None:
    """Its tries are counted; afterwards the update is failed, and nothing was ever sent."""
    pack = guarded(FRESH)
    pack["profiles"]["main"]["retry"] = {"attempts": 3}
    stage = make_stage(pack=pack, remote=remote())
    stage.linked(1, name="Ada")
    stage.remote.script.always(answer(500), when=reading)
    stage.save(1, name="Ada L.")
    for _ in range(5):
        stage.drain()
        stage.clock_forward()
    ended = stage.attempts()[-1]
    assert (ended["status"], ended["reason_code"], ended["send_count"]) == ("terminal_failed", "retries_exhausted", 0)
    assert methods(stage) == ["POST", "GET", "GET", "GET"]
    assert stage.link()["status"] == "finalized"


@pytest.mark.rule("C-048")
def test_a_version_that_is_older_than_the_links_is_never_sent(make_stage: MakeStage) -> None:
    """A list that lags shows 1 where the link has seen 5: it is read again later, and 1 is not sent."""
    condition = {
        "kind": "version_field",
        "pointer": "/version",
        "integer": True,
        "source": "fresh_get",
        "grows": True,
        "fetch": {
            "path": "/people",
            "query": {"id": "{remote_id}"},
            "version": [{"from": "$response.body#/records/0/v"}],
        },
    }
    pack = guarded(condition, version=[{"from": "$response.body#/v"}])
    stage = make_stage(pack=pack, remote=remote())
    stage.remote.script.next(answer(201, {"id": 7, "v": 5}))
    stage.linked(1, name="Ada")
    stage.remote.script.next(answer(200, {"records": [{"v": 1}]}), answer(200, {"records": [{"v": 5}]}), when=reading)
    stage.remote.script.next(answer(200, {"id": 7, "v": 6}), when=updating)
    stage.save(1, name="Ada L.")
    stage.drain()
    assert methods(stage) == ["POST", "GET"]
    stage.clock_forward()
    stage.drain()
    assert methods(stage) == ["POST", "GET", "GET", "PATCH"]
    assert stage.remote.log[1].asked.query == {"id": "7"}
    assert stage.remote.log[-1].asked.json()["version"] == 5
    assert stage.link()["remote_version"] == "6"


def test_an_answer_without_a_version_fails_the_update_and_says_so(make_stage: MakeStage) -> None:
    """Nothing is made up, and nothing is sent without the precondition that the pack wants."""
    stage = make_stage(pack=guarded(FRESH), remote=remote())
    stage.linked(1, name="Ada")
    stage.remote.script.next(answer(200, {"id": stage.link()["remote_id"]}), when=reading)
    stage.save(1, name="Ada L.")
    stage.drain()
    assert stage.attempts()[-1]["status"] == "terminal_failed"
    assert "version" in stage.attempts()[-1]["detail"]
    assert methods(stage) == ["POST", "GET"]


def test_a_link_without_a_version_refuses_the_save_that_would_need_it(make_stage: MakeStage) -> None:
    """No answer has shown one: the save is refused with words."""
    stage = make_stage(pack=guarded({"kind": "etag"}, version=[{"from": "$response.header.X-None"}]), remote=remote())
    stage.linked(1, name="Ada")
    outcome = stage.save(1, name="Ada L.")
    assert isinstance(outcome, Refused)
    assert outcome.code == "freeze_failed"


# --------------------------------------------------------------------------------------- creation and its guards


@pytest.mark.rule("D-24", "C-044")
def test_an_update_that_could_create_is_guarded_by_a_star(make_stage: MakeStage) -> None:
    """The remote's PUT would make a record anew; with `If-Match: *` a deleted one is refused and stays deleted."""

    def change(document: dict[str, Any]) -> None:
        action_of(document)["update"] |= {
            "method": "PUT",
            "creates_if_missing": True,
            "precondition": {"kind": "if_match_star"},
        }

    stage = make_stage(pack=pack_with(change), remote=remote(put_creates=True))
    link = stage.linked(1, name="Ada")
    stage.save(1, name="Ada L.")
    stage.drain()
    assert tags(stage) == [None, "*"]
    stage.remote.script.next(answer(412), when=updating)  # gone: what `*` asks for does not hold
    stage.save(1, name="Ada Lovelace")
    stage.drain()
    assert stage.link()["status"] == "suspended_drift"
    assert stage.link()["reason_code"] == "remote_gone"
    assert stage.remote.api.creates == 1
    assert stage.remote.api.record("people", link["remote_id"])


def test_a_create_may_insist_that_nothing_is_there(make_stage: MakeStage) -> None:
    """A PUT to its own id with `If-None-Match: *`: whoever was there first keeps the record."""

    def change(document: dict[str, Any]) -> None:
        action_of(document)["create"] |= {
            "method": "PUT",
            "path": "/people/{client_id}",
            "client_id": {"from": "field", "field": "email"},
            "precondition": {"kind": "if_none_match_star"},
        }

    stage = make_stage(pack=pack_with(change), remote=remote(put_creates=True))
    stage.linked(1, name="Ada", email="ada")
    assert stage.remote.log[0].asked.header("If-None-Match") == "*"
    stage.save(2, name="Other", email="ada")
    stage.drain()
    assert stage.remote.log[-1].status == 412
    assert stage.attempts(link_key=stage.slot(2)["link_key"])[0]["status"] == "terminal_failed"
    assert stage.remote.api.record("people", "ada").document["name"] == "Ada"


def test_a_create_may_ask_that_nothing_matches(make_stage: MakeStage) -> None:
    """The query of `If-None-Exist` carries the record's own id as a stamp."""

    def change(document: dict[str, Any]) -> None:
        action_of(document)["create"] |= {
            "client_id": {},
            "body": {"merge": {"/identifier": "{client_id}"}},
            "precondition": {"kind": "if_none_exist", "query": {"identifier": "{client_id}"}},
        }

    stage = make_stage(pack=pack_with(change), remote=remote())
    stage.linked(1, name="Ada")
    [sent] = stage.remote.log
    assert sent.asked.header("If-None-Exist") == f"identifier={sent.asked.json()['identifier']}"


@pytest.mark.rule("D-33")
def test_a_throttled_read_makes_everybody_wait(make_stage: MakeStage) -> None:
    """A 429 to the read before an update is shared as one to the update would be; nothing is sent until then."""
    stage = make_stage(pack=guarded(FRESH), remote=remote())
    stage.linked(1, name="Ada")
    stage.remote.script.next(answer(429, {}, headers=[("Retry-After", "600")]), when=reading)
    stage.save(1, name="Ada L.")
    stage.drain()
    [throttle] = stage.rows("remote_throttle")
    assert throttle["not_before"] == stage.fixed.now() + dt.timedelta(seconds=600)
    stage.save(2, name="Bob")
    assert (stage.drain(), methods(stage)) == (0, ["POST", "GET"])
    stage.clock_forward()
    stage.drain()
    assert stage.attempts()[-1]["status"] == "finalized"
