"""Migrations from nothing end at the tables of the code, keep what was there, and are safe to start twice."""

from __future__ import annotations

import ast
import datetime as dt
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import sqlalchemy as sa

from pushlink.errors import Code, ConfigurationError, Contended
from pushlink.store import dialect, schema
from pushlink.store import revision as revisions
from pushlink.store.tables import METADATA, deployment, push_attempt, push_request

NOW = dt.datetime(2023, 5, 6, 7, 8, 9, 123456, tzinfo=dt.UTC)
OpenEngine: TypeAlias = Callable[[str], sa.Engine]
VERSION = sa.table(revisions.VERSION_TABLE, sa.column("version_num"))
REVISIONS = tuple(
    sorted(path.name[:4] for path in (Path(revisions.__file__).parent / "migrations/versions").glob("[0-9]*.py"))
)
HEAD = REVISIONS[-1]
NEXT = f"{int(HEAD) + 1:04}"


@pytest.fixture
def empty(empty_database_url: str, open_engine: OpenEngine) -> sa.Engine:
    """An engine on a database with nothing in it, once for each dialect."""
    return open_engine(empty_database_url)


# ------------------------------------------------------------------------------------------------ from zero = metadata


def described(engine: sa.Engine) -> dict[str, Any]:
    """Every table as the database tells it, without the order of its columns."""
    with engine.connect() as conn:
        inspector = sa.inspect(conn)
        return {
            name: described_table(inspector, name) for name in inspector.get_table_names() if name in METADATA.tables
        }


def described_table(inspector: sa.Inspector, table: str) -> dict[str, Any]:
    return {
        "columns": {c["name"]: (str(c["type"]), c["nullable"], c["default"]) for c in inspector.get_columns(table)},
        "key": inspector.get_pk_constraint(table)["constrained_columns"],
        "unique": {u["name"]: u["column_names"] for u in inspector.get_unique_constraints(table)},
        "checks": {c["name"]: re.sub(r"\s+", " ", c["sqltext"]) for c in inspector.get_check_constraints(table)},
        "indexes": {
            index["name"]: (index["column_names"], {k: str(v) for k, v in (index.get("dialect_options") or {}).items()})
            for index in inspector.get_indexes(table)
        },
    }


@pytest.mark.rule("SY-04")
def test_migrations_from_nothing_end_at_the_tables_of_the_code(engine: sa.Engine, empty: sa.Engine) -> None:
    """Columns, types, defaults, keys, uniques, CHECK texts, indexes and their conditions are those of `tables.py`."""
    METADATA.create_all(empty)
    migrated, declared = described(engine), described(empty)
    assert migrated.keys() == METADATA.tables.keys()
    for name in METADATA.tables:
        assert migrated[name] == declared[name], name


def test_the_check_finds_nothing_to_say_about_a_migrated_database(engine: sa.Engine) -> None:
    """Alembic's own comparison agrees, and the triggers are there."""
    state = schema.check(engine)
    assert state == schema.SchemaState(current=HEAD, head=HEAD, pending=(), differences=())
    assert state.is_current


def test_there_is_one_deployment_with_an_identity_of_its_own(
    empty: sa.Engine, sqlite_url: str, open_engine: OpenEngine
) -> None:
    """It runs, its catalogue is at the beginning, and no two databases share an id."""
    schema.upgrade(empty)
    with empty.connect() as conn:
        row = conn.execute(sa.select(deployment)).one()
    assert (row.id, row.mode, row.general_worker, row.catalog_revision) == (1, "running", "on", 1)
    with open_engine(sqlite_url).connect() as other:
        assert other.execute(sa.select(deployment.c.deployment_id)).scalar_one() != row.deployment_id


# ------------------------------------------------------------------------------------------------ old rows


def old_attempt(number: int, status: str) -> dict[str, Any]:
    """An attempt as revision 0001 kept it."""
    return {
        "id": f"a{number}", "link_key": f"k{number}", "tenant": "t", "destination_slot_id": "d", "operation": "create",
        "status": status, "create_key": f"k{number}", "ordinal": 1, "version": 1, "not_before": NOW,
        "created_at": NOW, "updated_at": NOW,
    }  # fmt: skip


OLD_REQUEST = {
    "attempt_id": "a1", "freeze": 1, "idempotency_key": "i", "method": "POST", "path": "p", "headers": "[]",
    "body": b"\x00\xff", "body_digest": "b", "values_digest": "v", "install_id": "n", "names": "{}",
    "profile_digest": "p", "action_digest": "a", "mapping_fingerprint": "m", "body_fingerprint": "f",
    "authority": "{}", "created_at": NOW,
}  # fmt: skip


