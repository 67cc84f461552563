"""The ten lines of the README, with all that they need around them: a table, a pack, a remote and a settings file.

python examples/quickstart.py
"""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import pushlink
from pushlink.packs.loader import load_pack_text
from pushlink.testing.remote import FaultyRemote

PACK = """
pack: quickstart
version: 1.0.0
connector_owner_key: 8b0f2f6e-4b4e-4a53-9d0c-3f7c7f6f4c11
namespace: quickstart
profiles:
  main: {base_url: "REMOTE", auth: {kind: none}}
destinations:
  - {destination_slot_id: 1d0c8f4e-0e55-4b0f-8f0e-0d6f4f1b2a01, target_object: people, profile: main}
flows:
  - flow: Contacts
    version: 1
    actions:
      - action: push_contact
        action_slot_id: 5e1b7d2c-7a39-4f86-9a61-2b8f0c3d4e01
        source_object: Contact
        destination: 1d0c8f4e-0e55-4b0f-8f0e-0d6f4f1b2a01
        create: {method: POST, path: /people, response: {id: [{from: $response.body#/id}]}}
        update: {method: PATCH, path: "/people/{remote_id}"}
        mappings: [{source: name, target: /full_name}]
        mirror: {remote_id_field: remote_id}
"""


class Base(DeclarativeBase):
    """The application's tables."""


class Contact(Base):
    """One of them. The column for the remote id is optional, for people and older code."""

    __tablename__ = "contacts"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    remote_id: Mapped[str | None]


def ten_lines(settings_file: Path) -> Contact:
    """What an application does: bind once, save in its own transaction, and let a worker send."""
    pl = pushlink.Runtime.from_settings(settings_file)
    pl.bind(Contact, "Contact")
    with Session(pl.engine, expire_on_commit=False) as session, session.begin():
        contact = Contact(name="Ada Lovelace")
        session.add(contact)
        for outcome in pl.save(session, contact, user="me"):
            print(type(outcome).__name__, outcome.about.source_object, outcome.about.record_id)
    pl.drain()  # in production: `pushlink worker`, in a process of its own
    with Session(pl.engine) as session:
        return session.get_one(Contact, contact.id)


def prepare(folder: Path, remote_url: str) -> Path:
    """What `pushlink init`, `pushlink db upgrade` and `pushlink pack apply` do; answers with the settings file."""
    for name in [name for name in os.environ if name.startswith("PUSHLINK_")]:
        del os.environ[name]  # a variable wins over the file, and an example must not reach a real database
    (folder / "secret").write_text(secrets.token_hex(32), encoding="ascii")
    settings_file = folder / "pushlink.toml"
    settings_file.write_text(
        f"""
database_url = "sqlite:///{folder / "app.db"}"
secret_file = "secret"
authority = {{kind = "allow_all"}}
egress = {{allow_loopback = true}}
""",
        encoding="utf-8",
    )
    pl = pushlink.Runtime.from_settings(settings_file)
    pl.upgrade()
    Base.metadata.create_all(pl.engine)
    pl.apply_pack(load_pack_text(PACK.replace("REMOTE", remote_url)), actor="me", reason="quickstart")
    pl.close()
    return settings_file


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, FaultyRemote() as remote:
        saved = ten_lines(prepare(Path(directory), remote.base_url))
        print(f"{saved.name} is remote record {saved.remote_id}; the remote holds", end=" ")
        print([record.document for record in remote.records])
