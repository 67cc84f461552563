"""What the database itself refuses: each forbidden row is tried by SQL, each arrow off the tables by the writer."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from pushlink.adapters.records import SqlRecordStore
from pushlink.errors import Code, ConfigurationError, ProtocolViolation
from pushlink.protocol import states
from pushlink.protocol.snapshots import AttemptId, ClaimToken, LinkKey
from pushlink.protocol.states import AttemptStatus, CreateEvent, Lane, LinkEvent, LinkStatus, Operation, UpdateEvent
from pushlink.store import attempts, claims, lifecycle, ordered
from pushlink.store.claims import Queue
from pushlink.store.lifecycle import LinkMove, Lost, Move, Moved, NewAttempt, Occupied
from pushlink.store.rows import AttemptRow
from pushlink.store.tables import METADATA, PROTECTED_TABLES, push_attempt, push_slot, remote_link

NOW = dt.datetime(2025, 1, 15, 12, 0, tzinfo=dt.UTC)
A = AttemptStatus

#: Statuses in which a row has an owner.
OWNED = (A.PROCESSING, A.POST_SENT, A.WRITEBACK_COMMIT_PENDING)


def attempt_row(name: str, operation: Operation, status: AttemptStatus, /, **given: Any) -> dict[str, Any]:
    """A row that every constraint accepts, in any status of its operation."""
    is_create = operation is Operation.CREATE
    owned = status in OWNED
    row = {
        "id": name,
        "link_key": f"lk-{name}",
        "tenant": "",
        "destination_slot_id": "dest-1",
        "operation": operation.value,
        "dispatch_lane": "configured",
        "status": status.value,
        "create_key": f"lk-{name}" if is_create and status is not A.SUPERSEDED else None,
        "update_key": f"lk-{name}" if not is_create and status in states.UPDATE_OPEN else None,
        "ordinal": int(is_create),
        "version": 1,
        "freeze_count": 1,
        "claim_token": f"token-{name}" if owned else None,
        "lease_until": NOW if owned else None,
        "claim_count": 0,
        "in_doubt": False,
        "send_count": 0,
        "retry_count": 0,
        "not_before": NOW,
        "created_at": NOW,
        "updated_at": NOW,
        "row_version": 1,
    }
    return row | given


def link_row(name: str, status: LinkStatus = LinkStatus.FINALIZED, /, **given: Any) -> dict[str, Any]:
    texts = {c.name: "x" for c in remote_link.columns if isinstance(c.type, sa.Text) and not c.nullable}
    keys = {
        "id": name,
        "link_key": f"lk-{name}",
        "slot_key": f"lk-{name}",
        "locator_key": None if status is LinkStatus.RETIRED else f"loc-{name}",
        "status": status.value,
        "mirror_status": "none",
    }
    return texts | keys | {"finalized_at": NOW, "updated_at": NOW, "row_version": 1} | given


def put(engine: sa.Engine, table: sa.Table, *rows: Mapping[str, Any]) -> None:
    with engine.begin() as conn:
        for row in rows:
            conn.execute(sa.insert(table).values(row))


def refuses(engine: sa.Engine, name: str, table: sa.Table, row: Mapping[str, Any]) -> None:
    with pytest.raises(sa.exc.IntegrityError) as caught:
        put(engine, table, row)
    said = str(caught.value.orig)
    unique = {c.name: {col.name for col in c.columns} for c in table.constraints if isinstance(c, sa.UniqueConstraint)}
    assert name in said or all(column in said for column in unique.get(name, {"-"})), said


def status_of(engine: sa.Engine, table: sa.Table, name: str) -> str:
    with engine.begin() as conn:
        return str(conn.execute(sa.select(table.c.status).where(table.c.id == name)).scalar_one())


# --------------------------------------------------------------------------------------- unique keys


@pytest.mark.rule("AT-01", "D-10")
def test_a_key_has_one_create_attempt_whatever_its_status(engine: sa.Engine) -> None:
    """Finalized and terminal ones hold it too; a superseded one does not."""
    for number, status in enumerate(sorted(states.statuses(Operation.CREATE) - {A.SUPERSEDED})):
        name = f"first-{number}"
        put(engine, push_attempt, attempt_row(name, Operation.CREATE, status))
        second = attempt_row(f"second-{number}", Operation.CREATE, A.PENDING, create_key=f"lk-{name}")
        refuses(engine, "one_create_attempt_for_a_link_key", push_attempt, second)
    put(engine, push_attempt, attempt_row("gone", Operation.CREATE, A.SUPERSEDED))
    put(engine, push_attempt, attempt_row("new", Operation.CREATE, A.PENDING, create_key="lk-gone"))


@pytest.mark.rule("PA-11")
def test_a_key_has_one_open_update(engine: sa.Engine) -> None:
    """In work, waiting or ambiguous: one; finished ones as many as there were."""
    for number, status in enumerate(sorted(states.UPDATE_OPEN)):
        name = f"first-{number}"
        put(engine, push_attempt, attempt_row(name, Operation.UPDATE, status))
        second = attempt_row(f"second-{number}", Operation.UPDATE, A.PENDING, update_key=f"lk-{name}")
        refuses(engine, "one_open_update_for_a_link_key", push_attempt, second)
    for number in range(2):
        done = attempt_row(f"done-{number}", Operation.UPDATE, A.FINALIZED, link_key="lk-done")
        put(engine, push_attempt, done)


@pytest.mark.rule("LK-02", "LK-03", "D-35")
def test_a_slot_and_a_remote_record_have_one_link_each(engine: sa.Engine) -> None:
    """The slot also while a retired link keeps it closed; the remote record until its link is retired."""
    put(engine, remote_link, link_row("one"))
    refuses(engine, "one_link_for_a_link_key", remote_link, link_row("two", slot_key="lk-one"))
    refuses(engine, "one_live_link_for_a_remote_record", remote_link, link_row("two", locator_key="loc-one"))
    put(engine, remote_link, link_row("closed", LinkStatus.RETIRED))
    refuses(engine, "one_link_for_a_link_key", remote_link, link_row("two", slot_key="lk-closed"))
    put(engine, remote_link, link_row("released", LinkStatus.RETIRED, slot_key=None))
    put(engine, remote_link, link_row("again", slot_key="lk-released"))


# --------------------------------------------------------------------------------------- checks

FORBIDDEN_ATTEMPTS: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "a create that is a link's word": (
        "an_attempt_has_a_status_of_its_operation",
        lambda: attempt_row("x", Operation.CREATE, A.PENDING, status="suspended_drift"),
    ),
    "an update that waits for a mirror": (
        "an_attempt_has_a_status_of_its_operation",
        lambda: attempt_row("x", Operation.UPDATE, A.FINALIZED, status="writeback_pending"),
    ),
    "an update with a create key": (
        "only_a_create_holds_the_create_key",
        lambda: attempt_row("x", Operation.UPDATE, A.PENDING, create_key="lk-x"),
    ),
    "a superseded create that keeps its slot": (
        "a_superseded_create_frees_its_slot",
        lambda: attempt_row("x", Operation.CREATE, A.SUPERSEDED, create_key="lk-x"),
    ),
    "an open update without its key": (
        "an_open_update_holds_the_update_key",
        lambda: attempt_row("x", Operation.UPDATE, A.PENDING, update_key=None),
    ),
    "a finished update with its key": (
        "an_open_update_holds_the_update_key",
        lambda: attempt_row("x", Operation.UPDATE, A.FINALIZED, update_key="lk-x"),
    ),
    "a terminal create with a known id": (
        "a_known_remote_id_is_never_given_up",
        lambda: attempt_row("x", Operation.CREATE, A.TERMINAL_FAILED, remote_id="7"),
    ),
    "a superseded create with a known id": (
        "a_known_remote_id_is_never_given_up",
        lambda: attempt_row("x", Operation.CREATE, A.SUPERSEDED, remote_id="7"),
    ),
    "a terminal attempt in doubt": (
        "what_is_in_doubt_is_not_terminal",
        lambda: attempt_row("x", Operation.CREATE, A.TERMINAL_FAILED, in_doubt=True),
    ),
    "a pending attempt with a checkpoint": (
        "a_pending_attempt_has_no_claim_and_no_checkpoint",
        lambda: attempt_row("x", Operation.CREATE, A.PENDING, remote_io_started_at=NOW),
    ),
    "a pending attempt with an owner": (
        "a_pending_attempt_has_no_claim_and_no_checkpoint",
        lambda: attempt_row("x", Operation.CREATE, A.PENDING, claim_token="t"),
    ),
    "an attempt in work without an owner": (
        "an_attempt_in_work_has_an_owner",
        lambda: attempt_row("x", Operation.CREATE, A.PROCESSING, claim_token=None),
    ),
    "an attempt in work without a lease": (
        "an_attempt_in_work_has_an_owner",
        lambda: attempt_row("x", Operation.CREATE, A.POST_SENT, lease_until=None),
    ),
    "a hold where its machine has none": (
        "a_hold_stands_where_its_machine_allows",
        lambda: attempt_row("x", Operation.CREATE, A.PENDING, hold_code="locator_conflict"),
    ),
    "a hold on a finished attempt": (
        "a_hold_stands_where_its_machine_allows",
        lambda: attempt_row("x", Operation.CREATE, A.FINALIZED, hold_code="drift"),
    ),
}


@pytest.mark.rule("D-09", "D-01", "AT-08", "D-06", "AT-10")
def test_no_forbidden_attempt_can_be_written(engine: sa.Engine) -> None:
    """Each is refused by the constraint whose name is the sentence it breaks; its innocent twin is accepted."""
    for what, (constraint, row) in FORBIDDEN_ATTEMPTS.items():
        try:
            refuses(engine, constraint, push_attempt, row())
        except pytest.fail.Exception:
            pytest.fail(f"{what} was written")
    for number, operation in enumerate(Operation):
        for status in sorted(states.statuses(operation)):
            put(engine, push_attempt, attempt_row(f"fine-{number}-{status}", operation, status))


@pytest.mark.rule("LK-05", "D-35")
@pytest.mark.parametrize(
    ("constraint", "row"),
    [
        ("a_link_has_a_known_status", {"status": "pending"}),
        ("a_live_link_holds_its_remote_record", {"locator_key": None}),
        ("a_live_link_holds_its_remote_record", {"status": "retired"}),
        ("a_live_link_holds_its_slot", {"slot_key": None}),
        ("a_link_has_a_remote_id", {"remote_id": ""}),
        ("a_mirror_has_a_known_status", {"mirror_status": "perhaps"}),
    ],
)
def test_no_forbidden_link_can_be_written(engine: sa.Engine, constraint: str, row: dict[str, Any]) -> None:
    """There is no pending link, none without its keys, none without an id."""
    refuses(engine, constraint, remote_link, link_row("x", **row))


@pytest.mark.rule("D-19")
@pytest.mark.parametrize("column", ["acknowledged_version", "refused_version"])
def test_nothing_is_answered_before_it_was_wanted(engine: sa.Engine, column: str) -> None:
    """Acknowledged and refused versions are never ahead of the wanted one."""
    texts = {c.name: "x" for c in push_slot.columns if isinstance(c.type, sa.Text) and not c.nullable}
    with pytest.raises(sa.exc.IntegrityError, match="before_it_is_wanted"):
        put(engine, push_slot, texts | {"wanted_version": 1, column: 2, "created_at": NOW})


# --------------------------------------------------------------------------------------- the compare-and-set


def move(
    name: str,
    operation: Operation,
    status: AttemptStatus,
    event: Any,
    *,
    token: ClaimToken | None = None,
    row_version: int = 1,
) -> Move:
    """A move of a row that was read like this; what else it says does not matter."""
    read = {"id": name, "link_key": f"lk-{name}", "tenant": "", "operation": operation, "status": status}
    unread = dict.fromkeys(field.name for field in dataclasses.fields(AttemptRow))
    row = AttemptRow(**(unread | read | {"row_version": row_version}))
    return Move(row=row, event=event, token=token, actor="a test")


@pytest.mark.rule("AT-08", "D-03")
@pytest.mark.parametrize("operation", Operation)
def test_every_state_and_event_is_an_arrow_of_the_table_or_is_refused(engine: sa.Engine, operation: Operation) -> None:
    """All pairs, on real rows: what is on the table moves there, what is not raises and leaves the row as it was."""
    events: Any = CreateEvent if operation is Operation.CREATE else UpdateEvent
    table: Mapping[Any, AttemptStatus] = states.CREATE if operation is Operation.CREATE else states.UPDATE
    born = {CreateEvent.RESERVE, UpdateEvent.RESERVE}
    for number, (status, event) in enumerate(itertools.product(sorted(states.statuses(operation)), events)):
        name = f"row-{number}"
        put(engine, push_attempt, attempt_row(name, operation, status))
        target = table.get((status, event))
        with engine.begin() as conn:
            if target is None or event in born:
                with pytest.raises(ProtocolViolation):
                    lifecycle.move_attempts(conn, [move(name, operation, status, event)], now=NOW)
                expected = status
            elif target in {A.PROCESSING, A.POST_SENT} and status not in OWNED:
                continue  # a claim, which is written by its own statement
            else:
                [answer] = lifecycle.move_attempts(conn, [move(name, operation, status, event)], now=NOW)
                assert isinstance(answer, Moved)
                expected = target
        assert status_of(engine, push_attempt, name) == expected


@pytest.mark.rule("AT-08", "AT-09", "LK-06")
def test_a_row_that_moved_on_is_lost_and_nothing_is_written(engine: sa.Engine) -> None:
    """Another status, another version, another token: each is answered with `Lost`, no event is kept."""
    put(engine, push_attempt, attempt_row("one", Operation.CREATE, A.PROCESSING))
    create = Operation.CREATE
    wrong = [
        move("one", create, A.PENDING, CreateEvent.END_UNSENT),
        move("one", create, A.PROCESSING, CreateEvent.GIVE_BACK, row_version=2),
        move("one", create, A.PROCESSING, CreateEvent.GIVE_BACK, token=ClaimToken("another")),
        move("nobody", create, A.PENDING, CreateEvent.END_UNSENT),
    ]
    for one in wrong:
        with engine.begin() as conn:
            assert lifecycle.move_attempts(conn, [one], now=NOW) == [Lost(attempt_id=one.row.id)]
    assert status_of(engine, push_attempt, "one") == "processing"
    with engine.begin() as conn:
        assert (
            conn.execute(sa.select(sa.func.count()).select_from(METADATA.tables["pushlink_attempt_event"])).scalar()
            == 0
        )


@pytest.mark.rule("LK-05", "LK-06")
def test_every_state_and_event_of_a_link_is_an_arrow_or_is_refused(engine: sa.Engine) -> None:
    """Retired leads nowhere but to its released slot; a suspended link is usable again only by a revalidation."""
    for number, (status, event) in enumerate(itertools.product(LinkStatus, LinkEvent)):
        name = f"link-{number}"
        put(engine, remote_link, link_row(name, status))
        one = LinkMove(
            link_id=name,
            link_key=LinkKey(f"lk-{name}"),
            tenant="",
            status=status,
            row_version=1,
            event=event,
            actor="a test",
        )
        target = states.LINK.get((status, event))
        with engine.begin() as conn:
            if target is None:
                with pytest.raises(ProtocolViolation):
                    lifecycle.move_links(conn, [one], now=NOW)
            else:
                assert lifecycle.move_links(conn, [one], now=NOW) == [True]
                assert lifecycle.move_links(conn, [one], now=NOW) == [False]  # the version that was read is gone
        assert status_of(engine, remote_link, name) == (status if target is None else target)


@pytest.mark.rule("AT-01", "AT-02")
def test_a_second_reservation_is_occupied_and_writes_nothing(engine: sa.Engine) -> None:
    """The unique index decides, not a read: within one statement and between two."""

    def new(name: str) -> NewAttempt:
        return NewAttempt(
            id=AttemptId(name),
            link_key=LinkKey("lk-one"),
            tenant="",
            destination_slot_id="dest-1",
            operation=Operation.CREATE,
            lane=Lane.CONFIGURED,
            ordinal=1,
            version=1,
            freeze_count=1,
            not_before=NOW,
            expires_at=None,
            actor="a test",
        )

    with engine.begin() as conn:
        first = lifecycle.insert_attempts(conn, [new("a"), new("b")], now=NOW)
        second = lifecycle.insert_attempts(conn, [new("c")], now=NOW)
    assert sorted(type(answer).__name__ for answer in first) == ["Moved", "Occupied"]
    assert second == [Occupied(link_key=LinkKey("lk-one"))]


@pytest.mark.rule("AT-10", "D-12", "AT-09")
def test_the_checkpoint_needs_token_status_and_a_lease_that_lasts(engine: sa.Engine) -> None:
    """A repeat under the same token agrees and counts no second send."""
    lease = NOW + dt.timedelta(seconds=60)
    put(engine, push_attempt, attempt_row("one", Operation.CREATE, A.PROCESSING, lease_until=lease))

    def write(owner: str = "one", needs_ms: int = 35_000, now: dt.datetime = NOW) -> str:
        one = attempts.Checkpoint(
            attempt_id=AttemptId("one"), token=ClaimToken(f"token-{owner}"), freeze=1, version=1, needs_ms=needs_ms
        )
        with engine.begin() as conn:
            [answer] = attempts.write_checkpoints(conn, [one], now=now)
        return type(answer).__name__

    assert write(owner="another") == "LeaseLost"
    assert write(needs_ms=60_001) == "LeaseLost"
    claims = [
        attempts.Checkpoint(
            attempt_id=AttemptId("one"), token=ClaimToken(f"token-{owner}"), freeze=1, version=1, needs_ms=1
        )
        for owner in ("another", "one", "a third")
    ]
    with engine.connect() as conn:  # rolled back
        answers = attempts.write_checkpoints(conn, claims, now=NOW)
    assert [type(answer).__name__ for answer in answers] == ["LeaseLost", "Checkpointed", "LeaseLost"]
    assert write(now=NOW + dt.timedelta(seconds=61)) == "LeaseLost"
    assert write() == "Checkpointed"
    assert write(now=NOW + dt.timedelta(seconds=1)) == "Checkpointed"
    with engine.begin() as conn:
        row = conn.execute(sa.select(push_attempt).where(push_attempt.c.id == "one")).mappings().one()
    assert (row["remote_io_started_at"], row["first_io_at"], row["send_count"]) == (NOW, NOW, 1)


# --------------------------------------------------------------------------------------- plans


@pytest.mark.rule("C-075", "C-076")
def test_the_claim_reads_its_partial_index(engine: sa.Engine) -> None:
    """Queue heads and due rows come from the index of due work in its order, dead claims from that of leases."""
    with engine.begin() as conn:
        conn.execute(
            sa.insert(push_attempt),
            [
                attempt_row(f"n{n}", Operation.CREATE, A.PENDING if n % 20 == 0 else A.FINALIZED, create_key=f"k{n}")
                for n in range(3_000)
            ],
        )
    with engine.connect() as conn:
        conn.exec_driver_sql("ANALYZE")
        conn.commit()
    said: list[tuple[str, Any]] = []

    def listen(conn: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        said.append((statement, parameters))

    sa.event.listen(engine, "before_cursor_execute", listen)
    queue = Queue(tenant="", destination_slot_id="dest-1", lane="configured")
    with engine.begin() as conn:
        assert len(claims.read_due(conn, queue, limit=10, now=NOW)) == 10
        claims.read_expired(conn, list(Lane), limit=10, now=NOW)
        claims.read_queues(conn, [Lane.CONFIGURED])
        assert not ordered.has_ordered(conn, queue)
        ordered.read_firsts(conn, queue, limit=10, now=NOW)
    sa.event.remove(engine, "before_cursor_execute", listen)
    prefix = "EXPLAIN QUERY PLAN " if engine.dialect.name == "sqlite" else "EXPLAIN "
    reads = [(text, values) for text, values in said if "pushlink_push_attempt" in text]
    plans: list[tuple[str, str]] = []
    with engine.begin() as conn:
        for text, values in reads:
            rows = conn.exec_driver_sql(prefix + text, values).all()
            plans.append((text, "\n".join(str(row) for row in rows)))
    assert len(plans) >= 3
    for text, plan in plans:
        wanted = "pushlink_attempt_leased" if "lease_until <" in text else "pushlink_attempt_due"
        wanted = "pushlink_attempt_in_order" if "order_key IS NOT NULL" in text else wanted
        assert wanted in plan, (text, plan)
        assert "Seq Scan" not in plan, plan
        if engine.dialect.name == "sqlite" and wanted == "pushlink_attempt_due":
            assert "TEMP B-TREE" not in plan, plan


# --------------------------------------------------------------------------------------- the tables are ours


@pytest.mark.rule("SY-01")
@pytest.mark.parametrize("table", sorted(PROTECTED_TABLES))
def test_no_table_of_ours_is_a_source_object(table: str) -> None:
    """Refused as it is written and in any other case: no reader and no mirror of records reaches one."""
    from pushlink.adapters.objects import KeyColumn, ObjectDeclaration
    from pushlink.protocol.identity import KeyType

    for name in (table, table.upper()):
        declaration = ObjectDeclaration(name="Sneaky", table=name, key=(KeyColumn(column="id", type=KeyType.TEXT),))
        with pytest.raises(ConfigurationError) as caught:
            SqlRecordStore([declaration])
        assert caught.value.code is Code.TABLE_PROTECTED
