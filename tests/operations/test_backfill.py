"""Backfills: complete, resumable at every moment, and with a row for every record that was passed over."""

from __future__ import annotations

import datetime as dt
import inspect
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pushlink.adapters.records import SqlRecordStore
from pushlink.adapters.separate import SeparateRecordStore
from pushlink.bootstrap import Runtime
from pushlink.errors import CallerError, ConfigurationError, Contended
from pushlink.flows.outcomes import Reserved
from pushlink.operations.backfill import Asked, Backfill
from pushlink.store.backfill import BackfillRow
from pushlink.store.dialect import read_only
from pushlink.store.tables import backfill, backfill_refusal, push_attempt, push_slot
from pushlink.testing.drain import apply, drain
from pushlink.testing.messages import creating
from pushlink.testing.remote import FaultyRemote
from pushlink.testing.verbs import store_then_close

PACK = """
pack: guests
version: 1.0.0
connector_owner_key: 7d0f0000-0000-4000-8000-000000000001
namespace: guests
profiles:
  main:
    base_url: http://127.0.0.1:9
    auth: {kind: none}
    timeouts: {connect: 2s, total: 10s}
destinations:
  - {destination_slot_id: 7d0f0000-0000-4000-8000-000000000002, target_object: guests, profile: main}
flows:
  - flow: Guests
    version: 1
    actions:
      - action: push_guest
        action_slot_id: 7d0f0000-0000-4000-8000-000000000003
        source_object: Guest
        destination: 7d0f0000-0000-4000-8000-000000000002
        when: [{field: kind, in: [guest, broken]}]
        create: {method: POST, path: /guests, success: {status: [201]}, response: {id: [{from: $response.body#/id}]}}
        update: {method: PATCH, path: "/guests/{remote_id}", success: {status: [200]}}
        mappings:
          - {source: name, target: /name}
        mirror: {remote_id_field: remote_id}
"""

POLICY = """
policy: 1
roles:
  host: {objects: {Guest: {fields: all, rows: own, owner_field: owner}}}
users:
  ann: {roles: [host]}
"""

METADATA = sa.MetaData()
GUEST = sa.Table(
    "guest",
    METADATA,
    sa.Column("site", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text),
    sa.Column("kind", sa.Text, server_default="guest"),
    sa.Column("owner", sa.Text, server_default="ann"),
    sa.Column("changed_at", sa.DateTime(timezone=True)),
    sa.Column("revision", sa.Integer),
    sa.Column("remote_id", sa.Text),
)
START = dt.datetime(2024, 5, 1, 12, 0, tzinfo=dt.UTC)

SETTINGS = """
database_url = "{url}"
secret_file = "secret"
authority = {{kind = "policy", file = "policy.yaml"}}
egress = {{allow_loopback = true}}

[objects.Guest]
table = "guest"
key = [{{column = "site", type = "text"}}, {{column = "number", type = "integer"}}]
updated = "changed_at"
"""


@pytest.fixture
def settings_file(tmp_path: Path, database_url: str) -> Path:
    (tmp_path / "secret").write_text(secrets.token_hex(32), encoding="ascii")
    (tmp_path / "policy.yaml").write_text(POLICY, encoding="utf-8")
    (tmp_path / "pushlink.toml").write_text(SETTINGS.format(url=database_url), encoding="utf-8")
    return tmp_path / "pushlink.toml"


@pytest.fixture
def runtime(settings_file: Path) -> Iterator[Runtime]:
    opened = Runtime.from_settings(settings_file)
    METADATA.create_all(opened.engine)
    apply(opened, PACK)
    yield opened
    opened.close()


def guests(runtime: Runtime, count: int, **more: Any) -> None:
    """So many more guests, on two sites, each changed a minute after the one before."""
    with runtime.engine.begin() as conn:
        first = conn.execute(sa.select(sa.func.count()).select_from(GUEST)).scalar_one()
        for number in range(first, first + count):
            row = {"site": "ab"[number % 2], "number": number, "name": f"guest {number}", "revision": number}
            row["changed_at"] = START + dt.timedelta(minutes=number)
            conn.execute(GUEST.insert(), row | more)