@pytest.mark.rule("SY-04", "DL-01", "DL-13")
def test_rows_of_before_the_lanes_stay_as_they_are(empty: sa.Engine) -> None:
    """Attempts and requests of revision 0001 are `configured`, have no vector, and have not moved."""
    schema.upgrade(empty, "0001")
    attempts = [old_attempt(1, "pending"), old_attempt(2, "ambiguous_remote_effect"), old_attempt(3, "finalized")]
    with empty.begin() as conn:
        conn.execute(old_table(conn, push_attempt).insert(), attempts)
        conn.execute(old_table(conn, push_request).insert(), OLD_REQUEST)
        before = conn.execute(sa.select(old_table(conn, push_attempt)).order_by("id")).mappings().all()
        known = old_table(conn, deployment)
        identity = conn.execute(sa.select(known)).one()
    schema.upgrade(empty)
    with empty.begin() as conn:
        after = conn.execute(sa.select(push_attempt).order_by(push_attempt.c.id)).mappings().all()
        request = conn.execute(sa.select(push_request)).mappings().one()
        assert conn.execute(sa.select(known)).one() == identity
    assert {row["dispatch_lane"] for row in after} == {"configured"}
    assert [{k: row[k] for k in old} for row, old in zip(after, before, strict=True)] == [dict(row) for row in before]
    assert {row["association"] for row in after} == {None}
    assert request["association_vector"] is None
    assert {name: request[name] for name in OLD_REQUEST} == OLD_REQUEST


def old_table(conn: sa.Connection, table: sa.Table) -> sa.Table:
    """The table as far as the database has it by now."""
    present = {column["name"] for column in sa.inspect(conn).get_columns(table.name)}
    return sa.Table(table.name, sa.MetaData(), *(sa.Column(c.name, c.type) for c in table.columns if c.name in present))


@pytest.mark.rule("SY-04", "DL-01")
def test_an_attempt_whose_writer_knows_no_lanes_is_configured(engine: sa.Engine) -> None:
    """A worker of the release before writes no lane; the schema's default is what the row gets (D-43)."""
    with engine.begin() as conn:
        conn.execute(sa.insert(push_attempt), old_attempt(1, "pending"))
        assert conn.execute(sa.select(push_attempt.c.dispatch_lane)).scalar_one() == "configured"


@pytest.mark.rule("SY-04")
def test_what_was_append_only_still_is_after_an_upgrade(empty: sa.Engine) -> None:
    """The second revision adds to a protected table in place, so no trigger is lost on the way."""
    schema.upgrade(empty, "0001")
    with empty.begin() as conn:
        conn.execute(old_table(conn, push_attempt).insert(), old_attempt(1, "pending"))
        conn.execute(old_table(conn, push_request).insert(), OLD_REQUEST)
    schema.upgrade(empty)
    for statement in (push_request.delete(), push_request.update().values(path="other")):
        with pytest.raises(sa.exc.IntegrityError, match="append-only"), empty.begin() as conn:
            conn.execute(statement)


@pytest.mark.rule("SY-04")
def test_the_rules_of_a_row_hold_for_rows_of_before(empty: sa.Engine) -> None:
    """The unique keys and CHECKs of revision 0001 are those of today."""
    schema.upgrade(empty, "0001")
    with empty.begin() as conn:
        conn.execute(old_table(conn, push_attempt).insert(), old_attempt(1, "pending"))
    schema.upgrade(empty)
    for wrong in (old_attempt(2, "pending") | {"create_key": "k1"}, old_attempt(3, "lost")):
        with pytest.raises(sa.exc.IntegrityError), empty.begin() as conn:
            conn.execute(push_attempt.insert(), wrong)


# ------------------------------------------------------------------------------------------------ running it


def test_an_upgrade_may_be_run_again(engine: sa.Engine) -> None:
    """The second time there is nothing to do, and nothing is done."""
    with engine.connect() as conn:
        before = conn.execute(sa.select(deployment)).one()
    schema.upgrade(engine)
    schema.upgrade(engine)
    with engine.connect() as conn:
        assert conn.execute(sa.select(deployment)).one() == before


