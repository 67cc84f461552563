"""Which flow a claim needs."""

from __future__ import annotations

from typing import assert_never

from pushlink.flows.claimed import (
    Claimed,
    ClaimedCreate,
    ClaimedLookup,
    ClaimedStampLookup,
    ClaimedUpdate,
    ClaimedWriteback,
)
from pushlink.flows.create import push_create
from pushlink.flows.effects import Flow
from pushlink.flows.lookup import look_up
from pushlink.flows.stamp_lookup import look_for
from pushlink.flows.steps import Steps
from pushlink.flows.update import push_update
from pushlink.flows.writeback import push_writeback


def flow_of(claimed: Claimed, steps: Steps) -> Flow:
    """The flow that runs this claim to its end."""
    match claimed:
        case ClaimedCreate():
            return push_create(claimed, steps)
        case ClaimedUpdate():
            return push_update(claimed, steps)
        case ClaimedWriteback():
            return push_writeback(claimed, steps)
        case ClaimedLookup():
            return look_up(claimed, steps)
        case ClaimedStampLookup():
            return look_for(claimed, steps)
        case _:
            assert_never(claimed)
