"""The create: validate, checkpoint, send once, interpret, finalize, mirror.

The flow reads from top to bottom as the protocol does. Whatever stops it before the checkpoint gives the row back, holds
it, ends it, or (when an earlier send is in doubt) parks it; whatever stops it afterwards is owned by recovery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pushlink.errors import Code
from pushlink.flows.claimed import ClaimedCreate
from pushlink.flows.effects import Flow, Send, Tx
from pushlink.flows.sending import Reading, answer_of, checkpoint_of, wire_request
from pushlink.flows.steps import Answer, ClaimGone, Granted, MirrorDue, Permission, Settle, Steps
from pushlink.protocol.drift import CreateVerdict, create_verdict
from pushlink.protocol.identity import locator_key
from pushlink.protocol.outcome import Verdict, create_event, interpret
from pushlink.protocol.snapshots import FrozenRequest, InstallId, Slots, WritebackSnapshot
from pushlink.protocol.states import CreateEvent, Hold, LinkStatus, MirrorStatus, Operation
from pushlink.store.lifecycle import Claims, Move
from pushlink.store.rows import LinkRow, SlotRow, read_headers


def push_create(claimed: ClaimedCreate, steps: Steps) -> Flow:
    """Run one claimed create to its end."""
    stop = judge(claimed)
    if stop is not None:
        yield Tx(step=steps.settle, item=Settle(move=stop), key=claimed.attempt.link_key)
        return
    granted = yield Tx(step=steps.checkpoint, item=permission(claimed, steps), key=claimed.attempt.link_key)
    if not isinstance(granted, Granted):
        return
    reply = yield Send(request=wire_request(claimed.profile, claimed.attempt, frozen(claimed), is_create=True))
    verdict = interpret(
        Operation.CREATE,
        claimed.action.contract,
        claimed.profile.contract,
        reply,
        steps.history(claimed.attempt, claimed.profile, granted.send_ordinal, replayable=claimed.replayable),
    )
    answer = create_answer(claimed, answer_of(claimed, granted.send_ordinal, reply, verdict, steps), verdict, steps)
    recorded = yield Tx(step=steps.record, item=answer, key=answer.attempt.link_key, after_send=True)
    if isinstance(recorded, ClaimGone):
        yield Tx(step=steps.keep_late, item=answer, key=answer.attempt.link_key, after_send=True)
    elif recorded.mirror is not None:
        yield mirror_tx(recorded.mirror, steps)
