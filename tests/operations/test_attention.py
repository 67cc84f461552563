"""What waits for a person is one table: `explain` and `stuck` agree on every state, hold and version there is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from flows.stage import MakeStage, Stage, action_of, pack_with, profile_of
from operations.agreement import groups_of, require_agreement, walked
from operations.operators import create_of, decide, lost_create
from pushlink.errors import CallerError
from pushlink.operations import waiting
from pushlink.protocol.attention import ATTEMPTS, FIRST, KINDS, RECORDS, Fact, Kind, first_of, kind_of
from pushlink.protocol.states import (
    BLOCKING,
    HOLDS,
    UPDATE_OPEN,
    AttemptStatus,
    Hold,
    LinkStatus,
    Operation,
    statuses,
)
from pushlink.protocol.verbs import Verb
from pushlink.testing import verbs
from pushlink.testing.messages import creating

A = AttemptStatus
C, U = Operation.CREATE, Operation.UPDATE

# --------------------------------------------------------------------------------------- the tables


def expected(
    operation: Operation, status: AttemptStatus, hold: str, lane: str, reason: str, values: str
) -> Kind | None:
    """The contract, said once more and otherwise: who is in whose hands."""
    if lane == "unknown" and status in (BLOCKING if operation is C else UPDATE_OPEN):
        return Kind.STRANDED
    if hold == "waiting":
        return Kind.HELD
    match operation, status:
        case _, A.AMBIGUOUS_REMOTE_EFFECT:
            return Kind.DOUBTFUL
        case Operation.CREATE, A.TERMINAL_FAILED:
            return Kind.FAILED
        case Operation.UPDATE, A.TERMINAL_FAILED:
            return Kind.REFUSED if values == "refused" else None
        case _, A.PENDING:
            return Kind.RETRIED if (hold, reason) == ("none", "in_vain") else None
    return None


WORDS: Mapping[Fact, tuple[str, ...]] = {
    Fact.HOLD: ("none", "patient", "waiting"),
    Fact.LANE: ("known", "unknown"),
    Fact.REASON: ("in_vain", "other"),
    Fact.VALUES: ("refused", "other"),
}


@pytest.mark.rule("D-04", "D-39")
@pytest.mark.parametrize("operation", Operation)
def test_every_combination_of_facts_has_its_answer(operation: Operation) -> None:
    """Every status of the machine, held or not, in either lane, with every reason."""
    for status in statuses(operation):
        for hold, lane, reason, values in itertools.product(*WORDS.values()):
            facts = {
                Fact.OPERATION: operation.value,
                Fact.STATUS: status.value,
                Fact.HOLD: hold,
                Fact.LANE: lane,
                Fact.REASON: reason,
                Fact.VALUES: values,
            }
            assert kind_of(ATTEMPTS, facts) is expected(operation, status, hold, lane, reason, values), facts


def test_of_a_linked_record_stale_values_come_before_newer_ones() -> None:
    """And what the remote has, or refused, is nobody's business here."""
    found = {
        (mapping, wanted): kind_of(RECORDS, {Fact.MAPPING: mapping, Fact.WANTED: wanted})
        for mapping in ("stale", "holds")
        for wanted in ("newer", "carried")
    }
    assert found == {
        ("stale", "newer"): Kind.STALE,
        ("stale", "carried"): Kind.STALE,
        ("holds", "newer"): Kind.BEHIND,
        ("holds", "carried"): None,
    }


def test_every_kind_says_what_it_is_and_what_to_type() -> None:
    """A sentence; and decisions of the table of verbs, or commands that are known."""
    from pushlink.operations.verbs import GENERAL

    assert set(KINDS) == set(Kind)
    for meaning in KINDS.values():
        assert meaning.says.endswith(".")
    for first in [*(meaning.first for meaning in KINDS.values()), *FIRST.values()]:
        assert all(name in GENERAL or name in set(Verb) for name in first)
    assert first_of(Kind.HELD, Hold.POISON) == (Verb.UNHOLD, Verb.ABANDON)
    assert first_of(Kind.HELD, Hold.EXPIRED)[0] is Verb.ABANDON


# --------------------------------------------------------------------------------------- every state, on rows


@dataclass(frozen=True, kw_only=True)
class Row:
    """A record that was put into a state by hand."""

    operation: Operation
    status: AttemptStatus
    hold: str | None
    lane: str
    kind: Kind | None


def holds_at(status: AttemptStatus) -> Iterator[str | None]:
    yield None
    yield from (hold.value for hold, where in HOLDS.items() if status in where)
    if status in (A.PENDING, A.WRITEBACK_PENDING):
        yield "of_tomorrow"


