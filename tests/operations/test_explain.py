"""Every state that a record can be in is explained: one word, a cause, evidence, what it waits for, what may follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flows.stage import MakeStage, Stage, action_of, pack_with, profile_of, without_mirror
from operations.operators import refused
from pushlink.flows.outcomes import Refused
from pushlink.operations import words
from pushlink.operations.explain import ActionState, Explanation, explain
from pushlink.operations.words import Word
from pushlink.protocol.snapshots import write_time
from pushlink.protocol.states import AttemptStatus, Hold, LinkStatus, Operation, statuses
from pushlink.protocol.verbs import Verb
from pushlink.testing import verbs
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.messages import creating, reading, updating
from pushlink.testing.scripted import ScriptedTransport

ADA = {"name": "Ada", "email": "ada@example.com"}
SECRET_NAME = "Ada-whom-nobody-may-see"


def explained(stage: Stage, record_id: int = 1, *, tenant: str = "") -> Explanation:
    with stage.engine.begin() as conn:
        return explain(conn, "Person", str(record_id), tenant=tenant, now=stage.clock.now(conn), world=stage.world)


def state_of(stage: Stage, record_id: int = 1) -> ActionState:
    [action] = explained(stage, record_id).actions
    return action


def failing(stage: Stage) -> None:
    stage.remote.script.always(verbs.answer(422, {"error": "no"}), when=creating)
    stage.save(1, **ADA)
    stage.drain()


def lost_create(stage: Stage) -> None:
    stage.remote.script.next(verbs.store_then_close(), when=creating)
    stage.save(1, **ADA)
    stage.drain()


def update_meets(verb: verbs.Verb) -> Callable[[Stage], None]:
    def arrange(stage: Stage) -> None:
        stage.linked(1, **ADA)
        stage.remote.script.always(verb, when=updating)
        stage.save(1, name="Ada L.")
        stage.drain()

    return arrange


def mirror_waits(stage: Stage) -> None:
    stage.save(1, **ADA)
    flow = stage.paused().to_send()
    flow.step()
    flow.step()


def changed_pack(stage: Stage) -> None:
    stage.linked(1, **ADA)
    stage.apply(pack_with(lambda document: action_of(document)["mappings"].pop()))


def held_create(stage: Stage) -> None:
    stage.save(1, **ADA)
    stage.apply(pack_with(lambda document: profile_of(document).update(credential_ref="env:OTHER_TOKEN")))
    stage.drain()


def sql(statement: str, *, linked: bool = False) -> Callable[[Stage], None]:
    def arrange(stage: Stage) -> None:
        if linked:
            stage.linked(1, **ADA)
        else:
            stage.save(1, **ADA)
        stage.sql(statement)

    return arrange


def overdue(stage: Stage) -> None:
    stage.save(1, **ADA)
    stage.paused()
    stage.clock_forward()


def untrusted(stage: Stage) -> None:
    stage.remote.script.always(verbs.untrusted_certificate(), when=creating)
    stage.save(1, **ADA)
    stage.drain()


STATES: dict[str, tuple[Callable[[Stage], object], str | None, bool]] = {
    "unsaved": (lambda stage: stage.put(1, **ADA), None, False),
    "waiting": (lambda stage: stage.save(1, **ADA), None, False),
    "sending": (lambda stage: (stage.save(1, **ADA), stage.paused()), None, False),
    "overdue": (overdue, None, False),
    "doubtful": (lost_create, "effect_unknown", True),
    "failed": (failing, "remote_rejected", True),
    "mirroring": (mirror_waits, None, False),
    "synced": (lambda stage: stage.linked(1, **ADA), None, False),
    "adopted": (
        sql(
            "UPDATE pushlink_push_slot SET wanted_version = 0, acknowledged_version = 0, wanted_values_digest = NULL",
            linked=True,
        ),
        None,
        False,
    ),
    "drifted": (changed_pack, "drift", True),
    "held": (held_create, "drift", True),
    "rejected": (update_meets(verbs.answer(422)), "remote_rejected", True),
    "suspended": (update_meets(verbs.answer(404)), "remote_gone", True),
    "retired": (
        sql("UPDATE pushlink_remote_link SET status = 'retired', locator_key = NULL", linked=True),
        None,
        False,
    ),
    "stranded": (sql("UPDATE pushlink_push_attempt SET dispatch_lane = 'tomorrow'"), None, True),
    "stale": (sql("UPDATE pushlink_push_slot SET wanted_state = 'stale_mapping'", linked=True), None, True),
    "behind": (
        sql(
            "UPDATE pushlink_push_slot SET wanted_version = 7, wanted_values_digest = 'sha256:other'",
            linked=True,
        ),
        None,
        True,
    ),
}


@pytest.mark.rule("C-095", "D-04")
@pytest.mark.parametrize("state", STATES)
def test_a_record_in_each_state_is_explained(stage: Stage, state: str) -> None:
    """One word, the code of the row, who has to act, and at least one thing to do or to look at."""
    arrange, code, needs_person = STATES[state]
    arrange(stage)
    found = state_of(stage)
    assert (found.state, found.cause.code, found.needs_person) == (state, code, needs_person)
    assert found.cause.sentence.endswith(".")
    assert found.waits_for
    assert "{" not in found.cause.sentence + found.waits_for
    assert found.verbs
    assert (found.since is None) is (state == "unsaved")


@pytest.mark.rule("C-095", "D-05")
def test_a_certificate_that_is_not_trusted_is_said_at_once(stage: Stage) -> None:
    """Nothing was sent and it goes on by itself, but somebody has to mend it: the code, the words, a person."""
    untrusted(stage)
    found = state_of(stage)
    assert (found.state, found.cause.code, found.needs_person) == ("waiting", "certificate_untrusted", True)
    assert "certificate" in found.cause.sentence
    assert found.evidence["error_text"] == "untrusted_certificate"
    assert found.evidence["in_doubt"] is False


@pytest.mark.rule("C-095")
def test_a_create_that_is_looked_up_says_when_the_remote_is_asked_again(make_stage: MakeStage) -> None:
    """No worker holds it between two look-ups, and one that is due is not overdue."""
    job = {"path": "/jobs/{job}", "job": [{"from": "$response.body#/job"}], "id": [{"from": "$response.body#/id"}]}

    def change(document: dict[str, Any]) -> None:
        action_of(document)["create"]["async"] = {**job, "every": "10s", "timeout": "1h"}

    stage = make_stage(pack=pack_with(change))
    stage.remote.script.always(verbs.answer(202, {"job": "j-1"}), when=creating)
    stage.remote.script.always(verbs.answer(200, {"state": "running"}), when=reading)
    stage.save(1, **ADA)
    stage.drain()
    stage.clock_forward(seconds=1)
    stage.drain()
    for seconds in (0, 60):
        stage.clock_forward(seconds=seconds)
        found = state_of(stage)
        assert (found.state, found.cause.code, found.needs_person) == ("sending", "accepted_pending", False)
        due = write_time(stage.attempt()["lease_until"])
        assert found.waits_for == f"a worker, which asks the remote again from {due} on"


def test_a_freed_record_may_be_saved_again(stage: Stage) -> None:
    """A retired link whose slot was released stands in nobody's way."""
    stage.linked(1, **ADA)
    stage.sql("UPDATE pushlink_remote_link SET status = 'retired', locator_key = NULL, slot_key = NULL")
    stage.sql("UPDATE pushlink_push_attempt SET create_key = NULL")
    assert state_of(stage).state == "freed"


