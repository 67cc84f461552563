"""Look-ups by our own stamp: what is asked about a create in doubt, and what the answer shows.

Only an item that carries the stamp counts, whatever the remote was asked: some drop a term that they do not understand,
and others search by words. One such item is the record, several are nobody's. An answer without one proves nothing by
itself; from when on it does, if the pack says so, is the settle time and the lag of the remote's index (D-08).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from pushlink.protocol import jsontext
from pushlink.protocol.contracts import ActionContract, CreateContract, IdExtractor, ProfileContract, StampLookUp
from pushlink.protocol.criteria import all_hold, any_holds
from pushlink.protocol.evidence import StoredReply
from pushlink.protocol.extract import parse_place, read_body
from pushlink.protocol.failures import RenderFailure
from pushlink.protocol.jsontext import Number, Parsed
from pushlink.protocol.lookups import KEY, LookedUp, LookUpRequest, Shown, fill_lookup, text_in_body
from pushlink.protocol.patterns import full_match
from pushlink.protocol.placeholders import CLIENT_ID
from pushlink.protocol.remoteids import Extracted, NoId, read_remote_id
from pushlink.protocol.replay import own_texts, stamp_of


def mark_of(create: CreateContract, idempotency_key: str, client_id: str | None) -> str | None:
    """What our record carries and no other: the stamp, else the id that the create gave it."""
    if create.stamp is not None:
        return stamp_of(create.stamp, idempotency_key)
    return client_id


def render_stamp_lookup(
    lookup: StampLookUp,
    create: CreateContract,
    profile: ProfileContract,
    *,
    idempotency_key: str,
    client_id: str | None,
    body: bytes,
) -> LookUpRequest | RenderFailure:
    """The request that asks, filled from what was frozen with the create."""
    variables: dict[str, str | None] = {**profile.variables, **own_texts(create, idempotency_key)}
    if client_id is not None:
        variables[CLIENT_ID] = client_id
    if lookup.key is not None:
        variables[KEY] = text_in_body(lookup.key, body)
    return fill_lookup(lookup, profile, variables, quoting=create.key_quoting)


def read_stamped(action: ActionContract, lookup: StampLookUp, reply: StoredReply, mark: str | None) -> LookedUp:
    """What an answer shows: our one record, several of them, nothing of ours, or nothing that can be read."""
    if mark is None or reply.status is None or not reply.trace.request_started or any_holds(lookup.failed, reply):
        return LookedUp(shown=Shown.NOT_YET)
    if any_holds(lookup.none, reply):
        return LookedUp(shown=Shown.NOTHING)
    if reply.status not in lookup.status or not all_hold(lookup.done, reply):
        return LookedUp(shown=Shown.NOT_YET)
    body = read_body(reply)
    items = None if isinstance(body, NoId) else _items(body, lookup.items)
    if items is None:
        return LookedUp(shown=Shown.NOT_YET)
    ours = [item for item in items if _carries(item, lookup.match, mark)]
    if len(ours) != 1:
        return LookedUp(shown=Shown.SEVERAL if ours else Shown.NOTHING)
    found = next((text for text in (_text_at(place, ours[0]) for place in lookup.id) if text is not None), None)
    known = None if found is None else read_remote_id(action, found)
    if not isinstance(known, Extracted):
        return LookedUp(shown=Shown.NO_ID)
    return LookedUp(shown=Shown.RECORD, remote_id=known.remote_id, canonical_id=known.canonical)


def proves_absence_from(lookup: StampLookUp, settled_at: dt.datetime) -> dt.datetime | None:
    """From when on finding nothing proves that nothing was made; `None` where the pack does not say that it does."""
    if not lookup.absence_is_proof:
        return None
    return settled_at + dt.timedelta(milliseconds=lookup.lag_ms)


def last_look(lookup: StampLookUp, last_send: dt.datetime, proof_from: dt.datetime | None) -> dt.datetime:
    """Until when it is looked for: the pack's own time, and as long as a proof of absence takes in any case."""
    declared = last_send + dt.timedelta(milliseconds=lookup.timeout_ms)
    if proof_from is None:
        return declared
    return max(declared, proof_from + dt.timedelta(milliseconds=lookup.every_ms * (lookup.misses_min + 1)))


def _items(body: Parsed, pointer: str | None) -> list[Parsed] | None:
    if pointer is None:
        return [body] if isinstance(body, Mapping) else None
    found = jsontext.resolve(body, pointer)
    return found if isinstance(found, list) else None


def _carries(item: Parsed, pointer: str, mark: str) -> bool:
    """Whether the stamp stands in an item; some remotes write hexadecimal digits in capitals."""
    text = _text(jsontext.resolve(item, pointer))
    return text is not None and text.casefold() == mark.casefold()


def _text_at(extractor: IdExtractor, item: Parsed) -> str | None:
    place = parse_place(extractor.source)
    if place is None or place.kind != "body":
        return None
    text = _text(jsontext.resolve(item, place.name))
    if text is None or extractor.regex is None:
        return text or None
    match = full_match(extractor.regex, text)
    return match[1] if match is not None else None


def _text(value: Parsed) -> str | None:
    if isinstance(value, Number):
        return value.text if value.is_integer else None
    return value if isinstance(value, str) else None
