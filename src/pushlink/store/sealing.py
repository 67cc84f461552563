"""Rows whose content is sealed: made so before they are written, and opened by whoever needs the content.

Neither needs a transaction. What cannot be opened is an `Unread`, never an exception and never an empty content.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace

from pushlink.ports import Vault
from pushlink.protocol.sealing import Sealed, Unread, reply_binding, request_binding, wanted_binding
from pushlink.store.rows import RequestRow, SlotIdentity, SlotRow


def seal_request(vault: Vault, row: RequestRow) -> RequestRow:
    """The row as it is written: its body sealed, its size noted."""
    if row.body is None:
        return row
    sealed = vault.seal(row.body, request_binding(row.attempt_id, row.freeze))
    return replace(row, body=sealed.content, sealed_by=sealed.key, body_size=len(row.body))


def open_body(vault: Vault, row: RequestRow) -> bytes | Unread:
    """The frozen body, as it is sent."""
    if row.body is None:
        return b"" if row.erased_at is None else Unread.ERASED
    return vault.open(bytes(row.body), row.sealed_by, request_binding(row.attempt_id, row.freeze))


def opened(vault: Vault, row: RequestRow) -> RequestRow | Unread:
    """The row with its body as it is sent."""
    body = open_body(vault, row)
    return body if isinstance(body, Unread) else replace(row, body=None if row.body is None else body, sealed_by=None)


def seal_reply(vault: Vault, body: bytes, *, attempt_id: str, claim_token: str, send_ordinal: int) -> Sealed:
    """A reply's body as it is written; nothing is as good as nothing."""
    if not body:
        return Sealed(body, None)
    return vault.seal(body, reply_binding(attempt_id, claim_token, send_ordinal))


def seal_values(
    vault: Vault, text: str, slot: SlotRow | SlotIdentity, mapping_fingerprint: str
) -> tuple[str, str | None]:
    """Wanted values as a slot keeps them, and the key that opens them."""
    sealed = vault.seal(text.encode(), _of_wanted(slot, mapping_fingerprint))
    return (text, None) if sealed.key is None else (base64.b64encode(sealed.content).decode(), sealed.key)


def open_values(vault: Vault, slot: SlotRow) -> str | Unread:
    """The values that a slot wants, as the document that was frozen; the slot has some."""
    if slot.wanted_values is None:
        return Unread.ERASED
    binding = _of_wanted(slot, slot.wanted_mapping_fingerprint or "")
    return open_text(vault, slot.wanted_values, slot.wanted_sealed_by, binding)


def open_text(vault: Vault, text: str, key: str | None, binding: bytes) -> str | Unread:
    """A sealed text, whose envelope is kept in base64."""
    try:
        content = text.encode() if key is None else base64.b64decode(text, validate=True)
        opened = vault.open(content, key, binding)
        return opened if isinstance(opened, Unread) else opened.decode()
    except (binascii.Error, UnicodeDecodeError):
        return Unread.NOT_OPENED


def _of_wanted(slot: SlotRow | SlotIdentity, mapping_fingerprint: str) -> bytes:
    return wanted_binding(slot.tenant, slot.source_object, slot.source_record_id, mapping_fingerprint)
