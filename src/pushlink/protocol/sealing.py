"""What a sealed content is bound to: the row that it stands in, so that no row opens the content of another (S8).

Only what a row keeps of a record is sealed: the body of a frozen request, the body of a stored reply, and the values
that a slot wants. A binding names table, column and what the row can never change: the ids of its attempt and claim, or
the record and the mapping of a slot (its link key may move, when lineage is rebound). Texts go in with their lengths,
so that two different rows never have the same binding.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_LENGTH_BYTES: Final = 4


class Unread(StrEnum):
    """Why a content cannot be read; each is a fact about the row, and none is ever guessed around."""

    KEY_MISSING = "key_missing"  # it is sealed with a key that this process was not given
    NOT_OPENED = "not_opened"  # its key is there and does not open it: it was changed, cut, or is another row's
    NOT_SEALED = "not_sealed"  # it is plain, and the settings say that nothing is
    ERASED = "erased"  # its time was over; digest and size are kept


#: What a person reads of each.
UNREAD: Final = {
    Unread.KEY_MISSING: "the key that it is sealed with is not among the keys of the settings",
    Unread.NOT_OPENED: "its key does not open it: it was changed, or belongs to another row",
    Unread.NOT_SEALED: "it is not sealed, although the settings require it",
    Unread.ERASED: "it was erased after its time; its digest is kept",
}


@dataclass(frozen=True, slots=True)
class Sealed:
    """A content as a row keeps it; `key` is the id of the key that opens it, `None` for a plain one."""

    content: bytes
    key: str | None


def request_binding(attempt_id: str, freeze: int) -> bytes:
    """Of the body of a frozen request."""
    return _binding("push_request", "body", attempt_id, str(freeze))


def reply_binding(attempt_id: str, claim_token: str, send_ordinal: int) -> bytes:
    """Of the body of a stored reply: whose claim got it, and to which of its sends."""
    return _binding("push_response", "body", attempt_id, claim_token, str(send_ordinal))


def wanted_binding(tenant: str, source_object: str, record_id: str, mapping_fingerprint: str) -> bytes:
    """Of the values that a slot wants: the record that they are of, and the mapping that they were frozen under."""
    return _binding("push_slot", "wanted_values", tenant, source_object, record_id, mapping_fingerprint)


def _binding(*parts: str) -> bytes:
    encoded = [part.encode() for part in ("pushlink.sealed.v1", *parts)]
    return b"".join(len(part).to_bytes(_LENGTH_BYTES, "big") + part for part in encoded)


class Plain:
    """The vault of a deployment without keys: it seals nothing, and opens nothing that is sealed."""

    newest: str | None = None

    def seal(self, content: bytes, binding: bytes) -> Sealed:  # noqa: ARG002 - the port's signature
        """The content as it is."""
        return Sealed(content, None)

    def open(self, content: bytes, key: str | None, binding: bytes) -> bytes | Unread:  # noqa: ARG002 - the same
        """A plain content as it is."""
        return content if key is None else Unread.KEY_MISSING
