"""What an answer means under a contract for repeats: a stored answer, a key in use, another body, our own first send.

These readings stand above all other declared rules. Most of them only add caution. Two settle a doubt, and nothing else
does (D-06): a receipt, with which the remote says that it gave this very answer before, and "it exists already" to a
create whose record we named before we first sent it.
"""

from __future__ import annotations

from pushlink.protocol.contracts import ActionContract
from pushlink.protocol.criteria import all_hold, any_holds
from pushlink.protocol.declarations import UNAUTHORIZED, Reading
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.extract import extract_first
from pushlink.protocol.remoteids import Found, NoId, Reason, read_remote_id
from pushlink.protocol.replies import IN_FLIGHT, MISMATCH, OURS, Effect, Meaning

#: The one status that a remote stores under a key and that a gateway does not make up.
_STORED_FAILURE = 500


def repeat_reading(action: ActionContract, reply: StoredReply, *, in_doubt: bool) -> Reading | None:
    """What the contract for repeats says about an answer to a create; `None` where it says nothing."""
    if reply.status is None or reply.status == UNAUTHORIZED:
        return None
    key, repeat = action.create.idempotency, action.create.repeat
    if key is not None and any_holds(key.mismatch, reply):
        return Reading(row="the key came with another body", meaning=MISMATCH)
    if key is not None and any_holds(key.in_flight, reply):
        return Reading(row="the key is still in use", meaning=IN_FLIGHT)
    if repeat is not None and in_doubt and any_holds(repeat.exists, reply):
        return Reading(row="it exists: our own first send", meaning=OURS)
    return None


def has_receipt(action: ActionContract, reply: StoredReply) -> bool:
    """Whether the remote shows that it gave this answer before, for the same key."""
    key = action.create.idempotency
    return key is not None and bool(key.receipt) and all_hold(key.receipt, reply)


def is_stored_failure(action: ActionContract, reply: StoredReply, meaning: Meaning) -> bool:
    """Whether every repeat would be answered like this again: a failure that the remote keeps under the key."""
    key = action.create.idempotency
    if key is None or meaning.effect is not Effect.UNKNOWN:
        return False
    return has_receipt(action, reply) or (key.stores == "all" and reply.status == _STORED_FAILURE)


def own_id(action: ActionContract, reply: StoredReply, client_id: str | None) -> Found:
    """The id of our own record, from an answer that says that it exists: as it is named there, or as we named it."""
    repeat = action.create.repeat
    named = None if repeat is None else extract_first(repeat.existing_id, reply)
    text = named or client_id
    return NoId(reason=Reason.ABSENT) if text is None else read_remote_id(action, text)


def converges(action: ActionContract) -> bool:
    """Whether a record that the create met instead of making carries our own stamp all the same."""
    return action.create.repeat is not None