def work_of(runtime: Runtime, *, save: Any = None) -> Backfill:
    world = runtime.world
    return Backfill(
        engine=runtime.engine,
        scan=runtime.records,
        save=save or runtime.save_many,
        clock=world.clock,
        ids=world.ids,
    )


def finish(work: Backfill, asked: Asked, *, batch: int = 7, after: Callable[[BackfillRow], Any] = id) -> BackfillRow:
    run = work.begin(asked).run
    while run.ended_at is None:
        run = work.step(run, batch=batch)
        after(run)
    return run


def rows_of(runtime: Runtime, table: sa.Table) -> list[Any]:
    with read_only(runtime.engine).connect() as conn:
        return list(conn.execute(sa.select(table)).mappings())


ALL = Asked(source_object="Guest", user="ann")


# ------------------------------------------------------------------------------------------------ what it does


def test_every_record_is_saved_once_however_the_batches_are_cut(runtime: Runtime) -> None:
    """A composite key is walked in its order; what does not divide by the batch is not forgotten."""
    guests(runtime, 23)
    run = finish(work_of(runtime), ALL)
    assert (run.records, run.reserved, run.refused, run.expected) == (23, 23, 0, 23)
    assert len(rows_of(runtime, push_attempt)) == 23
    assert len({slot["source_record_id"] for slot in rows_of(runtime, push_slot)}) == 23


def test_a_second_run_changes_nothing(runtime: Runtime) -> None:
    """What is wanted already is unchanged, and nothing is reserved again."""
    guests(runtime, 5)
    finish(work_of(runtime), ALL)
    before = rows_of(runtime, push_attempt)
    run = finish(work_of(runtime), ALL)
    assert (run.reserved, run.unchanged) == (0, 5)
    assert rows_of(runtime, push_attempt) == before
    assert len(rows_of(runtime, backfill)) == 2


def test_a_record_that_changed_meanwhile_is_queued(runtime: Runtime) -> None:
    """Its create is under way, so the new values wait behind it."""
    guests(runtime, 3)
    finish(work_of(runtime), ALL)
    with runtime.engine.begin() as conn:
        conn.execute(GUEST.update().where(GUEST.c.number == 1).values(name="another"))
    run = finish(work_of(runtime), ALL)
    assert (run.queued, run.unchanged) == (1, 2)


def test_rows_that_come_and_go_cost_no_other_row(runtime: Runtime) -> None:
    """A batch begins after a place, not after a number of rows."""
    guests(runtime, 20)
    gone = iter(range(20))

    def remove(run: BackfillRow) -> None:
        number = next(gone)
        with runtime.engine.begin() as conn:
            conn.execute(GUEST.delete().where(GUEST.c.number == number))

    finish(work_of(runtime), ALL, batch=2, after=remove)
    saved = {slot["source_record_id"] for slot in rows_of(runtime, push_slot)}
    assert {f"t1:{site},i{len(number)}:{number}" for site, number in left(runtime)} <= saved


def left(runtime: Runtime) -> list[tuple[str, str]]:
    return [(row["site"], str(row["number"])) for row in rows_of(runtime, GUEST)]


@pytest.mark.rule("C-097")
def test_a_refusal_stops_nothing_and_leaves_a_row(runtime: Runtime) -> None:
    """Each one is counted by its code and named; a record that no action is for is counted too."""
    guests(runtime, 4)
    guests(runtime, 3, owner="bob")
    guests(runtime, 2, kind="staff")
    guests(runtime, 2)
    work = work_of(runtime)
    run = finish(work, ALL, batch=3)
    assert (run.records, run.reserved, run.refused, run.unconcerned) == (11, 6, 3, 2)
    assert work.progress(run).refused == {"read_denied": 3}
    listed = work.refusals(run)
    assert [(one.source_record_id, one.action, one.code) for one in listed] == [
        ("t1:a,i1:4", "push_guest", "read_denied"),
        ("t1:a,i1:6", "push_guest", "read_denied"),
        ("t1:b,i1:5", "push_guest", "read_denied"),
    ]
    assert all("read" in one.message for one in listed)
    assert work.refusals(run, limit=1) == listed[:1]