def rows() -> Iterator[Row]:
    """Every status of both machines, under every hold that it can have, in a known and in an unknown lane."""
    for operation in Operation:
        for status in sorted(statuses(operation)):
            for hold, lane in itertools.product(holds_at(status), ("configured", "of_tomorrow")):
                word = "none" if hold is None else "patient" if hold == Hold.ASSOCIATION_WAITING else "waiting"
                known = "known" if lane == "configured" else "unknown"
                kind = expected(operation, status, word, known, "other", "refused")
                yield Row(operation=operation, status=status, hold=hold, lane=lane, kind=kind)


def put(stage: Stage, number: int, row: Row) -> None:
    """Make the record's newest attempt such a one, with the keys that its state has."""
    key = stage.slot(number)["link_key"]
    [attempt] = stage.attempts(link_key=key, operation=row.operation.value)
    is_open = row.status in UPDATE_OPEN
    in_work = row.status in {A.PROCESSING, A.POST_SENT, A.WRITEBACK_COMMIT_PENDING}
    known_id = row.operation is C and row.status in {A.WRITEBACK_PENDING, A.WRITEBACK_COMMIT_PENDING, A.FINALIZED}
    stage.sql(
        "UPDATE pushlink_push_attempt SET status = :status, hold_code = :hold, dispatch_lane = :lane,"
        " create_key = :create_key, update_key = :update_key, claim_token = :token, lease_until = :until,"
        " remote_id = :remote_id WHERE id = :id",
        status=row.status.value,
        hold=row.hold,
        lane=row.lane,
        create_key=key if row.operation is C and row.status is not A.SUPERSEDED else None,
        update_key=key if row.operation is U and is_open else None,
        token="a token" if in_work else None,
        until=attempt["not_before"] if in_work else None,
        remote_id="77" if known_id else None,
        id=attempt["id"],
    )
    if row.operation is U and row.status is A.TERMINAL_FAILED:
        stage.sql("UPDATE pushlink_push_slot SET refused_version = wanted_version WHERE link_key = :key", key=key)


@pytest.mark.rule("D-04", "D-39", "C-095")
def test_explain_and_stuck_agree_on_every_status_and_every_hold(stage: Stage) -> None:
    """Each of them as a row: the same records, causes, targets, safe verbs and times in both, a page at a time."""
    cases = dict(enumerate(rows(), 1))
    assert len(cases) > 70
    for number, row in cases.items():
        if row.operation is U:
            stage.save(number, name=f"P{number}", email=f"p{number}@example.com")
    stage.drain()
    for number in cases:
        stage.save(number, name=f"Q{number}", email=f"p{number}@example.com")
    for number, row in cases.items():
        put(stage, number, row)
    waits = require_agreement(stage)
    of_attempts = {waits_for[0]: Kind(waits_for[1]) for waits_for in waits if waits_for[1] != Kind.BEHIND}
    assert of_attempts == {f"Person {number}": row.kind for number, row in cases.items() if row.kind is not None}
    ended = {f"Person {n}" for n, r in cases.items() if r.operation is U and r.status in {A.FINALIZED, A.SUPERSEDED}}
    assert {waits_for[0] for waits_for in waits if waits_for[1] == Kind.BEHIND} == ended


LINKS = {
    "synced": ("", None),
    "behind": ("wanted_version = 7, wanted_values_digest = 'sha256:other'", Kind.BEHIND),
    "newer and equal": ("wanted_version = 7, applied_values_digest = wanted_values_digest", None),
    "stale": ("wanted_state = 'stale_mapping'", Kind.STALE),
    "stale and behind": ("wanted_state = 'stale_mapping', wanted_version = 7", Kind.STALE),
    "adopted": ("wanted_version = 0, acknowledged_version = 0, wanted_values_digest = NULL", None),
}


