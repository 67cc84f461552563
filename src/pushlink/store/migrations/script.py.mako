"""${message}

State what becomes of the rows of before: a revision keeps every old row valid, and the previous release working
(ARCHITECTURE.md, "Changing the tables").
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    """Say what changes."""
    ${upgrades if upgrades else "pass"}