@pytest.mark.rule("C-097")
def test_the_refusals_are_those_of_the_last_look(runtime: Runtime) -> None:
    """A record that is let through later is no longer listed, and one that is refused again is listed once."""
    guests(runtime, 3, owner="bob")
    finish(work_of(runtime), ALL)
    with runtime.engine.begin() as conn:
        conn.execute(GUEST.update().where(GUEST.c.number == 1).values(owner="ann"))
    run = finish(work_of(runtime), ALL)
    assert [row["source_record_id"] for row in rows_of(runtime, backfill_refusal)] == ["t1:a,i1:0", "t1:a,i1:2"]
    assert {row["backfill_id"] for row in rows_of(runtime, backfill_refusal)} == {run.id}


@pytest.mark.rule("C-097")
def test_a_record_that_cannot_be_read_takes_no_other_with_it(runtime: Runtime) -> None:
    """What a save raises for one record is that record's refusal; its batch is saved all the same."""
    guests(runtime, 9)

    def save(conn: Any, refs: Any, **more: Any) -> Any:
        if any(ref.record_id == "t1:a,i1:4" for ref in refs):
            raise CallerError("This one cannot be kept exact.")
        return runtime.save_many(conn, refs, **more)

    work = work_of(runtime, save=save)
    run = finish(work, ALL, batch=9)
    assert (run.records, run.reserved, run.refused) == (9, 8, 1)
    [refusal] = work.refusals(run)
    assert (refusal.source_record_id, refusal.code) == ("t1:a,i1:4", "caller_mistake")


@pytest.mark.rule("C-097")
def test_rows_without_a_usable_key_are_counted_and_named(
    sqlite_url: str, open_engine: Callable[[str], sa.Engine], tmp_path: Path
) -> None:
    """SQLite lets a column of integers hold a text, and a key nothing at all: neither ends the walk."""
    (tmp_path / "secret").write_text(secrets.token_hex(32), encoding="ascii")
    runtime = Runtime.from_settings(
        None,
        database_url=sqlite_url,
        secret_file=tmp_path / "secret",
        authority={"kind": "allow_all"},
        objects={"Guest": {"table": "guest", "key": [{"column": "id", "type": "text"}]}},
    )
    with runtime.engine.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE guest (id TEXT PRIMARY KEY, name TEXT, kind TEXT, remote_id TEXT)")
        for key in [None, None, "a", "b\0c", b"\xff", "c"]:
            conn.exec_driver_sql("INSERT INTO guest VALUES (?, 'x', 'guest', NULL)", (key,))
    apply(runtime, PACK)
    work = work_of(runtime)
    run = finish(work, ALL, batch=1)
    assert (run.records, run.reserved, run.unusable, run.expected) == (2, 2, 4, 6)
    assert [(one.source_record_id, one.code) for one in work.refusals(run)] == [
        ("'b\\x00c'", "record_id_unusable"),
        ("b'\\xff'", "record_id_unusable"),
    ]
    runtime.close()


# ------------------------------------------------------------------------------------------------ since


@pytest.mark.rule("D-45")
def test_what_changed_since_then_is_found(runtime: Runtime) -> None:
    """From that moment on, itself included, in the order of change, however many changed at one moment."""
    guests(runtime, 10)
    guests(runtime, 6, changed_at=START + dt.timedelta(minutes=8))
    asked = Asked(source_object="Guest", user="ann", since="2024-05-01T12:08:00Z")
    run = finish(work_of(runtime), asked, batch=2)
    assert (run.records, run.reserved, run.expected, run.updated_column) == (8, 8, 8, "changed_at")
    numbers = sorted(int(slot["source_record_id"].rpartition(":")[2]) for slot in rows_of(runtime, push_slot))
    assert numbers == list(range(8, 16))


@pytest.mark.rule("D-45")
def test_a_save_that_a_crash_lost_is_found(runtime: Runtime) -> None:
    """The host committed its record and died before it told pushlink: the reconciling scan reserves it, once."""
    guests(runtime, 4, changed_at=dt.datetime.now(dt.UTC))
    with runtime.engine.begin() as conn:
        for number in (0, 1, 2):
            runtime.save(conn, "Guest", ("ab"[number % 2], number), user="ann")
    run = finish(work_of(runtime), Asked(source_object="Guest", user="ann", since="2h"))
    assert (run.reserved, run.unchanged) == (1, 3)
    again = finish(work_of(runtime), Asked(source_object="Guest", user="ann", since="2h"))
    assert (again.reserved, again.unchanged) == (0, 4)


