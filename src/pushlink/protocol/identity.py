"""Who owns a remote record: the keys of links, locators and requests, and the one spelling of a local record's id.

A key is a digest over a fixed list of texts. Each text goes in with its length in front and the purpose of the key
comes first, so that two different lists never encode alike and a key of one purpose is never a key of another. The
purpose carries a version; golden vectors in the tests pin it. No name for people, no install, version of a flow,
payload or fingerprint is ever part of a key: they may change while ownership stays.

`slot_key`, `create_key` and `update_key` of the tables are the link key itself while they are set.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final, NewType, TypeAlias

from pushlink.errors import CallerError, Code, invariant
from pushlink.protocol.snapshots import Digest, LinkKey, LocatorKey, Slots

OwnerKey = NewType("OwnerKey", str)
IdempotencyKey = NewType("IdempotencyKey", str)

#: The one action type of this protocol (ID-08).
ACTION_TYPE: Final = "PushToConnector"

#: A deployment secret shorter than this could be guessed from published idempotency keys.
SECRET_BYTES_MIN: Final = 16

#: No database has integer keys of more bits; the bound keeps a hostile number from becoming a huge text.
INTEGER_BITS_MAX: Final = 256


class KeyType(StrEnum):
    """How an object's record ids are typed (D-42). `composite` is a tuple of the other three."""

    INTEGER = "integer"
    UUID = "uuid"
    TEXT = "text"
    COMPOSITE = "composite"


#: A record id as a value again: what `canonical_record_id` was made from (a UUID as its text).
RecordKey: TypeAlias = int | str | tuple[int | str, ...]

_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}")
_COMPONENT: Final = re.compile(r"(?P<mark>[iut])(?P<length>0|[1-9][0-9]{0,8}):")


def owner_key(connector_owner_key: str, tenant: str) -> OwnerKey:
    """The owner that enters a key: the pack's immutable key and the tenant of the install (D-40), never a namespace."""
    return OwnerKey(_encode((connector_owner_key, tenant)).decode())


def link_key(slots: Slots, record_id: str) -> LinkKey:
    """The durable key of one logical action on one local record: `lk1_` and 64 hexadecimal digits (ID-01)."""
    _require_slots(slots)
    parts = (
        owner_key(slots.connector_owner_key, slots.tenant),
        slots.action_slot_id,
        ACTION_TYPE,
        slots.source_object,
        record_id,
        slots.destination_slot_id,
    )
    return LinkKey("lk1_" + _digest("pushlink link key 1", parts))


def locator_key(slots: Slots, *, scope: str, canonical_id: str) -> LocatorKey:
    """The key under which one remote record can be claimed once: owner, destination, remote tenant, canonical id."""
    invariant(canonical_id != "", "A locator needs a remote id.")
    encoded = _locator_start(slots, scope) + _encode((canonical_id,))
    return LocatorKey("loc1_" + hashlib.sha256(encoded).hexdigest())


@lru_cache(maxsize=1_024)
def _locator_start(slots: Slots, scope: str) -> bytes:
    """The encoding of all that an action's locators have in common."""
    _require_slots(slots)
    owner = owner_key(slots.connector_owner_key, slots.tenant)
    return _encode(("pushlink locator key 1", owner, slots.destination_slot_id, scope))


def create_idempotency_key(secret: bytes, key: LinkKey, ordinal: int) -> IdempotencyKey:
    """The request key of the create attempt with this ordinal (D-37): the same again after a restore."""
    invariant(ordinal >= 1, "The ordinal of a create attempt starts at 1.", ordinal=ordinal)
    return _idempotency_key(secret, ("create", key, str(ordinal)))


def update_idempotency_key(secret: bytes, key: LinkKey, version: int, body_digest: Digest) -> IdempotencyKey:
    """The request key of one update: bound to the wanted version and to the bytes that are sent."""
    invariant(version >= 1, "A wanted version starts at 1.", version=version)
    return _idempotency_key(secret, ("update", key, str(version), body_digest))


def canonical_record_id(key_type: KeyType, value: object, *, parts: tuple[KeyType, ...] = ()) -> str:
    """The one text of a record id before it is hashed; raises `CallerError` for any other type than the declared one.

    `parts` are the types of a composite key's components, in order. Text is taken as it is: not trimmed, not
    normalised. A UUID may come as text or as an object whose `hex` is its 32 digits.
    """
    if key_type is not KeyType.COMPOSITE:
        return _WRITERS[key_type](value)
    if not isinstance(value, tuple) or len(value) != len(parts) or not parts or KeyType.COMPOSITE in parts:
        raise _unusable(key_type, value, f"wanted a tuple of {len(parts)} components")
    texts = [(part, _WRITERS[part](item)) for part, item in zip(parts, value, strict=True)]
    return ",".join(f"{part[0]}{len(text)}:{text}" for part, text in texts)


