"""A stage with records that refer to other records: countries, and places in them that may lie in other places."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy as sa

from flows.stage import HOST, PACK, USER, Stage
from pushlink.flows.outcomes import Outcome, Refused
from pushlink.store.catalog import set_general_worker

COUNTRY = sa.Table("country", HOST, sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text))
PLACE = sa.Table(
    "place",
    HOST,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text),
    sa.Column("parent_id", sa.Integer),
    sa.Column("country_id", sa.Integer),
    sa.Column("remote_id", sa.Text),
)
TABLES = {"Country": COUNTRY, "Place": PLACE}

PARENT: Mapping[str, Any] = {
    "name": "parent",
    "source": "parent_id",
    "source_object": "Place",
    "action_slot_id": "act-place",
    "mode": "foreign_key",
    "target": "/parent",
}
COUNTRY_OF: Mapping[str, Any] = {
    "name": "country",
    "source": "country_id",
    "source_object": "Country",
    "action_slot_id": "act-country",
    "mode": "foreign_key",
    "target": "/country",
}
#: The country as a call of its own, after the create.
TIE: dict[str, Any] = {**{k: v for k, v in COUNTRY_OF.items() if k != "target"}, "mode": "call_after"}
TIE["call"] = {
    "method": "POST",
    "path": "/ties",
    "body": {"place": "{remote_id}", "country": "{country}"},
    "success": {"status": [201]},
}


def family(*associations: Mapping[str, Any], **place: Any) -> dict[str, Any]:
    """The pack of countries and places, with these associations of a place."""
    document = copy.deepcopy(dict(PACK))
    document["destinations"] = [
        {"destination_slot_id": f"dest-{name}", "target_object": name, "profile": "main"}
        for name in ("countries", "places")
    ]
    document["flows"][0]["actions"] = [
        _action("country", "countries"),
        {**_action("place", "places"), "associations": [dict(each) for each in associations], **place},
    ]
    return document


def _action(name: str, collection: str) -> dict[str, Any]:
    return {
        "action": f"push_{name}",
        "action_slot_id": f"act-{name}",
        "source_object": name.capitalize(),
        "destination": f"dest-{collection}",
        "create": {"path": f"/{collection}", "response": {"id": [{"from": "$response.body#/id"}]}},
        "update": {"path": f"/{collection}/{{remote_id}}"},
        "mappings": [{"source": "name", "target": "/name"}],
    }


class Family(Stage):
    """A deployment whose places refer to places and to countries."""

    def __init__(self, engine: sa.Engine, home: Path, *associations: Mapping[str, Any], **options: Any) -> None:
        place = options.pop("place", {})
        super().__init__(engine, home, **options)
        for name, table in TABLES.items():
            self.runtime.bind(table, name)
        self.apply(family(*(associations or (PARENT, COUNTRY_OF)), **place))

    def write(self, source_object: str, record_id: int, **values: Any) -> None:
        """Insert or change a record, without a save."""
        with self.engine.begin() as conn:
            self.write_in(conn, source_object, record_id, **values)

    def write_in(self, conn: sa.Connection, source_object: str, record_id: int, **values: Any) -> None:
        """The same in a transaction that is open."""
        table = TABLES[source_object]
        values = values or {"name": f"{source_object} {record_id}"}
        if conn.execute(sa.update(table).where(table.c.id == record_id).values(**values)).rowcount == 0:
            conn.execute(sa.insert(table).values(id=record_id, **values))

    def keep(self, source_object: str, record_id: int, *, user: str = USER, **values: Any) -> Outcome:
        """A host's transaction: write the record (if there are values), save, commit."""
        with self.engine.begin() as conn:
            if values:
                self.write_in(conn, source_object, record_id, **values)
            [outcome] = self.runtime.save(conn, source_object, record_id, user=user)
        return outcome

    def keep_many(self, *records: tuple[str, int]) -> list[Outcome]:
        """Several records in one save."""
        with self.engine.begin() as conn:
            answers = self.runtime.save_many(conn, list(records), user=USER)
        return [outcome for [outcome] in answers]

    def keep_child_first(self) -> None:
        """Place 1 refers to place 2 and is saved before it: its create waits, and the one of its parent is due."""
        self.write("Place", 2)
        self.keep("Place", 1, name="child", parent_id=2)
        self.keep("Place", 2)

    def erase(self, source_object: str, record_id: int) -> None:
        """Delete a record behind everybody's back."""
        table = TABLES[source_object]
        with self.engine.begin() as conn:
            conn.execute(sa.delete(table).where(table.c.id == record_id))

    def of(self, source_object: str, record_id: int, operation: str = "create") -> dict[str, Any]:
        """The newest attempt of a record."""
        key = self.key(source_object, record_id)
        return self.attempts(link_key=key, operation=operation)[-1]

    def key(self, source_object: str, record_id: int) -> str:
        """The link key of a record."""
        [row] = self.rows("push_slot", source_object=source_object, source_record_id=str(record_id))
        return str(row["link_key"])

    def linked_to(self, source_object: str, record_id: int) -> dict[str, Any]:
        """The link of a record."""
        [row] = self.rows("remote_link", source_object=source_object, source_record_id=str(record_id))
        return row

    def remote_record(self, source_object: str, record_id: int) -> dict[str, Any]:
        """What the remote has of a record."""
        collection = {"Country": "countries", "Place": "places"}[source_object]
        remote_id = self.linked_to(source_object, record_id)["remote_id"]
        return dict(self.remote.api.record(collection, remote_id).document)

    def only_narrow(self) -> None:
        """Switch the general worker off."""
        with self.engine.begin() as conn:
            set_general_worker(conn, on=False, reason="a test", actor="tester", now=self.clock.now(conn))


MakeFamily: TypeAlias = Callable[..., Family]


def refused(outcome: Outcome) -> Refused:
    assert isinstance(outcome, Refused), outcome
    return outcome
