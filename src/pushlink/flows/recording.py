"""How every flow ends that has asked a remote something: the answer is recorded, then the mirror is written."""

from __future__ import annotations

from pushlink.flows.effects import Flow, Tx
from pushlink.flows.mirrors import MirrorDue
from pushlink.flows.step_items import Answer, ClaimGone, Recorded
from pushlink.flows.steps import Steps


def record_answer(answer: Answer, steps: Steps) -> Flow:
    """Record an answer and write the mirror that became due; what cannot be recorded is kept as evidence (D-14)."""
    key = answer.attempt.link_key
    late = Tx(step=steps.keep_late, item=answer, key=key, after_send=True)
    recorded = yield Tx(step=steps.record, item=answer, key=key, after_send=True, on_failure=late)
    if isinstance(recorded, ClaimGone):
        yield late
    elif isinstance(recorded, Recorded) and recorded.mirror is not None:
        yield mirror_tx(recorded.mirror, steps)


def mirror_tx(due: MirrorDue, steps: Steps) -> Tx:
    """The mirror's transaction; when it fails for this row, the row goes on to the write-back claim."""
    key = due.attempt.link_key
    return Tx(
        step=steps.mirrors.mirror,
        item=due,
        key=key,
        on_failure=Tx(step=steps.mirrors.mirror_failed, item=due, key=key, after_send=True),
    )
