"""Records in one database, pushlink's tables in another: what a crash between two commits loses, and how it is found.

python examples/separate_database.py
"""

from __future__ import annotations

import datetime as dt
import tempfile
from pathlib import Path

import sqlalchemy as sa
from quickstart import PACK

import pushlink
from pushlink.operations.backfill import Asked, Backfill
from pushlink.testing.drain import open_runtime
from pushlink.testing.remote import FaultyRemote

METADATA = sa.MetaData()
CONTACTS = sa.Table(
    "contacts",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("changed_at", sa.DateTime, nullable=False, index=True),
    sa.Column("remote_id", sa.Text),
)
OBJECTS = {"Contact": {"table": "contacts", "key": [{"column": "id", "type": "integer"}], "updated": "changed_at"}}


# region connection
def add_contact(conn: sa.Connection, name: str) -> int:
    """Core instead of the ORM: a record is told by its object and its id."""
    row = {"name": name, "changed_at": dt.datetime.now(dt.UTC).replace(tzinfo=None)}
    [contact_id] = conn.execute(CONTACTS.insert().values(row)).inserted_primary_key or ()
    return int(contact_id)


def add_and_save(pl: pushlink.Runtime, conn: sa.Connection, name: str) -> list[pushlink.Outcome]:
    """Where the records are in pushlink's database: one transaction, the caller's."""
    return pl.save(conn, "Contact", add_contact(conn, name), user="me")


# endregion


# region separate
def add_in_two_steps(pl: pushlink.Runtime, application: sa.Engine, name: str, *, dies: bool = False) -> None:
    """Where they are not: the application commits first, then the save is a transaction of pushlink's own engine."""
    with application.begin() as conn:
        contact_id = add_contact(conn, name)
    if dies:
        return  # as if the process ended exactly here
    with pl.engine.begin() as conn:
        pl.save(conn, "Contact", contact_id, user="me")


def find_what_was_lost(pl: pushlink.Runtime) -> int:
    """What `pushlink backfill Contact --user me --since 1h` does; run it every half hour."""
    world = pl.world
    work = Backfill(engine=pl.engine, scan=pl.records, save=pl.save_many, clock=world.clock, ids=world.ids)
    run = work.begin(Asked(source_object="Contact", user="me", since="1h")).run
    while run.ended_at is None:
        run = work.step(run, batch=500)
    return run.reserved


# endregion


def main() -> None:
    """Two databases, four contacts, one crash."""
    with tempfile.TemporaryDirectory() as folder, FaultyRemote() as remote:
        pack = PACK.replace("REMOTE", remote.base_url)
        elsewhere = f"sqlite:///{folder}/application.db"
        application = sa.create_engine(elsewhere)
        METADATA.create_all(application)
        pl = open_runtime(Path(folder), pack=pack, records_database_url=elsewhere, objects=OBJECTS)
        for name in ("Ada", "Grace", "Edith", "Barbara"):
            add_in_two_steps(pl, application, name, dies=name == "Edith")
        pl.drain()
        print(f"after a crash the remote holds {len(remote.records)} of 4")
        print(f"the scan finds {find_what_was_lost(pl)}, and then {find_what_was_lost(pl)}")
        pl.drain()
        print(f"now the remote holds {len(remote.records)} of 4, after {remote.creates} creates")
        application.dispose()
        pl.close()


if __name__ == "__main__":
    main()
