"""D-36: a copy, an older state, or another deployment's database sends nothing until somebody confirms it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from flows.stage import Stage
from pushlink.adapters.state_directory import FILE_NAME, StateDirectory
from pushlink.bootstrap import Runtime
from pushlink.errors import CallerError, Code, ConfigurationError, Unavailable
from pushlink.flows.claim import ClaimOrder, ClaimSteps
from pushlink.flows.claimed import Claimed
from pushlink.flows.dispatch import flow_of
from pushlink.flows.effects import Tx
from pushlink.flows.guarding import GuardedDatabase, check_in, database_of
from pushlink.flows.outcomes import Queued, Refused, Reserved, Unchanged
from pushlink.flows.step_items import Granted, Withheld
from pushlink.flows.steps import Steps
from pushlink.operations import deployments
from pushlink.operations.health import Verdict, _restore_guard
from pushlink.ports import StateSeen
from pushlink.store import restores
from pushlink.store.access import reading
from pushlink.store.claims import Turn
from pushlink.store.tables import push_attempt
from pushlink.surfaces.cli import app
from restores.conftest import CopyDatabase, House

Move: TypeAlias = Callable[[House, str], None]


def claimed_by(runtime: Runtime) -> list[Claimed]:
    """What another worker claims of this database."""
    with runtime.engine.begin() as conn:
        order = ClaimOrder(limit=9, turn=Turn())
        [found] = ClaimSteps(runtime.world, incarnation="w").claim(conn, [order], now=runtime.world.clock.now(conn))
    return found


# ------------------------------------------------------------------------------------------------ a first start


@pytest.mark.rule("D-36")
def test_the_first_worker_records_the_deployment_and_each_group_of_sends_its_mark(house: House) -> None:
    """The file is its owner's alone, and never behind what was sent."""
    house.save(1)
    house.work()
    state = StateDirectory(house.home / "state").seen()
    [row] = house.rows("checkpoint_mark")
    [deployment] = house.rows("deployment")
    assert (state.deployment_id, state.mark, state.confirmations) == (deployment["deployment_id"], 1, 0)
    assert (row["state_id"], row["mark"]) == (state.state_id, 1)
    assert stat.S_IMODE((house.home / "state" / FILE_NAME).stat().st_mode) == 0o600
    house.save(2)
    house.work()
    assert StateDirectory(house.home / "state").seen().mark == 2
    assert house.posts == 2


@pytest.mark.rule("D-36")
def test_the_mark_is_on_the_disk_before_a_byte_is_on_the_wire(house: House) -> None:
    """What the remote sees first is already remembered."""
    marks: list[int] = []
    send = house.remote.send

    async def watched(request: object) -> object:
        marks.append(StateDirectory(house.home / "state").seen().mark)
        return await send(request)  # type: ignore[arg-type]

    house.remote.send = watched  # type: ignore[method-assign,assignment]
    house.save(1)
    house.work()
    assert marks == [1]


def test_without_a_state_directory_nothing_is_compared(house: House) -> None:
    """The check is skipped, and no mark is kept."""
    house.state = None
    house.save(1)
    house.work()
    assert (house.posts, house.rows("checkpoint_mark")) == (1, [])


# ------------------------------------------------------------------------------------------------ restored


@pytest.mark.rule("D-36")
def test_a_restored_older_database_sends_nothing_until_it_is_confirmed(
    house: House, copy_database: CopyDatabase, move: Move
) -> None:
    """The lost attempt is reserved again with the same key and stays in doubt; new records wait to be cleared."""
    house.save(1)
    house.work()
    house.save(2)  # reserved before the backup, sent after it
    backup = copy_database(house.engine)
    house.work()
    house.save(3)
    house.work()  # reserved and sent after the backup
    sent = house.posts
    assert sent == 3

    move(house, backup)
    assert house.work() == 0
    assert (house.mode, house.posts) == ("recovery", sent)
    refused = house.save(3)
    assert isinstance(refused, Refused)
    assert refused.code is Code.RECOVERY_MODE
    with pytest.raises(CallerError) as caught:
        house.runtime().push(("Person", 2))
    assert caught.value.code is Code.RECOVERY_MODE

    done = house.confirm()
    assert (done.doubted, done.confirmations, house.mode) == (1, 1, "running")
    assert house.work() == 1
    [parked] = [row for row in house.rows("push_attempt") if row["status"] != "finalized"]
    assert (parked["status"], parked["in_doubt"], house.posts) == ("ambiguous_remote_effect", True, sent)

    again = house.save(3)  # a key that the backup does not have
    assert isinstance(again, Refused)
    assert (again.code, again.wanted_version) == (Code.RECOVERY_MODE, None)
    changed = house.save(1, "Anna")  # a record with a link is updated
    assert isinstance(changed, Queued)
    assert house.clear()
    assert not house.clear()
    assert isinstance(house.save(3), Reserved)


