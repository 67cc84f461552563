"""What a pruning may take is total over the machines, the tables and the events: a new one breaks a test (SY-05)."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pushlink
from flows.stage import PACK, MakeStage, Stage, action_of, pack_with
from operations.agreement import groups_of, require_agreement
from operations.operators import decide
from operations.test_pruning import REFERENCES, SCENES, answers
from pushlink.errors import CallerError
from pushlink.operations import keeping
from pushlink.operations.keeping import Run
from pushlink.protocol.states import KNOWN_LANES, AttemptStatus, Lane, Operation, statuses
from pushlink.protocol.verbs import VERBS, Verb
from pushlink.store import upkeep
from pushlink.store.dialect import create_engine
from pushlink.store.schema import upgrade
from pushlink.store.tables import METADATA, push_attempt, push_response
from pushlink.testing import verbs
from pushlink.testing.messages import updating

A = AttemptStatus

#: Whether an attempt may leave at all, status by status: one that is not over decides, and so does every create.
MAY_LEAVE: Final[Mapping[tuple[Operation, AttemptStatus], bool]] = {
    (Operation.CREATE, A.PENDING): False,
    (Operation.CREATE, A.PROCESSING): False,
    (Operation.CREATE, A.POST_SENT): False,
    (Operation.CREATE, A.AMBIGUOUS_REMOTE_EFFECT): False,
    (Operation.CREATE, A.WRITEBACK_COMMIT_PENDING): False,
    (Operation.CREATE, A.WRITEBACK_PENDING): False,
    (Operation.CREATE, A.FINALIZED): False,  # its ordinal, and what a later create path is compared with
    (Operation.CREATE, A.TERMINAL_FAILED): False,  # holds the record's place
    (Operation.CREATE, A.SUPERSEDED): False,  # its ordinal, and what a later create path is compared with
    (Operation.UPDATE, A.PENDING): False,
    (Operation.UPDATE, A.PROCESSING): False,
    (Operation.UPDATE, A.POST_SENT): False,
    (Operation.UPDATE, A.AMBIGUOUS_REMOTE_EFFECT): False,
    (Operation.UPDATE, A.FINALIZED): True,
    (Operation.UPDATE, A.TERMINAL_FAILED): True,
    (Operation.UPDATE, A.SUPERSEDED): True,
}

#: What a pruning may do to the rows of each table.
NEVER, WITH_ATTEMPT, WHEN_OVER = "never", "with its attempt", "when it is over"
TABLES: Final[Mapping[str, str]] = {
    "push_attempt": WHEN_OVER,
    "push_request": WITH_ATTEMPT,
    "push_response": WITH_ATTEMPT,
    "attempt_event": WITH_ATTEMPT,
    "backfill": WHEN_OVER,
    "backfill_refusal": WHEN_OVER,
    "remote_link": NEVER,
    "push_slot": NEVER,
    "frozen_document": NEVER,
    "operator_action": NEVER,
}

#: The events that a decision reads again, and the attempts whose decisions those are: none of them is an ended update.
DECIDING_EVENTS: Final = {"DISPOSED_EVENT": "creates", "_UNHELD_EVENT": "pending", "_CONFIRMED_EVENT": "creates"}

LONG_AGO = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
CUT = dt.datetime(2021, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One attempt, and everything that a pruning asks about it."""

    operation: Operation
    status: AttemptStatus
    in_doubt: bool
    lane: str
    has_newer: bool
    is_late: bool
    is_old: bool
    association: str | None

    @property
    def leaves(self) -> bool:
        """Said once more: it may leave, nobody waits for it, nothing is unknown of it, and it is not the last word."""
        settled = not self.in_doubt and self.lane in KNOWN_LANES and not self.is_late
        return MAY_LEAVE[self.operation, self.status] and settled and self.has_newer and self.is_old


def cases() -> Iterator[Case]:
    flags = (False, True)
    for operation in Operation:
        for status in sorted(statuses(operation)):
            for in_doubt, lane, newer, late, old, association in itertools.product(
                flags, (Lane.CONFIGURED.value, "of_tomorrow"), flags, flags, flags, (None, "company")
            ):
                if in_doubt and status is A.TERMINAL_FAILED:
                    continue  # a CHECK of the table: what is in doubt is not terminal
                yield Case(
                    operation=operation,
                    status=status,
                    in_doubt=in_doubt,
                    lane=lane,
                    has_newer=newer,
                    is_late=late,
                    is_old=old,
                    association=association,
                )


