"""Workers: who may take a row, what a lost claim can still do (nothing), and what stops nobody else."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from flows.stage import USER, MakeStage, Stage, pack_with, profile_of, without_mirror
from pushlink.adapters.clock_ids import DatabaseClock
from pushlink.errors import Code, ConfigurationError
from pushlink.flows.dispatch import flow_of
from pushlink.flows.drivers import Database, Failed, GroupingDriver
from pushlink.ports import WireError, WireReply, WireRequest, WireTrace
from pushlink.protocol.states import Hold
from pushlink.settings import AuthoritySettings, Settings
from pushlink.store.revision import VERSION_TABLE, head
from pushlink.store.tables import push_request
from pushlink.testing import verbs
from pushlink.testing.collection import RemoteOptions
from pushlink.testing.scripted import ScriptedTransport
from pushlink.worker import WorkerOptions

ADA = {"name": "Ada", "email": "ada@example.com"}


# --------------------------------------------------------------------------------------- fences


@pytest.mark.rule("AT-09", "D-12", "AT-10", "C-071")
def test_a_worker_that_wakes_after_its_lease_starts_no_request(stage: Stage) -> None:
    """The checkpoint needs a lease that lasts: a pause before it, and the row is somebody else's; one POST in all."""
    stage.save(1, **ADA)
    zombie = stage.paused()
    stage.clock_forward()
    other = stage.worker()
    stage.run(stage.claim(by=other))
    before = stage.census()
    zombie.finish()
    assert stage.census() == before
    assert stage.sends == 1
    assert stage.attempt()["status"] == "finalized"


@pytest.mark.rule("AT-09", "D-12", "C-071")
def test_a_lease_that_is_too_short_for_the_request_starts_none(stage: Stage) -> None:
    """Remaining lease < deadline + margin: nobody else has the row, and still nothing is sent."""
    stage.save(1, **ADA)
    flow = stage.paused()
    lease = stage.attempt()["lease_until"] - stage.fixed.now()
    stage.clock_forward(seconds=lease.total_seconds() - 34)  # the deadline is 30 s, the margin 5 s
    flow.finish()
    row = stage.attempt()
    assert (stage.sends, row["status"], row["claim_token"]) == (0, "pending", None)
    assert (row["remote_io_started_at"], row["send_count"]) == (None, 0)


@pytest.mark.rule("AT-09", "D-14", "D-12")
def test_an_answer_after_the_claim_was_lost_is_evidence_and_moves_nothing(stage: Stage) -> None:
    """Parked by recovery while the reply was on its way: the reply is kept as late, the row stays ambiguous."""
    stage.save(1, **ADA)
    zombie = stage.paused().to_send()
    zombie.step()
    stage.clock_forward()
    stage.drain()
    row = stage.attempt()
    assert row["status"] == "ambiguous_remote_effect"
    zombie.finish()
    assert stage.attempt() == row
    assert stage.links() == []
    [late] = stage.rows("push_response")
    assert (late["late"], late["status"], late["send_ordinal"]) == (True, 201, 1)
    assert late["claim_token"] == zombie.claimed.token


@pytest.mark.rule("D-14", "AT-11")
def test_an_answer_that_cannot_be_recorded_is_kept_as_evidence(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result transaction fails for good: the reply is stored all the same, and recovery parks the row."""
    from pushlink.store import lifecycle

    def refuse(conn: sa.Connection, *_: Any, **__: Any) -> None:
        msg = "a defect"
        raise ValueError(msg)

    stage.save(1, **ADA)
    claimed = stage.claim()
    monkeypatch.setattr(lifecycle, "insert_links", refuse)
    stage.run(claimed)
    monkeypatch.undo()
    [late] = stage.rows("push_response")
    assert (late["late"], late["status"]) == (True, 201)
    stage.clock_forward()
    stage.drain()
    assert stage.attempt()["status"] == "ambiguous_remote_effect"
    assert stage.sends == 1


@pytest.mark.rule("C-073", "D-12", "D-13")
def test_only_the_databases_clock_ends_a_lease(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose own clock is ten minutes ahead takes nothing from its neighbour."""
    stage.save(1, **ADA)
    stage.paused()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 600)
    assert stage.claim(by=stage.worker()) == []
    assert stage.attempt()["status"] == "processing"