@pytest.mark.rule("D-36")
def test_a_database_that_is_put_back_under_a_running_worker_is_found_out_at_its_next_checkpoint(
    house: House, copy_database: CopyDatabase, move: Move
) -> None:
    """Each checkpoint compares; the claim that met it sends nothing."""
    house.work()
    backup = copy_database(house.engine)
    house.save(1)
    house.work()
    move(house, backup)
    runtime = house.runtime()
    house.save(2)
    [claimed] = claimed_by(runtime)
    asks = flow_of(claimed, Steps(runtime.world)).send(None)
    assert isinstance(asks, Tx)
    [answer] = database_of(runtime.world, house.engine).commit(asks.step, [asks])
    assert isinstance(answer, Withheld)
    assert house.mode == "recovery"
    assert [row["remote_io_started_at"] for row in house.rows("push_attempt")] == [None]


@pytest.mark.rule("D-36")
def test_a_confirmation_holds_for_every_machine_and_an_older_database_than_it_does_not(
    house: House, copy_database: CopyDatabase, move: Move
) -> None:
    """A second machine that was away goes on after the confirmation; the backup of before it is found out again."""
    other = House(house.engine, house.home, house.remote, house.home / "other", house.credentials)
    [row] = house.rows("deployment")
    other.deployment_id = str(row["deployment_id"])
    backup = copy_database(house.engine)
    for machine, record in ((house, 1), (other, 2)):
        machine.save(record)
        machine.work()
    assert house.posts == 2
    move(house, backup)
    other.engine = house.engine
    house.work()
    house.confirm()
    house.clear()
    other.save(4)
    assert other.work() == 1
    assert (other.mode, other.posts) == ("running", 3)
    state = StateDirectory(house.home / "other").seen()
    assert (state.confirmations, state.mark) == (1, 2)

    second = copy_database(house.engine)
    other.save(5)
    other.work()
    move(other, second)
    other.work()
    assert (other.mode, other.posts) == ("recovery", 4)


def test_what_was_in_work_is_ended_as_of_an_older_timeline(house: House) -> None:
    """Its owner may have been another server at another time: even a lease that lasts proves nothing."""
    house.save(1)
    runtime = house.runtime()
    assert claimed_by(runtime)
    with house.engine.begin() as conn:
        now = runtime.world.clock.now(conn)
        assert deployments.recover(conn, actor="ann", reason="restored", now=now)
        assert not deployments.recover(conn, actor="ann", reason="restored", now=now)
    done = house.confirm()
    [row] = house.rows("push_attempt")
    assert (done.doubted, done.recovered) == (1, 1)
    assert (row["status"], row["reason_code"], row["in_doubt"]) == ("ambiguous_remote_effect", "timeline_changed", True)
    verbs = [action["verb"] for action in house.rows("operator_action")]
    assert verbs[-2:] == ["enter_recovery", "deployment_confirm"]


def test_a_confirmation_writes_its_doubts_in_the_order_of_the_attempts_wherever_their_rows_are(house: House) -> None:
    """A database answers an update in the order in which rows lie; the log reads alike on both."""
    for record in range(1, 9):
        house.save(record)
    attempts = sorted(str(row["id"]) for row in house.rows("push_attempt"))
    for attempt in reversed(attempts):  # each goes to the end of the table
        with house.engine.begin() as conn:
            touched = sa.update(push_attempt).where(push_attempt.c.id == attempt)
            conn.execute(touched.values(updated_at=push_attempt.c.updated_at))
    with house.engine.begin() as conn:
        deployments.recover(conn, actor="ann", reason="restored", now=house.runtime().world.clock.now(conn))
    house.confirm()
    events = [row for row in house.rows("attempt_event") if row["event"] == "confirmed_in_doubt"]
    assert [row["attempt_id"] for row in sorted(events, key=lambda row: int(str(row["id"])))] == attempts


@pytest.mark.rule("D-37")
def test_a_record_that_is_reserved_again_after_a_restore_has_the_same_idempotency_key(
    house: House, copy_database: CopyDatabase, move: Move
) -> None:
    """The key is of the record and its ordinal, not of the row that was lost."""
    house.work()
    backup = copy_database(house.engine)
    house.save(1)
    [before] = [row["idempotency_key"] for row in house.rows("push_request")]
    house.work()
    move(house, backup)
    house.work()
    house.confirm()
    house.clear()
    house.save(1)
    assert [row["idempotency_key"] for row in house.rows("push_request")] == [before]


# ------------------------------------------------------------------------------------------------ cloned