def test_a_refused_first_save_does_not_read_as_a_freed_place(stage: Stage) -> None:
    """What was refused after its slot was made has left nothing behind; no earlier create is spoken of."""
    stage.credentials.current = None
    assert isinstance(stage.save(1, **ADA), Refused)
    assert stage.rows("push_slot")
    assert not stage.rows("push_attempt")
    assert state_of(stage).state == "unsaved"


@pytest.mark.rule("LK-07", "D-15")
def test_a_conflict_names_both_owners_and_offers_no_supersede(make_stage: MakeStage) -> None:
    """Two local records were given one remote id: the second one waits, with both link keys as evidence."""
    stage = make_stage(remote=ScriptedTransport(RemoteOptions(prefix="/v2", ids=lambda _: 7)))
    stage.linked(1, **ADA)
    stage.save(2, name="Eve", email="eve@example.com")
    stage.drain()
    found = state_of(stage, 2)
    assert (found.state, found.cause.code, found.remote_id) == ("conflict", "locator_conflict", "7")
    assert found.evidence["owner_link_key"] == stage.link(1)["link_key"]
    assert [verb.name for verb in found.verbs] == ["history", "dispose", "retire"]


@pytest.mark.rule("C-016", "D-04", "D-08")
def test_a_doubtful_create_says_when_it_may_have_been_applied_and_by_which_verbs_it_is_settled(stage: Stage) -> None:
    """Who claimed it, between which moments it was sent, what came back, and two verbs that send nothing."""
    lost_create(stage)
    found = state_of(stage)
    assert found.evidence["in_doubt"] is True
    assert " and " in str(found.evidence["sent_between"])
    assert found.evidence["claimed_by"]
    refusal = refused(stage, Verb.ABSENT, stage.attempt())
    assert found.evidence["settles_at"] == refusal.evidence["settles_at"]
    [reply] = found.evidence["replies"]
    assert reply["effect"] not in {"applied", "not_applied"}
    names = [verb.name for verb in found.verbs]
    assert names == ["history", "reconcile adopt", "reconcile absent", "reconcile reinterpret"]
    row = stage.attempt()
    assert [verb.command for verb in found.verbs][:3] == [
        "pushlink history Person 1",
        f"pushlink reconcile {row['id']} --adopt ID --row-version {row['row_version']} --reason REASON",
        f"pushlink reconcile {row['id']} --absent --row-version {row['row_version']} --reason REASON",
    ]