@pytest.mark.rule("D-19", "D-39")
def test_explain_and_stuck_agree_on_every_link_and_its_versions(stage: Stage) -> None:
    """A link that is in use speaks for its values; a suspended one waits itself; a retired one needs nobody."""
    expected_kinds: dict[str, Kind] = {}
    cases = list(itertools.product(LinkStatus, LINKS, (True, False)))
    for number in range(1, len(cases) + 1):
        stage.save(number, name=f"P{number}", email=f"p{number}@example.com")
    stage.drain()
    for number, (status, name, is_closed) in enumerate(cases, 1):
        change, kind = LINKS[name]
        key = stage.slot(number)["link_key"]
        if change:
            stage.sql(f"UPDATE pushlink_push_slot SET {change} WHERE link_key = :key", key=key)
        if status is LinkStatus.RETIRED:
            slot_key = key if is_closed else None
            stage.sql(
                "UPDATE pushlink_remote_link SET status = 'retired', locator_key = NULL, slot_key = :slot"
                " WHERE link_key = :key",
                key=key,
                slot=slot_key,
            )
            if not is_closed:
                stage.sql("UPDATE pushlink_push_attempt SET create_key = NULL WHERE link_key = :key", key=key)
            continue
        if status is LinkStatus.SUSPENDED_DRIFT:
            stage.sql("UPDATE pushlink_remote_link SET status = 'suspended_drift' WHERE link_key = :key", key=key)
            kind = Kind.SUSPENDED
        if kind is not None:
            expected_kinds[f"Person {number}"] = kind
    waits = require_agreement(stage)
    assert {row[0]: Kind(row[1]) for row in waits} == expected_kinds


# --------------------------------------------------------------------------------------- by comparison


def test_links_that_drifted_are_grouped_by_the_surface_that_decides(stage: Stage) -> None:
    """Nothing was saved since, so no row says it: the comparison does, and names who has to do what."""
    for number in (1, 2, 3):
        stage.linked(number)
    stage.apply(pack_with(lambda document: action_of(document)["mappings"].pop()))
    [group] = groups_of(stage)
    assert (group.cause, group.count, group.about) == ("drifted/drift/mapping", 3, "mapping")
    assert group.first is not None
    assert group.first.name == "mapping manifest"
    assert "revalidate" not in {verb.name for row in group.rows for verb in row.verbs}
    require_agreement(stage)
    stage.apply(pack_with(lambda document: profile_of(document).update(credential_ref="env:OTHER")))
    [group] = groups_of(stage)
    assert (group.cause, group.first and group.first.name) == ("drifted/drift/credential_ref", "revalidate")
    require_agreement(stage)
    for row in walked(stage, group):
        decide(stage, Verb.REVALIDATE, {"id": row.target_id, "row_version": row.row_version})
    assert groups_of(stage) == ()


def test_a_drifted_link_whose_update_is_held_for_it_is_told_once(stage: Stage) -> None:
    """By the update that waits, with the verb of the link; letting it be sent takes nothing else."""
    stage.linked(1)
    stage.save(1, name="newer")
    stage.apply(pack_with(lambda document: profile_of(document).update(credential_ref="env:OTHER")))
    stage.drain()
    [group] = groups_of(stage)
    [row] = group.rows
    assert (group.cause, row.target, row.first.name) == ("held/drift", "attempt", "revalidate")
    require_agreement(stage)
    decide(stage, Verb.REVALIDATE, stage.link(1))
    stage.drain()
    assert groups_of(stage) == ()


@pytest.mark.rule("DR-15")
def test_a_freed_record_that_a_changed_path_blocks_is_listed_with_its_validation(stage: Stage) -> None:
    """No row says it either; the create of before is what the decision names."""
    decide(stage, Verb.RETIRE, stage.linked(1), release=True)
    assert groups_of(stage) == ()
    stage.apply(pack_with(lambda document: action_of(document)["create"].update(path="/persons")))
    [group] = groups_of(stage)
    assert (group.kind, group.count, group.rows[0].first.name) == ("blocked", 1, "validate-create")
    require_agreement(stage)
    decide(stage, Verb.VALIDATE_CREATE, create_of(stage))
    assert groups_of(stage) == ()


@pytest.mark.rule("D-29")
def test_slots_that_block_newer_ones_are_listed_until_they_own_nothing(stage: Stage) -> None:
    """A group without records: the action, and what it is after."""
    link = stage.linked(1)
    stage.apply(pack_with(lambda document: action_of(document).update(action_slot_id="act-2")))
    causes = {group.cause: group for group in groups_of(stage)}
    drifted = causes["drifted/drift/action_slot"]
    assert (drifted.first and drifted.first.name, "rebind" in drifted.next_step) == ("slot list", True)
    group = causes["replaced/lineage_unresolved"]
    [row] = group.rows
    assert (row.first.command, row.target, row.target_id) == ("pushlink slot list", "deployment", "act-2")
    assert "act-1 -> dest-1" in row.note
    require_agreement(stage)
    decide(stage, Verb.RETIRE, link)
    assert not [group for group in groups_of(stage) if group.kind == "replaced"]