def test_a_scan_of_changes_ends_although_records_keep_changing(runtime: Runtime) -> None:
    """Its end is the newest change of the moment it began; what came later belongs to the next one."""
    guests(runtime, 6)
    asked = Asked(source_object="Guest", user="ann", since="2024-05-01T00:00:00Z")
    run = finish(work_of(runtime), asked, batch=2, after=lambda _: guests(runtime, 2))
    assert run.records == 6


def test_a_row_without_a_time_of_change_is_counted(runtime: Runtime) -> None:
    """It cannot be placed; a run over all records finds it."""
    guests(runtime, 2)
    guests(runtime, 1, changed_at=None)
    run = finish(work_of(runtime), Asked(source_object="Guest", user="ann", since="2024-05-01T00:00:00Z"))
    assert (run.records, run.unusable) == (2, 1)
    assert finish(work_of(runtime), ALL).records == 3


#: One moment, 12:10 of 1 May 2024 in UTC, in the forms that hosts write into SQLite; then one a minute earlier.
FORMS = {
    "as SQLAlchemy writes it": ("2024-05-01 12:10:00.000000", "2024-05-01 12:09:00.000000"),
    "no fraction": ("2024-05-01 12:10:00", "2024-05-01 12:09:00"),
    "no seconds": ("2024-05-01 12:10", "2024-05-01 12:09"),
    "ISO with T": ("2024-05-01T12:10:00", "2024-05-01T12:09:00"),
    "ISO with Z": ("2024-05-01T12:10:00Z", "2024-05-01T12:09:59.999Z"),
    "another zone": ("2024-05-01T07:10:00-05:00", "2024-05-01T14:09:00+02:00"),
    "basic": ("20240501T121000", "20240501T120900"),
    "Unix": (1_714_565_400, 1_714_565_340),
    "Unix with a fraction": (1_714_565_400.0, 1_714_565_399.5),
    "Julian": (2_460_432.006_944_444_5, 2_460_432.006_25),
}


