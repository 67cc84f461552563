"""Deferred creates whose worker died, and attempts of before vectors: what is promoted, looked up, or left alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import sqlalchemy as sa

from flows.family import COUNTRY, COUNTRY_OF, PARENT, Family
from flows.stage import Paused
from pushlink.flows.outcomes import Deferred, Reserved
from pushlink.store import schema
from pushlink.store.tables import METADATA

OpenEngine: TypeAlias = Callable[[str], sa.Engine]
NUMBERED = {"pushlink_attempt_event", "pushlink_push_response", "pushlink_operator_action"}
MIRROR = {"mirror": {"remote_id_field": "remote_id"}}


@pytest.fixture
def places(engine: sa.Engine, tmp_path: Path) -> Family:
    """Places that show their remote ids, with the general worker off."""
    stage = Family(engine, tmp_path, place=MIRROR)
    stage.only_narrow()
    return stage


def dies_before_its_mirror(places: Family, child: int, parent: int) -> Paused:
    """A deferred create whose result is durable, and whose worker dies before it could write the mirror."""
    places.write("Place", parent)
    assert isinstance(places.keep("Place", child, name="child", parent_id=parent), Deferred)
    places.keep("Place", parent)
    places.runtime.push("Place", parent)
    flow = places.paused().to_send()
    flow.step()
    flow.step()
    assert places.of("Place", child)["status"] == "writeback_commit_pending"
    return flow


@pytest.mark.rule("DL-11", "DL-12", "RR-05")
def test_a_result_whose_mirror_was_never_activated_is_promoted_by_the_narrow_worker(places: Family) -> None:
    """Checkpoint and remote id are both there: it becomes a write-back, which is claimed and written, and no POST."""
    dies_before_its_mirror(places, 1, 2)
    places.clock_forward()
    [claimed] = places.claim()
    assert (claimed.attempt.status, claimed.attempt.dispatch_lane) == ("writeback_pending", "deferred_association")
    events = [event["event"] for event in places.events(attempt_id=claimed.attempt.id)]
    assert "promote" in events
    places.run([claimed])
    assert places.of("Place", 1)["status"] == "finalized"
    with places.engine.begin() as conn:
        shown = conn.execute(sa.text("SELECT remote_id FROM place WHERE id = 1")).scalar_one()
    assert shown == places.linked_to("Place", 1)["remote_id"]
    assert places.sends == 2


@pytest.mark.rule("DL-11")
@pytest.mark.parametrize("change", ["remote_io_started_at = NULL", "remote_id = NULL"])
def test_a_row_without_checkpoint_or_id_is_not_promoted(places: Family, change: str) -> None:
    """Such a row is nobody's to interpret; it stays as it is, for people."""
    dies_before_its_mirror(places, 1, 2)
    key = places.key("Place", 1)
    if change.startswith("remote_id"):
        places.sql("UPDATE pushlink_push_attempt SET remote_id = NULL WHERE link_key = :key", key=key)
    else:
        places.sql("UPDATE pushlink_push_attempt SET remote_io_started_at = NULL WHERE link_key = :key", key=key)
    places.clock_forward()
    assert places.claim() == []
    assert places.of("Place", 1)["status"] == "writeback_commit_pending"


@pytest.mark.rule("DL-11", "DL-03", "DL-12")
def test_a_configured_row_in_the_same_state_is_left_to_its_own_recovery(places: Family) -> None:
    """The narrow worker neither promotes nor mirrors it; the request path, which owns it, does."""
    dies_before_its_mirror(places, 1, 2)
    places.sql(
        "UPDATE pushlink_push_attempt SET dispatch_lane = 'configured' WHERE link_key = :key",
        key=places.key("Place", 1),
    )
    places.clock_forward()
    assert places.claim() == []
    assert places.of("Place", 1)["status"] == "writeback_commit_pending"
    places.runtime.push("Place", 1)
    assert places.of("Place", 1)["status"] == "finalized"
    assert places.sends == 2


# ------------------------------------------------------------------------------------- rows of before vectors


@pytest.fixture
def older(engine: sa.Engine, empty_database_url: str, open_engine: OpenEngine, tmp_path: Path) -> Family:
    """A database of revision 0001 with one create that nobody sent, migrated: no lane, no vector was ever written."""
    donor = Family(engine, tmp_path)
    donor.write("Place", 1, name="child")
    assert isinstance(donor.keep("Place", 1), Reserved)
    old = open_engine(empty_database_url)
    schema.upgrade(old, "0001")
    with donor.engine.begin() as source, old.begin() as target:
        present = set(sa.inspect(target).get_table_names())
        for table in METADATA.sorted_tables:
            if table.name in present:
                _copy(source, target, table)
    schema.upgrade(old)
    (tmp_path / "older").mkdir()
    stage = Family(old, tmp_path / "older")
    attempt = stage.of("Place", 1)
    [request] = stage.rows("push_request", attempt_id=attempt["id"])
    assert (attempt["dispatch_lane"], request["association_vector"]) == ("configured", None)
    stage.write("Place", 1, name="child")
    return stage