@pytest.mark.rule("C-071", "D-12")
@pytest.mark.parametrize(("lease", "margin"), [("5s", "5s"), ("1s", "30s")])
def test_settings_refuse_a_lease_that_cannot_hold_its_margin(tmp_path: Path, lease: str, margin: str) -> None:
    """Such a worker could never start a request."""
    secret = tmp_path / "secret"
    secret.write_text("x" * 64)
    with pytest.raises(ConfigurationError, match=r"worker\.lease"):
        Settings.load(
            database_url="sqlite:///x",
            authority=AuthoritySettings(kind="allow_all"),
            secret_file=secret,
            worker={"lease": lease, "margin": margin},
        )


@pytest.mark.rule("C-079", "D-12")
def test_a_worker_is_its_random_incarnation_and_nothing_else(stage: Stage) -> None:
    """Two workers of one process and one name are two owners; the lease lives on the row and nowhere else."""
    options = WorkerOptions()
    first, second = stage.runtime.worker(options=options), stage.runtime.worker(options=options)
    assert first.incarnation != second.incarnation
    stage.save(1, **ADA)
    stage.paused()
    owner = stage.attempt()["claimed_by"]
    stage.clock_forward()
    stage.drain()
    assert stage.attempt()["status"] == "finalized"
    assert owner not in {table for table, rows in stage.census().items() if rows}


# --------------------------------------------------------------------------------------- an unknown commit


class LosesItsConnection(Database):
    """Commits, and then says that the connection was lost: nobody knows whether it had."""

    def __init__(self, stage: Stage, step: str) -> None:
        super().__init__(engine=stage.engine, clock=stage.clock)
        object.__setattr__(self, "left", [step])

    def commit(self, step: Any, txs: Any) -> list[Any]:
        results = super().commit(step, txs)
        if step.__name__ in self.left:  # type: ignore[attr-defined]
            self.left.remove(step.__name__)  # type: ignore[attr-defined]
            return [Failed(ConnectionResetError("lost"), True)] * len(txs)
        return results


@pytest.mark.rule("D-13", "PO-01", "AT-10")
@pytest.mark.parametrize("step", ["checkpoint", "record", "mirror"])
def test_a_commit_of_unknown_outcome_is_read_again_and_the_callout_is_not_repeated(stage: Stage, step: str) -> None:
    """The same step runs again and finds its own work: one checkpoint, one send, one response, one link."""
    from pushlink.flows.dispatch import flow_of
    from pushlink.flows.drivers import run_flow

    stage.save(1, **ADA)
    [claimed] = stage.claim()
    stage.save(1, name="second")
    database = LosesItsConnection(stage, step)
    run_flow(flow_of(claimed, stage.steps), database, stage.remote.send_now, until=time.monotonic() + 5)
    row = stage.attempts()[0]
    assert (row["status"], row["send_count"]) == ("finalized", 1)
    assert stage.sends == 1
    assert len(stage.rows("push_response")) == len(stage.links()) == 1
    assert len(stage.attempts(operation="update")) == 1
    assert stage.link()["mirror_status"] == "written"


