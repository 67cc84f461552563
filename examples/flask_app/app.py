"""Flask with a `Session`: the same in a synchronous application, by calls or by the ORM hook.

python -c "from app import create_app; ..."    # `create_app` takes a runtime and the application's sessions

The pack is `people.yaml` beside this file; a worker (`pushlink worker`, a process of its own) sends what was committed.
"""

from __future__ import annotations

from flask import Flask, abort, request
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

import pushlink
from pushlink import orm


class Base(DeclarativeBase):
    """The application's tables."""


class Person(Base):
    """One of them. The column for the remote id is optional, for people and older code."""

    __tablename__ = "people"

    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    remote_id: Mapped[str | None]


def current_user() -> str:
    """Who asks; a real application would look at a session or a token."""
    return request.headers.get("X-User") or abort(401)


def create_app(pl: pushlink.Runtime, sessions: sessionmaker[Session]) -> Flask:
    """The application; `pl` has `Person` bound."""
    app = Flask(__name__)

    # region flask
    @app.post("/people")
    def create_person() -> tuple[dict[str, object], int]:
        with sessions.begin() as db:  # commits at the end, rolls back when anything is raised
            person = Person(**request.get_json())
            db.add(person)
            outcomes = pl.save(db, person, user=current_user())
            refused = [one.code.value for one in outcomes if isinstance(one, pushlink.Refused)]
            return {"id": person.id, "refused": refused}, 201

    # endregion

    @app.delete("/people/<int:person_id>")
    def delete_person(person_id: int) -> tuple[str, int]:
        with sessions.begin() as db:
            person = db.get(Person, person_id) or abort(404)
            pl.deleted(db, person, user=current_user())  # deletes nothing remotely; ends what was never sent
            db.delete(person)
        return "", 204

    return app


# region hook
def create_hooked_app(pl: pushlink.Runtime, sessions: sessionmaker[Session]) -> Flask:
    """The same without a call at each place: whatever a session flushed is saved when it commits."""
    app = Flask(__name__)
    orm.install(
        pl,
        sessions,
        user=lambda session: session.info["user"],
        on_refused=lambda _session, refused: app.logger.warning("%s", refused.code.value),
    )

    @app.post("/people")
    def create_person() -> tuple[dict[str, object], int]:
        with sessions(info={"user": current_user()}) as db, db.begin():
            person = Person(**request.get_json())
            db.add(person)
            db.flush()
            return {"id": person.id}, 201

    return app


# endregion