def row_of(number: int, case: Case) -> dict[str, Any]:
    key, in_work = f"key-{number}", case.status in {A.PROCESSING, A.POST_SENT}
    at = LONG_AGO if case.is_old else CUT + dt.timedelta(days=1)
    is_open = case.operation is Operation.UPDATE and not MAY_LEAVE[case.operation, case.status]
    return {
        "id": f"{number:08d}-a",
        "link_key": key,
        "tenant": "",
        "destination_slot_id": "d",
        "operation": case.operation.value,
        "status": case.status.value,
        "dispatch_lane": case.lane,
        "in_doubt": case.in_doubt,
        "association": case.association,
        "update_key": key if is_open else None,
        "claim_token": "t" if in_work else None,
        "lease_until": at if in_work else None,
        "not_before": at,
        "created_at": at,
        "updated_at": at,
    }


def newer_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """A later ended update about the same; it is young, so that it stays itself."""
    young = CUT + dt.timedelta(days=1)
    rest = {"operation": "update", "status": "finalized", "in_doubt": False, "dispatch_lane": "configured"}
    claim = {"update_key": None, "claim_token": None, "lease_until": None}
    return {**row, **rest, **claim, "id": row["id"][:-1] + "b", "created_at": young, "updated_at": young}


def late_answer(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "attempt_id": row["id"],
        "link_key": row["link_key"],
        "claim_token": "t",
        "send_ordinal": 1,
        "received_at": LONG_AGO,
        "status": 200,
        "headers": "{}",
        "body": b"",
        "body_size": 0,
        "body_complete": True,
        "body_digest": "sha256:x",
        "trace": "{}",
        "verdict": "{}",
        "candidate_id": None,
        "late": True,
    }


@pytest.mark.rule("SY-05")
def test_every_attempt_that_there_can_be_stays_or_leaves_as_the_table_says(engine: sa.Engine) -> None:
    """Each status of both machines: in doubt, of an unknown lane, the last word, answered late, old, a call, or not."""
    assert set(MAY_LEAVE) == {(operation, status) for operation in Operation for status in statuses(operation)}
    known = list(cases())
    rows = [row_of(number, case) for number, case in enumerate(known)]
    required = {c.name for c in push_response.columns if not c.nullable and c.default is None and not c.primary_key}
    assert required <= set(late_answer(rows[0])) | {"id"}
    with engine.begin() as conn:
        conn.execute(push_attempt.insert(), rows)
        conn.execute(push_attempt.insert(), [newer_of(r) for r, c in zip(rows, known, strict=True) if c.has_newer])
        conn.execute(push_response.insert(), [late_answer(r) for r, c in zip(rows, known, strict=True) if c.is_late])
        found: list[str] = []
        while page := upkeep.read_prunable(conn, before=CUT, after=found[-1] if found else "", limit=7):
            found += page
        leaving = [row["id"] for row, case in zip(rows, known, strict=True) if case.leaves]
        assert found == leaving
        assert len(leaving) == 2 * len([may for may in MAY_LEAVE.values() if may])
        assert upkeep.prune_updates(conn, found)["updates"] == len(leaving)
        left = set(conn.execute(sa.select(push_attempt.c.id)).scalars())
    assert {row["id"] for row in rows} - left == set(leaving)


def test_the_newest_call_of_an_association_stays_beside_later_updates_of_the_values(engine: sa.Engine) -> None:
    """Each is the last word about its own: one that the remote refused is still listed for a person."""
    refused = row_of(
        1,
        Case(
            operation=Operation.UPDATE,
            status=A.TERMINAL_FAILED,
            in_doubt=False,
            lane="configured",
            has_newer=True,
            is_late=False,
            is_old=True,
            association="company",
        ),
    )
    with engine.begin() as conn:
        conn.execute(push_attempt.insert(), [refused, {**newer_of(refused), "association": None}])
        assert upkeep.read_prunable(conn, before=CUT, after="", limit=10) == []


@pytest.mark.rule("SY-05")
def test_every_table_is_kept_or_says_when_its_rows_leave(make_stage: MakeStage) -> None:
    """All scenes in one database: tables that are kept are as they were, and what left went with its attempt."""
    stage = make_stage()
    for number, scene in enumerate(SCENES, 1):
        scene(stage, number)
    stage.fixed.advance(days=400)
    before = contents(stage)
    keeping.prune(Run(engine=stage.engine, world=stage.world, actor="olga", reason="nightly"), days=1)
    after = contents(stage)
    for name, rows in after.items():
        kept = TABLES.get(name, NEVER)
        if kept is NEVER:
            new = [row for row in rows if row not in before[name]]
            assert [row for row in rows if row not in new] == before[name], name
            assert not new or [row["verb"] for row in new] == ["prune"]
    gone = {row["id"] for row in before["push_attempt"]} - {row["id"] for row in after["push_attempt"]}
    assert gone
    for name in (name for name, kept in TABLES.items() if kept is WITH_ATTEMPT):
        assert after[name] == [row for row in before[name] if row["attempt_id"] not in gone]


