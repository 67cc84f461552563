"""The table of certificates: which replay contracts were tried at a sandbox, when, and what came of it.

Rows are only added. Of several for one contract the newest decides, so a remote that stops honouring its contract is
known by the next trial. `tables.py` hands the table on with all the others.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from pushlink.store.columns import flag, table, text, time
from pushlink.store.dialect import serial_column

contract_certificate: Final = table(
    "contract_certificate",
    serial_column(),
    text("contract_digest"),
    text("pack"),
    text("profile"),
    text("action"),
    text("classes"),  # what was tried, a JSON list
    text("remote"),  # the address of the sandbox
    flag("passed"),
    text("evidence"),  # what was asked, answered and counted, a JSON object
    text("actor"),
    time("certified_at"),
    time("expires_at"),
    sa.CheckConstraint("expires_at >= certified_at", name="a_certificate_ends_after_it_begins"),
    sa.Index("pushlink_certificate_by_contract", "contract_digest", "id"),
)
