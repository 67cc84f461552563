"""Adoption where the records live in a database of their own: planned, applied, updated and taken back as anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from pushlink.store.dialect import create_engine
from pushlink.testing.remote import FaultyRemote
from surfaces import adoptions
from surfaces.conftest import Shop, remote

__all__ = ["remote"]

LEGACY = "CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT, body TEXT, remote_id TEXT, source TEXT)"


class Apart(Shop):
    """A deployment whose notes are in another file than pushlink's tables, which are in the database of the test."""

    @property
    def records_url(self) -> str:
        return f"sqlite:///{self.home / 'records.db'}"

    def open(self) -> None:
        written = self.run("init", self.home, "--authority", "allow_all", "--database-url", self.database_url)
        assert written.code == 0, written
        settings = self.config.read_text()
        self.config.write_text(f'records_database_url = "{self.records_url}"\n{settings}')
        self.point()
        self.records(LEGACY)
        assert self.run("pack", "apply", self.pack).code == 0

    def records(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Ask or change the database of the records by hand."""
        engine = create_engine(self.records_url)
        try:
            with engine.begin() as conn:
                result = conn.execute(sa.text(statement), values)
                return [tuple(row) for row in result] if result.returns_rows else []
        finally:
            engine.dispose()


@pytest.fixture
def apart(tmp_path: Path, database_url: str, remote: FaultyRemote) -> Apart:
    """Two notes of an older integration, whose records the remote has."""
    shop = Apart(tmp_path / "shop", database_url, remote)
    shop.open()
    for number in (1, 2):
        shop.records(
            "INSERT INTO note VALUES (:id, 'a title', 'b', :remote_id, 'sync-1')",
            id=number,
            remote_id=adoptions.remote_record(shop, number),
        )
    return shop


@pytest.mark.rule("D-45")
def test_records_of_another_database_are_adopted_updated_and_given_back(apart: Apart) -> None:
    """The plan reads them there, the apply compares them there again, and the next change is an update."""
    assert adoptions.planned(apart)["adoption_plan"]["adoptable"] == 2
    manifest = apart.home / "adopt.jsonl"
    apart.records("UPDATE note SET remote_id = 'another' WHERE id = 2")
    done = apart.json("adopt", "apply", manifest, "--reason", "r", code=1)["adoption"]
    assert (done["adopted"], done["refused"]) == (1, {"record_changed": 1})

    apart.records("UPDATE note SET title = 'a new title' WHERE id = 1")
    assert apart.run("save", "Note", "1", "--user", "ann").code == 0
    before = len(apart.remote.log)
    apart.drain()
    [sent] = [one.asked for one in apart.remote.log[before:]]
    [remote_id] = apart.records("SELECT remote_id FROM note WHERE id = 1")[0]
    assert (sent.method, sent.target.rpartition("/")[2]) == ("PATCH", remote_id)
    assert apart.remote.creates == 2  # those of the older integration

    back = apart.json("adopt", "rollback", done["operation_id"], "--reason", "r", code=1)
    assert back["refused_rows"][0]["because"] == "record_saved"
    assert apart.json("verify")["is_whole"] is True


def test_an_adoption_that_nothing_touched_is_taken_back_and_leaves_the_records_alone(apart: Apart) -> None:
    """Nothing is written into the other database by a plan, an apply or a rollback."""
    everything = "SELECT * FROM note ORDER BY id"
    before = apart.records(everything)
    adoptions.planned(apart)
    done = apart.json("adopt", "apply", apart.home / "adopt.jsonl", "--reason", "r")["adoption"]
    assert (
        apart.json("adopt", "rollback", done["operation_id"], "--reason", "r")["adoption_rollback"]["rolled_back"] == 2
    )
    assert apart.records(everything) == before
