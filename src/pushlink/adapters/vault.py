"""AES-256-GCM over what rows keep of records, with keys from the environment or from files (S8).

An envelope is one byte of format, a salt, a nonce, and the ciphertext with its tag. No key of the settings ever seals
anything itself: HMAC-SHA-256 makes a key of its own for each envelope from key and salt, so that the number of
envelopes under one key is not bounded by its nonces. The row's binding goes in as associated data: an envelope that a
database editor put into another row does not open there.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pushlink.adapters.key_material import KEY_BYTES, KEY_ID, decode_key, unusable_key
from pushlink.ports import Credentials
from pushlink.protocol.sealing import Sealed, Unread

_SECTION: Final = "at_rest"

_FORMAT: Final = b"\x01"
_PURPOSE: Final = b"pushlink envelope v1\x00"
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_HEAD_BYTES: Final = len(_FORMAT) + _SALT_BYTES + _NONCE_BYTES

#: How much longer an envelope is than what it holds.
OVERHEAD_BYTES: Final = _HEAD_BYTES + _TAG_BYTES


class KeyVault:
    """Seals with the key of `newest`, opens with any of `keys`; with `required` a plain content is not believed."""

    def __init__(self, keys: Mapping[str, bytes], *, newest: str, required: bool = False) -> None:
        for key_id, key in keys.items():
            if not KEY_ID.fullmatch(key_id) or len(key) != KEY_BYTES:
                raise unusable_key(
                    _SECTION, key_id, f"is not {KEY_BYTES} bytes under a short id of letters, digits, . _ -"
                )
        if newest not in keys:
            raise unusable_key(_SECTION, newest, "is to seal, and is not among the keys")
        self._keys = dict(keys)
        self._required = required
        self.newest: str | None = newest

    def __repr__(self) -> str:
        return f"{type(self).__name__}(newest={self.newest!r})"

    def seal(self, content: bytes, binding: bytes) -> Sealed:
        """A fresh envelope of the newest key."""
        key_id = self.newest or ""
        random = os.urandom(_SALT_BYTES + _NONCE_BYTES)
        salt, nonce = random[:_SALT_BYTES], random[_SALT_BYTES:]
        cipher = AESGCM(_envelope_key(self._keys[key_id], salt))
        return Sealed(_FORMAT + random + cipher.encrypt(nonce, content, _bound(binding, key_id)), key_id)

    def open(self, content: bytes, key: str | None, binding: bytes) -> bytes | Unread:
        """What an envelope holds, or why it cannot be read."""
        if key is None:
            return Unread.NOT_SEALED if self._required else content
        if (secret := self._keys.get(key)) is None:
            return Unread.KEY_MISSING
        if len(content) < OVERHEAD_BYTES or content[:1] != _FORMAT:
            return Unread.NOT_OPENED
        salt, nonce = content[1 : 1 + _SALT_BYTES], content[1 + _SALT_BYTES : _HEAD_BYTES]
        try:
            return AESGCM(_envelope_key(secret, salt)).decrypt(nonce, content[_HEAD_BYTES:], _bound(binding, key))
        except InvalidTag:
            return Unread.NOT_OPENED


def vault_of(references: Mapping[str, str], credentials: Credentials, *, newest: str, required: bool) -> KeyVault:
    """The vault of settings: each key is a reference (`env:NAME`, `file:/path`) to 32 bytes, in base64 or hexadecimal.

    Raises `ConfigurationError`, which names ids and references only.
    """
    keys = {
        key_id: decode_key(_SECTION, key_id, credentials.resolve(ref, tenant="").value)
        for key_id, ref in references.items()
    }
    return KeyVault(keys, newest=newest, required=required)


def _envelope_key(key: bytes, salt: bytes) -> bytes:
    return hmac.digest(key, _PURPOSE + salt, hashlib.sha256)


def _bound(binding: bytes, key_id: str) -> bytes:
    return _FORMAT + key_id.encode() + b"\x00" + binding
