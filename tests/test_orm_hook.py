"""The ORM hook: what the unit of work flushed is saved at the commit, once, and nothing that did not happen is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, sessionmaker

import pushlink
from pushlink import orm
from pushlink.errors import CallerError, Contended
from pushlink.flows.outcomes import Refused
from pushlink.testing.drain import open_runtime

PACK = """
pack: guests
version: 1.0.0
connector_owner_key: 7d1f0000-0000-4000-8000-000000000001
namespace: guests
profiles:
  main: {base_url: "http://127.0.0.1:9", auth: {kind: none}}
destinations:
  - {destination_slot_id: 7d1f0000-0000-4000-8000-000000000002, target_object: guests, profile: main}
flows:
  - flow: Guests
    version: 1
    actions:
      - action: push_guest
        action_slot_id: 7d1f0000-0000-4000-8000-000000000003
        source_object: Guest
        destination: 7d1f0000-0000-4000-8000-000000000002
        create: {method: POST, path: /guests, response: {id: [{from: $response.body#/id}]}}
        update: {method: PATCH, path: "/guests/{remote_id}"}
        mappings: [{source: name, target: /name}, {source: house_id, target: /house}, {source: score, target: /score}]
        mirror: {remote_id_field: remote_id, provenance_field: remote_source, provenance_value: us}
"""


class Base(DeclarativeBase):
    pass


class House(Base):
    __tablename__ = "house"
    id: Mapped[int] = mapped_column(primary_key=True)
    guests: Mapped[list[Guest]] = relationship(cascade="all, delete-orphan", back_populates="house")


class Guest(Base):
    __tablename__ = "guest"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    house_id: Mapped[int | None] = mapped_column(sa.ForeignKey("house.id"))
    score: Mapped[float | None]
    remote_key: Mapped[str | None] = mapped_column("remote_id")
    remote_source: Mapped[str | None]
    touched: Mapped[int] = mapped_column(default=0, onupdate=1)
    house: Mapped[House | None] = relationship(back_populates="guests")


@dataclass
class Watched:
    """A runtime that remembers what it was asked to save and told to be deleted."""

    runtime: pushlink.Runtime
    saved: list[list[str]] = field(default_factory=list)
    deleted_ids: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runtime, name)

    def save_many(self, host: Any, records: Sequence[Any], **more: Any) -> Any:
        self.saved.append([ref.record_id for ref in records])
        return self.runtime.save_many(host, records, **more)

    def deleted(self, host: Any, record: Any, **more: Any) -> Any:
        self.deleted_ids.append(record.record_id)
        return self.runtime.deleted(host, record, **more)

    @property
    def attempts(self) -> int:
        with self.runtime.engine.connect() as conn:
            return int(conn.exec_driver_sql("SELECT count(*) FROM pushlink_push_attempt").scalar_one())


@pytest.fixture
def runtime(tmp_path: Path, database_url: str) -> Iterator[Watched]:
    settings = {
        "objects": {
            "Guest": {
                "table": "guest",
                "key": [{"column": "id", "type": "integer"}],
                "fields": {
                    name: name for name in ("name", "house_id", "score", "remote_id", "remote_source", "touched")
                },
            }
        }
    }
    opened = open_runtime(
        tmp_path, pack=PACK, bind={"Guest": Guest}, metadata=Base.metadata, database_url=database_url, **settings
    )
    yield Watched(opened)
    opened.close()


@pytest.fixture
def refused() -> list[Refused]:
    return []


@pytest.fixture
def sessions(runtime: Watched, refused: list[Refused]) -> sessionmaker[Session]:
    """Sessions with the hook on them."""
    maker = sessionmaker(runtime.engine)
    orm.install(runtime, maker, user=lambda _: "ann", on_refused=lambda _, one: refused.append(one))
    return maker


Sessions = Callable[[], Session]


def guest(sessions: Sessions, number: int, **values: Any) -> int:
    with sessions() as session, session.begin():
        session.add(Guest(id=number, name=f"guest {number}", **values))
    return number


# ------------------------------------------------------------------------------------------------ what is saved


def test_what_was_flushed_is_saved_with_the_commit(sessions: Sessions, runtime: Watched) -> None:
    """New rows and changed ones, in order, in one call; rows of a class that is not bound are none of its business."""
    with sessions() as session:
        session.add_all([Guest(id=10, name="b"), Guest(id=9, name="a"), House(id=1)])
        session.flush()
        assert runtime.saved == []
        session.commit()
    assert runtime.saved == [["10", "9"]]
    assert runtime.attempts == 2
    with sessions() as session:
        session.get_one(Guest, 9).name = "another"
        session.commit()
        session.commit()
    assert runtime.saved == [["10", "9"], ["9"]]


@pytest.mark.rule("D-44")
def test_a_rollback_takes_everything_with_it(sessions: Sessions, runtime: Watched) -> None:
    """Before the commit nothing was saved; and when the commit itself fails, what was saved goes too."""
    with sessions() as session:
        session.add(Guest(id=1, name="a"))
        session.flush()
        session.rollback()
        session.commit()
    assert runtime.saved == []
    with sessions() as session:
        event.listen(session, "before_commit", fail, once=True)
        session.add(Guest(id=1, name="a"))
        with pytest.raises(ZeroDivisionError):
            session.commit()
        session.rollback()
    assert (runtime.saved, runtime.attempts) == ([["1"]], 0)


def fail(_session: Session) -> None:
    raise ZeroDivisionError


def test_a_record_is_saved_once_for_each_commit(sessions: Sessions, runtime: Watched) -> None:
    """However often it was flushed."""
    with sessions() as session:
        row = Guest(id=1, name="a")
        session.add(row)
        for name in "bcd":
            session.flush()
            row.name = name
        with session.begin_nested():
            row.name = "e"
        session.commit()
    assert runtime.saved == [["1"]]
    assert runtime.attempts == 1


@pytest.mark.rule("D-22")
def test_a_change_of_mirror_fields_alone_is_no_save(sessions: Sessions, runtime: Watched) -> None:
    """Not of a record that was saved before, and not of one that never was; a column that tells of it changes too."""
    guest(sessions, 1)
    with Session(runtime.engine) as plain:
        plain.add(Guest(id=2, name="never saved"))
        plain.commit()
    runtime.saved.clear()
    with sessions() as session:
        for number in (1, 2):
            row = session.get_one(Guest, number)
            row.remote_key, row.remote_source = "r1", "elsewhere"
        session.commit()
        assert session.get_one(Guest, 2).touched == 1
    assert (runtime.saved, runtime.attempts) == ([], 1)
    with sessions() as session:
        row = session.get_one(Guest, 2)
        row.remote_key, row.name = "r2", "and a name"
        session.commit()
    assert (runtime.saved, runtime.attempts) == ([["2"]], 2)


def test_a_row_that_was_only_looked_at_is_no_save(sessions: Sessions, runtime: Watched) -> None:
    """Nor one that was set to what it was."""
    guest(sessions, 1)
    runtime.saved.clear()
    with sessions() as session:
        row = session.get_one(Guest, 1)
        row.name = str(row.name)
        session.commit()
    assert runtime.saved == []


def test_a_foreign_key_that_a_relationship_set_is_a_change(sessions: Sessions, runtime: Watched) -> None:
    """Nobody touched the column itself."""
    guest(sessions, 1)
    runtime.saved.clear()
    with sessions() as session:
        house = House(id=1)
        session.add(house)
        house.guests.append(session.get_one(Guest, 1))
        session.commit()
    assert runtime.saved == [["1"]]


def test_what_another_listener_changes_in_the_commit_is_saved_too(
    runtime: Watched, sessions: sessionmaker[Session]
) -> None:
    """Even when it comes after the hook."""

    def late(session: Session) -> None:
        session.add(Guest(id=2, name="late"))

    with sessions() as session:
        session.add(Guest(id=1, name="a"))
        event.listen(session, "before_commit", late, once=True)
        session.commit()
    assert runtime.saved == [["1"], ["2"]]
    assert runtime.attempts == 2


def test_statements_and_bulk_methods_pass_it_by(sessions: Sessions, runtime: Watched) -> None:
    """As its documentation says: they are not in the unit of work."""
    guest(sessions, 1)
    runtime.saved.clear()
    with sessions() as session:
        session.execute(sa.update(Guest).values(name="all of them"))
        session.execute(sa.insert(Guest), [{"id": 2, "name": "two"}])
        session.commit()
    assert runtime.saved == []


# ------------------------------------------------------------------------------------------------ savepoints


@pytest.mark.rule("D-44")
def test_what_a_savepoint_rolled_back_is_not_saved(sessions: Sessions, runtime: Watched) -> None:
    """Also when a savepoint inside of it was released before."""
    with sessions() as session:
        session.add(Guest(id=1, name="kept"))
        with session.begin_nested():
            session.add(Guest(id=2, name="kept"))
            with session.begin_nested() as innermost:
                session.add(Guest(id=3, name="gone"))
                session.flush()
                innermost.rollback()
        with session.begin_nested() as outer:
            with session.begin_nested():
                session.add(Guest(id=4, name="gone"))
            session.get_one(Guest, 1).name = "gone"
            session.flush()
            outer.rollback()
        session.commit()
    assert runtime.saved == [["1", "2"]]
    assert runtime.attempts == 2


def test_a_flush_that_fails_in_a_savepoint_leaves_the_rest(sessions: Sessions, runtime: Watched) -> None:
    """The usual way to try an insert."""
    guest(sessions, 1)
    runtime.saved.clear()
    with sessions() as session:
        session.add(Guest(id=2, name="kept"))
        with pytest.raises(sa.exc.IntegrityError), session.begin_nested():
            session.execute(sa.insert(Guest), [{"id": 1, "name": "there already"}])
        session.add(Guest(id=3, name="kept"))
        session.commit()
    assert runtime.saved == [["2", "3"]]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_commit_with_savepoints_left_open_saves_all_the_same(
    sessions: Sessions, runtime: Watched, depth: int
) -> None:
    """They are released by the commit itself, and what they did is in it."""
    with sessions() as session:
        with session.begin():
            session.add(Guest(id=1, name="a"))
            session.flush()
            for number in range(2, 2 + depth):
                session.begin_nested()
                session.add(Guest(id=number, name="b"))
        session.add(Guest(id=9, name="c"))
        session.commit()
    assert runtime.saved == [[str(number) for number in range(1, 2 + depth)], ["9"]]


# ------------------------------------------------------------------------------------------------ deletes


def test_a_deleted_row_is_told_as_deleted(sessions: Sessions, runtime: Watched) -> None:
    """Deleted by name, or as an orphan; not when a savepoint brought it back."""
    for number in (1, 2, 3):
        guest(sessions, number)
    with sessions() as session, session.begin():
        house = House(id=1)
        session.add(house)
        house.guests.append(session.get_one(Guest, 2))
    runtime.saved.clear()
    with sessions() as session:
        session.delete(session.get_one(Guest, 1))
        house = session.get_one(House, 1)
        house.guests.pop()
        with session.begin_nested() as savepoint:
            session.delete(session.get_one(Guest, 3))
            session.flush()
            savepoint.rollback()
        session.commit()
    assert (runtime.deleted_ids, runtime.saved) == (["1", "2"], [])


def test_a_row_that_was_new_and_went_is_not_saved(sessions: Sessions, runtime: Watched) -> None:
    """And one that came back is."""
    with sessions() as session:
        row = Guest(id=1, name="a")
        session.add(row)
        session.flush()
        session.delete(row)
        session.flush()
        session.commit()
    assert runtime.saved == []
    guest(sessions, 2)
    with sessions() as session:
        session.delete(session.get_one(Guest, 2))
        session.flush()
        session.add(Guest(id=2, name="again"))
        session.commit()
    assert runtime.saved == [["2"], ["2"]]


# ------------------------------------------------------------------------------------------------ refusals


def test_a_refusal_goes_to_the_callback_and_the_commit_goes_on(
    sessions: Sessions, runtime: Watched, refused: list[Refused]
) -> None:
    """One that a save would raise for is no exception here either, and takes no other record with it."""
    with sessions() as session:
        session.add(Guest(id=1, name="a", score=float("inf")))
        session.add(Guest(id=2, name="b"))
        session.commit()
        assert session.get_one(Guest, 1).name == "a"
    assert [(one.about.record_id, one.code.value) for one in refused] == [("1", "value_unsendable")]
    assert runtime.attempts == 1


def test_a_refusal_that_nobody_asked_for_is_logged(runtime: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """Without the record itself."""
    maker = sessionmaker(runtime.engine)
    orm.install(runtime, maker, user=lambda _: "ann", tenant=lambda _: "nobody's")
    with caplog.at_level(logging.WARNING, "pushlink.orm"):
        guest(maker, 1)
    assert [record.getMessage() for record in caplog.records] == [
        "a record of Guest was refused at its commit: slot_unresolved"
    ]


def test_a_commit_that_nobody_answers_for_is_an_error(runtime: Watched) -> None:
    """A save reads on somebody's authority; there is no default."""
    maker = sessionmaker(runtime.engine)
    orm.install(runtime, maker, user=lambda session: session.info.get("user"))
    with pytest.raises(CallerError, match="no user"):
        guest(maker, 1)
    with maker(info={"user": "ann"}) as session, session.begin():
        session.add(Guest(id=1, name="a"))
    assert runtime.attempts == 1


def test_a_lost_race_ends_the_commit(runtime: Watched) -> None:
    """The host has to run its transaction again: nothing of it is there."""

    class Losing(Watched):
        def save_many(self, host: Any, records: Sequence[Any], **more: Any) -> Any:
            raise Contended("somebody was quicker")

    maker = sessionmaker(runtime.engine)
    orm.install(Losing(runtime.runtime), maker, user=lambda _: "ann")
    with pytest.raises(Contended):
        guest(maker, 1)
    with Session(runtime.engine) as session:
        assert session.get(Guest, 1) is None


# ------------------------------------------------------------------------------------------------ where it hangs


def test_a_hook_hangs_on_its_sessions_alone(runtime: Watched) -> None:
    """On one session, a maker or a class; two of them do not know each other, and one that was taken off is gone."""

    class Own(Session):
        pass

    def add(session: Session, number: int) -> list[list[str]]:
        runtime.saved.clear()
        with session:
            session.add(Guest(id=number, name="a"))
            session.commit()
        return list(runtime.saved)

    single = Session(runtime.engine)
    hooks = [orm.install(runtime, target, user=lambda _: "ann") for target in (single, Own)]
    assert add(single, 1) == [["1"]]
    assert add(Own(runtime.engine), 2) == [["2"]]
    assert add(Session(runtime.engine), 3) == []
    for hook in [*hooks, *hooks]:
        hook.uninstall()
    assert add(single, 4) == []
    assert add(Own(runtime.engine), 5) == []


def test_two_hooks_of_two_runtimes_share_a_session(runtime: Watched) -> None:
    """Each keeps its own notes."""
    other = Watched(runtime.runtime)
    maker = sessionmaker(runtime.engine)
    for one in (runtime, other):
        orm.install(one, maker, user=lambda _: "ann")
    with maker() as session:
        session.add(Guest(id=1, name="a"))
        session.commit()
        assert not session.info
    assert (runtime.saved, other.saved) == ([["1"]], [["1"]])


@pytest.mark.parametrize("target", [None, "sessions", object()])
def test_something_else_is_refused(runtime: Watched, target: object) -> None:
    """A hook on the wrong thing would never say a word."""
    with pytest.raises(CallerError, match="installed on sessions"):
        orm.install(runtime, target, user=lambda _: "ann")


@pytest.mark.rule("D-45")
def test_records_in_another_database_are_refused(tmp_path: Path, sqlite_url: str) -> None:
    """Their commit cannot hold a save: the hook would promise what nobody can keep."""
    elsewhere = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    runtime = open_runtime(tmp_path, database_url=sqlite_url, records_database_url=elsewhere)
    with pytest.raises(CallerError, match="another database"):
        orm.install(runtime, sessionmaker(), user=lambda _: "ann")
    runtime.close()


# ------------------------------------------------------------------------------------------------ asynchronous


class AppSession(Session):
    pass


def asynchronous(url: str) -> str:
    return url.replace("sqlite://", "sqlite+aiosqlite://").replace("sqlite+pysqlite", "sqlite+aiosqlite")


def test_an_asynchronous_session_is_served_too(runtime: Watched, database_url: str) -> None:
    """Through its synchronous half; a maker without a class of its own would mean everybody's sessions."""

    async def scenario() -> None:
        engine = create_async_engine(asynchronous(database_url))
        if engine.dialect.name == "sqlite":
            begin_immediate(engine.sync_engine)
        try:
            maker = async_sessionmaker(engine, sync_session_class=AppSession)
            hook = orm.install(runtime, maker, user=lambda _: "ann")
            async with maker() as session, session.begin():
                session.add(Guest(id=1, name="a"))
            hook.uninstall()
            async with AsyncSession(engine) as session:
                orm.install(runtime, session, user=lambda _: "ann")
                session.add(Guest(id=2, name="b"))
                async with session.begin_nested() as savepoint:
                    session.add(Guest(id=3, name="c"))
                    await session.flush()
                    await savepoint.rollback()
                await session.commit()
            with pytest.raises(CallerError, match="share"):
                orm.install(runtime, async_sessionmaker(engine), user=lambda _: "ann")
        finally:
            await engine.dispose()

    asyncio.run(scenario())
    assert runtime.saved == [["1"], ["2"]]
    assert runtime.attempts == 2


def begin_immediate(engine: sa.Engine) -> None:
    @event.listens_for(engine, "connect")
    def begin_nothing(connection: Any, _record: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