@pytest.mark.rule("D-13", "D-15", "PO-06")
def test_an_unknown_commit_of_a_locator_conflict_writes_no_mirror(make_stage: MakeStage) -> None:
    """The second try finds its answer stored; the id belongs to another link, so the record is not told of it."""
    from pushlink.flows.dispatch import flow_of
    from pushlink.flows.drivers import run_flow

    stage = make_stage(remote=ScriptedTransport(RemoteOptions(prefix="/v2", ids=lambda _: "same")))
    stage.linked(1)
    stage.save(2, name="Bea")
    [claimed] = stage.claim()
    database = LosesItsConnection(stage, "record")
    run_flow(flow_of(claimed, stage.steps), database, stage.remote.send_now, until=time.monotonic() + 5)
    person = stage.person(2)
    assert person is not None
    assert person["remote_id"] is None
    assert stage.attempts()[-1]["hold_code"] == "locator_conflict"


# --------------------------------------------------------------------------------------- one id, two records


@pytest.mark.rule("D-15", "LK-07", "LK-03", "DR-26", "C-037")
def test_a_remote_id_that_another_link_owns_is_kept_and_held(make_stage: MakeStage) -> None:
    """Response and id are stored, the row waits under `locator_conflict` naming both owners; nothing more is sent."""
    stage = make_stage(remote=ScriptedTransport(RemoteOptions(prefix="/v2", ids=lambda _: "same")))
    first = stage.linked(1)
    stage.save(2, name="Bea", email="b@example.com")
    stage.drain()
    row = stage.attempts()[-1]
    assert (row["status"], row["hold_code"], row["remote_id"]) == ("writeback_pending", "locator_conflict", "same")
    detail = json.loads(row["detail"])
    assert detail["owner_link_key"] == first["link_key"]
    assert detail["claimed_by_link_key"] == row["link_key"]
    assert row["create_key"] == row["link_key"]
    assert stage.rows("push_response")[-1]["status"] == 201
    assert len(stage.links()) == 1
    stage.save(2, name="Bea B.")
    stage.clock_forward(days=30)
    stage.drain()
    assert stage.sends == 2
    # The established owner is retired: the held id finalizes, and what was wanted meanwhile follows.
    stage.sql("UPDATE pushlink_remote_link SET status = 'retired', locator_key = NULL WHERE source_record_id = '1'")
    stage.sql("UPDATE pushlink_push_attempt SET hold_code = NULL WHERE id = :id", id=row["id"])
    stage.drain()
    assert stage.link(2)["status"] == "finalized"
    assert stage.attempts(operation="create")[-1]["status"] == "finalized"
    assert json.loads(stage.remote.sent[-1].body)["name"] == "Bea B."
    assert [request.method for request in stage.remote.sent] == ["POST", "POST", "PATCH"]


# --------------------------------------------------------------------------------------- lanes and modes


@pytest.mark.rule("DL-08", "DL-09", "SY-05")
def test_a_row_of_an_unknown_lane_is_never_touched_and_starves_nobody(stage: Stage) -> None:
    """Neither claimed nor recovered nor normalised, pending, leased or waiting for a mirror; the others go on."""
    for number in (1, 2, 3, 4):
        stage.save(number, name=f"Person {number}")
    stage.claim(limit=2)
    stage.sql("UPDATE pushlink_push_attempt SET dispatch_lane = 'lane of tomorrow'")
    before = stage.attempts()
    stage.save(5, name="Person 5")
    stage.clock_forward()
    stage.drain()
    assert [row for row in stage.attempts() if row["dispatch_lane"] == "lane of tomorrow"] == before
    assert stage.link(5)["status"] == "finalized"
    assert stage.sends == 1


@pytest.mark.rule("DL-03", "DL-12")
def test_with_the_general_worker_off_configured_rows_are_neither_claimed_nor_recovered(stage: Stage) -> None:
    """Pending rows, dead claims and write-backs of the configured lane stay exactly as they are."""
    for number in (1, 2):
        stage.save(number, name=f"Person {number}")
    stage.claim(limit=1)
    stage.sql("UPDATE pushlink_deployment SET general_worker = 'off'")
    before = stage.attempts()
    stage.clock_forward()
    stage.drain()
    assert stage.attempts() == before
    assert stage.sends == 0


