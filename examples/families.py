"""A member before its team, and a mentor before its pupil: saved in the wrong order, pushed in the right one.

python examples/families.py
"""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import pushlink
from pushlink.packs.loader import load_pack_text
from pushlink.testing.remote import FaultyRemote

PACK = Path(__file__).resolve().parent / "packs" / "family.yaml"


class Base(DeclarativeBase):
    """The application's tables."""


class Team(Base):
    """What a member belongs to."""

    __tablename__ = "teams"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


class Member(Base):
    """Somebody with a team and, maybe, a mentor."""

    __tablename__ = "members"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    team_id: Mapped[int | None] = mapped_column(ForeignKey("teams.id"))
    mentor_id: Mapped[int | None] = mapped_column(ForeignKey("members.id"))


def main() -> list[tuple[str, dict[str, object]]]:
    """Save a member, its mentor and their team, in this order; answers with what the remote got, in its order."""
    for name in [name for name in os.environ if name.startswith("PUSHLINK_")]:
        del os.environ[name]  # a variable wins over the arguments, and an example must not reach a real database
    with tempfile.TemporaryDirectory() as folder, FaultyRemote() as remote:
        pl = open_runtime(Path(folder), remote.base_url)
        with Session(pl.engine) as session, session.begin():
            session.add(Team(id=1, name="Engines"))
            session.flush()
            session.add_all([Member(id=2, name="Charles", team_id=1), Member(id=1, name="Ada", team_id=1, mentor_id=2)])
            session.flush()
            for record in (("Member", 1), ("Member", 2), ("Team", 1)):
                for outcome in pl.save(session, *record, user="me"):
                    print(f"{outcome.about.source_object} {outcome.about.record_id}: {type(outcome).__name__}")
        pl.drain()  # in production: `pushlink worker`
        pl.close()
        got = [(record.collection, dict(record.document)) for record in remote.records]
    for collection, document in got:
        print(collection, document)
    return got


def open_runtime(folder: Path, remote_url: str) -> pushlink.Runtime:
    """What `pushlink init`, `pushlink db upgrade` and `pushlink pack apply` do."""
    (folder / "secret").write_text(secrets.token_hex(32), encoding="ascii")
    pl = pushlink.Runtime.from_settings(
        database_url=f"sqlite:///{folder / 'app.db'}",
        secret_file=folder / "secret",
        authority={"kind": "allow_all"},
        egress={"allow_loopback": True},
    )
    pl.upgrade()
    Base.metadata.create_all(pl.engine)
    pl.bind(Team, "Team")
    pl.bind(Member, "Member")
    text = PACK.read_text(encoding="utf-8").replace("http://127.0.0.1:8740", remote_url)
    pl.apply_pack(load_pack_text(text, file=PACK.name), actor="me", reason="an example")
    return pl


if __name__ == "__main__":
    main()
