"""Keys of 32 bytes, as settings name them: by an id, and a place that is a variable or a file."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from pushlink.errors import Code, ConfigurationError

KEY_BYTES: Final = 32

#: Ids of keys stand in rows, anchors, reports and settings.
KEY_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def decode_key(section: str, key_id: str, text: str) -> bytes:
    """The bytes of a key in base64 or hexadecimal; raises `ConfigurationError`, which names the id alone."""
    try:
        is_hex = len(text.strip()) == 2 * KEY_BYTES
        key = bytes.fromhex(text) if is_hex else base64.b64decode(text.strip(), validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise unusable_key(section, key_id, f"is not {KEY_BYTES} bytes in base64 or hexadecimal")
    return key


def unusable_key(section: str, key_id: str, why: str) -> ConfigurationError:
    """What is wrong with one key of a section of the settings."""
    return ConfigurationError(
        f"The key {key_id!r} of [{section}] {why}.",
        code=Code.SETTINGS_INVALID,
        evidence={"key": key_id},
        next_step=f"make one with `openssl rand -base64 32`, and name its place in [{section}.keys]",
    )
