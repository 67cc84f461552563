"""The write-back: an attempt whose remote id is known gets its link, if it has none yet, and its mirror. No send."""

from __future__ import annotations

from pushlink.flows.claimed import ClaimedWriteback
from pushlink.flows.create import writeback_of
from pushlink.flows.effects import Flow, Tx
from pushlink.flows.mirrors import MirrorDue
from pushlink.flows.new_links import link_of
from pushlink.flows.recording import mirror_tx
from pushlink.flows.step_items import Adoption, Recorded
from pushlink.flows.steps import Steps
from pushlink.protocol.remoteids import Extracted, read_remote_id


def push_writeback(claimed: ClaimedWriteback, steps: Steps) -> Flow:
    """Run one claimed write-back to its end."""
    key = claimed.attempt.link_key
    if claimed.link is None:
        recorded = yield Tx(step=steps.finalize_adopted, item=_adoption(claimed, steps), key=key)
        if not isinstance(recorded, Recorded):
            return
    yield mirror_tx(_mirror_due(claimed), steps)


def _adoption(claimed: ClaimedWriteback, steps: Steps) -> Adoption:
    remote_id = claimed.attempt.remote_id or ""
    found = read_remote_id(claimed.action.contract, remote_id)
    return Adoption(
        attempt=claimed.attempt,
        token=claimed.token,
        actor=claimed.incarnation,
        link=link_of(
            claimed,
            link_id=steps.world.ids.fresh(),
            remote_id=remote_id,
            canonical_id=found.canonical if isinstance(found, Extracted) else remote_id,
            writeback=writeback_of(claimed.request),
        ),
    )


def _mirror_due(claimed: ClaimedWriteback) -> MirrorDue:
    return MirrorDue(
        attempt=claimed.attempt,
        token=claimed.token,
        actor=claimed.incarnation,
        writeback=writeback_of(claimed.request),
        remote_id=claimed.attempt.remote_id or "",
    )
