"""The verdict on an answer to a look-up: the record is known, or the create stays what it was, waiting or parked."""

from __future__ import annotations

import datetime as dt
from typing import Final

from pushlink.errors import Code
from pushlink.protocol.contracts import ActionContract, ProfileContract, StampLookUp
from pushlink.protocol.declarations import rule_on_lookup, throttle_row
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.lookups import BY_STAMP, LookedUp, Shown, lookup_named, read_lookup, row_of
from pushlink.protocol.outcome import Verdict
from pushlink.protocol.replies import Disposition, Effect
from pushlink.protocol.stamp_lookups import read_stamped
from pushlink.protocol.waits import retry_after_ms, throttle_ms

#: What a create was, and stays as long as no look-up shows its record.
_BEFORE: Final = {
    "async": (Effect.ACCEPTED_PENDING, Code.ACCEPTED_PENDING),
    "followup": (Effect.APPLIED_UNIDENTIFIED, Code.APPLIED_UNIDENTIFIED),
}


def code_before(name: str) -> Code:
    """Why a create waits for a look-up of this name, or is parked after it."""
    return _BEFORE[name][1]


#: What a look-up by the stamp says of a create in doubt, where it does not show its one record.
_OF_STAMPS: Final = {
    Shown.SEVERAL: (Effect.UNKNOWN, Disposition.PARK, Code.LOOKUP_SHOWS_SEVERAL),
    Shown.NO_ID: (Effect.APPLIED_UNIDENTIFIED, Disposition.PARK, Code.APPLIED_UNIDENTIFIED),
}
_IN_VAIN: Final = (Effect.UNKNOWN, Disposition.LOOK_UP, Code.LOOKUP_IN_VAIN)


def interpret_lookup(
    action: ActionContract,
    profile: ProfileContract,
    name: str,
    reply: StoredReply,
    *,
    send_ordinal: int,
    received_at: dt.datetime | None = None,
    mark: str | None = None,
) -> Verdict:
    """The verdict on one look-up, from the frozen contracts and the stored answer alone.

    A throttle says `throttled`, and the create waits as before. `received_at` is as in `interpret`; `mark` is what our
    record carries, for a look-up by it.
    """
    lookup = lookup_named(action, name)
    found = LookedUp(shown=Shown.NO_ID)
    if isinstance(lookup, StampLookUp):
        found = read_stamped(action, lookup, reply, mark)
    elif lookup is not None:
        found = read_lookup(action, lookup, reply)
    effect, disposition, code = _says(name, found.shown)
    row = row_of(found.shown)
    evidence: dict[str, object] = {
        "look_up": name,
        "shown": found.shown,
        "status": reply.status,
        "error": reply.error,
        "body_digest": reply.body_digest,
        "send_ordinal": send_ordinal,
        **({"error_text": reply.error_text} if reply.error_text else {}),
    }
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
    waits, is_open = disposition is Disposition.LOOK_UP, found.shown is Shown.NOT_YET
    asked_ms = retry_after_ms(reply, received_at)
    declared = rule_on_lookup(action, profile, reply) if is_open else None
    throttled = throttle_row(profile, reply) if is_open and declared is None else None
    if declared is not None:
        row, rule = declared
        evidence["because"] = rule.because
        waits = rule.disposition == "retry_at"
        asked_ms = max((ms for ms in (asked_ms, rule.wait_ms) if ms is not None), default=None)
    elif throttled is not None:
        row, code = throttled, Code.THROTTLED
        asked_ms = throttle_ms(profile.rate_limit, reply, received_at)
    return Verdict(
        effect=effect,
        disposition=Disposition.LOOK_UP if waits else Disposition.PARK,
        code=code,
        row=row,
        retry_after_ms=asked_ms if waits else None,
        evidence=evidence,
    )


def _says(name: str, shown: Shown) -> tuple[Effect, Disposition, Code]:
    """What a look-up comes to that does not show the record, and whether another one follows."""
    if name == BY_STAMP:
        return _OF_STAMPS.get(shown, _IN_VAIN)
    effect, code = _BEFORE[name]
    return effect, Disposition.LOOK_UP if shown is Shown.NOT_YET else Disposition.PARK, code