def _copy(source: sa.Connection, target: sa.Connection, table: sa.Table) -> None:
    """Every row, as far as the older table has columns for it; numbers that the database gives are given anew."""
    present = {column["name"] for column in sa.inspect(target).get_columns(table.name)}
    wanted = present - ({"id"} if table.name in NUMBERED else set())
    known = sa.Table(table.name, sa.MetaData(), *(sa.Column(c.name, c.type) for c in table.columns if c.name in wanted))
    rows = [dict(row) for row in source.execute(sa.select(known)).mappings()]
    if table.name == "pushlink_deployment":
        target.execute(known.delete())
    if rows:
        target.execute(known.insert(), rows)


@pytest.mark.rule("DL-13", "SY-04")
def test_a_create_of_before_vectors_looks_its_parent_up_live_and_waits_for_it(older: Family) -> None:
    """In its own lane, as its author may read it; its body is completed once the parent is there."""
    older.write("Place", 2)
    older.write("Place", 1, parent_id=2)
    older.drain()
    waiting = older.of("Place", 1)
    assert (waiting["dispatch_lane"], waiting["hold_code"]) == ("configured", "association_waiting")
    assert older.sends == 0
    older.keep("Place", 2)
    older.drain()
    assert older.of("Place", 1)["status"] == "finalized"
    record = older.remote_record("Place", 1)
    assert record["parent"] == older.linked_to("Place", 2)["remote_id"]
    assert (record["name"], older.sends) == ("child", 2)


@pytest.mark.rule("DL-13")
def test_a_create_of_before_vectors_without_a_parent_is_sent_as_it_was_frozen(older: Family) -> None:
    older.drain()
    assert older.of("Place", 1)["status"] == "finalized"
    assert json.loads(older.remote.sent[0].body) == {"name": "child", "parent": None, "country": None}
    assert older.of("Place", 1)["freeze_count"] == 1


@pytest.mark.rule("DL-13")
def test_a_parent_that_does_not_exist_blocks_a_create_of_before_vectors(older: Family) -> None:
    older.write("Place", 1, parent_id=99)
    older.drain()
    held = older.of("Place", 1)
    assert (held["hold_code"], json.loads(held["detail"])["because"]) == ("association_blocked", "no_such_record")
    assert older.sends == 0


@pytest.mark.rule("DL-13")
def test_an_update_only_target_never_holds_a_create_of_before_vectors(
    engine: sa.Engine, empty_database_url: str, open_engine: OpenEngine, tmp_path: Path
) -> None:
    """It waits only for what its create carries."""
    associations = ({**PARENT, "mode": "create_inline"}, {**COUNTRY_OF, "mode": "update_only"})
    stage = Family(engine, tmp_path, *associations)
    stage.write("Place", 1, name="child")
    stage.keep("Place", 1)
    stage.write("Country", 1)
    stage.write("Place", 1, country_id=1)
    _forget_vector(stage)
    stage.drain()
    assert stage.of("Place", 1)["status"] == "finalized"
    assert stage.sends == 1


def _forget_vector(stage: Family) -> None:
    """As a row of before the column has it."""
    table = METADATA.tables["pushlink_push_request"]
    with stage.engine.begin() as conn:
        if conn.dialect.name == "postgresql":
            conn.exec_driver_sql("ALTER TABLE pushlink_push_request DISABLE TRIGGER ALL")
        else:
            conn.exec_driver_sql("DROP TRIGGER IF EXISTS pushlink_push_request_keeps_values")
        conn.execute(table.update().values(association_vector=None))


def test_the_migrated_database_takes_new_families(older: Family) -> None:
    """Nothing of the old rows stands in the way of children first."""
    with older.engine.begin() as conn:
        conn.execute(sa.insert(COUNTRY).values(id=7, name="c"))
        older.write_in(conn, "Place", 8, name="p", country_id=7)
    outcomes: list[Any] = older.keep_many(("Place", 8), ("Country", 7))
    assert [type(outcome) for outcome in outcomes] == [Deferred, Reserved]
    older.drain()
    assert older.remote_record("Place", 8)["country"] == older.linked_to("Country", 7)["remote_id"]