def test_two_processes_may_upgrade_at_once(empty_database_url: str, open_engine: OpenEngine) -> None:
    """One of them does it and the others wait: all succeed, and there is one deployment."""
    program = (
        "import sys; from pushlink.store import dialect, schema;"
        " sys.stdin.read(1); schema.upgrade(dialect.create_engine(sys.argv[1]))"
    )
    command = [sys.executable, "-c", program, empty_database_url]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    for process in processes:
        process.stdin.write(b"x")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
    errors = [process.communicate(timeout=60)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, errors
    engine = open_engine(empty_database_url)
    assert schema.check(engine).is_current
    with engine.connect() as conn:
        assert len(conn.execute(sa.select(deployment)).all()) == 1


def test_an_upgrade_that_fails_leaves_nothing(empty: sa.Engine) -> None:
    """All revisions of one call are one transaction."""
    with empty.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE pushlink_operator_action (id INTEGER)")
    with pytest.raises(sa.exc.DBAPIError, match="already exists"):
        schema.upgrade(empty)
    with empty.connect() as conn:
        assert [name for name in sa.inspect(conn).get_table_names() if name.startswith("pushlink")] == [
            "pushlink_operator_action"
        ]


@pytest.fixture
def one_before(empty: sa.Engine) -> sa.Engine:
    """An engine on a database of the release before this one."""
    schema.upgrade(empty, REVISIONS[-2])
    return empty


@pytest.mark.rule("D-43")
def test_an_upgrade_lets_others_go_on_while_it_waits(
    one_before: sa.Engine, empty_database_url: str, open_engine: OpenEngine
) -> None:
    """Somebody's transaction does not end: the upgrade asks again and again, and holds up nobody in between."""
    tried_again, said = threading.Event(), logging.getLogger("pushlink.schema")
    engine = open_engine(empty_database_url)
    handler = logging.Handler()
    handler.emit = lambda _record: tried_again.set()  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool, one_before.connect() as slow:
        said.addHandler(handler)
        said.setLevel(logging.INFO)
        try:
            slow.execute(sa.update(push_attempt).values(status="pending").where(sa.false()))
            upgrade = pool.submit(schema.upgrade, engine)
            if engine.dialect.name == "postgresql":
                assert tried_again.wait(30)
                with one_before.begin() as other:
                    dialect.bound_lock_waits(other, 5_000)
                    other.execute(sa.update(push_attempt).values(status="pending").where(sa.false()))
            assert not upgrade.done()
            assert revisions.current_revision(slow) == REVISIONS[-2]
            slow.rollback()
            upgrade.result(30)
        finally:
            said.removeHandler(handler)
    assert schema.check(engine).is_current


@pytest.mark.rule("D-43")
def test_an_upgrade_that_never_gets_the_tables_says_so_and_leaves_them(
    one_before: sa.Engine, empty_database_url: str
) -> None:
    """Patience ends; the database is as it was."""
    options = {"connect_args": {"timeout": 0.05}} if one_before.dialect.name == "sqlite" else {}
    engine = dialect.create_engine(empty_database_url, **options)
    try:
        with one_before.begin() as slow:
            slow.execute(sa.update(push_attempt).values(status="pending").where(sa.false()))
            with pytest.raises(Contended, match="holds one of them") as caught:
                schema.upgrade(engine, patience_s=0.0)
            assert caught.value.next_step
            assert revisions.current_revision(slow) == REVISIONS[-2]
        schema.upgrade(engine, patience_s=0.0)
        assert schema.check(engine).is_current
    finally:
        engine.dispose()


def test_the_host_s_own_revisions_are_left_alone(empty: sa.Engine) -> None:
    """Alembic's usual version table is the host's; pushlink has one of its own."""
    with empty.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        conn.exec_driver_sql("INSERT INTO alembic_version VALUES ('host')")
        conn.exec_driver_sql("CREATE TABLE customers (id INTEGER)")
    schema.upgrade(empty)
    assert schema.check(empty).is_current
    with empty.connect() as conn:
        assert conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalars().all() == ["host"]
        assert conn.execute(sa.select(VERSION.c.version_num)).scalars().all() == [HEAD]


# ------------------------------------------------------------------------------------------------ what the check says


def test_the_check_says_what_is_pending(empty: sa.Engine) -> None:
    """An empty database waits for every revision, an older one for the later ones, and it changes neither."""
    assert schema.check(empty) == schema.SchemaState(current=None, head=HEAD, pending=REVISIONS, differences=())
    schema.upgrade(empty, "0001")
    state = schema.check(empty)
    assert (state.current, state.pending, state.is_current) == ("0001", REVISIONS[1:], False)
    assert "add column: pushlink_push_attempt, dispatch_lane" in state.differences
    assert schema.check(empty) == state


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DROP INDEX pushlink_attempt_due", "add index: pushlink_attempt_due"),
        ("ALTER TABLE pushlink_push_slot DROP COLUMN refused_evidence", "refused_evidence"),
        ("ALTER TABLE pushlink_push_slot ADD COLUMN spare TEXT", "remove column: pushlink_push_slot, spare"),
        ("DROP TABLE pushlink_remote_throttle", "add table: pushlink_remote_throttle"),
    ],
)
def test_the_check_says_what_is_different(engine: sa.Engine, damage: str, said: str) -> None:
    """Somebody who changed the tables by hand is told what."""
    with engine.begin() as conn:
        conn.exec_driver_sql(damage)
    state = schema.check(engine)
    assert not state.is_current
    assert any(said in sentence for sentence in state.differences), state.differences


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("ALTER TABLE pushlink_deployment DROP CONSTRAINT there_is_one_deployment", "check there_is_one_deployment"),
        ("ALTER TABLE pushlink_remote_link DROP CONSTRAINT one_live_link_for_a_remote_record", "one_live_link"),
        ("ALTER TABLE pushlink_attempt_event DISABLE TRIGGER ALL", "trigger pushlink_attempt_event_keeps_rows"),
        ("ALTER TABLE pushlink_push_slot ALTER wanted_version TYPE integer", "wanted_version"),
    ],
)
def test_the_check_says_which_guard_is_missing(pg_url: str, open_engine: OpenEngine, damage: str, said: str) -> None:
    """A constraint that was dropped or a trigger that was switched off is a difference, not a detail."""
    engine = open_engine(pg_url)
    with engine.begin() as conn:
        conn.exec_driver_sql(damage)
    assert any(said in sentence for sentence in schema.check(engine).differences), schema.check(engine)