@pytest.mark.rule("D-36")
def test_a_deployment_that_waits_for_its_confirmation_is_first(stage: Stage) -> None:
    """Then the one that waits for its clearance; each with the command that ends it."""
    stage.sql("UPDATE pushlink_deployment SET mode = 'recovery'")
    [group] = groups_of(stage)
    assert (group.kind, group.rows[0].first.command) == (
        "recovering",
        "pushlink deployment confirm --confirmations 0 --reason REASON",
    )
    stage.sql("UPDATE pushlink_deployment SET mode = 'running', uncleared_since = updated_at")
    [group] = groups_of(stage)
    assert (group.kind, group.rows[0].first.name) == ("uncleared", "deployment clear")


def test_an_action_that_cannot_be_used_is_listed(stage: Stage) -> None:
    """Its saves are refused, which leaves no row behind."""
    stage.linked(1)
    stage.apply(pack_with(lambda document: profile_of(document).update(active=False)))
    found = {group.kind: group for group in groups_of(stage)}
    assert found["unusable"].rows[0].first.name == "pack list"
    assert found["drifted"].first is not None
    assert found["drifted"].first.name == "pack apply"
    assert found["drifted"].next_step == "Let the pack activate the profile again."


@pytest.mark.rule("DR-15", "D-29")
def test_a_freed_record_of_a_slot_that_is_over_blocks_nothing(stage: Stage) -> None:
    """Its next save goes through another slot, so nobody validates a path of the old one."""
    decide(stage, Verb.RETIRE, stage.linked(1), release=True)
    stage.apply(pack_with(lambda document: action_of(document).update(action_slot_id="act-2")))
    assert groups_of(stage) == ()
    require_agreement(stage)
    assert stage.save(1, name="again").__class__.__name__ == "Reserved"


# --------------------------------------------------------------------------------------- pages, doctor, words


def test_a_cause_that_nothing_waits_for_and_a_page_that_is_too_long_are_refused(stage: Stage) -> None:
    """With the causes that there are."""
    lost_create(stage)
    with stage.engine.begin() as conn:
        now = stage.clock.now(conn)
        with pytest.raises(CallerError) as caught:
            waiting.stuck_page(conn, "held/poison", world=stage.world, limit=5, now=now)
        assert caught.value.evidence["causes"] == ["doubtful/effect_unknown"]
        with pytest.raises(CallerError):
            waiting.stuck_page(conn, "doubtful/effect_unknown", world=stage.world, limit=10_000, now=now)


@pytest.mark.rule("D-40")
def test_each_tenant_sees_its_own_and_the_deployment_all_of_it(make_stage: MakeStage) -> None:
    """A record of another tenant is neither counted nor listed; `doctor` counts both."""
    stage = make_stage()
    stage.apply(pack_with(), tenant="north")
    stage.remote.script.always(verbs.store_then_close(), when=creating)
    for number, tenant in ((1, ""), (2, "north"), (3, "north")):
        stage.save(number, tenant=tenant, name="A", email=f"p{number}@example.com")
    stage.drain()
    with stage.engine.begin() as conn:
        now = stage.clock.now(conn)
        [mine] = waiting.stuck(conn, world=stage.world, now=now)
        [theirs] = waiting.stuck(conn, world=stage.world, tenant="north", now=now)
        [all_of_it] = waiting.causes_of(conn, world=stage.world, now=now)
    assert [row.record_id for row in mine.rows] == ["1"]
    assert [row.record_id for row in theirs.rows] == ["2", "3"]
    assert all("--tenant north" in verb.command for row in theirs.rows for verb in row.verbs)
    assert (mine.count, theirs.count, all_of_it.rows) == (1, 2, 3)


@pytest.mark.rule("D-09", "D-14")
def test_an_id_that_a_late_answer_named_stands_in_the_commands(stage: Stage) -> None:
    """A doubtful create whose answer came too late: adopt or dispose of that id, and say no absence."""
    stage.save(1, name="Ada", email="a@example.com")
    late = stage.paused().to_send()
    stage.clock_forward()
    stage.drain()
    late.finish()
    [group] = groups_of(stage)
    [row] = group.rows
    names = {verb.name: verb.command for verb in row.verbs}
    [record] = stage.remote.api.records
    assert f"--adopt {record.id} " in names["reconcile adopt"]
    assert f"--id {record.id} " in names["dispose"]
    assert "reconcile absent" not in names
    require_agreement(stage)
    decide(stage, Verb.DISPOSE, create_of(stage), argument=str(record.id))
    [group] = groups_of(stage)
    assert {"dispose"}.isdisjoint(verb.name for verb in group.rows[0].verbs)
    require_agreement(stage)