def test_no_table_is_deleted_from_that_is_to_be_kept() -> None:
    """Every DELETE of the store is about a table that may lose rows, or about what only paces, waits or wakes."""
    passing = {"association_wait", "association_wake", "remote_throttle", "remote_circuit", "remote_pace"}
    found: set[str] = set()
    for file in (Path(pushlink.__file__).parent / "store").rglob("*.py"):
        if "migrations" not in file.parts:
            found |= set(re.findall(r"sa\.delete\((\w+)\)", file.read_text(encoding="utf-8")))
    tables = {name.removeprefix("pushlink_") for name in METADATA.tables}
    named = found & tables
    assert set(TABLES) <= tables
    assert named <= {name for name, kept in TABLES.items() if kept is not NEVER} | passing


@pytest.mark.rule("SY-05")
def test_every_event_that_a_decision_reads_again_is_one_of_an_attempt_that_stays() -> None:
    """A new one has to say whose decision it is."""
    text = (Path(pushlink.__file__).parent / "store" / "decisions.py").read_text(encoding="utf-8")
    assert set(re.findall(r"t\.c\.event == (\w+)", text)) == set(DECIDING_EVENTS)


def test_every_column_that_names_a_document_is_followed_by_the_test_of_pruning() -> None:
    """A new one has to be looked after."""
    columns = {(t.name.removeprefix("pushlink_"), c.name) for t in METADATA.tables.values() for c in t.columns}
    named = {(name, column) for name, columns_of in REFERENCES.items() for column in columns_of}
    assert named == {pair for pair in columns if re.fullmatch(r".*(profile|action)_digest", pair[1])}


def mapped(number: int) -> dict[str, Any]:
    extra = {"source": "salary", "target": "/salary"}
    return pack_with(lambda document: action_of(document)["mappings"].append(extra) if number % 2 else None)


def decided(stage: Stage, number: int) -> None:
    """One of the decisions that are offered for the record, by what it is called, if it needs no more than that."""
    rows = [row for group in groups_of(stage) for row in group.rows if row.record_id]
    offered = [(row, Verb(verb.name)) for row in rows for verb in row.verbs if verb.name in set(Verb)]
    plain = [(row, verb) for row, verb in offered if VERBS[verb].argument is None]
    if plain:
        row, verb = plain[number % len(plain)]
        with contextlib.suppress(CallerError):
            decide(stage, verb, {"id": row.target_id, "row_version": row.row_version})


STEPS: Final[Mapping[str, Callable[[Stage, int], object]]] = {
    "save": lambda stage, n: stage.save(1, name=f"Person {n}", email="p@example.com"),
    "drain": lambda stage, _: stage.drain(),
    "wait": lambda stage, _: stage.clock_forward(),
    "lose the next answer": lambda stage, _: stage.remote.script.next(verbs.store_then_close()),
    "refuse the next": lambda stage, _: stage.remote.script.next(verbs.answer(422, {"error": "no"})),
    "miss the next": lambda stage, _: stage.remote.script.next(verbs.answer(404, {}), when=updating),
    "throttle the next": lambda stage, _: stage.remote.script.next(verbs.answer(429, {})),
    "change the mapping": lambda stage, n: stage.apply(mapped(n)),
    "decide": decided,
}


@pytest.mark.rule("SY-05")
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=4, max_size=14), data=st.integers(0, 1_000))
def test_after_any_history_a_pruning_changes_no_answer(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], data: int
) -> None:
    """Saves, lost and refused answers, decisions and packs in any order: what people and gates are told stays."""
    home = tmp_path_factory.mktemp("history")
    engine = create_engine(f"sqlite:///{home / 'pushlink.sqlite'}")
    upgrade(engine)
    stage = Stage(engine, home, pack=PACK)
    stage.linked(1)
    for number, step in enumerate(steps, data):
        STEPS[step](stage, number)
    stage.fixed.advance(days=400)
    before, waits = answers(stage, range(1, 2)), require_agreement(stage)
    keeping.prune(Run(engine=engine, world=stage.world, actor="olga", reason="nightly"), days=1)
    assert answers(stage, range(1, 2)) == before
    assert require_agreement(stage) == waits
    engine.dispose()


def contents(stage: Stage) -> dict[str, list[dict[str, Any]]]:
    return {name.removeprefix("pushlink_"): stage.rows(name.removeprefix("pushlink_")) for name in METADATA.tables}
