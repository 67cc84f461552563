"""Triggers of tables that are not strictly append-only: what may still be done to their rows, and nothing else.

`ddl.py` makes the strict ones. A guard lets the content of a row be sealed anew or erased (every other column stays as
it is, and what was erased never comes back), and lets rows be pruned in the one order that keeps what decides: first an
update attempt that has ended, then what only told of it. A revision that adds a column to a guarded table has to guard
it again, so that the new column is kept as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from pushlink.store.dialect.ddl import REFUSE_FUNCTION, definition, strict_ddl, strict_kinds


class Leaves(StrEnum):
    """When a row may be deleted; the text is the condition under which it may not, of OLD."""

    NEVER = "1 = 1"
    WITH_ITS_ATTEMPT = (
        "OLD.attempt_id IS NULL OR EXISTS (SELECT 1 FROM pushlink_push_attempt AS a WHERE a.id = OLD.attempt_id)"
    )
    AS_ENDED_UPDATE = "OLD.operation <> 'update' OR OLD.update_key IS NOT NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What may happen to the rows of a table. `content` is the column that may be sealed anew or erased."""

    leaves: Leaves
    content: str | None = None
    sized: bool = False  # the content's size is noted when it is first sealed or erased
    changes: bool = False  # rows change freely: only deletes are guarded


#: A function of its own for each condition: a trigger's WHEN may not look into another table.
_REFUSE_DELETE_FUNCTION: Final = """
CREATE OR REPLACE FUNCTION pushlink_keep_%(which)s() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF %(kept)s THEN
        RAISE EXCEPTION USING
            ERRCODE = 'restrict_violation',
            MESSAGE = TG_TABLE_NAME || ' is append-only: DELETE is refused.';
    END IF;
    RETURN OLD;
END
$$
"""
_KEEPS: Final[dict[str, dict[str, str]]] = {
    "postgresql": {
        "keeps_values": """
CREATE TRIGGER %(table)s_keeps_values BEFORE UPDATE ON %(table)s
FOR EACH ROW WHEN (NOT (%(allowed)s)) EXECUTE FUNCTION pushlink_refuse_change()
""",
        "keeps_rows": """
CREATE TRIGGER %(table)s_keeps_rows BEFORE DELETE ON %(table)s
FOR EACH ROW EXECUTE FUNCTION pushlink_keep_%(which)s()
""",
    },
    "sqlite": {
        "keeps_values": """
CREATE TRIGGER %(table)s_keeps_values BEFORE UPDATE ON %(table)s WHEN NOT (%(allowed)s)
BEGIN SELECT RAISE(ABORT, '%(table)s is append-only: UPDATE is refused.'); END
""",
        "keeps_rows": """
CREATE TRIGGER %(table)s_keeps_rows BEFORE DELETE ON %(table)s WHEN %(kept)s
BEGIN SELECT RAISE(ABORT, '%(table)s is append-only: DELETE is refused.'); END
""",
    },
}
_SAME: Final = {"postgresql": "OLD.%s IS NOT DISTINCT FROM NEW.%s", "sqlite": "OLD.%s IS NEW.%s"}


def guard_ddl(conn: sa.Connection, table: sa.Table, guard: Guard) -> list[sa.DDL]:
    """Replace the triggers of `table` by those of its guard."""
    dialect = conn.dialect.name
    names = {
        "table": table.name,
        "which": guard.leaves.name.lower(),
        "kept": guard.leaves.value,
        "allowed": _allowed(dialect, table, guard),
    }
    own = _KEEPS[dialect] if not guard.changes else {"keeps_rows": _KEEPS[dialect]["keeps_rows"]}
    statements = [_drop(dialect, table, kind) for kind in {*own, *strict_kinds(dialect)}]
    if dialect == "postgresql":
        statements += [definition(REFUSE_FUNCTION, names), definition(_REFUSE_DELETE_FUNCTION, names)]
    statements += [definition(pattern, names) for pattern in own.values()]
    rest = [kind for kind in strict_kinds(dialect) if kind not in own and not (guard.changes and kind == "keeps_keys")]
    return statements + strict_ddl(conn, table, [kind for kind in rest if kind != "keeps_values"])


def missing_triggers(conn: sa.Connection, tables: Mapping[sa.Table, Guard | None]) -> list[str]:
    """The triggers that tables should have and the database does not, or has switched off."""
    existing = {(row[0], row[1]) for row in conn.execute(_EXISTING[conn.dialect.name])}
    wanted = [(t.name, f"{t.name}_{kind}") for t, guard in tables.items() for kind in _kinds(conn.dialect.name, guard)]
    return [name for table, name in wanted if (table, name) not in existing]


def _kinds(dialect: str, guard: Guard | None) -> list[str]:
    strict = strict_kinds(dialect)
    if guard is None:
        return strict
    if guard.changes:
        return [kind for kind in strict if kind in {"keeps_rows", "keeps_all"}]
    return list(dict.fromkeys(["keeps_values", *strict]))


def _allowed(dialect: str, table: sa.Table, guard: Guard) -> str:
    """The one update that may happen: content, key, size and erasure move together, and everything else stays."""
    if guard.content is None:
        return "1 = 0"
    body = guard.content
    moving = {body, "sealed_by", "erased_at"} | ({"body_size"} if guard.sized else set())
    same = [_SAME[dialect] % (column.name, column.name) for column in table.columns if column.name not in moving]
    if guard.sized:
        same.append("(OLD.body_size IS NULL OR OLD.body_size = NEW.body_size)")
    sealed = f"NEW.erased_at IS NULL AND NEW.{body} IS NOT NULL AND NEW.sealed_by IS NOT NULL"
    erased = f"NEW.erased_at IS NOT NULL AND NEW.{body} IS NULL AND NEW.sealed_by IS NULL"
    was = f"OLD.erased_at IS NULL AND OLD.{body} IS NOT NULL"
    return " AND ".join([*same, was, f"(({sealed}) OR ({erased}))"])


def _drop(dialect: str, table: sa.Table, kind: str) -> sa.DDL:
    on = f" ON {table.name}" if dialect == "postgresql" else ""
    return definition("DROP TRIGGER IF EXISTS %(name)s", {"name": f"{table.name}_{kind}{on}"})


_EXISTING: Final[dict[str, Any]] = {
    "postgresql": sa.text(
        "SELECT c.relname, t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        " WHERE NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND pg_table_is_visible(c.oid)"
    ),
    "sqlite": sa.text("SELECT tbl_name, name FROM sqlite_master WHERE type = 'trigger'"),
}
