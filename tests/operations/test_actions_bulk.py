"""Many decisions from a file, what waits for people, exports, and the audit's chain."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flows.stage import Stage
from operations.operators import actions, create_of, decide, failed_create, lost_create, settle
from pushlink.errors import CallerError
from pushlink.operations import waiting
from pushlink.operations.actions import OperatorTerms
from pushlink.operations.actions_bulk import Bulk, act_many, read_decisions
from pushlink.operations.verifying import verify
from pushlink.operations.waiting import StuckGroup
from pushlink.protocol.verbs import Verb
from pushlink.store.access import Connection
from pushlink.testing import verbs
from pushlink.testing.messages import creating, updating

HEAD = "attempt_id,row_version,verb,argument,reason\n"


def parked(stage: Stage, count: int) -> list[dict[str, Any]]:
    """Some creates that may have been applied."""
    stage.remote.script.always(verbs.store_then_close(), when=creating)
    for number in range(1, count + 1):
        stage.save(number, name=f"P{number}", email="p@example.com")
    stage.drain()
    return [create_of(stage, number) for number in range(1, count + 1)]


def line(row: dict[str, Any], verb: str, argument: str = "", reason: str = "looked", version: int | None = None) -> str:
    return f"{row['id']},{version or row['row_version']},{verb},{argument},{reason}\n"


def run(stage: Stage, text: str, **mode: bool) -> Bulk:
    rows = read_decisions(text, actor="olga")
    return act_many(stage.engine.begin, stage.world, rows, terms=OperatorTerms(), **mode)


@pytest.mark.rule("C-017", "SY-03")
def test_a_file_of_decisions_is_made_row_by_row_and_a_refused_one_costs_the_others_nothing(stage: Stage) -> None:
    """Adopted, absent, stale, an id that is taken, an unknown row, no verb: each its own answer."""
    rows = parked(stage, 6)
    owned = stage.remote.api.records[0].id
    decide(stage, Verb.ADOPT, rows[0], argument=str(owned))
    stage.drain()
    settle(stage)
    text = HEAD + "".join(
        [
            line(rows[1], "adopt", "102"),
            line(rows[2], "absent"),
            line(rows[3], "adopt", "103", version=99),
            line(rows[4], "adopt", str(owned)),
            line({"id": "f" * 32, "row_version": 1}, "adopt", "104"),
            line(rows[5], "forget"),
        ]
    )
    before = stage.census()
    dry = run(stage, text, dry_run=True)
    assert stage.census() == before
    done = run(stage, text)
    assert [(row.outcome, row.code) for row in done.rows] == [
        ("done", None),
        ("done", None),
        ("refused", "stale_version"),
        ("refused", "not_allowed_now"),
        ("refused", "record_unknown"),
        ("refused", "caller_mistake"),
    ]
    assert [(row.outcome, row.code, row.message) for row in dry.rows] == [
        (row.outcome, row.code, row.message) for row in done.rows
    ]
    assert (dry.applied, done.applied, done.done, done.refused) == (False, True, 2, 4)
    assert [row["verb"] for row in actions(stage)] == ["reconcile adopt", "reconcile adopt", "reconcile absent"]
    assert create_of(stage, 3)["status"] == "terminal_failed"


@pytest.mark.rule("C-017")
def test_all_or_nothing_is_nothing_when_one_row_is_refused(stage: Stage) -> None:
    """Every row says what would have become of it; none was made."""
    rows = parked(stage, 3)
    bad = HEAD + line(rows[0], "adopt", "101") + line(rows[1], "absent") + line(rows[2], "adopt", "103")
    before = stage.census()
    done = run(stage, bad, all_or_nothing=True)
    assert [row.outcome for row in done.rows] == ["undone", "refused", "undone"]
    assert (done.applied, stage.census() == before) == (False, True)
    settle(stage)
    assert run(stage, bad, all_or_nothing=True).applied is True
    assert len(actions(stage)) == 3


@pytest.mark.rule("C-017", "MG-03", "LK-03")
def test_two_rows_that_claim_one_remote_id_are_both_refused(stage: Stage) -> None:
    """A file cannot know which of them is right."""
    rows = parked(stage, 2)
    done = run(stage, HEAD + line(rows[0], "adopt", "101") + line(rows[1], "adopt", "101"))
    assert [row.outcome for row in done.rows] == ["refused", "refused"]


@pytest.mark.rule("C-017")
def test_a_parked_record_never_stands_in_the_way_of_another(stage: Stage) -> None:
    """Its own place is occupied and nobody else's."""
    parked(stage, 3)
    stage.save(9, name="Free", email="f@example.com")
    assert create_of(stage, 9)["status"] == "pending"


@pytest.mark.parametrize(
    "row",
    [
        "{id},x,adopt,7,why",
        "{id},3,adopt",
        "{id},3,absent,7,why",
        "{id},3,adopt,,why",
        "{id},3,absent,,",
        "{id},3,a,b,c,d",
    ],
)
def test_a_row_that_is_not_whole_is_refused_alone(stage: Stage, row: str) -> None:
    """Version, cells, argument and reason are asked for; the file goes on."""
    first, second = parked(stage, 2)
    done = run(stage, HEAD + f"{first['id']},{row}\n" + line(second, "adopt", "102"))
    assert [result.outcome for result in done.rows] == ["refused", "done"]


def test_a_file_with_other_columns_is_none() -> None:
    """The message names the columns."""
    with pytest.raises(CallerError, match="attempt_id, row_version"):
        read_decisions("a,b\n1,2\n", actor="olga")