def test_the_check_says_which_trigger_is_missing(sqlite_url: str, open_engine: OpenEngine) -> None:
    """The same on SQLite, whose triggers can only be dropped."""
    engine = open_engine(sqlite_url)
    with engine.begin() as conn:
        conn.exec_driver_sql("DROP TRIGGER pushlink_attempt_event_keeps_keys")
    assert schema.check(engine).differences == ("trigger pushlink_attempt_event_keeps_keys is missing or switched off",)


# ------------------------------------------------------------------------------------------------ side by side

#: What a revision may do: the release before it goes on reading and writing, and knows nothing of it.
EXPANDING = {"get_bind", "create_table", "add_column", "create_index", "drop_index", "execute"}

#: Revisions that take something away which the release before them no longer uses, and what that is.
CONTRACTING: dict[str, str] = {}


def test_a_revision_only_expands_or_says_what_it_takes_away() -> None:
    """No table is copied, no column changed or dropped; a new column may be left out by who does not know it (D-43)."""
    for path in sorted((Path(revisions.__file__).parent / "migrations/versions").glob("[0-9]*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        done = {name[3:] for call in calls if (name := ast.unparse(call.func)).startswith("op.")}
        assert done <= EXPANDING or path.name[:4] in CONTRACTING, f"{path.name}: {done - EXPANDING}"
        for call in calls:
            if ast.unparse(call.func) == "op.add_column":
                column = ast.unparse(call.args[1])
                assert "nullable=True" in column or "server_default=" in column, f"{path.name}: {column}"


# ------------------------------------------------------------------------------------------------ refusing to start


def test_a_current_database_is_accepted(engine: sa.Engine) -> None:
    """Nothing is raised, nothing is written."""
    with engine.connect() as conn:
        revisions.require_current(conn)


@pytest.mark.parametrize("revision", [None, "0001"])
def test_an_older_database_is_refused_with_the_command_to_run(empty: sa.Engine, revision: str | None) -> None:
    """The message names both revisions, the next step is the command."""
    if revision:
        schema.upgrade(empty, revision)
    with empty.connect() as conn, pytest.raises(ConfigurationError) as caught:
        revisions.require_current(conn)
    assert caught.value.code is Code.SCHEMA_OUTDATED
    assert caught.value.evidence == {"current": revision, "head": HEAD}
    assert caught.value.next_step == "pushlink db upgrade"


@pytest.mark.rule("D-43")
def test_a_database_of_the_next_release_is_accepted_and_of_a_later_one_refused(engine: sa.Engine) -> None:
    """During an upgrade neighbours run side by side; an upgrade by the older one leaves the database as it is."""
    with engine.begin() as conn:
        conn.execute(VERSION.update().values(version_num=NEXT))
        revisions.require_current(conn)
    schema.upgrade(engine)
    state = schema.check(engine)
    assert (state.current, state.pending) == (NEXT, ())
    with engine.begin() as conn:
        conn.execute(VERSION.update().values(version_num=f"{int(HEAD) + 2:04}"))
        with pytest.raises(ConfigurationError, match=f"this release knows {HEAD}") as caught:
            revisions.require_current(conn)
    assert "the release of pushlink that" in str(caught.value.next_step)


def test_revisions_are_one_line_of_numbers() -> None:
    """What counts as the next release's revision rests on this."""
    known = revisions.known_revisions()
    assert known == tuple(f"{number:04d}" for number in range(1, len(known) + 1))