@pytest.mark.rule("D-36")
def test_in_recovery_nothing_is_claimed(stage: Stage) -> None:
    """Reads and operator verbs only."""
    stage.save(1, **ADA)
    stage.sql("UPDATE pushlink_deployment SET mode = 'recovery'")
    before = stage.attempts()
    stage.drain()
    assert stage.attempts() == before


@pytest.mark.rule("D-12", "AT-09", "AT-10")
def test_a_worker_that_holds_an_ended_and_a_live_claim_of_a_row_sends_it_once(stage: Stage) -> None:
    """Its first flow waits for its checkpoint until the lease has ended, and the same worker claims the row again.

    Both flows ask for their checkpoints at once. The fence lets the live claim through, and only that one.
    """
    stage.save(1, **ADA)
    claims = stage.claim()
    stage.clock_forward()
    claims += stage.claim()

    async def drive() -> int:
        gate = stage.steps.checkpoint
        driver = GroupingDriver(stage.database, stage.remote, gate=gate, threads=1)
        for claimed in claims:
            driver.start(flow_of(claimed, stage.steps))
        async with asyncio.timeout(30):
            await driver.wait_idle()
        await driver.close(grace_s=1)
        return driver.abandoned

    assert len({claimed.token for claimed in claims}) == 2
    assert asyncio.run(drive()) == 0
    assert (stage.sends, stage.remote.api.creates) == (1, 1)
    assert (stage.attempt()["status"], stage.attempt()["send_count"]) == ("finalized", 1)


# --------------------------------------------------------------------------------------- poison and groups


@pytest.mark.rule("D-16")
def test_a_row_that_kills_its_workers_is_held_before_any_request(stage: Stage) -> None:
    """Claimed five times and never an outcome: the sixth claim holds it as poison; its neighbour is pushed."""
    stage.save(1, **ADA)
    for _ in range(5):
        assert len(stage.claim()) == 1
        stage.clock_forward()
    stage.save(2, name="Bea")
    stage.drain()
    row = stage.attempts()[0]
    assert (row["status"], row["hold_code"]) == ("pending", "poison")
    assert json.loads(row["detail"])["claims"] == 5
    assert stage.link(2)["status"] == "finalized"
    assert stage.sends == 1


@pytest.mark.rule("D-16")
def test_give_backs_and_throttles_are_no_poison(stage: Stage) -> None:
    """Nine claims that ended as they may are no sign of a bad row."""
    stage.remote.script.next(*[verbs.answer(429)] * 8)
    stage.save(1, **ADA)
    for _ in range(9):
        stage.drain()
        stage.clock_forward()
    assert stage.attempt()["status"] == "finalized"


@pytest.mark.rule("D-16", "D-12")
def test_claims_that_came_too_late_to_their_checkpoints_are_no_poison(stage: Stage) -> None:
    """A slow database uses up lease after lease; the row is given back each time, and sent by the first in time."""
    stage.save(1, **ADA)
    for _ in range(9):
        flow = stage.paused()
        stage.clock_forward(seconds=60)  # of a lease of 90 s; a request takes 30 s and the margin 5 s
        flow.finish()
        assert (stage.attempt()["status"], stage.attempt()["claim_count"]) == ("pending", 0)
    assert {event["reason"] for event in stage.events(event="give_back")} == {"given_back"}
    stage.drain()
    assert (stage.attempt()["status"], stage.sends) == ("finalized", 1)


class StandsStill(ScriptedTransport):
    """A machine so busy that its requests would begin too late, time after time."""

    times = 20

    def send_now(self, request: WireRequest) -> WireReply:
        if not self.times:
            return super().send_now(request)
        self.times -= 1
        return WireReply(trace=WireTrace(), error=WireError.STOOD_STILL, error_text="the process stood still")


