"""A host's tables as tests of its records see them: declared, filled and read."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from pushlink.adapters.objects import ObjectDeclaration
from pushlink.adapters.records import SqlRecordStore
from pushlink.ports import RecordRef

UUID_1 = uuid.UUID("0F0E0D0C-0B0A-0908-0706-050403020100")
UUID_2 = uuid.UUID(int=2**128 - 1)


def declare(name: str, table: str, *key: tuple[str, str], **more: Any) -> ObjectDeclaration:
    columns = [{"column": column, "type": key_type} for column, key_type in key]
    return ObjectDeclaration.model_validate({"name": name, "table": table, "key": columns, **more})


def ref(name: str, record_id: str) -> RecordRef:
    return RecordRef(source_object=name, record_id=record_id)


def run(engine: sa.Engine, *statements: str) -> None:
    with engine.begin() as conn:
        for statement in statements:
            conn.exec_driver_sql(statement)


def read(store: SqlRecordStore, engine: sa.Engine, record: RecordRef, *fields: str) -> Mapping[str, object] | None:
    with engine.connect() as conn:
        return store.read_records(conn, [record], [fields])[0]


def statements_of(engine: sa.Engine) -> list[str]:
    seen: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda _c, _cu, statement, *_rest: seen.append(statement))
    return seen


INTEGERS = declare("Item", "item", ("id", "integer"))
