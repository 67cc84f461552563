"""The verdict on an answer to a look-up: the record is known, or the create stays what it was, waiting or parked."""

from __future__ import annotations

from typing import Final

from pushlink.errors import Code
from pushlink.protocol.contracts import ActionContract
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.lookups import LookedUp, Shown, lookup_named, read_lookup
from pushlink.protocol.outcome import Verdict
from pushlink.protocol.replies import Disposition, Effect
from pushlink.protocol.waits import retry_after_ms

#: What a create was, and stays as long as no look-up shows its record.
_BEFORE: Final = {
    "async": (Effect.ACCEPTED_PENDING, Code.ACCEPTED_PENDING),
    "followup": (Effect.APPLIED_UNIDENTIFIED, Code.APPLIED_UNIDENTIFIED),
}


def interpret_lookup(action: ActionContract, name: str, reply: StoredReply, *, send_ordinal: int) -> Verdict:
    """The verdict on one look-up, from the frozen contract and the stored answer alone."""
    lookup = lookup_named(action, name)
    found = LookedUp(shown=Shown.NO_ID) if lookup is None else read_lookup(action, lookup, reply)
    effect, code = _BEFORE[name]
    evidence: dict[str, object] = {
        "look_up": name,
        "shown": found.shown,
        "status": reply.status,
        "error": reply.error,
        "body_digest": reply.body_digest,
        "send_ordinal": send_ordinal,
        **({"error_text": reply.error_text} if reply.error_text else {}),
    }
    row = f"look-up shows {found.shown.value}"
    if found.shown is Shown.RECORD:
        return Verdict(
            effect=Effect.APPLIED,
            disposition=Disposition.FINALIZE,
            code=None,
            row=row,
            remote_id=found.remote_id,
            canonical_id=found.canonical_id,
            evidence=evidence,
        )
    waits = found.shown is Shown.NOT_YET
    return Verdict(
        effect=effect,
        disposition=Disposition.LOOK_UP if waits else Disposition.PARK,
        code=code,
        row=row,
        retry_after_ms=retry_after_ms(reply) if waits else None,
        evidence=evidence,
    )