@pytest.mark.rule("D-05", "D-12")
def test_a_process_that_stands_still_after_its_checkpoints_uses_up_no_tries(make_stage: MakeStage) -> None:
    """Nothing was sent, and it says nothing about the row or the remote: no refusal, no circuit, no poison."""
    stage = make_stage(remote=StandsStill(RemoteOptions(prefix="/v2")))
    stage.save(1, **ADA)
    for _ in range(StandsStill.times):
        stage.run(stage.claim())
        row = stage.attempt()
        assert (row["status"], row["retry_count"], row["in_doubt"]) == ("pending", 0, False)
        stage.clock_forward()
    assert stage.rows("remote_circuit") == []
    stage.drain()
    assert (stage.attempt()["status"], stage.sends) == ("finalized", 1)


@pytest.mark.rule("D-13", "D-12")
def test_a_claim_whose_checkpoint_may_be_there_is_not_given_back(stage: Stage) -> None:
    """Its commit was reported as failed and happened; by the second try its lease is too short. Recovery decides."""
    stage.save(1, **ADA)
    flow = stage.paused()
    tx = flow.effect
    stage.database.commit(tx.step, [tx])
    stage.clock_forward(seconds=60)
    flow.finish()
    assert (stage.attempt()["status"], stage.sends) == ("processing", 0)
    assert stage.attempt()["remote_io_started_at"] is not None


@pytest.mark.rule("D-17", "D-16")
def test_a_row_whose_facts_cannot_be_read_costs_its_neighbours_nothing(stage: Stage) -> None:
    """A snapshot of a later release: its claims are counted until it is poison; the rest of the group is pushed."""
    stage.save(1, **ADA)
    bad = stage.attempt()["id"]
    for number in (2, 3):
        stage.save(number, name=f"Person {number}")
    [request] = stage.rows("push_request", attempt_id=bad)
    with stage.engine.begin() as conn:
        conn.execute(sa.insert(push_request).values({**request, "freeze": 2, "profile_digest": "sha256:of tomorrow"}))
    stage.drain()
    assert (stage.link(2)["status"], stage.link(3)["status"]) == ("finalized", "finalized")
    for _ in range(6):
        stage.clock_forward()
        stage.drain()
    [row] = stage.attempts(id=bad)
    assert (row["status"], row["hold_code"]) == ("pending", "poison")
    assert stage.sends == 2


@pytest.mark.rule("D-17")
def test_a_group_with_one_bad_row_commits_the_others(stage: Stage) -> None:
    """A step that fails for one item is split until that item fails alone."""
    from dataclasses import replace

    for number in (1, 2, 3):
        stage.save(number, name=f"Person {number}")
    flows = [stage.paused_of(claimed).to_send() for claimed in stage.claim()]
    for flow in flows:
        flow.step()
    txs = [flow.effect for flow in flows]
    txs[1] = replace(txs[1], item=replace(txs[1].item, candidate_id=object()))
    results = stage.database.commit(txs[0].step, txs)
    assert [isinstance(result, Failed) for result in results] == [False, True, False]
    assert len(stage.links()) == 2


# --------------------------------------------------------------------------------------- turns


@pytest.mark.rule("D-33", "C-065")
def test_tenants_take_turns_and_a_burst_delays_a_single_row_by_one_claim(make_stage: MakeStage) -> None:
    """Tenant A with 60 rows and tenant B with one: the first small claim has B's row in it."""
    stage = make_stage(pack=None)
    for tenant in ("a", "b"):
        stage.apply(without_mirror(), tenant=tenant)
    with stage.engine.begin() as conn:
        for number in range(60):
            stage.put_in(conn, number, name=f"Person {number}")
        stage.runtime.save_many(conn, [("Person", n) for n in range(60)], user=USER, tenant="a")
    stage.save(1, tenant="b")
    claimed = stage.claim(limit=4)
    assert [item.attempt.tenant for item in claimed].count("b") == 1


# --------------------------------------------------------------------------------------- the loop


