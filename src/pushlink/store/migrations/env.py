"""Alembic's entry: runs the revisions on the connection, and in the transaction, that `schema.py` hands over.

There is no alembic.ini and no offline mode; `pushlink db upgrade` is the one way in.
"""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], **context.config.attributes["options"])
context.run_migrations()
