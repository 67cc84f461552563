"""FastAPI with an `AsyncSession`: a record and its push are one transaction.

PUSHLINK_CONFIG=pushlink.toml APP_DATABASE_URL=sqlite+aiosqlite:///app.db uvicorn app:app

The pack is `people.yaml` beside this file; a worker (`pushlink worker`, a process of its own) sends what was committed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from pydantic import BaseModel
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import pushlink


class Base(DeclarativeBase):
    """The application's tables."""


class Person(Base):
    """One of them. The column for the remote id is optional, for people and older code."""

    __tablename__ = "people"

    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    remote_id: Mapped[str | None]


# region begin-immediate
def begin_immediate(engine: sa.Engine) -> None:
    """Let every transaction of a SQLite engine begin with the right to write."""

    @event.listens_for(engine, "connect")
    def leave_it_to_us(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself

    @event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        except sa.exc.OperationalError:
            connection.close()  # SQLAlchemy would run its next statement without a transaction
            raise


# endregion


# region async-engine
def open_engine(url: str) -> AsyncEngine:
    """The application's own engine, on the database that has pushlink's tables too."""
    engine = create_async_engine(url)
    if engine.dialect.name == "sqlite":
        begin_immediate(engine.sync_engine)
    return engine


# endregion


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the application's engine and the runtime, and give both back at the end."""
    engine = open_engine(os.environ["APP_DATABASE_URL"])
    app.state.sessions = async_sessionmaker(engine, expire_on_commit=False)
    app.state.pushlink = pushlink.Runtime.from_settings()
    app.state.pushlink.bind(Person, "Person")
    yield
    app.state.pushlink.close()
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


async def get_db(request: Request) -> AsyncIterator[AsyncSession]:
    """A session for one request."""
    async with request.app.state.sessions() as session:
        yield session


def get_pushlink(request: Request) -> pushlink.Runtime:
    """The runtime of the process."""
    runtime: pushlink.Runtime = request.app.state.pushlink
    return runtime


def current_user(x_user: Annotated[str, Header()]) -> str:
    """Who asks; a real application would look at a session or a token."""
    return x_user


Db = Annotated[AsyncSession, Depends(get_db)]
Pushlink = Annotated[pushlink.Runtime, Depends(get_pushlink)]
User = Annotated[str, Depends(current_user)]


class PersonIn(BaseModel):
    """What a client sends."""

    email: str
    name: str


class PersonOut(BaseModel):
    """What a client gets: the record, and what became of its push so far."""

    id: int
    push: list[str]


def told(outcomes: list[Any]) -> list[str]:
    """Outcomes in words; a refusal is one of them and has a stable code."""
    return [one.code.value if isinstance(one, pushlink.Refused) else type(one).__name__.lower() for one in outcomes]


# region fastapi
@app.post("/people", status_code=201)
async def create_person(body: PersonIn, db: Db, pl: Pushlink, me: User) -> PersonOut:
    """Both are committed, or neither."""
    try:
        async with db.begin():
            person = Person(email=body.email, name=body.name)
            db.add(person)
            outcomes = await pl.save_async(db, person, user=me)  # flushes, never commits, never raises for a refusal
    except IntegrityError as error:
        raise HTTPException(409, "This address is taken.") from error
    return PersonOut(id=person.id, push=told(outcomes))


# endregion


@app.patch("/people/{person_id}")
async def rename_person(person_id: int, name: str, db: Db, pl: Pushlink, me: User) -> PersonOut:
    """A later save of the same record becomes an update of the same remote record."""
    async with db.begin():
        person = await db.get(Person, person_id)
        if person is None:
            raise HTTPException(404, "There is no such person.")
        person.name = name
        outcomes = await pl.save_async(db, person, user=me)
    return PersonOut(id=person_id, push=told(outcomes))