@pytest.mark.rule("D-45", "D-41")
@pytest.mark.parametrize("since", ["2024-05-01T12:10:00Z", "2024-05-01 12:10", "2024-05-01T14:10:00+02:00"])
def test_since_compares_times_and_not_texts(runtime: Runtime, dialect: str, since: str) -> None:
    """In whatever form SQLite was given them, and in whatever form they are asked for; batches go on by time."""
    guests(runtime, 5, changed_at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    typed = START + dt.timedelta(minutes=10), START + dt.timedelta(minutes=9)
    for at, before in FORMS.values() if dialect == "sqlite" else [typed]:
        later = ("2024-05-01 13:00:00", "2024-05-01T12:30:00Z") if dialect == "sqlite" else (at, at)
        with runtime.engine.begin() as conn:
            for number, value in enumerate((before, at, at, *later)):
                mark = "?" if dialect == "sqlite" else "%s"
                change = f"UPDATE guest SET changed_at = {mark} WHERE number = {mark}"
                conn.exec_driver_sql(change, (value, number))
        run = finish(work_of(runtime), Asked(source_object="Guest", user="ann", since=since), batch=1)
        assert (run.records, run.reserved + run.unchanged, run.unusable) == (4, 4, 0), at
        numbers = {int(slot["source_record_id"].rpartition(":")[2]) for slot in rows_of(runtime, push_slot)}
        assert numbers == {1, 2, 3, 4}, at


@pytest.mark.rule("D-45", "D-41")
def test_times_in_a_column_of_texts_are_compared_as_times(runtime: Runtime, dialect: str) -> None:
    """A column that its table calls TEXT, as most do in SQLite; what is no time at all is still compared as a text."""
    if dialect == "postgresql":
        pytest.skip("there a host has a type for times, and a text is a text")
    guests(runtime, 4)
    asked = Asked(source_object="Guest", user="ann", since="2024-05-01T14:10:00+02:00", updated="name")
    for at, before in (form for form in FORMS.values() if isinstance(form[0], str)):
        with runtime.engine.begin() as conn:
            for number, value in enumerate((before, at, at, "2024-05-01 13:00:00")):
                conn.exec_driver_sql("UPDATE guest SET name = ? WHERE number = ?", (value, number))
        assert finish(work_of(runtime), asked, batch=1).records == 3, at
    with runtime.engine.begin() as conn:
        conn.exec_driver_sql("UPDATE guest SET name = 'v' || number")
    assert finish(work_of(runtime), Asked(source_object="Guest", user="ann", since="v2", updated="name")).records == 2


def test_a_time_that_nobody_can_read_is_counted(runtime: Runtime, dialect: str) -> None:
    """It has no place among times; the others are found."""
    if dialect == "postgresql":
        pytest.skip("there a column of times holds times")
    guests(runtime, 3)
    with runtime.engine.begin() as conn:
        conn.exec_driver_sql("UPDATE guest SET changed_at = 'soon' WHERE number = 1")
    run = finish(work_of(runtime), Asked(source_object="Guest", user="ann", since="2024-05-01"))
    assert (run.records, run.unusable) == (2, 1)


def test_a_counter_can_tell_changes_too(runtime: Runtime) -> None:
    """Any column that only grows will do; it is named where the settings declare another."""
    guests(runtime, 9)
    run = finish(work_of(runtime), Asked(source_object="Guest", user="ann", since="6", updated="revision"), batch=2)
    assert (run.records, run.updated_column) == (3, "revision")


@pytest.mark.parametrize(
    ("since", "updated", "said"),
    [("soon", None, "compared"), ("x", "revision", "compared"), ("2h", "nowhere", "no column")],
)
def test_a_watermark_that_means_nothing_is_refused(
    runtime: Runtime, since: str, updated: str | None, said: str
) -> None:
    """Before anything is written."""
    with pytest.raises(CallerError, match=said):
        work_of(runtime).begin(Asked(source_object="Guest", user="ann", since=since, updated=updated))
    assert rows_of(runtime, backfill) == []


# ------------------------------------------------------------------------------------------------ going on


def test_the_same_command_goes_on_and_another_one_does_not(runtime: Runtime) -> None:
    """An open run is found by what was asked; `restart` gives it up."""
    guests(runtime, 9)
    work = work_of(runtime)
    begun = work.begin(ALL)
    first = work.step(begun.run, batch=4)
    again = work_of(runtime).begin(ALL)
    assert (begun.resumed, again.resumed, again.run) == (False, True, first)
    other = work.begin(Asked(source_object="Guest", user="ann", since="1h"))
    assert not other.resumed
    fresh = work.begin(ALL, restart=True)
    assert (fresh.resumed, fresh.run.records) == (False, 0)
    assert work.step(first, batch=4).ended_at is not None


def test_two_processes_at_one_run_take_turns(runtime: Runtime) -> None:
    """Each batch begins where the last one of either ended: together they save every record once."""
    guests(runtime, 12)
    one, two = work_of(runtime), work_of(runtime)
    run = one.begin(ALL).run
    assert two.begin(ALL).run.id == run.id
    stale = run
    while run.ended_at is None:
        run = one.step(stale, batch=2)
        run = two.step(stale, batch=3) if run.ended_at is None else run
    assert (run.records, run.reserved, run.unchanged) == (12, 12, 0)


def test_a_batch_that_raises_leaves_nothing(runtime: Runtime) -> None:
    """Not its saves, not its refusals, not its place; the next try does all of it."""
    guests(runtime, 4)

    def save(conn: Any, refs: Any, **more: Any) -> Any:
        runtime.save_many(conn, refs, **more)
        raise RuntimeError("as if the process had died here")

    work = work_of(runtime, save=save)
    run = work.begin(ALL).run
    with pytest.raises(RuntimeError, match="died here"):
        work.step(run, batch=4)
    assert rows_of(runtime, push_attempt) == []
    assert finish(work_of(runtime), ALL).reserved == 4


def test_a_lost_race_is_run_again(runtime: Runtime) -> None:
    """And given back to the caller when it is lost again and again, with the run as it was."""
    guests(runtime, 4)
    lost = iter([True, True, False])

    def save(conn: Any, refs: Any, **more: Any) -> Any:
        if next(lost, True):
            raise Contended("somebody was quicker")
        return runtime.save_many(conn, refs, **more)

    work = work_of(runtime, save=save)
    run = work.step(work.begin(ALL).run, batch=2)
    assert run.reserved == 2
    with pytest.raises(Contended):
        work.step(run, batch=2)
    assert work.begin(ALL).run == run


@pytest.mark.rule("D-45", "C-097")
@pytest.mark.timeout(300)
def test_a_killed_backfill_goes_on_where_it_was(runtime: Runtime, settings_file: Path) -> None:
    """SIGKILL at a moment of its own, again and again: in the end every record has one attempt, and no count is off."""
    guests(runtime, 60)
    guests(runtime, 4, owner="bob")
    killed = 0
    for wanted in (3, 20, 41):
        child = start(settings_file)
        while saved(runtime) < wanted and not has_ended(child):
            pass
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
            killed += 1
        child.communicate()
        [run] = rows_of(runtime, backfill)
        assert run["records"] == run["reserved"] + run["refused"]
        assert saved(runtime) == run["reserved"], "a batch is there whole or not at all"
    child = start(settings_file)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 1, out + err  # four are refused
    [run] = rows_of(runtime, backfill)
    assert killed, "no child lived long enough to be killed"
    assert (run["records"], run["reserved"], run["refused"], run["unchanged"]) == (64, 60, 4, 0)
    assert run["ended_at"] is not None
    assert sorted(slot["create_ordinal"] for slot in rows_of(runtime, push_slot)) == [1] * 60


def start(settings_file: Path) -> subprocess.Popen[str]:
    command = [Path(sys.executable).with_name("pushlink"), "backfill", "Guest", "--user", "ann", "--batch", "1"]
    return subprocess.Popen(
        [*map(str, command), "--config", str(settings_file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def has_ended(child: subprocess.Popen[str]) -> bool:
    """Leaves the processor to the child for a moment."""
    try:
        child.wait(timeout=0.02)
    except subprocess.TimeoutExpired:
        return False
    return True


def saved(runtime: Runtime) -> int:
    with read_only(runtime.engine).connect() as conn:
        return int(conn.execute(sa.select(sa.func.count()).select_from(push_attempt)).scalar_one())


# ------------------------------------------------------------------------------------------------ what became of it


@pytest.mark.rule("C-097")
def test_it_tells_what_workers_made_of_it(runtime: Runtime) -> None:
    """Finalized ones, and the one whose answer was lost: it is parked, not skipped and not sent again."""
    guests(runtime, 5)
    with FaultyRemote() as remote:
        apply(runtime, PACK, base_url=remote.base_url)
        work = work_of(runtime)
        remote.next(store_then_close(), when=creating)
        run = finish(work, ALL)
        assert work.progress(run).standing.waiting == 5
        drain(runtime, horizon_s=0.5)
        standing = work.progress(run).standing
        assert (standing.finalized, standing.parked, standing.waiting) == (4, 1, 0)
        again = finish(work, ALL)
        assert (again.reserved, again.unchanged, again.refused) == (0, 4, 1)
        drain(runtime, horizon_s=0.5)
        assert remote.creates == 5
        assert work.progress(again).standing.parked == 0, "of the attempts that this run made"


# ------------------------------------------------------------------------------------------------ another database


@pytest.mark.rule("D-45")
def test_records_may_live_in_another_database(
    settings_file: Path, tmp_path: Path, open_engine: Callable[[str], sa.Engine]
) -> None:
    """Saved after the host's commit; what a crash in between lost is found, and the remote id is shown over there."""
    elsewhere = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    host = open_engine(elsewhere)
    METADATA.create_all(host)
    settings = settings_file.read_text(encoding="utf-8")
    settings_file.write_text(f'records_database_url = "{elsewhere}"\n{settings}', encoding="utf-8")
    runtime = Runtime.from_settings(settings_file)
    with FaultyRemote() as remote:
        apply(runtime, PACK, base_url=remote.base_url)
        for number in (1, 2, 3):
            with host.begin() as conn:
                row = {"site": "a", "number": number, "name": f"guest {number}", "changed_at": dt.datetime.now(dt.UTC)}
                conn.execute(GUEST.insert(), row)
            if number != 2:  # the process dies here
                with runtime.engine.begin() as conn:
                    [outcome] = runtime.save(conn, "Guest", ("a", number), user="ann")
                    assert isinstance(outcome, Reserved), outcome
        asked = Asked(source_object="Guest", user="ann", since="1h")
        run = finish(work_of(runtime), asked, batch=2)
        assert (run.records, run.reserved, run.unchanged) == (3, 1, 2)
        drain(runtime)
        assert remote.creates_by(lambda record: record.document["name"]) == {f"guest {n}": 1 for n in (1, 2, 3)}
    with host.connect() as conn:
        shown = conn.execute(sa.select(GUEST.c.remote_id)).scalars().all()
    assert sorted(shown) == ["1", "2", "3"]
    assert not sa.inspect(host).has_table("pushlink_push_slot")
    runtime.close()


def test_no_call_of_a_separate_store_works_on_the_callers_connection() -> None:
    """It is in the wrong database: whatever takes one is written anew there."""
    takes_one = {
        name
        for name, method in vars(SqlRecordStore).items()
        if not name.startswith("_") and callable(method) and "conn" in inspect.signature(method).parameters
    }
    assert takes_one
    assert takes_one <= set(vars(SeparateRecordStore))


def test_one_database_is_not_declared_as_two(settings_file: Path, database_url: str) -> None:
    """A mirror would wait for pushlink's own transaction."""
    with pytest.raises(ConfigurationError, match="records_database_url"):
        Runtime.from_settings(settings_file, records_database_url=database_url)


# ------------------------------------------------------------------------------------------------ the command


def command(settings_file: Path, *words: str) -> tuple[int, str, str]:
    from typer.testing import CliRunner

    from pushlink.surfaces.cli import app

    result = CliRunner().invoke(app, ["backfill", *words, "--config", str(settings_file)], env={"NO_COLOR": "1"})
    return result.exit_code, result.stdout, result.stderr


def test_the_command_answers_people_and_scripts(runtime: Runtime, settings_file: Path) -> None:
    """Counts, refusals by code, and an exit code that says whether something was refused."""
    import json

    guests(runtime, 3)
    code, out, _ = command(settings_file, "Guest", "--user", "ann")
    assert (code, out.splitlines()[1].strip()) == (0, "reserved: 3")
    guests(runtime, 2, owner="bob")
    code, out, _ = command(settings_file, "Guest", "--user", "ann", "--show-refused", "1")
    assert code == 1
    assert "read_denied: 2" in out
    assert "t1:a,i1:4 push_guest: read_denied" not in out.replace("t1:a,i1:4 push_guest: read_denied", "", 1)
    assert "more with --show-refused" in out
    code, out, _ = command(settings_file, "Guest", "--user", "ann", "--json")
    document = json.loads(out)
    assert code == 1
    assert (document["records"], document["refused"], len(document["refusals"])) == (5, {"read_denied": 2}, 2)
    assert document["outcomes"] == {"reserved": 0, "deferred": 0, "queued": 0, "unchanged": 3, "refused": 2}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["Guest"], 2),
        (["Nobody", "--user", "ann"], 2),
        (["Guest", "--user", "ann", "--updated", "revision"], 2),
        (["Guest", "--user", "ann", "--since", "soon"], 2),
    ],
)
def test_a_call_that_is_wrong_says_so(runtime: Runtime, settings_file: Path, words: list[str], code: int) -> None:
    """With the exit code of a mistake, and nothing begun."""
    assert command(settings_file, *words)[0] == code
    assert rows_of(runtime, backfill) == []


def test_the_session_of_a_host_is_not_needed(runtime: Runtime) -> None:
    """A row that a host's session commits between two batches is saved by that host; the run goes on beside it."""
    guests(runtime, 4)
    work = work_of(runtime)
    run = work.step(work.begin(ALL).run, batch=2)
    with Session(runtime.engine) as session:
        runtime.save(session, "Guest", ("b", 3), user="ann")
        session.commit()
    run = finish(work, ALL, batch=2)
    assert (run.records, run.reserved, run.unchanged) == (4, 3, 1)