@pytest.mark.rule("D-19")
def test_versions_are_shown(stage: Stage) -> None:
    """What is wanted, acknowledged and refused."""
    update_meets(verbs.answer(422))(stage)
    versions = state_of(stage).versions
    assert versions is not None
    assert (versions.wanted, versions.acknowledged, versions.refused, versions.note) == (2, 1, 2, "refused_version")


@pytest.mark.rule("D-20")
def test_a_doubtful_update_is_about_the_update(stage: Stage) -> None:
    """The link is fine and the update is not: its verbs are those of an update."""
    update_meets(verbs.store_then_close())(stage)
    found = state_of(stage)
    assert (found.state, found.cause.code) == ("doubtful", "effect_unknown")
    assert "reconcile resend" in [verb.name for verb in found.verbs]


@pytest.mark.rule("AU-05")
def test_no_value_of_the_record_is_in_an_explanation(stage: Stage) -> None:
    """Names, codes and ids are shown, and never what a field holds."""
    stage.save(1, name=SECRET_NAME, email="secret@example.com")
    stage.remote.script.always(verbs.answer(422, {"error": f"{SECRET_NAME} is wrong"}), when=creating)
    stage.drain()
    text = repr(explained(stage))
    assert SECRET_NAME not in text
    assert "secret@example.com" not in text


@pytest.mark.rule("D-40")
def test_another_tenant_sees_nothing(stage: Stage) -> None:
    """What one tenant saved does not exist for another one."""
    stage.linked(1, **ADA)
    found = explained(stage, tenant="north")
    assert found.actions == ()
    assert found.notes


@pytest.mark.rule("GT-01")
def test_an_object_without_an_action_says_so(make_stage: MakeStage) -> None:
    """Nothing is installed: the note says what is missing."""
    found = explained(make_stage(pack=None))
    assert found.actions == ()
    assert "No installed pack" in found.notes[0]


@pytest.mark.rule("D-36")
def test_recovery_mode_is_noted(stage: Stage) -> None:
    """A person who asks why nothing is sent is told."""
    stage.sql("UPDATE pushlink_deployment SET mode = 'recovery'")
    assert any("recovery mode" in note for note in explained(stage).notes)


def test_a_hold_of_a_later_release_is_shown_as_it_is(stage: Stage) -> None:
    """The word is in the sentence; nobody touches the row."""
    sql("UPDATE pushlink_push_attempt SET hold_code = 'of_tomorrow'")(stage)
    found = state_of(stage)
    assert found.state == "held"
    assert "of_tomorrow" in found.cause.sentence


def test_without_a_mirror_a_finalized_create_is_synced(make_stage: MakeStage) -> None:
    """The result commit is the end of it."""
    stage = make_stage(pack=without_mirror())
    stage.linked(1, **ADA)
    assert state_of(stage).state == "synced"


# --------------------------------------------------------------------------------------- the tables of words


def all_words() -> list[Word]:
    singles = [value for value in vars(words).values() if isinstance(value, Word)]
    tables: list[Any] = [words.CREATES, words.UPDATES, words.HOLDS, words.LINKS]
    return [*singles, *(word for table in tables for word in table.values() if word is not None)]


def test_every_status_and_every_hold_has_its_word() -> None:
    """A new status without a word would be a row that nobody can explain."""
    assert set(words.CREATES) == statuses(Operation.CREATE) <= set(AttemptStatus)
    assert set(words.UPDATES) == statuses(Operation.UPDATE)
    assert set(words.HOLDS) == set(Hold)
    assert set(words.LINKS) == set(LinkStatus)


def test_every_state_is_one_word_and_every_verb_is_known() -> None:
    """A state can be matched by a script, and no table names a verb that the verb table lacks."""
    from pushlink.operations.verbs import verbs as verbs_of

    for word in all_words():
        assert word.state.isalpha()
        assert verbs_of(word.verbs, source_object="Note", record_id="1", tenant="") or not word.verbs


def test_commands_quote_what_a_shell_would_read_otherwise() -> None:
    """A record id is text: it may hold spaces and quotes, and the command to copy is safe all the same."""
    from pushlink.operations.verbs import verbs as verbs_of

    [save] = verbs_of(["save"], source_object="Note", record_id="a'; rm -rf b", tenant="no rth")
    assert save.command == """pushlink save Note 'a'"'"'; rm -rf b' --user USER --tenant 'no rth'"""