class Slow(ScriptedTransport):
    """A remote that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(RemoteOptions(prefix="/v2"))
        self.began = threading.Event()
        self.answer = asyncio.Event()

    async def send(self, request: WireRequest) -> WireReply:
        self.began.set()
        await self.answer.wait()
        return self.send_now(request)


@pytest.mark.rule("D-18")
@pytest.mark.parametrize("in_time", [True, False])
def test_a_stop_claims_no_more_and_lets_what_is_on_the_wire_end(make_stage: MakeStage, in_time: bool) -> None:
    """Within the grace time the answer is recorded; after it the row keeps its claim and is never handed back."""
    slow = Slow()
    stage = make_stage(remote=slow, pack=without_mirror(), clock=DatabaseClock())
    stage.save(1, **ADA)

    async def run() -> None:
        worker = stage.runtime.worker(options=WorkerOptions(grace_s=5 if in_time else 0.05, poll_s=0.05))
        running = asyncio.create_task(worker.run())
        await asyncio.to_thread(slow.began.wait, 30)
        worker.stop()
        await asyncio.to_thread(stage.save, 2, name="too late")
        if in_time:
            slow.answer.set()
        await running

    asyncio.run(run())
    first, second = stage.attempts()
    assert first["status"] == ("finalized" if in_time else "processing")
    assert (first["remote_io_started_at"] is None) is False
    assert second["status"] == "pending"


@pytest.mark.rule("D-44")
def test_a_save_wakes_a_worker_that_would_sleep_for_long(
    pg_url: str, tmp_path: Path, open_engine: Callable[[str], sa.Engine]
) -> None:
    """NOTIFY goes with the host's commit: a worker with a poll of a minute has pushed within seconds."""
    slow = Slow()
    sent = slow.began
    slow.answer.set()
    stage = Stage(open_engine(pg_url), tmp_path, pack=without_mirror(), clock=DatabaseClock(), remote=slow)

    async def run() -> float:
        worker = stage.runtime.worker(options=WorkerOptions(poll_s=60, grace_s=1))
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(0.5)
        started = time.monotonic()
        await asyncio.to_thread(stage.save, 1, **ADA)
        await asyncio.to_thread(sent.wait, 30)
        worker.stop()
        await running
        return time.monotonic() - started

    assert asyncio.run(run()) < 25
    assert stage.attempt()["status"] == "finalized"


@pytest.mark.rule("C-078")
def test_workers_at_once_send_each_create_once(
    database_url: str, tmp_path: Path, open_engine: Callable[[str], sa.Engine]
) -> None:
    """Three workers in three threads over forty records: the claim is the only owner."""
    stage = Stage(open_engine(database_url), tmp_path, pack=without_mirror(), clock=DatabaseClock())
    numbers = range(40)
    with stage.engine.begin() as conn:
        for number in numbers:
            stage.put_in(conn, number, name=f"Person {number}")
        stage.runtime.save_many(conn, [("Person", n) for n in numbers], user=USER)

    def work() -> None:
        options = WorkerOptions(claim_max=7, poll_s=0.05, idle_horizon_s=0)
        asyncio.run(stage.runtime.worker(options=options).run(until_idle=True))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert stage.remote.api.creates == len(numbers)
    assert {row["status"] for row in stage.attempts()} == {"finalized"}
    assert set(stage.remote.api.creates_by(lambda record: record.document["name"]).values()) == {1}


@pytest.mark.rule("D-11")
def test_holds_of_people_are_not_lifted_by_a_changed_catalogue(stage: Stage) -> None:
    """Poison waits for an operator, whatever is applied meanwhile."""
    stage.save(1, **ADA)
    stage.sql("UPDATE pushlink_push_attempt SET hold_code = :hold", hold=Hold.POISON.value)
    stage.apply(pack_with(lambda d: d.update(version="1.0.1")))
    stage.drain()
    assert stage.attempt()["hold_code"] == "poison"
    assert stage.sends == 0