def read_record_id(key_type: KeyType, text: str, *, parts: tuple[KeyType, ...] = ()) -> RecordKey:
    """The value behind a canonical text: an integer, a text, or a tuple of them. Raises `CallerError` for other text.

    A command line gives ids as text; `canonical_record_id` of the answer is the text again.
    """
    if key_type is not KeyType.COMPOSITE:
        return _READERS[key_type](text)
    values: list[int | str] = []
    position = 0
    for index, part in enumerate(parts):
        head = _COMPONENT.match(text, position)
        if head is None or head["mark"] != part[0]:
            raise _unusable(key_type, text, f"component {index + 1} does not start with {part[0]!r} and a length")
        end = head.end() + int(head["length"])
        is_last = index == len(parts) - 1
        if end > len(text) or (end != len(text) if is_last else text[end : end + 1] != ","):
            raise _unusable(key_type, text, f"component {index + 1} does not end where its length says")
        values.append(_READERS[part](text[head.end() : end]))
        position = end + 1
    if not values:
        raise _unusable(key_type, text, "the object declares no key components")
    return tuple(values)


def _write_integer(value: object) -> str:
    if not isinstance(value, int) or isinstance(value, bool) or value.bit_length() > INTEGER_BITS_MAX:
        raise _unusable(KeyType.INTEGER, value, f"wanted an integer of at most {INTEGER_BITS_MAX} bits")
    return str(int(value))


def _write_uuid(value: object) -> str:
    text = value if isinstance(value, str) else getattr(value, "hex", None)
    if not isinstance(text, str) or not _UUID.fullmatch(text):
        raise _unusable(KeyType.UUID, value, "wanted a UUID, or its text with or without hyphens")
    digits = text.replace("-", "").lower()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _write_text(value: object) -> str:
    if not isinstance(value, str) or "\x00" in value or not _is_unicode(value):
        raise _unusable(KeyType.TEXT, value, "wanted text of Unicode characters without NUL")
    return str(value)


def _read_integer(text: str) -> int:
    if not _INTEGER.fullmatch(text) or len(text) > INTEGER_BITS_MAX:
        raise _unusable(KeyType.INTEGER, text, "wanted decimal digits without leading zeros")
    return int(text)


_WRITERS: Final[Mapping[KeyType, Callable[[object], str]]] = {
    KeyType.INTEGER: _write_integer,
    KeyType.UUID: _write_uuid,
    KeyType.TEXT: _write_text,
}

_READERS: Final[Mapping[KeyType, Callable[[str], int | str]]] = {
    KeyType.INTEGER: _read_integer,
    KeyType.UUID: _write_uuid,
    KeyType.TEXT: _write_text,
}


def _unusable(key_type: KeyType, value: object, wanted: str) -> CallerError:
    return CallerError(
        f"This {type(value).__name__} is no record id of key type {key_type}: {wanted}.",
        code=Code.RECORD_ID_UNUSABLE,
        evidence={"key_type": key_type, "given_type": type(value).__name__},
        next_step="pass the id in the key type that the object's settings declare",
    )


def _require_slots(slots: Slots) -> None:
    for name in ("connector_owner_key", "action_slot_id", "destination_slot_id", "source_object"):
        invariant(getattr(slots, name) != "", f"A key needs {name}; a name never takes its place.", slot=name)


def _idempotency_key(secret: bytes, parts: tuple[str, ...]) -> IdempotencyKey:
    invariant(len(secret) >= SECRET_BYTES_MIN, "The deployment secret is too short.", bytes_min=SECRET_BYTES_MIN)
    mac = bytearray(hmac.digest(secret, _encode(("pushlink idempotency key 1", *parts)), "sha256")[:16])
    # The two marks of a version 8 UUID (RFC 9562), so that remotes which insist on a UUID take it.
    mac[6] = mac[6] & 0x0F | 0x80
    mac[8] = mac[8] & 0x3F | 0x80
    return IdempotencyKey(_write_uuid(mac.hex()))


def _digest(purpose: str, parts: tuple[str, ...]) -> str:
    return hashlib.sha256(_encode((purpose, *parts))).hexdigest()


def _encode(parts: tuple[str, ...]) -> bytes:
    """Each part as `<length in bytes>:<UTF-8 bytes>,`, one after the other."""
    encoded = [part.encode() for part in parts]
    return b"".join(b"%d:%s," % (len(part), part) for part in encoded)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