@pytest.mark.rule("D-36")
def test_a_clone_on_another_machine_sends_nothing(house: House, copy_database: CopyDatabase, move: Move) -> None:
    """With a state directory that knows another deployment, or settings that name one, it is in recovery mode."""
    house.work()
    house.save(1)
    clone = copy_database(house.engine)
    staging = replace(house, state=house.home / "staging", made=house.made)
    staging.runtime().state.keep(StateSeen(state_id="s", deployment_id="staging", mark=7, confirmations=0))  # type: ignore[union-attr]
    move(staging, clone)
    staging.work()
    assert (staging.mode, staging.posts) == ("recovery", 0)

    named = replace(house, state=None, deployment_id="staging", made=house.made)
    move(named, copy_database(house.engine))
    named.work()
    assert (named.mode, named.posts) == ("recovery", 0)
    with pytest.raises(CallerError, match="another deployment") as caught:
        named.confirm()
    assert caught.value.code is Code.NOT_ALLOWED_NOW


@pytest.mark.rule("D-36")
def test_a_new_state_directory_on_a_used_database_has_to_be_told_that_it_belongs_there(
    house: House, copy_database: CopyDatabase, move: Move
) -> None:
    """A clone looks like that: the worker refuses to start, an inline dispatch too, and production is not stopped."""
    house.work()
    house.save(1)
    clone = replace(house, state=house.home / "fresh", made=house.made)
    move(clone, copy_database(house.engine))
    with pytest.raises(ConfigurationError, match="may be a copy") as caught:
        clone.work()
    with pytest.raises(ConfigurationError):
        clone.runtime().push(("Person", 1))
    assert (clone.mode, clone.posts) == ("running", 0)
    with clone.engine.begin() as conn:
        deployments.recover(conn, actor="ann", reason="a copy", now=clone.runtime().world.clock.now(conn))
    with pytest.raises(ConfigurationError):
        clone.work()
    assert clone.confirm().doubted == 1
    assert clone.work() == 1
    assert (clone.mode, clone.posts) == ("running", 0)

    clone = replace(house, state=house.home / "newer", made=house.made)
    move(clone, copy_database(house.engine))
    clone.deployment_id = str(caught.value.evidence["deployment_id"])
    assert clone.work() == 1


def test_confirming_is_for_recovery_mode_and_needs_a_reason(house: House) -> None:
    """A running deployment has nothing to confirm."""
    with pytest.raises(CallerError) as caught:
        house.confirm()
    assert caught.value.code is Code.NOT_ALLOWED_NOW
    runtime = house.runtime()
    with house.engine.begin() as conn, pytest.raises(CallerError, match="reason"):
        deployments.clear(conn, actor="ann", reason=" ", now=runtime.world.clock.now(conn))


# ------------------------------------------------------------------------------------------------ the file


def test_the_file_is_private_whatever_the_umask_and_never_goes_back(tmp_path: Path) -> None:
    """A lower mark and an older confirmation are left out; a process that comes late spoils nothing."""
    old = os.umask(0)
    try:
        place = StateDirectory(tmp_path / "a" / "b")
        fresh = place.seen()
    finally:
        os.umask(old)
    assert fresh == place.seen()
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b" / FILE_NAME).stat().st_mode) == 0o600
    known = replace(fresh, deployment_id="d", mark=5, confirmations=1)
    place.keep(known)
    for late in (replace(known, mark=4), replace(known, mark=9, confirmations=0), known):
        place.keep(late)
        assert place.seen() == known
    place.keep(replace(known, mark=6))
    assert place.seen().mark == 6


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"format": 2}', '{"format": 1, "mark": 1}', "\xff"])
def test_a_file_that_cannot_be_read_is_not_made_anew(tmp_path: Path, content: str) -> None:
    """Losing it would switch the guard off without anybody knowing."""
    (tmp_path / FILE_NAME).write_text(content, encoding="latin-1")
    with pytest.raises(ConfigurationError, match="state file"):
        StateDirectory(tmp_path).seen()


class Full:
    """A state directory whose disk is full."""

    def __init__(self, real: StateDirectory) -> None:
        self.real = real

    def seen(self) -> StateSeen:
        return self.real.seen()

    def keep(self, seen: StateSeen) -> None:
        msg = "the disk is full"
        raise Unavailable(msg, evidence={"mark": seen.mark})