@pytest.mark.rule("D-11", "DR-09", "DR-10", "DR-06", "DR-08")
@pytest.mark.parametrize("what", ["credential_ref", "endpoint", "inactive", "install"])
def test_drift_of_a_create_that_was_never_sent_is_a_hold_that_heals(stage: Stage, what: str) -> None:
    """It stays pending under the hold `drift` with its surface, and goes on when the change is undone."""
    changes: dict[str, dict[str, Any]] = {
        "credential_ref": {"credential_ref": "env:OTHER_TOKEN"},
        "endpoint": {"base_url": "https://other.example.com/v2"},
        "inactive": {"active": False},
    }
    stage.save(1, **ADA)
    if what == "install":
        stage.uninstall()
    stage.apply(pack_with(lambda d: profile_of(d).update(changes.get(what, {}))))
    stage.drain()
    row = stage.attempt()
    assert (row["status"], row["hold_code"], row["reason_code"]) == ("pending", "drift", "drift")
    assert json.loads(row["detail"])["surfaces"]
    assert stage.sends == 0
    if what == "install":
        return  # another incarnation does not go away; an operator validates it
    stage.apply(pack_with())
    stage.drain()
    assert stage.attempt()["status"] == "finalized"


@pytest.mark.rule("D-43")
def test_a_worker_that_upgrades_have_left_behind_claims_no_more(
    database_url: str, tmp_path: Path, open_engine: Callable[[str], sa.Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next release's tables are all right while it runs; those of the one after that end it, with the reason."""
    monkeypatch.setattr("pushlink.worker.TABLES_CHECK_S", -1.0)
    stage = Stage(open_engine(database_url), tmp_path, pack=without_mirror(), clock=DatabaseClock())
    version = sa.table(VERSION_TABLE, sa.column("version_num"))

    def move_ahead(by: int) -> None:
        with stage.engine.begin() as conn:
            conn.execute(version.update().values(version_num=f"{int(head()) + by:04d}"))

    async def run() -> None:
        claimed = asyncio.Event()
        worker = stage.runtime.worker(
            options=WorkerOptions(poll_s=0.01), on_progress=lambda tally: claimed.set() if tally.claimed else None
        )
        working = asyncio.create_task(worker.run())
        await claimed.wait()
        await asyncio.to_thread(move_ahead, 2)
        await working

    stage.save(1, **ADA)
    move_ahead(1)
    with pytest.raises(ConfigurationError, match=f"this release knows {head()}") as caught:
        asyncio.run(asyncio.wait_for(run(), 60))
    assert caught.value.code is Code.SCHEMA_OUTDATED
    assert stage.attempt()["status"] == "finalized"


@pytest.mark.rule("D-44")
def test_a_worker_waits_to_begin_while_another_writer_holds_the_file(
    sqlite_url: str, tmp_path: Path, open_engine: Callable[[str], sa.Engine], caplog: pytest.LogCaptureFixture
) -> None:
    """A file that is locked for longer than a statement waits is no reason to end: the worker asks again."""
    stage = Stage(open_engine(sqlite_url), tmp_path, pack=without_mirror(), clock=DatabaseClock())
    stage.save(1, **ADA)
    others = open_engine(sqlite_url)
    stage.engine.dispose()
    event.listen(stage.engine, "connect", lambda connection, _: connection.execute("PRAGMA busy_timeout=20"))
    waits = threading.Event()
    caplog.set_level(logging.WARNING, "pushlink.worker")
    caplog.handler.addFilter(lambda record: waits.set() or True if "waits to begin" in record.message else True)
    worker = threading.Thread(target=lambda: asyncio.run(stage.runtime.worker().run(until_idle=True)))
    with others.begin():
        worker.start()
        assert waits.wait(30)
    worker.join(60)
    assert stage.attempt()["status"] == "finalized"
