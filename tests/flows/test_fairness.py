"""Ten tenants, one of them with thousands of rows that are due: the others' single rows wait for a bounded time.

`make fairness` runs it with 100,000 rows instead of 5,000.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import sqlalchemy as sa

from flows.stage import MakeStage, Stage, without_mirror
from pushlink.flows.claim import ClaimOrder
from pushlink.store.claims import Turn
from pushlink.store.tables import METADATA

ROWS = int(os.environ.get("FAIRNESS_ROWS", "5000"))
BIG, SMALL = "t0-big", tuple(f"t{n}" for n in range(1, 10))
CLAIM = 20
COPIED = ("push_slot", "push_attempt", "push_request")
BATCH = 5_000


def crowd(stage: Stage) -> None:
    """One save of the big tenant, copied until it has all its rows, all of them due before anybody else's."""
    stage.save(1, name="Ann", email="a@example.com", tenant=BIG)
    with stage.engine.begin() as conn:
        for name in COPIED:
            table = METADATA.tables[f"pushlink_{name}"]
            [row] = conn.execute(sa.select(table)).mappings().all()
            for start in range(1, ROWS, BATCH):
                numbers = range(start, min(start + BATCH, ROWS))
                conn.execute(sa.insert(table), [copied(dict(row), number) for number in numbers])
    stage.clock_forward(seconds=1)


def copied(row: dict[str, Any], number: int) -> dict[str, Any]:
    """The same row of another record; every key and id ends with its number."""
    keys = ("id", "attempt_id", "link_key", "create_key", "idempotency_key")
    return row | {key: f"{row[key]}-{number}" for key in keys if row.get(key) is not None}


@pytest.mark.timeout(900)
@pytest.mark.rule("D-33", "D-40", "C-065")
def test_a_crowded_tenant_delays_nobody_for_long(make_stage: MakeStage) -> None:
    """Each claim of twenty rows serves all ten tenants: the nine single rows are in the first one, by either worker."""
    stage = make_stage()
    for tenant in (BIG, *SMALL):
        stage.apply(without_mirror(), tenant=tenant)
    crowd(stage)
    for tenant in SMALL:
        stage.save(2, name="Bob", email="b@example.com", tenant=tenant)
    waiting = set(SMALL)
    turn = Turn()
    with stage.engine.begin() as conn:
        [found] = stage.claims.claim(conn, [ClaimOrder(limit=CLAIM, turn=turn)], now=stage.clock.now(conn))
    served = [item.attempt.tenant for item in found]
    assert waiting <= set(served)
    assert served.count(BIG) <= CLAIM - len(SMALL)
    for tenant in SMALL:  # and again, while the crowd is being worked on
        stage.save(3, name="Cid", email="c@example.com", tenant=tenant)
    assert waiting <= {item.attempt.tenant for item in stage.claim(CLAIM, by=stage.worker())}