@pytest.mark.rule("D-05")
def test_what_the_state_directory_does_not_take_is_not_sent_and_goes_back_in_line(stage: Stage, tmp_path: Path) -> None:
    """The checkpoint is there, and no byte was sent under it: the owner takes it back."""
    place = StateDirectory(tmp_path / "state")
    world = replace(stage.world, state=place)
    stage.steps.world = world
    database = GuardedDatabase(engine=stage.engine, clock=stage.clock, state=Full(place))
    assert check_in(world, stage.database, actor="w")
    stage.save(1, name="Ann")
    paused = stage.paused()
    tx = paused.effect
    [answer] = database.commit(tx.step, [tx])
    assert isinstance(answer, Withheld)
    row = stage.attempt()
    assert (row["status"], row["reason_code"], row["in_doubt"], row["claim_count"]) == ("pending", "not_sent", False, 0)
    assert row["remote_io_started_at"] is None
    stage.clock_forward()
    stage.database = GuardedDatabase(engine=stage.engine, clock=stage.clock, state=place)
    stage.drain()
    assert (stage.attempt()["status"], stage.sends, place.seen().mark) == ("finalized", 1, 2)


def test_a_granted_checkpoint_carries_what_is_to_be_kept(stage: Stage, tmp_path: Path) -> None:
    """Without a state directory there is nothing."""
    stage.save(1, name="Ann")
    paused = stage.paused()
    answer = paused.step()
    assert isinstance(answer, Granted)
    assert answer.seen is None
    assert isinstance(stage.save(1, name="Ann"), Unchanged)
    assert tmp_path.is_dir()


@pytest.mark.rule("D-36")
def test_entering_recovery_stops_checkpoints_that_were_validated_before(stage: Stage) -> None:
    """The catalogue counts up with the mode, and the checkpoint compares it."""
    stage.save(1, name="Ann")
    paused = stage.paused()
    with stage.engine.begin() as conn:
        restores.enter_recovery(conn, reason="restored", evidence={}, actor="ann", now=stage.clock.now(conn))
    assert isinstance(paused.step(), Withheld)
    assert stage.sends == 0
    assert stage.claim() == []


@pytest.mark.rule("D-36")
def test_a_claim_of_an_older_timeline_is_in_doubt(stage: Stage) -> None:
    """After a failover or a restore nobody can prove that it never sent."""
    stage.save(1, name="Ann")
    stage.claim()
    stage.sql("UPDATE pushlink_push_attempt SET claim_timeline = 'another'")
    stage.clock_forward()
    stage.drain()
    row = stage.attempt()
    assert (row["status"], row["in_doubt"], row["reason_code"]) == ("ambiguous_remote_effect", True, "timeline_changed")
    assert stage.sends == 0


def test_the_database_refuses_a_mode_that_it_does_not_know(engine: sa.Engine) -> None:
    """The mode is one of two."""
    with pytest.raises(sa.exc.IntegrityError), engine.begin() as conn:
        conn.execute(sa.text("UPDATE pushlink_deployment SET mode = 'maybe'"))


# ------------------------------------------------------------------------------------------------ doctor


def test_doctor_says_what_the_state_directory_knows(house: House, copy_database: CopyDatabase, move: Move) -> None:
    """Before the first worker, after it, and before a restored database was ever worked on."""

    def check() -> tuple[Verdict, str]:
        with reading(house.engine) as conn:
            found = _restore_guard(conn, SimpleNamespace(state=house.runtime().world.state.seen))  # type: ignore[arg-type,union-attr]
        return found.verdict, found.message

    assert check() == (Verdict.OK, "No worker has started here yet.")
    house.work()
    backup = copy_database(house.engine)
    house.save(1)
    house.work()
    assert check() == (Verdict.OK, "The state directory knows this database.")
    move(house, backup)
    assert check()[0] is Verdict.FAIL


def test_the_commands_lead_out_of_recovery_mode(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Show, recover, confirm and clear, each with its word in the audit."""
    config = house.home / "pushlink.toml"
    url = house.engine.url.render_as_string(hide_password=False)
    config.write_text(
        f'database_url = "{url}"\nsecret_file = "secret"\nstate_directory = "state"\n[authority]\nkind = "allow_all"\n'
    )
    monkeypatch.delenv("PUSHLINK_TOKEN", raising=False)

    def run(*words: str, code: int = 0) -> Any:
        result = CliRunner().invoke(app, ["deployment", *words, "--config", str(config), "--json"])
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    assert run("show")["deployment"]["mode"] == "running"
    assert run("confirm", "--reason", "r", code=1)["error"]["code"] == "not_allowed_now"
    assert run("recover", "--reason", "restored")["is_changed"]
    assert run("show")["deployment"]["mode"] == "recovery"
    assert run("confirm", "--reason", "complete") == {"doubted": 0, "recovered": 0, "confirmations": 1}
    assert run("show")["deployment"]["state"]["confirmations"] == 1
    assert run("clear", "--reason", "compared")["is_changed"]
    verbs = [row["verb"] for row in house.rows("operator_action")][-3:]
    assert verbs == ["enter_recovery", "deployment_confirm", "deployment_clear"]