@pytest.mark.rule("SY-03", "D-35")
def test_a_file_may_reserve_and_release_by_a_word_and_name_links_by_their_ids(stage: Stage) -> None:
    """The argument of a supersede or a retire is one word or none; another one is refused."""
    rows = [failed_create(stage), stage.linked(2), stage.linked(3)]
    [first, second, third] = [rows[0], *rows[1:]]
    done = run(
        stage,
        HEAD
        + line(first, "supersede", "reserve")
        + line(second, "retire", "release")
        + line(third, "retire", "reserve")
        + line(third, "retire"),
    )
    assert [(row.outcome, row.code) for row in done.rows] == [
        ("done", None),
        ("done", None),
        ("refused", "caller_mistake"),
        ("done", None),
    ]
    assert create_of(stage)["ordinal"] == 2
    assert [stage.link(number)["slot_key"] is None for number in (2, 3)] == [True, False]


# --------------------------------------------------------------------------------------- stuck, export, verify


def stuck(stage: Stage, conn: Connection) -> tuple[StuckGroup, ...]:
    return waiting.stuck(conn, world=stage.world, now=stage.clock.now(conn))


@pytest.mark.rule("D-39", "C-095")
def test_stuck_lists_everything_that_waits_for_a_person_by_cause(stage: Stage) -> None:
    """One of each kind, with the decisions that its state allows and the command to type."""
    lost_create(stage, 2)
    failed_create(stage)
    stage.save(3, name="Held", email="h@example.com")
    stage.sql("UPDATE pushlink_push_attempt SET hold_code = 'poison' WHERE status = 'pending'")
    stage.linked(4)
    decide(stage, Verb.SUSPEND, stage.link(4))
    stage.save(5, name="Lane", email="l@example.com")
    stage.sql(
        "UPDATE pushlink_push_attempt SET dispatch_lane = 'of_tomorrow' WHERE status = 'pending' AND hold_code IS NULL"
    )
    with stage.engine.begin() as conn:
        groups = stuck(stage, conn)
    assert [(g.kind, g.code, g.count) for g in groups] == [
        ("doubtful", "effect_unknown", 1),
        ("failed", "remote_rejected", 1),
        ("held", "poison", 1),
        ("stranded", "", 1),
        ("suspended", "operator_decision", 1),
    ]
    for group in groups:
        [row] = group.rows
        assert row.verbs
        assert all(str(row.row_version) in verb.command for verb in row.verbs if verb.name != "explain")
    assert [verb.name for verb in groups[3].rows[0].verbs] == ["repair-lane", "explain"]


def test_stuck_has_what_the_remote_refused_and_nothing_that_is_settled(stage: Stage) -> None:
    """A refused version waits while it is the wanted one; a newer save has gone on."""
    stage.linked(1)
    stage.remote.script.next(verbs.answer(422, {"error": "no"}), when=updating)
    stage.save(1, name="Ada L.")
    stage.drain()
    with stage.engine.begin() as conn:
        [group] = stuck(stage, conn)
    assert (group.kind, group.code, group.count) == ("refused", "remote_rejected", 1)
    assert "release-version" in [verb.name for verb in group.rows[0].verbs]
    stage.save(1, name="Ada Lovelace")
    stage.drain()
    with stage.engine.begin() as conn:
        assert stuck(stage, conn) == ()


@pytest.mark.rule("C-095")
def test_stuck_has_what_is_tried_in_vain_until_somebody_mends_it(stage: Stage) -> None:
    """A certificate that nobody trusts: no hold, yet an operator finds it; once it is mended, nothing waits."""
    stage.remote.script.next(verbs.untrusted_certificate(), when=creating)
    stage.save(1, name="Ada", email="a@example.com")
    stage.drain()
    with stage.engine.begin() as conn:
        [group] = stuck(stage, conn)
    assert (group.kind, group.code, group.count) == ("retried", "certificate_untrusted", 1)
    assert "egress.ca_file" in group.next_step
    assert [verb.command for verb in group.rows[0].verbs] == ["pushlink explain Person 1"]
    stage.clock_forward()
    stage.drain()
    with stage.engine.begin() as conn:
        assert stuck(stage, conn) == ()


def test_an_export_is_one_object_a_line_and_shows_no_token_and_no_value(stage: Stage) -> None:
    """Links, attempts and events, in the order of their keys; it can go on behind a key."""
    stage.linked(1, name="Nobody-may-see", email="secret@example.com")
    stage.linked(2)
    with stage.engine.begin() as conn:
        lines = [json.loads(text) for text in waiting.export(conn)]
        some = [json.loads(text) for text in waiting.export(conn, kinds=["link"], after=lines[0]["id"])]
    assert [row["kind"] for row in lines] == sorted((row["kind"] for row in lines), key=waiting.EXPORTED.index)
    assert {row["kind"] for row in lines} == set(waiting.EXPORTED)
    assert [row["id"] for row in some] == [lines[1]["id"]]
    assert "claim_token" not in {name for row in lines for name in row}
    assert "Nobody-may-see" not in json.dumps(lines)


@pytest.mark.rule("SY-03")
def test_verify_counts_the_actions_and_names_the_newest_seal(stage: Stage) -> None:
    """Both can be kept elsewhere: a chain alone does not show that its end was cut off."""
    for row in parked(stage, 2):
        decide(stage, Verb.ADOPT, row, argument=row["id"])
    with stage.engine.begin() as conn:
        found = verify(conn)
    kept = stage.rows("operator_action", "id")
    assert (found.is_whole, found.broken, found.actions, found.head) == (True, (), len(kept), kept[-1]["hash"])
