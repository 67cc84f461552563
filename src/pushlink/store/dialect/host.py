"""The host's transaction: what pushlink needs of it before it writes there (D-44).

PostgreSQL needs nothing but a transaction. On SQLite a transaction that read before it asked to write may find that it
cannot write any more, and a driver that has not begun one yet takes the release of a savepoint for a commit. pushlink's
own engines begin IMMEDIATE and know neither trouble. A host's engine is looked at here, and brought to the same state
as far as that is possible: it cannot be undone that the host read earlier, outside or from an older moment.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from pushlink.errors import CallerError, Contended
from pushlink.store.dialect.engines import OWN
from pushlink.store.dialect.faults import is_busy

_ADVICE: Final = "use the engine of pushlink, or let your SQLite engine begin IMMEDIATE (docs: SQLite hosts)"

#: Changes no row, but makes the open transaction the one that may write.
_TAKE_WRITE_LOCK: Final = sa.text("DELETE FROM pushlink_checkpoint_mark WHERE 0 = 1")


def warn_host_transaction(conn: sa.Connection) -> str | None:
    """A sentence about what is wrong with how this connection begins its transactions; `None` when nothing is.

    What can be seen is whether the engine is pushlink's own, and whether the driver has begun. That a transaction is
    open does not tell whether it began IMMEDIATE: an engine of the host's own that does is advised all the same.
    """
    if conn.dialect.name != "sqlite" or _begins_immediate(conn):
        return None
    if not _driver(conn).in_transaction:
        return f"The host's SQLite engine had not begun a transaction when pushlink was called; {_ADVICE}."
    return f"The host's SQLite transaction may have begun without the right to write; {_ADVICE}."


def secure_host_transaction(conn: sa.Connection) -> str | None:
    """Make sure that pushlink may write in this transaction, before its first savepoint; answers with the warning.

    Raises `CallerError` when the connection commits by itself, `Contended` when the transaction can never write.
    """
    if _commits_by_itself(conn):
        msg = "The connection commits every statement by itself; a save needs the host's transaction."
        raise CallerError(msg, next_step="call it on a connection that is not in AUTOCOMMIT")
    warning = warn_host_transaction(conn)
    if warning is None:
        return None
    try:
        if _driver(conn).in_transaction:
            conn.execute(_TAKE_WRITE_LOCK)
        else:
            conn.exec_driver_sql("BEGIN IMMEDIATE")
    except sa.exc.OperationalError as exc:
        if not is_busy(exc):
            raise
        msg = "The host's SQLite transaction cannot write any more: another one wrote after it had read."
        raise Contended(msg, next_step=f"roll back and run it again; {_ADVICE}") from exc
    return warning


def _begins_immediate(conn: sa.Connection) -> bool:
    return OWN in conn.info and not conn.get_execution_options().get("pushlink_read_only")


def _driver(conn: sa.Connection) -> Any:
    return conn.connection.driver_connection


def _commits_by_itself(conn: sa.Connection) -> bool:
    if conn.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return True
    # SQLite's drivers have an attribute of this name with another meaning.
    return conn.dialect.name != "sqlite" and getattr(_driver(conn), "autocommit", False) is True
